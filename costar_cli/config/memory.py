"""How much memory this process may take: of the machine, of its container, and under limits of its own."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

MACHINE: Final = "this machine"
CONTAINER: Final = "this container"
GB: Final = 1e9
GROUPS: Final = Path("/proc/self/cgroup")
MOUNTED: Final = Path("/sys/fs/cgroup")
OF_VERSION_2, OF_VERSION_1 = ("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")
FILE_PAGES: Final = ("inactive_file", "active_file")  # of a control group's memory: nobody has to keep them
ADDRESSES: Final = "vms"  # what psutil calls them
OWN_LIMITS: Final = (("RLIMIT_AS", ADDRESSES, "ulimit -v"), ("RLIMIT_DATA", "data", "ulimit -d"))


class Memory(NamedTuple):
    """An amount of memory, and what has it; the least of several is the one that counts."""

    n_bytes: int
    of: str

    def __str__(self) -> str:
        """Return where an error says that memory is short."""
        return f"{self.of}, with {self.n_bytes / GB:.1f} GB free"


def own_limits() -> list[tuple[Memory, str]]:
    """Return the limits of this process itself, and which field of psutil's figures counts against each."""
    found = []
    with suppress(ImportError):  # POSIX has it
        import resource  # noqa: PLC0415

        for name, counted, command in OWN_LIMITS:
            limit = getattr(resource, name, None)  # some systems have not all of them
            most = resource.RLIM_INFINITY if limit is None else resource.getrlimit(limit)[0]
            if most != resource.RLIM_INFINITY:
                found.append((Memory(most, f"this process, under `{command}`"), counted))
    return found


def total_memory(sharing: int = 1) -> Memory:
    """Return how much memory this process could have if nothing took any but so many processes like it, it included.

    They share the machine and its container. Each has limits of its own.
    """
    import psutil  # noqa: PLC0415 - not for the process that waits for another one

    shared = min([Memory(psutil.virtual_memory().total, MACHINE), *(limit for limit, _ in _groups())])
    share = shared._replace(n_bytes=shared.n_bytes // sharing)
    return min([share, *(limit for limit, _ in own_limits())])


def free_memory() -> Memory:
    """Return how much memory this process may still take."""
    import psutil  # noqa: PLC0415

    free = [Memory(int(psutil.virtual_memory().available), MACHINE)]
    free += [Memory(most - used_bytes, of) for (most, of), used_bytes in _groups()]
    free += [left for left, _ in free_under_own_limits()]
    least = min(free)
    return least._replace(n_bytes=max(least.n_bytes, 0))


def free_under_own_limits() -> list[tuple[Memory, bool]]:
    """Return what each limit of this process itself leaves, and whether files that it maps count, too."""
    import psutil  # noqa: PLC0415

    limits = own_limits()
    used = psutil.Process().memory_info() if limits else None
    return [
        (Memory(max(most - getattr(used, counted, 0), 0), of), counted == ADDRESSES) for (most, of), counted in limits
    ]


def _groups() -> Iterator[tuple[Memory, int]]:
    """Yield the limit of each control group that this process is in, with those around it, and what it takes of it.

    Pages of files do not count: the system takes them back. In a container its own group may be the root of what is
    mounted, whatever the path.
    """
    with suppress(OSError, ValueError):
        for line in GROUPS.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from _around(path, (MOUNTED, MOUNTED / "unified"), OF_VERSION_2)
            elif "memory" in controllers.split(","):
                yield from _around(path, (MOUNTED / "memory",), OF_VERSION_1)


def _around(path: str, mounts: Iterable[Path], files: tuple[str, str]) -> Iterator[tuple[Memory, int]]:
    for mount in mounts:
        folder = mount / path.strip("/")
        for one in (folder, *folder.parents):
            if one.is_relative_to(mount):
                with suppress(OSError, ValueError):  # "max" is no limit
                    most, used = (int((one / name).read_text()) for name in files)
                    figures = dict(line.split() for line in (one / "memory.stat").read_text().splitlines())
                    of_files = [int(figures.get(f"total_{name}", figures.get(name, 0))) for name in FILE_PAGES]
                    yield Memory(most, CONTAINER), used - sum(of_files)
