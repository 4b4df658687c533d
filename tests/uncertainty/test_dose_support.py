"""The practice light of doses: gaps, what lies beyond the range, and what is rare after such a course."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from costar_cli.data import Part, Queries, Scaler, as_plans
from costar_cli.inference.propensity import DoseRecord, PropensityModel
from tests.dose_worlds import linear_doses


def test_doses_in_a_gap_and_beyond_the_range_have_next_to_no_share() -> None:
    rng = np.random.default_rng(0)
    record = DoseRecord.of(np.concatenate([rng.uniform(1, 2, 500), rng.uniform(8, 9, 500)]))
    share = np.exp(record.log_share(np.array([1.5, 5.0, 8.5, 10.0, 0.0])))
    assert (share[[0, 2]] > 0.05).all()
    assert (share[[1, 3, 4]] < 0.001).all()


def test_none_is_a_bin_of_its_own_where_it_occurs() -> None:
    record = DoseRecord.of(np.concatenate([np.zeros(100), np.linspace(1, 9, 900)]))
    bins = record.bins(np.array([0.0, 1.0, 9.0])).argmax(axis=1), record.bins(np.array([0.0, 1.0, 9.0])).any(axis=1)
    assert bins[1].tolist() == [False, True, True]
    assert bins[0][1] < bins[0][2]


@pytest.mark.parametrize(
    ("damage", "said"),
    [({"low": np.nan}, "range"), ({"high": np.inf}, "range"), ({"low": 9.5}, "range"),
     ({"edges": np.array([3.0, 2.0, 5.0])}, "bins"), ({"edges": np.array([1.0, np.nan])}, "bins"),
     ({"count": -np.ones(20)}, "cells"), ({"count": np.ones(19)}, "cells")],
)  # fmt: skip
def test_records_that_nobody_wrote_are_refused(damage: dict[str, Any], said: str) -> None:
    record = DoseRecord.of(np.linspace(1, 9, 900))
    record.check()
    with pytest.raises(ValueError, match=said):
        replace(record, **damage).check()


def test_a_dose_is_rarer_after_a_course_that_calls_for_another() -> None:
    data = linear_doses(300)
    panel, scaler = data.panels[Part("source", "train")], Scaler.fit(data.panels[Part("source", "train")], data.schema)
    practice = PropensityModel.fit(panel, data.schema, scaler)
    assert practice is not None
    ordered = np.argsort(panel.outcomes[:, 8, 0])
    healthy, sick = ordered[:30].astype(np.int32), ordered[-30:].astype(np.int32)

    def log_of(rows: NDArray[np.int32], dose: float) -> float:
        plan = as_plans(data.schema.treatments.encode(np.full((30, 1, 1), dose)))
        queries = Queries(rows, np.full(30, 8, np.int16), plan)
        return float(practice.log_probability(panel, queries, np.zeros((30, 1, 1))).mean())

    assert log_of(healthy, 0.5) > log_of(sick, 0.5) + 0.3
    assert log_of(sick, 3.2) > log_of(healthy, 3.2) + 0.3
