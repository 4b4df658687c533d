"""Data sets of the Python API: simulated, read from costar's files, or made of files, tables and frames."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from costar_cli.api.calls import PathLikeText, Progress, one_of, reporting, resolved
from costar_cli.artifact import file_sha256
from costar_cli.config.choices import PresetName
from costar_cli.datasets.base import called
from costar_cli.datasets.registry import sources
from costar_cli.errors import DataError, StorageError, UsageError
from costar_cli.panel.dataset import Dataset
from costar_cli.panel.store import made_from
from costar_cli.panel.store import read_dataset as read_stored

if TYPE_CHECKING:
    from costar_cli.datasets.base import DataSource

__all__ = ["ingest", "read_dataset", "simulate"]


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
        name: `tumor`, `linear`, `mimic`, `m5`, or one that an installed package adds.
        preset: `quick`, `default` or `paper`.
        config: a TOML file of settings; arguments overrule it.
        progress: True for progress on stderr, or a `Reporter`.
        **settings: settings of the data set, such as `gamma=10`, `train=1_000` or `seed=1`; `docs/cli.md` lists them.
            `mimic_extract=path` makes `mimic` of that file.

    Raises:
        UsageError: no such data set, an unknown setting, or a value that is not valid.
    """
    one_of(name, sources("simulate"), "name", "data set")
    source = sources("simulate")[name]
    file = settings.pop(source.input.name, None) if source.input else None
    return _made(source, file, settings, preset, config, progress)


def ingest(
    name: str,
    path: PathLikeText,
    *,
    preset: PresetName | None = None,
    config: PathLikeText | None = None,
    progress: Progress = False,
    **settings: object,
) -> Dataset:
    """Make a data set of files in a known form, as `costar ingest NAME PATH` does; `read_table` takes any tables.

    Args:
        name: `mimic` or `m5`, or one that an installed package adds.
        path: MIMIC-Extract's `all_hourly_data.h5`, or the folder of Kaggle's M5 files.
        preset: `quick`, `default` or `paper`.
        config: a TOML file of settings; arguments overrule it.
        progress: True for progress on stderr, or a `Reporter`.
        **settings: settings of the data set; `docs/cli.md` lists them.

    Raises:
        UsageError: no such data set, an unknown setting, or a value that is not valid.
        DataError: the files are missing, or are not what they should be.
    """
    one_of(name, sources("ingest"), "name", "data set")
    return _made(sources("ingest")[name], path, settings, preset, config, progress)


def _made(
    source: "DataSource",
    file: object,
    settings: Mapping[str, object],
    preset: PresetName | None,
    config: PathLikeText | None,
    progress: Progress,
) -> Dataset:
    """Return the data set of a source, of a file where one is given."""
    chosen = resolved(settings, [source.section], preset=preset, config=config).configs[source.section]
    recorded = chosen.model_dump(mode="json")
    with reporting(progress) as reporter:
        if source.input is None or file is None:
            return made_from(source.simulate(chosen, reporter), config=recorded)
        where = f"{source.input.name}="
        if not isinstance(file, str | Path):
            raise UsageError(f"a path is needed, not {type(file).__name__}", where=where)
        if idle := [name for name in source.input.idle if name in settings]:
            problem = f"`{idle[0]}` says nothing where a file is given"
            raise UsageError(problem, where=where, fix="leave one of them out")
        parents = digests_of(source.input.inputs(Path(file)), source.input.expected)
        dataset = called(source.input.make)(chosen, Path(file), reporter)
        kept = {name: value for name, value in recorded.items() if name not in source.input.idle}
        return made_from(dataset, config=kept, parents=parents)


def digests_of(files: Mapping[str, Path], expected: str | None = None) -> dict[str, str]:
    """Return the digest of each file by its role.

    Raises:
        DataError: file not found, and what to do then is known.
        StorageError: a file cannot be read.
    """
    digests = {}
    for role, path in files.items():
        try:
            digests[role] = file_sha256(path)
        except OSError as error:
            if expected and isinstance(error, FileNotFoundError | IsADirectoryError):
                raise DataError("file not found", where=str(path), fix=expected) from None
            raise StorageError(f"the file cannot be read: {error.strerror or error}", where=str(path)) from error
    return digests


def read_dataset(path: PathLikeText) -> Dataset:
    """Read a data set that `costar simulate`, `costar ingest` or `Dataset.save` wrote.

    Raises:
        ArtifactError: file not found, or it is no sound data set.
    """
    return read_stored(Path(path))
