"""Small worlds for the linear methods: panels of any dimensions, and fits of any method through the workflow."""

import numpy as np

from costar_cli.config.models import Config, FinetuneConfig
from costar_cli.datasets.linear.settings import LinearGaussianConfig
from costar_cli.datasets.linear.simulate import simulate_linear
from costar_cli.methods.base import FittedModel
from costar_cli.panel import Dataset, Panel, PanelSchema, Part, Queries, TreatmentEncoding, Variable
from costar_cli.reporting import NullReporter
from costar_cli.train import Trained
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


def random_panel(schema: PanelSchema, n: int, steps: int, seed: int = 0, first_id: int = 0) -> Panel:
    """Series of random lengths without any law; one-hot or binary treatments."""
    rng = np.random.default_rng(seed)
    dx, da, dy, dv = schema.dims
    length = rng.integers(2, steps + 1, size=n)
    inside = (np.arange(steps) < length[:, None])[..., None]
    if schema.treatments.mode == "multiclass":
        treatments = np.eye(da)[rng.integers(da, size=(n, steps))]
    else:
        treatments = rng.integers(2, size=(n, steps, da))
    return Panel(
        covariates=(rng.normal(size=(n, steps, dx)) * inside).astype(np.float32),
        treatments=(treatments * inside).astype(np.float32),
        outcomes=(rng.normal(5, 2, size=(n, steps, dy)) * inside).astype(np.float32),
        statics=rng.normal(size=(n, dv)).astype(np.float32),
        length=length.astype(np.int64),
        subject_id=np.arange(first_id, first_id + n, dtype=np.int64),
    )


def random_dataset(dims: tuple[int, int, int, int], *, one_hot: bool, horizon: int = 4, n: int = 150) -> Dataset:
    dx, da, dy, dv = dims
    names, levels = tuple(f"drug_{i}" for i in range(da)), (("off", "on"),) * da
    treatments = TreatmentEncoding(mode="multilabel", names=names, levels=levels)
    if one_hot:
        levels = (tuple(f"level {i}" for i in range(da)),)
        classes = tuple((i,) for i in range(da))
        treatments = TreatmentEncoding(mode="multiclass", names=("price",), levels=levels, classes=classes)
    schema = PanelSchema(
        covariates=tuple(Variable(name=f"x{i}") for i in range(dx)),
        outcomes=tuple(Variable(name=f"y{i}") for i in range(dy)),
        statics=tuple(Variable(name=f"v{i}") for i in range(dv)),
        treatments=treatments,
    )
    sizes = dict(zip(Part.all(), (n, 30, 10, 20, 10, 10), strict=True))
    panels = {
        part: random_panel(schema, size, 9, seed=i, first_id=1000 * i) for i, (part, size) in enumerate(sizes.items())
    }
    return Dataset("random", schema, horizon, panels)


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
