"""pygformula's public sample data as data sets of costar, with the numbers of its documentation.

Row t of a file holds covariates, then the treatment, then whether an event (`Y`, or the competing `D`) came by t + 1. A
panel shows an event at the row after; subjects without one are known to be free of it there, and nothing else is.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from costar_cli.data import Dataset, End, Panel, PanelSchema, Part, TreatmentEncoding, Variable
from costar_cli.data.dose import Dose

__all__ = ["DOCUMENTED", "samples"]

# Risks and means at the end of follow-up: figures under docs/source/media of pygformula at e043c9e
DOCUMENTED: Final[Mapping[str, Mapping[str, float]]] = {
    "basicdata_nocomp": {"natural": 0.50396, "never": 0.73346, "always": 0.23297, "L2 > 0.75": 0.60878},
    "basicdata": {"natural": 0.42306, "never": 0.58927, "always": 0.21410},
    "continuous_eof": {"natural": -4.38216, "never": -3.38995, "always": -4.60302},
    "threshold_data": {"natural": 0.98359, "at least 0.5": 0.32806},
}
NATURAL: Final[dict[str, dict[str, object]]] = {"natural": {"natural": True}}
STATIC: Final[dict[str, dict[str, object]]] = {**NATURAL, "never": {"repeat": {}}, "always": {"repeat": {"A": 1}}}
PLANS: Final[Mapping[str, Mapping[str, Mapping[str, object]]]] = {
    "basicdata_nocomp": {**STATIC, "L2 > 0.75": {"rule": "A if L2 > 0.75"}},
    "basicdata": STATIC,
    "continuous_eof": STATIC,
    "threshold_data": {**NATURAL, "at least 0.5": {"rule": "A = 0.5 if natural A < 0.5"}},
}


def samples(folder: Path) -> dict[str, tuple[Dataset, dict[str, object], str]]:
    """Return data set, plans by name and outcome of each file of a checkout of pygformula."""
    found = {}
    for name, plans in PLANS.items():
        file = "example_threshold_data.csv" if name == "threshold_data" else f"example_data_{name}.csv"
        table = pl.read_csv(folder / "datasets" / file, null_values="NA").sort("id", "t0")
        dataset = sample(name, table)
        steps = dataset.horizon
        asked: dict[str, object] = {plan: {**words, "times": steps} for plan, words in plans.items()}
        found[name] = dataset, asked, "Y"
    return found


def sample(name: str, table: pl.DataFrame) -> Dataset:
    """Return a table as a data set whose subjects are all in `source/train`."""
    row_R = table["t0"].to_numpy()
    subject_R = table["id"].rank("dense").to_numpy() - 1
    n, steps = int(subject_R.max()) + 1, int(row_R.max()) + 1

    def spread(column: str) -> np.ndarray[Any, Any]:
        values_NT = np.zeros((n, steps + 1))
        values_NT[subject_R, row_R] = table[column].cast(pl.Float64).fill_null(0.0).to_numpy()
        return values_NT

    rows_N = np.bincount(subject_R, minlength=n)
    last_N = rows_N - 1
    y_NT, numbers = spread("Y"), np.arange(n)
    measured_NT = np.arange(steps + 1) < rows_N[:, None]
    survival = not name.endswith("_eof")
    end_N = np.zeros(n, dtype=np.int64)
    ends: tuple[End, ...] = ()
    if survival:
        end_N = (y_NT[numbers, last_N] == 1).astype(np.int64)
        ends = (End(name="Y"),)
        if "D" in table.columns:
            end_N[spread("D")[numbers, last_N] == 1] = 2
            ends = (*ends, End(name="D"))
        covariates, outcome, outcome_NT, seen_NT = ["L1"], Variable(name="L2"), spread("L2"), measured_NT
    else:
        # The first of three classes of L1 is the reference
        covariates, outcome = ["L1_2", "L1_3", "L2"], Variable(name="Y")
        table = table.with_columns(L1_2=pl.col("L1") == 2, L1_3=pl.col("L1") == 3)
        outcome_NT = np.pad(y_NT[:, -2:-1], ((0, 0), (steps, 0)))
        seen_NT = (np.arange(steps + 1) == steps) & (rows_N == steps)[:, None]
    a_NT = spread("A")
    if np.isin(a_NT, (0, 1)).all():
        encoding = TreatmentEncoding(mode="multilabel", names=("A",), levels=(("off", "on"),))
    else:
        dose = Dose.learn("A", table["A"].cast(pl.Float64).to_numpy())
        encoding = TreatmentEncoding(mode="multilabel", names=(), levels=(), doses=(dose,))
    statics = ["L3"] if "L3" in table.columns else []
    kinds = {"L1": "binary", "L1_2": "binary", "L1_3": "binary"}
    schema = PanelSchema(
        covariates=tuple(Variable(name=c, kind=kinds.get(c, "continuous")) for c in covariates),
        outcomes=(outcome,), treatments=encoding, statics=tuple(Variable(name=s) for s in statics), ends=ends,
    )  # fmt: skip
    panel = Panel(
        covariates=np.stack([spread(c) for c in covariates], axis=-1).astype(np.float32),
        treatments=encoding.encode(a_NT[..., None]) * measured_NT[..., None],
        outcomes=outcome_NT[..., None].astype(np.float32),
        statics=np.array([spread(s)[:, 0] for s in statics], dtype=np.float32).reshape(len(statics), n).T,
        length=rows_N + 1,
        subject_id=numbers,
        outcome_observed=seen_NT[..., None],
        covariate_observed=np.repeat(measured_NT[..., None], len(covariates), axis=-1),
        end=end_N if survival else None,
    )
    return Dataset(name, schema, steps, {Part("source", "train"): panel})
