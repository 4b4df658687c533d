"""Which query set serves which step of the horizon, and whether its answers were observed or simulated."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from costar_cli.panel import Panel, Queries

__all__ = ["Truth", "serving_sets", "truth_of"]

Truth = Literal["counterfactual", "factual"]

_BATCH = 65_536


def truth_of(panel: Panel, queries: Queries) -> Truth:
    """Return `factual` if every scored answer lies on the treatments that were given, else `counterfactual`.

    An answer to a plan that was not followed can only come from a simulator, so nothing needs to be declared.
    """
    for start in range(0, len(queries), _BATCH):
        if not _followed(panel, queries.take(slice(start, start + _BATCH))):
            return "counterfactual"
    return "factual"


def _followed(panel: Panel, queries: Queries) -> bool:
    if queries.scored is None:
        return True
    step_QH = queries.origin.astype(np.int64)[:, None] + np.arange(queries.horizon)
    inside_QH = step_QH < panel.length[queries.subject][:, None] - 1
    given_QHA = panel.treatments[queries.subject[:, None], np.minimum(step_QH, panel.n_steps - 1)]
    same_QH = (given_QHA == queries.plan).all(axis=-1) & inside_QH
    followed_QH = np.minimum.accumulate(same_QH, axis=1)
    departs_QH: NDArray[np.bool_] = queries.scored & ~followed_QH
    return not departs_QH.any()


def serving_sets(
    panel: Panel, query_sets: Mapping[str, Queries], horizon: int
) -> dict[Truth, dict[str, NDArray[np.bool_]]]:
    """Return, per kind of truth, the query sets to score and the steps `[tau]` that each of them serves.

    Any set with answers may contribute its scored steps. Where several sets of one kind score the same step, the set
    with the shortest horizon serves it (then the first by name), so that each step comes from one population of
    queries. In the tumour and ICU data `one_step` therefore serves tau = 1, and `sequence`, whose first step is
    factual and not scored, serves tau >= 2; in M5 `rolling_origin` serves every tau.
    """
    serving: dict[Truth, dict[str, NDArray[np.bool_]]] = {}
    taken: dict[Truth, NDArray[np.bool_]] = {}
    for name, queries in sorted(query_sets.items(), key=lambda item: (item[1].horizon, item[0])):
        if queries.scored is None or not len(queries):
            continue
        truth = truth_of(panel, queries)
        taken_H = taken.setdefault(truth, np.zeros(horizon, dtype=bool))
        served_H = np.asarray(queries.scored.any(axis=0), dtype=bool)
        served_H[horizon:] = False
        served_H[:horizon] &= ~taken_H[: queries.horizon]
        if served_H.any():
            serving.setdefault(truth, {})[name] = served_H
            taken_H[: queries.horizon] |= served_H[:horizon]
    return serving
