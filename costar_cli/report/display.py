"""Results in notebooks: tables as HTML in which every text is escaped, and figures."""

from typing import TYPE_CHECKING

from costar_cli.data.dataset import Dataset
from costar_cli.effects import EffectReport
from costar_cli.errors import UsageError
from costar_cli.evaluation import EvaluationReport
from costar_cli.questions import WhatIfReport
from costar_cli.questions.effect_tables import end_tables
from costar_cli.questions.search import SearchReport
from costar_cli.questions.tables import end_table
from costar_cli.report.pages.page import ReportTable, fragment
from costar_cli.reporting.display import Displayed

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def html_of(result: Displayed) -> str:
    """Return the line and the tables of a result."""
    tables: list[ReportTable] = []
    if isinstance(result, WhatIfReport):
        for outcome in result.schema.outcomes:
            headers, rows = end_table(result, outcome.name)
            title = f"{outcome.name} at the end of each plan"
            tables.append(ReportTable(title, "", headers, rows))
    elif isinstance(result, SearchReport) and len(result.answers) == 1:
        from costar_cli.report.pages.search import rank_table  # noqa: PLC0415 - it loads matplotlib

        headers, rows = rank_table(result)
        tables = [ReportTable("", "", ("rank", *headers[1:]), rows)]
    elif isinstance(result, EffectReport):
        tables = [ReportTable(table.title, "", table.headers, table.rows) for table in end_tables(result, main=True)]
    elif isinstance(result, EvaluationReport):
        title = f"RMSE in {result.unit.label}" if result.unit.label else "RMSE"
        scored = tuple((row.setup, row.truth, row.label, row.mean.average) for row in result.rows if row.truth)
        tables = [ReportTable(title, "", ("set-up", "questions", "model", "average"), scored)]
    elif isinstance(result, Dataset):
        parts = ((str(part), panel.n_subjects, int(panel.length.sum())) for part, panel in result.panels.items())
        tables = [ReportTable("", "", ("split", "subjects", "steps"), tuple(parts))]
    return fragment(result.headline, tables)


def figure_of(result: Displayed) -> "Figure":
    """Return the figure of a result.

    Raises:
        UsageError: there is no single figure of it.
    """
    if isinstance(result, WhatIfReport):
        from costar_cli.report.figures.whatif import draw_whatif  # noqa: PLC0415 - matplotlib, as below

        return draw_whatif(result)
    if isinstance(result, SearchReport) and len(result.answers) == 1:
        from costar_cli.report.figures.search import draw_search  # noqa: PLC0415

        return draw_search(result)
    if isinstance(result, EffectReport):
        from costar_cli.report.figures.population import draw_effects  # noqa: PLC0415

        return draw_effects(result)
    if isinstance(result, EvaluationReport):
        from costar_cli.report.figures.evaluation import draw_rmse  # noqa: PLC0415

        return draw_rmse(result)
    if isinstance(result, Dataset):
        from costar_cli.data.report import describe_dataset  # noqa: PLC0415
        from costar_cli.report.figures.data import draw_outcomes  # noqa: PLC0415

        report = describe_dataset(result)
        return draw_outcomes(report.outcomes, report.step)
    problem = f"there is no single figure of a {type(result).__name__} of many subjects"
    raise UsageError(problem, where=".plot()", fix="draw that of one of them, as `search_plans` returns it")
