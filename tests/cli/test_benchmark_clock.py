"""The time that is left is told from what the like of each job took."""

import pytest

from costar_cli.cli.benchmarking.cost_log import Clock, Cost, CostLog, in_words
from costar_cli.cli.benchmarking.jobs import plan_jobs
from costar_cli.cli.benchmarking.methods import BenchmarkMethod

METHODS = [BenchmarkMethod(name, name) for name in ("ridge", "crn")]


@pytest.fixture
def cost_log(tmp_path):
    return CostLog(tmp_path / "ledger.json")


def record(cost_log, job, *seconds, status="done"):
    for i, wall_s in enumerate(seconds):
        cost_log.begin(f"{job.key}/piece {i}", "f")
        cost_log.end(f"{job.key}/piece {i}", status, Cost(wall_s))


def test_nothing_is_promised_before_anything_is_known(cost_log):
    jobs = plan_jobs([10], METHODS, few_shot=False)
    assert Clock(jobs, jobs, cost_log).outlook() == "3 more"
    assert Clock(jobs, [], cost_log).outlook() == ""


def test_a_cell_is_expected_to_take_what_its_like_took_on_other_data(cost_log):
    jobs = plan_jobs([10, 11], METHODS, few_shot=False)
    first, second = jobs[:3], jobs[3:]
    clock = Clock(jobs, jobs, cost_log)
    for job, took_s in zip(first, (1.0, 2.0, 37.0), strict=True):
        clock.finish(job, took_s)
    assert clock.outlook() == "3 more, about 40 s"
    clock.finish(second[0], 1.0)
    clock.finish(second[1], 2.0)
    assert clock.outlook() == "1 more, about 37 s"


def test_earlier_runs_are_remembered_and_unfinished_ones_are_not(cost_log):
    jobs = plan_jobs([10, 11], METHODS, few_shot=False)
    for job, seconds in zip(jobs[:3], ([1.0], [2.0, 3.0], [60.0, 240.0]), strict=True):
        record(cost_log, job, *seconds)
    record(cost_log, jobs[5], 9999.0, status="interrupted")
    assert cost_log.wall_s(jobs[1].key) == 5.0
    assert cost_log.wall_s(jobs[5].key) is None
    clock = Clock(jobs, jobs[3:], cost_log)
    assert clock.outlook() == "3 more, about 5 min"


def test_a_method_without_its_like_is_expected_to_take_the_mean_of_its_domain(cost_log):
    jobs = plan_jobs([10], METHODS, few_shot=False)
    clock = Clock(jobs, jobs, cost_log)
    clock.finish(jobs[0], 100.0)
    clock.finish(jobs[1], 20.0)
    assert clock.outlook() == "1 more, about 20 s"


def test_cells_that_fail_are_counted_but_say_nothing_of_the_others(cost_log):
    jobs = plan_jobs([10], METHODS, few_shot=False)
    clock = Clock(jobs, jobs, cost_log)
    clock.finish(jobs[0])
    clock.finish(jobs[0])
    assert (len(clock.left), clock.outlook()) == (2, "2 more")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "1 s"), (40, "40 s"), (100, "2 min"), (3600, "60 min"), (9000, "2.5 h")]
)
def test_durations_are_told_as_people_say_them(seconds, words):
    assert in_words(seconds) == words
