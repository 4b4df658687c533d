"""The page of average effects: the means under plans and their differences, how many answers the data support."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from costar_cli.data.findings import counted, percent
from costar_cli.data.schema import labelled, step_axis, step_word, steps_of
from costar_cli.diagnostics import Diagnostic
from costar_cli.inference import SUPPORT_LEVELS
from costar_cli.plans import TreatmentPlan
from costar_cli.plans.plan import in_words
from costar_cli.questions import AverageEffects
from costar_cli.questions.average_tables import END_DIGITS, at_ends, end_table, step_tables
from costar_cli.questions.tables import decimals_of, estimate_text
from costar_cli.report.pages.page import Page, ReportTable, Section, render, svg, under_plans, warnings_and_notes
from costar_cli.report.pages.whatif import lineage

MOSTLY: Final = 0.5  # of answers, from which the page begins with their lack of support
ABOUT: Final = (
    "Means are over all selected subjects, each under every plan; differences compare each subject with itself. In "
    "brackets: the {level} interval of the mean."
)
ABOUT_SUPPORT: Final = (
    "How many answers the data support at every step of the plan (green), hardly support at some step (amber), or do "
    "not support at some step (red)."
)


def averages_page(
    found: Sequence[AverageEffects],
    dataset: str,
    parents: Mapping[str, str],
    diagnostics: Sequence[Diagnostic] = (),
    figure_name: str = "averages",
) -> str:
    """Return the page; the same averages give the same text.

    Args:
        found: the averages of each model.
        dataset: the name of the data set.
        parents: digests of the data set and the models, by role.
        diagnostics: what a reader should know.
        figure_name: keeps the ids of the figure its own.
    """
    from costar_cli.report.figures.effects import draw_averages  # noqa: PLC0415 - matplotlib only where it is drawn

    first = found[0]
    words = [(plan.name, in_words(first.schema, plan.values, 0) if isinstance(plan, TreatmentPlan) else plan.text)
             for plan in first.plans]  # fmt: skip
    about = ABOUT.format(level=f"{100 * first.levels[0]:g} %")
    plans = ReportTable(
        "",
        f"Steps count from the forecast start, which is {step_axis(first.schema.step)} 0.",
        ("plan", "in words"),
        tuple(words),
    )
    ends, supports = list[ReportTable](), list[ReportTable]()
    for effects in found:
        rows = list(effects.to_rows())
        for outcome in dict.fromkeys(row["outcome"] for row in rows):
            end = end_table(effects, [row for row in rows if row["outcome"] == outcome])
            ends.append(ReportTable(end.title, "", end.headers, end.rows))
        for table in step_tables(effects, rows):
            title = f"Every {step_word(effects.schema.step)}: {table.title}"
            ends.append(ReportTable(title, "", table.headers, table.rows, folded=True))
        if effects.ratings_GPL is not None:
            grouped, several = len(effects.groups) > 1, len(found) > 1
            rated = tuple(
                (*[group] * grouped, plan.name, *effects.ratings_GPL[g, p].tolist())
                for (g, group), (p, plan) in product(enumerate(effects.groups), enumerate(effects.plans))
            )
            headers = (*["group"] * grouped, "plan", *SUPPORT_LEVELS)
            supports.append(ReportTable(effects.label * several, "", headers, rated))
    sections = [
        Section("Answer", texts=[about], pictures=[svg(draw_averages(found), figure_name)], tables=ends),
        Section("Question", tables=[plans]),
        *[Section("Do the data support the plans?", texts=[ABOUT_SUPPORT], tables=supports)] * bool(supports),
        warnings_and_notes(diagnostics),
        lineage(parents),
    ]  # fmt: skip
    units, moments = int(first.units_G[0]), int(first.moments_G[0])
    subtitle = f"{dataset}, {counted(units, first.unit)}, {counted(moments, 'answer')} per plan"
    answer = [text for effects in found for text in _answer(effects, several=len(found) > 1)]
    return render(Page("Average outcomes and effects", subtitle, sections, answer))


def _answer(effects: AverageEffects, *, several: bool) -> Iterator[str]:
    """Yield that most answers lack support, where they do, then overall means and differences at the end of plans."""
    by, reference = f", by {effects.label}" * several, effects.plans[effects.reference].name
    if effects.ratings_GPL is not None:
        share_P = effects.ratings_GPL[0, :, 2] / max(int(effects.moments_G[0]), 1)
        for plan, share in zip(effects.plans, share_P.tolist(), strict=True):
            if share > MOSTLY:
                yield f"The data do not support {percent(share)} of the answers under {plan.name}{by}: extrapolations."
    steps = {len(plan) for plan in effects.plans}
    when = f"After {steps_of(steps.pop(), effects.schema.step)}" if len(steps) == 1 else "At the end of each plan"
    every = [row for row in at_ends(effects, list(effects.to_rows())) if row["group"] == effects.groups[0]]
    for outcome, quantity in product(effects.schema.outcomes, ("outcome", "difference")):
        of = [row for row in every if (row["outcome"], row["quantity"]) == (outcome.name, quantity)]
        rows = [row for row in of if row["estimate"] is not None]
        if not rows:
            continue
        decimals = decimals_of((row["estimate"] for row in rows), digits=END_DIGITS)
        what = f"{when}{by}, mean {labelled(outcome.name, '')}"
        if quantity == "difference":
            what = f"The mean difference from {reference}{by.lstrip(',')}"
        texts = {
            row["plan"]: estimate_text({name: row[name] for name in ("estimate", "lower", "upper")}, decimals) or ""
            for row in rows
        }
        known = any(row["lower"] is not None for row in rows)
        yield under_plans(what, texts, outcome.unit, f"{100 * effects.levels[0]:g} % interval" * known)
