"""What a guess knows of a table, and the columns of subject and time, on which all else rests (polars)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from costar_cli.datasets.table.guess_steps import Spacing, ordered
from costar_cli.datasets.table.guess_words import STATIC, SUBJECT, SUBJECT_TOO, TIME, TIME_TOO, is_death, is_follow_up
from costar_cli.datasets.table.profile import Facts, Sample, few
from costar_cli.panel.findings import counted, shown

__all__ = ["Guess", "doubt_keys", "find_keys"]

CANDIDATES: Final = 8


@dataclass
class Guess:
    """What the table seems to be: a column's entry and a remark each, the remarks on those left out, the doubts.

    `wide` is the file of statics, where there is one.
    """

    sample: Sample
    wide: Sample
    subject: str | None = None
    time: str | None = None
    entries: dict[str, dict[str, object]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    doubts: dict[str, list[str]] = field(default_factory=dict)
    spacing: Spacing = field(default_factory=lambda: Spacing(1, "error"))

    def named(self, role: str) -> list[str]:
        """Return the columns of a role."""
        return [name for name, entry in self.entries.items() if entry["role"] == role]

    def facts(self, name: str) -> Facts:
        """Return what is known of a column of either file."""
        return self.sample.columns.get(name) or self.wide.columns[name]

    def doubt(self, name: str, what: str) -> None:
        """Note that something about a column is to be settled, where something is said."""
        if what:
            self.doubts.setdefault(name, []).append(what)

    def leave_out(self, name: str, why: str, *, ask: bool = False) -> None:
        """Give a column no role, since it is or does something; `ask` makes that a doubt."""
        self.left_out[name] = why
        self.doubt(name, f"left out since it {why}" if ask else "")


def find_keys(guess: Guess) -> None:
    """Choose the pair of columns, by name first, whose values tell all rows apart."""
    sample = guess.sample
    columns = [c for c in sample.columns.values() if c.missing <= few(sample.height)]
    columns = [c for c in columns if not is_follow_up(c.words) and not is_death(c.words)]
    subjects = [c for c in columns if 1 < c.distinct < len(c.known) and c.moments is None and not c.words & STATIC]
    subjects = sorted(subjects, key=lambda c: (-_score(c, SUBJECT, SUBJECT_TOO), c.numbers is not None))[:CANDIDATES]
    times = [c for c in columns if c.distinct > 1 and ordered(c) is not c.text]
    times = sorted(times, key=lambda c: (-_score(c, TIME, TIME_TOO), c.moments is None))[:CANDIDATES]
    pairs = [(s, t) for s in subjects for t in times if s.name != t.name]
    named = [(s, t) for s, t in pairs if _score(s, SUBJECT, SUBJECT_TOO) and _score(t, TIME, TIME_TOO)]
    slips = few(sample.height)
    tried = [(s.name, t.name, most) for group, most in ((named, 0), (named, slips), (pairs, 0)) for s, t in group]
    for subject, time, most in tried:
        if sample.repeated(subject, time) <= most:
            guess.subject, guess.time = subject, time
            break
    else:
        guess.subject, guess.time = next(((s.name, t.name) for s, t in named), (None, None))
    for role, name in (("subject", guess.subject), ("time", guess.time)):
        if name is not None:
            guess.entries[name] = {"role": role}


def _score(column: Facts, *words: frozenset[str]) -> int:
    """Return how well a name fits: one of its words is known, is a word of the second choice, or none is."""
    for i, known in enumerate(words):
        if column.words & known:
            return 3 - i
    return 0


def doubt_keys(guess: Guess) -> None:
    """Note what is doubtful about the columns of subject and time."""
    for name, what in _doubts(guess.sample, guess.subject, guess.time):
        guess.doubt(name, what)
    if guess.time is not None and len(formats := guess.facts(guess.time).date_formats) > 1:
        guess.doubt(guess.time, f"dates read as {formats[0]}, but {' or '.join(formats[1:])} would do, too")


def _doubts(sample: Sample, subject: str | None, time: str | None) -> Iterator[tuple[str, str]]:
    for name in (subject, time):
        if name is not None and (missing := sample.columns[name].missing):
            yield name, f"{counted(missing, 'row')} without a value"
    if subject is None or time is None or not (repeated := sample.repeated(subject, time)):
        return
    yield time, f"{counted(repeated, 'row')} of a subject and time that stood before"
    near = [c.name for c in sample.columns.values() if c.distinct > 1 and _score(c, SUBJECT, SUBJECT_TOO)]
    both = next((pair for pair in combinations(near[:CANDIDATES], 2) if not sample.repeated(*pair, time)), None)
    if both is not None:
        yield subject, f"{shown(both)} tell subjects apart together only: make one column of them"
