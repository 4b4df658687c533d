"""Fits of any method through the workflow, and the models that artifacts with the results hold."""

from pathlib import Path

import pytest

from costar_cli.config.models import Config, FinetuneConfig, RuntimeConfig
from costar_cli.data import Dataset
from costar_cli.files import Artifact, flatten
from costar_cli.files.digest import canonical_json
from costar_cli.methods import METHODS
from costar_cli.methods.base import FittedModel
from costar_cli.reporting import NullReporter, Reporter
from costar_cli.training import RunIdentity, Trained, checkpoint, finetune, loop

__all__ = ["KilledError", "artifact_of", "die_at_step", "fit_method", "identity_of", "model_of"]


def fit_method(
    dataset: Dataset,
    method: str,
    settings: Config | None,
    config: FinetuneConfig,
    *,
    runtime: RuntimeConfig | None = None,
    domain: str = "source",
    start: FittedModel | None = None,
    run_state: Path | None = None,
    reporter: Reporter | None = None,
    fresh: bool = False,
) -> Trained:
    """Fit a method; its run state is kept where one is named."""
    return finetune(
        dataset,
        config,
        runtime or RuntimeConfig(device="cpu"),
        domain=domain,
        start=start,
        checkpoint=run_state,
        identity=identity_of(config, settings),
        reporter=reporter or NullReporter(),
        method=METHODS[method],
        settings=settings,
        fresh=fresh,
    )


def identity_of(config: Config, settings: Config | None = None) -> RunIdentity:
    """Return the identity of a run with these settings."""
    facts = {**config.model_dump(mode="json"), "settings": settings.model_dump(mode="json") if settings else {}}
    return RunIdentity(canonical_json(facts).decode(), settings=flatten(facts))


def artifact_of(trained: Trained, digest: str = "d") -> Artifact:
    """Return what would be read back had this been written."""
    return Artifact(
        kind="model",
        arrays=trained.arrays,
        meta=trained.meta,
        parents=trained.parents,
        digest=digest,
        schema_version="1.0",
        versions={},
        path=None,
    )


def model_of(trained: Trained, digest: str = "d") -> FittedModel:
    """Return the model that an artifact with this content holds."""
    return METHODS[trained.meta["method"]].load(artifact_of(trained, digest))


class KilledError(Exception):
    """Stands for the end of a process."""


def die_at_step(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Let training end after that many steps, the last of which was saved."""
    taken, step = [0], loop.training_step

    def dying_step(*args):
        if taken[0] == steps:
            raise KilledError
        taken[0] += 1
        return step(*args)

    monkeypatch.setattr(loop, "training_step", dying_step)
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: 10**6 * (taken[0] == steps))
