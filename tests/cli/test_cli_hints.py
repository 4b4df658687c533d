"""What the verbs suggest to do next: commands that work as they are, wherever the files of this run are."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from cli_world import REPOSITORY, TINY_COHORT, Run

from costar_cli.cli.app import app
from costar_cli.cli.hints import LACKS, next_command
from costar_cli.cli.session import CARRIED
from costar_cli.methods import METHODS

Call = Callable[..., Run]
FEW = ["--epochs", "1", "--members", "1", "--threads", "1"]
LEVELS = """
[finetune]
hidden = 8
decoder = "non_autoregressive"
loss = "squared"
optimiser = { warmup = 0, averaging = 0 }
"""  # after an epoch it is better than the last value on validation, and worse on test
EXAMPLE = REPOSITORY / "examples" / "own-data"


def words(command: str) -> list[str]:
    """A suggested command as arguments."""
    program, *arguments = shlex.split(command)
    assert program == "costar"
    return arguments


def test_a_hint_knows_which_of_the_flags_to_repeat_each_verb_takes() -> None:
    root = typer.main.get_command(app)
    commands = {"ingest table": root.commands["ingest"].commands["table"]}  # type: ignore[attr-defined]
    commands |= {verb: root.commands[verb] for verb in ("pretrain", "finetune", "evaluate", "whatif")}  # type: ignore[attr-defined]
    for verb, command in commands.items():
        taken = {option.name for option in command.params}
        assert [name for name in CARRIED if name not in taken] == list(LACKS.get(verb, ())), verb


def test_a_hint_is_quoted_for_a_shell() -> None:
    assert next_command({"workspace": "my ward"}, "evaluate", data=Path("a b.h5")) == (
        "costar evaluate --workspace 'my ward' --data 'a b.h5'"
    )


def test_every_hint_of_a_pipeline_with_files_of_its_own_works_when_pasted(tmp_path: Path, call: Call) -> None:
    settings = tmp_path / "my settings.toml"
    settings.write_text(LEVELS)
    given = ["-w", "miss", "-c", settings, "--preset", "quick"]
    run = call("simulate", "tumor", *TINY_COHORT, *given, "-o", "cohort.h5", "--json")
    quick, pretrain = run.document["next"]
    shared = f"--workspace miss --preset quick --config '{settings}'"
    assert quick == f"costar finetune {shared} --method auto --minutes 2 --data cohort.h5"
    assert pretrain == f"costar pretrain {shared} --data cohort.h5"
    run = call(*words(pretrain), *FEW, "-o", "enc-ct.h5", "--json")
    finetune, scratch = run.document["next"]
    assert finetune == f"costar finetune {shared} --data cohort.h5 --start enc-ct.h5"
    assert scratch == f"costar finetune {shared} --from scratch --data cohort.h5"
    assert call(*words(scratch), *FEW, "-o", "scratch.h5").code == 0
    run = call(*words(finetune), *FEW, "-o", "mine.h5", "--json")
    adapt, evaluate, effects = run.document["next"]
    assert (
        effects
        == f"costar finetune {shared} --method {METHODS.adjusting(doses=False, binary=False)[0]} --data cohort.h5"
    )
    assert adapt == f"costar finetune {shared} --domain target --data cohort.h5 --start mine.h5"
    assert evaluate == f"costar evaluate --workspace miss --config '{settings}' --data cohort.h5 --model mine.h5"
    assert call(*words(adapt), *FEW).code == 0
    run = call(*words(evaluate), "--bootstrap", 0, "--no-plots", "--json")
    [other] = run.document["next"]  # an epoch taught the model less than the last value knows
    first = f"--method {METHODS.suggested()[0]}"
    assert other == f"costar finetune --workspace miss --config '{settings}' {first} --preset quick --data cohort.h5"
    assert call(*words(other), *FEW).code == 0
    assert call("finetune", "--method", "last-value", "--data", "cohort.h5", "-o", "naive.h5").code == 0
    calibrated = ["evaluate", "-w", "miss", "-c", settings, "--data", "cohort.h5", "-o", "other.h5"]
    run = call(*calibrated, "--model", "naive.h5", "--bootstrap", 0, "--no-plots", "--json")
    [whatif] = run.document["next"]
    assert whatif == (
        f"costar whatif --workspace miss --config '{settings}' --subject ID --plan plan.json "
        "--data cohort.h5 --model naive.h5"
    )


def test_a_model_from_scratch_or_of_another_method_is_adapted_as_it_was_made(trained: Path, call: Call) -> None:
    more = ["--epochs", "40", *FEW[2:]]  # so that it is better than the last value
    run = call("finetune", "--from", "scratch", *more, "--data", trained / "data.h5", "--json")
    adapt, _ = run.document["next"]
    assert adapt == f"costar finetune --from scratch --domain target --data {trained / 'data.h5'}"
    assert call(*words(adapt), *FEW).code == 0
    run = call("finetune", "--method", "msm", "--data", trained / "data.h5", "-o", "weighted.h5", "--json")
    adapt, _ = run.document["next"]
    assert adapt == (f"costar finetune --method msm --domain target --data {trained / 'data.h5'} --start weighted.h5")
    assert call(*words(adapt)).code == 0


@pytest.mark.parametrize("flags", [["-w", "miss"], []])
def test_what_the_environment_says_needs_no_flag(flags: list[str], call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSTAR_WORKSPACE", "place")
    table, schema = EXAMPLE / "small.csv", EXAMPLE / "schema.toml"
    run = call("ingest", "table", table, "--schema", schema, *flags, "--json")
    place = " --workspace miss" * bool(flags)
    assert run.document["next"] == [f"costar finetune{place} --method auto --minutes 2", f"costar pretrain{place}"]
    run = call("ingest", "table", table, "--init", *flags, "--json")
    again = f"costar ingest table{' --workspace miss' * bool(flags)} {table} --schema schema.toml"
    assert run.document["next"] == []  # not before its guesses are settled
    assert call("ingest", "table", table, "--init", *flags, "--overwrite").err.rstrip().endswith(f"then: {again}")
    assert call(*words(again), "--overwrite", "--accept-guesses").code == 0
