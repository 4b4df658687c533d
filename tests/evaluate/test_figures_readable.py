"""No figure writes over its own text or beyond its edge, however many and long the names are."""

from dataclasses import replace

import evaluate_worlds as worlds
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import PathCollection

from costar_cli.cli.benchmarking import figures
from costar_cli.cli.benchmarking.figures import plot_differences, plot_horizons
from costar_cli.cli.benchmarking.methods import ABLATIONS
from costar_cli.config.models import EvaluateConfig
from costar_cli.data import PanelSchema, TreatmentEncoding, Variable
from costar_cli.data.record import ModelRecord, StageRecord
from costar_cli.errors import DataError
from costar_cli.evaluation import run_evaluation
from costar_cli.evaluation.metrics import PerStep
from costar_cli.report.figures import embedding, evaluation, learning, trajectories
from costar_cli.report.figures.embedding import plot_representations
from costar_cli.report.figures.evaluation import TOO_FEW, plot_natural, plot_rmse
from costar_cli.report.figures.learning import LearningCurve, plot_learning
from costar_cli.report.figures.style import label_text, spread_apart
from costar_cli.report.figures.trajectories import Example, PlanForecast, plot_trajectories
from tests.evaluate.benchmark_worlds import SETUPS, constant_errors, noisy_errors, report, score, tables
from tests.evaluate.figure_checks import Drawn, assert_readable, texts, widths_in

METHODS = ["costar", "msm", "rmsn", "crn", "crn-erm", "ct", "ct-erm", "gnet", "edct", "ridge", "last-value"]
LONG = "a name that somebody wrote down in full, with $all$ its words"


@pytest.fixture
def drawn(monkeypatch):
    return Drawn(monkeypatch, figures, evaluation, learning, trajectories, embedding)


@pytest.fixture(scope="module")
def many_models():
    """An evaluation of eight models, in three set-ups, with the published rows."""
    data = worlds.dataset()
    model = worlds.oracle(data, members=2, error=worlds.independent_noise(1.0))
    models = [worlds.candidate(model, name=f"{LONG} {i}") for i in range(8)]
    return run_evaluation(data, [*models, worlds.candidate(model, "target")], EvaluateConfig(bootstrap=0))


def scores(names, *, horizon=6, far=()):
    """Every name in every set-up, close to each other; those in `far` are forty times as bad."""
    return [
        score(name, noisy_errors((1 + 0.02 * i) * (1600 if name in far else 1), horizon=horizon, seed=i), setup=setup)
        for i, name in enumerate(names)
        for setup in SETUPS
    ]


def forecast(values, rng, *, truth=False):
    """A forecast of six steps, with a band."""
    limits = tuple(side + rng.normal(size=6) for side in (-3.0, 3.0))
    return PlanForecast(values, rng.normal(size=6), rng.normal(size=6) if truth else None, limits)


def times(values, factor):
    return PerStep(tuple(factor * value for value in values.steps), None)


def shown(figure):
    return [text for text, _ in texts(figure)]


@pytest.mark.parametrize(
    ("names", "horizon"),
    [(METHODS, 6), (METHODS[:3], 6), (METHODS[:1], 6), (METHODS, 1), (["costar", *[a.name for a in ABLATIONS]], 6)],
)
def test_benchmark_figures_are_readable_with_one_three_and_all_rows(drawn, tmp_path, names, horizon):
    made = report(tables(scores(names, horizon=horizon), horizon=horizon), horizon=horizon)
    plot_horizons(made, tmp_path / "h.png")
    assert_readable(drawn.last)
    assert min(widths_in(drawn.last)) > 1.5
    if plot_differences(made, tmp_path / "d.png"):
        assert_readable(drawn.last)


def test_a_row_far_above_leaves_the_panel_and_its_label_says_where_to(drawn, tmp_path):
    plot_horizons(report(tables(scores(METHODS, far=["ridge"]), name="other"), dataset="other"), tmp_path / "h.png")
    assert_readable(drawn.last)
    assert all(ax.get_ylim()[1] < 5 for ax in drawn.last.axes)
    assert sum(text.startswith("Ridge regression ↑ ") for text in shown(drawn.last)) == 3


def test_an_error_bar_that_is_cut_is_marked_and_the_caption_says_so(drawn, tmp_path):
    (table,) = tables([score(name, noisy_errors(1.0 + i, seed=i)) for i, name in enumerate(METHODS[:2])])
    small, wide = (
        replace(table, published=(), rows=tuple(replace(row, sd=times(row.mean, share)) for row in table.rows))
        for share in (0.3, 3.0)
    )
    for made, cut in ((small, False), (wide, True)):
        plot_horizons(report([made]), tmp_path / "h.png")
        assert_readable(drawn.last)
        assert ("beyond the axis" in " ".join(" ".join(shown(drawn.last)).split())) is cut
        (panel,) = drawn.last.axes
        top = panel.get_ylim()[1]
        marks = [line for line in panel.lines if line.get_linestyle() == "None" and set(line.get_ydata()) == {top}]
        assert bool(marks) is cut


def test_an_interval_far_out_is_cut_at_the_edge_and_written_there(drawn, tmp_path):
    plot_differences(report(tables(scores(METHODS, far=["ridge"]))), tmp_path / "d.png")
    assert_readable(drawn.last)
    assert all(ax.get_xlim()[1] < 5 for ax in drawn.last.axes)
    assert sum(":" in text and " to " in text and "%" not in text for text in shown(drawn.last)) == 3


def test_published_rows_share_the_scale_unless_one_would_be_flat(drawn, tmp_path):
    close = [score(name, constant_errors(np.full(6, 1.0))) for name in ("costar", "msm")]
    plot_horizons(report(tables(close)), tmp_path / "h.png")
    ours, published = drawn.last.axes
    assert ours.get_ylim() == published.get_ylim()
    far = [score(name, constant_errors(np.full(6, 100.0))) for name in ("costar", "msm")]
    plot_horizons(report(tables(far)), tmp_path / "h.png")
    ours, published = drawn.last.axes
    assert ours.get_ylim()[1] > 100
    assert published.get_ylim()[1] < 2
    assert published.get_title("left").endswith("other scale")


def test_differences_are_coloured_by_who_is_better_and_only_if_significant(drawn, tmp_path):
    rows = [("costar", 1.0, 0.0), ("msm", 0.25, 0.0), ("crn", 4.0, 0.0), ("rmsn", 1.0, 0.0)]
    made = [score(name, noisy_errors(mean, subjects=200, seed=3, sd=0.3)) for name, mean, _ in rows]
    (table,) = tables(made, horizon=3)
    plot_differences(report([table], horizon=3), tmp_path / "d.png")
    faces = {
        round(line.get_xdata()[0], 3): (line.get_color(), line.get_markerfacecolor())
        for line in drawn.last.axes[0].lines
        if line.get_marker() == "o"
    }
    by_name = {c.name: faces[round(c.difference.average, 3)] for c in table.comparisons}
    assert by_name == {
        "msm": ("#D55E00", "#D55E00"),
        "crn": ("#0072B2", "#0072B2"),
        "rmsn": ("#767676", "white"),
    }


def test_an_interval_of_an_evaluation_that_would_flatten_the_lines_is_cut(drawn, tmp_path, many_models):
    def with_intervals(times_wider):
        limits = [(times(row.mean, 0.5), times(row.mean, times_wider)) for row in many_models.rows]
        rows = [replace(row, lower=a, upper=b) for row, (a, b) in zip(many_models.rows, limits, strict=True)]
        return replace(many_models, rows=tuple(rows))

    highest = max(step for row in many_models.rows for step in row.mean.steps)
    for factor, cut in ((1.5, False), (50.0, True)):
        plot_rmse(with_intervals(factor), tmp_path / "r.png")
        assert_readable(drawn.last)
        assert max(ax.get_ylim()[1] for ax in drawn.last.axes) < 2.5 * highest
        assert ("triangles" in " ".join(shown(drawn.last))) is cut


def test_models_of_one_colour_have_other_marks_in_the_natural_course(drawn, tmp_path):
    data = worlds.dataset()
    model = worlds.oracle(data, members=2, error=worlds.independent_noise(1.0))
    models = [worlds.candidate(model, name=f"model {i}") for i in range(9)]
    made = run_evaluation(data, models, EvaluateConfig(bootstrap=0))
    plot_natural(made, tmp_path / "n.png")
    styles = evaluation.model_styles(made.rows)
    lines = {line.get_label(): (line.get_color(), line.get_marker()) for line in drawn.last.legends[0].get_lines()}
    assert len(set(lines.values())) == 10
    assert {name: lines[name] for name in styles if name in lines} == {
        name: (style["color"], style["marker"]) for name, style in styles.items() if name in lines
    }
    assert sum(name in lines for name in styles) == 9


def test_a_natural_course_of_too_few_answers_says_so(drawn, tmp_path):
    data = worlds.dataset()
    made = run_evaluation(data, [worlds.candidate(worlds.oracle(data, members=2))], EvaluateConfig(bootstrap=0))
    few = [replace(course, steps=[s for s in course.steps if s.axis == "origin"]) for course in made.natural]
    plot_natural(replace(made, natural=few), tmp_path / "n.png")
    assert TOO_FEW in shown(drawn.last)
    assert not drawn.last.axes[1].get_xticks().size


@pytest.mark.parametrize(("horizon", "steps"), [(3, "steps 1 to 3"), (6, "steps 1 to 6"), (11, "steps 1 to 6")])
def test_captions_of_bands_name_the_steps_that_are_averaged(drawn, monkeypatch, tmp_path, many_models, horizon, steps):
    monkeypatch.setattr(evaluation, "_band_panels", lambda _: {"Zero-shot, factual": {}})
    evaluation.plot_reliability(replace(many_models, horizon=horizon), tmp_path / "r.png")
    assert steps in " ".join(" ".join(shown(drawn.last)).split())


def test_evaluation_figures_are_readable_with_many_models(drawn, tmp_path, many_models):
    plot_rmse(many_models, tmp_path / "r.png")
    assert_readable(drawn.last)
    assert min(widths_in(drawn.last)) > 2
    ours = {line.get_color() for line in drawn.last.axes[0].lines if line.get_linestyle() == "-"}
    assert len(ours) > 5


@pytest.mark.parametrize("columns", [1, 4])
def test_trajectories_with_long_names_do_not_overlap(drawn, tmp_path, columns):
    rng = np.random.default_rng(0)
    names = (LONG, f"{LONG} more", "discount")
    encoding = TreatmentEncoding(mode="multilabel", names=names, levels=(("off", "on"),) * 3)
    outcome = Variable(name=f"{LONG} of its outcome", unit="units per week")
    schema = PanelSchema(treatments=encoding, outcomes=(outcome,), step="week")
    plans = tuple(forecast(rng.integers(2, size=(6, 3)), rng, truth=True) for _ in range(columns))
    examples = [Example(LONG, schema, 9, rng.normal(size=10), plans, 0.9) for _ in range(3)]
    plot_trajectories(examples, tmp_path / "t.png")
    assert_readable(drawn.last)
    assert min(widths_in(drawn.last)) > 1.4


def test_a_legend_names_only_what_is_drawn(drawn, tmp_path):
    plan = PlanForecast(np.zeros((6, 2), dtype=np.int64), np.zeros(6))
    plot_trajectories([Example("subject 1", worlds.schema(), 9, np.zeros(10), (plan,))], tmp_path / "t.png")
    assert_readable(drawn.last)
    names = ["observed history", "prediction", "forecast start"]
    assert [text.get_text() for text in drawn.last.legends[0].get_texts()] == names
    banded = replace(plan, limits=(np.full(6, -1.0), np.full(6, 1.0)))
    plot_trajectories([Example("subject 1", worlds.schema(), 9, np.zeros(10), (banded,), 0.9)], tmp_path / "t.png")
    assert "90 % band" in [text.get_text() for text in drawn.last.legends[0].get_texts()]


def test_a_calendar_has_a_cell_for_each_step_of_treatment(drawn, tmp_path):
    values = np.array([[1, 0], [0, 0], [1, 1]])
    plan = PlanForecast(values, np.zeros(3))
    plot_trajectories([Example("subject 1", worlds.schema(), 9, np.zeros(10), (plan,))], tmp_path / "t.png")
    _, calendar = drawn.last.axes
    assert [(text.get_position()[0], text.get_text()) for text in calendar.texts] == [(9, "C"), (11, "C"), (11, "R")]
    assert "C chemotherapy, R radiotherapy" in " ".join(drawn.last.get_suptitle().split())
    assert calendar.get_xlabel() == "day of treatment"
    assert drawn.last.axes[0].get_xlabel() == "day of outcome"


@pytest.mark.parametrize("name", ["{} % to {} %", LONG + " {}{}"])
def test_twenty_two_levels_leave_the_maps_their_room(drawn, tmp_path, name):
    rng = np.random.default_rng(0)
    treatments = np.array([name.format(i, i + 1) for i in range(22)])[rng.integers(22, size=60)]
    plot_representations(
        rng.normal(size=(60, 4)), treatments, rng.normal(size=60), tmp_path / "e.png", outcome_label=LONG
    )
    assert_readable(drawn.last)
    maps = [ax for ax in drawn.last.axes if any(isinstance(c, PathCollection) for c in ax.collections)]
    assert len(maps) == 2
    assert all(ax.get_window_extent().width / drawn.last.dpi > 2.6 for ax in maps)


def history(epochs):
    return {"train_loss": [[1.0] * epochs] * 2, "validation_loss": [[2.0] * epochs] * 2, "best_epoch": [0, 0]}


def test_every_stage_has_its_learning_curve_and_a_single_epoch_is_seen(drawn, tmp_path):
    stages = tuple(StageRecord(name=f"stage {i}", history=history(1)) for i in range(6))
    curves = LearningCurve.of_stages(LONG, ModelRecord(history=history(1), stages=stages))
    assert [curve.title.endswith(f"stage {i}") for i, curve in enumerate(curves)] == [True] * 6
    plot_learning(curves, tmp_path / "l.png")
    assert_readable(drawn.last)
    visible = [ax for ax in drawn.last.axes if ax.get_visible()]
    assert len(visible) == 6
    assert all(line.get_marker() != "None" for ax in visible for line in ax.lines)


@pytest.mark.parametrize("epochs", [1, 2, 3, 40])
def test_epochs_are_whole_numbers(drawn, tmp_path, epochs):
    plot_learning([LearningCurve.of_last_stage("m", ModelRecord(history=history(epochs)))], tmp_path / "l.png")
    low, high = drawn.last.axes[0].get_xlim()
    ticks = [tick for tick in drawn.last.axes[0].get_xticks() if low <= tick <= high]
    assert ticks
    assert all(float(tick).is_integer() for tick in ticks)


def test_a_history_that_would_flatten_what_follows_is_cut_and_marked(drawn, tmp_path):
    rng = np.random.default_rng(0)
    plans = tuple(PlanForecast(np.zeros((6, 2), int), 1.5 + 0.3 * rng.normal(size=6)) for _ in range(2))
    calm, steep = rng.uniform(1, 2, size=10), np.append(np.linspace(400, 50, 9), 1.5)
    for history_T, cut in ((calm, False), (steep, True)):
        plot_trajectories([Example("s", worlds.schema(), 9, history_T, plans)], tmp_path / "t.png")
        assert_readable(drawn.last)
        low, high = drawn.last.axes[0].get_ylim()
        values = np.concatenate([plan.estimate_H for plan in plans])
        assert low < values.min() < values.max() < high
        assert np.ptp(values) > 0.2 * (high - low)
        assert ("extends beyond the axis" in shown(drawn.last)) is cut


def test_bands_are_opaque_with_edges_and_faint_where_there_are_many(drawn, tmp_path):
    data = worlds.dataset(subjects=24)
    model = worlds.oracle(data, error=worlds.independent_noise(1.0))
    for count, faint in ((3, False), (6, True)):
        models = [worlds.candidate(model, name=f"m{i}") for i in range(count)]
        plot_rmse(run_evaluation(data, models, EvaluateConfig(bootstrap=40)), tmp_path / "r.png")
        panel = drawn.last.axes[0]
        assert {band.get_alpha() for band in panel.collections} == {None}, "shades over each other turn brown"
        assert all(bool(min(band.get_facecolor()[0]) > 0.93) is faint for band in panel.collections)
        assert sum(line.get_linewidth() < 0.6 for line in panel.lines) == 2 * (count + 1)


def test_the_map_of_representations_says_whose_they_are(drawn, tmp_path):
    rng = np.random.default_rng(0)
    title = "model-crn, member 1: histories of 40 subjects of source/test"
    z = rng.normal(size=(40, 4))
    plot_representations(z, ["none"] * 40, z[:, 0], tmp_path / "e.png", outcome_label="y", title=title)
    assert_readable(drawn.last)
    assert title in shown(drawn.last)


def test_the_scale_of_outcomes_has_no_powers_of_ten_for_thousands(drawn, tmp_path):
    rng = np.random.default_rng(0)
    volumes = np.geomspace(0.0139, 1031, 40)
    plot_representations(rng.normal(size=(40, 4)), ["none"] * 40, volumes, tmp_path / "e.png", outcome_label="y")
    drawn.last.canvas.draw()
    labels = [label.get_text() for ax in drawn.last.axes for label in ax.get_yticklabels()]
    assert {"0.0139", "1,031"} <= set(labels)
    assert not any("e+" in label for label in labels)


def test_models_in_closed_form_have_no_learning_curve(tmp_path):
    empty = {"train_loss": [], "validation_loss": [], "best_epoch": []}
    assert LearningCurve.of_stages("msm", ModelRecord(history=empty, stages=())) == []
    with pytest.raises(DataError, match="closed form"):
        plot_learning([], tmp_path / "l.png")


places = st.lists(st.floats(-0.5, 1.5), max_size=30)


@given(places, st.floats(0.001, 0.2))
def test_labels_are_spread_in_order_within_bounds_and_apart(wanted, gap):
    found = spread_apart(wanted, gap, low=0.0, high=1.0)
    order = np.argsort(wanted, kind="stable")
    ordered = np.array(found)[order]
    least = min(gap, 1 / max(len(wanted) - 1, 1))
    assert (np.diff(ordered) >= least - 1e-9).all()
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in found)


def test_labels_with_room_stay_where_they_belong_and_close_ones_part_evenly():
    assert spread_apart([0.1, 0.9, 0.5], 0.1, low=0, high=1) == pytest.approx([0.1, 0.9, 0.5])
    assert spread_apart([0.5, 0.5], 0.2, low=0, high=1) == pytest.approx([0.4, 0.6])


def test_long_names_lose_their_middle_so_that_they_still_differ():
    first, second = (label_text(f"{'x' * 60} {i}", 30) for i in (1, 2))
    assert first != second
    assert len(first) == 30
    assert first.endswith("1")


def test_published_rows_stand_only_beside_the_truth_that_they_rest_on(drawn, tmp_path, many_models):
    kinds = ("factual", "counterfactual")
    ours = next(row for row in many_models.rows if row.basis == "ours")
    published = next(row for row in many_models.rows if row.published and row.setup == ours.setup)
    rows = (*(replace(ours, truth=truth) for truth in kinds), published)
    for dataset, beside in (("m5", "factual"), ("tumor", "counterfactual")):
        plot_rmse(replace(many_models, dataset=dataset, rows=rows, errors=(None,) * 3), tmp_path / "r.png")
        diamonds = [sum(line.get_marker() == "D" for line in ax.lines) for ax in drawn.last.axes]
        assert dict(zip(kinds, diamonds, strict=True)) == {kind: int(kind == beside) for kind in kinds}
