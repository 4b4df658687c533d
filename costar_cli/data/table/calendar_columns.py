"""Covariates of the date: weekday, month and hour, each a column of its own (spec TABLE-13; polars)."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from costar_cli.data.schema import Variable
from costar_cli.data.table.context import EncodingContext
from costar_cli.data.table.schema_time import MONTHS
from costar_cli.data.table.variables import Encoded

WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
HOURS: Final = 24


def calendar_columns(context: EncodingContext) -> Iterator[Encoded]:
    """Yield the columns per cell `[M]` that `calendar` in `[time]` asks for, by the clocks of its `zone`."""
    clock = context.schema.time
    if not clock.calendar:
        return
    when_M = context.times
    if clock.parsed.scale == "month":
        month_M, day_M, hour_M = when_M % MONTHS, np.zeros(len(when_M)), np.zeros(len(when_M))
    else:
        local = pl.Series(when_M.astype(np.int64)).cast(pl.Datetime("us"))
        if clock.zone:
            local = local.dt.replace_time_zone("UTC").dt.convert_time_zone(clock.zone)
        month_M, day_M = local.dt.month().to_numpy() - 1, local.dt.weekday().to_numpy() - 1
        hour_M = local.dt.hour().to_numpy() + local.dt.minute().to_numpy() / 60
    if "weekday" in clock.calendar:
        for number, name in enumerate(WEEKDAYS):
            variable = Variable(name=f"weekday={name}", kind="binary", standardize=False)
            yield Encoded(variable, (day_M == number).astype(np.float32))
    for name, value_M, period in (("month", month_M, MONTHS), ("hour", hour_M, HOURS)):
        if name in clock.calendar:
            turn_M = 2 * np.pi * value_M / period
            for wave, values in (("sine", np.sin(turn_M)), ("cosine", np.cos(turn_M))):
                yield Encoded(Variable(name=f"{name}, {wave}", standardize=False), values.astype(np.float32))
