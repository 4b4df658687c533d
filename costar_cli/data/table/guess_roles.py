"""The rules by which columns get roles, from names and from whether values change, and what each asks (polars)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from costar_cli.data.findings import counted, shown
from costar_cli.data.table.ends import YES
from costar_cli.data.table.guess_keys import UNREAD, Guess, is_unread_time, ordered
from costar_cli.data.table.profile import (
    DATE,
    DOMAIN,
    EVENT,
    LAST,
    MEASURED,
    OUTCOME,
    OUTCOME_TOO,
    SPLIT,
    STATIC,
    TIME,
    TREATMENT,
    Facts,
    few,
    is_amount,
    is_cluster,
    is_death,
    is_follow_up,
    is_given,
    is_remedy,
    is_site,
)
from costar_cli.data.table.splits import SPELT
from costar_cli.data.table.treatments import MOST_LEVELS, guessed_levels

MOST_CATEGORIES: Final = 20
NOT_GIVEN: Final = 0.05  # of rows, least share in which a dose is 0 that is told by its name
MOSTLY: Final = 0.5  # likewise, of one that is told by its unit
MOST_ENDS: Final = 10  # different values of how a follow-up ended
FEWEST_NUMBERS: Final = 10  # different values of what is rather a measurement than a grade
STEADY: Final = "never changes within a subject"
ENDS: Final = "follow-up, death or dropout"
LATER: Final = "which may not be known yet at the time of a row. Give it a role only if it is"


@dataclass(frozen=True, slots=True)
class Rule:
    """What columns may be: which of those that no earlier rule took; their entry, or a reason to leave them out.

    `ask` makes the reason a doubt. Rules stand in the order of their rank.
    """

    what: str
    takes: Callable[[Guess, Sequence[Facts]], Iterable[Facts]]
    makes: Callable[[Facts], dict[str, object] | str]
    ask: bool = False


def _each(fits: Callable[[Guess, Facts], object]) -> Callable[[Guess, Sequence[Facts]], Iterator[Facts]]:
    return lambda guess, columns: (c for c in columns if fits(guess, c))


def _first(fits: Callable[[Guess, Facts], object]) -> Callable[[Guess, Sequence[Facts]], list[Facts]]:
    return lambda guess, columns: [c for c in columns if fits(guess, c)][:1]


def _marks_ends(guess: Guess, column: Facts) -> bool:
    """Return whether a column marks the last rows of some subjects; other rows say no, or nothing."""
    marks, yes = {value.lower() for value in column.values}, {*YES, "1.0"}
    blank = bool(column.missing) and bool(marks) and marks <= yes
    if guess.subject is None or guess.time is None or not (column.binary or marks <= {"no", "yes"} or blank):
        return False
    if column.name not in guess.sample.columns:
        return False
    marked = column.text.str.to_lowercase().is_in(list(yes)).fill_null(value=False)
    at_end = ~pl.col("marked") | (pl.col("t") == pl.col("t").max().over("s"))
    return bool(guess.rows(marked=marked).select(at_end.all()).item())


def _has_many_texts(_guess: Guess, column: Facts) -> bool:
    return column.numbers is None and column.distinct > MOST_CATEGORIES and not column.words & SPLIT


def _count_of_numbers(column: Facts) -> int:
    """Return how many of the texts of a column are numbers, 0 where they are less than half of them."""
    numbers = int(column.known.cast(pl.Float64, strict=False).is_finite().sum())
    return numbers if 2 * numbers >= column.count else 0


def _reason_of_texts(column: Facts) -> str:
    numbers = _count_of_numbers(column)
    some = f" ({numbers:,} of {column.count:,} values are numbers)" if numbers else ""
    return f"holds {column.distinct:,} different texts{some}"


def _role(role: str) -> Callable[[Facts], dict[str, object]]:
    return lambda _: {"role": role}


def _domain(column: Facts) -> dict[str, object]:
    rarer = min(column.values, key=lambda value: (int((column.known == value).sum()), value))
    named = {value.lower() for value in column.values} == {"source", "target"}
    return {"role": "domain", "target": "target" if named else rarer}


def _kind(column: Facts, *, codes: bool = False) -> dict[str, object]:
    """Return what models make of a column, no treatment or outcome, whose numbers may be codes: holes are filled."""
    texts = column.numbers is None or codes or "id" in column.words
    kind = "binary" if column.binary else "categorical" if texts else ""
    entry: dict[str, object] = {"kind": kind} if kind else {}
    return entry | ({"missing": "fill"} if column.missing else {})


def _is_given_at_times(column: Facts) -> bool:
    """Return whether a number is called a drug and 0 at times, or called by a unit or a rate and 0 most of the time."""
    least = NOT_GIVEN if is_given(column.words) else MOSTLY if is_amount(column.words) else None
    if least is None or column.numbers is None:
        return False
    return int((column.numbers == 0).sum()) >= least * column.count


def _is_dose(column: Facts) -> bool:
    """Return whether a treatment is a number of too many values for levels, and not negative."""
    least = None if column.numbers is None else column.numbers.min()
    return column.distinct > MOST_LEVELS and isinstance(least, float) and least >= 0


def _treatments(guess: Guess, columns: Sequence[Facts]) -> list[Facts]:
    """Return the treatments: by name, those of few levels that change, and doses beside them; else by values.

    A dose beside treatments of levels is none at times: one that is always above 0 tells how much was given of what the
    level says.
    """
    columns = [c for c in columns if c.name in guess.sample.columns]
    changing = [c for c in columns if not guess.steady[c.name]]
    named = [c for c in columns if c.words & TREATMENT or (is_remedy(c.words) and c in changing)]
    levels = [c for c in named if c.distinct <= MOST_LEVELS]
    doses = [c for c in changing if _is_dose(c) and _is_given_at_times(c)]
    if named or doses:
        chosen = [c for c in levels if c in changing] + doses
        return chosen or levels or [c for c in named if c in changing and _is_dose(c)]
    few_levels = [c for c in changing if c.distinct <= MOST_LEVELS and not c.words & OUTCOME and not is_unread_time(c)]
    return [c for c in few_levels if c.binary] or [c for c in few_levels if c.numbers is None][:1]


def _outcome(guess: Guess, columns: Sequence[Facts]) -> list[Facts]:
    """Return the likeliest outcome, and note its rival: numbers called one, else the last that changes, no grade.

    What is called a drug, or by a unit in which it is given, is none, unless it is called an outcome outright.
    """
    numbers = [c for c in columns if not guess.steady[c.name] and (c.numbers is not None or c.binary)]
    others = [c for c in numbers if not is_given(c.words) and not _is_given_at_times(c)]
    likely = [c for c in numbers if c.words & OUTCOME and (c.words & LAST or c in others)]
    for words in (MEASURED, OUTCOME_TOO):
        likely += [c for c in others if c.words & words and c not in likely]
    asked = any(guess.facts(name).words & LAST for name in guess.left_out if name in guess.sample.columns)
    if not likely and guess.subject is not None and not asked:
        rest = [c for c in reversed(others) if not c.binary and not c.words & STATIC and not is_death(c.words)]
        likely = sorted(rest, key=lambda c: c.distinct <= FEWEST_NUMBERS)
    guess.rival = likely[1].name if len(likely) > 1 else ""
    return likely[:1]


def _steady(fits: Callable[[Facts], object]) -> Callable[[Guess, Facts], object]:
    return lambda guess, column: guess.steady[column.name] and fits(column)


OF_ANY: Final = (
    Rule(
        "a date that cannot be read",
        _each(lambda guess, c: guess.time is not None and c.words & DATE and is_unread_time(c)),
        lambda c: f"is named like a date, but its texts ({shown(c.values, 2)}) {UNREAD}",
        ask=True,
    ),
    Rule(
        "a unit of several subjects",
        _first(
            lambda guess, c: (
                guess.subject is not None
                and not c.missing
                and c.name in guess.sample.columns
                and 1 < c.distinct < guess.facts(guess.subject).distinct
                and is_cluster(c.words)
                and not guess.changes(c)
            )
        ),
        _role("cluster"),
    ),
    Rule(
        "an event at the end",
        _each(
            lambda guess, c: (
                (is_death(c.words) or c.words & EVENT or (guess.stop and "status" in c.words)) and _marks_ends(guess, c)
            )
        ),
        _role("event"),
    ),
    Rule(
        "a loss of follow-up",
        _each(lambda guess, c: is_follow_up(c.words) and _marks_ends(guess, c)),
        _role("censored"),
    ),
    Rule("a constant", _each(lambda _, c: c.distinct < 2), lambda c: f"never changes ({c.summary})"),
    Rule(
        "how a follow-up ended, in any row",
        _each(
            lambda guess, c: (
                is_follow_up(c.words)
                or (is_death(c.words) and (c.distinct <= MOST_ENDS or c.moments is not None or not guess.changes(c)))
            )
        ),
        lambda c: f"tells of {ENDS} ({c.summary}), {LATER}",
        ask=True,
    ),
    Rule("another date", _each(lambda _, c: c.moments is not None), lambda c: f"is a date ({c.summary})"),
    Rule(
        "identifiers",
        _each(
            lambda guess, c: (
                c.numbers is not None
                and c.distinct > MOST_CATEGORIES
                and ("id" in c.words or (is_site(c.words) and not guess.changes(c)))
            )
        ),
        lambda c: f"holds {c.distinct:,} identifiers",
    ),
    Rule(
        "texts that may mean something",
        _each(  # numbers are counted last, by a query of each column
            lambda guess, c: _has_many_texts(guess, c) and (c.words & LAST or is_given(c.words) or _count_of_numbers(c))
        ),
        _reason_of_texts,
        ask=True,
    ),
    Rule("too many texts", _each(_has_many_texts), _reason_of_texts),
)
"""Rules that look at columns whether or not they change within subjects."""

BY_CHANGE: Final = (
    Rule(
        "an outcome of the whole course",
        _each(_steady(lambda c: c.words & LAST)),
        lambda c: f"{STEADY} ({c.summary}): it may tell of {ENDS}, {LATER}",
        ask=True,
    ),
    Rule(
        "a time of the whole course",
        _each(_steady(lambda c: c.numbers is not None and {w for w in c.words if not w.isdigit()} <= TIME)),
        lambda _: f"is a time, but {STEADY}: it may tell of {ENDS}, {LATER}",
        ask=True,
    ),
    Rule(
        "treatments",
        _treatments,
        lambda c: {"role": "treatment", "kind": "continuous"} if _is_dose(c) else {"role": "treatment"},
    ),
    Rule(
        "the split",
        _first(_steady(lambda c: c.words & SPLIT and {value.lower() for value in c.values} <= set(SPELT))),
        _role("split"),
    ),
    Rule("the domain", _first(_steady(lambda c: c.words & DOMAIN and c.distinct == 2 and not c.missing)), _domain),
    Rule("a static", _each(_steady(lambda _: True)), lambda c: {"role": "static"} | _kind(c, codes=is_site(c.words))),
    Rule(
        "texts of an outcome",
        _each(lambda _, c: c.numbers is None and not c.binary and c.words & LAST),
        lambda c: f"is named like an outcome but holds texts ({c.summary}), and an outcome is a number",
        ask=True,
    ),
    Rule("the outcome", _outcome, _role("outcome")),
    Rule("a covariate", lambda _, columns: columns, lambda c: {"role": "covariate"} | _kind(c)),
)
"""Rules that come after it is known which columns change within subjects; the last one takes all that is left."""


def find_roles(guess: Guess) -> None:
    """Give each column an entry or a reason to leave it out; columns of the statics file are one per subject."""
    columns = {**guess.wide.columns, **guess.sample.columns}
    for name in guess.wide.columns:
        if name != guess.subject and name in guess.sample.columns:
            guess.doubt(name, "in the statics file, too: keep it in one of the two")
    for name in (*guess.sample.unusable, *guess.wide.unusable):
        guess.leave_out(name, "has a type that costar does not read")

    def unclaimed() -> list[Facts]:
        names = (*guess.sample.columns, *(name for name in guess.wide.columns if name not in guess.sample.columns))
        taken = {guess.stop, *guess.entries, *guess.left_out}
        return [columns[name] for name in names if name not in taken]

    def apply(rules: Iterable[Rule]) -> None:
        for rule in rules:
            for column in list(rule.takes(guess, unclaimed())):
                made = rule.makes(column)
                if isinstance(made, str):
                    guess.leave_out(column.name, made, ask=rule.ask)
                else:
                    guess.entries[column.name] = made

    apply(OF_ANY)
    for name in guess.left_out:
        if name in columns and columns[name].distinct > 1:
            guess.doubt(name, _unit_in_doubt(guess, columns[name]))
    guess.steady = {column.name: _is_steady(guess, column) for column in unclaimed()}
    apply(BY_CHANGE)
    guess.put_in_order()


def _is_steady(guess: Guess, column: Facts) -> bool:
    """Return whether a column says something once per subject, in the first row; note what is odd about it."""
    if column.name not in guess.sample.columns:
        return True
    if guess.subject is None or guess.time is None:
        return bool(column.words & STATIC)
    if not guess.changes(column):
        late = guess.sample.late(guess.subject, ordered(guess.facts(guess.time)), column.name)
        who = counted(late, "subject")
        guess.doubt(column.name, f"{who} without it in the first row, which holds statics" if late else "")
        return not late
    # Steady but for single cells of a few subjects, it is a static with slips. Columns of 0 and 1 never are: what is
    # given or happens once looks the same.
    several, subjects = guess.sample.changers(guess.subject)[column.name], guess.facts(guess.subject).distinct
    if column.words & OUTCOME or is_given(column.words) or column.binary or several > few(subjects):
        return False
    changing = guess.sample.changing(guess.subject, column.name)
    if any(rows - most != 1 or most < 2 for rows, most in changing.values()):
        return False
    who = counted(len(changing), "subject")
    guess.doubt(column.name, f"changes within {who}, first {next(iter(changing))}, which a static must not")
    return True


def _question_of_treatment(guess: Guess, column: Facts) -> str:
    entry, by_name = guess.entries[column.name], is_given(column.words)
    if "kind" in entry:
        text = "guessed by its name: is it a dose that is given after its row was measured, 0 where none is?"
        written_where_none = column.numbers is not None and column.numbers.min() == 0
    else:
        counts = {str(text): int(rows) for text, rows in column.known.value_counts().rows()}
        levels, written_where_none = guessed_levels(counts)
        text = f"guessed {'by its name' if by_name else 'by its values'}: is it given after its row was measured, and "
        text += f"is '{levels[0]}' not given?"
        text += "" if written_where_none else " It is only the most frequent: `levels` names the reference first."
        if guess.subject is not None and not guess.changes(column):
            text += " It never changes within a subject."
    carried = entry.get("missing") == "carry"
    if column.missing and guess.subject is not None and guess.time is not None:
        # What missing values mean, unless only last rows of subjects have some
        frame = guess.rows(x=column.text).sort("s", "t", maintain_order=True)
        inner = frame.filter(pl.col("t") < pl.col("t").max().over("s"))
        if holes := inner.filter(pl.col("x").is_null()).height:
            first = inner.filter(pl.col("x").forward_fill().over("s").is_null()).height
            ahead = f", but for {first:,} before any" if first else ""
            ways = [f'does the last one go on (`missing = "carry"`{ahead})', 'is none given (`missing = "fill"`)']
            which = f"{counted(holes, 'value')} missing"
            if carried:  # for the sake of intervals; `fill` would end them early
                ways = [f"does the last one go on{ahead}", "else write what was given"]
            if holes < column.missing:  # the line ends with the number of all
                which += f" before the subjects' last rows ({column.missing:,} with these)"
            # Where 0 or the like says that none is given, a blank is less likely to mean that
            text += f" {which}: {', or '.join(ways if written_where_none else reversed(ways))}?"
    holds = " The dose of an interval holds until its stop, and over a gap until the next one."
    return text + holds * carried


def _question_of_outcome(guess: Guess, column: Facts) -> str:
    named = bool(column.words & (OUTCOME | OUTCOME_TOO))
    how = "by its name" if named else "as the numbers that change"
    too = f" '{guess.rival}' {'is named so' if named else 'changes'}, too." if guess.rival else ""
    holes = f', and {counted(column.missing, "value")} missing: correct them, or say `missing = "fill"`'
    asked = column.missing and "missing" not in guess.entries[column.name]
    return f"guessed {how}: is it to be predicted{holes if asked else ''}?{too}"


def _question_of_other(guess: Guess, column: Facts) -> str:
    """Return what a covariate or static may be instead, by its name."""
    role = str(guess.entries[column.name]["role"])
    if is_given(column.words) or (role == "covariate" and _is_given_at_times(column)):
        what = 'say `role = "treatment"` if plans are to vary it'
        if column.name not in guess.sample.columns:
            what = f"Copy it into each row of the table and {what}"
        elif _is_dose(column):
            what = 'Say `role = "treatment", kind = "continuous"` if plans are to vary it'
        elif column.distinct > MOST_LEVELS:
            what = f"Put its values into at most {MOST_LEVELS} classes and {what}"
        else:
            what = f"{what[0].upper()}{what[1:]}"
        keep = f"keep `{role}` if it only describes the subject" + (" at that time" if role == "covariate" else "")
        return f"is this {role} a drug or an intervention? {what}; {keep}"
    if role == "static":
        return _unit_in_doubt(guess, column)
    if column.words & OUTCOME:
        return "named like an outcome: is this to be predicted?"
    return "named like death: is it known at the time of its row?" if is_death(column.words) else ""


def _unit_in_doubt(guess: Guess, column: Facts) -> str:
    """Return the question whether a column that is steady and called a place or the like is a unit of subjects."""
    if guess.subject is None or not is_site(column.words):
        return ""
    if column.distinct >= guess.facts(guess.subject).distinct or guess.changes(column):
        return ""
    other = f" in the place of '{guess.named('cluster')[0]}'" if guess.named("cluster") else ""
    which = f'Then `role = "cluster"`{other} keeps its subjects in one split'
    return f"is this a unit of several subjects that a split must not divide? {which}"


BY_MARKS: Final = "guessed by its name and its marks, in last rows alone: does a mark mean that"
QUESTIONS: Final[dict[str, Callable[[Guess, Facts], str]]] = {
    "event": lambda *_: f"{BY_MARKS} the subject's series ends by it (`event`)?",
    "censored": lambda *_: f"{BY_MARKS} the subject is no longer followed?",
    "cluster": lambda *_: (
        "guessed by its name: do subjects that share one resemble each other? Splits keep them together"
    ),
    "treatment": _question_of_treatment,
    "outcome": _question_of_outcome,
    "covariate": _question_of_other,
    "static": _question_of_other,
}
"""What must be confirmed about a column of a role by who knows the data."""
