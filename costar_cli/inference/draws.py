"""Joint draws of a subject's outcomes under several plans, and how uncertain differences are (spec BAND-6 to 7)."""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Queries
from costar_cli.inference.estimates import Estimates, floor_of, predictor
from costar_cli.methods.base import LEAST_MEMBERS, FittedModel, PredictFn

DRAWS: Final = 1_000  # the sd of a difference is then known to 2 %
SEED: Final = 0

Floats = NDArray[np.float64]


def draws(
    model: FittedModel,
    panel: Panel,
    queries: Queries,
    n: int = DRAWS,
    seed: int = SEED,
    *,
    ask: PredictFn | None = None,
    floor: float | None = None,
    among: NDArray[np.integer] | None = None,
) -> Floats:
    """Draw outcomes `[S,Q,H,Y]`, S = n, jointly over the queries of a subject (spec BAND-6).

    In each draw a subject has the same parameters and the same chance under all plans: differences between its queries
    are differences of treatment. A draw of a stack is one of its parts'; of a black box a member's, as `ask` gives it
    (`estimate`). `floor` is of black boxes; by default the model's own, which is that of a stack's parts too.
    Queries `among` those of further subjects have the chance that they have with all of them.
    """
    floor = floor_of(model) if floor is None else floor
    asked, ask = replace(queries, outcomes=None, scored=None), ask or predictor(panel)
    return model.draw_outcomes(panel, asked, n, seed, ask=ask, floor=floor, among=among)


def range_of(values_R: NDArray[np.floating], estimate: Floats) -> tuple[Floats, Floats]:
    """Return the least and the largest of members' values `[R,...]`, with the estimate between them (spec BAND-7).

    They are not numbers where the members are too few.
    """
    if len(values_R) < LEAST_MEMBERS:
        return np.full_like(estimate, np.nan), np.full_like(estimate, np.nan)
    return np.minimum(values_R.min(axis=0), estimate), np.maximum(values_R.max(axis=0), estimate)


def differences(
    drawn_SQHY: Floats, estimates: Estimates, of_M: NDArray[np.integer], minus_M: NDArray[np.integer]
) -> Estimates:
    """Return estimates of differences between queries of the same subjects, M of them (spec BAND-7).

    Their scale is the sd of the differences of joint draws.

    Args:
        drawn_SQHY: joint draws of the queries.
        estimates: of the queries.
        of_M: the query whose outcome is compared.
        minus_M: the query that it is compared with.
    """
    mean_MHY = estimates.mean_QHY[of_M] - estimates.mean_QHY[minus_M]
    sd_MHY = (drawn_SQHY[:, of_M] - drawn_SQHY[:, minus_M]).std(axis=0, ddof=1)
    members_RMHY = estimates.members_RQHY[:, of_M] - estimates.members_RQHY[:, minus_M]
    level_MY, unit_MY = estimates.level_QY[of_M], estimates.unit_QY[of_M]
    share_MHY, origin_M = estimates.share_QHY[of_M], estimates.origin_Q[of_M]
    return Estimates(mean_MHY, sd_MHY, share_MHY, level_MY, unit_MY, members_RMHY, origin_M)
