"""How uncertain estimates are: scales of errors, calibration on held-out subjects, bands, support of plans."""

from costar_cli.uncertainty.calibration import (
    BLACK_BOX,
    CALIBRATED,
    RANGE,
    TOO_FEW,
    Bands,
    Calibration,
    calibrate,
    calibration_of,
    halves,
    has_range,
    has_spread,
    interval_kind,
)
from costar_cli.uncertainty.draws import differences, draws, draws_are_members, is_joint, range_of, tells_differences
from costar_cli.uncertainty.estimates import (
    LEAST_MEMBERS,
    Ask,
    Estimates,
    asks_encoded,
    asks_once,
    estimate,
    facts_of,
    least_sd,
    once,
    possible,
)
from costar_cli.uncertainty.floor import HeldOut, held_out
from costar_cli.uncertainty.outcomes import OutcomeFacts
from costar_cli.uncertainty.reactions import Reactions
from costar_cli.uncertainty.support import LIGHTS, NOT_JUDGED, RED, Lights, PlanSupport, learn_support, support_of
from costar_cli.uncertainty.survival import Hazards
from costar_cli.uncertainty.survival_fit import GoesOn, Survival, goes_on, learn_survival, survival_of

__all__ = [
    "BLACK_BOX",
    "CALIBRATED",
    "LEAST_MEMBERS",
    "LIGHTS",
    "NOT_JUDGED",
    "RANGE",
    "RED",
    "TOO_FEW",
    "Ask",
    "Bands",
    "Calibration",
    "Estimates",
    "GoesOn",
    "Hazards",
    "HeldOut",
    "Lights",
    "OutcomeFacts",
    "PlanSupport",
    "Reactions",
    "Survival",
    "asks_encoded",
    "asks_once",
    "calibrate",
    "calibration_of",
    "differences",
    "draws",
    "draws_are_members",
    "estimate",
    "facts_of",
    "goes_on",
    "halves",
    "has_range",
    "has_spread",
    "held_out",
    "interval_kind",
    "is_joint",
    "learn_support",
    "learn_survival",
    "least_sd",
    "once",
    "possible",
    "range_of",
    "support_of",
    "survival_of",
    "tells_differences",
]
