"""A what-if figure is readable with one and with many models and plans, all on one scale."""

import json
from dataclasses import replace

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from whatif_worlds import SCHEMAS, TUMOR, LinearModel, make_dataset

from costar_cli.diagnostics import Diagnostic
from costar_cli.plans import parse_plans
from costar_cli.questions import estimate_outcomes
from costar_cli.report.figures.whatif import draw_whatif
from tests.evaluate.figure_checks import assert_readable, texts

LONG = "a plan that somebody wrote down in full, with all its words"


def report_of(models, plans, *, name="tumor", subject=4):
    request = parse_plans(json.dumps({"plans": plans}), SCHEMAS[name].treatments, horizon=6)
    dataset = make_dataset(name, with_truth=True)
    return estimate_outcomes(dataset, models, request, subject=subject, origin=3)


def drawn(report):
    with rc_context({"font.family": "DejaVu Sans"}):
        figure = draw_whatif(report)
        FigureCanvasAgg(figure).draw()
    return figure


def outcome_axes(figure, models):
    return [ax for ax in figure.axes if ax.get_title("left").split(" (")[0] in models]


@pytest.mark.parametrize("count", [1, 2, 6])
def test_one_or_many_models_are_readable_on_one_scale(count):
    models = {f"model-{i}": LinearModel(TUMOR, coefficients=(1.0 + i, 2.0, 3.0)) for i in range(count)}
    figure = drawn(report_of(models, {"watch": [{}] * 4, LONG: [{"chemotherapy": 1}] * 4}))
    assert_readable(figure)
    panels = outcome_axes(figure, models)
    assert len(panels) == count
    assert len({panel.get_ylim() for panel in panels}) == 1
    assert figure.get_figwidth() < 20


def test_many_plans_show_their_spread_at_the_last_step_alone():
    plans = {f"plan {i}": [{"chemotherapy": i % 2}] * 4 for i in range(8)}
    model = LinearModel(TUMOR, coefficients=(1.0, 2.0, 3.0))
    figure = drawn(report_of({"costar": model}, plans))
    assert_readable(figure)
    assert "90 % band at the last step" in [text for text, _ in texts(figure)]
    few = drawn(report_of({"costar": model}, dict(list(plans.items())[:3])))
    assert "50 % band" in [text for text, _ in texts(few)]


def test_a_huge_spread_of_one_model_does_not_flatten_the_lines_of_another():
    models = {
        "calm": LinearModel(TUMOR, coefficients=(1.0, 1.01, 1.02)),
        "wild": LinearModel(TUMOR, coefficients=(-90.0, 0.0, 93.0)),
    }
    report = report_of(models, {"watch": [{}] * 4, "chemo": [{"chemotherapy": 1}] * 4})
    low, high = outcome_axes(drawn(report), models)[0].get_ylim()
    lines = [report.band_of(model, i).estimate for model in report.models for i in range(2)]
    spread = max(np.nanmax(np.abs(report.band_of(report.models[1], i).upper)) for i in range(2))
    span = np.ptp(np.concatenate([*(line[:, 0] for line in lines), report.history.outcomes[:, 0]]))
    figure = drawn(report)
    assert "band extends beyond the axis" in [text for text, _ in texts(figure)]
    calm, wild = outcome_axes(figure, models)
    on_frame = [[line for line in ax.lines if line.get_linestyle() == "None" and set(line.get_ydata()) <= {low, high}]
                for ax in (calm, wild)]  # fmt: skip
    assert [bool(lines) for lines in on_frame] == [False, True]
    assert high - low <= 3.5 * span
    assert high < spread


def test_a_spread_within_the_frame_has_no_mark_in_the_legend():
    model = LinearModel(TUMOR, coefficients=(1.0, 1.01, 1.02))
    report = report_of({"calm": model}, {"watch": [{}] * 4, "chemo": [{"chemotherapy": 1}] * 4})
    assert not any("beyond" in text for text, _ in texts(drawn(report)))


def test_levels_of_a_treatment_with_many_are_readable():
    models = {name: LinearModel(SCHEMAS["retail"]) for name in ("ridge", "crn")}
    figure = drawn(report_of(models, {"as is": [{}] * 4, "sale": [{"price_class": "-20 %"}] * 3}, name="retail"))
    assert_readable(figure)
    assert [text for text, _ in texts(figure)].count("price_class") == 1


@pytest.mark.parametrize(("count", "lines"), [(0, 0), (1, 3), (2, 2), (5, 3)])
@pytest.mark.parametrize("models", [1, 3])
def test_warnings_stand_below_the_axes_in_at_most_three_lines(count, lines, models):
    asked = {f"model-{i}": LinearModel(TUMOR) for i in range(models)}
    report = report_of(asked, {"watch": [{}] * 4, LONG: [{"chemotherapy": 1}] * 4})
    texts = (f"doubt {i}, which costs $5 and is told {'at great length and ' * 40}in full" for i in range(count))
    figure = drawn(replace(report, diagnostics=tuple(Diagnostic.of("recorded", warning=text) for text in texts)))
    assert_readable(figure)
    title = figure.legends[0].get_title()
    shown = title.get_text().splitlines() if count else []
    assert len(shown) == lines
    assert sum(line.startswith("Warning: doubt") for line in shown) == min(count, 2)
    assert [line for line in shown if line.startswith("and ")] == (["and 3 more warnings"] if count == 5 else [])
    if count:
        lowest = min(axes.get_tightbbox().y0 for axes in figure.axes if axes.get_visible())
        box = title.get_window_extent()
        assert box.y1 <= lowest
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
