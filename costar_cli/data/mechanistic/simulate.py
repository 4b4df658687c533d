"""Cohorts of differential equations as data sets; the only module besides tests that knows `simulators.mechanistic`.

Their truth holds what it takes to go on from any step: parameters, states, events and noise (spec ODE-3).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costar_cli.data.base import CohortConfig
from costar_cli.data.cohort import cohort_panel, cohort_parts, random_origins, require_few_answers
from costar_cli.data.dataset import AskedPlans, Dataset, Part, simulated_truth
from costar_cli.data.dose import Dose
from costar_cli.data.mechanistic.settings import GLUCOSE, HIV, WARFARIN
from costar_cli.data.panel import Panel
from costar_cli.data.queries import Queries
from costar_cli.data.schema import PanelSchema, TreatmentEncoding, Variable
from costar_cli.errors import UsageError
from costar_cli.reporting import Reporter
from simulators import mechanistic

CHUNK: Final = 8_192  # queries followed at once: their state stays near a core
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cohort:
    """What the data set of a mechanism holds, and which plans its queries ask about.

    Attributes:
        fixed: values of treatments `[P,A]`; each makes a plan that gives the same at every step.
        dose: what the treatment is called, and its unit, where it is a dose; `most` of it in random plans.
        names: of treatments that are on or off.
    """

    mechanism: mechanistic.Mechanism
    title: str
    outcome: Variable
    step: str
    fixed: tuple[tuple[float, ...], ...]
    covariates: tuple[Variable, ...] = ()
    statics: tuple[Variable, ...] = ()
    names: tuple[str, ...] = ()
    dose: tuple[str, str] = ("", "")
    most: float = 0.0

    def encoding(self, given_NTA: Floats) -> TreatmentEncoding:
        """Return the encoding of treatments, of doses as source-train was given them."""
        if self.names:
            levels = (("off", "on"),) * len(self.names)
            classes = tuple(product((0, 1), repeat=len(self.names)))
            return TreatmentEncoding(mode="multiclass", names=self.names, levels=levels, classes=classes)
        dose = Dose.learn(self.dose[0], given_NTA[:, :-1].ravel(), unit=self.dose[1])
        return TreatmentEncoding(mode="multilabel", names=(), levels=(), doses=(dose,))

    def plans(self, n: int, horizon: int, random: int, rng: np.random.Generator) -> Floats:
        """Return the plans `[n,K,H,A]` from n origins: the fixed ones, then random ones."""
        fixed_KHA = np.repeat(np.array(self.fixed, dtype=np.float64)[:, None], horizon, axis=1)
        size = (n, random, horizon, fixed_KHA.shape[-1])
        drawn = rng.integers(2, size=size) if self.names else rng.uniform(0, self.most, size).round(1)
        return np.concatenate([np.broadcast_to(fixed_KHA, (n, *fixed_KHA.shape)), drawn], axis=1)


COHORTS: Final = {
    GLUCOSE.dataset: _Cohort(
        mechanism=mechanistic.Glucose(),
        title="simulate glucose",
        covariates=(Variable(name="carbohydrate", unit="g"),),
        outcome=Variable(name="blood_glucose", unit="mg/dL"),
        step="half hour",
        dose=("insulin", "U"),
        fixed=((0,), (4,)),
        most=8.0,
    ),
    HIV.dataset: _Cohort(
        mechanism=mechanistic.HIV(),
        title="simulate HIV",
        covariates=(Variable(name="cd4", unit="cells/uL"),),
        outcome=Variable(name="viral_load", unit="log10 copies/mL"),
        step="5 days",
        names=("rti", "pi"),
        fixed=((0, 0), (1, 0), (0, 1), (1, 1)),
    ),
    WARFARIN.dataset: _Cohort(
        mechanism=mechanistic.Warfarin(),
        title="simulate warfarin",
        outcome=Variable(name="inr"),
        statics=tuple(Variable(name=name) for name in ("cyp2c9_2", "cyp2c9_3", "vkorc1_g")),
        step="day",
        dose=("dose", "mg"),
        fixed=((2.5,), (7.5,)),
        most=10.0,
    ),
}
_OF_SETTINGS: Final = {source.settings: source for source in (GLUCOSE, HIV, WARFARIN)}


def simulate_mechanistic(config: CohortConfig, reporter: Reporter) -> Dataset:
    """Simulate the source and the target, which differ in the policy's strength alone, with queries on both test parts.

    Raises:
        UsageError: sizes that would make more answers than memory holds.
    """
    source = _OF_SETTINGS[type(config)]
    cohort = COHORTS[source.dataset]
    require_few_answers(config, source.section, len(cohort.fixed))
    panels: dict[Part, Panel] = {}
    queries: dict[Part, dict[str, Queries]] = {}
    truth: dict[Part, dict[str, NDArray[np.generic]]] = {}
    schema: PanelSchema | None = None
    for part, n, first_id, panel_seed, queries_seed in cohort_parts(config, reporter, cohort.title):
        course = mechanistic.simulate_course(
            cohort.mechanism,
            n,
            config.steps,
            np.random.default_rng(panel_seed),
            gamma=config.gamma if part.domain == "source" else config.target_gamma,
            horizon=config.horizon,
        )
        schema = schema or PanelSchema(
            covariates=cohort.covariates,
            treatments=cohort.encoding(course.treatments),
            outcomes=(cohort.outcome,),
            statics=cohort.statics,
            step=cohort.step,
        )
        panels[part] = cohort_panel(
            schema.treatments,
            first_id,
            covariates=course.covariates,
            treatments=course.treatments,
            outcome=course.outcome,
            statics=course.patients.statics,
        )
        truth[part] = {
            "parameters": course.patients.parameters,
            "state": course.state,
            "event": course.event,
            "noise": course.noise,
        }
        if part.split != "test":
            continue
        rng = np.random.default_rng(queries_seed)
        subject_M, origin_M = random_origins(n, config.steps, config.origins, rng)
        plan_MKHA = cohort.plans(len(subject_M), config.horizon, config.random_plans, rng)
        queries[part] = {}
        for name, plans in (("one_step", plan_MKHA[:, : len(cohort.fixed), :1]), ("sequence", plan_MKHA)):
            k = plans.shape[1]
            subject_Q, origin_Q = np.repeat(subject_M, k), np.repeat(origin_M, k)
            plan_QHA = plans.reshape(len(subject_Q), *plans.shape[2:])
            outcome_QH = _follow(cohort.mechanism, truth[part], subject_Q, origin_Q, plan_QHA, expected=False)
            queries[part][name] = Queries.answered(
                subject_Q, origin_Q, schema.treatments.encode(plan_QHA), outcome_QH[..., None], factual_start=False
            )
    assert schema is not None  # noqa: S101 - there are six parts
    return Dataset(source.dataset, schema, config.horizon, panels, queries, truth, config.model_dump(mode="json"))


def mechanistic_truth(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> Floats:
    """Return the outcomes `[H]` that subjects would have had, with their own noise and events (an `Answer`)."""
    return _answer(dataset, part, row, origin, plan_values, expected=False)


def mechanistic_mean(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> Floats:
    """Return the outcomes `[H]` of usual noise and events ahead, from the hidden state (an `Answer`; spec ODE-4)."""
    return _answer(dataset, part, row, origin, plan_values, expected=True)


def _answer(
    dataset: Dataset,
    part: Part,
    row: int | ArrayLike,
    origin: int | ArrayLike,
    plan_values: ArrayLike,
    *,
    expected: bool,
) -> Floats:
    truth = simulated_truth(dataset, part, ("parameters", "state", "event", "noise"))
    asked = AskedPlans.of(dataset, part, row, origin, np.asarray(plan_values, dtype=np.float64)).within_series()
    latest, simulated = int(asked.origin_Q.max(initial=0)), truth["noise"].shape[1]
    if latest + asked.horizon >= simulated:
        raise UsageError(
            f"the simulation goes on for {simulated - 1 - latest} steps from this origin", fix="give a shorter plan"
        )
    mechanism = COHORTS[dataset.name].mechanism
    return asked.shaped(_follow(mechanism, truth, asked.row_Q, asked.origin_Q, asked.plan_QH, expected=expected))


def _follow(
    mechanism: mechanistic.Mechanism,
    truth: Mapping[str, NDArray[Any]],
    subject_Q: NDArray[np.int64],
    origin_Q: NDArray[np.int64],
    plan_QHA: Floats,
    *,
    expected: bool,
) -> Floats:
    """Return the outcomes `[Q,H]` from the stored states, with the subjects' own noise and events, or usual ones."""
    outcome_QH = np.empty(plan_QHA.shape[:2])
    for lo in range(0, len(subject_Q), CHUNK):
        rows = slice(lo, lo + CHUNK)
        subject, at_QH = subject_Q[rows], origin_Q[rows, None] + np.arange(plan_QHA.shape[1])
        event, noise = truth["event"][subject[:, None], at_QH], truth["noise"][subject[:, None], at_QH + 1]
        if expected:  # what is given at the origin is known there, what comes later is not
            event[:, 1:], noise = mechanism.mean_event, np.full_like(noise, mechanism.mean_noise)
        state = truth["state"][subject, origin_Q[rows]]
        outcome_QH[rows] = mechanism.follow(truth["parameters"][subject], state, plan_QHA[rows], event, noise)
    return outcome_QH
