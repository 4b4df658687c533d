"""Guesses for tables with rows of doses among those of measurements, as NONMEM and nlmixr2 have them."""

from typing import Final

from costar_cli.data.table.guess_keys import Guess, Spacing, apart_of

AMOUNT: Final = "amt"
MEASURED: Final = "dv"
KINDS: Final = ("evid", "mdv")  # of rows: one of them tells such a table
OTHERS: Final = {
    **dict.fromkeys(KINDS, "tells rows of doses from those of measurements, as `{amount}` does"),
    "cmt": "tells where a dose goes or what is measured",
    **dict.fromkeys(("rate", "dur", "tinf"), "tells how long an infusion takes"),
    **dict.fromkeys(("addl", "ii", "ss"), "tells of doses that have no row"),
    **dict.fromkeys(("cens", "limit", "blq"), "tells which values are below a limit"),
}


def find_dosing(guess: Guess) -> None:
    """Make the amount the treatment, and one step of the rows of one time, where the columns are those of dosing."""
    named = {name.lower(): name for name in guess.sample.columns}
    amount, kind = named.get(AMOUNT), next((named[name] for name in KINDS if name in named), None)
    if amount is None or kind is None or None in (guess.subject, guess.time):
        return
    if guess.facts(amount).numbers is None or guess.facts(guess.time or "").numbers is None:
        return
    guess.bins = True
    for name, what in OTHERS.items():
        if name in named:
            _take_back(guess, named[name])
            guess.leave_out(named[name], what.format(amount=amount))
    _take_back(guess, amount)
    for name in guess.named("treatment"):
        guess.entries[name] = {"role": "covariate"}
    guess.entries[amount] = {"role": "treatment", "kind": "continuous", "missing": "fill"}
    _find_outcome(guess, named, kind)
    if any(_is_given(guess, named[name]) for name in ("addl", "ii") if name in named):
        guess.doubt(amount, "doses that ADDL and II repeat have no rows: write a row for each")
    names = list(guess.sample.columns)
    guess.entries = {name: guess.entries[name] for name in (*names, *guess.wide.columns) if name in guess.entries}


def _find_outcome(guess: Guess, named: dict[str, str], kind: str) -> None:
    """Make the column of what is measured the outcome, where it is numbers; rows of doses measure nothing."""
    measured = named.get(MEASURED)
    if measured is None or guess.facts(measured).numbers is None:
        return
    _take_back(guess, measured)
    for name in guess.named("outcome"):
        guess.entries[name] = {"role": "covariate"}
    guess.entries[measured], guess.rival = {"role": "outcome", "missing": "fill"}, ""
    of_doses = (guess.facts(kind).as_numbers != 0).fill_null(value=False)
    if held := int(guess.facts(measured).text.filter(of_doses).is_not_null().sum()):
        guess.doubt(
            measured, f"{held:,} rows of doses (`{kind}`) hold a value: leave it blank there unless it was measured"
        )


def _take_back(guess: Guess, name: str) -> None:
    """Forget what a column seemed to be."""
    for kept in (guess.entries, guess.left_out, guess.doubts):
        kept.pop(name, None)


def _is_given(guess: Guess, name: str) -> bool:
    return bool((guess.facts(name).as_numbers.fill_null(0.0) != 0).any())


def bin_doses(guess: Guess) -> None:
    """Choose the commonest distance for the steps of a dosing table, where the guess is that each row is a step."""
    if guess.subject is None or guess.time is None or not guess.bins or guess.spacing.gaps != "elapsed":
        return
    number = guess.facts(guess.time).as_numbers
    size = float(apart_of(guess.facts(guess.subject).text, number).mode().sort().to_numpy()[0])
    guess.doubts[guess.time].remove(guess.spacing.doubt)
    doubt = "times are unevenly spaced: choose the `step` whose rows become one"
    guess.spacing = Spacing(int(size) if size.is_integer() else size, "fill", doubt=doubt)
    guess.doubt(guess.time, doubt)
    for name in guess.named("covariate"):
        guess.entries[name]["missing"] = "fill"
