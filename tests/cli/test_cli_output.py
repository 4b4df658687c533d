import json
import math
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_world import environment
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError
from costar_cli.reporting import plain
from costar_cli.reporting.output import Output
from costar_cli.reporting.progress import OutputReporter
from costar_cli.reporting.text import dump_json, render_table

LONG = "/a/very/long/path/" + "x" * 300 + "/[cohort]/data.h5"


def say_everything(out: Output) -> None:
    out.read("dataset", Path("in.h5"), "a" * 64)
    out.note("a note")
    out.say(Diagnostic.of("recorded", warning="a warning"))
    out.say(Diagnostic("odd", "note", "the subject", "another note", "do this"))
    out.wrote("model", Path("out.h5"), "b" * 64)
    out.text("a result")
    out.table(["name", "n"], [["x", 1]])
    out.next("costar next")
    out.done({"value": 1.5})


def test_people_get_results_on_stdout_and_the_rest_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    say_everything(Output("verb"))
    out, err = capsys.readouterr()
    assert out == "wrote  out.h5  (model bbbbbbbb)\na result\nname  n\nx     1\n"
    said = "note  a note\nwarning: a warning\nnote  the subject: another note (do this)\n"
    assert err == f"read  in.h5  (dataset aaaaaaaa)\n{said}next  costar next\n"


def test_quiet_leaves_results_and_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    say_everything(Output("verb", quiet=True))
    out, err = capsys.readouterr()
    assert out.startswith("wrote  out.h5")
    assert err == "warning: a warning\n"


def test_json_is_one_document_with_everything(capsys: pytest.CaptureFixture[str]) -> None:
    say_everything(Output("verb", json=True))
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "schema": {"name": "costar.verb", "version": "1.0"},
        "verb": "verb",
        "status": "done",
        "workspace": None,
        "inputs": {"dataset": {"path": "in.h5", "kind": "dataset", "digest": "a" * 64}},
        "outputs": {"model": {"path": "out.h5", "kind": "model", "digest": "b" * 64}},
        "config": {},
        "result": {"value": 1.5},
        "next": ["costar next"],
        "warnings": ["a warning"],
        "diagnostics": [
            {"code": "recorded", "severity": "warning", "subject": "", "text": "a warning", "fix": ""},
            {"code": "odd", "severity": "note", "subject": "the subject", "text": "another note", "fix": "do this"},
        ],
        "error": None,
    }
    assert err == "warning: a warning\n"


def test_an_error_after_the_document_does_not_make_a_second_one(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output("verb", json=True)
    out.done({})
    out.fail(DataError("late"))
    assert json.loads(capsys.readouterr().out)["status"] == "done"


def test_an_error_names_problem_details_place_and_fix(capsys: pytest.CaptureFixture[str]) -> None:
    Output("verb").fail(DataError("bad", where="[cohort].csv", fix="mend it", details=["row 1", "row 2"]))
    expected = "error: bad\n  - row 1\n  - row 2\n  where: [cohort].csv\n  fix:   mend it\n"
    assert capsys.readouterr() == ("", expected)


def test_long_text_is_not_folded_and_brackets_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output("verb")
    out.wrote("dataset", Path(LONG))
    out.table(["path"], [[LONG]])
    assert capsys.readouterr().out.splitlines() == [f"wrote  {LONG}  (dataset)", "path", LONG]


def test_names_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output("verb")
    out.table(["plan"], [["\x1b[31mred\x07\u202e"]])
    out.fail(DataError("bad \x1b]0;title\x07"))
    text = "".join(capsys.readouterr())
    assert "\x1b" not in text
    assert "\\x1b[31mred\\x07\\u202e" in text


@given(st.text())
def test_plain_text_keeps_what_is_printable_and_has_no_control_characters(text: str) -> None:
    shown = plain(text)
    assert not any(ord(c) < 32 and c not in "\t\n" for c in shown)
    shown.encode()
    if text.isprintable() and text.isascii():
        assert shown == text


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=9))
def test_any_data_becomes_strict_json(value: object) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(dump_json({"value": value}), parse_constant=refuse)


def test_numpy_paths_and_numbers_that_are_not_finite_become_json() -> None:
    value = {"a": np.float32(1.5), "b": np.array([1, 2]), "c": math.nan, "d": Path("x"), "e": (np.inf, True), 7: {1}}
    expected = {"a": 1.5, "b": [1, 2], "c": None, "d": "x", "e": [None, True], "7": [1]}
    assert json.loads(dump_json(value)) == expected


def test_tables_align_numbers_to_the_right_and_wide_letters_by_cells() -> None:
    lines = render_table(["name", "value"], [["a", 1.0], ["日本", 12345], ["long", None], ["x", math.nan]])
    assert lines == ["name  value", "a         1", "日本  12345", "long", "x         -"]


def run_in_terminal(code: str, **env: str) -> tuple[str, str]:
    """Run Python with stdout and stderr on two terminals; return what each shows."""
    shown = []
    out, err = pty.openpty(), pty.openpty()
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=out[1], stderr=err[1], env=environment(TERM="xterm", **env)) as process:
        process.wait(60)
    for master, slave in (out, err):
        os.close(slave)
        text = b""
        while True:
            try:
                chunk = os.read(master, 65536)
            except OSError:
                break
            if not chunk:
                break
            text += chunk
        os.close(master)
        shown.append(text.decode())
    return shown[0], shown[1]


SAY = (
    "from pathlib import Path\n"
    "from costar_cli.diagnostics import Diagnostic\n"
    "from costar_cli.reporting.output import Output\n"
    "from costar_cli.reporting.progress import OutputReporter\n"
    "out = Output('verb')\nout.wrote('model', Path('x.h5'))\n"
    "with OutputReporter(out).task('[pretrain]', total=4, done=1, unit='step') as task:\n"
    "    for _ in range(3): task.advance(loss=3.5, log_n=8.25)\n"
    "    out.say(Diagnostic.of('recorded', warning='odd [b]one[/b]'))\n"
)


def test_a_terminal_gets_colour_and_a_bar_with_loss_and_log_n() -> None:
    out, err = run_in_terminal(SAY, COLUMNS="120")
    assert "\x1b[32mwrote\x1b[0m" in out
    assert "[pretrain]" in err
    assert "4/4" in err
    assert "loss 3.5" in err
    assert "chance 8.25" in err
    assert "odd [b]one[/b]" in err


def test_no_color_leaves_no_colour_in_a_terminal() -> None:
    out, err = run_in_terminal(SAY, NO_COLOR="1", COLUMNS="120")
    assert "\x1b[3" not in out + err
    assert "wrote  x.h5" in out


def test_a_log_file_gets_one_line_per_task_and_none_for_tasks_inside(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = OutputReporter(Output("verb"))
    with reporter.task("train", total=3, unit="epoch") as task:
        for _ in range(3):
            with reporter.task("validate", total=5, unit="query") as inner:
                inner.advance(5)
            task.advance(loss=2.0, log_n=8.25)
    out, err = capsys.readouterr()
    assert (out, err) == ("", "note  train: done, 3 of 3 epochs, 0 s, loss 2  chance 8.25\n")


def test_the_last_line_of_a_log_shows_the_last_metrics_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with OutputReporter(Output("verb")).task("train", total=2) as task:
        task.advance(epoch=1, training_loss_so_far=2.0)
        task.advance(0, epoch=1, training_loss=1.5, validation_loss=1.25)
        task.advance()
    said = "epoch 1  training loss 1.5  validation loss 1.25"
    assert capsys.readouterr().err == f"note  train: done, 2 of 2 steps, 0 s, {said}\n"


def test_a_failed_task_does_not_say_done_and_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError), OutputReporter(Output("verb")).task("train"):
        raise DataError("stop")
    with OutputReporter(Output("verb", quiet=True)).task("train") as task:
        task.advance(3, loss=1.0)
    assert capsys.readouterr() == ("", "")
