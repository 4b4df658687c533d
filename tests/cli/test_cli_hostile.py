"""Nothing that a file says reaches a terminal, a page or a table of LaTeX as more than letters."""

import csv
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import Run

from costar_cli.cli.benchmarking.export import escaped, latex
from costar_cli.data.table.schema_file import toml_row
from costar_cli.errors import ExitCode
from costar_cli.files import read_artifact, write_artifact
from costar_cli.report.figures.style import label_text
from costar_cli.report.pages.page import Item, Page, ReportTable, Section, render
from costar_cli.reporting import plain

Call = Callable[..., Run]
EVIL = "\x1b[2J\x9b31m\u202e\u2066\u061cx"  # clears the screen, colours it, and turns the line around
LABEL = f"={EVIL[4:]}"  # of subjects, of which those with control characters of ASCII are refused
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
OUTCOME, TREATMENT, COVARIATE = f"pressure {EVIL}", f"drug {EVIL}", f"=rate {EVIL}"
SCHEMA = {
    "who": {"role": "subject"},
    "day": {"role": "time"},
    OUTCOME: {"role": "outcome", "unit": f"mm{EVIL}"},
    TREATMENT: {"role": "treatment", "levels": [f"none {EVIL}", f"some {EVIL}"]},
    COVARIATE: {"role": "covariate", "unit": f"$\\frac{EVIL}$"},
}


@pytest.fixture
def ward(tmp_path: Path) -> Path:
    """A table and a schema whose every text is hostile."""
    levels = SCHEMA[TREATMENT]["levels"]
    with (tmp_path / "t.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(SCHEMA)
        for n in range(40):
            for day in range(9):
                table.writerow([f"{LABEL}{n}", day, (n * day) % 7 + day, levels[(n + day) % 3 == 0], n % 5])
    lines = ['name = "ward"', "horizon = 2"]
    for column, values in SCHEMA.items():
        given = ", ".join(f"{key} = {json.dumps(value)}" for key, value in values.items())
        lines.append(f"[columns]\n{json.dumps(column)} = {{ {given} }}" if column == "who" else
                     f"{json.dumps(column)} = {{ {given} }}")  # fmt: skip
    (tmp_path / "s.toml").write_text("\n".join(lines), "utf-8")
    steps = [{TREATMENT: levels[1]}, {}]
    (tmp_path / "plan.json").write_text(json.dumps({"plans": {"a": steps, "b": [{}, {}]}}), "utf-8")
    (tmp_path / "bad.json").write_text(json.dumps({"plans": {EVIL: [{EVIL: EVIL}]}}), "utf-8")
    return tmp_path


def rename(file: Path) -> None:
    """Give a data set a name that only somebody who writes files of his own can give it."""
    data = read_artifact(file)
    meta = {**data.meta, "name": f"ward {EVIL}"}
    write_artifact(file, kind="dataset", arrays=data.arrays, meta=meta, parents=data.parents, overwrite=True)


def test_no_text_of_a_file_drives_the_terminal_in_any_verb(ward: Path, call: Call) -> None:
    who = f"{LABEL}3"
    model = "costar-workspace/model-ridge.h5"
    commands: list[tuple[int, list[object]]] = [
        (0, ["ingest", "table", "t.csv", "--init", "-o", "guess.toml"]),
        (ExitCode.USAGE, ["ingest", "table", "t.csv", "--schema", "guess.toml", "-o", "g.h5"]),
        (0, ["ingest", "table", "t.csv", "--schema", "s.toml"]),
        (0, ["finetune", "--method", "ridge"]),
        (0, ["ingest", "table", "t.csv", "--like", model, "-o", "new.h5"]),
        (0, ["evaluate", "--no-plots", "--bootstrap", 0, "--csv", "e.csv", "--csv-safe"]),
        (0, ["whatif", "-s", who, "-p", "plan.json", "--csv", "a.csv", "--csv-safe"]),
        (ExitCode.USAGE, ["whatif", "-s", who, "-p", "bad.json"]),
        (ExitCode.USAGE, ["whatif", "-s", f"{LABEL}333", "-p", "plan.json"]),
        (0, ["whatif", "--subjects", "all", "-p", "plan.json", "--csv", "c.csv", "--csv-safe"]),
        (0, ["whatif", "--subjects", "all", "-p", "plan.json", "--average", "--csv", "m.csv", "--csv-safe"]),
        (0, ["search", "-s", who, "--minimise", f"{OUTCOME} at end", "--unsupported", "--csv", "p.csv", "--csv-safe"]),
        (0, ["inspect", "costar-workspace/data.h5"]),
        (0, ["inspect", "costar-workspace/data.h5", "--report", "-"]),
        (0, ["inspect", "costar-workspace/data.h5", "--export", "x", "--format", "csv"]),
        (0, ["inspect", model]),
        (0, ["verify", model]),
        (0, ["benchmark", "costar-workspace/data.h5", "--methods", "ridge", "--list"]),
    ]  # fmt: skip
    for code, words in commands:
        if words[0] == "finetune":
            rename(ward / "costar-workspace" / "data.h5")
        run = call(*words)
        assert run.code == code, (words, run.err)
        assert not UNSAFE.search(run.out + run.err), words
    for name in ("a.csv", "c.csv", "m.csv", "p.csv", "e.csv"):
        text = (ward / name).read_text("utf-8")
        assert not UNSAFE.search(text), name
        assert not any(re.match(r"[=@]|[+-](?![\d.])", cell) for row in csv.reader(text.splitlines()) for cell in row)
    assert not UNSAFE.search((ward / "x" / "schema.toml").read_text("utf-8"))
    assert call("whatif", "-s", who, "-p", "plan.json", "--csv", "raw.csv").code == 0
    assert who in (ward / "raw.csv").read_text("utf-8")  # as it is in the data, for joins


@pytest.mark.parametrize("write", [plain, escaped, latex, label_text])
def test_texts_for_terminals_markdown_latex_and_figures_have_no_control_characters(write: Callable[[str], str]) -> None:
    assert not UNSAFE.search(write(f"a{EVIL}b"))


def test_schemas_spell_control_characters_out_and_keep_names() -> None:
    name = f"a\x1b]0;{EVIL}\U000e0041"
    assert tomllib.loads(toml_row(name, name)) == {name: name}
    assert not UNSAFE.search(toml_row(name, name))


def test_pages_have_no_control_characters() -> None:
    table = ReportTable(EVIL, EVIL, (EVIL,), ((EVIL,),))
    page = Page(EVIL, EVIL, [Section(EVIL, [EVIL], tables=[table], items=[Item(EVIL, more=EVIL)])])
    assert not UNSAFE.search(render(page))


def test_figures_show_formulas_as_letters() -> None:
    assert label_text("$x^2$") == r"\$x^2\$"
