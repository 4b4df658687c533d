"""Tables of a what-if report: a column per plan, a row per step, estimates with their bands as text."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from costar_cli.data.schema import step_axis, step_word
from costar_cli.inference import RANGE, SUPPORT_LEVELS
from costar_cli.questions.answers import ModelAnswers
from costar_cli.questions.report import Row, WhatIfReport

IN_PERCENT: Final = ("estimate", "lower", "upper", "truth", "observed")  # of a probability
RANGE_TITLE: Final = " (in brackets: range of the members, no level)"


def answer_table(
    report: WhatIfReport, model: ModelAnswers, outcome: str, *, differences: bool = False
) -> tuple[list[str], list[list[object]]]:
    """Return a column per plan and a row per step; under `--truth` the truth stands beside each estimate."""
    mine = [row for row in rows_of(report, outcome, differences=differences) if row["model"] == model.label]
    plans = list(dict.fromkeys(str(row["plan"]) for row in mine))
    decimals = decimals_of(row["estimate"] for row in mine)
    by_step: dict[int, dict[str, list[object]]] = {}
    for row in mine:
        cell: list[object] = [estimate_text(row, decimals)]
        cell += [number_text(row["truth"], decimals)] if report.truth is not None else []
        by_step.setdefault(int(row["step"] or 0), {})[str(row["plan"])] = cell
    extra = 1 if report.truth is not None else 0
    headers = [step_axis(report.schema.step)]
    for plan in plans:
        headers += [plan, *["truth"] * extra]
    empty: list[object] = [None] * (1 + extra)
    history = report.history
    lines = [
        [history.when(history.origin + step), *(cell for plan in plans for cell in cells.get(plan, empty))]
        for step, cells in sorted(by_step.items())
    ]
    return headers, lines


def end_table(
    report: WhatIfReport, outcome: str, plans: Mapping[str, str] | None = None, *, plan: str = "plan"
) -> tuple[list[str], list[list[object]]]:
    """Return a row per plan and model at its last step: estimate, truth, difference, survival, support in words.

    Args:
        report: what was answered.
        outcome: its name.
        plans: what the plans are called, by default their names.
        plan: the heading of their column.
    """
    ends = {(of.name, len(of)) for of in report.plans}
    found = [
        {(row["plan"], row["model"]): row for row in rows_of(report, outcome, differences=differences)
         if (row["plan"], row["step"]) in ends}
        for differences in (False, True)
    ]  # fmt: skip
    decimals = [decimals_of((row["estimate"] for row in rows.values()), digits=3) for rows in found]
    several, uneven = len(report.models) > 1, len({steps for _, steps in ends}) > 1
    headers = [plan, *["model"] * several, *[step_axis(report.schema.step)] * uneven]
    quantities = ["estimate", f"difference from {report.reference}"]
    truth, compared = report.truth is not None, bool(found[1])
    for quantity in quantities[: 1 + compared]:
        headers += [quantity, *["truth"] * truth]
    forecasts = {model.label: model.survival_forecast for model in report.models}
    names = dict.fromkeys(name for forecast in forecasts.values() if forecast for name in forecast.names)
    headers += [f"no {' or '.join(names)}"] * bool(names)
    rated = any(model.plan_ratings for model in report.models)
    headers += ["support"] * rated
    lines: list[list[object]] = []
    for i, of in enumerate(report.plans):
        for model in report.models:
            key = (of.name, model.label)
            line: list[object] = [of.name if plans is None else plans[of.name], *[model.heading] * several]
            line += [report.history.when(report.history.origin + len(of))] * uneven
            for rows, places in list(zip(found, decimals, strict=True))[: 1 + compared]:
                row = rows.get(key)
                line.append(row and estimate_text({**row, "support": None}, places))  # its sign has a column
                line += [row and number_text(row["truth"], places)] * truth
            if names:
                forecast = forecasts[model.label]
                line.append(f"{100 * forecast.survival_QH[i, len(of) - 1]:.1f} %" if forecast else None)
            if rated:
                line.append(model.plan_ratings[i].verdict if model.plan_ratings else None)
            lines.append(line)
    return headers, lines


def rows_of(report: WhatIfReport, outcome: str, *, differences: bool) -> list[Row]:
    """Return the rows of an outcome as tables show them: probabilities in percent."""
    rows = report.difference_rows() if differences else report.to_rows()
    factor = 100 if is_probability(report, outcome) else 1
    return [
        {
            name: factor * x if name.partition("_")[0] in IN_PERCENT and isinstance(x, float) else x
            for name, x in row.items()
        }
        for row in rows
        if row["outcome"] == outcome
    ]


def difference_title(report: WhatIfReport, *models: ModelAnswers) -> str:
    """Return what a table of differences by some models is called, and what stands in its brackets."""
    ranges = any(model.difference_kind == RANGE for model in models)
    return f"difference from `{report.reference}`{RANGE_TITLE * ranges}"


def is_probability(report: WhatIfReport, outcome: str) -> bool:
    """Return whether an outcome is 0 or 1, so that tables show percentages."""
    return any((known.name, known.kind) == (outcome, "binary") for known in report.schema.outcomes)


def survival_table(report: WhatIfReport, model: ModelAnswers) -> tuple[list[str], list[list[object]]]:
    """Return how likely the series is to go on, a column per plan and a row per step; of several ends, each by then."""
    found, history = model.survival_forecast, report.history
    assert found is not None  # noqa: S101 - the table is made where it is known
    lines: list[list[object]] = []
    for h in range(max(map(len, report.plans))):
        cells: list[str | None] = []
        for i, plan in enumerate(report.plans):
            several = (
                zip(found.names, found.ended_QHE[i, h], strict=True) if len(found.names) > 1 and h < len(plan) else ()
            )
            ends = ", ".join(f"{name} {100 * share:.1f} %" for name, share in several)
            text = f"{100 * found.survival_QH[i, h]:.1f} %" + (f" ({ends})" if ends else "")
            cells.append(text if h < len(plan) else None)
        lines.append([history.when(history.origin + h + 1), *cells])
    return [step_axis(report.schema.step), *(plan.name for plan in report.plans)], lines


def decimals_of(values: Iterable[object], digits: int = 4) -> int:
    """Return how many decimals show the largest value with so many digits."""
    largest = max((abs(value) for value in values if isinstance(value, float)), default=0.0)
    return min(9, max(0, digits - 1 - math.floor(math.log10(largest)))) if largest > 0 else digits - 1


def estimate_text(row: Mapping[str, object], decimals: int) -> str | None:
    """Return an estimate with its limits at each level, where it has any."""
    estimate = number_text(row["estimate"], decimals)
    names = [name.removeprefix("lower") for name in row if name.startswith("lower")]
    shown = [text for name in names if (text := limits_text(row[f"lower{name}"], row[f"upper{name}"], decimals))]
    if estimate is None:
        return "left out !" if row.get("support") == "red" else None
    behind = f" ({'; '.join(shown)})" if shown else ""
    return f"{estimate}{behind}{_SIGNS.get(str(row.get('support')), '')}"


_SIGNS: Final = {"amber": " ?", "red": " !"}  # behind what the data hardly support, and do not


def limits_text(lower: object, upper: object, decimals: int) -> str | None:
    """Return two limits with so many decimals, `3.24 to 3.36`, None where one of them is no number."""
    texts = number_text(lower, decimals), number_text(upper, decimals)
    return None if None in texts else f"{texts[0]} to {texts[1]}"


def number_text(value: object, decimals: int) -> str | None:
    """Return a number with so many decimals, None for anything else."""
    return f"{value:.{decimals}f}" if isinstance(value, float) else None


def rating_reasons(report: WhatIfReport, model: ModelAnswers) -> Iterator[str]:
    """Yield why a plan's support is not green, and when first, by the reason at the last step that is at its worst.

    Nothing of a model without ratings.
    """
    for plan, ratings in zip(report.plans, model.plan_ratings, strict=True) if model.plan_ratings else ():
        worst = max(ratings.worst, key=SUPPORT_LEVELS.index)
        if worst == SUPPORT_LEVELS[0]:
            continue
        at = [h for h, rating in enumerate(ratings.worst) if rating == worst]
        marked = zip(ratings.support[at[-1]], ratings.reasons[at[-1]], strict=True)
        reason = next(why for rating, why in marked if rating == worst)
        unit, origin = step_word(report.schema.step), report.history.origin
        when = f"from {unit} {origin + at[0]} on"  # to the end of the plan, without a better one between
        if len(plan) - at[0] != len(at):
            spans: dict[int, list[int]] = {}  # steps on end: those whose distance from their place is the same
            for place, h in enumerate(at):
                spans.setdefault(h - place, []).append(origin + h)
            days = [f"{own[0]}" + f" to {own[-1]}" * (len(own) > 1) for own in spans.values()]
            when = f"on {unit}{'s' * (len(at) > 1)} {', '.join(days)}"
        yield f"plan {plan.name}, {worst} {when}: {reason}"
