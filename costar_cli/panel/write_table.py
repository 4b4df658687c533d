"""Panels as long tables, one row per subject and step, with treatments by name (polars)."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.panel.dataset import Dataset, Part
from costar_cli.panel.panel import Panel
from costar_cli.panel.schema import PanelSchema

__all__ = ["dataset_to_frames", "labels_are_numbers", "panel_to_frame"]


def panel_to_frame(panel: Panel, schema: PanelSchema, *, subject: str = "subject", time: str = "step") -> pl.DataFrame:
    """Return a panel as a long table: subject, step, outcomes, treatments, covariates, statics (on each row).

    A binary treatment is 0 or 1, any other its level's name; null where no treatment was recorded.
    """
    observed = panel.observed
    row, step = np.nonzero(observed)
    columns: dict[str, pl.Series] = {
        subject: pl.Series(panel.subject_id[row], dtype=pl.Int64),
        time: pl.Series(step, dtype=pl.Int64),
    }
    columns |= {v.name: pl.Series(panel.outcomes[observed][:, i]) for i, v in enumerate(schema.outcomes)}
    columns |= _treatment_columns(panel.treatments[observed], schema)
    columns |= {v.name: pl.Series(panel.covariates[observed][:, i]) for i, v in enumerate(schema.covariates)}
    columns |= {v.name: pl.Series(panel.statics[row][:, i]) for i, v in enumerate(schema.statics)}
    return pl.DataFrame(columns)


def dataset_to_frames(dataset: Dataset, *, subject: str = "subject", time: str = "step") -> dict[Part, pl.DataFrame]:
    """Return a long table per part, led by its `domain` and `split`; `pl.concat` of them is one long table."""
    return {
        part: panel_to_frame(panel, dataset.schema, subject=subject, time=time).select(
            pl.lit(part.domain).alias("domain"), pl.lit(part.split).alias("split"), pl.all()
        )
        for part, panel in dataset.panels.items()
    }


def labels_are_numbers(levels: tuple[str, ...]) -> bool:
    """Return whether a treatment's level names read as numbers other than their own positions."""
    return any(_is_number(label) for label in levels) and levels != tuple(str(i) for i in range(len(levels)))


def _is_number(label: str) -> bool:
    try:
        float(label)
    except ValueError:
        return False
    return True


def _treatment_columns(encoded: NDArray[np.float32], schema: PanelSchema) -> dict[str, pl.Series]:
    treatments = schema.treatments
    values = treatments.decode(encoded)
    recorded = encoded.any(axis=-1) | (treatments.mode == "multilabel")
    columns = {}
    for i, (name, levels) in enumerate(zip(treatments.names, treatments.levels, strict=True)):
        if len(levels) == 2 and not labels_are_numbers(levels):
            series = pl.Series(values[:, i], dtype=pl.Int8)
        else:
            series = pl.Series([levels[v] for v in range(len(levels))], dtype=pl.String).gather(values[:, i])
        columns[name] = pl.select(pl.when(pl.Series(recorded)).then(series).otherwise(None)).to_series()
    return columns
