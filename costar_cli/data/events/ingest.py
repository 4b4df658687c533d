"""Data sets of logs of events, and subjects that are new to a model, through the path of tables."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from costar_cli.data.dataset import Dataset
from costar_cli.data.events.log import Events
from costar_cli.data.events.signals import SignalsSchema, parse_signals
from costar_cli.data.events.steps import table_of_events
from costar_cli.data.table.ingest import ingest_table, table_config
from costar_cli.data.table.new_subjects import ingest_new
from costar_cli.data.table.preprocessing import KEY, Preprocessing
from costar_cli.data.table.scratch import told_of_memory
from costar_cli.errors import MismatchError
from costar_cli.reporting import Reporter

SIGNALS = "signals"  # of a data set's config, and of what says how a model's data were read


def events_config(schema: SignalsSchema, seed: int | None) -> dict[str, Any]:
    """Return what makes a data set of events that data set: its signals file and the seed."""
    return table_config(schema.table, seed) | {SIGNALS: dict(schema.stored)}


@told_of_memory()
def ingest_events(events: Events, schema: SignalsSchema, reporter: Reporter, *, seed: int | None = None) -> Dataset:
    """Make a data set of a log of events; `seed` is that of the split, where the log has none.

    Raises:
        DataError: the log cannot be used; the message names codes, subjects and fixes, as many at once as possible.
    """
    inputs, table = table_of_events(events, schema, reporter)
    dataset = ingest_table(inputs, table, reporter, seed=seed)
    kept: dict[str, Any] = {**dataset.config[KEY], SIGNALS: dict(schema.stored)}  # type: ignore[dict-item]
    return replace(dataset, config={**dataset.config, **events_config(schema, seed), KEY: kept})


@told_of_memory()
def ingest_new_events(events: Events, like: Preprocessing, reporter: Reporter) -> Dataset:
    """Make a data set of subjects that are new to a model, of a log that is read as its data were.

    Raises:
        MismatchError: the data of the model were no log of events.
        DataError: whatever differs from them, all at once.
    """
    schema = signals_of(like)
    inputs, _ = table_of_events(events, schema, reporter, new=True)
    return ingest_new(inputs, like, reporter)


def signals_of(like: Preprocessing) -> SignalsSchema:
    """Return the signals of the data of a model.

    Raises:
        MismatchError: they were no log of events.
    """
    stored = (like.stored or {}).get(SIGNALS)
    if not isinstance(stored, Mapping):
        problem = f"`{like.name}` was not made of a log of events"
        raise MismatchError(
            problem, where="--like", fix="give the new subjects as a table: `costar ingest table --like`"
        )
    return parse_signals(stored, where="--like")
