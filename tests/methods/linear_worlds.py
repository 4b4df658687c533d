"""Small worlds for the linear methods: panels of any dimensions, and fits of any method through the workflow."""

import numpy as np

from costar_cli.config.models import Config, FinetuneConfig
from costar_cli.data import Dataset, Panel, Queries
from costar_cli.data.linear.settings import LinearGaussianConfig
from costar_cli.data.linear.simulate import simulate_linear
from costar_cli.methods.base import FittedModel
from costar_cli.reporting import NullReporter
from costar_cli.testing import random_dataset, random_panel
from costar_cli.training import Trained
from tests.fits import fit_method, model_of

__all__ = ["SMALL", "answer", "fit", "linear_data", "model_of", "random_dataset", "random_panel", "random_queries"]

SMALL = {"val": 60, "test": 40, "target_train": 20, "target_val": 40, "target_test": 40, "steps": 12, "origins": 3}


def linear_data(**changes: object) -> Dataset:
    return simulate_linear(LinearGaussianConfig(**{"train": 300, **SMALL, **changes}), NullReporter())


def fit(
    dataset: Dataset,
    method: str,
    settings: Config | None = None,
    *,
    domain: str = "source",
    start: FittedModel | None = None,
    config: FinetuneConfig | None = None,
) -> Trained:
    return fit_method(dataset, method, settings, config or FinetuneConfig(), domain=domain, start=start)


def random_queries(panel: Panel, horizon: int, n: int = 50, seed: int = 0) -> Queries:
    rng = np.random.default_rng(seed)
    subject = rng.integers(panel.n_subjects, size=n)
    da = panel.treatments.shape[2]
    plan = np.eye(da, dtype=np.uint8)[rng.integers(da, size=(n, horizon))]
    return Queries(subject.astype(np.int32), rng.integers(panel.length[subject]).astype(np.int16), plan)


def answer(model: FittedModel, panel: Panel, *, origin: int, plan: list[int]) -> np.ndarray:
    """The mean prediction `[H]` of the first outcome, of all subjects from one origin under one binary plan."""
    n = panel.n_subjects
    plan_QHA = np.tile(np.array(plan, dtype=np.uint8)[None, :, None], (n, 1, 1))
    queries = Queries(np.arange(n, dtype=np.int32), np.full(n, origin, dtype=np.int16), plan_QHA)
    return model.rollout(panel, queries).mean(axis=(0, 1))[:, 0]
