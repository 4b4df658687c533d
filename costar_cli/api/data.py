"""Data sets of the Python API: simulated, read from costar's files, or made of files, tables and frames."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costar_cli.api.calls import PathLikeText, Progress, one_of, reporting, resolved
from costar_cli.config.choices import PresetName
from costar_cli.config.models import Config
from costar_cli.data.base import called
from costar_cli.data.dataset import LIKE, Dataset
from costar_cli.data.registry import sources
from costar_cli.data.store import made_from
from costar_cli.data.store import read_dataset as read_stored
from costar_cli.errors import DataError, StorageError, UsageError, refuse_pipe
from costar_cli.files import file_sha256
from costar_cli.files.digest import sha256
from costar_cli.files.frames import as_polars, is_frame
from costar_cli.reporting import Reporter

if TYPE_CHECKING:
    from costar_cli.api.model import Model
    from costar_cli.data.base import DataSource
    from costar_cli.data.table import TableInputs
    from costar_cli.data.table.files import TableFile
    from costar_cli.data.table.preprocessing import Preprocessing
    from costar_cli.files.frames import Frame


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
        name: one that `costar simulate` lists.
        preset: `quick`, `default` or `paper`.
        config: a TOML file of settings; arguments overrule it.
        progress: True for progress on stderr, or a `Reporter`.
        **settings: settings of the data set, such as `gamma=10` or `train=1_000` (`costar settings` lists them);
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
    like: "Model | Dataset | PathLikeText | None" = None,
    preset: PresetName | None = None,
    config: PathLikeText | None = None,
    progress: Progress = False,
    **settings: object,
) -> Dataset:
    """Make a data set of files in a known form, as `costar ingest NAME PATH` does; `read_table` takes any tables.

    Args:
        name: one that `costar ingest` lists, other than `table`.
        path: MIMIC-Extract's `all_hourly_data.h5`, the folder of Kaggle's M5 files, or a file of NONMEM's layout.
        like: of `nonmem` a model, the data set that it was trained on, or the file of either, in place of settings: the
            subjects are new to it, and their records are read as its were.
        preset: `quick`, `default` or `paper`.
        config: a TOML file of settings; arguments overrule it.
        progress: True for progress on stderr, or a `Reporter`.
        **settings: settings of the data set; `costar settings` lists them.

    Raises:
        UsageError: no such data set, an unknown setting, or a value that is not valid.
        MismatchError: the model or data set was not made of such a file.
        DataError: the files are missing, or are not what they should be.
    """
    one_of(name, sources("ingest"), "name", "data set")
    if like is not None:
        kind = sources("ingest")[name].input
        if kind is None or kind.like is None or settings:
            problem = f"`like` and {' and '.join(settings) or f'`{name}`'} do not go together"
            raise UsageError(problem, where="like=", fix="leave one out")
        how, parents = preprocessing_of(like)
        parents |= digests_of(kind.inputs(Path(path)), kind.expected)
        with reporting(progress) as reporter:
            return made_from(called(kind.like)(Path(path), how, reporter), config={LIKE: how.digest}, parents=parents)
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
    path = None
    if source.input is not None and file is not None:
        where = f"{source.input.name}="
        if not isinstance(file, str | PathLike):
            raise UsageError(f"a path is needed, not {type(file).__name__}", where=where)
        if idle := [name for name in source.input.idle if name in settings]:
            problem = f"`{idle[0]}` is about {source.input.stands_for}"
            raise UsageError(problem, where=where, fix="leave one of them out")
        path = Path(file)
    with reporting(progress) as reporter:
        plan = plan_data(source, chosen, path, reporter)
        parents = digests_of(plan.files, source.input.expected if source.input else None)
        return made_from(plan.build(), config=plan.config, parents=parents)


@dataclass(frozen=True)
class DataPlan:
    """A data set to make: the settings that make it this one, the files that it is read from, and making it."""

    config: Mapping[str, Any]
    files: Mapping[str, Path]
    build: Callable[[], Dataset]


def plan_data(source: "DataSource", settings: Config, file: Path | None, reporter: Reporter) -> DataPlan:
    """Return what a data set of the registry is made from: simulated, or of a file where one is given."""
    config = settings.model_dump(mode="json")
    if file is None or source.input is None:
        return DataPlan(config, {}, partial(source.simulate, settings, reporter))
    kept = {name: value for name, value in config.items() if name not in source.input.idle}
    return DataPlan(kept, source.input.inputs(file), partial(called(source.input.make), settings, file, reporter))


def read_table(
    tables: "PathLikeText | Frame | Sequence[PathLikeText | Frame]",
    *,
    schema: "PathLikeText | Mapping[str, object]",
    statics: "PathLikeText | Frame | None" = None,
    queries: "PathLikeText | Frame | None" = None,
    seed: int | None = None,
    accept_guesses: bool = False,
    progress: Progress = False,
) -> Dataset:
    """Make a data set of your own tables, as `costar ingest table` does.

    Args:
        tables: CSV, Parquet, Arrow or Excel files, or frames of pandas or polars, with a row per subject and time.
        schema: a TOML file that says what each column is, or the same as a dictionary (`docs/data-own.md`).
        statics: a table with a row per subject.
        queries: a table of plans whose outcomes are known.
        seed: seed of the split; the schema's by default.
        accept_guesses: take what `costar ingest table --init` guessed and nobody has settled.
        progress: True for progress on stderr, or a `Reporter`.

    Raises:
        UsageError: a schema that is not understood.
        DataError: tables that cannot be used; the message names columns, rows and fixes, as many at once as possible.
    """
    from costar_cli.data.table import ingest_table, table_config
    from costar_cli.data.table.schema_file import parse_schema, read_schema

    if seed is not None and not 0 <= seed < 2**63:
        raise UsageError(f"{seed} is not a valid seed", where="seed=", fix="use a whole number, 0 or larger")
    if isinstance(schema, Mapping):
        parsed = parse_schema(schema, where="schema=")
    else:
        parsed = read_schema(Path(schema), accept_guesses=accept_guesses)
    inputs = _inputs(tables, statics, queries)
    with reporting(progress) as reporter:
        parents = {role: _digest(file) for role, file in inputs.by_role.items()}
        dataset = ingest_table(inputs, parsed, reporter, seed=seed)
        return made_from(dataset, config=table_config(parsed, seed), parents=parents)


def read_new_subjects(
    tables: "PathLikeText | Frame | Sequence[PathLikeText | Frame]",
    *,
    like: "Model | Dataset | PathLikeText",
    statics: "PathLikeText | Frame | None" = None,
    subject: str | None = None,
    time: str | None = None,
    progress: Progress = False,
) -> Dataset:
    """Make a data set of subjects that are new to a model, as `costar ingest table --like` does.

    They are read as the table was that the model learned from: columns, categories, levels of treatments, what stands
    for missing values. One subject is enough; nothing is learned from them.

    Args:
        tables: CSV, Parquet, Arrow or Excel files, or frames of pandas or polars, with a row per subject and time.
        like: the model, the data set that it was trained on, or the file of either.
        statics: a table with a row per subject.
        subject: the column that says whose row it is, where it is not called as in training.
        time: the column of time, likewise.
        progress: True for progress on stderr, or a `Reporter`.

    Raises:
        MismatchError: the model or data set does not hold how its table was read.
        DataError: whatever differs from what the model was trained on, all at once.
    """
    from costar_cli.data.table.new_subjects import ingest_new

    inputs = _inputs(tables, statics, None)
    how, parents = preprocessing_of(like)
    with reporting(progress) as reporter:
        parents |= {role: _digest(file) for role, file in inputs.by_role.items()}
        dataset = ingest_new(inputs, how, reporter, subject=subject, time=time)
        return made_from(dataset, config={LIKE: how.digest}, parents=parents)


def preprocessing_of(like: object) -> tuple["Preprocessing", dict[str, str]]:
    """Return how the table of a model or data set was read, and its digest as a parent."""
    from costar_cli.api.model import Model
    from costar_cli.data.table.preprocessing import Preprocessing, preprocessing_at

    if isinstance(like, Model):
        fitted = like.fitted
        return Preprocessing.of_model(fitted.record, fitted.scaler, fitted.parents), {"like": like.digest}
    if isinstance(like, Dataset):
        return Preprocessing.of_dataset(like), {"like": like.digest} if like.digest else {}
    if isinstance(like, str | PathLike):
        how, header = preprocessing_at(Path(like))
        return how, {"like": header.digest}
    problem = f"subjects cannot be read like {type(like).__name__}"
    raise UsageError(problem, where="like=", fix="give a model, a data set, or the file of one")


def new_dataset(
    model: "Model", frame: "Frame", reporter: Reporter, *, subject: str | None, time: str | None
) -> Dataset:
    """Return the subjects of a frame as a model reads them; without a column of time, rows are steps as they stand.

    A model that does not hold how its table was read finds columns by the names of its variables.

    Raises:
        DataError: whatever differs from what the model was trained on, all at once.
    """
    from costar_cli.data.table.new_subjects import ingest_new
    from costar_cli.data.table.preprocessing import Preprocessing

    fitted = model.fitted
    how = Preprocessing.of_model(fitted.record, fitted.scaler, fitted.parents, insist=False)
    return ingest_new(_inputs(frame, None, None), how, reporter, subject=subject, time=time, ordered=True)


def _inputs(tables: object, statics: object, queries: object) -> "TableInputs":
    """Return files and frames as the inputs of a table."""
    from costar_cli.data.table import TableInputs

    several = list(tables) if isinstance(tables, list | tuple) else [tables]
    names = ["the frame" if len(several) == 1 else f"frame {i}" for i in range(1, len(several) + 1)]
    return TableInputs(
        [_table(table, name) for table, name in zip(several, names, strict=True)],
        None if statics is None else _table(statics, "the statics"),
        None if queries is None else _table(queries, "the queries"),
    )


def _table(table: object, name: str) -> "Path | TableFile":
    """Return a file, or a frame as one.

    Raises:
        UsageError: it is neither.
        DataError: there is no such file.
    """
    from costar_cli.data.table import check_path
    from costar_cli.data.table.files import frame_as_file

    if isinstance(table, str | PathLike):
        path = Path(table)
        check_path(path)
        return path
    if is_frame(table):
        return frame_as_file(as_polars(table), name)
    raise UsageError(
        f"cannot read a table from {type(table).__name__}", fix="give a path, or a frame of pandas or polars"
    )


def _digest(file: "Path | TableFile") -> str:
    """Return the digest of a file, of a frame that of its content as CSV."""
    from costar_cli.data.table.files import ROW

    if isinstance(file, Path):
        return digests_of({"table": file})["table"]
    return sha256(file.scan.collect().drop(ROW).write_csv().encode())


def digests_of(files: Mapping[str, Path], expected: str | None = None) -> dict[str, str]:
    """Return the digest of each file by its role.

    Raises:
        DataError: it is a pipe or a device, or missing, and what to do then is known.
        StorageError: a file cannot be read.
    """
    digests = {}
    for role, path in files.items():
        refuse_pipe(path)
        try:
            digests[role] = file_sha256(path)
        except OSError as error:
            if expected and isinstance(error, FileNotFoundError | IsADirectoryError):
                problem = "this is not a file but a folder" if path.is_dir() else "file not found"
                raise DataError(problem, where=str(path), fix=expected) from None
            raise StorageError(f"the file cannot be read: {error.strerror or error}", where=str(path)) from error
    return digests


def read_dataset(path: PathLikeText) -> Dataset:
    """Read a data set that `costar simulate`, `costar ingest` or `Dataset.save` wrote.

    Raises:
        ArtifactError: the file is missing, or is not a valid data set.
    """
    return read_stored(Path(path))
