"""Lights of a what-if: what the data do not support is marked, explained in words, and left out where that is asked."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from costar_cli.cli.answers import show_answers, show_ratings
from costar_cli.data import Dataset
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.files import read_artifact
from costar_cli.inference import SupportRatings
from costar_cli.plans import parse_plans
from costar_cli.questions import WhatIfReport, estimate_outcomes, write_csv, write_estimates
from costar_cli.questions.sensitivity import sensitivity
from costar_cli.questions.support import _Reasons
from costar_cli.report.figures import whatif
from costar_cli.report.figures.effects import plot_sensitivity
from costar_cli.report.figures.style import PLAN_COLOURS, plan_style
from costar_cli.report.figures.whatif_strips import light_handles
from costar_cli.reporting import NullReporter
from costar_cli.reporting.output import Output
from costar_cli.training import Trained
from tests.codes import codes, said
from tests.methods.linear_worlds import fit, model_of

CHEMO, RADIO = {"chemotherapy": 1}, {"radiotherapy": 1}
PLANS = {"watch": [{}] * 6, "chemo": [CHEMO] * 6, "both": [{**CHEMO, **RADIO}] * 2}


@pytest.fixture(scope="module")
def tumors() -> Dataset:
    sizes = {"train": 150, "val": 60, "test": 20, "target_train": 2, "target_val": 2, "target_test": 2}
    return simulate_tumor(TumorConfig(gamma=10, steps=30, **sizes), NullReporter())


@pytest.fixture(scope="module")
def ridge(tumors: Dataset) -> Trained:
    return fit(tumors, "ridge")


@pytest.fixture(scope="module")
def subject(tumors: Dataset) -> str:
    """Somebody with a small tumour who was never irradiated in 12 days."""
    panel = tumors.panel("source", "test")
    spared = ~panel.treatments[:, :12, 2:].any(axis=(1, 2)) & (panel.length > 20)
    small = (panel.outcomes[:, 12, 0] < 20) & (panel.outcomes[:, 12, 0] > 0.5)
    return panel.names[int(np.flatnonzero(spared & small)[0])]


def ask(tumors: Dataset, trained: Trained, subject: str, **options: object) -> WhatIfReport:
    models = {"ridge": model_of(trained)}
    request = parse_plans(str({"plans": PLANS}).replace("'", '"'), tumors.schema.treatments, horizon=6)
    return estimate_outcomes(tumors, models, request, subject=subject, origin=12, **options)


def rows_of(report: WhatIfReport, plan: str) -> list[dict]:
    return [row for row in report.to_rows() if row["plan"] == plan]


def test_a_rare_plan_is_red_in_words_and_keeps_its_numbers(tumors: Dataset, ridge: Trained, subject: str) -> None:
    report = ask(tumors, ridge, subject)
    last = rows_of(report, "chemo")[-1]
    assert (last["practice"], last["support"]) == ("red", "red")
    assert last["precision"] is None, "a single member is not judged by its spread"
    assert said(report.diagnostics, "precision-not-judged").startswith(
        "prediction uncertainty is not rated: model `ridge`"
    )
    assert last["reason"].startswith(("in states like this chemotherapy was given in", "only ", "comparable "))
    assert last["estimate"] is not None
    assert {row["support"] for row in rows_of(report, "watch")} == {"green"}
    assert {row["reason"] for row in rows_of(report, "watch")} == {None}
    assert {row["support"] for row in report.difference_rows() if row["plan"] == "both"} == {"red"}
    assert {"very rare in the data", "estimate that the data do not support"} <= {
        line.get_label() for line in light_handles(report)
    }


def test_a_rule_has_the_lights_of_the_course_that_it_gives_most_and_chance_makes_it_no_less_precise(
    tumors: Dataset, subject: str
) -> None:
    models, ratings = {"mixed": model_of(fit(tumors, "mixed"))}, []
    coin: object = {"rule": "radiotherapy", "with probability": 0.4, "times": 4}
    for _ in range(2):
        request = parse_plans(json.dumps({"plans": {"p": coin}}), tumors.schema.treatments, horizon=6)
        report = estimate_outcomes(tumors, models, request, subject=subject, origin=12)
        if not ratings:
            _, place_S = report.models[0].simulated[0].kinds(0)
            common = f"its most common course of treatment, which {100 * np.bincount(place_S).max() / 1_000:.3g} %"
            assert f"rule `p` by model `mixed` are those of {common}" in said(report.diagnostics, "rule-lights")
        ratings.append([(row["precision"], row["practice"], row["support"]) for row in report.to_rows()])
        coin = [{"radiotherapy": int(given)} for given in report.plans[0].values[:, 1]]
    assert ratings[0] == ratings[1]
    assert "rule-lights" not in codes(report.diagnostics)


def test_the_reason_says_whose_practice_it_is_where_the_file_does(
    tumors: Dataset, ridge: Trained, subject: str
) -> None:
    practice = ridge.meta["practice"]
    assert (practice["domain"], practice["subjects"]) == ("source", 150)
    older = {key: value for key, value in practice.items() if key not in ("domain", "subjects")}
    for meta, whose in ((practice, " (source subjects)"), (older, "")):
        report = ask(tumors, replace(ridge, meta={**ridge.meta, "practice": meta}), subject)
        (row, *_) = [row for row in rows_of(report, "both") if row["practice"] != "green"]
        assert row["reason"].endswith(f"of days{whose}")


def test_abstaining_leaves_out_red_numbers_and_no_others(
    tumors: Dataset, ridge: Trained, subject: str, tmp_path
) -> None:
    told, silent = (ask(tumors, ridge, subject, abstain=abstain) for abstain in (False, True))
    both = zip([*told.to_rows(), *told.difference_rows()], [*silent.to_rows(), *silent.difference_rows()], strict=True)
    left = 0
    for row, other in both:
        if row["support"] == "red":
            assert [other[name] for name in ("estimate", "lower", "upper", "level", "error")] == [None] * 5
            left += 1
        else:
            assert row == other
    assert left > 3
    assert "red-left-out" in codes(silent.diagnostics)
    write_csv(tmp_path / "answers.csv", silent)
    with (tmp_path / "answers.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert sum(line["estimate"] == "" for line in lines) == left
    assert {line["support"] for line in lines} >= {"green", "red"}


def test_abstaining_leaves_red_answers_out_of_sensitivity_and_of_the_artifact(
    tumors: Dataset, ridge: Trained, subject: str, tmp_path
) -> None:
    report = ask(tumors, ridge, subject, abstain=True)
    [answers] = report.models
    red_HY = answers.plan_ratings[1].red_HY
    assert red_HY.any()
    silent = sensitivity(answers, abstain=True)
    every = sensitivity(answers)
    plot_sensitivity(report, silent, tmp_path / "s.png")
    for found, hides in ((silent, True), (every, False)):
        for row in [*found.to_json()["bounds"], *found.differences()]:
            red = row["plan"] == "chemo" and red_HY[row["step"] - 1, 0]
            assert (row["lower"] is None) == (hides and red) or row["plan"] == "both"
        assert (next(found.flips())["gamma"] is None) or not hides
        assert (next(found.flips())["difference"] is None) == hides
    write_estimates(tmp_path / "e.h5", report, parents={}, fingerprint="f")
    artifact = read_artifact(tmp_path / "e.h5", kind="estimates")
    predictions = artifact.arrays["model/0/predictions"]
    assert (np.isnan(predictions[0, 1]) == red_HY).all()
    assert artifact.meta["estimates"] == report.to_rows()
    assert {row["support"] for row in artifact.meta["differences"]} >= {"red"}


def test_a_treatment_that_the_subject_never_had_is_named_as_the_reason(
    tumors: Dataset, ridge: Trained, subject: str
) -> None:
    narrow = np.full_like(ridge.arrays["practice/spread"], 1e-9)
    report = ask(tumors, replace(ridge, arrays={**ridge.arrays, "practice/spread": narrow}), subject)
    row = rows_of(report, "both")[0]
    assert row["precision"] == row["support"] == "red"
    assert f"subject {subject} never received" in row["reason"]
    assert "radiotherapy before, and the data cannot tell how it would respond" in row["reason"]
    row = rows_of(report, "watch")[0]
    assert "is larger for its level than in 99 % of held-out windows" in row["reason"]


def test_plans_are_like_practice_by_the_share_of_steps_that_it_would_take(
    tumors: Dataset, ridge: Trained, subject: str
) -> None:
    like = ask(tumors, ridge, subject).model_facts()["ridge"]["like_practice"]
    assert list(like) == list(PLANS)
    assert 0 <= like["both"] < like["chemo"] < 0.5 < like["watch"] <= 1


def test_the_terminal_has_lights_without_colour_and_the_reason(
    tumors: Dataset, ridge: Trained, subject: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_answers(Output("whatif"), ask(tumors, ridge, subject))
    shown = capsys.readouterr().out
    for words in (
        "agreement with observed treatment",
        "precision",
        "practice",
        "support",
        "green",
        "red",
        "plan chemo, red from day",
    ):
        assert words in shown
    [precision] = {tuple(line.split()[-6:]) for line in shown.splitlines() if "precision" in line and "chemo" in line}
    assert precision == ("-",) * 6


def test_an_older_model_answers_without_lights_and_one_note_says_so(
    tumors: Dataset, ridge: Trained, subject: str, capsys: pytest.CaptureFixture[str]
) -> None:
    meta = {key: value for key, value in ridge.meta.items() if key != "practice"}
    report = ask(tumors, replace(ridge, meta=meta), subject, abstain=True)
    assert {row["support"] for row in report.to_rows()} == {None}
    assert all(row["estimate"] is not None for row in report.to_rows())
    assert report.model_facts()["ridge"]["like_practice"] is None
    assert said(report.diagnostics, "support-unknown").startswith("`ridge` cannot say whether the data support a plan")
    show_ratings(Output("whatif"), report)
    assert capsys.readouterr().out == ""


def test_red_segments_are_dashed_and_signs_stand_under_the_treatments(
    tumors: Dataset, ridge: Trained, subject: str
) -> None:
    figure = whatif.draw_whatif(ask(tumors, ridge, subject))
    axes = [a for place in figure.subfigs for a in place.axes]
    dashed = [line for line in axes[0].lines if line.get_linestyle() == "--" and line.get_zorder() == 4]
    assert len(dashed) >= 2, "both treated plans have red steps"
    assert axes[-1].get_ylabel() == "support"
    named = dict(zip(axes[-1].get_yticks(), (label.get_text() for label in axes[-1].get_yticklabels()), strict=True))
    assert list(named.values()) == list(PLANS)
    signs = {name: [line.get_marker() for line in axes[-1].lines if line.get_ydata()[0] == y]
             for y, name in named.items()}  # fmt: skip
    assert signs["watch"] == [plan_style(0)[1]] * 6
    assert "$!$" in signs["both"]
    assert not {str(line.get_color()) for line in axes[-1].lines if "$" in str(line.get_marker())} & {*PLAN_COLOURS}


def test_a_treatment_that_nobody_received_alone_is_red_for_that_reason(
    tumors: Dataset, ridge: Trained, subject: str
) -> None:
    together = {**ridge.meta["support"], "seen": [[0, 0], [1, 1]]}
    report = ask(tumors, replace(ridge, meta={**ridge.meta, "support": together}), subject, unsupported=True)
    chemo, both = (report.models[0].plan_ratings[i] for i in (1, 2))
    assert set(chemo.worst) == {"red"}
    assert chemo.reasons[0][0] == "no training subject received chemotherapy without other treatments"
    assert "no training subject" not in str(both.reasons)


@pytest.mark.parametrize(
    ("step", "odds"), [(0.5, "1.6 %"), (0.3, "1 in 1,400"), (0.1, "1 in 1,000,000"), (0.09, "practically never")]
)
def test_courses_are_rare_in_words_up_to_one_in_a_million(tumors: Dataset, step: float, odds: str) -> None:
    said = course_of(tumors, step)
    assert said.startswith(f"only {odds} of comparable " if odds[0] == "1" else "comparable ")
    assert odds in said


@pytest.mark.parametrize("step", [1e-60, 0.0])
def test_courses_whose_probability_is_too_small_for_a_float_practically_never_occur(
    tumors: Dataset, step: float
) -> None:
    assert course_of(tumors, step).endswith("courses of 6 days practically never look like this")


def course_of(tumors: Dataset, step: float) -> str:
    """What is said of six steps that are each so likely."""
    marks, red = np.zeros((1, 6), dtype=np.int8), np.full((1, 6), 2, dtype=np.int8)
    cells = np.zeros((1, 6, 1), dtype=np.int8)
    ratings = SupportRatings(cells, red, marks, red, red[..., None], cells.astype(float), np.full((1, 6), step))
    request = parse_plans('{"plans": {"watch": [{}, {}, {}, {}, {}, {}]}}', tumors.schema.treatments, horizon=6)
    told = _Reasons(tumors.schema, "1", np.zeros(2, dtype=bool), ratings, None)
    return told.plan(0, request.plans[0]).reasons[5][0]
