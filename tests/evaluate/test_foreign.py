"""Predictions of other programs are scored as the models are that they could have come from."""

from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import ndtri

from costar_cli.config.models import EvaluateConfig
from costar_cli.data import Dataset
from costar_cli.data.store import read_dataset
from costar_cli.data.table.export import queries_to_frame
from costar_cli.errors import DataError, MismatchError
from costar_cli.evaluation import run_evaluation
from costar_cli.evaluation.foreign import ForeignModel, read_predictions
from costar_cli.evaluation.setups import Candidate
from costar_cli.methods import load_model
from tests.contract.outputs import WORLD

CONFIG = EvaluateConfig(bootstrap=0)


@cache
def data() -> Dataset:
    return read_dataset(WORLD / "tumor" / "data.h5")


@cache
def asked() -> pl.DataFrame:
    return queries_to_frame(data()).drop("tumour_volume")


def predicted(method: str) -> tuple[Candidate, np.ndarray]:
    model = load_model(WORLD / "tumor" / f"model-{method}.h5")
    sets = [(data().panels[part], queries) for part, sets in data().queries.items() for queries in sets.values()]
    values = [model.rollout(panel, queries).mean(axis=0).ravel() for panel, queries in sets]
    return Candidate(model), np.concatenate(values)


def written(path: Path, estimate: np.ndarray, **columns: object) -> Path:
    frame = asked().select("set", "query", "step").with_columns(estimate=pl.Series(estimate))
    frame = frame.with_columns(**{name: pl.Series(values) for name, values in columns.items()})
    frame.write_parquet(path) if path.suffix == ".parquet" else frame.write_csv(path)
    return path


def read(path: Path) -> ForeignModel:
    return read_predictions(path, data(), trained="source")


def scored(*models: ForeignModel | Candidate, setups=("zero-shot", "supervised")):
    candidates = [one if isinstance(one, Candidate) else Candidate(one, name=one.method) for one in models]
    return run_evaluation(data(), candidates, CONFIG, setups=setups)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_the_predictions_of_a_model_have_its_errors(tmp_path, ending):
    candidate, estimate = predicted("ridge")
    report = scored(candidate, read(written(tmp_path / f"mine.{ending}", estimate)))
    for setup in ("zero-shot", "supervised"):
        own, theirs = report.row(setup, candidate.label), report.row(setup, "mine")
        np.testing.assert_allclose(own.mean.array, theirs.mean.array, rtol=1e-5)
        assert theirs.calibration == {}  # it states no uncertainty


def test_rows_may_come_in_any_order_and_steps_that_no_score_is_of_may_be_missing(tmp_path):
    _, estimate = predicted("ridge")
    whole = scored(read(written(tmp_path / "whole.parquet", estimate)))
    frame = pl.read_parquet(tmp_path / "whole.parquet").filter(asked()["scored"] == 1)
    frame.sample(fraction=1, shuffle=True, seed=0).write_parquet(tmp_path / "some.parquet")
    some = scored(read(tmp_path / "some.parquet"))
    assert len(frame) < len(estimate)
    for setup in ("zero-shot", "supervised"):
        assert some.row(setup, "some").mean == whole.row(setup, "whole").mean


def noisy_truth(sd: float) -> np.ndarray:
    truth = queries_to_frame(data())["tumour_volume"].to_numpy()
    return truth + np.random.default_rng(0).normal(scale=sd, size=len(truth))


def coverage(report, label: str, level: str = "0.9") -> float:
    return report.row("zero-shot", label).calibration[level].coverage.average


def test_bands_by_sd_by_quantiles_and_by_samples_are_the_same_and_keep_their_level(tmp_path):
    estimate, sd = noisy_truth(3.0) + 50, 3.0  # far from zero, below which volumes are clipped
    tails = np.round(np.concatenate([np.arange(0.025, 0.5, 0.025), np.arange(0.5, 1, 0.025)]), 3)
    by_sd = read(written(tmp_path / "sd.parquet", estimate, sd=np.full(len(estimate), sd)))
    quantiles = {f"q{tail}": estimate + sd * ndtri(tail) for tail in tails}
    by_quantile = read(written(tmp_path / "quantiles.parquet", estimate, **quantiles))
    keys = asked().select("set", "query", "step")
    draws = [
        keys.with_columns(estimate=pl.Series(estimate + sd * ndtri((i + 0.5) / 200)), sample=pl.lit(i))
        for i in range(200)
    ]
    pl.concat(draws).write_parquet(tmp_path / "samples.parquet")
    report = scored(by_sd, by_quantile, read(tmp_path / "samples.parquet"), setups=["zero-shot"])
    of_sd, of_quantile, of_sample = (
        report.row("zero-shot", name).calibration["0.9"] for name in ("sd", "quantiles", "samples")
    )
    np.testing.assert_allclose(of_sd.width.array, of_quantile.width.array, rtol=1e-3)
    np.testing.assert_allclose(of_sd.width.array, of_sample.width.array, rtol=2e-2)
    in_unit = report.unit.factor / report.unit.denominator[0]
    assert of_sd.width.average == pytest.approx(2 * ndtri(0.95) * sd * in_unit, rel=1e-2)


def test_bands_of_the_right_sd_cover_what_they_say_and_narrow_ones_do_not(tmp_path):
    estimate = noisy_truth(3.0)
    right = read(written(tmp_path / "right.parquet", estimate, sd=np.full(len(estimate), 3.0)))
    narrow = read(written(tmp_path / "narrow.parquet", estimate, sd=np.full(len(estimate), 1.0)))
    report = scored(right, narrow, setups=["zero-shot"])
    assert coverage(report, "right") == pytest.approx(0.9, abs=0.04)
    assert coverage(report, "narrow") < 0.55


def test_levels_beyond_the_stated_quantiles_have_no_band(tmp_path):
    estimate = noisy_truth(3.0)
    stated = {f"q{tail}": estimate + 3 * ndtri(tail) for tail in (0.1, 0.5, 0.9)}
    calibration = scored(read(written(tmp_path / "q.parquet", estimate, **stated))).row("zero-shot", "q").calibration
    assert calibration["0.8"].coverage.average is not None
    assert calibration["0.9"].coverage.average is None


def test_predictions_for_one_part_are_scored_in_its_set_up_alone(tmp_path):
    _, estimate = predicted("ridge")
    path = written(tmp_path / "half.parquet", estimate)
    part = np.concatenate(
        [np.full(len(q) * q.horizon, str(part)) for part, sets in data().queries.items() for q in sets.values()]
    )
    pl.read_parquet(path).filter(pl.Series(part) == "target/test").write_parquet(path)
    report = scored(read(path), setups=None)
    assert {row.setup for row in report.rows} == {"zero-shot"}
    with pytest.raises(MismatchError, match="no predictions are for source/test"):
        scored(read(path), setups=["supervised"])


FAULTS = {
    "a column is missing": (lambda f: f.drop("estimate"), "no column"),
    "a query is unknown": (lambda f: f.with_columns(query=pl.col("query") + 10**6), "answer no query"),
    "an answer is missing": (lambda f: f.filter(asked()["scored"] == 1).slice(1), "1 of .* have no answer"),
    "a step is answered twice": (lambda f: pl.concat([f, f.head(1)]), "answered twice"),
    "an estimate is no number": (lambda f: f.with_columns(estimate=pl.lit(float("nan"))), "no finite number"),
    "an sd is negative": (lambda f: f.with_columns(sd=pl.lit(-1.0)), "negative"),
    "quantiles cross": (lambda f: f.with_columns(**{"q0.1": pl.lit(1.0), "q0.9": pl.lit(0.0)}), "not in order"),
    "nothing is answered": (lambda f: f.clear(), "no query of a test split is answered"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_cannot_be_scored_is_one_error_with_its_place(tmp_path, fault):
    change, words = FAULTS[fault]
    path = written(tmp_path / "bad.parquet", np.zeros(len(asked())))
    change(pl.read_parquet(path)).write_parquet(path)
    with pytest.raises(DataError, match=words) as caught:
        read(path)
    assert str(path) in str(caught.value.where)


def test_a_question_that_the_file_does_not_answer_is_refused(tmp_path):
    model = read(written(tmp_path / "mine.parquet", np.zeros(len(asked()))))
    part, queries = next((part, queries) for part, sets in data().queries.items() for queries in sets.values())
    other = queries.take(np.arange(1))
    with pytest.raises(DataError, match="not answered"):
        model.rollout(data().panels[part], type(other)(other.subject, other.origin, 1 - other.plan))
