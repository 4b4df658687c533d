"""CONTRIBUTING.md: its map has every room, and what it tells newcomers to write, run and read is there."""

import ast
import re
from pathlib import Path
from textwrap import dedent

import pytest

from tests.cli.cli_world import REPOSITORY
from tests.docs.pages import FENCED, REFERENCE

TEXT = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
PLAIN = FENCED.sub("", TEXT)


EXAMPLE = re.compile(r"```python\n(?P<text>.*?)^ *```", re.DOTALL | re.MULTILINE)


def section(title: str) -> str:
    return PLAIN.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_map_has_every_room_and_no_other() -> None:
    mapped = set(re.findall(r"^\| `(?:costar_cli/)?([\w.]+)/?` \|", section("House map"), re.MULTILINE))
    package = REPOSITORY / "costar_cli"
    folders = {path.name for path in package.iterdir() if path.is_dir() and path.name != "__pycache__"}
    files = {path.name for path in package.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert mapped == folders | files | {"simulators"}


@pytest.mark.parametrize("title", ["Add a method", "Add a data set", "Add or change a figure"])
def test_every_name_in_code_is_found_in_a_file_that_the_section_names(title: str) -> None:
    text = section(title)
    files = [path for match in REFERENCE.finditer(text) for path in REPOSITORY.glob(match["path"].replace("NAME", "*"))]
    code = "\n".join(file.read_text("utf-8") for file in files if file.is_file())
    names = set(re.findall(r"`([A-Za-z_]{4,})(?:\([a-z, ]+\)(?: -> \w+)?)?`", text)) - {"METHODS"}
    assert len(files) > 3
    patterns = {name: rf"\b{name}\b".replace("NAME", r"\w+") for name in names}
    assert sorted(name for name, pattern in patterns.items() if not re.search(pattern, code)) == []


def functions(text: str) -> dict[str, str]:
    return {
        node.name: ast.unparse(node.args) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)
    }


def test_examples_of_a_method_are_python_with_the_functions_of_an_estimator() -> None:
    base = ast.parse((REPOSITORY / "costar_cli" / "methods" / "base.py").read_text("utf-8"))
    (estimator,) = (node for node in base.body if isinstance(node, ast.ClassDef) and node.name == "Estimator")
    protocol = functions(ast.unparse(estimator))
    staged, closed = (dedent(match["text"]) for match in EXAMPLE.finditer(TEXT))
    assert functions(staged) == protocol
    assert functions(closed) == {"fit": protocol["fit"]}
    for example in (staged, closed):
        assert any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(ast.parse(example)))


def test_commands_and_targets_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text("utf-8")
    assert all(f"\n{target}:" in makefile for target in re.findall(r"\bmake ([a-z-]+)", TEXT))
    modules = [
        Path(*name.split(".")).with_suffix(".py") for name in re.findall(r"python -m ((?:docs|tests)\.[\w.]+)", TEXT)
    ]
    scripts = [Path(name) for name in re.findall(r"python (docs/\w+\.py)", TEXT)]
    assert len(modules) + len(scripts) > 4
    assert [path for path in (*modules, *scripts) if not (REPOSITORY / path).is_file()] == []
