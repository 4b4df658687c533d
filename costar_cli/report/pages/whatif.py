"""The page of a what-if question: what was asked, the answer as figure and table, and how far to trust it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from costar_cli.config import VERSION
from costar_cli.data.schema import labelled, step_axis, step_word, steps_of
from costar_cli.diagnostics import Diagnostic
from costar_cli.inference import RANGE, SUPPORT_LEVELS
from costar_cli.questions.diagnostics import ON_BANDS
from costar_cli.questions.report import WhatIfReport
from costar_cli.questions.sensitivity import ASSUMPTIONS, Sensitivity, flip_words
from costar_cli.questions.tables import (
    answer_table,
    decimals_of,
    estimate_text,
    is_probability,
    rating_reasons,
    rows_of,
    survival_table,
)
from costar_cli.report.pages.page import (
    MOST_NAMED,
    Item,
    Page,
    ReportTable,
    Section,
    listed,
    ratings_mean,
    render,
    svg,
    under_plans,
    warnings_and_notes,
)

FIGURE_INCH: Final = 5.6  # wide: on a phone, all of it is on the screen, and its letters are legible
MOST_HISTORY: Final = 20  # steps before the origin that the page lists
COVERS: Final = (
    "A {level} band covers {level} of new subjects on average, at each step, for subjects like those of its "
    "calibration, under the treatments that such subjects received. It is not a guarantee for a single subject, and it "
    "is unreliable just before an absorbing event or without history."
)
BEYOND: Final = (
    "The guarantee does not extend to plans that no such subject would have followed, to other populations, or to data "
    "in which an unrecorded variable drives both treatment and outcome. Differences between plans compare one subject "
    "with itself, at the same time."
)
NO_BANDS: Final = (
    "No band is shown: {why}. This page does not quantify the error of the estimates.",
    "Estimates hold only if everything that drives both treatment and outcome is in the data.",
)
ABOUT_SURVIVAL: Final = (
    "The probability that the series continues through each step, from mean hazards over possible courses. Outcomes "
    "are those of a subject whose series continues: read the two together."
)
OF_TREATMENT: Final = "Columns are the {step}s of treatment, which affect the outcome from the next {step} on."
SIGNS: Final = {
    "amber": "? behind a number: hardly supported by the data.",
    "red": "! behind a number: not supported by the data.",
}


def whatif_page(
    report: WhatIfReport,
    parents: Mapping[str, str],
    figure_name: str = "answer",
    bounds: Sequence[Sensitivity] = (),
) -> str:
    """Return the page; the same report gives the same text.

    Args:
        report: the answer.
        parents: digests of the data set and the models, by role.
        figure_name: keeps the ids of the figure its own.
        bounds: how far hidden confounding could move differences, by model, where that is asked.
    """
    history, word = report.history, step_word(report.schema.step)
    origin = history.when(history.origin)
    subtitle = f"{report.dataset}, {history.part}, forecast from {word} {origin}, recorded to {history.length - 1}"
    outcomes = [labelled(outcome.name, outcome.unit) for outcome in report.schema.outcomes]
    steps = tuple(
        (
            history.when(t),
            *(None if value != value else float(value) for value in history.outcomes[t]),  # noqa: PLR0124 - NaN
            report.schema.treatments.describe(history.treatments[t]) if t < history.origin else "",
        )
        for t in range(max(0, history.origin + 1 - MOST_HISTORY), history.origin + 1)
    )
    sections = [
        *_about(report, figure_name),
        *_hidden(report, bounds),
        _diagnostics([report]),
        _bands(report),
        Section(
            "History",
            texts=[f"The last {MOST_HISTORY} steps before the forecast, as the models read them."],
            tables=[ReportTable("", "", (step_axis(report.schema.step), *outcomes, "treatment"), steps)],
        ),
        lineage(parents),
    ]
    return render(Page(f"What if: subject {history.name}", subtitle, sections, list(answer_in_words(report))))


def answer_in_words(report: WhatIfReport) -> Iterator[str]:
    """Yield the answer in sentences: outcomes at the end of plans, differences, and what the data support."""
    history, schema, several = report.history, report.schema, len(report.models) > 1
    ends = {plan.name: len(plan) for plan in report.plans}
    when = "At the end of each plan"
    if len({*ends.values()}) == 1:
        steps = len(report.plans[0])
        when = f"After {steps_of(steps, schema.step)} ({step_word(schema.step)} {history.when(history.origin + steps)})"
    for model in report.models:
        by = f", by {model.label}" * several
        for outcome in schema.outcomes:
            for differences in (False, True)[: 1 + (len(report.plans) > 1)]:
                last = [row for row in rows_of(report, outcome.name, differences=differences)
                        if row["model"] == model.label and row["step"] == ends[str(row["plan"])]]  # fmt: skip
                limits = ["lower", "upper"] * (not (differences and model.difference_kind == RANGE))  # without a level
                decimals = decimals_of(row["estimate"] for row in last)
                texts = {
                    str(row["plan"]): estimate_text({name: row[name] for name in ("estimate", *limits)}, decimals)
                    for row in last
                }
                known = {plan: text for plan, text in texts.items() if text is not None}
                unit = "%" if is_probability(report, outcome.name) else outcome.unit
                what = f"{when}{by}, {labelled(outcome.name, '')}"
                if differences:
                    what = f"The difference from {report.reference}{by.lstrip(',')}"
                banded = any(row[side] is not None for row in last for side in limits)
                if known:
                    yield under_plans(what, known, unit, f"{100 * report.level:g} % band" * banded)
        if model.plan_ratings:
            yield support_in_words(
                {plan.name: max(ratings.worst, key=SUPPORT_LEVELS.index)
                 for plan, ratings in zip(report.plans, model.plan_ratings, strict=True)}, by
            )  # fmt: skip


def support_in_words(ratings: Mapping[str, str], by: str = "") -> str:
    """Return which plans the data support, from the worst rating of each; `by` says which model judges it."""
    verbs = dict(zip(SUPPORT_LEVELS, ("support", "hardly support", "do not support"), strict=True))
    plans = {verb: [plan for plan, rating in ratings.items() if rating == level] for level, verb in verbs.items()}
    few = {verb: listed(of) if len(of) <= MOST_NAMED else f"{len(of)} plans" for verb, of in plans.items() if of}
    parts = [f"{verb} {of}" for verb, of in few.items()]
    return f"The data {listed(parts)}{by}."


def subjects_page(
    reports: Sequence[WhatIfReport],
    bounds: Sequence[Sequence[Sensitivity]] = (),
    diagnostics: Sequence[Diagnostic] = (),
) -> str:
    """Return one page about several subjects: of each question, answer and support, then what holds for all.

    `diagnostics` are of the run, such as which subjects were left out.
    """
    sections: list[Section] = []
    for i, report in enumerate(reports):
        whose = f"Subject {report.history.name}"
        whose += f" from {step_word(report.schema.step)} {report.history.when(report.history.origin)}"
        answer, *others = _about(report, f"answer-{i}")
        parts = [replace(answer, texts=list(answer_in_words(report))), *others]
        parts += _hidden(report, bounds[i] if bounds else ())
        sections += [replace(part, title=f"{whose}: {part.title.lower()}") for part in parts]
    first = reports[0]
    sections += [_diagnostics(reports, diagnostics), _bands(first), lineage(first.parents)]
    texts = [f"Subject {one.history.name}. {next(answer_in_words(one), '')}" for one in reports[:MOST_NAMED]]
    texts += [f"{len(reports) - MOST_NAMED} more subjects are below."] * (len(reports) > MOST_NAMED)
    return render(Page(f"What if: {len(reports)} subjects", first.dataset, sections, texts))


def _hidden(report: WhatIfReport, bounds: Sequence[Sensitivity]) -> Iterator[Section]:
    """Yield how strong a hidden confounder changes which plan is better; nothing where that is not asked."""
    tables = []
    for one in bounds:
        rows = tuple(
            (row["plan"], row["outcome"], row["time"], row["difference"], flip_words(row["gamma"], row["searched_to"]))
            for row in one.flips()
            if row["difference"] is not None
        )
        headers = ("plan", "outcome", step_axis(report.schema.step), f"difference from {report.reference}", "flips at")
        tables.append(ReportTable(one.model if len(bounds) > 1 else "", "", headers, rows))
    if tables:
        yield Section("Hidden confounding", texts=[f"{text}." for text in ASSUMPTIONS], tables=tables)


def _about(report: WhatIfReport, figure_name: str) -> list[Section]:
    """Return the answer about a subject, what was asked, and whether the data support it.

    The answer has estimates, then differences, of each model and outcome, and survival.
    """
    from costar_cli.report.figures.whatif import draw_whatif  # noqa: PLC0415 - words of pages need no matplotlib

    answers = list[ReportTable]()
    truth = " Next to each estimate: the simulator's truth." if report.truth is not None else ""
    for model in report.models:
        for outcome in report.schema.outcomes:
            what = f"{labelled(outcome.name, outcome.unit)}, by {model.heading}"
            for differences in (False, True)[: 1 + (len(report.plans) > 1)]:
                title = f"{what}: difference from plan {report.reference}" if differences else what
                headers, rows = answer_table(report, model, outcome.name, differences=differences)
                limits = ", ".join(f"{100 * level:g} %" for level in report.shown_levels(model))
                note = f"In brackets: the {limits} band." if limits else ""
                of_range = f"In brackets: the {RANGE}, which has no level." * (model.difference_kind == RANGE)
                ends = {str(cell)[-2:] for row in rows for cell in row}
                signs = [meaning for meaning in SIGNS.values() if f" {meaning[0]}" in ends]
                note = " ".join([of_range if differences else f"{note}{truth}", *signs]).strip()
                answers.append(ReportTable(title, note, headers, rows))
        if model.survival_forecast:
            headers, rows = survival_table(report, model)
            title = f"No {' or '.join(model.survival_forecast.names)} so far, by {model.heading}"
            answers.append(ReportTable(title, ABOUT_SURVIVAL, headers, rows))
    outcomes = ", ".join(labelled(outcome.name, outcome.unit) for outcome in report.schema.outcomes)
    steps = steps_of(max(len(plan) for plan in report.plans), report.schema.step)
    question = f"What would {outcomes} of this subject be over the next {steps} under each of these plans?"
    compared = f"Differences are from plan {report.reference}." if len(report.plans) > 1 else ""
    plans = [ReportTable("", "", ("plan", "in words"), tuple(report.plans_in_words().items()))]
    for model in report.models:  # what rules choose on the courses of each
        by = f", by {model.label}" if len(report.models) > 1 else ""
        given = tuple(report.rules_in_words(model).items())
        plans.append(ReportTable(f"Treatments under rules{by}" if given else "", "", ("rule", "treatments"), given))
    return [
        Section(
            "Answer",
            pictures=[svg(draw_whatif(report, width_in=FIGURE_INCH), figure_name)],
            tables=answers,
        ),
        Section("Question", texts=[f"{question} {compared}".strip()], tables=plans),
        _support(report),
    ]


def lineage(parents: Mapping[str, str], rows: Sequence[tuple[str, str]] = ()) -> Section:
    """Return the section that lists the files that a page shows."""
    own = (*parents.items(), *rows, ("costar", VERSION))
    about = "Digests of the files that this page shows: `costar verify FILE` and `costar inspect FILE` print them."
    return Section("Lineage", texts=[about], tables=[ReportTable("", "", ("what", "digest or version"), tuple(own))])


def _support(report: WhatIfReport) -> Section:
    """Return whether the data support the plans, and why not."""
    title = "Do the data support the plans?"
    if not any(model.plan_ratings for model in report.models):
        return Section(title, texts=["These models store no support information: fit them again."])
    precision = any(ratings.judges_precision for model in report.models for ratings in model.plan_ratings or ())
    horizon, origin = max(len(plan) for plan in report.plans), report.history.origin
    word, tables = step_word(report.schema.step), []
    headers = ("plan", "treatment overlap", *(f"{word} {origin + h}" for h in range(horizon)))
    for model in report.models:
        if model.plan_ratings:
            rows = tuple(
                (
                    plan.name,
                    f"{100 * ratings.like_practice:.0f} %",
                    *ratings.worst,
                    *[""] * (horizon - len(ratings.worst)),
                )
                for plan, ratings in zip(report.plans, model.plan_ratings, strict=True)
            )
            tables.append(ReportTable(model.heading if len(report.models) > 1 else "", "", headers, rows))
    reasons = [line for model in report.models for line in rating_reasons(report, model)]
    return Section(
        title,
        texts=[ratings_mean("answer, which is an extrapolation", precision=precision), OF_TREATMENT.format(step=word)],
        tables=tables,
        items=[Item(line, "red" if f", {SUPPORT_LEVELS[2]} from " in line else "amber") for line in reasons],
    )


def _bands(report: WhatIfReport) -> Section:
    """Return what bands cover, and the notes on those of this report; or that there are none, and why."""
    title = "What the bands mean"
    particular = ON_BANDS - {"bands-cover", "bands-no-guarantee"}  # which the section says at more length
    own = [Item.of(note) for note in report.diagnostics if note.code in particular]
    shown = _shown(report, report.levels) or _shown(report, report.drawn_levels)  # a figure may have the inner alone
    if shown:
        levels = " or ".join(f"{100 * level:g} %" for level in shown)
        return Section(title, texts=[COVERS.format(level=levels), BEYOND], items=own)
    why = ", ".join(dict.fromkeys(report.interval_kind_of(model) for model in report.models))
    return Section(title, texts=[text.format(why=why) for text in NO_BANDS], items=own)


def _shown(report: WhatIfReport, levels: Sequence[float]) -> list[float]:
    """Return the levels at which any model has a band."""
    found = {level for model in report.models for level in report.shown_levels(model, levels)}
    return [level for level in levels if level in found]


def _diagnostics(reports: Sequence[WhatIfReport], more: Sequence[Diagnostic] = ()) -> Section:
    """Return warnings and notes, each once, but those on bands, which have a section of their own."""
    every = (*more, *(one for report in reports for one in report.diagnostics))
    return warnings_and_notes(one for one in every if one.code not in ON_BANDS)
