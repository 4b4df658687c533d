"""The columns of a data set, encoded, and its panels made of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from costar_cli.datasets.table.index import Ints
from costar_cli.datasets.table.places import Places
from costar_cli.datasets.table.schema import TableSchema
from costar_cli.datasets.table.treatments import encode_treatments
from costar_cli.datasets.table.variables import Encoded, Learner, encode_variables
from costar_cli.errors import DataError
from costar_cli.panel.dataset import Part
from costar_cli.panel.findings import shown
from costar_cli.panel.panel import Panel
from costar_cli.panel.schema import ErrorUnit, PanelSchema

__all__ = ["Made", "build_panels", "encode"]

Number = TypeVar("Number", np.float32, np.bool_)


@dataclass(frozen=True, eq=False, slots=True)
class Made:
    """The encoded columns and what they are."""

    schema: PanelSchema
    covariates: NDArray[np.float32]
    treatments: NDArray[np.float32]
    outcomes: NDArray[np.float32]
    statics: NDArray[np.float32]
    cluster: Ints | None
    outcome_observed: NDArray[np.bool_]


def encode(learner: Learner) -> Made:
    """Return every column encoded, with what it became.

    Raises:
        DataError: all that is wrong with the values; names that two columns would have.
    """
    schema, values = learner.schema, learner.values
    covariates, masks = encode_variables(learner, "covariate")
    outcomes, outcome_masks = encode_variables(learner, "outcome")
    statics, static_masks = encode_variables(learner, "static")
    cluster = _clusters(learner)
    encoding, treatments = encode_treatments(learner)
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
        problem = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        raise DataError(problem, where="the schema", fix="rename the columns in the file") from None
    if learner.dropped:
        learner.reporter.warn(f"left out, since they never change in source-train: {shown(learner.dropped, 12)}")
    cells, subjects = len(values.keys.step), len(values.keys.subjects)
    return Made(
        panel_schema,
        _stacked(covariates, cells),
        treatments,
        _stacked(outcomes, cells),
        _stacked(statics, subjects),
        cluster,
        np.stack([learner.outcomes_observed[encoded.variable.name] for encoded in outcomes], axis=-1),
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


def _clusters(learner: Learner) -> Ints | None:
    """Return the number of each subject's cluster: its own where all are whole numbers, else its place."""
    named = learner.schema.named("cluster")
    if not named:
        return None
    data, _ = learner.values.subject_values(named[0])  # what is wrong with them was told when subjects were split
    numbers = data.str.to_integer(strict=False)
    if not numbers.is_null().any():
        return numbers.to_numpy().astype(np.int64)
    labels = {label: i for i, label in enumerate(data.unique().sort().to_list())}
    return np.array([labels[label] for label in data.to_list()], dtype=np.int64)


def build_panels(places: Places, made: Made) -> dict[Part, Panel]:
    """Return the panel of each part that has subjects, padded to its longest series."""
    keys, panels = places.keys, {}
    names = np.array(keys.subjects.names)
    for number, part in enumerate(Part.all()):
        members = places.part == number
        if not members.any():
            continue
        cells, length = members[keys.subject], keys.length[members]
        at = places.row[keys.subject[cells]], keys.step[cells]

        def padded(
            data: NDArray[Number],
            at: tuple[Ints, Ints] = at,
            cells: NDArray[np.bool_] = cells,
            shape: tuple[int, int] = (len(length), int(length.max())),
        ) -> NDArray[Number]:
            result = np.zeros((*shape, data.shape[1]), dtype=data.dtype)
            result[at] = data[cells]
            return result

        panels[part] = Panel(
            covariates=padded(made.covariates),
            treatments=padded(made.treatments),
            outcomes=padded(made.outcomes),
            statics=made.statics[members],
            length=length,
            subject_id=keys.subjects.ids[members],
            label=names[members] if keys.subjects.labelled else None,
            cluster=None if made.cluster is None else made.cluster[members],
            outcome_observed=padded(made.outcome_observed),
        )
    return panels
