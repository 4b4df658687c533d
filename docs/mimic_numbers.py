"""The numbers of docs/data-mimic.md: how near the ICU cohort is to its targets, who takes part, who is treated."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Dataset, Part
from costar_cli.data.icu.parts import choose_stays
from costar_cli.data.icu.semi_synthetic import simulate_mimic
from costar_cli.data.icu.settings import MimicConfig
from costar_cli.data.icu.table import IcuTable, embedded_cohort
from costar_cli.reporting import NullReporter
from costar_cli.settings.presets import PRESETS
from simulators.icu import COVARIATES, VARIABLES, IcuCohort, simulate_icu
from simulators.icu.targets import CORRELATIONS, LAG_CORRELATIONS, RECORDED, SELDOM_RECORDED

CALIBRATION_STAYS = 12_000
SEEDS = (17, 43, 44, 91, 95)  # of the published runs

Floats = NDArray[np.float64]


class Measured(NamedTuple):
    """Mean and sd of what was recorded, and how many percent of stay-hours have nothing."""

    mean: float
    sd: float
    missing_percent: float


def calibration(cohort: IcuCohort) -> dict[str, Measured]:
    """Return what each variable of a cohort looks like; the seldom recorded ones as if nothing were missing."""
    found = {}
    for name in COVARIATES:
        recorded = _column(cohort, name)
        values = _column(cohort, name, complete=name in SELDOM_RECORDED)
        missing = 100.0 * float(np.isnan(recorded).mean())
        found[name] = Measured(float(np.nanmean(values)), float(np.nanstd(values)), missing)
    return found


def pair_correlations(cohort: IcuCohort) -> list[float]:
    """Return the correlations of values recorded together, in the order of the targets."""
    found = []
    for pair in CORRELATIONS:
        first, second = (_score(cohort, name) for name in pair[:2])
        both = np.isfinite(first + second)
        found.append(float(np.corrcoef(first[both], second[both])[0, 1]))
    return found


def lag_correlation(cohort: IcuCohort, name: str, lag: int) -> float:
    """Return the correlation of values of one patient that many hours apart."""
    values = _column(cohort, name)
    same = cohort.stay[lag:] == cohort.stay[:-lag]
    first, second = values[:-lag][same], values[lag:][same]
    both = np.isfinite(first + second)
    return float(np.corrcoef(first[both], second[both])[0, 1])


def calibration_table(cohort: IcuCohort) -> Iterator[str]:
    """Yield the rows of means, sds and missing shares, target beside measured."""
    yield "| variable | mean, target | measured | sd, target | measured | missing %, target | measured |"
    yield "|---|---|---|---|---|---|---|"
    for name, found in calibration(cohort).items():
        pairs = zip(RECORDED[name], found, (_plain, _plain, _percent), strict=True)
        cells = [f"{text(wanted)} | {text(value)}" for wanted, value, text in pairs]
        yield f"| {name} | {' | '.join(cells)} |"


def correlation_table(cohort: IcuCohort) -> Iterator[str]:
    """Yield the rows of correlations between variables."""
    yield "| variables | open demo | simulator's factors | measured |"
    yield "|---|---|---|---|"
    for pair, found in zip(CORRELATIONS, pair_correlations(cohort), strict=True):
        yield f"| {pair.first}, {pair.second} | {pair.demo:.2f} | {pair.expected:.2f} | {found:.2f} |"


def lag_table(cohort: IcuCohort) -> Iterator[str]:
    """Yield the rows of lag correlations, demo / measured."""
    lags = (1, 4, 12, 24)
    yield f"| variable | {' | '.join(f'{lag} h' for lag in lags)} |"
    yield f"|---|{'---|' * len(lags)}"
    for name, targets in LAG_CORRELATIONS.items():
        cells = [
            f"{targets[lag]:.2f} / {lag_correlation(cohort, name, lag):.2f}" if lag in targets else "" for lag in lags
        ]
        yield f"| {name} | {' | '.join(cells)} |"


def split_table() -> Iterator[str]:
    """Yield how many patients each preset has, step by step and part by part."""
    configs = {name: MimicConfig(**_preset(name)) for name in PRESETS}
    chosen = {name: _chosen(config) for name, config in configs.items()}
    yield f"| | {' | '.join(f'`{name}`' for name in chosen)} |"
    yield f"|---|{'---|' * len(chosen)}"
    steps = ("stays", "shorter than 20 hours", "outside both age groups", "source", "target", "target in no part")
    for step in steps:
        yield f"| {step} | {' | '.join(f'{counts.get(step, 0):,}' for counts, _ in chosen.values())} |"
    for part in Part.all():
        yield f"| {part} | {' | '.join(f'{sizes[part]:,}' for _, sizes in chosen.values())} |"


def treatment_table(stays: int = 12_000) -> Iterator[str]:
    """Yield how often treatments are given in source-train, with and without centred functions."""
    yield "| seed | centred: t1 | t2 | t3 | not centred: t1 | t2 | t3 |"
    yield "|---|---|---|---|---|---|---|"
    for seed in SEEDS:
        rates = [
            treatment_rates(_simulated(stays=stays, seed=seed, center=center, horizon=2, plans_per_origin=1))
            for center in (True, False)
        ]
        yield f"| {seed} | {' | '.join(f'{100 * rate:.0f} %' for rate in np.concatenate(rates))} |"


def treatment_rates(dataset: Dataset) -> Floats:
    """Return the share of hours `[3]` in which each treatment is given, in source-train."""
    panel = dataset.panels[Part("source", "train")]
    given = panel.treatments.sum(axis=(0, 1), dtype=np.float64) / float((panel.length - 1).sum())
    return np.asarray(given)


def shifts(dataset: Dataset) -> dict[str, float]:
    """Return (mean of target-test - mean of source-train) / sd of source-train, by what is observed."""
    source, target = dataset.panels[Part("source", "train")], dataset.panels[Part("target", "test")]
    found = {}
    for role in ("covariates", "outcomes"):
        names = [variable.name for variable in getattr(dataset.schema, role)]
        ours, theirs = (getattr(panel, role)[panel.observed] for panel in (source, target))
        difference = (theirs.mean(axis=0) - ours.mean(axis=0)) / ours.std(axis=0)
        found |= dict(zip(names, difference.tolist(), strict=True))
    return found


def tables() -> Iterator[str]:
    """Yield every table of the page."""
    cohort = simulate_icu(CALIBRATION_STAYS, seed=0)
    for table in (
        split_table(),
        treatment_table(),
        *(f(cohort) for f in (calibration_table, correlation_table, lag_table)),
    ):
        yield from table
        yield ""


def _column(cohort: IcuCohort, name: str, *, complete: bool = False) -> Floats:
    table = cohort.complete if complete else cohort.values
    return np.asarray(table[:, COVARIATES.index(name)], dtype=np.float64)


def _score(cohort: IcuCohort, name: str) -> Floats:
    """Return recorded values on the scale on which the simulator correlates them."""
    values = _column(cohort, name)
    return np.log(values + 0.1) if VARIABLES[COVARIATES.index(name)].law == "lognormal" else values


def _plain(value: float) -> str:
    return f"{value:.4g}"


def _percent(value: float) -> str:
    return f"{value:.2f}" if value >= 99.5 else f"{value:.1f}"


def _preset(name: str) -> dict[str, object]:
    section = "simulate.mimic."
    settings = PRESETS[name]  # type: ignore[index]
    return {key.removeprefix(section): value for key, value in settings.items() if key.startswith(section)}


def _chosen(config: MimicConfig) -> tuple[dict[str, int], dict[Part, int]]:
    table = IcuTable.of_cohort(embedded_cohort(config, NullReporter()))
    chosen = choose_stays(table, config, NullReporter())
    return dict(chosen.counts), {part: len(rows) for part, rows in chosen.rows.items()}


def _simulated(**settings: object) -> Dataset:
    return simulate_mimic(MimicConfig.model_validate(settings), NullReporter())
