"""What installed packages add through their entry points, and why some of it cannot be used."""

import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUPS: Final = {"costar.datasets": "data set", "costar.methods": "method"}  # what an entry of each group adds


class Named(Protocol):
    """What an entry point must load: something with a name, the entry's own."""

    @property
    def name(self) -> str:
        """Return what the command line calls it."""
        ...


T = TypeVar("T", bound=Named)


@dataclass(frozen=True)
class Plugins(Generic[T]):
    """What the entry points of one group load, sorted by name; `problems` says of each other entry what is wrong."""

    found: tuple[T, ...]
    problems: tuple[str, ...]


def load_plugins(
    group: str, kind: type[T], taken: Collection[str], check: Callable[[T], Iterable[str]] | None = None
) -> Plugins[T]:
    """Load every entry point of a group; an entry that cannot be used is left out and breaks nothing.

    Args:
        group: one of `GROUPS`.
        kind: class of the objects that entries load.
        taken: names that costar itself uses.
        check: yields what is wrong with an object of the right class.
    """
    found: dict[str, T] = {}
    problems = []
    for entry in sorted(_entries(tuple(sys.path)).select(group=group), key=lambda entry: (entry.name, _package(entry))):
        try:
            if entry.name in taken or entry.name in found:
                raise ValueError("the name is taken")
            loaded = entry.load()  # which may raise whatever importing the package does
            if not isinstance(loaded, kind):
                raise ValueError(f"`{entry.value}` is of class {type(loaded).__name__}, not {kind.__name__}")
            if loaded.name != entry.name:
                raise ValueError(f"`{entry.value}` calls itself `{loaded.name}`")
            if check and (wrong := next(iter(check(loaded)), None)):
                raise ValueError(wrong)
            found[entry.name] = loaded
        except (Exception, SystemExit) as error:
            reason = " ".join(str(error).split())  # one line: costar's own complaint as it is, others with their class
            if type(error) is not ValueError:
                reason = f"{type(error).__name__}: {reason}".removesuffix(": ")
            problems.append(f"{GROUPS[group]} `{entry.name}` of {_package(entry)} is left out: {reason}")
    return Plugins(tuple(found.values()), tuple(problems))


@cache
def _entries(path: tuple[str, ...]) -> Any:  # noqa: ANN401, ARG001 - of another class in Python 3.11; where packages are
    """Return the entry points of installed packages, which take 10 ms to read, for all groups."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - a third of what `costar --help` would take

    return entry_points()


def _package(entry: "EntryPoint") -> str:
    return f"package {entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"
