"""Tables of averages, for terminals and pages: the end of each plan, every step, and doses of a sweep."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from costar_cli.data.findings import counted
from costar_cli.data.schema import steps_axis, steps_of
from costar_cli.questions.averages import AverageEffects
from costar_cli.questions.tables import decimals_of, estimate_text, number_text

END_DIGITS: Final = 3  # of the largest number of a table of ends

Row = Mapping[str, Any]


@dataclass(frozen=True)
class AverageTable:
    """A table of one model and outcome: `keys` columns say what a row is, `together` ones belong to one number.

    `has_limits` says whether any number has an interval.
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[object]]
    keys: int
    together: int = 1
    has_limits: bool = True


def at_ends(effects: AverageEffects, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the last step of each plan; of a difference, of the last that the reference has, too."""
    ends, least = {plan.name: len(plan) for plan in effects.plans}, len(effects.plans[effects.reference])
    return [
        row for row in rows
        if row["step"] == min(ends[row["plan"]], least if row["quantity"].endswith("difference") else ends[row["plan"]])
    ]  # fmt: skip


def end_table(effects: AverageEffects, rows: Sequence[Row], *, most: int | None = None) -> AverageTable:
    """Return a row per group and plan of the rows of an outcome: mean, difference, how many answers have support.

    Of a sweep, whose rows have doses, plans are called by their dose. `most` limits the plans.
    """
    first, of = rows[0], at_ends(effects, rows)
    share = 100 if first["quantity"].startswith("survival") else 1  # as percentages
    cells: list[dict[tuple[str, str], Row]] = [{}, {}]
    for row in of:
        estimate = None if row["estimate"] is None else share * row["estimate"]
        cells[row["quantity"].endswith("difference")][row["group"], row["plan"]] = {**row, "estimate": estimate}
    truth, grouped, sweep = ["truth"] * ("truth" in first), len(effects.groups) > 1, "dose" in first
    heads = ["mean", *[f"difference from {effects.plans[effects.reference].name}"] * bool(cells[1])]
    decimals = [decimals_of((row["estimate"] for row in side.values()), digits=END_DIGITS) for side in cells]
    lines: list[list[object]] = []
    for (g, group), (p, plan) in product(enumerate(effects.groups), enumerate(effects.plans[:most])):
        line: list[object] = [*[group] * grouped, plan_name(plan.name, sweep=sweep)]
        for _, side, places in zip(heads, cells, decimals, strict=False):
            row = side.get((group, plan.name), {"estimate": None, "truth": None})
            line += [estimate_text(row, places), *(number_text(row["truth"], places) for _ in truth)]
        if effects.ratings_GPL is not None:
            line.append(support_text(effects.ratings_GPL[g, p].tolist()))
        lines.append(line)
    headers = [*["group"] * grouped, "dose" if sweep else "plan", *(name for head in heads for name in (head, *truth))]
    headers += ["support"] * (effects.ratings_GPL is not None)
    steps = {len(plan) for plan in effects.plans}
    at = f"after {steps_of(steps.pop(), effects.schema.step)}" if len(steps) == 1 else "at the end of each plan"
    unit = " in %" if share > 1 else f" in {first['unit']}" if first["unit"] else ""
    bounded = any(row["lower"] is not None for row in of)
    interval = f" ({', '.join(f'{100 * level:g} %' for level in effects.levels)} CI)" * bounded
    answers = counted(int(effects.moments_G[0]), "answer")
    title = f"Mean {first['outcome']} {at}{unit}{interval}, {answers}, by {_by(effects)}"
    return AverageTable(title, headers, lines, 1 + grouped, 1 + len(truth), bounded)


def step_tables(effects: AverageEffects, rows: Sequence[Row], *, most: int | None = None) -> Iterator[AverageTable]:
    """Yield a table per outcome and quantity, with a row per group and step and a column per plan; then of survival."""
    for outcome, quantity in product([one.name for one in effects.schema.outcomes], ("outcome", "difference")):
        of = [row for row in rows if (row["outcome"], row["quantity"]) == (outcome, quantity)]
        if not of:
            continue
        decimals, truth = decimals_of(row["estimate"] for row in of), ["truth"] * ("truth" in of[0])
        lines: dict[tuple[object, ...], dict[object, list[str | None]]] = {}
        for row in of:
            key = (row["group"], row["moments"], row["step"])
            lines.setdefault(key, {})[row["plan"]] = _number(row, decimals, truth)
        shown = list(dict.fromkeys(row["plan"] for row in of))[:most]
        headers = ["group", "answers", steps_axis(effects.schema.step), *(h for plan in shown for h in (plan, *truth))]
        table = [[*key, *(text for plan in shown for text in cells.get(plan, [None] * (1 + len(truth))))]
                 for key, cells in lines.items()]  # fmt: skip
        yield AverageTable(_title(effects, of[0]), headers, table, 3, 1 + len(truth))
    for name, mean_GPH in effects.survival.items():
        survival = [
            [group, int(moments), h + 1, *(f"{100 * mean_PH[p, h]:.1f} %" if h < len(plan) else None
                                           for p, plan in enumerate(effects.plans[:most]))]
            for group, moments, mean_PH in zip(effects.groups, effects.moments_G, mean_GPH, strict=True)
            for h in range(max(map(len, effects.plans[:most])))
        ]  # fmt: skip
        what = "survival" if name == "survival" else f"probability of {name.removeprefix('ended_')} by then"
        headers = ["group", "answers", steps_axis(effects.schema.step), *(plan.name for plan in effects.plans[:most])]
        yield AverageTable(f"mean {what}, by {effects.label}", headers, survival, 3)


def dose_tables(effects: AverageEffects, rows: Sequence[Row], dose: str) -> Iterator[AverageTable]:
    """Yield a table per outcome and quantity of a sweep, with a row per group and dose, and a column per step."""
    for outcome, quantity in product([one.name for one in effects.schema.outcomes], ("outcome", "difference")):
        of = [row for row in rows if (row["outcome"], row["quantity"]) == (outcome, quantity)]
        if not of:
            continue
        decimals, lines = decimals_of(row["estimate"] for row in of), dict[tuple[object, ...], list[str | None]]()
        truth, ratings = ["truth"] * ("truth" in of[0]), ["amber", "red"] * ("red" in of[0])
        for row in of:
            key = (row["group"], f"{row['dose']:.6g}", *(row[name] for name in ratings))
            lines.setdefault(key, []).extend(_number(row, decimals, truth))
        steps = sorted({row["step"] for row in of})
        heads = [head for step in steps for head in (f"after {steps_of(step, effects.schema.step)}", *truth)]
        table = [[*key, *cells] for key, cells in lines.items()]
        yield AverageTable(_title(effects, of[0]), ["group", dose, *ratings, *heads], table, 2, 1 + len(truth))


def plan_name(name: str, *, sweep: bool) -> str:
    """Return what a table calls a plan: one of a sweep by its dose alone."""
    return name.rpartition("=")[2] if sweep else name


def support_text(counts: Sequence[int]) -> str:
    """Return how many answers of a plan are not supported, of how many: `78 of 97 red !`."""
    _, amber, red = counts
    total = sum(counts)
    if red:
        return f"{red:,} of {total:,} red" + " !" * (2 * red > total)
    return f"{amber:,} of {total:,} amber" if amber else "well supported"


def _number(row: Row, decimals: int, truth: Sequence[str]) -> list[str | None]:
    return [estimate_text(row, decimals), *(number_text(row["truth"], decimals) for _ in truth)]


def _by(effects: AverageEffects) -> str:
    return effects.label + ", corrected" * effects.is_corrected


def _title(effects: AverageEffects, row: Row) -> str:
    unit = f" ({row['unit']})" if row["unit"] else ""
    what = f"mean {row['outcome']}{unit}"
    if row["quantity"].endswith("difference"):
        return f"{what}: difference from `{row['reference']}`"
    return f"{what}, by {_by(effects)}"
