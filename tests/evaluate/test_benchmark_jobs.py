import json
import mmap
import time

import pytest

from costar_cli.cli.benchmarking.cost_log import Cost, CostLog, measured
from costar_cli.cli.benchmarking.jobs import plan_jobs
from costar_cli.cli.benchmarking.methods import ABLATIONS, BenchmarkMethod, choose_methods, choose_setups
from costar_cli.cli.benchmarking.report import measure_model
from costar_cli.errors import TrainingError, UsageError
from costar_cli.evaluation.published import read_published
from costar_cli.settings.keys import all_keys

KNOWN = ["costar", "msm", "crn", "crn-erm", "new-method"]


def keys(*methods, seeds=(10,), few_shot=True):
    return [job.key for job in plan_jobs(seeds, methods, few_shot=few_shot)]


def method(name):
    return BenchmarkMethod(name, name)


def test_every_cell_comes_after_what_it_needs():
    methods = [method("crn"), method("costar"), *ABLATIONS]
    jobs = plan_jobs([10, 11], methods, few_shot=True)
    assert len({job.key for job in jobs}) == len(jobs)
    for place, job in enumerate(jobs):
        assert set(job.needs) <= {earlier.key for earlier in jobs[:place]}
        assert all(need.endswith(f"/{job.seed}") for need in job.needs)


def test_only_costar_is_pretrained_and_models_of_the_target_start_from_the_sources():
    jobs = {job.key: job for job in plan_jobs([10], [method("crn"), method("costar")], few_shot=True)}
    assert list(jobs) == [
        "data/10", "crn/source/10", "crn/target/10", "costar/encoder/10", "costar/source/10", "costar/target/10",
    ]  # fmt: skip
    assert jobs["crn/target/10"].needs == ("data/10", "crn/source/10")
    assert jobs["costar/source/10"].needs == ("data/10", "costar/encoder/10")
    assert [job.is_scored for job in jobs.values()] == [False, True, True, False, True, True]


def test_without_few_shot_nothing_is_trained_on_the_target():
    assert keys(method("crn"), few_shot=False) == ["data/10", "crn/source/10"]


def test_ablations_share_the_encoder_unless_they_change_it_and_are_not_adapted():
    chosen = [a for a in ABLATIONS if a.name in {"ssl-none", "ssl-no-components", "weights-uniform"}]
    jobs = {job.key: job for job in plan_jobs([10], [method("costar"), *chosen], few_shot=True)}
    assert [key for key in jobs if "encoder" in key] == ["costar/encoder/10", "ssl-no-components/encoder/10"]
    assert [key for key in jobs if "target" in key] == ["costar/target/10"]
    assert jobs["weights-uniform/source/10"].needs == ("data/10", "costar/encoder/10")
    assert jobs["ssl-none/source/10"].needs == ("data/10",)


def test_ablations_without_costar_still_pretrain_the_encoder_that_they_share():
    (shared,) = [a for a in ABLATIONS if a.name == "weights-uniform"]
    assert keys(shared) == ["data/10", "costar/encoder/10", "weights-uniform/source/10"]


@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda a: a.name)
def test_ablations_change_settings_that_exist_to_values_that_they_accept(ablation):
    assert ablation.is_ablation
    assert ablation.changes or ablation.init == "scratch"
    for name, value in ablation.changes.items():
        assert all_keys()[name].check(value, text=False) == value


def test_ablations_are_called_as_the_paper_calls_them():
    printed = {row.row for row in read_published("ablation")}
    ours_alone = {
        "SSL Loss|spectral",  # the paper has the theory of that loss, not a row of results
        "Encoder|w/ VT, relative",  # the published one has no positions
        "Decoder|w/ autoreg, taught",  # the published one learned the first step alone
    }
    parts_of_ours = {"Inputs", "Output", "Optimiser", "Pretext"}  # the paper's COSTAR has no other way
    ours_alone |= {"Decoder|structured", "Decoder|one shot", "SupL Loss|squared", "SupL Loss|relative"}
    named = {f"{a.component}|{a.choice}" for a in ABLATIONS if a.component not in parts_of_ours}
    assert named - ours_alone <= printed
    assert len({a.name for a in ABLATIONS}) == len(ABLATIONS)


def test_methods_are_named_with_commas_or_all_and_come_in_the_papers_order():
    assert [c.name for c in choose_methods("all", KNOWN)[0]] == ["msm", "crn-erm", "crn", "new-method", "costar"]
    assert [c.name for c in choose_methods("costar, msm,msm", KNOWN)[0]] == ["msm", "costar"]
    assert [c.label for c in choose_methods("crn-erm", KNOWN)[0]] == ["CRN(ERM)"]


@pytest.mark.parametrize(("text", "problem"), [("cnr,coster", "did you mean `crn`"), (" , ", "no name given")])
def test_unknown_methods_are_errors_all_at_once(text, problem):
    with pytest.raises(UsageError, match=problem) as error:
        choose_methods(text, KNOWN)
    assert error.value.where == "--methods"
    assert "crn-erm" in error.value.fix
    assert len(error.value.details) == text.count(",") * ("cnr" in text)


def test_setups_are_those_that_the_data_allow():
    possible = ["zero-shot", "supervised"]
    assert choose_setups("all", possible) == possible
    assert choose_setups("supervised,zero-shot", possible) == possible
    with pytest.raises(UsageError, match="few-shot is not possible"):
        choose_setups("few-shot", possible)
    with pytest.raises(UsageError, match="did you mean `zero-shot`"):
        choose_setups("zeroshot", possible)


def spent(seconds, memory=100.0):
    return Cost(seconds, memory)


def test_the_ledger_adds_the_time_of_attempts_at_the_same_artifact(tmp_path):
    path = tmp_path / "ledger.json"
    cost_log = CostLog(path)
    cost_log.begin("a", "print")
    cost_log.end("a", "interrupted", spent(3, 500))
    cost_log = CostLog(path)  # another process
    cost_log.begin("a", "print")
    cost_log.end("a", "done", spent(4, 200))
    record = CostLog(path).get("a", "print")
    assert (record.status, record.wall_s, record.memory_mb, record.partial) == ("done", 7, 500, False)
    assert CostLog(path).get("a", "other") is None
    cost_log.begin("a", "other")
    cost_log.end("a", "done", spent(1, 50))
    assert (cost_log.get("a").wall_s, cost_log.get("a").memory_mb) == (1, 50)


def test_the_time_of_a_killed_attempt_is_known_to_be_missing(tmp_path):
    CostLog(tmp_path / "ledger.json").begin("a", "print")
    cost_log = CostLog(tmp_path / "ledger.json")
    cost_log.begin("a", "print")
    cost_log.end("a", "done", spent(2))
    assert cost_log.get("a").partial


def test_why_a_cell_failed_is_remembered_until_it_is_tried_again(tmp_path):
    cost_log = CostLog(tmp_path / "ledger.json")
    cost_log.begin("a", "print")
    cost_log.end("a", "failed", spent(1), TrainingError("the loss is not finite", where="epoch 3"))
    again = CostLog(tmp_path / "ledger.json")
    assert again.get("a").error["problem"] == "the loss is not finite"
    again.begin("a", "print")
    assert again.get("a").error is None


@pytest.mark.parametrize("content", ["", "[]", '{"records": 3}', '{"records": {"a": {"wall_s": "x"}}}', "[" * 10_000])
def test_a_ledger_that_cannot_be_understood_counts_as_empty(content, tmp_path):
    path = tmp_path / "ledger.json"
    path.write_text(content)
    cost_log = CostLog(path)
    assert cost_log.get("a") is None
    cost_log.begin("a", "print")
    assert json.loads(path.read_text())["records"]["a"]["status"] == "running"


def test_the_meter_sees_memory_that_is_held_for_a_while_and_time_that_passes():
    begun = time.perf_counter()
    with measured() as idle:
        pass
    idle_s, begun = time.perf_counter() - begun, time.perf_counter()
    with measured() as busy, mmap.mmap(-1, 200_000_000) as held:  # pages of its own: `malloc` may reuse freed ones
        for page in range(0, len(held), mmap.PAGESIZE):
            held[page] = 1
        time.sleep(0.06)
    busy_s = time.perf_counter() - begun
    with measured() as after:
        pass
    assert busy.memory_mb - min(idle.memory_mb, after.memory_mb) > 150  # what came before may be freed meanwhile
    assert 0.06 < busy.wall_s < busy_s
    assert 0 <= idle.wall_s < idle_s


def test_size_of_a_model_counts_one_members_parameters_but_no_residuals_and_every_stage():
    history = {"train_loss": [[1.0, 2.0], [1.0, 2.0, 3.0]]}
    described = {
        "arrays": [
            {"name": "params/head.weight", "shape": [2, 3, 4]},
            {"name": "params/bias", "shape": [2, 5]},
            {"name": "params/residuals.value", "shape": [2, 30, 59, 1]},
            {"name": "scaler/outcomes", "shape": [2, 1]},
        ],
        "meta": {"history": history, "stages": [{"name": "encoder", "history": history}] * 1},
    }
    size = measure_model(described)
    assert (size["parameters"], size["stages"], size["epochs"]) == (17, {"encoder": 2.5}, 2.5)
    described["meta"]["stages"] = []
    assert measure_model(described)["epochs"] is None
    del described["meta"]["stages"]  # an encoder
    assert measure_model(described)["stages"] == {"pretrain": 2.5}
