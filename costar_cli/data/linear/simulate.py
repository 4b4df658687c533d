"""The linear-Gaussian panel as a data set; the only module besides tests that knows `simulators.linear_gaussian`.

Its answers are expectations, in closed form: what the best of all predictions would be, given the history and the plan.
A method that finds the law scores an error of zero (spec LINEAR-3, LINEAR-5).
"""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import ValidationError
from scipy.special import ndtri

from costar_cli.data.base import HIDDEN
from costar_cli.data.cohort import cohort_panel, cohort_parts, random_origins, require_few_answers
from costar_cli.data.dataset import AskedPlans, Dataset, Part, simulated_truth
from costar_cli.data.dose import Dose
from costar_cli.data.linear.settings import LinearGaussianConfig
from costar_cli.data.panel import Panel
from costar_cli.data.queries import Queries
from costar_cli.data.schema import PanelSchema, TreatmentEncoding, Variable
from costar_cli.errors import DataError, complaints
from costar_cli.reporting import Reporter
from simulators.linear_gaussian import LinearGaussian, simulate_linear_gaussian

NAME = "linear-gaussian"

LARGEST_DOSE = 3.0  # of the plans that are asked about
LINEAR_GAUSSIAN_SCHEMA = PanelSchema(
    covariates=tuple(Variable(name=f"state_{i}") for i in (1, 2)),
    treatments=TreatmentEncoding(mode="multilabel", names=("treatment",), levels=(("off", "on"),)),
    outcomes=(Variable(name="outcome"),),
)


def simulate_linear(config: LinearGaussianConfig, reporter: Reporter) -> Dataset:
    """Simulate the source and the target, which differ in confounding alone, with queries on both test parts.

    `one_step` asks for both treatments, `sequence` for plans that never treat, always treat, or toss a coin; with doses
    these plans give 0, 1, or what is drawn from 0 to 3. The truth of each part is the probability of treatment at
    every step, which is what weighting methods estimate.

    Raises:
        UsageError: sizes that would make more answers than memory holds.
    """
    require_few_answers(config, "simulate.linear", fixed_plans=2)
    panels: dict[Part, Panel] = {}
    queries: dict[Part, dict[str, Queries]] = {}
    truth: dict[Part, dict[str, NDArray[np.generic]]] = {}
    encoding = LINEAR_GAUSSIAN_SCHEMA.treatments
    for part, n, first_id, panel_seed, queries_seed in cohort_parts(config, reporter, "simulate a linear system"):
        law = _law(config, part)
        simulated = simulate_linear_gaussian(law, n, config.steps, np.random.default_rng(panel_seed))
        if config.doses and part == Part("source", "train"):
            # The encoding of doses, as source-train was given them
            dose = Dose.learn("treatment", simulated.treatments[:, :-1].ravel().astype(np.float64))
            encoding = TreatmentEncoding(mode="multilabel", names=(), levels=(), doses=(dose,))
        whole = cohort_panel(
            encoding,
            first_id,
            covariates=simulated.covariates,
            treatments=simulated.treatments[..., None],
            outcome=simulated.outcomes,
        )
        panels[part] = replace(whole, covariates=whole.covariates[..., int(config.drop_confounder) :])
        probability_NT = law.probability(simulated.covariates, simulated.outcomes)
        truth[part] = {"treatment_probability": probability_NT.astype(np.float32)}
        truth[part] |= {HIDDEN: whole.covariates[..., 0]} if config.drop_confounder else {}
        if part.split != "test":
            continue
        rng = np.random.default_rng(queries_seed)
        subject_M, origin_M = random_origins(n, config.steps, config.origins, rng)
        fixed = np.repeat([0, 1], config.horizon).reshape(2, config.horizon)
        size = (len(subject_M), config.random_plans, config.horizon)
        random = rng.uniform(0, LARGEST_DOSE, size).round(3) if law.doses else rng.integers(2, size=size)
        plan_MPH = np.concatenate([np.broadcast_to(fixed, (len(subject_M), *fixed.shape)), random], axis=1)
        one_step_MP1 = np.broadcast_to(fixed[:, :1], (len(subject_M), 2, 1))
        queries[part] = {}
        for name, plans in (("one_step", one_step_MP1), ("sequence", plan_MPH)):
            subject_Q, origin_Q = np.repeat(subject_M, plans.shape[1]), np.repeat(origin_M, plans.shape[1])
            plan_QH = plans.reshape(len(subject_Q), -1)
            outcome_QH = _expected(law, whole, subject_Q, origin_Q, plan_QH)
            queries[part][name] = Queries.answered(
                subject_Q, origin_Q, encoding.encode(plan_QH[..., None]), outcome_QH[..., None], factual_start=False
            )
    document = config.model_dump(mode="json")
    known = LINEAR_GAUSSIAN_SCHEMA.covariates[int(config.drop_confounder) :]
    schema = LINEAR_GAUSSIAN_SCHEMA.model_copy(update={"covariates": known, "treatments": encoding})
    return Dataset(NAME, schema, config.horizon, panels, queries, truth, document)


def linear_gaussian_truth(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> NDArray[np.float64]:
    """Return the expected outcomes `[H]` after each step of plans, given the states at their origins (an `Answer`).

    A plan holds treatments 0 and 1, or doses. A state that is left out of the panel is read from the truth.
    """
    plan = np.asarray(plan_values)[..., 0]
    asked = AskedPlans.of(dataset, part, row, origin, plan, plan_axes=1).within_series()
    law = _law_of(dataset, part)
    whole = dataset.panels[part]
    if law.n_covariates > whole.covariates.shape[2]:
        hidden_NT = simulated_truth(dataset, part, (HIDDEN,))[HIDDEN]
        whole = replace(whole, covariates=np.concatenate([hidden_NT[..., None], whole.covariates], axis=2))
    return asked.shaped(_expected(law, whole, asked.row_Q, asked.origin_Q, asked.plan_QH))


def linear_gaussian_outcomes(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> NDArray[np.float64]:
    """Return the outcomes `[H]` that subjects would have had, with their own noise (an `Answer`; spec LINEAR-4).

    They are not a number after the last step of a subject, whose noise ahead nobody knows.
    """
    plan = np.asarray(plan_values)[..., 0]
    asked = AskedPlans.of(dataset, part, row, origin, plan, plan_axes=1).within_series()
    law, panel = _law_of(dataset, part), dataset.panels[part]
    step_QH = asked.origin_Q[:, None] + np.arange(asked.horizon)
    known_QH = step_QH + 1 < panel.length[asked.row_Q][:, None]
    at = asked.row_Q[:, None], np.where(known_QH, step_QH, 0)
    moved_QH = law.expected_outcomes(
        np.zeros((len(asked.row_Q), law.n_covariates)), np.zeros(len(asked.row_Q)),
        asked.plan_QH - np.where(known_QH, dataset.schema.treatments.decode(panel.treatments[*at])[..., 0], 0.0),
    )  # fmt: skip
    return asked.shaped(np.where(known_QH, panel.outcomes[at[0], at[1] + 1, 0] + moved_QH, np.nan))


def linear_gaussian_quantiles(
    dataset: Dataset, part: Part, row: ArrayLike, origin: ArrayLike, plan_values: ArrayLike, shares: ArrayLike
) -> NDArray[np.float64]:
    """Return quantiles `[P,Q,H]` of the outcomes under plans, given the states at their origins (spec LINEAR-3)."""
    mean_QH = linear_gaussian_truth(dataset, part, row, origin, plan_values)
    normal_P11 = ndtri(np.asarray(shares, dtype=np.float64))[:, None, None]
    return np.asarray(mean_QH + normal_P11 * _law_of(dataset, part).outcome_sds(mean_QH.shape[1]))


def _law_of(dataset: Dataset, part: Part) -> LinearGaussian:
    """Return the law of a part.

    Raises:
        DataError: the settings are not what costar writes.
    """
    try:
        return _law(LinearGaussianConfig.model_validate(dict(dataset.config)), part)
    except ValidationError as error:
        problem, fix = "the settings of the data set are not as costar wrote them", "simulate the data again"
        raise DataError(problem, where=dataset.name, fix=fix, details=complaints(error.errors())) from error


def _law(config: LinearGaussianConfig, part: Part) -> LinearGaussian:
    strength = config.gamma if part.domain == "source" else config.target_gamma
    return LinearGaussian(confounding=strength, treatment_effect=config.treatment_effect, doses=config.doses)


def _expected(
    law: LinearGaussian,
    panel: Panel,
    subject_Q: NDArray[np.int64],
    origin_Q: NDArray[np.int64],
    plan_QH: NDArray[np.int64 | np.float64],
) -> NDArray[np.float64]:
    """Return the expected outcomes `[Q,H]` from the state at the origins, as it is stored."""
    covariates_QX = panel.covariates[subject_Q, origin_Q].astype(np.float64)
    return law.expected_outcomes(covariates_QX, panel.outcomes[subject_Q, origin_Q, 0].astype(np.float64), plan_QH)
