"""What every verb makes of its options: a value given twice, values missing, `-h`, `--debug` behind the verb."""

import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest
import typer
from cli_world import VERBS, Run, run_process

from costar_cli.cli.app import app
from costar_cli.cli.verb import EXAMPLES, examples_of
from costar_cli.errors import ExitCode

NEEDED = {"inspect": ["x.h5"], "check": ["x.h5"], "verify": ["x.h5"], "benchmark": ["tumor"], "merge": ["x"]}
NEEDED |= {"ingest mimic": ["x"], "ingest m5": ["x"], "ingest table": ["x"], "ingest meds": ["x"], "ingest omop": ["x"]}


def command_of(verb: str) -> Any:
    found = typer.main.get_command(app)
    for word in verb.split():
        found = found.commands[word]
    return found


@pytest.mark.parametrize("verb", VERBS)
def test_two_values_for_an_option_that_takes_one_are_refused_by_every_verb(verb: str, call: Callable[..., Run]) -> None:
    options = [param for param in command_of(verb).params if param.param_type_name == "option"]
    for param in options:
        if param.is_flag or param.multiple:
            continue
        long, short = param.opts[0], param.opts[-1]  # the long form twice where there is no short one
        run = call(*verb.split(), short, "first", f"{long}=second", *NEEDED.get(verb, []), "--json")
        assert run.code == ExitCode.USAGE
        problem = run.document["error"]["problem"]
        assert long in problem
        assert "`first`, `second`" in problem


@pytest.mark.parametrize("verb", VERBS)
def test_an_empty_value_is_an_error_that_names_its_option(verb: str, call: Callable[..., Run]) -> None:
    for param in command_of(verb).params:
        if param.param_type_name == "option" and not param.is_flag:
            run = call(*verb.split(), param.opts[-1], "", *NEEDED.get(verb, []), "--json")
            error = run.document["error"]
            assert (run.code, error["problem"]) == (ExitCode.USAGE, f"the value of `{param.opts[0]}` is empty")


def test_values_glued_to_short_options_are_counted_too(call: Callable[..., Run]) -> None:
    run = call("whatif", "-p424", "-p", "425", "--subject", "1")
    assert run.code == ExitCode.USAGE
    assert run.err.startswith("error: more than one value for --plan / -p: `424`, `425`\n")
    assert run.err.endswith("  fix:   give it once\n")


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (["evaluate", "--setup", "zero-shot", "--setup", "few-shot"], "give it once"),
        (["pretrain", "--seed", "1", "--seed", "2", "--epochs", "1", "--epochs", "2"], "give each of them once"),
        (["benchmark", "tumor", "--methods", "ct", "--methods=crn"], "separate them with commas: `--methods ct,crn`"),
        (
            ["benchmark", "tumor", "--setups", "few-shot", "--setups", "zero-shot", "--methods", "ct", "--methods",
             "crn", "--seed", "1", "--seed", "2"],
            "separate them with commas: `--methods ct,crn` `--setups few-shot,zero-shot`; give --seed once",
        ),
    ],
)  # fmt: skip
def test_several_values_are_told_the_way_in_which_the_option_takes_them(
    words: list[str], fix: str, call: Callable[..., Run]
) -> None:
    assert call(*words, "--json").document["error"]["fix"] == fix


@pytest.mark.parametrize("flag", ["--methods", "--setups"])
def test_options_that_are_told_to_take_commas_do(flag: str, call: Callable[..., Run]) -> None:
    names = {"--methods": "ridge,last-value", "--setups": "zero-shot,few-shot"}[flag]
    assert call("benchmark", "tumor", flag, names, "--list").code == 0


def test_several_repeated_options_are_reported_at_once(call: Callable[..., Run]) -> None:
    run = call("pretrain", "--epochs", 1, "--seed", 1, "--epochs", 2, "--seed", 1)
    assert run.code == ExitCode.USAGE
    assert "  - --epochs: `1`, `2`\n" in run.err
    assert "  - --seed: `1`, `1`\n" in run.err


def test_what_may_be_repeated_is_and_switches_may_be_given_twice(call: Callable[..., Run]) -> None:
    run = call("evaluate", "-m", "a.h5", "--model", "b.h5", "--overwrite", "--overwrite", "--json", "--json")
    assert run.code == ExitCode.ARTIFACT  # there is no data set; the options were fine


def test_a_value_behind_two_dashes_or_of_another_option_is_not_a_repetition(call: Callable[..., Run]) -> None:
    assert call("whatif", "-s", "1", "--plan", "-s").code == ExitCode.ARTIFACT
    assert "more than one" not in call("ingest", "table", "a.csv", "--", "--schema", "--schema").err


def test_all_that_is_missing_is_said_at_once(call: Callable[..., Run]) -> None:
    run = call("whatif", "--json")
    assert run.code == ExitCode.USAGE
    for name in ("'--subject'", "'--plan'"):
        assert name in run.document["error"]["problem"]


@pytest.mark.parametrize("verb", [[], ["simulate"], *(verb.split() for verb in VERBS)], ids=" ".join)
def test_the_short_help_option_works_everywhere(verb: list[str], call: Callable[..., Run]) -> None:
    short, long = call(*verb, "-h"), call(*verb, "--help")
    assert (short.code, short.out) == (0, long.out)
    assert "<bool>" not in short.out
    assert "list[" not in short.out


def test_help_comes_before_complaints(call: Callable[..., Run]) -> None:
    assert call("whatif", "--help").code == 0
    assert call("whatif", "-s", "1", "-s", "2", "-h").code == 0


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_an_example_that_parses(verb: str, call: Callable[..., Run], monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    text = call(*verb.split(), "--help-all").out  # `--help` has the first ones
    examples = examples_of(verb)
    assert examples
    for example in examples:
        assert example in text
        program, *words = shlex.split(example)
        assert [program, *words[: len(verb.split())]] == ["costar", *verb.split()]
        command_of(verb).make_context(f"costar {verb}", words[len(verb.split()) :])
    assert set(EXAMPLES) <= set(VERBS)


def test_defaults_of_settings_are_shown_with_those_of_other_presets(call: Callable[..., Run], monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = call("pretrain", "-h").out
    assert re.search(r"--epochs .*\[default: 6; paper 200\]", text)
    assert re.search(r"--gamma .*\[default: 10\.0\]", call("simulate", "tumor", "-h").out)
    assert not re.search(r"--seed .*default", call("ingest", "table", "-h").out)


@pytest.mark.parametrize("verb", VERBS)
def test_no_default_stands_in_parentheses_and_help_leaves_the_options_as_they_were(
    verb: str, call: Callable[..., Run]
) -> None:
    command = command_of(verb)
    before = [(param.name, param.default) for param in command.params]
    context = command.make_context(f"costar {verb}", [], resilient_parsing=True)
    command.get_help(context)
    assert [(param.name, param.default) for param in command.params] == before
    assert "default: (" not in " ".join(call(*verb.split(), "-h").out.split())


@pytest.mark.parametrize(("verb", "name"), [("evaluate", "--model"), ("whatif", "--model"), ("ingest table", "FILE")])
def test_what_takes_several_files_shows_the_type_of_one(verb: str, name: str, call: Callable[..., Run]) -> None:
    assert re.search(rf"{name} .*<path>", call(*verb.split(), "-h").out)


@pytest.mark.parametrize(
    ("maker", "names"),
    [("simulate", "tumor linear glucose hiv warfarin sepsis m5 mimic"), ("ingest", "m5 mimic nonmem table meds omop")],
)
def test_without_a_data_set_its_choices_are_listed_with_what_they_are(
    maker: str, names: str, call: Callable[..., Run]
) -> None:
    run = call(maker)
    assert run.code == ExitCode.USAGE
    listed = re.findall(r"^  - (\w+)  +(\w.*)$", run.err, re.MULTILINE)
    assert [name for name, _ in listed] == names.split()
    assert all(len(text) > 20 for _, text in listed)


def test_json_in_front_of_the_data_set_is_told_where_it_belongs(call: Callable[..., Run]) -> None:
    run = call("simulate", "--json")
    assert "goes after the name of a data set" in run.document["error"]["problem"]


@pytest.mark.parametrize("words", [["--debug", "verify", "x.h5"], ["verify", "x.h5", "--debug"]])
def test_debug_shows_the_traceback_before_and_behind_the_verb(words: list[str], tmp_path: Any) -> None:
    run = run_process(*words, cwd=tmp_path)
    assert run.code == ExitCode.ARTIFACT
    assert "Traceback" in run.err


def test_a_variable_is_named_in_a_complaint_where_it_is_set(
    call: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COSTAR_PRESET", raising=False)
    assert "COSTAR_PRESET" not in call("finetune", "--preset", "fast").err
    monkeypatch.setenv("COSTAR_PRESET", "fast")
    assert "COSTAR_PRESET" in call("finetune").err
