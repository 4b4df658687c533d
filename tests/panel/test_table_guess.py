"""A guessed schema is TOML that says something sensible, whatever the table looks like."""

import tomllib
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.config.table import TableSchema
from costar_cli.config.table_file import parse_schema
from costar_cli.errors import CostarError, DataError
from costar_cli.panel import Part
from costar_cli.panel.tables.guess import guess_schema
from tests.panel.table_worlds import Listener, ingest, save, ward

EXAMPLE = Path(__file__).parents[2] / "examples" / "own-data" / "small.csv"


def guessed(frame: pl.DataFrame, folder: Path, name: str = "ward.csv") -> TableSchema:
    return parse_schema(tomllib.loads(guess_schema([save(frame, folder / name)])))


def roles(schema: TableSchema) -> dict[str, str]:
    return {name: column.role for name, column in schema.columns.items()}


def test_the_guess_for_the_example_is_ingested_as_it_is():
    schema = parse_schema(tomllib.loads(guess_schema([EXAMPLE])))
    assert roles(schema) == {
        "patient": "subject", "date": "time", "hospital": "domain", "age": "static", "sex": "static",
        "diabetes": "static", "carbs": "covariate", "crp": "covariate", "insulin": "treatment", "steroid": "covariate",
        "glucose": "outcome",
    }  # fmt: skip
    assert schema.time.step == "1d"
    listener = Listener()
    dataset = ingest(EXAMPLE, schema, listener=listener)
    assert listener.warnings == []
    assert sum(panel.n_subjects for panel in dataset.panels.values()) == 170
    assert dataset.schema.treatments.levels == (("none", "basal", "basal-bolus"),)
    assert len(dataset.queries[Part("target", "test")]["rolling_origin"])


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_roles_are_guessed_by_name_and_by_values(form: str, tmp_path: Path):
    frame = ward().with_columns(
        split=pl.Series(["train", "val", "test"]).gather((pl.Series(range(180)) // 6) % 3),
        note=pl.format("text {}", pl.int_range(pl.len())),
        unit=pl.lit("ward 7"),
        admitted=pl.lit("2024-01-03"),
        smoker=pl.col("patient") < "p10",
    )
    schema = guessed(frame, tmp_path, f"ward.{form}")
    assert roles(schema) == {
        "patient": "subject", "day": "time", "site": "domain", "pressure": "covariate", "drug": "treatment",
        "heart rate": "outcome", "age": "static", "sex": "static", "split": "split", "smoker": "static",
    }  # fmt: skip
    assert schema.columns["site"].domain_values("target") == ("south",)
    assert schema.columns["smoker"].kind == "binary"
    assert schema.columns["sex"].kind == "categorical"
    text = guess_schema([tmp_path / f"ward.{form}"])
    assert '# note = { role = "..." }  # left out: 180 different texts' in text
    assert '# unit = { role = "..." }  # left out: never changes: ward 7' in text


@pytest.mark.parametrize(
    ("times", "step", "gaps"),
    [
        (["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"], "1d", "error"),
        (["2024-01-01", "2024-01-08", "2024-01-15", "2024-01-29"], "1w", "fill"),
        (["2024-01-01 00:00", "2024-01-01 06:00", "2024-01-01 12:00", "2024-01-01 18:00"], "6h", "error"),
        (["2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01"], "1mo", "error"),
        (["2020-07-01", "2021-07-01", "2022-07-01", "2024-07-01"], "1y", "fill"),
        (["2024-01-01 08:13", "2024-01-01 09:58", "2024-01-02 07:20", "2024-01-03 11:00"], "105min", "ignore"),
        (["0", "2", "4", "6"], 2, "error"),
        (["0", "0.5", "1", "2"], 0.5, "fill"),
    ],
)
def test_steps_and_gaps_are_guessed_from_the_times(times: list[str], step: object, gaps: str, tmp_path: Path):
    frame = ward(24, 4).with_columns(day=pl.Series(times).gather(ward(24, 4)["day"]))
    schema = guessed(frame, tmp_path)
    assert (schema.time.step, schema.time.gaps) == (step, gaps)
    assert ingest(tmp_path / "ward.csv", schema).panels


def test_what_is_not_found_is_left_to_be_filled_in(tmp_path: Path):
    frame = pl.DataFrame({"a": ["x", "y", "z"], "b": [0.5, 0.25, 0.125]})
    text = guess_schema([save(frame, tmp_path / "m5.csv")])
    assert 'name = "m5 table"' in text
    for role in ("subject", "time"):
        assert f'# NAME = {{ role = "{role}" }}' in text
    tomllib.loads(text)


def test_a_table_without_rows_cannot_be_guessed_from(tmp_path: Path):
    with pytest.raises(DataError, match="no rows"):
        guess_schema([save(ward().head(0), tmp_path / "ward.csv")])


CELLS = st.sampled_from(
    ["", "NA", "0", "1", "2.5", "-3", "1e9", "true", "a", "x\ny", '"', "2024-01-01", "#", "é\x1b[31m"]
)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cn")), min_size=1, max_size=8)


@given(
    st.lists(NAMES, min_size=1, max_size=5, unique=True),
    st.lists(st.lists(CELLS, min_size=5, max_size=5), min_size=1, max_size=12),
)
def test_any_table_gives_toml_or_a_plain_complaint(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], rows: list[list[str]]
):
    frame = pl.DataFrame([pl.Series(name, [row[i] for row in rows]) for i, name in enumerate(names)])
    path = save(frame, tmp_path_factory.getbasetemp() / "any.csv")
    try:
        text = guess_schema([path])
    except CostarError:
        return
    tables = tomllib.loads(text)
    assert set(tables["columns"]) <= {name.strip() for name in names}
    with suppress(CostarError):
        assert ingest(path, parse_schema(tables)).panels
