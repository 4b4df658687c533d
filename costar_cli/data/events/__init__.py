"""Logs of clinical events as data sets: which events make which signal, and what they become per step (polars)."""

from costar_cli.data.events.log import Events
from costar_cli.data.events.signals import SignalsSchema, parse_signals, read_signals
from costar_cli.data.events.steps import table_of_events

__all__ = ["Events", "SignalsSchema", "parse_signals", "read_signals", "table_of_events"]
