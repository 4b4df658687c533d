"""Tumours seen on random days as a data set: a schema with gaps, panels, queries, and the truth of any visits."""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costar_cli.data.asked_plans import AskedPlans
from costar_cli.data.calendar import Calendar
from costar_cli.data.dataset import Dataset, Part
from costar_cli.data.panel import Panel
from costar_cli.data.queries import Queries
from costar_cli.data.schema import PanelSchema
from costar_cli.data.visits import dose_of_gaps
from costar_cli.errors import UsageError
from simulators import tumor

VISIT_DAY: Final = "visit_day"  # array of a part's truth: the days of its visits, and of those after them
DAY: Final = 86_400 * 10**6  # microseconds
FIRST_DAY: Final = np.datetime64("2024-01-01", "us").astype(np.int64)  # day 0 of every patient


def visits_schema(daily: PanelSchema, train: tumor.TumorVisits) -> PanelSchema:
    """Return the schema with the time until the next visit as the source's training patients have it."""
    gaps = train.gap_days[train.gap_days > 0].astype(np.float64)
    if len(np.unique(gaps)) < 2:
        raise UsageError(
            "the training patients have no two visits that are differently far apart",
            where="--train, --steps, --visits",
            fix="simulate more patients, or more days",
        )
    dose = dose_of_gaps(gaps, unit="day", microseconds=DAY)
    return daily.model_copy(
        update={"treatments": daily.treatments.model_copy(update={"doses": (dose,)}), "step": "visit"}
    )


def visits_panel(
    schema: PanelSchema,
    patients: tumor.TumorPatients,
    seen: tumor.TumorVisits,
    day_NK: NDArray[np.int64],
    first_id: int,
) -> Panel:
    """Return what was seen as a panel with dates."""
    n, visits = seen.volume_cm3.shape
    known_NV = np.arange(visits) < seen.length[:, None]
    values = np.concatenate([seen.treatments, seen.gap_days[..., None]], axis=-1)
    going_NV1 = (np.arange(visits) < seen.length[:, None] - 1)[..., None]
    return Panel(
        covariates=np.zeros((n, visits, 0), dtype=np.float32),
        treatments=schema.treatments.encode(values).astype(np.float32) * going_NV1,
        outcomes=seen.volume_cm3.astype(np.float32)[..., None],
        statics=patients.patient_type.astype(np.float32)[:, None],
        length=seen.length,
        subject_id=np.arange(first_id, first_id + n, dtype=np.int64),
        calendar=Calendar(np.where(known_NV, FIRST_DAY + day_NK[:, :visits] * DAY, 0), "us", None),
    )


def visits_queries(schema: PanelSchema, day_NK: NDArray[np.int64], answered: tumor.TumorCounterfactuals) -> Queries:
    """Return answers as a query set: plans are of the visits that the patient has."""
    at_QH = answered.origin[:, None] + np.arange(answered.treatments.shape[1] + 1)
    gap_QH = np.diff(day_NK[answered.subject[:, None], at_QH], axis=1)
    values = np.concatenate([answered.treatments, gap_QH[..., None]], axis=-1)
    plan = schema.treatments.encode(values)
    return Queries.answered(answered.subject, answered.origin, plan, answered.volume_cm3[..., None])


def visits_truth(
    dataset: Dataset,
    part: Part,
    row: int | ArrayLike,
    origin: int | ArrayLike,
    plan_values: ArrayLike,
    patients: tumor.TumorPatients,
    noise: tumor.TumorNoise,
) -> NDArray[np.float64]:
    """Return the simulator's volumes `[H]` in cm³ at the visits of plans, told by the days until the next.

    Raises:
        UsageError: a visit is no whole day after the one before, or behind the days that are simulated.
    """
    asked = AskedPlans.of(dataset, part, row, origin, np.asarray(plan_values, dtype=np.float64)).within_series()
    gap_QH = asked.plan_QH[..., 2]
    broken_QH = (gap_QH < 1) | (gap_QH != np.round(gap_QH))
    if broken_QH.any():
        problem = f"the simulation goes day by day, and a visit is {gap_QH[broken_QH][0]:g} days after another"
        raise UsageError(problem, fix="give visits of `--truth` whole days apart")
    day_NK = dataset.truth[part][VISIT_DAY].astype(np.int64)
    start_Q = day_NK[asked.row_Q, asked.origin_Q]
    day_QH = start_Q[:, None] + gap_QH.cumsum(axis=1).astype(np.int64)
    last = int(day_QH.max(initial=0))
    if last >= noise.n_days:
        most = noise.n_days - 1 - int(start_Q.max(initial=0))
        raise UsageError(f"the simulation goes on for {most} days from this origin", fix="give a shorter plan")
    rows, subject_Q = np.unique(asked.row_Q, return_inverse=True)
    history = int(asked.origin_Q.max(initial=0))
    before_QV = np.arange(history) < asked.origin_Q[:, None]
    values = dataset.schema.treatments.decode(dataset.panels[part].treatments[asked.row_Q, :history])
    given_QV2 = values[..., :2].astype(np.bool_) & before_QV[..., None]
    day_QV = np.where(before_QV, day_NK[asked.row_Q, :history], start_Q[:, None])
    volume_QV = tumor.answer_visits(
        patients.take(rows),
        noise.take(rows),
        subject_Q,
        np.concatenate([day_QV, start_Q[:, None], day_QH], axis=1),
        np.concatenate([given_QV2, asked.plan_QH[..., :2].astype(np.bool_)], axis=1),
    )
    return asked.shaped(volume_QV[:, history:])
