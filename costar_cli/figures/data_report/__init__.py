"""A data report as one HTML page and as plain tables; matplotlib is loaded when a page is drawn."""

from costar_cli.figures.data_report.page import report_page
from costar_cli.figures.data_report.tables import ReportTable, report_tables

__all__ = ["ReportTable", "report_page", "report_tables"]
