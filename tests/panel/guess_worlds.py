"""Small invented tables with the columns of well-known ones, and what each of their columns is.

A role ends in `?` where the guess must ask; `out` is a column that gets none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

__all__ = ["WORLDS", "World"]


@dataclass(frozen=True)
class World:
    """A table, and the role of each column."""

    make: Callable[[np.random.Generator], dict[str, Any]]
    roles: dict[str, str]

    def frame(self) -> pl.DataFrame:
        return pl.DataFrame(self.make(np.random.default_rng(1)))


def steady(rng: np.random.Generator, values: Any, n: int, visits: int) -> np.ndarray:
    """One value per subject, in each of its rows."""
    return np.repeat(rng.choice(np.array(values), n), visits)


def pbcseq(rng: np.random.Generator) -> dict[str, Any]:
    """Primary biliary cirrhosis, sequential laboratory data (R, survival)."""
    n, visits = 40, 5
    m = n * visits
    day = np.concatenate([np.cumsum([0, *rng.integers(150, 400, visits - 1)]) for _ in range(n)])
    return {
        "id": np.repeat(np.arange(1, n + 1), visits),
        "futime": steady(rng, np.arange(1800, 5000), n, visits),
        "status": steady(rng, [0, 1, 2], n, visits),
        "trt": steady(rng, [0, 1], n, visits),
        "age": steady(rng, np.round(rng.uniform(30, 80, 60), 3), n, visits),
        "sex": steady(rng, ["f", "m"], n, visits),
        "day": day,
        "ascites": rng.integers(2, size=m),
        "hepato": rng.integers(2, size=m),
        "edema": rng.choice([0, 0.5, 1], m),
        "bili": rng.gamma(2, 1.5, m).round(1),
        "albumin": rng.normal(3.4, 0.4, m).round(2),
        "protime": rng.normal(11, 1, m).round(1),
        "stage": rng.integers(1, 5, m),
    }


def aids(rng: np.random.Generator) -> dict[str, Any]:
    """CD4 counts under didanosine or zalcitabine (R, JM)."""
    n, visits = 40, 5
    obstime = np.tile([0, 2, 6, 12, 18], n)
    return {
        "patient": np.repeat(np.arange(1, n + 1), visits),
        "Time": steady(rng, rng.uniform(10, 21, 60).round(2), n, visits),
        "death": steady(rng, [0, 1], n, visits),
        "CD4": rng.gamma(2, 3, n * visits).round(4),
        "obstime": obstime,
        "drug": steady(rng, ["ddC", "ddI"], n, visits),
        "gender": steady(rng, ["male", "female"], n, visits),
        "prevOI": steady(rng, ["noAIDS", "AIDS"], n, visits),
        "AZT": steady(rng, ["intolerance", "failure"], n, visits),
        "start": obstime,
        "stop": obstime + np.tile([2, 4, 6, 6, 1.4], n),
        "event": (obstime == 18) * rng.integers(2, size=n * visits),
    }


def m5(rng: np.random.Generator) -> dict[str, Any]:
    """Daily sales of items in stores, long (Kaggle's M5)."""
    items, stores, days = 6, 3, 20
    pairs = [(i, s) for i in range(items) for s in range(stores)]
    m = len(pairs) * days
    dates = [f"2016-01-{day + 1:02d}" for day in range(days)]
    return {
        "id": [f"FOODS_{i}_CA_{s}" for i, s in pairs for _ in range(days)],
        "item_id": [f"FOODS_{i}" for i, _ in pairs for _ in range(days)],
        "dept_id": [f"FOODS_{i % 3}" for i, _ in pairs for _ in range(days)],
        "store_id": [f"CA_{s}" for _, s in pairs for _ in range(days)],
        "date": dates * len(pairs),
        "event_name_1": [["", "", "SuperBowl", "", "Easter"][day % 5] for day in range(days)] * len(pairs),
        "snap_CA": rng.integers(2, size=m),
        "sell_price": rng.choice([1.98, 2.24, 2.5], m),
        "sales": rng.poisson(3, m),
    }


def dominick(rng: np.random.Generator) -> dict[str, Any]:
    """Weekly movement of one category in one chain (Dominick's Finer Foods)."""
    n, weeks = 25, 12
    m = n * weeks
    return {
        "store": np.repeat(rng.integers(2, 9, n), weeks),
        "upc": np.repeat(4_900_000_000 + 13 * np.arange(n), weeks),
        "week": np.tile(np.arange(91, 91 + weeks), n),
        "move": rng.poisson(20, m),
        "qty": np.repeat(rng.integers(1, 4, n), weeks),
        "price": rng.choice([0.89, 0.99, 1.09, 1.29], m),
        "sale": rng.choice(["", "", "B", "S"], m),
        "profit": rng.normal(25, 4, m).round(2),
        "ok": (rng.random(m) < 0.97).astype(int),
    }


def icu(rng: np.random.Generator) -> dict[str, Any]:
    """Hourly vital signs of intensive care stays."""
    n, hours = 30, 8
    m = n * hours
    return {
        "subject_id": np.repeat(1000 + np.arange(n) // 2, hours),
        "stay_id": np.repeat(30_000 + np.arange(n), hours),
        "hours_in": np.tile(np.arange(hours), n),
        "heart_rate": rng.normal(85, 15, m).round(),
        "spo2": rng.normal(96, 2, m).round(),
        "norepinephrine": rng.integers(2, size=m),
        "vent": rng.integers(2, size=m),
        "fio2": rng.choice([21.0, 30.0, 40.0, 50.0], m),
        "map_mmhg": rng.normal(75, 9, m).round(1),
        "age": steady(rng, np.arange(20, 90), n, hours),
        "los_icu": steady(rng, rng.uniform(1, 20, 40).round(2), n, hours),
        "hospital_expire_flag": steady(rng, [0, 1], n, hours),
    }


def prescriptions(rng: np.random.Generator) -> dict[str, Any]:
    """Visits of a diabetes clinic with what was prescribed, dates as in Germany."""
    n, visits = 40, 6
    m = n * visits
    dates = [f"{day:02d}.03.2023" for day in range(1, 1 + 5 * visits, 5)]
    return {
        "PatientID": [f"P{i:03d}" for i in np.repeat(np.arange(n), visits)],
        "visit_date": dates * n,
        "drug_name": rng.choice(["none", "metformin", "sitagliptin"], m),
        "dose_mg": rng.uniform(100, 2000, m).round(1),
        "prednisone": rng.integers(2, size=m),
        "hba1c": rng.normal(7.5, 1, m).round(2),
        "weight_kg": rng.normal(85, 12, m).round(1),
        "dropout": (rng.random(m) < 0.05).astype(int),
        "date_of_death": np.repeat([f"{i % 27 + 1:02d}.07.2024" for i in range(n)], visits),
    }


def epil(rng: np.random.Generator) -> dict[str, Any]:
    """Seizure counts under progabide (R, MASS)."""
    n, periods = 59, 4
    return {
        "y": rng.poisson(8, n * periods),
        "trt": steady(rng, ["placebo", "progabide"], n, periods),
        "base": steady(rng, np.arange(6, 100), n, periods),
        "age": steady(rng, np.arange(18, 43), n, periods),
        "V4": np.tile([0, 0, 0, 1], n),
        "subject": np.repeat(np.arange(1, n + 1), periods),
        "period": np.tile(np.arange(1, periods + 1), n),
        "lbase": steady(rng, rng.normal(size=80).round(5), n, periods),
        "lage": steady(rng, rng.normal(size=80).round(5), n, periods),
    }


def chick_weight(rng: np.random.Generator) -> dict[str, Any]:
    """Weights of chicks on four diets (R, datasets)."""
    n, times = 50, [*range(0, 21, 2), 21]
    return {
        "weight": rng.normal(120, 60, n * len(times)).round().clip(35),
        "Time": np.tile(times, n),
        "Chick": np.repeat(np.arange(1, n + 1), len(times)),
        "Diet": steady(rng, [1, 2, 3, 4], n, len(times)),
    }


def sleepstudy(rng: np.random.Generator) -> dict[str, Any]:
    """Reaction times after days of little sleep, nobody treated (R, lme4)."""
    n, days = 18, 10
    return {
        "Reaction": rng.normal(300, 50, n * days).round(4),
        "Days": np.tile(np.arange(days), n),
        "Subject": np.repeat(308 + np.arange(n), days),
    }


def countries(rng: np.random.Generator) -> dict[str, Any]:
    """Life expectancy of countries by year, as the WHO tells it."""
    n, years = 40, 10
    m = n * years
    return {
        "Country": [f"Country {i}" for i in np.repeat(np.arange(n), years)],
        "Year": np.tile(np.arange(2006, 2006 + years), n),
        "Status": steady(rng, ["Developed", "Developing"], n, years),
        "Adult Mortality": rng.normal(160, 40, m).round(),
        "infant deaths": rng.poisson(30, m),
        "Alcohol": rng.gamma(2, 2, m).round(2),
        "smoking_ban": rng.integers(2, size=m),
        "tobacco policy": rng.integers(2, size=m),
        "GDP": rng.gamma(2, 3000, m).round(2),
        "Life expectancy": rng.normal(70, 8, m).round(1),
    }


def bacteria(rng: np.random.Generator) -> dict[str, Any]:
    """Presence of H. influenzae in children under a drug or placebo (R, MASS)."""
    n, weeks = 50, [0, 2, 4, 6, 11]
    return {
        "y": rng.choice(["n", "y"], n * len(weeks)),
        "ap": steady(rng, ["a", "p"], n, len(weeks)),
        "hilo": steady(rng, ["hi", "lo"], n, len(weeks)),
        "week": np.tile(weeks, n),
        "ID": [f"X{i:02d}" for i in np.repeat(np.arange(n), len(weeks))],
        "trt": steady(rng, ["placebo", "drug", "drug+"], n, len(weeks)),
    }


def trial(rng: np.random.Generator) -> dict[str, Any]:
    """A trial with a dose that is titrated, and names of every style for how it ended."""
    n, visits = 40, 4
    m = n * visits
    return {
        "usubjid": [f"01-{i:03d}" for i in np.repeat(np.arange(n), visits)],
        "visitnum": np.tile(np.arange(1, visits + 1), n),
        "arm": steady(rng, ["control", "active"], n, visits),
        "dose": rng.choice([0, 5, 10], m),
        "treatDuration": rng.uniform(1, 90, m).round(1),
        "event": steady(rng, [0, 1], n, visits),
        "endTime": steady(rng, np.arange(100, 400), n, visits),
        "timeToDeath": steady(rng, np.arange(100, 400), n, visits),
        "vital_status": steady(rng, ["alive", "dead"], n, visits),
        "follow_up_months": steady(rng, np.arange(1, 60), n, visits),
        "withdrawn": (rng.random(m) < 0.1).astype(int),
        "marital_status": steady(rng, ["single", "married"], n, visits),
        "outcome": rng.normal(size=m).round(3),
    }


WORLDS = {
    "pbcseq": World(pbcseq, {
        "id": "subject", "futime": "out?", "status": "out?", "trt": "treatment?", "age": "static", "sex": "static",
        "day": "time?", "ascites": "covariate", "hepato": "covariate", "edema": "covariate", "bili": "covariate",
        "albumin": "covariate", "protime": "outcome?", "stage": "covariate",
    }),
    "aids": World(aids, {
        "patient": "subject", "Time": "out?", "death": "out?", "CD4": "outcome?", "obstime": "time?",
        "drug": "treatment?", "gender": "static", "prevOI": "static", "AZT": "static?", "start": "covariate",
        "event": "event?",  # and `stop` is the end of its intervals
    }),
    "m5": World(m5, {
        "id": "subject", "item_id": "cluster?", "dept_id": "static", "store_id": "static?", "date": "time",
        "event_name_1": "covariate", "snap_CA": "covariate", "sell_price": "treatment?", "sales": "outcome?",
    }),
    "dominick": World(dominick, {
        "store": "static?", "upc": "subject", "week": "time", "move": "outcome?", "qty": "static",
        "price": "treatment?", "sale": "treatment?", "profit": "covariate", "ok": "covariate",
    }),
    "icu": World(icu, {
        "subject_id": "cluster?", "stay_id": "subject", "hours_in": "time", "heart_rate": "covariate",
        "spo2": "covariate", "norepinephrine": "treatment?", "vent": "treatment?", "fio2": "covariate",
        "map_mmhg": "outcome?", "age": "static", "los_icu": "out?", "hospital_expire_flag": "out?",
    }),
    "prescriptions": World(prescriptions, {
        "PatientID": "subject", "visit_date": "time", "drug_name": "treatment?", "dose_mg": "covariate?",
        "prednisone": "treatment?", "hba1c": "outcome?", "weight_kg": "covariate", "dropout": "out?",
        "date_of_death": "out?",
    }),
    "epil": World(epil, {
        "y": "outcome?", "trt": "treatment?", "base": "static", "age": "static", "V4": "covariate",
        "subject": "subject", "period": "time", "lbase": "static", "lage": "static",
    }),
    "ChickWeight": World(chick_weight, {
        "weight": "outcome?", "Time": "time?", "Chick": "subject", "Diet": "treatment?",
    }),
    "sleepstudy": World(sleepstudy, {"Reaction": "outcome?", "Days": "time", "Subject": "subject"}),
    "countries": World(countries, {
        "Country": "subject", "Year": "time", "Status": "out?", "Adult Mortality": "covariate?",
        "infant deaths": "covariate?", "Alcohol": "covariate", "smoking_ban": "treatment?",
        "tobacco policy": "treatment?", "GDP": "covariate", "Life expectancy": "outcome?",
    }),
    "bacteria": World(bacteria, {
        "y": "out?", "ap": "static", "hilo": "static", "week": "time?", "ID": "subject", "trt": "treatment?",
    }),
    "trial": World(trial, {
        "usubjid": "subject", "visitnum": "time", "arm": "static?", "dose": "treatment?",
        "treatDuration": "covariate?", "event": "out?", "endTime": "out?", "timeToDeath": "out?",
        "vital_status": "out?", "follow_up_months": "out?", "withdrawn": "out?", "marital_status": "static",
        "outcome": "outcome?",
    }),
}  # fmt: skip
