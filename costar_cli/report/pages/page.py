"""What a page consists of, and its HTML: no scripts, nothing loaded from elsewhere, every text escaped."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from costar_cli.data.findings import counted
from costar_cli.diagnostics import Diagnostic
from costar_cli.reporting import plain

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup
    from matplotlib.figure import Figure

FITS_INCH: Final = 7.5  # wider figures scroll on a phone, where their letters would be too small
LONG: Final = 48  # letters of a cell that may be broken into lines
MOST_NAMED: Final = 4  # plans of a sentence
Tag = Literal["", "error", "warning", "note", "red", "amber", "green"]


def ratings_mean(what: str, *, precision: bool) -> str:
    """Return what the support ratings of `what` mean; without `precision`, treatment overlap alone decides."""
    often = "similar subjects received such treatment often enough"
    green, or_imprecise = f"{often}; prediction uncertainty is not rated", ""
    if precision:
        green, or_imprecise = f"the answer is precise enough, and {often}", ", or the answer is imprecise"
    return f"Green: {green}. Amber: such treatment is rare{or_imprecise}. Red: the data do not support the {what}."


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table with its title, and a sentence on how to read it; a long one may be folded until a reader opens it."""

    title: str
    note: str
    headers: Sequence[str]
    rows: Sequence[Sequence[object]]
    folded: bool = False

    def style(self, column: int) -> "Markup":
        """Return the attribute of a column's cells: numbers stand on the right, long texts take several lines."""
        from markupsafe import Markup  # noqa: PLC0415 - only where a page is made

        values = [row[column] for row in self.rows]
        texts = ["0" if value is None or isinstance(value, int | float) else str(value) for value in values]
        if any(len(text) > LONG for text in texts):  # also digests, most of which begin with a digit
            return Markup(' class="long"')
        numbers = all(text.lstrip("+-")[:1].isdigit() or text == "not defined" for text in texts)
        return Markup(' class="n"') if numbers else Markup("")


@dataclass(frozen=True, slots=True)
class Item:
    """A line of a list: what it is about (a severity or a rating), its text, and what else to say."""

    text: str
    tag: Tag = ""
    more: str = ""

    @classmethod
    def of(cls, diagnostic: Diagnostic) -> Self:
        """Return the item that shows a diagnostic."""
        return cls(str(replace(diagnostic, fix="")), diagnostic.severity, diagnostic.fix)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page: texts, pictures, tables and a list, in this order; what is empty is not shown."""

    title: str
    texts: Sequence[str] = ()
    pictures: "Sequence[Markup]" = ()
    tables: Sequence[ReportTable] = ()
    items: Sequence[Item] = ()

    @property
    def anchor(self) -> str:
        """Return what links call it."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its title, a line of facts below, the answer in sentences, and its sections."""

    title: str
    subtitle: str
    sections: Sequence[Section]
    answer: Sequence[str] = ()


def listed(texts: Sequence[str]) -> str:
    """Return texts as a sentence lists them: `watch, chemo and both`."""
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


def under_plans(what: str, values: Mapping[str, str], unit: str, interval: str) -> str:
    """Return the sentence that `what` would be of the values by plan; of many plans, the first and how many are left.

    Args:
        what: begins the sentence, such as `After 6 days, tumour volume`.
        values: estimates as text, by plan.
        unit: of the values, nothing where they have none.
        interval: what stands in their brackets, such as `90 % band`; nothing where there are none.
    """
    shown = [f"{value} under {plan}" for plan, value in list(values.items())[:MOST_NAMED]]
    left = len(values) - len(shown)
    about = ", ".join(filter(None, (unit, f"{interval} in brackets" * bool(interval))))
    more = f"; the tables have {counted(left, 'more plan')}" if left else ""
    return f"{what} would be {listed(shown)}{f' ({about})' if about else ''}{more}."


def warnings_and_notes(diagnostics: Iterable[Diagnostic]) -> Section:
    """Return the section of what readers of an answer should know: each once, warnings first."""
    items = [Item.of(one) for one in sorted(dict.fromkeys(diagnostics), key=lambda one: one.severity != "warning")]
    return Section("Warnings and notes", texts=[] if items else ["None."], items=items)


def render(page: Page) -> str:
    """Return a page as HTML; the same page gives the same text."""
    return f"{_template('page').render(page=page)}\n"


def fragment(headline: str, tables: Sequence[ReportTable]) -> str:
    """Return a line and tables as a part of a notebook's page."""
    return _template("tables").render(headline=headline, tables=tables)


def svg(drawn: "Figure", name: str) -> "Markup":
    """Return a figure as an element of a page; `name` keeps its ids its own."""
    from markupsafe import Markup  # noqa: PLC0415 - only where a page is made

    from costar_cli.report.figures.style import as_svg  # noqa: PLC0415 - matplotlib

    text = as_svg(drawn, name)
    if drawn.get_figwidth() <= FITS_INCH:
        text = text.replace("<svg ", '<svg class="fits" ', 1)
    return Markup(text)  # noqa: S704 - matplotlib's own, which escapes the texts in it


@cache
def _template(name: str) -> "Template":
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - only where a page is made

    pages = Environment(
        loader=PackageLoader("costar_cli.report.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters["code"] = _with_code
    return pages.get_template(f"{name}.html.jinja")


def _with_code(text: str) -> "Markup":
    """Return a text in whose HTML the words in backticks are code."""
    from markupsafe import Markup, escape  # noqa: PLC0415 - only where a page is made

    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(plain(text)))))  # noqa: S704 - it is escaped


def _shown(value: Any) -> Any:  # noqa: ANN401 - whatever a template writes
    """Return a value as pages show it: without control characters, or any that turn the line around."""
    if hasattr(value, "__html__"):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return plain(f"{value:,}" if isinstance(value, int) else value)
