"""Worlds for effects: a course that treatment moves and reacts to, regimes as plans write them, and their true means.

At row t covariates x_t and the outcome y_t are observed, then treatments a_t are given, and their effect first shows at
t + 1, so that a world of H steps has H + 1 rows and its regimes begin at row 0. `TRUTH` has the mean outcome after the
last step; `mean_under` computes it anew.

Axes: `N` subjects, `T` rows, `X` covariates, `A` treatments, `H` steps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit

from costar_cli.data import Dataset, Panel, PanelSchema, Part, TreatmentEncoding, Variable
from costar_cli.data.dose import Dose
from tests.feedback_worlds import BINARY, LINEAR, FeedbackWorld

__all__ = ["ALWAYS", "NEVER", "TRUTH", "WORLDS", "EffectWorld", "Regime", "in_parts"]

Floats = NDArray[np.float64]
Rng = np.random.Generator
Decide = Callable[[Floats, Floats, Floats], Floats]  # of covariates [N,X], outcome [N] and natural treatment [N,A]


@dataclass(frozen=True)
class Regime:
    """What would be given: the treatment in words of a plan file, without its length, and as a function."""

    plan: Mapping[str, object]
    decide: Decide

    def steps(self, steps: int) -> dict[str, object]:
        """Return what a plan file says of it."""
        return {**self.plan, "times": steps}


def _constant(value: float) -> Decide:
    return lambda x_NX, y_N, natural_NA: np.full_like(natural_NA, value)


NEVER: Final = Regime({"repeat": {}}, _constant(0.0))
ALWAYS: Final = Regime({"repeat": {"a": 1}}, _constant(1.0))
NATURAL: Final = Regime({"natural": True}, lambda x_NX, y_N, natural_NA: natural_NA)


def _rule(text: str, holds: Callable[[Floats, Floats], NDArray[np.bool_]]) -> Regime:
    """Return a rule that gives the one treatment where a condition holds."""
    return Regime({"rule": f"a if {text}"}, lambda x_NX, y_N, natural_NA: holds(x_NX, y_N)[:, None].astype(float))


@dataclass(frozen=True)
class EffectWorld:
    """How a course starts, is treated and goes on, for so many steps, and the regimes that are compared in it.

    Attributes:
        covariates: names of the columns that are shown.
        steps: decisions of a regime.
        start: x `[N,X]` and y `[N]` at row 0.
        treat: natural treatment `[N,A]` after x, y and the last one.
        update: x and y of the next row.
        regimes: by name.
        reference: the regime that others are compared with.
        kind: of the outcome.
        treatments: their names.
        dosed: whether they are numbers, not off and on.
        show: columns of covariates `[...,columns]` that the data have, of x `[...,X]`.
        probability: the column that holds the probability of treatment, where it is known.
    """

    covariates: tuple[str, ...]
    steps: int
    start: Callable[[int, Rng], tuple[Floats, Floats]]
    treat: Callable[[Floats, Floats, Floats, Rng], Floats]
    update: Callable[[Floats, Floats, Floats, Rng], tuple[Floats, Floats]]
    regimes: Mapping[str, Regime] = field(default_factory=lambda: {"never": NEVER, "always": ALWAYS})
    reference: str = "never"
    kind: Literal["continuous", "binary", "count"] = "continuous"
    treatments: tuple[str, ...] = ("a",)
    dosed: bool = False
    show: Callable[[Floats], Floats] = lambda x: x
    probability: str | None = None

    def draw(self, n: int, seed: int, decide: Decide | None = None) -> tuple[Floats, Floats, Floats]:
        """Return x `[N,T,X]`, y `[N,T]` and a `[N,H,A]`, under a regime or as treatment comes."""
        rng, natural_NA = np.random.default_rng([seed, 32]), np.zeros((n, len(self.treatments)))
        x_NX, y_N = self.start(n, rng)
        x, y, a = [x_NX], [y_N], []
        for _ in range(self.steps):
            natural_NA = self.treat(x_NX, y_N, natural_NA, rng)
            given_NA = natural_NA if decide is None else decide(x_NX, y_N, natural_NA)
            x_NX, y_N = self.update(x_NX, y_N, given_NA, rng)
            natural_NA = given_NA
            x.append(x_NX)
            y.append(y_N)
            a.append(given_NA)
        return np.stack(x, axis=1), np.stack(y, axis=1), np.stack(a, axis=1)

    def mean_under(self, regime: str, *, n: int, seed: int = 7) -> tuple[float, float]:
        """Return the mean outcome after the last step under a regime, and its Monte Carlo standard error."""
        parts = [
            self.draw(min(n, 50_000), seed + i, self.regimes[regime].decide)[1][:, -1] for i in range(-(-n // 50_000))
        ]
        y = np.concatenate(parts)
        return float(y.mean()), float(y.std() / np.sqrt(len(y)))

    @property
    def schema(self) -> PanelSchema:
        """Return the columns of its panels."""
        if self.dosed:
            given_NHA = self.draw(1_000, 0)[2]
            doses = tuple(Dose.learn(name, given_NHA[..., i].ravel()) for i, name in enumerate(self.treatments))
            encoding = TreatmentEncoding(mode="multilabel", names=(), levels=(), doses=doses)
        else:
            levels = (("off", "on"),) * len(self.treatments)
            encoding = TreatmentEncoding(mode="multilabel", names=self.treatments, levels=levels)
        return PanelSchema(
            covariates=tuple(Variable(name=name) for name in self.covariates),
            outcomes=(Variable(name="y", kind=self.kind),),
            treatments=encoding,
        )

    def dataset(self, n: int, seed: int) -> Dataset:
        """Return a data set whose n subjects are all in `source/train`."""
        x_NTX, y_NT, a_NHA = self.draw(n, seed)
        schema = self.schema
        panel = Panel(
            covariates=self.show(x_NTX).astype(np.float32),
            treatments=np.pad(schema.treatments.encode(a_NHA), ((0, 0), (0, 1), (0, 0))),
            outcomes=y_NT[..., None].astype(np.float32),
            statics=np.zeros((n, 0), np.float32),
            length=np.full(n, self.steps + 1),
            subject_id=np.arange(n),
        )
        return Dataset("effects", schema, self.steps, {Part("source", "train"): panel})

    def table(self, n: int, seed: int) -> pl.DataFrame:
        """Return n subjects as a long table: id, t, covariates, y, treatments, which are null at the last row."""
        x_NTX, y_NT, a_NHA = self.draw(n, seed)
        id_NT, t_NT = np.indices(y_NT.shape)
        shown, a_NTA = self.show(x_NTX), np.pad(a_NHA, ((0, 0), (0, 1), (0, 0)), constant_values=np.nan)
        columns: dict[str, NDArray[Any]] = {"id": id_NT, "t": t_NT, "y": y_NT}
        columns |= {name: shown[..., i] for i, name in enumerate(self.covariates)}
        columns |= {name: a_NTA[..., i] for i, name in enumerate(self.treatments)}
        return pl.DataFrame({name: values.ravel() for name, values in columns.items()}, nan_to_null=True)


def _coin(probability_N: Floats, rng: Rng) -> Floats:
    return (rng.random(len(probability_N)) < probability_N)[:, None].astype(float)


def _feedback(world: FeedbackWorld, rule: Regime, noise: int = 0) -> EffectWorld:
    """Return a world of part 10 in five steps, with so many covariates that nothing depends on."""

    def start(n: int, rng: Rng) -> tuple[Floats, Floats]:
        x_N, y_N = world.start(n, rng)
        return np.column_stack([x_N, rng.normal(size=(n, noise))]), y_N

    def update(x_NX: Floats, y_N: Floats, a_NA: Floats, rng: Rng) -> tuple[Floats, Floats]:
        x_N, y_N = world.update(x_NX[:, 0], y_N, a_NA[:, 0], rng)
        return np.column_stack([x_N, 0.5 * x_NX[:, 1:] + rng.normal(size=(len(y_N), noise))]), y_N

    return EffectWorld(
        ("x", *(f"noise{i + 1}" for i in range(noise))), 5, start,
        lambda x_NX, y_N, last_NA, rng: _coin(world.probability(x_NX[:, 0], y_N), rng), update,
        {"never": NEVER, "always": ALWAYS, "threshold": rule}, kind=world.kind,
    )  # fmt: skip


# Overlap: covariate x stays within -1 and 1, so that the probability of treatment, known as column p, does within .31
# and .69. Both models are right where linear ones in x are.


def _overlap_probability(x_N: Floats) -> Floats:
    return expit(0.8 * x_N)


def _overlap_start(n: int, rng: Rng) -> tuple[Floats, Floats]:
    x_N = rng.uniform(-1, 1, n)
    return np.column_stack([x_N, _overlap_probability(x_N)]), x_N + 0.5 * rng.normal(size=n)


def _overlap_update(x_NX: Floats, y_N: Floats, a_NA: Floats, rng: Rng) -> tuple[Floats, Floats]:
    a_N, n = a_NA[:, 0], len(y_N)
    x_N = 0.5 * x_NX[:, 0] - 0.3 * (a_N - 0.5) + 0.35 * rng.uniform(-1, 1, n)
    y_N = 0.5 * y_N + 1.5 * x_NX[:, 0] - a_N + 0.5 * rng.normal(size=n)
    return np.column_stack([x_N, _overlap_probability(x_N)]), y_N


OVERLAP: Final = EffectWorld(
    ("x",), 3, _overlap_start, lambda x_NX, y_N, last_NA, rng: _coin(x_NX[:, 1], rng), _overlap_update,
    {"never": NEVER, "always": ALWAYS, "threshold": _rule("x > 0", lambda x_NX, y_N: x_NX[:, 0] > 0)},
    show=lambda x: x[..., :1],
)  # fmt: skip


OVERLAP_KNOWN: Final = replace(OVERLAP, covariates=("x", "p"), show=lambda x: x, probability="p")
OVERLAP_TREATMENT_WRONG: Final = replace(
    OVERLAP_KNOWN, show=lambda x: np.stack([x[..., 0], np.full_like(x[..., 0], 0.5)], axis=-1)
)


# Lines and jumps: the outcome moves, and treatment acts less, where x is far from 0, which no line of x tells


def _jumps_update(x_NX: Floats, y_N: Floats, a_NA: Floats, rng: Rng) -> tuple[Floats, Floats]:
    next_NX, next_N = _overlap_update(x_NX, y_N, a_NA, rng)
    far_N = np.abs(x_NX[:, 0]) > 0.4
    return next_NX, next_N + far_N * (1 + 0.5 * a_NA[:, 0])


JUMPS: Final = replace(OVERLAP, update=_jumps_update, regimes={"never": NEVER, "always": ALWAYS})

# A micro-randomised trial: at each decision the probability is .3, .5 or .7 by the course, and the data have it


def _trial_columns(x_N: Floats, y_N: Floats) -> Floats:
    return np.column_stack([x_N, 0.3 + 0.2 * (x_N > 0) + 0.2 * (y_N > 0)])


def _trial_start(n: int, rng: Rng) -> tuple[Floats, Floats]:
    x_N, y_N = rng.normal(size=(2, n))
    return _trial_columns(x_N, y_N), y_N


def _trial_update(x_NX: Floats, y_N: Floats, a_NA: Floats, rng: Rng) -> tuple[Floats, Floats]:
    x_N, a_N, e_2N = x_NX[:, 0], a_NA[:, 0], rng.normal(size=(2, len(y_N)))
    y_N = 0.5 * y_N + 0.4 * x_N + a_N * (0.5 - 0.3 * x_N) + 0.7 * e_2N[0]
    return _trial_columns(0.6 * x_N + 0.2 * a_N + 0.6 * e_2N[1], y_N), y_N


TRIAL: Final = EffectWorld(
    ("x", "p"), 4, _trial_start, lambda x_NX, y_N, last_NA, rng: _coin(x_NX[:, 1], rng), _trial_update,
    {"never": NEVER, "always": ALWAYS, "threshold": _rule("x < 0", lambda x_NX, y_N: x_NX[:, 0] < 0)},
    probability="p",
)  # fmt: skip


# A dose that sicker subjects get more of, and a modified treatment policy that reads what would be given


def _dose_update(x_NX: Floats, y_N: Floats, a_NA: Floats, rng: Rng) -> tuple[Floats, Floats]:
    x_N, dose_N, e_2N = x_NX[:, 0], a_NA[:, 0], rng.normal(size=(2, len(y_N)))
    y_N = 0.6 * y_N + 0.5 * x_N - 0.3 * (dose_N - 2) + 0.5 * e_2N[0]
    return (0.5 * x_N - 0.2 * (dose_N - 2) + 0.6 * e_2N[1])[:, None], y_N


DOSES: Final = EffectWorld(
    ("x",), 3, lambda n, rng: (rng.normal(size=(n, 1)), rng.normal(size=n)),
    lambda x_NX, y_N, last_NA, rng: np.maximum(2 + 0.5 * x_NX + 0.3 * y_N[:, None] + rng.normal(size=x_NX.shape), 0),
    _dose_update,
    {"natural": NATURAL,
     "less": Regime({"rule": "dose = natural dose - 1 if natural dose > 2"},
                    lambda x_NX, y_N, natural_NA: natural_NA - (natural_NA > 2))},
    reference="natural", treatments=("dose",), dosed=True,
)  # fmt: skip


def panel_world(*, treatments: int = 2, seed: int = 12345, binary: bool = False) -> EffectWorld:
    """Return EconML's dynamic panel with the constants of its notebook on DynamicDML: 3 periods, 100 covariates.

        x_t = A a_{t-1} + B x_{t-1} + N(0, .8^2),  a_t = D x_t + N(0, .5^2),  y after a_t = e a_t + f x_t + N(0, .1^2)

    The first ten covariates act on treatments and on the outcome, with .5 each. What `binary` treatments there are
    instead has the probability expit(a_t). The outcome of period t is that of row t + 1, and row 0 has noise.
    """
    size, acting, rng = 100, 10, np.random.RandomState(seed)  # its constants are draws of this stream
    A_XA = rng.uniform(-1, 1, size=(size, treatments))
    A_XA *= 0.25 / np.abs(A_XA).sum(axis=1, keepdims=True)
    power_X = 4.0 ** -np.arange(size + 1)
    B_XX = np.stack([0.25 * np.roll(rng.uniform(power_X[:-1], power_X[1:]), i) for i in range(size)])
    e_A = rng.uniform(-1, 1, size=treatments)
    f_X = np.where(np.arange(size) < acting, 5 / acting, 0.0)

    def treat(x_NX: Floats, y_N: Floats, last_NA: Floats, rng: Rng) -> Floats:
        a_NA = (x_NX @ f_X)[:, None] + 0.5 * rng.normal(size=last_NA.shape)
        return (rng.random(a_NA.shape) < expit(a_NA)).astype(float) if binary else a_NA

    def update(x_NX: Floats, y_N: Floats, a_NA: Floats, rng: Rng) -> tuple[Floats, Floats]:
        y_N = a_NA @ e_A + x_NX @ f_X + 0.1 * rng.normal(size=len(y_N))
        return a_NA @ A_XA.T + x_NX @ B_XX.T + 0.8 * rng.normal(size=x_NX.shape), y_N

    names = tuple(f"a{i + 1}" for i in range(treatments))
    return EffectWorld(
        tuple(f"x{i + 1}" for i in range(size)), 3,
        lambda n, rng: (0.8 * rng.normal(size=(n, size)), 0.1 * rng.normal(size=n)), treat, update,
        {"never": NEVER, "always": Regime({"repeat": dict.fromkeys(names, 1)}, _constant(1.0))},
        treatments=names, dosed=not binary,
    )  # fmt: skip


WORLDS: Final[dict[str, EffectWorld]] = {
    "linear": _feedback(LINEAR, _rule("y > 0", lambda x_NX, y_N: y_N > 0)),
    "linear-noise": _feedback(LINEAR, _rule("y > 0", lambda x_NX, y_N: y_N > 0), noise=5),
    "binary": _feedback(BINARY, _rule("x > 0", lambda x_NX, y_N: x_NX[:, 0] > 0)),
    "overlap": OVERLAP,
    "overlap-known": OVERLAP_KNOWN,
    "overlap-treatment-wrong": OVERLAP_TREATMENT_WRONG,
    "jumps": JUMPS,
    "trial": TRIAL,
    "doses": DOSES,
    "panel": panel_world(),
    "panel-binary": panel_world(treatments=1, binary=True),
}

# Means of 4,000,000 draws (seeds from 10,000), exact for `panel`, where all is linear; then their standard errors.
_LINEAR: Final = {"never": (-0.0018, 0.0005), "always": (-3.0895, 0.0005), "threshold": (-0.7715, 0.0004)}
_OVERLAP: Final = {"never": (0.4497, 0.0005), "always": (-2.2004, 0.0005), "threshold": (-0.8753, 0.0003)}
TRUTH: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "linear": _LINEAR,
    "linear-noise": _LINEAR,
    "binary": {"never": (0.4478, 0.0003), "always": (0.0937, 0.0002), "threshold": (0.2831, 0.0002)},
    **dict.fromkeys((name for name in WORLDS if name.startswith("overlap")), _OVERLAP),
    "jumps": {"never": (1.0362, 0.0007), "always": (-1.3207, 0.0005)},
    "trial": {"never": (-0.0010, 0.0005), "always": (0.9968, 0.0004), "threshold": (0.6296, 0.0004)},
    "doses": {"natural": (-0.0121, 0.0004), "less": (0.3420, 0.0004)},
    "panel": {"never": (0.0, 0.0), "always": (1.38303, 0.0)},
    "panel-binary": {"never": (0.0, 0.0), "always": (1.35056, 0.0)},
}


def in_parts(name: str, n: int, seed: int) -> Dataset:
    """Return a data set of n training subjects of a world, as many others to ask about, and some to select by."""
    sizes = {Part("source", "train"): n, Part("source", "val"): 60, Part("source", "test"): n}
    drawn = [WORLDS[name].dataset(size, 1_000 * i + seed) for i, size in enumerate(sizes.values())]
    panels = [of.panels[Part("source", "train")] for of in drawn]
    own = [replace(panel, subject_id=panel.subject_id + 10_000 * i) for i, panel in enumerate(panels)]
    return replace(drawn[0], panels=dict(zip(sizes, own, strict=True)))
