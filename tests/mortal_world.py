"""A world whose subjects die or recover by a covariate that treatment moves, with survival under any plan.

At row t x_t and y_t are observed, then a_t is given by both, then one of two ends may come, which shows at row t + 1,
where nothing else is recorded. Where follow-up is lost, it is after a_t and by x_t: row t is then the last.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from costar_cli.data import Dataset, End, Panel, PanelSchema, Part, TreatmentEncoding, Variable

__all__ = ["MORTAL", "REGIMES", "TRUE_ENDS", "mortal_dataset", "mortal_panel", "true_ends"]

Floats = NDArray[np.float64]
Decide = Callable[[Floats, Floats], Floats]  # what is given by x and y

MORTAL = PanelSchema(
    covariates=(Variable(name="x"),),
    outcomes=(Variable(name="y"),),
    treatments=TreatmentEncoding(mode="multilabel", names=("a",), levels=(("off", "on"),)),
    ends=(End(name="death"), End(name="recovery")),
)


REGIMES: Final[dict[str, tuple[dict[str, object], float | Decide]]] = {  # in words of a plan file, and as a step
    "never": ({"repeat": {}}, 0.0),
    "always": ({"repeat": {"a": 1}}, 1.0),
    "threshold": ({"rule": "a if x > 0"}, lambda x, y: (x > 0).astype(float)),
}

# Probabilities of death and of recovery by step 1 to 5 from row 0, of 4,000,000 subjects: standard errors under .0001
TRUE_ENDS: Final[dict[str, tuple[tuple[float, ...], tuple[float, ...]]]] = {
    "never": ((0.1033, 0.1704, 0.2237, 0.2687, 0.3077), (0.0523, 0.0961, 0.1339, 0.1670, 0.1959)),
    "always": ((0.0544, 0.0681, 0.0735, 0.0764, 0.0781), (0.1007, 0.2092, 0.3153, 0.4123, 0.4973)),
    "threshold": ((0.0588, 0.0814, 0.0974, 0.1108, 0.1225), (0.0673, 0.1288, 0.1849, 0.2361, 0.2827)),
}


def _risks(x: Floats, y: Floats, a: Floats, harsher: float = 0.0) -> tuple[Floats, Floats]:
    """Return the probabilities of death, and of recovery without it."""
    death = expit(-3.2 + harsher + 1.8 * x + 0.3 * y - 0.9 * a)
    return death, (1 - death) * expit(-3 - 0.6 * x + 0.7 * a)


def _update(x: Floats, y: Floats, a: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    e_2N = rng.normal(size=(2, len(x)))
    return 0.6 * x - 0.5 * a + 0.6 * e_2N[0], 0.6 * y + 0.6 * x - 0.8 * a + 0.5 * e_2N[1]


def mortal_panel(n: int, seed: int, *, harsher: float = 0.0, rows: int = 8, losing: bool = False) -> Panel:
    """Return n subjects; `harsher` is added to the logit of death, `losing` loses the sicker ones' follow-up."""
    rng, loss = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    x_NT, y_NT, a_NT = np.zeros((3, n, rows))
    length, end = np.full(n, rows), np.zeros(n, dtype=np.int64)
    lost = np.zeros(n, dtype=bool)
    x_NT[:, 0], y_NT[:, 0] = rng.normal(size=(2, n))
    for t in range(rows - 1):
        x_N, y_N = x_NT[:, t], y_NT[:, t]
        a_NT[:, t] = a_N = (rng.random(n) < expit(0.2 + 0.6 * x_N + 0.4 * y_N)).astype(float)
        if losing:
            lost_N = ~lost & (end == 0) & (loss.random(n) < expit(-2.6 + 0.9 * x_N - 0.5 * a_N))
            length[lost_N], lost = t + 1, lost | lost_N
        (death_N, recovery_N), chance_N = _risks(x_N, y_N, a_N, harsher), rng.random(n)
        here_N = ~lost & (end == 0)
        end[here_N & (chance_N < death_N + recovery_N)] = 2
        end[here_N & (chance_N < death_N)] = 1
        length[here_N & (end > 0)] = t + 2
        x_NT[:, t + 1], y_NT[:, t + 1] = _update(x_N, y_N, a_N, rng)
    step_T = np.arange(rows)
    seen_NT = step_T < (length - (end > 0))[:, None]
    given_NT = step_T < (length - ~lost)[:, None]
    return Panel(
        covariates=(x_NT * seen_NT)[..., None].astype(np.float32),
        treatments=(a_NT * given_NT)[..., None].astype(np.float32),
        outcomes=(y_NT * seen_NT)[..., None].astype(np.float32),
        statics=np.zeros((n, 0), np.float32),
        length=length,
        subject_id=np.arange(n) + 1_000_000 * seed,
        outcome_observed=seen_NT[..., None],
        end=end,
    )


def mortal_dataset(sizes: Sequence[int], *, horizon: int = 5, seed: int = 0, harsher: float = 0.0) -> Dataset:
    """Return parts of so many subjects in the order of `Part.all()`; death is `harsher` in the target alone."""
    panels = {
        part: mortal_panel(n, 100 * seed + i, harsher=harsher if part.domain == "target" else 0.0)
        for i, (part, n) in enumerate(zip(Part.all(), sizes, strict=True))
    }
    return Dataset("mortal", MORTAL, horizon, panels)


def true_ends(
    x_N: Floats, y_N: Floats, plan: Sequence[float | Decide], *, harsher: float = 0.0, copies: int = 200
) -> tuple[Floats, Floats]:
    """Return the mean probability `[H]` of no end, and of each end `[H,2]`, along a plan from such rows.

    A plan's step is what is given, or a rule for it.
    """
    rng = np.random.default_rng(7)
    x_M, y_M = np.repeat(x_N, copies).astype(float), np.repeat(y_N, copies).astype(float)
    on_M, ended_M2, survival, ended = np.ones(len(x_M)), np.zeros((len(x_M), 2)), [], []
    for a in plan:
        a_M = a(x_M, y_M) if callable(a) else np.full(len(x_M), float(a))
        risk_M2 = np.stack(_risks(x_M, y_M, a_M, harsher), axis=1)
        ended_M2 += on_M[:, None] * risk_M2
        on_M *= 1 - risk_M2.sum(axis=1)
        survival.append(on_M.mean())
        ended.append(ended_M2.mean(axis=0))
        x_M, y_M = _update(x_M, y_M, a_M, rng)
    return np.array(survival), np.array(ended)
