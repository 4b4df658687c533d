"""What the other columns seem to be, by name and by whether they change, and what is doubtful about them (polars)."""

from typing import Final

import polars as pl

from costar_cli.data.findings import counted
from costar_cli.data.table.ends import YES
from costar_cli.data.table.guess_keys import Guess, is_unread_time, ordered
from costar_cli.data.table.profile import (
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
    Sample,
    few,
    is_amount,
    is_cluster,
    is_death,
    is_follow_up,
    is_given,
    is_remedy,
    is_site,
)
from costar_cli.data.table.schema_column import ENDS as END_ROLES
from costar_cli.data.table.time_split import SPELT
from costar_cli.data.table.treatments import MOST_LEVELS, guessed_levels

STEADY: Final = "never changes within a subject"
MOST_CATEGORIES: Final = 20
NOT_GIVEN: Final = 0.05  # of rows, least share in which a dose is 0 that is told by its name
MOSTLY: Final = 0.5  # likewise, of one that is told by its unit
MOST_ENDS: Final = 10  # different values of how a follow-up ended
FEWEST_NUMBERS: Final = 10  # different values of what is rather a measurement than a grade
ENDS: Final = "follow-up, death or dropout"
LATER: Final = "which may not be known yet at the time of a row. Give it a role only if it is"


def find_roles(guess: Guess) -> None:
    """Give each column an entry or a reason to leave it out; columns of the statics file are one per subject."""
    changing, steady = [], []
    _find_cluster(guess)
    for column in guess.sample.columns.values():
        if column.name in (guess.stop, *guess.entries, *guess.left_out) or _left_out(guess, column):
            continue
        if not _is_static(guess, column):
            changing.append(column)
        elif not _tells_the_end(guess, column):
            steady.append(column)
    treatments = _treatments(changing, steady)
    for column in steady:
        if column not in treatments:
            guess.entries[column.name] = _per_subject(guess, column)
    for column in guess.wide.columns.values():
        if column.name not in guess.sample.columns and not _left_out(guess, column):
            if not _tells_the_end(guess, column):
                guess.entries[column.name] = _per_subject(guess, column)
        elif column.name != guess.subject and column.name in guess.sample.columns:
            guess.doubt(column.name, "in the statics file, too: keep it in one of the two")
    for name in (*guess.sample.unusable, *guess.wide.unusable):
        guess.leave_out(name, "has a type that costar does not read")
    _find_changing(guess, changing, treatments)
    names = [*guess.sample.columns, *guess.wide.columns]
    guess.entries = {name: guess.entries[name] for name in names if name in guess.entries}


def _find_cluster(guess: Guess) -> None:
    """Make an entry of the first column that is called a unit, and is one to which several subjects belong."""
    if guess.subject is None:
        return
    subjects = guess.facts(guess.subject).distinct
    for column in guess.sample.columns.values():
        several = 1 < column.distinct < subjects and not column.missing and column.name not in guess.entries
        if several and is_cluster(column.words) and not _changes(guess, column):
            guess.entries[column.name] = {"role": "cluster"}
            return


def _left_out(guess: Guess, column: Facts) -> bool:
    """Leave out what no role fits and what a row may not know, give ends theirs; return whether that was done."""
    event = column.distinct <= MOST_ENDS or column.moments is not None or not _changes(guess, column)
    site = is_site(column.words) and not _changes(guess, column)
    if role := _end(guess, column):
        guess.entries[column.name] = {"role": role}
    elif column.distinct < 2:
        guess.leave_out(column.name, f"never changes ({column.summary})")
    elif is_follow_up(column.words) or (is_death(column.words) and event):
        guess.leave_out(column.name, f"tells of {ENDS} ({column.summary}), {LATER}", ask=True)
    elif column.moments is not None:
        guess.leave_out(column.name, f"is a date ({column.summary})")
    elif column.numbers is not None and ("id" in column.words or site) and column.distinct > MOST_CATEGORIES:
        guess.leave_out(column.name, f"holds {column.distinct:,} identifiers")
        guess.doubt(column.name, _unit_in_doubt(guess, column))
    elif column.numbers is None and column.distinct > MOST_CATEGORIES and not column.words & SPLIT:
        numbers = int(column.known.cast(pl.Float64, strict=False).is_finite().sum())
        some = f" ({numbers:,} of {column.count:,} values are numbers)" if 2 * numbers >= column.count else ""
        telling = bool(column.words & LAST) or is_given(column.words)
        guess.leave_out(column.name, f"holds {column.distinct:,} different texts{some}", ask=bool(some) or telling)
        guess.doubt(column.name, _unit_in_doubt(guess, column))
    return column.name in guess.left_out or column.name in guess.entries


def _end(guess: Guess, column: Facts) -> str:
    """Return the role of a column that marks the last rows of some subjects, called death, dropout or event.

    Other rows say no, or nothing.
    """
    comes = is_death(column.words) or column.words & EVENT or (guess.stop and "status" in column.words)
    named = "event" if comes else "censored" * is_follow_up(column.words)
    if not named:
        return ""
    marks, yes = {value.lower() for value in column.values}, {*YES, "1.0"}
    blank = bool(column.missing) and bool(marks) and marks <= yes
    if guess.subject is None or guess.time is None or not (column.binary or marks <= {"no", "yes"} or blank):
        return ""
    marked = column.text.str.to_lowercase().is_in(list(yes)).fill_null(value=False)
    when = ordered(guess.facts(guess.time))
    frame = pl.DataFrame({"s": guess.facts(guess.subject).text, "t": when, "marked": marked}).drop_nulls()
    at_end = ~pl.col("marked") | (pl.col("t") == pl.col("t").max().over("s"))
    return named if frame.select(at_end.all()).item() else ""


def _changes(guess: Guess, column: Facts) -> bool:
    if guess.subject is None or column.name not in guess.sample.columns:
        return False
    return guess.sample.changers(guess.subject)[column.name] > 0


def _is_static(guess: Guess, column: Facts) -> bool:
    """Return whether a column says something once per subject, in the first row."""
    if guess.subject is None or guess.time is None:
        return bool(column.words & STATIC)
    if not _changes(guess, column):
        late = guess.sample.late(guess.subject, ordered(guess.facts(guess.time)), column.name)
        who = counted(late, "subject")
        guess.doubt(column.name, f"{who} without it in the first row, where a static stands" if late else "")
        return not late
    named = column.words & OUTCOME or is_given(column.words)
    stray = "" if named else _stray_static(guess.sample, guess.subject, column)
    guess.doubt(column.name, stray)
    return bool(stray)


def _tells_the_end(guess: Guess, column: Facts) -> bool:
    """Leave out what is the same in all rows of a subject, and called an outcome or a time; return whether it is."""
    if column.words & LAST:
        guess.leave_out(column.name, f"{STEADY} ({column.summary}): it may tell of {ENDS}, {LATER}", ask=True)
    elif column.numbers is not None and {word for word in column.words if not word.isdigit()} <= TIME:
        guess.leave_out(column.name, f"is a time, but {STEADY}: it may tell of {ENDS}, {LATER}", ask=True)
    return column.name in guess.left_out


def _per_subject(guess: Guess, column: Facts) -> dict[str, object]:
    values = {value.lower() for value in column.values}
    if column.words & SPLIT and values <= set(SPELT) and not guess.named("split"):
        return {"role": "split"}
    if column.words & DOMAIN and column.distinct == 2 and not column.missing and not guess.named("domain"):
        rarer = min(column.values, key=lambda value: (int((column.known == value).sum()), value))
        return {"role": "domain", "target": "target" if values == {"source", "target"} else rarer}
    return {"role": "static", **_kind(column, codes=is_site(column.words))}


def _kind(column: Facts, *, codes: bool = False) -> dict[str, object]:
    """Return what models make of a column, no treatment or outcome, whose numbers may be codes: holes are filled."""
    texts = column.numbers is None or codes or "id" in column.words
    kind = "binary" if column.binary else "categorical" if texts else ""
    entry: dict[str, object] = {"kind": kind} if kind else {}
    return entry | ({"missing": "fill"} if column.missing else {})


def _treatments(changing: list[Facts], steady: list[Facts]) -> list[Facts]:
    """Return the treatments: by name, those of few levels that change, and doses beside them; else by values.

    A dose beside treatments of levels is none at times: one that is always above 0 tells how much was given of what the
    level says.
    """
    named = [c for c in (*changing, *steady) if c.words & TREATMENT or (is_remedy(c.words) and c in changing)]
    levels = [c for c in named if c.distinct <= MOST_LEVELS]
    doses = [c for c in changing if _is_dose(c) and _is_given_at_times(c)]
    if named or doses:
        found = [c for c in levels if c in changing] + doses
        return found or levels or [c for c in named if c in changing and _is_dose(c)]
    few = [c for c in changing if c.distinct <= MOST_LEVELS and not c.words & OUTCOME and not is_unread_time(c)]
    return [c for c in few if c.binary] or [c for c in few if c.numbers is None][:1]


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


def _find_changing(guess: Guess, changing: list[Facts], treatments: list[Facts]) -> None:
    """Make entries of the treatments and of what changes in time."""
    rest = [column for column in changing if column not in treatments]
    for column in [c for c in rest if c.numbers is None and not c.binary and c.words & LAST]:
        what = f"is named like an outcome but holds texts ({column.summary}), and an outcome is a number"
        guess.leave_out(column.name, what, ask=True)
        rest.remove(column)
    outcome, rival = (*_outcomes(guess, rest), None, None)[:2]
    guess.rival = rival.name if rival else ""
    for column in treatments:
        guess.entries[column.name] = {"role": "treatment", **({"kind": "continuous"} if _is_dose(column) else {})}
    for column in rest:
        guess.entries[column.name] = (
            {"role": "outcome"} if column is outcome else {"role": "covariate", **_kind(column)}
        )


def _outcomes(guess: Guess, columns: list[Facts]) -> list[Facts]:
    """Return what may be the outcome, the likeliest first: numbers called one, else the last that changes, no grade.

    What is called a drug, or by a unit in which it is given, is none, unless it is called an outcome outright.
    """
    numbers = [c for c in columns if c.numbers is not None or c.binary]
    others = [c for c in numbers if not is_given(c.words) and not _is_given_at_times(c)]
    named = [c for c in numbers if c.words & OUTCOME and (c.words & LAST or c in others)]
    for words in (MEASURED, OUTCOME_TOO):
        named += [c for c in others if c.words & words and c not in named]
    asked = any(guess.facts(name).words & LAST for name in guess.left_out if name in guess.sample.columns)
    if named or guess.subject is None or asked:
        return named
    rest = [c for c in reversed(others) if not c.binary and not c.words & STATIC and not is_death(c.words)]
    return sorted(rest, key=lambda c: c.distinct <= FEWEST_NUMBERS)


def _stray_static(sample: Sample, subject: str, column: Facts) -> str:
    """Return what is odd about a column that is steady but for single cells of a few subjects; nothing otherwise.

    Columns of 0 and 1 never count: what is given or happens once looks the same.
    """
    several = sample.changers(subject)[column.name]
    if column.binary or not 0 < several <= few(sample.columns[subject].distinct):
        return ""
    changing = sample.changing(subject, column.name)
    if any(rows - most != 1 or most < 2 for rows, most in changing.values()):
        return ""
    return f"changes within {counted(len(changing), 'subject')}, first {next(iter(changing))}, which a static must not"


def role_in_doubt(guess: Guess, column: Facts, role: str) -> str:
    """Return what must be confirmed about a column by who knows the data: treatments, outcomes, telling names."""
    if role == "treatment":
        goes_on = guess.entries[column.name].get("missing") == "carry"
        holds = " The dose of an interval holds until its stop, and over a gap until the next one." * goes_on
        return _treatment_in_doubt(guess, column, by_name=is_given(column.words)) + holds
    if role == "outcome":
        named = bool(column.words & (OUTCOME | OUTCOME_TOO))
        how = "by its name" if named else "as the numbers that change"
        too = f" '{guess.rival}' {'is named so' if named else 'changes'}, too." if guess.rival else ""
        holes = f', and {counted(column.missing, "value")} missing: correct them, or say `missing = "fill"`'
        asked = column.missing and "missing" not in guess.entries[column.name]
        return f"guessed {how}: is it to be predicted{holes if asked else ''}?{too}"
    if role in END_ROLES:
        what = "the subject's series ends by it (`event`)" if role == "event" else "the subject is no longer followed"
        return f"guessed by its name and its marks, in last rows alone: does a mark mean that {what}?"
    if role == "cluster":
        return "guessed by its name: do subjects that share one resemble each other? Splits keep them together"
    return _other_in_doubt(guess, column, role) if role in ("covariate", "static") else ""


def _other_in_doubt(guess: Guess, column: Facts, role: str) -> str:
    """Return what a covariate or static may be instead, by its name."""
    if is_given(column.words) or (role == "covariate" and _is_given_at_times(column)):
        return f"is this {role} a drug or an intervention? {_as_treatment(guess, column, role)}"
    if role == "static":
        return _unit_in_doubt(guess, column)
    if column.words & OUTCOME:
        return "named like an outcome: is this to be predicted?"
    return "named like death: is it known at the time of its row?" if is_death(column.words) else ""


def _unit_in_doubt(guess: Guess, column: Facts) -> str:
    """Return the question whether a column that is steady and called a place or the like is a unit of subjects."""
    if guess.subject is None or not is_site(column.words):
        return ""
    if column.distinct >= guess.facts(guess.subject).distinct or _changes(guess, column):
        return ""
    other = f" in the place of '{guess.named('cluster')[0]}'" if guess.named("cluster") else ""
    which = f'then `role = "cluster"`{other} keeps its subjects in one split'
    return f"is this a unit of several subjects that a split must not divide? {which[0].upper()}{which[1:]}"


def _as_treatment(guess: Guess, column: Facts, role: str) -> str:
    """Return what to do with a covariate or static that may be what plans shall vary."""
    what = 'say `role = "treatment"` if plans are to vary it'
    keep = f"keep `{role}` if it only describes the subject" + (" at that time" if role == "covariate" else "")
    if column.name not in guess.sample.columns:
        return f"Copy it into each row of the table and {what}; {keep}"
    if _is_dose(column):
        return f'Say `role = "treatment", kind = "continuous"` if plans are to vary it; {keep}'
    if column.distinct > MOST_LEVELS:
        return f"Put its values into at most {MOST_LEVELS} classes and {what}; {keep}"
    return f"{what[0].upper()}{what[1:]}; {keep}"


def _treatment_in_doubt(guess: Guess, column: Facts, *, by_name: bool) -> str:
    if "kind" in guess.entries[column.name]:
        asked = "guessed by its name: is it a dose that is given after its row was measured, 0 where none is?"
        zeros = column.numbers is not None and column.numbers.min() == 0
        return asked + _missing_treatment(guess, column, given_not=zeros)
    counts = {str(text): int(rows) for text, rows in column.known.value_counts().rows()}
    levels, is_told = guessed_levels(counts)
    text = f"guessed {'by its name' if by_name else 'by its values'}: is it given after its row was measured, and is "
    text += f"'{levels[0]}' not given?"
    text += "" if is_told else " It is only the most frequent: `levels` names the reference first."
    if guess.subject is not None and not _changes(guess, column):
        text += " It never changes within a subject."
    return text + _missing_treatment(guess, column, given_not=is_told)


def _missing_treatment(guess: Guess, column: Facts, *, given_not: bool) -> str:
    """Return the question what missing values of a treatment mean; nothing where only last rows of subjects have some.

    `given_not` says that it is written where none is given: a blank is then less likely to mean that.
    """
    if not column.missing or guess.subject is None or guess.time is None:
        return ""
    when = ordered(guess.facts(guess.time))
    frame = pl.DataFrame({"s": guess.facts(guess.subject).text, "t": when, "x": column.text})
    frame = frame.drop_nulls(["s", "t"]).sort("s", "t", maintain_order=True)
    inner = frame.filter(pl.col("t") < pl.col("t").max().over("s"))
    holes = inner.filter(pl.col("x").is_null()).height
    if not holes:
        return ""
    first = inner.filter(pl.col("x").forward_fill().over("s").is_null()).height
    ahead = f", but for {first:,} before any" if first else ""
    ways = [f'does the last one go on (`missing = "carry"`{ahead})', 'is none given (`missing = "fill"`)']
    which = f"{counted(holes, 'value')} missing"
    if guess.entries[column.name].get("missing") == "carry":  # for the sake of intervals; `fill` would end them early
        ways = [f"does the last one go on{ahead}", "else write what was given"]
    if holes < column.missing:  # the line ends with the number of all
        which += f" before the subjects' last rows ({column.missing:,} with these)"
    return f" {which}: {', or '.join(ways if given_not else reversed(ways))}?"
