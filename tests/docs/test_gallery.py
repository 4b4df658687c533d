"""The pages of the gallery run as they stand, and come near the truth that their tables were made with."""

import csv
import re
import subprocess
import sys
from pathlib import Path
from statistics import linear_regression, mean

import pytest

from docs.word_count import words
from tests.cli.cli_world import REPOSITORY, environment
from tests.docs.pages import NUMBER, runnable_blocks, skeleton

PAGES = {  # picture, plan, reference, and bounds of the first step's difference; the truth is in the middle
    "shelves": ("shelves.png", "once", "none", (37, 54)),
    "fluids": ("fluids.png", "one bag", "wait", (3, 5)),
    "glucose": ("glucose.png", "basal", "no insulin", (-28, -20)),
    "trial": ("trial.png", "dose=100", "dose=0", (-12, -8)),
    "visits": ("visits.png", "drug now", "no drug", (-10.2, -8.2)),
    "theophylline": ("theophylline.png", "320 now", "nothing", (5.9, 7.2)),
}
RECIPES: dict[str, tuple[str, list[tuple[str, float]]]] = {  # table; rows of output, and what is true of each
    "tv": ("tv", [("30 % less", -17.6)]),
    "individual": ("people", [("exercise", -7.57), ("swim", -7.24)]),
    "next-best": ("people", [("exercise", -7.91), ("swim", -17.52), ("alternate", -14.45), ("best.csv", -8.00)]),
    "switching": ("switch", [("always", -5.06), ("above 9", -1.89)]),
    "age": ("age", [("drug", 3.3), ("drug", 7.8)]),
    "orders": ("orders", [("end.csv", 19.19), ("mean.csv", 12.90)]),
}
INTERVAL = re.compile(rf"\(({NUMBER.pattern}) to ({NUMBER.pattern})\)")
TABLES = REPOSITORY / "examples" / "recipes" / "make_tables.py"
GALLERY = REPOSITORY / "docs" / "gallery"


def test_the_gallery_lists_its_pages_and_each_has_a_figure_and_a_licence() -> None:
    assert sorted(path.stem for path in GALLERY.glob("*.md")) == sorted(["README", *PAGES, *RECIPES])
    for name in PAGES:
        text = (GALLERY / f"{name}.md").read_text("utf-8")
        assert f"[{name}.md]" in (GALLERY / "README.md").read_text("utf-8")
        assert f"../img/gallery-{name}.png" in text
        assert "Apache-2.0" in text
        assert "| truth |" in text


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_goes_from_a_table_to_its_decision(name: str, tmp_path: Path, script_path: str) -> None:
    picture, plan, reference, (low, high) = PAGES[name]
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    (block,) = runnable_blocks(GALLERY / f"{name}.md")
    done = subprocess.run(
        ["bash", "-ec", block.script], cwd=tmp_path, env=environment(PATH=script_path), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / picture).stat().st_size > 10_000
    with (tmp_path / "answers.csv").open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    compared = [row for row in rows if (row["plan"], row["reference"]) == (plan, reference)]
    first = [row for row in compared if row["step"] == "1" and row["outcome"] != "survival"]
    assert low < mean(float(row["estimate"]) for row in first) < high


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def made(table: str, target: Path | str) -> str:
    return subprocess.run([sys.executable, TABLES, table, target], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_short_and_says_the_truth_that_its_script_knows(name: str) -> None:
    text, (table, facts) = (GALLERY / f"{name}.md").read_text("utf-8"), RECIPES[name]
    assert f"]({name}.md)" in (GALLERY / "README.md").read_text("utf-8")
    assert f"../img/gallery-{name}.png" in text
    assert f"](docs/gallery/{name}.md)" in (REPOSITORY / "README.md").read_text("utf-8"), "one click from the README"
    assert "Apache-2.0" in text
    assert words(text) <= 350
    truth = " ".join(text.partition("In truth ")[2].partition("\n\n")[0].split())
    assert [fact for _, fact in facts if f"{abs(fact):g}" not in truth and f"{abs(fact):.2f}" not in truth] == []
    known = made(table, "--truth")
    if table == "people":
        (person,) = re.findall(r"for (P\d+)", truth)
        (known,) = [line.removeprefix(person) for line in known.splitlines() if line.startswith(person)]
    assert set(numbers(known)) <= set(numbers(truth)) | {9, 30}  # the number of a rule, and percent less


def test_weeks_with_more_tv_sell_less_though_tv_sells(tmp_path: Path) -> None:
    made("tv", tmp_path / "tv.csv")
    with (tmp_path / "tv.csv").open() as file:
        rows = [(float(row["tv"]), float(row["sales"])) for row in csv.DictReader(file)]
    assert linear_regression(*zip(*rows, strict=True)).slope < -0.5


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_prints_what_it_shows_and_its_intervals_hold_the_truth(
    name: str, tmp_path: Path, script_path: str
) -> None:
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    (block,) = runnable_blocks(GALLERY / f"{name}.md")
    env = environment(PATH=script_path, COLUMNS="80")
    done = subprocess.run(
        ["bash", "-ec", block.script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    for line in block.output:
        alike = [numbers(other) for other in printed if skeleton(other) == skeleton(line)]
        assert any(other == pytest.approx(numbers(line), rel=0.02, abs=0.03) for other in alike), line
    compared = [(line.split("  ")[0], found) for line in block.output if len(found := INTERVAL.findall(line)) == 2]
    for row, fact in RECIPES[name][1]:
        if row.endswith(".csv"):
            with (tmp_path / row).open() as file:
                best = next(csv.DictReader(line for line in file if not line.startswith("#")))
            low, high = float(best["difference_lower"]), float(best["difference_upper"])
        else:
            at = next(i for i, (called, _) in enumerate(compared) if called == row)
            low, high = map(float, compared[at][1][-1])
            del compared[: at + 1]
        assert low < fact < high
