"""Average outcomes and effects of plans over groups of subjects, with intervals (spec AVERAGE-1 to 4).

`G` counts groups, `P` plans, `U` units of sampling (subjects, or the clusters that they belong to), `M` moments, `B`
replicates, `S` joint draws.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import PanelSchema
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import UsageError
from costar_cli.inference import SUPPORT_LEVELS, UNMEASURED, draws, facts_of, resolve
from costar_cli.inference.resampling import FEWEST_UNITS, moved_means
from costar_cli.methods.base import FittedModel
from costar_cli.plans import AnyPlan, PlanRequest
from costar_cli.questions.answers import ModelAnswers, ask_plans, plans_of
from costar_cli.questions.request import reference_place
from costar_cli.questions.subjects import Cohort, units_of
from costar_cli.questions.summary import SURVIVAL

REPLICATES: Final = 1_000
DRAWS: Final = 200  # the sd of the training part is then known to 5 %
MOST_DRAWN: Final = 4_000  # questions that are drawn at once, and of a large group beyond the fewest moments
FEWEST_DRAWN: Final = 100  # moments, which a mean over subjects rests on
MOST_PLANS: Final = 1_000
SEED: Final = 0

# What shrinks the effects of a network shrinks those of every member alike. Their intervals of 90 % held the truth in 8
# to 40 % of cases (docs/measured.md), also where subjects are resampled: the bias is in the middle, not in the width.
NONE_OF_MEMBERS: Final = (
    "none (members of an ensemble learn from the same subjects and shrink effects alike, by how much their spread does "
    "not show)"
)
NONE_OF_ONE: Final = "none (a network shrinks effects, by how much nothing that it says shows)"
FEW_UNITS: Final = f"none (fewer than {FEWEST_UNITS} units)"  # of a group
NONE: Final = "none (the model does not measure how uncertain its training is)"
CORRECTED: Final = "subjects, and what the model gets wrong of those who follow a plan (influence curve)"
TARGETED: Final = "tmle"  # the name that `costar effect` has for it

Floats = NDArray[np.float64]
Row = dict[str, Any]


@dataclass(frozen=True, eq=False, slots=True)
class Averages:
    """Means over the moments of groups, of outcomes or of differences from the reference plan.

    Attributes:
        mean_GPHY: the mean estimate; not a number beyond a plan's own steps, and where an answer of the group is to a
            step at which no training subject has the outcome.
        half_LGPHY: half the width of the intervals, not a number where the units are too few or nothing is known of
            training.
        low_Y: below which no mean can be.
        high_Y: above which no mean can be.
        truth_GPHY: the mean of the simulator's answers, where they were asked for.
        model_GPHY: the mean of the model's answers; None where nothing is corrected.
        kind_GPHY: what the interval of each corrected mean rests on, or why it is not corrected; likewise.
    """

    mean_GPHY: Floats
    half_LGPHY: Floats
    low_Y: Floats
    high_Y: Floats
    truth_GPHY: Floats | None = None
    model_GPHY: Floats | None = None
    kind_GPHY: NDArray[Any] | None = None

    @property
    def limits_LGPHY(self) -> tuple[Floats, Floats]:
        """Return the lower and the upper limits, those that cannot occur moved to the nearest that can."""
        low, high = (self.mean_GPHY + side * self.half_LGPHY for side in (-1, 1))
        return np.clip(low, self.low_Y, self.high_Y), np.clip(high, self.low_Y, self.high_Y)

    @property
    def kind(self) -> str:
        """Return what the intervals include, or why none of them is there; nothing where that differs or is open."""
        kinds = {""} if self.kind_GPHY is None else {*self.kind_GPHY.flat}
        return CORRECTED if self.is_corrected else kinds.pop() if len(kinds) == 1 else ""

    @property
    def is_corrected(self) -> bool:
        """Return whether any of them is not the model's own."""
        return self.kind_GPHY is not None and bool(np.isfinite(self.half_LGPHY).any())

    @property
    def all_corrected(self) -> bool:
        """Return whether none of them is the model's own."""
        return self.is_corrected and bool(np.isfinite(self.half_LGPHY[0][np.isfinite(self.mean_GPHY)]).all())


@dataclass(frozen=True, eq=False, slots=True)
class AverageEffects:
    """What a model says of groups of subjects on average.

    Attributes:
        label: what the model is called.
        schema: names of outcomes.
        groups: names of the groups, everybody first.
        plans: the plans.
        reference: the place of the plan that others are compared with.
        levels: of the intervals.
        moments_G: moments of each group.
        units_G: subjects, or clusters, of each group.
        unit: which of the two.
        interval_kind: what intervals include.
        outcomes: means of outcomes.
        differences: means of differences from the reference plan.
        ratings_GPL: how many answers have which of `SUPPORT_LEVELS` at worst; None where the model does not know.
        survival: the mean probability `[G,P,H]` of going on through each step, `survival`, and of several terminal ends
            that of each by then, `ended_NAME`; empty where the model knows of no end.
        converged: whether the regressions that corrections weigh by are at their best.
    """

    label: str
    schema: PanelSchema
    groups: tuple[str, ...]
    plans: tuple[AnyPlan, ...]
    reference: int
    levels: tuple[float, ...]
    moments_G: NDArray[np.int64]
    units_G: NDArray[np.int64]
    unit: str
    interval_kind: str
    outcomes: Averages
    differences: Averages
    ratings_GPL: NDArray[np.int64] | None = None
    survival: Mapping[str, Floats] = field(default_factory=dict)
    converged: bool = True

    @property
    def is_corrected(self) -> bool:
        """Return whether any mean is not the model's own."""
        return self.outcomes.is_corrected

    def to_rows(self) -> Iterator[Row]:
        """Yield a row per quantity, group, plan, step and outcome; differences follow the outcomes, survival these."""
        for quantity, found in (("outcome", self.outcomes), ("difference", self.differences)):
            lower, upper = found.limits_LGPHY
            steps_P = np.array([len(plan) for plan in self.plans])
            if quantity == "difference":
                steps_P = np.minimum(steps_P, steps_P[self.reference])
                steps_P[self.reference] = 0
            for g, p, h, y in np.ndindex(found.mean_GPHY.shape):
                if h >= steps_P[p]:
                    continue
                outcome, at = self.schema.outcomes[y], (g, p, h, y)
                of = {"outcome": outcome.name, "unit": outcome.unit}
                limits_2L = lower[:, *at], upper[:, *at]
                row = self._row(quantity, of, float(found.mean_GPHY[at]), limits_2L, (g, p, h))
                if found.kind_GPHY is not None and found.model_GPHY is not None and row["estimate"] is not None:
                    corrected = bool(np.isfinite(found.half_LGPHY[0][at]))
                    row["interval_kind"] = found.kind_GPHY[at]
                    row |= {"estimator": TARGETED} if corrected else {}
                    row["model_estimate"] = float(found.model_GPHY[at])
                yield row | ({} if found.truth_GPHY is None else {"truth": float(found.truth_GPHY[at])})
        unknown_2L = (np.full(len(self.levels), np.nan),) * 2
        for name, mean_GPH in self.survival.items():
            apart_GPH = mean_GPH - mean_GPH[:, self.reference, None]
            for quantity, values_GPH in (("survival", mean_GPH), ("survival difference", apart_GPH)):
                for g, p, h in np.argwhere(~np.isnan(values_GPH)).tolist():
                    if quantity == "survival" or p != self.reference:
                        of = {"outcome": name, "unit": ""}
                        row = self._row(quantity, of, float(values_GPH[g, p, h]), unknown_2L, (g, p, h))
                        row["interval_kind"] = "none (hazards are means over courses)"
                        yield row | ({} if self.outcomes.truth_GPHY is None else {"truth": None})

    def _row(
        self,
        quantity: str,
        of: Mapping[str, str],
        estimate: float,
        limits_2L: tuple[Floats, Floats],
        at: tuple[int, int, int],
    ) -> Row:
        """Return the row of a mean at a group, plan and step, without numbers where they are unknown."""
        g, p, h = at
        few = FEW_UNITS if self.units_G[g] < FEWEST_UNITS and not self.interval_kind.startswith("none") else None
        row: Row = {
            "quantity": quantity,
            "model": self.label,
            "group": self.groups[g],
            "plan": self.plans[p].name,
            "reference": self.plans[self.reference].name if quantity.endswith("difference") else None,
            "step": h + 1,
            **of,
            "estimate": None if np.isnan(estimate) else estimate,
        }
        for i, (level, lower, upper) in enumerate(zip(self.levels, *limits_2L, strict=True)):
            known, further = bool(np.isfinite(lower)), f"_{level:g}" * (i > 0)
            row |= {f"lower{further}": float(lower) if known else None,
                    f"upper{further}": float(upper) if known else None}  # fmt: skip
            if not i:
                row["level"] = level if known else None
        return row | {
            "interval_kind": UNMEASURED if np.isnan(estimate) else self.interval_kind if few is None else few,
            "estimator": "model",
            "model_estimate": None if np.isnan(estimate) else estimate,
            "moments": int(self.moments_G[g]),
            "units": int(self.units_G[g]),
        }


def refuted(rows: Iterable[Mapping[str, Any]]) -> Diagnostic | None:
    """Return a warning where a model's own mean difference is outside the corrected interval, at the latest such step.

    Everybody is looked at, and no group: among many, some are outside by chance.
    """
    of = [row for row in rows if row["quantity"] == "difference" and row.get("estimator") == "tmle"]
    everybody = [row for row in of if row["group"] == of[0]["group"] and row["lower"] is not None]
    outside = [row for row in everybody if not row["lower"] <= row["model_estimate"] <= row["upper"]]
    if not outside:
        return None
    row = max(outside, key=lambda one: one["step"])
    own, lower, upper = (f"{row[name]:.3g}" for name in ("model_estimate", "lower", "upper"))
    return Diagnostic.of(
        "averages-refuted", row["model"], own=own, plan=row["plan"], reference=row["reference"], step=row["step"],
        lower=lower, upper=upper,
    )  # fmt: skip


@dataclass(eq=False)
class Averager:
    """Gathers a model's answers about a cohort, chunk after chunk, and says what they come to on average.

    Attributes:
        cohort: the moments.
        request: the plans; those of single subjects need the same names for all.
        groups: names of the groups.
        in_GM: which moments belong to each.
        reference: name of the plan that others are compared with; the first by default.
    """

    cohort: Cohort
    request: PlanRequest
    groups: tuple[str, ...]
    in_GM: NDArray[np.bool_]
    reference: str | None = None

    def __post_init__(self) -> None:
        self.plans = same_plans(self.cohort, self.request)
        self._reference = reference_place([plan.name for plan in self.plans], self.reference)
        self._gathered: dict[str, list[NDArray[Any]]] = {}

    def add(self, answers: ModelAnswers, truth_QHY: Floats | None = None) -> None:
        """Gather a chunk, and the simulator's answers to it."""
        shape = (len(answers.cohort), len(self.plans), *answers.estimates.mean_QHY.shape[1:])
        columns = {"mean": np.where(answers.own_QHY, answers.measured_QHY, np.nan).reshape(shape)}
        if answers.worst_Q is not None:
            columns["rating"] = answers.worst_Q.reshape(shape[:2])
        for name, values_QH in answers.survival_forecast.columns.items() if answers.survival_forecast else ():
            columns[SURVIVAL + name] = np.where(answers.own_QHY[..., 0], values_QH, np.nan).reshape(shape[:3])
        if truth_QHY is not None:
            columns["truth"] = truth_QHY.reshape(shape)
        self.take(columns)

    def take(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Gather what another averager of the same question has of the moments that follow; see `columns`."""
        for name, values in columns.items():
            self._gathered.setdefault(name, []).append(values)

    def __len__(self) -> int:
        return sum(map(len, self._gathered.get("mean", [])))

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Return what was gathered of moments, `[M,P,...]`, by name."""
        return {name: np.concatenate(parts) for name, parts in self._gathered.items()}

    def finish(self, label: str, model: FittedModel, levels: Sequence[float]) -> AverageEffects:
        """Return the averages, with intervals that include subjects and training (spec AVERAGE-2 to 4)."""
        columns = self.columns
        mean_MPHY, truth_MPHY = columns["mean"], columns.get("truth")
        unit_M, unit = units_of(self.cohort)
        training = training_variance(model, self.cohort, self.request, self.in_GM, unit_M, self._reference)
        apart = (slice(None), slice(self._reference, self._reference + 1))
        found: list[Averages] = []
        correction = None
        if not model.is_joint:  # it says nothing of what training leaves open: those who followed plans do
            from costar_cli.questions.corrected import Correction  # noqa: PLC0415 - statistics load for a while

            plans_M = plans_of(self.cohort, self.request)
            correction = Correction(label, model, self.cohort, plans_M, self.in_GM, mean_MPHY)
        binary_Y = np.array([outcome.kind == "binary" for outcome in model.schema.outcomes])
        low_Y, high_Y = np.where(binary_Y, 0.0, -np.inf), np.where(binary_Y, 1.0, np.inf)
        # between what outcomes and their differences can be, infinite where nothing says
        bounds: list[tuple[Floats, Floats]] = [(low_Y, high_Y), (np.where(binary_Y, -1.0, -np.inf), high_Y)]
        if facts := facts_of(model):
            bounds[0] = facts.clip(low_Y), facts.clip(high_Y)
        for i, minus in enumerate((None, apart)):
            values = mean_MPHY if minus is None else mean_MPHY - mean_MPHY[minus]
            true = truth_MPHY if minus is None or truth_MPHY is None else truth_MPHY - truth_MPHY[minus]
            mean, half, truth = self._averages(values, true, unit_M, training and training[i], levels)
            averages = Averages(mean, half, *bounds[i], truth)
            if correction:
                averages = correction.replacing(averages, kind_of(model), levels, self._reference if i else None)
            found.append(averages)
        units_G = np.array([len(np.unique(unit_M[in_M])) for in_M in self.in_GM])
        survival = {
            name.removeprefix(SURVIVAL): np.stack([values_MPH[in_M].mean(axis=0) for in_M in self.in_GM])
            for name, values_MPH in columns.items()
            if name.startswith(SURVIVAL)
        }
        ratings_GPL = None
        if "rating" in columns:
            is_MPL = columns["rating"][..., None] == np.arange(len(SUPPORT_LEVELS))
            ratings_GPL = np.stack([is_MPL[in_M].sum(axis=0) for in_M in self.in_GM])
        return AverageEffects(
            label, model.schema, self.groups, self.plans, self._reference, tuple(levels), self.in_GM.sum(axis=1),
            units_G, unit, found[0].kind or kind_of(model), found[0], found[1], ratings_GPL, survival,
            correction is None or correction.converged,
        )  # fmt: skip

    def _averages(
        self, values_MPHY: Floats, true_MPHY: Floats | None, unit_M: NDArray[np.int64], variance_GPHY: Floats | None,
        levels: Sequence[float],
    ) -> tuple[Floats, Floats, Floats | None]:  # fmt: skip
        """Return means, half the widths of their intervals, and the true means, by group."""
        mean_GPHY = np.stack([values_MPHY[in_M].mean(axis=0) for in_M in self.in_GM])
        half = np.full((len(levels), *mean_GPHY.shape), np.nan)
        if variance_GPHY is not None:
            for g, in_M in enumerate(self.in_GM):
                sd_PHY = np.sqrt(variance_GPHY[g])
                half[:, g] = half_widths(values_MPHY[in_M], unit_M[in_M], sd_PHY, levels)
        truth = None if true_MPHY is None else np.stack([true_MPHY[in_M].mean(axis=0) for in_M in self.in_GM])
        return mean_GPHY, half, truth


def same_plans(cohort: Cohort, request: PlanRequest) -> tuple[AnyPlan, ...]:
    """Return the plans that all moments are asked about, by name.

    Raises:
        UsageError: subjects have plans of different names or lengths, or there are very many.
    """
    every = plans_of(cohort, request)
    shapes = {tuple((plan.name, len(plan)) for plan in plans) for plans in every}
    if len(shapes) > 1:
        fix = "give each subject plans of the same names and lengths, in the same order"
        raise UsageError("averages need the same plans for all subjects", where="--plan", fix=fix)
    if len(every[0]) > MOST_PLANS:
        raise UsageError(f"averages of {len(every[0]):,} plans; at most {MOST_PLANS:,} at once", where="--plan")
    return tuple(every[0])


def half_widths(
    values_MPHY: Floats,
    unit_M: NDArray[np.int64],
    training_PHY: Floats,
    levels: Sequence[float],
    *,
    replicates: int = REPLICATES,
    seed: int = SEED,
) -> Floats:
    """Return half the widths `[L,P,H,Y]` of intervals of a mean over moments (spec AVERAGE-2, AVERAGE-4).

    Args:
        values_MPHY: what is averaged.
        unit_M: what is resampled as one.
        training_PHY: sd of the part that training leaves open.
        levels: of the intervals.
        replicates: how often units are resampled.
        seed: of it.
    """
    units, row_M = np.unique(unit_M, return_inverse=True)
    shape = values_MPHY.shape[1:]
    if len(units) < FEWEST_UNITS:
        return np.full((len(levels), *shape), np.nan)
    flat_MK = values_MPHY.reshape(len(values_MPHY), -1)
    sums_UK, count_U = np.zeros((len(units), flat_MK.shape[1])), np.bincount(row_M).astype(np.float64)
    np.add.at(sums_UK, row_M, flat_MK)
    moved_BK = moved_means(sums_UK, count_U[:, None], replicates=replicates, seed=seed)
    rng = np.random.default_rng([seed, 1])
    apart_BK = np.abs(moved_BK + rng.normal(size=(replicates, 1)) * training_PHY.reshape(-1))
    return np.quantile(apart_BK, levels, axis=0).reshape(len(levels), *shape)


def training_variance(
    model: FittedModel, cohort: Cohort, request: PlanRequest, in_GM: NDArray[np.bool_], unit_M: NDArray[np.int64],
    reference: int,
) -> tuple[Floats, Floats] | None:  # fmt: skip
    """Return the variance `[G,P,H,Y]` that training leaves open in means of outcomes, and of differences.

    It is that of the mean over moments in joint draws: what draws share, and what is each unit's own, over the number
    of units (spec AVERAGE-3). None where the model has no posterior, which would tell it.
    """
    if not model.is_joint:
        return None
    plans, found = len(same_plans(cohort, request)), []
    most = max(FEWEST_DRAWN, MOST_DRAWN // (plans * len(in_GM)))
    for in_M in in_GM:
        at = np.flatnonzero(in_M)
        some = at[np.linspace(0, len(at) - 1, min(len(at), most)).round().astype(np.int64)]
        some_, units = cohort.take(some), len(np.unique(unit_M[at]))
        shape = (2, plans, request.horizon, len(model.schema.outcomes))
        variance_2PHY = np.zeros(shape)
        others, at_once = [p for p in range(plans) if p != reference], max(1, MOST_DRAWN // len(some) - 1)
        for first in range(0, max(len(others), 1), at_once):  # once, with the reference alone, where there are none
            places = [reference, *others[first : first + at_once]]
            every = [own[p] for own in plans_of(some_, request) for p in places]
            moments = some_.moments(np.repeat(np.arange(len(some_)), len(places)))
            asked = resolve(model.method, model, moments, every, given=some_.panel, n=DRAWS, seed=SEED)
            queries = ask_plans(model, moments, asked.plans_Q)
            drawn_SQHY = asked.drawn(draws(model, moments.panel, queries, n=DRAWS, seed=SEED), seed=SEED)
            drawn_SMPHY = drawn_SQHY.reshape(DRAWS, len(some_), len(places), *drawn_SQHY.shape[2:])
            apart = drawn_SMPHY - drawn_SMPHY[:, :, :1]
            for of, values in zip(variance_2PHY, (drawn_SMPHY, apart), strict=True):
                of[places, : values.shape[3]] = _of_mean(values, unit_M[some], units)
        found.append(variance_2PHY)
    outcomes, differences = zip(*found, strict=True)
    return np.stack(outcomes), np.stack(differences)


def _of_mean(drawn_SMPHY: Floats, unit_M: NDArray[np.integer], units: int) -> Floats:
    """Return the variance of the mean over so many units like those that were drawn, in moments of `unit_M`."""
    drawn, row_M = np.unique(unit_M, return_inverse=True)
    mean_SPHY, sample = drawn_SMPHY.mean(axis=1), len(drawn)
    own_PHY = np.zeros(mean_SPHY.shape[1:])
    for u in range(sample):
        own_PHY += (drawn_SMPHY[:, row_M == u] - mean_SPHY[:, None]).sum(axis=1).var(axis=0, ddof=1)
    own_PHY *= sample / max(sample - 1, 1) / len(unit_M) ** 2
    shared_PHY = np.maximum(mean_SPHY.var(axis=0, ddof=1) - own_PHY, 0.0)
    return np.asarray(shared_PHY + own_PHY * sample / units)


def kind_of(model: FittedModel) -> str:
    """Return what the intervals of a model's averages include, or why there are none."""
    if model.is_joint and model.draws_training:
        return "subjects and training (posterior)"
    if model.is_joint:
        return "subjects and their posterior (not what the training sample leaves open)"
    if model.is_ensemble:
        return NONE_OF_MEMBERS if model.members > 1 else NONE_OF_ONE
    return NONE
