"""Data sets of the Python API: simulated, read from costar's files, or made of tables and frames."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from costar_cli.api.calls import PathLikeText, Progress, one_of, reporting, resolved
from costar_cli.config.choices import PresetName
from costar_cli.panel.dataset import Dataset
from costar_cli.panel.store import made_from
from costar_cli.panel.store import read_dataset as read_stored

__all__ = ["read_dataset", "simulate"]

_SIMULATORS: Mapping[str, str] = {
    "tumor": "costar_cli.datasets.tumor.simulate:simulate_tumor",
    "linear": "costar_cli.datasets.linear.simulate:simulate_linear",
    "mimic": "costar_cli.datasets.icu.semi_synthetic:simulate_mimic",
    "m5": "costar_cli.datasets.retail.m5:simulate_m5",
}


def simulate(
    name: str,
    *,
    preset: PresetName | None = None,
    config: PathLikeText | None = None,
    progress: Progress = False,
    **settings: object,
) -> Dataset:
    """Simulate a data set whose counterfactual outcomes are known, as `costar simulate NAME` does.

    Args:
        name: `tumor`, `linear`, `mimic` or `m5`.
        preset: `quick`, `default` or `paper`.
        config: a TOML file of settings; arguments overrule it.
        progress: True for progress on stderr, or a `Reporter`.
        **settings: settings of the data set, such as `gamma=10`, `train=1_000` or `seed=1`; `docs/cli.md` lists them.

    Raises:
        UsageError: no such data set, an unknown setting, or a value that is not valid.
    """
    one_of(name, _SIMULATORS, "name", "data set")
    section = f"simulate.{name}"
    chosen = resolved(settings, [section], preset=preset, config=config).configs[section]
    module, _, function = _SIMULATORS[name].partition(":")
    with reporting(progress) as reporter:
        dataset = getattr(import_module(module), function)(chosen, reporter)
        return made_from(dataset, config=chosen.model_dump(mode="json"))


def read_dataset(path: PathLikeText) -> Dataset:
    """Read a data set that `costar simulate`, `costar ingest` or `Dataset.save` wrote.

    Raises:
        ArtifactError: there is no such file, or it is no sound data set.
    """
    return read_stored(Path(path))
