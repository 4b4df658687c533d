"""How uncertain estimates are: scales of errors, calibration on held-out subjects, bands, draws."""

from costar_cli.uncertainty.calibration import Bands, Calibration, calibrate, calibration_of, halves, has_spread
from costar_cli.uncertainty.draws import differences, draws, tells_differences
from costar_cli.uncertainty.estimates import Estimates, estimate, facts_of
from costar_cli.uncertainty.outcomes import OutcomeFacts

__all__ = [
    "Bands",
    "Calibration",
    "Estimates",
    "OutcomeFacts",
    "calibrate",
    "calibration_of",
    "differences",
    "draws",
    "estimate",
    "facts_of",
    "halves",
    "has_spread",
    "tells_differences",
]
