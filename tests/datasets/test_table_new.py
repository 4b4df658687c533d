"""New subjects are read as a model's table was: the same numbers, nothing learned, all differences told at once."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import costar_cli as costar
from costar_cli.data import Dataset, Panel, Part
from costar_cli.data.compatible import other_data
from costar_cli.data.store import made_from, read_dataset
from costar_cli.data.table.export import dataset_to_frame
from costar_cli.data.table.files import frame_as_file
from costar_cli.data.table.ingest import ingest_table
from costar_cli.data.table.inputs import TableInputs
from costar_cli.data.table.new_subjects import ingest_new, without_schema_advice
from costar_cli.data.table.preprocessing import Preprocessing, preprocessing_at
from costar_cli.errors import ArtifactError, DataError, MismatchError
from costar_cli.files import read_artifact, write_artifact
from tests.datasets.table_worlds import Listener, make_schema, of, ward

HOLES = make_schema(
    {"drug": {"role": "treatment"}, "shift": {"role": "treatment"}, "flat": {"role": "static"},
     "heart rate": {"role": "covariate", "unit": "1/min", "missing": "fill"},
     "stage": {"role": "static", "kind": "categorical", "unseen": "other", "missing": "fill"}},
    split={"train": 0.5, "val": 0.25, "test": 0.25},
)  # fmt: skip


def clinic(patients: int = 40) -> pl.DataFrame:
    """A ward with holes, a constant column, two treatments, and stages that source-train need not have."""
    frame, rng = ward(patients, 5), np.random.default_rng(7)
    who = np.repeat(np.arange(patients), 5)
    stages = np.array(["I", "II", "III"])[rng.integers(3, size=patients)].astype(object)
    stages[::9] = None
    rate = np.where(rng.random(frame.height) < 0.3, np.nan, frame["heart rate"].to_numpy())
    return frame.with_columns(
        pl.Series("heart rate", rate).fill_nan(None),
        pl.Series("stage", stages[who].tolist(), dtype=pl.String),
        pl.lit(3.0).alias("flat"),
        pl.Series("shift", rng.integers(2, size=frame.height)),
    )


def read_whole(frame: pl.DataFrame, schema=HOLES) -> Dataset:
    return made_from(ingest_table(TableInputs([frame_as_file(frame, "whole.csv")]), schema, Listener()), config={})


def read_new(frame: pl.DataFrame, like: Dataset | Preprocessing, listener: Listener | None = None, **more) -> Dataset:
    how = like if isinstance(like, Preprocessing) else Preprocessing.of_dataset(like)
    return ingest_new(TableInputs([frame_as_file(frame, "new.csv")]), how, listener or Listener(), **more)


def differences(frame: pl.DataFrame, like: Dataset) -> list[str]:
    """What a table of new subjects is refused for."""
    with pytest.raises(DataError, match="the new subjects do not fit `ward`") as caught:
        read_new(frame, like)
    return list(caught.value.details)


def row_of(dataset: Dataset, name: str) -> dict[str, np.ndarray]:
    """Everything that models see of a subject."""
    panel, row = of(dataset, name)
    taken = panel.take(np.array([row]))
    steps = slice(int(taken.length[0]))
    series = ("covariates", "treatments", "outcomes", "observed_outcomes")
    return {field: getattr(taken, field)[:, steps] for field in series} | {"statics": taken.statics}


@pytest.fixture(scope="module")
def whole() -> Dataset:
    return read_whole(clinic())


@pytest.fixture(scope="module")
def model(whole: Dataset) -> costar.Model:
    return costar.fit(whole, "last-value")


def test_subjects_read_like_the_whole_are_those_of_the_whole_to_the_last_bit(whole, model, tmp_path):
    whole.save(tmp_path / "data.h5")
    model.save(tmp_path / "model.h5")
    second = clinic().filter(pl.col("patient") > "p20")
    ways = [
        Preprocessing.of_dataset(whole),
        *(preprocessing_at(tmp_path / f"{name}.h5")[0] for name in ("data", "model")),
    ]
    names = [name for panel in whole.panels.values() for name in panel.names if name > "p20"]
    assert len(names) > 12
    for how in ways:
        new = read_new(second, how)
        assert new.schema == whole.schema
        for name in names:
            want = row_of(whole, name)
            for field, values in row_of(new, name).items():
                assert np.array_equal(values, want[field]), (name, field)
            assert new.find_subject(name).part == Part(whole.find_subject(name).part.domain, "test")


def test_a_model_without_means_and_sds_is_nothing_to_read_subjects_like(model, tmp_path):
    model.save(tmp_path / "model.h5")
    made = read_artifact(tmp_path / "model.h5")
    arrays = {**made.arrays, "scaler/outcomes": made.arrays["scaler/outcomes"] * np.nan}
    write_artifact(tmp_path / "odd.h5", kind="model", arrays=arrays, meta=made.meta, parents=made.parents)
    with pytest.raises(ArtifactError, match="incomplete or damaged") as caught:
        preprocessing_at(tmp_path / "odd.h5")
    assert str(tmp_path / "odd.h5") in str(caught.value.where)
    assert caught.value.fix == "retrain it with `costar finetune`"


def test_one_subject_with_one_row_is_enough_and_is_no_other_data(whole, model):
    new = read_new(clinic().head(1).drop("site"), whole)
    assert {str(part): panel.length.tolist() for part, panel in new.panels.items()} == {"source/test": [1]}
    assert other_data("the model", model.fitted.parents, new) is None
    other = read_whole(clinic(30))
    warning = other_data("the model", model.fitted.parents, read_new(clinic().head(1), other))
    assert "than the one that these new subjects were read like" in str(warning)


def test_a_data_set_of_new_subjects_is_a_file_and_can_be_read_like_in_turn(whole, tmp_path):
    new = costar.read_new_subjects(clinic().tail(10), like=whole)
    new.save(tmp_path / "new.h5")
    again = costar.read_new_subjects(clinic().tail(10), like=tmp_path / "new.h5")
    assert (again.name, again.known_as) == (new.name, whole.digest)
    assert read_dataset(tmp_path / "new.h5").digest == new.digest
    for name in ("p39", "p40"):
        assert all(np.array_equal(values, row_of(again, name)[field]) for field, values in row_of(new, name).items())
    with pytest.raises(DataError, match="no source/train subjects"):
        costar.fit(new, "ridge")


def test_plans_begin_at_the_first_row_without_a_treatment(whole):
    listener, days = Listener(), pl.col("day")
    frame = clinic().head(5).with_columns(
        *(pl.when(days < 2).then(pl.col(name)).otherwise(None).alias(name) for name in ("drug", "shift")),
        pl.when(days < 2).then(pl.col("pressure")).otherwise(None).alias("pressure"),
    )  # fmt: skip
    panel = next(iter(read_new(frame, whole, listener).panels.values()))
    assert panel.length.tolist() == [3]
    assert not panel.treatments[0, 2].any()
    assert panel.outcomes[0, 2] == panel.outcomes[0, 1]
    assert panel.observed_outcomes[0, :, 0].tolist() == [True, True, False]
    assert [note for note in listener.notes if note.startswith("2 rows behind the one where plans begin")]
    seen = frame.with_columns(pl.lit(80.0).alias("pressure"))
    assert [line for line in differences(seen, whole) if "treatment" in line and "missing" in line]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda t: t.drop("age"), "new.csv: there is no column 'age'"),
        (lambda t: t.rename({"heart rate": "heart rate (1/s)"}),
         "no column 'heart rate' in 1/min, but 'heart rate (1/s)' (convert it to 1/min and call it 'heart rate')"),
        (lambda t: t.with_columns(drug=pl.lit("lots")), "that are not levels: 'lots'"),
        (lambda t: t.with_columns(sex=pl.lit("x")), "column 'sex': 40 values that source-train does not have: 'x'"),
        (lambda t: t.with_columns(age=pl.lit("old")), "column 'age': 200 values not numeric, first 'old'"),
        (lambda t: t.with_columns(day=pl.date(2024, 1, 1)), "column 'day' holds Date, not numbers"),
        (lambda t: t.with_columns(age=pl.lit(None)), "column 'age': 40 values missing"),
        (lambda t: t.with_columns(pl.col("day") * 2), "column 'day': 160 gaps between rows of a subject"),
        (lambda t: pl.concat([t, t.with_columns(pl.col("pressure") + 1)]), "with the subject and time of another row"),
        (lambda t: t.head(0), "the table has no rows"),
    ],
)  # fmt: skip
def test_each_difference_has_its_line(whole, change, line):
    found = differences(change(clinic()), whole)
    assert any(line in one for one in found), found


def test_all_differences_are_one_error(whole):
    wrong = clinic().drop("heart rate").rename({"pressure": "pressure [kPa]"}).with_columns(
        drug=pl.lit("lots"), sex=pl.lit("x"), age=pl.lit("old"), day=pl.date(2024, 1, 1)
    )  # fmt: skip
    found = differences(wrong, whole)
    for name in ("heart rate", "pressure", "drug", "sex", "age", "day"):
        assert sum(f"'{name}'" in line.partition("(")[0] for line in found) >= 1, (name, found)
    assert len(found) == 6


def test_levels_categories_and_domains_are_told_together_and_no_line_advises_another_schema(whole):
    wrong = clinic().with_columns(drug=pl.lit("lots"), sex=pl.lit("x"))
    found = differences(wrong, whole)
    assert ["'drug'" in line or "'sex'" in line for line in found] == [True, True]
    for line in (*found, *differences(clinic().with_columns(age=pl.lit(None)), whole)):
        assert not any(word in line for word in ("declare", "`levels`", "`unseen", "`missing")), line


def test_keys_gaps_and_values_are_told_together(whole):
    frame = clinic()
    wrong = pl.concat([
        frame.with_columns(drug=pl.when(pl.int_range(pl.len()) == 0).then(pl.lit("lots")).otherwise(pl.col("drug"))),
        frame.head(1).with_columns(pressure=pl.lit(1.0)),
        frame.tail(1).with_columns(day=pl.col("day") + 7),
    ]).with_columns(sex=pl.when(pl.col("patient") == "p02").then(pl.lit("x")).otherwise(pl.col("sex")))  # fmt: skip
    found = differences(wrong, whole)
    for what in ("with the subject and time of another row", "1 gap between rows", "lots", "'x'"):
        assert sum(what in line for line in found) == 1, (what, found)
    nameless = wrong.with_columns(patient=pl.when(pl.int_range(pl.len()) == 1).then(None).otherwise(pl.col("patient")))
    found = differences(nameless, whole)
    assert any("1 row without a subject" in line for line in found)
    assert any("lots" in line for line in found)
    assert not any("gap between" in line for line in found), "a row that is nobody's may have filled it"


def test_values_far_outside_training_or_negative_are_told_with_their_row(whole):
    listener = Listener()
    low = pl.when(pl.int_range(pl.len()) == 1).then(-80.0).otherwise(pl.col("pressure")).alias("pressure")
    read_new(clinic().with_columns(low, pl.col("age") * 1000), whole, listener)
    (told,) = [line for line in listener.warnings if "'pressure'" in line]
    assert "1 value far outside training's" in told
    assert "first -80 mmHg, in row 2 of" in told
    assert any("'age'" in line and "same unit" in line for line in listener.warnings)


def test_the_extremes_of_training_written_as_text_are_within_its_range():
    sizes = {"train": 8, "val": 2, "test": 2, "target_train": 2, "target_val": 2, "target_test": 2}
    simulated, listener = costar.simulate("tumor", preset="quick", steps=6, **sizes), Listener()
    train = simulated.panel("source", "train")
    volumes = train.outcomes[train.observed]
    for extreme in (volumes.min(), volumes.max()):
        row = {"subject": "a", "day": 0, "tumour_volume": float(str(extreme)), "patient_type": 1}
        row |= {"chemotherapy": None, "radiotherapy": None}
        read_new(pl.DataFrame([row]), simulated, listener, subject="subject", time="day")
    assert [line for line in listener.warnings if "tumour_volume" in line] == []


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ('row 1: 2 values missing (give them, or declare `missing = "fill"`)', "row 1: 2 values missing (give them)"),
        ("a (b): c (list `classes` in [treatments])", "a (b): c"),
        ("no 'rate (1/s)' (convert it to 1/min and call it 'rate')",) * 2,
        ("no fix at all",) * 2,
    ],
)
def test_advice_on_the_schema_is_left_out_of_a_line(line, left):
    assert without_schema_advice(line) == left


def test_a_domain_that_is_told_but_unknown_is_an_error_and_an_empty_one_a_note(whole):
    listener, like = Listener(), costar.simulate("tumor", preset="quick")
    some = Dataset(
        like.name, like.schema, like.horizon, {Part("source", "train"): like.panel("target", "test").take(np.arange(2))}
    )
    table = dataset_to_frame(some).drop("split")
    with pytest.raises(DataError) as caught:
        read_new(table.with_columns(domain=pl.lit("sorce")), like)
    assert "that are not domains: 'sorce' (did you mean 'source'?)" in caught.value.details[0]
    read_new(table.with_columns(domain=pl.lit(None, dtype=pl.String)), like, listener)
    assert any("whose domain the table does not tell" in note for note in listener.notes)


def test_simulated_values_that_cannot_be_are_errors(whole):
    like = costar.simulate("tumor", preset="quick")
    some = Dataset(
        like.name, like.schema, like.horizon, {Part("source", "train"): like.panel("target", "test").take(np.arange(2))}
    )
    table = dataset_to_frame(some).drop("split", "domain")
    with pytest.raises(DataError) as caught:
        read_new(table.with_columns(patient_type=pl.lit(1.5), tumour_volume=-pl.col("tumour_volume")), like)
    volume, kind = sorted(caught.value.details, key=lambda line: "patient_type" in line)
    assert "(it is never below 0)" in volume
    assert "2 values that cannot be: '1.5' (it takes 1, 2, 3)" in kind


def test_outcomes_never_observed_fillings_and_ids_of_training_are_told(whole):
    listener = Listener()
    name = next(iter(whole.panel("source", "train").names))
    frame = clinic().filter(pl.col("patient") == name).with_columns(pressure=pl.lit(None, dtype=pl.Float64))
    read_new(frame, whole, listener)
    assert any(f"never observed of 1 subject: '{name}'" in line for line in listener.warnings)
    n = frame.height
    line = f"{n} missing values: 0 filled with the subject's last value, {n} with the training mean"
    assert f"column 'pressure': {line}" in listener.notes
    assert f"1 subject has the id of one in the training data: '{name}'" in " ".join(listener.notes)


def test_values_beyond_training_extra_columns_and_unknown_domains_are_told(whole):
    listener = Listener()
    frame = (
        clinic().head(5).with_columns(pl.col("heart rate").fill_null(70.0) / 60, note=pl.lit("?"), stage=pl.lit("IX"))
    )
    new = read_new(frame.drop("site"), whole, listener)
    assert "columns that are not used: 'flat', 'note'" in listener.notes
    assert "1 subject whose domain the table does not tell: taken as of the source" in listener.notes
    assert ["is it in the same unit?" in warning for warning in listener.warnings] == [True]
    assert new.panels[Part("source", "test")].statics[0, -1] == 1  # stage=other


def test_old_files_say_how_to_get_what_they_lack(whole, model, tmp_path):
    own = model.artifact
    meta = {key: value for key, value in own.meta.items() if key != "preprocessing"}
    write_artifact(tmp_path / "old.h5", kind="model", arrays=own.arrays, meta=meta, parents=own.parents)
    with pytest.raises(MismatchError, match="was made by an older version of costar") as caught:
        costar.read_new_subjects(clinic(), like=tmp_path / "old.h5")
    assert "train again" in (caught.value.fix or "")
    meta = dict(own.meta) | {"preprocessing": {"schema": {"name": "x"}, "fills": {}, "ranges": {}}}
    write_artifact(tmp_path / "odd.h5", kind="model", arrays=own.arrays, meta=meta, parents=own.parents)
    with pytest.raises(ArtifactError, match="not as costar wrote it"):
        costar.read_new_subjects(clinic(), like=tmp_path / "odd.h5")
    assert read_artifact(tmp_path / "old.h5").digest != model.digest


@pytest.mark.parametrize("name", ["tumor", "linear", "m5"])
def test_simulated_subjects_come_back_by_the_names_of_the_models_variables(name):
    dataset = costar.simulate(name, preset="quick")
    part = Part("target", "test")
    panel = dataset.panels[part].take(np.arange(3))
    some = Dataset(dataset.name, dataset.schema, dataset.horizon, {Part("source", "train"): panel})
    table = dataset_to_frame(some).drop("split", "domain")
    new = read_new(table, dataset).panels[Part("source", "test")]
    for field in ("covariates", "treatments", "outcomes", "statics", "length"):
        assert np.array_equal(getattr(new, field), _cut(panel, getattr(panel, field))), field


def _cut(panel: Panel, values: np.ndarray) -> np.ndarray:
    return values[:, : int(panel.length.max())] if values.ndim == 3 else values


@settings(max_examples=8)
@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_order_of_rows_and_columns_does_not_matter(whole, random, patients):
    frame = clinic().filter(pl.col("patient") <= f"p{patients:02d}")
    rows, columns = list(range(frame.height)), list(frame.columns)
    random.shuffle(rows)
    random.shuffle(columns)
    plain, mixed = read_new(frame, whole), read_new(frame[rows].select(columns), whole)
    assert set(plain.panels) == set(mixed.panels)
    for part, panel in plain.panels.items():
        for field in ("covariates", "treatments", "outcomes", "statics", "length", "label"):
            assert np.array_equal(getattr(panel, field), getattr(mixed.panels[part], field)), field
