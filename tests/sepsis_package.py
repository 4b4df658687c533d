"""A package `icu_sepsis` of a small made-up process, for tests: the real one is an extra that is not installed."""

from importlib import invalidate_caches
from pathlib import Path

import numpy as np
import pytest

STATES = 15  # the last three: death, survival, after them


def small_process() -> dict[str, np.ndarray]:
    """Arrays as icu-sepsis has them: two doses that keep patients from worse states, given to those in need."""
    rng = np.random.default_rng(0)
    going = STATES - 3
    illness = np.linspace(0, 1, going)
    transition = np.zeros((STATES, 25, STATES))
    for action in range(25):
        help_ = (action // 5 + action % 5) / 8
        pull = np.exp(-4 * np.abs(illness[None] - np.clip(illness[:, None] - 0.3 * help_ + 0.1, 0, 1)))
        pull *= rng.uniform(0.5, 1, pull.shape)
        transition[:going, action, :going] = 0.8 * pull / pull.sum(axis=1, keepdims=True)
        transition[:going, action, going] = 0.2 * illness
        transition[:going, action, going + 1] = 0.2 * (1 - illness)
    transition[going:, :, -1] = 1.0
    clinicians = np.zeros((STATES, 25))
    clinicians[:going] = np.exp(3 * illness[:, None] * (np.arange(25) // 5 + np.arange(25) % 5) / 8)
    clinicians[:going, 7] = 0.0  # what they never do
    clinicians[:going] /= clinicians[:going].sum(axis=1, keepdims=True)
    start = np.zeros(STATES)
    start[:going] = 1 / going
    ill = np.append(illness, np.zeros(3))
    return {
        "tx_mat": transition,
        "d_0": start,
        "expert_policy": clinicians,
        "sofa_scores": 20 * ill,
        "state_cluster_centers": np.stack([ill**2, rng.normal(size=STATES)], axis=1),
    }


def install_sepsis(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the import system find the package in a folder, for as long as the test lasts."""
    assets = folder / "icu_sepsis" / "envs" / "assets"
    assets.mkdir(parents=True)
    (folder / "icu_sepsis" / "__init__.py").write_text("raise AssertionError('nobody imports it')\n", "utf-8")
    np.savez(assets / "dynamics.npz", **small_process())
    monkeypatch.syspath_prepend(str(folder))
    invalidate_caches()
