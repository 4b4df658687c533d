"""Outcomes of the end of follow-up: steps at which no training subject has them are not answered as if some had."""

import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import costar_cli
from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Panel, Part
from costar_cli.data.record import ModelRecord
from costar_cli.data.support import Support
from costar_cli.errors import UsageError
from costar_cli.inference import UNMEASURED, support_of
from costar_cli.methods import METHODS
from costar_cli.methods.base import FittedModel
from costar_cli.questions import Averager, Cohort, Tally, answer_cohort, estimate_outcomes
from costar_cli.questions.rows import tidy_columns
from costar_cli.questions.search import SearchRequest, search
from costar_cli.questions.sensitivity import sensitivity
from costar_cli.questions.tables import answer_table
from costar_cli.report.figures.whatif import drawn_bands
from tests.codes import said
from tests.feedback_worlds import LINEAR
from tests.fits import fit_method, model_of
from tests.whatif.whatif_worlds import request_of

ROWS, ORIGIN, STEPS = 7, 2, 4
MISSING = (4, 5)  # the outcome is measured at steps 0 to 3, and at the end, step 6
PLANS = {"never": [{}] * STEPS, "always": [{"a": 1}] * STEPS}


def at_the_end(panel: Panel) -> Panel:
    seen = panel.observed_outcomes.copy()
    seen[:, list(MISSING)] = False
    return replace(panel, outcomes=np.where(seen, panel.outcomes, panel.outcomes[:, 3:4]), outcome_observed=seen)


@pytest.fixture(scope="module")
def data() -> Dataset:
    of_world = LINEAR.dataset(n=300, rows=ROWS, horizon=STEPS)
    return replace(of_world, panels={part: at_the_end(panel) for part, panel in of_world.panels.items()})


@pytest.fixture(scope="module")
def model(data: Dataset) -> FittedModel:
    return model_of(fit_method(data, "mixed", METHODS["mixed"].default_settings(), FinetuneConfig()))


def test_such_steps_are_red_with_the_reason_and_the_others_are_not(data: Dataset, model: FittedModel) -> None:
    subject = int(data.panels[Part("source", "test")].subject_id[0])
    request = request_of(PLANS, ORIGIN, LINEAR.schema, STEPS)
    report = estimate_outcomes(data, {"mixed": model}, request, subject=subject)
    for ratings in report.models[0].plan_ratings or ():
        assert [step[0] for step in ratings.support].count("red") == ratings.red_HY.sum() >= 2
        reasons = [step[0] for step in ratings.reasons]
        told = ["no training subject has y at this step of its series" in reason for reason in reasons]
        assert told == [False, True, True, False]
        assert ratings.red_HY[1:3].all()


def without_practice(model: FittedModel) -> FittedModel:
    """The model as one without validation subjects is: without lights."""
    return replace(model, record=replace(model.record, practice=None))


@pytest.mark.parametrize("ratings", [True, False], ids=["with lights", "without lights"])
def test_such_steps_have_no_numbers_and_say_why(data: Dataset, model: FittedModel, *, ratings: bool) -> None:
    subject = int(data.panels[Part("source", "test")].subject_id[0])
    request = request_of(PLANS, ORIGIN, LINEAR.schema, STEPS)
    asked = model if ratings else without_practice(model)
    report = estimate_outcomes(data, {"mixed": asked}, request, subject=subject, levels=(0.9, 0.5))
    rows = [*report.to_rows(), *report.difference_rows()]
    assert len(rows) == 3 * STEPS
    for row in rows:
        numbers = [row[name] for name in ("estimate", "lower", "upper", "level", "lower_0.5", "upper_0.5")]
        if row["time"] in MISSING:
            assert numbers == [None] * 6
            assert row["interval_kind"] == UNMEASURED
        else:
            assert np.isfinite(numbers).all()
            assert row["interval_kind"] == "calibrated"
        if ratings:
            assert ("no training subject has y" in str(row["reason"])) == (row["time"] in MISSING)
    expected = "y has no estimate at step 4, 5: no training subject has it there"
    assert said(report.diagnostics, "no-estimate") == expected
    shown = answer_table(report, report.models[0], "y")[1]
    assert [[bool(re.search(r"\d", str(cell))) for cell in line[1:]] for line in shown] == [
        [report.history.origin + 1 + h not in MISSING] * 2 for h in range(STEPS)
    ]
    schema = json.loads((Path(costar_cli.__file__).parent / "schemas" / "documents.json").read_text())
    row_schema = {"$ref": "#/$defs/estimate", "$defs": schema["$defs"]}
    for row in json.loads(json.dumps(report.to_json(), allow_nan=False))["estimates"]:
        jsonschema.validate(row, row_schema)
    assert all(np.isnan(band.estimate[1:3]).all() for band in drawn_bands(report, report.models[0]))


def test_bounds_under_hidden_confounding_leave_them_out(data: Dataset, model: FittedModel) -> None:
    part = data.panels[Part("source", "test")]
    request = request_of(PLANS, ORIGIN, LINEAR.schema, STEPS)
    report = estimate_outcomes(data, {"mixed": model}, request, subject=int(part.subject_id[0]))
    found = sensitivity(report.models[0])
    assert found.left_out == {(plan, h, 0) for plan in (0, 1) for h in (1, 2)}


def test_tables_and_means_of_cohorts_have_no_numbers_there(data: Dataset, model: FittedModel) -> None:
    panel = data.panels[Part("source", "test")]
    cohort = Cohort.of(panel, panel.subject_id.tolist(), origin=ORIGIN)
    [answers] = answer_cohort("mixed", model, cohort, request_of(PLANS, ORIGIN, LINEAR.schema, STEPS))
    for abstain in (False, True):
        columns = tidy_columns(answers, abstain=abstain)
        missing = np.isin(columns["time"], MISSING)
        assert (columns["support"][missing] == "red").all()
        for name in ("estimate", "lower", "upper", "level"):
            assert np.isnan(columns[name][missing]).all()
        assert np.isfinite(columns["estimate"][~missing]).mean() > (0.8 if abstain else 0.999)
        assert set(columns["interval_kind"][missing]) == {UNMEASURED}
        assert set(columns["interval_kind"][~missing]) == {"calibrated"}
    assert answers.ratings is not None
    assert answers.ratings.unsupported_QHY[:, 1:3].all()
    tally = Tally(LINEAR.schema.outcomes, STEPS)
    tally.add(answers)
    for row in tally.rows():
        assert [mean is None for mean in row["mean"]] == [False, True, True, False]
        assert row["mean_at_end"] is not None


@pytest.mark.parametrize("objective", ["y at step 2", "y mean", "y at end"])
def test_searches_refuse_what_they_cannot_score(data: Dataset, model: FittedModel, objective: str) -> None:
    panel = data.panels[Part("source", "test")]
    asked = SearchRequest((objective,), steps=STEPS, unsupported=True)
    for origin in (ORIGIN, 5):  # at the latter all that is read lies after the steps that nobody has
        why = "no training subject has y at step 4 of its series" if origin == ORIGIN and "end" not in objective else ""
        one, three = (panel.take(np.arange(count)) for count in (1, 3))
        found = list(search("mixed", model, three, np.full(3, origin), asked.question(model, many=True)))
        assert [best.why or "" for best in found] == [why] * 3
        assert [best.found > 0 for best in found] == [not why] * 3
        alone = search("mixed", model, one, np.array([origin]), asked.question(model))
        if not why:
            assert next(alone).found
            continue
        with pytest.raises(UsageError, match=why):
            next(alone)


def test_averages_have_no_number_there_and_say_why(data: Dataset, model: FittedModel) -> None:
    panel = data.panels[Part("source", "test")]
    cohort = Cohort.of(panel, panel.subject_id.tolist(), origin=ORIGIN)
    request = request_of(PLANS, ORIGIN, LINEAR.schema, STEPS)
    averager = Averager(cohort, request, ("all",), np.ones((1, len(cohort)), dtype=bool))
    for answers in answer_cohort("mixed", model, cohort, request):
        averager.add(answers)
    rows = list(averager.finish("mixed", model, (0.9, 0.5)).to_rows())
    assert len(rows) == STEPS * 3  # outcomes of two plans, and their difference
    for row in rows:
        numbers = [row[name] for name in ("estimate", "lower", "upper", "level", "lower_0.5", "upper_0.5")]
        if ORIGIN + row["step"] in MISSING:
            assert numbers == [None] * 6
            assert row["interval_kind"] == "none (no training subject has the outcome at this step of a series)"
        else:
            assert np.isfinite(numbers).all()
            assert row["interval_kind"] == "subjects and training (posterior)"


def test_support_tells_what_is_not_measured_from_chance_and_from_the_end(data: Dataset) -> None:
    train, schema = data.panels[Part("source", "train")], LINEAR.schema
    assert Support.of(train, schema).unmeasured == (MISSING,)
    assert Support.of(train.take(np.arange(19)), schema).unmeasured == ()  # of so few it may be chance
    ended = train.until(6)  # nobody has it later: that is where the data end
    assert Support.of(ended, schema).unmeasured == ()
    whole = Support.of(LINEAR.panel(50, ROWS, seed=1), schema)
    assert (Support.of(train, schema) | whole).unmeasured in ((), ((),))
    meta = Support.of(train, schema).to_meta()
    assert ModelRecord.read({"support": meta}).support == Support.of(train, schema)
    assert "unmeasured" not in whole.to_meta()


def test_what_travels_with_the_model_says_so(model: FittedModel) -> None:
    support = support_of(model)
    assert support is not None
    assert support.given is not None
    assert support.given.unmeasured == (MISSING,)
