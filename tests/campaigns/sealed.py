"""Artifacts that are sound files of wrong content: an array of another shape or type, a fact of another type."""

from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from costar_cli.errors import CostarError
from costar_cli.files import Artifact, read_artifact, write_artifact
from tests.campaigns.driver import Campaign, costar, in_child
from tests.campaigns.world import VERBS, copied

RIDGE, MIXED = "costar-workspace/model-ridge.h5", "costar-workspace/model-mixed.h5"
DATA, EVALUATION, PART = "costar-workspace/data.h5", "costar-workspace/evaluation.h5", "scores.shard-2-of-2.h5"
ASK = ["whatif", "--subjects", "target/test", "--plan", "plan.json", "--json", "--model"]
READERS: list[tuple[str, list[str]]] = [
    (DATA, ["inspect", DATA, "--report", "page.html", "--json"]),
    (DATA, VERBS["ridge"]),
    (DATA, ["evaluate", "--model", RIDGE, "--no-plots", "--bootstrap", "0", "--overwrite", "--json"]),
    (RIDGE, [*ASK, RIDGE]),
    (MIXED, [*ASK, MIXED]),
    (RIDGE, ["evaluate", "--model", RIDGE, "--no-plots", "--bootstrap", "0", "--overwrite", "--json"]),
    (RIDGE, ["finetune", "--method", "ridge", "--domain", "target", "--json"]),
    (RIDGE, ["inspect", RIDGE, "--report", "page.html", "--json"]),
    (EVALUATION, ["evaluate", "--model", RIDGE, "--json"]),
    (EVALUATION, ["inspect", EVALUATION, "--json"]),
    (PART, VERBS["merge scores"]),
    (PART, ["inspect", PART, "--json"]),
]
ODD: list[Any] = [None, "", "x", -1, 0, 10**9, 1.5, [], {}, [[]], True, "\x1b[2J"]


def run(campaign: Campaign) -> None:
    """Change artifacts and read them."""
    source, place = campaign.source, campaign.folder / "case"
    for words in (VERBS["mixed"], ["evaluate", "--model", RIDGE, "--no-plots", "--json"]):
        assert in_child(costar(*words, cwd=source)).code == 0
    sound = {name: read_artifact(source / name) for name in (DATA, RIDGE, MIXED, EVALUATION, PART)}
    for _ in campaign.rounds():
        name, words = campaign.random.choice(READERS)
        try:
            what = f"{' '.join(words[:3])} with {name}: {_changed(copied(source, place) / name, sound[name], campaign)}"
        except (CostarError, ValueError, TypeError):  # costar writes no such file
            continue
        ended = in_child(costar(*words, cwd=place))
        campaign.calibrated(ended, what)
        campaign.document(ended, what)


def _changed(path: Path, artifact: Artifact, campaign: Campaign) -> str:
    arrays, meta, random = dict(artifact.arrays), dict(artifact.meta), campaign.random
    if random.random() < 0.5:
        name = random.choice(list(arrays))
        arrays[name] = _other(arrays[name], random)
        what = f"{name} {arrays[name].dtype} {arrays[name].shape}"
    else:
        meta, what = _replaced(meta, random)
    write_artifact(path, kind=artifact.kind, arrays=arrays, meta=meta, parents=artifact.parents, overwrite=True)
    return what


def _other(array: np.ndarray, random: Random) -> np.ndarray:
    if not array.size:
        return np.ones(3)
    changes = [
        lambda: array[None],
        lambda: array[..., :-1] if array.ndim else np.stack([array, array]),
        lambda: array[:1] if array.ndim else array[None],
        lambda: np.concatenate([array, array]) if array.ndim else array[None],
        lambda: array.astype("U4") if array.dtype.kind in "fiub" else np.zeros(array.shape),
        lambda: np.full_like(array, 200) if array.dtype.kind in "iu" else np.zeros_like(array),
        lambda: np.full(array.shape, np.nan) if array.dtype.kind == "f" else array.astype(np.float64),
        lambda: np.array(7.0),
    ]
    return random.choice(changes)()


def _replaced(meta: Any, random: Random) -> tuple[Any, str]:
    """Return a document with one of its values replaced, at any depth, and where that is."""
    inner = list(meta) if isinstance(meta, dict) else list(range(len(meta))) if isinstance(meta, list) else []
    if not inner or random.random() < 0.15:
        odd = random.choice(ODD)
        return odd, f"= {odd!r}"
    key = random.choice(inner)
    value, what = _replaced(meta[key], random)
    changed = {**meta, key: value} if isinstance(meta, dict) else [*meta[:key], value, *meta[key + 1 :]]
    return changed, f"{key} {what}"
