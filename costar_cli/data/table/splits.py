"""Which part each subject is in: domain by a column or a condition, split by a column or a draw (polars)."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.data.dataset import Domain, Part, Split
from costar_cli.data.expression import Column, Condition, Side, Use
from costar_cli.data.findings import counted, invalid, raise_errors, shown
from costar_cli.data.split import SPLITS, few_shot_subjects, split_domains
from costar_cli.data.table.context import Table
from costar_cli.data.table.index import Ints
from costar_cli.data.table.parse import Reading
from costar_cli.data.table.schema import Fractions, TableSchema
from costar_cli.data.table.time_split import SPELT, Spans, time_spans
from costar_cli.errors import DataError
from costar_cli.reporting import Reporter

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
        reporter.note(f"{counted(lost, 'subject')} in neither domain left out")
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
        reporter.note(f"{counted(dropped, 'target training subject')} left out (`few_shot`)")
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
    is_source, is_target = (_by_column if schema.named("domain") else _by_condition)(table, schema)
    source, source_changes = table.whole_subjects(is_source)
    target, target_changes = table.whole_subjects(is_target)
    findings = []
    for wrong, problem, fix in [
        (
            source_changes | target_changes,
            "with a domain that changes over time",
            "define domains by what does not change",
        ),
        (source & target, "in both domains", "make the two conditions exclude each other"),
    ]:
        if wrong.any():
            first = table.keys.subjects.names[int(wrong.argmax())]
            who = counted(int(wrong.sum()), "subject")
            findings.append(invalid(f"{who} {problem}", f"first subject {first}", fix))
    raise_errors(findings, what="the domains")
    return np.where(source, "source", np.where(target, "target", ""))


def _by_column(table: Table, schema: TableSchema) -> tuple[pl.Series, pl.Series]:
    """Return which cells say that the subject is of the source, and of the target; a cell can say nothing."""
    name = schema.named("domain")[0]
    column = schema.columns[name]
    said = table.column(name)
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
    return is_source, is_target


def _by_condition(table: Table, schema: TableSchema) -> tuple[pl.Series, pl.Series]:
    target = schema.domain.condition("target")
    assert target is not None  # noqa: S101 - asked for only where there is one
    source = schema.domain.condition("source")
    columns = {name: table.column(name) for name in condition_readings(schema)}
    is_target = holds(target, columns)
    return (~is_target if source is None else holds(source, columns)), is_target


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
    cluster = _clusters(table, schema, domain)
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


def _clusters(table: Table, schema: TableSchema, domain: Texts) -> Texts | None:
    """Return the cluster of each subject that has a domain, where the schema names a column of them."""
    if not schema.named("cluster"):
        return None
    name = schema.named("cluster")[0]
    said, findings = table.subject_values(name)
    lacking = said.is_null().to_numpy() & (domain != "")
    if lacking.any():
        problem = f"column '{name}': {counted(int(lacking.sum()), 'subject')} without a cluster"
        first = table.keys.subjects.names[int(lacking.argmax())]
        findings.append(invalid(problem, f"first subject {first}", "give each subject one"))
    raise_errors(findings, what="the clusters")
    return np.array(said.fill_null("").to_list(), dtype=np.str_)


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
