"""COSTAR on the remainder of a closed form: what is added, how much, and where nothing may be (spec COSTAR-32)."""

from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
from pydantic import ValidationError

from costar_cli.config.models import EncoderConfig, FinetuneConfig
from costar_cli.data import Dataset, Part
from costar_cli.data.transforms import OutcomeTransforms
from costar_cli.data.windows import factual_windows
from costar_cli.errors import ArtifactError, DataError, MismatchError, UsageError
from costar_cli.methods.costar.remainder import Base, Judge, RemainderModel
from costar_cli.methods.registry import METHODS
from costar_cli.methods.shared.trained import TrainedModel
from costar_cli.methods.shared.transformed import TransformedModel
from costar_cli.methods.stored import model_of as stored_model
from costar_cli.training import Trained
from tests.fits import artifact_of, fit_method
from tests.methods.linear_worlds import linear_data

CONFIG = FinetuneConfig(
    epochs=10, members=2, batch_size=16, hidden=32, seed=3, learning_rate=0.003, decoder="stepped", remainder="mixed",
    loss="relative_huber", encoder=EncoderConfig(width=16, heads=2, clip_distance=4, inputs="relative"),
)  # fmt: skip


@cache
def bent() -> Dataset:
    """A linear world without confounding, in which every third outcome of all subjects is higher."""
    dataset = linear_data(gamma=0.0)
    panels = {}
    for part, panel in dataset.panels.items():
        added_NT = 2.0 * (np.arange(panel.n_steps) % 3 == 0) * panel.observed
        panels[part] = replace(panel, outcomes=panel.outcomes + added_NT[..., None].astype(np.float32))
    return replace(dataset, panels=panels, queries={}, truth={})


@cache
def fitted(*, bend: bool) -> RemainderModel:
    dataset = bent() if bend else linear_data()
    return stored_model(artifact_of(fit_method(dataset, "costar", None, CONFIG)))


@cache
def fitted_briefly() -> Trained:
    """A fit of one epoch, for what depends on no weight; do not change its arrays."""
    return fit_method(bent(), "costar", None, CONFIG.model_copy(update={"epochs": 1}))


def error(model, dataset: Dataset) -> float:
    windows = factual_windows(dataset.panel("source", "test"), dataset.horizon)
    off_RQHY = model.rollout(windows.panel, windows.asked) - windows.queries.outcomes
    return float(np.sqrt(np.mean(np.square(off_RQHY.mean(axis=0))[windows.observed_QHY])))


def test_what_mixed_effects_cannot_say_is_added():
    model = fitted(bend=True)
    assert model.share_RHY[:, 0].mean() > 0.5
    assert error(model, bent()) < 0.95 * error(model.base.model, bent())
    assert model.adjusts == "none"  # of what is added nobody knows whether it is an effect


def test_nothing_is_added_to_the_right_law():
    """With all of the network, errors on observed windows fall and those under plans grow sevenfold."""
    model, dataset = fitted(bend=False), linear_data()
    assert model.is_base
    assert model.adjusts == "all"
    part = Part("source", "test")
    queries = next(iter(dataset.queries[part].values()))
    asked = replace(queries, outcomes=None, scored=None)
    np.testing.assert_array_equal(
        model.rollout(dataset.panels[part], asked)[0], model.base.model.rollout(dataset.panels[part], asked)[0]
    )


def test_answers_are_those_of_mixed_effects_and_a_share_of_changes():
    model, panel = fitted(bend=True), bent().panel("source", "test")
    asked = factual_windows(panel, bent().horizon).asked
    level_QY = factual_windows(panel, bent().horizon).panel.outcomes[asked.subject, asked.origin]
    where = factual_windows(panel, bent().horizon).panel
    changes = model.network.rollout(where, asked) - level_QY[:, None]
    expected = model.base.model.rollout(where, asked) + model.share_RHY[:, None] * changes
    np.testing.assert_allclose(model.rollout(where, asked), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.answer(model.encode(where), asked), expected, rtol=1e-4, atol=1e-4)


def test_bands_have_the_noise_that_mixed_effects_know():
    model, panel = fitted(bend=True), bent().panel("source", "test")
    windows = factual_windows(panel, bent().horizon)
    known = model.predict_distribution(windows.panel, windows.asked)
    own = model.base.model.predict_distribution(windows.panel, windows.asked)
    np.testing.assert_array_equal(known.sd_noise[1], own.sd_noise[0])
    np.testing.assert_allclose(known.mean, model.rollout(windows.panel, windows.asked), rtol=1e-5, atol=1e-5)
    drawn = model.draw_outcomes(windows.panel, windows.asked, 400, seed=1)
    np.testing.assert_allclose(drawn.mean(axis=0), known.mean.mean(axis=0), atol=0.25 * known.sd.max())


def test_few_shot_keeps_the_mixed_effects_and_shares_of_the_source():
    source, config = fitted(bend=True), CONFIG.model_copy(update={"epochs": 1})
    adapted = stored_model(artifact_of(fit_method(bent(), "costar", None, config, domain="target", start=source)))
    np.testing.assert_array_equal(adapted.share_RHY, source.share_RHY)
    assert adapted.base.artifact.arrays.keys() == source.base.artifact.arrays.keys()


def test_few_shot_of_a_model_without_mixed_effects_refuses_the_setting():
    plain = CONFIG.model_copy(update={"remainder": None, "epochs": 1})
    source = stored_model(artifact_of(fit_method(bent(), "costar", None, plain)))
    target = {part: panel for part, panel in bent().panels.items() if part.domain == "target"}  # all that is read
    with pytest.raises(MismatchError, match="has no closed form under it"):
        fit_method(replace(bent(), panels=target), "costar", None, CONFIG, domain="target", start=source)


@pytest.mark.parametrize("own", [{"decoder": "structured"}, {"output": "level"}])
def test_levels_and_rolled_effects_have_no_remainder(own: dict[str, str]):
    with pytest.raises(ValidationError, match="needs a decoder that predicts changes"):
        FinetuneConfig(remainder=True, **own)


def test_a_method_that_is_no_closed_form_leaves_no_remainder():
    with pytest.raises(UsageError, match="'crn' is no closed form") as raised:
        fit_method(bent(), "costar", None, CONFIG.model_copy(update={"remainder": "crn"}))
    assert raised.value.where == "finetune.remainder"


@pytest.mark.parametrize(("written", "meant"), [("true", True), ("no", False), ("boosting", "boosting")])
def test_whether_and_which_are_one_setting(*, written: str, meant: bool | str):
    assert FinetuneConfig(remainder=written).remainder == meant


def test_few_shot_refuses_another_closed_form_than_the_source_has():
    source, config = fitted(bend=True), CONFIG.model_copy(update={"epochs": 1, "remainder": "boosting"})
    with pytest.raises(MismatchError, match="predicts the remainder of Mixed effects"):
        fit_method(bent(), "costar", None, config, domain="target", start=source)


@cache
def chosen(*, bend: bool) -> RemainderModel:
    config = CONFIG.model_copy(update={"remainder": True, "epochs": 1})
    return stored_model(artifact_of(fit_method(bent() if bend else linear_data(), "costar", None, config)))


@pytest.mark.parametrize(("bend", "method"), [(True, "boosting"), (False, "mixed")])
def test_the_closed_form_is_the_one_that_validation_prefers(*, bend: bool, method: str):
    """Trees of the last outcomes see the third step come, which no linear law does; where it holds, it is kept."""
    model = chosen(bend=bend)
    assert model.base.model.method == method
    assert model.record.facts["remainder_added"] == pytest.approx(model.share_RHY.mean())


def test_the_remainder_of_boosting_is_answered_as_one_of_a_black_box():
    model, windows = chosen(bend=True), factual_windows(bent().panel("source", "test"), bent().horizon)
    assert model.predict_distribution(windows.panel, windows.asked) is None
    drawn = model.draw_outcomes(windows.panel, windows.asked, 4, seed=1)
    answers = model.rollout(windows.panel, windows.asked)
    np.testing.assert_allclose(drawn.mean(axis=0), answers.mean(axis=0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(drawn[:2].std(axis=0), answers.std(axis=0, ddof=1), rtol=1e-3, atol=1e-4)  # of BAND-1
    alone = RemainderModel.of(model.network, model.base, np.zeros_like(model.share_RHY))
    own = model.base.model
    kept = {field.name: getattr(alone, field.name) for field in fields(TrainedModel)}
    nothing_Y = np.zeros(len(alone.schema.outcomes))
    plain = OutcomeTransforms(alone.schema, nothing_Y, np.stack([nothing_Y, nothing_Y + 1]))
    for copies in (alone, TransformedModel(**kept, inner=alone, transforms=plain)):
        said = copies.is_ensemble, copies.varies, copies.tells_differences, copies.draws_are_members
        assert said == (False, own.varies, own.tells_differences, False)


def test_what_is_added_to_a_probability_may_be_below_zero():
    model, panel = fitted(bend=True), bent().panel("source", "test")
    windows = factual_windows(panel, bent().horizon)
    binary = tuple(outcome.model_copy(update={"kind": "binary"}) for outcome in model.schema.outcomes)
    schema = model.schema.model_copy(update={"outcomes": binary})
    network = replace(model.network, schema=schema)
    level_QY = windows.panel.outcomes[windows.queries.subject, windows.queries.origin]
    added = model.network.rollout(windows.panel, windows.asked) - level_QY[:, None]
    expected = (model.base.model.rollout(windows.panel, windows.asked) + model.share_RHY[:, None] * added).clip(0, 1)
    answers = RemainderModel.of(network, model.base, model.share_RHY).rollout(windows.panel, windows.asked)
    np.testing.assert_allclose(answers, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("mixed", "boosting", "kept"), [
    ([True, True], [True, False], "mixed"), ([False, True], [True, True], "boosting"),
    ([False, False], [False, False], "boosting"), ([True, False], [True, False], "boosting"),
])  # fmt: skip
def test_a_closed_form_with_contradicted_effects_is_kept_only_where_the_other_has_them_too(
    monkeypatch: pytest.MonkeyPatch, mixed: list[bool], boosting: list[bool], kept: str
):
    """By its weights alone boosting would be kept; two outcomes."""
    answers = np.zeros((1, 3, 2, 2), np.float32)
    monkeypatch.setattr(Judge, "answers", lambda *_: answers)
    monkeypatch.setattr(Judge, "allowed", lambda *_: np.array([mixed, boosting]))
    monkeypatch.setattr(Judge, "weights", lambda *_: np.array([0.2, 0.8])[:, None, None])
    judge = Judge(windows=None, scale_QY=answers, weight_QH=answers, check=None)
    bases = {name: Base(artifact=None, model=None) for name in ("mixed", "boosting")}
    assert judge.better(bases) == kept


def test_one_closed_form_that_cannot_be_fitted_leaves_the_other(monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object) -> None:
        raise DataError("no tree can be grown")

    monkeypatch.setattr(type(METHODS["boosting"].loaded), "fit", fails)
    model = artifact_of(fit_method(bent(), "costar", None, CONFIG.model_copy(update={"remainder": True, "epochs": 1})))
    assert stored_model(model).base.model.method == "mixed"
    assert "Gradient boosting could not be fitted: no tree can be grown" in str(model.meta["warnings"])


@pytest.mark.parametrize("damage", ["share", "missing", "method"])
def test_damaged_files_are_refused(damage: str):
    artifact = artifact_of(fitted_briefly())
    arrays, meta = dict(artifact.arrays), dict(artifact.meta)
    if damage == "share":
        arrays["params/share"] = arrays["params/share"] + 2
    elif damage == "missing":
        del arrays["base/params/outcome0.mean"]
    else:
        meta["base"] = {**meta["base"], "method": "ridge"}
    with pytest.raises(ArtifactError):
        stored_model(replace(artifact, arrays=arrays, meta=meta))
