"""Change formulas, one at a time, in a copy of the code, and see which tests notice.

`python -m tests.mutations [WORD ...]` tries those of `mutations.txt` whose file, text or tests hold all the words.

It is no part of the suite. A mutation that survives is a formula that no test of its neighbourhood checks.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
COPIED: Final = ("costar_cli", "simulators", "tests", "docs", "pyproject.toml", "README.md")
LIST: Final = Path(__file__).with_name("mutations.txt")


class Mutation(NamedTuple):
    """A text that occurs once in a file, what takes its place, and the tests that are to notice."""

    file: str
    before: str
    after: str
    tests: str


def listed(text: str) -> Iterator[Mutation]:
    """Return the mutations of a list: `@ FILE | TESTS`, then pairs of lines `- BEFORE` and `+ AFTER`."""
    file = tests = before = ""
    for line in text.splitlines():
        mark, rest = line[:1], line[2:]
        if mark == "@":
            file, tests = (part.strip() for part in rest.split("|"))
        elif mark == "-":
            before = rest
        elif mark == "+":
            yield Mutation(file, before, rest, tests)


def fate(mutation: Mutation, place: Path) -> str:
    """Return whether the tests notice that one formula of a copy is wrong; `GONE` where it has changed since."""
    path = place / mutation.file
    sound = path.read_text("utf-8")
    if sound.count(mutation.before) != 1:
        return "GONE"
    wrong = sound.replace(mutation.before, mutation.after)
    compile(wrong, mutation.file, "exec")  # a file that cannot be read would be noticed by any test
    path.write_text(wrong, "utf-8")
    try:
        return "SURVIVES" if passes(mutation.tests, place) else "noticed"
    finally:
        path.write_text(sound, "utf-8")


def passes(tests: str, place: Path) -> bool:
    """Return whether tests pass; nothing is compiled, as a change within a second would not be seen."""
    env = os.environ | {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests.split()]
    return subprocess.run(words, cwd=place, env=env, capture_output=True, check=False).returncode == 0


def main(words: Sequence[str]) -> int:
    """Try the mutations that hold all the words, and return how many survive or are gone."""
    chosen = [mutation for mutation in listed(LIST.read_text("utf-8")) if all(w in " ".join(mutation) for w in words)]
    fates = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name in COPIED:
            source, bare = ROOT / name, shutil.ignore_patterns("__pycache__")
            (shutil.copytree(source, place / name, ignore=bare) if source.is_dir() else shutil.copy(source, place))
        for tests in dict.fromkeys(mutation.tests for mutation in chosen):
            if not passes(tests, place):
                raise SystemExit(f"these fail without any mutation: {tests}")
        for mutation in chosen:
            fates.append(fate(mutation, place))
            print(f"{fates[-1]:8} {mutation.file}: {mutation.before.strip()} -> {mutation.after.strip()}", flush=True)
    print(f"{fates.count('SURVIVES')} of {len(fates)} survive, {fates.count('GONE')} are gone")
    return len(fates) - fates.count("noticed")


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 100))
