"""Panels and queries, what is known and what is asked; and where they come from: a folder per source of data.

A name is imported when it is first used, so that `costar simulate --help` need not load numpy.
"""

from typing import TYPE_CHECKING

from costar_cli.config import importer

if TYPE_CHECKING:
    from costar_cli.data.dataset import Dataset, Domain, Location, Part, Split
    from costar_cli.data.panel import Panel
    from costar_cli.data.queries import Plans, Queries, as_plans
    from costar_cli.data.schema import End, ErrorUnit, PanelSchema, TreatmentEncoding, TreatmentMode, Values, Variable
    from costar_cli.data.transforms import Scaler

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

_HOMES = {
    **dict.fromkeys(__all__, "schema"),
    **dict.fromkeys(("Dataset", "Domain", "Location", "Part", "Split"), "dataset"),
    **dict.fromkeys(("Plans", "Queries", "as_plans"), "queries"),
    "Panel": "panel",
    "Scaler": "transforms",
}

if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others
    __getattr__ = importer(__name__, _HOMES)
