"""Outcomes of the end of follow-up: steps at which no training subject has them are not answered as if some had."""

from dataclasses import replace

import numpy as np
import pytest

from costar_cli.config.models import FinetuneConfig
from costar_cli.methods import METHODS
from costar_cli.methods.base import FittedModel
from costar_cli.panel import Dataset, Panel, Part
from costar_cli.panel.support import Support
from costar_cli.questions import Averager, Cohort, answer_cohort, estimate_outcomes
from costar_cli.questions.rows import tidy_columns
from costar_cli.uncertainty import support_of
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
    for lights in report.models[0].plan_lights or ():
        assert [step[0] for step in lights.support].count("red") == lights.red_HY.sum() >= 2
        reasons = [step[0] for step in lights.reasons]
        told = ["no training subject has y at this step of its series" in reason for reason in reasons]
        assert told == [False, True, True, False]
        assert lights.red_HY[1:3].all()


def test_tables_of_cohorts_mark_them_abstain_from_them_and_searches_leave_them_out(
    data: Dataset, model: FittedModel
) -> None:
    panel = data.panels[Part("source", "test")]
    cohort = Cohort.of(panel, panel.subject_id.tolist(), origin=ORIGIN)
    [answers] = answer_cohort("mixed", model, cohort, request_of(PLANS, ORIGIN, LINEAR.schema, STEPS))
    columns = tidy_columns(answers, abstain=True)
    missing = np.isin(columns["time"], MISSING)
    assert (columns["support"][missing] == "red").all()
    assert np.isnan(columns["estimate"][missing]).all()
    assert np.isfinite(columns["estimate"][~missing]).mean() > 0.8
    assert answers.lights is not None
    assert answers.lights.unsupported_QHY[:, 1:3].all()


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
    assert Support.from_meta({"support": meta}) == Support.of(train, schema)
    assert "unmeasured" not in whole.to_meta()


def test_what_travels_with_the_model_says_so(model: FittedModel) -> None:
    support = support_of(model)
    assert support is not None
    assert support.given is not None
    assert support.given.unmeasured == (MISSING,)
