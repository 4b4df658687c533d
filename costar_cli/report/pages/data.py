"""A data report as tables, and as one HTML page."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from costar_cli.data.findings import counted, percent
from costar_cli.data.report import DataReport, LevelUse, OutcomeSummary
from costar_cli.data.schema import labelled, steps_axis, steps_of
from costar_cli.report.pages.page import MOST_NAMED, Item, Page, ReportTable, Section, listed, render, svg

if TYPE_CHECKING:
    from costar_cli.inference.overlap import Overlap

LARGE = 0.25  # standardised differences beyond are usually thought to matter
MOST_ROWS = 40
ABOUT_FINDINGS = (
    "Findings of the check before training, on the training splits. Weak overlap means that a level is very rare in "
    "some range of the outcome: estimates there are extrapolations."
)
MOMENTS = ("mean", "sd", "minimum", "5 %", "25 %", "median", "75 %", "95 %", "maximum")


def report_tables(report: DataReport, overlap: "Overlap | None" = None) -> list[ReportTable]:
    """Return the tables that have rows, in the order of a reader's questions."""
    queries = list(dict.fromkeys(name for part in report.parts for name in part.queries))
    lengths = tuple(
        (p.part, p.subjects, p.steps, p.shortest, p.median, p.longest, *(p.queries.get(name) for name in queries))
        for p in report.parts
    )
    headers: tuple[str, ...] = ("split", "subjects", "steps", "shortest", "median", "longest", *queries)
    note = f"Lengths in {steps_axis(report.step)}; further columns count queries."
    made = [ReportTable("Subjects and lengths", note, headers, lengths)]
    parts = list(dict.fromkeys(part for missing in report.missing for part in missing.by_part))
    missing = tuple(
        (m.variable, percent(m.share), m.carried, m.learned, *(percent(m.by_part.get(part)) for part in parts))
        for m in report.missing
    )
    headers = ("variable", "missing", "carried forward", "source-train mean", *parts)
    note = (
        "Missing values that were imputed: with the subject's last value, else with the mean of source-train. "
        "Imputed outcomes are not used as targets."
    )
    made.append(ReportTable("Missing values", note, headers, missing))
    made += _on_treatments(report, overlap)
    headers = ("outcome", "unit", "domain", "observed", *MOMENTS)
    note = (
        "Over the steps at which the outcome was observed; other steps are used neither for training nor for scoring."
    )
    made.append(ReportTable("Outcomes", note, headers, _moments(report.outcomes)))
    shifts = tuple(
        (s.variable, s.role, s.source_mean, s.source_sd, s.target_mean, s.target_sd,
         "not defined" if s.difference is None else f"{s.difference:+.2f}")
        for s in report.shifts[:MOST_ROWS]
    )  # fmt: skip
    headers = ("variable", "role", "source mean", "source sd", "target mean", "target sd", "difference")
    more = f" The {MOST_ROWS} largest of {len(report.shifts)}." if len(report.shifts) > MOST_ROWS else ""
    note = (
        "Standardised mean difference: target minus source, in pooled standard deviations, over all observed steps. "
        f"Values beyond ±{LARGE} are usually considered large.{more}"
    )
    made.append(ReportTable("Shift from source to target", note, headers, shifts))
    return [table for table in made if table.rows]


def _on_treatments(report: DataReport, overlap: "Overlap | None") -> Iterator[ReportTable]:
    """Yield how treatments are used, their doses, the weights that would undo the policy, and outcomes before them."""
    domains = list(dict.fromkeys(use.domain for use in report.treatments))
    by_level: dict[tuple[str, str], dict[str, LevelUse]] = {}
    for use in report.treatments:
        by_level.setdefault((use.treatment, use.level), {})[use.domain] = use
    levels = tuple(
        (treatment, level, *(percent(uses[domain].share) if domain in uses else None for domain in domains))
        for (treatment, level), uses in by_level.items()
    )
    note = "Share of the decisions (steps that have a next one) with each level; the first level is the reference."
    yield ReportTable("Treatments", note, ("treatment", "level", *domains), levels)
    note = "Numeric treatments, over the decisions with a dose; `given` is their share of all decisions."
    yield ReportTable("Doses", note, ("dose", "unit", "domain", "given", *MOMENTS), _moments(report.doses))
    if overlap and overlap.weights:
        weights = tuple(
            (domain, h, step["mean"], step["largest"], percent(step["effective_share"]))
            for domain, steps in overlap.weights.items()
            for h, step in enumerate(steps, start=1)
        )
        note = (
            "Inverse probability weights of the treatments in the training splits, by predicted step. A mean far from "
            "1 or large weights mean that some histories almost determine the treatment. The effective sample is that "
            "of the clipped weights, as a share of all decisions."
        )
        never = [f"Never given in {domain}: {', '.join(what)}." for domain, what in overlap.never.items() if what]
        warned = [f"In {domain}: {words}." for domain, lines in overlap.warnings.items() for words in lines]
        headers = ("domain", "predicted step", "mean weight", "largest weight", "effective sample")
        yield ReportTable("Overlap", " ".join([note, *never, *warned]), headers, weights)
    before = tuple(
        (i.treatment, labelled(i.outcome, i.unit), i.begun, str(i.before), str(i.effect),
         "yes" if i.is_suspect else "no")
        for i in report.indications
    )  # fmt: skip
    note = (
        "Outcome before: how much higher the outcome was just before a treatment started than where none started. "
        "Estimated effect: on the next step, given the history (linear regression). Intervals: 99 %, clustered. The "
        "same sign in both suggests confounding by indication, but does not prove it (see `costar whatif "
        "--sensitivity`)."
    )
    begun = ("treatment", "outcome", "started by", "outcome before", "estimated effect", "suspicious")
    yield ReportTable("Treatments and the outcome before them", note, begun, before)


def _moments(summaries: Sequence[OutcomeSummary]) -> tuple[tuple[object, ...], ...]:
    return tuple((o.outcome, o.unit, o.domain, percent(o.observed), o.mean, o.sd, *o.quantiles) for o in summaries)


def report_page(report: DataReport, overlap: "Overlap | None" = None) -> str:
    """Return the page; the same report gives the same text."""
    from costar_cli.report.figures.data import figures  # noqa: PLC0415 - matplotlib only where something is drawn

    pictures = {title: svg(figure, name) for name, title, figure in figures(report, overlap)}
    subjects = sum(part.subjects for part in report.parts)
    digest = f", data set {report.digest[:12]}" if report.digest else ""
    sections = [
        Section(
            table.title,
            texts=[table.note],
            pictures=[pictures[table.title]] if table.title in pictures else (),
            tables=[replace(table, title="", note="")],
        )
        for table in report_tables(report, overlap)
    ]
    items = [Item.of(finding) for finding in report.findings]
    sections.insert(0, Section("Findings", texts=[ABOUT_FINDINGS, *([] if items else ["No findings."])], items=items))
    subtitle = f"{subjects:,} subjects, {steps_of(report.horizon, report.step)} predicted{digest}"
    counts = Counter(finding.severity for finding in report.findings)
    shown = [counted(counts[kind], kind) for kind in ("error", "warning", "note") if counts[kind]]
    severe = [str(replace(finding, fix="")) for finding in report.findings if finding.severity != "note"]
    answer = [f"The check before training found {listed(shown) if shown else 'nothing'}."]
    answer += [f"{text[:1].upper()}{text[1:]}." for text in severe[:MOST_NAMED]]
    return render(Page(f"Data report: {report.name}", subtitle, sections, answer))
