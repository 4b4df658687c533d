"""What those who followed plans say of a model's effects: how far these are from a doubly robust estimate (STACK-10).

`M` moments that a model is asked about; `U` units of sampling; `C` contrasts, each of a plan with the reference; `H`
steps, `Y` outcomes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Queries, as_plans
from costar_cli.methods.model import FittedModel

Floats = NDArray[np.float64]

# Standard errors from the estimate, beyond which data contradict a model. In 32 worlds of tests/feedback_worlds.py
# (1,000 subjects, three steps) mixed and gcomp, which are right, were at most 1.6 away, ridge regression 1.8 to 6.5.
LIMIT: Final = 2.0
TOLERATED: Final = 0.05  # of an effect, which counts as one more standard error: no model is exact, however many data


@dataclass(frozen=True, eq=False)
class EffectCheck:
    """Differences between constant plans, estimated without any model, and moments at which models are asked for them.

    Attributes:
        panel: held-out subjects.
        asked: the moments, with the reference plan.
        plan_CHA: the other plans, encoded.
        plans: the level of each treatment under each plan, the reference first.
        outcomes: their names.
        unit_M: the unit of sampling of each moment, among those of the estimate.
        estimate_CHY: the differences.
        moved_UCHY: what each unit moves of them: their influence curve.
        known_CHY: where enough subjects follow both plans.
        effective_CHY: how many subjects of equal weight know as much as those.
    """

    panel: Panel
    asked: Queries
    plan_CHA: NDArray[np.number]
    plans: Sequence[Mapping[str, str]]
    outcomes: Sequence[str]
    unit_M: NDArray[np.int64]
    estimate_CHY: Floats
    moved_UCHY: Floats
    known_CHY: NDArray[np.bool_]
    effective_CHY: Floats

    @property
    def steps(self) -> int:
        """Return H."""
        return self.asked.horizon

    def differences(self, model: FittedModel) -> Floats:
        """Return by how much a model's predictions under each plan differ from those of the reference `[M,C,H,Y]`."""
        n = len(self.asked)
        plans = [self.asked, *(replace(self.asked, plan=as_plans(np.tile(plan, (n, 1, 1)))) for plan in self.plan_CHA)]
        usual, *others = (model.rollout(self.panel, plan).mean(axis=0, dtype=np.float64) for plan in plans)
        return np.stack([other - usual for other in others], axis=1)

    def distances(self, own_MCHY: Floats) -> Floats:
        """Return how many standard errors the mean of a model's differences is from the estimates `[C,H,Y]`.

        The error is that of the distance as if the model had not been fitted to these subjects, which makes it larger
        than it is (Hausman 1978), and a share of the effect. What is not known is not a number.
        """
        units, mean_CHY = len(self.moved_UCHY), own_MCHY.mean(axis=0)
        moved_UCHY = self.moved_UCHY.copy()
        np.subtract.at(moved_UCHY, self.unit_M, (own_MCHY - mean_CHY) / len(own_MCHY))
        variance_CHY = (moved_UCHY**2).sum(axis=0) * units / (units - 1) + (TOLERATED * self.estimate_CHY) ** 2
        known_CHY = self.known_CHY & (variance_CHY > 0)
        distance_CHY = np.abs(mean_CHY - self.estimate_CHY) / np.sqrt(np.where(known_CHY, variance_CHY, 1.0))
        return np.where(known_CHY, distance_CHY, np.nan)

    def to_meta(self) -> dict[str, object]:
        """Return what a model's file says of the estimates: a row of each that is known, and the limit."""
        units = len(self.moved_UCHY)
        se_CHY = np.sqrt((self.moved_UCHY**2).sum(axis=0) * units / (units - 1))
        rows = [
            {"plan": dict(self.plans[c + 1]), "reference": dict(self.plans[0]), "step": h + 1,
             "outcome": self.outcomes[y], "estimate": float(self.estimate_CHY[c, h, y]), "se": float(se_CHY[c, h, y]),
             "effective": float(self.effective_CHY[c, h, y])}
            for c, h, y in np.argwhere(self.known_CHY).tolist()
        ]  # fmt: skip
        return {"effect_check": {"limit": LIMIT, "estimates": rows}}


def allowed(distance_PY: Floats) -> NDArray[np.bool_]:
    """Return which models the data do not contradict, by outcome; where they contradict all, the nearest alone.

    Args:
        distance_PY: the `largest` distance of each model, by outcome.
    """
    all_Y = (distance_PY > LIMIT).all(axis=0)
    return np.where(all_Y, distance_PY == distance_PY.min(axis=0), ~(distance_PY > LIMIT))


def largest(distance_CHY: Floats) -> Floats:
    """Return the largest distance of each outcome `[Y]`, not a number where none is known."""
    known_Y = np.isfinite(distance_CHY).any(axis=(0, 1))
    return np.where(known_Y, np.nan_to_num(distance_CHY, nan=-np.inf).max(axis=(0, 1)), np.nan)
