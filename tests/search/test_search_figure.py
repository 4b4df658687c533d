"""The figure of a search shows plans at the number of treatments that they give."""

from dataclasses import replace

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from costar_cli.data import Panel, PanelSchema
from costar_cli.questions.search import SHOWN, SearchReport, SubjectAnswer, search
from costar_cli.report.figures.search import draw_search
from costar_cli.report.figures.style import GREY
from tests.evaluate.figure_checks import assert_readable
from tests.search.test_search import best, question
from tests.search.test_search_visits import ASKED, SCHEMA
from tests.whatif.whatif_worlds import TUMOR, LinearModel


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


def of_visits(schema: PanelSchema, steps: int) -> Figure:
    """Return the figure of a search for somebody who was untreated at four weekly visits."""
    model, idle_14A = LinearModel(schema), schema.treatments.encode(np.tile(schema.treatments.idle, (1, 4, 1)))
    none = np.zeros((1, 4, 0), np.float32)
    panel = Panel(none, idle_14A, np.ones((1, 4, 1), np.float32), none[:, 0], np.array([4]), np.array([1]))
    asked = replace(ASKED, levels=("mg 0,2,8",), steps=steps).question(model)
    found = next(iter(search("crn", model, panel, np.array([3]), asked)))
    return draw_search(SearchReport("d", schema, "crn", "crn", "", asked, [SubjectAnswer(1, None, 3, 3, found)]))


def test_the_time_between_visits_is_no_treatment_that_is_given() -> None:
    figure = of_visits(SCHEMA, steps=2)
    points = figure.axes[-1].lines[0]
    scored = {(x, round(y, 4)) for x, y in zip(points.get_xdata(), points.get_ydata(), strict=True)}
    assert {(round(place), round(objective, 4)) for place, objective in marks(figure)} <= scored
    assert marks(figure)[0][0] == 0  # no treatment


def test_a_calendar_shows_doses_but_no_time_between_visits() -> None:
    figure = of_visits(SCHEMA, steps=2)
    calendar = figure.axes[1]
    assert {text.get_text() for text in calendar.texts} <= {"2", "8", "D"}


def test_effects_stand_beside_their_calendars_with_the_line_of_none() -> None:
    report, figure = drawn()
    found, (_, calendar, forest, _) = report.answers[0].best, figure.axes
    assert set(forest.lines[0].get_xdata()) == {0.0}
    points = [(line.get_xdata()[0], line.get_ydata()[0]) for line in forest.lines[1:]]
    assert points == [(found.difference_M[i], i) for i in range(SHOWN)]
    cells = {(round(text.get_position()[0]), round(text.get_position()[1]), text.get_text()) for text in calendar.texts}
    given = {
        (report.answers[0].origin + h, i, TUMOR.treatments.names[j][0].upper())
        for i in range(SHOWN) for h, j in np.argwhere(found.values_MHA[i] != 0).tolist()
    }  # fmt: skip
    assert cells == given
    assert calendar.get_xlabel() == "day of treatment"
    assert figure.axes[0].get_xlabel() == "day of outcome"
    figure.draw_without_rendering()
    assert_readable(figure)


def test_the_range_of_the_members_is_not_drawn_like_an_interval_with_a_level() -> None:
    styles = {}
    for objective in ("at end", "mean"):
        flags = {"minimise": [f"tumour_volume {objective}"]}
        answer = SubjectAnswer(1, None, 3, 5, best(None, **flags)[0])
        figure = draw_search(SearchReport("d", TUMOR, "crn", "crn", "calibrated", question(**flags), [answer]))
        bars = [line for line in figure.axes[-1].collections if isinstance(line, LineCollection)]
        assert len(bars) == SHOWN + 1
        styles[objective] = {str(bar.get_linestyle()) for bar in bars}
        colours = {to_hex(bar.get_color()[0]).upper() for bar in (*bars, *figure.axes[2].collections)}
        assert (colours == {GREY}) is (objective == "mean"), "what has no level is not in the colour of a band"
        title = figure.axes[-1].get_title(loc="left")
        assert ("dotted: range of the members" in title) is (objective == "mean")
    assert styles["at end"].isdisjoint(styles["mean"])
