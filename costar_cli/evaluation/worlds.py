"""Data sets with a known answer, and what models say of effects there (spec REFUTE-1, 2); `C` counts contrasts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Dataset, Panel, PanelSchema, Plans, Variable, as_plans
from costar_cli.data.windows import FactualWindows
from costar_cli.errors import TrainingError
from costar_cli.methods.base import FittedModel

RANDOM: Final = "random covariate"
FUTURE: Final = "future treatment"

Rng = np.random.Generator


def part_of(data: Dataset, most: int, share: float, rng: Rng) -> Dataset:
    """Return a random share of the subjects of each part but the test's, of at most so many."""

    def chosen(panel: Panel) -> Panel:
        size = max(1, round(share * min(panel.n_subjects, most)))
        return panel.take(np.sort(rng.permutation(panel.n_subjects)[:size]))

    return replace(data, panels={p: x if p.split == "test" else chosen(x) for p, x in data.panels.items()})


def placebo_treatment(data: Dataset, rng: Rng) -> Dataset:
    """Permute the treatments of each step among the subjects that have a decision there: nothing depends on them."""

    def permuted(panel: Panel) -> Panel:
        treatments_NTA = panel.treatments.copy()
        for step in range(panel.n_steps - 1):
            rows = np.flatnonzero(panel.length - 1 > step)
            treatments_NTA[rows, step] = panel.treatments[rng.permutation(rows), step]
        return replace(panel, treatments=treatments_NTA)

    return _with_panels(data, permuted)


def dummy_outcome(data: Dataset, rng: Rng) -> Dataset:
    """Give each subject another's whole series of outcomes, as long as both have steps: no treatment has led to it."""

    def exchanged(panel: Panel) -> Panel:
        giver_N = rng.permutation(panel.n_subjects)
        length = np.minimum(panel.length, panel.length[giver_N])
        there_NT1 = (np.arange(panel.n_steps) < length[:, None])[..., None]
        decided_NT1 = (np.arange(panel.n_steps) < length[:, None] - 1)[..., None]
        observed, seen = panel.outcome_observed, panel.covariate_observed
        return replace(
            panel,
            length=length,
            covariates=panel.covariates * there_NT1,
            treatments=panel.treatments * decided_NT1,
            outcomes=panel.outcomes[giver_N] * there_NT1,
            outcome_observed=None if observed is None else observed[giver_N] & there_NT1,
            covariate_observed=None if seen is None else seen & there_NT1,
        )

    return _with_panels(data, exchanged)


def random_covariate(data: Dataset, rng: Rng) -> Dataset:
    """Add a covariate that is noise."""
    return _with_covariates(data, (RANDOM,), lambda panel: rng.standard_normal((*panel.outcomes.shape[:2], 1)))


def future_treatments(data: Dataset, rng: Rng) -> Dataset:
    """Add as covariates the treatments that follow a whole horizon later: beyond every answer that is predicted.

    Where a series ends before, they are those of any step of any subject: a gap would tell that it ends.
    """

    def later(panel: Panel) -> NDArray[np.floating]:
        given_MA = panel.treatments[panel.decided]
        if not len(given_MA):
            return panel.treatments
        later_NTA = given_MA[rng.integers(len(given_MA), size=panel.outcomes.shape[:2])]
        known_NT = np.arange(panel.n_steps) + data.horizon < panel.length[:, None] - 1
        row_M, step_M = np.nonzero(known_NT)
        later_NTA[row_M, step_M] = panel.treatments[row_M, step_M + data.horizon]
        return later_NTA

    names = (f"{FUTURE} {column}" for column in data.schema.treatments.columns)
    return _with_covariates(data, tuple(names), later)


def _with_panels(data: Dataset, changed: Callable[[Panel], Panel]) -> Dataset:
    return replace(data, panels={part: changed(panel) for part, panel in data.panels.items()})


def _with_covariates(data: Dataset, names: tuple[str, ...], values: Callable[[Panel], NDArray[np.floating]]) -> Dataset:
    """Add covariates; a name that is taken gets a sign at its end."""
    schema = data.schema
    taken = {v.name for v in (*schema.covariates, *schema.outcomes, *schema.statics)} | set(schema.treatments.all_names)

    def added(panel: Panel) -> Panel:
        more_NTX = values(panel) * panel.observed[..., None]
        covariates = np.concatenate([panel.covariates, more_NTX], axis=2).astype(np.float32)
        seen = np.broadcast_to(panel.observed[..., None], more_NTX.shape)
        seen = np.concatenate([panel.observed_covariates, seen], axis=2)
        return replace(panel, covariates=covariates, covariate_observed=seen)

    variables = (Variable(name=f"{name}'" if name in taken else name) for name in names)
    return replace(
        _with_panels(data, added), schema=schema.model_copy(update={"covariates": (*schema.covariates, *variables)})
    )


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Contrast:
    """A plan to compare with that of no treatment; `plan` and `reference` are treatments of each step, `[H,A]`."""

    name: str
    plan: Plans
    reference: Plans


def contrasts(panel: Panel, schema: PanelSchema, horizon: int) -> list[Contrast]:
    """Return each treatment given always, and once at first, against never.

    Only what some subject was given at a step is asked about: of each treatment the commonest way to give it, alone
    where that occurs; never is no treatment or, where all are treated, what is commonest. The time until the next step
    is no treatment: it is the usual one.
    """
    encoding = schema.treatments
    decided_NT = panel.decided
    idle_K, given_MK = encoding.idle, encoding.decode(panel.treatments[decided_NT])
    given_MK = np.where(idle_K != 0, idle_K, given_MK)
    seen_MK, count_M = np.unique(given_MK, axis=0, return_counts=True)
    if not len(seen_MK):
        return []
    untreated_M = (seen_MK == idle_K).all(axis=1)
    never = seen_MK[np.argmax(untreated_M if untreated_M.any() else count_M)]
    found, told = [], {tuple(never.tolist())}
    for k in range(seen_MK.shape[1]):
        rows = np.flatnonzero(seen_MK[:, k] != never[k])
        alone = rows[(np.delete(seen_MK[rows], k, axis=1) == np.delete(never, k)).all(axis=1)]
        rows = alone if len(alone) else rows
        if not len(rows):
            continue
        is_dose = k >= len(encoding.names)  # of doses the middle one is taken
        arm = seen_MK[rows[len(rows) // 2 if is_dose else np.argmax(count_M[rows])]]
        if tuple(arm.tolist()) in told:
            continue
        told.add(tuple(arm.tolist()))
        of_never, given = (np.tile(row, (horizon, 1)) for row in (never, arm))
        once = np.concatenate([given[:1], of_never[1:]])
        what = encoding.describe(np.where(idle_K != 0, 0, arm))
        plans = [(f"always {what}", given)] + [(f"{what} once", once)] * (horizon > 1)
        reference = as_plans(encoding.encode(of_never))
        found += [Contrast(name, as_plans(encoding.encode(plan)), reference) for name, plan in plans]
    return found


def effects(model: FittedModel, windows: FactualWindows, asked: Sequence[Contrast], sd_Y: Floats) -> Floats:
    """Return the mean effect of each contrast on each outcome, `[C,Y]` in sds, over steps and origins.

    Raises:
        TrainingError: a prediction is not finite.
    """
    plans = [plan for contrast in asked for plan in (contrast.plan, contrast.reference)]
    mean_PY = np.stack([_predict(model, windows, plan).mean(axis=(0, 1)) for plan in plans])
    return np.asarray((mean_PY[::2] - mean_PY[1::2]) / sd_Y)


def errors(model: FittedModel, windows: FactualWindows, sd_Y: Floats) -> Floats:
    """Return the mean squared error of each subject of the windows on what was observed, `[N]` in squared sds."""
    queries = windows.queries
    if queries.outcomes is None:
        raise TypeError("these windows have no answers")
    predicted_QHY = _finite(model.rollout(windows.panel, windows.asked)).mean(axis=0)
    squared_QHY = np.where(windows.observed_QHY, ((predicted_QHY - queries.outcomes) / sd_Y) ** 2, 0.0)
    total_N, count_N = np.zeros((2, windows.panel.n_subjects))
    np.add.at(total_N, queries.subject, squared_QHY.sum(axis=(1, 2)))
    np.add.at(count_N, queries.subject, windows.observed_QHY.sum(axis=(1, 2)))
    return np.asarray(total_N[count_N > 0] / count_N[count_N > 0])


def later_changes(
    model: FittedModel, windows: FactualWindows, asked: Sequence[Contrast], sd_Y: Floats
) -> tuple[float, float]:
    """Return by how much predictions move at most, in sds, with what acts only after them.

    The first number is of plans that differ from some step on: contrasts, and recorded plans that end like another
    subject's. The second is of recorded treatments, covariates and outcomes after the origin.
    """
    recorded_QHA, moved = windows.asked.plan, 0.0
    pairs = [(contrast.reference, contrast.plan) for contrast in asked] + [(recorded_QHA, recorded_QHA[::-1])]
    for plan, other in pairs:
        whole = None
        for step in range(1, windows.queries.horizon):
            if (plan[..., step:, :] == other[..., step:, :]).all():
                continue
            whole = _predict(model, windows, plan) if whole is None else whole
            other_end = _predict(model, windows, np.concatenate([plan[..., :step, :], other[..., step:, :]], axis=-2))
            moved = max(moved, float((np.abs(other_end - whole)[:, :step] / sd_Y).max()))
    before = _finite(model.rollout(windows.panel, windows.asked))
    # the same questions of subjects whose series hold other values after the origins: a row of the panel for each
    queries = windows.asked
    panel = windows.panel.take(queries.subject.astype(np.int64))
    later_QT1 = (np.arange(panel.n_steps) > queries.origin[:, None])[..., None]
    given_QT1 = (np.arange(panel.n_steps) >= queries.origin[:, None])[..., None]
    changed = replace(
        panel,
        covariates=np.where(later_QT1, panel.covariates[::-1], panel.covariates),
        outcomes=np.where(later_QT1, panel.outcomes[::-1], panel.outcomes),
        treatments=np.where(given_QT1, panel.treatments[::-1], panel.treatments),
    )
    asked_again = replace(queries, subject=np.arange(len(queries), dtype=np.int32))
    after = _finite(model.rollout(changed, asked_again))
    return moved, float((np.abs(after - before) / sd_Y).max())


def _predict(model: FittedModel, windows: FactualWindows, plan: Plans) -> Floats:
    """Return the mean prediction of the members, `[Q,H,Y]`, under one plan `[H,A]` of all or one of each, `[Q,H,A]`."""
    queries = windows.asked
    shape = (len(queries), queries.horizon, plan.shape[-1])
    asked = replace(queries, plan=as_plans(np.broadcast_to(plan[..., : queries.horizon, :], shape)))
    return np.asarray(_finite(model.rollout(windows.panel, asked)).mean(axis=0))


def _finite(predicted: NDArray[np.float32]) -> Floats:
    if not np.isfinite(predicted).all():
        raise TrainingError("the model predicts values that are not finite")
    return predicted.astype(np.float64)
