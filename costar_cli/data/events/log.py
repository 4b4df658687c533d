"""Events of subjects, as every format of logs hands them on."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from costar_cli.data.base import called
from costar_cli.files import file_sha256
from costar_cli.files.digest import sha256
from costar_cli.reporting import Reporter


@dataclass(frozen=True, eq=False)
class Events:
    """A log of events, read lazily, and what its format says of codes and subjects.

    Attributes:
        scan: a row per event: `subject` (whole number or text), `time` (moments in microseconds without a zone, or
            numbers; null for what holds always), `code` (text), `value` (number or null), and where the format has them
            `text`, `unit`, `stop` (the end of an interval that begins at `time`, whose value is a total), `until`
            (the end of the day, where only the day of a moment is known) and further columns that pair rows.
        path: the log, a file or a folder.
        parents: the parents of codes: `code`, `parent`, a row for each.
        splits: `subject` and `split`, one of train, val and test, where the format says them.
        texts: what codes mean: `code` and `description`, where the format says it.
    """

    scan: pl.LazyFrame
    path: Path
    parents: pl.DataFrame | None = None
    splits: pl.DataFrame | None = None
    texts: pl.DataFrame | None = None

    @property
    def name(self) -> str:
        """Return what messages call the log."""
        return self.path.resolve().name


@dataclass(frozen=True)
class LogFormat:
    """A format of logs of events, by what `costar ingest` calls it.

    Attributes:
        read: `(path, reporter, *, pairs) -> Events`, with the columns `pairs` beside those of the format.
        listed: `(path) -> {place: file}`: the files that are read.
    """

    read: str
    listed: str

    def open(self, path: Path, reporter: Reporter, *, pairs: Collection[str] = ()) -> Events:
        """Return the log at a path."""
        function: Callable[..., Events] = called(self.read)
        return function(path, reporter, pairs=pairs)

    def digest(self, path: Path) -> str:
        """Return a digest of all files of the log at a path, by their places in it."""
        files: Mapping[str, Path] = called(self.listed)(path)
        return sha256("".join(f"{place}\t{file_sha256(file)}\n" for place, file in sorted(files.items())).encode())


FORMATS: Final[Mapping[str, LogFormat]] = {
    "meds": LogFormat("costar_cli.data.events.meds:open_meds", "costar_cli.data.events.meds:meds_files"),
    "omop": LogFormat("costar_cli.data.events.omop:open_omop", "costar_cli.data.events.omop:omop_files"),
}
