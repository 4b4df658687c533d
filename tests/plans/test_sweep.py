"""Sweeps of a dose: plans from a text, the table, the figure, and what cannot be swept."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from costar_cli.cli.answers import show_answers
from costar_cli.cli.averages import show_average_sweep
from costar_cli.cli.session import Session
from costar_cli.cli.workspace import Workspace
from costar_cli.data import Dataset, Part
from costar_cli.errors import UsageError
from costar_cli.methods.base import FittedModel
from costar_cli.plans import parse_plans
from costar_cli.plans.doses import Sweep
from costar_cli.questions import Averager, Cohort, answer_cohort, estimate_outcomes, groups_of
from costar_cli.report.figures.effects import plot_sweep
from costar_cli.reporting.output import Output
from costar_cli.reporting.progress import OutputReporter
from costar_cli.settings.resolve import resolve
from tests.dose_worlds import HORIZON, linear_doses
from tests.methods.linear_worlds import fit, model_of


@pytest.fixture(scope="module")
def data() -> Dataset:
    return linear_doses(60)


@pytest.fixture(scope="module")
def ridge(data: Dataset) -> FittedModel:
    return model_of(fit(data, "ridge"))


def test_a_sweep_is_a_constant_plan_per_dose(data: Dataset) -> None:
    sweep = Sweep.parse("dose 0:3:1.5", data.schema.treatments)
    plans = parse_plans(sweep.document(), data.schema, horizon=HORIZON).plans
    assert [plan.name for plan in plans] == ["dose=0", "dose=1.5", "dose=3"]
    assert [np.asarray(plan.values).ravel().tolist() for plan in plans] == [[v] * HORIZON for v in (0, 1.5, 3)]
    assert Sweep.parse("dose 5,0,2", data.schema.treatments).values.tolist() == [0, 2, 5]


def test_doses_that_agree_in_six_digits_have_plans_of_their_own(data: Dataset) -> None:
    sweep = Sweep.parse("dose 2,2.0000001,2.0000002", data.schema.treatments)
    plans = parse_plans(sweep.document(), data.schema, horizon=HORIZON).plans
    assert [plan.name for plan in plans] == ["dose=2", "dose=2.0000001", "dose=2.0000002"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dos 0:3:1", "no dose 'dos'; did you mean 'dose'"),
        ("dose", "'dose' is a dose without amounts of it"),
        ("dose 0:3", "are no doses"),
        ("dose a,b", "are no doses"),
        ("dose 0:3:0", "not 2 to 101 doses"),
        ("dose 0:3:0.001", "not 2 to 101 doses"),
        ("dose -1:3:1", "not negative"),
        ("dose 0:1000:100", "10 times what was ever given"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(data: Dataset, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Sweep.parse(text, data.schema.treatments)


def test_the_curve_is_drawn_with_its_band_and_the_doses_that_were_given(
    data: Dataset, ridge: FittedModel, tmp_path: Path
) -> None:
    sweep = Sweep.parse("dose 0:6:1", data.schema.treatments)
    panel = data.panels[Part("source", "test")]
    report = estimate_outcomes(
        data,
        {"ridge": ridge},
        parse_plans(sweep.document(), data.schema, horizon=HORIZON),
        subject=panel.names[0],
        origin=5,
    )
    given = data.schema.treatments.decode(panel.treatments[panel.observed])[:, 0]
    drawn = plot_sweep(report, sweep, given, tmp_path / "sweep.svg").read_text()
    assert "dose (mg)" in drawn
    assert "doses in the data" in drawn
    assert "90 % band" in drawn
    assert json.dumps(sweep.to_json())
    [model] = report.models
    none = replace(model.calibration, radius_LHYB=np.full_like(model.calibration.radius_LHYB, np.inf))
    bare = replace(report, models=(replace(model, calibration=none),))
    assert "% band" not in plot_sweep(bare, sweep, given, tmp_path / "bare.svg").read_text()


def test_the_table_has_a_row_per_dose_and_the_truth_below_each(
    data: Dataset, ridge: FittedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = Sweep.parse("dose 2,2.0000001", data.schema.treatments)
    plans = parse_plans(sweep.document(), data.schema, horizon=HORIZON)
    subject = data.panels[Part("source", "test")].names[0]
    report = estimate_outcomes(data, {"ridge": ridge}, plans, subject=subject, origin=5)
    show_answers(Output(), replace(report, truth=(np.full((HORIZON, 1), 7.5), np.full((HORIZON, 1), 8.5))), sweep)
    firsts = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert [first for first in firsts if first in {"2", "2.0000001", "truth"}] == [
        *["2", "truth", "2.0000001", "truth"],  # by step
        *["2", "2.0000001"],  # at the end
    ]


def test_averages_of_models_of_which_one_knows_no_lights_are_written_with_blanks(
    data: Dataset, ridge: FittedModel, tmp_path: Path
) -> None:
    sweep, panel = Sweep.parse("dose 0,2", data.schema.treatments), data.panels[Part("source", "test")]
    cohort = Cohort.of(panel, panel.names, origin=5)
    averager = Averager(
        cohort, parse_plans(sweep.document(), data.schema, horizon=HORIZON), *groups_of(cohort, data.schema, None)
    )
    for answers in answer_cohort("new", ridge, cohort, averager.request):
        averager.add(answers)
    old = replace(averager.finish("old", ridge, (0.9,)), ratings_GPL=None)
    new = replace(old, label="new", ratings_GPL=np.array([[[9, 2, 1], [12, 0, 0]]]))
    out = Output()
    session = Session(out, Workspace(tmp_path), resolve({}), OutputReporter(out))
    for name, found in (("a.csv", [old, new]), ("b.csv", [new, old])):
        show_average_sweep(session, found, sweep=sweep, dataset=data, csv=tmp_path / name, plot=None)
        rows = pl.read_csv(tmp_path / name)
        of_new = rows.filter((pl.col("model") == "new") & (pl.col("dose") == 0))
        assert set(of_new.select("amber", "red").rows()) == {(2, 1)}
        assert rows.filter(pl.col("model") == "old").select("amber", "red").null_count().rows() == [(9, 9)]
