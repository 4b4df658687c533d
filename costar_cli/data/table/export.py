"""A data set as tables that `costar ingest table` reads back: the long table, its schema, the queries (polars)."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.config.choices import FormatName
from costar_cli.data.dataset import Dataset
from costar_cli.data.dose import Dose
from costar_cli.data.levels import is_switch
from costar_cli.data.panel import Panel
from costar_cli.data.schema import PanelSchema, TreatmentEncoding, Variable
from costar_cli.data.table.schema_column import STEP_WORDS, UNITS
from costar_cli.data.table.schema_file import toml_row, toml_value
from costar_cli.data.table.treatments import dose_column
from costar_cli.data.visits import elapsed_dose
from costar_cli.errors import DataError, MismatchError, storing

Steps = NDArray[np.integer]

DURATIONS: Final = {  # from the longest to the shortest, by the unit of a calendar
    unit: [(length, name) for name, (own, length, _) in reversed(UNITS.items()) if own == scale]
    for unit, scale in (("us", "us"), ("M", "month"))
}
MOST: Final = 99_999  # units of a step
COUNTED: Final = re.compile(r"(?:([1-9]\d*) )?(\w+?)s?")  # `day`, `2 days`


@dataclass(frozen=True, slots=True)
class ExportTimes:
    """How the tables of an export say when steps were.

    Attributes:
        keys: the table `[time]` of the schema that reads them back.
        dated: whether times are dates.
        gap: the time until the next visit, None where steps are of one length.
        column: of the encoded treatments, which tells that time.
    """

    keys: Mapping[str, str]
    dated: bool
    gap: Dose | None
    column: int

    @classmethod
    def of(cls, dataset: Dataset) -> Self:
        """Return how the times of a data set are told; numbers where a schema cannot say its dates."""
        encoding, step = dataset.schema.treatments, _step(dataset)
        gap = elapsed_dose(encoding)
        keys = {"step": step} if step else {}
        keys["unit"] = gap.unit if gap else dataset.schema.step
        forms = {panel.calendar.form for panel in dataset.panels.values() if panel.calendar} if step else set()
        keys |= {"format": min(forms)} if any(forms) else {}
        if gap is not None:
            keys["gaps"] = "elapsed"
        elif step and any(
            (None if panel.calendar is None else panel.calendar.size) is None for panel in dataset.panels.values()
        ):
            keys["gaps"] = "ignore"
        column = encoding.dose_columns[encoding.doses.index(gap)] if gap else 0
        return cls(keys, bool(step), gap, column)

    def at(self, panel: Panel, row_M: Steps, step_M: Steps) -> pl.Series:
        """Return when steps of subjects are: dates as text, time since the first visit, or the steps themselves."""
        if self.dated and panel.calendar is not None:
            texts = panel.calendar.texts(row_M, step_M, panel.length[row_M])
            day = "-01" if panel.calendar.unit == "M" and not panel.calendar.form else ""
            return pl.Series([f"{text}{day}" for text in texts], dtype=pl.String)
        if self.gap is None:
            return pl.Series(step_M, dtype=pl.Int64)
        gap_NT = self.elapsed(panel.treatments).astype(np.float64)
        since_NT = np.cumsum(gap_NT, axis=1) - gap_NT
        return pl.Series(since_NT[row_M, step_M], dtype=pl.Float64)

    def elapsed(self, encoded: NDArray[np.number]) -> NDArray[np.float32]:
        """Return the time until the next visit `[...]` of encoded treatments `[...,A]`, to the last digit."""
        scale = self.gap.scale if self.gap else 1.0
        return np.asarray(encoded[..., self.column] * scale, dtype=np.float32)


def _step(dataset: Dataset) -> str:
    """Return the length of a step as a schema says it; empty where times are not told by dates."""
    calendars = [panel.calendar for panel in dataset.panels.values()]
    known = [calendar for calendar in calendars if calendar is not None]
    if len(known) != len(calendars) or any(calendar.kind != known[0].kind for calendar in known):
        return ""
    for panel, calendar in zip(dataset.panels.values(), known, strict=True):
        row, step = np.nonzero(panel.observed)
        at = calendar.at(row, step, panel.length[row])
        later = (at[1:] > at[:-1]) | (row[1:] != row[:-1])
        if np.isnat(at).any() or not later.all():  # a step without a date, or no later than the one before
            return ""
    gap, unit = elapsed_dose(dataset.schema.treatments), known[0].unit
    if gap is None and known[0].size is None:
        # The duration that is called so, a day or a month for other words: each row is a step, however long
        word = dataset.schema.step
        found = COUNTED.fullmatch(word)
        short = STEP_WORDS.get(found[2], "") if found else ""
        named = f"{(found and found[1]) or 1}{short}"
        return named if short in [name for _, name in DURATIONS[unit]] else {"us": "1d", "M": "1mo"}[unit]
    size = known[0].size if gap is None else gap.microseconds if known[0].size is None else None
    if size is None:
        return ""
    return next((f"{size // n}{name}" for n, name in DURATIONS[unit] if size % n == 0 and 0 < size // n <= MOST), "")


KEYS: Final = ("subject", "time", "domain", "split", "cluster", "set", "query", "origin", "step", "scored")
Names = Mapping[str, str]  # of the columns beside the variables, by what they are


def free_names(schema: PanelSchema) -> Names:
    """Return the plain words, with underscores behind them where a variable has the name."""
    taken = _variables(schema)
    return {word: _free(word, taken) for word in KEYS}


def _taken(schema: PanelSchema, names: Names) -> set[str]:
    """Return what columns are called that are no end and no part of a subject's name."""
    return _variables(schema) | set(names.values())


def _variables(schema: PanelSchema) -> set[str]:
    variables = (*schema.covariates, *schema.outcomes, *schema.statics)
    return {variable.name for variable in variables} | set(schema.treatments.all_names)


def _ends(schema: PanelSchema, names: Names) -> list[str]:
    """Return the columns that mark why series end, one for each end, in their order."""
    taken, columns = _taken(schema, names), list[str]()
    for end in schema.ends:
        columns.append(_free(end.name, taken | set(columns)))
    return columns


def _free(word: str, taken: Collection[str]) -> str:
    while word in taken:
        word += "_"
    return word


def export_files(folder: Path, form: FormatName) -> dict[str, Path]:
    """Return the files that an export may have, by what they are; not all have queries."""
    return {"table": folder / f"table.{form}", "schema": folder / "schema.toml", "queries": folder / f"queries.{form}"}


def export_dataset(
    dataset: Dataset, folder: Path, form: FormatName = "parquet", *, overwrite: bool = False
) -> list[Path]:
    """Write a data set as tables, and return the files: `table`, `schema.toml`, and `queries` where there are any.

    A simulator's truth and what a data set says of its making are left out.

    Raises:
        MismatchError: a file exists and `overwrite` is false.
        StorageError: the folder cannot be written.
    """
    from costar_cli.files import write_bytes  # noqa: PLC0415 - h5py

    files = export_files(folder, form)
    if not any(len(queries) for sets in dataset.queries.values() for queries in sets.values()):
        del files["queries"]
    if not overwrite and (there := [path for path in files.values() if path.exists()]):
        raise MismatchError("the file exists", where=str(there[0]), fix="add --overwrite, or choose another folder")
    names = free_names(dataset.schema)
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _write(dataset_to_frame(dataset, names), files["table"])
        write_bytes(files["schema"], schema_text(dataset, names).encode())
        if "queries" in files:
            _write(queries_to_frame(dataset, names), files["queries"])
    return list(files.values())


def dataset_to_frame(dataset: Dataset, names: Names | None = None) -> pl.DataFrame:
    """Return all parts as one long table: who, when, which split; all variables on each row.

    Times are dates where the data set has them, else numbers. Outcomes that were filled are null, and so
    are covariates for which the last observed value stands. A binary treatment is 0 or 1 unless its levels are numbers
    themselves, any other its level's name; null where none was recorded. Each end has a column, with its name in the
    last rows of series.
    """
    names = names or free_names(dataset.schema)
    labelled = any(panel.label is not None for panel in dataset.panels.values())
    # The split of each step `[T]` by subject: that of its part, by time of the part whose own step it is
    longest = max(panel.n_steps for panel in dataset.panels.values())
    splits: dict[int, NDArray[np.object_]] = {}
    for part, panel in dataset.panels.items():
        since_N = np.zeros_like(panel.length) if panel.since is None else panel.since
        for number, since, length in zip(panel.subject_id.tolist(), since_N, panel.length, strict=True):
            of_steps = splits.setdefault(number, np.full(longest, None, dtype=object))
            of_steps[since:length] = part.split
    schema, times, everyone, frames = dataset.schema, ExportTimes.of(dataset), dataset.everyone, []
    for part, whole in dataset.panels.items():
        own = np.array([place.row for place in everyone if place.part == part], dtype=np.int64)
        if not len(own):
            continue
        split_NT = np.stack([splits[number] for number in whole.subject_id[own].tolist()])
        panel = whole.take(own)
        row, step = np.nonzero(panel.observed)
        columns = _keys(panel, schema, names, row, labelled=labelled) | {
            names["time"]: times.at(panel, row, step),
            names["domain"]: pl.Series([part.domain], dtype=pl.String).gather(np.zeros_like(row)),
            names["split"]: pl.Series(split_NT[row, step].tolist(), dtype=pl.String),
        }
        if panel.cluster is not None:
            columns[names["cluster"]] = pl.Series(panel.cluster[row], dtype=pl.Int64)
        known = np.where(panel.observed_outcomes, panel.outcomes, np.float32("nan"))[row, step]
        columns |= {v.name: pl.Series(known[:, i], nan_to_null=True) for i, v in enumerate(schema.outcomes)}
        columns |= _treatments(panel.treatments[row, step], schema.treatments)
        covariates = np.where(_told_covariates(panel), panel.covariates, np.float32("nan"))[row, step]
        columns |= {v.name: pl.Series(covariates[:, i], nan_to_null=True) for i, v in enumerate(schema.covariates)}
        columns |= {v.name: pl.Series(panel.statics[row, i]) for i, v in enumerate(schema.statics)}
        last = step == panel.length[row] - 1
        for code, (column, end) in enumerate(zip(_ends(schema, names), schema.ends, strict=True), start=1):
            here = pl.Series(last & (panel.ends[row] == code))
            columns[column] = pl.select(pl.when(here).then(pl.lit(end.name))).to_series()
        frames.append(pl.DataFrame(columns))
    return pl.concat(frames)


def queries_to_frame(dataset: Dataset, names: Names | None = None) -> pl.DataFrame:
    """Return all queries as one table: a row per query and step, numbered through each set of queries."""
    names = names or free_names(dataset.schema)
    labelled = any(panel.label is not None for panel in dataset.panels.values())
    count: dict[str, int] = {}
    times, frames = ExportTimes.of(dataset), []
    for part, sets in dataset.queries.items():
        panel = dataset.panels[part]
        for name, queries in sets.items():
            row = queries.subject.astype(np.int64)
            asked = _keys(panel, dataset.schema, names, row, labelled=labelled)
            asked[names["origin"]] = times.at(panel, row, queries.origin.astype(np.int64))
            schema = dataset.schema
            first = count.get(name, 0)
            tau = queries.horizon
            query = np.repeat(np.arange(len(queries)), tau)
            columns = {
                names["set"]: pl.Series([name], dtype=pl.String).gather(np.zeros_like(query)),
                names["query"]: pl.Series(query + first, dtype=pl.Int64),
                **{key: series.gather(query) for key, series in asked.items()},
                names["step"]: pl.Series(np.tile(np.arange(1, tau + 1), len(queries)), dtype=pl.Int64),
            }
            plan = queries.plan.reshape(-1, queries.plan.shape[-1])
            columns |= _treatments(plan, schema.treatments)
            columns |= {times.gap.name: pl.Series(times.elapsed(plan))} if times.gap else {}
            for i, variable in enumerate(schema.outcomes):
                known = queries.outcomes is not None
                values = queries.outcomes[..., i].ravel() if queries.outcomes is not None else [None] * len(query)
                columns[variable.name] = pl.Series(values, dtype=pl.Float32, strict=known)
            scored = np.zeros(len(query), dtype=bool) if queries.scored is None else queries.scored.ravel()
            frames.append(pl.DataFrame(columns | {names["scored"]: pl.Series(scored).cast(pl.Int8)}))
            count[name] = count.get(name, 0) + len(queries)
    return pl.concat(frames)


def query_file(path: Path, digest: str) -> Path:
    """Return where the queries of a data set go: in a folder, to a file that is named after its digest.

    Raises:
        UsageError: the name is no table's.
    """
    from costar_cli.files.tables import check_table_name  # noqa: PLC0415 - h5py

    path = path / f"queries-{digest[:8]}.parquet" if path.is_dir() else path
    check_table_name(path, flag="--queries")
    return path


def write_queries(dataset: Dataset, path: Path) -> None:
    """Write the queries of a data set as a table without answers.

    Raises:
        DataError: it has none.
    """
    if not any(len(queries) for sets in dataset.queries.values() for queries in sets.values()):
        raise DataError("the data set has no queries", where=str(path), fix="make one whose test splits have some")
    _write(queries_to_frame(dataset).drop(outcome.name for outcome in dataset.schema.outcomes), path)


def schema_text(dataset: Dataset, names: Names | None = None) -> str:
    """Return the schema that reads the tables back, as TOML."""
    names = names or free_names(dataset.schema)
    schema, panels = dataset.schema, dataset.panels.values()
    # A name that a data set may have
    kept = "".join(c if c.isascii() and (c.isalnum() or c in " _.-") else "-" for c in dataset.name).strip()
    keys = [*schema.keys_of([], _taken(schema, names))]
    lines = [
        "# Written by `costar inspect --export`; read back with `costar ingest table`.",
        toml_row("name", f"{kept[:55]} export".lstrip(" _.-") if kept else "export"),
        toml_row("horizon", dataset.horizon),
        toml_row("min_length", 1),
        toml_row("constant", "keep"),
        toml_row("blank", []),
        *([toml_row("subject", keys)] if keys else []),
        "\n[columns]",
        *([] if keys else [toml_row(names["subject"], {"role": "subject"})]),
        toml_row(names["time"], {"role": "time"}),
    ]
    if any(part.domain == "target" for part in dataset.panels):
        lines.append(toml_row(names["domain"], {"role": "domain", "source": "source", "target": "target"}))
    lines.append(toml_row(names["split"], {"role": "split"}))
    if any(panel.cluster is not None for panel in panels):
        lines.append(toml_row(names["cluster"], {"role": "cluster"}))
    for i, variable in enumerate(schema.outcomes):
        filled = any((~panel.observed_outcomes[panel.observed][:, i]).any() for panel in panels)
        how = {"missing": "fill", "indicator": False} if filled else {}
        lines.append(toml_row(variable.name, {**_column("outcome", variable), **how}))
    encoding = schema.treatments
    for name, levels in zip(encoding.names, encoding.levels, strict=True):
        lines.append(toml_row(name, {"role": "treatment", "levels": list(levels)}))
    lines += [toml_row(dose.name, dose_column(dose)) for dose in encoding.doses if dose.elapsed is None]
    for i, variable in enumerate(schema.covariates):
        filled = any((~_told_covariates(panel)[panel.observed][:, i]).any() for panel in panels)
        how = {"missing": "fill", "indicator": False} if filled else {}
        lines.append(toml_row(variable.name, {**_column("covariate", variable), **how}))
    lines += [toml_row(variable.name, _column("static", variable)) for variable in schema.statics]
    for column, end in zip(_ends(schema, names), schema.ends, strict=True):
        lines.append(toml_row(column, {"role": "event" if end.terminal else "censored"}))
    lines += ["\n[time]", *(toml_row(key, value) for key, value in ExportTimes.of(dataset).keys.items())]
    if any(panel.since is not None for panel in panels):
        lines += ["\n[split]", toml_row("by", "time")]
    lines += ["\n[treatments]", toml_row("mode", encoding.mode)]
    if encoding.classes:
        rows = [[known[i] for known, i in zip(encoding.levels, row, strict=True)] for row in encoding.classes]
        lines += ["classes = [", *(f"  {toml_value(labels)}," for labels in rows), "]"]
    lines += ["\n[queries]", toml_row("rolling_origin", False)]
    lines += [toml_row(word, names[word]) for word in ("set", "query", "origin", "step", "scored")]
    lines += ["\n[error_unit]", *(toml_row(key, value) for key, value in schema.error_unit.model_dump().items())]
    return "\n".join(lines) + "\n"


def _write(frame: pl.DataFrame, path: Path) -> None:
    from costar_cli.files.tables import table_file  # noqa: PLC0415 - h5py

    with table_file(path) as table:
        table.write(frame.to_dict())


def _keys(
    panel: Panel, schema: PanelSchema, names: Names, row_M: NDArray[np.integer], *, labelled: bool
) -> dict[str, pl.Series]:
    """Return the columns that say whose each row is, of which subjects' names are made where they are several."""
    if not schema.subject:
        own = pl.Series(panel.names, dtype=pl.String) if labelled else pl.Series(panel.subject_id, dtype=pl.Int64)
        return {names["subject"]: own.gather(row_M)}
    keys = schema.keys_of(panel.names, _taken(schema, names))
    return {name: pl.Series(key, dtype=pl.String).gather(row_M) for name, key in keys.items()}


def _told_covariates(panel: Panel) -> NDArray[np.bool_]:
    """Return which covariates `[N,T,X]` are written: not those that ingesting fills with the same value again."""
    seen_NTX = panel.observed_covariates
    return np.asarray(seen_NTX | (seen_NTX.cumsum(axis=1) == 0))


def _treatments(encoded: NDArray[Any], treatments: TreatmentEncoding) -> dict[str, pl.Series]:
    values = treatments.decode(encoded)
    recorded = pl.Series(encoded.any(axis=-1) | (treatments.mode == "multilabel"))
    columns = {}
    for i, (name, levels) in enumerate(zip(treatments.names, treatments.levels, strict=True)):
        if is_switch(levels):
            series = pl.Series(values[:, i], dtype=pl.Int8)
        else:
            series = pl.Series(levels, dtype=pl.String).gather(values[:, i])
        columns[name] = series
    for i, dose in enumerate(treatments.doses, start=len(treatments.names)):
        if dose.elapsed is None:  # visits are told by their times
            columns[dose.name] = pl.Series(values[:, i], dtype=pl.Float64)
    return {name: pl.select(pl.when(recorded).then(said)).to_series() for name, said in columns.items()}


def _column(role: str, variable: Variable) -> Mapping[str, object]:
    column: dict[str, object] = {"role": role, "kind": variable.kind}
    if variable.unit:
        column["unit"] = variable.unit
    if variable.transform:
        column["transform"] = variable.transform
    if variable.standardize != (variable.kind != "binary"):
        column["standardize"] = variable.standardize
    return column
