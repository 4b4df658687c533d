"""Events of subjects, as every format of logs hands them on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl


@dataclass(frozen=True, eq=False)
class Events:
    """A log of events, read lazily, and what its format says of codes and subjects.

    Attributes:
        scan: a row per event: `subject` (whole number or text), `time` (moments in microseconds without a zone, or
            numbers; null for what holds always), `code` (text), `value` (number or null), and where the format has them
            `text`, `unit`, `stop` (the end of an interval that begins at `time`) and further columns that pair rows.
        path: the log, a file or a folder.
        parents: the parents of codes: `code`, `parent`, a row for each.
        splits: `subject` and `split`, one of train, val and test, where the format says them.
        files: the files that are read, by their place in the log.
    """

    scan: pl.LazyFrame
    path: Path
    parents: pl.DataFrame | None = None
    splits: pl.DataFrame | None = None
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return what messages call the log."""
        return self.path.name
