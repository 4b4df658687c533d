"""A small workspace, the verbs that campaigns run in it, and whether its artifacts are whole."""

import shutil
from pathlib import Path

from costar_cli.artifact import verify_artifact
from costar_cli.errors import ArtifactError
from tests.campaigns.driver import costar, in_child, warm

SIZES = "train = 30\nval = 10\ntest = 6\ntarget_train = 8\ntarget_val = 6\ntarget_test = 6\nsteps = 10\n"
PLAN = '{"origin": 4, "plans": {"none": [{}, {}], "other": [{}, {}]}}'
VERBS: dict[str, list[str]] = {
    "simulate": ["simulate", "linear", "-c", "small.toml", "--overwrite", "--seed", "5", "--json"],
    "ridge": ["finetune", "--method", "ridge", "--overwrite", "--json"],
    "mixed": ["finetune", "--method", "mixed", "--overwrite", "--json"],
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
}


def workspace(folder: Path) -> Path:
    """Make the workspace that cases copy."""
    warm()
    folder.mkdir()
    (folder / "small.toml").write_text(f"[simulate.linear]\n{SIZES}")
    (folder / "plan.json").write_text(PLAN)
    for words in (VERBS["simulate"][:-3], VERBS["ridge"]):
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
