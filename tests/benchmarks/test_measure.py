import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.all import render
from benchmarks.machine import commit, is_busy, machine_slug
from benchmarks.measure import Figure, Measured, Timing, describe, document, interleaved, ratio, run_child

MACHINE = {"cpu": "x", "cores": 2, "memory_gb": 8.0, "gpu": None, "torch": "2"}


def test_rivals_take_turns_and_warm_up_unseen() -> None:
    order: list[str] = []
    timings = interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 3, warmup=1)
    assert order == ["a", "b"] * 4
    assert timings["a"].repeats == 3


def test_ratio_is_of_medians_and_spread_of_quartiles() -> None:
    timings = {"slow": Timing.of([4.0, 2.0, 100.0]), "fast": Timing.of([1.0, 2.0, 1.5])}
    assert ratio(timings, "slow", "fast") == pytest.approx(4.0 / 1.5)
    assert timings["fast"].spread == pytest.approx(0.5 / 1.5)
    assert (timings["slow"].best_s, timings["slow"].worst_s) == (2.0, 100.0)


def test_peak_memory_is_that_of_the_child_not_of_who_started_it() -> None:
    ballast = np.ones(40_000_000)  # 320 MB in this process
    small = run_child("-S", "-c", "print('hello')")
    large = run_child("-S", "-c", "b = bytearray(100_000_000); print(len(b))")
    assert small.stdout == "hello\n"
    assert 1 < small.peak_mb < 60
    assert 90 < large.peak_mb - small.peak_mb < 110
    assert ballast.size


def test_a_failing_child_says_why() -> None:
    with pytest.raises(RuntimeError, match="no such thing"):
        run_child("-S", "-c", "raise SystemExit('no such thing')")


def test_goals_bind_from_below_or_above() -> None:
    assert Figure("ratio", 6.0, goal=6.0).met
    assert not Figure("ratio", 5.9, goal=6.0).met
    assert Figure("memory", 5.9, goal=6.0, at_most=True).met
    assert not Figure("memory", 6.1, goal=6.0, at_most=True).met
    assert Figure("time", 1.0).met is None


def test_document_reads_the_same_for_people_and_in_the_table() -> None:
    measured = Measured({"ratio": Figure("times faster", 5.4321, "x", goal=6.0), "s": Figure("step", 1e-5, "s")})
    command, options = ["python", "-m", "benchmarks.members"], {"quick": False, "out": None}
    result = document("members", command, options, measured, load_before=0.5, work_s=0.1)
    assert result["options"] == {"quick": False}
    lines = describe(result)
    assert "MISSED" in lines[2]
    assert lines[3].endswith("1.0e-05 s")
    table = render([result])
    assert "| times faster | 5.432 x | at least 6, **missed** |" in table
    assert "`python -m benchmarks.members`" in table


@pytest.mark.parametrize(
    ("before", "after", "busy"), [(0.1, 2.1, False), (2.0, 1.9, False), (3.0, 1.0, True), (0.2, 2.6, True)]
)
def test_a_measurement_under_more_load_than_its_own_threads_is_marked_busy(
    before: float, after: float, *, busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.getloadavg", lambda: (after, 0.0, 0.0))
    monkeypatch.setattr("benchmarks.measure.machine", lambda: {**MACHINE, "threads": 2})
    result = document("members", [], {}, Measured({}), load_before=before, work_s=0.1)
    assert result["busy"] is busy
    assert result["load"] == {"before": before, "after": after}
    assert ("BUSY" in describe(result)[1]) is busy
    assert ("BUSY" in render([result])) is busy


def test_documents_that_know_only_the_load_at_their_end_are_judged_by_it() -> None:
    old = {"machine": {"threads": 2}, "load_average": [5.5, 3.0, 2.0]}
    assert is_busy(old)
    assert not is_busy({**old, "load_average": [1.7, 3.0, 2.0]})


def test_machine_names_are_file_names() -> None:
    assert machine_slug({"cpu": "AMD EPYC(tm) 9/X", "cores": 2, "gpu": None}) == "amd-epyc-tm-9-x-2-cores"
    assert machine_slug({"cpu": "x", "cores": 16, "gpu": "NVIDIA H200"}) == "x-16-cores-nvidia-h200"


def test_results_of_earlier_benchmarks_do_not_make_the_commit_a_changed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    files = [tmp_path / folder / "x" for folder in ("costar_cli", "simulators", "benchmarks", "benchmarks/results")]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text("1")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    monkeypatch.setattr("benchmarks.machine.ROOT", tmp_path)
    files[-1].write_text("2")
    assert commit()
    assert not commit().endswith("+")
    files[0].write_text("2")
    assert commit().endswith("+")
