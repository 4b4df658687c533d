"""Answers of the Python API: those of `costar whatif`, for many subjects, as frames of pandas and polars."""

import json
import subprocess
import sys
import warnings
from importlib import import_module

import numpy as np
import pandas as pd
import polars as pl
import pytest

import costar_cli as costar
from costar_cli.cli.app import main
from costar_cli.data import Part
from costar_cli.errors import DataError, MismatchError, UsageError

PLANS = {"watch": [{}] * 3, "chemo": [{"chemotherapy": 1}, {}], "both": [{"chemotherapy": True, "radiotherapy": "on"}]}
TEST = Part("target", "test")


@pytest.fixture(autouse=True)
def poor_models():
    """The models of these tests are too small to beat the last value, and a ridge regression: they say so."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "worse than the last value", costar.CostarWarning)
        warnings.filterwarnings("ignore", ".*: worse than the last value", costar.CostarWarning)
        warnings.filterwarnings("ignore", "model `ridge` forecasts and does not adjust", costar.CostarWarning)
        yield


def test_many_subjects_are_answered_as_one_is(dataset, model):
    panel = dataset.panels[TEST]
    predicted = model.predict(dataset, PLANS, part="target/test", truth=True)
    assert list(predicted["subject"].unique()) == panel.subject_id.tolist()
    assert len(predicted) == panel.n_subjects * 6
    for subject in panel.subject_id.tolist():
        asked = costar.estimate_outcomes(model, dataset, PLANS, subject=subject, truth=True).to_frame()
        mine = predicted[predicted["subject"] == subject].reset_index(drop=True)
        same = ["plan", "step", "time", "outcome", "unit", "level", "interval_kind"]
        pd.testing.assert_frame_equal(mine[same], asked[same])
        for name in ("estimate", "lower", "upper", "truth"):
            np.testing.assert_allclose(mine[name], asked[name], rtol=1e-4, atol=1e-4)


def test_an_answer_is_that_of_the_command_line(dataset, model, tmp_path, capsys):
    dataset.save(tmp_path / "data.h5")
    model.save(tmp_path / "model.h5")
    (tmp_path / "plan.json").write_text(json.dumps({"plans": PLANS, "origin": 3}))
    files = ["--data", str(tmp_path / "data.h5"), "--model", str(tmp_path / "model.h5")]
    subject = str(dataset.panels[TEST].subject_id[0])
    assert main(["whatif", "--subject", subject, "--plan", str(tmp_path / "plan.json"), *files, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["result"]
    report = costar.estimate_outcomes(model, dataset, tmp_path / "plan.json", subject=subject)
    asked = report.to_json()
    assert [row | {"model": "costar"} for row in printed["estimates"]] == asked["estimates"]
    assert report.to_frame("polars", differences=True).height == len(printed["differences"])


def test_averages_are_those_of_the_command_line(dataset, ridge, tmp_path, capsys):
    dataset.save(tmp_path / "data.h5")
    ridge.save(tmp_path / "model.h5")
    (tmp_path / "plan.json").write_text(json.dumps({"plans": PLANS, "origin": 4}))
    files = [
        "--data",
        str(tmp_path / "data.h5"),
        "--model",
        str(tmp_path / "model.h5"),
        "--csv",
        str(tmp_path / "a.csv"),
    ]
    asked = ["--subjects", "target/test", "--plan", str(tmp_path / "plan.json"), "--average", "--by", "patient_type"]
    assert main(["whatif", *asked, *files, "--truth", "--reference", "chemo"]) == 0
    capsys.readouterr()
    printed = pd.read_csv(tmp_path / "a.csv")
    found = ridge.average(
        dataset, PLANS, part="target/test", origin=4, by="patient_type", truth=True, reference="chemo"
    )
    assert set(found["quantity"]) == {"outcome", "difference"}
    assert set(found.loc[found["quantity"] == "difference", "reference"]) == {"chemo"}
    assert found["group"].nunique() > 1
    for name in ("group", "plan", "step", "moments"):
        assert found[name].tolist() == printed[name].tolist()
    np.testing.assert_allclose(found[["estimate", "truth"]], printed[["estimate", "truth"]], rtol=1e-5, atol=1e-5)


def test_averages_of_an_ensemble_have_no_interval_and_say_why(dataset, model, monkeypatch):
    monkeypatch.setattr(import_module("costar_cli.inference.draws"), "LEAST_MEMBERS", 2)  # quick ones have 2
    found = model.average(dataset, PLANS, part="source/train", origin=4)
    [kind] = set(found["interval_kind"])
    assert kind.startswith("none (members of an ensemble learn from the same subjects and shrink effects alike")
    assert found[["lower", "upper"]].isna().all(axis=None)
    assert found["estimate"].notna().all()


def test_what_compares_plans_by_a_regression_warns_that_differences_are_no_effects(dataset, ridge):
    one = {"chemo": PLANS["chemo"]}
    for ask in (ridge.predict, ridge.average):
        with pytest.warns(costar.CostarWarning, match="model `ridge` forecasts and does not adjust"):
            ask(dataset, PLANS, part="target/test", origin=4)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "model `ridge` forecasts", costar.CostarWarning)
            ask(dataset, one, part="target/test", origin=4)
    with pytest.warns(costar.CostarWarning, match="model `ridge` forecasts and does not adjust"):
        ridge.search(dataset, minimise="tumour_volume at end", steps=2, part="target/test", origin=4)


def test_searches_are_those_of_the_command_line(dataset, ridge, tmp_path, capsys):
    dataset.save(tmp_path / "data.h5")
    ridge.save(tmp_path / "model.h5")
    files = [
        "--data",
        str(tmp_path / "data.h5"),
        "--model",
        str(tmp_path / "model.h5"),
        "--csv",
        str(tmp_path / "a.csv"),
    ]
    goal = ["--minimise", "tumour_volume at end", "--at-most", "chemotherapy 1", "--steps", "3", "--unsupported"]
    assert main(["search", "--subjects", "target/test", "--origin", "4", *goal, *files]) == 0
    capsys.readouterr()
    printed = pd.read_csv(tmp_path / "a.csv")
    asked = {"minimise": "tumour_volume at end", "at_most": ["chemotherapy 1"], "steps": 3, "unsupported": True}
    found = ridge.search(dataset, part="target/test", origin=4, **asked)
    for name in ("subject", "rank", "plan", "considered"):
        assert found[name].fillna(0).tolist() == printed[name].fillna(0).tolist()
    np.testing.assert_allclose(found["objective"], printed["objective"], rtol=1e-5, atol=1e-5)
    assert (found.loc[found["rank"].notna(), "plan"].str.count("chemotherapy") <= 1).all()
    first = found["subject"].iloc[0]
    table = (
        history(dataset)
        .query("patient == @who", local_dict={"who": f"P{first}"})
        .rename(columns={"patient": "subject", "day": "time"})
    )
    new = ridge.search(table, origin=4, **asked, frame="polars")
    assert new["plan"].to_list()[0] == found["plan"].iloc[0]
    with pytest.raises(UsageError, match="3 problems") as caught:
        ridge.search(dataset, minimise="volume at end", at_most="chemo 2", level=3, part="target/test")
    assert "did you mean 'chemotherapy'" in str(caught.value)
    with pytest.raises(UsageError, match="cannot search plans for Panel"):
        ridge.search(dataset.panels[TEST], **asked)


def test_subjects_may_have_plans_of_their_own(dataset, ridge, tmp_path):
    first, second, *_ = dataset.panels[TEST].subject_id.tolist()
    (tmp_path / "plans.csv").write_text(
        f"subject,plan,step,chemotherapy\n{first},mine,1,1\n{second},mine,1,0\n{second},mine,2,1\n"
    )
    found = ridge.predict(dataset, tmp_path / "plans.csv", subjects=[first, second])
    assert found[["subject", "step"]].to_numpy().tolist() == [[first, 1], [second, 1], [second, 2]]
    with pytest.raises(UsageError, match=r"the table of plans has none for \d+ subjects"):
        ridge.predict(dataset, tmp_path / "plans.csv", part="target/test")
    panel = dataset.panels[TEST]
    own = ridge.predict(panel.take(np.arange(2)), tmp_path / "plans.csv")
    assert own["estimate"].tolist() == found["estimate"].tolist()
    with pytest.raises(UsageError, match=r"the table of plans has none for \d+ subjects"):
        ridge.predict(panel, tmp_path / "plans.csv")
    with pytest.raises(UsageError, match="1 subject that is not in the data"):
        ridge.predict(panel.take(np.arange(1)), tmp_path / "plans.csv")


def test_a_plan_lasts_until_a_step_counted_from_the_origin_that_is_asked_for(dataset, ridge):
    subject = dataset.panels[TEST].subject_id.tolist()[0]
    found = ridge.predict(dataset, {"a": {"repeat": {}, "until": 5}}, subjects=[subject], origin=3)
    assert found["time"].max() <= 6
    assert found["origin"].unique().tolist() == [3]


def test_frames_are_of_the_library_asked_for(dataset, model):
    tidy, plain = (model.predict(dataset, PLANS, part="source/test", frame=name) for name in ("polars", "pandas"))
    assert isinstance(tidy, pl.DataFrame)
    assert isinstance(plain, pd.DataFrame)
    assert tidy.columns == list(plain.columns)
    known = plain.astype(object).where(plain.notna(), None)
    assert tidy.rows() == list(known.itertuples(index=False, name=None))
    with pytest.raises(UsageError, match="pandas or polars, not 'arrow'"):
        model.predict(dataset, PLANS, frame="arrow")


def test_plans_can_be_a_list_a_document_or_a_file(dataset, model, tmp_path):
    (tmp_path / "plan.json").write_text('{"origin": 2, "plans": {"plan": [{"chemotherapy": 1}]}}')
    forms = [
        (tmp_path / "plan.json", {}),
        ({"origin": 2, "plans": {"plan": [{"chemotherapy": np.int64(1)}]}}, {}),
        ([{"chemotherapy": 1}], {"origin": 2}),
        ({"repeat": {"chemotherapy": 1}, "times": 1}, {"origin": 2}),
    ]
    first, *others = [model.predict(dataset, plans, part="source/test", **more) for plans, more in forms]
    for other in others:
        pd.testing.assert_frame_equal(first, other)
    assert set(first["origin"]) == {2}
    assert set(first["time"]) == {3}


def test_few_calibration_subjects_give_limits_at_low_levels_alone(dataset, ridge):
    subjects = dataset.panels[TEST].subject_id[:2]
    predicted = ridge.predict(dataset, PLANS, subjects=subjects.tolist(), frame="polars", level=(0.9, 0.5))
    assert set(predicted["interval_kind"]) == {"calibrated"}
    assert predicted["lower"].null_count() == predicted["level"].null_count() == predicted.height
    inside = (predicted["lower_0.5"] <= predicted["estimate"]) & (predicted["estimate"] <= predicted["upper_0.5"])
    assert inside.all()
    alone = ridge.predict(dataset, PLANS, subjects=subjects.tolist(), frame="polars")
    assert set(alone["interval_kind"]) == {"none (too few calibration subjects)"}


def test_ensembles_of_few_members_have_no_interval_and_say_so(dataset, model):
    predicted = model.predict(dataset, PLANS, part="source/test", frame="polars")
    assert set(predicted["interval_kind"]) == {"none (2 members)"}
    assert predicted["lower"].null_count() == predicted.height
    assert predicted["estimate"].null_count() == 0


def history(dataset: costar.Dataset, part: Part = TEST) -> pd.DataFrame:
    """The subjects of a part as somebody's own table."""
    panel, encoding = dataset.panels[part], dataset.schema.treatments
    row, step = np.nonzero(panel.observed)
    given = encoding.decode(panel.treatments[row, step])
    return pd.DataFrame(
        {
            "patient": [f"P{i}" for i in panel.subject_id[row]],
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(step, "D"),
            "tumour_volume": panel.outcomes[row, step, 0],
            "chemotherapy": given[:, 0],
            "radiotherapy": [encoding.levels[1][value] for value in given[:, 1]],
            "patient_type": panel.statics[row, 0],
        }
    )


def test_new_subjects_come_in_a_frame_of_either_library(dataset, model):
    known = model.predict(dataset, PLANS, part="target/test")
    table = history(dataset).sample(frac=1, random_state=1)
    for frame in (table, pl.DataFrame({name: table[name].tolist() for name in table})):
        predicted = model.predict(frame, PLANS, subject="patient", time="day")
        assert type(predicted) is type(frame)
        mine = pd.DataFrame({name: predicted[name].to_list() for name in predicted.columns})
        mine["subject"] = mine["subject"].str.removeprefix("P").astype(int)
        mine = mine.sort_values(["subject"], kind="stable").reset_index(drop=True)
        np.testing.assert_allclose(mine["estimate"], known["estimate"], rtol=1e-4, atol=1e-4)
        assert mine[["subject", "origin", "plan", "step"]].equals(known[["subject", "origin", "plan", "step"]])


def test_the_treatment_of_the_last_row_may_be_missing(dataset, model):
    table = history(dataset)
    cut = table.copy()
    cut.loc[table.groupby("patient").tail(1).index, ["chemotherapy", "radiotherapy"]] = None
    whole, without = (model.predict(frame, PLANS, subject="patient", time="day") for frame in (table, cut))
    pd.testing.assert_frame_equal(whole, without)


def test_an_outcome_that_was_not_observed_is_the_last_one(dataset, model):
    table = history(dataset)
    last = table.groupby("patient").tail(1).index
    holes, filled = table.copy(), table.copy()
    holes.loc[last, "tumour_volume"] = None
    filled.loc[last, "tumour_volume"] = table["tumour_volume"].loc[last - 1].to_numpy()
    first, second = (model.predict(frame, PLANS, subject="patient", time="day") for frame in (holes, filled))
    pd.testing.assert_frame_equal(first, second)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda t: t.drop(columns="patient_type"), "no column 'patient_type'"),
        (lambda t: t.rename(columns={"tumour_volume": "tumor_volume"}), "did you mean 'tumor_volume'"),
        (lambda t: t.assign(patient_type=range(len(t))), "changes within"),
        (lambda t: t.assign(tumour_volume="large"), "not numeric, first 'large'"),
        (lambda t: t.assign(chemotherapy="perhaps"), "that are not levels: 'perhaps' .it takes"),
        (lambda t: t.assign(patient_type=None), r"'patient_type': \d+ values missing"),
        (lambda t: pd.concat([t, t.assign(tumour_volume=1)]), "with the subject and time of another row"),
        (lambda t: t.iloc[:0], "the table has no rows"),
    ],
)
def test_a_frame_that_cannot_be_read_is_refused_with_place_and_fix(dataset, model, change, problem):
    with pytest.raises(DataError, match=problem):
        model.predict(change(history(dataset)), PLANS, subject="patient", time="day")


def test_a_question_that_does_not_fit_is_refused(dataset, model):
    frame = history(dataset)
    wrong = [
        (lambda: model.predict(dataset, PLANS, part="target"), "no split 'target'"),
        (lambda: model.predict(dataset, PLANS, subjects=[9999]), "no subject 9999"),
        (lambda: model.predict(dataset, PLANS, origin=19), "origin 19 is outside the series of"),
        (lambda: model.predict(dataset, PLANS, level=90), "level 90 is not above 0 and below 1"),
        (lambda: model.search(dataset, minimise="tumour_volume at end", origin="all"), "searched from one origin"),
        (lambda: model.predict(dataset, [{}] * 7), "has 7 steps; the model answers plans of 1 to 6"),
        (lambda: model.predict(dataset, {"a": [{"chemo": 1}]}), r"no treatment 'chemo'; did you mean 'chemotherapy'"),
        (lambda: model.predict(dataset, {"a": [{"chemotherapy": object()}]}), "not understood as plans"),
        (lambda: model.predict([1], PLANS), "cannot predict from list"),
        (lambda: model.predict(frame, PLANS, subject="patient", truth=True), "known of simulated data sets alone"),
        (lambda: model.predict(frame, PLANS, part="target/test"), "`part` chooses from a data set"),
        (lambda: costar.estimate_outcomes({}, dataset, PLANS, subject=1), "no model given"),
        (lambda: costar.estimate_outcomes("m.h5", dataset, PLANS, subject=1), "str is no model"),
        (lambda: costar.estimate_outcomes(model, "data.h5", PLANS, subject=1), "str is no data set"),
        (lambda: costar.fit("data.h5", "ridge"), "str is no data set"),
        (lambda: model.predict(dataset, PLANS, level="0.9"), "'0.9' is no number"),
    ]
    for call, problem in wrong:
        with pytest.raises(UsageError, match=problem):
            call()
    linear = costar.simulate("linear", preset="quick", train=4, val=2, test=2, target_val=2, target_test=2)
    with pytest.raises(MismatchError, match="incompatible with data set"):
        model.predict(linear, PLANS)


def test_scores_are_those_of_the_command_line(dataset, model, ridge, tmp_path, capsys):
    dataset.save(tmp_path / "data.h5")
    for one in (model, ridge):
        one.save(tmp_path / f"model-{one.method}.h5")
    place = ["--workspace", str(tmp_path), "--no-plots", "--bootstrap", "0", "--json", "--quiet"]
    assert main(["evaluate", *place]) == 0
    printed = json.loads(capsys.readouterr().out)["result"]
    report = costar.evaluate_models([model, ridge], dataset, bootstrap=0)
    rows = {(row["setup"], row["label"]): row for row in printed["rows"]}
    tidy = report.to_frame()
    assert {tuple(key) for key in tidy[["setup", "model"]].itertuples(index=False)} == set(rows)
    for (setup, label), row in rows.items():
        mine = tidy[(tidy["setup"] == setup) & (tidy["model"] == label)]
        assert mine["mean"].tolist() == [*row["mean"]["steps"], row["mean"]["average"]]
    with pytest.raises(UsageError, match="`bootstraps=`: no such setting, did you mean `bootstrap`"):
        costar.evaluate_models(model, dataset, bootstraps=0)


def test_pandas_is_enough_where_polars_is_absent():
    code = """
import importlib.abc, sys, warnings

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "polars":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
warnings.simplefilter("ignore")
import costar_cli as costar
sizes = dict(train=8, val=4, test=3, target_train=3, target_val=3, target_test=3, steps=12)
dataset = costar.simulate("tumor", **sizes)
model = costar.fit(dataset, "ridge")
print(len(model.predict(dataset, [{}], part="source/test", truth=True)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "3\n", done.stderr
