"""What `costar whatif --average` shows of average effects: tables, a figure, a file of rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from costar_cli.cli.session import Session
from costar_cli.diagnostics import Diagnostic

if TYPE_CHECKING:
    from costar_cli.data import Dataset
    from costar_cli.plans.doses import Sweep
    from costar_cli.questions import AverageEffects
    from costar_cli.questions.average_tables import AverageTable

MOST_SHOWN: Final = 8  # plans of a table that has them as columns
MOST_ENDS: Final = 20  # plans of a table that has them as rows
MOST_NAMED: Final = 2  # plans in a sentence
MOST_REASONS: Final = 3  # why means have no interval

TEXTS: Final = frozenset({"quantity", "model", "group", "plan", "reference", "outcome", "unit", "interval_kind",
                              "estimator"})  # fmt: skip

ByStep = Callable[["AverageEffects", Sequence[Mapping[str, Any]]], "Iterator[AverageTable]"]


def show_averages(
    session: Session, found: "Sequence[AverageEffects]", *, csv: Path | None, plot: Path | None
) -> list[dict[str, Any]]:
    """Print averages by model, write them where files are named, and return their rows."""
    from costar_cli.questions.average_tables import step_tables

    rows = [row for effects in found for row in effects.to_rows()]
    _tell(session, found, rows, partial(step_tables, most=MOST_SHOWN))
    _write(session, rows, csv)
    if plot is not None:
        from costar_cli.report.figures.effects import plot_averages

        plot_averages(found, plot)
        session.out.wrote("plot", plot)
    return rows


def show_average_sweep(
    session: Session,
    found: "Sequence[AverageEffects]",
    *,
    sweep: "Sweep",
    dataset: "Dataset",
    csv: Path | None,
    plot: Path | None,
) -> list[dict[str, Any]]:
    """Do the same for the doses of a sweep: a row per dose, with how many answers are amber and red."""
    from costar_cli.data.schema import labelled
    from costar_cli.questions.average_tables import dose_tables

    rows: list[dict[str, Any]] = []
    for effects in found:
        names = [plan.name for plan in effects.plans]
        for row in effects.to_rows():
            rows.append(row | {"dose": sweep.doses[row["plan"]]})
            if effects.ratings_GPL is not None:  # the model rates its answers
                place = effects.groups.index(row["group"]), names.index(row["plan"])
                _, amber, red = effects.ratings_GPL[place].tolist()
                rows[-1] |= {"amber": amber, "red": red}
    if session.out.shows("days"):
        session.out.text(f"{sweep.dose.range} were given")
    _tell(session, found, rows, partial(dose_tables, dose=labelled(sweep.dose.name, sweep.dose.unit)))
    _write(session, rows, csv)
    if plot is not None:
        from costar_cli.report.figures.effects import plot_average_sweep

        plot_average_sweep(found, sweep, sweep.given(dataset), plot)
        session.out.wrote("plot", plot)
    return rows


def _tell(
    session: Session, found: "Sequence[AverageEffects]", rows: Sequence[Mapping[str, Any]], by_step: ByStep
) -> None:
    """Print what intervals of each model include, then its averages at the end; first, of details, those by step."""
    from costar_cli.effects import ESTIMATORS
    from costar_cli.inference import UNMEASURED
    from costar_cli.questions.averages import FEW_UNITS, refuted

    for effects in found:
        mine = [row for row in rows if row["model"] == effects.label]
        for table in by_step(effects, mine) if session.out.shows("days") else ():
            session.out.table(table.headers, table.rows, title=table.title, keys=table.keys, together=table.together)
        if any(row["interval_kind"] == UNMEASURED for row in mine):
            session.out.say(Diagnostic.of("averages-left-out", effects.label, why=UNMEASURED[6:-1]))
        if any(row["lower"] is not None for row in mine):
            interval = Diagnostic.of("averages-interval", effects.label, kind=effects.interval_kind, unit=effects.unit)
            session.out.say(interval)
        if any(row["interval_kind"] == FEW_UNITS for row in mine):
            session.out.say(Diagnostic.of("averages-few-units"))
        if effects.is_corrected:
            session.out.say(Diagnostic.of("averages-corrected", effects.label, how=ESTIMATORS["tmle"]))
        if (warning := refuted(mine)) is not None:
            session.out.say(warning)
        # reasons for missing intervals at the end of plans, each with its plans and groups
        ends, whys = {plan.name: len(plan) for plan in effects.plans}, dict[str, dict[str, None]]()
        for row in mine:
            kind, plan = row["interval_kind"], row["plan"]
            at_end = row["quantity"] == "outcome" and row["step"] == ends[plan]
            if at_end and kind.startswith("none") and kind not in (UNMEASURED, FEW_UNITS):
                whose = plan if row["group"] == effects.groups[0] else f"{plan}, {row['group']}"
                whys.setdefault(kind[6:-1], {})[whose] = None
        for why, whose in list(whys.items())[:MOST_REASONS]:
            who = effects.label + f" ({', '.join(whose)})" * (effects.is_corrected or len(whys) > 1)
            session.out.say(Diagnostic.of("averages-without-interval", who, why=why))
        if (left := len(whys) - MOST_REASONS) > 0 and session.out.shows("notes"):
            session.out.note(f"{left:,} more reasons for averages without interval: `interval_kind` has each")
        for outcome in dict.fromkeys(row["outcome"] for row in mine):
            _show_ends(session, effects, [row for row in mine if row["outcome"] == outcome])
    session.out.release(2)
    session.out.more("days", files="every row --csv; picture --plot")


def _show_ends(session: Session, effects: "AverageEffects", rows: Sequence[Mapping[str, Any]]) -> None:
    """Print an outcome's averages at the end of plans; where most answers for a plan are not supported, that first."""
    from costar_cli.data.findings import counted
    from costar_cli.questions.average_tables import end_table, plan_name

    out, sweep = session.out, "dose" in rows[0]
    if effects.ratings_GPL is not None:
        names = [plan_name(plan.name, sweep=sweep) for plan in effects.plans]
        red_P, all_P = effects.ratings_GPL[..., 2].sum(axis=0).tolist(), effects.ratings_GPL.sum(axis=(0, 2)).tolist()
        mostly = {name: (red, n) for name, red, n in zip(names, red_P, all_P, strict=True) if 2 * red > n}
        if mostly:
            counts = ", ".join(f"{red:,} of {n:,} for {name}" for name, (red, n) in list(mostly.items())[:MOST_NAMED])
            rest = len(mostly) - MOST_NAMED
            out.text(f"! Mostly extrapolation: red answers are {counts}" + f" and {rest} more plans" * (rest > 0))
    table = end_table(effects, rows, most=None if sweep else MOST_ENDS)
    out.text(table.title)
    out.table(table.headers, table.rows, keys=table.keys, together=table.together)
    if not sweep and (left := len(effects.plans) - MOST_ENDS) > 0:
        out.text(f"and {counted(left, 'more plan')}")
    if not table.has_limits and not out.shows("notes"):
        out.text("! no CI: --show notes says why")


def _write(session: Session, rows: Sequence[Mapping[str, Any]], csv: Path | None) -> None:
    if csv is not None:
        from costar_cli.files.tables import columns_of_rows, table_file

        with table_file(csv) as table:
            table.write(columns_of_rows(rows, texts=TEXTS))
        session.out.wrote("averages", csv)
