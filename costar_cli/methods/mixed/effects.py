"""What the likelihood learnt of an outcome: effects, and how they differ between subjects (spec MIXED-5)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.methods.mixed.law import Floats, GrowthTransition
from costar_cli.methods.model import Parameters

ARRAYS: Final = ("mean", "spread", "decay", "hidden", "bias", "output", "reach")
OPEN: Final = "open"  # an array that files of version 0.3.0 do not have


@dataclass(frozen=True)
class Effects:
    """What the likelihood learnt of one outcome.

    Attributes:
        mean: of the effects `[P]`: of ones and levels, of exposures, of links.
        spread: Cholesky-like factor `[Z,Z]` of the covariance between subjects; links, the last columns, are the same
            for all.
        noise: sd of a response.
        decay: of exposures per step `[C,L]`.
        hidden, bias, output: what the statics say: `output @ tanh(hidden @ v + bias)` is added to the first Z means.
        reach: smallest and largest statics `[2,V]` of the subjects learnt from: beyond them, statics say no more.
        open: factor `[P,P]` of the covariance with which the subjects leave `mean` open; None where that is not known.
        log_likelihood: of the responses.
        converged: the optimiser says so.
        iterations: that it took.
    """

    mean: Floats
    spread: Floats
    noise: float
    decay: Floats
    hidden: Floats
    bias: Floats
    output: Floats
    reach: Floats
    open: Floats | None = None
    log_likelihood: float = float("nan")
    converged: bool = True
    iterations: int = 0

    @property
    def n_random(self) -> int:
        """Return Z."""
        return len(self.spread)

    def means(self, v_NV: Floats) -> Floats:
        """Return the expected effects of subjects `[N,P]` before anything is known but their statics."""
        of_statics = np.tanh(v_NV.clip(*self.reach) @ self.hidden.T + self.bias) @ self.output.T
        rest = np.zeros((len(v_NV), len(self.mean) - self.n_random))
        return np.asarray(self.mean + np.concatenate([of_statics, rest], axis=1))


def effects_from(read: Callable[[str], Any]) -> Effects:
    """Return the effects whose arrays a function returns by name."""
    return Effects(
        read("mean"), read("spread"), float(read("noise")), read("decay"), read("hidden"), read("bias"), read("output"),
        read("reach"),
    )  # fmt: skip


def effects_params(effects: Effects, outcome: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of an outcome's effects that an artifact stores, with the axis of members."""
    values = {name: getattr(effects, name) for name in ARRAYS} | {"noise": np.array(effects.noise)}
    values |= {} if effects.open is None else {OPEN: effects.open}
    return {f"outcome{outcome}.{name}": np.array(value)[None] for name, value in values.items()}


def effects_shapes(
    law: GrowthTransition, dx: int, dy: int, dv: int, *, factors: int, carry_overs: int, hidden: int
) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array of an outcome's effects, without the axis of members."""
    z = 1 + len(law.levels) + carry_overs * factors
    p = z + (dx + dy - 1 if law.linked else 0) + (len(law.habits[0]) if law.habits else 0)
    shapes = {"mean": (p,), "spread": (z, z), "noise": (), "decay": (carry_overs, factors), OPEN: (p, p)}
    shapes |= {"hidden": (hidden, dv), "bias": (hidden,), "output": (z, hidden), "reach": (2, dv)}
    return {f"outcome{law.outcome}.{name}": shape for name, shape in shapes.items()}


def effects_of(params: Parameters, outcome: int) -> Effects:
    """Return an outcome's effects from the arrays of an artifact."""

    def read(name: str) -> Floats:
        return np.asarray(params[f"outcome{outcome}.{name}"][0], dtype=np.float64)

    effects = effects_from(read)
    return replace(effects, open=read(OPEN)) if f"outcome{outcome}.{OPEN}" in params else effects
