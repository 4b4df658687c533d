"""The workspace: one experiment in one folder, where verbs find their inputs when no path is given."""

import hashlib
import os
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Final

from costar_cli.config.choices import DomainName, InitName
from costar_cli.errors import LockedError, StorageError, cut_bytes, storage_error, storing
from costar_cli.methods.registry import REFERENCE

DEFAULT_WORKSPACE = Path("costar-workspace")
ELSEWHERE: Final = "choose another folder with --workspace"
# What is made in a workspace, or in the folder of a benchmark, beside its artifacts; a folder before what is in it.
MADE: Final = (".lock", ".lock-holder", "runs", "runs/*", "plots", "benchmark", "benchmark/*")
MADE_BY_BENCHMARKS: Final = ("ledger.json", "part.json", "seed-[0-9]*", "gamma-[0-9]*", "shard-[0-9]*-of-[0-9]*")
MOST_NAME_BYTES: Final = 200  # of an output, in the name of its run's state
NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # Windows has neither; nor waits for a pipe


class Workspace:
    """The files of one experiment.

    Args:
        root: the folder; it is made when a verb first writes there.
        held: the process that started this one holds it.
    """

    def __init__(self, root: Path = DEFAULT_WORKSPACE, *, held: bool = False) -> None:
        self.root, self._held = root, held

    def __str__(self) -> str:
        return str(self.root)

    @property
    def data(self) -> Path:
        """Return the data set's file."""
        return self.root / "data.h5"

    @property
    def new(self) -> Path:
        """Return the file of new subjects, read as the data of a model were."""
        return self.root / "new.h5"

    @property
    def encoder(self) -> Path:
        """Return the pretrained encoder's file."""
        return self.root / "encoder.h5"

    @property
    def evaluation(self) -> Path:
        """Return the evaluation's file."""
        return self.root / "evaluation.h5"

    @property
    def refutation(self) -> Path:
        """Return the refutation's file."""
        return self.root / "refutation.h5"

    @property
    def estimates(self) -> Path:
        """Return the file of the last what-if estimates."""
        return self.root / "estimates.h5"

    @property
    def runs(self) -> Path:
        """Return the folder of the states of interrupted runs."""
        return self.root / "runs"

    def run_state(self, output: Path) -> Path:
        """Return the file that holds the state of the run that makes an output."""
        name = cut_bytes(output.stem, MOST_NAME_BYTES)
        if name == output.stem and output.parent.resolve() == self.root.resolve():
            return self.runs / f"{name}.h5"
        place = hashlib.sha256(str(output.resolve()).encode("utf-8", "surrogateescape")).hexdigest()
        return self.runs / f"{name}-{place[:12]}.h5"

    @property
    def plots(self) -> Path:
        """Return the folder of plots."""
        return self.root / "plots"

    def benchmark(self, name: str) -> Path:
        """Return the folder of a benchmark.

        Raises:
            StorageError: it leads out of the workspace.
        """
        self.refuse_links()
        return self.root / "benchmark" / name

    def model(self, method: str = REFERENCE, init: InitName = "pretrained", domain: DomainName = "source") -> Path:
        """Return a model's file: `model.h5`, `model-scratch-target.h5`, `model-crn.h5`."""
        parts = ["model"]
        if method != REFERENCE:
            parts.append(method)
        if init == "scratch":
            parts.append("scratch")
        if domain == "target":
            parts.append("target")
        return self.root / ("-".join(parts) + ".h5")

    def models(self) -> list[Path]:
        """Return the model files that exist, the plain `model.h5` first."""
        return sorted(self.root.glob("model*.h5"), key=lambda path: (len(path.name), path.name))

    def named(self, models: Iterable[Path]) -> list[Path]:
        """Return model files: a path that is no file may be what notes and tables call a model here, or its method."""
        found = []
        for path in models:
            here = (self.root / f"{path}.h5", self.root / f"model-{path}.h5") if path.name == str(path) else ()
            found.append(path if path.exists() else next((own for own in here if own.is_file()), path))
        return found

    def files(self) -> list[Path]:
        """Return the artifacts that exist, in the order in which verbs make them, and whatever is in their places."""
        made = [self.data, self.new, self.encoder, *self.models(), self.evaluation, self.refutation, self.estimates]
        return [path for path in made if os.path.lexists(path)]

    def make(self) -> None:
        """Make the folder.

        Raises:
            StorageError: the place is read-only, forbidden, or not a folder.
        """
        with storing(self.root, elsewhere=ELSEWHERE):
            self.root.mkdir(parents=True, exist_ok=True)

    def refuse_links(self, output: Path | None = None) -> None:
        """See that nothing that is written here leads out of the workspace, which may be somebody else's.

        Raises:
            StorageError: a file or folder of costar's, or an output that lies here, is a link, a pipe or a device, or
                the lock, which is emptied, has text and another name.
        """
        own = [output] if output is not None and output.parent.resolve() == self.root.resolve() else []
        # whether or not it is there, and what is in a folder only after the folder
        here = (self.root.glob(name) if "*" in name else [self.root / name] for name in (*MADE, *MADE_BY_BENCHMARKS))
        for path in chain(own, chain.from_iterable(here)):
            with suppress(FileNotFoundError):
                found = path.lstat()
                is_shared = path.name == ".lock" and found.st_nlink > 1 and found.st_size > 0
                if is_shared or not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                    is_link = is_shared or stat.S_ISLNK(found.st_mode)
                    what = "a link, which is not followed there" if is_link else "no regular file"
                    fix = f"remove it, or {ELSEWHERE}"
                    raise StorageError(f"`{path.name}` of the workspace is {what}", where=str(path), fix=fix)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the workspace for one writing process; nobody waits.

        Raises:
            LockedError: another costar process works here.
            StorageError: the folder cannot be written, or what is written there leads elsewhere.
        """
        from filelock import FileLock, Timeout

        self.make()
        self.refuse_links()
        if self._held:
            yield
            return
        lock = FileLock(self.root / ".lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise LockedError(
                f"another costar process works in this workspace{f': {self.holder}' if self.holder else ''}",
                where=str(self.root),
                fix=f"wait for it to end, or {ELSEWHERE}",
            ) from None
        except OSError as error:
            raise storage_error(error, self.root, elsewhere=ELSEWHERE) from error
        try:
            text = f"process {os.getpid()} on {socket.gethostname()}"
            with storing(self._signature, elsewhere=ELSEWHERE):
                self._signature.unlink(missing_ok=True)  # it may be another name of somebody's file
                with self._signature.open("x", encoding="utf-8") as file:  # which follows no link, either
                    file.write(text)
            yield
        finally:
            lock.release()

    @property
    def _signature(self) -> Path:
        """Return the file that says who holds the workspace."""
        return self.root / ".lock-holder"

    @property
    def holder(self) -> str:
        """Return who holds the workspace, or held it last; nothing where that cannot be read."""
        try:
            with os.fdopen(os.open(self._signature, os.O_RDONLY | NO_LINK), encoding="utf-8") as file:
                return file.read(200)
        except (OSError, UnicodeDecodeError):
            return ""
