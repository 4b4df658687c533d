"""The process of the package icu-sepsis as a data set; the only module besides tests that knows `simulators.sepsis`.

Its answers are expectations given the state, as those of the linear system: who finds the process errs by zero.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costar_cli.data.cohort import cohort_panel, cohort_parts, require_few_answers
from costar_cli.data.dataset import AskedPlans, Dataset, Part, simulated_truth
from costar_cli.data.dose import Dose
from costar_cli.data.panel import Panel
from costar_cli.data.queries import Queries
from costar_cli.data.schema import PanelSchema, TreatmentEncoding, Variable
from costar_cli.data.sepsis.settings import SEPSIS, SepsisConfig
from costar_cli.errors import UsageError
from costar_cli.reporting import Reporter
from simulators.sepsis import LEVELS, SepsisProcess

PACKAGE: Final = "icu_sepsis"
ARRAYS: Final = ("tx_mat", "d_0", "expert_policy", "sofa_scores", "state_cluster_centers")
FIXED: Final = np.array([(0, 0), (2, 0), (0, 2), (2, 2)])  # fluids and vasopressors, the same at every step
CHUNK: Final = 4_096  # queries: a row of a process's states each
Floats = NDArray[np.float64]


def sepsis_process() -> SepsisProcess:
    """Return the process that the installed package brings; the package itself is not imported.

    Raises:
        UsageError: the package is not installed, or holds something else.
    """
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        problem, fix = "sepsis is simulated from the probabilities of icu-sepsis", "pip install 'costar[icu-sepsis]'"
        raise UsageError(problem, where="costar simulate sepsis", fix=fix)
    return _read(Path(found.origin).parent / "envs" / "assets" / "dynamics.npz")


@cache
def _read(path: Path) -> SepsisProcess:
    try:
        with np.load(path, allow_pickle=False) as file:
            transition, start, clinicians, sofa, centres = (file[name].astype(np.float64) for name in ARRAYS)
        return SepsisProcess(transition, start, clinicians, np.column_stack([sofa, centres]))
    except (OSError, KeyError, ValueError) as error:
        problem, fix = "the probabilities are not those of icu-sepsis 2", "pip install 'costar[icu-sepsis]'"
        raise UsageError(problem, where=str(path), fix=fix) from error


def simulate_sepsis(config: SepsisConfig, reporter: Reporter) -> Dataset:
    """Simulate the source and the target, which differ in the policy alone, with queries on both test parts.

    Raises:
        UsageError: icu-sepsis is not installed, or sizes that would make more answers than memory holds.
    """
    require_few_answers(config, SEPSIS.section, len(FIXED))
    process = sepsis_process()
    panels: dict[Part, Panel] = {}
    queries: dict[Part, dict[str, Queries]] = {}
    truth: dict[Part, dict[str, NDArray[np.generic]]] = {}
    schema: PanelSchema | None = None
    for part, n, first_id, panel_seed, queries_seed in cohort_parts(config, reporter, "simulate sepsis"):
        gamma = config.gamma if part.domain == "source" else config.target_gamma
        course = process.simulate(
            n, config.steps, np.random.default_rng(panel_seed), gamma=gamma, horizon=config.horizon
        )
        given_NTA = np.stack(np.divmod(course.action, LEVELS), axis=-1).astype(np.float64)
        schema = schema or _schema(process, given_NTA)
        panels[part] = cohort_panel(
            schema.treatments,
            first_id,
            covariates=process.features[course.state],
            treatments=given_NTA,
            outcome=process.risk[course.state],
            length=course.length,
        )
        truth[part] = {"state": course.state.astype(np.int32), "transition_uniform": course.uniform}
        if part.split != "test":
            continue
        rng = np.random.default_rng(queries_seed)
        # As many distinct steps before the last of each patient, in random order
        key_NT = rng.random((n, config.steps))
        key_NT[np.arange(config.steps) >= course.length[:, None] - 1] = 2.0
        origin_NO = np.argsort(key_NT, axis=1)[:, : config.origins]
        subject_M, column_M = np.nonzero(np.take_along_axis(key_NT, origin_NO, axis=1) < 2.0)
        origin_M = origin_NO[subject_M, column_M]
        fixed_KHA = np.repeat(FIXED[:, None], config.horizon, axis=1)
        random = rng.integers(LEVELS, size=(len(subject_M), config.random_plans, config.horizon, 2))
        plan_MKHA = np.concatenate([np.broadcast_to(fixed_KHA, (len(subject_M), *fixed_KHA.shape)), random], axis=1)
        queries[part] = {}
        for name, plans in (("one_step", plan_MKHA[:, : len(FIXED), :1]), ("sequence", plan_MKHA)):
            subject_Q, origin_Q = np.repeat(subject_M, plans.shape[1]), np.repeat(origin_M, plans.shape[1])
            plan_QHA = plans.reshape(len(subject_Q), *plans.shape[2:])
            outcome_QH = _expected(process, course.state[subject_Q, origin_Q], plan_QHA)
            queries[part][name] = Queries.answered(
                subject_Q, origin_Q, schema.treatments.encode(plan_QHA), outcome_QH[..., None], factual_start=False
            )
    assert schema is not None  # noqa: S101 - there are six parts
    return Dataset(SEPSIS.dataset, schema, config.horizon, panels, queries, truth, config.model_dump(mode="json"))


def sepsis_truth(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> Floats:
    """Return the expected risks `[H]` of plans of two doses, given the states at their origins (an `Answer`)."""
    truth = simulated_truth(dataset, part, ("state",))
    asked = _asked(dataset, part, row, origin, plan_values)
    return asked.shaped(_expected(sepsis_process(), truth["state"][asked.row_Q, asked.origin_Q], asked.plan_QH))


def sepsis_outcomes(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> Floats:
    """Return the risks `[H]` that patients would have had, with their own chance (an `Answer`; spec SEPSIS-3)."""
    truth = simulated_truth(dataset, part, ("state", "transition_uniform"))
    asked = _asked(dataset, part, row, origin, plan_values)
    simulated, latest = truth["transition_uniform"].shape[1], int(asked.origin_Q.max(initial=0))
    if latest + asked.horizon >= simulated:
        problem = f"the simulation goes on for {simulated - 1 - latest} steps from this origin"
        raise UsageError(problem, fix="give a shorter plan")
    uniform_QH = truth["transition_uniform"][
        asked.row_Q[:, None], asked.origin_Q[:, None] + np.arange(1, asked.horizon + 1)
    ]
    state_Q = truth["state"][asked.row_Q, asked.origin_Q].astype(np.int64)
    return asked.shaped(sepsis_process().follow(state_Q, _actions(asked.plan_QH), uniform_QH))


def _asked(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> AskedPlans:
    plan = np.asarray(plan_values, dtype=np.float64)
    if not np.isin(plan, np.arange(LEVELS)).all():
        raise UsageError(f"doses of this data set are levels, whole numbers from 0 to {LEVELS - 1}", fix="give levels")
    return AskedPlans.of(dataset, part, row, origin, plan).within_series()


def _actions(plan_QHA: NDArray[Any]) -> NDArray[np.int64]:
    return np.asarray(LEVELS * plan_QHA[..., 0] + plan_QHA[..., 1], dtype=np.int64)


def _expected(process: SepsisProcess, state_Q: NDArray[np.integer], plan_QHA: NDArray[Any]) -> Floats:
    action_QH = _actions(plan_QHA)
    found = [
        process.expected(state_Q[lo : lo + CHUNK].astype(np.int64), action_QH[lo : lo + CHUNK])
        for lo in range(0, len(state_Q), CHUNK)
    ]
    return np.concatenate(found) if found else np.zeros(action_QH.shape)


def _schema(process: SepsisProcess, given_NTA: Floats) -> PanelSchema:
    names = ("fluids", "vasopressor")
    levels = tuple(float(level) for level in range(LEVELS))
    doses = tuple(Dose.learn(name, given_NTA[..., i].ravel(), levels=levels) for i, name in enumerate(names))
    return PanelSchema(
        covariates=(
            Variable(name="sofa"),
            *(Variable(name=f"feature_{i}") for i in range(1, process.features.shape[1])),
        ),
        treatments=TreatmentEncoding(mode="multilabel", names=(), levels=(), doses=doses),
        outcomes=(Variable(name="death_risk"),),
        step="4 hours",
    )
