"""A small workspace, the verbs that campaigns run in it, and whether its artifacts are whole."""

import shutil
from pathlib import Path

from costar_cli.artifact import verify_artifact
from costar_cli.errors import ArtifactError
from tests.campaigns.driver import costar, in_child, warm

SIZES = "train = 30\nval = 10\ntest = 6\ntarget_train = 8\ntarget_val = 6\ntarget_test = 6\nsteps = 10\n"
PLAN = '{"origin": 4, "plans": {"none": [{}, {}], "other": [{}, {}]}}'
TRAINED = ("--preset", "quick", "--members", "1", "--epochs", "2", "--threads", "1")
ASKED = ("whatif", "--subjects", "source/test", "--plan", "plan.json", "--model", "costar-workspace/model-ridge.h5")
SHARDS = [[*ASKED, "--csv", "parts.parquet", "--shard", f"{i}/2"] for i in (1, 2)]
SCHEMA = """name = "own"
horizon = 2
[columns]
subject = { role = "subject" }
day = { role = "time" }
drug = { role = "treatment", levels = ["no", "yes"] }
y = { role = "outcome" }
"""
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
    "merge": ["merge", "parts.parquet", "--json"],
    "benchmark": ["benchmark", "linear", "-c", "small.toml", "--methods", "ridge", "--no-plots", "--json"],
}


def workspace(folder: Path) -> Path:
    """Make the workspace that cases copy."""
    warm()
    folder.mkdir()
    (folder / "small.toml").write_text(f"[simulate.linear]\n{SIZES}")
    (folder / "plan.json").write_text(PLAN)
    (folder / "table").mkdir()
    (folder / "table" / "schema.toml").write_text(SCHEMA)
    rows = [f"{i // 8},{i % 8},{'yes' if i % 3 else 'no'},{i * i % 17}" for i in range(240)]
    (folder / "table" / "rows.csv").write_text("\n".join(["subject,day,drug,y", *rows, ""]))
    for words in (VERBS["simulate"][:-3], VERBS["ridge"], *SHARDS):
        ended = in_child(costar(*words, cwd=folder))
        assert ended.code == 0, ended.err
    return folder


def copied(source: Path, target: Path) -> Path:
    """Return a fresh copy of the workspace."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


def damaged(folder: Path) -> list[str]:
    """Return which artifacts of a workspace cannot be read, and which temporary files are none."""
    found = []
    for path in folder.rglob("*.h5"):
        if path.is_file() and not path.name.startswith("."):
            try:
                verify_artifact(path)
            except ArtifactError as error:
                found.append(f"{path.name}: {error.problem}")
    return found
