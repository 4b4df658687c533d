"""How the tests of the command line run it: in this process, and as real processes."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from costar_cli.errors import ExitCode

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = Draft202012Validator(json.loads(files("costar_cli").joinpath("schemas/documents.json").read_text("utf-8")))
TINY_COHORT = [
    *("--train", "24", "--val", "8", "--test", "6", "--target-train", "8", "--target-val", "6", "--target-test", "5"),
    *("--steps", "12", "--horizon", "3", "--seed", "1"),
]
PLAN = '{"origin": 4, "plans": {"watch": [{}, {}], "both": [{"chemotherapy": 1, "radiotherapy": 1}, {}]}}'
VERBS = ["simulate tumor", "simulate mimic", "simulate m5", "simulate linear", "ingest mimic", "ingest m5"]
VERBS += ["simulate glucose", "simulate hiv", "simulate warfarin", "simulate sepsis", "ingest nonmem"]
VERBS += ["ingest table", "check", "pretrain", "finetune", "evaluate", "score", "whatif", "search", "explore"]
VERBS += ["effect", "benchmark", "merge", "inspect", "verify", "settings", "doctor"]
VERBS += ["ingest meds", "ingest omop"]

WARD = """
name = "ward"
horizon = {horizon}

[columns]
patient = {{ role = "subject" }}
day = {{ role = "time" }}
{more}
pressure = {{ role = "outcome" }}
drug = {{ role = "treatment", levels = ["none", "drug"] }}
"""


def write_ward(folder: Path, lines: list[str], *, horizon: int, more: str = "") -> list[str]:
    """Write a ward's table, whose first line names its columns, and its schema; return the command that ingests it.

    `more` is the schema of a further column.
    """
    table, schema = folder / "t.csv", folder / "s.toml"
    table.write_text("\n".join(lines) + "\n", "utf-8")
    schema.write_text(WARD.format(horizon=horizon, more=more), "utf-8")
    return ["ingest", "table", str(table), "--schema", str(schema)]


@dataclass(frozen=True)
class Run:
    """What one run of the command line left behind."""

    code: int
    out: str
    err: str

    @cached_property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout, as the shipped schema has it; anything else there is an error."""
        document = json.loads(self.out, parse_constant=_refuse)
        DOCUMENTS.validate(document)
        return document


def read_until(process: "subprocess.Popen[str]", words: str) -> str:
    """Read the process's stderr up to the first line that holds these words."""
    line = ""
    for line in iter(process.stderr.readline, ""):
        if words in line:
            break
    return line


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def refuse_writes(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make a folder read-only from here on; its modes would not stop root, under whom tests may run."""
    really = os.open

    def refuse(path: object, flags: int, *args: object, **named: object) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and str(path).startswith(str(folder)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return really(path, flags, *args, **named)  # type: ignore[call-overload]

    for lock in folder.rglob(".lock"):
        lock.unlink()
    monkeypatch.setattr(os, "open", refuse)


def environment(**extra: str) -> dict[str, str]:
    """The environment of a process: warnings are errors, no settings, no colour switches, but what the test gives."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("COSTAR_") and k not in {"NO_COLOR", "FORCE_COLOR"}}
    return {"PYTHONWARNINGS": "error", **kept, **extra}


def run_process(*args: object, cwd: Path, env: dict[str, str] | None = None) -> Run:
    """Run `python -m costar_cli` as a user would run `costar`."""
    done = subprocess.run(
        [sys.executable, "-m", "costar_cli", *map(str, args)],
        cwd=cwd,
        env=environment(**(env or {})),
        input="",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr)


# A run that tells of its progress ten times a second, so that a test sees how far it is.
WATCHED = (
    "import costar_cli.reporting.progress as heart\nheart.EVERY_S, heart.POLL_S = 0.1, 0.05\n"
    "import sys\nfrom costar_cli.cli.app import main\nraise SystemExit(main(sys.argv[1:]))"
)


def start_process(*args: object, cwd: Path, watched: bool = False, **options: Any) -> "subprocess.Popen[str]":
    """Start a process and return while it runs."""
    command = [sys.executable, *(["-c", WATCHED] if watched else ["-m", "costar_cli"]), *map(str, args)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen(command, cwd=cwd, env=environment(), text=True, **pipes)


def assert_no_merge(call: Callable[..., Run], whole: Path, code: ExitCode, *texts: object) -> None:
    """Assert that `costar merge` ends with this code and these words, and writes nothing."""
    ended = call("merge", whole)
    assert ended.code == code, ended.err
    for text in texts:
        assert str(text) in ended.err
    assert not whole.exists()
