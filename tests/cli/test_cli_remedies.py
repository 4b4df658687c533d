"""A model that loses to the last value carried forward says so, and the next command is no question to it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shlex import split
from types import SimpleNamespace

import pytest
from cli_world import Run, write_ward

from costar_cli.cli.hints import best_other, other_method, train_longer
from costar_cli.cli.session import Session
from costar_cli.cli.workspace import Workspace
from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Domain, Variable
from costar_cli.data.record import ModelRecord, StageRecord
from costar_cli.methods.registry import METHODS
from costar_cli.reporting.output import Output
from costar_cli.reporting.progress import OutputReporter
from costar_cli.settings.resolve import resolve
from tests.whatif.whatif_worlds import TUMOR

Call = Callable[..., Run]
IDLE = ["--epochs", "1", "--members", "1", "--threads", "1", "--learning-rate", "1e-9"]
FIRST, SECOND, *_ = METHODS.suggested()


@pytest.fixture
def lost(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A COSTAR that has learned nothing of patients whose pressure never changes."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{n},{day},{n * 7 % 11 + 1},{'drug' if (n + day) % 3 else 'none'}" for n in range(40) for day in range(9)]
    ingest = write_ward(Path(), ["patient,day,pressure,drug", *rows], horizon=3)
    assert call(*ingest, "-w", "idle").code == 0
    return call("finetune", "--from", "scratch", "-w", "idle", *IDLE, "--json")


def test_finetune_prints_validation_beside_the_last_value_and_suggests_to_train_on_where_it_loses(
    lost: Run, call: Call
) -> None:
    validation = lost.document["result"]["validation"]
    assert validation["score"] > validation["last_value"]
    said = f"validation ({validation['score']:.3f} against {validation['last_value']:.3f})"
    assert any(said in warning for warning in lost.document["warnings"])
    longer, other = lost.document["next"]
    assert "--from scratch --members 1 --learning-rate 1e-09 --epochs 2 --overwrite" in longer
    assert f"--method {FIRST}" in other
    assert call(*split(other)[1:], *IDLE).code == 0


def test_evaluate_warns_of_each_setup_and_suggests_no_whatif(lost: Run, call: Call) -> None:
    assert lost.document["status"] == "done"
    run = call("evaluate", "-w", "idle", "--no-plots", "--bootstrap", 0, "--json")
    rows = {(row["setup"], row["basis"]): row["mean"]["average"] for row in run.document["result"]["rows"]}
    losing = [setup for setup, basis in rows if basis == "ours" and rows[setup, basis] > rows[setup, "naive"]]
    assert losing
    for setup in losing:
        both = f"({rows[setup, 'ours']:.3f} against {rows[setup, 'naive']:.3f})"
        assert any(
            f"in {setup}: worse than the last value carried forward {both}" in w for w in run.document["warnings"]
        )
    assert not any("whatif" in command for command in run.document["next"])
    assert any("--epochs" in command for command in run.document["next"])
    [other] = [command for command in run.document["next"] if "--method" in command]
    assert f"--method {FIRST}" in other


def test_a_method_that_was_evaluated_and_loses_too_is_not_named(lost: Run, call: Call) -> None:
    assert lost.code == 0
    assert call("finetune", "--method", FIRST, "-w", "idle", *IDLE).code == 0
    run = call("evaluate", "-w", "idle", "--no-plots", "--bootstrap", 0, "--json")
    assert sum("worse than the last value carried forward (" in line for line in run.document["warnings"]) >= 2
    assert not any("whatif" in command for command in run.document["next"])
    [other] = {command for command in run.document["next"] if "--overwrite" not in command}
    assert f"--method {SECOND}" in other


def row_of(digest: str, average: float, setup: str = "zero-shot") -> SimpleNamespace:
    mean, provenance = SimpleNamespace(average=average), SimpleNamespace(model_digest=digest)
    return SimpleNamespace(setup=setup, mean=mean, provenance=provenance, is_last_value=False)


def test_the_best_other_model_of_a_set_up_is_one_that_loses_nowhere() -> None:
    rows = [row_of("mine", 9.0), row_of("good", 2.0), row_of("better", 1.0), row_of("few", 0.5, "few-shot")]
    assert best_other(rows, "mine", {"mine"}) == "better"
    assert best_other(rows, "mine", {"mine", "better"}) == "good"
    assert best_other(rows, "mine", {"mine", "better", "good"}) == ""


def session_in(folder: Path, **given: str) -> Session:
    out = Output()
    settings = resolve({}, preset="quick" if given.get("preset") == "quick" else None)
    return Session(out, Workspace(folder), settings, OutputReporter(out), given)


def record_of(preset: str, *ended_by: str, domain: Domain = "source", **chosen: object) -> ModelRecord:
    settings = resolve({FinetuneConfig: chosen}, preset=preset)  # type: ignore[arg-type]
    config = settings[FinetuneConfig].model_dump(mode="json")
    stages = (StageRecord(name="all", ended_by=ended_by, passes=7.5),)
    return ModelRecord(method="costar", domain=domain, init="pretrained", config=config, stages=stages)


def test_longer_training_is_suggested_only_where_a_budget_ended_a_stage(tmp_path: Path) -> None:
    session = session_in(tmp_path)
    assert train_longer(session, record_of("default", "patience", "patience"), {}) == []
    assert train_longer(session, record_of("default"), {}) == []
    [longer] = train_longer(session, record_of("default", "patience", "budget"), {})
    assert longer == "costar finetune --epochs 16 --overwrite"


@pytest.mark.parametrize(("chosen", "suggested"), [({"epochs": 2}, 1), ({"updates": 9}, 0)])
def test_longer_training_is_suggested_where_epochs_were_chosen_but_not_where_updates_were(
    tmp_path: Path, chosen: dict, suggested: int
) -> None:
    session = session_in(tmp_path)
    session = Session(session.out, session.workspace, resolve({FinetuneConfig: chosen}), session.reporter, {})
    assert len(train_longer(session, record_of("default", "budget"), {})) == suggested


def test_longer_training_repeats_the_settings_of_the_model_and_its_preset(tmp_path: Path) -> None:
    meta = record_of("quick", "budget", seed=3, members=1, learning_rate=0.01)
    words = "--seed 3 --members 1 --learning-rate 0.01 --epochs 16 --overwrite"
    assert train_longer(session_in(tmp_path), meta, {}) == [f"costar finetune --preset quick {words}"]
    told = session_in(tmp_path, preset="quick")
    assert train_longer(told, meta, {}) == [f"costar finetune --preset quick {words}"]
    short = record_of("quick", "budget", epochs=2)
    assert train_longer(session_in(tmp_path), short, {}) == ["costar finetune --preset quick --epochs 16 --overwrite"]


def test_another_method_for_the_target_has_its_source_model_first(tmp_path: Path) -> None:
    session, meta = session_in(tmp_path), record_of("default", "budget", domain="target")
    source, target = f"costar finetune --method {FIRST}", f"costar finetune --method {FIRST} --domain target"
    assert other_method(session, meta, None) == [source, target]
    (tmp_path / f"model-{FIRST}.h5").touch()
    assert other_method(session, meta, None) == [target]
    (tmp_path / f"model-{FIRST}-target.h5").touch()
    assert all(f"--method {SECOND}" in command for command in other_method(session, meta, None))


def test_another_method_for_a_binary_outcome_is_not_one_that_shrinks_its_effects(tmp_path: Path) -> None:
    session, meta = session_in(tmp_path), record_of("default", "budget")
    schema = TUMOR.model_copy(update={"outcomes": (Variable(name="y", kind="binary"),)})
    binary = replace(meta, schema=schema)
    for adjusting in (False, True):
        assert "--method growth" in other_method(session, meta, None, adjusting=adjusting)[0]
        assert "--method growth" not in other_method(session, binary, None, adjusting=adjusting)[0]


def test_another_method_is_one_that_is_not_there_yet(tmp_path: Path) -> None:
    session, meta = session_in(tmp_path), record_of("default", "budget")
    assert other_method(session, meta, None, {(FIRST, "source")}) == [f"costar finetune --method {SECOND}"]
    assert other_method(session, meta, None, {(FIRST, "target")}) == [f"costar finetune --method {FIRST}"]
    assert other_method(session, meta, None, {(method, "source") for method in METHODS.suggested()}) == []
