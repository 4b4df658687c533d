"""Splits by time: what of each subject is before a moment, between two, and after (spec TABLE-12)."""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.datasets.table.context import Table, cell_times
from costar_cli.datasets.table.index import Ints, Times
from costar_cli.datasets.table.schema import TableSchema
from costar_cli.datasets.table.schema_time import MONTHS
from costar_cli.panel.dataset import Domain, Part
from costar_cli.panel.findings import Finding, counted, raise_errors
from costar_cli.panel.split import SPLITS, few_shot_subjects
from costar_cli.reporting import Reporter

Spans = Mapping[int, tuple[Ints, Ints]]  # by part: its first own step `[N]`, and its steps `[N]`, 0 for others
LEAST: Final = 2  # steps of a subject in a part: one to start from and one to predict


def time_spans(
    table: Table, schema: TableSchema, domain: NDArray[np.str_], seed: int, reporter: Reporter
) -> tuple[Ints, Spans]:
    """Return the last part of each subject, -1 for those of none, and what each part has of it.

    A part begins with a subject's first step, as history, and ends before the moment at which the next part begins.

    Raises:
        DataError: moments in the wrong order; parts without a step to predict, naming rows.
    """
    when_M = cell_times(table, schema)
    moments = _moments(schema, np.sort(when_M[(domain != "")[table.keys.subject]]))
    shown = [moment_text(moment, schema) for moment in moments]
    if moments[0] >= moments[1]:
        problem = f"val begins at {shown[0]}, and test at {shown[1]}, not later"
        raise_errors([Finding("error", problem, "[split]", "give `val_from` and `test_from`")], what="[split]")
    n = len(table.keys.subjects)
    ends_SN = [np.bincount(table.keys.subject[when_M < moment], minlength=n) for moment in moments]
    ends_SN.append(table.keys.length)
    spans: dict[int, tuple[Ints, Ints]] = {}
    last = np.full(n, -1, dtype=np.int64)
    for number, part in enumerate(Part.all()):
        at = SPLITS.index(part.split)
        begin_N = ends_SN[at - 1] if at else np.zeros(n, dtype=np.int64)
        has_N = (domain == part.domain) & (ends_SN[at] > begin_N) & (ends_SN[at] >= LEAST)
        if part == Part("target", "train") and schema.split.few_shot is not None:
            members = np.flatnonzero(has_N)
            kept = few_shot_subjects(len(members), schema.split.few_shot, [seed, 1])
            has_N[members[~kept]] = False
        spans[number] = begin_N, np.where(has_N, ends_SN[at], 0)
        last[has_N] = number
    raise_errors(_empty(table, schema, when_M, spans, domain, shown), what="[split]")
    reporter.note(f"split by time: train before {shown[0]}, val from there to {shown[1]}, test from there on")
    if lost := int(((last < 0) & (domain != "")).sum()):
        reporter.note(f"{counted(lost, 'subject')} left out: no part has two steps of theirs, or `few_shot`")
    return last, spans


def moment_text(moment: float, schema: TableSchema) -> str:
    """Return a moment of the table's times as text."""
    scale = schema.time.parsed.scale
    if scale == "number":
        return f"{moment:g}"
    if scale == "month":
        return str(np.datetime64(int(moment) - 1970 * MONTHS, "M"))
    date = np.datetime64(int(moment), "us")
    return str(date.astype("M8[D]") if date == date.astype("M8[D]") else date.astype("M8[s]")).replace("T", " ")


def _moments(schema: TableSchema, in_order_M: Times) -> list[float]:
    """Return when val and test begin: as given, else where the shares of the rows are reached."""
    split, rows = schema.split, len(in_order_M)
    shares = {"val_from": split.train, "test_from": split.train + split.val}
    given = {key: getattr(split, key) for key in shares}
    return [
        in_order_M[min(int(share * rows), rows - 1)] if given[key] is None else schema.time.moment(given[key])
        for key, share in shares.items()
    ]


def _empty(
    table: Table, schema: TableSchema, when_M: Times, spans: Spans, domain: NDArray[np.str_], shown: list[str]
) -> Iterator[Finding]:
    """Find parts that models need and that have no step to predict."""
    domains: list[Domain] = ["source", "target"] if (domain == "target").any() else ["source"]
    wanted = [Part("source", "train"), Part("source", "val"), *(Part(name, "test") for name in domains)]
    cells = {name: np.flatnonzero((domain == name)[table.keys.subject]) for name in domains}
    span = {"train": f"before {shown[0]}", "val": f"from {shown[0]} to {shown[1]}", "test": f"from {shown[1]} on"}
    for part in wanted:
        if spans[Part.all().index(part)][1].any():
            continue
        own = cells[part.domain]
        ends = [int(own[pick(when_M[own])]) for pick in (np.argmin, np.argmax)]
        first, last = (f"{moment_text(when_M[cell], schema)}, {table.place(cell)}," for cell in ends)
        problem = f"{part} is empty: no subject has an outcome to predict {span[part.split]}"
        fix = "choose other moments, or leave `val_from` and `test_from` out"
        yield Finding("error", problem, f"times run from {first} to {last[:-1]}", fix)
