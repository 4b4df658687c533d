"""Series that grow by a known law, and mixed-effects growth models of them."""

from dataclasses import replace
from functools import cache

import numpy as np

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Panel, PanelSchema, Part, Queries, TreatmentEncoding, Variable
from costar_cli.methods.mixed.law import carried
from costar_cli.methods.mixed.model import MixedModel
from costar_cli.methods.mixed.settings import MixedConfig
from costar_cli.training import Trained
from tests.fits import fit_method, model_of

__all__ = [
    "DECAY",
    "MEANS",
    "NOISE",
    "SCHEMA",
    "SPREAD",
    "TEST",
    "TRAIN",
    "asked",
    "changed",
    "fit",
    "fitted",
    "grow",
    "grown",
    "model",
    "next_level",
    "world",
]

TRAIN, TEST = Part("source", "train"), Part("source", "test")
DECAY, NOISE, SPREAD = 0.6, 0.02, 0.04
MEANS = {"growth": 0.05, "level": -0.06, "drug": -0.12, "ray": -0.2}


def fit(dataset: Dataset, *, start: MixedModel | None = None, domain: str = "source", **settings: object) -> Trained:
    config = FinetuneConfig(epochs=1)
    return fit_method(dataset, "mixed", MixedConfig(**settings), config, start=start, domain=domain)


def fitted(dataset: Dataset, **settings: object) -> MixedModel:
    model = model_of(fit(dataset, **settings))
    assert isinstance(model, MixedModel)
    return model


def grown(n: int, steps: int, *, relative: bool, seed: int, together: bool = False) -> Panel:
    """Series that follow the law: one drug with carry-over, one without, effects that differ between subjects.

    Both are given at random, or always `together`.
    """
    rng = np.random.default_rng(seed)
    dose_NT2 = rng.integers(2, size=(n, steps, 1 if together else 2)).astype(float).repeat(1 + together, axis=2)
    effects_N4 = np.array(list(MEANS.values())) + SPREAD * rng.normal(size=(n, 4)) * [1, 0.5, 1, 1]
    return grow(dose_NT2, effects_N4, rng, relative=relative, seed=seed)


def grow(
    dose_NT2: np.ndarray,
    effects_N4: np.ndarray,
    rng: np.random.Generator,
    *,
    relative: bool,
    seed: int,
    decays: tuple[float, float] = (DECAY, 0.0),
) -> Panel:
    """Series of subjects with some effects, under what they were given."""
    n, steps, _ = dose_NT2.shape
    exposure_NT2 = carried(dose_NT2, np.array([decays]))
    y_NT = np.empty((n, steps))
    y_NT[:, 0] = np.exp(rng.normal(size=n)) if relative else rng.normal(size=n)
    for t in range(steps - 1):
        noise_N = NOISE * rng.normal(size=n)
        y_NT[:, t + 1] = next_level(y_NT[:, t], exposure_NT2[:, t], effects_N4, noise_N, relative=relative)
    classes_NTA = np.eye(4)[(dose_NT2 @ [1, 2]).astype(int)]
    return Panel(
        covariates=np.zeros((n, steps, 0), np.float32),
        treatments=classes_NTA.astype(np.float32),
        outcomes=y_NT[..., None].astype(np.float32),
        statics=np.zeros((n, 0), np.float32),
        length=np.full(n, steps),
        subject_id=np.arange(n) + 10_000 * seed,
    )


def next_level(
    y_N: np.ndarray, exposure_N2: np.ndarray, effects_N4: np.ndarray, noise_N: np.ndarray, *, relative: bool
) -> np.ndarray:
    """What the law makes of a level in a step."""
    level_N = np.log(y_N) / 4 if relative else y_N
    phi_N4 = np.stack([np.ones(len(y_N)), level_N, *exposure_N2.T], axis=1)
    growth_N = (phi_N4 * effects_N4).sum(axis=1) + noise_N
    return y_N * (1 + growth_N.clip(min=-0.9)) if relative else y_N + growth_N


SCHEMA = PanelSchema(
    outcomes=(Variable(name="size", unit="cm3"),),
    treatments=TreatmentEncoding(
        mode="multiclass",
        names=("drug", "ray"),
        levels=(("off", "on"), ("off", "on")),
        classes=((0, 0), (1, 0), (0, 1), (1, 1)),
    ),
    step="day",
)


@cache
def world(*, relative: bool = True, n: int = 120, steps: int = 30, together: bool = False) -> Dataset:
    panels = {
        part: grown(n if part == TRAIN else 20, steps, relative=relative, seed=i, together=together)
        for i, part in enumerate(Part.all())
    }
    return Dataset("grown", SCHEMA, 4, panels)


@cache
def model(*, relative: bool = True) -> MixedModel:
    return fitted(world(relative=relative))


def asked(panel: Panel, n: int, *, horizon: int = 4, seed: int = 0, origin: int | None = None) -> Queries:
    rng = np.random.default_rng(seed)
    plan = np.eye(panel.treatments.shape[-1], dtype=np.uint8)[
        rng.integers(panel.treatments.shape[-1], size=(n, horizon))
    ]
    subject = rng.integers(panel.n_subjects, size=n)
    at = rng.integers(panel.length[subject]) if origin is None else np.full(n, origin)
    return Queries(subject.astype(np.int32), at.astype(np.int16), plan)


def changed(dataset: Dataset, change) -> Dataset:
    return replace(dataset, panels={part: change(panel) for part, panel in dataset.panels.items()})
