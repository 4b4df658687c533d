"""Somebody's own tables as data sets, and data sets as tables (polars)."""

from costar_cli.datasets.table.files import check_path
from costar_cli.datasets.table.ingest import ingest_table, table_config
from costar_cli.datasets.table.inputs import TableInputs

__all__ = ["TableInputs", "check_path", "ingest_table", "table_config"]
