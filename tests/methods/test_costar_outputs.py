"""COSTAR in the scale in which outcomes change: relative inputs, outputs and losses, and the structured decoder."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from costar_cli.api.fitting import plan_fit
from costar_cli.config.models import EncoderConfig, FinetuneConfig
from costar_cli.data import Dataset, Part, Queries, Scaler
from costar_cli.errors import MismatchError, UsageError
from costar_cli.files import Artifact
from costar_cli.methods.costar.decoding import DecoderShape
from costar_cli.methods.costar.inputs import EncoderInputs
from costar_cli.methods.costar.model import CostarModel
from costar_cli.methods.costar.supervised import HEAD, SupervisedStage
from costar_cli.methods.shared.covariate_transition import Reach, reach_of
from costar_cli.methods.shared.members import Params, stack_members, submodule
from costar_cli.methods.shared.outcome_forms import OutcomeForm, choose_forms
from costar_cli.methods.shared.outcome_scale import OutcomeScale
from costar_cli.settings.resolve import resolve
from costar_cli.training import Trained
from tests.methods.invariant_worlds import world
from tests.train.worlds import ENCODER, FINETUNE, as_model, panels, run_finetune, run_pretrain

PART = Part("target", "test")
RELATIVE = ENCODER.model_copy(update={"inputs": "relative"})
DECODERS = [("stepped", "increment"), ("non_autoregressive", "relative"), ("autoregressive", "relative"),
            ("structured", "relative"), ("structured", "increment")]  # fmt: skip


def forms_of(dataset: Dataset) -> tuple[OutcomeForm, ...]:
    panel = dataset.panel("source", "train")
    return choose_forms(panel, dataset.schema, Scaler.fit(panel, dataset.schema))


def stage_of(
    dataset: Dataset,
    decoder: str,
    output: str,
    encoder: EncoderConfig = RELATIVE,
    reach: Reach | None = None,
    **changes,
) -> SupervisedStage:
    train, validation = panels(dataset)
    shape = DecoderShape(decoder, output, 16, 2, forms_of(dataset), reach)
    config = FINETUNE.model_copy(update=changes)
    where = {"train": train, "validation": validation, "shape": shape, "treatments": dataset.schema.treatments}
    return SupervisedStage(dataset.schema.dims, dataset.horizon, config, encoder, **where)


def model_of(
    dataset: Dataset, stage: SupervisedStage, params_R: Params, encoder: EncoderConfig = RELATIVE
) -> CostarModel:
    scaler = Scaler.fit(dataset.panel("source", "train"), dataset.schema)
    shape = {"encoder_config": encoder, "shape": stage.decoder.shape, "horizon": dataset.horizon}
    return CostarModel(params=params_R, schema=dataset.schema, scaler=scaler, **shape)


def drawn(stage: SupervisedStage, members: int = 2) -> Params:
    return stack_members([stage.initial(member)[0] for member in range(members)])


def every_origin(dataset: Dataset, rows: int) -> Queries:
    """Factual questions about each origin of some training subjects."""
    panel = dataset.panel("source", "train")
    pairs = [(n, t) for n in range(rows) for t in range(int(panel.length[n]) - dataset.horizon)]
    subject, origin = np.array(pairs).T
    plan = panel.treatments[subject[:, None], origin[:, None] + np.arange(dataset.horizon)]
    return Queries(subject.astype(np.int32), origin.astype(np.int16), plan.astype(np.uint8))


@pytest.mark.parametrize(("decoder", "output"), DECODERS)
@pytest.mark.parametrize("data", ["tumor", "ward"])
def test_answers_are_what_is_trained(data: str, decoder: str, output: str):
    """The rollout of a stored panel gives, query by query, what the stage predicts from every origin at once."""
    dataset = world(data)
    stage = stage_of(dataset, decoder, output)
    params_R, queries = drawn(stage), every_origin(dataset, rows=5)
    rows_RB = torch.arange(5).expand(2, -1)
    series = stage._rows["train"].batch(rows_RB, torch.arange(2))
    z = model_of(dataset, stage, params_R)._represent(stage._rows["train"].panel.take(torch.arange(5)))[:, :, :-1]
    with torch.no_grad():
        ahead = series.unrolled(dataset.horizon)
        whole = stage.decoder.predict(submodule(params_R, HEAD), z, series, ahead).outcomes.unflatten(1, z.shape[1:3])
    expected = whole[:, torch.from_numpy(queries.subject).long(), torch.from_numpy(queries.origin).long()]
    model = model_of(dataset, stage, params_R)
    answered = model.scaler.scale_outcomes(model.rollout(dataset.panel("source", "train"), queries))
    np.testing.assert_allclose(answered, expected, rtol=1e-3, atol=1e-4)


def test_with_forecast_covariates_the_first_step_of_an_answer_is_what_is_taught():
    """Later steps are taught from the truth, and answered from what was predicted."""
    dataset = world("ward")
    train, _ = panels(dataset)
    dx = dataset.schema.dims[0]
    low, high = reach_of(train)
    stage = stage_of(dataset, "structured", "relative", reach=(low[:dx], high[:dx]))
    params_R, queries = drawn(stage), every_origin(dataset, rows=5)
    series = stage._rows["train"].batch(torch.arange(5).expand(2, -1), torch.arange(2))
    model = model_of(dataset, stage, params_R)
    z = model._represent(train.take(torch.arange(5)))[:, :, :-1]
    with torch.no_grad():
        taught = stage.decoder.predict(submodule(params_R, HEAD), z, series, series.unrolled(dataset.horizon))
    assert taught.beside is not None
    whole = taught.outcomes.unflatten(1, z.shape[1:3])
    expected = whole[:, torch.from_numpy(queries.subject).long(), torch.from_numpy(queries.origin).long()]
    answered = model.scaler.scale_outcomes(model.rollout(dataset.panel("source", "train"), queries))
    np.testing.assert_allclose(answered[:, :, 0], expected[:, :, 0], rtol=1e-3, atol=1e-4)
    assert not np.allclose(answered[:, :, 1:], expected[:, :, 1:], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("decoder", "output"), DECODERS)
def test_a_head_of_zeros_predicts_that_the_last_value_stays(decoder: str, output: str):
    dataset = world("tumor")
    stage = stage_of(dataset, decoder, output)
    last = {"head.network.2.weight", "head.network.2.bias", "head.effects.2.weight", "head.effects.2.bias"}
    params_R = {name: value * 0 if name in last else value for name, value in drawn(stage).items()}
    panel, queries = dataset.panel("target", "test"), dataset.queries[PART]["sequence"].take(slice(0, 40))
    predicted_RQHY = model_of(dataset, stage, params_R).rollout(panel, queries)
    now_QY = panel.outcomes[queries.subject, queries.origin]
    np.testing.assert_allclose(
        predicted_RQHY, np.broadcast_to(now_QY[:, None], predicted_RQHY.shape), rtol=1e-3, atol=1e-3
    )


def test_the_unit_of_a_relative_output_is_the_subjects_own():
    """Of a positive outcome the level at the origin; of one of any sign the sd of all."""
    stage = stage_of(world("tumor"), "non_autoregressive", "relative")
    y = stage._rows["train"].panel.y_NTY[:3]
    scale = stage.decoder.scale
    added, unit = stage.decoder._start(y, stage.decoder.units(y))
    torch.testing.assert_close(added[:, :, 0], y)
    torch.testing.assert_close(unit[:, :, 0], scale.sd_Y * (scale.in_sd(y).abs() + 0.01))
    additive = stage_of(world("linear"), "non_autoregressive", "relative")
    y = additive._rows["train"].panel.y_NTY[:3]
    _, unit = additive.decoder._start(y, additive.decoder.units(y))
    torch.testing.assert_close(unit[:, :, 0], additive.decoder.scale.sd_Y.expand_as(y))


def test_the_relative_loss_counts_errors_in_the_scale_of_each_origin(tumor_dataset: Dataset):
    squared, relative = (
        stage_of(tumor_dataset, "stepped", "increment", loss=loss) for loss in ("squared", "relative_huber")
    )
    y = squared._rows["train"].panel.y_NTY[:4, :-1][None]
    answer = y.flatten(1, 2)[:, :, None].expand(-1, -1, 6, -1)
    size = OutcomeScale(forms_of(tumor_dataset)).error_unit(y, torch.ones_like(y)).flatten(1, 2)
    off = (relative._scale.sd_Y * size)[:, :, None] * torch.tensor([0.0, 0.01, 0.05, -0.05, 0.5, -1.0])[:, None]
    found = relative._errors(answer + off, answer, y, None)
    expected = torch.tensor([0.0, 0.0001, 0.0025, 0.0025, 0.09, 0.19])
    torch.testing.assert_close(found, expected.expand_as(found), rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(
        squared._errors(answer + off, answer, y, None), off[..., 0].square(), rtol=1e-3, atol=1e-5
    )


@pytest.mark.parametrize("data", ["tumor", "linear", "ward"])
def test_relative_inputs_are_levels_and_last_changes_without_the_raw_level(data: str):
    dataset = world(data)
    panel, _ = panels(dataset)
    forms = forms_of(dataset)
    inputs = EncoderInputs(dataset.schema.dims, "relative", forms)
    dx, da, dy, dv = dataset.schema.dims
    local = sum(form.kind == "local" for form in forms)
    assert inputs.token_dims == (dx, da, 2 * dy + local, dv)
    history = inputs.history(panel)
    assert history.shape[-1] == sum(inputs.token_dims[:3])
    assert torch.equal(history[..., : dx + da], panel.history_NTS[..., : dx + da])
    assert torch.isfinite(history).all()
    assert not history[:, 0, dx + da + dy : dx + da + 2 * dy].any()  # nothing came before the first step
    if data == "tumor":
        u = OutcomeScale(forms).in_sd(panel.y_NTY)
        torch.testing.assert_close(history[..., -2], torch.log(u[..., 0].clamp(min=0) + 1e-4) / 4)
    same_as_before = EncoderInputs(dataset.schema.dims)
    assert same_as_before.token_dims == dataset.schema.dims
    assert torch.equal(same_as_before.history(panel), panel.history_NTS)


@pytest.fixture(scope="module")
def fits(tumor_dataset: Dataset) -> dict[str, Trained]:
    """An encoder of relative inputs, and a structured model that starts from it."""
    short = {"epochs": 1, "members": 1}
    encoder = run_pretrain(tumor_dataset, encoder=RELATIVE, **short)
    model = run_finetune(tumor_dataset, start=as_model(encoder), decoder="structured", **short)
    return {"encoder": encoder, "model": model}


def test_files_record_the_forms_that_encoder_and_decoder_need(fits: dict[str, Trained], tumor_dataset: Dataset):
    for trained in fits.values():
        assert trained.meta["encoder"]["inputs"] == "relative"
        assert [form["kind"] for form in trained.meta["forms"]] == ["relative"]
    shape = as_model(fits["model"]).shape
    assert (shape.decoder, shape.output, shape.carry_overs) == ("structured", "relative", 1)
    assert shape.forms == forms_of(tumor_dataset)
    assert as_model(fits["encoder"]).represent(tumor_dataset.panel("target", "test")).shape[0] == 1


def test_what_older_files_do_not_say_is_the_level(tumor_dataset: Dataset):
    plain = run_finetune(tumor_dataset, epochs=1)
    assert not {"output", "carry_overs", "forms"} & plain.meta.keys()
    encoder = {name: value for name, value in plain.meta["encoder"].items() if name != "inputs"}
    older = as_model(replace(plain, meta={**plain.meta, "encoder": encoder}))
    assert older.encoder_config.inputs == "level"
    assert older.shape == as_model(plain).shape
    assert older.shape.output == "level"


def test_few_shot_keeps_the_source_models_decoder(fits: dict[str, Trained], tumor_dataset: Dataset):
    source = as_model(fits["model"])
    adapted = run_finetune(tumor_dataset, start=source, domain="target", epochs=1)
    assert as_model(adapted).shape == source.shape
    for name, asked, words in (("decoder", "stepped", "decoder structured, not stepped"),
                               ("output", "increment", "output relative, not increment"),
                               ("carry_overs", 2, "carry-overs 1, not 2")):  # fmt: skip
        with pytest.raises(MismatchError, match=words):
            run_finetune(tumor_dataset, start=source, domain="target", **{name: asked})


def test_settings_that_made_the_source_model_make_the_adapted_one(tumor_dataset: Dataset):
    """Also where they choose between two things that are the same, as without covariates."""
    for dataset in (tumor_dataset, world("linear")):
        asked = {"decoder": "structured", "covariates": "forecast", "carry_overs": 2, "epochs": 1}
        source = as_model(run_finetune(dataset, **asked))
        adapted = run_finetune(dataset, start=source, domain="target", **asked)
        assert as_model(adapted).shape == source.shape
    with pytest.raises(MismatchError, match="covariates forecast, not none"):
        run_finetune(dataset, start=source, domain="target", covariates="none")


@pytest.mark.parametrize(("name", "value"), [("carry_overs", 2), ("covariates", "none")])
def test_settings_of_the_structured_decoder_are_refused_where_another_is_the_default(
    name: str, value: object, tumor_dataset: Dataset
):
    words = f"`{name} = {value}` would change nothing with the decoder non_autoregressive"
    with pytest.raises(UsageError, match=words):
        run_finetune(tumor_dataset, **{name: value})
    source = as_model(run_finetune(tumor_dataset, epochs=1))
    with pytest.raises(UsageError, match=words):
        run_finetune(tumor_dataset, start=source, domain="target", **{name: value})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"decoder": "structured", "output": "level"}, "`decoder = structured` predicts changes, no levels"),
        ({"decoder": "stepped", "covariates": "forecast"}, "would change nothing with `decoder = stepped`"),
        ({"decoder": "stepped", "carry_overs": 2}, "would change nothing with `decoder = stepped`"),
        ({"output": "ratio"}, "'level', 'increment' or 'relative'"),
        ({"loss": "huber"}, "'squared' or 'relative_huber'"),
    ],
)
def test_settings_that_do_not_belong_together_are_refused(settings: dict, words: str):
    with pytest.raises(ValidationError) as error:
        FinetuneConfig(**settings)
    assert words in str(error.value)


@pytest.mark.parametrize(("decoder", "output"), DECODERS[:-1])
def test_training_lowers_the_relative_loss(decoder: str, output: str, tumor_dataset: Dataset):
    changes = {"encoder": RELATIVE, "loss": "relative_huber", "learning_rate": 0.01, "epochs": 4}
    history = run_finetune(tumor_dataset, decoder=decoder, output=output, **changes).meta["history"]
    assert history["train_loss"][0][-1] < 0.8 * history["train_loss"][0][0]


def test_few_shot_takes_the_source_models_decoder_unless_somebody_chose_one():
    """A preset's decoder is for models that are trained from the beginning."""
    source = Artifact("model", {}, {"members": 1}, {}, digest="d")
    for flags, decoder in (({}, None), ({FinetuneConfig: {"decoder": "structured"}}, "structured")):
        settings = resolve(flags, preset="paper", dataset="mimic")
        assert settings[FinetuneConfig].decoder == (decoder or "non_autoregressive")
        assert plan_fit(settings, "costar", "target", dataset="d", start=source).config.decoder == decoder
    encoder = replace(source, kind="encoder")
    assert plan_fit(settings, "costar", "source", dataset="d", start=encoder).config.decoder == "structured"


def test_few_shot_takes_whether_covariates_are_forecast_from_the_source_model():
    source = Artifact("model", {}, {"members": 1}, {}, digest="d")
    settings = resolve({FinetuneConfig: {"decoder": "structured", "covariates": "none"}})
    assert plan_fit(settings, "costar", "target", dataset="d", start=source).config.covariates == "none"
    of_preset = replace(settings, origins={**settings.origins, "finetune.covariates": "preset paper"})
    assert plan_fit(of_preset, "costar", "target", dataset="d", start=source).config.covariates is None
