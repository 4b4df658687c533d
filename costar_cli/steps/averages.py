"""What `costar whatif --average` shows of average effects: tables, a figure, a file of rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from costar_cli.steps.session import Session

if TYPE_CHECKING:
    from costar_cli.cohort import AverageEffects

MOST_SHOWN: Final = 8  # plans of a table


def show_averages(
    session: Session, found: "Sequence[AverageEffects]", *, csv: Path | None, plot: Path | None
) -> list[dict[str, Any]]:
    """Print averages by model, write them where files are named, and return their rows."""
    rows = [row for effects in found for row in effects.to_rows()]
    for effects in found:
        mine = [row for row in rows if row["model"] == effects.label]
        for outcome in effects.schema.outcomes:
            for quantity in ("outcome", "difference"):
                of = [row for row in mine if (row["outcome"], row["quantity"]) == (outcome.name, quantity)]
                if of:
                    _show(session, effects, of, quantity)
        if effects.interval_kind.startswith("none"):
            session.out.note(f"averages of {effects.label} have no interval: {effects.interval_kind[6:-1]}")
            continue
        session.out.note(f"intervals of {effects.label} include {effects.interval_kind}; units are {effects.unit}s")
        if any(row["lower"] is None for row in mine):
            session.out.note("groups of fewer than 20 units have no interval")
    if csv is not None:
        from costar_cli.artifact.tables import table_file

        with table_file(csv) as table:
            table.write(_columns(rows))
        session.out.wrote("averages", csv)
    if plot is not None:
        from costar_cli.figures.averages import plot_averages

        plot_averages(found, plot)
        session.out.wrote("plot", plot)
    return rows


def _show(session: Session, effects: "AverageEffects", rows: Sequence[Mapping[str, Any]], quantity: str) -> None:
    from costar_cli.panel.schema import steps_axis
    from costar_cli.whatif.tables import decimals_of, estimate_text, number_text

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
    unit = f" ({rows[0]['unit']})" if rows[0]["unit"] else ""
    what = f"mean {rows[0]['outcome']}{unit}"
    title = (
        f"{what}, by {effects.label}" if quantity == "outcome" else f"{what}: difference from `{rows[0]['reference']}`"
    )
    session.out.table(headers, table, title=title, keys=3, together=1 + len(truth))


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return rows as the columns of a table."""
    import numpy as np

    texts = {"quantity", "model", "group", "plan", "reference", "outcome", "unit", "interval_kind"}
    whole = {"step", "moments", "units"}
    return {
        name: np.array(
            [row[name] for row in rows], dtype=object if name in texts else np.int64 if name in whole else np.float64
        )
        for name in rows[0]
    }
