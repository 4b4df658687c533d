"""Interrupted runs that are called again otherwise: refused by name, or continued where only epochs are added."""

from pathlib import Path

import pytest
import torch

from costar_cli.config.models import FinetuneConfig, RuntimeConfig
from costar_cli.data import Dataset
from costar_cli.errors import MismatchError
from costar_cli.files import read_artifact, write_artifact
from costar_cli.methods.registry import METHODS
from costar_cli.reporting import NullReporter
from costar_cli.training import RunIdentity, loop
from costar_cli.training.checkpoint import Checkpoint
from tests.fits import KilledError, die_at_step, fit_method
from tests.train.worlds import run_finetune, run_pretrain, same


def cut(run, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run end after some steps, each of which was saved."""
    die_at_step(monkeypatch, steps)
    with pytest.raises(KilledError):
        run()
    monkeypatch.undo()


@pytest.mark.parametrize(("run", "epochs", "more"), [(run_pretrain, 2, 3), (run_finetune, 4, 7)])
@pytest.mark.parametrize("members_done", [0, 1], ids=["in the first member", "after a member ended by its budget"])
def test_more_epochs_continue_to_the_weights_of_a_run_that_was_never_interrupted(
    run, epochs, more, members_done, tumor_dataset: Dataset, whole, tmp_path: Path, monkeypatch
):
    """With 4 epochs and a patience of 3, early stopping takes part."""
    expected = whole(run, members=2, epochs=more)
    per_epoch = 2 if run is run_pretrain else 5
    steps = members_done * epochs * per_epoch + per_epoch + 1
    cut(lambda: run(tumor_dataset, tmp_path / "cut", members=2, epochs=epochs), steps, monkeypatch)
    notes: list[str] = []
    monkeypatch.setattr(NullReporter, "note", lambda self, message: notes.append(message))
    continued = run(tumor_dataset, tmp_path / "cut", members=2, epochs=more)
    assert same(expected.arrays, continued.arrays)
    assert expected.meta == continued.meta
    assert any(f"with {more} epochs instead of {epochs}" in note for note in notes)


@pytest.mark.slow
def test_a_longer_run_that_is_interrupted_again_loses_no_member(
    tumor_dataset: Dataset, whole, tmp_path: Path, monkeypatch
):
    expected = whole(run_pretrain, members=3, epochs=5)
    first, second, third = (
        lambda epochs=epochs: run_pretrain(tumor_dataset, tmp_path / "cut", members=3, epochs=epochs)
        for epochs in (2, 4, 5)
    )
    cut(first, 2 * 2 * 2 + 1, monkeypatch)  # two members are done
    cut(second, 1, monkeypatch)
    steps = []
    step = loop.training_step
    monkeypatch.setattr(loop, "training_step", lambda *args: steps.append(1) or step(*args))
    assert same(expected.arrays, third().arrays)
    assert len(steps) == 3 * 5 * 2 - (2 * 2 * 2 + 1) - 1


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"epochs": 2}, "epochs: was 3, now 2"),
        ({"learning_rate": 0.5}, "learning_rate: was 0.001, now 0.5"),
        ({"members": 3}, "members: was 2, now 3"),
        ({"max_contrast": 9}, "max_contrast: was not set, now 9"),
    ],
)
def test_other_settings_are_refused_by_name(changes, line, tumor_dataset: Dataset, tmp_path: Path, monkeypatch):
    cut(lambda: run_pretrain(tumor_dataset, tmp_path), 3, monkeypatch)
    state = (tmp_path / "pretrain.h5").read_bytes()
    with pytest.raises(MismatchError, match="other inputs or settings") as caught:
        run_pretrain(tumor_dataset, tmp_path, **changes)
    assert caught.value.details == (line,)
    assert "--fresh" in caught.value.fix
    assert "--overwrite" not in caught.value.fix
    assert (tmp_path / "pretrain.h5").read_bytes() == state


@pytest.mark.slow
def test_fresh_starts_over_with_other_settings(tumor_dataset: Dataset, whole, tmp_path: Path, monkeypatch):
    expected = whole(run_pretrain, members=2)
    cut(lambda: run_pretrain(tumor_dataset, tmp_path, learning_rate=0.5), 3, monkeypatch)
    assert same(run_pretrain(tumor_dataset, tmp_path, fresh=True, members=2).arrays, expected.arrays)


def test_more_epochs_and_another_setting_are_refused_with_both(tumor_dataset: Dataset, tmp_path: Path, monkeypatch):
    cut(lambda: run_pretrain(tumor_dataset, tmp_path), 3, monkeypatch)
    with pytest.raises(MismatchError) as caught:
        run_pretrain(tumor_dataset, tmp_path, epochs=9, seed=6)
    assert caught.value.details == ("epochs: was 3, now 9", "seed: was 5, now 6")
    assert "to continue it, use `--epochs 3 --seed 5`" in str(caught.value.fix)


def test_other_inputs_and_another_version_are_named():
    before = RunIdentity("a", {"dataset": "d" * 64}, {"epochs": 1}, costar="0.0.1")
    now = RunIdentity("b", {"dataset": "e" * 64, "encoder": "f" * 64}, {"epochs": 2}, costar="0.0.2")
    assert now.differences(before) == [
        "dataset: was dddddddd, now eeeeeeee",
        "encoder: was none, now ffffffff",
        "epochs: was 1, now 2",
        "costar: was 0.0.1, now 0.0.2",
    ]
    assert not now.only_trains_longer(before)
    assert RunIdentity("b", settings={"a.epochs": 2}).only_trains_longer(RunIdentity("a", settings={"a.epochs": 1}))


def test_a_state_that_does_not_say_what_it_was_made_from_is_refused_unless_it_is_the_same_run(tmp_path: Path):
    path = tmp_path / "run.h5"
    meta = {"fingerprint": "old", "finished": [], "current": None}
    write_artifact(path, kind="run-state", arrays={}, meta=meta)
    assert Checkpoint(path, RunIdentity("old"), reporter=NullReporter()).finished_groups() == []
    with pytest.raises(MismatchError, match="other inputs or settings") as caught:
        Checkpoint(path, RunIdentity("new"), reporter=NullReporter())
    assert "did not record" in caught.value.details[0]


def fit(dataset: Dataset, method: str, epochs: int, path: Path, *, fresh: bool = False):
    config = FinetuneConfig(epochs=epochs, patience=50, batch_size=20, seed=5, members=1)
    settings = METHODS[method].default_settings()
    changed = {
        name: value.model_copy(update={"epochs": epochs, "batch_size": 40, "width": 8})
        for name, value in settings
        if hasattr(value, "epochs")
    }
    path.mkdir(exist_ok=True)
    return fit_method(
        dataset, method, settings.model_copy(update=changed), config, run_state=path / "run.h5", fresh=fresh
    )


def test_balancing_that_follows_a_schedule_over_all_epochs_cannot_be_made_longer(
    tumor_dataset: Dataset, tmp_path: Path, monkeypatch
):
    cut(lambda: fit(tumor_dataset, "crn", 3, tmp_path), 2, monkeypatch)
    with pytest.raises(MismatchError, match="other inputs or settings") as caught:
        fit(tumor_dataset, "crn", 4, tmp_path)
    assert "follows a schedule over all epochs" in caught.value.details[-1]
    cut(lambda: fit(tumor_dataset, "crn-erm", 3, tmp_path / "erm"), 2, monkeypatch)
    longer = fit(tumor_dataset, "crn-erm", 4, tmp_path / "erm")
    assert same(longer.arrays, fit(tumor_dataset, "crn-erm", 4, tmp_path / "whole").arrays)


def test_a_length_in_updates_is_not_made_longer_by_epochs(tumor_dataset: Dataset, tmp_path: Path, monkeypatch):
    cut(lambda: run_finetune(tumor_dataset, tmp_path, epochs=2, updates=8), 3, monkeypatch)
    with pytest.raises(MismatchError) as caught:
        run_finetune(tumor_dataset, tmp_path, epochs=4, updates=8)
    assert caught.value.details[0] == "epochs: was 2, now 4"
    assert "a number of `updates`" in caught.value.details[1]


def test_a_fit_of_several_stages_gets_longer_in_its_first_one_only(tumor_dataset: Dataset, tmp_path: Path, monkeypatch):
    cut(lambda: fit(tumor_dataset, "rmsn", 3, tmp_path / "first"), 2, monkeypatch)
    whole = fit(tumor_dataset, "rmsn", 4, tmp_path / "whole")
    assert same(fit(tumor_dataset, "rmsn", 4, tmp_path / "first").arrays, whole.arrays)
    cut(lambda: fit(tumor_dataset, "rmsn", 3, tmp_path / "second"), 3 + 2, monkeypatch)
    assert (tmp_path / "second" / "run.1.h5").exists()
    with pytest.raises(MismatchError) as caught:
        fit(tumor_dataset, "rmsn", 4, tmp_path / "second")
    assert "a later stage has already started" in caught.value.details[-1]


def test_fresh_forgets_the_states_of_all_stages(tumor_dataset: Dataset, tmp_path: Path, monkeypatch):
    cut(lambda: fit(tumor_dataset, "rmsn", 3, tmp_path), 3 + 2, monkeypatch)
    later = tmp_path / "run.1.h5"
    assert read_artifact(later, kind="run-state").meta["made_from"]["settings"]["epochs"] == 3
    cut(lambda: fit(tumor_dataset, "rmsn", 2, tmp_path, fresh=True), 1, monkeypatch)
    assert not later.exists()


@pytest.mark.slow
def test_a_run_goes_on_with_other_threads_and_its_file_tells_both(tumor_dataset: Dataset, tmp_path: Path, monkeypatch):
    def run(threads: int):
        return run_pretrain(tumor_dataset, tmp_path, runtime=RuntimeConfig(device="cpu", threads=threads))

    before = torch.get_num_threads()
    notes: list[str] = []
    try:
        cut(lambda: run(1), 3, monkeypatch)
        monkeypatch.setattr(NullReporter, "note", lambda self, message: notes.append(message))
        trained = run(2)
    finally:
        torch.set_num_threads(before)
    assert [making["threads"] for making in trained.meta["made_with"]] == [1, 2]
    assert any("threads: was 1, now 2" in note for note in notes)
