"""A small workspace, the verbs that campaigns run in it, and whether its artifacts are whole."""

import shutil
from collections.abc import Callable
from pathlib import Path

from costar_cli.data.table import scratch
from costar_cli.errors import ArtifactError
from costar_cli.files import verify_artifact
from costar_cli.files.atomic import PIECES
from tests.campaigns.driver import costar, in_child

SIZES = "train = 30\nval = 10\ntest = 6\ntarget_train = 8\ntarget_val = 6\ntarget_test = 6\nsteps = 10\n"
PLAN = '{"origin": 4, "plans": {"none": [{}, {}], "other": [{}, {}]}}'
TRAINED = ("--preset", "quick", "--members", "1", "--epochs", "2", "--threads", "1")
ASKED = ("whatif", "--subjects", "source/test", "--plan", "plan.json", "--model", "costar-workspace/model-ridge.h5")
SHARDS = [[*ASKED, "--csv", "parts.parquet", "--shard", f"{i}/2"] for i in (1, 2)]
SCORED = ["evaluate", "--model", "costar-workspace/model-ridge.h5", "--bootstrap", "0", "--json"]
SHARDS += [[*SCORED, "--out", "scores.h5", "--shard", f"{i}/2"] for i in (1, 2)]
STAYS = ["--stays=280", "--hours=24", "--horizon=4", "--plans-per-origin=2", "--few-shot=0.5", "--seed=2"]
ITEMS = [f"--{domain}{split}-items=1" for domain in ("", "target-") for split in ("train", "val", "test")]
SALES = ["--scale", "0.001", *ITEMS, "--seed", "3", "--export", "sales"]
SCHEMA = """name = "own"
horizon = 2
[columns]
subject = { role = "subject" }
day = { role = "time" }
drug = { role = "treatment", levels = ["no", "yes"] }
y = { role = "outcome" }
"""
SPILLED = "ingest with rows in a file"
VERBS: dict[str, list[str]] = {
    "simulate": ["simulate", "linear", "-c", "small.toml", "--overwrite", "--seed", "5", "--json"],
    "ridge": ["finetune", "--method", "ridge", "--overwrite", "--json"],
    "mixed": ["finetune", "--method", "mixed", "--threads", "1", "--overwrite", "--json"],
    "evaluate": [
        "evaluate",
        "--model",
        "costar-workspace/model-ridge.h5",
        "--csv",
        "rows.csv",
        "--overwrite",
        "--json",
    ],
    "export": ["inspect", "costar-workspace/data.h5", "--export", "tables", "--overwrite", "--json"],
    "report": ["inspect", "costar-workspace/data.h5", "--report", "page.html", "--overwrite", "--json"],
    "verify": ["verify", "costar-workspace/data.h5", "--json"],
    "pretrain": ["pretrain", *TRAINED, "--overwrite", "--json"],
    "finetune": ["finetune", *TRAINED, "--method", "gnet", "--overwrite", "--json"],
    "whatif": [*ASKED, "--csv", "answers.csv", "--overwrite", "--json"],
    "search": [
        "search",
        "--subjects",
        "source/test",
        "--model",
        "costar-workspace/model-ridge.h5",
        "--minimise",
        "outcome at end",
        "--steps",
        "2",
        "--csv",
        "plans.csv",
        "--overwrite",
        "--json",
    ],
    "ingest": ["ingest", "table", "table/rows.csv", "--schema", "table/schema.toml", "--out", "own.h5", "--json"],
    SPILLED: ["ingest", "table", "table/rows.csv", "--schema", "table/schema.toml", "--out", "own.h5", "--json"],
    "part": [*SCORED, "--out", "own.h5", "--shard", "1/2", "--predictions", "own.parquet", "--overwrite"],
    "merge": ["merge", "parts.parquet", "--json"],
    "merge scores": ["merge", "scores.h5", "--json"],
    "stays": ["simulate", "mimic", *STAYS, "--export-extract=stays.hdf5", "--out=icu.h5", "--overwrite", "--json"],
    "sales": ["simulate", "m5", *SALES, "--out", "retail.h5", "--overwrite", "--json"],
    "benchmark": ["benchmark", "linear", "-c", "small.toml", "--methods", "ridge", "--no-plots", "--json"],
}


def verb_work(verb: str, cwd: Path) -> Callable[[], int]:
    """Return the work of one of `VERBS`; a small table is a large one to the ingestion whose rows wait in a file."""
    work = costar(*VERBS[verb], cwd=cwd)

    def spilling() -> int:
        scratch.MOST_VALUES_HELD *= 0  # which must be its name
        return work()

    return spilling if verb == SPILLED else work


def workspace(folder: Path) -> Path:
    """Make the workspace that campaigns copy."""
    folder.mkdir()
    (folder / "small.toml").write_text(f"[simulate.linear]\n{SIZES}")
    (folder / "other.toml").write_text("[ridge]\nwindow = 3\n")  # so that the verb makes another model
    (folder / "plan.json").write_text(PLAN)
    (folder / "table").mkdir()
    (folder / "table" / "schema.toml").write_text(SCHEMA)
    rows = [f"{i // 8},{i % 8},{'yes' if i % 3 else 'no'},{i * i % 17}" for i in range(240)]
    (folder / "table" / "rows.csv").write_text("\n".join(["subject,day,drug,y", *rows, ""]))
    for words in (VERBS["simulate"][:-3], [*VERBS["ridge"], "-c", "other.toml"], *SHARDS):
        ended = in_child(costar(*words, cwd=folder))
        assert ended.code == 0, ended.err
    return folder


def copied(source: Path, target: Path) -> Path:
    """Return a fresh copy of the workspace."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


def damaged(folder: Path) -> list[str]:
    """Return which artifacts of a workspace cannot be read."""
    found = []
    for path in folder.rglob("*.h5"):
        if path.is_file() and not path.name.startswith("."):
            try:
                verify_artifact(path)
            except ArtifactError as error:
                found.append(f"{path.name}: {error.problem}")
    return found


def left_over(folder: Path) -> list[str]:
    """Return the temporary files and folders in a folder and below it."""
    ours = [path for path in folder.rglob(".*") if path.suffix in {".tmp", PIECES}]
    return [f"{path.relative_to(folder)} is left" for path in sorted(ours)]
