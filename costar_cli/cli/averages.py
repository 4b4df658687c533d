"""What `costar whatif --average` shows of average effects: tables, a figure, a file of rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from costar_cli.cli.session import Session
from costar_cli.diagnostics import Diagnostic

if TYPE_CHECKING:
    from costar_cli.data import Dataset
    from costar_cli.plans.doses import Sweep
    from costar_cli.questions import AverageEffects

MOST_SHOWN: Final = 8  # plans of a table that has them as columns
MOST_ENDS: Final = 20  # plans of a table that has them as rows
MOST_NAMED: Final = 2  # plans in a sentence
MOST_REASONS: Final = 3  # why means have no interval

TEXTS: Final = frozenset({"quantity", "model", "group", "plan", "reference", "outcome", "unit", "interval_kind",
                              "estimator"})  # fmt: skip

Show = Callable[..., None]


def show_averages(
    session: Session, found: "Sequence[AverageEffects]", *, csv: Path | None, plot: Path | None
) -> list[dict[str, Any]]:
    """Print averages by model, write them where files are named, and return their rows."""
    rows = [row for effects in found for row in effects.to_rows()]
    _tell(session, found, rows, _show)
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

    rows = [row | _at_dose(effects, sweep, row) for effects in found for row in effects.to_rows()]
    if session.out.shows("days"):
        session.out.text(f"{sweep.dose.range} were given")
    _tell(session, found, rows, partial(_show_doses, dose=labelled(sweep.dose.name, sweep.dose.unit)))
    _write(session, rows, csv)
    if plot is not None:
        from costar_cli.report.figures.effects import plot_average_sweep

        plot_average_sweep(found, sweep, sweep.given(dataset), plot)
        session.out.wrote("plot", plot)
    return rows


def _at_dose(effects: "AverageEffects", sweep: "Sweep", row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dose of a row, and how many answers of its group have which light, where the model knows."""
    told: dict[str, Any] = {"dose": sweep.doses[row["plan"]]}
    if effects.ratings_GPL is None:
        return told
    names = [plan.name for plan in effects.plans]
    _, amber, red = effects.ratings_GPL[effects.groups.index(row["group"]), names.index(row["plan"])].tolist()
    return told | {"amber": amber, "red": red}


def _tell(session: Session, found: "Sequence[AverageEffects]", rows: Sequence[Mapping[str, Any]], show: Show) -> None:
    """Print what intervals of each model include, then its averages at the end; first, of details, those by step."""

    for effects in found:
        mine = [row for row in rows if row["model"] == effects.label]
        for outcome in effects.schema.outcomes if session.out.shows("days") else ():
            for quantity in ("outcome", "difference"):
                of = [row for row in mine if (row["outcome"], row["quantity"]) == (outcome.name, quantity)]
                if of:
                    show(session, effects, of, quantity)
        if session.out.shows("days"):
            _show_survival(session, effects)
        for one in _about(effects, mine):
            session.out.say(one)
        whys = _reasons(effects, mine)
        for why, whose in list(whys.items())[:MOST_REASONS]:
            who = effects.label + f" ({', '.join(whose)})" * (effects.is_corrected or len(whys) > 1)
            session.out.say(Diagnostic.of("averages-without-interval", who, why=why))
        if (left := len(whys) - MOST_REASONS) > 0 and session.out.shows("notes"):
            session.out.note(f"{left:,} more reasons for averages without interval: `interval_kind` has each")
        for outcome in dict.fromkeys(row["outcome"] for row in mine):
            _show_ends(session, effects, [row for row in mine if row["outcome"] == outcome])
    session.out.release(2)
    session.out.more("days", files="every row --csv; picture --plot")


def _about(effects: "AverageEffects", rows: Sequence[Mapping[str, Any]]) -> Iterator[Diagnostic]:
    """Yield what a reader of a model's averages should know."""
    from costar_cli.effects import ESTIMATORS
    from costar_cli.inference import UNMEASURED
    from costar_cli.questions.averages import FEW_UNITS, refuted

    if any(row["interval_kind"] == UNMEASURED for row in rows):
        yield Diagnostic.of("averages-left-out", effects.label, why=UNMEASURED[6:-1])
    if any(row["lower"] is not None for row in rows):
        yield Diagnostic.of("averages-interval", effects.label, kind=effects.interval_kind, unit=effects.unit)
    if any(row["interval_kind"] == FEW_UNITS for row in rows):
        yield Diagnostic.of("averages-few-units")
    if effects.is_corrected:
        yield Diagnostic.of("averages-corrected", effects.label, how=ESTIMATORS["tmle"])
    if (warning := refuted(rows)) is not None:
        yield warning


def _reasons(effects: "AverageEffects", rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return why means at the end of plans have no interval, and of which plans and groups that is so."""
    from costar_cli.inference import UNMEASURED
    from costar_cli.questions.averages import FEW_UNITS

    ends, whys = {plan.name: len(plan) for plan in effects.plans}, dict[str, dict[str, None]]()
    for row in rows:
        kind, plan = row["interval_kind"], row["plan"]
        at_end = row["quantity"] == "outcome" and row["step"] == ends[plan]
        if at_end and kind.startswith("none") and kind not in (UNMEASURED, FEW_UNITS):
            whose = plan if row["group"] == effects.groups[0] else f"{plan}, {row['group']}"
            whys.setdefault(kind[6:-1], {})[whose] = None
    return {why: [*whose] for why, whose in whys.items()}


def _show_ends(session: Session, effects: "AverageEffects", rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a row per group and plan at the plan's last step: the mean, the difference, the answers not supported.

    Where most answers for a plan are not supported, that stands first.
    """
    from costar_cli.data.findings import counted
    from costar_cli.data.schema import steps_of
    from costar_cli.questions.tables import decimals_of, estimate_text, number_text

    first, ends = rows[0], {plan.name: len(plan) for plan in effects.plans}
    share = 100 if first["quantity"].startswith("survival") else 1  # as percentages
    found: list[dict[tuple[str, str], Mapping[str, Any]]] = [{}, {}]
    for row in rows:
        if row["step"] == ends[row["plan"]]:
            known = row["estimate"] is not None
            shown = {**row, "estimate": share * row["estimate"] if known else None}
            found[row["quantity"].endswith("difference")][row["group"], row["plan"]] = shown
    truth, grouped = ["truth"] * ("truth" in first), len(effects.groups) > 1
    bounded = any(row["lower"] is not None for row in rows if row["step"] == ends[row["plan"]])
    interval = f" ({', '.join(f'{100 * level:g} %' for level in effects.levels)} CI)" * bounded
    heads = ["mean", *[f"difference from {effects.plans[effects.reference].name}"] * bool(found[1])]
    decimals = [decimals_of((row["estimate"] for row in of.values()), digits=3) for of in found]
    lines: list[list[object]] = []
    most = len(effects.plans) if "dose" in first else MOST_ENDS
    names = [plan.name.rpartition("=")[2] if "dose" in first else plan.name for plan in effects.plans]
    for (g, group), (p, plan) in product(enumerate(effects.groups), enumerate(effects.plans[:most])):
        line: list[object] = [*[group] * grouped, names[p]]
        for _, of, places in zip(heads, found, decimals, strict=False):
            row = of.get((group, plan.name), {"estimate": None, "truth": None})
            line += [estimate_text(row, places), *(number_text(row["truth"], places) for _ in truth)]
        if effects.ratings_GPL is not None:
            line.append(_support(effects.ratings_GPL[g, p].tolist()))
        lines.append(line)
    headers = [*["group"] * grouped, "dose" if "dose" in first else "plan"]
    headers += [name for head in heads for name in (head, *truth)]
    headers += ["support"] * (effects.ratings_GPL is not None)
    steps = {*ends.values()}
    at = f"after {steps_of(steps.pop(), effects.schema.step)}" if len(steps) == 1 else "at the end of each plan"
    what = f"Mean {first['outcome']} {at}" + (" in %" if share > 1 else f" in {first['unit']}" if first["unit"] else "")
    out, answers = session.out, counted(int(effects.moments_G[0]), "answer")
    if effects.ratings_GPL is not None:
        red_P, all_P = effects.ratings_GPL[..., 2].sum(axis=0).tolist(), effects.ratings_GPL.sum(axis=(0, 2)).tolist()
        mostly = {name: (red, n) for name, red, n in zip(names, red_P, all_P, strict=True) if 2 * red > n}
        if mostly:
            counts = ", ".join(f"{red:,} of {n:,} for {name}" for name, (red, n) in list(mostly.items())[:MOST_NAMED])
            rest = len(mostly) - MOST_NAMED
            out.text(f"! Mostly extrapolation: red answers are {counts}" + f" and {rest} more plans" * (rest > 0))
    out.text(f"{what}{interval}, {answers}, by {effects.label}" + ", corrected" * effects.is_corrected)
    out.table(headers, lines, keys=1 + grouped, together=1 + len(truth))
    if (left := len(effects.plans) - most) > 0:
        out.text(f"and {counted(left, 'more plan')}")
    if not bounded and not out.shows("notes"):
        out.text("! no CI: --show notes says why")


def _support(counts: Sequence[int]) -> str:
    """Return how many answers of a plan are not supported, of how many: `78 of 97 red !`."""
    _, amber, red = counts
    total = sum(counts)
    if red:
        return f"{red:,} of {total:,} red" + " !" * (2 * red > total)
    return f"{amber:,} of {total:,} amber" if amber else "well supported"


def _write(session: Session, rows: Sequence[Mapping[str, Any]], csv: Path | None) -> None:
    if csv is not None:
        from costar_cli.files.tables import columns_of_rows, table_file

        with table_file(csv) as table:
            table.write(columns_of_rows(rows, texts=TEXTS))
        session.out.wrote("averages", csv)


def _show_doses(
    session: Session, effects: "AverageEffects", rows: Sequence[Mapping[str, Any]], quantity: str, *, dose: str
) -> None:
    """Print a row per group and dose, a column per step, and the lights where they are known."""
    from costar_cli.data.schema import steps_of
    from costar_cli.questions.tables import decimals_of, estimate_text, number_text

    decimals, lines = decimals_of(row["estimate"] for row in rows), dict[tuple[object, ...], list[str | None]]()
    truth, ratings, steps = "truth" in rows[0], "red" in rows[0], sorted({row["step"] for row in rows})
    for row in rows:
        key = (row["group"], f"{row['dose']:.6g}", *((row["amber"], row["red"]) if ratings else ()))
        cells = [estimate_text(row, decimals), *([number_text(row["truth"], decimals)] if truth else [])]
        lines.setdefault(key, []).extend(cells)
    heads = [head for step in steps for head in (f"after {steps_of(step, effects.schema.step)}", *["truth"] * truth)]
    headers = ["group", dose, *(["amber", "red"] if ratings else []), *heads]
    table = [[*key, *cells] for key, cells in lines.items()]
    session.out.table(headers, table, title=_title(effects, rows[0], quantity), keys=2, together=1 + truth)


def _show(session: Session, effects: "AverageEffects", rows: Sequence[Mapping[str, Any]], quantity: str) -> None:
    from costar_cli.data.schema import steps_axis
    from costar_cli.questions.tables import decimals_of, estimate_text, number_text

    plans, decimals = (
        list(dict.fromkeys(row["plan"] for row in rows))[:MOST_SHOWN],
        decimals_of(row["estimate"] for row in rows),
    )
    lines: dict[tuple[object, ...], dict[object, list[str | None]]] = {}
    for row in rows:
        cell = [estimate_text(row, decimals), *([number_text(row["truth"], decimals)] if "truth" in row else [])]
        key = (row["group"], row["moments"], row["step"])
        lines.setdefault(key, {})[row["plan"]] = cell
    truth = ["truth"] * ("truth" in rows[0])
    headers = ["group", "answers", steps_axis(effects.schema.step), *(h for plan in plans for h in (plan, *truth))]
    table = [[*key, *(text for plan in plans for text in cells.get(plan, [None] * (1 + len(truth))))]
             for key, cells in lines.items()]  # fmt: skip
    title = _title(effects, rows[0], quantity)
    session.out.table(headers, table, title=title, keys=3, together=1 + len(truth))


def _title(effects: "AverageEffects", row: Mapping[str, Any], quantity: str) -> str:
    unit = f" ({row['unit']})" if row["unit"] else ""
    what = f"mean {row['outcome']}{unit}"
    by = f", by {effects.label}" + ", corrected" * effects.is_corrected
    return f"{what}{by}" if quantity == "outcome" else f"{what}: difference from `{row['reference']}`"


def _show_survival(session: Session, effects: "AverageEffects") -> None:
    from costar_cli.data.schema import steps_axis

    shown = effects.plans[:MOST_SHOWN]
    for name, mean_GPH in effects.survival.items():
        rows = [
            [group, int(moments), h + 1, *(f"{100 * mean_PH[p, h]:.1f} %" if h < len(plan) else None
                                           for p, plan in enumerate(shown))]
            for group, moments, mean_PH in zip(effects.groups, effects.moments_G, mean_GPH, strict=True)
            for h in range(max(map(len, shown)))
        ]  # fmt: skip
        what = "survival" if name == "survival" else f"probability of {name.removeprefix('ended_')} by then"
        headers = ["group", "answers", steps_axis(effects.schema.step), *(plan.name for plan in shown)]
        session.out.table(headers, rows, title=f"mean {what}, by {effects.label}", keys=3)
