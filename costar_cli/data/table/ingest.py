"""From files of rows to a data set: read, order, split, learn from source-train, encode, ask (polars)."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from costar_cli.data.calendar import Calendar, Unit
from costar_cli.data.check import check_dataset
from costar_cli.data.dataset import Dataset, Part
from costar_cli.data.findings import counted, shown
from costar_cli.data.panel import Panel
from costar_cli.data.queries import Queries, rolling_origin
from costar_cli.data.schema import ErrorUnit, PanelSchema, TreatmentEncoding
from costar_cli.data.table.context import EncodingContext, Mask
from costar_cli.data.table.ends import ends_of
from costar_cli.data.table.index import Ints, Keys
from costar_cli.data.table.inputs import TableInputs, read_table
from costar_cli.data.table.known_queries import read_queries
from costar_cli.data.table.preprocessing import KEY, to_json
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_column import MONTHS
from costar_cli.data.table.scratch import Scratch, told_of_memory
from costar_cli.data.table.splits import assign_parts
from costar_cli.data.table.treatments import encode_treatments
from costar_cli.data.table.variables import Encoded, calendar_columns, encode_variables
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError, complaint
from costar_cli.reporting import Reporter

ROLLING: Final = "rolling_origin"
FIRST_YEAR: Final = 1000
FEW_BARE: Final = 0.01  # of the steps, share that may lack a row without moving effects much


@told_of_memory()
def ingest_table(inputs: TableInputs, schema: TableSchema, reporter: Reporter, *, seed: int | None = None) -> Dataset:
    """Make a data set of somebody's own tables.

    Levels, categories, means and what is constant are learned from source-train alone.

    `seed` is that of the split, the schema's by default.

    Raises:
        DataError: the tables cannot be used; the message names files, rows and fixes, as many at once as possible.
        StorageError: the disk has no room for the rows.
    """
    if inputs.queries is not None and not schema.named("outcome"):
        fix = "leave out the queries, or give a column the role `outcome`"
        raise DataError("queries are plans with known outcomes, and the schema has none", where="--queries", fix=fix)
    with Scratch(inputs.scratch) as scratch, reporter.task("read tables", total=5, unit="stage") as task:
        table = read_table(inputs, schema, reporter, scratch=scratch)
        task.advance()
        part, spans = assign_parts(table, schema, schema.split.seed if seed is None else seed, reporter)
        kept = part >= 0
        spans = spans and {number: (since[kept], steps[kept]) for number, (since, steps) in spans.items()}
        # Whether the test subjects are asked what came next
        wanted = schema.queries.rolling_origin
        asks = inputs.queries is None if wanted is None else wanted
        asks = asks and bool(schema.named("outcome"))
        context = EncodingContext(table.keep(kept), part[kept], schema, reporter, spans=spans, asks=asks)
        if not context.train.any():
            # What to say of a table without source-train: where its subjects are instead, and the first of them
            counts = {str(part): int((context.part == number).sum()) for number, part in enumerate(Part.all())}
            where = ", ".join(f"{part} has {n}" for part, n in counts.items() if n)
            first = context.table.place(int(context.table.keys.first[0]))
            said = context.schema.named("split", "domain")
            fix = f"check {shown(said)} there" if said else "check the split and the domains"
            raise DataError(f"no subject is in source/train: {where}", where=f"first subject in {first}", fix=fix)
        task.advance()
        panel_schema, by_cell, by_subject = encode_columns(context)
        task.advance()
        panels = build_panels(context, by_cell, by_subject)
        del by_cell
        # Stop where no subject teaches the last predicted step, or none can be asked for it
        horizon = schema.horizon
        ahead = {part: int((panel.length - panel.first_origin).max()) - 1 for part, panel in panels.items()}
        train, val = Part("source", "train"), Part("source", "val")
        longest = {"source/train": ahead[train]}
        if val in panels and panels[val].since is not None:  # in a short span of time nobody may have a whole horizon
            longest["source/val"] = ahead[val]
        tests = [steps for part, steps in ahead.items() if part.split == "test"]
        if asks and tests:
            longest["test"] = max(tests)
        short = [name for name, steps in longest.items() if steps < horizon]
        if short:
            most = min(longest.values())
            problem = f"no {' or '.join(short)} subject has the {horizon + 1} steps that a horizon of {horizon} needs"
            fix = f"the longest possible `horizon` is {most}" if most else "give series of at least two steps"
            raise DataError(problem, where="horizon", fix=fix)
        task.advance()
        queries = _ask(inputs, context, panel_schema.treatments, panels)
        task.advance()
    config = table_config(schema, seed) | ingestion_record(context) | {KEY: to_json(context, panel_schema)}
    dataset = Dataset(schema.name, panel_schema, schema.horizon, panels, queries, config=config)
    _warn(dataset, context)
    del context, table  # what they hold of each row is not needed any more
    check_dataset(dataset, reporter)
    return dataset


def table_config(schema: TableSchema, seed: int | None) -> dict[str, Any]:
    """Return what makes a data set of tables that data set: what the schema says beyond the defaults, and the seed."""
    chosen = schema.model_dump(mode="json", exclude_defaults=True)
    return {"schema": chosen} if seed is None else {"schema": chosen, "seed": seed}


def _ask(
    inputs: TableInputs, context: EncodingContext, encoding: TreatmentEncoding, panels: Mapping[Part, Panel]
) -> dict[Part, dict[str, Queries]]:
    """Return the queries of a file, and what came next on the test parts where the schema wants it."""
    schema, reporter = context.schema, context.reporter
    queries = {} if inputs.queries is None else read_queries(inputs.queries, context, encoding)
    for part, panel in panels.items():
        if part.split != "test" or not context.asks:
            continue
        asked = rolling_origin(panel, schema.horizon)
        if asked is not None:
            queries.setdefault(part, {})[ROLLING] = asked
        steps_N = panel.length - panel.first_origin
        if short := int((steps_N <= schema.horizon).sum()):
            reporter.say(
                Diagnostic.of(
                    "origins-short", severity="warning" if 2 * short > panel.n_subjects else "note", short=short,
                    subjects=counted(panel.n_subjects, f"{part} subject"), steps=schema.horizon + 1,
                    horizon=schema.horizon, longest=int(steps_N.max()),
                )
            )  # fmt: skip
    return queries


def ingestion_record(context: EncodingContext) -> dict[str, Any]:
    """Return what ingestion did, for the data report."""
    return {
        "ingestion": {
            "rows": context.table.rows.height,
            "filled": dict(context.filled),
            "left_out": list(context.dropped),
        }
    }


def _warn(dataset: Dataset, context: EncodingContext) -> None:
    """Say what a reader of results should know of a table that was filled or does not fill all parts."""
    for name in context.schema.named("outcome"):
        if name in context.filled:
            values = counted(context.filled[name]["missing"], "missing value")
            context.reporter.say(Diagnostic.of("outcome-filled", name, values=values))
    steps, bare = len(context.table.keys.row), {name: n for name, n in context.bare.items() if n}
    if bare and (most := max(bare.values())) > FEW_BARE * steps:
        until = ", up to the end of each subject's last interval," if context.schema.time.stop else ""
        percent, names = 100 * most / steps, shown(bare)
        context.reporter.say(
            Diagnostic.of("steps-without-rows", names=names, most=most, steps=steps, percent=percent, until=until)
        )
    present = {str(part) for part in dataset.panels}
    for part, needed in (
        ("source/val", "training selects on it"),
        ("source/test", "evaluation needs it"),
    ):
        if part not in present:
            context.reporter.say(Diagnostic.of("part-empty", part, needed=needed))


Arrays = dict[str, NDArray[Any]]  # of a panel, by field


def encode_columns(context: EncodingContext) -> tuple[PanelSchema, Arrays, Arrays]:
    """Return what the columns become; the arrays of a panel with a row per cell `[M,...]`, and per subject `[N,...]`.

    Raises:
        DataError: all that is wrong with the values; names that two columns would have; too little memory.
    """
    schema, table = context.schema, context.table
    context.room.require()
    ended, found = ends_of(table, schema)
    context.findings += found
    # Nothing was recorded in the cells of ends that are behind the last rows of subjects
    context.final = table.keys.last_of_subject & (table.keys.row < 0) if schema.time.stop else None
    if ended:
        context.final = ended.final if context.final is None else context.final | ended.final
        marked = [name for name in ended.names if schema.columns[name].role == "event" and not schema.columns[name].at]
        context.learned.categories.update({name: ended.names[name] for name in marked})
    covariates, masks = encode_variables(context, "covariate")
    outcomes, outcome_masks = encode_variables(context, "outcome")
    statics, static_masks = encode_variables(context, "static")
    cluster = _clusters(context)
    encoding, treatments = encode_treatments(context)
    covariates += [*masks, *outcome_masks, *calendar_columns(context)]
    statics += static_masks
    units = {encoded.variable.unit for encoded in outcomes}
    try:
        panel_schema = PanelSchema(
            covariates=tuple(encoded.variable for encoded in covariates),
            treatments=encoding,
            outcomes=tuple(encoded.variable for encoded in outcomes),
            statics=tuple(encoded.variable for encoded in statics),
            step="visit" if schema.time.gaps == "elapsed" else schema.time.parsed.word,
            error_unit=_error_unit(schema, len(outcomes), units),
            ends=ended.ends if ended else (),
            subject=tuple(schema.subject or ()),
        )
    except ValidationError as error:
        problem = complaint(error.errors()[0])
        raise DataError(problem, where="the schema", fix="rename the columns in the file") from None
    if context.dropped:
        context.reporter.say(Diagnostic.of("columns-left-out", names=shown(context.dropped, 12)))
    cells, subjects = len(table.keys.step), len(table.keys.subjects)
    observed = [context.outcomes_observed[encoded.variable.name] for encoded in outcomes]
    seen = [encoded.observed for encoded in covariates]
    context.room.masks(any(column is not None for column in seen))
    by_cell: Arrays = {
        "covariates": _stacked(covariates, cells),
        "treatments": treatments,
        "outcomes": _stacked(outcomes, cells),
    }
    if observed:
        by_cell["outcome_observed"] = np.stack(observed, axis=-1)
    if any(column is not None for column in seen):
        whole = np.ones(cells, dtype=bool)
        by_cell["covariate_observed"] = np.stack([whole if column is None else column for column in seen], axis=-1)
    by_subject: Arrays = {"statics": _stacked(statics, subjects)} | ({} if cluster is None else {"cluster": cluster})
    by_subject |= {"end": ended.code} if ended else {}
    return panel_schema, by_cell, by_subject


def _error_unit(schema: TableSchema, outcomes: int, units: set[str]) -> ErrorUnit:
    if schema.error_unit is not None:
        return ErrorUnit(**schema.error_unit.model_dump())
    if outcomes <= 1:
        return ErrorUnit(label=next(iter(units), ""))
    return ErrorUnit(label="sd of source-train", space="standardized")


def _stacked(columns: list[Encoded], height: int) -> NDArray[np.float32]:
    """Return columns side by side; the list is empty then, so that none is held twice for long."""
    stacked = np.empty((height, len(columns)), dtype=np.float32)
    for i in range(len(columns)):
        stacked[:, i] = columns.pop(0).values
    return stacked


def _clusters(context: EncodingContext) -> Ints | None:
    """Return the number of each subject's cluster: its own where all are whole numbers, else its place."""
    named = context.schema.named("cluster")
    if not named:
        return None
    data, _ = context.table.subject_values(named[0])  # what is wrong with them was told when subjects were split
    numbers = data.str.to_integer(strict=False)
    if not numbers.is_null().any():
        return numbers.to_numpy().astype(np.int64)
    labels = {label: i for i, label in enumerate(data.unique().sort().to_list())}
    return np.array([labels[label] for label in data.to_list()], dtype=np.int64)


def build_panels(context: EncodingContext, by_cell: Arrays, by_subject: Arrays) -> dict[Part, Panel]:
    """Return the panel of each part that has subjects, padded to its longest series.

    The arrays are taken out of `by_cell`, so that each is held twice only while it is laid out.
    """
    keys, panels = context.table.keys, {}
    names = np.array(keys.subjects.names)
    steps_P = {part: context.steps_of(number) for number, part in enumerate(Part.all())}
    steps_P = {part: steps for part, steps in steps_P.items() if steps.any()}
    series: dict[Part, Arrays] = {part: {} for part in steps_P}
    for name in list(by_cell):
        values = by_cell.pop(name)
        for part, steps in steps_P.items():
            cells = keys.step < steps[keys.subject]
            series[part][name] = _padded(values[cells], _place(keys, steps, cells), steps[steps > 0])
        del values
    for number, part in enumerate(Part.all()):
        if part not in series:
            continue
        members, length = steps_P[part] > 0, steps_P[part][steps_P[part] > 0]
        since = context.spans[number][0][members] if context.spans and part.split != "train" else None
        own = {name: values[members] for name, values in by_subject.items()}
        if "end" in own:  # series that are cut by a split go on
            own["end"] = np.where(length == keys.length[members], own["end"], 0)
        panels[part] = Panel(
            **series[part],
            **own,
            length=length,
            subject_id=keys.subjects.ids[members],
            label=names[members] if keys.subjects.labelled else None,
            calendar=_calendar(context, steps_P[part]),
            since=since,
        )
    return panels


def _padded(values: NDArray[Any], place: tuple[Ints, Ints], length: Ints) -> NDArray[Any]:
    """Return the values of cells by row and step, with zeros behind each series."""
    padded = np.zeros((len(length), int(length.max()), *values.shape[1:]), values.dtype)
    padded[place] = values
    return padded


def _place(keys: Keys, steps: Ints, cells: Mask) -> tuple[Ints, Ints]:
    """Return the row and the step of cells in the panel of subjects with so many steps `[N]`, 0 of those left out."""
    return (np.cumsum(steps > 0) - 1)[keys.subject[cells]], keys.step[cells]


def _calendar(context: EncodingContext, steps: Ints) -> Calendar | None:
    """Return when so many steps `[N]` of each subject were, of those with any.

    None where times are numbers, other than years, or of no year from 1 to 9999.
    """
    keys, clock, factor = context.table.keys, context.schema.time, 1
    if not context.table.rows.height:
        return None
    members, length = steps > 0, steps[steps > 0]
    if clock.parsed.scale == "number":  # years that are called so, and are no years since something
        if not clock.form or context.times.min() < FIRST_YEAR or (context.times % 1).any():
            return None
        factor = MONTHS
    time_M = context.times.astype(np.int64) * factor
    if clock.parsed.scale != "us":
        time_M -= 1970 * MONTHS
    unit: Unit = "us" if clock.parsed.scale == "us" else "M"
    if clock.by_row:
        cells = keys.step < steps[keys.subject]
        calendar = Calendar(_padded(time_M[cells], _place(keys, steps, cells), length), unit, None, form=clock.form)
    else:
        size = int(clock.parsed.size) * factor
        calendar = Calendar(time_M[keys.first][members][:, None], unit, size, form=clock.form)
    return calendar if calendar.is_ordered(length) else None
