"""From files of rows to a data set: read, order, split, learn from source-train, encode, ask (polars)."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from costar_cli.datasets.table.context import EncodingContext
from costar_cli.datasets.table.encode import EncodedTable, build_panels, encode_table
from costar_cli.datasets.table.inputs import TableInputs, read_table
from costar_cli.datasets.table.known_queries import read_queries
from costar_cli.datasets.table.schema import TableSchema
from costar_cli.datasets.table.splits import assign_parts
from costar_cli.errors import DataError
from costar_cli.panel.check import check_dataset
from costar_cli.panel.dataset import Dataset, Part
from costar_cli.panel.findings import counted
from costar_cli.panel.panel import Panel
from costar_cli.panel.queries import Queries, rolling_origin
from costar_cli.reporting import Reporter

__all__ = ["ingest_table", "table_config"]

ROLLING: Final = "rolling_origin"


def ingest_table(inputs: TableInputs, schema: TableSchema, reporter: Reporter, *, seed: int | None = None) -> Dataset:
    """Make a data set of somebody's own tables.

    Levels, categories, means and what is constant are learned from source-train alone.

    Args:
        inputs: the files.
        schema: what their columns mean.
        reporter: told of progress, of what is dropped, and of what may make results wrong.
        seed: seed of the split; the schema's by default.

    Raises:
        DataError: the tables cannot be used; the message names files, rows and fixes, as many at once as possible.
    """
    with reporter.task("read tables", total=5, unit="stage") as task:
        table = read_table(inputs, schema, reporter)
        task.advance()
        part = assign_parts(table, schema, schema.split.seed if seed is None else seed, reporter)
        context = EncodingContext(table.keep(part >= 0), part[part >= 0], schema, reporter)
        if not context.train.any():
            raise DataError("no subject is in source/train", fix="models learn from them: check splits and domains")
        task.advance()
        encoded = encode_table(context)
        task.advance()
        panels = build_panels(encoded)
        _check_horizon(panels, schema.horizon, asks=_asks(inputs, schema))
        task.advance()
        queries = _ask(inputs, schema, encoded, panels, reporter)
        task.advance()
    config = table_config(schema, seed) | _record(context)
    dataset = Dataset(schema.name, encoded.schema, schema.horizon, panels, queries, config=config)
    _warn(dataset, context)
    check_dataset(dataset, reporter)
    return dataset


def table_config(schema: TableSchema, seed: int | None) -> dict[str, Any]:
    """Return what makes a data set of tables that data set: what the schema says beyond the defaults, and the seed."""
    chosen = schema.model_dump(mode="json", exclude_defaults=True)
    return {"schema": chosen} if seed is None else {"schema": chosen, "seed": seed}


def _ask(
    inputs: TableInputs, schema: TableSchema, encoded: EncodedTable, panels: Mapping[Part, Panel], reporter: Reporter
) -> dict[Part, dict[str, Queries]]:
    """Return the queries of a file, and what came next on the test parts where the schema wants it."""
    queries: dict[Part, dict[str, Queries]] = {}
    if inputs.queries is not None:
        queries = read_queries(inputs.queries, schema, encoded, reporter)
    for part, panel in panels.items():
        if part.split != "test" or not _asks(inputs, schema):
            continue
        asked = rolling_origin(panel, schema.horizon)
        if asked is not None:
            queries.setdefault(part, {})[ROLLING] = asked
        if short := int((panel.length <= schema.horizon).sum()):
            steps = f"{schema.horizon + 1} steps that a question of {schema.horizon} needs"
            longest = f"the longest series has {int(panel.length.max())}"
            problem = f"{short} of {counted(panel.n_subjects, f'{part} subject')} without the {steps}: {longest}"
            (reporter.warn if 2 * short > panel.n_subjects else reporter.note)(problem)
    return queries


def _asks(inputs: TableInputs, schema: TableSchema) -> bool:
    """Return whether the test subjects are asked what came next."""
    wanted = schema.queries.rolling_origin
    return inputs.queries is None if wanted is None else wanted


def _check_horizon(panels: Mapping[Part, Panel], horizon: int, *, asks: bool) -> None:
    """Stop where no subject teaches the last predicted step, or none can be asked for it.

    Raises:
        DataError: naming the longest horizon that the series allow.
    """
    longest = {"source/train": int(panels[Part("source", "train")].length.max()) - 1}
    tests = [int(panel.length.max()) - 1 for part, panel in panels.items() if part.split == "test"]
    if asks and tests:
        longest["test"] = max(tests)
    short = [name for name, steps in longest.items() if steps < horizon]
    if short:
        most = min(longest.values())
        problem = f"no {' or '.join(short)} subject has the {horizon + 1} steps that a horizon of {horizon} needs"
        fix = f"the longest possible `horizon` is {most}" if most else "give series of at least two steps"
        raise DataError(problem, where="horizon", fix=fix)


def _record(context: EncodingContext) -> dict[str, Any]:
    """Return what ingestion did, for the data report."""
    return {
        "ingestion": {
            "rows": context.table.rows.height,
            "filled": {name: asdict(filled) for name, filled in context.filled.items()},
            "left_out": list(context.dropped),
        }
    }


def _warn(dataset: Dataset, context: EncodingContext) -> None:
    """Say what a reader of results should know of a table that was filled or does not fill all parts."""
    for name in context.schema.named("outcome"):
        if name in context.filled:
            values = counted(context.filled[name].missing, "missing value")
            use = "models see the filled-in values as inputs, but neither learn to predict them nor are scored on them"
            context.reporter.warn(f"outcome '{name}': {values}; {use}")
    present = {str(part) for part in dataset.panels}
    for part, needed in (
        ("source/val", "training selects on it"),
        ("source/test", "evaluation needs it"),
    ):
        if part not in present:
            context.reporter.warn(f"no subject is in {part}: {needed}")
