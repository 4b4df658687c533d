"""A small OMOP database: a drug that is taken on a day lowers the pressure of the next morning by 6."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

EFFECT = -6.0
PRESSURE, WEIGHT, LISINOPRIL, ENALAPRIL, ACE = 3004249, 3025315, 1308216, 1341927, 21601783
MMHG, KG, POUND, MALE, FEMALE, INPATIENT = 8876, 9529, 8739, 8507, 8532, 9201
SIGNALS: dict[str, Any] = {
    "name": "pressure by the day",
    "horizon": 2,
    "time": {"step": "1d"},
    "columns": {
        "pressure": {"role": "outcome", "code": f"measurement//{PRESSURE}", "unit": "mm[Hg]"},
        "ace": {"role": "treatment", "parent": f"drug_exposure//{ACE}"},
        "sex": {"role": "static", "kind": "categorical", "prefix": "gender//", "value": "code"},
        "age": {"role": "static", "code": "MEDS_BIRTH", "value": "years"},
        "death": {"role": "event", "code": "MEDS_DEATH"},
        "left": {"role": "censored", "code": "observation_period//end"},
    },
}
Tables = dict[str, list[dict[str, Any]]]


def make_tables(n: int = 40, days: int = 8, seed: int = 0) -> Tables:
    """Return the rows of each table: a pressure each morning, and on some days one of two drugs of a class."""
    rng = np.random.default_rng(seed)
    tables: Tables = {name: [] for name in ("person", "observation_period", "visit_occurrence", "drug_exposure",
                                            "drug_era", "measurement", "death")}  # fmt: skip
    for who in range(1, n + 1):
        first = date(2020, 1, 1) + timedelta(days=int(rng.integers(0, 300)))
        last = first + timedelta(days=days - 1)
        tables["person"].append({
            "person_id": who, "gender_concept_id": (MALE, FEMALE)[who % 2], "year_of_birth": 1950 + who % 30,
            "month_of_birth": 3 if who % 3 else None, "day_of_birth": 9 if who % 3 else None,
            "race_concept_id": 0, "race_source_value": "white", "ethnicity_concept_id": 0,
        })  # fmt: skip
        tables["observation_period"].append({
            "observation_period_id": who, "person_id": who, "observation_period_start_date": first,
            "observation_period_end_date": last, "period_type_concept_id": 44814724,
        })  # fmt: skip
        tables["visit_occurrence"].append({
            "visit_occurrence_id": who, "person_id": who, "visit_concept_id": INPATIENT, "visit_start_date": first,
            "visit_start_datetime": None, "visit_end_date": last, "visit_end_datetime": None,
        })  # fmt: skip
        pressure = 140.0
        for day in range(days):
            at = first + timedelta(days=day)
            tables["measurement"].append({
                "measurement_id": len(tables["measurement"]), "person_id": who, "measurement_concept_id": PRESSURE,
                "measurement_date": at, "measurement_datetime": f"{at} 00:00:00", "operator_concept_id": 4172703,
                "value_as_number": round(pressure, 2), "value_as_concept_id": 0, "unit_concept_id": MMHG,
                "unit_source_value": "mmHg", "value_source_value": "",
            })  # fmt: skip
            taken = rng.random() < 0.4
            if taken:
                tables["drug_exposure"].append({
                    "drug_exposure_id": len(tables["drug_exposure"]), "person_id": who,
                    "drug_concept_id": (LISINOPRIL, ENALAPRIL)[day % 2], "drug_exposure_start_date": at,
                    "drug_exposure_start_datetime": f"{at} 00:00:00", "drug_exposure_end_date": at,
                    "drug_exposure_end_datetime": f"{at} 00:00:00", "quantity": 2.5, "drug_type_concept_id": 32869,
                })  # fmt: skip
            pressure = 140 + EFFECT * taken + 0.3 * rng.standard_normal()
        tables["drug_era"].append({
            "drug_era_id": who, "person_id": who, "drug_concept_id": LISINOPRIL, "drug_era_start_date": first,
            "drug_era_end_date": first + timedelta(days=2), "drug_exposure_count": 2, "gap_days": 0,
        })  # fmt: skip
    tables["death"].append({"person_id": 1, "death_date": last_day(tables, 1), "death_datetime": None})
    names = {PRESSURE: ("Systolic blood pressure", "8480-6"), MMHG: ("millimeter mercury column", "mm[Hg]"),
             KG: ("kilogram", "kg"), POUND: ("pound (US)", "[lb_us]"), MALE: ("MALE", "M"), FEMALE: ("FEMALE", "F"),
             LISINOPRIL: ("lisinopril", "29046"), ENALAPRIL: ("enalapril", "3827"), ACE: ("ACE inhibitors", "C09AA"),
             INPATIENT: ("Inpatient Visit", "IP")}  # fmt: skip
    tables["concept"] = [
        {"concept_id": concept, "concept_name": name, "concept_code": code} for concept, (name, code) in names.items()
    ]
    tables["concept_ancestor"] = [
        {"ancestor_concept_id": ACE, "descendant_concept_id": drug, "min_levels_of_separation": 2}
        for drug in (LISINOPRIL, ENALAPRIL)
    ]
    return tables


def last_day(tables: Tables, who: int) -> date:
    """Return when a person's observation ends."""
    [end] = [row["observation_period_end_date"] for row in tables["observation_period"] if row["person_id"] == who]
    return end


def write_omop(folder: Path, tables: Tables, form: str = "csv") -> Path:
    """Write a database: `csv`, `CSV` with names in capitals and a byte order mark, `parquet`, or `duckdb`."""
    frames = {name: pl.DataFrame(rows, infer_schema_length=None) for name, rows in tables.items()}
    if form == "duckdb":
        import duckdb

        path = folder / "cdm.duckdb"
        with duckdb.connect(str(path)) as connection:
            for name, frame in frames.items():
                frame.write_parquet(part := folder / f"{name}.part")
                connection.execute(f"CREATE TABLE {name.upper()} AS SELECT * FROM read_parquet('{part}')")  # noqa: S608
                part.unlink()
        return path
    for name, frame in frames.items():
        if form == "parquet":
            frame.write_parquet(folder / f"{name}.parquet")
        elif form == "CSV":
            text = frame.rename(str.upper).write_csv()
            (folder / f"{name.upper()}.csv").write_text("\ufeff" + text, "utf-8")
        else:
            frame.write_csv(folder / f"{name}.csv")
    return folder
