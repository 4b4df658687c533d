"""The one rule of what belongs together: every difference is found, alone and with others."""

from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data import Dataset, ErrorUnit, Panel, PanelSchema, Part, TreatmentEncoding, Variable
from costar_cli.data.compatible import other_data, require_compatible, same_data
from costar_cli.errors import MismatchError

DOSES = ("none", "low", "high")
CLASSES = ((0, 0), (1, 0), (2, 1))
SCHEMA = PanelSchema(
    covariates=(Variable(name="age", unit="years"),),
    treatments=TreatmentEncoding(
        mode="multiclass", names=("dose", "drug"), levels=(DOSES, ("off", "on")), classes=CLASSES
    ),
    outcomes=(Variable(name="glucose", unit="mg/dL"), Variable(name="weight", unit="kg")),
    step="day",
)


def dataset(schema: PanelSchema = SCHEMA) -> Dataset:
    dx, da, dy, dv = schema.dims
    panel = Panel(
        covariates=np.zeros((1, 3, dx), np.float32),
        treatments=np.zeros((1, 3, da), np.float32),
        outcomes=np.zeros((1, 3, dy), np.float32),
        statics=np.zeros((1, dv), np.float32),
        length=np.array([3]),
        subject_id=np.array([0]),
    )
    return Dataset("ward", schema, 4, {Part("source", "train"): panel})


def changed(**fields: object) -> PanelSchema:
    return SCHEMA.model_copy(update=fields)


def treated(**fields: object) -> PanelSchema:
    return changed(treatments=TreatmentEncoding(**{**SCHEMA.treatments.model_dump(), **fields}))


def outcome(**fields: object) -> PanelSchema:
    return changed(outcomes=(SCHEMA.outcomes[0].model_copy(update=fields), SCHEMA.outcomes[1]))


def differences(data: PanelSchema, **options: object) -> tuple[str, ...]:
    with pytest.raises(MismatchError, match="model m is incompatible with data set ward") as caught:
        require_compatible(dataset(data), SCHEMA, model="model m", **options)
    return caught.value.details


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (outcome(unit="mmol/L"), "unit of outcome glucose: model has mg/dL, data set has mmol/L"),
        (outcome(unit=""), "unit of outcome glucose: model has mg/dL, data set has none"),
        (outcome(kind="count"), "kind of outcome glucose: model has continuous, data set has count"),
        (outcome(standardize=False), "outcome glucose: model has standardised, data set has raw"),
        (changed(covariates=()), "covariates: model has age, data set has none"),
        (changed(outcomes=SCHEMA.outcomes[::-1]), "outcomes: model has glucose, weight, data set has weight, glucose"),
        (changed(statics=(Variable(name="sex"),)), "statics: model has none, data set has sex"),
        (changed(step="week"), "step: model has day, data set has week"),
        (
            treated(levels=(("none", "high", "low"), ("off", "on"))),
            "levels of treatment dose: model has none, low, high, data set has none, high, low",
        ),
        (treated(names=("dose", "medicine")), "treatments: model has dose, drug, data set has dose, medicine"),
        (
            treated(classes=((0, 0), (2, 1), (1, 0))),
            (
                "treatment classes: model has dose=none, dose=low, dose=high+drug, "
                "data set has dose=none, dose=high+drug, dose=low"
            ),
        ),
    ],
)
def test_every_difference_is_refused_and_named(data: PanelSchema, line: str):
    assert differences(data) == (line,)


def test_all_differences_are_said_at_once():
    data = outcome(unit="mmol/L", kind="count").model_copy(update={"step": "week"})
    assert differences(data, horizon=3) == (
        "unit of outcome glucose: model has mg/dL, data set has mmol/L",
        "kind of outcome glucose: model has continuous, data set has count",
        "step: model has day, data set has week",
        "horizon: model predicts 3 steps, data set asks for 4",
    )


def test_long_lists_are_shown_where_they_differ():
    names = tuple(Variable(name=f"lab {i}") for i in range(20))
    with pytest.raises(MismatchError) as caught:
        require_compatible(dataset(changed(covariates=names[:-1])), changed(covariates=names), model="m")
    lines = ("covariates: model has 20 with lab 19 as number 20, data set has 19 with nothing as number 20",)
    assert caught.value.details == lines


def test_a_horizon_may_be_longer_unless_it_must_be_equal():
    data = dataset()
    require_compatible(data, SCHEMA, model="m")
    require_compatible(data, SCHEMA, model="m", horizon=9)
    require_compatible(data, SCHEMA, model="m", horizon=4, exactly=True)
    with pytest.raises(MismatchError):
        require_compatible(data, SCHEMA, model="m", horizon=9, exactly=True)


def test_the_unit_in_which_errors_are_reported_is_no_difference():
    require_compatible(dataset(changed(error_unit=ErrorUnit(factor=100, label="%"))), SCHEMA, model="m")


def test_the_same_data_are_known_by_digest_and_unknown_without_one():
    data = replace(dataset(), digest="d" * 64)
    assert same_data({"dataset": "d" * 64}, data.digest) is True
    assert same_data({"dataset": "e" * 64}, data.digest) is False
    assert same_data({}, data.digest) is None
    assert same_data({"dataset": "d" * 64}, "") is None
    warning = other_data("model m", {"dataset": "e" * 64}, data.digest)
    assert str(warning) == "model m was trained on another data set (eeeeeeee) than this one (dddddddd)"
    assert other_data("model m", {"dataset": "d" * 64}, data.digest) is None
    assert other_data("model m", {}, data.digest) is None
