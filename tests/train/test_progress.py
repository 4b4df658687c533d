"""What training says while it runs is what its history records afterwards."""

import contextlib
from pathlib import Path

import numpy as np
import pytest

from costar_cli.data import Dataset
from costar_cli.methods.shared.stage import EpochSchedule
from costar_cli.reporting import NullReporter
from costar_cli.training import RunIdentity, Runtime
from costar_cli.training.checkpoint import Checkpoint
from costar_cli.training.loop import train_members
from tests.train.worlds import CPU, supervised_stage


class Diary(NullReporter):
    """Keeps what tasks say."""

    def __init__(self):
        super().__init__()
        self.said: list[dict[str, float]] = []

    @contextlib.contextmanager
    def task(self, title, *, total=None, done=0, unit="step"):
        yield self

    def advance(self, units=1, **metrics):
        if metrics:
            self.said.append(metrics)


def test_what_progress_says_at_the_end_of_an_epoch_is_what_the_history_records(tumor_dataset: Dataset, tmp_path: Path):
    stage, diary = supervised_stage(tumor_dataset, epochs=3), Diary()
    checkpoint = Checkpoint(tmp_path / "run.h5", RunIdentity("f"), reporter=diary)
    together = Runtime.resolve(CPU.model_copy(update={"group": 2}))
    history = train_members(stage, 2, together, checkpoint, diary).history
    ends = [said for said in diary.said if "validation_loss" in said]
    assert [said["epoch"] for said in ends] == [1, 2, 3]
    for key in ("training_loss", "validation_loss"):
        recorded = np.mean(history[key.replace("training", "train")], axis=0)
        np.testing.assert_allclose([said[key] for said in ends], recorded)
    before_the_end = [said for said in diary.said if "training_loss_so_far" in said]
    assert len(before_the_end) == EpochSchedule.of(stage.config, stage.n_train, drop_last=stage.drop_last).steps
    last = before_the_end[len(before_the_end) // 3 - 1]
    assert last["training_loss_so_far"] == pytest.approx(ends[0]["training_loss"])
    assert not any("validation_loss" in said for said in before_the_end)


def test_progress_names_the_member_that_is_trained_alone(tumor_dataset: Dataset, tmp_path: Path):
    stage, diary = supervised_stage(tumor_dataset, epochs=1), Diary()
    checkpoint = Checkpoint(tmp_path / "run.h5", RunIdentity("f"), reporter=diary)
    history = train_members(stage, 2, Runtime.resolve(CPU.model_copy(update={"group": 1})), checkpoint, diary).history
    said = {said["member"]: said["validation_loss"] for said in diary.said if "validation_loss" in said}
    assert said == {1: history["validation_loss"][0][0], 2: history["validation_loss"][1][0]}
