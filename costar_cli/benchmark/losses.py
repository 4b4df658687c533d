"""What a benchmark says of models that lose to the last value carried forward, and what it suggests to run next."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from costar_cli.benchmark.make_cells import Bench
from costar_cli.benchmark.run import Outcome
from costar_cli.reporting import WORSE_THAN_LAST_VALUE
from costar_cli.steps.hints import next_command
from costar_cli.steps.remedies import other_method, train_longer
from costar_cli.steps.session import Session

if TYPE_CHECKING:
    from costar_cli.benchmark import Cell
    from costar_cli.evaluate import EvaluationReport

__all__ = ["next_commands", "warn_of_losses"]


@dataclass(frozen=True)
class _Judged:
    """A model of a benchmark with its scores; `session` is that of its cell."""

    cell: "Cell"
    model: Path
    session: Session
    report: "EvaluationReport"

    def average(self, setup: str) -> float | None:
        """Return the average error in a set-up, None where it has none or carries the last value itself."""
        rows = (row for row in self.report.rows if row.basis == "ours" and not row.is_last_value)
        return next((row.mean.average for row in rows if row.setup == setup), None)

    def losses(self) -> Iterator[str]:
        """Yield where the model loses to the last value, with both errors."""
        for row, naive in self.report.losers():
            yield f"{row.setup} {row.mean.average:.3f} against {naive.mean.average:.3f}"


def _judged(bench: Bench, cells: Sequence["Cell"], outcome: Outcome) -> Iterator[_Judged]:
    from costar_cli.evaluate import read_evaluation

    for cell in cells:
        if cell.is_scored and outcome.is_sound(cell) and cell.contender is not None:
            model, *_, scores = bench.pieces(cell)
            yield _Judged(cell, model.path, model.session, read_evaluation(scores.path, errors=False))


def warn_of_losses(bench: Bench, cells: Sequence["Cell"], outcome: Outcome) -> None:
    """Warn once of each cell whose model loses to the last value carried forward, in any set-up or on validation."""
    from costar_cli.artifact import read_header

    for judged in _judged(bench, cells, outcome):
        validation = read_header(judged.model).meta.get("validation")
        lost = list(judged.losses())
        if validation and validation["score"] > validation["last_value"]:
            lost.append(f"validation {validation['score']:.3f} against {validation['last_value']:.3f}")
        if lost:
            bench.reporter.warn_of_loss(f"{judged.cell}: {WORSE_THAN_LAST_VALUE} in {', '.join(lost)}")


def next_commands(bench: Bench, cells: Sequence["Cell"], outcome: Outcome, given: Mapping[str, str]) -> list[str]:
    """Return what to run next: a question to the best model that loses nowhere, or what may give a better one.

    Models are those of the first data set, compared in the first set-up that they have.

    Args:
        bench: the benchmark.
        cells: its cells.
        outcome: what became of them.
        given: the flags to repeat.
    """
    from costar_cli.artifact import read_header
    from costar_cli.evaluate.setups import SETUPS

    given = {"workspace": "", **given} | {"workspace": str(bench.workspace(bench.seeds[0]))}
    judged = [one for one in _judged(bench, cells, outcome) if one.cell.seed == bench.seeds[0]]
    for is_better in (True, False):
        for setup in SETUPS:
            averages = [(one.average(setup), one) for one in judged if is_better != any(one.losses())]
            known = [(average, one) for average, one in averages if average is not None]
            if not known:
                continue
            best = min(known, key=lambda pair: pair[0])[1]
            if is_better:
                asked = ("--subject", "ID", "--plan", "plan.json")
                return [next_command(given, "whatif", *asked, data=bench.data.file, model=best.model)]
            files = {"data": bench.data.file, "out": best.model.with_name(f"longer-{best.model.name}")}
            session, meta = replace(best.session, given=given), read_header(best.model).meta
            made = {(cell.contender.method, of) for cell in cells if cell.contender for of in ("source", "target")}
            return [*train_longer(session, meta, files), *other_method(session, meta, bench.data.file, made)]
    return []
