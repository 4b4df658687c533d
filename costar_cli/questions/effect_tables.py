"""Tables of effects: what each plan comes to after its last step, who stands behind it, and every step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from costar_cli.data.schema import labelled, step_axis, steps_of
from costar_cli.effects import ESTIMATORS, EffectReport
from costar_cli.questions.tables import decimals_of, estimate_text

MAIN: Final = ("mean", "difference", "risk", "risk difference")  # what is shown where no measure is asked for

Row = Mapping[str, Any]


@dataclass(frozen=True)
class EffectTable:
    """A table, with the number of columns that say what a row is."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[object]]
    keys: int


def end_tables(report: EffectReport, *, main: bool = False) -> list[EffectTable]:
    """Return a table per outcome and last step: a row per group, plan and estimator.

    Of `main` tables some quantities are left out unless they are asked for. Followers stand beside the estimates of one
    estimator; several share them, in `followers_table`.
    """
    effects, tables = report.effects, list[EffectTable]()
    groups, estimators = len(effects.groups) > 1, len(effects.settings.estimators) > 1
    units = {outcome.name: outcome.unit for outcome in effects.trials.schema.outcomes}
    for (outcome, step), of in _ends(report).items():
        quantities = list(dict.fromkeys(name for cells in of.values() for name in cells))
        if main and not report.request.measure:
            quantities = [name for name in quantities if name in MAIN]
        limits = any(row["lower"] is not None for cells in of.values() for row in cells.values())
        heads = [f"{name} ({_level(report)})" if limits and not i else name for i, name in enumerate(quantities)]
        decimals = {name: decimals_of(cells[name]["estimate"] for cells in of.values() if name in cells)
                    for name in quantities}  # fmt: skip
        rows = [
            [*[group] * groups, plan, *[estimator] * estimators,
             *(_estimate(cells[name], decimals[name]) if name in cells else None for name in quantities),
             *[_followers(next(iter(cells.values())))] * (not estimators)]
            for (group, plan, estimator), cells in of.items()
        ]  # fmt: skip
        headers = [*["group"] * groups, "plan", *["estimator"] * estimators, *heads, *["followers"] * (not estimators)]
        by = "" if estimators else f", {ESTIMATORS[effects.settings.estimators[0]]}"
        when = steps_of(step, effects.trials.schema.step)
        title = f"{labelled(outcome, units.get(outcome, ''))} after {when}{by}"
        tables.append(EffectTable(title, headers, rows, 1 + groups + estimators))
    return tables


def followers_table(report: EffectReport) -> EffectTable | None:
    """Return who stands behind the numbers of several estimators; None of one."""
    effects = report.effects
    if len(effects.settings.estimators) == 1:
        return None
    groups, rows = len(effects.groups) > 1, dict[tuple[object, ...], str]()
    for (_, step), of in _ends(report).items():
        for (group, plan, _), cells in of.items():
            rows.setdefault((*[group] * groups, plan, step), _followers(next(iter(cells.values()))))
    headers = [*["group"] * groups, "plan", step_axis(effects.trials.schema.step), "followers"]
    return EffectTable("Who follows", headers, [[*of, text] for of, text in rows.items()], 1 + groups)


def steps_table(report: EffectReport) -> EffectTable:
    """Return every row: a line per outcome, quantity, group, plan, estimator and step."""
    effects = report.effects
    groups, estimators = len(effects.groups) > 1, len(effects.settings.estimators) > 1
    decimals = {
        of: decimals_of(row["estimate"] for row in report.rows if (row["outcome"], row["quantity"]) == of)
        for of in {(row["outcome"], row["quantity"]) for row in report.rows}
    }
    rows = [
        [row["outcome"], row["quantity"], *[row["group"]] * groups, row["plan"], *[row["estimator"]] * estimators,
         row["step"], _estimate(row, decimals[row["outcome"], row["quantity"]]), _followers(row)]
        for row in report.rows
    ]  # fmt: skip
    headers = ["outcome", "quantity", *["group"] * groups, "plan", *["estimator"] * estimators,
               step_axis(effects.trials.schema.step), f"estimate ({_level(report)})", "followers"]  # fmt: skip
    return EffectTable("Every step", headers, rows, 4 + groups + estimators)


def _level(report: EffectReport) -> str:
    return f"{100 * report.request.levels[0]:g} %"


def _ends(report: EffectReport) -> dict[tuple[str, int], dict[tuple[str, str, str], dict[str, Row]]]:
    """Return rows after the last step of each plan: by outcome and step; group, plan and estimator; quantity."""
    order = {plan.name: i for i, plan in enumerate(report.effects.plans)}
    last = {(row["plan"], row["outcome"]): row["step"] for row in report.rows}
    found: dict[tuple[str, int], dict[tuple[str, str, str], dict[str, Row]]] = {}
    groups = report.effects.groups
    for row in sorted(report.rows, key=lambda row: (groups.index(row["group"]), order[row["plan"]])):
        if row["step"] == last[row["plan"], row["outcome"]]:
            of = found.setdefault((row["outcome"], row["step"]), {})
            of.setdefault((row["group"], row["plan"], row["estimator"]), {})[row["quantity"]] = row
    return found


def _estimate(row: Row, decimals: int) -> str | None:
    return estimate_text({name: row[name] for name in ("estimate", "lower", "upper")}, decimals)


def _followers(row: Row) -> str:
    return f"{row['followers']:,} ({row['effective']:.0f})" + " ?" * (not row["supported"])
