"""Gates of an evaluation: what they compare, and that they fail where there is nothing to compare."""

import math
from dataclasses import replace

import evaluate_worlds as worlds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.config.models import EvaluateConfig
from costar_cli.errors import ExitCode, GateError, UsageError
from costar_cli.evaluation import run_evaluation
from costar_cli.evaluation.calibrated import BandDetails, LevelScores
from costar_cli.evaluation.gates import check_gates, judge_gates, parse_gates, require_passed
from costar_cli.evaluation.metrics import PerStep

FILES = {"a" * 64: {"model"}, "b" * 64: {"other"}}


@pytest.fixture(scope="module")
def report():
    data = worlds.dataset(subjects=12)
    model = worlds.oracle(data, members=2, error=worlds.independent_noise(1.0))
    named = {
        name: replace(worlds.candidate(model).model, digest=digest) for digest, names in FILES.items() for name in names
    }
    candidates = [replace(worlds.candidate(model, name=name), model=m) for name, m in named.items()]
    return run_evaluation(data, candidates, EvaluateConfig(bootstrap=0), setups=["zero-shot"])


def verdicts(report, *expressions):
    return judge_gates(parse_gates(expressions), report, FILES)


@given(
    st.sampled_from(["<", "<=", ">", ">="]),
    st.floats(-1e6, 1e6).map(lambda value: round(value, 3)),
    st.floats(allow_nan=False),
)
def test_a_gate_fails_exactly_where_its_condition_holds(operator, bound, value):
    [gate] = parse_gates([f" zero-shot.costar.tau3{operator} {bound}"])
    assert (gate.setup, gate.model, gate.number, gate.bound) == ("zero-shot", "costar", "tau3", bound)
    holds = {"<": value < bound, "<=": value <= bound, ">": value > bound, ">=": value >= bound}
    assert gate.fails(value) is holds[operator]


@pytest.mark.parametrize("bound", ["1", "1.5", ".5", "1e-3", "-2.", "+3"])
def test_names_may_hold_dots_and_blanks(bound):
    [gate] = parse_gates([f"zero-shot.My model v1.2.average>={bound}"])
    assert (gate.model, gate.bound) == ("My model v1.2", float(bound))


def test_all_that_is_not_understood_is_said_at_once():
    texts = ["average > 1", "a.b.c", "a.b.c == 1", "a.b.c > nan", "a.b.c > 1 or 2", "zero-shot.costar.average > 1"]
    with pytest.raises(UsageError) as caught:
        parse_gates(texts)
    assert [line.split(" is not a valid gate")[0] for line in caught.value.details] == [
        repr(text) for text in texts[:5]
    ]


def test_what_there_is_none_of_is_named_with_what_there_is():
    models = {"zero-shot": {"costar", "last-value"}}
    texts = ["zero-shoot.costo.average > 1", "few-shot.costar.average > 1", "zero-shot.costa.averge > 1",
             "zero-shot.crn.tau4 > 1", "zero-shot.costar.coverage91 < 1", "zero-shot.costar.tau3 > 1"]  # fmt: skip
    with pytest.raises(UsageError) as caught:
        check_gates(parse_gates(texts), models, horizon=3)
    said = [line.partition(": ")[2] for line in caught.value.details]
    assert said == [
        "unknown set-up 'zero-shoot', did you mean `zero-shot`?",
        "no model 'costo' in any set-up, did you mean `costar`?",
        "few-shot is not scored",
        "no model 'costa' in zero-shot, did you mean `costar`?",
        "unknown number 'averge', did you mean `average`?",
        "no model of the method 'crn' in zero-shot",
        "unknown number 'tau4', did you mean `tau1`?",
        "unknown number 'coverage91', did you mean `coverage90`?",
    ]
    assert "zero-shot: costar, last-value" in caught.value.fix
    assert "tau1, tau2, tau3, coverage50" in caught.value.fix


def test_a_method_is_every_model_of_it_and_a_file_is_one(report):
    every, one = verdicts(report, "zero-shot.costar.average > 0"), verdicts(report, "zero-shot.other.tau2 > 0")
    assert [verdict.model for verdict in every] == ["model", "other"]
    assert [verdict.model for verdict in one] == ["other"]
    assert one[0].value == report.row("zero-shot", "other").mean.steps[1]
    assert every[0].value == report.row("zero-shot", "model").mean.average


def test_equal_files_have_every_name_and_methods_come_before_files(report):
    equal = {"a" * 64: {"model", "copy"}, "b" * 64: {"crn"}}
    gates = parse_gates(["zero-shot.copy.average > 1e9", "zero-shot.costar.average > 1e9"])
    unnamed = replace(report, rows=tuple(replace(row, label="COSTAR") for row in report.rows if row.provenance))
    assert [(one.method, one.file) for one in judge_gates(gates, unnamed, equal)] == [
        ("costar", "copy"), ("costar", "copy"), ("costar", "crn"),
    ]  # fmt: skip
    with pytest.raises(UsageError, match="no model of the method 'crn' in zero-shot"):
        judge_gates(parse_gates(["zero-shot.crn.average > 1"]), report, equal)


def test_a_verdict_has_the_parts_of_its_gate(report):
    [verdict] = verdicts(report, "zero-shot.other.tau2 >= 1e9")
    said = {key: verdict.to_json()[key] for key in ("method", "file", "number", "operator", "bound")}
    assert said == {"method": "costar", "file": "other", "number": "tau2", "operator": ">=", "bound": 1e9}
    [anchor] = verdicts(report, "zero-shot.last-value.average < 0")
    assert (anchor.method, anchor.file) == ("last-value", None)


def test_the_anchor_has_a_name_and_the_limit_and_the_published_rows_have_none(report):
    [verdict] = verdicts(report, "zero-shot.last-value.average < 0")
    assert verdict.verdict == "passed"
    with pytest.raises(UsageError, match="no model 'COSTAR'"):
        verdicts(report, "zero-shot.COSTAR.average < 0")


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        ("ratio", "no limit is known for these data"),
        ("coverage90", "the model is not calibrated"),
        ("tau1", "nothing is scored there"),
        ("average", "nothing is scored there"),
    ],
)
@pytest.mark.parametrize("condition", ["> 1e9", "< -1e9"])
def test_a_value_that_does_not_exist_fails_whatever_the_condition(report, number, reason, condition):
    lost = replace(report.rows[0], mean=PerStep((None, *report.rows[0].mean.steps[1:]), math.nan))
    [verdict] = verdicts(replace(report, rows=(lost,)), f"zero-shot.model.{number} {condition}")
    assert (verdict.verdict, verdict.value, verdict.reason) == ("failed", None, reason)


def test_failed_gates_are_an_error_with_a_code_of_its_own_that_lists_them_alone(report):
    judged = verdicts(report, "zero-shot.model.average > 0", "zero-shot.model.average < 0", "zero-shot.model.ratio > 1")
    with pytest.raises(GateError, match="2 of 3 gates failed") as caught:
        require_passed(judged)
    assert caught.value.exit_code == ExitCode.GATE == 10
    assert [line.partition(":")[0] for line in caught.value.details] == [judged[0].expression, judged[2].expression]
    require_passed(judged[1:2])
    with pytest.raises(GateError, match="1 gate failed"):
        require_passed(judged[:1])


@pytest.mark.parametrize(("answers", "reason"), [
    ((9, 9, 9), "cannot be judged: too few calibration subjects for a 90% band"), ((9, 0, 9), "no answer to cover"),
])  # fmt: skip
def test_a_band_that_does_not_exist_fails_whatever_the_condition(report, answers, reason):
    none = PerStep((None,) * 3, None)
    details = BandDetails(12, answers, none, {}, (), 0, 0.0, {})
    scored = replace(report.rows[0], calibration={"0.9": LevelScores(*[none] * 5)}, bands=details)
    for condition in ("< 0.85", "> 2"):
        [verdict] = verdicts(replace(report, rows=(scored,)), f"zero-shot.model.coverage90 {condition}")
        assert (verdict.verdict, verdict.value, verdict.reason) == ("failed", None, reason)
