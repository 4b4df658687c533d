"""Small MEDS folders with a known effect: an infusion of rate 1 lowers the pressure of the next hour by 3."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

HOUR = timedelta(hours=1)
EFFECT = -3.0  # of one unit of the rate over an hour, on the pressure at the beginning of the next one
SIGNALS = """
name = "pressure by the hour"
horizon = 2

[time]
step = "1h"

[anchor]
prefix = "ICU_ADMISSION//"
after = "24h"
until = { prefix = "ICU_DISCHARGE//" }

[columns]
pressure = { role = "outcome", code = "VITAL//MAP//mmHg", unit = "mmHg" }
lactate = { role = "covariate", code = "LAB//LACTATE//mmol/L", unit = "mmol/L", aggregate = "last" }
fluids = { role = "covariate", prefix = "FLUID//", aggregate = "sum" }
sex = { role = "static", kind = "categorical", prefix = "GENDER//", value = "code" }
age = { role = "static", code = "MEDS_BIRTH", value = "years", unit = "years" }
death = { role = "event", code = "MEDS_DEATH" }

[columns.drug]
role = "treatment"
kind = "continuous"
unit = "mg/h"
code = "INFUSION_START//1"
stop = { code = "INFUSION_END//1" }
pair = "order_id"
"""


def make_rows(
    n: int = 30, hours: int = 12, seed: int = 0, *, deadly: tuple[float, float] | None = None
) -> list[dict[str, Any]]:
    """Return the events of so many subjects: each in the ICU for some hours, an infusion in some of them.

    Each tenth dies at the end; `deadly` are the probabilities of death in an hour without and with the infusion, whose
    rate is then 1, and which is rarer where the pressure is low.
    """
    rng, fate = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    rows: list[dict[str, Any]] = []

    def add(who: int, time: datetime | None, code: str, value: float | None = None, **more: object) -> None:
        rows.append({"subject_id": who, "time": time, "code": code, "numeric_value": value, "order_id": None} | more)

    for who in range(1, n + 1):
        admitted = datetime(2150, 1, 1, 10, 20) + timedelta(days=int(rng.integers(0, 300)))
        add(who, None, f"GENDER//{'FM'[who % 2]}")
        add(who, datetime(2150 - 40 - who % 30, 1, 1), "MEDS_BIRTH")
        add(who, admitted - timedelta(hours=3), "VITAL//MAP//mmHg", 10.0)  # before the window
        add(who, admitted, "ICU_ADMISSION//MICU")
        pressure = 80 + 5 * rng.standard_normal()
        for hour in range(hours):
            at = admitted + hour * HOUR
            add(who, at + timedelta(minutes=2), "VITAL//MAP//mmHg", pressure)
            if hour % 4 == 0:
                add(who, at + timedelta(minutes=3), "LAB//LACTATE//mmol/L", float(rng.uniform(1, 4)))
            add(who, at + timedelta(minutes=5), f"FLUID//{rng.integers(1, 3)}", float(rng.integers(1, 5)))
            rate = float(rng.integers(0, 3)) * float(pressure > 78) + float(rng.integers(0, 2))
            rate = float(fate.random() < (0.6 if pressure > 78 else 0.4)) if deadly else rate
            if rate:
                order = f"{who}-{hour}"
                add(who, at + timedelta(minutes=15), "INFUSION_START//1", 2 * rate, order_id=order)
                add(who, at + timedelta(minutes=45), "INFUSION_END//1", rate, order_id=order)
            if deadly and fate.random() < deadly[rate > 0]:
                add(who, at + timedelta(minutes=50), "MEDS_DEATH")
                break
            pressure = 80 + 0.5 * (pressure - 80) + EFFECT * rate + rng.standard_normal()
        left = admitted + hours * HOUR - timedelta(minutes=10)
        add(who, left, "ICU_DISCHARGE//HOME")
        add(who, left, "DIAGNOSIS//ICD//10//I10")
        add(who, left + HOUR, "VITAL//MAP//mmHg", 200.0)  # behind the window
        if who % 10 == 0 and not deadly:
            add(who, left - timedelta(minutes=30), "MEDS_DEATH")
    return rows


def write_meds(folder: Path, rows: list[dict[str, Any]], *, splits: bool = True, shards: int = 2) -> Path:
    """Write rows as a MEDS folder, each subject in one shard, and its signals beside it."""
    types = {"subject_id": pl.Int64, "time": pl.Datetime("us"), "code": pl.String, "numeric_value": pl.Float32}
    frame = pl.DataFrame(rows, schema_overrides=types | {"order_id": pl.String})
    frame = frame.sort("subject_id", "time", nulls_last=False, maintain_order=True)
    subjects = frame["subject_id"].unique().sort().to_list()
    for shard in range(shards):
        path = folder / "data" / "any" / f"{shard}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.filter(pl.col("subject_id").is_in(subjects[shard::shards])).write_parquet(path)
    meta = folder / "metadata"
    meta.mkdir(exist_ok=True)
    codes = frame["code"].unique().sort().to_list()
    parents = [["LOINC/2524-7"] if "LACTATE" in code else [] for code in codes]
    pl.DataFrame(
        {"code": codes, "description": codes, "parent_codes": parents},
        schema_overrides={"parent_codes": pl.List(pl.String)},
    ).write_parquet(meta / "codes.parquet")
    (meta / "dataset.json").write_text(json.dumps({"dataset_name": "invented", "meds_version": "0.4.0"}))
    if splits:
        named = ["held_out" if who % 5 == 0 else "tuning" if who % 5 == 1 else "train" for who in subjects]
        pl.DataFrame({"subject_id": subjects, "split": named}).write_parquet(meta / "subject_splits.parquet")
    (folder / "signals.toml").write_text(SIGNALS)
    return folder
