"""Worlds in which treatment reacts to the course and moves what it reacts to, with their answers under any plan.

A covariate x sways the next treatment and the next outcome, and treatment moves x. A regression of a later outcome on
the history and the plan then takes the reactions inside the plan for its effect. One covariate `x`, one outcome `y`,
one binary treatment `a`; at row t x_t and y_t are observed, then a_t is given.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit

from costar_cli.data import Dataset, Panel, PanelSchema, Part, TreatmentEncoding, Variable

__all__ = ["BINARY", "LINEAR", "FeedbackWorld"]

Floats = NDArray[np.float64]
Update = Callable[[Floats, Floats, Floats, np.random.Generator], tuple[Floats, Floats]]
MONTE_CARLO = 400_000  # subjects that `mean_under` averages over


@dataclass(frozen=True)
class FeedbackWorld:
    """How (x, y) start, what a treatment makes of them, and how likely it is; `kind` is the outcome's."""

    kind: str
    start: Callable[[int, np.random.Generator], tuple[Floats, Floats]]
    update: Update
    probability: Callable[[Floats, Floats], Floats]

    def draw(self, n: int, rows: int, seed: int) -> tuple[Floats, Floats, Floats]:
        """Return x, y and a `[N,T]` under the treatments of the world; a of the last row is drawn, too."""
        rng = np.random.default_rng(seed)
        x_NT, y_NT, a_NT = np.empty((3, n, rows))
        x_NT[:, 0], y_NT[:, 0] = self.start(n, rng)
        for t in range(rows):
            if t:
                x_NT[:, t], y_NT[:, t] = self.update(x_NT[:, t - 1], y_NT[:, t - 1], a_NT[:, t - 1], rng)
            a_NT[:, t] = rng.random(n) < self.probability(x_NT[:, t], y_NT[:, t])
        return x_NT, y_NT, a_NT

    def mean_under(self, plan: Sequence[float], *, origin: int, n: int = MONTE_CARLO, seed: int = 7) -> Floats:
        """Return the mean outcome `[H]` after each step of a plan that starts at `origin`, over the population."""
        x_NT, y_NT, _ = self.draw(n, origin + 1, seed)
        x_N, y_N, rng = x_NT[:, -1], y_NT[:, -1], np.random.default_rng([seed, 1])
        means = []
        for a in plan:
            x_N, y_N = self.update(x_N, y_N, np.full(n, float(a)), rng)
            means.append(y_N.mean())
        return np.array(means)

    @property
    def schema(self) -> PanelSchema:
        """Return the columns of its panels."""
        return PanelSchema(
            covariates=(Variable(name="x"),),
            outcomes=(Variable(name="y", kind=self.kind),),
            treatments=TreatmentEncoding(mode="multilabel", names=("a",), levels=(("off", "on"),)),
        )

    def panel(self, n: int, rows: int, seed: int) -> Panel:
        """Return n subjects as a panel."""
        x_NT, y_NT, a_NT = self.draw(n, rows, seed)
        return Panel(
            covariates=x_NT[..., None].astype(np.float32),
            treatments=a_NT[..., None].astype(np.float32),
            outcomes=y_NT[..., None].astype(np.float32),
            statics=np.zeros((n, 0), np.float32),
            length=np.full(n, rows, dtype=np.int64),
            subject_id=np.arange(n, dtype=np.int64) + 1_000_000 * seed,
        )

    def dataset(self, *, n: int = 1000, rows: int = 7, horizon: int = 5, seed: int = 0) -> Dataset:
        """Return a data set with `n` training subjects; source and target are of the same law."""
        sizes = dict(zip(Part.all(), (n, n // 4, n // 4, n // 10, n // 10, n // 10), strict=True))
        panels = {part: self.panel(size, rows, seed=100 * seed + i) for i, (part, size) in enumerate(sizes.items())}
        return Dataset("feedback", self.schema, horizon, panels)

    def table(self, n: int, rows: int, seed: int) -> pl.DataFrame:
        """Return n subjects as a long table with columns id, t, x, y, a."""
        x_NT, y_NT, a_NT = self.draw(n, rows, seed)
        id_NT, t_NT = np.indices((n, rows))
        columns = {"id": id_NT, "t": t_NT, "x": x_NT, "y": y_NT, "a": a_NT.astype(int)}
        return pl.DataFrame({name: values.ravel() for name, values in columns.items()})


def _normals(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    return rng.normal(size=n), rng.normal(size=n)


def _linear_update(x: Floats, y: Floats, a: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    n = len(x)
    return 0.6 * x - 0.5 * a + 0.6 * rng.normal(size=n), 0.6 * y + 0.6 * x - 0.8 * a + 0.5 * rng.normal(size=n)


def _binary_start(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    x = rng.normal(size=n)
    return x, (rng.random(n) < expit(-0.6 + 0.9 * x)).astype(float)


def _binary_update(x: Floats, y: Floats, a: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    n = len(x)
    risk = expit(-0.6 + 0.8 * y + 0.9 * x - a)
    return 0.6 * x - 0.5 * a + 0.6 * rng.normal(size=n), (rng.random(n) < risk).astype(float)


LINEAR = FeedbackWorld("continuous", _normals, _linear_update, lambda x, y: expit(0.2 + 0.6 * x + 0.4 * y))
BINARY = FeedbackWorld("binary", _binary_start, _binary_update, lambda x, y: expit(0.2 + 0.6 * x + 0.6 * (y - 0.5)))
