"""A data report as one HTML page and as plain tables; matplotlib is loaded when a page is drawn."""

from costar_cli.figures.data_report.page import ReportTable, report_page, report_tables

__all__ = ["ReportTable", "report_page", "report_tables"]
