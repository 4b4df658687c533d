"""What `make docs` adds to the pages of docs/: files of the repository that they link to, and the Python reference.

MkDocs calls `on_files` and `on_page_markdown`. A page or file outside docs/ that a page links to comes onto the site
as `repo/<its path>`, so that links lead to the same place on the site as in the repository.
"""

import inspect
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

import costar_cli

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<=\]\()(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]+)?(?=\))")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
ALWAYS = ("CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md", "benchmarks/README.md")  # in the navigation


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add what pages link to outside docs/, whatever these link to in turn, and the Python reference."""
    reference = File.generated(config, "python-reference.md", content=python_reference())
    files.append(reference)
    pages = [Path(str(file.abs_src_path)) for file in files.documentation_pages() if file is not reference]
    seen: set[Path] = set()
    todo = [*(ROOT / name for name in ALWAYS), *(path for page in pages for path in _outside(page))]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        files.append(File.generated(config, _address(path), abs_src_path=str(path)))
        todo += _outside(path) if path.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, page: "Page", **_: object) -> str:
    """Point the links of a page at the places that `on_files` gave to their targets."""
    if page.file.src_uri == "python-reference.md":
        return markdown
    source = Path(str(page.file.abs_src_path)).resolve()
    here = posixpath.dirname(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        path = _target(source, match["target"])
        if path is None:
            return match[0]
        return posixpath.relpath(_address(path), here or ".") + (match["anchor"] or "")

    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in parts)


def _outside(page: Path) -> Iterator[Path]:
    """Yield the files outside docs/ that a page links to."""
    for match in LINK.finditer(FENCE.sub("", page.read_text("utf-8"))):
        path = _target(page, match["target"])
        if path is not None and not path.is_relative_to(DOCS):
            yield path


def _target(page: Path, link: str) -> Path | None:
    """Return the file that a relative link leads to; of a folder, its README.md."""
    if "://" in link or link.startswith("mailto:"):
        return None
    path = Path(os.path.normpath(page.parent / link))
    path = path / "README.md" if path.is_dir() else path
    return path if path.is_file() else None


def _address(path: Path) -> str:
    """Return where a file of the repository stands on the site."""
    inside = path.is_relative_to(DOCS)
    return path.relative_to(DOCS).as_posix() if inside else f"repo/{path.relative_to(ROOT).as_posix()}"


def python_reference() -> str:
    """Return a page of every public name of `costar_cli`, from its docstring."""
    parts = ["# Python reference\n\nEvery public name of `import costar_cli as costar`, from its docstring.\n"]
    for name in costar_cli.__all__:
        thing = getattr(costar_cli, name)
        if not (inspect.isclass(thing) or inspect.isroutine(thing)):
            continue
        parts.append(_described(f"## {name}", name, thing))
        if inspect.isclass(thing) and not issubclass(thing, BaseException):
            members = [(key, value) for key, value in vars(thing).items() if not key.startswith("_")]
            methods = [(key, value) for key, value in members if inspect.isfunction(value) and value.__doc__]
            parts += [_described(f"### {name}.{key}", key, value) for key, value in methods]
    return "\n".join(parts)


def _described(heading: str, name: str, thing: object) -> str:
    """Return a heading, the signature, and the docstring of a class or function."""
    try:
        signature = str(inspect.signature(thing))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        signature = ""
    text = inspect.getdoc(thing) or ""
    return f"{heading}\n\n```python\n{name}{signature}\n```\n\n```text\n{text}\n```\n"
