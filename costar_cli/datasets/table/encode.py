"""A table as numbers, and the panels of its parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from costar_cli.datasets.table.context import EncodingContext, Mask, Table
from costar_cli.datasets.table.index import Ints
from costar_cli.datasets.table.schema import TableSchema
from costar_cli.datasets.table.treatments import encode_treatments
from costar_cli.datasets.table.variables import Encoded, encode_variables
from costar_cli.errors import DataError, complaint
from costar_cli.panel.dataset import Part
from costar_cli.panel.findings import shown
from costar_cli.panel.panel import Panel
from costar_cli.panel.schema import ErrorUnit, PanelSchema

__all__ = ["EncodedTable", "build_panels", "encode_table"]

Number = TypeVar("Number", np.float32, np.bool_)


@dataclass(frozen=True, eq=False, slots=True)
class EncodedTable:
    """A table as numbers, and what they are: by cell `[M]` or by subject `[N]`, of all parts together.

    Args:
        table: the table as it was read: who its subjects are, and where each cell comes from.
        part: the number `[N]` of each subject's part in `Part.all()`.
        schema: what the columns became.
        covariates: `[M,dx]`.
        treatments: `[M,da]`.
        outcomes: `[M,dy]`.
        statics: `[N,dv]`.
        cluster: `[N]`, where there are clusters.
        outcome_observed: which outcomes `[M,dy]` were not filled.
    """

    table: Table
    part: Ints
    schema: PanelSchema
    covariates: NDArray[np.float32]
    treatments: NDArray[np.float32]
    outcomes: NDArray[np.float32]
    statics: NDArray[np.float32]
    cluster: Ints | None
    outcome_observed: Mask

    @property
    def place(self) -> Ints:
        """Return the row `[N]` of each subject in the panel of its part, where subjects keep their order."""
        place = np.zeros(len(self.part), dtype=np.int64)
        for number in range(len(Part.all())):
            place[self.part == number] = np.arange(int((self.part == number).sum()))
        return place


def encode_table(context: EncodingContext) -> EncodedTable:
    """Return every column encoded, with what it became.

    Raises:
        DataError: all that is wrong with the values; names that two columns would have.
    """
    schema, table = context.schema, context.table
    covariates, masks = encode_variables(context, "covariate")
    outcomes, outcome_masks = encode_variables(context, "outcome")
    statics, static_masks = encode_variables(context, "static")
    cluster = _clusters(context)
    encoding, treatments = encode_treatments(context)
    covariates += masks + outcome_masks
    statics += static_masks
    units = {encoded.variable.unit for encoded in outcomes}
    try:
        panel_schema = PanelSchema(
            covariates=tuple(encoded.variable for encoded in covariates),
            treatments=encoding,
            outcomes=tuple(encoded.variable for encoded in outcomes),
            statics=tuple(encoded.variable for encoded in statics),
            step=schema.time.parsed.word,
            error_unit=_error_unit(schema, len(outcomes), units),
        )
    except ValidationError as error:
        problem = complaint(error.errors()[0])
        raise DataError(problem, where="the schema", fix="rename the columns in the file") from None
    if context.dropped:
        context.reporter.warn(f"left out, since they never change in source-train: {shown(context.dropped, 12)}")
    cells, subjects = len(table.keys.step), len(table.keys.subjects)
    return EncodedTable(
        table,
        context.part,
        panel_schema,
        _stacked(covariates, cells),
        treatments,
        _stacked(outcomes, cells),
        _stacked(statics, subjects),
        cluster,
        np.stack([context.outcomes_observed[encoded.variable.name] for encoded in outcomes], axis=-1),
    )


def _error_unit(schema: TableSchema, outcomes: int, units: set[str]) -> ErrorUnit:
    if schema.error_unit is not None:
        return ErrorUnit(**schema.error_unit.model_dump())
    if outcomes == 1:
        return ErrorUnit(label=next(iter(units)))
    return ErrorUnit(label="sd of source-train", space="standardized")


def _stacked(columns: Sequence[Encoded], height: int) -> NDArray[np.float32]:
    if not columns:
        return np.zeros((height, 0), dtype=np.float32)
    return np.stack([encoded.values for encoded in columns], axis=-1)


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


def build_panels(encoded: EncodedTable) -> dict[Part, Panel]:
    """Return the panel of each part that has subjects, padded to its longest series."""
    keys, panels = encoded.table.keys, {}
    names, place = np.array(keys.subjects.names), encoded.place
    for number, part in enumerate(Part.all()):
        members = encoded.part == number
        if not members.any():
            continue
        cells, length = members[keys.subject], keys.length[members]
        at = place[keys.subject[cells]], keys.step[cells]

        def padded(
            data: NDArray[Number],
            at: tuple[Ints, Ints] = at,
            cells: Mask = cells,
            shape: tuple[int, int] = (len(length), int(length.max())),
        ) -> NDArray[Number]:
            result = np.zeros((*shape, data.shape[1]), dtype=data.dtype)
            result[at] = data[cells]
            return result

        panels[part] = Panel(
            covariates=padded(encoded.covariates),
            treatments=padded(encoded.treatments),
            outcomes=padded(encoded.outcomes),
            statics=encoded.statics[members],
            length=length,
            subject_id=keys.subjects.ids[members],
            label=names[members] if keys.subjects.labelled else None,
            cluster=None if encoded.cluster is None else encoded.cluster[members],
            outcome_observed=padded(encoded.outcome_observed),
        )
    return panels
