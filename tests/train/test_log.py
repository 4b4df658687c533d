"""Logs of training: each epoch of each member once, however often the run was stopped."""

import csv
import json
import math
import sys
from pathlib import Path

import pytest

from costar_cli.data import Dataset
from costar_cli.errors import MismatchError, StorageError, UsageError
from costar_cli.training import TrainingLog, check_log
from costar_cli.training.log import COLUMNS
from tests.fits import KilledError, die_at_step
from tests.train.worlds import run_finetune, run_pretrain

RUN = "a" * 64
HEADER = ",".join(COLUMNS)


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))


def logged(path: Path) -> list[dict[str, str]]:
    """The rows without what depends on the clock."""
    return sorted(
        [{key: value for key, value in row.items() if key != "seconds"} for row in rows(path)],
        key=lambda row: (row["stage"], int(row["member"]), int(row["epoch"])),
    )


@pytest.fixture(scope="module")
def pretrained(tumor_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("log")
    with TrainingLog(folder / "log.csv", RUN) as log:
        trained = run_pretrain(tumor_dataset, folder, log=log)
    return folder / "log.csv", trained.meta


def test_a_row_per_member_and_epoch_has_what_the_model_remembers(pretrained: tuple[Path, dict]) -> None:
    path, meta = pretrained
    found = rows(path)
    assert [(row["member"], row["epoch"]) for row in logged(path)] == [(m, e) for m in "12" for e in "123"]
    for row in found:
        losses = meta["history"]["train_loss"][int(row["member"]) - 1]
        assert float(row["loss"]) == losses[int(row["epoch"]) - 1]
        assert float(row["learning_rate"]) > 0
        assert float(row["seconds"]) >= 0
    steps = sorted({int(row["step"]) for row in found})
    assert steps == [steps[0], 2 * steps[0], 3 * steps[0]]
    assert steps[-1] == meta["stages"][0]["steps"][0]


@pytest.mark.parametrize("steps", [1, 3, 5, 8])
def test_a_killed_run_leaves_whole_rows_and_continues_the_log_without_duplicates(
    steps: int, tumor_dataset: Dataset, pretrained: tuple[Path, dict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.csv"
    die_at_step(monkeypatch, steps)
    with pytest.raises(KilledError), TrainingLog(path, RUN) as log:
        run_pretrain(tumor_dataset, tmp_path, log=log)
    monkeypatch.undo()
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{RUN},pretrain,1,2,4")  # what a process killed while writing leaves
    check_log(path, RUN, overwrite=False)
    with TrainingLog(path, RUN) as log:
        run_pretrain(tumor_dataset, tmp_path, log=log)
    assert logged(path) == logged(pretrained[0])


def test_epochs_before_the_log_was_asked_for_are_filled_in(
    tumor_dataset: Dataset, pretrained: tuple[Path, dict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_at_step(monkeypatch, 8)
    with pytest.raises(KilledError):
        run_pretrain(tumor_dataset, tmp_path)
    monkeypatch.undo()
    with TrainingLog(tmp_path / "log.csv", RUN) as log:
        run_pretrain(tumor_dataset, tmp_path, log=log)
    assert logged(tmp_path / "log.csv") == logged(pretrained[0])


def test_json_lines_have_numbers_and_the_score_that_selects(tumor_dataset: Dataset, tmp_path: Path) -> None:
    with TrainingLog(tmp_path / "log.jsonl", RUN) as log:
        trained = run_finetune(tumor_dataset, tmp_path, log=log, epochs=2, select_on="rolling-origin", members=1)
    found = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text("utf-8").splitlines()]
    history = trained.meta["history"]
    assert [row["selection_score"] for row in found] == history["selection_score"][0]
    assert [row["validation_loss"] for row in found] == history["validation_loss"][0]
    assert all(math.isfinite(row["seconds"]) and row["run"] == RUN for row in found)


def test_a_file_that_is_no_log_of_this_run_is_kept(pretrained: tuple[Path, dict], tmp_path: Path) -> None:
    path, _ = pretrained
    check_log(path, RUN, overwrite=False)
    with pytest.raises(MismatchError, match="no log of this run"):
        check_log(path, "b" * 64, overwrite=False)
    check_log(path, "b" * 64, overwrite=True)


@pytest.mark.parametrize(
    ("name", "text", "is_log"),
    [
        ("own.csv", "patient,day\n1,2\n", False),
        ("own.csv", "one line without an end", False),
        ("own.jsonl", "[1]\n", False),
        ("own.jsonl", '{"mine": 1}', False),
        ("own.jsonl", "{\n", False),
        ("short.csv", f"{HEADER}\n{RUN},pretrain\n", False),
        ("short.csv", f"{HEADER}\n{RUN},pretrain,one,1,1,,,,,\n", False),
        ("short.jsonl", f'{{"run": "{RUN}", "stage": "pretrain"}}\n', False),
        ("empty.csv", "", True),
        ("killed.csv", HEADER[:9], True),
        ("killed.csv", f"{HEADER}\n{RUN[:5]}", True),
        ("killed.csv", f"{HEADER}\n{RUN},pre", True),
        ("killed.jsonl", '{"run": "', True),
        ("killed.jsonl", f'{{"run": "{RUN}", "sta', True),
    ],
)
def test_a_log_is_continued_only_from_what_its_own_run_wrote(
    name: str, text: str, is_log: object, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text)
    if is_log:
        check_log(path, RUN, overwrite=False)
        return
    with pytest.raises(MismatchError, match="no log of this run"):
        check_log(path, RUN, overwrite=False)
    assert path.read_text() == text


def test_what_cannot_be_written_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StorageError, match="no folder"):
        check_log(tmp_path / "none" / "log.csv", RUN, overwrite=False)
    with pytest.raises(UsageError, match=r"log\.txt"):
        check_log(tmp_path / "log.txt", RUN, overwrite=False)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(UsageError, match="not installed") as caught:
        check_log(tmp_path / "runs", RUN, overwrite=False)
    assert "costar[tensorboard]" in caught.value.fix


def test_a_disk_that_fills_up_under_a_log_is_an_error_that_names_it(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))
    try:
        with pytest.raises(StorageError, match="larger than the system allows") as caught:
            TrainingLog(tmp_path / "log.csv", RUN)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.where == str(tmp_path / "log.csv")
    assert "--log" in caught.value.fix


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TensorBoard's own imports
def test_tensorboard_has_the_curves_of_each_member_once(
    tumor_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tmp_path / "runs"
    die_at_step(monkeypatch, 5)
    with pytest.raises(KilledError), TrainingLog(folder, RUN) as log:
        run_pretrain(tumor_dataset, tmp_path, log=log)
    monkeypatch.undo()
    check_log(folder, RUN, overwrite=False)
    with TrainingLog(folder, RUN) as log:
        trained = run_pretrain(tumor_dataset, tmp_path, log=log)
    for member in (1, 2):
        events = EventAccumulator(str(folder / f"member-{member}")).Reload()
        scalars = events.Scalars("pretrain/loss")
        assert len(scalars) == len({scalar.step for scalar in scalars}) == 3
        found = [scalar.value for scalar in sorted(scalars, key=lambda scalar: scalar.step)]
        assert found == pytest.approx(trained.meta["history"]["train_loss"][member - 1], rel=1e-6)
