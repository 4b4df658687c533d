import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import VERBS, Run, environment, run_process

from costar_cli import __version__
from costar_cli.cli.app import VERBS as LISTED
from costar_cli.cli.app import Commands

Call = Callable[..., Run]
HEAVY = {"torch", "polars", "h5py", "numpy", "scipy", "pandas", "sklearn", "matplotlib", "filelock"}
HELPS = [[], ["simulate"], *(verb.split() for verb in VERBS)]


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    """One process shows every help, so that what the first one imports is known at the last one, too."""
    code = (
        "import sys\nfrom costar_cli.cli.app import main\n"
        f"for words in {HELPS!r}:\n"
        f"    assert main([*words, '--help']) == 0\n    assert not {HEAVY!r} & set(sys.modules), words\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage: costar") == len(HELPS)


def test_help_takes_little_more_than_what_prints_it(tmp_path: Path) -> None:
    def cpu_seconds(*command: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], cwd=tmp_path, env=environment(), capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    spent = [
        (cpu_seconds("-m", "costar_cli", "--help"), cpu_seconds("-c", "import typer, rich.console")) for _ in range(3)
    ]
    helps, libraries = zip(*spent, strict=True)
    assert min(helps) < 5 * min(libraries)  # it is 3 times; torch alone takes 15


def test_no_line_of_help_is_wider_than_80_columns_and_none_is_cut(repository: Path) -> None:
    """What each page says is in help.txt, which `python docs/cli_reference.py --check` compares."""
    text = (repository / "tests" / "cli" / "help.txt").read_text("utf-8")
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert text.count("Usage: costar") == len(HELPS) + 1


def test_help_lists_the_verbs_in_the_order_of_use(call: Call) -> None:
    text = call("--help").out
    listed = re.findall(r"^│ (\w+) ", text, re.MULTILINE)
    assert listed == [
        "simulate", "ingest", "check", "pretrain", "finetune", "evaluate", "score", "whatif", "search", "explore",
        "effect", "benchmark", "merge", "inspect", "verify", "settings", "doctor",
    ]  # fmt: skip


def test_the_console_script_and_the_module_are_the_same_program(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("costar")
    done = subprocess.run([script, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == run_process("--version", cwd=tmp_path).out == f"costar {__version__}\n"


def test_the_list_of_verbs_says_of_each_what_its_own_help_does() -> None:
    commands = Commands()
    for verb, does in LISTED.items():
        assert " ".join(commands[verb].help.split("\n\n")[0].split()) == does


def test_the_list_of_verbs_imports_none_of_them(tmp_path: Path) -> None:
    code = "import sys; from costar_cli.cli.app import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert not {f"costar_cli.cli.{verb}" for verb in LISTED} & set(done.stderr.split())


@pytest.mark.parametrize("words", [[], ["simulate"]])
def test_without_a_verb_help_goes_to_stderr_and_the_code_is_usage(words: list[str], call: Call) -> None:
    run = call(*words)
    assert (run.code, run.out) == (2, "")
    assert "error: " in run.err


def test_the_error_of_a_line_without_a_verb_names_the_verbs(call: Call) -> None:
    error = call().err.partition("error: ")[2]
    named = re.findall(r"\w+", error.partition("choose one of ")[2])
    assert named == list(dict.fromkeys(named))
    assert set(named) == {verb.split()[0] for verb in VERBS}
