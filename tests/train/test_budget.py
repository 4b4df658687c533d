"""How long training lasts: by epochs or by a number of updates, what ended it, and what is recorded of that."""

from pathlib import Path

import pytest

from costar_cli.config.models import FinetuneConfig, PretrainConfig, TrainingConfig
from costar_cli.data import Dataset
from costar_cli.methods.shared.stage import EpochSchedule
from costar_cli.settings.resolve import resolve
from tests.fits import KilledError, die_at_step, fit_method
from tests.train.worlds import run_finetune, run_pretrain, same

NETWORKS = ("costar", "rmsn", "crn", "crn-erm", "gnet", "ct", "ct-erm", "edct")
UPDATES = FinetuneConfig(epochs=2, updates=6, batch_size=8, hidden=8, seed=3)


@pytest.mark.parametrize("n_rows", [3, 40, 4_000])
@pytest.mark.parametrize(("epochs", "updates", "per_epoch"), [(4, 10, 3), (4, 8, 2), (16, 3, 1), (1, 5, 5)])
def test_updates_count_whatever_the_rows_and_epochs_are_equal_shares_of_them(n_rows, epochs, updates, per_epoch):
    pace = EpochSchedule.of(TrainingConfig(epochs=epochs, updates=updates, batch_size=8), n_rows, drop_last=False)
    lengths = [pace.before(epoch + 1) - pace.before(epoch) for epoch in range(pace.epochs)]
    assert sum(lengths) == pace.steps == updates
    assert lengths[:-1] == [per_epoch] * (len(lengths) - 1)
    assert 1 <= lengths[-1] <= per_epoch
    assert len(lengths) <= epochs


def test_without_updates_an_epoch_is_a_pass():
    pace = EpochSchedule.of(TrainingConfig(epochs=5, batch_size=32), 100, drop_last=True)
    assert (pace.epochs, pace.steps_per_epoch, pace.steps_per_pass, pace.steps) == (5, 3, 3, 15)


def test_a_run_by_updates_takes_that_many_steps_through_all_rows(tumor_dataset: Dataset, tmp_path: Path, monkeypatch):
    from costar_cli.training import loop

    seen, step = [], loop.training_step

    def spy(stage, state, rows, runtime):
        seen.append(rows[0].tolist())
        return step(stage, state, rows, runtime)

    monkeypatch.setattr(loop, "training_step", spy)
    trained = run_finetune(tumor_dataset, tmp_path, epochs=4, updates=7, patience=9, members=1)
    (stage,) = trained.meta["stages"]
    assert (stage["steps"], stage["ended_by"], len(stage["history"]["train_loss"][0])) == ([7], ["budget"], 4)
    assert len(seen) == 7
    assert sorted(row for rows in seen[:5] for row in rows) == list(range(40))  # a pass of five batches of eight
    assert seen[5] != seen[0]
    assert stage["passes"] == 7 / 5


def test_a_killed_run_by_updates_continues_to_the_same_weights(tumor_dataset: Dataset, tmp_path: Path, monkeypatch):
    length = {"epochs": 3, "updates": 13, "members": 1, "patience": 9}
    whole = run_finetune(tumor_dataset, tmp_path / "whole", **length)
    die_at_step(monkeypatch, 8)
    with pytest.raises(KilledError):
        run_finetune(tumor_dataset, tmp_path / "cut", **length)
    monkeypatch.undo()
    continued = run_finetune(tumor_dataset, tmp_path / "cut", **length)
    assert same(whole.arrays, continued.arrays)
    assert whole.meta == continued.meta


@pytest.mark.parametrize("method", NETWORKS)
@pytest.mark.parametrize("domain", ["source", "target"])
def test_stages_that_learn_outcomes_take_the_same_updates_together_in_every_network(
    method, domain, tumor_dataset: Dataset
):
    stages = fit_method(tumor_dataset, method, None, UPDATES, domain=domain).meta["stages"]
    learns = [stage for stage in stages if "propensity" not in stage["name"]]
    assert sum(stage["steps"][0] for stage in learns) == UPDATES.updates
    assert all(stage["ended_by"] == ["budget"] for stage in stages)
    assert all(stage["steps"] == [3] for stage in stages if stage not in learns)


def test_a_run_that_patience_ended_is_told_from_one_that_ran_out_of_epochs(tumor_dataset: Dataset, tmp_path: Path):
    hopeless = {"learning_rate": 1e-12, "patience": 1, "members": 1}
    (stage,) = run_finetune(tumor_dataset, tmp_path / "a", epochs=9, **hopeless).meta["stages"]
    assert stage["ended_by"] == ["patience"]
    assert stage["steps"] == [5 * len(stage["history"]["train_loss"][0])]
    assert stage["steps"][0] < 45
    (stage,) = run_pretrain(tumor_dataset, tmp_path / "b", epochs=2).meta["stages"]
    assert (stage["name"], stage["steps"], stage["ended_by"]) == ("pretrain", [4, 4], ["budget", "budget"])


@pytest.mark.parametrize("dataset", [None, "tumor", "mimic", "mimic-factual", "m5", "linear", "mine"])
def test_quick_and_default_count_updates_and_paper_counts_epochs(dataset):
    for config in (PretrainConfig, FinetuneConfig):
        quick, default = (resolve({}, preset=preset, dataset=dataset)[config] for preset in ("quick", "default"))
        assert 0 < quick.updates < default.updates
        assert resolve({}, preset="paper", dataset=dataset)[config].updates is None


@pytest.mark.parametrize("preset", ["quick", "default"])
def test_a_small_table_gets_as_many_steps_as_a_large_one(preset):
    settings = resolve({}, preset=preset)
    for config in (settings[PretrainConfig], settings[FinetuneConfig]):
        paces = [EpochSchedule.of(config, n_rows, drop_last=True) for n_rows in (79, 10_000, 1_000_000)]
        assert {pace.steps for pace in paces} == {config.updates}
        assert {pace.epochs for pace in paces} == {config.epochs}


def test_epochs_that_somebody_chose_count_instead_of_a_presets_updates():
    chosen = resolve({FinetuneConfig: {"epochs": 3}}, preset="quick")
    assert (chosen[FinetuneConfig].epochs, chosen[FinetuneConfig].updates) == (3, None)
    both = resolve({FinetuneConfig: {"epochs": 3, "updates": 9}}, preset="quick")
    assert both[FinetuneConfig].updates == 9
