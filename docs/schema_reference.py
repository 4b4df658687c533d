"""Write the keys of a table's schema into docs/schema.md; `--check` says whether they are up to date.

python docs/schema_reference.py [--check]
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from costar_cli.data.table.schema_file import accepts, default_text, keys

TARGET = Path(__file__).with_name("schema.md")
SECTION = re.compile(r"(<!-- keys: .*? -->\n).*?(<!-- /keys -->)", re.DOTALL)


def main() -> int:
    """Write the table, or compare it."""
    before = TARGET.read_text("utf-8")
    after = SECTION.sub(lambda found: found[1] + "\n".join(render()) + "\n" + found[2], before)
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(after, "utf-8")
        return 0
    if before == after:
        return 0
    sys.stderr.write(f"{TARGET} is not up to date: run `python docs/schema_reference.py`\n")
    return 1


def render() -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| key | accepts | default | meaning |"
    yield "|---|---|---|---|"
    for key, field in keys():
        shown = default_text(field)
        shown = shown if shown in ("", "required") else f"`{shown}`"
        yield f"| `{key}` | {_cell(accepts(field))} | {shown} | {_cell(field.description or '')} |"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


if __name__ == "__main__":
    sys.exit(main())
