"""Running a benchmark: cell after cell, whatever happens to one of them."""

import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from costar_cli.benchmark.clock import Clock
from costar_cli.benchmark.make_cells import Bench, Piece, State
from costar_cli.errors import CostarError, LockedError, MismatchError, StorageError
from costar_cli.steps.session import BuildStep
from costar_cli.steps.unforeseen import as_costar_error
from costar_cli.ui.text import in_words

if TYPE_CHECKING:
    from costar_cli.benchmark import Cell, Ledger

__all__ = ["Outcome", "failure_of_cells", "make_cells", "refuse_stale"]


@dataclass
class Outcome:
    """What became of the cells: how many were made now, and which could not be, by key."""

    made: int = 0
    failed: dict[str, CostarError] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)

    def is_sound(self, cell: "Cell") -> bool:
        """Return whether a cell is there."""
        return cell.key not in self.failed and cell.key not in self.blocked


def refuse_stale(states: Mapping[str, State], *, overwrite: bool) -> None:
    """Stop where files were made from something else, and may not be replaced.

    Raises:
        MismatchError: naming the cells.
    """
    stale = [key for key, state in states.items() if state == "stale"]
    if stale and not overwrite:
        raise MismatchError(
            f"{len(stale)} cells of this benchmark were made from other data or settings",
            where=", ".join(stale[:6]) + (", ..." if len(stale) > 6 else ""),
            fix="add --overwrite to replace them, or keep them and choose another folder with --folder",
        )


def make_cells(
    bench: Bench,
    cells: Sequence["Cell"],
    states: Mapping[str, State],
    ledger: "Ledger",
    *,
    overwrite: bool,
    debug: bool,
) -> Outcome:
    """Make the cells that are not there, one after another; one that fails stops only those that need it.

    Raises:
        StorageError: the disk is full or read-only: no other cell would fare better.
        LockedError: another process works in the benchmark's folder.
        KeyboardInterrupt: the run was interrupted; training has saved where it was.
    """
    outcome = Outcome()
    clock = Clock(cells, [cell for cell in cells if states[cell.key] != "done"], ledger)
    if clock.left:
        bench.reporter.note(f"{clock.left} of {len(cells)} cells to make in {bench.folder}")
    with bench.reporter.task("Benchmark", total=len(cells), done=len(cells) - clock.left, unit="cell") as task:
        for cell in cells:
            if missing := [need for need in cell.needs if need in outcome.failed or need in outcome.blocked]:
                outcome.blocked[cell.key] = missing[0]
                clock.finish(cell)
            else:
                _make_cell(bench, cell, ledger, outcome, clock, overwrite=overwrite, debug=debug)
            if states[cell.key] != "done":
                task.advance()
    return outcome


def _make_cell(
    bench: Bench, cell: "Cell", ledger: "Ledger", outcome: Outcome, clock: Clock, *, overwrite: bool, debug: bool
) -> None:
    from costar_cli.benchmark import give_memory_back

    bench.reporter.cell = cell
    begun, made = time.monotonic(), False
    try:
        for piece in bench.pieces(cell):
            step = piece.plan()
            if step.find(overwrite=overwrite) is None:
                if not made:
                    give_memory_back()
                _make_piece(f"{cell.key}/{piece.name}", piece, step, ledger, overwrite=overwrite)
                made = True
    except (StorageError, LockedError):
        raise
    except Exception as error:  # whatever it is, the other cells can still be made
        if debug:
            traceback.print_exc()
        outcome.failed[cell.key] = failure = as_costar_error(error)
        bench.reporter.cell = None
        clock.finish(cell)
        where = f" ({failure.where})" if failure.where else ""
        bench.reporter.warn("; ".join(filter(None, [f"{cell} failed: {failure.problem}{where}", clock.outlook()])))
        return
    finally:
        bench.reporter.cell = None
    took_s = time.monotonic() - begun
    clock.finish(cell, took_s if made else None)
    if made:
        outcome.made += 1
        bench.reporter.note("; ".join(filter(None, [f"{cell}: {in_words(took_s)}", clock.outlook()])))


def _make_piece(key: str, piece: Piece, step: BuildStep, ledger: "Ledger", *, overwrite: bool) -> None:
    """Make one artifact, and record what it took, however it ends."""
    from costar_cli.benchmark import Meter

    ledger.begin(key, step.fingerprint)
    meter = Meter()
    try:
        with meter:
            piece.make(step, overwrite)
    except Exception as error:
        ledger.end(key, "failed", meter, as_costar_error(error))
        raise
    except BaseException:
        ledger.end(key, "interrupted", meter)
        raise
    ledger.end(key, "done", meter)


def failure_of_cells(outcome: Outcome, total: int) -> CostarError:
    """Return one error for all cells that failed: of their class, if they agree."""
    errors = list(outcome.failed.values())
    classes = {type(error) for error in errors}
    cls = classes.pop() if len(classes) == 1 else CostarError
    details = [f"{key}: {error.problem}" + (f" ({error.where})" if error.where else "")
               for key, error in outcome.failed.items()]  # fmt: skip
    if outcome.blocked:
        details.append(f"{len(outcome.blocked)} more cells need one of these")
    return cls(
        f"{len(errors)} of {total} cells failed",
        fix=next((error.fix for error in errors if error.fix), None) or "run the same command to try them again",
        details=details,
    )
