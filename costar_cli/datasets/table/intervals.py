"""Tables with a row per interval `(start, stop]`: the end of each subject's last one is a step of its own.

Spec SURV-6. What a row says was given from its start on, and an event that it marks came at its stop.
"""

from collections.abc import Collection
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.datasets.table.context import Mask, Table
from costar_cli.datasets.table.index import TOLERANCE, Ints
from costar_cli.datasets.table.parse import wrong_values
from costar_cli.datasets.table.schema import TableSchema
from costar_cli.datasets.table.schema_column import ENDS
from costar_cli.panel.findings import Finding
from costar_cli.reporting import Reporter

PAIRS: Final = tuple(
    pair.split("/") for pair in ("start/stop", "start/end", "tstart/tstop", "tstart/tend", "begin/end", "t0/t1",
                                 "time1/time2", "from/to", "entry/exit")
)  # fmt: skip
"""What the two ends of an interval are usually called."""


def tell_of_unused(columns: Collection[str], schema: TableSchema, reporter: Reporter) -> None:
    """Warn where events are marked in rows, and the names of columns say that each row is an interval."""
    start, low = schema.in_file(schema.named("time")[0]), {name.lower(): name for name in columns}
    marked = any(not schema.columns[name].at for name in schema.named(*ENDS))
    stops = [low[stop] for begin, stop in PAIRS if start.lower() == begin and stop in low]
    unused = [name for name in stops if name not in schema.file_columns]
    if marked and unused and not schema.time.stop:
        reporter.warn(
            f"column '{unused[0]}' is not used: if a row is an interval from `{start}` to it, an event of the row came "
            f'at its end, after its treatment; say so by `stop = "{unused[0]}"` in [time]'
        )


def wrong_intervals(table: Table, schema: TableSchema) -> list[Finding]:
    """Find intervals without an end, that end before they begin, and that reach into the subject's next one."""
    name = schema.time.stop
    if not name:
        return []
    keys, column = table.keys, table.column(name)
    cells = np.flatnonzero(keys.row >= 0)
    start_C, stop_C = table.times[keys.row[cells]], column.fill_null(0).to_numpy()[cells]
    missing_C: NDArray[np.bool_] = column.is_null().to_numpy()[cells]
    next_C = np.append(keys.subject[cells][1:] == keys.subject[cells][:-1], [False])
    over_C = next_C & (stop_C - np.roll(start_C, -1) > TOLERANCE * schema.time.parsed.size)
    begin = schema.in_file(schema.named("time")[0])
    kinds = (
        (missing_C, "missing", "give each row the end of its interval"),
        (~missing_C & (stop_C <= start_C), f"not after `{begin}` of their row", "correct the times"),
        (~missing_C & over_C, f"after `{begin}` of the subject's next row", "intervals of a subject do not overlap"),
    )
    found = []
    for wrong_C, what, fix in kinds:
        if wrong_C.any():
            wrong_M = np.zeros(len(keys.row), dtype=bool)
            wrong_M[cells] = wrong_C
            found.append(wrong_values(name, wrong_M, what, table.place, fix))
    return found


def at_stops(table: Table, code_M: Ints, nothing: int) -> Ints:
    """Return marks of rows `[M]` where their intervals end: at the next cell, of last rows at the subject's last cell.

    Those whose end was cut off are `nothing`.
    """
    keys, moved_M = table.keys, np.full_like(code_M, nothing)
    marked = np.flatnonzero(code_M != nothing)
    subject = keys.subject[marked]
    end = keys.first + keys.length - 1
    to = np.where(marked == table.last_rows[subject], end[subject], marked + 1)
    there = (to > marked) & (to <= end[subject])
    moved_M[to[there]] = code_M[marked[there]]
    return moved_M


def added_ends(table: Table) -> Mask:
    """Return the cells `[M]` behind the last row of a subject that are its last ones: nothing was recorded there."""
    added: Mask = table.keys.last_of_subject & (table.keys.row < 0)
    return added
