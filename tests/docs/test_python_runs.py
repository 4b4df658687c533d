"""The Python page's blocks and the notebook's cells run, and the notebook shows what they give."""

import json
import re
import warnings
from pathlib import Path

import pytest

import costar_cli as costar
from costar_cli.files import read_header
from docs.notebook import NOTEBOOK, outputs_of
from tests.cli.cli_world import REPOSITORY
from tests.docs.pages import FENCED

PAGE = REPOSITORY / "docs" / "python.md"


def test_the_blocks_of_the_page_run_one_after_the_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    blocks = [match["text"] for match in FENCED.finditer(PAGE.read_text("utf-8")) if match["language"] == "python"]
    names: dict[str, object] = {"__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", costar.CostarWarning)  # tiny models are no better than the last value
        for number, block in enumerate(blocks, start=1):
            exec(compile(block, f"{PAGE.name}, block {number}", "exec"), names)  # noqa: S102
    assert len(blocks) > 8
    assert read_header(Path("model-target.h5")).kind == "model"
    assert "did you mean `gamma`" in capsys.readouterr().out


def test_the_page_tells_of_every_function():
    text = PAGE.read_text("utf-8")
    functions = [name for name in costar.__all__ if name[0].islower() and callable(getattr(costar, name))]
    assert [name for name in functions if f"[`{name}(" not in text] == []


def shown(outputs: list[dict[str, object]]) -> list[str]:
    """Outputs as text, without numbers, digests, frames around tables and the widths of columns."""
    texts = ["".join(out.get("text") or out["data"]["text/plain"]) for out in outputs]
    words = [re.sub(r"\b[0-9a-f]{8}\b|-?\d[\d.]*", "#", text) for text in texts]
    return [" ".join(re.sub(r"[─┌┬┐├┼┤└┴┘╞═╪╡│┆]", " ", text).split()) for text in words]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_notebook_runs_and_shows_what_it_gives():
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    for cell, outputs in zip(code, outputs_of(cells), strict=True):
        assert shown(cell["outputs"]) == shown(outputs)
    assert any("text/html" in out["data"] for cell in code for out in cell["outputs"] if "data" in out)
