"""A log of training: a row per member and epoch, as CSV, JSON Lines or for TensorBoard, written while training goes on.

A row is written once, however often the run is interrupted: a resumed run takes the steps of an uninterrupted one, and
leaves out the rows that are there. Epochs that the run state holds and the file lacks are filled in.
"""

import csv
import io
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from costar_cli.errors import MismatchError, StorageError, UsageError, storing
from costar_cli.methods.base import Stage

if TYPE_CHECKING:  # closed forms are fitted without torch
    from costar_cli.training.group import MemberRecord

COLUMNS: Final = (
    "run", "stage", "member", "epoch", "step", "loss", "validation_loss", "selection_score", "learning_rate", "seconds",
)  # fmt: skip
CURVES: Final = COLUMNS[5:-1]  # what TensorBoard draws
FOLDER_FILE: Final = "log.jsonl"  # in a folder for TensorBoard: which rows its event files have
FLAG: Final = "--log"

EpochLog = Callable[[Stage, Sequence[int], Sequence["MemberRecord"], float | None], None]
"""Logs those epochs of members that are not logged yet; the last argument is how many seconds the newest one took."""


def no_log(stage: Stage, members: Sequence[int], records: "Sequence[MemberRecord]", seconds: float | None) -> None:
    """Log nothing."""


def log_file(path: Path) -> Path:
    """Return the file that holds the rows of a log."""
    return path if path.suffix in (".csv", ".jsonl") else path / FOLDER_FILE


def check_log(path: Path, run: str, *, overwrite: bool) -> None:
    """See, before any work, that a log can be written.

    Args:
        path: a file, `.csv` or `.jsonl`, or a folder for TensorBoard.
        run: the mark of the run, which a log that is to be continued must have.
        overwrite: a log of another run may be replaced.

    Raises:
        UsageError: another kind of file, or TensorBoard is not installed.
        StorageError: there is no folder for it.
        MismatchError: the file exists and is no log of this run.
    """
    file = log_file(path)
    if path.suffix and file != path and not path.is_dir():
        fix = "end the name in .csv or .jsonl, or give a folder for TensorBoard"
        raise UsageError(f"no log can be written to `{path.name}`", where=FLAG, fix=fix)
    if file != path and find_spec("tensorboard") is None:
        fix = "`pip install 'costar[tensorboard]'`, or log to a file: `--log FILE.csv`"
        raise UsageError("a folder is for TensorBoard, which is not installed", where=FLAG, fix=fix)
    if not path.parent.is_dir():
        raise StorageError(f"there is no folder `{path.parent}`", where=FLAG, fix=f"`mkdir -p {path.parent}`")
    if file.exists() and not file.is_file():
        raise StorageError(f"`{file}` is no regular file", where=FLAG, fix="choose another name")
    if file.exists() and not overwrite and not _is_log(file, run):
        fix = "add --overwrite to replace it, or choose another name"
        raise MismatchError(f"`{file}` exists and is no log of this run", where=FLAG, fix=fix)


def _is_log(file: Path, run: str) -> bool:
    """Return whether a file is what this run writes, as far as it came: its first row may be incomplete."""
    start = f"{','.join(COLUMNS)}\n{run}," if file.suffix == ".csv" else f'{{"run": "{run}", '
    try:
        text = file.read_text("utf-8")
    except (OSError, ValueError):
        return False
    written = text.startswith(start) or start.startswith(text)
    return written and all(row.get("run") == run and _key(row) for row in _rows(file))


def _key(row: Mapping[str, Any]) -> tuple[str, int, int] | None:
    """Return stage, member and epoch of a row; None if it is none."""
    if any(row.get(name) is None for name in COLUMNS[:5]):
        return None
    try:
        return str(row["stage"]), int(row["member"]), int(row["epoch"])
    except (TypeError, ValueError):
        return None


def _rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a file; a single one without a run for what is no log."""
    try:
        text = file.read_text("utf-8")
        whole = text[: text.rfind("\n") + 1]  # a killed process may have left part of a line
        if file.suffix == ".csv":
            rows = list(csv.DictReader(io.StringIO(whole)))
            header = whole.partition("\n")[0]
            return rows if header in ("", ",".join(COLUMNS)) else [{}]
        found = [json.loads(line) for line in whole.splitlines()]
    except (OSError, ValueError):
        return [{}]
    return [row if isinstance(row, dict) else {} for row in found]


class TrainingLog:
    """A log that is written to, to be used in a `with` statement.

    Args:
        path: a file, `.csv` or `.jsonl`, or a folder for TensorBoard; see `check_log`.
        run: the mark of the run.
        overwrite: start over instead of continuing what is there.
    """

    def __init__(self, path: Path, run: str, *, overwrite: bool = False) -> None:
        self._file, self._run = log_file(path), run
        self._folder = path if self._file != path else None
        self._writers: dict[int, Any] = {}
        with self._storing():
            if self._folder is not None:
                self._folder.mkdir(exist_ok=True)
            if overwrite:
                self._file.unlink(missing_ok=True)
                for events in self._folder.glob("member-*/events.out.tfevents.*") if self._folder else ():
                    events.unlink()
            rows = _rows(self._file) if self._file.exists() else []
            self._known = {key for row in rows if (key := _key(row))}
            if self._file.exists():  # without what a killed process wrote of its last line
                os.truncate(self._file, self._file.read_bytes().rfind(b"\n") + 1)
            self._out = self._file.open("a", encoding="utf-8", newline="")
            if self._file.suffix == ".csv" and self._file.stat().st_size == 0:
                try:
                    self._line(",".join(COLUMNS))
                except OSError:
                    with suppress(OSError):  # the same
                        self._out.close()
                    raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._storing():
            self._out.close()
            for writer in self._writers.values():
                writer.close()

    def of_part(self, part: str = "") -> EpochLog:
        """Return what logs the stages of a fit, or of a part of it, whose name then stands before theirs."""
        return partial(self._add, f"{part}: " if part else "")

    def _line(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()

    def _add(
        self, part: str, stage: Stage, members: Sequence[int], records: "Sequence[MemberRecord]", seconds: float | None
    ) -> None:
        from costar_cli.methods.shared.stage import EpochSchedule  # noqa: PLC0415 - stages alone log
        from costar_cli.training.optimiser import learning_rate  # noqa: PLC0415

        pace = EpochSchedule.of(stage.config, stage.n_train, drop_last=stage.drop_last)
        name = f"{part}{stage.name}"
        latest = max(len(record.train_loss) for record in records)
        for member, record in zip(members, records, strict=True):
            for epoch in range(len(record.train_loss)):
                key = (name, member + 1, epoch + 1)
                if key in self._known:
                    continue
                self._known.add(key)
                step = pace.before(epoch + 1)
                rate = learning_rate(stage.config, pace, step - 1)
                losses = [record.train_loss, record.validation_loss, record.selection_score]
                values = [s[epoch] if epoch < len(s) and math.isfinite(s[epoch]) else None for s in losses]
                took_s = round(seconds, 3) if seconds is not None and epoch + 1 == latest else None
                self._write(dict(zip(COLUMNS, (self._run, *key, step, *values, rate, took_s), strict=True)))

    def _storing(self) -> AbstractContextManager[None]:
        return storing(self._folder or self._file, elsewhere=f"write elsewhere with {FLAG}")

    def _write(self, row: dict[str, Any]) -> None:
        with self._storing():
            if self._file.suffix == ".csv":
                out = io.StringIO()
                csv.writer(out, lineterminator="").writerow(row.values())
                self._line(out.getvalue())
            else:
                self._line(json.dumps(row, ensure_ascii=False))
            if self._folder is None:
                return
            from torch.utils import tensorboard  # noqa: PLC0415 - an extra

            member = row["member"]
            if member not in self._writers:
                make: Any = tensorboard.SummaryWriter
                self._writers[member] = make(str(self._folder / f"member-{member}"))
            writer = self._writers[member]
            for curve in CURVES:
                if row[curve] is not None:
                    writer.add_scalar(f"{row['stage']}/{curve}", row[curve], row["step"])
            writer.flush()
