"""Panels and queries: what is known, and what is asked."""

from costar_cli.panel.dataset import Dataset, Domain, Location, Part, Split
from costar_cli.panel.panel import Panel
from costar_cli.panel.queries import Plans, Queries, as_plans
from costar_cli.panel.scale import Scaler
from costar_cli.panel.schema import End, ErrorUnit, PanelSchema, TreatmentEncoding, TreatmentMode, Values, Variable

__all__ = [
    "Dataset",
    "Domain",
    "End",
    "ErrorUnit",
    "Location",
    "Panel",
    "PanelSchema",
    "Part",
    "Plans",
    "Queries",
    "Scaler",
    "Split",
    "TreatmentEncoding",
    "TreatmentMode",
    "Values",
    "Variable",
    "as_plans",
]
