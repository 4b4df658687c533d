"""Goods whose usual prices and usual sales have nothing to do with each other; each sells less where it is dearer.

A price acts on the next step's sales: a count whose mean is the usual one at the usual price of the good, and follows
the ratio of the two with an elasticity. A plan knows nothing of the good: at a first origin its usual price is unknown.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Panel, PanelSchema, Part, Queries, TreatmentEncoding, Variable, as_plans
from costar_cli.data.dose import Dose
from costar_cli.methods.base import FittedModel
from costar_cli.methods.mixed.settings import MixedConfig
from tests.fits import fit_method, model_of

__all__ = ["ELASTICITY", "TEST", "TRAIN", "asked", "data", "fitted", "goods", "mean_at"]

TRAIN, TEST = Part("source", "train"), Part("source", "test")
HORIZON, STEPS = 3, 40
ELASTICITY = -1.5
USUAL, SPREAD = 1.2, 0.4  # of the logarithm of usual sales
PRICES = 0.5  # sd of the logarithm of usual prices
SIZES = {"train": 45, "val": 25, "test": 25}

Floats = NDArray[np.float64]


def goods(n: int, seed: int, differing: float = 0.0) -> tuple[Floats, Floats, Floats, Floats]:
    """Return usual sales and usual prices `[N]`, prices and sales `[N,T]`; `differing` is the sd of elasticities."""
    rng = np.random.default_rng(seed)
    usual_N, base_N = np.exp(rng.normal(USUAL, SPREAD, n)), np.exp(rng.normal(0, PRICES, n))
    price_NT = base_N[:, None] * np.exp(0.12 * rng.normal(size=(n, STEPS)))
    elasticity_N1 = ELASTICITY + differing * rng.normal(size=(n, 1))
    rate_NT = usual_N[:, None] * (np.roll(price_NT, 1, axis=1) / base_N[:, None]) ** elasticity_N1
    return usual_N, base_N, price_NT, rng.poisson(rate_NT).astype(float)


def mean_at(price: float) -> float:
    """Return mean sales at a price that is the same for all goods."""
    return float(np.exp(USUAL + SPREAD**2 / 2 + (ELASTICITY * PRICES) ** 2 / 2) * price**ELASTICITY)


@cache
def data(differing: float = 0.0) -> Dataset:
    """Return a data set of goods, whose sales are learnt as logarithms."""
    price_MT = goods(SIZES["train"], 0)[2]
    encoding = TreatmentEncoding(mode="multilabel", names=(), levels=(), doses=(
        Dose.learn("price", price_MT[:, :-1].ravel(), unit="", basis="log1p"),))  # fmt: skip
    panels: dict[Part, Panel] = {}
    for seed, (split, n) in enumerate(SIZES.items()):
        _, _, price_NT, sold_NT = goods(n, seed, differing)
        panels[Part("source", split)] = Panel(
            covariates=np.zeros((n, STEPS, 0), np.float32),
            treatments=encoding.encode(price_NT[..., None]) * (np.arange(STEPS) < STEPS - 1)[:, None],
            outcomes=sold_NT[..., None].astype(np.float32),
            statics=np.zeros((n, 0), np.float32),
            length=np.full(n, STEPS),
            subject_id=np.arange(n) + 1000 * seed,
        )
    schema = PanelSchema(treatments=encoding, outcomes=(Variable(name="sold", kind="count", transform="log1p"),))
    return Dataset("goods", schema, HORIZON, panels)


@cache
def fitted(differing: float = 0.0) -> FittedModel:
    """Return the mixed-effects model of goods."""
    return model_of(fit_method(data(differing), "mixed", MixedConfig(), FinetuneConfig()))


def asked(origin: int, price_N: Floats | float) -> Queries:
    """Return one query per test good: the same price at every step."""
    n = SIZES["test"]
    plan_NH1 = np.repeat(np.broadcast_to(price_N, n)[:, None, None], HORIZON, axis=1)
    plans = as_plans(data().schema.treatments.encode(plan_NH1))
    return Queries(np.arange(n, dtype=np.int32), np.full(n, origin, np.int16), plans)
