"""What `costar check` rests on, on data whose ends, combinations and splits are known."""

import numpy as np
import polars as pl

import costar_cli as costar
from costar_cli.data import Dataset
from costar_cli.inference.suitability import Criterion, assess
from tests.mortal_world import mortal_dataset


def found(dataset: Dataset) -> dict[str, Criterion]:
    return {criterion.name: criterion for criterion in assess(dataset).criteria}


def test_ends_are_counted_and_few_of_a_kind_are_named() -> None:
    many, few = (found(mortal_dataset(sizes)) for sizes in ((120, 40, 40, 1, 1, 1), (12, 6, 6, 1, 1, 1)))
    assert many["events"].rating == "ok"
    assert few["events"].rating == "care"
    assert "'death'" in few["events"].fix
    assert few["subjects"].rating == "care"


def two_drugs(subjects: int, steps: int, **schema: object) -> Dataset:
    """A table of two drugs, each given at a third of the steps by lot, and never both."""
    rng = np.random.default_rng(4)
    which = rng.integers(0, 3, (subjects, steps))
    frame = pl.DataFrame({
        "id": np.repeat(np.arange(subjects), steps), "t": np.tile(np.arange(steps), subjects),
        "y": rng.normal(100, 9, subjects * steps),
        "one": (which == 1).astype(int).ravel(), "two": (which == 2).astype(int).ravel(),
    })  # fmt: skip
    roles = {"id": "subject", "t": "time", "y": "outcome", "one": "treatment", "two": "treatment"}
    columns = {name: {"role": role} for name, role in roles.items()}
    return costar.read_table(frame, schema={"name": "drugs", "horizon": 2, "columns": columns, **schema})


def test_a_combination_that_nobody_received_is_named() -> None:
    criteria = found(two_drugs(150, 6))
    assert criteria["never"].rating == "care"
    assert "one" in criteria["never"].text
    assert "two" in criteria["never"].text
    assert criteria["treatment"].rating == "ok"


def test_a_series_that_is_split_by_time_counts_once() -> None:
    criteria = found(two_drugs(60, 30, split={"by": "time"}))
    assert criteria["steps"].text.startswith("1,800 of 60 subjects, 30 to 30 each")
    assert criteria["subjects"].rating == "ok"
