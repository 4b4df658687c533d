"""The page and the figure of average effects: what they say, and that the page stands alone."""

from dataclasses import replace

import numpy as np
import pytest

from costar_cli.diagnostics import Diagnostic
from costar_cli.plans import TreatmentPlan
from costar_cli.questions import AverageEffects
from costar_cli.questions.average_tables import end_table, step_tables
from costar_cli.report.figures.effects import draw_averages
from costar_cli.report.pages.averages import averages_page
from tests.cohort.test_cohort_averages import PosteriorModel, averages, cohort_of, panel_of
from tests.evaluate.figure_checks import assert_readable
from tests.pages.reading import EVIL, assert_inert, read_alone
from tests.whatif.whatif_worlds import TUMOR


@pytest.fixture(scope="module")
def found() -> AverageEffects:
    """Averages of everybody and of two groups, with lights."""
    cohort = cohort_of(panel_of(np.random.default_rng(0).normal(50, 5, 60)))
    made = averages(cohort, PosteriorModel(TUMOR), by="patient_type")
    ratings = np.array([[[60, 0, 0], [5, 10, 45]], [[30, 0, 0], [5, 5, 20]], [[30, 0, 0], [0, 5, 25]]])
    return replace(made, ratings_GPL=ratings)


def test_the_page_begins_with_what_the_data_do_not_support_and_has_means_and_effects(found: AverageEffects) -> None:
    reader = read_alone(averages_page([found], "tumor", {"dataset": "d" * 64}))
    rows = [row for row in found.to_rows() if row["group"] == "all" and row["plan"] == "chemo" and row["step"] == 2]
    for row in rows:
        places = 2 if row["quantity"] == "difference" else 1
        numbers = (f"{row[name]:.{places}f}" for name in ("estimate", "lower", "upper"))
        assert "{} ({} to {}) under chemo".format(*numbers) in reader.text
    support = reader.text.index("The data do not support 75.0 % of the answers under chemo")
    assert support < reader.text.index("At the end of each plan, mean tumour volume would be")
    assert "The mean difference from watch would be" in reader.text
    assert "d" * 64 in reader.text
    assert averages_page([found], "tumor", {}) == averages_page([found], "tumor", {})


def test_the_figure_has_effects_at_the_end_with_the_line_of_none(found: AverageEffects) -> None:
    drawn = draw_averages([found])
    drawn.draw_without_rendering()
    assert_readable(drawn)
    forests = drawn.axes[len(found.groups) :]
    assert len(forests) == len(found.groups) == 3
    for g, ax in enumerate(forests):
        assert set(ax.lines[0].get_xdata()) == {0.0}
        assert ax.lines[1].get_xdata() == [found.differences.mean_GPHY[g, 1, 1, 0]]
        low, high = (limit[0, g, 1, 1, 0] for limit in found.differences.limits_LGPHY)
        assert ax.collections[0].get_segments()[0][:, 0].tolist() == [low, high]


def test_texts_of_files_are_texts(found: AverageEffects) -> None:
    plans = tuple(TreatmentPlan(f"{EVIL}{i}", plan.values) for i, plan in enumerate(found.plans))
    evil = replace(found, plans=plans, label=EVIL, groups=(EVIL, *found.groups[1:]))
    note = Diagnostic(EVIL, "note", EVIL, EVIL, EVIL)
    assert_inert(read_alone(averages_page([evil, found], EVIL, {EVIL: EVIL}, [note])))


def test_the_page_and_the_terminal_have_the_same_tables(found: AverageEffects) -> None:
    rows = list(found.to_rows())
    reader = read_alone(averages_page([found], "tumor", {}))
    ends, *steps = end_table(found, rows), *step_tables(found, rows)
    assert [len(table.rows) for table in (ends, *steps)] == [6, 9, 6]
    for table in (ends, *steps):
        assert table.title.replace("`", "") in reader.text
        for row in table.rows:
            assert "".join("" if cell is None else str(cell) for cell in row) in reader.text
    assert [row[-1] for row in ends.rows[:2]] == ["well supported", "45 of 60 red !"]
