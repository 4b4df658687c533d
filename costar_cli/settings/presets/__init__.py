"""What each preset changes in the settings, in TOML files beside this; everything else keeps its default.

A file `NAME.toml` is written like a `--config` file. Its `[[for_data]]` tables, and those of `every.toml`, which every
preset takes, hold for models that are trained on the data sets that they name.
"""

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, get_args

from costar_cli.config.choices import PresetName
from costar_cli.methods.entry import Method
from costar_cli.methods.registry import METHODS

if TYPE_CHECKING:
    from costar_cli.data.base import DataSource

__all__ = ["DEFAULT_PRESET", "EVERY", "PRESETS", "flattened", "general_settings", "preset_settings", "read_preset"]

DEFAULT_PRESET: Final[PresetName] = "default"
EVERY: Final = "every"

Values = dict[str, object]


def flattened(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, object]]:
    """Yield every value of nested tables by its full name, `pretrain.encoder.width`."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from flattened(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


@cache
def read_preset(name: str) -> tuple[Values, dict[str, Values]]:
    """Return what a file sets in general, and by data set; of several tables for a data set the later ones win."""
    document = tomllib.loads((files("costar_cli.settings.presets") / f"{name}.toml").read_text("utf-8"))
    for_data: dict[str, Values] = {}
    for table in document.pop("for_data", []):
        for dataset in table.pop("datasets"):
            for_data.setdefault(dataset, {}).update(flattened(table))
    return dict(flattened(document)), for_data


PRESETS: Final[Mapping[PresetName, Mapping[str, object]]] = {
    name: read_preset(name)[0] for name in get_args(PresetName)
}


def general_settings(name: PresetName) -> Values:
    """Return what a preset sets whatever the data, the settings that installed packages add included."""
    from costar_cli.data.registry import installed  # noqa: PLC0415 - pydantic, which `costar --help` does without

    added: list[DataSource | Method] = [*installed().found, *METHODS.values()]
    values = {f"{one.section}.{key}": value for one in added for key, value in one.presets.get(name, {}).items()}
    return {**PRESETS[name], **values}


def preset_settings(name: PresetName, dataset: str | None = None) -> dict[str, tuple[object, str]]:
    """Return what a preset sets, with who says so; later ones win.

    First what holds for a data set under every preset, then what this preset says in general and of this data set.
    """
    here, every, for_data = dataset or "", read_preset(EVERY)[1], read_preset(name)[1]
    return {
        **{key: (value, f"preset {name} for {here}") for key, value in every.get(here, {}).items()},
        **{key: (value, f"preset {name}") for key, value in general_settings(name).items()},
        **{key: (value, f"preset {name} for {here}") for key, value in for_data.get(here, {}).items()},
    }
