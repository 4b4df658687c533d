"""The paper's tables from the scores of a benchmark: mean ± sd by step, average over tau = 1..6, gain, printed rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from costar_cli.cli.benchmarking.methods import REFERENCE, BenchmarkMethod, in_order
from costar_cli.cli.benchmarking.statistics import Comparison, compare, gain_percent
from costar_cli.config.models import EvaluateConfig
from costar_cli.evaluation.metrics import AVERAGED_STEPS, PerStep, SquaredErrors
from costar_cli.evaluation.published import paper_truth, published_row, read_published
from costar_cli.evaluation.rows import Basis, ReportRow, ratios, with_budget_sign
from costar_cli.evaluation.score import Truth
from costar_cli.evaluation.setups import SETUPS, SetupName, with_target_sign
from costar_cli.reporting import NullReporter, Reporter

TableKind = Literal["methods", "ablations"]
Mark = Literal["best", "second", ""]

ABOUT_GAIN = "Gain: percentage by which COSTAR's Avg is lower, relative to the larger of the two (within ±100 %)"
ABOUT_ENSEMBLE = "Ensemble: Avg of the mean prediction over the members of each data set"
DIGITS = 4  # as the paper prints; values that look the same share their mark


@dataclass(frozen=True)
class Score:
    """What one method scored on one data set in one set-up."""

    seed: int
    method: BenchmarkMethod
    row: ReportRow
    errors: SquaredErrors

    @property
    def unlabelled_target_subjects(self) -> int:
        """Return from how many target subjects' histories its encoder learned without labels."""
        return self.row.provenance.unlabelled_target_subjects if self.row.provenance else 0


Limits = Mapping[tuple[int, SetupName, Truth | None], ReportRow]
"""What knows the simulator scored, by the data set's seed, set-up and truth: bounds, no methods (spec LIMIT-1)."""


@dataclass(frozen=True, slots=True)
class DataSetFacts:
    """What the tables need to know of the data sets; `published` says that the paper's tables are about them."""

    name: str
    horizon: int
    factor: float
    published: bool = False

    @property
    def shown(self) -> int:
        """Return how many steps the tables print and average."""
        return min(self.horizon, AVERAGED_STEPS)

    @property
    def paper_truth(self) -> Truth:
        """Return what the paper's answers are."""
        return paper_truth(self.name)


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One line of a table. `runs` counts the members of all data sets, over which `mean` and `sd` are taken.

    `stopped_by_budget` says that the training of a member ended because epochs or updates ran out, not by patience;
    None for a closed form, for a published row, and where it is not known. `ratio_to_limit` are errors divided by those
    of what knows the simulator (spec LIMIT-4). `coverage_90` is the average coverage of the 90 % bands over data sets,
    on the questions of the row; None where no model carries a calibration. `ensemble` is the error of the mean
    prediction over members (spec SCORE-4), mean over data sets. `se` is the standard error over test subjects of the
    row of what knows the simulator; None where a data set's is not known.
    """

    name: str
    label: str
    basis: Basis
    mean: PerStep
    sd: PerStep | None
    gain_percent: float | None = None
    component: str = ""
    choice: str = ""
    runs: int | None = None
    data_sets: int | None = None
    stopped_by_budget: bool | None = None
    ratio_to_limit: PerStep | None = None
    coverage_90: float | None = None
    ensemble: PerStep | None = None
    se: PerStep | None = None

    @property
    def marked_label(self) -> str:
        """Return the label, with a sign where training was stopped by its budget."""
        return with_budget_sign(self.label, self.stopped_by_budget)


@dataclass(frozen=True, slots=True)
class ResultTable:
    """One set-up: our rows, the published ones of the same methods, and how ours compare with the reference.

    `limit` is what knows the simulator, where the data sets have a truth: neither ranked nor tested.
    """

    kind: TableKind
    setup: SetupName
    truth: Truth
    test: str
    steps: int
    rows: tuple[ResultRow, ...]
    published: tuple[ResultRow, ...]
    comparisons: tuple[Comparison, ...]
    limit: ResultRow | None = None

    @property
    def has_ensembles(self) -> bool:
        """Return whether a row is of models with several members."""
        return any((row.runs or 0) > (row.data_sets or 0) for row in self.rows)

    @property
    def has_gains(self) -> bool:
        """Return whether COSTAR is there to compare a row with."""
        return any(row.gain_percent is not None for row in (*self.rows, *self.published))

    @property
    def title(self) -> str:
        """Return what the table shows."""
        what = "Ablations of COSTAR" if self.kind == "ablations" else "Methods"
        return f"{what}, {self.setup}: {self.truth} outcomes on {self.test}"

    @property
    def untested(self) -> str | None:
        """Return why differences of this table were not tested, or None where they were."""
        reasons = list(dict.fromkeys(c.untested for c in self.comparisons if c.untested))
        return f"no interval and no p-value on {self.test}: {'; '.join(reasons)}" if reasons else None

    @property
    def caution(self) -> str | None:
        """Return how far the tests of this table can be trusted, or None where units are enough, or too few."""
        reasons = list(dict.fromkeys(c.caution for c in self.comparisons if c.caution))
        return f"intervals and p-values on {self.test}: {'; '.join(reasons)}" if reasons else None


def build_tables(
    scores: Sequence[Score],
    facts: DataSetFacts,
    config: EvaluateConfig,
    *,
    setups: Sequence[SetupName],
    limits: Limits | None = None,
    reporter: Reporter | None = None,
) -> tuple[ResultTable, ...]:
    """Return a table per set-up and kind of truth: first those of methods, then those of ablations."""
    groups = list(_groups(scores, setups))
    tables = []
    with (reporter or NullReporter()).task("Comparing", total=len(groups), unit="table") as task:
        for kind, chosen in groups:
            tables.append(_table(kind, chosen, facts, config, limits or {}))
            task.advance()
    return tuple(tables)


def _groups(scores: Sequence[Score], setups: Sequence[SetupName]) -> Iterator[tuple[TableKind, list[Score]]]:
    """Yield the scores of each table, by kind, set-up and truth; the reference belongs to both kinds."""
    kinds: tuple[TableKind, ...] = ("methods", "ablations")
    for kind in kinds:
        ours = [s for s in scores if s.method.name == REFERENCE or s.method.is_ablation == (kind == "ablations")]
        for setup in (name for name in SETUPS if name in setups):
            of_setup = [score for score in ours if score.row.setup == setup]
            for truth in dict.fromkeys(score.row.truth for score in of_setup):
                chosen = [score for score in of_setup if score.row.truth == truth]
                if kind == "methods" or any(score.method.is_ablation for score in chosen):
                    yield kind, chosen


def _table(
    kind: TableKind,
    scores: Sequence[Score],
    facts: DataSetFacts,
    config: EvaluateConfig,
    limits: Limits,
) -> ResultTable:
    setup, truth = scores[0].row.setup, scores[0].row.truth or "counterfactual"
    bounds = {seed: row for (seed, *about), row in limits.items() if about == [setup, truth]}
    methods = _methods(scores, kind)
    by_name = {c.name: {s.seed: s for s in scores if s.method.name == c.name} for c in methods}
    reference = by_name.get(REFERENCE, {})
    comparisons = compare(
        {c.name: c.label for c in methods if c.name != REFERENCE},
        {name: {seed: score.errors for seed, score in runs.items()} for name, runs in by_name.items()},
        {seed: score.errors for seed, score in reference.items()},
        factor=facts.factor,
        level=config.level,
        replicates=config.bootstrap,
        seed=config.seed,
    )
    return ResultTable(
        kind=kind,
        setup=setup,
        truth=truth,
        test=scores[0].row.test or "",
        steps=facts.shown,
        rows=tuple(_row(c, by_name[c.name], reference, bounds) for c in methods),
        published=_published(methods, facts, setup) if facts.published and truth == facts.paper_truth else (),
        comparisons=comparisons,
        limit=_limit_row({seed: row for seed, row in bounds.items() if any(s.seed == seed for s in scores)}),
    )


def _limit_row(bounds: Mapping[int, ReportRow]) -> ResultRow | None:
    """Return the bound over data sets; its spread is that between them."""
    if not bounds:
        return None
    mean, sd, count = _spread(list(bounds.values()))
    label = next(iter(bounds.values())).label
    ratio = ratios(mean, mean)
    se = _standard_error([row.se for row in bounds.values()])
    return ResultRow("limit", label, "limit", mean, sd, runs=count, data_sets=len(bounds), ratio_to_limit=ratio, se=se)


def _standard_error(errors: Sequence[PerStep | None]) -> PerStep | None:
    """Return the standard error of a mean over data sets, whose subjects are others."""
    known = [[*error.steps, error.average] for error in errors if error is not None]
    if len(known) < len(errors):
        return None
    total = np.sqrt(np.square(np.array(known, dtype=np.float64)).sum(axis=0)) / len(known)
    return PerStep.of(total[:-1], float(total[-1]))


def _methods(scores: Sequence[Score], kind: TableKind) -> list[BenchmarkMethod]:
    """Return who has scores, in the order of the table: the reference last among methods, first among ablations."""
    found = list({score.method.name: score.method for score in scores}.values())
    return sorted(found, key=lambda c: c.is_ablation) if kind == "ablations" else in_order(found)


def _row(
    method: BenchmarkMethod,
    runs: Mapping[int, Score],
    reference: Mapping[int, Score],
    bounds: Mapping[int, ReportRow],
) -> ResultRow:
    shared = [seed for seed in runs if seed in reference]
    bounded = [seed for seed in runs if seed in bounds]
    mean, sd, count = _spread([score.row for score in runs.values()])
    gain = None
    if method.name != REFERENCE and shared:
        own, other = (_spread([table[seed].row for seed in shared])[0].average for table in (runs, reference))
        gain = gain_percent(own, other)
    return ResultRow(
        name=method.name,
        label=with_target_sign(method.label, sum(score.unlabelled_target_subjects for score in runs.values())),
        basis="ours",
        mean=mean,
        sd=sd,
        gain_percent=gain,
        component=method.component,
        choice=method.choice,
        runs=count,
        data_sets=len(runs),
        stopped_by_budget=_any_known([score.row.stopped_by_budget for score in runs.values()]),
        ratio_to_limit=ratios(_spread([runs[s].row for s in bounded])[0], _spread([bounds[s] for s in bounded])[0])
        if bounded
        else None,
        coverage_90=_coverage([score.row for score in runs.values()]),
        ensemble=_ensemble([score.row for score in runs.values()]),
    )


def _coverage(rows: Sequence[ReportRow]) -> float | None:
    """Return the mean coverage of 90 % bands, None where one is not known."""
    shares = [row.calibration["0.9"].coverage.average if row.calibration else None for row in rows]
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known and len(known) == len(shares) else None


def _ensemble(rows: Sequence[ReportRow]) -> PerStep | None:
    """Return the mean error of ensembles over data sets, None where there is none."""
    known = [row.ensemble for row in rows if row.ensemble is not None]
    if not known:
        return None
    values_KH = np.array([(*ensemble.steps, ensemble.average) for ensemble in known], dtype=np.float64)
    *steps, average = values_KH.mean(axis=0)
    return PerStep.of(np.array(steps), float(average))


def _any_known(flags: Sequence[bool | None]) -> bool | None:
    """Return whether one of those that are known is true, None where none is known."""
    known = [flag for flag in flags if flag is not None]
    return any(known) if known else None


def _spread(rows: Sequence[ReportRow]) -> tuple[PerStep, PerStep | None, int]:
    """Return mean and sd (ddof = 1) over the members of all data sets, and how many those are."""
    values_KH = np.array([(*member.steps, member.average) for row in rows for member in row.members], dtype=np.float64)
    mean_H = values_KH.mean(axis=0)
    mean = PerStep.of(mean_H[:-1], float(mean_H[-1]))
    if len(values_KH) < 2:
        return mean, None, len(values_KH)
    sd_H = values_KH.std(axis=0, ddof=1)
    return mean, PerStep.of(sd_H[:-1], float(sd_H[-1])), len(values_KH)


def _published(methods: Sequence[BenchmarkMethod], facts: DataSetFacts, setup: SetupName) -> tuple[ResultRow, ...]:
    """Return the printed rows of these methods, their gains recomputed from averages over tau = 1..6."""
    if any(c.is_ablation for c in methods):
        rows = _published_ablations(methods, facts) if setup == "zero-shot" else {}
    else:
        printed = {c: published_row(facts.name, setup, c.base) for c in methods}
        shown = {c: row for c, row in printed.items() if row is not None}
        rows = {c: ReportRow.published_row(row, setup, facts.horizon) for c, row in shown.items()}
    reference = next((row.mean.average for c, row in rows.items() if c.name == REFERENCE), None)
    return tuple(
        ResultRow(
            name=c.name,
            label=c.label,
            basis=row.basis,
            mean=row.mean,
            sd=row.sd,
            gain_percent=gain_percent(row.mean.average, reference) if c.name != REFERENCE else None,
            component=c.component,
            choice=c.choice,
        )
        for c, row in rows.items()
    )


def _published_ablations(methods: Sequence[BenchmarkMethod], facts: DataSetFacts) -> dict[BenchmarkMethod, ReportRow]:
    printed = {row.row: row for row in read_published("ablation") if row.dataset == facts.name}
    names = {c: f"{c.component}|{c.choice}" if c.is_ablation else f"full|{c.label}" for c in methods}
    return {
        c: ReportRow.published_row(printed[name], "zero-shot", facts.horizon)
        for c, name in names.items()
        if name in printed
    }


def marks(rows: Sequence[ResultRow], step: int | None) -> list[Mark]:
    """Return which rows have the lowest and the second lowest mean at a step, or on average (None).

    Values that print alike share a mark; with a single row there is nothing to mark.
    """
    values = [row.mean.average if step is None else row.mean.steps[step] for row in rows]
    printed = [None if value is None else round(value, DIGITS) for value in values]
    ranked = sorted({value for value in printed if value is not None})
    if sum(value is not None for value in printed) < 2:
        return [""] * len(rows)
    order: dict[float, Mark] = dict(zip(ranked, _MARKS, strict=False))
    return ["" if value is None else order.get(value, "") for value in printed]


_MARKS: tuple[Mark, Mark] = ("best", "second")
