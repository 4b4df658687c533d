"""From records of doses and observations to a table with a row per step or visit, which is ingested as others are.

Arrays are along the records of one series, `R`, its steps or visits, `K`, or its doses, `D`.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from costar_cli.config.nearest import did_you_mean
from costar_cli.data.dataset import Dataset
from costar_cli.data.findings import counted, shown
from costar_cli.data.nonmem.fields import OTHER, Floats, Ints, Mask
from costar_cli.data.nonmem.records import Records, read_records
from costar_cli.data.nonmem.settings import NonmemConfig, RecordsRead, pairs
from costar_cli.data.registry import RESERVED_NAMES
from costar_cli.data.table.files import frame_as_file
from costar_cli.data.table.index import LONGEST
from costar_cli.data.table.ingest import ingest_table
from costar_cli.data.table.inputs import TableInputs
from costar_cli.data.table.new_subjects import ingest_new
from costar_cli.data.table.preprocessing import KEY, Preprocessing
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_file import parse_schema
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import ArtifactError, DataError, MismatchError
from costar_cli.reporting import Reporter

MOST_DOSES: Final = 10_000_000  # that ADDL and SS may stand for
RECORDS: Final = "records"  # of what says how a model's data were read


def ingest_nonmem(settings: NonmemConfig, path: Path, reporter: Reporter) -> Dataset:
    """Make a data set of a file in NONMEM's layout.

    Raises:
        DataError: all that is wrong with its columns and rows, or with the table that they become.
        UsageError: keys of `table` that no schema has.
    """
    records = read_records(path, settings, reporter)
    frame, schema = _table(records, settings, path, reporter)
    inputs = TableInputs([frame_as_file(frame, f"the steps of {path.name}")])
    dataset = ingest_table(inputs, schema, reporter, seed=settings.seed)
    kept: dict[str, Any] = {**dataset.config[KEY]}  # type: ignore[dict-item]
    used = kept["schema"]["columns"]  # without covariates that never change
    texts = {name: values.dtype == pl.String for name, values in records.covariates.items() if name in used}
    read = RecordsRead(settings=settings, outcomes=records.outcomes, doses=records.drugs, covariates=texts)
    kept[RECORDS] = read.model_dump(mode="json")
    return replace(dataset, config={**dataset.config, KEY: kept})


def ingest_new_nonmem(path: Path, like: Preprocessing, reporter: Reporter) -> Dataset:
    """Make a data set of subjects that are new to a model, of a file that is read as its data were.

    Raises:
        MismatchError: the data of the model were no records.
        DataError: whatever differs from them, all at once.
    """
    stored = (like.stored or {}).get(RECORDS)
    if stored is None or like.schema is None:
        fix = "give the new subjects in the form of its data, or as a table: `costar ingest table --like`"
        raise MismatchError(f"`{like.name}` was not made of NONMEM's records", where="--like", fix=fix)
    try:
        read = RecordsRead.model_validate(stored)
    except ValueError:
        problem = "what it says of how its records were read is not as costar wrote it"
        raise ArtifactError(problem, where="preprocessing", fix="ingest the file and train again") from None
    records = read_records(path, read.settings, reporter, read)
    called = {"id": like.schema.named("subject")[0], "time": like.schema.named("time")[0]}
    records = replace(records, names=records.names | called)
    changing = {name for name in records.covariates if like.schema.columns[name].role == "covariate"}
    frame = _rows(records, read.settings, changing, reporter)
    return ingest_new(TableInputs([frame_as_file(frame, f"the steps of {path.name}")]), like, reporter)


def nonmem_table(settings: NonmemConfig, path: Path, reporter: Reporter) -> tuple[pl.DataFrame, TableSchema]:
    """Return the table of a file in NONMEM's layout, with a row per series and step or visit, and its schema."""
    return _table(read_records(path, settings, reporter), settings, path, reporter)


def _table(
    records: Records, settings: NonmemConfig, path: Path, reporter: Reporter
) -> tuple[pl.DataFrame, TableSchema]:
    if unknown := sorted({*pairs(settings.baseline)} - {*records.outcomes}):
        fix = did_you_mean(unknown[0], records.outcomes, quoted=True) or f"outcomes are {shown([*records.outcomes], 8)}"
        raise DataError(f"no outcome is called '{unknown[0]}'", where="--baseline", fix=fix)
    number = (
        pl.DataFrame({"series": records.series_R, **records.covariates})
        .group_by("series")
        .agg(pl.col(name).drop_nulls().n_unique() for name in records.covariates)
    )
    changing = {name for name in records.covariates if (number[name] > 1).any()}
    frame = _rows(records, settings, changing, reporter)
    return frame, _schema(records, settings, changing, frame, path)


def _rows(records: Records, settings: NonmemConfig, changing: set[str], reporter: Reporter) -> pl.DataFrame:
    lay = _Layout(records, settings, changing)
    bounds = np.append(np.flatnonzero(np.diff(records.series_R, prepend=-1)), len(records.series_R))
    frames = [lay.series(number, slice(a, b)) for number, (a, b) in enumerate(pairwise(bounds))]
    made = [frame for frame in frames if frame is not None]
    lay.tell(reporter, empty=len(frames) - len(made))
    return pl.concat(made, how="vertical_relaxed")


@dataclass(eq=False)
class _Layout:
    """How records become rows, and what was counted on the way."""

    records: Records
    settings: NonmemConfig
    changing: set[str]
    counts: Counter[str] = field(default_factory=Counter)

    def series(self, number: int, own: slice) -> pl.DataFrame | None:
        """Return the rows of a series, None where nothing of it was observed."""
        records, settings, counts = self.records, self.settings, self.counts
        time, kind = records.time_R[own], records.kind_R[own]
        seen = records.outcome_R[own] >= 0
        if not seen.any():
            return None
        start, amount, duration, drug = self._doses(number, own)
        if settings.step is None:
            # A visit is where something was measured, given or, of covariates that change, recorded
            when = [time[seen], start]
            if any(name in self.changing for name in records.covariates):
                when.append(time[kind == OTHER])
            at = np.unique(np.concatenate(when))
            until = np.append(at[1:], np.inf)
        else:
            first = min(time[0], start.min(initial=np.inf))
            steps = int((time[-1] - first) / settings.step + 1e-9) + 1
            _refuse_long(steps, records.series_S[number])
            at = np.round(first + settings.step * np.arange(steps), 6)
            until = np.append(at[1:], first + settings.step * steps)
        _refuse_long(len(at), records.series_S[number])
        # Of each record whether a dose at once stands above it at the same time
        at_once = (records.amount_R[own] > 0) & (records.duration_R[own] == 0)
        behind = np.maximum.accumulate(np.where(at_once, time, -np.inf)) == time
        columns: dict[str, Any] = {
            records.names["id"]: [records.series_S[number]] * len(at), records.names["time"]: at
        }  # fmt: skip
        if len(records.series_S) > len(set(records.subject_S)):
            columns["subject"] = [records.subject_S[number]] * len(at)
        for i, name in enumerate(records.outcomes):
            of = records.outcome_R[own] == i
            columns[name] = self._outcome(name, time[of], records.dv_R[own][of], at, start, behind[of])
        for i, name in enumerate(records.drugs):
            columns[name] = delivered(start[drug == i], amount[drug == i], duration[drug == i], at, until)
        for name, values in records.covariates.items():
            columns[name] = carried(values[own], time, at, settings.carry if name in self.changing else "forward")
        counts["steps"] += len(at)
        return pl.DataFrame(columns)

    def _doses(self, number: int, own: slice) -> tuple[Floats, Floats, Floats, Ints]:
        """Return start, amount, duration and drug of each dose of a series, those that ADDL and SS stand for too."""
        records, settings, counts = self.records, self.settings, self.counts
        given = np.flatnonzero(records.amount_R[own] > 0) + own.start
        addl, earlier = records.addl_R[given], np.where(records.steady_R[given] > 0, settings.steady_state, 0)
        repeats = 1 + addl + earlier
        counts["doses"] += len(given)
        counts["steady"] += int((earlier > 0).sum())
        if int(repeats.sum()) + counts["expanded"] > MOST_DOSES:
            problem = f"ADDL and SS stand for more than {MOST_DOSES:,} doses"
            raise DataError(problem, where=f"subject {records.series_S[number]}", fix="correct ADDL and II")
        counts["expanded"] += int(repeats.sum())
        of = np.repeat(given, repeats)
        place = np.arange(len(of)) - np.repeat(np.cumsum(repeats) - repeats + earlier, repeats)
        start = np.round(records.time_R[of] + place * records.interval_R[of], 6)
        within = start <= records.time_R[own][-1]  # what comes after the last record was prescribed, not recorded
        counts["later"] += int((~within).sum())
        of, start = of[within], start[within]
        order = np.argsort(start, kind="stable")
        of, start = of[order], start[order]
        for i in range(len(records.drugs)):
            mine = (records.drug_R[of] == i) & (records.duration_R[of] > 0)
            ends = np.maximum.accumulate(start[mine] + records.duration_R[of][mine])
            counts["overlapping"] += int((start[mine][1:] < ends[:-1]).sum())
        return start, records.amount_R[of], records.duration_R[of], records.drug_R[of]

    def _outcome(
        self, name: str, when: Floats, values: Floats, at: Floats, start: Floats, behind: Mask
    ) -> list[float | None]:
        """Return an outcome's first value of each step, or of each visit; a baseline where it is known without."""
        place = np.searchsorted(at, when, side="right") - 1
        steps, first = np.unique(place, return_index=True)
        made: list[float | None] = [None] * len(at)
        for step, i in zip(steps, first, strict=True):
            made[step] = float(values[i])
        self.counts["values"] += len(steps)
        self.counts["shared"] += len(when) - len(steps)
        self.counts["at dose"] += int(behind[first].sum())
        last = np.searchsorted(start, when[first], side="left") - 1  # the last dose before the value
        self.counts["after"] += int(((last >= 0) & (start[last] >= at[steps])).sum()) if len(start) else 0
        base = pairs(self.settings.baseline)
        if name in base and made[0] is None:
            made[0] = float(base[name])
        return made

    def tell(self, reporter: Reporter, *, empty: int) -> None:
        """Say what was counted."""
        counts, settings = self.counts, self.settings
        if counts["expanded"] > counts["doses"]:
            doses, later = counted(counts["doses"], "record of a dose", "records of doses"), counts["later"]
            reporter.say(Diagnostic.of("doses-repeated", records=doses, doses=counts["expanded"] - later, later=later))
        if counts["steady"]:
            which = counted(counts["steady"], "dose")
            reporter.say(Diagnostic.of("doses-steady", doses=which, earlier=settings.steady_state))
        if counts["overlapping"]:
            reporter.say(Diagnostic.of("infusions-overlap", infusions=counted(counts["overlapping"], "infusion")))
        if counts["shared"]:
            what = "step" if settings.step else "time"
            reporter.say(Diagnostic.of("values-shared", values=counted(counts["shared"], "value"), what=what))
        if counts["at dose"]:
            reporter.say(Diagnostic.of("values-at-dose", at=counts["at dose"], values=counts["values"]))
        if counts["after"] and settings.step:
            reporter.say(Diagnostic.of("values-after-dose", after=counts["after"], values=counts["values"]))
        if empty:
            reporter.say(Diagnostic.of("series-unobserved", series=counted(empty, "series", "series")))
        if settings.carry == "backward" and self.changing:
            reporter.say(Diagnostic.of("covariates-backward", names=shown(sorted(self.changing))))


def delivered(start_D: Floats, amount_D: Floats, duration_D: Floats, at_K: Floats, until_K: Floats) -> Floats:
    """Return how much is given from each time on until the next: doses at once, and of infusions what overlaps.

    What is given at a time counts from that time on: a value measured then was measured before.
    """
    made_K = np.zeros(len(at_K))
    end_D = start_D + duration_D
    first_D = np.searchsorted(at_K, start_D, side="right") - 1
    at_once = duration_D == 0
    np.add.at(made_K, first_D[at_once], amount_D[at_once])
    for start, end, amount in zip(start_D[~at_once], end_D[~at_once], amount_D[~at_once], strict=True):
        share_K = np.clip(np.minimum(end, until_K) - np.maximum(start, at_K), 0, None) / (end - start)
        made_K += amount * share_K
    return made_K


def carried(values: pl.Series, time_R: Floats, at_K: Floats, carry: str) -> pl.Series:
    """Return a covariate at times: its last value until then, or its next one, and the last where none comes.

    Before the first value it is missing, but for doses before the first record: these stand for a steady state.
    """
    known = values.is_not_null().to_numpy()
    when, of = time_R[known], values.filter(pl.Series(known))
    if not len(of):
        return pl.Series([None] * len(at_K), dtype=values.dtype)
    if carry == "forward":
        place = np.searchsorted(when, at_K, side="right") - 1
    else:
        place = np.minimum(np.searchsorted(when, at_K, side="left"), len(of) - 1)
    early = (place < 0) & (at_K < time_R[0]) & (when[0] == time_R[0])
    made = of[np.maximum(place, 0)]
    return made.set(pl.Series((place < 0) & ~early), None)


def _refuse_long(steps: int, name: str) -> None:
    if steps > LONGEST:
        problem = f"a series of {steps:,} steps, more than {LONGEST:,}"
        raise DataError(problem, where=f"subject {name}", fix="correct its times, or give a longer `--step`")


def _schema(
    records: Records, settings: NonmemConfig, changing: set[str], frame: pl.DataFrame, path: Path
) -> TableSchema:
    """Return the schema of the table, with the keys that the settings say otherwise."""
    names = records.names
    columns: dict[str, Any] = {names["id"]: {"role": "subject"}, names["time"]: {"role": "time"}}
    if "subject" in frame.columns:
        columns["subject"] = {"role": "cluster"}
    columns |= {name: {"role": "outcome", "missing": "fill"} for name in records.outcomes}
    columns |= {name: {"role": "treatment", "kind": "continuous"} for name in records.drugs}
    for name in records.covariates:
        values = frame[name].drop_nulls()
        kind = "continuous"
        if values.dtype == pl.String:
            kind = "categorical"
        elif set(values.unique()) <= {0.0, 1.0}:
            kind = "binary"
        column = {"role": "covariate" if name in changing else "static", "kind": kind, "missing": "fill"}
        columns[name] = column | ({"unseen": "other"} if kind == "categorical" else {})
    plain = re.sub(r"[^A-Za-z0-9 _.-]", "-", settings.name or path.stem).strip("-. ")[:64] or "records"
    unit, step = settings.time_unit, settings.step
    if step is None:
        apart = frame.select(pl.col(names["time"]).diff().over(names["id"])).to_series().drop_nulls().unique()
        step = float(apart[0]) if len(apart) == 1 else None  # visits that are all as far apart are steps
    if step is None:
        time: dict[str, Any] = {"step": 1, "gaps": "elapsed", "unit": unit}
    else:
        time = {"step": step, "unit": unit if step == 1 else f"{step:g} {unit}s"}
    tables: dict[str, Any] = {
        "name": f"{plain} data" if plain.casefold() in RESERVED_NAMES else plain, "horizon": settings.horizon,
        "columns": columns, "time": time,
    }  # fmt: skip
    if settings.target:
        tables["domain"] = {"target": settings.target}
    return parse_schema(_merged(tables, tomllib.loads(settings.table)), where="ingest.nonmem.table")


def _merged(made: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Return tables with the keys of others in the place of their own, table by table."""
    inner = {key: _merged(made[key], value) for key, value in said.items()
             if isinstance(value, Mapping) and isinstance(made.get(key), Mapping)}  # fmt: skip
    return {**made, **said, **inner}
