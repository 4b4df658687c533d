"""How much hidden confounding it takes to change which of two plans is better (spec SENS-1 to 4)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.errors import UsageError
from costar_cli.inference import Calibration, PlanSupport, calibration_of, support_of
from costar_cli.inference.sensitivity import GAMMAS, MOST, Confounded, largest_gamma
from costar_cli.methods.base import FittedModel
from costar_cli.questions.answers import ModelAnswers

ASSUMPTIONS: Final = (
    "Gamma: at every step something unrecorded multiplies or divides the odds of the planned treatment by at most that",
    "bounds over steps: it does its worst at each step of both plans and along each course at once, and they widen",
    "taken as given: how likely treatments are along courses drawn from how the model errs on held-out subjects",
    "left out: reactions to covariates inside a plan, which are held at their last recorded value",
)

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Sensitivity:
    """Bounds of one model's estimates under hidden confounders of several strengths.

    `confounded` has a query per plan, all padded to the longest; `steps_P` counts each plan's own steps. `left_out` are
    answers, by plan, step and outcome, that get no numbers; neither do differences from them.
    """

    model: str
    plans: tuple[str, ...]
    steps_P: tuple[int, ...]
    reference: int
    outcomes: tuple[str, ...]
    origin: int
    confounded: Confounded
    gammas: tuple[float, ...] = GAMMAS
    left_out: frozenset[tuple[int, int, int]] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON data: bounds of outcomes and of differences, and where rankings flip."""
        likely = {
            plan: [float(p) for p in self.confounded.likely_SQH[:, i, : self.steps_P[i]].mean(axis=0)]
            for i, plan in enumerate(self.plans)
        }
        bounds: list[dict[str, Any]] = []
        for gamma in self.gammas:
            lower_PHY, upper_PHY = self.confounded.bounds(gamma)
            for plan, steps in enumerate(self.steps_P):
                for step, o in np.ndindex(steps, len(self.outcomes)):
                    named = self._named(plan, step, self.outcomes[o])
                    del named["reference"]
                    limits = _limits(gamma, float(lower_PHY[plan, step, o]), float(upper_PHY[plan, step, o]))
                    bounds.append(named | (_limits(gamma) if self._hides(step, o, plan) else limits))
        return {
            "model": self.model,
            "reference": self.plans[self.reference],
            "gammas": list(self.gammas),
            "probabilities": likely,
            "bounds": bounds,
            "differences": list(self.differences()),
            "flips": list(self.flips()),
            "assumptions": list(ASSUMPTIONS),
        }

    def flips(self) -> Iterator[dict[str, Any]]:
        """Yield at which Gamma each plan may lie on either side of the reference, at their last common step.

        `gamma` is None where no Gamma up to `searched_to` suffices.
        """
        mean_PHY = self.confounded.mean_QHY
        for plan, step in self._others():
            for o, outcome in enumerate(self.outcomes):
                difference = float(mean_PHY[plan, step, o] - mean_PHY[self.reference, step, o])
                gamma = self.confounded.flips_at(plan, self.reference, step, o)
                most = largest_gamma(step + 1)
                found: dict[str, Any] = {"difference": difference, "gamma": gamma, "searched_to": most}
                if self._hides(step, o, plan, self.reference):
                    found = dict.fromkeys(found)
                yield self._named(plan, step, outcome) | found

    def differences(self) -> Iterator[dict[str, Any]]:
        """Yield the bounds of the difference of each plan from the reference, by Gamma, step and outcome."""
        for gamma in self.gammas:
            for plan, last in self._others():
                lower_HY, upper_HY = self.confounded.difference_bounds(plan, self.reference, gamma)
                for step, o in np.ndindex(last + 1, len(self.outcomes)):
                    named = self._named(plan, step, self.outcomes[o])
                    limits = _limits(gamma, float(lower_HY[step, o]), float(upper_HY[step, o]))
                    yield named | (_limits(gamma) if self._hides(step, o, plan, self.reference) else limits)

    def _hides(self, step: int, outcome: int, *plans: int) -> bool:
        return any((plan, step, outcome) in self.left_out for plan in plans)

    def _others(self) -> Iterator[tuple[int, int]]:
        """Yield every plan but the reference, and the last step that both have."""
        for plan, steps in enumerate(self.steps_P):
            if plan != self.reference:
                yield plan, min(steps, self.steps_P[self.reference]) - 1

    def _named(self, plan: int, step: int, outcome: str) -> dict[str, Any]:
        return {
            "plan": self.plans[plan],
            "reference": self.plans[self.reference],
            "outcome": outcome,
            "step": step + 1,
            "time": self.origin + step + 1,
        }


def _limits(gamma: float, lower: float | None = None, upper: float | None = None) -> dict[str, Any]:
    return {"gamma": gamma, "lower": lower, "upper": upper}


def require_sensitivity(label: str, model: FittedModel) -> tuple[Calibration, PlanSupport]:
    """Return what bounds of a model's estimates rest on.

    Raises:
        UsageError: the model has no calibration, or does not model observed treatment.
    """
    calibration, support = calibration_of(model), support_of(model)
    if calibration is None or support is None:
        what = (
            "has no calibrated distribution of errors" if calibration is None else "does not model observed treatment"
        )
        raise UsageError(
            f"model `{label}` {what}: nothing follows about hidden confounding",
            where="--sensitivity",
            fix="train it again with this version, and at least 3 members where it is a network",
        )
    return calibration, support


def sensitivity(answers: ModelAnswers, *, abstain: bool = False) -> Sensitivity:
    """Return the bounds of a model's estimates of one subject under plans.

    Args:
        answers: of the subject at one origin, with their calibration.
        abstain: leave out the numbers of answers with a red light.

    Raises:
        UsageError: the model has no calibration, or does not model observed treatment.
    """
    calibration, support = require_sensitivity(answers.label, answers.model)
    assert answers.minus_Q is not None  # noqa: S101 - reports compare plans
    panel, found = answers.cohort.known(), answers.estimates
    return Sensitivity(
        model=answers.label,
        plans=tuple(plan.name for plan in answers.plans_Q),
        steps_P=tuple(answers.steps_Q.tolist()),
        reference=int(answers.minus_Q[0]),
        outcomes=tuple(variable.name for variable in answers.schema.outcomes),
        origin=int(answers.cohort.origin_M[0]),
        confounded=Confounded.along(answers.model, panel, answers.queries, found, calibration, support.practice),
        left_out=frozenset((int(q), int(h), int(o)) for q, h, o in np.argwhere(answers.hidden_QHY(abstain=abstain))),
    )


def flip_words(gamma: float | None, searched_to: float = MOST) -> str:
    """Return where a ranking flips, in words for a table."""
    if gamma is None:
        return f"not up to {searched_to:.3g}"
    return "tie" if gamma <= 1 else f"{gamma:.2f}"
