"""No change of structure changes an output: every verb says and writes what it said and wrote when it was recorded."""

import json

import pytest

from tests.contract.outputs import CASES, FRAMES, MACHINE, RECORDED, Case, differences, frame_of, machine, output_of

EXACT, ELSEWHERE = 1e-9, 2e-3  # relative; processors and libraries round differently


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_output_is_what_was_recorded(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    require_recorded(case.name, output_of(case))


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_of_the_python_api_is_what_was_recorded(name: str) -> None:
    require_recorded(name, frame_of(name))


def require_recorded(name: str, text: str) -> None:
    expected = (RECORDED / f"{name}.txt").read_text("utf-8")
    relative = EXACT if machine() == json.loads(MACHINE.read_text()) else ELSEWHERE
    assert differences(expected, text, relative=relative) == []


def test_a_number_or_a_word_that_changes_is_seen() -> None:
    assert differences("a 1.5 b", "a 1.5000000001 b", relative=EXACT) == []
    assert differences("a 1.5 b", "a 1.500001 b", relative=EXACT)
    assert differences("a 1.5 b", "a 1.5 c", relative=ELSEWHERE)
    assert differences("a 1.5 b", "a 1.5 b\nmore", relative=ELSEWHERE)


def test_each_recorded_output_has_its_case() -> None:
    assert sorted(path.stem for path in RECORDED.glob("*.txt")) == sorted([*FRAMES, *(case.name for case in CASES)])
