"""Kinds of data, every method and variant fitted to them, and questions to the models."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from costar_cli.config.models import Config, EncoderConfig, FinetuneConfig, RuntimeConfig
from costar_cli.data import Dataset, Part
from costar_cli.data.linear.settings import LinearGaussianConfig
from costar_cli.data.linear.simulate import simulate_linear
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.files import Artifact
from costar_cli.methods import METHODS, Method
from costar_cli.methods.base import FittedModel
from costar_cli.methods.shared.settings import OutputsConfig
from costar_cli.methods.stack.settings import StackConfig
from costar_cli.reporting import NullReporter
from costar_cli.testing import MethodCase, random_dataset, with_holes
from costar_cli.training import RunIdentity, Trained, finetune, loop
from tests.methods.chronos_worlds import fake_chronos, fake_settings

__all__ = [
    "EXACT",
    "NAMES",
    "SIZES",
    "Case",
    "as_model",
    "counted",
    "fake_chronos",
    "fit",
    "registered",
    "settings_of",
    "trained",
    "without_compiler",
    "without_dropout",
    "world",
]

# COSTAR with other choices: settings of the encoder, settings of the fit.
VARIANTS: dict[str, tuple[dict[str, str], dict[str, object]]] = {
    "costar, vt": ({"architecture": "vt"}, {}),
    "costar, ct": ({"architecture": "ct"}, {}),
    "costar, temporal": ({"blocks": "temporal"}, {"step_weights": "uniform"}),
    "costar, feature": ({"blocks": "feature"}, {"step_weights": "sq_inverse"}),
    "costar, absolute": ({"feature_encoding": "absolute", "pool": "token"}, {}),
    "costar, taught": ({}, {"decoder": "autoregressive"}),
    "costar, vt and one step": ({"architecture": "vt_relative"}, {"decoder": "autoregressive_one_step"}),
    "costar, relative": ({"inputs": "relative"}, {"output": "relative", "loss": "relative_huber"}),
    "costar, remainder": (
        {"inputs": "relative"},
        {"decoder": "stepped", "loss": "relative_huber", "remainder": True},
    ),
    "costar, structured": ({"architecture": "ct", "inputs": "relative"}, {"decoder": "structured", "carry_overs": 2}),
}
# Networks whose outcomes are rolled out.
ROLLED = ["crn, structured", "crn-erm, structured", "rmsn, structured", "ct, structured", "ct-erm, structured"]
STACKED = "crn-erm,ct-erm"  # networks, so that a stack has members, stages and seeds
NAMES = [*METHODS, *VARIANTS, *ROLLED]
# What holds of every fit holds of one that ends early, too.
QUICK: dict[str, dict[str, object]] = {"mixed": {"iterations": 5}, "gnet": {"samples": 4}}
SIZES = {"train": 16, "val": 6, "test": 4, "target_train": 5, "target_val": 4, "target_test": 6, "steps": 11}
CPU = RuntimeConfig(device="cpu")
# Adam makes full steps of gradients that are pure rounding error, so runs that round differently are compared in
# float64, where such steps vanish.
EXACT = RuntimeConfig(device="cpu", precision="float64")


TORCH_THAT_IS_PINNED = (2, 13)


@pytest.fixture(scope="module", autouse=True)
def without_compiler() -> Iterator[None]:
    """Let no method import PyTorch's compiler, as parts of PyTorch do: it takes a second of every process.

    Older versions import it for more.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("torch._dynamo", "sympy") if torch.__version__ >= TORCH_THAT_IS_PINNED else ():
            patch.setitem(sys.modules, name, None)
        yield


def registered(name: str) -> Method:
    """The method of a name, or of a variant's."""
    return METHODS[name.partition(",")[0]]


@cache
def world(name: str) -> Dataset:
    """Classes of treatments alone, or a binary treatment and covariates, or everything at once: a ward."""
    if name == "tumor":
        return without_statics(simulate_tumor(TumorConfig(**SIZES, horizon=3, seed=3), NullReporter()))
    if name == "linear":
        return simulate_linear(LinearGaussianConfig(**SIZES, horizon=3, seed=3), NullReporter())
    return ward() if name == "ward" else small_ward()


def without_statics(dataset: Dataset) -> Dataset:
    panels = {part: replace(panel, statics=panel.statics[:, :0]) for part, panel in dataset.panels.items()}
    return replace(dataset, schema=dataset.schema.model_copy(update={"statics": ()}), panels=panels)


def ward() -> Dataset:
    """Stays of 2 to 9 steps: 3 covariates, 3 treatments in any combination, 2 outcomes with holes, 2 statics."""
    return with_holes(random_dataset((3, 3, 2, 2), one_hot=False, horizon=3, n=24))


def small_ward() -> Dataset:
    """The same with 16 subjects to learn from and 10 to select on, where no numbers are asked for but many fits."""
    dataset = ward()
    sizes = {Part("source", "train"): 16, Part("source", "val"): 10}
    return replace(
        dataset,
        panels={p: panel.take(np.arange(sizes.get(p, panel.n_subjects))) for p, panel in dataset.panels.items()},
    )


def settings_of(name: str) -> Config | None:
    """A method's own settings, with which a fit takes little time."""
    method = registered(name)
    settings = fake_settings() if method.needs else method.default_settings()
    own = {"outputs": OutputsConfig(decoder="structured", hidden=16, carry_overs=2)} if name in ROLLED else {}
    return settings and settings.model_copy(update={**QUICK.get(method.name, {}), **own})


def without_dropout(config: Config) -> Config:
    """The same settings with every network's dropout at 0."""
    networks = {name: without_dropout(value) for name, value in config if isinstance(value, Config)}
    return config.model_copy(update=networks | ({"dropout": 0.0} if hasattr(config, "dropout") else {}))


def fit(
    method: str,
    dataset: Dataset,
    path: Path | None = None,
    *,
    domain: str = "source",
    start: FittedModel | None = None,
    runtime: RuntimeConfig = CPU,
    dropout: bool = True,
    **changes: object,
) -> Trained:
    """Fit a method; `path` is a folder for its run state, where one is to continue it."""
    encoder, own = None, {}
    if registered(method).name == "costar" and start is None:
        shape, own = VARIANTS.get(method, ({}, {}))
        encoder = EncoderConfig(width=8, heads=2, clip_distance=4, **shape)
    values = {"epochs": 2, "patience": 2, "batch_size": 8, "hidden": 16, "seed": 5, "members": 2, "encoder": encoder}
    config = FinetuneConfig(**{**values, **own, **changes})
    settings, part_settings = settings_of(method), dict[str, Config | None]()
    if config.remainder:
        part_settings = {"mixed": settings_of("mixed"), "boosting": settings_of("boosting")}
    if isinstance(settings, StackConfig):
        settings = StackConfig(parts=STACKED)
        part_settings = {name: METHODS[name].default_settings() for name in STACKED.split(",")}
    if not dropout:
        config, settings = without_dropout(config), settings and without_dropout(settings)
        part_settings = {name: without_dropout(own) for name, own in part_settings.items() if own}
    return finetune(
        dataset,
        config,
        runtime,
        domain=domain,
        start=start,
        checkpoint=path and path / "run.h5",
        identity=RunIdentity("f"),
        reporter=NullReporter(),
        method=registered(method),
        settings=settings,
        part_settings=part_settings,
    )


def as_model(method: str, trained: Trained) -> FittedModel:
    return registered(method).load(Artifact("model", trained.arrays, trained.meta, trained.parents, digest="d"))


@cache
def counted(method: str, data: str) -> tuple[Trained, int]:
    """A fit, and the number of its training steps."""
    taken, step = [0], loop.training_step

    def counted_step(*args: object) -> object:
        taken[0] += 1
        return step(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "training_step", counted_step)
        return fit(method, world(data)), taken[0]


def trained(method: str, data: str) -> Trained:
    return counted(method, data)[0]


@dataclass(frozen=True)
class Case(MethodCase):
    """A fitted model, and the data that it was fitted to."""

    data: str
