"""Overlap: who was likely to get what, what weights leave of the data, what never occurs (spec SUPPORT-8)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Dataset, Domain, Panel, PanelSchema, Part, Queries, Scaler
from costar_cli.data.support import Support
from costar_cli.inference.propensity import PropensityModel, decisions_of
from costar_cli.methods.regression.msm import overlap_weights

MOST_DECISIONS: Final = 20_000
MOST_NUMBERS: Final = (
    400_000  # of a regression behind weights; of larger ones some rows, so that a report takes seconds
)
BINS: Final = 10  # of the level of an outcome, and at most of time
FEWEST: Final = 10  # decisions of an arm in a bin, below which nothing is said of it
QUANTILES: Final = (0.05, 0.5, 0.95)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ArmPropensity:
    """How likely a treatment was for those who got it and those who did not, along an outcome's level or time.

    `lower`, `median` and `upper` are quantiles of the estimated probability at 5, 50 and 95 % by bin around `at`; None
    where an arm has fewer than ten decisions.
    """

    domain: Domain
    treatment: str
    given: bool
    decisions: int
    along: str
    at: tuple[float, ...]
    lower: tuple[float | None, ...]
    median: tuple[float | None, ...]
    upper: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Overlap:
    """Overlap by domain: propensities by arm, what weighting leaves of the subjects' decisions, what never occurs.

    `weights` describes the stabilised weights of a marginal structural model by predicted step, `warnings` is what it
    would warn of, `never` names the combinations of treatments that nobody received.
    """

    propensities: tuple[ArmPropensity, ...]
    weights: Mapping[Domain, tuple[Mapping[str, float], ...]]
    warnings: Mapping[Domain, tuple[str, ...]]
    never: Mapping[Domain, tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        """Return the overlap as plain data."""
        return asdict(self)


def describe_overlap(dataset: Dataset) -> Overlap:
    """Return the overlap in the training part of each domain, where models learn; nothing without `source/train`."""
    if Part("source", "train") not in dataset.panels:
        return Overlap((), {}, {}, {})
    schema, scaler = dataset.schema, Scaler.fit(dataset.panel("source", "train"), dataset.schema)
    propensities, weights, warnings, never = [], {}, {}, {}
    for (domain, split), panel in dataset.panels.items():
        if split == "train" and panel.length.max(initial=0) > 1:
            propensities += _propensities(dataset, domain, panel, scaler)
            steps, warned = overlap_weights(panel, schema, scaler, dataset.horizon, most_numbers=MOST_NUMBERS)
            weights[domain], warnings[domain] = tuple(steps), tuple(warned)
            never[domain] = tuple(lack.told for lack in Support.of(panel, schema).unseen(schema.treatments))
    return Overlap(tuple(propensities), weights, warnings, never)


def _propensities(dataset: Dataset, domain: Domain, panel: Panel, scaler: Scaler) -> list[ArmPropensity]:
    queries = decisions_of(panel, most=MOST_DECISIONS)
    if queries is None:
        return []
    expected_MA, given_MA = _cross_fitted(panel, queries, dataset.schema, scaler)
    level_MY = panel.outcomes[queries.subject, queries.origin].astype(np.float64)
    axes = {outcome.name: level_MY[:, o] for o, outcome in enumerate(dataset.schema.outcomes)}
    axes[dataset.schema.step] = queries.origin.astype(np.float64)
    treatments = dataset.schema.treatments
    found = []
    for (a, name), (along, values_M) in product(enumerate(treatments.all_names), axes.items()):
        if treatments.idle[a]:  # the time until the next step is no treatment
            continue
        edges = np.unique(np.quantile(values_M, np.linspace(0, 1, BINS + 1)[1:-1]))
        bin_M = np.searchsorted(edges, values_M, side="right")
        bins = np.unique(bin_M)
        middles = tuple(float(np.median(values_M[bin_M == b])) for b in bins)
        for given in (False, True):
            arm_M = given_MA[:, a] == given
            inside = [expected_MA[arm_M & (bin_M == b), a] for b in bins]
            lines = [np.quantile(of, QUANTILES).tolist() if len(of) >= FEWEST else [None] * 3 for of in inside]
            quantiles = zip(*lines, strict=True)
            found.append(ArmPropensity(domain, name, given, int(arm_M.sum()), along, middles, *quantiles))
    return found


def _cross_fitted(
    panel: Panel, queries: Queries, schema: PanelSchema, scaler: Scaler
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return how likely each treatment was `[M,names]` by what other subjects show, and if it was given."""
    even_N = np.arange(panel.n_subjects) % 2 == 0
    expected_MA, given_MA = np.zeros((2, len(queries), len(schema.treatments.all_names)))
    for half_N in (even_N, ~even_N):
        rows_M = half_N[queries.subject]
        practice = PropensityModel.fit(panel.take(~half_N), schema, scaler) or PropensityModel.fit(
            panel, schema, scaler
        )
        if practice is not None and rows_M.any():
            expected_MA[rows_M], given_MA[rows_M] = practice.expected(panel, queries.take(rows_M))
    return expected_MA, given_MA > 0
