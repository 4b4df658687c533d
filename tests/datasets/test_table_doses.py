"""Doses of somebody's own table: learned from source-train, bad rows named, read back, new subjects alike."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from costar_cli.data import Part
from costar_cli.data.store import made_from
from costar_cli.data.table import TableInputs, ingest_table
from costar_cli.data.table.export import export_dataset
from costar_cli.data.table.files import frame_as_file
from costar_cli.data.table.guess import guess_schema
from costar_cli.data.table.new_subjects import ingest_new
from costar_cli.data.table.preprocessing import Preprocessing
from costar_cli.data.table.schema_file import read_schema
from costar_cli.errors import DataError, UsageError
from costar_cli.reporting import NullReporter
from tests.datasets.table_worlds import Listener, ingest, make_schema, of, problems, save, ward

MG: dict[str, Any] = {"role": "treatment", "kind": "continuous", "unit": "mg"}


def dosed(**changed: Any) -> pl.DataFrame:
    frame = ward().drop("drug")
    dose = np.random.default_rng(3).gamma(2, 1.5, frame.height).round(2)
    return frame.with_columns(drug=changed.pop("drug", pl.Series(dose, dtype=pl.Float64)), **changed)


def test_range_and_scale_of_a_dose_are_those_of_source_train(tmp_path: Path) -> None:
    data = ingest(dosed(), make_schema({"drug": MG}), folder=tmp_path)
    dose = data.schema.treatments.doses[0]
    train = data.panels[Part("source", "train")]
    given = data.schema.treatments.decode(train.treatments[train.observed])[:, 0]
    assert (dose.low, dose.high, dose.unit) == (given.min(), given.max(), "mg")
    assert dose.scale in 2.0 ** np.arange(-4, 5)


def test_a_dose_stands_beside_named_levels(tmp_path: Path) -> None:
    frame = dosed().with_columns(arm=ward()["drug"])
    arm = {"role": "treatment", "levels": ["none", "low", "high"]}
    encoding = ingest(frame, make_schema({"drug": MG, "arm": arm}), folder=tmp_path).schema.treatments
    assert encoding.all_names == ("arm", "drug")
    assert encoding.width == len(encoding.classes) + 1


def test_levels_that_are_no_class_are_named_without_the_dose_beside_them(tmp_path: Path) -> None:
    frame = dosed().with_columns(arm=ward()["drug"])
    arm = {"role": "treatment", "levels": ["none", "low", "high"]}
    schema = make_schema({"drug": MG, "arm": arm}, treatments={"classes": [["none"], ["low"]]})
    with pytest.raises(DataError, match="that is not a class: arm=high"):
        ingest(frame, schema, folder=tmp_path)


@pytest.mark.parametrize("kind", [MG, {**MG, "basis": "splines"}, {**MG, "range": [-9, 99], "basis": "identity"}])
@pytest.mark.parametrize("armed", [False, True])
def test_an_export_is_read_back_as_it_was(tmp_path: Path, kind: dict[str, Any], *, armed: bool) -> None:
    frame, columns = dosed(), {"drug": kind}
    if armed:  # and what is given after the last visit is not known
        known = pl.col("day") < pl.col("day").max()
        frame = frame.with_columns(arm=ward()["drug"]).with_columns(pl.when(known).then(pl.col("arm", "drug")))
        columns["arm"] = {"role": "treatment", "levels": ["none", "low", "high"]}
    data = ingest(frame, make_schema(columns, domain={}), folder=tmp_path)
    export_dataset(data, tmp_path / "out", "csv")
    out = tmp_path / "out"
    inputs = TableInputs((out / "table.csv",), queries=out / "queries.csv")
    again = ingest_table(inputs, read_schema(out / "schema.toml"), NullReporter())
    assert again.schema.treatments == data.schema.treatments
    for part, panel in data.panels.items():
        assert np.allclose(again.panels[part].treatments[panel.observed], panel.treatments[panel.observed])
        for one, other in zip(again.queries.get(part, {}).values(), data.queries.get(part, {}).values(), strict=True):
            assert np.allclose(one.plan, other.plan)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("-1.5", "1 dose negative: '-1.5'"),
        ("4000", "10 times what is usual: '4000'"),
        ("two", "1 value not numeric, first 'two'"),
        ("", "1 dose missing"),
    ],
)
def test_a_dose_that_cannot_be_is_an_error_that_names_its_row(tmp_path: Path, value: str, said: str) -> None:
    texts = dosed()["drug"].cast(pl.String).to_list()
    texts[4] = value
    (told,) = problems(dosed(drug=pl.Series(texts)), make_schema({"drug": MG}), folder=tmp_path)
    assert said in told
    assert "first in row 5 of ward.csv" in told


def test_wrong_doses_of_new_subjects_are_told_once_without_advice_on_the_schema(tmp_path: Path) -> None:
    data = ingest(dosed(), make_schema({"drug": MG}), folder=tmp_path)
    texts = dosed()["drug"].cast(pl.String).to_list()
    texts[1:4] = "lots", "-1", "4000"
    inputs = TableInputs([frame_as_file(dosed(drug=pl.Series(texts)), "new.csv")])
    with pytest.raises(DataError) as caught:
        ingest_new(inputs, Preprocessing.of_dataset(made_from(data, config={})), NullReporter())
    lots, negative, far = (line for line in caught.value.details or () if "drug" in line)
    assert ("lots" in lots, "-1" in negative, "4000" in far) == (True, True, True)
    assert negative.endswith("(correct the rows)")


def test_a_dose_that_never_changes_is_an_error(tmp_path: Path) -> None:
    told = "\n".join(problems(dosed(drug=pl.lit(2.0)), make_schema({"drug": MG}), folder=tmp_path))
    assert "dose 'drug' cannot be learned from source-train: it is always 2" in told


def test_ordinal_doses_take_their_levels_alone(tmp_path: Path) -> None:
    frame = dosed(drug=pl.Series(np.resize([0.0, 5, 10, 20], ward().height)))
    ordinal = {"role": "treatment", "kind": "ordinal"}
    dose = ingest(frame, make_schema({"drug": ordinal}), folder=tmp_path).schema.treatments.doses[0]
    assert dose.levels == (0, 5, 10, 20)
    assert dose.problem(7)
    assert not dose.problem(10)
    told = "\n".join(problems(frame, make_schema({"drug": {**ordinal, "levels": [0, 5, 10]}}), folder=tmp_path))
    assert "not a level: '20'" in told


@pytest.mark.parametrize(
    "wrong",
    [{"kind": "binary"}, {"unit": "mg"}, {"kind": "continuous", "levels": [0, 1]},
     {"kind": "ordinal", "levels": ["a", "b"]}, {"kind": "continuous", "range": [3, 1]}],
)  # fmt: skip
def test_a_schema_of_a_dose_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="drug"):
        make_schema({"drug": {"role": "treatment", **wrong}})


def gaps_in_doses() -> tuple[pl.DataFrame, pl.Series]:
    """Doses with one missing on days 1 and 2 of every subject, and on day 0 of the second; and what goes on there."""
    frame = dosed()
    lacking = pl.col("day").is_in([1, 2]) | ((pl.col("patient") == "p02") & (pl.col("day") == 0))
    holes = frame.with_columns(drug=pl.when(~lacking).then(pl.col("drug")))
    return holes, holes.select(pl.col("drug").forward_fill().over("patient").fill_null(0.0)).to_series()


def test_a_missing_dose_goes_on_where_the_schema_says_so_and_how_many_did_is_noted(tmp_path: Path) -> None:
    frame, whole = gaps_in_doses()
    listener = Listener()
    data = ingest(frame, make_schema({"drug": {**MG, "missing": "carry"}}), folder=tmp_path, listener=listener)
    for number, name in enumerate(("p01", "p02", "p05")):
        panel, row = of(data, name)
        given = data.schema.treatments.decode(panel.treatments[row])[:, 0]
        assert np.allclose(given, whole.filter(frame["patient"] == name).to_numpy(), atol=1e-5), number
    told = "58 missing values are carried forward from the subject's last one, 3 missing values count as not given"
    assert f"treatment 'drug': {told}" in listener.notes


def test_what_goes_on_teaches_no_dose(tmp_path: Path) -> None:
    frame, _ = gaps_in_doses()
    carried = ingest(frame, make_schema({"drug": {**MG, "missing": "carry"}}), folder=tmp_path)
    filled = ingest(frame, make_schema({"drug": {**MG, "missing": "fill"}}), folder=tmp_path)
    assert carried.schema.treatments.doses == filled.schema.treatments.doses


def test_a_missing_level_goes_on_too_over_steps_without_a_row(tmp_path: Path) -> None:
    rows = pl.col("day").is_in([0, 1, 3, 4, 5])
    drug = {"role": "treatment", "levels": ["none", "low", "high"], "missing": "carry"}
    frame = ward().with_columns(drug=pl.when(pl.col("day") != 1).then("drug"))
    columns = {"drug": drug, "pressure": {"role": "outcome", "missing": "fill"},
               "heart rate": {"role": "covariate", "missing": "fill"}}  # fmt: skip
    listener = Listener()
    data = ingest(frame.filter(rows), make_schema(columns, time={"gaps": "fill"}), folder=tmp_path, listener=listener)
    panel, row = of(data, "p01")
    level = data.schema.treatments.classes
    given = [level[int(step.argmax())][0] for step in panel.treatments[row]]
    want = ward().filter(pl.col("patient") == "p01")["drug"].replace_strict({"none": 0, "low": 1, "high": 2}).to_list()
    assert given == [want[0], want[0], want[0], *want[3:]]
    assert not any("count as not treated" in warning for warning in listener.warnings)


def test_what_each_choice_makes_of_missing_doses_is_said(tmp_path: Path) -> None:
    frame, _ = gaps_in_doses()
    (told,) = problems(frame, make_schema({"drug": MG}), folder=tmp_path)
    assert "column 'drug': 61 doses missing" in told
    assert '`missing = "carry"` if the last one goes on (3 before any count as not given)' in told
    assert '`missing = "fill"` if that means not given (a dose of 0)' in told


def test_new_subjects_have_their_doses_carried_as_training_had(tmp_path: Path) -> None:
    frame, whole = gaps_in_doses()
    data = ingest(frame, make_schema({"drug": {**MG, "missing": "carry"}}), folder=tmp_path)
    inputs = TableInputs([frame_as_file(frame.with_columns(patient="new" + pl.col("patient")), "new.csv")])
    new = ingest_new(inputs, Preprocessing.of_dataset(made_from(data, config={})), NullReporter())
    panel, row = of(new, "newp05")
    given = new.schema.treatments.decode(panel.treatments[row])[:, 0]
    assert np.allclose(given, whole.filter(frame["patient"] == "p05").to_numpy(), atol=1e-5)


def test_carry_belongs_to_treatments() -> None:
    with pytest.raises(UsageError, match="belongs to a treatment"):
        make_schema({"age": {"role": "static", "missing": "carry"}})


def test_a_guess_asks_what_missing_doses_mean_and_says_what_each_choice_does(tmp_path: Path) -> None:
    frame, _ = gaps_in_doses()
    text = guess_schema([save(frame, tmp_path / "ward.csv")]).text
    line = next(line for line in text.splitlines() if line.startswith("drug = "))
    assert '61 values missing: is none given (`missing = "fill"`), or does the last one go on' in line
    assert '(`missing = "carry"`, but for 3 before any)?' in line
    zero = frame.with_columns(drug=pl.when(pl.col("day") == 4).then(0.0).otherwise("drug"))
    text = guess_schema([save(zero, tmp_path / "ward.csv")]).text
    line = next(line for line in text.splitlines() if line.startswith("drug = "))
    assert '61 values missing: does the last one go on (`missing = "carry"`' in line
