"""Run the commands of README.md or docs/tour.md as shown, and write what was printed in place of what is shown.

python -m docs.readme_tour PAGE [TRANSCRIPT]    # minutes; TRANSCRIPT keeps what was printed, and is read if it exists

A shown line is replaced by the next printed one that differs from it in numbers alone, or else that begins with the
same two words; `...` and left-out lines stay as they are. Lines without a partner are listed, and are for a person.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import RUNNABLE, skeleton

ROOT = Path(__file__).resolve().parents[1]
BEGINS = "@@ block"


def transcript(page: Path) -> str:
    """Return what the runnable blocks of a page print, one after the other in one shell, a marker before each."""
    blocks = [match["script"] for match in RUNNABLE.finditer(page.read_text("utf-8"))]
    script = "set -euo pipefail\n" + "\n".join(f"echo '{BEGINS}'\n{block}" for block in blocks)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("COSTAR_")}
        kept["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept["COLUMNS"] = "80"
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        shell = ["bash", "-c", script]
        done = subprocess.run(shell, cwd=folder, env=kept, check=True, **pipes)  # noqa: S603 - the README's own
    return str(done.stdout)


def rewritten(page: str, printed: str) -> tuple[str, list[str]]:
    """Return the page with each block's output as printed, and the shown lines that have no partner."""
    outputs = iter(printed.split(f"{BEGINS}\n")[1:])
    lost: list[str] = []
    parts, end = [], 0
    for match in RUNNABLE.finditer(page):
        lines = next(outputs).splitlines()
        if match["output"] is None:
            continue
        replaced = list(_partners(match["output"].splitlines(), lines, lost))
        parts += [page[end : match.start("output")], "\n".join(replaced) + "\n"]
        end = match.end("output")
    return "".join([*parts, page[end:]]), lost


def _partners(shown: list[str], printed: list[str], lost: list[str]) -> Iterator[str]:
    at = 0
    for line in shown:
        found = None if line.strip() in {"", "..."} else _partner(line, printed, at)
        if found is None:
            if line.strip() not in {"", "..."}:
                lost.append(line)
            yield line
        else:
            yield printed[found]
            at = found + 1


def _partner(line: str, printed: list[str], at: int) -> int | None:
    wanted = skeleton(line)
    later = range(at, len(printed))
    same = next((i for i in later if skeleton(printed[i]) == wanted), None)
    if same is not None:
        return same
    return next((i for i in later if skeleton(printed[i]).split()[:2] == wanted.split()[:2]), None)


def main() -> int:
    """Rewrite the page; say which lines are left."""
    page = Path(sys.argv[1])
    kept = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    printed = kept.read_text("utf-8") if kept is not None and kept.exists() else transcript(page)
    if kept is not None:
        kept.write_text(printed, "utf-8")
    text, lost = rewritten(page.read_text("utf-8"), printed)
    page.write_text(text, "utf-8")
    for line in lost:
        sys.stderr.write(f"no such line was printed: {line}\n")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
