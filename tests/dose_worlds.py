"""A dosed linear world with known effects: sicker subjects get more, and half of a dose carries over."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Dataset, Panel, PanelSchema, Part, Queries, TreatmentEncoding, Variable, as_plans
from costar_cli.data.dose import Basis, Dose

STEPS, HORIZON, NOISE = 16, 3, 0.3
DECAY, EFFECT, STAYS = 0.5, -0.5, 0.8  # of the carry-over, of a unit of it, of the distance from the mean

Floats = NDArray[np.float64]
Act = Callable[[Floats], Floats]


def linear_doses(n: int = 300, seed: int = 0, basis: Basis = "identity", act: Act = lambda dose: dose) -> Dataset:
    """Return a data set with doses, none at a fifth of the steps, and test queries under doses from 0 to 4."""
    rng = np.random.default_rng(seed)
    y, left, series, doses = rng.normal(10, 2, n), np.zeros(n), [], []
    for _ in range(STEPS):
        dose = np.where(rng.random(n) < 0.8, np.maximum(rng.normal(2 + 0.3 * (y - 10), 1), 0.0), 0.0)
        series.append(y)
        doses.append(dose.round(3))
        y, left = after(y, left, doses[-1], act, rng.normal(0, NOISE, n))
    dose_NT, y_NT = np.stack(doses, axis=1), np.stack(series, axis=1)
    dose_NT[:, -1] = 0
    parts = np.split(np.arange(n), [int(0.6 * n), int(0.8 * n)])
    encoding = TreatmentEncoding(mode="multilabel", names=(), levels=(), doses=(
        Dose.learn("dose", dose_NT[parts[0], :-1].ravel(), unit="mg", basis=basis),))  # fmt: skip
    schema = PanelSchema(treatments=encoding, outcomes=(Variable(name="severity"),))
    panels, queries = {}, {}
    for split, rows in zip(("train", "val", "test"), parts, strict=True):
        panels[part := Part("source", split)] = Panel(
            covariates=np.zeros((len(rows), STEPS, 0), np.float32),
            treatments=encoding.encode(dose_NT[rows][..., None]) * (np.arange(STEPS) < STEPS - 1)[:, None],
            outcomes=y_NT[rows][..., None].astype(np.float32),
            statics=np.zeros((len(rows), 0), np.float32),
            length=np.full(len(rows), STEPS),
            subject_id=rows,
        )
        if split == "test":
            queries[part] = {"doses": _asked(y_NT[rows], dose_NT[rows], encoding, act, rng)}
    return Dataset("doses", schema, HORIZON, panels, queries)


def after(y: Floats, left: Floats, dose: Floats, act: Act, noise: Floats | float = 0.0) -> tuple[Floats, Floats]:
    """Return outcome and carry-over after a step."""
    left = DECAY * left + act(dose)
    return 10 + STAYS * (y - 10) + EFFECT * (left - 3) + noise, left


def _asked(y_NT: Floats, dose_NT: Floats, encoding: TreatmentEncoding, act: Act, rng: np.random.Generator) -> Queries:
    """Return what constant doses do from the middle on; the answers are means over the noise."""
    origin, n = STEPS // 2, len(y_NT)
    plan_NH = np.repeat(rng.uniform(0, 4, n).round(3)[:, None], HORIZON, axis=1)
    left = np.zeros(n)
    for t in range(origin):
        left = DECAY * left + act(dose_NT[:, t])
    y, answers = y_NT[:, origin], []
    for dose in plan_NH.T:
        y, left = after(y, left, dose, act)
        answers.append(y)
    return Queries(
        np.arange(n, dtype=np.int32), np.full(n, origin, np.int16), as_plans(encoding.encode(plan_NH[..., None])),
        np.stack(answers, axis=1)[..., None].astype(np.float32), np.ones((n, HORIZON), bool),
    )  # fmt: skip
