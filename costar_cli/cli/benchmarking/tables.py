"""The paper's tables from the scores of a benchmark: mean ± sd by step, average, gain, printed rows, paired tests."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from costar_cli.cli.benchmarking.methods import BenchmarkMethod, in_order
from costar_cli.config.choices import SetupName
from costar_cli.config.models import EvaluateConfig
from costar_cli.effects import holm
from costar_cli.evaluation.bootstrap import caution_about_units, paired_differences, too_few_units
from costar_cli.evaluation.effects import EFFECT_SCORES
from costar_cli.evaluation.metrics import AVERAGED_STEPS, PerStep, SquaredErrors, Truth, average_over_steps
from costar_cli.evaluation.published import paper_truth, published_row, read_published
from costar_cli.evaluation.rows import Basis, ReportRow, with_budget_sign
from costar_cli.evaluation.setups import SETUPS, with_target_sign
from costar_cli.methods.registry import REFERENCE
from costar_cli.reporting import NullReporter, Reporter

TEST = (
    "two-sided paired studentised bootstrap of the difference in mean RMSE, over test subjects or their clusters; "
    "excludes training variability; Holm's correction over the rows of a table"
)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How much larger a method's error is than the reference's, in the unit of the table.

    `difference` is method minus reference, `lower` and `upper` bound it over test subjects; `p_holm` is `p_value`
    corrected for the number of comparisons in the table. `wins` is the share of pairs of members, one of each on the
    same data set, of which the reference's has the smaller average error: it says what training by chance does.
    `untested` says in words why there is neither interval nor p-value, where there are too few subjects or clusters,
    and `caution` how far to trust them where there are few.
    """

    name: str
    label: str
    difference: PerStep
    lower: PerStep | None
    upper: PerStep | None
    p_value: float | None
    p_holm: float | None
    wins: float | None
    data_sets: int
    untested: str | None = None
    caution: str | None = None


def gain_percent(average: float | None, reference: float | None) -> float | None:
    """Return by how many percent of the larger of two errors the reference's is lower, within ±100 (spec SCORE-5)."""
    if average is None or reference is None or max(average, reference) == 0:
        return None
    return 100 * (average - reference) / max(average, reference)


def share_of_wins(method: Sequence[float] | Floats, reference: Sequence[float] | Floats) -> float:
    """Return the share of pairs in which the reference's number is the smaller one; ties count half."""
    difference = np.subtract.outer(np.asarray(method), np.asarray(reference))
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def compare(
    names: Mapping[str, str],
    scores: Mapping[str, Mapping[int, SquaredErrors]],
    reference: Mapping[int, SquaredErrors],
    *,
    factor: float,
    level: float,
    replicates: int,
    seed: int,
) -> tuple[Comparison, ...]:
    """Compare methods with the reference, each on the data sets that both were scored on.

    Scores are squared errors by name and by the seed of the data set; `factor` takes their roots to the unit of the
    table. With too few `replicates` of the bootstrap there are neither intervals nor p-values.
    """
    found = []
    for name, label in names.items():
        shared = sorted(set(scores.get(name, {})) & set(reference))
        if not shared:
            continue
        pairs = [(scores[name][s], reference[s]) for s in shared]
        steps_H: Floats = np.mean([(a.rmse().mean(axis=0) - b.rmse().mean(axis=0)) for a, b in pairs], axis=0) * factor
        tested = paired_differences(pairs, level=level, replicates=replicates, seed=seed)
        bounds = tested.interval if tested else None
        wins = [share_of_wins(*(average_over_steps(errors.rmse()) for errors in pair)) for pair in pairs]
        units = [errors for errors, _ in pairs]
        comparison = Comparison(
            name=name,
            label=label,
            difference=PerStep.of(steps_H, float(average_over_steps(steps_H))),
            lower=PerStep.of(factor * bounds.lower, factor * bounds.average[0]) if bounds else None,
            upper=PerStep.of(factor * bounds.upper, factor * bounds.average[1]) if bounds else None,
            p_value=tested.p_value if tested and np.isfinite(tested.average) else None,
            p_holm=None,
            wins=float(np.mean(wins)) if np.isfinite(steps_H).all() else None,
            data_sets=len(pairs),
            untested=too_few_units(units) if replicates else None,
            caution=caution_about_units(units) if tested else None,
        )
        found.append(comparison)
    tested_at = [i for i, comparison in enumerate(found) if comparison.p_value is not None]
    corrected = dict(zip(tested_at, holm([found[i].p_value or 0.0 for i in tested_at]), strict=True))
    return tuple(replace(comparison, p_holm=corrected.get(i)) for i, comparison in enumerate(found))


TableKind = Literal["methods", "ablations"]
Mark = Literal["best", "second", ""]

ABOUT_GAIN = "Gain: percentage by which COSTAR's Avg is lower, relative to the larger of the two (within ±100 %)"
ABOUT_ENSEMBLE = "Ensemble: Avg of the mean prediction over the members of each data set"
EFFECT_COLUMNS = (*EFFECT_SCORES, "crps")
DIGITS = 4  # as the paper prints; values that look the same share their mark


@dataclass(frozen=True)
class Score:
    """What one method scored on one data set in one set-up."""

    seed: int
    method: BenchmarkMethod
    row: ReportRow
    errors: SquaredErrors


Limits = Mapping[tuple[int, SetupName, Truth | None], ReportRow]
"""What knows the simulator scored, by the data set's seed, set-up and truth: bounds, no methods (spec LIMIT-1)."""


@dataclass(frozen=True, slots=True)
class DataSetFacts:
    """What the tables need to know of the data sets; `published` says that the paper's tables are about them."""

    name: str
    horizon: int
    factor: float
    published: bool = False


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One line of a table. `runs` counts the members of all data sets, over which `mean` and `sd` are taken.

    `stopped_by_budget` says that the training of a member ended because epochs or updates ran out, not by patience;
    None for a closed form, for a published row, and where it is not known. `ratio_to_limit` are errors divided by those
    of what knows the simulator (spec LIMIT-4). `coverage_90` is the average coverage of the 90 % bands over data sets,
    on the questions of the row; None where no model carries a calibration. `ensemble` is the error of the mean
    prediction over members (spec SCORE-4), mean over data sets. `se` is the standard error over test subjects of the
    row of what knows the simulator; None where a data set's is not known. `effects` are averages over steps and data
    sets of how well differences between plans and distributions are predicted, by the names of `EFFECT_COLUMNS`.
    `due_to_confounding` is, in a sweep, how much larger the errors are than after training on the randomised twin.
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
    effects: Mapping[str, float] = field(default_factory=dict)
    due_to_confounding: PerStep | None = None

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
    def effect_rows(self) -> list[ResultRow]:
        """Return the rows with scores of effects."""
        return [row for row in (*self.rows, *([self.limit] if self.limit else [])) if "pehe" in row.effects]

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
    """Return a table per set-up and kind of truth: first those of methods, then those of ablations.

    The reference belongs to both kinds.
    """
    groups: dict[tuple[TableKind, SetupName, Truth | None], list[Score]] = {}
    kinds: tuple[TableKind, ...] = ("methods", "ablations")
    for kind, setup in product(kinds, (name for name in SETUPS if name in setups)):
        for score in scores:
            is_ours = score.method.name == REFERENCE or score.method.is_ablation == (kind == "ablations")
            if is_ours and score.row.setup == setup:
                groups.setdefault((kind, setup, score.row.truth), []).append(score)
    chosen = {key: of for key, of in groups.items() if key[0] == "methods" or any(s.method.is_ablation for s in of)}
    tables = []
    with (reporter or NullReporter()).task("Comparing", total=len(chosen), unit="table") as task:
        for (kind, setup, truth), of in chosen.items():
            bounds = {
                seed: row
                for (seed, *about), row in (limits or {}).items()
                if about == [setup, truth or "counterfactual"]
            }
            tables.append(_table(kind, of, facts, config, bounds))
            task.advance()
    return tuple(tables)


def _table(
    kind: TableKind,
    scores: Sequence[Score],
    facts: DataSetFacts,
    config: EvaluateConfig,
    bounds: Mapping[int, ReportRow],
) -> ResultTable:
    setup, truth = scores[0].row.setup, scores[0].row.truth or "counterfactual"
    found = list({score.method.name: score.method for score in scores}.values())
    # The reference is the last of the methods, and the first of the ablations.
    methods = sorted(found, key=lambda method: method.is_ablation) if kind == "ablations" else in_order(found)
    by_name = {m.name: {score.seed: score for score in scores if score.method.name == m.name} for m in methods}
    comparisons = compare(
        {method.name: method.label for method in methods if method.name != REFERENCE},
        {name: {seed: score.errors for seed, score in runs.items()} for name, runs in by_name.items()},
        {seed: score.errors for seed, score in by_name.get(REFERENCE, {}).items()},
        factor=facts.factor,
        level=config.level,
        replicates=config.bootstrap,
        seed=config.seed,
    )
    limit, known = None, [row for seed, row in bounds.items() if any(score.seed == seed for score in scores)]
    if known:  # its spread is that between data sets, whose subjects are others
        mean, sd, count = _spread(known)
        errors = [row.se for row in known if row.se is not None]
        se = _over_data_sets(errors, lambda each_KH: np.sqrt(np.square(each_KH).sum(axis=0)) / len(each_KH))
        limit = ResultRow(
            "limit", known[0].label, "limit", mean, sd, runs=count, data_sets=len(known),
            ratio_to_limit=mean.ratio_to(mean), se=se if len(errors) == len(known) else None, effects=_effects(known),
        )  # fmt: skip
    is_published = facts.published and truth == paper_truth(facts.name)
    return ResultTable(
        kind=kind,
        setup=setup,
        truth=truth,
        test=scores[0].row.test or "",
        steps=min(facts.horizon, AVERAGED_STEPS),
        rows=tuple(_row(m, by_name[m.name], by_name.get(REFERENCE, {}), bounds) for m in methods),
        published=_published(methods, facts, setup) if is_published else (),
        comparisons=comparisons,
        limit=limit,
    )


def _row(
    method: BenchmarkMethod,
    runs: Mapping[int, Score],
    reference: Mapping[int, Score],
    bounds: Mapping[int, ReportRow],
) -> ResultRow:
    rows = [score.row for score in runs.values()]
    mean, sd, count = _spread(rows)
    gain, ratio = None, None
    if method.name != REFERENCE and (shared := [seed for seed in runs if seed in reference]):
        own, other = (_spread([table[seed].row for seed in shared])[0].average for table in (runs, reference))
        gain = gain_percent(own, other)
    if bounded := [seed for seed in runs if seed in bounds]:
        ratio = _spread([runs[s].row for s in bounded])[0].ratio_to(_spread([bounds[s] for s in bounded])[0])
    unlabelled = sum(row.provenance.unlabelled_target_subjects for row in rows if row.provenance)
    stopped = [row.stopped_by_budget for row in rows if row.stopped_by_budget is not None]
    shares = [row.calibration["0.9"].coverage.average if row.calibration else None for row in rows]
    known = [share for share in shares if share is not None]
    return ResultRow(
        name=method.name,
        label=with_target_sign(method.label, unlabelled),
        basis="ours",
        mean=mean,
        sd=sd,
        gain_percent=gain,
        component=method.component,
        choice=method.choice,
        runs=count,
        data_sets=len(runs),
        stopped_by_budget=any(stopped) if stopped else None,
        ratio_to_limit=ratio,
        coverage_90=sum(known) / len(known) if known and len(known) == len(shares) else None,
        ensemble=_over_data_sets([row.ensemble for row in rows if row.ensemble], lambda each_KH: each_KH.mean(axis=0)),
        effects=_effects(rows),
    )


def _effects(rows: Sequence[ReportRow]) -> dict[str, float]:
    """Return the mean over data sets of each score of effects and distributions that all of them have."""
    found = {}
    for name in EFFECT_COLUMNS:
        of = [row.bands.crps if name == "crps" and row.bands else getattr(row.effects, name, None) for row in rows]
        known = [one.average for one in of if one is not None and one.average is not None]
        if known and len(known) == len(rows):
            found[name] = sum(known) / len(known)
    return found


def _over_data_sets(values: Sequence[PerStep], summary: Callable[[Floats], Floats]) -> PerStep | None:
    """Return a summary over data sets of each step and the average, None where there is none."""
    if not values:
        return None
    *steps, average = summary(np.array([(*each.steps, each.average) for each in values], dtype=np.float64))
    return PerStep.of(np.array(steps), float(average))


def _spread(rows: Sequence[ReportRow]) -> tuple[PerStep, PerStep | None, int]:
    """Return mean and sd (ddof = 1) over the members of all data sets, and how many those are."""
    members = [member for row in rows for member in row.members]
    mean = _over_data_sets(members, lambda each_KH: each_KH.mean(axis=0)) or PerStep((), None)
    sd = _over_data_sets(members, lambda each_KH: each_KH.std(axis=0, ddof=1)) if len(members) > 1 else None
    return mean, sd, len(members)


def _published(methods: Sequence[BenchmarkMethod], facts: DataSetFacts, setup: SetupName) -> tuple[ResultRow, ...]:
    """Return the printed rows of these methods, their gains recomputed from averages over tau = 1..6."""
    if not any(method.is_ablation for method in methods):
        printed = {method: published_row(facts.name, setup, method.base) for method in methods}
    elif setup == "zero-shot":
        by_name = {row.row: row for row in read_published("ablation") if row.dataset == facts.name}
        names = {m: f"{m.component}|{m.choice}" if m.is_ablation else f"full|{m.label}" for m in methods}
        printed = {method: by_name.get(name) for method, name in names.items()}
    else:
        printed = {}
    rows = {m: ReportRow.published_row(row, setup, facts.horizon) for m, row in printed.items() if row is not None}
    reference = next((row.mean.average for method, row in rows.items() if method.name == REFERENCE), None)
    return tuple(
        ResultRow(
            name=method.name,
            label=method.label,
            basis=row.basis,
            mean=row.mean,
            sd=row.sd,
            gain_percent=gain_percent(row.mean.average, reference) if method.name != REFERENCE else None,
            component=method.component,
            choice=method.choice,
        )
        for method, row in rows.items()
    )


def marks(rows: Sequence[ResultRow], step: int | None) -> list[Mark]:
    """Return which rows have the lowest and the second lowest mean at a step, or on average (None).

    Values that print alike share a mark; with a single row there is nothing to mark.
    """
    values = [row.mean.average if step is None else row.mean.steps[step] for row in rows]
    printed = [None if value is None else round(value, DIGITS) for value in values]
    known = [value for value in printed if value is not None]
    names: tuple[Mark, Mark] = ("best", "second")
    order = dict(zip(sorted(set(known)), names, strict=False)) if len(known) > 1 else {}
    return ["" if value is None else order.get(value, "") for value in printed]
