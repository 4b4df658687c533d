"""What is doubtful about a guessed schema: cells that do not fit, and roles that no column seems to have."""

from collections.abc import Iterator, Mapping

from costar_cli.panel.findings import counted, shown
from costar_cli.panel.tables.facts import Facts, Sample, few

__all__ = ["cells_in_doubt", "keys_in_doubt", "stray_static"]


def stray_static(sample: Sample, subject: str, column: Facts) -> str:
    """Return what is odd about a column that is steady but for single cells of a few subjects; nothing otherwise.

    Columns of 0 and 1 never count: what is given or happens once looks the same.
    """
    changing = sample.changing(subject, column.name)
    if column.binary or not 0 < len(changing) <= few(sample.columns[subject].distinct):
        return ""
    if any(rows - most != 1 or most < 2 for rows, most in changing.values()):
        return ""
    return f"changes within {counted(len(changing), 'subject')}, first {next(iter(changing))}, which a static must not"


def cells_in_doubt(column: Facts, entry: Mapping[str, object]) -> str:
    """Return how many cells of a column do not fit what it seems to be; nothing where all do."""
    role, what = str(entry["role"]), "number" if column.numbers is not None else "date"
    texts = role in ("subject", "treatment", "domain", "split") or entry.get("kind") == "categorical"
    if texts or not column.odd:
        return ""
    number = len(column.odd)
    these, them = (f"1 value is no {what}", "it") if number == 1 else (f"{number:,} values are no {what}s", "them")
    blank = "" if role == "time" else ", or add the text to `blank` where it means a missing value"
    return f"{these} ({shown(dict.fromkeys(column.odd), 2)}): correct {them}{blank}"


def keys_in_doubt(sample: Sample, subject: str | None, time: str | None) -> Iterator[tuple[str, str]]:
    """Yield what is doubtful about the columns of subject and time, with the column's name."""
    for name in (subject, time):
        if name is not None and (missing := sample.columns[name].missing):
            yield name, f"{counted(missing, 'row')} without a value"
    if subject is not None and time is not None and (repeated := sample.repeated(subject, time)):
        yield time, f"{counted(repeated, 'row')} of a subject and time that stood before"
