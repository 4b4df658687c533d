"""What a stage may add to Adam: nothing by default; with each of them runs resume exactly and members stay apart."""

from itertools import pairwise
from math import cos, pi
from pathlib import Path

import pytest
import torch

from costar_cli.config.models import FinetuneConfig, OptimiserConfig, TrainingConfig
from costar_cli.data import Dataset
from costar_cli.errors import MismatchError
from costar_cli.methods.shared.settings import NetworkConfig, TunedNetworkConfig
from costar_cli.methods.shared.stage import EpochSchedule, PlainStage
from costar_cli.methods.shared.streams import Stream
from costar_cli.reporting import NullReporter
from costar_cli.training import RunIdentity, Runtime, loop
from costar_cli.training.checkpoint import Checkpoint
from costar_cli.training.group import GroupState
from costar_cli.training.loop import TrainedMembers, train_members
from costar_cli.training.optimiser import Adam, learning_rate
from tests.fits import KilledError, die_at_step
from tests.train.worlds import CPU, EXACT, run_finetune, run_pretrain, same

CHOICES = {
    "weight_decay": OptimiserConfig(weight_decay=0.1),
    "warmup": OptimiserConfig(warmup=4),
    "cosine": OptimiserConfig(schedule="cosine", warmup=2),
    "averaging": OptimiserConfig(averaging=0.9),
    "max_grad_norm": OptimiserConfig(max_grad_norm=0.05),
}


ALL = OptimiserConfig(weight_decay=0.1, warmup=2, schedule="cosine", averaging=0.9, max_grad_norm=0.05)


class LineStage(PlainStage):
    """A regression line: outcomes `[N]` on inputs `[N,3]`; its two intercepts have one gradient."""

    name = "line"

    def __init__(self, optimiser: OptimiserConfig = ALL, **changes: int) -> None:
        self.config = TrainingConfig(batch_size=4, epochs=3, optimiser=optimiser).model_copy(update=changes)
        x = torch.linspace(-2, 3, 36, dtype=torch.float64).view(12, 3).sin()
        self.x_NF, self.y_N = x, x @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) + 3
        self.n_train = self.n_validation = 12

    def initial(self, member):
        drawn = Stream(self.config.seed, self.name, "initial", member).uniform(3, device=torch.device("cpu")).double()
        return {"slope": drawn, "one": torch.zeros(1).double(), "two": torch.zeros(1).double()}, {}

    def loss(self, params_R, state_R, rows_RB, streams):
        predicted_RB = torch.einsum("rbf,rf->rb", self.x_NF[rows_RB], params_R["slope"])
        predicted_RB = predicted_RB + (params_R["one"] + params_R["two"])
        return (predicted_RB - self.y_N[rows_RB]).square().mean(dim=1), state_R

    def validation_loss(self, params_R, state_R, rows_RB, streams):
        loss_R, _ = self.loss(params_R, state_R, rows_RB, streams)
        return loss_R, torch.full_like(loss_R, rows_RB.shape[1])


def train(stage: LineStage, path: Path, members: int = 2, group: int = 2) -> TrainedMembers:
    runtime = Runtime.resolve(EXACT.model_copy(update={"group": group}))
    run = Checkpoint(path, RunIdentity("f"), reporter=NullReporter(), stage=stage)
    return train_members(stage, members, runtime, run, NullReporter())


@pytest.fixture(params=CHOICES)
def optimiser(request) -> OptimiserConfig:
    return CHOICES[request.param]


@pytest.mark.parametrize("steps", [1, 4, 5])
def test_a_killed_run_continues_to_the_same_weights(optimiser, steps, tmp_path: Path, monkeypatch):
    stage = LineStage(optimiser)
    whole = train(stage, tmp_path / "whole.h5")
    die_at_step(monkeypatch, steps)
    with pytest.raises(KilledError):
        train(stage, tmp_path / "cut.h5")
    monkeypatch.undo()
    continued = train(stage, tmp_path / "cut.h5")
    assert same(whole.params, continued.params)
    assert whole.record("stage") == continued.record("stage")


@pytest.mark.parametrize("run", [run_pretrain, run_finetune])
def test_a_killed_run_of_costar_continues_to_the_same_weights(run, tumor_dataset: Dataset, tmp_path: Path, monkeypatch):
    settings = {"epochs": 2, "batch_size": 20, "optimiser": ALL}
    whole = run(tumor_dataset, tmp_path / "whole", **settings)
    die_at_step(monkeypatch, 2)
    with pytest.raises(KilledError):
        run(tumor_dataset, tmp_path / "cut", **settings)
    monkeypatch.undo()
    continued = run(tumor_dataset, tmp_path / "cut", **settings)
    assert same(whole.arrays, continued.arrays)
    assert whole.meta == continued.meta


def test_members_trained_together_equal_members_trained_apart(optimiser, tmp_path: Path):
    together, apart = (train(LineStage(optimiser), tmp_path / f"{group}.h5", group=group) for group in (2, 1))
    for name, values in apart.params.items():
        torch.testing.assert_close(together.params[name], values, rtol=1e-12, atol=1e-12)


def test_each_choice_changes_the_weights(optimiser, tmp_path: Path):
    plain = train(LineStage(OptimiserConfig()), tmp_path / "plain.h5").params["slope"]
    assert not torch.allclose(train(LineStage(optimiser), tmp_path / "changed.h5").params["slope"], plain, rtol=1e-7)


def test_parameters_that_are_added_up_are_clipped_once(tmp_path: Path):
    stage = LineStage(OptimiserConfig(max_grad_norm=0.01))
    state = GroupState.fresh(stage, [0], Runtime.resolve(EXACT))
    loop.training_step(stage, state, torch.arange(4)[None], Runtime.resolve(EXACT))
    squared = sum(value.grad.square().sum() for value in state.params.values())
    assert float(squared) == pytest.approx(1e-4, rel=1e-3)


def test_steps_are_those_of_the_librarys_adam():
    ours, theirs = ([torch.linspace(-1, 1, 6).view(2, 3), torch.ones(4)] for _ in range(2))
    adam = Adam({"early": ours[0], "late": ours[1]}, 0.1)
    library = torch.optim.Adam(theirs, lr=0.1, fused=True)
    for step in range(5):
        adam.zero_grad()
        library.zero_grad()
        adam.rate = library.param_groups[0]["lr"] = 0.1 / (step + 1)
        for values in (ours, theirs):
            for value in values[: 1 if step < 2 else 2]:  # the second has no gradient at first
                value.grad = (value + step).cos()
        adam.step()
        library.step()
        assert all(map(torch.equal, ours, theirs))


def test_by_default_nothing_is_added_to_adam_at_a_constant_rate():
    state = GroupState.fresh(LineStage(OptimiserConfig()), [0], Runtime.resolve(CPU))
    assert state.average == {}
    assert not any(name.startswith("average/") for name in state.to_arrays())
    config = TrainingConfig()
    assert {learning_rate(config, EpochSchedule(2, 5, 5, 10), step) for step in range(10)} == {config.learning_rate}


def test_the_learning_rate_rises_and_then_falls_along_half_a_cosine():
    config = TrainingConfig(learning_rate=0.5, optimiser=OptimiserConfig(warmup=4, schedule="cosine"))
    rates = [learning_rate(config, EpochSchedule(1, 24, 24, 24), step) for step in range(24)]
    assert rates[:5] == pytest.approx([0.125, 0.25, 0.375, 0.5, 0.5])
    assert rates[14] == pytest.approx(0.25)
    assert rates[23] == pytest.approx(0.25 * (1 + cos(pi * 19 / 20)))
    assert all(later < earlier for earlier, later in pairwise(rates[4:]))
    assert learning_rate(config, EpochSchedule(1, 4, 4, 4), 3) == 0.5  # a stage no longer than its warm-up


def test_the_step_of_a_later_epoch_has_the_rate_of_that_step():
    stage, runtime = LineStage(OptimiserConfig(schedule="cosine"), epochs=2), Runtime.resolve(EXACT)
    state = GroupState.fresh(stage, [0], runtime)
    state.epoch, state.step = 1, 0
    loop.training_step(stage, state, torch.arange(4)[None], runtime)
    assert state.optimizer.rate == pytest.approx(stage.config.learning_rate / 2)


def test_kept_weights_are_the_averages_of_the_steps(tmp_path: Path, monkeypatch):
    seen, step = [], loop.training_step

    def spy(stage, state, *others):
        loss = step(stage, state, *others)
        seen.append(state.params["slope"].detach().clone())
        return loss

    monkeypatch.setattr(loop, "training_step", spy)
    stage = LineStage(OptimiserConfig(averaging=0.3), epochs=1)
    average = stage.initial(0)[0]["slope"][None]
    kept = train(stage, tmp_path / "run.h5", members=1).params["slope"]
    for n, value in enumerate(seen):
        decay = min(0.3, (1 + n) / (10 + n))
        average = decay * average + (1 - decay) * value
    torch.testing.assert_close(kept, average)
    assert not torch.allclose(kept, seen[-1])


def test_a_run_on_a_cosine_does_not_go_on_with_more_epochs(tumor_dataset: Dataset, tmp_path: Path):
    settings = {"optimiser": OptimiserConfig(schedule="cosine"), "batch_size": 40}
    run_finetune(tumor_dataset, tmp_path, epochs=1, **settings)
    with pytest.raises(MismatchError) as error:
        run_finetune(tumor_dataset, tmp_path, epochs=2, **settings)
    assert "the learning rate of stage `finetune` follows a schedule over all epochs" in error.value.details


def test_a_run_with_averages_goes_on_with_more_epochs(tumor_dataset: Dataset, tmp_path: Path):
    settings = {"optimiser": OptimiserConfig(averaging=0.9), "batch_size": 40}
    whole = run_finetune(tumor_dataset, tmp_path / "whole", epochs=2, **settings)
    run_finetune(tumor_dataset, tmp_path / "cut", epochs=1, **settings)
    assert same(run_finetune(tumor_dataset, tmp_path / "cut", epochs=2, **settings).arrays, whole.arrays)


def test_networks_of_other_methods_may_have_the_settings(optimiser):
    assert TunedNetworkConfig(optimiser=optimiser).training(FinetuneConfig()).optimiser == optimiser
    shared = FinetuneConfig(optimiser=optimiser)  # what COSTAR's stage takes is not another network's
    assert NetworkConfig().training(shared).optimiser == OptimiserConfig()
