"""The tumour growth cohort as a data set: its panels, its queries, and the truth of any plan."""

from dataclasses import dataclass, fields, replace
from typing import Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costar_cli.data.base import HIDDEN
from costar_cli.data.calendar import Calendar
from costar_cli.data.cohort import cohort_panel
from costar_cli.data.dataset import AskedPlans, Dataset, Part, simulated_truth
from costar_cli.data.panel import Panel
from costar_cli.data.queries import Queries
from costar_cli.data.schema import End, ErrorUnit, PanelSchema, TreatmentEncoding, Variable
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.visits import dose_of_gaps
from costar_cli.errors import UsageError
from costar_cli.reporting import Reporter
from simulators import tumor

NAME = "tumor"
MOST_ANSWERS = 200_000_000  # query steps: about 4 GB while simulating

TUMOR_SCHEMA = PanelSchema(
    treatments=TreatmentEncoding(
        mode="multiclass",
        names=("chemotherapy", "radiotherapy"),
        levels=(("off", "on"), ("off", "on")),
        classes=((0, 0), (1, 0), (0, 1), (1, 1)),
    ),
    outcomes=(Variable(name="tumour_volume", unit="cm3"),),
    statics=(Variable(name="patient_type", kind="ordinal"),),
    step="day",
    error_unit=ErrorUnit(factor=100 / tumor.MAX_VOLUME_CM3, label="% of V_max"),
)
ENDS = (End(name="death"), End(name="recovery"))


def simulate_tumor(config: TumorConfig, reporter: Reporter) -> Dataset:
    """Simulate the source and the target cohort, with counterfactual queries on both test parts.

    Each part has its own child seed; with `paired`, a target part shares the one of its source part, and so the
    virtual patients and their noise: the policy alone differs.

    Raises:
        UsageError: sizes that would make more queries than memory holds.
    """
    if config.ends and config.visits is not None:
        raise UsageError(
            "ends would be seen at the next visit alone, and rates are fitted to ends at their own times",
            where="--ends, --visits",
            fix="leave one of them out",
        )
    per_patient = (config.steps - 1) * 2 * (config.horizon - 1) * config.horizon
    answers = (config.test + config.target_test) * per_patient
    if answers > MOST_ANSWERS:
        raise UsageError(
            f"the test patients would have up to {answers:,} counterfactual answers, more than {MOST_ANSWERS:,}",
            where="--test, --target-test, --steps, --horizon",
            fix="simulate fewer test patients, or shorter series or plans",
        )
    sizes = [config.train, config.val, config.test, config.target_train, config.target_val, config.target_test]
    panels: dict[Part, Panel] = {}
    queries: dict[Part, dict[str, Queries]] = {}
    truth: dict[Part, dict[str, NDArray[np.generic]]] = {}
    first_id, schema = 0, TUMOR_SCHEMA.model_copy(update={"ends": ENDS}) if config.ends else TUMOR_SCHEMA
    with reporter.task("simulate tumour growth", total=sum(sizes), unit="patient") as task:
        for i, (part, n) in enumerate(zip(Part.all(), sizes, strict=True)):
            cohort = _Cohort.simulate(config, part, n, i % 3 if config.paired else i)
            if cohort.day_NK is not None:
                seen = tumor.TumorVisits.of(cohort.factual, cohort.day_NK)
                schema = visits_schema(schema, seen) if part == Part("source", "train") else schema
                panels[part] = visits_panel(schema, cohort.patients, seen, cohort.day_NK, first_id)
            else:
                factual = cohort.factual
                panel = cohort_panel(
                    schema.treatments,
                    first_id,
                    covariates=np.zeros((n, config.steps, 0)),
                    treatments=factual.treatments,
                    outcome=factual.volume_cm3.astype(np.float64, copy=False),
                    statics=cohort.patients.patient_type[:, None].astype(np.float64),
                    length=factual.length,
                )
                end = np.where(factual.died, 1, np.where(factual.recovered, 2, 0)) if config.ends else None
                panels[part] = replace(panel, end=end)
            truth[part] = cohort.truth()
            if part.split == "test":
                queries[part] = cohort.queries(config, schema)
            first_id += n
            task.advance(n)
    return Dataset(NAME, schema, config.horizon, panels, queries, truth, config.model_dump(mode="json"))


@dataclass(frozen=True)
class _Cohort:
    """The patients of a part, day by day, and the days of their visits where they are seen on some alone."""

    patients: tumor.TumorPatients
    noise: tumor.TumorNoise
    factual: tumor.TumorFactual
    growth_N: NDArray[np.int8] | None
    day_NK: NDArray[np.int64] | None
    plans_rng: np.random.Generator

    @classmethod
    def simulate(cls, config: TumorConfig, part: Part, n: int, stream: int) -> Self:
        """Draw patients, noise and visits, and simulate them under the policy of their domain."""
        # The generators of a part's patients, noise, random plans and visits
        seed = config.seed
        sequence = np.random.SeedSequence(seed, spawn_key=(stream,))
        patients_rng, noise_rng, plans_rng, visits_rng = [np.random.default_rng(child) for child in sequence.spawn(4)]
        patients, ahead, day_NK = tumor.sample_patients(n, patients_rng), config.horizon, None
        if config.visits is not None:
            ahead = tumor.days_needed(config.visits, config.horizon)
            day_NK = tumor.draw_visits(n, visits_rng, config.visits, steps=config.steps, horizon=config.horizon)
        noise = tumor.draw_noise(n, noise_rng, steps=config.steps, horizon=ahead)
        growth_N = tumor.known_growth(patients) if config.drop_confounder else None
        factual = tumor.simulate_factual(
            patients,
            noise,
            config.gamma if part.domain == "source" else config.target_gamma,
            steps=config.steps,
            growth_N=growth_N,
            seen_NT=None if day_NK is None else tumor.seen_days(day_NK, config.steps),
        )
        return cls(patients, noise, factual, growth_N, day_NK, plans_rng)

    def truth(self) -> dict[str, NDArray[np.generic]]:
        """Return what answers any plan, and what of it swayed the policy unseen."""
        hidden = {} if self.growth_N is None else {HIDDEN: self.growth_N}
        visits = {} if self.day_NK is None else {VISIT_DAY: self.day_NK.astype(np.int32)}
        patients = self.patients
        noise = self.noise
        parameters = {field.name: getattr(patients, field.name) for field in fields(patients)}
        return (parameters | {"growth_noise": noise.growth, "recovery_uniform": noise.recovery}) | hidden | visits

    def queries(self, config: TumorConfig, schema: PanelSchema) -> dict[str, Queries]:
        """Return the two sets of test queries."""
        world = self.patients, self.noise, self.factual
        if self.day_NK is not None:
            each = tumor.visit_counterfactuals(*world, self.day_NK, plans=None, horizon=1)
            sequence = tumor.visit_counterfactuals(
                *world, self.day_NK, plans=config.plans, horizon=config.horizon, rng=self.plans_rng
            )
            answered = {"one_step": each, "sequence": sequence}
            return {name: visits_queries(schema, self.day_NK, found) for name, found in answered.items()}
        one_step = tumor.one_step_counterfactuals(*world)
        sequence = tumor.sequence_counterfactuals(
            *world, plans=config.plans, horizon=config.horizon, rng=self.plans_rng
        )
        return {"one_step": _queries(one_step), "sequence": _queries(sequence)}


def tumor_truth(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> NDArray[np.float64]:
    """Return the simulator's volumes `[H]` in cm³ had plans been followed from their origins (an `Answer`).

    The patient is simulated again from day 0 with the factual treatments before the origin, so that stored answers
    are met to the last digit that they were stored with. A plan holds chemotherapy and radiotherapy, 0 or 1, and, where
    patients are seen on some days alone, how many days later the next visit is.
    """
    parameters = [field.name for field in fields(tumor.TumorPatients)]
    truth = simulated_truth(dataset, part, (*parameters, "growth_noise", "recovery_uniform"))
    patients = tumor.TumorPatients(**{name: truth[name] for name in parameters})
    noise = tumor.TumorNoise(growth=truth["growth_noise"], recovery=truth["recovery_uniform"])
    if VISIT_DAY in truth:
        return visits_truth(dataset, part, row, origin, plan_values, patients, noise)
    asked = AskedPlans.of(dataset, part, row, origin, np.asarray(plan_values, dtype=np.bool_)).within_series()
    latest = int(asked.origin_Q.max(initial=0))
    if len(asked.origin_Q) and latest + asked.horizon >= noise.n_days:
        longest = noise.n_days - 1 - latest
        raise UsageError(f"the simulation goes on for {longest} steps from this origin", fix="give a shorter plan")
    # Simulate from day 0 under the factual treatments before the origin and the plan from then on
    panel = dataset.panels[part]
    rows, subject_Q = np.unique(asked.row_Q, return_inverse=True)
    n, horizon, origin_Q = len(rows), asked.horizon, asked.origin_Q
    first_day = tumor.TumorFactual(
        volume_cm3=patients.initial_volume_cm3[rows, None],
        treatments=np.zeros((n, 1, 2), dtype=np.bool_),
        length=np.ones(n, dtype=np.int64),
    )
    days = int(origin_Q.max(initial=0)) + horizon
    given = np.zeros((n, max(days, panel.n_steps), 2), dtype=np.bool_)
    given[:, : panel.n_steps] = TUMOR_SCHEMA.treatments.decode(panel.treatments[rows])
    course_QD2 = given[subject_Q, :days]
    query, planned = np.arange(len(origin_Q))[:, None], origin_Q[:, None] + np.arange(horizon)
    course_QD2[query, planned] = asked.plan_QH
    volume_QD = tumor.answer_plan(
        patients.take(rows), noise.take(rows), first_day, subject_Q, np.zeros(len(origin_Q), np.int64), course_QD2
    )
    volume_QH: NDArray[np.float64] = volume_QD[query, planned]
    return asked.shaped(volume_QH)


def tumor_limit(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> NDArray[np.float64]:
    """Return the expected volumes `[H,1]` in cm³ given what was observed up to the plans' origins (an `Answer`).

    The patients' own parameters and noise, which the truth holds, are not read (spec LIMIT-2, LIMIT-3).
    """
    asked = AskedPlans.of(dataset, part, row, origin, np.asarray(plan_values, dtype=np.bool_)).within_series()
    known = _observed(dataset.panels[part])
    return asked.shaped(tumor.expected_volumes(*known, asked.row_Q, asked.origin_Q, asked.plan_QH)[..., None])


def tumor_quantiles(
    dataset: Dataset, part: Part, row: ArrayLike, origin: ArrayLike, plan_values: ArrayLike, shares: ArrayLike
) -> NDArray[np.float64]:
    """Return quantiles `[P,Q,H]` of volumes in cm³ under plans, given what was observed up to their origins.

    `tumor_limit` has the means of these distributions.
    """
    asked = AskedPlans.of(dataset, part, row, origin, np.asarray(plan_values, dtype=np.bool_)).within_series()
    known, at = _observed(dataset.panels[part]), np.asarray(shares, dtype=np.float64)
    return tumor.volume_quantiles(*known, asked.row_Q, asked.origin_Q, asked.plan_QH, at)


def _observed(panel: Panel) -> tuple[tumor.TumorFactual, NDArray[np.int64]]:
    """Return what was observed of patients, and their types."""
    given = TUMOR_SCHEMA.treatments.decode(panel.treatments)
    observed = tumor.TumorFactual(panel.outcomes[..., 0], given.astype(np.bool_), panel.length)
    return observed, panel.statics[:, 0].astype(np.int64)


def _queries(answered: tumor.TumorCounterfactuals) -> Queries:
    given = answered.treatments.astype(np.uint8)  # chemotherapy, radiotherapy; millions of them
    plan = np.eye(4, dtype=np.uint8)[given[..., 0] + 2 * given[..., 1]]  # in the order of the schema's classes
    return Queries.answered(answered.subject, answered.origin, plan, answered.volume_cm3[..., None])


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
