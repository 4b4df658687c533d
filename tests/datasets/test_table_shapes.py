"""Tables of other shapes: subjects of several columns, shifts, transforms, units, keys of statics, logs of events."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from costar_cli import fit
from costar_cli.data import Dataset
from costar_cli.data.store import made_from
from costar_cli.data.table import TableInputs, ingest_table
from costar_cli.data.table.export import export_dataset
from costar_cli.data.table.files import frame_as_file
from costar_cli.data.table.new_subjects import ingest_new
from costar_cli.data.table.preprocessing import Preprocessing
from costar_cli.data.table.schema import TableSchema
from costar_cli.data.table.schema_file import parse_schema, read_schema
from costar_cli.errors import DataError, UsageError
from tests.datasets.table_worlds import Listener, assert_same_dataset, of

SHELF: dict[str, Any] = {
    "week": {"role": "time"}, "sold": {"role": "outcome"}, "promo": {"role": "treatment"},
}  # fmt: skip


def shelves() -> pl.DataFrame:
    """Three stores with two brands each, four weeks."""
    rng = np.random.default_rng(3)
    return pl.DataFrame(
        [
            {"store": store, "brand": brand, "week": week, "sold": float(rng.integers(5, 40)),
             "promo": (week + store) % 2, "cents": 100.0 + 10 * week + store}
            for store in (1, 2, 3) for brand in ("oat", "rye") for week in range(4)
        ]
    )  # fmt: skip


def shelf_schema(columns: dict[str, Any] | None = None, **more: Any) -> TableSchema:
    split = {"train": 0.3, "val": 0.35, "test": 0.35}
    return parse_schema({"name": "shelves", "horizon": 1, "columns": SHELF | (columns or {}), "split": split, **more})


def read(frame: pl.DataFrame, schema: TableSchema, statics: pl.DataFrame | None = None, **kw: Any) -> Dataset:
    wide = None if statics is None else frame_as_file(statics, "stores.csv")
    listener = kw.get("listener") or Listener()
    return ingest_table(TableInputs([frame_as_file(frame, "shelves.csv")], wide), schema, listener)


def refused(frame: pl.DataFrame, schema: TableSchema) -> str:
    with pytest.raises(DataError) as caught:
        read(frame, schema)
    return "\n".join([str(caught.value), *caught.value.details])


def series(dataset: Dataset, name: str, variable: str) -> list[float]:
    """The values of a covariate of one subject."""
    panel, row = of(dataset, name)
    at = [found.name for found in dataset.schema.covariates].index(variable)
    return [round(float(value), 5) for value in panel.covariates[row, : int(panel.length[row]), at]]


def given(dataset: Dataset, name: str) -> list[list[float]]:
    panel, row = of(dataset, name)
    return panel.treatments[row, : int(panel.length[row])].tolist()


def test_a_subject_of_two_columns_is_called_by_both_which_keep_roles_of_their_own():
    schema = shelf_schema({"store": {"role": "cluster"}}, subject=["store", "brand"])
    whole = read(shelves(), schema)
    assert sorted(name for panel in whole.panels.values() for name in panel.names) == [
        "1/oat", "1/rye", "2/oat", "2/rye", "3/oat", "3/rye",
    ]  # fmt: skip
    for panel in whole.panels.values():
        assert [int(name[0]) for name in panel.names] == panel.cluster.tolist()


def test_parts_of_a_subjects_name_may_not_hold_what_joins_them_and_both_must_be_there():
    schema, frame = shelf_schema(subject=["store", "brand"]), shelves()
    odd = frame.with_columns(pl.col("brand").replace("rye", "rye/oat"))
    assert "'brand': 12 values with `/`" in refused(odd, schema)
    assert "there is no column 'brand'" in refused(frame.drop("brand"), schema)
    with pytest.raises(UsageError, match="both say whose row it is"):
        shelf_schema({"store": {"role": "subject"}}, subject=["store", "brand"])


def test_a_treatment_of_the_row_after_belongs_to_the_step_before():
    """Rows by hand: in the file, the row of week w has what was given between w - 1 and w."""
    frame = pl.DataFrame({
        "store": [1] * 4 + [2] * 4 + [3] * 4, "week": [0, 1, 2, 3] * 3, "sold": np.arange(12.0),
        "promo": [None, 1, 0, 1, None, 0, 1, 0, None, 1, 1, 0],
    })  # fmt: skip
    shifted = shelf_schema({"store": {"role": "subject"}, "promo": {"role": "treatment", "shift": -1}})
    dataset = read(frame, shifted)
    assert given(dataset, "1") == [[1], [0], [1], [0]]  # of the last step nothing is recorded
    assert given(dataset, "3") == [[1], [1], [0], [0]]
    by_hand = frame.with_columns(pl.col("promo").shift(-1).over("store"))
    plain = read(by_hand, shelf_schema({"store": {"role": "subject"}}))
    for name in "123":
        assert given(dataset, name) == given(plain, name)


def test_a_covariate_of_a_later_row_is_refused():
    with pytest.raises(UsageError, match="not known yet"):
        shelf_schema({"store": {"role": "subject"}, "cents": {"role": "covariate", "shift": -1}})


def test_lags_logs_differences_and_units_are_made_of_one_column():
    columns = {
        "price": {"role": "covariate", "column": "cents", "unit": "euro", "factor": 0.01},
        "before": {"role": "covariate", "column": "cents", "shift": 1},
        "log price": {"role": "covariate", "column": "cents", "transform": "log"},
        "rise": {"role": "covariate", "column": "cents", "transform": "difference"},
        "fahrenheit": {"role": "covariate", "column": "cents", "factor": 1.8, "offset": 32.0},
    }
    dataset = read(shelves(), shelf_schema(columns, subject=["store", "brand"], constant="keep"))
    assert series(dataset, "2/oat", "price") == [1.02, 1.12, 1.22, 1.32]
    assert series(dataset, "2/oat", "before")[1:] == [102, 112, 122]
    assert series(dataset, "2/oat", "rise")[1:] == [10, 10, 10]
    assert series(dataset, "2/oat", "log price") == pytest.approx(np.log([102, 112, 122, 132]), abs=1e-5)
    assert series(dataset, "2/oat", "fahrenheit")[0] == pytest.approx(1.8 * 102 + 32, abs=1e-4)
    names = [variable.name for variable in dataset.schema.covariates]
    assert names == list(columns)  # a first step without a lag is no missing value: no column says so


def test_zeros_under_a_logarithm_are_one_message_that_names_a_row():
    frame = shelves().with_columns(pl.when(pl.col("week") == 2).then(0.0).otherwise("cents").alias("cents"))
    schema = shelf_schema({"cents": {"role": "covariate", "transform": "log"}}, subject=["store", "brand"])
    told = refused(frame, schema)
    assert "column 'cents': 6 values without a log" in told
    assert "first in row 3 of shelves.csv (subject 1/oat)" in told
    assert "log1p" in told


def test_the_columns_of_a_subjects_name_stand_in_exports_and_come_back(tmp_path: Path):
    schema = shelf_schema({"store": {"role": "cluster"}, "brand": {"role": "static", "kind": "categorical"}},
                          subject=["store", "brand"])  # fmt: skip
    dataset = read(shelves(), schema)
    assert dataset.schema.subject == ("store", "brand")
    table, text, queries = export_dataset(dataset, tmp_path / "out", "csv")
    frame = pl.read_csv(table, infer_schema=False)
    assert set(frame.select("store", "brand").unique().rows()) == {(s, b) for s in "123" for b in ("oat", "rye")}
    assert "subject" not in frame.columns
    again = ingest_table(TableInputs([table], None, queries), read_schema(text), Listener())
    assert_same_dataset(again, dataset)


def test_a_subject_of_several_columns_is_found_by_both_and_told_how_it_is_called():
    dataset = read(shelves(), shelf_schema(subject=["store", "brand"]))
    place = dataset.find_subject("2/oat")
    assert dataset.panels[place.part].names[place.row] == "2/oat"
    with pytest.raises(UsageError, match="no subject 2 in the data set") as caught:
        dataset.find_subject("2")
    assert "subjects are called store/brand" in str(caught.value.fix)


def test_tables_of_answers_have_the_columns_of_subjects():
    dataset = read(shelves(), shelf_schema(subject=["store", "brand"]))
    model = fit(dataset, "ridge", members=1)
    answers = model.predict(dataset, {"on": [{"promo": 1}], "off": [{}]}, frame="polars")
    assert (answers["store"] + "/" + answers["brand"] == answers["label"]).all()
    best = model.search(dataset, minimise="sold at end", frame="polars")
    assert (best["store"] + "/" + best["brand"] == best["subject"]).all()
    schema = dataset.schema.model_copy(update={"subject": ("plan", "brand")})
    assert list(schema.keys_of(["1/oat", "other"], {"plan"}).items()) == [
        ("plan_", ["1", None]),
        ("brand", ["oat", None]),
    ]


def test_a_transformed_outcome_stays_as_it_is_in_the_data_set_and_its_export(tmp_path: Path):
    schema = shelf_schema({"sold": {"role": "outcome", "transform": "log"}}, subject=["store", "brand"])
    dataset = read(shelves(), schema)
    plain = read(shelves(), shelf_schema(subject=["store", "brand"]))
    assert dataset.schema.outcomes[0].transform == "log"
    for part, panel in dataset.panels.items():
        assert np.array_equal(panel.outcomes, plain.panels[part].outcomes)
    table, text, *queries = export_dataset(dataset, tmp_path / "out")
    again = ingest_table(TableInputs([table], None, *queries), read_schema(text), Listener())
    assert_same_dataset(again, dataset)


def test_an_outcome_without_a_logarithm_is_one_message_that_names_a_row():
    schema = shelf_schema({"sold": {"role": "outcome", "transform": "log"}}, subject=["store", "brand"])
    like = Preprocessing.of_dataset(made_from(read(shelves(), schema), config={}))
    frame = shelves().with_columns(pl.when(pl.col("week") == 2).then(-1.0).otherwise("sold").alias("sold"))
    told = refused(frame, schema)
    assert "column 'sold': 6 values without a log" in told
    assert "first in row 3 of shelves.csv (subject 1/oat)" in told
    with pytest.raises(DataError, match="without a log") as caught:
        ingest_new(TableInputs([frame_as_file(frame, "new.csv")]), like, Listener())
    assert "row 3 of new.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("outcome", "tables", "reason"),
    [
        ({"shift": 1}, {}, "the lag of an outcome is known before it is predicted"),
        ({"transform": "log", "kind": "binary"}, {}, "`transform` belongs to numbers"),
        (
            {"transform": "difference"},
            {"time": {"gaps": "elapsed"}},
            "differences of an outcome over steps of any length",
        ),
    ],
)
def test_transforms_of_outcomes_that_cannot_be_undone_are_refused_with_the_reason(
    outcome: dict[str, Any], tables: dict[str, Any], reason: str
):
    with pytest.raises(UsageError) as caught:
        shelf_schema({"store": {"role": "subject"}, "sold": {"role": "outcome", **outcome}}, **tables)
    assert reason in str(caught.value)


def test_statics_of_a_cluster_are_joined_by_its_column():
    stores = pl.DataFrame({"store": ["3", "2", "1"], "area": [300.0, 200.0, 100.0]})
    schema = shelf_schema({"area": {"role": "static"}}, subject=["store", "brand"], statics={"on": "store"})
    schema = schema.model_copy(update={"constant": "keep"})
    dataset = read(shelves(), schema, stores)
    for panel in dataset.panels.values():
        assert panel.statics[:, 0].tolist() == [100.0 * int(name[0]) for name in panel.names]
    with pytest.raises(DataError) as caught:
        read(shelves(), schema, pl.concat([stores, stores.with_columns(area=1.0)]))
    assert "two rows of store" in str(caught.value)


SEED = 0  # of a split with a and b in source/train

LOG = """subject,when,item,amount
a,2024-01-01 06:10,pulse,70
a,2024-01-01 06:40,pulse,80
a,2024-01-01 07:05,drug,
a,2024-01-01 09:00,pulse,90
a,2024-01-01 09:30,fluid,200
a,2024-01-01 09:31,fluid,300
b,2024-01-01 00:00,pulse,60
b,2024-01-01 00:59,drug,
b,2024-01-01 01:00,pulse,61
b,2024-01-01 01:10,other,1
c,2024-01-01 00:00,pulse,60
c,2024-01-01 01:00,pulse,64
c,2024-01-01 02:00,drug,
d,2024-01-01 00:00,pulse,60
d,2024-01-01 01:00,pulse,65
"""


def log_schema(**columns: Any) -> TableSchema:
    base = {
        "subject": {"role": "subject"}, "when": {"role": "time"},
        "pulse": {"role": "outcome", "missing": "fill", "aggregate": "mean"},
        "drug": {"role": "treatment"},
        "volume": {"role": "covariate", "column": "fluid", "aggregate": "sum"},
        "bags": {"role": "covariate", "column": "fluid", "aggregate": "count"},
    }  # fmt: skip
    return parse_schema({
        "name": "log", "horizon": 1, "time": {"step": "1h"}, "constant": "keep",
        "columns": {key: column for key, column in (base | columns).items() if column},
        "events": {"code": "item", "value": "amount"},
        "split": {"train": 0.5, "val": 0.25, "test": 0.25, "seed": SEED},
    })  # fmt: skip


def test_a_log_of_events_becomes_a_row_per_step(tmp_path: Path):
    """By hand: a's hours are 6 to 9, of which 8 has no event."""
    path, listener = tmp_path / "log.csv", Listener()
    path.write_text(LOG)
    dataset = ingest_table(TableInputs([path]), log_schema(), listener)
    panel, row = of(dataset, "a")
    assert panel.outcomes[row, :4, 0].tolist() == [75, 75, 75, 90]
    assert panel.observed_outcomes[row, :4, 0].tolist() == [True, False, False, True]
    assert series(dataset, "a", "volume") == [0, 0, 0, 500]
    assert series(dataset, "a", "bags") == [0, 0, 0, 2]
    assert given(dataset, "a") == [[0], [1], [0], [0]]
    assert given(dataset, "b") == [[1], [0]]
    assert "1 event of codes that no column has: 'other'" in listener.notes
    assert panel.calendar is not None


def test_doses_of_a_log_are_summed_by_step_and_are_zero_where_none_was_given(tmp_path: Path):
    path = tmp_path / "log.csv"
    rows = [f"{who},2024-01-01 0{hour}:00,pulse,{60 + hour}" for who in "abcd" for hour in range(4)]
    rows += [f"{who},2024-01-01 01:{m}0,drug,{m}" for who in "abcd" for m in (1, 2)]
    path.write_text("\n".join(["subject,when,item,amount", *rows, "a,2024-01-01 02:00,drug,4"]))
    columns = {"volume": None, "bags": None, "drug": {"role": "treatment", "kind": "continuous", "unit": "mg"}}
    dataset = ingest_table(TableInputs([path]), log_schema(**columns), Listener())
    panel, row = of(dataset, "a")
    assert dataset.schema.treatments.decode(panel.treatments[row, :4])[:, 0] == pytest.approx([0, 3, 4, 0], abs=1e-4)


def test_what_is_wrong_with_a_log_names_its_rows(tmp_path: Path):
    path = tmp_path / "log.csv"
    path.write_text(LOG.replace(",80", ",high"))
    with pytest.raises(DataError) as caught:
        ingest_table(TableInputs([path]), log_schema(), Listener())
    assert "row 2 of log.csv" in str(caught.value)
    assert "(of `pulse`)" in str(caught.value)
    path.write_text(LOG)
    with pytest.raises(DataError, match="has no event 'pluse'") as caught:
        ingest_table(TableInputs([path]), log_schema(pulse={"role": "outcome", "column": "pluse"}), Listener())
    assert "pulse" in str(caught.value.fix)
    with pytest.raises(UsageError, match="a sum is a dose"):
        log_schema(drug={"role": "treatment", "aggregate": "sum"})
    with pytest.raises(UsageError, match=r"declare \[events\]"):
        shelf_schema({"store": {"role": "subject"}, "sold": {"role": "outcome", "aggregate": "sum"}})


def test_new_subjects_are_shaped_as_those_of_the_training_table(tmp_path: Path):
    columns = {
        "log price": {"role": "covariate", "column": "cents", "transform": "log"},
        "rise": {"role": "covariate", "column": "cents", "transform": "difference"},
        "area": {"role": "static"},
        "promo": {"role": "treatment", "shift": -1},
    }
    stores = pl.DataFrame({"store": [1, 2, 3], "area": [100.0, 200.0, 300.0]})
    schema = shelf_schema(columns, subject=["store", "brand"], statics={"on": "store"}, constant="keep")
    whole = made_from(read(shelves(), schema, stores), config={})
    like = Preprocessing.of_dataset(whole)
    inputs = TableInputs([frame_as_file(shelves(), "new.csv")], frame_as_file(stores, "stores.csv"))
    again = ingest_new(inputs, like, Listener())
    for name in ("1/oat", "3/rye"):
        (new, i), (old, j) = of(again, name), of(whole, name)
        steps = int(old.length[j])
        assert given(again, name) == given(whole, name)
        assert np.array_equal(new.covariates[i, :steps], old.covariates[j, :steps])
        assert np.array_equal(new.statics[i], old.statics[j])
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    kept = made_from(ingest_table(TableInputs([path]), log_schema(), Listener()), config={})
    quiet = "\n".join(line for line in LOG.splitlines() if "drug" not in line)
    path.write_text(quiet)
    untreated = ingest_new(TableInputs([path]), Preprocessing.of_dataset(kept), Listener())
    assert given(untreated, "a") == [[0], [0], [0], [0]]


def test_a_schema_without_shapes_says_nothing_of_them():
    schema = parse_schema({"name": "w", "columns": {
        "patient": {"role": "subject"}, "day": {"role": "time"}, "pressure": {"role": "outcome"},
        "drug": {"role": "treatment"},
    }})  # fmt: skip
    assert set(schema.model_dump(mode="json", exclude_defaults=True)) == {"name", "columns"}
