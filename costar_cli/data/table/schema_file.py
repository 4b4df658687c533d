"""The schema of a table as a TOML file: read with all problems at once, its keys listed, its values written."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from costar_cli.config.nearest import did_you_mean
from costar_cli.config.toml import STRING_OR_COMMENT, read_toml
from costar_cli.data.registry import RESERVED_NAMES
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_column import OF_STEPS, ColumnSchema
from costar_cli.errors import MOST_DETAILS, UsageError, complaint, cut, key_path
from costar_cli.reporting import CONTROL

LONGEST_LINE: Final = 200  # of a line that a message repeats
CHECK: Final = "# CHECK: "  # starts what `--init` wants to be settled
WORDS: Final = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
MOST_BYTES: Final = 4_000_000  # what `--init` writes of some 60,000 columns
SHORTER: Final = "delete the lines of columns that are not needed: a column that the schema does not name is not read"
START = "`costar ingest table FILE --init` writes a schema to start from"


def read_schema(path: Path, *, accept_guesses: bool = False) -> TableSchema:
    """Return the schema in a TOML file.

    `accept_guesses` takes what `--init` guessed and nobody has settled.

    Raises:
        UsageError: the file is missing or no TOML, has open guesses, or a key or value is not understood; all problems
            at once.
    """
    text, tables = read_toml(path, "schema file", fix=START, most=MOST_BYTES, shorter=SHORTER)
    where = str(path)
    if (lines := open_guesses(text)) and not accept_guesses:
        guesses = "1 unconfirmed guess" if len(lines) == 1 else f"{len(lines)} unconfirmed guesses"
        fix = "correct each line and delete its comment, or add `--accept-guesses`"
        raise UsageError(f"the schema has {guesses}", where=where, fix=fix, details=lines)
    return parse_schema(tables, where=where)


def open_guesses(text: str) -> list[str]:
    """Return the lines of a TOML document in which a comment of `--init` wants something to be settled, numbered."""
    lines = text.split("\n")
    comments = [found for found in STRING_OR_COMMENT.finditer(text) if found[0].startswith("#") and CHECK in found[0]]
    numbers = [text.count("\n", 0, found.start()) for found in comments]
    return [f"line {number + 1}: {cut(lines[number].strip(), LONGEST_LINE)}" for number in numbers]


def parse_schema(tables: Mapping[str, Any], *, where: str = "schema") -> TableSchema:
    """Return the schema in a parsed TOML document; see `read_schema`."""
    # Roles that are missing or taken twice, also where other things are wrong
    problems, columns = list[str](), tables.get("columns")
    if isinstance(columns, Mapping):
        roles = [column.get("role") for column in columns.values() if isinstance(column, Mapping)]
        joint = tables.get("subject") is not None
        if joint and "subject" in roles:
            problems.append('`subject` and a column of role "subject" both say whose row it is: keep one of them')
        for role in ("time",) if joint else ("subject", "time"):
            if (count := roles.count(role)) != 1:
                problems.append(f'[columns] needs one column of role "{role}", it has {count or "none"}')
        if not roles.count("treatment"):
            problems.append('[columns] needs a column of role "treatment"')
        if not roles.count("outcome") and not roles.count("event"):
            asked = 'role "outcome", or "event" where an event alone is asked about'
            problems.append(f"[columns] needs a column of {asked}")
        several = {role: roles.count(role) for role in ("domain", "split", "cluster") if roles.count(role) > 1}
        problems += [f'[columns] can have one column of role "{role}", it has {n}' for role, n in several.items()]
    schema = None
    try:
        schema = TableSchema.model_validate(tables)
    except ValidationError as error:
        found = error.errors()
        problems = [_explain(dict(item)) for item in found[:MOST_DETAILS]] + problems
        problems += [f"{len(found) - MOST_DETAILS:,} more keys that are not understood"] * (len(found) > MOST_DETAILS)
    if schema is not None:
        problems += _schema_problems(schema)
    if problems:
        fix = "`costar settings schema` lists every key with what it accepts"
        raise UsageError.of(problems, f"the schema has {len(problems)} problems", where=where, fix=fix)
    assert schema is not None  # noqa: S101 - there would be a problem
    return schema


def _schema_problems(schema: TableSchema) -> Iterator[str]:
    """Find values that are valid one by one but not together."""
    if schema.name.casefold() in RESERVED_NAMES:
        yield f"name = {schema.name!r}: the name belongs to a data set that costar brings; choose another"
    if schema.named("domain") and schema.domain.target is not None:
        yield '[domain] and a column of role "domain" both say who the target is: keep one of them'
    if schema.named("split") and schema.split.model_fields_set - {"few_shot", "by"}:
        yield '[split] and a column of role "split" both split the subjects: keep one of them'
    moments = {"val_from": schema.split.val_from, "test_from": schema.split.test_from}
    for key, moment in ((key, moment) for key, moment in moments.items() if moment is not None):
        try:
            schema.time.moment(moment)
        except ValueError as error:
            yield f"split.{key}: {error}"
    for name in schema.named("domain"):
        column = schema.columns[name]
        source, target = column.domain_values("source"), column.domain_values("target")
        if target is None and source is not None:
            yield f"{key_path(('columns', name))}: `target` is missing: say which values are the target's"
        elif both := sorted(set(source or ()) & set(target or ())):
            yield f"{key_path(('columns', name))}: {both[0]!r} is both source and target"
    treatments = schema.leveled
    for i, row in enumerate(schema.treatments.classes or ()):
        if len(row) != len(treatments):
            yield f"treatments.classes[{i}]: one level per treatment: {', '.join(treatments)}"
    if schema.treatments.classes is not None and schema.treatments.mode == "multilabel":
        yield 'treatments.classes belongs to `mode = "multiclass"`'
    if schema.max_length is not None and schema.max_length < schema.min_length:
        yield f"max_length {schema.max_length} is below min_length {schema.min_length}"
    yield from _log_problems(schema)
    yield from _step_problems(schema)


def _log_problems(schema: TableSchema) -> Iterator[str]:
    """Find columns of a log of events that cannot be made, and those that only a log has."""
    log, leveled = schema.events, {*schema.leveled}
    for name, column in schema.columns.items():
        if column.aggregate and log is None and not schema.time.bin:
            of = "belongs to a log of events, or to rows of one step: declare [events], or `bin = true` in [time]"
            yield f"{key_path(('columns', name))}: `aggregate` {of}"
        elif log and not log.value and column.role in OF_STEPS and column.aggregated not in ("any", "count"):
            yield f"{key_path(('columns', name))}: `{column.aggregated}` takes values: name their column, events.value"
        if log and name in leveled and column.aggregated in ("sum", "mean", "max", "min"):
            yield (
                f"{key_path(('columns', name))}: named levels are `any`, `count`, `first` or `last`; a sum is a dose: "
                '`kind = "continuous"`'
            )


def _step_problems(schema: TableSchema) -> Iterator[str]:
    """Find ends of intervals that no row has, rows of a step of which nobody knows what they become, lost outcomes."""
    stop = schema.time.stop
    if stop and stop in {schema.in_file(name) for name in schema.columns}:
        yield f"time.stop: '{stop}' is in [columns], too: keep one of the two"
    if stop and schema.events:
        yield "time.stop: the rows of a log are no intervals: leave it out"
    if schema.time.bin and schema.events:
        yield "time.bin: the events of a log are made steps anyway: leave it out"
    leveled = {*schema.leveled}
    for name in schema.named(*OF_STEPS) if schema.time.bin and not schema.events else ():
        column, key = schema.columns[name], key_path(("columns", name))
        if column.binned in ("any", "count"):
            yield f"{key}: `{column.binned}` is of events; of rows there is `last`, `mean`, `sum`, `max`, `min`"
        elif name in leveled and column.binned in ("max", "min") and column.levels is None:
            yield f"{key}: several levels in a step become the last one in `levels`: list them, or choose `aggregate`"
        elif (name in leveled or column.kind == "binary") and column.binned in ("sum", "mean"):
            yield f"{key}: levels and 0/1 have no {column.binned}: choose `first`, `last`, `max` or `min`"
        elif column.kind == "categorical" and column.binned not in ("first", "last"):
            yield f"{key}: categories have no {column.binned}: choose `first` or `last`"
    if schema.queries.rolling_origin and not schema.named("outcome"):
        yield 'queries.rolling_origin asks for outcomes, and no column has the role "outcome": leave it out'
    differs = [name for name in schema.named("outcome") if schema.columns[name].transform == "difference"]
    if schema.time.gaps == "elapsed" and differs:
        yield (
            f"{key_path(('columns', differs[0]))}: differences of an outcome over steps of any length cannot be "
            'compared: give even steps, or another transform than "difference"'
        )


def _explain(item: Mapping[str, Any]) -> str:
    """Describe one of pydantic's errors in the words of the schema."""
    loc = tuple(part for part in item["loc"] if part not in _UNION_BRANCHES)
    where, given, kind = key_path(loc), item.get("input"), item["type"]
    message = complaint(item)
    if loc[-1:] == ("[key]",):
        return f"{key_path(loc[:-1])}: a column's name is one line of at most 200 characters without space around it"
    if kind == "literal_error":
        words = [word.strip("'") for word in str(item["ctx"]["expected"]).replace(" or ", ", ").split(", ")]
        return (
            f"{where} = {_shown(given)}: expected one of {', '.join(words)}{did_you_mean(str(given), words, lead=', ')}"
        )
    model: type[BaseModel] = TableSchema  # the table in which an unknown key is
    for part in loc[:-1]:
        if model is TableSchema and part == "columns":
            continue
        field = model.model_fields.get(str(part))
        if field is None:
            model = ColumnSchema
            break
        kinds = [field.annotation, *get_args(field.annotation)]
        # a list of words is no table
        model = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), model)
    near = did_you_mean(str(loc[-1]), list(model.model_fields), lead=", ") if loc else ""
    hint = ' such as { role = "covariate" }' if loc[:1] == ("columns",) and len(loc) > 1 else ""
    texts = {
        "extra_forbidden": f"{where}: no such key{near}",
        "missing": f"{where} is missing",
        "value_error": f"{where or 'schema'}: {message}",
        "model_type": f"{where}: expected a table{hint}, not {_shown(given)}",
        "string_pattern_mismatch": f"{where} = {_shown(given)}: up to 64 letters, digits, spaces, `_`, `.` and `-`",
    }
    kind = "model_type" if kind == "dict_type" else kind
    return texts.get(kind, f"{where} = {_shown(given)}: {message[:1].lower()}{message[1:]}")


_UNION_BRANCHES: Final = {"bool", "int", "float", "str", "list[union[bool,int,float,str]]"}


def _shown(value: object) -> str:
    return cut(repr(value), 60)


_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def toml_key(name: str) -> str:
    """Return a key, in quotes where it needs them."""
    return name if _BARE.fullmatch(name) else toml_value(name)


def toml_value(value: object) -> str:
    """Return a value on one line: text, numbers, truth values, lists and inline tables.

    Raises:
        TypeError: TOML has no such value.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    if isinstance(value, str):
        return CONTROL.sub(
            lambda found: f"\\u{ord(found[0]):04x}" if ord(found[0]) < 0x10000 else f"\\U{ord(found[0]):08x}",
            json.dumps(value, ensure_ascii=False),
        )
    if isinstance(value, Mapping):
        inside = ", ".join(f"{toml_key(str(key))} = {toml_value(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    raise TypeError(f"{type(value).__name__} cannot be written as TOML")


def toml_row(name: str, value: object) -> str:
    """Return `key = value`."""
    return f"{toml_key(name)} = {toml_value(value)}"


def keys(model: type[BaseModel] = TableSchema, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield every key with its dotted name; those of a column as `columns.NAME.role`."""
    for name, field in model.model_fields.items():
        inner = next(
            (kind for kind in _kinds(field.annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)), None
        )
        if name == "columns" and model is TableSchema:
            yield from keys(ColumnSchema, "columns.NAME.")
        elif inner is not None:
            yield from keys(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def _kinds(annotation: Any) -> list[Any]:  # noqa: ANN401 - annotations have no common type
    if get_origin(annotation) in (Union, UnionType):
        return [kind for kind in get_args(annotation) if kind is not type(None)]
    return [annotation]


def accepts(field: FieldInfo) -> str:
    """Say what a key accepts: `a number, at least 0`."""
    words = list[str]()
    for kind in _kinds(field.annotation):
        if get_origin(kind) is Literal:
            words.append(", ".join(f"`{choice}`" for choice in get_args(kind)))
        elif get_origin(kind) is list:
            inner = _kinds(get_args(kind)[0])
            words.append("a list of lists" if get_origin(inner[0]) is list else "a list")
        else:
            words.append(WORDS.get(kind, "text"))
    words = list(dict.fromkeys(words))
    if len(words) > 3:
        words = ["a value", "a list of values"]
    bounds = [
        f"{limits} {bound:,}" if bound < 2**60 else f"{limits} 2^63"
        for item in field.metadata
        for name, limits in (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below"))
        if (bound := getattr(item, name, None)) is not None
    ]
    return ", ".join([" or ".join(words), *bounds])


def default_text(field: FieldInfo) -> str:
    """Return a key's default as TOML writes it; `required` where it has none, nothing where it is empty."""
    value = field.get_default(call_default_factory=True)
    if field.is_required():
        return "required"
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str("" if value is None else value)
