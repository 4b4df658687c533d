"""The page of a search: what was searched, the best plans, how sure it is which is best, and what was left out."""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Final

import numpy as np

from costar_cli.data.findings import counted, percent
from costar_cli.data.schema import labelled, step_word, steps_of
from costar_cli.inference import RANGE
from costar_cli.plans.plan import in_words
from costar_cli.questions.search import SearchReport
from costar_cli.questions.search.report import SHOWN
from costar_cli.questions.tables import decimals_of, estimate_text
from costar_cli.report.pages.page import Page, ReportTable, Section, ratings_mean, render, svg, warnings_and_notes
from costar_cli.report.pages.whatif import SIGNS, lineage, support_in_words

NOTABLE: Final = 0.1  # probability of being best from which a plan is named that the table does not show
BY = {
    "estimate": "Plans are ranked by their estimate.",
    "upper": "Plans are ranked by the upper limit of their interval.",
    "lower": "Plans are ranked by the lower limit of their interval.",
}
ABOUT_CHANCES = (
    "The probability of being best is among the compared plans, from joint draws: each draw has the same parameters "
    "and the same noise under all plans. It does not cover plans that were not compared."
)
ABOUT_LUCK = (
    "The best of many plans is partly best by chance, so its estimate is optimistic. Estimates hold only if everything "
    "that drives both treatment and outcome is in the data. This is not a guarantee for a single subject."
)


def search_page(report: SearchReport, parents: Mapping[str, str], figure_name: str = "search") -> str:
    """Return the page of one subject's search; the same report gives the same text.

    Args:
        report: the answer.
        parents: digests of the data set and the model, by role.
        figure_name: keeps the ids of the figure its own.
    """
    from costar_cli.report.figures.search import draw_search  # noqa: PLC0415 - matplotlib only where something is drawn

    answer, schema, question = report.answers[0], report.schema, report.question
    part = f"{answer.part}, " if answer.part else ""
    subtitle = f"{report.dataset}, {part}forecast from {step_word(schema.step)} {answer.when}, by {report.label}"
    steps = steps_of(question.candidates.steps, schema.step)
    read = [schema.outcomes[y] for y in sorted({y for _, y in question.objective.concerns})]
    asked = [
        f"Which treatment plan over the next {steps} is best for this subject: {question.objective.text}?",
        f"The objective reads {', '.join(labelled(one.name, one.unit) for one in read)}. {BY[question.by]}",
    ]
    if limits := question.candidates.constraints.texts:
        words = [
            " ".join([flag.strip("-").replace("-", " "), what]) for flag, what in (x.split(" ", 1) for x in limits)
        ]
        asked.append(f"Constraints: {', '.join(words)}.")
    sure = [f"{text[:1].upper()}{text[1:]}." for text in how_sure(report)]
    if answer.best.found and isfinite(answer.best.probability_P[0]):
        sure.append(ABOUT_CHANCES)
    if (answer.best.rating_M >= 0).any():
        sure.append(ratings_mean("plan", precision=report.judges_precision))
    compared = [f"{counted(answer.best.considered, 'plan')} were evaluated for this subject."]
    if question.unsupported:
        compared.append("Plans that the data do not support were also considered (--unsupported).")
    elif question.candidates.constraints.only is None:
        compared.append("Treatments that no training subject received were not considered.")
    if answer.best.left_out and not question.unsupported:
        left, are = counted(answer.best.left_out, "plan"), "is" if answer.best.left_out == 1 else "are"
        why = "the prediction is too imprecise, or " * report.judges_precision
        why += "one of their steps is very rare in the data"
        compared.append(f"{left} with a better estimate {are} left out, since the data do not support them: {why}.")
    best = counted(answer.best.found, "plan")
    compared.append(f"The best {best} of the rest were compared in detail; the table shows the first of them.")
    sections = [
        Section("Best plans", pictures=[svg(draw_search(report), figure_name)], tables=[_ranked(report)]),
        Section("Question", texts=asked),
        Section("Uncertainty", texts=[*sure, ABOUT_LUCK]),
        Section("Plans left out, and why", texts=compared),
        warnings_and_notes(report.diagnostics),
        lineage(parents),
    ]
    return render(Page(f"Search: subject {answer.name}", subtitle, sections, list(_answer(report))))


def _answer(report: SearchReport) -> Iterator[str]:
    """Yield the best plan in sentences: its treatments, objective, probability of being best, and support."""
    [answer] = report.answers
    if not answer.best.found:
        yield f"No plan: {answer.best.why}."
        return
    first, *_, reference = report.rows(answer)
    decimals, question = _decimals(report), report.question
    unit = f" {question.objective.unit}" if question.objective.unit else ""
    best, other = (
        estimate_text({"estimate": row["objective"], "lower": row["lower"], "upper": row["upper"]}, decimals)
        for row in (first, reference)
    )
    chance, sure = first["probability_best"], ""
    if isinstance(chance, float):
        sure = f"; its probability of being best is {100 * chance:.0f} %"
    yield f"The best of {counted(answer.best.considered, 'plan')}: {first['plan']}."
    yield (
        f"Its objective ({question.objective.text}) is estimated at {best}{unit}, against {other}{unit} of "
        f"{report.reference}{sure}."
    )
    if first["support"]:
        yield support_in_words({"it": str(first["support"])})


def rank_table(report: SearchReport) -> tuple[list[str], list[list[object]]]:
    """Return a row per plan of the first subject: rank, plan in words, objective, difference, chance of being best."""
    rows = report.rows(report.answers[0])
    headers = ["", "plan", "objective", "difference", "probability of being best"]
    for at, limit, kind in ((2, "lower", report.objective_kind), (3, "difference_lower", report.difference_kind)):
        what = kind if kind == RANGE else f"{100 * report.question.level:g} %"
        headers[at] += f" ({what})" * any(row[limit] is not None for row in rows)
    lines: list[list[object]] = []
    decimals = _decimals(report)
    for row in rows:
        objective = {"estimate": row["objective"], **{name: row[name] for name in ("lower", "upper", "support")}}
        apart = {"estimate": row["difference"], "lower": row["difference_lower"], "upper": row["difference_upper"]}
        difference = estimate_text(apart, decimals) if row["rank"] else None
        chance = row["probability_best"]
        share = f"{100 * chance:.0f} %" if isinstance(chance, float) else None
        name = row["rank"] or report.reference
        lines.append([name, row["plan"], estimate_text(objective, decimals), difference, share])
    survival = [percent(row.get("survival")) for row in rows]
    if any(survival):
        headers.append("survival")
        lines = [[*line, text] for line, text in zip(lines, survival, strict=True)]
    return headers, lines


def how_sure(report: SearchReport) -> Iterator[str]:
    """Yield margin, expected regret, and how many plans do not differ clearly from the best."""
    best, decimals = report.answers[0].best, _decimals(report)
    if not best.found:
        yield f"{best.why}: add --unsupported to see the others"
        return
    margin, sd = best.margin
    if best.found and best.difference_M[0] == 0 and np.array_equal(best.values_MHA[0], best.values_MHA[-1]):
        yield f"no plan is estimated to be better than {report.reference}"
    if best.found > 1:
        spread = f" (sd {margin_text(sd, decimals)})" if isfinite(sd) else ""
        yield f"the best is estimated to be better than the second by {margin_text(margin, decimals)}{spread}"
    if isfinite(best.regret):
        others = best.alike - 1
        apart = f"{others} other{'s do' if others > 1 else ' does'} not differ clearly from it"
        if best.no_level:
            apart = "nothing measures which of the others differ clearly from it"
        elif not others:
            apart = "all others differ clearly from it"
        regret = f"expected regret {margin_text(best.regret, decimals)}"
        yield f"of the {best.found} best plans, {apart}; {regret}, by {report.question.draws:,} joint draws"
        hidden_P = best.probability_P[SHOWN:]
        if hidden_P.max(initial=0) >= NOTABLE:
            likely = SHOWN + int(hidden_P.argmax())
            words = in_words(report.schema, best.values_MHA[likely], report.answers[0].origin)
            chance = f"{100 * best.probability_P[likely]:.0f} %"
            yield f"not among the first {SHOWN}, but probability of being best {chance}: {words}"


def margin_text(value: float, decimals: int) -> str:
    """Return a number with so many decimals, or what is not 0 with as many as show it."""
    text = f"{value:.{decimals}f}"
    return text if value == 0 or float(text) else f"{value:.1g}"


def _decimals(report: SearchReport) -> int:
    return decimals_of(row[name] for row in report.rows(report.answers[0]) for name in ("objective", "difference"))


def _ranked(report: SearchReport) -> ReportTable:
    headers, rows = rank_table(report)
    ranked = report.rows(report.answers[0])
    ratings = [row["support"] for row in ranked]
    unit = f"Objective in {report.question.objective.unit}." if report.question.objective.unit else ""
    level = f"{100 * report.question.level:g} %"
    why = report.why_no_intervals
    limits = f"In brackets: the {level} interval." if report.objective_kind != RANGE else ""
    limits = f"No intervals: {why}." if why else limits
    if RANGE in (report.objective_kind, report.difference_kind):
        of = "" if report.objective_kind == RANGE else ", of differences"
        limits = f"{limits} In brackets{of}: the {RANGE}, which has no level.".strip()
    signs = [meaning for rating, meaning in SIGNS.items() if rating in ratings]
    note = " ".join([unit, limits, f"Differences are from {report.reference}.", *signs]).strip()
    rated = tuple((*row, rating) for row, rating in zip(rows, ratings, strict=True))
    return ReportTable("", note, ("rank", *headers[1:], "support"), rated)
