"""Queries with known answers, from a file of a row per query and step."""

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from costar_cli.data import Part, store
from costar_cli.data.table.known_queries import SET_NAME
from costar_cli.data.visits import elapsed
from tests.datasets.table_worlds import Listener, ingest, make_schema, problems, save, ward

TEST = Part("source", "test")
SCHEMA = make_schema(split={"train": 0.6, "val": 0.2, "test": 0.2})


@pytest.fixture
def tested(tmp_path: Path) -> list[str]:
    """The names of the source's test subjects."""
    return ingest(ward(), SCHEMA, folder=tmp_path).panels[TEST].names


def questions(subjects: list[str], **columns: Any) -> pl.DataFrame:
    """Two plans for each subject from day 2, two steps each, with made-up answers."""
    rows = [
        {"patient": who, "query": q, "origin": 2, "step": step, "drug": drug, "pressure": 60.0 + 10 * q + step}
        for who in subjects
        for q, drug in ((1, "low"), (2, "high"))
        for step in (1, 2)
    ]
    return pl.DataFrame(rows).with_columns(**columns)


def test_queries_ask_what_the_file_says(tested: list[str], tmp_path: Path):
    path = save(questions(tested).sample(fraction=1, shuffle=True, seed=1), tmp_path / "queries.csv")
    dataset = ingest(ward(), SCHEMA, folder=tmp_path, queries=path)
    assert {str(part): list(sets) for part, sets in dataset.queries.items()} == {"source/test": ["known"]}
    queries, panel = dataset.queries[TEST]["known"], dataset.panels[TEST]
    assert len(queries) == 2 * len(tested)
    first = int(np.flatnonzero(queries.subject == 0)[0])
    assert queries.origin.tolist() == [2] * len(queries)
    assert dataset.schema.treatments.decode(queries.plan)[first, :, 0].tolist() == [1, 1]
    assert queries.outcomes[first, :, 0].tolist() == [71, 72]
    assert queries.scored.all()
    assert panel.names[0] == tested[0]


def test_sets_have_names_and_lengths_of_their_own_and_steps_may_not_count(tested: list[str], tmp_path: Path):
    one = questions(tested[:1]).filter(pl.col("step") == 1).with_columns(set=pl.lit("one_step"), scored=pl.lit(1))
    two = questions(tested).with_columns(set=pl.lit("sequence"), scored=(pl.col("step") > 1).cast(pl.Int32))
    path = save(pl.concat([one, two], how="diagonal"), tmp_path / "queries.parquet")
    schema = make_schema(split={"train": 0.6, "val": 0.2, "test": 0.2}, queries={"rolling_origin": True})
    sets = ingest(ward(), schema, folder=tmp_path, queries=path).queries[TEST]
    assert {name: (len(q), q.horizon) for name, q in sets.items()} == {
        "one_step": (2, 1), "sequence": (2 * len(tested), 2), "rolling_origin": (len(tested) * 4, 2)
    }  # fmt: skip
    assert sets["sequence"].scored.tolist() == [[False, True]] * (2 * len(tested))


def test_unknown_answers_are_not_scored_and_a_set_without_any_has_none(tested: list[str], tmp_path: Path):
    some = questions(tested, pressure=pl.when(pl.col("step") == 1).then("pressure"))
    queries = ingest(ward(), SCHEMA, folder=tmp_path, queries=save(some, tmp_path / "q.csv")).queries[TEST]["known"]
    assert queries.scored.tolist() == [[True, False]] * len(queries)
    none = questions(tested, pressure=pl.lit(None, dtype=pl.Float64))
    queries = ingest(ward(), SCHEMA, folder=tmp_path, queries=save(none, tmp_path / "q.csv")).queries[TEST]["known"]
    assert (queries.outcomes, queries.scored) == (None, None)


def test_origins_are_times_of_the_table(tested: list[str], tmp_path: Path):
    frame = ward().with_columns(day=pl.lit(datetime(2024, 1, 1)) + pl.duration(days=pl.col("day")))
    asked = questions(tested, origin=pl.lit("2024-01-03"))
    schema = make_schema(time={"step": "1d"}, split={"train": 0.6, "val": 0.2, "test": 0.2})
    dataset = ingest(frame, schema, folder=tmp_path, queries=save(asked, tmp_path / "q.csv"))
    assert dataset.queries[TEST]["known"].origin.tolist() == [2] * (2 * len(tested))


def test_visits_at_any_time_are_as_far_apart_as_usual_where_queries_say_nothing(tested: list[str], tmp_path: Path):
    schema = make_schema(split={"train": 0.6, "val": 0.2, "test": 0.2}, time={"gaps": "elapsed"})
    frame = ward().filter((pl.col("patient") != "p07") | (pl.col("day") != 1))
    for said, gap in (({}, 1.0), ({"elapsed": pl.lit(2.5)}, 2.5)):
        path = save(questions(tested, **said), tmp_path / "queries.csv")
        dataset = ingest(frame, schema, folder=tmp_path, queries=path)
        asked = elapsed(dataset.schema.treatments, dataset.queries[TEST]["known"].plan)
        assert asked is not None
        assert np.unique(asked).tolist() == [gap]


def test_other_names_for_the_columns(tested: list[str], tmp_path: Path):
    asked = questions(tested).rename({"origin": "from", "step": "ahead", "query": "plan"})
    schema = make_schema(
        queries={"origin": "from", "step": "ahead", "query": "plan"}, split={"train": 0.6, "val": 0.2, "test": 0.2}
    )
    dataset = ingest(ward(), schema, folder=tmp_path, queries=save(asked, tmp_path / "q.csv"))
    assert len(dataset.queries[TEST]["known"]) == 2 * len(tested)


def test_queries_about_others_are_left_out_with_a_warning(tested: list[str], tmp_path: Path):
    listener = Listener()
    path = save(questions([*tested, "stranger"]), tmp_path / "q.csv")
    dataset = ingest(ward(), SCHEMA, folder=tmp_path, queries=path, listener=listener)
    assert len(dataset.queries[TEST]["known"]) == 2 * len(tested)
    assert any(
        "2 queries left out, about subjects that are not in the data set: 'stranger'" in w for w in listener.warnings
    )


CASES = [
    ("subjects", lambda f: f.with_columns(patient=pl.lit("x")), "no query is about a subject of the data set"),
    ("origin", lambda f: f.with_columns(origin=pl.lit(17)),
     "queries whose origin is not a time of the subject's rows"),
    ("level", lambda f: f.with_columns(drug=pl.lit("lo")), "column 'drug': 16 values that are not levels: 'lo'"),
    ("no plan", lambda f: f.with_columns(drug=pl.lit(None, dtype=pl.String)), "column 'drug': 16 values missing"),
    ("steps", lambda f: f.filter((pl.col("step") > 1) | (pl.col("query") == 1)), "2 where 1 is expected"),
    ("twice", lambda f: pl.concat([f, f[:1]]), "1 where 2 is expected"),
    ("no id", lambda f: f.drop("query"), "1 where 2 is expected"),
    ("lengths", lambda f: f.filter((pl.col("step") == 1) | (pl.col("query") == 1)),
     "queries of set 'known' on source/test have 1 to 2 steps"),
    ("too long", lambda f: pl.concat([f, f.filter(pl.col("step") == 1).with_columns(step=pl.lit(3, dtype=pl.Int64))]),
     "3 steps, more than the horizon of 2"),
    ("set name", lambda f: f.with_columns(set=pl.lit("a/b")), "a query set is called 'a/b'"),
    ("no column", lambda f: f.drop("pressure"), "q.csv: there is no column 'pressure'"),
    ("text", lambda f: f.with_columns(pressure=pl.lit("low")), "column 'pressure': 16 values not numeric, first 'low'"),
    ("scored", lambda f: f.with_columns(scored=pl.lit("maybe")), "values other than 0 and 1"),
    ("empty", lambda f: f.head(0), "there are no queries"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "problem"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_each_problem_of_a_query_file_is_named(edit: Any, problem: str, tested: list[str], tmp_path: Path):
    asked = questions(tested) if len(tested) == 4 else questions(tested * 4)[:16]
    path = save(edit(asked), tmp_path / "q.csv")
    lines = problems(ward(), SCHEMA, folder=tmp_path, queries=path)
    assert any(problem in line for line in lines), lines


def test_a_combination_that_the_table_lacks_is_refused(tested: list[str], tmp_path: Path):
    frame = ward().with_columns(ice=pl.when(pl.col("drug") == "none").then(1).otherwise(0))
    schema = make_schema({"ice": {"role": "treatment"}}, split={"train": 0.6, "val": 0.2, "test": 0.2})
    asked = questions(tested, ice=pl.lit(1))
    [line] = problems(frame, schema, folder=tmp_path, queries=save(asked, tmp_path / "q.csv"))
    assert "a combination of treatments that the table does not have: drug=low+ice" in line


def test_names_of_query_sets_are_those_that_can_be_stored():
    assert SET_NAME == store.NAME
