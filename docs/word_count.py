"""Count the words of the pages: python docs/word_count.py

Counted are words of prose and tables, on the site and in the README. Not counted are equations (docs/spec), references
that programs write (docs/cli.md, docs/diagnostics.md, the keys of a schema), tables of stored results, code and output,
and the titles that the list of decisions repeats.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = {"docs/cli.md", "docs/diagnostics.md"}
BLOCKS = re.compile(
    r"<!-- from benchmarks/results:.*?<!-- end -->|<!-- keys:.*?<!-- /keys -->|<!--.*?-->|^```.*?^```"
    r"|^- \[\d{4}\]\(\S+\.md\) [^\n]*",
    re.DOTALL | re.MULTILINE,
)


def words(text: str) -> int:
    """Return how many words of prose and tables a page has."""
    return sum(1 for word in BLOCKS.sub("", text).split() if re.search(r"[^\W_]", word))


def counts() -> dict[str, int]:
    """Return the words of every page that people write, by its path."""
    pages = [
        ROOT / name
        for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "examples/README.md", "benchmarks/README.md")
    ]
    pages += [path for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent.name != "spec"]
    named = {path.relative_to(ROOT).as_posix(): path for path in pages}
    return {name: words(path.read_text("utf-8")) for name, path in named.items() if name not in WRITTEN}


if __name__ == "__main__":
    found = counts()
    for page, number in sorted(found.items(), key=lambda item: -item[1]):
        sys.stdout.write(f"{number:7,}  {page}\n")
    sys.stdout.write(f"{sum(found.values()):7,}  in all\n")
