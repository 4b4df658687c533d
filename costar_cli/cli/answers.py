"""What `costar whatif` prints: answers of one subject by plan and step, with lights; or means over a cohort."""

import math
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from costar_cli.cli.session import Session
from costar_cli.reporting.output import Output
from costar_cli.reporting.text import columns_of, fold_first

if TYPE_CHECKING:
    from costar_cli.plans.doses import Sweep
    from costar_cli.questions import WhatIfReport
    from costar_cli.questions.sensitivity import Sensitivity

MOST_SHOWN: Final = 20  # plans of a cohort
SHOWN_GAMMAS: Final = (1.5, 2.0)  # of the bounds under hidden confounding that fit beside where they reach zero

RESTS_ON: Final = {  # codes of notes that the screen has in a few words
    "bands-cover": "Assumes no hidden confounding; bands hold on average, not for one subject.",
    "bands-uncalibrated": "No band: fit the model again with `costar finetune --overwrite`.",
    "bands-few-members": "No band: too few ensemble members (`--members 3` or more).",
    "bands-few-subjects": "No band: too few calibration subjects.",
    "differences-range": "Limits of differences are the range of the ensemble, of unknown coverage.",
    "differences-by-law": "Limits of differences hold only if the model's law is right.",
    "estimates-of-survivors": "Outcomes are those of a subject whose series goes on.",
}

WHEN: Final = {"day": "on", "week": "in", "month": "in", "quarter": "in", "year": "in"}  # else: at step 14

Rows = Sequence[Mapping[str, object]]


def show_answers(out: Output, report: "WhatIfReport", sweep: "Sweep | None" = None) -> None:
    """Print the answers at the end of each plan, and what they rest on; before them whatever `--show` asks for."""
    from costar_cli.data.schema import labelled, step_word
    from costar_cli.questions.tables import end_table, is_probability, rating_reasons

    history, unit = report.history, step_word(report.schema.step)
    several = len(report.models) > 1
    if out.shows("days"):
        out.text(
            f"subject {history.name} ({history.part}), {unit} {history.when(history.origin)} of {history.length - 1}"
        )
        _show_steps(out, report, sweep)
    if out.shows("support") and sweep is None:
        show_ratings(out, report)
        for model in report.models:
            out.text(*(f"{model.label}: " * several + reason for reason in rating_reasons(report, model)))
    for note in report.diagnostics:
        if note.severity == "note":
            out.say(note)
    ends = dict.fromkeys(history.when(history.origin + len(plan)) for plan in report.plans)
    at = f"{WHEN.get(unit, 'at')} {unit} {next(iter(ends))}" if len(ends) == 1 else "at the end of each plan"
    levels = [f"{100 * level:g} %" for level in report.levels if any(map(report.shown_levels, report.models))]
    band = f" ({', '.join(levels)} band)" if levels else ""
    since = f"from {unit} {history.when(history.origin)}" + ("" if several else f" by {report.models[0].heading}")
    outcomes = report.schema.outcomes
    titles = {
        outcome.name: outcome.name
        + (f" in {of}" if (of := "%" if is_probability(report, outcome.name) else outcome.unit) else "")
        for outcome in outcomes
    }
    alone = f": {titles[outcomes[0].name]}{band}" if len(outcomes) == 1 else f": estimates{band}"
    out.text(f"Subject {history.name} {at}{alone}, {since}")
    doses = (
        None if sweep is None else {plan.name: plan.name.removeprefix(f"{sweep.dose.name}=") for plan in report.plans}
    )
    heading = "plan" if sweep is None else labelled(sweep.dose.name, sweep.dose.unit)
    for outcome in outcomes:
        headers, rows = end_table(report, outcome.name, doses, plan=heading)
        title = titles[outcome.name] * (len(outcomes) > 1)
        rows = fold_first(headers, rows, columns_of(sys.stdout))
        out.table(headers, rows, title=title, keys=1 + several, together=1 + (report.truth is not None))
    out.text(*dict.fromkeys(RESTS_ON[note.code] for note in report.diagnostics if note.code in RESTS_ON))
    out.release(2)
    out.more("days", "support", files="picture --plot; page --report")


def _show_steps(out: Output, report: "WhatIfReport", sweep: "Sweep | None") -> None:
    """Print every step: a row per dose, or what plans and rules give, then one model, or several side by side.

    Several models have a column each: estimates of every plan and step, then differences from the reference plan.
    Where the truth is known, it has a column, and each model's root mean squared error a row below.
    """
    from costar_cli.data.schema import labelled
    from costar_cli.questions.tables import answer_table, difference_title, is_probability, survival_table

    outcomes, several = report.schema.outcomes, len(report.models) > 1
    if sweep is not None:
        out.text(f"training range: {sweep.dose.range}")
        for model, outcome in product(report.models, outcomes):
            (_, *heads), by_step = answer_table(report, model, outcome.name)
            times, *answers = zip(*by_step, strict=True)
            doses = [head.removeprefix(f"{sweep.dose.name}=") for head in heads]
            table = [[dose, *answer] for dose, answer in zip(doses, answers, strict=True)]
            unit = "%" if is_probability(report, outcome.name) else outcome.unit
            title = f"{labelled(outcome.name, unit)}, by {model.heading}, by {report.schema.step}"
            out.table([labelled(sweep.dose.name, sweep.dose.unit), *map(str, times)], table, title=title, keys=1)
        return
    rules = (
        f"rule {name}" + f" by {model.label}" * several + f" gives: {words}"
        for model in report.models
        for name, words in report.rules_in_words(model).items()
    )
    out.text(*(f"plan {name}: {words}" for name, words in report.plans_in_words().items()), *rules)
    for outcome in outcomes:
        unit = f" ({outcome.unit})" if outcome.unit else ""
        if several:
            _show_compared(out, report, outcome.name, report.to_rows(), f"{outcome.name}{unit}, by model")
            if len(report.plans) > 1:
                title = f"{outcome.name}{unit}: {difference_title(report, *report.models)}, by model"
                _show_compared(out, report, outcome.name, report.difference_rows(), title)
            continue
        [model] = report.models
        unit = " (%)" if is_probability(report, outcome.name) else unit
        pair = 1 if report.truth is None else 2  # an estimate and its truth
        title = f"{outcome.name}{unit}, by {model.heading}"
        out.table(*answer_table(report, model, outcome.name), title=title, keys=1, together=pair)
        if len(report.plans) > 1:
            title = difference_title(report, model)
            out.table(*answer_table(report, model, outcome.name, differences=True), title=title, keys=1, together=pair)
    if not several and (forecast := report.models[0].survival_forecast):
        title = f"no {' or '.join(forecast.names)} so far, by {report.models[0].heading}"
        out.table(*survival_table(report, report.models[0]), title=title, keys=1)


def _show_compared(out: Output, report: "WhatIfReport", outcome: str, rows: Rows, title: str) -> None:
    from costar_cli.questions.tables import decimals_of, estimate_text, number_text

    mine = [row for row in rows if row["outcome"] == outcome]
    models = [model.label for model in report.models]
    decimals = decimals_of(row["estimate"] for row in mine)
    lines: dict[tuple[object, object], dict[object, Mapping[str, object]]] = {}
    for row in mine:
        lines.setdefault((row["plan"], row["time"]), {})[row["model"]] = row
    with_truth = report.truth is not None
    table = [
        [plan, report.history.when(int(str(time))), *(estimate_text(by_model[model], decimals) for model in models)]
        + [number_text(by_model[models[0]]["truth"], decimals)] * with_truth
        for (plan, time), by_model in lines.items()
    ]
    if with_truth:
        rmse: list[float | None] = []
        for model in models:
            errors = [error for row in mine if row["model"] == model and isinstance(error := row["error"], float)]
            rmse.append(math.sqrt(sum(error**2 for error in errors) / len(errors)) if errors else None)
        table.append(["RMSE", None, *(number_text(error, decimals) for error in rmse), None])
    headings = [model.heading for model in report.models]
    out.table(["plan", report.schema.step, *headings, *["truth"] * with_truth], table, title=title, keys=2)


def show_ratings(out: Output, report: "WhatIfReport") -> None:
    """Print the lights of each model's plans; nothing where no model has any."""
    several = len(report.models) > 1
    for model in report.models:
        if model.plan_ratings is None:
            continue
        horizon = max(map(len, report.plans))
        steps = [str(report.history.origin + h) for h in range(horizon)]
        title = "do the data support the plans?" + (f" ({model.heading})" if several else "")
        rows: list[list[object]] = []
        for plan, ratings in zip(report.plans, model.plan_ratings, strict=True):
            precision = ["-" if rating is None else rating for rating in ratings.worst_precision]
            about: list[str | None] = [plan.name, f"{100 * ratings.like_practice:.0f} %"]
            for name, marks in (("precision", precision), ("practice", ratings.practice), ("support", ratings.worst)):
                rows.append([*about, name, *marks, *[None] * (horizon - len(marks))])
                about = [None, None]
        out.table(["plan", "agreement with observed treatment", "rating", *steps], rows, title=title, keys=3)


def show_cohort(out: Output, result: Mapping[str, Any], *, most: int | None = None) -> None:
    """Print how many were asked about what, and a table of means at the end of 20 plans, or of so many at `most`."""
    from costar_cli.data.findings import counted
    from costar_cli.data.schema import steps_axis
    from costar_cli.questions.answers import MOST_MOMENTS, MOST_QUERIES
    from costar_cli.questions.tables import decimals_of, number_text

    cohort = result["cohort"]
    parts = ", ".join(f"{count:,} of {part}" for part, count in cohort["parts"].items())
    moments = "" if cohort["moments"] == cohort["subjects"] else f", {cohort['moments']:,} origins"
    plans, n, shard = counted(result["plans"], "plan"), result["answers"], result.get("shard")
    if shard and not n:
        out.text(
            f"{counted(cohort['subjects'], 'subject')} ({parts}){moments}: part {shard} has no answers: parts are "
            f"whole chunks of up to {MOST_MOMENTS:,} origins and {MOST_QUERIES:,} answers, and these are fewer"
        )
        return
    out.text(f"{counted(cohort['subjects'], 'subject')} ({parts}){moments}, {plans}: {n:,} answer{'s' * (n != 1)}")
    over = f"mean over part {shard} of the cohort" if shard else "mean over the cohort"
    for label, facts in result["models"].items():
        shown = set(list(dict.fromkeys(row["plan"] for row in facts["plans"]))[: most or MOST_SHOWN])
        rows = [row for row in facts["plans"] if row["plan"] in shown]
        ends: dict[str, list[float]] = {}
        for row in rows:
            ends.setdefault(row["outcome"], []).append(row["mean_at_end"])
        decimals = {outcome: decimals_of(values) for outcome, values in ends.items()}
        lines: list[list[object]] = []
        for row in rows:
            # subjects may have plans of their own of the same name, of other lengths
            shortest, longest = row["answers_per_step"].count(row["answers"]), row["steps"]
            steps = str(longest) if shortest == longest else f"{shortest} to {longest}"
            mean = number_text(row["mean_at_end"], decimals[row["outcome"]])
            lights = (f"{row['support'][rating]:,}" if row["support"] else None for rating in ("amber", "red"))
            lines.append([row["plan"], row["outcome"], steps, mean, row["unit"], *lights])
        headers = ["plan", "outcome", steps_axis(result["step_unit"]), "mean at the end", "unit", "amber", "red"]
        out.table(headers, lines, title=f"{over}, by {label}", keys=2)
        if left := result["plans"] - len(shown):
            out.text(f"and {counted(left, 'more plan')}")


def sensitivity_plot(plot: Path) -> Path:
    """Return the file of the plot of sensitivity, beside that of the estimates."""
    return plot.with_name(f"{plot.stem}-sensitivity{plot.suffix}")


def bounds_of(reports: "Sequence[WhatIfReport]") -> "list[list[Sensitivity]]":
    """Return the bounds of every model's estimates, by report.

    Raises:
        UsageError: a model has no calibration.
    """
    from costar_cli.questions.sensitivity import sensitivity

    return [[sensitivity(answers, abstain=report.abstain) for answers in report.models] for report in reports]


def show_sensitivity(
    session: Session,
    reports: "Sequence[WhatIfReport]",
    bounds: "Sequence[Sequence[Sensitivity]]",
    plot: Path | None,
) -> list[dict[str, Any]]:
    """Print the bounds of estimates, draw those of a single subject, and return them as plain JSON data."""
    from costar_cli.questions.sensitivity import ASSUMPTIONS
    from costar_cli.report.figures.effects import plot_sensitivity

    several, documents = len(reports) > 1, []
    session.out.text(*ASSUMPTIONS)
    for report, found in zip(reports, bounds, strict=True):
        for one in found:
            who = {"subject": report.history.subject, "label": report.history.name} if several else {}
            documents.append(who | one.to_json())
            _show(session, documents[-1], report)
        if plot is not None and len(report.plans) > 1:
            first = plot_sensitivity(report, found[0], sensitivity_plot(plot))
            session.out.wrote("sensitivity", first, kind="plot")
    return documents


def _show(session: Session, document: Mapping[str, Any], report: "WhatIfReport") -> None:
    """Print where the bounds of differences at the last common step reach zero, then a column of bounds per Gamma.

    `document` is what `Sensitivity.to_json` returned. Without details two of the Gammas are shown.
    """
    from costar_cli.data.schema import step_axis
    from costar_cli.questions.sensitivity import flip_words
    from costar_cli.questions.tables import decimals_of, limits_text, number_text

    decimals = {
        outcome.name: decimals_of(row["difference"] for row in document["flips"] if row["outcome"] == outcome.name)
        for outcome in report.schema.outcomes
    }
    limits = {
        (row["plan"], row["outcome"], row["step"], row["gamma"]): limits_text(
            row["lower"], row["upper"], decimals[row["outcome"]]
        )
        for row in document["differences"]
    }
    model, strong = document["model"], [gamma for gamma in document["gammas"] if gamma > 1]
    if not session.out.shows("days"):
        strong = [gamma for gamma in strong if gamma in SHOWN_GAMMAS]
    headers = ["plan", step_axis(report.schema.step), "difference", "flips at", *[f"Gamma {g:g}" for g in strong]]
    for outcome in report.schema.outcomes:
        rows = [
            [row["plan"], row["time"], "left out !", *[None] * (len(strong) + 1)]
            if row["difference"] is None
            else [row["plan"], row["time"], number_text(row["difference"], decimals[outcome.name])]
            + [flip_words(row["gamma"], row["searched_to"])]
            + [limits[row["plan"], outcome.name, row["step"], gamma] for gamma in strong]
            for row in document["flips"]
            if row["outcome"] == outcome.name
        ]
        unit = f" ({outcome.unit})" if outcome.unit else ""
        title = f"{outcome.name}{unit}: difference from `{report.reference}` under hidden confounding, by {model}"
        title += f" (subject {report.history.name})" * ("label" in document)
        if rows:
            session.out.table(headers, rows, title=title, keys=3)
    plans = (
        f"{plan}: probability under observed treatment by step {', '.join(f'{p:.2f}' for p in likely)}"
        for plan, likely in document["probabilities"].items()
    )
    if session.out.shows("days"):
        session.out.text(*plans)
