"""`costar check`: verdicts on tables that were made to be suitable, or to lack one thing."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli_world import Run

from costar_cli.errors import ExitCode

Call = Callable[..., Run]
Decide = Callable[[float, np.random.Generator], int]

COLUMNS = """
name = "ward"
horizon = 3
[columns]
patient = {{ role = "subject" }}
day = {{ role = "time" }}
pressure = {{ role = "outcome"{missing} }}
drug = {{ role = "treatment" }}
"""


def by_coin(y: float, rng: np.random.Generator) -> int:
    return int(rng.random() < 0.5)


def by_level(y: float, rng: np.random.Generator) -> int:
    return int(y > 120)


def ward(folder: Path, decide: Decide, *, subjects: int = 160, steps: int = 8, blank: float = 0.0) -> list[str]:
    """Write a table whose drug lowers the next pressure, and its schema; return the words of `check`."""
    rng, lines = np.random.default_rng(3), ["patient,day,pressure,drug"]
    for subject in range(subjects):
        y = rng.normal(120, 15)
        for day in range(steps):
            drug = decide(y, rng)
            lines.append(f"p{subject},{day},{'' if rng.random() < blank else f'{y:.1f}'},{drug}")
            y += rng.normal(0, 5) - 6 * drug + 3
    (folder / "ward.csv").write_text("\n".join(lines) + "\n", "utf-8")
    (folder / "s.toml").write_text(COLUMNS.format(missing=', missing = "fill"' if blank else ""), "utf-8")
    return ["check", "ward.csv", "--schema", "s.toml", "--json"]


def ratings(run: Run) -> dict[str, str]:
    return {criterion["name"]: criterion["rating"] for criterion in run.document["result"]["criteria"]}


def test_a_randomised_table_of_many_subjects_is_suitable(tmp_path: Path, call: Call) -> None:
    run = call(*ward(tmp_path, by_coin))
    assert run.document["result"]["verdict"] == "suitable"
    assert set(ratings(run).values()) == {"ok"}
    assert set(ratings(run)) == {"steps", "outcome", "treatment", "overlap", "subjects"}
    assert "leaves 100 %" in next(c["text"] for c in run.document["result"]["criteria"] if c["name"] == "overlap")


@pytest.mark.parametrize(
    ("decide", "changes", "name", "rating"),
    [
        (by_level, {}, "positivity", "stop"),
        (lambda y, rng: int(y < 135 and rng.random() < 0.6), {}, "positivity", "care"),
        (by_coin, {"subjects": 40}, "subjects", "care"),
        (by_coin, {"subjects": 12, "steps": 6}, "steps", "stop"),
        (by_coin, {"blank": 0.5}, "outcome", "care"),
        (lambda y, rng: int(rng.random() < 0.004), {}, "treatment", "care"),
    ],
    ids=["by level", "never above a level", "few subjects", "few steps", "missing outcomes", "rare treatment"],
)  # fmt: skip
def test_what_a_table_lacks_is_named(
    decide: Decide, changes: dict[str, float], name: str, rating: str, tmp_path: Path, call: Call
) -> None:
    run = call(*ward(tmp_path, decide, **changes))
    assert run.code == ExitCode.OK, run.err
    assert ratings(run)[name] == rating
    assert run.document["result"]["rating"] == rating
    assert all(criterion["fix"] for criterion in run.document["result"]["criteria"] if criterion["rating"] != "ok")


def test_without_a_schema_roles_are_guessed_in_ten_lines_and_nothing_is_written(
    repository: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    table = repository / "examples" / "own-data" / "small.csv"
    run = call("check", table)
    lines = run.out.splitlines()
    assert lines[0] == "small: suitable, with care; 3 of its roles are guesses"
    assert len(lines) <= 10
    assert max(map(len, lines)) <= 80
    assert run.err.split() == ["next", "costar", "ingest", "table", str(table), "--init"]
    assert list(tmp_path.iterdir()) == []


def test_a_data_set_is_checked_and_what_a_guess_lacks_is_said(data: Path, tmp_path: Path, call: Call) -> None:
    assert call("check", data, "--json").document["result"]["name"] == "tumor"
    assert call("check", data, data).code == ExitCode.USAGE
    ward(tmp_path, by_coin, blank=0.2)
    run = call("check", "ward.csv")
    assert run.code == ExitCode.DATA
    assert "`costar ingest table ward.csv --init` writes the schema to change" in " ".join(run.err.split())
