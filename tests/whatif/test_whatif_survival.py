"""Survival beside estimates: in rows, documents, tables, notes and figures; the dead are not asked about (SURV-4)."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.errors import UsageError
from costar_cli.inference import Estimates, Resolved, SimulatedRule, estimate, survival_forecast
from costar_cli.methods.base import FittedModel
from costar_cli.plans import IndexTimes, parse_plans
from costar_cli.plans.untrusted import Problems
from costar_cli.questions import (
    Averager,
    Cohort,
    Tally,
    WhatIfReport,
    answer_cohort,
    estimate_outcomes,
    tidy_columns,
    write_csv,
)
from costar_cli.questions.answers import ask_plans
from costar_cli.questions.search import Candidates, Constraints, Objective, SearchQuestion, no_treatment, search
from costar_cli.questions.tables import survival_table
from costar_cli.report.figures.whatif import plot_whatif
from costar_cli.report.pages.whatif import whatif_page
from costar_cli.reporting import NullReporter
from tests.cli.cli_world import DOCUMENTS
from tests.codes import codes, said
from tests.fits import fit_method, model_of

PLANS = b'{"plans": {"watch": [{}, {}, {}], "both": [{"chemotherapy": 1, "radiotherapy": 1}, {}]}}'


@pytest.fixture(scope="module")
def ends() -> tuple[Dataset, FittedModel]:
    sizes = {"train": 120, "val": 40, "test": 40, "target_train": 5, "target_val": 5, "target_test": 5}
    tumours = simulate_tumor(TumorConfig(gamma=0, steps=40, ends=True, **sizes), NullReporter())
    return tumours, model_of(fit_method(tumours, "mean", None, FinetuneConfig()))


def ask(
    ends: tuple[Dataset, FittedModel], *, over: bool = False, origin: int | None = None, text: str | bytes = PLANS
) -> WhatIfReport:
    tumours, model = ends
    panel = tumours.panel("source", "test")
    who = int(panel.subject_id[(panel.ends == 2) if over else (panel.ends == 0)][0])
    plans = parse_plans(text, tumours.schema, horizon=6)
    return estimate_outcomes(tumours, {"mean": model}, plans, subject=who, origin=origin)


def test_rows_and_documents_have_survival_and_each_of_several_ends(
    ends: tuple[Dataset, FittedModel], tmp_path: Path
) -> None:
    report = ask(ends)
    rows = report.to_rows()
    assert report.columns[-3:] == ("survival", "ended_death", "ended_recovery")
    watch = [row for row in rows if row["plan"] == "watch"]
    values = np.array([[row[name] for name in report.ends] for row in watch], dtype=float)
    np.testing.assert_allclose(values.sum(axis=1), 1)
    assert (np.diff(values[:, 0]) <= 0).all()
    of_model = report.to_json()["models"]["mean"]["survival"]  # type: ignore[index]
    assert of_model["watch"]["survival"] == values[:, 0].tolist()
    assert len(of_model["both"]["ended_recovery"]) == 2
    apart = report.difference_rows()[0]
    assert apart["survival"] == pytest.approx(rows[3]["survival"] - rows[0]["survival"])  # type: ignore[operator]
    write_csv(tmp_path / "a.csv", report)
    assert "survival,ended_death,ended_recovery" in (tmp_path / "a.csv").read_text().splitlines()[0]


def test_tables_notes_and_figures_say_it(ends: tuple[Dataset, FittedModel], tmp_path: Path) -> None:
    report = ask(ends)
    headers, lines = survival_table(report, report.models[0])
    assert headers == ["day", "watch", "both"]
    assert [line[2] is None for line in lines] == [False, False, True]
    assert all("% (death " in str(line[1]) for line in lines)
    assert "estimates-of-survivors" in codes(report.diagnostics)
    assert "ended by death (0)" in said(report.diagnostics, "few-ends")
    plot_whatif(report, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_nobody_whose_series_has_ended_is_asked_about(ends: tuple[Dataset, FittedModel]) -> None:
    with pytest.raises(UsageError, match=r"the series of subject \d+ ended on day \d+: recovery"):
        ask(ends, over=True)
    assert ask(ends, over=True, origin=1).models[0].survival_forecast is not None


def test_cohorts_leave_ended_series_out_and_have_survival(ends: tuple[Dataset, FittedModel]) -> None:
    tumours, model = ends
    panel, terminal = tumours.panel("source", "test"), tumours.schema.terminal
    cohort = Cohort.of(panel, panel.names, terminal=terminal)
    np.testing.assert_array_equal(cohort.subject_M, np.flatnonzero(panel.ends == 0))
    plans = parse_plans(PLANS, tumours.schema, horizon=6)
    columns = tidy_columns(next(answer_cohort("mean", model, cohort, plans)))
    assert ((columns["survival"] >= 0) & (columns["survival"] <= 1)).all()
    np.testing.assert_allclose(columns["survival"] + columns["ended_death"] + columns["ended_recovery"], 1)
    everywhere = Cohort.of(panel, panel.names, origin="all", terminal=terminal)
    assert len(everywhere) == panel.length.sum() - (panel.ends > 0).sum()
    over = panel.take(panel.ends == 2)
    with pytest.raises(UsageError, match="has ended at the origin"):
        Cohort.of(over, over.names, terminal=terminal)


EVERY = {f"{i}{j}": [{"chemotherapy": i}, {"chemotherapy": j}] for i in (0, 1) for j in (0, 1)}
COIN = {"rule": "chemotherapy", "with probability": 0.3, "times": 2}


def values_of(report: WhatIfReport) -> dict[str, np.ndarray]:
    found = report.models[0].survival_forecast
    assert found is not None
    both = np.concatenate([found.survival_QH[..., None], found.ended_QHE], axis=-1)
    return {plan.name: both[q, :2] for q, plan in enumerate(report.plans)}


def test_survival_under_a_rule_of_chance_is_the_mean_over_the_courses_that_it_gave(
    ends: tuple[Dataset, FittedModel],
) -> None:
    report = ask(ends, text=json.dumps({"plans": EVERY | {"coin": COIN}}))
    values, simulated = values_of(report), report.models[0].simulated[-1]
    assert simulated is not None
    kinds_KHA, place_S = simulated.kinds(0)
    names = ["".join(map(str, course_H)) for course_H in kinds_KHA[:, :, 0].tolist()]
    expected = sum(values[name] * share for name, share in zip(names, np.bincount(place_S) / 1_000, strict=True))
    np.testing.assert_allclose(values["coin"], expected)
    assert np.abs(values["coin"] - values["00"]).max() > 1e-4, "the course that most draws took is not all of it"


def test_cohorts_have_the_survival_of_a_rule_that_each_subject_has_alone(ends: tuple[Dataset, FittedModel]) -> None:
    tumours, model = ends
    panel = tumours.panel("source", "test")
    text = json.dumps({"plans": {"00": EVERY["00"], "coin": COIN, "11": EVERY["11"]}})
    cohort = Cohort.of(panel, panel.names, terminal=tumours.schema.terminal)
    plans = parse_plans(text, tumours.schema, horizon=6)
    (answers,) = answer_cohort("mean", model, cohort, plans)
    assert answers.survival_forecast is not None
    together = np.split(answers.survival_forecast.survival_QH, len(cohort))
    alone = values_of(ask(ends, text=text))
    np.testing.assert_allclose(together[0][0, :2], alone["00"][:, 0])
    np.testing.assert_allclose(together[0][1, :2], alone["coin"][:, 0], atol=0.01)  # of 200 and of 1,000 draws
    never_Q, coin_Q, always_Q = np.stack(together, axis=1)[..., 1]
    low_Q, high_Q = np.minimum(never_Q, always_Q), np.maximum(never_Q, always_Q)
    assert ((coin_Q > low_Q) & (coin_Q < high_Q)).all()


def test_survival_under_a_rule_on_drawn_outcomes_is_along_the_draws_that_took_each_course(
    ends: tuple[Dataset, FittedModel],
) -> None:
    tumours, model = ends
    panel = tumours.panel("source", "test")
    plans = parse_plans(json.dumps({"plans": EVERY | {"rule": COIN}}), tumours.schema, horizon=6).plans
    moments = IndexTimes.of(panel, "last").take(np.flatnonzero(panel.ends == 0)[[0, 0]])
    queries = ask_plans(model, moments, plans[:2])  # of chemotherapy never, and at the second step
    found = estimate(model, panel, queries)
    place_S, volume_SHY = np.array([0, 1, 0]), np.array([[[4.0], [2.0]], [[9.0], [9.0]], [[6.0], [6.0]]])
    usual_HY, never_HY = np.array([[3.0], [3.0]]), volume_SHY[[0, 2]].mean(axis=0)
    values_SQHA = np.stack([plan.values for plan in plans[:2]])[place_S][:, None]
    rows = moments.take([0])
    simulated = SimulatedRule(plans[-1], values_SQHA, volume_SHY[:, None], "drawn", usual_HY[None], usual_HY[None])
    of = Resolved(model, rows, plans[:1], ((simulated, 0),)).forecast_survival(queries.take([0]), found.take([0]))
    along = survival_forecast(
        model, panel, queries, found.mean_QHY[[0, 0]] + np.stack([never_HY, volume_SHY[1]]) - usual_HY
    )
    plain = survival_forecast(model, panel, queries, found.mean_QHY)
    assert of is not None
    assert along is not None
    assert plain is not None
    np.testing.assert_allclose(of.survival_QH, np.array([[2, 1]]) / 3 @ along.survival_QH)
    np.testing.assert_allclose(of.ended_QHE[0], (2 * along.ended_QHE[0] + along.ended_QHE[1]) / 3)
    assert np.abs(of.survival_QH - plain.survival_QH).min(axis=0)[1] > 1e-4
    alike = SimulatedRule(
        plans[-1], values_SQHA[[0, 2]], volume_SHY[[0, 2], None], "drawn", never_HY[None], usual_HY[None]
    )
    same = Resolved(model, rows, plans[:1], ((alike, 0),)).forecast_survival(queries.take([0]), found.take([0]))
    assert same is not None
    np.testing.assert_allclose(same.survival_QH, plain.survival_QH[:1])


def test_courses_of_a_rule_are_estimated_once_for_outcomes_and_survival(
    ends: tuple[Dataset, FittedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counted(*args: Any, **options: Any) -> Estimates:
        asked.append(1)
        return estimate(*args, **options)

    monkeypatch.setattr(sys.modules[Resolved.__module__], "estimate", counted)
    report = ask(ends, text=json.dumps({"plans": {"coin": COIN}}))
    assert report.models[0].survival_forecast is not None
    assert len(asked) == 1


def test_averages_and_summaries_of_cohorts_have_mean_survival(ends: tuple[Dataset, FittedModel]) -> None:
    tumours, model = ends
    panel = tumours.panel("source", "test")
    request = parse_plans(PLANS, tumours.schema, horizon=6)
    cohort = Cohort.of(panel, panel.names, origin=3, skip=True, terminal=tumours.schema.terminal)
    every = np.ones((1, len(cohort)), dtype=bool)
    averager, tally = Averager(cohort, request, ("all",), every), Tally(tumours.schema.outcomes, model.horizon)
    rows = []
    for answers in answer_cohort("mean", model, cohort, request):
        averager.add(answers)
        tally.add(answers)
        table = tidy_columns(answers)
        rows += list(zip(table["plan"], table["step"], table["survival"], strict=True))
    alone = {key: np.mean([s for *of, s in rows if tuple(of) == key]) for key in {tuple(of) for *of, _ in rows}}
    found = [row for row in averager.finish("mean", model, (0.9,)).to_rows() if row["quantity"].startswith("survival")]
    mean = {(row["plan"], row["step"]): row["estimate"] for row in found
            if (row["quantity"], row["outcome"]) == ("survival", "survival")}  # fmt: skip
    assert mean == pytest.approx(alone)
    assert {row["outcome"] for row in found} == {"survival", "ended_death", "ended_recovery"}
    rows_of_documents = DOCUMENTS.schema["$defs"]["cohort_answers"]["properties"]["averages"]
    DOCUMENTS.evolve(schema=rows_of_documents).validate(found)
    apart = next(row for row in found if row["quantity"] == "survival difference")
    assert apart["estimate"] == pytest.approx(mean["both", 1] - mean["watch", 1])
    assert (apart["reference"], apart["lower"]) == ("watch", None)
    watch = next(row for row in tally.rows() if (row["plan"], row["outcome"]) == ("watch", "survival"))
    assert watch["mean"] == pytest.approx([alone["watch", step] for step in (1, 2, 3)])


def test_the_page_has_survival(ends: tuple[Dataset, FittedModel]) -> None:
    page = whatif_page(ask(ends), {})
    assert "No death or recovery so far" in page


def test_searches_say_survival_and_do_not_search_for_it(ends: tuple[Dataset, FittedModel]) -> None:
    tumours, model = ends
    panel, problems = tumours.panel("source", "test"), Problems()
    objective = Objective.parse(tumours.schema, 2, problems, minimise=["tumour_volume at end"])
    limits = Constraints.parse(tumours.schema.treatments, problems)
    candidates = Candidates.of(model, limits, 2, unsupported=True, width=None)
    none = no_treatment(tumours.schema.treatments, 2)
    row = np.flatnonzero(panel.ends == 0)[:1]
    origin = panel.length[row] - 1
    question = SearchQuestion(objective, candidates, none, unsupported=True)
    (best,) = search("mean", model, panel.take(row), origin, question)
    assert best.survival_M is not None
    report = ask(ends, text=b'{"plans": {"none": [{}, {}]}}')
    found = report.models[0].survival_forecast
    assert found is not None
    assert best.survival_M[-1] == pytest.approx(found.survival_QH[0, 1])  # the reference plan is the last
    assert best.first(1).survival_M is not None
    Objective.parse(tumours.schema, 2, problems, maximise=["survival at end"])
    assert "survival under each plan is shown next to" in str(problems.fix)
