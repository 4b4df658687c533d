"""Where the tables of a benchmark stand in a figure: a line per kind and truth, a column per set-up."""

from collections.abc import Sequence

from costar_cli.benchmark.tables import ResultTable
from costar_cli.evaluate.setups import SETUPS

__all__ = ["in_lines", "title_of"]


def in_lines(tables: Sequence[ResultTable]) -> list[list[ResultTable]]:
    """Return the tables by line; each line holds one kind of row and one kind of truth, in the order of set-ups."""
    keys = dict.fromkeys((table.kind, table.truth) for table in tables)
    order = list(SETUPS)
    return [
        sorted((t for t in tables if (t.kind, t.truth) == key), key=lambda table: order.index(table.setup))
        for key in keys
    ]


def title_of(table: ResultTable) -> str:
    """Return what stands above a panel of our rows."""
    what = "Ablations, " if table.kind == "ablations" else ""
    return f"{what}{table.setup}".capitalize() + f"\n{table.truth}, {table.test}"
