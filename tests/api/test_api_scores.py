"""Gates, regret and benchmarks from Python: what the command line finds, without printing it."""

import json

import pytest

import costar_cli as costar
from costar_cli.cli.app import main

pytestmark = pytest.mark.filterwarnings("ignore::costar_cli.errors.CostarWarning")
SMALL = {"train": 16, "val": 8, "test": 6, "target_train": 6, "target_val": 6, "target_test": 6}
EXACT = 2.00000001  # six digits would make it 2


@pytest.fixture(scope="module")
def linear() -> costar.Dataset:
    return costar.simulate("linear", preset="quick", seed=1, **SMALL)


@pytest.fixture(scope="module")
def mean(linear) -> costar.Model:
    return costar.fit(linear, "mean")


def test_gates_and_regret_are_those_of_the_command_line(linear, mean, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)  # whose workspace the verb locks
    linear.save(tmp_path / "data.h5")
    mean.save(tmp_path / "mean.h5")
    gates = ["zero-shot.mean.average > 0", "supervised.mine.tau2 > 1e6"]
    verdicts = costar.judge_gates(costar.evaluate_models(mean, linear), gates, models={"mine": mean})
    regret = costar.score_search(mean, linear, frame="polars")
    capsys.readouterr()
    words = ["evaluate", "--data", tmp_path / "data.h5", "-m", tmp_path / "mean.h5", "--no-plots", "--search"]
    words += ["--out", tmp_path / "e.h5", "--fail-if", gates[0], "--fail-if", "supervised.mean.tau2 > 1e6", "--json"]
    code, document = main([str(word) for word in words]), json.loads(capsys.readouterr().out)
    assert code == 10
    assert [verdict.verdict for verdict in verdicts] == ["failed", "passed"]
    assert [verdict.value for verdict in verdicts] == [gate["value"] for gate in document["result"]["gates"]]
    assert regret["mean"].to_list() == [row["mean"] for row in document["result"]["search"]]


def test_gates_that_are_about_nothing_are_refused(linear, mean):
    scores = costar.evaluate_models(mean, linear, bootstrap=0)
    with pytest.raises(costar.CostarError, match="no model of the method 'ridge'"):
        costar.judge_gates(scores, "zero-shot.ridge.average > 1")


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda model, data: costar.score_search({}, data), "models="),
        (lambda model, data: costar.score_search(model, data, minimise=3), "minimise="),
        (lambda model, data: costar.judge_gates(3, "zero-shot.mean.average > 1"), "scores="),
        (lambda model, data: costar.benchmark_methods(data, "runs"), "dataset="),
        (lambda model, data: costar.benchmark_methods("linear", "runs", workers="2"), "workers="),
        (lambda model, data: costar.benchmark_methods("linear", "runs", workers=0), "workers="),
    ],
)
def test_arguments_of_the_wrong_kind_are_named(call, where, linear, mean, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(costar.CostarError) as caught:
        call(mean, linear)
    assert caught.value.where == where
    assert caught.value.fix
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ({"by": "uper"}, "did you mean 'upper'"),
        ({"width": 3}, "no argument 'width'"),
        ({"at_mots": "a 1"}, "did you mean 'at_most'"),
        ({"steps": "3"}, "'3' is no whole number"),
        ({"beam": 2.5}, "2.5 is no whole number"),
        ({"level": "0.9"}, "'0.9' is no number"),
        ({"minimise": 3}, "3 is no text"),
        ({"at_least": ["a 1", 2]}, "2 is no text"),
    ],
)
def test_words_that_a_search_does_not_understand_are_named(words, problem, linear, mean):
    subject = int(linear.panels["source", "test"].subject_id[0])
    with pytest.raises(costar.CostarError) as caught:
        costar.search_plans(mean, linear, subject=subject, **words)
    assert problem in str(caught.value)
    assert caught.value.where == f"{next(iter(words))}="


def test_a_sweep_is_made_once_and_returned_as_a_frame(tmp_path, capsys):
    how = {
        "methods": ["mean"],
        "data_seeds": [3, 5],
        "plots": False,
        "preset": "quick",
        "evaluate": {"bootstrap": 0},
        **SMALL,
    }
    swept = costar.benchmark_methods("linear", tmp_path / "runs", gamma=[EXACT], **how)
    frame = swept.to_frame()
    assert set(frame["gamma"]) == {EXACT}
    assert set(frame["name"]) == {"mean", "last-value"} | set(frame["name"][frame["basis"] == "limit"])
    assert (frame["data_sets"].dropna() == 2).all()
    assert swept.reports[EXACT].seeds == (3, 5)
    assert {"sweep.tex", "gamma-2.00000001"} <= {path.name for path in (tmp_path / "runs").iterdir()}
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*.h5")}
    costar.benchmark_methods("linear", tmp_path / "runs", gamma=[EXACT], **how)
    assert made == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*.h5")}
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ({"methods": "maen"}, "did you mean `mean`"),
        ({"methods": "mean", "gama": 4}, "no such setting, did you mean `gamma`"),
        ({"methods": "mean", "gamma": [1, 1]}, "1 occurs twice"),
        ({"methods": "mean", "gamma": [1e-7, 1e-7]}, "1e-07 occurs twice"),
        ({"methods": "mean", "gamma": [1, 1234567.5]}, "1234567.5: gamma"),
        ({"methods": "mean", "data_seeds": [7]}, "7 is a single seed"),
        ({"methods": "mean", "data_seeds": [4, 4]}, "a seed occurs twice"),
    ],
)
def test_a_benchmark_that_is_not_understood_writes_nothing(words, problem, tmp_path):
    with pytest.raises(costar.CostarError) as caught:
        costar.benchmark_methods("linear", tmp_path / "runs", **words)
    assert problem in str(caught.value)
    assert not (tmp_path / "runs").exists()
