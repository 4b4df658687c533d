"""Averages and effects in parts: the answers of one run, also where a job of two is killed; what is refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil
import pytest
from cli_world import DOCUMENTS, Run, run_process
from test_cli_benchmark_ray import cluster, needs_ray

from costar_cli.cli.app import main
from costar_cli.errors import ExitCode
from costar_cli.files import read_artifact, write_artifact
from costar_cli.questions import answers as answers_module

__all__ = ["cluster"]  # a fixture

Call = Callable[..., Run]

RULE = {"rule": "treatment if treatment in last 1 < 1", "times": 3}
PLANS = {"plans": {"never": [{}] * 3, "first": [{"treatment": 1}, {}, {}], "every other": RULE}}
EFFECT = (
    "effect",
    "--plan",
    "plans.json",
    "-w",
    "w",
    "--subjects",
    "source/train",
    "--origin",
    3,
    "--learner",
    "regression",
    "-e",
    "all",
)
AVERAGE = ("whatif", "--plan", "plans.json", "-w", "w", "--subjects", "source/train", "--origin", 3, "--average",
           "--by", "outcome:2")  # fmt: skip
EVALUATE = ("evaluate", "-w", "w", "--bootstrap", 40, "--no-plots")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data set of 400 subjects, a model that forecasts, whose averages are corrected, and plans."""
    folder = tmp_path_factory.mktemp("fitted")
    sizes = {"train": 400, "val": 60, "test": 40, "target_train": 8, "target_val": 8, "target_test": 8}
    words = [word for name, n in sizes.items() for word in (f"--{name.replace('_', '-')}", str(n))]
    place = ["-w", str(folder / "w"), "--quiet"]
    assert main(["simulate", "linear", *words, "--steps", "8", "--gamma", "0.5", *place]) == 0
    assert main(["finetune", "--method", "ridge", *place]) == 0
    (folder / "plans.json").write_text(json.dumps(PLANS), "utf-8")
    return folder


@pytest.fixture
def here(fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same folder, of one test, in which chunks are small."""
    shutil.copytree(fitted, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(answers_module, "MOST_MOMENTS", 64)
    return tmp_path


def results(run: Run) -> dict[str, Any]:
    assert run.code == 0, run.err
    assert DOCUMENTS.is_valid(run.document)
    return run.document["result"]


@pytest.mark.parametrize(("words", "parts"), [(AVERAGE, 3), (EFFECT, 5), (EFFECT, 2)])
def test_the_merged_answer_is_that_of_one_run(words: tuple[object, ...], parts: int, here: Path, call: Call) -> None:
    one = results(call(*words, "--csv", "one.csv", "--json"))
    for number in range(1, parts + 1):
        part = call(*words, "--csv", "all.csv", "--shard", f"{number}/{parts}", "--json")
        assert results(part) == {"shard": f"{number}/{parts}", "whole": "all.csv"}
    assert not Path("all.csv").exists()
    all_ = results(call(*words, "--csv", "all.csv", "--merge", "--report", "page.html", "--json"))
    assert Path("page.html").exists()
    assert all_ == one
    assert Path("all.csv").read_bytes() == Path("one.csv").read_bytes()
    rows = one["averages"] if "averages" in one else one["effects"]
    assert any(row["lower"] is not None for row in rows), "nothing has an interval that could differ"


def test_parts_of_averages_serve_any_groups(here: Path, call: Call) -> None:
    for number in (1, 2):
        assert call(*AVERAGE[:-2], "--csv", "all.csv", "--shard", f"{number}/2").code == 0
    assert results(call(*AVERAGE, "--csv", "all.csv", "--merge", "--json"))["averages"] == \
        results(call(*AVERAGE, "--json"))["averages"]  # fmt: skip


@pytest.mark.parametrize("words", [AVERAGE, EFFECT])
def test_a_part_that_is_there_is_not_made_again(words: tuple[object, ...], here: Path, call: Call) -> None:
    asked = (*words, "--csv", "all.csv", "--shard", "1/2", "--json")
    assert call(*asked).document["status"] == "done"
    before = Path("all.shard-1-of-2.h5").stat()
    assert call(*asked).document["status"] == "up_to_date"
    assert Path("all.shard-1-of-2.h5").stat() == before
    refused = call(*[2 if word == 3 else word for word in words], "--csv", "all.csv", "--shard", "1/2")
    assert (refused.code, "no part of this question" in refused.err) == (ExitCode.MISMATCH, True)
    assert call(*asked, "--overwrite").document["status"] == "done"


@pytest.mark.parametrize("words", [AVERAGE, EFFECT])
def test_parts_that_are_missing_or_of_another_question_are_refused(
    words: tuple[object, ...], here: Path, call: Call
) -> None:
    merge = (*words, "--csv", "all.csv", "--merge")
    assert call(*words, "--csv", "all.csv", "--shard", "1/2").code == 0
    missing = call(*merge)
    assert (missing.code, "1 of 2 parts is missing" in missing.err, "2/2" in missing.err) == (
        ExitCode.USAGE,
        True,
        True,
    )
    Path("all.shard-1-of-2.h5").rename("all.shard-2-of-2.h5")
    assert call(*words, "--csv", "all.csv", "--shard", "1/2").code == 0
    renamed = call(*merge)
    assert (renamed.code, "is part 1/2" in renamed.err) == (ExitCode.MISMATCH, True)
    assert call(*words, "--csv", "all.csv", "--shard", "2/2", "--overwrite").code == 0
    Path("plans.json").write_text(json.dumps({"plans": dict(list(PLANS["plans"].items())[:2])}))
    other = call(*merge)
    assert (other.code, "the parts answer another question" in other.err) == (ExitCode.MISMATCH, True)
    assert not Path("all.csv").exists()


@pytest.mark.parametrize(
    ("words", "damage"),
    [(AVERAGE, "lacks"), (AVERAGE, "plans"), (AVERAGE, "rows"), (EFFECT, "lacks"), (EFFECT, "rows")],
)
def test_a_part_that_lacks_something_is_damaged(words: tuple[object, ...], damage: str, here: Path, call: Call) -> None:
    for number in (1, 2):
        assert call(*words, "--csv", "all.csv", "--shard", f"{number}/2").code == 0
    path = Path("all.shard-2-of-2.h5")
    part = read_artifact(path)
    arrays = dict(part.arrays)
    for name, values in part.arrays.items():
        if damage == "lacks" and name.endswith(("influence", "moments/0")):
            del arrays[name]
        elif damage == "plans" and "model" in name:
            arrays[name] = values[:, :1] if "moments" in name else values[:1]
        elif damage == "rows" and name.endswith("influence"):
            arrays[name] = values[:, :5]
        elif damage == "rows" and "moments" in name:
            arrays[name] = values[:5]
    write_artifact(path, kind="part", arrays=arrays, meta=part.meta, parents=part.parents, overwrite=True)
    run = call(*words, "--csv", "all.csv", "--merge")
    assert run.code == ExitCode.ARTIFACT, run.err
    assert "--overwrite" in run.err


@pytest.mark.parametrize("words", [AVERAGE, EFFECT])
@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--shard", "1/2"], "parts are called like the table of all"),
        (["--merge"], "parts are called like the table of all"),
        (["--csv", "a.csv", "--shard", "1/2", "--merge"], "both --shard and --merge"),
        (["--csv", "a.csv", "--shard", "1/2", "--plot", "a.png"], "--plot shows all parts"),
        (["--csv", "a.csv", "--shard", "1/2", "--report", "a.html"], "--report shows all parts"),
        (["--csv", "a.csv", "--shard", "3/2"], "no part"),
    ],
)
def test_what_cannot_be_a_part_is_refused(
    flags: list[str], problem: str, words: tuple[object, ...], here: Path, call: Call
) -> None:
    run = call(*words, *flags)
    assert (run.code, problem in run.err) == (ExitCode.USAGE, True), run.err


def test_single_answers_and_plans_on_standard_input_have_no_such_parts(here: Path, call: Call) -> None:
    answers = call("whatif", *AVERAGE[1:7], "--csv", "a.csv", "--merge")
    assert (answers.code, "`costar merge`" in answers.err) == (ExitCode.USAGE, True)
    run = call("effect", "--plan", "-", "-w", "w", "--csv", "a.csv", "--shard", "1/2")
    assert (run.code, "parts share a file of plans" in run.err) == (ExitCode.USAGE, True)


WORK = (
    (AVERAGE, ("--csv", "averages.csv"), ("--merge",)),
    (EFFECT, ("--csv", "effects.csv"), ("--merge",)),
    (EVALUATE, ("--out", "evaluation.h5"), None),
)


def whole_of(words: tuple[object, ...], files: tuple[str, ...], ending: tuple[str, ...] | None, to: Path) -> None:
    """End what parts began, and see that it is what one run answers."""
    if ending is None:
        assert run_process("merge", files[1], cwd=to).code == 0
    assert run_process(*words, *files, *(ending or ()), cwd=to).code == 0
    one = (files[0], f"one-{files[1]}")
    assert run_process(*words, *one, cwd=to).code == 0
    ours, alone = ((to / name).with_suffix(".csv") for name in (files[1], one[1]))
    found, expected = (pl.read_csv(path, infer_schema_length=None) for path in (ours, alone))
    assert found.height == expected.height > 0
    for name, column in expected.to_dict().items():
        if column.dtype.is_float():
            assert found[name].is_null().equals(column.is_null()), name
            assert np.allclose(found[name].drop_nulls(), column.drop_nulls(), rtol=1e-9, atol=1e-9), name
        else:
            assert found[name].equals(column), name


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("words", "files", "ending"), WORK, ids=["averages", "effects", "evaluation"])
def test_an_array_of_jobs_on_two_workers_of_which_one_is_killed(
    words: tuple[object, ...], files: tuple[str, ...], ending: tuple[str, ...] | None, here: Path
) -> None:
    """What `sbatch --array=1-4 --wrap '... --shard $SLURM_ARRAY_TASK_ID/4'` runs, two at once."""
    line = " ".join(map(str, (sys.executable, "-m", "costar_cli", *words, *files, "--shard $SLURM_ARRAY_TASK_ID/4")))

    def job(number: int, *, kill: bool = False) -> int:
        environment = {
            **os.environ,
            "SLURM_ARRAY_TASK_ID": str(number),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        }
        process = subprocess.Popen(["sh", "-c", line], env=environment, start_new_session=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
        if kill:
            time.sleep(1.0)
            os.killpg(process.pid, signal.SIGKILL)
        _, err = process.communicate()
        assert kill or process.returncode == 0, err
        return process.returncode

    with ThreadPoolExecutor(2) as workers:
        codes = list(workers.map(lambda number: job(number, kill=number == 2), range(1, 5)))
    assert codes == [0, -signal.SIGKILL, 0, 0]
    stem = Path(files[1]).stem
    assert {path.name for path in here.glob(f"{stem}.*")} == {f"{stem}.shard-{i}-of-4.h5" for i in (1, 3, 4)}
    early = run_process(
        *(words if ending else ("merge",)), *(files if ending else files[1:]), *(ending or ()), cwd=here
    )
    assert (early.code, "1 of 4 parts is missing" in early.err) == (ExitCode.USAGE, True)
    job(2)
    whole_of(words, files, ending, here)


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("words", "files", "ending"), WORK, ids=["averages", "effects", "evaluation"])
def test_parts_on_two_workers_of_ray_of_which_one_is_killed(
    words: tuple[object, ...],
    files: tuple[str, ...],
    ending: tuple[str, ...] | None,
    here: Path,
    cluster: tuple[str, Path],
) -> None:
    script = ROOT / "examples" / "cluster" / "on_ray.py"
    command = [sys.executable, str(script), "4", sys.executable, "-m", "costar_cli", *map(str, (*words, *files))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_ADDRESS": cluster[0]}
    driver = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    worker = _worker(driver)
    victims = [worker, *worker.children(recursive=True)]
    for process in victims:
        process.kill()
    _, err = driver.communicate(timeout=600)
    assert driver.returncode == 0, err
    whole_of(words, files, ending, here)


def _worker(driver: "subprocess.Popen[str]") -> psutil.Process:
    """A process of Ray's that makes a part."""
    end = time.monotonic() + 120
    while time.monotonic() < end and driver.poll() is None:
        for process in psutil.process_iter(["cmdline"]):
            line = process.info["cmdline"] or []
            if "--shard" in line and "costar_cli" in line and (parent := process.parent()) is not None and \
                    "ray::" in " ".join(parent.cmdline()):  # fmt: skip
                return parent
        time.sleep(0.05)
    raise AssertionError(f"no part was begun: {driver.communicate()[1]}")
