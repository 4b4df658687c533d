"""The page and the figures of effects: what they say, that the page stands alone, and that texts of files are texts."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import costar_cli as costar
from costar_cli.effects import EffectReport
from costar_cli.effects.diagnostics import balance, followers, natural_course
from costar_cli.report.figures.population import draw_balance, draw_effects, draw_natural
from costar_cli.report.pages.effects import effects_page
from tests.effect_worlds import WORLDS
from tests.effects.test_estimation import last_rows, report_on
from tests.pages.reading import EVIL, assert_inert, read_alone

pytestmark = pytest.mark.filterwarnings("ignore::costar_cli.errors.CostarWarning")  # of few followers


@pytest.fixture(scope="module")
def overlap() -> EffectReport:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return report_on("overlap", 800, estimator="sdr")


@pytest.fixture(scope="module")
def linear() -> EffectReport:
    """A world in which few follow plans to the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return report_on("linear", 400, estimator="all")


def text_of(report: EffectReport) -> str:
    return read_alone(effects_page(report, {"dataset": "d" * 64})).text


def test_the_page_says_what_was_asked_answered_and_of_which_files(overlap: EffectReport) -> None:
    text = text_of(overlap)
    for words in ("a if x > 0", "Contrasts are with plan never", "sequentially doubly robust", "d" * 64):
        assert words in text
    row = last_rows(overlap, "difference")["sdr", "always"]
    assert f"{row['estimate']:.3f} ({row['lower']:.3f} to {row['upper']:.3f})" in text
    assert effects_page(overlap, {}) == effects_page(overlap, {})


def test_the_page_counts_who_follows_and_what_they_weigh(overlap: EffectReport) -> None:
    text = text_of(overlap)
    for row in followers(overlap.effects):
        cells = (row["plan"], row["step"], row["followed"], row["followers"], f"{100 * row['share']:.1f} %")
        assert "".join(map(str, cells)) + f"{row['mean']:.1f}{row['largest']:.1f}{row['effective']:.1f}" in text


def test_the_protocol_is_made_of_the_request() -> None:
    options: Mapping[str, Any] = {"when": "x > 0", "once": True, "protocol": "intention-to-treat", "grace": 1}
    plans = {"plans": {name: WORLDS["overlap"].regimes[name].steps(2) for name in ("never", "always")}}
    report = costar.estimate_effects(WORLDS["overlap"].dataset(400, 1), plans, learner="regression", **options)
    text = text_of(report)
    for words in (
        "Subjects in follow-up at time zero with x > 0",
        "The first step at which x > 0",
        "Steps of plans count from time zero",
        "The first treatment may start up to 1 step later",
        "whatever follows (intention to treat): mean, difference, against never",
        f"{report.flow.eligible:,} of {report.flow.rows:,} moments of 400 subjects",
        "Taken to be random at each step given y, x and treatments so far",
        "outcomes by regression; cross-fitted in 5 folds by subject",
        f"Trials{report.flow.trials:,}",
    ):
        assert words in text, words
    known = text_of(report_on("trial", 400, estimator="ipw"))
    assert "Randomised in the data, with known probability: a in p" in known


def test_what_is_thin_is_marked_among_results_and_limitations(overlap: EffectReport, linear: EffectReport) -> None:
    text = text_of(linear)
    assert "Limitation: some plans have fewer than 50 effective followers" in text
    assert "fewer than 50 effective followers at some step" not in text_of(overlap)
    row = last_rows(linear, "difference")["gformula", "always"]
    assert not row["supported"]
    assert f"{row['estimate']:.4g} (90 % interval {row['lower']:.4g} to {row['upper']:.4g}) ?" in text


@pytest.mark.parametrize(
    ("world", "n", "options"),
    [
        ("overlap", 200, {"estimator": "gformula", "learner": "trees"}),  # trees have no interval
        ("linear", 60, {"estimator": ["sdr", "ipw"]}),  # nobody follows
        ("doses", 200, {"estimator": "sdr"}),  # no probability of what a plan gives
        ("binary", 200, {"estimator": "sdr", "measure": "ratio"}),
    ],
)
def test_what_has_no_interval_no_follower_or_no_probability_has_a_page(
    world: str, n: int, options: Mapping[str, Any]
) -> None:
    report = report_on(world, n, **options)
    text = text_of(report)
    assert "nan" not in text.lower().split()
    quantity = "ratio" if "measure" in options else "difference"
    row = next(row for row in reversed(report.rows) if row["quantity"] == quantity and row["estimate"] is not None)
    assert f"{row['estimate']:.4g}" in text


def test_texts_of_files_are_texts(overlap: EffectReport) -> None:
    report = replace(overlap, dataset=EVIL, texts=(EVIL, *overlap.texts[1:]), start=EVIL, parts=(EVIL,))
    assert_inert(read_alone(effects_page(report, {"dataset": EVIL})))


def test_the_figure_draws_every_estimator_and_hollow_what_few_stand_behind(linear: EffectReport) -> None:
    drawn = draw_effects(linear)
    assert len(drawn.axes) == 8  # four estimators, means above differences
    assert drawn.axes[0].get_title("left") == "sequentially doubly robust"
    rows = [
        row for row in linear.rows
        if (row["estimator"], row["plan"], row["quantity"]) == ("sdr", "always", "difference")
    ]  # fmt: skip
    hollow, solid = [line for line in drawn.axes[4].lines if len(line.get_xdata()) == 5][:2]
    assert hollow.get_markerfacecolor() == "white"
    assert np.asarray(hollow.get_ydata()).tolist() == [row["estimate"] for row in rows]
    shown = [None if np.isnan(value) else value for value in np.asarray(solid.get_ydata())]
    assert shown == [row["estimate"] if row["supported"] else None for row in rows]
    bars = drawn.axes[4].collections[0].get_segments()
    limits = [[row["lower_simultaneous"], row["upper_simultaneous"]] for row in rows]
    assert [bar[:, 1].tolist() if len(bar) else [None, None] for bar in bars] == limits
    assert "hollow, dashed: fewer than 50 effective followers" in drawn.get_supxlabel()


def test_the_figure_of_one_estimator_has_a_column_per_outcome_or_group(overlap: EffectReport) -> None:
    drawn = draw_effects(overlap)
    assert [ax.get_ylabel() for ax in drawn.axes] == ["mean of y", "difference of y\nfrom never"]
    assert "hollow" not in drawn.get_supxlabel()
    groups = draw_effects(report_on("overlap", 400, estimator="sdr", by="x:2"))
    assert groups.axes[0].get_title("left") == "all (400)"
    assert len(groups.axes) == 6
    measured = draw_effects(report_on("overlap", 400, estimator="sdr", measure="mean"))
    assert [ax.get_ylabel() for ax in measured.axes] == ["mean of y"]
    assert "bars: 90 % intervals at each step\n" in f"{measured.get_supxlabel()}\n"


def test_the_figure_says_what_bars_are_and_that_trees_have_none() -> None:
    ratios = draw_effects(report_on("binary", 200, estimator="sdr", measure="ratio"))
    assert ratios.axes[0].get_ylabel() == "ratio of y\nto never"
    assert "bars: 90 % bands, simultaneous over all steps" in ratios.get_supxlabel()
    trees = draw_effects(report_on("overlap", 200, estimator="gformula", learner="trees"))
    assert "no intervals" in trees.get_supxlabel()
    assert not any(ax.collections for ax in trees.axes)


def test_the_love_plot_shows_the_step_of_the_largest_difference(overlap: EffectReport) -> None:
    rows = list(balance(overlap.effects))
    drawn = draw_balance(rows)
    assert drawn is not None
    assert [ax.get_title("left") for ax in drawn.axes] == ["never", "always", "threshold"]
    points = [line.get_xdata()[0] for line in drawn.axes[1].lines if len(line.get_xdata()) == 1]
    assert len(points) == 4  # two columns, before and after
    mine = [row for row in rows if row["plan"] == "always" and row["effective"] >= 50]
    assert max(abs(row["before"]) for row in mine) == pytest.approx(max(map(abs, points)))
    natural = [row | {"before": 0.0, "after": 0.0} for row in rows]
    assert draw_balance(natural) is None


def test_the_natural_course_is_drawn_beside_what_was_observed(overlap: EffectReport) -> None:
    rows = list(natural_course(overlap.effects))
    observed, computed = draw_natural(rows, "step").axes[0].lines  # nobody is lost: weights say the same
    assert np.asarray(observed.get_ydata()).tolist() == [row["observed"] for row in rows]
    assert np.asarray(computed.get_ydata()).tolist() == [row["gformula"] for row in rows]


def test_the_page_from_python_is_the_same(overlap: EffectReport, tmp_path: Path) -> None:
    costar.write_report(overlap, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text("utf-8") == effects_page(overlap, overlap.parents)
