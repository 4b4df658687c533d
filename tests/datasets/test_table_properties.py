"""What must not matter does not matter, and a data set survives the way into tables and back."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costar_cli.data import Dataset, Part
from costar_cli.data.table import TableInputs, ingest_table
from costar_cli.data.table.export import dataset_to_frame, export_dataset, free_names, queries_to_frame, schema_text
from costar_cli.data.table.schema_file import parse_schema, read_schema
from costar_cli.errors import DataError
from costar_cli.reporting import NullReporter
from tests.datasets.table_worlds import assert_same_dataset, make_schema, save, ward
from tests.property.strategies import datasets

FORMS = st.sampled_from(["csv"] * 6 + ["parquet"])  # each Parquet file costs a process
FILL = make_schema(
    {"drug": {"role": "treatment"}, "heart rate": {"role": "covariate", "missing": "fill"},
     "sex": {"role": "static", "kind": "categorical", "missing": "fill"}}
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("properties")


def holey(seed: int) -> pl.DataFrame:
    """A ward with holes in some covariates and statics."""
    rng = np.random.default_rng(seed)
    frame = ward(24, 4)
    rate = np.where(rng.random(frame.height) < 0.2, np.nan, frame["heart rate"].to_numpy())
    sex = np.where(np.isin(frame["patient"].to_numpy(), ["p05", "p06"]), None, frame["sex"].to_numpy())
    return frame.with_columns(pl.Series("heart rate", rate), pl.Series("sex", sex, dtype=pl.String))


@settings(max_examples=15)
@given(st.integers(0, 5), st.randoms(use_true_random=False))
def test_order_files_columns_and_endings_do_not_matter(folder: Path, seed: int, random):
    frame = holey(seed)
    plain = ingest_table(TableInputs([save(frame, folder / "plain.csv")]), FILL, NullReporter())
    rows = list(range(frame.height))
    random.shuffle(rows)
    columns = [*frame.columns, "left out"]
    random.shuffle(columns)
    mixed = frame[rows].with_columns(pl.lit("x").alias("left out"))
    cut = sorted(random.sample(range(1, frame.height), 2))
    pieces = [mixed[: cut[0]], mixed[cut[0] : cut[1]], mixed[cut[1] :]]
    paths = []
    for i, piece in enumerate(pieces):
        order = columns if i else list(reversed(columns))
        paths.append(
            save(
                piece.select([pl.nth(piece.columns.index(name)) for name in order]),
                folder / f"piece{i}.{random.choice(['csv'] * 4 + ['parquet'])}",
            )
        )
    random.shuffle(paths)
    assert_same_dataset(ingest_table(TableInputs(paths), FILL, NullReporter()), plain)


@given(st.integers(0, 2**32 - 1), st.integers(0, 1))
def test_a_static_is_what_the_first_row_says_or_an_error(folder: Path, seed: int, in_first: int):
    """Nothing of a subject's future: whatever stands in later rows, statics are those of the first."""
    rng = np.random.default_rng(seed)
    frame = ward(24, 4)
    known = rng.random(frame.height) >= 0.3
    known[::4] |= in_first == 1
    frame = frame.with_columns(pl.when(pl.Series(known)).then("age"))
    path = save(frame, folder / "late.csv")
    first, ever = known.reshape(24, 4)[:, 0], known.reshape(24, 4).any(axis=1)
    schema = make_schema({"age": {"role": "static", "missing": "fill"}})
    if (ever & ~first).any():
        with pytest.raises(DataError, match="without a value in the first row"):
            ingest_table(TableInputs([path]), schema, NullReporter())
        return
    starts = frame.with_columns(pl.when(pl.col("day") == 0).then("age"))
    alone = ingest_table(TableInputs([save(starts, folder / "starts.csv")]), schema, NullReporter())
    assert_same_dataset(ingest_table(TableInputs([path]), schema, NullReporter()), alone)


def with_changing_outcomes(dataset: Dataset) -> Dataset:
    """Give source-train two steps of outcomes that differ, without which nothing could be learned."""
    part = Part("source", "train")
    panel = dataset.panels[part]
    n, steps = panel.n_subjects, max(panel.n_steps, 2)

    def longer(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values, np.zeros((n, steps - values.shape[1], values.shape[2]), np.float32)], axis=1)

    fields = {name: longer(getattr(panel, name)) for name in ("covariates", "treatments", "outcomes")}
    length = np.maximum(panel.length, 2)
    fields["treatments"][panel.length == 1, 0] = dataset.schema.treatments.encode(
        dataset.schema.treatments.decode(fields["treatments"][panel.length == 1, 0])
    )
    fields["outcomes"][:, 0], fields["outcomes"][:, 1] = 0, 1
    return replace(dataset, panels={**dataset.panels, part: replace(panel, **fields, length=length)})


@settings(max_examples=20)
@given(datasets(learnable=True), FORMS)
def test_a_data_set_survives_the_way_into_tables_and_back(folder: Path, dataset: Dataset, form: str):
    dataset = with_changing_outcomes(dataset)
    files = {path.stem: path for path in export_dataset(dataset, folder / "out", form, overwrite=True)}
    inputs = TableInputs([files["table"]], queries=files.get("queries"))
    again = ingest_table(inputs, read_schema(files["schema"]), NullReporter())
    assert_same_dataset(again, dataset)


@given(datasets())
def test_an_export_has_a_row_per_subject_and_step_and_names_of_its_own(dataset: Dataset):
    names = free_names(dataset.schema)
    frame = dataset_to_frame(dataset, names)
    assert frame.height == sum(int(panel.length.sum()) for panel in dataset.panels.values())
    assert frame.columns[:4] == [names["subject"], names["time"], names["domain"], names["split"]]
    assert not pl.DataFrame([frame[names["subject"]].alias("s"), frame[names["time"]].alias("t")]).is_duplicated().any()
    total = sum(len(q) * q.horizon for sets in dataset.queries.values() for q in sets.values())
    if total:
        assert queries_to_frame(dataset, names).height == total


def test_a_schema_of_an_export_can_be_read(tumor_dataset: Dataset):
    import tomllib

    schema = parse_schema(tomllib.loads(schema_text(tumor_dataset)))
    assert schema.named("outcome") == ["tumour_volume"]
    assert schema.name == "tumor export"
