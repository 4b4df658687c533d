"""Interrupted runs: what is saved, what continues, and that it ends as if nothing had happened."""

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset
from costar_cli.errors import SignalHandler
from costar_cli.reporting import NullReporter
from costar_cli.training import RunIdentity, Runtime, loop
from costar_cli.training.checkpoint import Checkpoint, Interrupt
from costar_cli.training.group import GroupState
from costar_cli.training.loop import train_members
from tests.fits import KilledError, die_at_step, fit_method
from tests.train.worlds import CPU, EXACT, LEAVING, close, run_finetune, run_pretrain, same, supervised_stage


@pytest.mark.parametrize(
    ("run", "steps"),  # of an epoch 2 and 5: after the first step, within an epoch, at its end, in the second member
    [(run_pretrain, 1), (run_pretrain, 3), (run_pretrain, 8), (run_finetune, 3), (run_finetune, 5)],
)
def test_a_killed_run_continues_to_the_same_weights(
    run, steps, tumor_dataset: Dataset, whole, tmp_path: Path, monkeypatch
):
    expected = whole(run, members=2)
    die_at_step(monkeypatch, steps)
    with pytest.raises(KilledError):
        run(tumor_dataset, tmp_path / "cut", members=2)
    monkeypatch.undo()
    reporter_notes = []
    monkeypatch.setattr(NullReporter, "note", lambda self, message: reporter_notes.append(message))
    continued = run(tumor_dataset, tmp_path / "cut", members=2)
    assert same(expected.arrays, continued.arrays)
    assert expected.meta == continued.meta
    assert any("continuing" in note for note in reporter_notes)


def members_per_step(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The members of each step that is taken from now on."""
    taken: list[list[int]] = []
    step = loop.training_step

    def noted(stage, state, *args):
        taken.append(state.members)
        return step(stage, state, *args)

    monkeypatch.setattr(loop, "training_step", noted)
    return taken


def test_members_that_have_stopped_take_no_more_steps_and_change_no_other(
    tumor_dataset: Dataset, whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = whole(run_finetune, runtime=EXACT.model_copy(update={"group": 1}), **LEAVING)
    taken = members_per_step(monkeypatch)
    together = run_finetune(tumor_dataset, runtime=EXACT, **LEAVING)
    close(expected.arrays, together.arrays)
    steps = together.meta["stages"][0]["steps"]
    assert len(set(steps)) > 1
    assert [sum(member in members for members in taken) for member in range(3)] == steps
    assert steps == expected.meta["stages"][0]["steps"]
    assert together.meta["stages"][0]["ended_by"] == expected.meta["stages"][0]["ended_by"]


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_run_killed_after_members_have_left_continues_to_the_same_weights(
    left: int, tumor_dataset: Dataset, whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        taken = members_per_step(patched)
        expected = run_finetune(tumor_dataset, runtime=CPU, **LEAVING)
    groups = [members for at, members in enumerate(taken) if at == 0 or members != taken[at - 1]]
    last = groups[min(left, len(groups) - 1)]
    die_at_step(monkeypatch, 1 + taken.index(last))
    with pytest.raises(KilledError):
        run_finetune(tumor_dataset, tmp_path, runtime=CPU, **LEAVING)
    monkeypatch.undo()
    taken = members_per_step(monkeypatch)
    continued = run_finetune(tumor_dataset, tmp_path, runtime=CPU, **LEAVING)
    assert taken[0] == last
    assert same(expected.arrays, continued.arrays)
    assert expected.meta == continued.meta


def test_interrupt_saves_between_steps_and_the_run_continues(
    tumor_dataset: Dataset, whole, tmp_path: Path, monkeypatch
):
    assert threading.current_thread() is threading.main_thread()
    expected = whole(run_pretrain, members=2)
    step = loop.training_step
    calls = iter(range(10**6))

    def interrupted_step(*args):
        if next(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return step(*args)

    monkeypatch.setattr(loop, "training_step", interrupted_step)
    with pytest.raises(KeyboardInterrupt):
        run_pretrain(tumor_dataset, tmp_path / "cut")
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert same(expected.arrays, run_pretrain(tumor_dataset, tmp_path / "cut").arrays)


@pytest.mark.parametrize("kept", [True, False])
def test_progress_is_said_to_be_saved_where_a_run_state_is_kept(
    *, kept: bool, tumor_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = loop.training_step

    def interrupted_step(*args: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return step(*args)

    notes: list[str] = []
    monkeypatch.setattr(NullReporter, "note", lambda self, message: notes.append(message))
    monkeypatch.setattr(loop, "training_step", interrupted_step)
    with pytest.raises(KeyboardInterrupt):
        fit_method(tumor_dataset, "crn-erm", None, FinetuneConfig(), run_state=tmp_path / "r.h5" if kept else None)
    assert any("progress saved" in note for note in notes) == kept
    assert (tmp_path / "r.h5").exists() == kept


def test_a_signal_that_is_sent_to_the_process_and_its_group_counts_once(monkeypatch):
    heard = []
    previous = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        with Interrupt() as interrupt:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            assert interrupt.came == signal.SIGTERM
            monkeypatch.setattr(SignalHandler, "AGAIN_S", 0.0)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            assert heard == []
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert heard == [signal.SIGTERM]


def test_an_unreadable_state_is_not_continued_and_that_is_said(tumor_dataset: Dataset, tmp_path: Path):
    stage = supervised_stage(tumor_dataset)
    path = tmp_path / "run.h5"
    first = Checkpoint(path, RunIdentity("f"), reporter=NullReporter(), seconds=0)
    train_members(stage, 1, Runtime.resolve(CPU), first, NullReporter())
    assert len(Checkpoint(path, RunIdentity("f"), reporter=NullReporter()).finished_groups()) == 1
    path.write_bytes(b"garbage")
    reporter = NullReporter()
    assert Checkpoint(path, RunIdentity("f"), reporter=reporter).finished_groups() == []
    assert "unreadable" in reporter.warnings[0]


@pytest.mark.parametrize(("first", "then"), [(1, 4), (3, 2)])
def test_a_run_continues_with_another_group_size(
    first, then, tumor_dataset: Dataset, whole, tmp_path: Path, monkeypatch
):
    sizes = [EXACT.model_copy(update={"group": size}) for size in (first, then)]
    expected = whole(run_finetune, members=4, epochs=2, runtime=EXACT)
    die_at_step(monkeypatch, 12)  # in the second group of members
    with pytest.raises(KilledError):
        run_finetune(tumor_dataset, tmp_path / "cut", members=4, epochs=2, runtime=sizes[0])
    monkeypatch.undo()
    continued = run_finetune(tumor_dataset, tmp_path / "cut", members=4, epochs=2, runtime=sizes[1])
    assert continued.meta["members"] == 4
    close(continued.arrays, expected.arrays)


def test_what_has_no_gradient_has_no_moments_and_the_others_continue_exactly(tumor_dataset: Dataset, monkeypatch):
    stage, runtime, rows = supervised_stage(tumor_dataset), Runtime.resolve(CPU), torch.arange(8).expand(2, -1)
    idle = "head.network.2.bias"
    loss = stage.loss
    monkeypatch.setattr(stage, "loss", lambda params, *rest: loss(params | {idle: params[idle].detach()}, *rest))
    whole = GroupState.fresh(stage, [0, 1], runtime)
    begun = whole.params[idle].detach().clone()
    loop.training_step(stage, whole, rows, runtime)
    saved = {name: value.copy() for name, value in whole.to_arrays().items()}
    assert {name for name in whole.params if f"adam/exp_avg/{name}" not in saved} == {idle}
    continued = GroupState.fresh(stage, [0, 1], runtime)
    continued.load_arrays(saved)
    for state in (whole, continued):
        loop.training_step(stage, state, rows, runtime)
    assert same(whole.to_arrays(), continued.to_arrays())
    assert torch.equal(continued.params[idle], begun)
