"""Treatments become classes or 0/1 numbers, by the levels of the schema or those of source-train."""

from pathlib import Path

import polars as pl
import pytest

from tests.datasets.table_worlds import assert_same_dataset, ingest, make_schema, of, ward


def test_treatments_are_multilabel_when_all_are_binary_and_classes_otherwise(tmp_path: Path):
    frame = ward().with_columns(a=pl.col("day") % 2, b=pl.col("day") > 2, c=pl.col("drug").replace({"low": "none"}))
    two = make_schema({"a": {"role": "treatment"}, "b": {"role": "treatment"}}, without=("drug",))
    encoding = ingest(frame, two, folder=tmp_path).schema.treatments
    assert (encoding.mode, encoding.names, encoding.levels) == ("multilabel", ("a", "b"), (("off", "on"),) * 2)
    classes = make_schema(
        {"a": {"role": "treatment"}, "b": {"role": "treatment"}}, without=("drug",), treatments={"mode": "multiclass"}
    )
    assert ingest(frame, classes, folder=tmp_path).schema.treatments.classes == ((0, 0), (1, 0), (0, 1), (1, 1))
    three = ingest(frame, make_schema({"drug": {"role": "treatment"}}), folder=tmp_path).schema.treatments
    assert (three.mode, three.levels, three.classes) == ("multiclass", (("none", "high", "low"),), ((0,), (1,), (2,)))


@pytest.mark.parametrize(
    ("labels", "levels"),
    [
        (["none", "low", "high"], ("none", "high", "low")),
        (["0", "5", "10"], ("0", "5", "10")),
        (["yes", "no", "no"], ("no", "yes")),
        (["0", "1", "1"], ("off", "on")),
        (["True", "false", "true"], ("off", "on")),
        (["a", "b", "b"], ("b", "a")),
    ],
)
def test_the_guessed_reference_is_what_sounds_untreated(labels: list[str], levels: tuple[str, ...], tmp_path: Path):
    frame = ward().with_columns(pl.col("drug").replace(dict(zip(["none", "low", "high"], labels, strict=True))))
    schema = make_schema({"drug": {"role": "treatment"}})
    assert ingest(frame, schema, folder=tmp_path).schema.treatments.levels == (levels,)


def test_a_last_row_may_have_no_treatment_and_other_blanks_mean_not_given_if_the_schema_says_so(tmp_path: Path):
    frame = ward().with_columns(drug=pl.when(pl.col("day") < 5).then("drug"))
    panel, row = of(ingest(frame, folder=tmp_path), "p01")
    assert not panel.treatments[row, 5].any()
    assert panel.treatments[row, :5].any(axis=-1).all()
    frame = ward().with_columns(drug=pl.when(pl.col("drug") != "none").then("drug"))
    columns = {"drug": {"role": "treatment", "levels": ["none", "low", "high"], "missing": "fill"}}
    filled = ingest(frame.with_columns(drug=pl.when(pl.col("day") == 5).then(pl.lit("low")).otherwise("drug")),
                    make_schema(columns), folder=tmp_path)  # fmt: skip
    given = filled.schema.treatments.decode(of(filled, "p01")[0].treatments)
    assert given.shape[-1] == 1
    whole = ingest(
        ward().with_columns(drug=pl.when(pl.col("day") == 5).then(pl.lit("low")).otherwise("drug")), folder=tmp_path
    )
    assert_same_dataset(filled, whole)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_truth_values_are_levels_and_domains_however_they_are_spelt(form: str, tmp_path: Path):
    frame = ward().with_columns(ice=pl.col("day") % 2 == 0, south=pl.col("site") == "south")
    columns = {"ice": {"role": "treatment", "levels": [False, True]}, "south": {"role": "domain", "target": True}}
    schema = make_schema(columns, without=("drug", "site"))
    dataset = ingest(frame, schema, folder=tmp_path, form=form)
    assert of(dataset, "p03")[0].treatments[0, :, 0].tolist() == [1, 0, 1, 0, 1, 0]
    assert dataset.find_subject("p03").part.domain == "target"
    assert dataset.find_subject("p04").part.domain == "source"
    spelt = frame.with_columns(pl.col("ice", "south").cast(pl.String).str.to_titlecase())
    assert_same_dataset(ingest(spelt, schema, folder=tmp_path, form=form), dataset)
