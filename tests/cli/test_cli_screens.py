"""What each verb says fits one screen, with the answer on it, and breaks between words in terminals of any width."""

import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import REPOSITORY, Run, environment
from typer.main import get_command

from costar_cli.cli.app import app
from costar_cli.cli.options import SHOWN

Call = Callable[..., Run]
WORLD = REPOSITORY / "tests" / "contract" / "world"
DAYS, BOTH = [{"chemotherapy": 1}, {}, {}], {"chemotherapy": 1, "radiotherapy": 1}
PLANS = {"origin": 6, "plans": {"watch": [{}, {}, {}], "chemo": DAYS, "both": [BOTH, {}, {}]}}
MIXED = "-w tumor -m tumor/model-mixed.h5"
SEARCH = "--origin 6 --minimise 'tumour_volume at end' --at-most 'chemotherapy 2'"
MOST = {  # lines of a screen
    "evaluate -w tumor": 15,
    "evaluate -w trial --no-plots": 15,
    f"whatif -s 45 --plan chemo.json {MIXED}": 12,
    "whatif -s 45 --plan chemo.json -w tumor": 12,
    f"whatif --subjects source/test --skip-unknown --average --plan chemo.json {MIXED}": 12,
    "whatif --subjects source/test --skip-unknown --average --plan chemo.json -w tumor": 12,
    f"search -s 45 {SEARCH} {MIXED}": 14,
    f"search --subjects source/test --skip-unknown {SEARCH} {MIXED}": 14,
    "finetune -w trained --members 2 --epochs 2 --threads 1": 6,
    "pretrain -w trained --members 2 --epochs 1 --threads 1": 6,
    "settings": 12,
    "settings finetune.select_on": 8,
    "finetune --method ridge -w trial": 6,
}
EVERYWHERE = [
    command
    for command in MOST
    if "trial" not in command
    and (command.split()[0] in ("evaluate", "search", "settings", "finetune", "pretrain") or MIXED in command)
]
WIDTHS = (80, 60, 120)
MARK = "=== screen"


def shown_on_a_terminal(code: str, folder: Path) -> str:
    """What a process writes to a terminal, results and messages."""
    master, slave = pty.openpty()
    ended = environment(TERM="xterm", NO_COLOR="1", OMP_NUM_THREADS="1")
    text = b""
    with subprocess.Popen([sys.executable, "-c", code], stdout=slave, stderr=slave, env=ended, cwd=folder):
        os.close(slave)
        while chunk := read_some(master):
            text += chunk
    os.close(master)
    return text.decode()


def read_some(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # the other end is closed
        return b""


def left_on_screen(text: str) -> list[str]:
    """The lines that remain after a progress bar has drawn itself anew, and gone."""
    lines, row = [""], 0
    for number, move, plain in re.findall(r"\x1b\[\??(\d*)[;\d]*([a-zA-Z])|([^\x1b])", text):
        if move == "A":
            row = max(0, row - int(number or 1))
        elif move == "K":
            lines[row] = ""
        elif plain == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif plain and plain != "\r":
            lines[row] += plain
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


@pytest.fixture(scope="module")
def screens(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], list[str]]:
    """The lines of each command in terminals of each width; the second run of a verb that makes a file finds it."""
    root = tmp_path_factory.mktemp("screens")
    for name in ("tumor", "trial"):
        shutil.copytree(WORLD / name, root / name)
    shutil.copytree(trained, root / "trained")
    (root / "chemo.json").write_text(json.dumps(PLANS))
    asked = [(command, width) for width in WIDTHS for command in MOST if width == WIDTHS[0] or command in EVERYWHERE]
    runs = [(width, shlex.split(command)) for command, width in asked]
    code = (
        f"import os\nfrom costar_cli.cli.app import main\nfor width, words in {runs!r}:\n"
        f"    os.environ['COLUMNS'] = str(width)\n    print('{MARK}', flush=True)\n    assert main(words) == 0\n"
    )
    _, *texts = shown_on_a_terminal(code, root).split(f"{MARK}\r\n")
    assert len(texts) == len(asked), texts[-1]
    return {one: left_on_screen(text) for one, text in zip(asked, texts, strict=True)}


@pytest.mark.parametrize("command", MOST)
def test_a_screen_of_80_columns_has_its_lines(screens: dict[tuple[str, int], list[str]], command: str) -> None:
    lines = screens[command, 80]
    assert len(lines) <= MOST[command], "\n".join(lines)


@pytest.mark.parametrize("width", WIDTHS)
def test_lines_break_between_words_at_any_width(screens: dict[tuple[str, int], list[str]], width: int) -> None:
    for command in EVERYWHERE:
        for line in screens[command, width]:
            assert len(line) <= width, f"{command}: {line}"


def test_the_answer_says_what_it_rests_on(screens: dict[tuple[str, int], list[str]]) -> None:
    one = screens[f"whatif -s 45 --plan chemo.json {MIXED}", 80]
    assert one[0] == "Subject 45 on day 9: tumour_volume in cm3 (90 % band), from day 6 by model-mixed"
    assert [line.split()[0] for line in one[1:5]] == ["plan", "watch", "chemo", "both"]
    assert one[2].endswith("well supported")
    assert re.search(r"\? 5\.1 % of such days$", one[3])
    assert "Assumes no hidden confounding; bands hold on average, not for one subject." in one
    assert any(line.startswith("details  --show days|support|notes|all (") for line in one)


def test_averages_that_mostly_extrapolate_begin_with_that(screens: dict[tuple[str, int], list[str]]) -> None:
    ask = "whatif --subjects source/test --skip-unknown --average --plan chemo.json "
    first, *rest = screens[f"{ask}-w tumor", 80]
    assert first == "! Mostly extrapolation: red answers are 15 of 19 for both"
    assert any(line.split()[0] == "both" and line.endswith("15 of 19 red !") for line in rest)
    assert not any("Mostly extrapolation" in line for line in screens[ask + MIXED, 80])


def test_a_search_draws_calendars(screens: dict[tuple[str, int], list[str]]) -> None:
    lines = screens[f"search -s 45 {SEARCH} {MIXED}", 80]
    assert lines[1].startswith("Best supported of ")
    assert lines[2].split()[:4] == ["day", "6", "7", "8"]
    [legend] = [line for line in lines if "both chemotherapy" in line]
    letters = {item.split()[0] for item in legend.split(", ")} | {"."}
    for line in lines[3:6]:
        assert set(line.split()[1:4]) <= letters, line


def test_every_topic_adds_to_the_screen_and_another_is_an_error(trained: Path, plan: Path, call: Call) -> None:
    words = ["whatif", "-w", trained, "-s", 1, "-p", plan]
    brief = call(*words)
    for topic in SHOWN["whatif"]:
        run = call(*words, "--show", topic)
        assert run.code == 0, run.err
        assert len(run.out + run.err) > len(brief.out + brief.err), topic
        assert f"{topic}|" not in run.err
    wrong = call(*words, "--show", "days,weeks")
    assert (wrong.code, "`weeks` is not a topic of `costar whatif`" in wrong.err) == (2, True)
    assert "choose from days, support, notes, all" in wrong.err


def test_help_fits_60_lines_and_help_all_has_every_option() -> None:
    verbs, todo = dict[str, set[str]](), [("", get_command(app))]
    while todo:
        path, command = todo.pop()
        inner = getattr(command, "commands", {})
        todo += [(f"{path} {name}".strip(), of) for name, of in inner.items()]
        if not inner:
            flags = {parameter.opts[0] for parameter in command.params if parameter.param_type_name == "option"}
            verbs[path] = flags
    short, full = ([[*path.split(), flag] for path in verbs] for flag in ("--help", "--help-all"))
    code = (
        "import contextlib, io, json\nfrom costar_cli.cli.app import main\npages = []\n"
        f"for words in {[*short, *full]!r}:\n    with contextlib.redirect_stdout(io.StringIO()) as page:\n"
        "        assert main(words) == 0, words\n    pages.append(page.getvalue())\nprint(json.dumps(pages))\n"
    )
    env = environment(COLUMNS="80", TERM="dumb")
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    pages = json.loads(done.stdout)
    for (path, flags), brief, whole in zip(verbs.items(), pages[: len(verbs)], pages[len(verbs) :], strict=True):
        assert len(brief.splitlines()) < 60, path
        named = {flag for flag in flags if re.search(rf"{re.escape(flag)}(?![\w-])", whole)}
        assert flags - named <= {"--help-all"}, path
        assert ("--help-all" in brief) == (brief.strip() != whole.strip()), path
