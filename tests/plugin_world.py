"""Packages that tests install: a folder with modules and what `pip` would write of their entry points."""

from collections.abc import Mapping
from pathlib import Path

__all__ = ["install"]


def install(folder: Path, package: str, entries: Mapping[str, Mapping[str, str]], **modules: str) -> None:
    """Write a package into a folder that is, or comes, on `sys.path`.

    `entries` are its entry points by group and name, `modules` the text of its files.
    """
    information = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", "utf-8")
    lines = [f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in named.items()) for group, named in entries.items()]
    (information / "entry_points.txt").write_text("\n".join(lines), "utf-8")
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text, "utf-8")
