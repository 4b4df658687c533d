"""A data report as tables, and as one HTML page: no scripts, nothing loaded from elsewhere, every text escaped."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from costar_cli.panel.findings import Finding, counted
from costar_cli.panel.report import DataReport, LevelUse

if TYPE_CHECKING:
    from costar_cli.uncertainty.overlap import Overlap

__all__ = ["ReportTable", "report_page", "report_tables"]

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
FINDINGS: Final = "Findings"
STYLE: Final = """
body { font: 15px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; color: #1a1a1a; margin: 2rem auto;
  max-width: 62rem; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin: 0 0 .2rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .3rem; border-top: 1px solid #ddd; padding-top: 1.2rem; }
p { margin: .3rem 0 .8rem; max-width: 46rem; }
.quiet { color: #666; } code { font-size: .85em; }
nav a { margin-right: 1.1rem; color: #0072B2; text-decoration: none; }
.wide { overflow-x: auto; } svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; margin: .6rem 0; }
th, td { padding: .18rem .8rem .18rem 0; text-align: left; border-bottom: 1px solid #eee; white-space: nowrap; }
th { color: #555; font-weight: 600; } td.n, th.n { text-align: right; }
li { margin: .35rem 0; } .tag { font-size: .78rem; font-weight: 600; padding: .05rem .45rem; border-radius: .6rem;
  margin-right: .5rem; color: #fff; }
.error { background: #b00020; } .warning { background: #b35900; } .note { background: #5a6b7b; }
"""

LARGE = 0.25  # standardised differences beyond are usually thought to matter
MOST_ROWS = 40


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table with its title, and a sentence on how to read it."""

    title: str
    note: str
    headers: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


def report_tables(report: DataReport, overlap: "Overlap | None" = None) -> list[ReportTable]:
    """Return the tables that have rows, in the order of a reader's questions."""
    made = [_parts(report), _missing(report), _treatments(report), _outcomes(report), _shifts(report)]
    made[3:3] = [_overlap(overlap)] if overlap else []
    return [table for table in made if table.rows]


def _parts(report: DataReport) -> ReportTable:
    names = list(dict.fromkeys(name for part in report.parts for name in part.queries))
    headers = ("part", "subjects", "steps", "shortest", "median", "longest", *names)
    rows = tuple(
        (p.part, p.subjects, p.steps, p.shortest, p.median, p.longest, *(p.queries.get(name) for name in names))
        for p in report.parts
    )
    note = f"Lengths in steps of one {report.step}; further columns count queries."
    return ReportTable("Subjects and lengths", note, headers, rows)


def _missing(report: DataReport) -> ReportTable:
    parts = list(dict.fromkeys(part for missing in report.missing for part in missing.by_part))
    headers = ("variable", "missing", "from the past", "from source-train", *parts)
    rows = tuple(
        (m.variable, _percent(m.share), m.carried, m.learned, *(_percent(m.by_part.get(part)) for part in parts))
        for m in report.missing
    )
    note = (
        "Values that were missing and were filled in: with the subject's last value, else with source-train's mean. "
        "Filled-in outcomes are not used as targets."
    )
    return ReportTable("Missing values", note, headers, rows)


def _treatments(report: DataReport) -> ReportTable:
    domains = list(dict.fromkeys(use.domain for use in report.treatments))
    by_level: dict[tuple[str, str], dict[str, LevelUse]] = {}
    for use in report.treatments:
        by_level.setdefault((use.treatment, use.level), {})[use.domain] = use
    rows = tuple(
        (treatment, level, *(_percent(uses[domain].share) if domain in uses else None for domain in domains))
        for (treatment, level), uses in by_level.items()
    )
    note = "Share of the decisions (steps that have a next one) with each level; the first level is the reference."
    return ReportTable("Treatments", note, ("treatment", "level", *domains), rows)


def _overlap(overlap: "Overlap") -> ReportTable:
    """Return the weights with which a marginal structural model would undo the policy, and what is said of them."""
    rows = tuple(
        (domain, h, step["mean"], step["largest"], _percent(step["effective_share"]))
        for domain, steps in overlap.weights.items()
        for h, step in enumerate(steps, start=1)
    )
    note = (
        "Inverse probability weights of the treatments in the training parts, by predicted step: a mean far from 1 or "
        "large weights mean that some histories all but settle the treatment; the effective sample is the share of "
        "equally weighted decisions that the clipped ones are worth."
    )
    never = [f"Never given in {domain}: {', '.join(what)}." for domain, what in overlap.never.items() if what]
    warned = [f"In {domain}: {words}." for domain, lines in overlap.warnings.items() for words in lines]
    headers = ("domain", "predicted step", "mean weight", "largest weight", "effective sample")
    return ReportTable("Overlap", " ".join([note, *never, *warned]), headers, rows)


def _outcomes(report: DataReport) -> ReportTable:
    moments = ("mean", "sd", "minimum", "5 %", "25 %", "median", "75 %", "95 %", "maximum")
    rows = tuple(
        (o.outcome, o.unit, o.domain, _percent(o.observed), o.mean, o.sd, *o.quantiles) for o in report.outcomes
    )
    note = "Over the steps where the outcome was observed; other steps are used neither for training nor for scoring."
    return ReportTable("Outcomes", note, ("outcome", "unit", "domain", "observed", *moments), rows)


def _shifts(report: DataReport) -> ReportTable:
    headers = ("variable", "role", "source mean", "source sd", "target mean", "target sd", "difference")
    rows = tuple(_shift_rows(report))
    more = f" The {MOST_ROWS} largest of {len(report.shifts)}." if len(report.shifts) > MOST_ROWS else ""
    note = (
        "Standardised mean difference: target minus source, in pooled standard deviations, over all observed steps. "
        f"Values beyond ±{LARGE} are usually considered large.{more}"
    )
    return ReportTable("Shift from source to target", note, headers, rows)


def _shift_rows(report: DataReport) -> Iterator[tuple[object, ...]]:
    for shift in report.shifts[:MOST_ROWS]:
        difference = "not defined" if shift.difference is None else f"{shift.difference:+.2f}"
        moments = (shift.source_mean, shift.source_sd, shift.target_mean, shift.target_sd)
        yield (shift.variable, shift.role, *moments, difference)


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"


def report_page(report: DataReport, overlap: "Overlap | None" = None) -> str:
    """Return the page; the same report gives the same text."""
    from costar_cli.figures.data_report.charts import figures  # noqa: PLC0415 - matplotlib only where something is drawn
    from costar_cli.figures.style import as_svg  # noqa: PLC0415

    pictures = {title: as_svg(figure, name) for name, title, figure in figures(report, overlap)}
    return "\n".join(_page(report, report_tables(report, overlap), pictures)) + "\n"


def _page(report: DataReport, tables: Sequence[ReportTable], pictures: dict[str, str]) -> Iterator[str]:
    title = f"Data report: {report.name}"
    subjects = sum(part.subjects for part in report.parts)
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>"
    yield f"<h1>{_text(title)}</h1>"
    digest = f", data set <code>{_text(report.digest[:12])}</code>" if report.digest else ""
    steps = counted(report.horizon, "step")
    yield f'<p class="quiet">{subjects:,} subjects, {_text(steps)} of one {_text(report.step)} predicted{digest}</p>'
    links = [(table.title, _anchor(table.title)) for table in tables] + [(FINDINGS, "findings")]
    yield "<nav>" + "".join(f'<a href="#{anchor}">{_text(name)}</a>' for name, anchor in links) + "</nav>"
    for table in tables:
        yield f'<h2 id="{_anchor(table.title)}">{_text(table.title)}</h2>\n<p class="quiet">{_text(table.note)}</p>'
        if table.title in pictures:
            yield f'<div class="wide">{pictures[table.title]}</div>'
        yield from _table(table)
    yield f'<h2 id="findings">{_text(FINDINGS)}</h2>'
    yield from _findings(report.findings)
    yield "</body>\n</html>"


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    yield '<p class="quiet">Findings of the check before training, on the training parts. Weak overlap means that a '
    yield "level is hardly ever given in some range of the outcome: estimates there are extrapolations.</p>"
    if not findings:
        yield "<p>No findings.</p>"
        return
    yield "<ul>"
    for finding in findings:
        place = f"{finding.where}: " if finding.where else ""
        fix = f' <span class="quiet">{_text(finding.fix)}</span>' if finding.fix else ""
        tag = f'<span class="tag {finding.severity}">{finding.severity}</span>'
        yield f"<li>{tag}{_text(place + finding.problem)}{fix}</li>"
    yield "</ul>"


def _table(table: ReportTable) -> Iterator[str]:
    numeric = [all(_is_number(row[i]) for row in table.rows) for i in range(len(table.headers))]
    yield '<div class="wide"><table>'
    yield f"<tr>{_cells('th', table.headers, numeric)}</tr>"
    for row in table.rows:
        yield f"<tr>{_cells('td', row, numeric)}</tr>"
    yield "</table></div>"


def _cells(tag: str, row: Sequence[object], numeric: Sequence[bool]) -> str:
    classes = [' class="n"' if number else "" for number in numeric]
    return "".join(f"<{tag}{c}>{_text(_cell(value))}</{tag}>" for value, c in zip(row, classes, strict=True))


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _is_number(value: object) -> bool:
    text = "0" if value is None or isinstance(value, int | float) else str(value)
    return text.lstrip("+-")[:1].isdigit() or text == "not defined"


def _text(text: object) -> str:
    """Return text that shows as it is: no tags, no control characters, nothing that turns the line around."""
    shown = "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in str(text))
    return escape(shown)


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")
