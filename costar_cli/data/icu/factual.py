"""What was given and measured in ICU stays: ventilation, vasopressors, diastolic pressure (spec ICU-17)."""

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.dataset import Dataset, Part
from costar_cli.data.icu.parts import choose_stays
from costar_cli.data.icu.settings import MimicFactualConfig
from costar_cli.data.icu.table import (
    COVARIATE_VARIABLES,
    STATIC_VARIABLES,
    IcuTable,
    Imputation,
    encode_statics,
    warn_of_odd_labels,
)
from costar_cli.data.panel import Panel
from costar_cli.data.queries import Queries, rolling_origin
from costar_cli.data.schema import ErrorUnit, PanelSchema, TreatmentEncoding, Variable
from costar_cli.errors import DataError
from costar_cli.reporting import Reporter
from simulators.icu import COVARIATES

NAME: Final = "mimic-factual"
SOURCE_TRAIN: Final = Part("source", "train")
COLUMNS: Final = (*COVARIATES, "diastolic blood pressure")  # imputed

Singles = NDArray[np.float32]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

MIMIC_FACTUAL_SCHEMA: Final = PanelSchema(
    covariates=COVARIATE_VARIABLES,
    treatments=TreatmentEncoding(
        mode="multilabel", names=("vasopressor", "ventilation"), levels=(("off", "on"), ("off", "on"))
    ),
    outcomes=(Variable(name="diastolic blood pressure", unit="mmHg"),),
    statics=STATIC_VARIABLES,
    step="hour",
    error_unit=ErrorUnit(label="mmHg"),
)


def ingest_mimic(config: MimicFactualConfig, path: Path, reporter: Reporter) -> Dataset:
    """Read a file of MIMIC-Extract, with factual rolling-origin queries on the test parts.

    Raises:
        UsageError: PyTables is missing.
        DataError: the file cannot be used, or has too few patients.
    """
    from costar_cli.data.icu.extract import read_checked  # noqa: PLC0415 - pandas, which simulations do without

    table = read_checked(path, reporter, factual=True, trust_pickle=config.trust_pickle)
    return factual_dataset(table, config, reporter)


def factual_dataset(table: IcuTable, config: MimicFactualConfig, reporter: Reporter) -> Dataset:
    """Return the data set of a table with diastolic pressure, ventilation and vasopressors.

    The treatment of step t is what was given in the hour after hour t was observed, the hour in which its effect is
    measured (the published variant pairs them so). Nothing is filled with later values: gaps take the last recorded
    value, and before the first there is source-train's mean. A filled outcome is part of the history, but only recorded
    ones are learned from and scored.

    Raises:
        DataError: too few patients.
    """
    everybody = np.arange(len(table))
    measured = np.isfinite(_series(table.diastolic, *table.hours_of(everybody, config.hours))).any(axis=1)
    rows_of, counts = choose_stays(
        table,
        config,
        reporter,
        by_age=config.transfer,
        at_most=config.patients,
        usable={"without a diastolic pressure": measured},
    )
    all_rows = np.concatenate(list(rows_of.values()))
    warn_of_odd_labels(table, all_rows, reporter)
    imputation = Imputation.learn(
        _recorded(table, *table.hours_of(rows_of[SOURCE_TRAIN], config.hours)), own_mean=False
    )
    imputation.tell(COLUMNS, reporter)
    panels: dict[Part, Panel] = {}
    queries: dict[Part, dict[str, Queries]] = {}
    with reporter.task("make the panels", total=len(rows_of), unit="part") as task:
        for part, rows in rows_of.items():
            place, within = table.hours_of(rows, config.hours)
            recorded = _recorded(table, place, within)
            length = within.sum(axis=1)
            filled = imputation(recorded, length)
            # Vasopressor and ventilation `[N,T,2]` of the hour after each, zeros in the last
            given = [_series(values, place, within, fill=False) for values in (table.vaso, table.vent)]
            treatments = np.zeros((*within.shape, 2), dtype=np.float32)
            treatments[:, :-1] = np.stack(given, axis=-1)[:, 1:]
            panels[part] = Panel(
                covariates=np.ascontiguousarray(filled[..., :-1]),
                treatments=treatments,
                outcomes=np.ascontiguousarray(filled[..., -1:]),
                statics=encode_statics(table, rows, age_cap=config.age_cap),
                length=length,
                subject_id=table.subject_id[rows],
                outcome_observed=np.isfinite(recorded[..., -1:]),
            )
            if part.split == "test":
                asked = rolling_origin(panels[part], config.horizon)
                queries[part] = {} if asked is None else {"rolling_origin": asked}
            task.advance()
    kept = {**config.model_dump(mode="json"), "embedded": table.embedded, "kept": dict(counts)}
    return Dataset(NAME, MIMIC_FACTUAL_SCHEMA, config.horizon, panels, queries, {}, kept)


def _recorded(table: IcuTable, place: Ints, within: Bools) -> Singles:
    """Return covariates and, last, the outcome `[N,T,26]`, NaN where nothing was recorded."""
    outcome = _series(table.diastolic, place, within)
    values = _series(table.values, place, within[..., None])
    return np.concatenate([values, outcome[..., None]], axis=-1, dtype=np.float32)


def _series(values: NDArray[Any] | None, place: Ints, within: Bools, fill: float = np.nan) -> NDArray[Any]:
    """Return the series of some patients, `fill` after the end of a stay."""
    if values is None:
        raise DataError("the stays have no diastolic pressure, ventilation or vasopressors", fix="read these columns")
    return np.where(within, values[place], values.dtype.type(fill))
