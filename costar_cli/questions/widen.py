"""Wider bands for plans under another policy, and the refusal where too few subjects are left (spec BAND-8)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from costar_cli.errors import UsageError
from costar_cli.inference import Calibration, Estimates
from costar_cli.inference.weights import LEAST_EFFECTIVE
from costar_cli.plans import TreatmentPlan


def widened(
    label: str, calibration: Calibration, found: Estimates, plans: Sequence[TreatmentPlan]
) -> tuple[Calibration, tuple[float, ...]]:
    """Return the calibration with its quantiles for plans, and how many subjects these leave at each step.

    Args:
        label: what the model is called.
        calibration: its own.
        found: a query per plan, padded to the longest.
        plans: that are asked about.

    Raises:
        UsageError: the model's file has none, or fewer than 30 subjects are left at a step that is asked about.
    """
    if calibration.plans is None:
        problem = f"model `{label}` was calibrated for the policy that was followed only"
        fix = "omit --widen, or make the model again with `costar finetune --overwrite`"
        raise UsageError(problem, where="--widen", fix=fix)
    own_PH = np.arange(found.mean_QHY.shape[1]) < np.array([len(plan) for plan in plans])[:, None]
    left_H = np.where(own_PH[..., None], calibration.plans.effective(found, calibration.by), np.inf).min(axis=(0, 2))
    few = np.flatnonzero(left_H < LEAST_EFFECTIVE)
    if len(few):
        step = int(few[0])
        needed = f"and at least {LEAST_EFFECTIVE} are needed"
        if calibration.subjects < LEAST_EFFECTIVE:
            problem = f"bands cannot be widened: model `{label}` was calibrated on {calibration.subjects} subjects"
            raise UsageError(f"{problem}, {needed}", where="--widen", fix="omit --widen, or calibrate on more subjects")
        left = f"only about {left_H[step]:.0f} effective subjects remain at step {step + 1} of model `{label}`"
        problem = f"bands cannot be widened: {left}, {needed}"
        shorter = f"ask about at most {step} step{'s' * (step > 1)}, or " if step else ""
        raise UsageError(problem, where="--widen", fix=f"{shorter}omit --widen")
    return replace(calibration, radius_LHYB=calibration.plans.radius_LHYB), tuple(left_H.tolist())
