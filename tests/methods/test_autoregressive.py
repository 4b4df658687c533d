"""The autoregressive decoder: outcomes fed back, in training the true ones or none (spec COSTAR-22, E-11)."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from costar_cli.data import Dataset, Part
from costar_cli.errors import ArtifactError, MismatchError
from costar_cli.files import write_artifact
from costar_cli.methods import load_model
from costar_cli.methods.costar.predictor import AutoregressivePredictor, OutcomePredictor
from costar_cli.methods.costar.representation import encode_members
from costar_cli.methods.costar.supervised import ENCODER, SupervisedStage, step_weights
from costar_cli.methods.shared.members import stack_members, submodule
from costar_cli.methods.shared.streams import Stream
from costar_cli.training import Trained
from tests.train.worlds import as_model, run_finetune, supervised_stage

HORIZON = 5
TAUGHT, ONE_STEP = "autoregressive", "autoregressive_one_step"


@pytest.fixture
def head() -> AutoregressivePredictor:
    torch.manual_seed(0)
    return AutoregressivePredictor(3, 2, width=8, horizon=HORIZON, hidden=16).double()


def histories(n: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(n, 8, dtype=torch.float64, generator=generator)
    return z, torch.randn(n, HORIZON, 3, dtype=torch.float64, generator=generator)


def in_a_loop(head: AutoregressivePredictor, z: Tensor, plan: Tensor) -> Tensor:
    """Predict with a convolution over `(0, y_1, .., y_h)` for each step anew."""
    outcomes: list[Tensor] = []
    for step in range(plan.shape[1]):
        before = torch.stack([torch.zeros(len(z), 2).double(), *outcomes], dim=-1)
        padded = functional.pad(before, (HORIZON - 1, 0))
        fed_back = functional.conv1d(padded, head.feedback.weight, head.feedback.bias)[:, :, step]
        outcomes.append(head.network(z + head.plan_codes(plan)[:, step] + fed_back))
    return torch.stack(outcomes, dim=1)


def test_it_has_one_convolution_more_and_starts_from_the_same_weights_otherwise():
    torch.manual_seed(0)
    plain = OutcomePredictor(4, 1, width=24, horizon=6, hidden=128)
    torch.manual_seed(0)
    other = AutoregressivePredictor(4, 1, width=24, horizon=6, hidden=128)
    sizes = [sum(p.numel() for p in module.parameters()) for module in (plain, other)]
    assert sizes == [4_049, 4_049 + 1 * 24 * 6 + 24]
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in plain.state_dict().items())


@pytest.mark.parametrize("asked", [1, 3, HORIZON])
def test_predictions_equal_a_loop_that_feeds_them_back(head, asked):
    z, plan = histories()
    torch.testing.assert_close(head(z, plan[:, :asked]), in_a_loop(head, z, plan[:, :asked]))


def test_after_its_own_predictions_it_says_the_same_again(head):
    z, plan = histories()
    own = head(z, plan)
    torch.testing.assert_close(head(z, plan, own), own)


@pytest.mark.parametrize("step", range(HORIZON))
def test_a_given_outcome_counts_from_the_next_step_on(head, step):
    z, plan = histories()
    given = torch.randn(4, HORIZON, 2, dtype=torch.float64)
    changed = given.clone()
    changed[:, step] += 1
    before, after = head(z, plan, given), head(z, plan, changed)
    torch.testing.assert_close(before[:, : step + 1], after[:, : step + 1])
    assert ((before - after)[:, step + 1 :].abs() > 1e-9).all()


@pytest.mark.parametrize("step", range(HORIZON))
def test_a_treatment_changes_no_prediction_before_it_acts(head, step):
    z, plan = histories()
    changed = plan.clone()
    changed[:, step] += 1
    before, after = head(z, plan), head(z, changed)
    torch.testing.assert_close(before[:, :step], after[:, :step], rtol=1e-12, atol=1e-12)
    assert ((before - after)[:, step:].abs() > 1e-9).all()


def test_no_gradient_flows_through_what_is_fed_back(head):
    z, plan = histories()
    grads = []
    for given in (None, head(z, plan).detach()):
        leaf = z.clone().requires_grad_()
        head(leaf, plan, given)[:, -1].sum().backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(*grads)


def test_pairs_of_histories_and_plans_get_the_answers_of_each_alone(head):
    head.requires_grad_(False)
    z, plans = histories(6)
    which_history, which_plan = torch.randint(6, (40,)), torch.randint(6, (40,))
    parts = torch.cat(list(head.pairs(z, plans, which_history, which_plan, rows=7)))
    torch.testing.assert_close(parts, head(z[which_history], plans[which_plan]), rtol=1e-12, atol=1e-12)


def first_batch(stage: SupervisedStage) -> tuple[dict[str, Tensor], Tensor, list[Stream]]:
    params = stack_members([stage.initial(member)[0] for member in range(2)])
    return {n: v.double().requires_grad_() for n, v in params.items()}, torch.arange(8).expand(2, -1), [Stream(0)] * 2


def in_double(dataset: Dataset, decoder: str) -> SupervisedStage:
    stage = supervised_stage(dataset, decoder=decoder)
    for rows in stage._rows.values():
        series = {name: getattr(rows.panel, name).double() for name in ("x_NTX", "a_NTA", "y_NTY", "v_NV")}
        rows.panel = replace(rows.panel, **series)
    return stage


@pytest.mark.parametrize(("decoder", "learns"), [(TAUGHT, True), (ONE_STEP, False)])
def test_kernels_learn_from_true_outcomes_and_not_from_one_step(decoder, learns, tumor_dataset: Dataset):
    stage = in_double(tumor_dataset, decoder)
    params, rows, streams = first_batch(stage)
    stage.loss(params, {}, rows, streams)[0].sum().backward()
    for kernel in ("head.past.weight", "head.feedback.weight"):
        assert params[kernel].grad is not None  # zero is no gradient to Adam
        assert bool((params[kernel].grad != 0).any()) == learns
    for always in ("head.feedback.bias", "head.current.weight", "head.network.0.weight", "encoder.relative.key"):
        assert (params[always].grad != 0).any()


def errors(stage: SupervisedStage, part: str, params: dict[str, Tensor], rows: Tensor, *, taught: bool) -> Tensor:
    """Squared errors `[B*T,H]` of one member without dropout, zero where the answer is not observed; and the mask."""
    panel = stage._rows[part].panel
    windows = stage._rows[part].batch(rows[None], torch.zeros(1, dtype=torch.long))
    ahead = windows.unrolled(6)
    one = {name: value[:1] for name, value in params.items()}
    history = panel.history_NTS[rows, :-1]
    z = encode_members(stage.encoder, submodule(one, ENCODER), history[None], panel.v_NV[rows][None])
    plan, answer, active = (x[0].flatten(0, 1) for x in (ahead.treatment, ahead.target, ahead.active))
    head = stage.decoder.head.double()
    head.load_state_dict({name: value[0] for name, value in submodule(one, "head.").items()})
    predicted = (
        head(z.z_BTD[0].flatten(0, 1), plan, answer) if taught else in_order(head, z.z_BTD[0].flatten(0, 1), plan)
    )
    return torch.stack([(predicted - answer).square().sum(dim=-1) * active, active])


def in_order(head: AutoregressivePredictor, z: Tensor, plan: Tensor) -> Tensor:
    """Predict step by step, each time with all steps so far as what is given."""
    given = torch.zeros(len(z), plan.shape[1], 1, dtype=z.dtype)
    for step in range(plan.shape[1]):
        given[:, step] = head(z, plan, given)[:, step].detach()
    return given


@pytest.mark.parametrize(("decoder", "taught_steps"), [(TAUGHT, 6), (ONE_STEP, 1)])
def test_losses_are_those_of_the_lesson_and_selection_that_of_the_decoder_on_its_own(
    decoder, taught_steps, tumor_dataset: Dataset
):
    stage = in_double(tumor_dataset, decoder)
    params, rows, _ = first_batch(stage)
    stage.encoder.config = stage.encoder.config.model_copy(update={"dropout": 0.0})  # masks keep everything
    lesson, active = errors(stage, "train", params, rows[0], taught=True)[..., :taught_steps]
    weights = step_weights("inverse", taught_steps)
    expected = (lesson * weights).sum() / active.sum()
    torch.testing.assert_close(stage.loss(params, {}, rows, [Stream(0)] * 2)[0][0], expected)
    alone, active = errors(stage, "validation", params, rows[0], taught=False)
    loss, weight = stage.validation_loss(params, {}, rows, [])
    torch.testing.assert_close(loss[0], (alone * step_weights("inverse", 6)).sum() / active.sum())
    assert weight[0] == active.sum()


@pytest.fixture(scope="module")
def source(tumor_dataset: Dataset) -> Trained:
    return run_finetune(tumor_dataset, members=2, decoder=TAUGHT)


def test_one_step_leaves_the_kernels_as_random_as_they_were(source: Trained, tumor_dataset: Dataset):
    untaught = run_finetune(tumor_dataset, members=2, decoder=ONE_STEP)
    fresh = stack_members([supervised_stage(tumor_dataset, decoder=ONE_STEP).initial(member)[0] for member in range(2)])
    for kernel in ("head.past.weight", "head.feedback.weight"):
        assert np.array_equal(untaught.arrays[f"params/{kernel}"], fresh[kernel].numpy())
        assert not np.array_equal(source.arrays[f"params/{kernel}"], fresh[kernel].numpy())
    for run in (source, untaught):
        assert all(losses[-1] < losses[0] for losses in run.meta["history"]["train_loss"])


def test_answers_come_from_prefixes_that_are_encoded_once(source: Trained, tumor_dataset: Dataset):
    model = as_model(source)
    part = Part("target", "test")
    panel, queries = tumor_dataset.panels[part], tumor_dataset.queries[part]["sequence"].take(slice(0, 60))
    states = model.encode(panel)
    at = torch.from_numpy(queries.subject.astype(np.int64)), torch.from_numpy(queries.origin.astype(np.int64))
    for r in range(2):
        expected = in_order(model._heads[r], states.z_RNTD[r][at], torch.from_numpy(queries.plan).to(states.z_RNTD))
        scaled = model.scaler.unscale_outcomes(expected.numpy())
        np.testing.assert_allclose(model.answer(states, queries)[r], scaled, rtol=1e-4, atol=1e-4)


def test_a_stored_model_keeps_its_decoder_and_models_without_a_word_are_not_autoregressive(
    source: Trained, tumor_dataset: Dataset, tmp_path: Path
):
    part = Part("target", "test")
    panel, queries = tumor_dataset.panels[part], tumor_dataset.queries[part]["sequence"].take(slice(0, 20))
    write_artifact(tmp_path / "model.h5", kind="model", **content(source))
    stored = load_model(tmp_path / "model.h5")
    assert np.array_equal(stored.rollout(panel, queries), as_model(source).rollout(panel, queries))
    plain = run_finetune(tumor_dataset, epochs=1)
    older = {name: value for name, value in plain.meta.items() if name != "decoder"}
    write_artifact(tmp_path / "older.h5", kind="model", **content(replace(plain, meta=older)))
    assert load_model(tmp_path / "older.h5").shape.decoder == plain.meta["decoder"] == "non_autoregressive"
    other = replace(source, meta=source.meta | {"decoder": "oracle"})
    write_artifact(tmp_path / "other.h5", kind="model", **content(other))
    with pytest.raises(ArtifactError, match="incomplete or damaged") as error:
        load_model(tmp_path / "other.h5")
    assert "oracle" in error.value.where


def content(trained: Trained) -> dict:
    return {"arrays": trained.arrays, "meta": trained.meta, "parents": trained.parents}


def test_few_shot_takes_the_decoder_of_the_source_and_refuses_another(source: Trained, tumor_dataset: Dataset):
    few_shot = {"start": as_model(source), "domain": "target", "epochs": 1}
    adapted = run_finetune(tumor_dataset, **few_shot)
    assert adapted.meta["decoder"] == TAUGHT
    assert not np.array_equal(
        adapted.arrays["params/head.feedback.weight"], source.arrays["params/head.feedback.weight"]
    )
    for asked in ("non_autoregressive", ONE_STEP):
        with pytest.raises(MismatchError, match=f"decoder {TAUGHT}, not {asked}") as error:
            run_finetune(tumor_dataset, decoder=asked, **few_shot)
        assert (error.value.where, bool(error.value.fix)) == ("finetune.decoder", True)
