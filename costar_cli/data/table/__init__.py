"""Somebody's own tables as data sets, and data sets as tables (polars)."""

from costar_cli.data.table.files import check_path
from costar_cli.data.table.ingest import ingest_table, table_config
from costar_cli.data.table.inputs import TableInputs

__all__ = ["TableInputs", "check_path", "ingest_table", "table_config"]
