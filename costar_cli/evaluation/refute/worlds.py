"""Data sets with a known answer, made of the data at hand (spec REFUTE-2): each changes one thing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Dataset, Panel, Variable

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
