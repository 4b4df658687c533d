"""Which treatment plan makes an outcome best, and how sure that is (spec SEARCH)."""

from costar_cli.questions.search.candidates import Candidates, no_treatment
from costar_cli.questions.search.constraints import Constraints
from costar_cli.questions.search.objective import Objective
from costar_cli.questions.search.report import SHOWN, SearchReport, SubjectAnswer, notes_on, with_notes
from costar_cli.questions.search.request import SearchRequest
from costar_cli.questions.search.run import Best, search
from costar_cli.questions.search.scoring import SearchQuestion

__all__ = [
    "SHOWN",
    "Best",
    "Candidates",
    "Constraints",
    "Objective",
    "SearchQuestion",
    "SearchReport",
    "SearchRequest",
    "SubjectAnswer",
    "no_treatment",
    "notes_on",
    "search",
    "with_notes",
]
