"""The semi-synthetic ICU data set: simulated outcomes and treatments on ICU covariates (spec ICU-6 to 16)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costar_cli.data.dataset import AskedPlans, Dataset, Part, simulated_truth
from costar_cli.data.icu.parts import choose_stays
from costar_cli.data.icu.settings import MimicConfig
from costar_cli.data.icu.table import (
    COVARIATE_VARIABLES,
    STATIC_VARIABLES,
    IcuTable,
    Imputation,
    Stream,
    child_seed,
    embedded_cohort,
    encode_statics,
    warn_of_odd_labels,
)
from costar_cli.data.panel import Panel
from costar_cli.data.queries import Queries
from costar_cli.data.schema import ErrorUnit, PanelSchema, TreatmentEncoding, Variable
from costar_cli.errors import UsageError
from costar_cli.reporting import Reporter, Task
from simulators import semi_synthetic as world
from simulators.icu import COVARIATES, IcuCohort
from simulators.semi_synthetic import Baseline, SemiSyntheticFactual, answer_plan, expected_outcomes, replay_factual

NAME: Final = "mimic"
MOST_ANSWERS: Final = 100_000_000  # query steps: about 2 GB of answers
CHUNK_PATIENTS: Final = 256  # simulated at once: bounds memory, and progress moves

Singles = NDArray[np.float32]
Truth = dict[str, NDArray[np.generic]]

MIMIC_SCHEMA: Final = PanelSchema(
    covariates=COVARIATE_VARIABLES,
    treatments=TreatmentEncoding(
        mode="multilabel",
        names=tuple(treatment.name for treatment in world.TREATMENTS),
        levels=(("off", "on"),) * len(world.TREATMENTS),
    ),
    outcomes=tuple(Variable(name=outcome.name) for outcome in world.OUTCOMES),
    statics=STATIC_VARIABLES,
    step="hour",
    error_unit=ErrorUnit(label="sd of source/train", space="standardized"),
)
SOURCE_TRAIN: Final = Part("source", "train")


def simulate_mimic_on(config: MimicConfig, path: Path, reporter: Reporter) -> Dataset:
    """Simulate outcomes and treatments on the stays of a file of MIMIC-Extract; see `simulate_mimic`."""
    from costar_cli.data.icu.extract import read_checked  # noqa: PLC0415 - pandas, which simulations do without

    table = read_checked(path, reporter, factual=False, trust_pickle=config.trust_pickle)
    return simulate_mimic(config, reporter, table)


def simulate_mimic(config: MimicConfig, reporter: Reporter, stays: IcuTable | IcuCohort | None = None) -> Dataset:
    """Simulate outcomes and treatments of both domains, with counterfactual queries on both test parts.

    Each patient has child seeds of its own, so that neither the order of patients nor the other parts matter, and both
    query sets of a patient are about one world.

    Raises:
        DataError: too few patients.
        UsageError: sizes that would make more queries than memory holds.
    """
    stays = embedded_cohort(config, reporter) if stays is None else stays
    table = stays if isinstance(stays, IcuTable) else IcuTable.of_cohort(stays)
    rows_of, counts = choose_stays(table, config, reporter)
    all_rows = np.concatenate(list(rows_of.values()))
    warn_of_odd_labels(table, all_rows, reporter)
    lengths = {part: table.length[rows] for part, rows in rows_of.items()}
    origins = sum(
        int(np.maximum(np.minimum(length, config.hours) - config.horizon, 0).sum())
        for part, length in lengths.items()
        if part.split == "test"
    )
    answers = origins * config.plans_per_origin * config.horizon
    if answers > MOST_ANSWERS:
        raise UsageError(
            f"the test patients would have {answers:,} counterfactual answers, more than {MOST_ANSWERS:,}",
            where="plans_per_origin, horizon, stays",
            fix="use fewer or shorter plans, or fewer stays",
        )
    train, within = table.hours_of(rows_of[SOURCE_TRAIN], config.hours)
    imputation = Imputation.learn(_values(table, train, within), own_mean=True)
    imputation.tell(COVARIATES, reporter)
    panels: dict[Part, Panel] = {}
    queries: dict[Part, dict[str, Queries]] = {}
    truth: dict[Part, Truth] = {}
    simulator: _Simulator | None = None
    with reporter.task("simulate outcomes and treatments", total=len(all_rows), unit="patient") as task:
        for part, rows in rows_of.items():
            place, within = table.hours_of(rows, config.hours)
            length = within.sum(axis=1)
            covariates = imputation(_values(table, place, within), length)
            if simulator is None:  # the first part is source/train
                simulator = _Simulator.learn(covariates[within], config)
            statics = encode_statics(table, rows, age_cap=config.age_cap)
            observed = _Observed(covariates, statics, length, table.subject_id[rows])
            panels[part], queries[part], truth[part] = simulator.part(observed, task, asked=part.split == "test")
    kept = {**config.model_dump(mode="json"), "embedded": table.embedded, "kept": dict(counts)}
    asked = {part: sets for part, sets in queries.items() if sets}
    return Dataset(NAME, MIMIC_SCHEMA, config.horizon, panels, asked, truth, kept)


def _values(table: IcuTable, place: NDArray[np.int64], within: NDArray[np.bool_]) -> Singles:
    """Return the recorded covariates `[N,T,25]`, NaN where there are none."""
    return np.where(within[..., None], table.values[place], np.float32(np.nan))


@dataclass(frozen=True, slots=True)
class _Observed:
    """What is given of N patients: imputed covariates `[N,T,25]`, statics `[N,44]`, lengths and identifiers `[N]`."""

    covariates: Singles
    statics: Singles
    length: NDArray[np.int64]
    subject_id: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Simulator:
    """The functions of a data set, and how covariates are standardised for them: with source-train."""

    config: MimicConfig
    seed: int
    mean: NDArray[np.float64]
    sd: NDArray[np.float64]
    functions: world.CovariateFunctions

    @classmethod
    def learn(cls, covariates_MX: Singles, config: MimicConfig) -> "_Simulator":
        """Draw the functions, and standardise with the observed hours `[M,25]` of source-train."""
        mean, sd = covariates_MX.mean(axis=0, dtype=np.float64), covariates_MX.std(axis=0, dtype=np.float64)
        sd = np.where(sd > 0, sd, 1.0)
        seed = child_seed(config.seed, Stream.WORLD)
        functions = world.draw_functions(seed)
        if config.center:
            functions = functions.centred((covariates_MX - mean) / sd)
        return cls(config, seed, mean, sd, functions)

    def part(self, observed: _Observed, task: Task, *, asked: bool) -> tuple[Panel, dict[str, Queries], Truth]:
        """Simulate the patients of a part, and answer queries about them if asked."""
        outcomes, treatments = list[Singles](), list[Singles]()
        truths, answers = list[Truth](), list[dict[str, Queries]]()
        for start in range(0, len(observed.length), CHUNK_PATIENTS):
            chunk = slice(start, min(start + CHUNK_PATIENTS, len(observed.length)))
            seeds = world.PatientSeeds(self.seed, observed.subject_id[chunk])
            length, hours = observed.length[chunk], self.config.hours
            standardised = (observed.covariates[chunk] - self.mean) / self.sd
            baseline = world.simulate_baseline(self.functions, seeds, standardised, length, trend_hours=hours)
            factual = world.simulate_factual(baseline, world.draw_uniforms(seeds, length, baseline.n_steps))
            outcomes.append(factual.outcomes.astype(np.float32))
            treatments.append(factual.treatments.astype(np.float32))
            truths.append({"untreated": baseline.untreated, "logit": baseline.logit})  # what no treatment changes
            answers.append({})
            if asked:
                truths[-1]["systematic"] = world.systematic_outcomes(
                    self.functions, seeds, standardised, length, trend_hours=hours
                )
                one_step = world.one_step_counterfactuals(baseline, factual)
                sequence = world.sequence_counterfactuals(
                    baseline, factual, seeds, horizon=self.config.horizon, n_plans=self.config.plans_per_origin
                )
                answers[-1] = {
                    name: Queries.answered(a.subject + np.int32(start), a.origin, a.treatments, a.outcomes)
                    for name, a in (("one_step", one_step), ("sequence", sequence))
                }
            task.advance(chunk.stop - start)
        panel = Panel(
            covariates=observed.covariates,
            treatments=np.concatenate(treatments),
            outcomes=np.concatenate(outcomes),
            statics=observed.statics,
            length=observed.length,
            subject_id=observed.subject_id,
        )
        queries = {}
        for name in answers[0]:
            fields = {
                field: np.concatenate([getattr(of_chunk[name], field) for of_chunk in answers])
                for field in Queries.__slots__
            }
            queries[name] = Queries(**fields)
        return panel, queries, {name: np.concatenate([of_chunk[name] for of_chunk in truths]) for name in truths[0]}


KEPT = ("untreated", "logit")


def mimic_truth(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> NDArray[np.float64]:
    """Return the simulator's y1 and y2 `[H,2]` had plans been followed from their origins (an `Answer`).

    The stay is simulated again from hour 0 with the treatments that were given before the origin, so that stored
    answers are met to the last digit that they were stored with. A plan holds t1, t2 and t3, 0 or 1.
    """
    asked = _within_stay(dataset, part, row, origin, plan_values)
    rows, subject_Q = np.unique(asked.row_Q, return_inverse=True)
    baseline, factual = _replayed(dataset, part, rows)
    return asked.shaped(answer_plan(baseline, factual, subject_Q, asked.origin_Q, asked.plan_QH))


def mimic_limit(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> NDArray[np.float64]:
    """Return what the simulator expects of y1 and y2 after each step of plans, as `mimic_truth` (spec LIMIT-7).

    Functions of covariates, covariates of all hours and the trends are known, and the patients' paths up to the origin.
    """
    asked = _within_stay(dataset, part, row, origin, plan_values)
    rows, subject_Q = np.unique(asked.row_Q, return_inverse=True)
    baseline, factual = _replayed(dataset, part, rows)
    systematic = np.asarray(dataset.truth[part]["systematic"][rows], dtype=np.float64)
    return asked.shaped(expected_outcomes(baseline, systematic, factual, subject_Q, asked.origin_Q, asked.plan_QH))


def _replayed(dataset: Dataset, part: Part, rows: NDArray[np.int64]) -> tuple[Baseline, SemiSyntheticFactual]:
    """Simulate the stays of some patients again."""
    truth, panel = dataset.truth[part], dataset.panels[part]
    untreated, logit = (np.asarray(truth[name][rows], dtype=np.float64) for name in KEPT)
    baseline = Baseline(untreated, logit, panel.length[rows])
    return baseline, replay_factual(baseline, panel.treatments[rows])


def _within_stay(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> AskedPlans:
    """Return what is asked: plans that end within the stays of their patients."""
    simulated_truth(dataset, part, KEPT)
    asked = AskedPlans.of(dataset, part, row, origin, np.asarray(plan_values, dtype=np.bool_))
    origin_Q, horizon = asked.origin_Q, asked.horizon
    last_Q = asked.length_N[asked.row_Q] - 1
    beyond = (origin_Q < 0) | (origin_Q + horizon > last_Q)
    if beyond.any():
        origin, latest = int(origin_Q[beyond][0]), int(last_Q[beyond][0]) - horizon
        problem = f"a plan of {horizon} hours from origin {origin} ends after the stay, where covariates are missing"
        shorter = f"give a plan of up to {latest + horizon} hours"
        fix = f"choose an origin from 0 to {latest}" if latest >= 0 else shorter
        raise UsageError(problem, where="--truth", fix=fix)
    return asked
