"""The adapter to Chronos-2: what it reads, what it makes of quantiles, and what it refuses (spec CHRONOS-1 to 3).

A stand-in with the interface of `chronos.Chronos2Pipeline` answers; where the package is installed, that itself does,
with random weights.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from costar_cli.cli.benchmarking.run import _methods
from costar_cli.data import Dataset, Queries
from costar_cli.errors import ArtifactError, MismatchError, UsageError
from costar_cli.methods import METHODS
from costar_cli.methods.chronos import weights
from costar_cli.methods.chronos.model import FORECASTS
from costar_cli.methods.chronos.settings import ChronosConfig
from costar_cli.methods.chronos.weights import CONFIG, FETCH, TENSORS
from costar_cli.settings.resolve import resolve
from costar_cli.testing import check_method
from tests.fits import artifact_of, model_of
from tests.methods.chronos_worlds import SD, FakePipeline, fake_chronos, fake_settings, folder_of_weights
from tests.methods.linear_worlds import fit, random_dataset

__all__ = ["fake_chronos"]

REAL = weights.load_pipeline  # before the stand-in takes its place


def world() -> Dataset:
    return random_dataset((2, 2, 2, 1), one_hot=False, horizon=3, n=12)


def asked(plans: list[list[list[int]]], origins: list[int], subject: int = 0) -> Queries:
    """Of one subject, a plan from each origin."""
    return Queries(
        np.full(len(plans), subject, dtype=np.int32), np.array(origins, dtype=np.int16), np.array(plans, dtype=np.uint8)
    )


def test_a_forecast_reads_the_history_and_each_treatment_at_the_step_after_it(fake_chronos: FakePipeline) -> None:
    data = world()
    panel, model = data.panel("target", "test"), model_of(fit(data, "chronos", fake_settings()))
    n = int(panel.length.argmax())
    read: list[dict[str, np.ndarray]] = []
    predict, plan = fake_chronos.predict_quantiles, [[1, 0], [0, 1], [1, 1]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            fake_chronos, "predict_quantiles", lambda **asked: (read.extend(asked["inputs"]), predict(**asked))[1]
        )
        model.rollout(panel, asked([plan], [4], n))
    assert [len(one["future_covariates"]["a0"]) for one in read] == [1, 2, 3]
    for one in read:
        np.testing.assert_array_equal(one["target"], panel.outcomes[n, :5].T)
        past = one["past_covariates"]
        assert sorted(past) == ["a0", "a1", "x0", "x1"]
        for i in range(2):
            np.testing.assert_array_equal(past[f"x{i}"], panel.covariates[n, :5, i])
            np.testing.assert_array_equal(past[f"a{i}"], [np.nan, *panel.treatments[n, :4, i]])
            given = [step[i] for step in plan][: len(one["future_covariates"]["a0"])]
            np.testing.assert_array_equal(one["future_covariates"][f"a{i}"], given)


def test_estimates_are_means_with_the_spread_of_quantiles_and_differences_have_no_level() -> None:
    data = world()
    panel, model = data.panel("target", "test"), model_of(fit(data, "chronos", fake_settings()))
    queries = asked([[[1, 0], [0, 0]]], [1])
    known, (level,) = model.predict_distribution(panel, queries), model.rollout(panel, queries)
    assert known is not None
    y_TY, x_TX, a_TA = (values[0, :2] for values in (panel.outcomes, panel.covariates, panel.treatments))
    past_Y = y_TY.mean(axis=0) + 0.1 * sum(np.mean([0, *x_T]) for x_T in x_TX.T)
    past_Y = past_Y + 0.1 * sum(np.mean([0, a_T[0]]) for a_T in a_TA.T)
    np.testing.assert_allclose(level[0], [past_Y + 0.4, past_Y + 0.1], rtol=1e-5)
    np.testing.assert_array_equal(known.mean[0], level)
    np.testing.assert_allclose(known.sd, SD, rtol=1e-4)
    assert (known.sd_parameter == 0).all()
    assert (model.varies, model.is_joint, model.tells_differences) == (True, False, False)
    assert model.predict_distribution(panel, queries, np.array([True, False])) is None


def test_queries_that_share_a_history_and_the_beginning_of_a_plan_share_a_forecast(fake_chronos: FakePipeline) -> None:
    data = world()
    panel, model = data.panel("target", "test"), model_of(fit(data, "chronos", fake_settings()))
    fake_chronos.asked.clear()
    both, none = [1, 1], [0, 0]
    model.rollout(panel, asked([[both, both], [both, none], [both, both], [both, both]], [1, 1, 1, 0]))
    assert fake_chronos.asked == [2, 3]
    fake_chronos.asked.clear()
    many = Queries(np.zeros(600, np.int32), np.zeros(600, np.int16), np.random.default_rng(0).random((600, 1, 2)))
    model.rollout(panel, many)
    assert fake_chronos.asked == [FORECASTS, FORECASTS, 600 - 2 * FORECASTS]


def test_few_shot_takes_the_sources_weights_unless_others_are_named(tmp_path: Path) -> None:
    data = world()
    source = model_of(fit(data, "chronos", fake_settings()))
    again = model_of(fit(data, "chronos", ChronosConfig(), domain="target", start=source))
    assert again.record.facts["weights"] == source.record.facts["weights"] == fake_settings().weights
    other = ChronosConfig(weights=str(folder_of_weights(tmp_path)))
    moved = model_of(fit(data, "chronos", other, domain="target", start=source))
    assert moved.record.facts["weights"] == str(tmp_path)


def test_without_weights_there_is_one_error_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs the weights") as refused:
        fit(world(), "chronos")
    assert (refused.value.where, refused.value.fix) == ("chronos.weights", FETCH)
    (tmp_path / CONFIG).write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"a pickle, which nothing reads")
    with pytest.raises(UsageError, match=f"no file `{TENSORS}`") as refused:
        fit(world(), "chronos", ChronosConfig(weights=str(tmp_path)))
    assert refused.value.where == str(tmp_path)


def test_weights_that_were_replaced_since_the_fit_are_refused(tmp_path: Path) -> None:
    data, settings = world(), ChronosConfig(weights=str(folder_of_weights(tmp_path)))
    trained = fit(data, "chronos", settings)
    panel, queries = data.panel("target", "test"), asked([[[1, 0]]], [1])
    answers = model_of(trained).rollout(panel, queries)
    assert np.isfinite(answers).all()
    for name in (CONFIG, TENSORS):
        kept = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(b"other")
        with pytest.raises(MismatchError, match="not those that the model was fitted with") as refused:
            model_of(trained).rollout(panel, queries)
        assert refused.value.where == str(tmp_path)
        (tmp_path / name).write_bytes(kept)
    np.testing.assert_array_equal(model_of(trained).rollout(panel, queries), answers)


@pytest.mark.parametrize("change", [{"weights": 3}, {"weights": None}, {"weights_sha256": {CONFIG: "0"}}])
def test_a_file_that_does_not_say_which_weights_is_refused(change: dict[str, object]) -> None:
    content = artifact_of(fit(world(), "chronos", fake_settings()))
    METHODS["chronos"].load(content)
    with pytest.raises((ArtifactError, ValueError), match="does not name a folder of weights"):
        METHODS["chronos"].load(replace(content, meta={**content.meta, **change}))


def benchmarked(methods: str, environ: dict[str, str]) -> tuple[list[str], list[str]]:
    """The methods of a benchmark, and its notes."""
    notes = list[str]()
    settings = resolve({}, environ={"COSTAR_BENCHMARK_METHODS": methods, **environ})
    made = _methods(SimpleNamespace(settings=settings, reporter=SimpleNamespace(note=notes.append)), ["zero-shot"])
    return [method.name for method in made], notes


def test_all_methods_of_a_benchmark_leave_it_out_with_a_note_until_there_are_weights() -> None:
    label = METHODS.label("chronos")
    assert label.endswith("(forecast, does not adjust)")
    chosen, notes = benchmarked("all", {})
    assert set(METHODS) - set(chosen) == {"chronos"}
    assert notes == [f"{label} needs `chronos.weights`: skipped"]
    assert benchmarked("all", {"COSTAR_CHRONOS_WEIGHTS": "folder"}) == (sorted(METHODS, key=METHODS.place), [])
    assert benchmarked("ridge,chronos", {}) == (["ridge", "chronos"], [])


def test_it_is_in_no_list_and_never_suggested() -> None:
    assert "chronos" not in {*METHODS.short_list(), *METHODS.suggested()}


def test_without_the_package_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "chronos", None)
    with pytest.raises(UsageError, match="Chronos-2 cannot be imported") as refused:
        REAL(tmp_path, ("no", "digest"), "cpu")
    assert refused.value.fix == "`pip install 'costar[chronos]'`"


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a small Chronos-2 of random weights, which the package itself answers by."""
    chronos2 = pytest.importorskip("chronos.chronos2", reason="needs costar[chronos]")
    import torch
    from chronos.chronos2.config import Chronos2CoreConfig
    from safetensors.torch import save_file

    forecasting = {
        "context_length": 64, "output_patch_size": 4, "input_patch_size": 4, "input_patch_stride": 4,
        "quantiles": [0.01, *(round(0.05 * i, 2) for i in range(1, 20)), 0.99], "use_reg_token": True,
        "use_arcsinh": True, "max_output_patches": 8,
    }  # fmt: skip
    config = Chronos2CoreConfig(
        d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, initializer_factor=0.7, chronos_config=forecasting
    )
    torch.manual_seed(0)
    save_file(chronos2.Chronos2Model(config).state_dict(), tmp_path / TENSORS)
    (tmp_path / CONFIG).write_text(json.dumps(config.to_dict()))
    monkeypatch.setattr(weights, "load_pipeline", REAL)
    yield tmp_path
    REAL.cache_clear()


def test_the_package_itself_keeps_the_invariants(tiny: Path) -> None:
    check_method(METHODS["chronos"], settings=ChronosConfig(weights=str(tiny)))


def test_the_plan_reaches_a_forecast_of_the_package_itself(tiny: Path) -> None:
    data = world()
    panel, model = data.panel("target", "test"), model_of(fit(data, "chronos", ChronosConfig(weights=str(tiny))))
    n = int(panel.length.argmax())
    plans = [[[0, 0], [0, 0], [0, 0]], [[0, 0], [1, 0], [0, 0]], [[0, 0], [0, 1], [0, 0]]]
    queries = asked(plans, [int(panel.length[n]) - 1] * 3, n)
    answers = model.rollout(panel, queries)[0]
    np.testing.assert_allclose(answers[:, 0], answers[[0, 0, 0], 0], rtol=1e-5)
    assert (np.abs(answers[1:, 1:] - answers[:1, 1:]) > 1e-4).all()
    assert (np.abs(answers[1, 1:] - answers[2, 1:]) > 1e-4).all()
    known = model.predict_distribution(panel, queries)
    assert known is not None
    assert np.isfinite(known.sd).all()  # random quantiles may cross
    np.testing.assert_array_equal(known.mean[0], answers)


@pytest.mark.parametrize("damage", ["config", "tensors"])
def test_files_that_are_not_of_chronos_2_are_one_error(tiny: Path, damage: str) -> None:
    if damage == "config":
        (tiny / CONFIG).write_text('{"model_type": "t5"}')
    else:
        (tiny / TENSORS).write_bytes(b"not tensors")
    with pytest.raises(UsageError, match="not weights of Chronos-2") as refused:
        fit(world(), "chronos", ChronosConfig(weights=str(tiny)))
    assert refused.value.where == str(tiny)
