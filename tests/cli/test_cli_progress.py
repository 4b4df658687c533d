"""Who waits sees that work goes on: lines in a log, also under `--json`; a bar whose figures stay whole."""

import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from cli_world import TINY_COHORT, Run
from test_cli_output import run_in_terminal

from costar_cli.reporting import progress as heart
from costar_cli.reporting.output import Output
from costar_cli.reporting.progress import EVERY_S, POLL_S, OutputReporter


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize("mode", ["text", "json"])
def test_a_log_gets_a_line_at_least_every_30_seconds_with_member_epoch_step_loss_and_what_is_left(
    mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, said_at_s = Clock(), []
    with OutputReporter(Output("finetune", json=mode == "json"), clock=clock).task("finetune", total=400) as task:
        for step in range(200):
            task.advance(1, member=2, epoch=1 + step // 100, training_loss_so_far=0.5, log_n=8.25)
            if line := capsys.readouterr().err:
                said_at_s.append(clock.now_s)
                last = line
            clock.now_s += 2.0
        capsys.readouterr()
    assert all(late - early <= 30 for early, late in pairwise([0.0, *said_at_s, 400.0]))
    assert last == (
        "progress  finetune: 196 of 400 steps (49%), member 2  epoch 2  training loss so far 0.5  chance 8.25, "
        "about 7 min left\n"
    )
    assert EVERY_S + POLL_S < 30


def test_what_an_interrupted_run_had_done_says_nothing_of_the_pace(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with OutputReporter(Output("finetune"), clock=clock).task("finetune", total=1000) as task:
        task.advance(900)
        clock.now_s = 100
        task.advance(10)
    assert "910 of 1,000 steps (91%), about 15 min left" in capsys.readouterr().err


def test_a_task_inside_a_task_is_named_behind_it(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    reporter = OutputReporter(Output("benchmark"), clock=clock)
    with reporter.task("Benchmark", total=20, done=3, unit="cell"), reporter.task("crn: encoder", total=50) as inner:
        clock.now_s = 60
        inner.advance(5)
    assert "progress  Benchmark: 3 of 20 cells (15%); crn: encoder: 5 of 50 steps (10%)\n" in capsys.readouterr().err


def test_quiet_means_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with OutputReporter(Output("verb", quiet=True), clock=clock).task("train") as task:
        clock.now_s = 60
        task.advance()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("flag", ["--json", "--quiet"])
def test_long_verbs_show_signs_of_life_in_a_log_whatever_they_do(
    flag: str, call: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heart, "EVERY_S", 0.02)
    monkeypatch.setattr(heart, "POLL_S", 0.005)
    verbs = [
        ["simulate", "tumor", *TINY_COHORT],
        ["finetune", "--from", "scratch", "--epochs", "8", "--members", "2", "--threads", "1"],
        ["evaluate", "--no-plots"],
    ]
    for words in verbs:
        run = call(*words, flag)
        assert run.code == 0, run.err
        lines = [line for line in run.err.splitlines() if line.startswith("progress  ")]
        assert bool(lines) == (flag == "--json"), (words, run.err)
        if words[0] == "finetune" and lines:
            training = r"of \d+ steps \(\d+%\), epoch \d+  training loss.* [\d.e-]+.*, about \d+ s left$"
            assert any(re.search(training, line) for line in lines), lines


LONG = (
    "import sys\n"
    "from costar_cli.reporting.output import Output\n"
    "from costar_cli.reporting.progress import OutputReporter\n"
    "title = 'seed-10/costar-without-relative-encoding: supervised fine-tuning'\n"
    "with OutputReporter(Output('verb')).task(title, total=123456, done=1200, unit='step') as task:\n"
    "    task.advance(34, member=3, epoch=17, training_loss_so_far=0.012345, log_n=8.25)\n"
    "    task._progress.refresh()\n"
)


@pytest.mark.parametrize("columns", ["80", "60", "120"])
def test_the_bar_keeps_counter_and_time_whole_on_a_narrow_terminal(columns: str) -> None:
    _, err = run_in_terminal(LONG, COLUMNS=columns)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", err)
    lines = [line for line in re.split(r"[\r\n]+", shown) if line.strip()]
    assert any("1234/123456" in line and re.search(r"-:--:--|\d:\d\d:\d\d", line) for line in lines), lines
    assert all(len(line.rstrip()) <= int(columns) for line in lines)
    assert all("seed-10" in line for line in lines)  # one line per state: nothing wraps
