"""The figure of a search shows plans at the number of treatments that they give."""

import numpy as np
from matplotlib.figure import Figure

from costar_cli.figures.search import draw_search
from costar_cli.search import SHOWN, SearchReport, SubjectAnswer
from tests.search.test_search import best, question
from tests.whatif.whatif_worlds import TUMOR


def marks(figure: Figure) -> list[tuple[float, float]]:
    """Return place and objective of each plan that is compared, the best one last."""
    return [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in figure.axes[-1].lines[1:]]


def drawn(**constraints: list[str]) -> tuple[SearchReport, Figure]:
    asked = question(None, constraints)
    report = SearchReport(
        "d", TUMOR, "crn", "crn", "", asked, [SubjectAnswer(1, None, 3, 5, best(None, constraints)[0])]
    )
    return report, draw_search(report)


def test_plans_stand_around_their_number_of_treatments_and_a_lone_one_at_it() -> None:
    report, figure = drawn()
    found = report.answers[0].best
    rows = [*range(SHOWN), len(found.values_MHA) - 1]
    given = [int((found.values_MHA[row] != 0).sum()) for row in reversed(rows)]
    places = np.array([place for place, _ in marks(figure)])
    assert (np.abs(places - given) < 0.2).all()
    for count in set(given):
        assert np.isclose(places[np.array(given) == count].mean(), count)
    assert places[0] == given[0] == 0
    assert figure.axes[-1].get_xlim() == (-0.5, max(given) + 0.5)
