"""Stacks of small data, for tests."""

from functools import cache

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset
from costar_cli.methods.stack.settings import StackConfig
from costar_cli.training import Trained
from tests.fits import fit_method
from tests.methods.invariant_worlds import world

__all__ = ["ANCHORS", "CONFIG", "fit", "stacked"]

ANCHORS = "last-value,ridge,mixed"
CONFIG = FinetuneConfig(epochs=1, members=2, seed=5)


def fit(dataset: Dataset, parts: str = ANCHORS, **more: object) -> Trained:
    settings = StackConfig(parts=parts, **{key: more.pop(key) for key in ("minutes", "weighting") if key in more})
    return fit_method(dataset, "stack", settings, CONFIG, **more)


@cache
def stacked(data: str = "tumor", parts: str = ANCHORS) -> Trained:
    return fit(world(data), parts)
