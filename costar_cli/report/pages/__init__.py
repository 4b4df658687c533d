"""Reports as HTML pages that stand alone: of data, of a what-if question, of a search, of a model."""

from costar_cli.report.pages.data import report_page, report_tables

__all__ = ["report_page", "report_tables"]
