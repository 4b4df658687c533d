"""Tables with events and no outcome: risks are the true ones, and those of the same table with an outcome."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

import costar_cli as costar
from costar_cli.data import Dataset
from costar_cli.data.table.guess import guess_schema
from costar_cli.data.table.schema_file import parse_schema
from costar_cli.errors import DataError, UsageError
from tests.datasets.table_worlds import ingest, save
from tests.mortal_world import TRUE_ENDS, mortal_panel

pytestmark = pytest.mark.filterwarnings("ignore::costar_cli.errors.CostarWarning")  # of few followers

STEPS = 3
PLANS = {"plans": {"never": {"repeat": {}, "times": STEPS}, "always": {"repeat": {"a": 1}, "times": STEPS}}}
KEYS: dict[str, Any] = {"id": {"role": "subject"}, "t": {"role": "time"}, "a": {"role": "treatment"}}


def made(frame: pl.DataFrame, folder: Path, **columns: str) -> Dataset:
    """The data set of a table of ids, times, treatments and further columns by their roles."""
    roles = {name: {"role": role} for name, role in columns.items()}
    document = {"name": "ends", "horizon": STEPS, "min_length": 1, "columns": {**KEYS, **roles}}
    return ingest(frame, parse_schema(document), folder=folder)


def risks(dataset: Dataset, **request: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of risks after the last step, by event and plan."""
    report = costar.estimate_effects(dataset, PLANS, learner="regression", **request)
    rows = [row for row in report.rows if row["quantity"] == "risk" and row["step"] == STEPS]
    return {(row["outcome"], row["plan"]): row for row in rows}


def mortal_table(n: int) -> pl.DataFrame:
    """The subjects of `mortal_world` as a table: nothing is measured or given in the row of an end."""
    panel = mortal_panel(n, 3, rows=STEPS + 2)
    subject_M, step_M = np.nonzero(panel.observed)
    last_M = step_M == panel.length[subject_M] - 1
    end_M = np.where(last_M, panel.ends[subject_M], 0)
    values = {
        "x": panel.covariates[subject_M, step_M, 0], "y": panel.outcomes[subject_M, step_M, 0],
        "a": panel.treatments[subject_M, step_M, 0].astype(int),
    }  # fmt: skip
    over = pl.col("end").is_not_null()
    end = [(None, "death", "recovery")[code] for code in end_M]
    frame = pl.DataFrame({"id": subject_M, "t": step_M, **values, "end": end})
    return frame.with_columns(pl.when(~over).then(pl.col(name)).alias(name) for name in values)


def test_competing_risks_are_true_and_those_of_the_table_with_an_outcome(tmp_path: Path) -> None:
    frame = mortal_table(4000)
    alone = risks(made(frame, tmp_path, x="covariate", y="covariate", end="event"))
    beside = risks(made(frame, tmp_path, x="covariate", y="outcome", end="event"))
    for plan, ends in (("never", TRUE_ENDS["never"]), ("always", TRUE_ENDS["always"])):
        for end, truth in zip(("death", "recovery"), ends, strict=True):
            row = alone[end, plan]
            assert abs(row["estimate"] - truth[STEPS - 1]) < 3 * row["se"]
            assert row["se"] < 0.03
            assert abs(row["estimate"] - beside[end, plan]["estimate"]) < 0.5 * row["se"]
    assert TRUE_ENDS["never"][0][STEPS - 1] - alone["death", "always"]["estimate"] > 0.1


def severe(n: int, seed: int, a: float | None = None) -> pl.DataFrame:
    """Subjects who are treated, and die, by a static alone; under `a`, where it is given to everybody at each step."""
    rng = np.random.default_rng(seed)
    s_N, gone_N, rows = rng.normal(size=n), np.zeros(n, dtype=bool), list[pl.DataFrame]()
    for t in range(STEPS + 2):
        given_N = (rng.random(n) < expit(0.9 * s_N)).astype(int) if a is None else np.full(n, int(a))
        new_N = ~gone_N & (rng.random(n) < expit(-1.8 + s_N - 0.8 * given_N))
        here = {"id": np.arange(n), "t": t, "s": s_N, "a": given_N}
        died = {"id": np.arange(n), "t": t + 1, "s": s_N, "a": None}
        rows.append(pl.DataFrame({**here, "death": 0}, schema_overrides={"a": pl.Int64}).filter(~gone_N))
        rows.append(pl.DataFrame({**died, "death": 1}, schema_overrides={"a": pl.Int64}).filter(new_N))
        gone_N |= new_N
    order = pl.concat([part.cast({"t": pl.Int64, "death": pl.Int64}) for part in rows])
    return order.sort("id", "t").with_columns(noise=rng.normal(size=order.height))


@pytest.fixture(scope="module")
def statics_alone(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return made(severe(3000, 1), tmp_path_factory.mktemp("statics"), s="static", death="event")


def test_statics_a_treatment_and_an_event_are_enough(statics_alone: Dataset, tmp_path: Path) -> None:
    assert statics_alone.schema.dims == (0, 1, 0, 1)
    assert statics_alone.queries == {}
    assert "events: death" in repr(statics_alone)
    alone = risks(statics_alone, outcome="death", measure=["risk", "risk-ratio", "rmst"])
    beside = risks(made(severe(3000, 1), tmp_path, s="static", death="event", noise="outcome"), outcome="death")
    for plan, a in (("never", 0), ("always", 1)):
        everybody = severe(200_000, 9, a)
        truth = everybody.filter((pl.col("death") == 1) & (pl.col("t") <= STEPS)).height / 200_000
        row = alone["death", plan]
        assert abs(row["estimate"] - truth) < 3 * row["se"]
        assert row["se"] < 0.03
        assert abs(row["estimate"] - beside["death", plan]["estimate"]) < row["se"]
    crude = severe(3000, 1).filter((pl.col("death") == 1) & (pl.col("t") <= STEPS)).height / 3000
    assert abs(crude - truth) > 0.05  # of treating everybody: the world has something to find


def test_what_needs_an_outcome_refuses_and_says_what_to_ask(statics_alone: Dataset) -> None:
    for refused in (costar.fit, costar.pretrain):
        with pytest.raises(DataError, match="the table has events alone, and no outcome") as caught:
            refused(statics_alone)
        assert "costar effect --outcome death" in str(caught.value.fix)
    with pytest.raises(UsageError, match="there is no outcome or event 'noise'"):
        risks(statics_alone, outcome="noise")
    with pytest.raises(UsageError, match="mean and ratio are of outcomes, and the data have events alone"):
        risks(statics_alone, measure=["mean", "ratio"])


def test_a_schema_needs_an_outcome_or_an_event_and_queries_need_an_outcome(tmp_path: Path) -> None:
    frame = severe(60, 1)
    with pytest.raises(UsageError, match='needs a column of role "outcome", or "event"'):
        made(frame, tmp_path, s="static", death="censored")
    queries = save(pl.DataFrame({"id": [0], "origin": [0], "step": [1], "a": [1]}), tmp_path / "queries.csv")
    columns = {**KEYS, "s": {"role": "static"}, "death": {"role": "event"}}
    with pytest.raises(DataError, match="queries are plans with known outcomes"):
        ingest(frame, parse_schema({"name": "ends", "columns": columns}), folder=tmp_path, queries=queries)
    with pytest.raises(UsageError, match="rolling_origin asks for outcomes"):
        parse_schema({"name": "ends", "columns": columns, "queries": {"rolling_origin": True}})


def test_a_guess_wants_no_outcome_beside_an_event(tmp_path: Path) -> None:
    guessed = guess_schema([save(severe(300, 1).drop("noise"), tmp_path / "deaths.csv")])
    assert 'death = { role = "event" }' in guessed.text
    assert not any("outcome" in doubt for doubt in guessed.doubts)
    without = guess_schema([save(severe(300, 1).drop("noise", "death"), tmp_path / "rows.csv")])
    assert "no column seems to be the outcome" in without.doubts


def test_new_subjects_are_read_like_those_with_events_alone(statics_alone: Dataset, tmp_path: Path) -> None:
    table = save(severe(200, 5).drop("noise"), tmp_path / "new.csv")
    new = costar.read_new_subjects(table, like=statics_alone)
    assert new.schema.dims == statics_alone.schema.dims
    assert new.queries == {}
    assert 0 < risks(new, unsupported=True)["death", "never"]["estimate"] < 1
