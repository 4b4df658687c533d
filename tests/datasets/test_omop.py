"""An OMOP database is a log of events: what each table says, in every form of file, and what is refused or counted."""

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from costar_cli.data import Dataset
from costar_cli.data.events import parse_signals, table_of_events
from costar_cli.data.events.ingest import ingest_events
from costar_cli.data.events.omop import open_omop
from costar_cli.errors import DataError
from costar_cli.reporting import NullReporter
from tests.datasets.omop_world import (
    ACE,
    EFFECT,
    ENALAPRIL,
    INPATIENT,
    KG,
    LISINOPRIL,
    POUND,
    PRESSURE,
    SIGNALS,
    WEIGHT,
    Tables,
    make_tables,
    write_omop,
)

LIMITS = "with an operator such as `<` are limits, not measurements, and count as if measured"


@pytest.fixture
def tables() -> Tables:
    return make_tables()


def ingest(path: Path, reporter: NullReporter, changed: dict[str, Any] | None = None, **tables: Any) -> Dataset:
    """Make a data set of a database, with some columns of the signals changed, and other tables of the file."""
    columns = {name: line for name, line in (SIGNALS["columns"] | (changed or {})).items() if line}
    signals = parse_signals(SIGNALS | {"columns": columns} | tables)
    return ingest_events(open_omop(path, reporter), signals, reporter)


def refusal(path: Path, reporter: NullReporter, *args: Any) -> str:
    with pytest.raises(DataError) as error:
        ingest(path, reporter, *args)
    return "\n".join(filter(None, [str(error.value), error.value.where, error.value.fix, *error.value.details]))


def events_of(path: Path, code: str) -> pl.DataFrame:
    scan = open_omop(path, NullReporter()).scan
    return scan.filter(pl.col("code") == code).sort("subject", "time").collect()


@pytest.mark.parametrize("form", ["csv", "CSV", "parquet", "duckdb"])
def test_every_form_of_file_gives_the_panel_of_the_world(tmp_path: Path, tables, reporter, form: str) -> None:
    if form == "duckdb":
        pytest.importorskip("duckdb")
    dataset = ingest(write_omop(tmp_path, tables, form), reporter)
    panel = dataset.panel("source", "train")
    told = {(row["person_id"], row["measurement_date"]): row["value_as_number"] for row in tables["measurement"]}
    taken = {(row["person_id"], row["drug_exposure_start_date"]) for row in tables["drug_exposure"]}
    first = {row["person_id"]: row["observation_period_start_date"] for row in tables["observation_period"]}
    for row, who in enumerate(panel.subject_id):
        days = [date.fromordinal(first[who].toordinal() + step) for step in range(panel.length[row])]
        assert panel.outcomes[row, : len(days), 0].tolist() == pytest.approx([told[who, day] for day in days])
        # What is given on the last day changes nothing that is seen
        given = panel.treatments[row, : len(days) - 1, 0].tolist()
        assert given == [float((who, day) in taken) for day in days[:-1]]
    outcome, treated = panel.outcomes[..., 0], panel.treatments[..., 0].astype(bool)
    seen = panel.observed[:, 1:]
    later, before = outcome[:, 1:], treated[:, :-1]
    assert later[seen & before].mean() - later[seen & ~before].mean() == pytest.approx(EFFECT, abs=0.2)
    assert {variable.name for variable in dataset.schema.statics} == {"sex=FEMALE", "sex=MALE", "age"}


def test_series_end_by_death_or_with_the_observation(tmp_path: Path, tables, reporter) -> None:
    tables["death"][0]["death_date"] = tables["observation_period"][0]["observation_period_start_date"].replace(day=28)
    tables["observation_period"][0]["observation_period_start_date"] = date(2020, 1, 20)
    for row in tables["measurement"]:
        if row["person_id"] == 1:
            row["measurement_date"] = date(2020, 1, 20 + row["measurement_id"])
            row["measurement_datetime"] = None
    tables["death"][0]["death_date"] = date(2020, 1, 25)
    tables["observation_period"][0]["observation_period_end_date"] = date(2020, 1, 27)
    tables["drug_exposure"] = [row for row in tables["drug_exposure"] if row["person_id"] != 1]
    dataset = ingest(write_omop(tmp_path, tables), reporter)
    ends = {}
    for panel in dataset.panels.values():
        ends |= dict(
            zip(panel.subject_id.tolist(), zip(panel.ends.tolist(), panel.length.tolist(), strict=True), strict=True)
        )
    assert [end.name for end in dataset.schema.ends] == ["death", "left"]
    assert ends[1] == (1, 6)  # the sixth day is that of the death
    assert {end for who, end in ends.items() if who != 1} == {(2, 8)}


def ends_of(dataset: Dataset) -> dict[int, tuple[str, int]]:
    """Return of each subject which end its series has and how long it is."""
    names = ["", *(end.name for end in dataset.schema.ends)]
    return {
        int(who): (names[end], int(length))
        for panel in dataset.panels.values()
        for who, end, length in zip(panel.subject_id, panel.ends, panel.length, strict=True)
    }


@pytest.mark.parametrize("first", ["death", "left"])
def test_deaths_on_the_last_day_of_the_observation_end_the_series(tmp_path: Path, tables, reporter, first: str) -> None:
    days = {row["person_id"]: row["observation_period_end_date"] for row in tables["observation_period"]}
    tables["death"] = [
        {"person_id": who, "death_date": days[who], "death_datetime": f"{days[who]} 14:00:00" if who <= 6 else None}
        for who in range(1, 13)
    ]
    tables["death"][11]["death_date"] += timedelta(days=1)
    left, death = SIGNALS["columns"]["left"], SIGNALS["columns"]["death"]
    order = {"death": death, "left": left} if first == "death" else {"left": left, "death": death}
    columns = {name: line for name, line in SIGNALS["columns"].items() if name not in order}
    signals = parse_signals(SIGNALS | {"columns": columns | order})
    ends = ends_of(ingest_events(open_omop(write_omop(tmp_path, tables), reporter), signals, reporter))
    assert {ends[who] for who in range(1, 7)} == {("death", 9)}  # in the afternoon, before the ninth morning
    assert {ends[who] for who in range(7, 12)} == {("death", 8)}
    assert {ends[who] for who in range(12, 41)} == {("left", 8)}
    [told] = [text for text in reporter.warnings if "outside of their series" in text]
    assert "1 subject" in told
    assert "for 1 of them, after the loss of follow-up" in told


def test_the_last_day_of_an_observation_is_whole(tmp_path: Path, tables, reporter) -> None:
    for row in [row for row in tables["measurement"] if row["person_id"] <= 6]:
        evening = f"{row['measurement_date']} 20:00:00"
        tables["measurement"].append(row | {"measurement_datetime": evening, "value_as_number": 200.0})
        if row["person_id"] == 6:  # and one of the day after, when nobody observed
            later = row["measurement_date"] + timedelta(days=8)
            tables["measurement"].append(row | {"measurement_date": later, "measurement_datetime": f"{later} 01:00:00"})
    path = write_omop(tmp_path, tables)
    highest = SIGNALS["columns"]["pressure"] | {"aggregate": "max"}
    dataset = ingest(path, reporter, {"pressure": highest, "death": None})
    assert set(ends_of(dataset).values()) == {("left", 8)}
    for panel in dataset.panels.values():
        early = panel.subject_id <= 6
        assert (panel.outcomes[early, 7, 0] == 200.0).all()
        assert (panel.outcomes[~early, 7, 0] < 160.0).all()
    hourly = ingest(path, reporter, {"death": None}, time={"step": "6h"})
    assert set(ends_of(hourly).values()) == {("left", 8 * 4)}
    until = {"code": f"visit_occurrence//{INPATIENT}", "until": {"code": "observation_period//end"}}
    window = ingest(path, reporter, {"death": None, "left": None}, anchor=until)
    assert set(ends_of(window).values()) == {("", 8)}


def test_quantities_of_drugs_are_spread_over_their_days(tmp_path: Path, tables, reporter) -> None:
    day = tables["observation_period"][0]["observation_period_start_date"]
    row = tables["drug_exposure"][0] | {"person_id": 1, "drug_exposure_start_date": day, "quantity": 11.0}
    row |= {"drug_exposure_end_date": day + timedelta(days=4)}
    tables["drug_exposure"] = [row, *(other for other in tables["drug_exposure"] if other["person_id"] != 1)]
    path = write_omop(tmp_path, tables)
    for code, whole, n in (("drug_exposure", 11.0, 5), ("drug_era", 2.0, 3)):
        dose = {"role": "treatment", "kind": "continuous", "prefix": f"{code}//"}
        signals = parse_signals(SIGNALS | {"columns": SIGNALS["columns"] | {"ace": dose}})
        inputs, _ = table_of_events(open_omop(path, reporter), signals, reporter)
        [steps] = [table.scan.filter(pl.col("subject_id") == 1).collect() for table in inputs.tables]  # type: ignore[union-attr]
        assert steps["ace"].to_list() == pytest.approx([whole / n] * n + [0.0] * (8 - n))


@pytest.mark.parametrize("code", ["drug_exposure", "drug_era"])
def test_which_drug_is_taken_is_a_treatment_of_levels(tmp_path: Path, tables, reporter, code: str) -> None:
    path = write_omop(tmp_path, tables)
    drug = {"role": "treatment", "prefix": f"{code}//", "value": "code"}
    told = refusal(path, reporter, {"ace": drug})
    assert "its codes say what is given, not that nothing is" in told
    assert f'`levels = ["none", "{LISINOPRIL}"' in told
    drug["levels"] = ["none", str(LISINOPRIL), str(ENALAPRIL)]
    dataset = ingest(path, reporter, {"ace": drug})
    assert dataset.schema.treatments.levels == (tuple(drug["levels"]),)
    first = {row["person_id"]: row["observation_period_start_date"] for row in tables["observation_period"]}
    start, end = f"{code}_start_date", f"{code}_end_date"
    taken = {
        (row["person_id"], day): (LISINOPRIL, ENALAPRIL).index(row["drug_concept_id"]) + 1
        for row in tables[code]
        for day in range((row[start] - first[row["person_id"]]).days, (row[end] - first[row["person_id"]]).days + 1)
    }
    for panel in dataset.panels.values():
        for i, who in enumerate(panel.subject_id.tolist()):
            n = int(panel.length[i])
            given = panel.treatments[i, : n - 1].argmax(axis=1)  # a column for each level
            assert given.tolist() == [taken.get((who, day), 0) for day in range(n - 1)]


def test_midnights_are_dates_and_intervals_of_dates_end_with_their_day(tmp_path: Path, tables) -> None:
    path = write_omop(tmp_path, tables)
    era = events_of(path, f"drug_era//{LISINOPRIL}").row(0, named=True)
    start = tables["drug_era"][0]["drug_era_start_date"]
    assert era["time"] == datetime.combine(start, datetime.min.time())
    assert (era["stop"] - era["time"]).days == 3
    assert era["value"] == 2
    visit = events_of(path, f"visit_occurrence//{INPATIENT}")
    assert (visit["stop"] - visit["time"]).dt.total_days().unique().to_list() == [8]


def test_times_of_day_count_where_some_row_has_one(tmp_path: Path, tables) -> None:
    rows = [row for row in tables["drug_exposure"] if row["drug_concept_id"] == LISINOPRIL]
    day = rows[0]["drug_exposure_start_date"]
    rows[0] |= {"drug_exposure_start_datetime": f"{day} 08:00:00", "drug_exposure_end_datetime": f"{day} 20:30:00"}
    rows[1] |= {"drug_exposure_start_datetime": None, "drug_exposure_end_datetime": None}
    made = events_of(write_omop(tmp_path, tables), f"drug_exposure//{LISINOPRIL}")
    fine = made.filter(pl.col("time").dt.hour() == 8).row(0, named=True)
    assert (fine["stop"] - fine["time"]).total_seconds() == 12.5 * 3600
    whole = made.filter(subject=rows[1]["person_id"], time=pl.lit(rows[1]["drug_exposure_start_date"]).cast(
        pl.Datetime("us"))).row(0, named=True)  # fmt: skip
    assert (whole["stop"] - whole["time"]).days == 1


def test_descendants_are_of_their_own_table(tmp_path: Path, tables, reporter) -> None:
    events = open_omop(write_omop(tmp_path, tables), reporter)
    assert events.parents is not None
    below = events.parents.filter(parent=f"drug_exposure//{ACE}")["code"].sort().to_list()
    assert below == [f"drug_exposure//{LISINOPRIL}", f"drug_exposure//{ENALAPRIL}"]
    assert events.parents.filter(parent=f"drug_era//{ACE}")["code"].to_list() == [f"drug_era//{LISINOPRIL}"]
    itself = events.parents.filter(parent=f"measurement//{PRESSURE}")["code"].to_list()
    assert itself == [f"measurement//{PRESSURE}"]
    told = refusal(tmp_path, reporter, {"ace": {"role": "treatment", "code": f"drug_exposure//{LISINOPRIL}1"}})
    assert f"no event has the code 'drug_exposure//{LISINOPRIL}1'" in told
    assert f"'drug_exposure//{LISINOPRIL}'" in told


def test_two_units_of_a_concept_are_refused_unless_they_are_converted(tmp_path: Path, tables, reporter) -> None:
    for i, row in enumerate([dict(row) for row in tables["measurement"]]):
        number, unit = (180.0, POUND) if i % 2 else (81.65, KG)
        tables["measurement"].append(
            row | {"measurement_concept_id": WEIGHT, "value_as_number": number, "unit_concept_id": unit}
        )
    path = write_omop(tmp_path, tables)
    weight = {"role": "covariate", "code": f"measurement//{WEIGHT}", "unit": "kg"}
    told = refusal(path, reporter, {"weight": weight})
    assert "its events have 2 units: 160 of '[lb_us]', 160 of 'kg'" in told
    dataset = ingest(path, reporter, {"weight": weight | {"units": {"[lb_us]": 0.453592}}}, constant="keep")
    values = dataset.panel("source", "train").covariates[..., 0]
    assert values[values > 0] == pytest.approx(81.65, abs=0.01)


def test_units_are_of_the_table_of_concepts_else_as_the_source_writes_them_else_numbers(tmp_path: Path, tables) -> None:
    measurement = tables["measurement"]
    measurement[0]["unit_concept_id"], measurement[1]["unit_concept_id"] = 0, None
    measurement[2] |= {"unit_concept_id": 4711, "unit_source_value": None}
    path = write_omop(tmp_path, tables)
    units = events_of(path, f"measurement//{PRESSURE}")["unit"].to_list()
    assert units[:4] == ["mmHg", "mmHg", "4711", "mm[Hg]"]
    (path / "concept.csv").unlink()
    assert events_of(path, f"measurement//{PRESSURE}")["unit"][3] == "mmHg"
    assert events_of(path, "gender//8532").height  # then concepts are numbers


def test_persons_have_what_holds_always_and_their_birth(tmp_path: Path, tables) -> None:
    tables["person"][4] |= {"birth_datetime": "1961-05-06 07:08:00"}
    path = write_omop(tmp_path, tables)
    born = dict(events_of(path, "MEDS_BIRTH").select("subject", "time").rows())
    assert born[1] == datetime(1951, 3, 9)
    assert born[3] == datetime(1953, 7, 1)  # the middle of a year of which no more is said
    assert born[5] == datetime(1961, 5, 6, 7, 8)
    assert events_of(path, "gender//FEMALE")["time"].null_count() == 20
    assert events_of(path, "race//white").height == 40
    assert not events_of(path, "ethnicity//0").height  # 0 is no concept


def test_values_may_be_texts_limits_and_numbers_that_cannot_be_read(tmp_path: Path, tables, reporter) -> None:
    measurement = tables["measurement"]
    for row in measurement:
        row["value_as_number"] = str(row["value_as_number"])
    measurement[0]["value_as_number"], measurement[1]["value_as_number"] = "high", ""
    measurement[2]["operator_concept_id"] = 4171756
    measurement[3]["measurement_date"] = None
    measurement[4]["person_id"] = None
    measurement[5]["measurement_concept_id"] = 0
    measurement[6]["value_as_concept_id"] = INPATIENT
    measurement[7]["person_id"] = 4711
    path = write_omop(tmp_path, tables)
    scan = open_omop(path, reporter).scan
    assert sorted(reporter.warnings) == [
        "1 event of 1 subject that table person does not have: left out",
        "table measurement: 1 row without a date left out",
        "table measurement: 1 row without a person left out",
        "table measurement: 1 value of value_as_number that are no numbers count as missing",
        f"table measurement: 1 value {LIMITS}",
    ]
    assert scan.filter(pl.col("code") == "measurement//0").collect().height == 1
    assert "Inpatient Visit" in scan.filter(pl.col("code") == f"measurement//{PRESSURE}").collect()["text"].to_list()


def test_reversed_and_overlapping_intervals_are_counted(tmp_path: Path, tables, reporter) -> None:
    first, second = tables["drug_exposure"][:2]
    first["drug_exposure_end_date"] = date(2019, 1, 1)
    tables["drug_exposure"].append(second | {"drug_exposure_id": 999})
    ingest(write_omop(tmp_path, tables), reporter)
    assert any("1 interval that ends before it begins" in text for text in reporter.warnings)
    assert any("begin" in text and "before another" in text for text in reporter.warnings)


def test_an_anchor_and_a_window_cut_series(tmp_path: Path, tables, reporter) -> None:
    anchor = {"code": f"visit_occurrence//{INPATIENT}", "after": "5d"}
    dataset = ingest(write_omop(tmp_path, tables), reporter, {"death": None, "left": None}, anchor=anchor)
    assert {int(length) for panel in dataset.panels.values() for length in panel.length} == {5}
    nobody = {"code": f"visit_occurrence//{INPATIENT}", "before": "900d", "after": "-5d"}
    with pytest.raises(Exception, match="anchor"):
        ingest(tmp_path, reporter, None, anchor=nobody)


def test_all_that_is_missing_is_told_at_once(tmp_path: Path, tables, reporter) -> None:
    del tables["person"]
    tables["persons"] = [{"person_id": 1}]
    for row in tables["drug_exposure"]:
        del row["drug_exposure_end_date"]
    for row in tables["observation_period"]:
        del row["person_id"]
    told = refusal(write_omop(tmp_path, tables), reporter)
    assert "there is no table person" in told
    assert "`persons`" in told
    assert "table drug_exposure lacks 'drug_exposure_end_date'" in told
    assert "table observation_period lacks 'person_id'" in told
    empty = tmp_path / "empty"
    empty.mkdir()
    told = refusal(empty, reporter)
    assert "there is no table of events" in told


def test_dates_that_are_none_and_persons_that_come_twice_are_refused(tmp_path: Path, tables, reporter) -> None:
    for row in tables["measurement"]:
        row["measurement_date"] = str(row["measurement_date"])
    tables["measurement"][3]["measurement_date"] = "soon"
    told = refusal(write_omop(tmp_path, tables), reporter)
    assert "column measurement_date: 1 value that is no date" in told
    tables["measurement"][3]["measurement_date"] = "2020-02-02"
    tables["person"].append(tables["person"][0])
    assert "rows of the same person: '1'" in refusal(write_omop(tmp_path, tables), reporter)


def test_older_databases_lack_columns_and_tables(tmp_path: Path, tables, reporter) -> None:
    for name in ("drug_era", "death", "concept", "concept_ancestor"):
        del tables[name]
    for name, keys in {
        "measurement": ("operator_concept_id", "unit_source_value", "measurement_datetime", "value_source_value"),
        "person": ("month_of_birth", "day_of_birth", "race_source_value"),
        "drug_exposure": ("drug_exposure_start_datetime", "drug_exposure_end_datetime", "quantity"),
    }.items():
        for row in tables[name]:
            for key in keys:
                del row[key]
    ace = {"role": "treatment", "prefix": "drug_exposure//"}
    changed = {"ace": ace, "death": None, "pressure": SIGNALS["columns"]["pressure"] | {"unit": str(8876)}}
    dataset = ingest(write_omop(tmp_path, tables), reporter, changed)
    assert dataset.panel("source", "train").n_subjects == 28


def test_files_that_are_odd_are_refused(tmp_path: Path, tables, reporter) -> None:
    write_omop(tmp_path, tables)
    (tmp_path / "PERSON.CSV").write_text("person_id\n1\n")
    assert "table person is there twice" in refusal(tmp_path, reporter)
    (tmp_path / "PERSON.CSV").unlink()
    outside = tmp_path.parent / "secret.csv"
    outside.write_text("person_id,death_date\n1,2020-01-01\n")
    (tmp_path / "death.csv").unlink()
    (tmp_path / "death.csv").symlink_to(outside)
    assert "a link that leads out of the folder" in refusal(tmp_path, reporter)
    assert "the folder does not exist" in refusal(tmp_path / "nowhere", reporter)
    assert "the file is no DuckDB file" in refusal(tmp_path / "person.csv", reporter)


def test_tables_in_folders_of_parts_are_read_as_one(tmp_path: Path, tables, reporter) -> None:
    path = write_omop(tmp_path, tables, "parquet")
    whole = pl.read_parquet(path / "measurement.parquet")
    (path / "measurement.parquet").unlink()
    (path / "measurement").mkdir()
    whole[:100].write_parquet(path / "measurement" / "part-0.parquet")
    whole[100:].write_parquet(path / "measurement" / "part-1.parquet")
    assert events_of(path, f"measurement//{PRESSURE}").height == whole.height


def test_a_duckdb_file_that_is_damaged_or_reaches_out_is_refused(tmp_path: Path, tables, reporter) -> None:
    duckdb = pytest.importorskip("duckdb")
    odd = tmp_path / "odd.duckdb"
    odd.write_bytes(b"not a database" * 999)
    assert "the file cannot be read" in refusal(odd, reporter)
    path = write_omop(tmp_path, tables, "duckdb")
    secret = tmp_path / "secret.csv"
    secret.write_text("person_id,death_date,death_datetime\n1,2020-01-01,\n")
    with duckdb.connect(str(path)) as connection:
        connection.execute("DROP TABLE DEATH")
        connection.execute(f"CREATE VIEW DEATH AS SELECT * FROM read_csv('{secret}')")  # noqa: S608
    assert "the file cannot be read" in refusal(path, reporter)


def test_a_table_that_is_none_of_omop_is_left_out_and_one_without_rows_is_read(
    tmp_path: Path, tables, reporter
) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = write_omop(tmp_path, tables, "duckdb")
    with duckdb.connect(str(path)) as connection:
        connection.execute("DELETE FROM DRUG_ERA")
        connection.execute("DROP TABLE DEATH")
        connection.execute("CREATE TABLE DEATH AS SELECT 1 AS column0, 2 AS column1")
    dataset = ingest(path, reporter, {"death": None})
    assert [end.name for end in dataset.schema.ends] == ["left"]
    assert "table death has none of the columns that OMOP gives it: left out" in reporter.warnings
    with duckdb.connect(str(path)) as connection:
        connection.execute("DROP TABLE PERSON")
        connection.execute("CREATE TABLE PERSON AS SELECT 1 AS column0")
    assert "there is no table person" in refusal(path, reporter, {"death": None})


def test_ties_have_an_order_that_does_not_depend_on_the_rows(tmp_path: Path, tables, reporter) -> None:
    again = dict(tables["measurement"][0])
    tables["measurement"].insert(0, again | {"value_as_number": 150.0, "measurement_id": 9999})
    dataset = ingest(write_omop(tmp_path, tables), reporter)
    first = next(
        panel.outcomes[list(panel.subject_id).index(1), 0, 0]
        for panel in dataset.panels.values()
        if 1 in panel.subject_id
    )
    assert first == np.float32(140.0)
    assert any("at one moment" in text for text in reporter.warnings)


def test_the_order_of_rows_of_one_date_does_not_matter(tmp_path: Path, tables, reporter) -> None:
    for name, key in (("measurement", "value_as_number"), ("drug_exposure", "quantity")):
        tables[name] += [row | {key: row[key] + step / 7} for row in tables[name] for step in (1, 2)]
    for name in tables:
        tables[name] = [{k: v for k, v in row.items() if not k.endswith("datetime")} for row in tables[name]]
    made = list[Dataset]()
    dose = {"role": "treatment", "kind": "continuous", "parent": f"drug_exposure//{ACE}"}
    for order in ("as they are", "reversed"):
        (folder := tmp_path / order).mkdir()
        rows = tables if order == "as they are" else {name: own[::-1] for name, own in tables.items()}
        for how in ("first", "last", "mean"):
            pressure = SIGNALS["columns"]["pressure"] | {"aggregate": how}
            made.append(ingest(write_omop(folder, rows), reporter, {"ace": dose, "pressure": pressure}))
    for one, two in zip(made[:3], made[3:], strict=True):
        for key, panel in one.panels.items():
            other = two.panels[key]
            assert panel.subject_id.tolist() == other.subject_id.tolist()
            for name in ("outcomes", "treatments", "statics", "ends", "length"):
                assert getattr(panel, name).tobytes() == getattr(other, name).tobytes(), name
