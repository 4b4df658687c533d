"""Which treatment plan makes an outcome best, and how sure that is (spec SEARCH)."""

from costar_cli.search.candidates import Candidates, list_of_plans, no_treatment
from costar_cli.search.constraints import Constraints
from costar_cli.search.objective import Objective
from costar_cli.search.run import Best, search
from costar_cli.search.scoring import By, SearchQuestion

__all__ = [
    "Best",
    "By",
    "Candidates",
    "Constraints",
    "Objective",
    "SearchQuestion",
    "list_of_plans",
    "no_treatment",
    "search",
]
