"""Balancing and averaged weights: which parameters and weights each loss sees, and how they are averaged."""

from itertools import pairwise

import pytest
import torch

from costar_cli.methods.shared.balancing import treatment_cross_entropy
from costar_cli.methods.shared.dropout import MaskSource
from costar_cli.methods.shared.members import call_members, stack_members, submodule
from costar_cli.methods.shared.stage import AlphaSchedule
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.transformers.balancing_objective import (
    TREATMENT,
    Averages,
    BalancingObjective,
    Predicted,
    predict_members,
)
from costar_cli.methods.transformers.ct import CtStage, ct_stage
from costar_cli.methods.transformers.settings import CtConfig
from tests.methods.ct_worlds import SETTINGS, task
from tests.methods.rnn_worlds import ward

ROWS = torch.arange(8)[None]
ONE = {"member": torch.zeros(1)}


@pytest.fixture(scope="module")
def stage() -> CtStage:
    settings = SETTINGS["ct"].model_copy(update={"alpha": 1.0})
    return ct_stage(task(ward(), "ct"), settings, "ct", None)


def member(stage: CtStage, updates: int = 30):
    """Return one member in the middle of training, its averages unlike its weights."""
    params, state = stage.initial(0)
    torch.manual_seed(3)
    params, state = ({n: v.double() for n, v in values.items()} for values in (params, state))
    state = {n: v + 0.1 * torch.randn_like(v) for n, v in state.items()} | {"updates": torch.tensor(float(updates))}
    params_R, state_R = stack_members([params]), stack_members([state])
    return {n: v.requires_grad_() for n, v in params_R.items()}, {n: v.double() for n, v in state_R.items()}


def slopes(loss: torch.Tensor, params: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    grads = torch.autograd.grad(loss.sum(), list(params.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(params, grads, strict=True))


def test_the_game_is_two_losses_each_of_which_sees_the_other_side_as_averaged_constants(stage):
    """Written out: both losses from their own weights, without the machinery of microbatches and prefixes."""
    params, state = member(stage)
    loss, after = stage.loss(params, state, ROWS, [Stream(1)])
    found = slopes(loss, params)

    averages = stage.objective.averages.current(params, state)
    batch = stage.batch("train", state, ROWS, [stream := Stream(1)])
    shapes, count = stage.network.mask_shapes(stage.n_steps), batch.inputs[0].shape[1]
    masks = _masks(stream, shapes, count)
    alpha = stage.objective.schedule.alpha(state["updates"])
    treatment = stage.network.head.treatment
    ones = batch.windows.active

    def entropy(weights, representation, target):
        logits = call_members(treatment, submodule(weights, TREATMENT), representation)
        values = treatment_cross_entropy(logits, target, "multilabel")
        return (values * ones).sum() / ones.sum()

    representation, outcome = predict_members(stage.network, params, batch.inputs, masks)
    even = torch.full_like(batch.windows.treatment, 0.5)
    squared = ((outcome - batch.windows.target) ** 2).sum(-1)
    first = (squared * ones).sum() / ones.sum() + alpha * entropy(averages, representation, even)
    averaged, _ = predict_members(stage.network, averages, batch.inputs, masks)
    second = alpha * entropy(params, averaged, batch.windows.treatment)

    torch.testing.assert_close(loss.sum(), (first + second).sum())
    one, two = slopes(first, params), slopes(second, params)
    for name, value in found.items():
        mine, other = (two, one) if name.startswith(TREATMENT) else (one, two)
        torch.testing.assert_close(value, mine[name], msg=name)
        assert not other[name].any(), name
    assert all(found[name].any() for name in found if "tables" not in name)
    assert float(after["updates"]) == 31
    torch.testing.assert_close(submodule(after, "mean."), averages)


def _masks(stream, shapes, count):

    device = torch.device("cpu")
    return MaskSource(shapes, SETTINGS["ct"].network.dropout, [stream], device=device, dtype=torch.float64).draw(
        count
    )()


def test_averages_warm_up_and_then_forget_at_their_decay():
    averages, ones = Averages(0.99), {"w": torch.ones(1)}
    decays = []
    for updates in (1, 2, 10, 100, 890, 891, 5000):
        state = {"updates": torch.tensor([float(updates)]), "mean.w": torch.zeros(1)}
        decays.append(1 - float(averages.current(ones, state)["w"]))
    assert decays == pytest.approx([2 / 11, 3 / 12, 11 / 20, 101 / 110, 0.99, 0.99, 0.99], abs=1e-6)


def test_each_step_adds_one_update_to_the_average():
    averages = Averages(0.99)
    state = stack_members([averages.initial({"w": torch.tensor(0.0)})])
    weights, mean = torch.randn(30, 1, dtype=torch.float64), 0.0
    for step, weight in enumerate(weights):
        state = averages.after(state, averages.current({"w": weight}, {n: v.double() for n, v in state.items()}))
        decay = (1 + step) / (10 + step) if step else 0.1
        mean = decay * mean + (1 - decay) * float(weight)
        assert float(state["mean.w"]) == pytest.approx(mean)
        assert float(state["updates"]) == step + 1


def test_the_average_of_unchanging_weights_is_those_weights(stage):
    params, _ = stage.initial(0)
    state = stage.objective.averages.initial(params)
    kept = stage.weights(stack_members([params]), stack_members([state]))
    assert all(torch.equal(kept[name][0], value) for name, value in params.items())


def test_kept_weights_and_validation_are_those_of_the_averages_with_the_last_step(stage):
    params, state = member(stage)
    kept = stage.weights(params, state)
    decay = min(0.99, 31 / 40)
    for name, value in params.items():
        expected = decay * state[f"mean.{name}"] + (1 - decay) * value.detach()
        torch.testing.assert_close(kept[name], expected)
    loss, weight = stage.validation_loss(params, state, ROWS, [])
    same, _ = stage.validation_loss(kept, stage.objective.averages.after(state, kept), ROWS, [])
    batch = stage.batch("validation", state, ROWS, [])
    target, active = batch.windows.target, batch.windows.active
    _, outcome = predict_members(stage.network, kept, batch.inputs, {})
    by_hand = (((outcome - target) ** 2).sum(-1) * active).sum() / active.sum()
    torch.testing.assert_close(loss.sum(), by_hand)
    torch.testing.assert_close(loss, same)
    assert float(weight) == float(active.sum())


def test_without_decay_the_average_is_the_weights():
    averages, value = Averages(0.0), {"w": torch.tensor([3.0])}
    state = stack_members([averages.initial({"w": torch.tensor(0.0)})])
    assert averages.current(value, state)["w"].item() == 3.0
    assert list(averages.after(state, averages.current(value, state))) == ["updates"]


def test_alpha_is_zero_in_the_first_epoch_and_nearly_full_after_the_last(stage):
    schedule = stage.objective.schedule
    steps = -(-stage.n_train // stage.config.batch_size)
    assert (schedule.epochs, schedule.steps_per_epoch) == (4, steps)
    alpha = schedule.alpha(torch.arange(4 * steps + 1))
    assert not alpha[:steps].any()
    assert alpha[-1] == pytest.approx(0.9999, abs=1e-4)
    assert all(a <= b for a, b in pairwise(alpha.tolist()))


def test_in_the_first_epoch_the_treatment_network_stands_still(stage):
    params, state = member(stage, updates=0)
    found = slopes(stage.loss(params, state, ROWS, [Stream(1)])[0], params)
    assert not any(value.any() for name, value in found.items() if name.startswith(TREATMENT))
    assert found["head.outcome.0.weight"].any()


def test_without_balancing_equals_balancing_that_counts_nothing(stage):
    none = SETTINGS["ct-erm"]
    nothing = CtConfig.model_validate({**none.model_dump(), "alpha": 0.0})
    world = task(ward(), "ct")
    losses = []
    for settings in (none, nothing):
        one = ct_stage(world, settings, "ct", None)
        params, state = member(one)
        loss, _ = one.loss(params, state, ROWS, [Stream(1)])
        losses.append((loss, slopes(loss, params)))
    torch.testing.assert_close(losses[0], losses[1])
    assert not any(v.any() for n, v in losses[0][1].items() if n.startswith(TREATMENT))


def test_reversal_turns_the_gradient_of_the_guess_around(stage):
    params, state = member(stage)
    batch = stage.batch("train", state, ROWS, [Stream(1)])

    def of(balancing: str, largest: float):
        objective = BalancingObjective(balancing, AlphaSchedule(largest, 1, 1), Averages(0.0), "multilabel")
        alpha = objective.schedule.alpha(torch.tensor([100.0]))
        predicted = objective.predict(stage.network, params, {}, batch.inputs, {}, alpha)
        return slopes(objective.loss(Predicted(*predicted), batch.windows, alpha), params), float(alpha)

    plain, _ = of("none", 0.0)
    half, alpha = of("reversal", 0.5)
    full, _ = of("reversal", 1.0)
    assert alpha == pytest.approx(0.5, abs=1e-3)
    for name, value in plain.items():
        if name.startswith(TREATMENT):
            torch.testing.assert_close(half[name], full[name])
            assert half[name].any()
        else:
            torch.testing.assert_close(2 * (half[name] - value), full[name] - value, rtol=1e-5, atol=1e-9)
    assert (full["head.representation.weight"] - plain["head.representation.weight"]).abs().max() > 1e-6


def test_in_training_each_subject_comes_again_without_its_later_covariates(stage):
    rows = torch.arange(40)[None]
    batch = stage.batch("train", ONE, rows, [Stream(7)])
    history, _, hidden, _ = batch.inputs
    assert history.shape[1] == 80
    assert torch.equal(history[:, :40], history[:, 40:])
    assert not hidden[:, :40].any()
    splits = hidden.shape[-1] - hidden[0, 40:].sum(-1)
    lengths = batch.windows.active[0, :40].sum(-1)
    assert (splits <= lengths).all()
    assert (splits == 0).any()
    assert len(splits.unique()) > 5
    again, other = (stage.batch("train", ONE, rows, [Stream(key)]).inputs[2] for key in (7, 8))
    assert torch.equal(again, hidden)
    assert not torch.equal(other, hidden)
    assert stage.batch("validation", ONE, ROWS, []).inputs[0].shape[1] == 8
