import numpy as np
import pytest

from benchmarks.all import render
from benchmarks.machine import machine_slug
from benchmarks.measure import Figure, Measured, Timing, describe, document, interleaved, ratio, run_child


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
    result = document("members", ["python", "-m", "benchmarks.members"], {"quick": False, "out": None}, measured)
    assert result["options"] == {"quick": False}
    lines = describe(result)
    assert "MISSED" in lines[2]
    assert lines[3].endswith("1.0e-05 s")
    table = render([result])
    assert "| times faster | 5.432 x | at least 6, **missed** |" in table
    assert "`python -m benchmarks.members`" in table


def test_machine_names_are_file_names() -> None:
    assert machine_slug({"cpu": "AMD EPYC(tm) 9/X", "cores": 2, "gpu": None}) == "amd-epyc-tm-9-x-2-cores"
    assert machine_slug({"cpu": "x", "cores": 16, "gpu": "NVIDIA H200"}) == "x-16-cores-nvidia-h200"
