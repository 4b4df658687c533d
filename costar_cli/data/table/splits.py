"""Which part each subject is in: domain by a column or a condition, split by a column or a draw (polars)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.data.dataset import Domain, Part, Split
from costar_cli.data.expression import Column, Condition, Side, Use
from costar_cli.data.findings import counted, invalid, raise_errors, shown
from costar_cli.data.split import SPLITS, few_shot_subjects, split_domains
from costar_cli.data.table.context import EncodingContext, Mask, Table, cell_times
from costar_cli.data.table.index import Ints, Times
from costar_cli.data.table.parse import Reading, wrong_values
from costar_cli.data.table.schema import Fractions, TableSchema
from costar_cli.data.table.schema_column import MONTHS
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError
from costar_cli.reporting import Reporter

Spans = Mapping[int, tuple[Ints, Ints]]  # by part: its first own step `[N]`, and its steps `[N]`, 0 for others
SPELT: Final[Mapping[str, Split]] = {
    "train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test",
}  # fmt: skip
TARGET_TRAIN: Final = Part.all().index(Part("target", "train"))
NOBODYS, UNKNOWN = -1, -2  # rows that are history alone, and those of no split
LEAST: Final = 2  # steps of a subject in a part: one to start from and one to predict


def time_spans(
    table: Table, schema: TableSchema, domain: NDArray[np.str_], seed: int, reporter: Reporter
) -> tuple[Ints, Spans]:
    """Return the last part of each subject, -1 for those of none, and what each part has of it.

    A part begins with a subject's first step, as history, and ends before the moment at which the next part begins, or
    where a column of splits says so.

    Raises:
        DataError: moments or rows in the wrong order; parts without a step to predict, naming rows.
    """
    when_M = cell_times(table, schema)
    if schema.named("split"):
        name = schema.named("split")[0]
        spans, words = _spans_by_column(table, name, domain), {split: f"in rows of '{split}'" for split in SPLITS}
        said, fix = Diagnostic.of("split-by-column", name), "give each split rows of subjects with two steps"
    else:
        # When val and test begin: as given, else where the shares of the rows are reached
        in_order_M = np.sort(when_M[(domain != "")[table.keys.subject]])
        split, rows = schema.split, len(in_order_M)
        shares = {"val_from": split.train, "test_from": split.train + split.val}
        given = {key: getattr(split, key) for key in shares}
        moments = [
            in_order_M[min(int(share * rows), rows - 1)] if given[key] is None else schema.time.moment(given[key])
            for key, share in shares.items()
        ]
        shown = [moment_text(moment, schema) for moment in moments]
        if moments[0] >= moments[1]:
            problem = f"val begins at {shown[0]}, and test at {shown[1]}, not later"
            raise_errors([invalid(problem, "[split]", "give `val_from` and `test_from`")], what="[split]")
        n = len(table.keys.subjects)
        ends_SN = [np.bincount(table.keys.subject[when_M < moment], minlength=n) for moment in moments]
        ends_SN.append(table.keys.length)
        begins_SN = [np.zeros(n, dtype=np.int64), *ends_SN[:-1]]
        spans = _spans(begins_SN, ends_SN, domain)
        words = {"train": f"before {shown[0]}", "val": f"from {shown[0]} to {shown[1]}", "test": f"from {shown[1]} on"}
        said = Diagnostic.of("split-by-time", val=shown[0], test=shown[1])
        fix = "choose other moments, or leave `val_from` and `test_from` out"
    if schema.split.few_shot is not None:
        steps_N = spans[TARGET_TRAIN][1]
        members = np.flatnonzero(steps_N)
        steps_N[members[~few_shot_subjects(len(members), schema.split.few_shot, [seed, 1])]] = 0
    last = np.full(len(table.keys.subjects), -1, dtype=np.int64)
    for number, (_, steps_N) in spans.items():
        last[steps_N > 0] = number
    raise_errors(_empty(table, schema, when_M, spans, domain, words, fix), what="[split]")
    reporter.say(said)
    if lost := int(((last < 0) & (domain != "")).sum()):
        reporter.say(Diagnostic.of("subjects-without-part", subjects=counted(lost, "subject")))
    return last, spans


def _spans_by_column(table: Table, name: str, domain: NDArray[np.str_]) -> dict[int, tuple[Ints, Ints]]:
    """Return what each part has of each subject, as a column says of each row; history where it says nothing.

    Raises:
        DataError: a row that is in no split, or whose split is before that of an earlier row of the subject.
    """
    texts, n = table.column(name), len(table.keys.subjects)
    lowered = texts.str.to_lowercase()
    places = [SPLITS.index(split) for split in SPELT.values()]
    found = lowered.replace_strict(list(SPELT), places, default=UNKNOWN, return_dtype=pl.Int64)
    at_M = np.where(texts.is_null().to_numpy(), NOBODYS, found.fill_null(NOBODYS).to_numpy())
    subject = table.keys.subject
    rank_M = np.maximum(at_M, 0) + len(SPLITS) * subject  # higher than all of the subject before
    back_M = (at_M >= 0) & (rank_M < np.maximum.accumulate(rank_M))
    findings = []
    if (at_M == UNKNOWN).any():
        findings.append(wrong_values(name, at_M == UNKNOWN, "in no split", table.place, f"use {', '.join(SPLITS)}"))
    if back_M.any():
        what = "in a split that an earlier row of the subject is behind"
        findings.append(wrong_values(name, back_M, what, table.place, "train comes before val, val before test"))
    raise_errors(findings, what="the splits")
    begins_SN, ends_SN = ([np.zeros(n, dtype=np.int64) for _ in SPLITS] for _ in range(2))
    for at in range(len(SPLITS)):
        mine = np.flatnonzero(at_M == at)
        ends_SN[at][subject[mine]] = table.keys.step[mine] + 1
        begins_SN[at][subject[mine[::-1]]] = table.keys.step[mine[::-1]]
    return _spans(begins_SN, ends_SN, domain)


def _spans(
    begins_SN: Sequence[Ints], ends_SN: Sequence[Ints], domain: NDArray[np.str_]
) -> dict[int, tuple[Ints, Ints]]:
    """Return the first own step and the steps of each part, of subjects with two steps and one of their own."""
    spans = {}
    for number, part in enumerate(Part.all()):
        begin_N, end_N = (of[SPLITS.index(part.split)] for of in (begins_SN, ends_SN))
        has_N = (domain == part.domain) & (end_N > begin_N) & (end_N >= LEAST)
        spans[number] = begin_N, np.where(has_N, end_N, 0)
    return spans


def moment_text(moment: float, schema: TableSchema) -> str:
    """Return a moment of the table's times as text."""
    scale = schema.time.parsed.scale
    if scale == "number":
        return f"{moment:g}"
    if scale == "month":
        return str(np.datetime64(int(moment) - 1970 * MONTHS, "M"))
    date = np.datetime64(int(moment), "us")
    return str(date.astype("M8[D]") if date == date.astype("M8[D]") else date.astype("M8[s]")).replace("T", " ")


def fix_of_constant(context: EncodingContext, other_M: Mask, otherwise: str) -> str:
    """Return what to do about a column that never changes in source-train: it may where `other_M` holds, elsewhere.

    Where it does so nowhere, that is `otherwise`.
    """
    other = np.flatnonzero(other_M)
    if not len(other):
        return otherwise
    when = context.times
    first = int(other[when[other].argmin()])
    begin, place = moment_text(when[first], context.schema), context.table.place(first)
    if context.spans is None:
        fix = f"it does elsewhere, first in {place}: draw another split by `seed` in [split], give train a larger share"
        return f"{fix}, or {otherwise}"
    last = moment_text(when[context.train_cells].max(), context.schema)
    named = context.schema.named("split")
    more = f"put later rows into train by column '{named[0]}'" if named else "give a later `val_from` in [split]"
    return f"train ends at {last}, and it changes at {begin}, first in {place}: {more}, or {otherwise}"


def _empty(
    table: Table,
    schema: TableSchema,
    when_M: Times,
    spans: Spans,
    domain: NDArray[np.str_],
    words: Mapping[Split, str],
    fix: str,
) -> Iterator[Diagnostic]:
    """Find parts that models need and that have no step to predict."""
    domains: list[Domain] = ["source", "target"] if (domain == "target").any() else ["source"]
    wanted = [Part("source", "train"), Part("source", "val"), *(Part(name, "test") for name in domains)]
    cells = {name: np.flatnonzero((domain == name)[table.keys.subject]) for name in domains}
    for part in wanted:
        if spans[Part.all().index(part)][1].any():
            continue
        own = cells[part.domain]
        ends = [int(own[pick(when_M[own])]) for pick in (np.argmin, np.argmax)]
        first, last = (f"{moment_text(when_M[cell], schema)}, {table.place(cell)}," for cell in ends)
        problem = f"{part} is empty: no subject has an outcome to predict {words[part.split]}"
        yield invalid(problem, f"times run from {first} to {last[:-1]}", fix)


DOMAINS: Final[tuple[Domain, Domain]] = ("source", "target")

Texts = NDArray[np.str_]


def condition_readings(schema: TableSchema) -> dict[str, Reading]:
    """Return how the conditions of `[domain]` read each column that they name.

    Raises:
        DataError: a column is compared with numbers and with texts.
    """
    uses: dict[str, set[Use]] = {}
    for domain in DOMAINS:
        if condition := schema.domain.condition(domain):
            for name, found in condition.uses.items():
                uses.setdefault(name, set()).update(found)
    if mixed := sorted(name for name, found in uses.items() if len(found) > 1):
        problem = f"{shown(mixed)} is compared with values of different types"
        raise DataError(problem, where="[domain]", fix="compare a column with numbers alone, or with texts alone")
    return {name: Reading(name, next(iter(found))) for name, found in uses.items()}


def assign_parts(table: Table, schema: TableSchema, seed: int, reporter: Reporter) -> tuple[Ints, Spans | None]:
    """Return the number of each subject's part in `Part.all()`, -1 for those of neither domain or left out of few-shot.

    Where steps are split by time, that is its last part, and the spans say what each part has of it.

    Raises:
        DataError: subjects that change domain or split, or belong to both domains; domains without subjects.
    """
    domain = domains_of(table, schema)
    if lost := int((domain == "").sum()):
        reporter.say(Diagnostic.of("subjects-without-domain", subjects=counted(lost, "subject")))
    for name in DOMAINS if has_target(schema) else DOMAINS[:1]:
        if not (domain == name).any():
            raise DataError(
                f"no subject belongs to the {name} domain", fix="check the definition of the target in the schema"
            )
    if schema.split.by == "time":
        return time_spans(table, schema, domain, seed, reporter)
    split = _splits(table, schema, domain, seed)
    dropped = int(((split == "") & (domain == "target")).sum())
    if dropped:
        reporter.say(Diagnostic.of("few-shot-left-out", subjects=counted(dropped, "target training subject")))
    numbers = {str(part): number for number, part in enumerate(Part.all())}
    part = np.array([numbers.get(f"{d}/{s}", -1) for d, s in zip(domain, split, strict=True)], dtype=np.int64)
    return part, None


def has_target(schema: TableSchema) -> bool:
    """Return whether a schema says who belongs to the target."""
    return bool(schema.named("domain")) or schema.domain.target is not None


def domains_of(table: Table, schema: TableSchema) -> Texts:
    """Return the domain of each subject `[N]`, nothing for those of neither.

    Raises:
        DataError: subjects that change domain, or belong to both.
    """
    if not has_target(schema):
        return np.full(len(table.keys.subjects), "source", dtype="<U6")
    # Which cells say that the subject is of the source, and of the target; a cell can say nothing
    if schema.named("domain"):
        name = schema.named("domain")[0]
        column, said = schema.columns[name], table.column(name)
        targets, sources = column.domain_values("target"), column.domain_values("source")
        if targets is None:
            found = sorted(str(value) for value in said.drop_nulls().unique().to_list())
            if not set(found) <= set(DOMAINS):
                problem = f"column '{name}' holds {shown(found)}: which of them are the target?"
                where, fix = f'columns."{name}"', f'`"{name}" = {{ role = "domain", target = "..." }}`'
                raise DataError(problem, where=where, fix=fix)
            targets, sources = ("target",), ("source",)
        if {*targets, *(sources or ())} <= {"true", "false"}:
            said = said.str.to_lowercase()  # as some programs spell them
        is_target = said.is_in(targets)
        is_source = ~is_target if sources is None else said.is_in(sources)
    else:
        condition, of_source = schema.domain.condition("target"), schema.domain.condition("source")
        assert condition is not None  # noqa: S101 - it says who the target is
        columns = {name: table.column(name) for name in condition_readings(schema)}
        is_target = holds(condition, columns)
        is_source = ~is_target if of_source is None else holds(of_source, columns)
    source, source_changes = table.whole_subjects(is_source)
    target, target_changes = table.whole_subjects(is_target)
    changes, findings = source_changes | target_changes, []
    for wrong, problem, fix in (
        (changes, "with a domain that changes over time", "define domains by what does not change"),
        (source & target, "in both domains", "make the two conditions exclude each other"),
    ):
        if wrong.any():
            first = table.keys.subjects.names[int(wrong.argmax())]
            who = counted(int(wrong.sum()), "subject")
            findings.append(invalid(f"{who} {problem}", f"first subject {first}", fix))
    raise_errors(findings, what="the domains")
    return np.where(source, "source", np.where(target, "target", ""))


def holds(condition: Condition, columns: Mapping[str, pl.Series]) -> pl.Series:
    """Return where a condition holds, null where it compares a column that has no value."""
    place = {name: str(i) for i, name in enumerate(condition.uses)}

    def side(value: Side, _: Use) -> pl.Expr:
        if isinstance(value, Column):
            return pl.col(place[value.name])
        return pl.lit(float(value) if isinstance(value, bool) else value)

    frame = pl.DataFrame({number: columns[name] for name, number in place.items()})
    return frame.select(condition.holds(side)).to_series()


def _splits(table: Table, schema: TableSchema, domain: Texts, seed: int) -> Texts:
    few_shot = schema.split.few_shot
    cluster: Texts | None = None  # of each subject that has a domain
    if own_clusters := schema.named("cluster"):
        name = own_clusters[0]
        said, findings = table.subject_values(name)
        lacking = said.is_null().to_numpy() & (domain != "")
        if lacking.any():
            problem = f"column '{name}': {counted(int(lacking.sum()), 'subject')} without a cluster"
            first = table.keys.subjects.names[int(lacking.argmax())]
            findings.append(invalid(problem, f"first subject {first}", "give each subject one"))
        raise_errors(findings, what="the clusters")
        cluster = np.array(said.fill_null("").to_list(), dtype=np.str_)
    if not schema.named("split"):
        own = schema.split.target or schema.split
        fractions: dict[Domain, dict[Split, float]] = {"source": _shares(schema.split), "target": _shares(own)}
        try:
            return split_domains(domain, fractions, seed=seed, few_shot=few_shot, cluster=cluster)
        except DataError as error:
            fix = f'{error.fix}, or split the steps of each subject: `by = "time"` in [split]'
            raise DataError(error.problem, where=error.where, fix=fix) from None
    name = schema.named("split")[0]
    said, findings = table.subject_values(name)
    raise_errors(findings, what="the splits")
    split = np.full(len(domain), "", dtype="<U5")
    for i, text in enumerate(said.to_list()):
        if not domain[i]:
            continue
        if text is None or text.lower() not in SPELT:
            who = f"subject {table.keys.subjects.names[i]}"
            problem = f"column '{name}': " + ("no split" if text is None else f"'{text}' is not a split")
            raise DataError(problem, where=who, fix=f"use one of {', '.join(SPLITS)}")
        split[i] = SPELT[text.lower()]
    if cluster is not None:
        _refuse_divided(table, name, split, cluster)
    if few_shot is not None:
        train = np.flatnonzero((domain == "target") & (split == "train"))
        if len(train):
            split[train[~few_shot_subjects(len(train), few_shot, [seed, 1])]] = ""
    return split


def _refuse_divided(table: Table, column: str, split: Texts, cluster: Texts) -> None:
    """Stop where a column of splits puts subjects of one cluster into several of them.

    Raises:
        DataError: naming two subjects of the first such cluster.
    """
    first: dict[str, int] = {}
    other: dict[str, int] = {}
    for i in np.flatnonzero(split != "").tolist():
        unit = str(cluster[i])
        if split[first.setdefault(unit, i)] != split[i]:
            other.setdefault(unit, i)
    if not other:
        return
    unit, b = next(iter(other.items()))
    a, names = first[unit], table.keys.subjects.names
    raise DataError(
        f"column '{column}': {counted(len(other), 'cluster')} in several splits, so that tests are not independent",
        where=f"cluster {unit}: subject {names[a]} is in {split[a]}, subject {names[b]} in {split[b]}",
        fix="put a cluster's subjects into one split, leave the split to costar, or give no column of role `cluster`",
    )


def _shares(fractions: Fractions) -> dict[Split, float]:
    return {"train": fractions.train, "val": fractions.val, "test": fractions.test}
