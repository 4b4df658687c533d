"""Queries with known answers, from a file of a row per query and step (polars)."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.data.dataset import Part
from costar_cli.data.findings import counted, invalid, raise_errors, shown
from costar_cli.data.queries import Plans, Queries, as_plans
from costar_cli.data.schema import TreatmentEncoding
from costar_cli.data.table.context import EncodingContext, Mask
from costar_cli.data.table.files import TableFile, open_files
from costar_cli.data.table.index import Ints, Subjects
from costar_cli.data.table.inputs import no_column, reading_of, with_subject
from costar_cli.data.table.parse import Reading, Rows, read_rows, unreadable, wrong_values
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_column import Role
from costar_cli.data.table.treatments import class_numbers, level_codes, unknown_level
from costar_cli.data.table.written import Written
from costar_cli.data.visits import ELAPSED
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError
from costar_cli.reporting import Reporter

ROLES: Final[tuple[Role, ...]] = ("treatment", "outcome")
ONE_SET: Final = "known"
SET_NAME: Final = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)  # what a stored data set accepts
LONGEST: Final = 1_000  # steps of a query


def read_queries(
    path: Path | TableFile, context: EncodingContext, encoding: TreatmentEncoding
) -> dict[Part, dict[str, Queries]]:
    """Return the query sets of a file, by part and name.

    Raises:
        DataError: rows that cannot be read, unknown subjects or origins, queries with missing steps.
    """
    schema = context.schema
    names = [reading.column for reading in _readings(schema, None).values()]
    named = {*names, *(schema.subject or ())}
    file = with_subject(open_files([path], "the query file", names=named, written=Written.of(schema))[0], schema)
    readings = _readings(schema, file.columns)
    lacking = [no_column(r.column, file) for r in readings.values() if r.column not in file.columns]
    raise_errors(lacking, what="the query file")
    rows = read_rows([file], readings.values(), schema.blank)
    if not rows.height:
        raise DataError("there are no queries", where=file.name, fix="give one row per query and step")
    findings = unreadable(rows, readings.values())
    findings += [
        wrong_values(r.column, missing, "missing", rows.place, "each row of a query needs one")
        for key, r in readings.items()
        if not key.startswith("outcome ") and key != "scored" and (missing := rows.series(r).is_null()).any()
    ]
    raise_errors(findings, what="the query file")
    table = _QueryTable.of(rows, readings)
    who, gone = _subjects(table, context.table.keys.subjects, context.reporter)
    raise_errors(table.problems(), what="the query file")
    part_Q = np.where(gone, -1, context.part[who])
    groups: dict[tuple[Part, str], Ints] = {}
    for number, part in enumerate(Part.all()):
        for name in table.sets:
            chosen = np.flatnonzero((part_Q == number) & (table.set_of_query == name))
            if len(chosen):
                groups[part, name] = chosen
    origin, found = _origins(table, context, who, gone)
    plan, more = _plans(table, encoding)
    raise_errors(_lengths(table, groups, schema.horizon) + found + more, what="the query file")
    outcomes, scored = table.answers()
    place = context.place
    sets: dict[Part, dict[str, Queries]] = {}
    for (part, name), chosen in groups.items():
        rows_QH = table.cells(chosen)
        known = not np.isnan(outcomes[rows_QH]).all()  # a set without any answer has none
        sets.setdefault(part, {})[name] = Queries(
            subject=place[who[chosen]].astype(np.int32),
            origin=origin[chosen].astype(np.int16),
            plan=plan[rows_QH],
            outcomes=np.nan_to_num(outcomes[rows_QH]).astype(np.float32) if known else None,
            scored=scored[rows_QH] if known else None,
        )
    return sets


def _lengths(table: "_QueryTable", groups: Mapping[tuple[Part, str], Ints], horizon: int) -> list[Diagnostic]:
    """Find sets whose queries have more steps than are predicted, or different numbers of them."""
    findings = []
    for (part, name), chosen in groups.items():
        steps = table.steps[chosen]
        if (steps != steps[0]).any():
            place = table.place(int(table.first[chosen[int((steps != steps[0]).argmax())]]))
            problem = f"queries of set '{name}' on {part} have {steps.min()} to {steps.max()} steps"
            findings.append(invalid(problem, place, "use one length per set, or several sets"))
        elif steps[0] > min(horizon, LONGEST):
            problem = f"queries of set '{name}' have {steps[0]} steps, more than the horizon of {horizon}"
            findings.append(invalid(problem, "", "raise `horizon`, or leave the later steps out"))
    return findings


def _readings(schema: TableSchema, columns: Collection[str] | None) -> dict[str, Reading]:
    """Return how to read each column, by what it is; of `set`, `query` and `scored` those that are there."""
    named = schema.queries
    readings = {
        "subject": Reading(schema.named("subject")[0], "text"),
        "origin": Reading.of_time(named.origin, schema.time),
        "step": Reading(named.step, "number"),
    }
    optional = {"set": Reading(named.set, "text"), "query": Reading(named.query, "text")}
    optional |= {"scored": Reading(named.scored, "binary")}
    if schema.time.gaps == "elapsed":
        optional[f"treatment {ELAPSED}"] = Reading(ELAPSED, "number")
    readings |= {key: reading for key, reading in optional.items() if columns is None or reading.column in columns}
    plain = schema.model_copy(update={"events": None})
    for role in ROLES:
        own = {f"{role} {name}": reading_of(plain, name) for name in schema.named(role)}
        for key, reading in own.items():
            number = role == "outcome" or key.removeprefix("treatment ") in schema.doses
            readings[key] = replace(reading, as_="number" if number else "text")
    return readings


@dataclass(frozen=True, eq=False)
class _QueryTable:
    """The rows in the order of queries and steps; `first [Q]` is where each query begins, `steps [Q]` how many it has.

    Queries are ordered by set, then by their number or text, then by subject and origin.
    """

    rows: Rows
    readings: Mapping[str, Reading]
    order: Ints
    first: Ints
    steps: Ints
    step: Ints
    set_of_query: NDArray[np.str_]

    @classmethod
    def of(cls, rows: Rows, readings: Mapping[str, Reading]) -> "_QueryTable":
        key = pl.DataFrame(
            {
                "set": rows.series(readings["set"]) if "set" in readings else pl.Series([ONE_SET] * rows.height),
                "query": rows.series(readings["query"]) if "query" in readings else pl.Series([""] * rows.height),
                "subject": rows.series(readings["subject"]),
                "origin": rows.series(readings["origin"]),
                "step": rows.series(readings["step"]),
            }
        ).with_row_index("row")
        key = key.with_columns(number=pl.col("query").cast(pl.Int64, strict=False))
        key = key.sort("set", "number", "query", "subject", "origin", "step", maintain_order=True)
        same = pl.col("set", "query", "subject", "origin")
        begins = key.select(pl.any_horizontal(same.ne_missing(same.shift()))).to_series().to_numpy().copy()
        begins[:1] = True
        first = np.flatnonzero(begins)
        steps = np.diff(np.append(first, key.height))
        return cls(
            rows, readings, key["row"].to_numpy().astype(np.int64), first, steps, key["step"].to_numpy(),
            key["set"].to_numpy().astype(np.str_)[first],
        )  # fmt: skip

    @property
    def sets(self) -> list[str]:
        return sorted(set(self.set_of_query.tolist()))

    def place(self, cell: int) -> str:
        return f"first in {self.row_name(cell)}"

    def row_name(self, cell: int) -> str:
        return self.rows.place(int(self.order[cell]))

    def problems(self) -> list[Diagnostic]:
        """Find unusable names of sets, and queries whose steps are not 1, 2, 3, ..."""
        findings = []
        if odd := [name for name in self.sets if not SET_NAME.fullmatch(name)]:
            problem = f"a query set is called {odd[0]!r}"
            findings.append(invalid(problem, "", "use up to 64 letters, digits and `_`"))
        expected = np.arange(len(self.step)) - np.repeat(self.first, self.steps) + 1
        wrong = self.step != expected
        if wrong.any():
            at = int(wrong.argmax())
            problem = f"a query's steps are 1, 2, 3, ..., each once; {self.step[at]:g} where {expected[at]} is expected"
            fix = "give each query its steps, and tell queries of one subject and origin apart by a column `query`"
            findings.append(invalid(problem, self.place(at), fix))
        return findings

    def answers(self) -> tuple[NDArray[np.float64], Mask]:
        """Return the known outcomes `[rows,Y]`, NaN where there are none, and which rows count."""
        columns = [self.rows.numbers(r)[self.order] for key, r in self.readings.items() if key.startswith("outcome ")]
        outcomes = np.stack(columns, axis=-1)
        scored: Mask = np.asarray(~np.isnan(outcomes).any(axis=-1), dtype=bool)
        if "scored" in self.readings:
            scored &= self.rows.numbers(self.readings["scored"])[self.order] == 1
        return outcomes, scored

    def cells(self, chosen: Ints) -> Ints:
        """Return the rows `[Q,H]` of queries of one length."""
        rows: Ints = self.first[chosen][:, None] + np.arange(int(self.steps[chosen[0]]))
        return rows


def _subjects(table: _QueryTable, subjects: Subjects, reporter: Reporter) -> tuple[Ints, Mask]:
    """Return the subject of each query among the keys', and which queries are about nobody in the data set."""
    names = table.rows.series(table.readings["subject"]).gather(table.order[table.first])
    who = subjects.rows_of(names)
    gone: Mask = who < 0
    if gone.all():
        raise DataError(
            "no query is about a subject of the data set",
            where=table.rows.files[0].name,
            fix=f"subjects are called {shown(subjects.names, 3)}",
        )
    if gone.any():
        missing = names.filter(pl.Series(gone)).unique(maintain_order=True).to_list()
        queries = counted(int(gone.sum()), "query", "queries")
        reporter.say(Diagnostic.of("queries-left-out", queries=queries, names=shown(missing)))
    return np.maximum(who, 0), gone


def _origins(table: _QueryTable, context: EncodingContext, who: Ints, gone: Mask) -> tuple[Ints, list[Diagnostic]]:
    """Return the step of each query's origin, a time of its subject's rows, and what is wrong with these.

    Where steps are split by time, no other part learned from a query's first answer.
    """
    asked = table.rows.series(table.readings["origin"]).gather(table.order[table.first]).to_numpy()
    about, keys, findings = context.table, context.table.keys, list[Diagnostic]()
    real = keys.row >= 0
    known = pl.DataFrame({"subject": keys.subject[real], "time": about.times[keys.row[real]], "step": keys.step[real]})
    wanted = pl.DataFrame({"subject": who, "time": asked})
    found = wanted.join(known, on=["subject", "time"], how="left", maintain_order="left")
    origin = found["step"].fill_null(-1).to_numpy().astype(np.int64)
    lost = (origin < 0) & ~gone
    if lost.any():
        problem = f"{counted(int(lost.sum()), 'query', 'queries')} whose origin is not a time of the subject's rows"
        fix = "the origin is the time of the last known row, as in the table"
        findings.append(invalid(problem, table.place(int(table.first[int(lost.argmax())])), fix))
    if context.spans is not None:
        since_SN = np.stack([context.spans[number][0] for number in range(len(Part.all()))])
        early = (origin + 1 < since_SN[context.part[who], who]) & (origin >= 0) & ~gone
        if early.any():
            problem = f"{counted(int(early.sum()), 'query', 'queries')} about steps that an earlier split has"
            place = table.place(int(table.first[int(early.argmax())]))
            findings.append(invalid(problem, place, "ask from the last step before the split's own ones on"))
    return origin, findings


def _plans(table: _QueryTable, encoding: TreatmentEncoding) -> tuple[Plans, list[Diagnostic]]:
    """Return the encoded treatments of each row, and what is no level or combination of the data set."""
    code = np.zeros((len(table.order), len(encoding.names)), dtype=np.int64)
    findings = []
    for i, (name, levels) in enumerate(zip(encoding.names, encoding.levels, strict=True)):
        reading = table.readings[f"treatment {name}"]
        code[:, i] = level_codes(table.rows.series(reading), levels)[table.order]
        unknown = code[:, i] < 0
        if unknown.any():
            texts = table.rows.series(reading).gather(table.order)
            findings.append(unknown_level(name, texts, levels, unknown, table.row_name))
    columns = []
    for dose in encoding.doses:
        said = table.readings.get(f"treatment {dose.name}")  # visits without a time are as far apart as usual
        values = np.full(len(table.order), dose.elapsed) if said is None else table.rows.numbers(said)[table.order]
        problems = [dose.problem(value) for value in values.tolist()]
        odd = np.array(list(map(bool, problems)), dtype=bool)
        if odd.any():
            first = int(odd.argmax())
            what = f"that cannot be: {values[first]:g}"
            findings.append(wrong_values(dose.name, odd, what, table.row_name, problems[first], one="dose"))
        columns.append(dose.encode(np.where(odd, 0.0, values)))
    if findings or encoding.mode == "multilabel":
        return as_plans(np.concatenate([np.maximum(code, 0), *columns], axis=1)), findings
    number = class_numbers(code, encoding)
    if (number < 0).any():
        at = int((number < 0).argmax())
        problem = f"a combination of treatments that the table does not have: {encoding.describe(code[at])}"
        findings.append(invalid(problem, table.place(at), "list it under `classes` in [treatments]"))
    classes = np.eye(encoding.level_width, dtype=np.uint8)[np.maximum(number, 0)]
    return as_plans(np.concatenate([classes, *columns], axis=1)), findings
