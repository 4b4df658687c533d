"""Write one small artifact per kind into `archives/v<schema version>/`, once per schema version.

Run `python -m tests.artifact.make_archives` before a release that changes the format, and commit the files. Old folders
stay as they are: later versions of costar must read them.
"""

from pathlib import Path
from typing import Any

import numpy as np

from costar_cli.files import SCHEMA_VERSION, write_artifact
from costar_cli.files.spec import KINDS

ARCHIVES = Path(__file__).parent / "archives"
CONFIG = {"seed": 10, "learning_rate": 1e-3, "label": "% of V_max", "kept": None, "paired": False}
SCHEMA = {"outcomes": [{"name": "tumour_volume", "unit": "cm3"}], "step": "day", "note": "Größe 大きさ"}
HISTORY = {"train_loss": [[1.5, 1.25]], "validation_loss": [[1.75, 1.5]], "best_epoch": [1]}


def ramp(*shape: int, dtype: str = "float32") -> Any:
    """Return numbers that differ, without a random generator that might change."""
    return (np.arange(np.prod(shape)) * 37 % 251 / 4).reshape(shape).astype(dtype)


def panel(n: int, first_id: int) -> dict[str, Any]:
    return {
        "panel/covariates": np.zeros((n, 30, 0), np.float32),
        "panel/treatments": ramp(n, 30, dtype="uint8") % 4,
        "panel/outcomes": ramp(n, 30, 1),
        "panel/statics": ramp(n, 1),
        "panel/length": np.arange(n) % 30 + 1,
        "panel/subject_id": np.arange(first_id, first_id + n),
    }


def queries(n: int) -> dict[str, Any]:
    return {
        "queries/sequence/subject": np.arange(n, dtype=np.int32) % 3,
        "queries/sequence/origin": np.arange(n, dtype=np.int16) % 20,
        "queries/sequence/plan": ramp(n, 6, dtype="uint8") % 4,
        "queries/sequence/outcomes": ramp(n, 6, 1),
        "queries/sequence/scored": np.arange(n * 6).reshape(n, 6) % 6 > 0,
        "truth/cohort": np.array(["früh", "spät", ""]),
        "truth/growth_rate": ramp(3, dtype="float64"),
    }


def trained() -> dict[str, Any]:
    scaler = {f"scaler/{name}": ramp(2, 1, dtype="float64") for name in ("covariates", "outcomes", "statics")}
    return {"params/encoder.block.0.weight": ramp(2, 24, 24), "params/encoder.bias": ramp(2, 24)} | scaler


def contents() -> dict[str, dict[str, Any]]:
    """Return arrays, meta and parents of each kind, as `write_artifact` takes them."""
    about = {"schema": SCHEMA, "config": CONFIG, "fingerprint": "f" * 64}
    learned = about | {"method": "costar", "dataset_name": "tumor", "members": 2, "history": HISTORY}
    dataset = {f"source/train/{name}": array for name, array in panel(70, 0).items()}
    dataset |= {f"source/test/{name}": array for name, array in (panel(3, 70) | queries(200)).items()}
    parts = {"source/train": {"queries": [], "truth": []}, "source/test": {"queries": ["sequence"], "truth": []}}
    parents = {"dataset": "d" * 64, "encoder": "e" * 64}
    return {
        "dataset": {"arrays": dataset, "meta": about | {"name": "tumor", "horizon": 6, "parts": parts}, "parents": {}},
        "encoder": {"arrays": trained(), "meta": learned, "parents": {"dataset": "d" * 64}},
        "model": {
            "arrays": trained(),
            "meta": learned
            | {"init": "pretrained", "domain": "source", "horizon": 6, "trained_on": {"source/train": 70}},
            "parents": parents,
        },
        "evaluation": {
            "arrays": {"rmse": ramp(1, 2, 6, dtype="float64"), "interval": np.full((1, 2, 7), np.nan)},
            "meta": {"report": {"rows": [{"mean": 1.125}]}, "fingerprint": "f" * 64},
            "parents": parents,
        },
        "estimates": {
            "arrays": {
                "history/outcomes": ramp(31, 1, dtype="float64"),
                "history/treatments": np.zeros((30, 2), np.int64),
                "plans/steps": np.array([6]),
                "plans/values": np.ones((1, 6, 2), np.int64),
                "plans/observed": np.full((1, 6, 1), np.nan),
                "model/0/predictions": ramp(2, 1, 6, 1),
            },
            "meta": {"plans": ["watch"], "models": [{"label": "zero-shot"}], "schema": SCHEMA, "fingerprint": "f"},
            "parents": parents,
        },
        "answers": {
            "arrays": {"column/0": np.array([0, 1], np.int32), "column/1": ramp(2, dtype="float64")},
            "meta": {
                "columns": ["plan", "estimate"],
                "categories": {"plan": ["watch", "chemo"]},
                "rows": 2,
                "models": {"model": {"method": "mixed", "members": 1}},
                "levels": [0.9],
                "fingerprint": "f",
            },
            "parents": parents,
        },
        "evaluation-part": {
            "arrays": {"rows/000/errors/factual/members": ramp(1, 3, 6, 1, dtype="float64")},
            "meta": {
                "scores": {"horizon": 6, "rows": [{"setup": "zero-shot", "label": "COSTAR"}]},
                "shard": "1/2",
                "whole": {"fingerprint": "f" * 64, "config": {}},
                "fingerprint": "e" * 64,
            },
            "parents": parents,
        },
        "part": {
            "arrays": {"curve/0/sdr/0/mean": ramp(1, 3, 1, dtype="float64")},
            "meta": {"shard": "1/2", "fingerprint": "f" * 64},
            "parents": parents,
        },
        "refutation": {
            "arrays": {"found": np.array([[-0.5, 0.25, 1.0], [np.nan] * 3])},
            "meta": {"refutations": [{"model": "model", "refits": 5}], "fingerprint": "f" * 64},
            "parents": parents,
        },
        "run-state": {
            "arrays": {"current/params/w": ramp(2, 3), "current/rng": ramp(5056, dtype="uint8"), "step": np.array(7)},
            "meta": {"finished": [], "current": {"epoch": 3}, "fingerprint": "f"},
            "parents": {},
        },
    }


def main() -> None:
    """Write the archives of this schema version."""
    for kind, content in contents().items():
        print(write_artifact(ARCHIVES / f"v{SCHEMA_VERSION}" / f"{kind}.h5", kind=kind, **content).path)
    assert set(contents()) == set(KINDS)


if __name__ == "__main__":
    main()
