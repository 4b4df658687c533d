"""Run the notebook's code and write what it gives into the file, so that readers see outputs of a run.

python -m docs.notebook    # seconds

No kernel is needed: the cells run one after the other in one namespace, as `tests/docs/test_python_runs.py` runs them.
"""

import ast
import contextlib
import io
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().parents[1] / "examples" / "python_api.ipynb"

Output = dict[str, Any]


def outputs_of(cells: list[dict[str, Any]]) -> Iterator[list[Output]]:
    """Yield what each code cell prints, warns of and ends with, in the form of a notebook."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate((cell for cell in cells if cell["cell_type"] == "code"), start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            value = _run("".join(cell["source"]), f"cell {number}", names)
        warned = "".join(f"{warning.category.__name__}: {warning.message}\n" for warning in caught)
        streams = {"stderr": warned, "stdout": printed.getvalue()}
        outputs = [_stream(name, text) for name, text in streams.items() if text]
        yield [*outputs, *([_result(value, number)] if value is not None else [])]


def _run(source: str, name: str, names: dict[str, Any]) -> object:
    """Run a cell, and return what its last line is worth if that is an expression."""
    body = ast.parse(source, name).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), name, "exec"), names)  # noqa: S102 - the repository's own notebook
    if not isinstance(last, ast.Expr):
        return None
    value: object = eval(compile(ast.Expression(last.value), name, "eval"), names)  # noqa: S307
    return value


def _stream(name: str, text: str) -> Output:
    return {"name": name, "output_type": "stream", "text": text.splitlines(keepends=True)}


def _result(value: object, number: int) -> Output:
    data = {"text/plain": repr(value).splitlines(keepends=True)}
    html = getattr(value, "_repr_html_", None)
    if html is not None:
        data = {"text/html": html().splitlines(keepends=True), **data}
    return {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}


def main() -> int:
    """Rewrite the notebook's outputs."""
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, outputs) in enumerate(zip(code, outputs_of(notebook["cells"]), strict=True), start=1):
        cell |= {"execution_count": number, "outputs": outputs}
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
