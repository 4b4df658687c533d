"""Which of a workspace's models answers where nobody names one."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from costar_cli.cli.model import name_models
from costar_cli.cli.session import Session, read_kind
from costar_cli.cli.workspace import Workspace
from costar_cli.config.choices import DomainName
from costar_cli.errors import UsageError
from costar_cli.methods.registry import METHODS, REFERENCE

__all__ = ["ModelChoice", "to_name"]

MOST_NAMED: Final = 6  # other models in a note


@dataclass(frozen=True)
class ModelChoice:
    """The models that were named; or else the files of one method of the workspace, and those of its others."""

    named: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()
    others: tuple[Path, ...] = ()

    @classmethod
    def of(cls, workspace: Workspace, named: Sequence[Path] = ()) -> Self:
        """Return the models named, else COSTAR's of the workspace, else its stack's, else its only method's.

        Raises:
            UsageError: none is named, and the workspace has several methods, but neither COSTAR nor a stack.
        """
        if named:
            return cls(tuple(named))
        methods = {path: _method(path) for path in workspace.models()}
        there, preferred = set(methods.values()), (REFERENCE, METHODS.combining.name)
        method = next((name for name in preferred if name in there), None)
        if method is None and len(there) > 1:
            raise UsageError(
                f"the workspace has models of several methods, and no default: {_listed(methods, len(methods))}",
                where=str(workspace.root),
                fix=f"name one, for example `--model {next(iter(methods))}`",
            )
        files = tuple(path for path in methods if method in (None, methods[path]))
        return cls((), files, tuple(path for path in methods if path not in files))

    def fitting(self, workspace: Workspace, data: Path) -> Self:
        """Return the choice, and see by headers, before any other work, that these models read this data set.

        Which file of several domains' will be asked is not known yet.

        Raises:
            ArtifactError: a file is missing, or is not what it should be.
            MismatchError: a model is of other variables, treatments or units than the data set's.
        """
        certain = self.named or (self.files if len(self.files) == 1 else ())
        if not certain:
            return self
        from costar_cli.data.compatible import require_fitting

        header = read_kind("dataset", data)
        for name, path in name_models(certain, workspace.root).items():
            require_fitting(header, read_kind("model", path), called=f"model `{name}`")
        return self

    def about(self, session: Session, domains: Iterable[DomainName]) -> tuple[Path, ...]:
        """Return the models for subjects of these domains, and say in a note which others the workspace has.

        That is the model adapted to their domain, if there is one; the source's where they are of both.
        """
        if self.named:
            return self.named
        asked = set(domains)
        domain = asked.pop() if len(asked) == 1 else "source"
        ranked = sorted(self.files, key=lambda path: ("scratch" in _words(path), _domain(path) != domain))
        if others := [*ranked[1:], *self.others]:
            session.out.note(f"`{ranked[0].stem}` answers; --model names others: {_listed(others, MOST_NAMED)}")
        return tuple(ranked[:1])


def to_name(workspace: Workspace, models: Sequence[Path]) -> Sequence[Path] | None:
    """Return these models where a question about them has to name them; None where its default is one of them."""
    try:
        choice = ModelChoice.of(workspace)
    except UsageError:
        return models
    known = {path.resolve() for path in models}
    return None if any(path.resolve() in known for path in choice.files) else models


def _words(path: Path) -> list[str]:
    return path.stem.split("-")[1:]


def _method(path: Path) -> str:
    """Return the method of a workspace's model as its name tells it: `model-crn-erm-target.h5` is of `crn-erm`."""
    return path.stem.removesuffix("-target").removesuffix("-scratch").removeprefix("model").lstrip("-") or REFERENCE


def _domain(path: Path) -> DomainName:
    return "target" if _words(path)[-1:] == ["target"] else "source"


def _listed(paths: Collection[Path], most: int) -> str:
    names = [path.stem for path in paths]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
