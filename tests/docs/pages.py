"""Reading the project's Markdown pages: their blocks, links, commands and references."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cli.cli_world import REPOSITORY

README = REPOSITORY / "README.md"
PAGES = [
    README,
    *(REPOSITORY / name for name in ("CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((REPOSITORY / "docs").rglob("*.md")),
]
PAGES += sorted((REPOSITORY / "examples").glob("*.md"))

RUNNABLE = re.compile(
    r"^<!-- run(?:: (?P<changes>[^\n]+?))? -->\n```sh\n(?P<script>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
FENCED = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?P<target>[^)\s#]*)(?:#(?P<anchor>[^)\s]+))?\)")
REFERENCE = re.compile(
    r"`(?P<path>(?:costar_cli|simulators|tests|benchmarks|docs|examples)/[^`\s:]*)(?:::(?P<name>\w+))?`"
)
ARTIFACT = ["costar", "artifact"]  # the first line of every artifact is no command
NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class Block:
    """Commands that a page shows, as a test runs them, and the output that it shows below.

    A block is runnable when `<!-- run -->` stands above it. `<!-- run: 60 => 1, 424 => 56 -->` also makes it quicker to
    run: the test replaces one text by the other.
    """

    script: str
    output: tuple[str, ...]


def runnable_blocks(page: Path) -> list[Block]:
    """The runnable blocks of a page, in order."""
    blocks = []
    for match in RUNNABLE.finditer(page.read_text("utf-8")):
        script = match["script"]
        for change in (match["changes"] or "").split(", "):
            old, _, new = change.partition(" => ")
            assert old in script, f"{page.name}: no {old!r} to replace"
            script = script.replace(old, new) if old else script
        lines = [line for line in (match["output"] or "").splitlines() if line.strip() not in {"", "..."}]
        blocks.append(Block(script, tuple(lines)))
    return blocks


def skeleton(line: str) -> str:
    """A line of output without its numbers, digests, column widths, bands and lights, which small data may lack."""
    plain = re.sub(r" \([^()]* to [^()]*\)", "", re.sub(r"\b[0-9a-f]{8}(?:[0-9a-f]{56})?\b", "#", line))
    plain = re.sub(r"(?<=[\d%]) +[!?](?= |$)", "", plain)
    return " ".join(NUMBER.sub("#", plain).split())


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every costar command that a page shows, in blocks and in running text."""
    text = page.read_text("utf-8")
    blocks = [m["text"] for m in FENCED.finditer(text) if m["language"] in {"", "sh"}]
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"`(costar [^`\n]+)`", FENCED.sub("", text))
    for line in lines:
        for part in re.split(r"&&|\|\||;| \| | {2,}", line.partition(" #")[0]):
            words = re.sub(r"[\[\]$>]", " ", part).split()
            if words[:1] == ["costar"] and words != ARTIFACT:
                yield words


def anchors(page: Path) -> set[str]:
    """The anchors of a page: of its headings, as code hosts make them, and those that it gives itself."""
    text = FENCED.sub("", page.read_text("utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([^"]+)"></a>', text))
