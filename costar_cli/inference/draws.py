"""Joint draws of a subject's outcomes under several plans, and how uncertain differences are (spec BAND-6 to 7)."""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Queries
from costar_cli.inference.estimates import LEAST_MEMBERS, Estimates, PredictFn, floor_of, predictor
from costar_cli.methods.base import DrawsOutcomes, FittedModel, PredictsDistribution
from costar_cli.methods.stack.model import StackModel

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
    if isinstance(model, StackModel):
        return _of_stack(model, panel, asked, n, seed, ask, floor, among)
    if isinstance(model, DrawsOutcomes):
        return model.draw_outcomes(panel, asked, n, seed, among=among)
    rng, subjects = np.random.default_rng(seed), np.unique(asked.subject if among is None else among)
    row_Q = np.searchsorted(subjects, asked.subject)
    chance_SQ11, own_SQ11 = (rng.normal(size=(n, len(subjects)))[:, row_Q, None, None] for _ in range(2))
    if isinstance(model, PredictsDistribution):
        said = model.predict_distribution(panel, asked)
        each_S, mean_RQHY = np.arange(n) % len(said.mean), _spread(said.mean)
        return np.asarray(
            mean_RQHY[each_S] + own_SQ11 * said.sd_parameter[each_S] + chance_SQ11 * said.sd_noise[each_S]
        )
    members_RQHY = _spread(ask(model, asked))
    return members_RQHY[np.arange(n) % len(members_RQHY)] * (1 + floor * chance_SQ11)


def tells_differences(model: FittedModel) -> bool:
    """Return whether the draws of a model say how far its differences between plans may be off."""
    if isinstance(model, StackModel):
        return any(tells_differences(model.parts[name]) for name in model.answering)
    return isinstance(model, DrawsOutcomes | PredictsDistribution) or model.members >= LEAST_MEMBERS


def draws_are_members(model: FittedModel) -> bool:
    """Return whether the draws of a model are its members alone, which learned from the same data."""
    if isinstance(model, StackModel):
        return all(draws_are_members(model.parts[name]) for name in model.answering)
    return tells_differences(model) and not isinstance(model, DrawsOutcomes | PredictsDistribution)


def is_joint(model: FittedModel) -> bool:
    """Return whether a model has a joint predictive distribution, by which differences between plans have a level."""
    if isinstance(model, StackModel):
        return all(is_joint(model.parts[name]) for name in model.answering)
    return isinstance(model, DrawsOutcomes | PredictsDistribution)


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


def _spread(members_RQHY: NDArray[np.floating]) -> Floats:
    """Return members, moved so far from their mean that equal shares of them have the sd of BAND-1."""
    count, mean_QHY = len(members_RQHY), members_RQHY.mean(axis=0, dtype=np.float64)
    return np.asarray(mean_QHY + np.sqrt(count / max(count - 1, 1)) * (members_RQHY - mean_QHY))


def _of_stack(
    model: StackModel,
    panel: Panel,
    queries: Queries,
    n: int,
    seed: int,
    ask: PredictFn,
    floor: float,
    among: NDArray[np.integer] | None,
) -> Floats:
    """Return draws of the parts, with the probability that is its weight; steps have the same part where they can."""
    weight_PHY = model.weight_RPHY.mean(axis=0)[:, : queries.horizon]
    until_PHY = np.cumsum([weight_PHY[list(model.parts).index(name)] for name in model.answering], axis=0)
    place_S = (np.random.default_rng(seed).permutation(n) + 0.5) / n
    part_SHY = (place_S[:, None, None, None] >= until_PHY[:-1]).sum(axis=1)
    drawn = np.zeros((n, len(queries), *until_PHY.shape[1:]))
    for i, name in enumerate(model.answering):
        own = draws(model.parts[name], panel, queries, n, seed + 1 + i, ask=ask, floor=floor, among=among)
        drawn = np.where((part_SHY == i)[:, None], own, drawn)
    return drawn
