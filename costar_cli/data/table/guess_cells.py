"""What is odd about the cells of a column, given what it seems to be (polars)."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final

from costar_cli.data.findings import counted, shown
from costar_cli.data.table.profile import Facts
from costar_cli.data.table.written import advice_on_marks

STAND_INS: Final = (-1.0, -9.0, *(sign * (10.0**digits - 1) for sign in (-1, 1) for digits in range(2, 7)))
FEWEST_NUMBERS: Final = 10  # different values besides, by which one is seen to be far from the others


def cells_in_doubt(column: Facts, entry: Mapping[str, object]) -> Iterator[str]:
    """Yield what is to be settled about the cells of a column: those that do not fit, or may mean something else."""
    role, kind = str(entry["role"]), entry.get("kind")
    if kind == "categorical" or (role == "treatment" and kind is None):
        yield _in_two_cases(column)
    elif role not in ("subject", "treatment", "domain", "split", "cluster"):
        yield _odd_texts(column, role)
    if kind in (None, "continuous") and (role in ("covariate", "static", "outcome") or kind):
        yield _far_stand_ins(column)


def _odd_texts(column: Facts, role: str) -> str:
    if not column.odd:
        return ""
    number, what = len(column.odd), "number" if column.numbers is not None else "date"
    these, them = (f"1 value is not a {what}", "it") if number == 1 else (f"{number:,} values are not {what}s", "them")
    no_blank = role == "time" or bool(advice_on_marks(column.odd[0]))  # a number is no missing value
    blank = "" if no_blank else ", or add the text to `blank` where it means a missing value"
    return f"{these} ({shown(dict.fromkeys(column.odd), 2)}): correct {them}{blank}"


def _in_two_cases(column: Facts) -> str:
    """Return which texts are the same but for upper and lower case."""
    ordered = sorted(column.values, key=lambda text: (text.casefold(), text))
    groups = [list(group) for _, group in groupby(ordered, str.casefold)]
    pairs = [" and ".join(f"'{text}'" for text in group) for group in groups if len(group) > 1]
    if not pairs:
        return ""
    return f"{', '.join(pairs[:2])}{' and more' if len(pairs) > 2 else ''} differ only in case: write what is one alike"


def _far_stand_ins(column: Facts) -> str:
    """Return the numbers that often stand for a missing value and are far from all others: 999, or -1 of a size."""
    numbers = column.numbers
    if numbers is None or not {numbers.min(), numbers.max()} & set(STAND_INS):
        return ""
    others = numbers.filter(~numbers.is_in(STAND_INS)).drop_nulls()
    if others.n_unique() <= FEWEST_NUMBERS:
        return ""
    low, high = float(others.to_numpy().min()), float(others.to_numpy().max())
    far = [x for x in STAND_INS if not 2 * low - high <= x <= 2 * high - low or x < 0 < low]
    found = column.text.filter(numbers.is_in(far).fill_null(value=False))
    if found.is_empty():
        return ""
    these = f"{counted(len(found), 'value')} of {shown(found.unique().sort().to_list(), 2)}".replace("'", "")
    what = f"{these}, far from the others ({low:g} to {high:g})"
    return f"{what}: correct, or add to `blank` where it means a missing value"
