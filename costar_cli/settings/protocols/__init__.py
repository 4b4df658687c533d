"""Published experiments as settings, with their source: a TOML file each, whose tables are those of a `--config` file.

`gamma` are strengths of a sweep, `support` numbers of training subjects with a sweep each; `confirmed` says where
constants were looked up, `differs` what could not be, or is otherwise here.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, get_args

from costar_cli.config.choices import ExperimentName
from costar_cli.settings.presets import flattened

__all__ = ["PublishedProtocol", "protocols", "read_protocol"]


@dataclass(frozen=True, slots=True)
class PublishedProtocol:
    """One experiment: its cells, and where they come from; `values` are settings by full name."""

    name: ExperimentName
    title: str
    citation: str
    dataset: str
    values: Mapping[str, object]
    gamma: str | None = None
    support: tuple[int, ...] = ()
    confirmed: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()


@cache
def read_protocol(name: ExperimentName) -> PublishedProtocol:
    """Return the protocol of a name."""
    document = tomllib.loads((files("costar_cli.settings.protocols") / f"{name}.toml").read_text("utf-8"))
    about: dict[str, Any] = {key: document.pop(key) for key in ("title", "citation", "dataset")}
    lists: dict[str, Any] = {key: tuple(document.pop(key, ())) for key in ("support", "confirmed", "differs")}
    gamma = document.pop("gamma", None)
    return PublishedProtocol(name=name, gamma=gamma, values=dict(flattened(document)), **about, **lists)


def protocols() -> list[PublishedProtocol]:
    """Return all protocols."""
    return [read_protocol(name) for name in get_args(ExperimentName)]
