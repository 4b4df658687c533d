"""What selects models: one score for all methods, the source's weights a candidate; the last value beside it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Panel, Part, Scaler
from costar_cli.methods import METHODS
from costar_cli.methods.recurrent.settings import (
    CrnConfig,
    CrnDecoderConfig,
    CrnEncoderConfig,
    GNetConfig,
    GNetNetworkConfig,
)
from costar_cli.methods.regression.naive import LastValue
from costar_cli.methods.shared.outcome_forms import choose_forms
from costar_cli.reporting import NullReporter, both_errors
from costar_cli.training import fit as fit_module
from costar_cli.training import loop
from costar_cli.training.group import MemberRecord
from costar_cli.training.selection import Validation, ValidationWindows
from tests.fits import KilledError, die_at_step, fit_method, model_of
from tests.methods.linear_worlds import linear_data, random_dataset
from tests.train.worlds import EXACT, close, same

NETWORKS = ("costar", "rmsn", "crn", "crn-erm", "gnet", "ct", "ct-erm", "edct")
CONFIG = FinetuneConfig(epochs=3, batch_size=8, hidden=8, seed=3, patience=9)
WILD = CONFIG.model_copy(update={"updates": 12, "learning_rate": 0.5})  # steps so long that nothing is learned

WILD_NETWORKS = {
    "gnet": GNetConfig(samples=4, network=GNetNetworkConfig(learning_rate=1.0)),
    "crn": CrnConfig(encoder=CrnEncoderConfig(learning_rate=1.0), decoder=CrnDecoderConfig(learning_rate=1.0)),
}


def windows_of(dataset: Dataset, domain: str = "source", **options: int) -> ValidationWindows:
    scaler = Scaler.fit(dataset.panel("source", "train"), dataset.schema)
    windows = ValidationWindows.of(dataset.panel(domain, "val"), dataset.horizon, scaler, **options)
    assert windows is not None
    return windows


def settings(method: str):
    return GNetConfig(samples=4) if method == "gnet" else None


class Constant:
    """A model that always predicts the same."""

    def __init__(self, value: float, outcomes: int) -> None:
        self.value, self.outcomes = value, outcomes

    def rollout(self, panel: Panel, queries, **_: object) -> np.ndarray:
        assert queries.outcomes is None
        return np.full((1, len(queries), queries.horizon, self.outcomes), self.value, dtype=np.float32)


def test_the_score_is_the_error_over_all_steps_from_every_origin_in_sds_of_source_train(tumor_dataset: Dataset):
    windows, panel = windows_of(tumor_dataset), tumor_dataset.panel("source", "val")
    sd, horizon, squares = windows.scaler.outcomes[1, 0], tumor_dataset.horizon, []
    for row, length in enumerate(panel.length):
        for origin in range(length - horizon):
            squares += [((7.0 - y) / sd) ** 2 for y in panel.outcomes[row, origin + 1 : origin + 1 + horizon, 0]]
    assert len(windows.queries) * horizon == len(squares)
    np.testing.assert_allclose(windows.score(Constant(7.0, 1)), [np.sqrt(np.mean(squares))], rtol=1e-6)


def test_the_score_counts_observed_answers_alone_and_every_outcome_alike():
    dataset = random_dataset((1, 2, 2, 1), one_hot=False, n=40)
    panel = dataset.panel("source", "val")
    observed = np.ones(panel.outcomes.shape, dtype=bool)
    observed[:, ::2, 1] = False
    masked = replace(panel, outcome_observed=observed)
    scaler = Scaler.fit(dataset.panel("source", "train"), dataset.schema)
    windows = ValidationWindows.of(masked, 2, scaler)
    squares: list[list[float]] = [[], []]
    for row, length in enumerate(panel.length):
        for origin in range(length - 2):
            for step in (origin + 1, origin + 2):
                for y in (0, 1):
                    if observed[row, step, y]:
                        squares[y].append(((4.0 - panel.outcomes[row, step, y]) / scaler.outcomes[1, y]) ** 2)
    expected = np.sqrt(np.mean([np.mean(of) for of in squares]))
    np.testing.assert_allclose(windows.score(Constant(4.0, 2)), [expected], rtol=1e-6)
    changed = np.where(observed, panel.outcomes, 1e9).astype(np.float32)
    filled = ValidationWindows.of(replace(masked, outcomes=changed), 2, scaler)
    np.testing.assert_allclose(filled.score(Constant(4.0, 2)), [expected], rtol=1e-6)


@pytest.mark.parametrize("most", [7, 40, 50])
def test_a_capped_choice_of_windows_treats_subjects_alike_and_is_the_same_each_time(most, tumor_dataset: Dataset):
    whole, some, again = (windows_of(tumor_dataset, most=n) for n in (10**6, most, most))
    assert len(some.queries) <= most
    for name in ("subject", "origin", "plan"):
        np.testing.assert_array_equal(getattr(some.queries, name), getattr(again.queries, name))
    available, chosen = (np.bincount(w.panel.subject_id[w.queries.subject], minlength=10_000) for w in (whole, some))
    quota = chosen.max()
    if most >= len(np.unique(whole.queries.subject)):
        np.testing.assert_array_equal(chosen, np.minimum(available, quota))
        assert np.minimum(available, quota + 1).sum() > most
    else:
        assert quota == 1
    pairs = {*zip(some.panel.subject_id[some.queries.subject], some.queries.origin, strict=True)}
    assert len(pairs) == len(some.queries)


def test_series_shorter_than_the_horizon_are_asked_about_the_steps_that_they_have(tumor_dataset: Dataset):
    panel = tumor_dataset.panel("source", "val")
    short = replace(panel, length=np.minimum(panel.length, 4))
    scaler = Scaler.fit(tumor_dataset.panel("source", "train"), tumor_dataset.schema)
    windows = ValidationWindows.of(short, 6, scaler)
    assert windows is not None
    assert windows.queries.horizon == 3
    assert ValidationWindows.of(replace(panel, length=np.ones_like(panel.length)), 6, scaler) is None


def test_a_record_selects_by_the_score_and_keeps_the_start_until_an_epoch_is_better():
    record = MemberRecord(start_score=1.0)
    improved = [record.add_epoch(0.0, loss, 9, score) for loss, score in ((1.0, 2.0), (9.0, 0.5), (0.1, 0.5))]
    assert improved == [False, True, False]
    assert (record.best_epoch, record.best_loss) == (1, 0.5)
    patient = MemberRecord(start_score=1.0)
    assert not any(patient.add_epoch(0.0, 0.0, 2, score) for score in (2.0, 2.0))
    assert (patient.best_epoch, patient.stopped) == (-1, True)


@pytest.mark.parametrize("method", NETWORKS)
def test_every_network_keeps_the_epoch_in_which_the_whole_model_scores_best(method, tumor_dataset: Dataset):
    trained = fit_method(tumor_dataset, method, settings(method), CONFIG)
    *earlier, last = trained.meta["stages"]
    scores, best = last["history"]["selection_score"][0], last["history"]["best_epoch"][0]
    assert best == int(np.argmin(scores))
    assert not any("selection_score" in stage["history"] for stage in earlier)
    kept = windows_of(tumor_dataset).score(model_of(trained))
    validation = trained.meta["validation"]
    np.testing.assert_allclose(validation["members"], kept, rtol=1e-5)
    np.testing.assert_allclose(validation["score"], scores[best], rtol=1e-5)  # four futures of G-Net in both
    naive = LastValue(horizon=6, schema=tumor_dataset.schema, scaler=windows_of(tumor_dataset).scaler)
    np.testing.assert_allclose(validation["last_value"], windows_of(tumor_dataset).score(naive)[0])


def test_own_loss_selects_where_it_is_asked_for(tumor_dataset: Dataset):
    own = CONFIG.model_copy(update={"select_on": "own-loss"})
    for method in ("costar", "crn"):
        (last,) = fit_method(tumor_dataset, method, None, own).meta["stages"][-1:]
        assert "selection_score" not in last["history"]
        assert last["history"]["best_epoch"][0] == int(np.argmin(last["history"]["validation_loss"][0]))


@pytest.fixture(scope="module")
def shifted() -> Dataset:
    return linear_data(train=60)


# One network of each kind: which weights are kept is decided for all of them in one place.
ALIKE = {"crn-erm", "ct-erm", "ct", "edct", "rmsn"}


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ALIKE else ())
        for name in METHODS
        if name not in ("chronos", "last-value", "mean", "stack")
    ],
)
def test_few_shot_is_never_worse_than_zero_shot_on_the_validation_that_selects_it(method, shifted: Dataset):
    source = model_of(fit_method(shifted, method, settings(method), CONFIG.model_copy(update={"members": 2})))
    config = WILD.model_copy(update={"members": 2})
    few = fit_method(shifted, method, settings(method), config, domain="target", start=source)
    windows = windows_of(shifted, "target")
    before, after = windows.score(source), windows.score(model_of(few))
    assert (after <= before * (1 + 1e-6)).all()
    kept = few.meta["kept_source_members"]
    assert [r + 1 for r in range(len(before)) if np.isclose(after[r], before[r], rtol=1e-6)] == kept
    np.testing.assert_allclose(few.meta["validation"]["members"], after, rtol=1e-6)
    np.testing.assert_allclose(few.meta["validation"]["source"], before.mean(), rtol=1e-6)


@pytest.mark.parametrize(
    ("method", "select_on"),
    [("costar", "rolling-origin"), ("costar", "own-loss"), ("gnet", "own-loss"), ("crn", "rolling-origin")],
)
def test_a_few_shot_that_only_does_harm_leaves_the_sources_model(method, select_on, shifted: Dataset):
    source = model_of(fit_method(shifted, method, settings(method), CONFIG.model_copy(update={"epochs": 12})))
    config = WILD.model_copy(update={"select_on": select_on, "learning_rate": 1.0, "epochs": 2})
    parts = {
        Part("target", split): replace(shifted.panel("source", split), subject_id=ids)
        for split, ids in (("train", np.arange(60) + 10**6), ("val", np.arange(60) + 2 * 10**6))
    }
    parts |= {Part("source", "train"): shifted.panel("source", "train")}
    same_law = replace(shifted, panels=parts, queries={}, truth={})
    few = fit_method(same_law, method, WILD_NETWORKS.get(method), config, domain="target", start=source)
    assert few.meta["kept_source_members"] == [1]
    assert few.meta["support"] == source.record.support.to_meta()  # nothing was learned of the target's treatments
    panel, queries = shifted.panel("target", "test"), shifted.queries[Part("target", "test")]["sequence"]
    asked = replace(queries, outcomes=None, scored=None)
    np.testing.assert_array_equal(model_of(few).rollout(panel, asked), source.rollout(panel, asked))


def test_a_first_stage_whose_own_loss_misleads_cannot_make_few_shot_worse_than_the_source(
    shifted: Dataset, monkeypatch
):
    source = model_of(fit_method(shifted, "crn", None, CONFIG))
    validate = loop.validate

    def misled(stage, state, runtime):
        losses = validate(stage, state, runtime)
        return [-float(state.epoch) for _ in losses] if "encoder" in stage.name else losses

    monkeypatch.setattr(loop, "validate", misled)
    own_loss = WILD.model_copy(update={"select_on": "own-loss"})
    few = fit_method(shifted, "crn", WILD_NETWORKS["crn"], own_loss, domain="target", start=source)
    encoder, _ = (stage["history"]["best_epoch"] for stage in few.meta["stages"])
    assert encoder[0] >= 0
    assert few.meta["kept_source_members"] == [1]
    windows = windows_of(shifted, "target")
    np.testing.assert_allclose(windows.score(model_of(few)), windows.score(source), rtol=1e-6)


@pytest.mark.parametrize("stays", [[True, True], [True, False]], ids=["all stay", "one stays"])
def test_warnings_of_a_fit_are_told_only_of_members_that_it_moved(stays, shifted: Dataset, monkeypatch):
    config = CONFIG.model_copy(update={"members": 2, "epochs": 1})
    source = model_of(fit_method(shifted, "costar", None, config))
    source = replace(source, record=source.record.with_warnings(["the source is in doubt"]))
    method = type(METHODS["costar"].loaded)
    fit = method.fit

    def in_doubt(self, task):
        fitted = yield from fit(self, task)
        return replace(fitted, warnings=("the fit is in doubt",))

    monkeypatch.setattr(method, "fit", in_doubt)
    monkeypatch.setattr(fit_module.FitRun, "_never_moved", lambda self: np.array(stays))
    own_loss = config.model_copy(update={"select_on": "own-loss"})
    heard = NullReporter()
    warnings = fit_method(shifted, "costar", None, own_loss, domain="target", start=source, reporter=heard).meta[
        "warnings"
    ]
    assert warnings[0] == "what it started from: the source is in doubt"
    said = [warning for warning in warnings if "the fit" in warning]
    assert said == ([] if all(stays) else ["the fit is in doubt (adapted members)"])
    assert [warning for warning in heard.warnings if "the fit" in warning] == said


def test_members_that_move_and_members_that_stay_are_one_model_even_where_gnet_keeps_other_residuals(shifted: Dataset):
    config = CONFIG.model_copy(update={"members": 2})
    source = model_of(fit_method(shifted, "gnet", settings("gnet"), config))
    few = model_of(fit_method(shifted, "gnet", settings("gnet"), config, domain="target"))
    kept = np.array([True, False])
    mixed = fit_module._mixed(dict(few.params), dict(source.params), kept)
    model, windows = replace(few, params=mixed), windows_of(shifted, "target")
    assert mixed["residuals.length"].shape[1] > few.params["residuals.length"].shape[1]
    expected = np.where(kept, windows.score(source), windows.score(few))
    np.testing.assert_allclose(windows.score(model), expected, rtol=1e-6)


@pytest.mark.slow
def test_members_are_selected_alike_together_and_apart(shifted: Dataset):
    config = CONFIG.model_copy(update={"members": 3})
    for method in ("costar", "gnet", "crn"):
        together, apart = (
            fit_method(shifted, method, settings(method), config, runtime=EXACT.model_copy(update={"group": size}))
            for size in (3, 1)
        )
        close(together.arrays, apart.arrays)
        for mine, theirs in zip(*(t.meta["history"]["selection_score"] for t in (together, apart)), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_a_killed_few_shot_continues_to_the_same_weights(shifted: Dataset, tmp_path: Path, monkeypatch):
    source = model_of(fit_method(shifted, "crn", None, CONFIG))
    run = {"domain": "target", "start": source}
    whole = fit_method(shifted, "crn", None, CONFIG, **run)
    die_at_step(monkeypatch, 4)  # in the decoder
    with pytest.raises(KilledError):
        fit_method(shifted, "crn", None, CONFIG, run_state=tmp_path / "run.h5", **run)
    monkeypatch.undo()
    continued = fit_method(shifted, "crn", None, CONFIG, run_state=tmp_path / "run.h5", **run)
    assert same(whole.arrays, continued.arrays)
    assert whole.meta == continued.meta


def test_a_model_that_loses_to_the_last_value_on_validation_says_so(tumor_dataset: Dataset):
    still = {
        part: replace(panel, outcomes=panel.outcomes[:, :1] * panel.observed[..., None])
        for part, panel in tumor_dataset.panels.items()
    }
    idle = CONFIG.model_copy(update={"epochs": 1, "learning_rate": 1e-9})
    lost = fit_method(replace(tumor_dataset, panels=still, queries={}), "costar", None, idle).meta
    validation = lost["validation"]
    assert validation["score"] > validation["last_value"]
    said = f"({both_errors(validation['score'], validation['last_value'])})"
    assert f"worse than the last value carried forward on validation {said}" in lost["warnings"]
    won = fit_method(tumor_dataset, "ridge", None, CONFIG).meta
    assert won["validation"]["score"] < won["validation"]["last_value"]
    assert "warnings" not in won


def test_errors_that_differ_by_rounding_are_equal_and_others_are_shown_apart() -> None:
    lost = Validation((1.44841,), last_value=1.44838, windows=9, horizon=2)
    assert str(lost.warning) == "worse than the last value carried forward on validation (1.44841 against 1.44838)"
    assert replace(lost, members=(1.5,)).warning.text.endswith("(1.500 against 1.448)")
    assert replace(lost, members=(1.44838 * (1 + 5e-7),)).warning is None
    assert replace(lost, members=(1.44838 * (1 + 2e-6),)).warning.text.endswith("(1.448383 against 1.448380)")


def test_predictions_that_overflow_score_worse_than_any(tumor_dataset: Dataset):
    windows = windows_of(tumor_dataset)
    worst = windows.score(Constant(np.inf, 1))
    assert np.isfinite(worst).all()
    assert (worst > windows.score(Constant(1e6, 1))).all()
    assert torch.isfinite(torch.from_numpy(worst)).all()


def test_the_relative_score_is_in_the_scale_of_each_origin_and_the_reported_one_in_sds(tumor_dataset: Dataset):
    windows = windows_of(tumor_dataset)
    panel, queries = windows.panel, windows.queries
    train = tumor_dataset.panel("source", "train")
    relative = replace(windows, forms=choose_forms(train, tumor_dataset.schema, windows.scaler))
    seen = train.outcomes[train.observed_outcomes].std(dtype=np.float64)
    now_Q1 = panel.outcomes[queries.subject, queries.origin].astype(np.float64)
    error_QH = np.abs(4.0 - queries.outcomes[..., 0]) / (now_Q1 + 0.01 * seen)
    expected = np.sqrt(np.where(error_QH < 0.1, error_QH**2, 0.1 * (2 * error_QH - 0.1)).mean())
    np.testing.assert_allclose(relative.score(Constant(4.0, 1)), [expected], rtol=1e-4)
    config = CONFIG.model_copy(update={"select_on": "rolling-origin-relative"})
    trained = fit_method(tumor_dataset, "costar", None, config)
    history, model = trained.meta["stages"][-1]["history"], model_of(trained)
    best = history["best_epoch"][0]
    assert best == int(np.argmin(history["selection_score"][0]))
    np.testing.assert_allclose(relative.score(model), history["selection_score"][0][best], rtol=1e-4)
    np.testing.assert_allclose(trained.meta["validation"]["members"], windows.score(model), rtol=1e-5)
