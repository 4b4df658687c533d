"""Confounding by indication: whether those treated were other before, and the effect has the sign of that.

M counts decisions (steps that have a next one), K treatments, P regressors; spec SUPPORT-9.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import FiniteFloat

from costar_cli.data.panel import Panel
from costar_cli.data.schema import PanelSchema
from costar_cli.diagnostics import Diagnostic

LEVEL: Final = 0.99
FEWEST: Final = 20  # subjects that begin a treatment, and that do not, which tell who does
MOST_NUMBERS: Final = 10_000_000  # of a regression; of larger data some subjects are taken

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Difference:
    """A regression coefficient with its 99 % interval, clustered by subject, in the unit of the outcome."""

    estimate: FiniteFloat
    lower: FiniteFloat
    upper: FiniteFloat

    @property
    def sign(self) -> int:
        """Return 1 or -1 where the interval excludes zero, else 0."""
        return int(self.lower > 0) - int(self.upper < 0)

    def __str__(self) -> str:
        return f"{self.estimate:+.3g} ({self.lower:.3g} to {self.upper:.3g})"


@dataclass(frozen=True, slots=True)
class Indication:
    """An outcome before a treatment is begun, beside what it is begun or not; and after it, given the history."""

    treatment: str
    outcome: str
    unit: str
    before: Difference
    effect: Difference
    begun: int

    @property
    def is_suspect(self) -> bool:
        """Return whether the effect has the sign of the selection, chance aside."""
        return self.before.sign * self.effect.sign == 1

    def diagnostic(self, part: str = "", *, whose: str = "") -> Diagnostic:
        """Return both numbers and what the pattern is, of a part of a data set or of `whose` data."""
        side, unit = "higher" if self.before.sign > 0 else "lower", f" {self.unit}" if self.unit else ""
        return Diagnostic.of(
            "confounding-by-indication", part, treatment=self.treatment, outcome=self.outcome, side=side,
            before=self.before, effect=self.effect, unit=unit, whose=whose,
        )  # fmt: skip

    def to_meta(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def indications(panel: Panel, schema: PanelSchema) -> list[Indication]:
    """Return what each treatment has to do with each outcome before and after it, where enough subjects tell."""
    outcomes = len(schema.outcomes)
    width = 3 * outcomes + 2 * len(schema.treatments.all_names) + len(schema.covariates) + len(schema.statics) + 2
    most = max(FEWEST, MOST_NUMBERS // (width * max(panel.n_steps, 1)))
    if panel.n_subjects > most:
        panel = panel.take(np.linspace(0, panel.n_subjects - 1, most).astype(np.int64))
    facts = _Facts.of(panel, schema)
    found: list[Indication] = []
    for k, treatment in enumerate(schema.treatments.all_names):
        for y, variable in enumerate(schema.outcomes):
            # Where treatment begins, among those never treated: later on, randomised arms differ because treatment
            # works.
            risk = ~facts.ever_MK[:, k] & facts.known_MY[:, y]
            starts = facts.given_MK[risk, k]
            begun, not_begun = (len(np.unique(facts.group_M[risk][starts == said])) for said in (True, False))
            if min(begun, not_begun) < FEWEST:
                continue
            before = _difference(*facts.before(k, y, risk))
            # A regression's effect, not the model's: a single network or a closed form has no interval for its own.
            effect = _difference(*facts.after(k, y, facts.known_MY[:, y] & facts.next_known_MY[:, y]))
            if before and effect:
                found.append(Indication(treatment, variable.name, variable.unit, before, effect, begun))
    return found


@dataclass(frozen=True, eq=False)
class _Facts:
    """All decisions of a panel: outcomes at t and t + 1, treatments at t and earlier, and what else is known at t."""

    group_M: Ints
    step_M: Ints
    now_MY: Floats
    next_MY: Floats
    known_MY: NDArray[np.bool_]
    next_known_MY: NDArray[np.bool_]
    given_MK: NDArray[np.bool_]
    ever_MK: NDArray[np.bool_]
    history_MP: Floats

    @classmethod
    def of(cls, panel: Panel, schema: PanelSchema) -> Self:
        n, t = np.nonzero(panel.decided)
        given_NTK = schema.treatments.decode(panel.treatments) != 0
        earlier_NTK = np.zeros_like(given_NTK)
        earlier_NTK[:, 1:] = np.logical_or.accumulate(given_NTK, axis=1)[:, :-1]
        outcomes_NTY, last = panel.outcomes.astype(np.float64), np.maximum(t - 1, 0)
        mean_NTY = np.cumsum(outcomes_NTY, axis=1) / np.arange(1, panel.n_steps + 1)[:, None]
        before_MK = given_NTK[n, last] & (t > 0)[:, None]
        known = [outcomes_NTY[n, t], outcomes_NTY[n, last], mean_NTY[n, t], before_MK, earlier_NTK[n, t]]
        known += [panel.covariates[n, t], panel.statics[n], t[:, None]]
        observed_NTY = panel.observed_outcomes
        return cls(
            group_M=n if panel.cluster is None else panel.cluster[n],
            step_M=t,
            now_MY=outcomes_NTY[n, t],
            next_MY=outcomes_NTY[n, t + 1],
            known_MY=observed_NTY[n, t],
            next_known_MY=observed_NTY[n, t + 1],
            given_MK=given_NTK[n, t],
            ever_MK=earlier_NTK[n, t],
            history_MP=np.concatenate([np.asarray(part, dtype=np.float64) for part in known], axis=1),
        )

    def before(self, k: int, y: int, risk_M: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats, Ints]:
        """Return start, outcome, regressors and groups of those never treated so far, all within their step."""
        step = np.unique(self.step_M[risk_M], return_inverse=True)[1].reshape(-1)
        others = np.delete(self.ever_MK[risk_M], k, axis=1)
        columns = np.column_stack([self.given_MK[risk_M, k], self.now_MY[risk_M, y], others]).astype(np.float64)
        total = np.stack([np.bincount(step, weights=column) for column in columns.T], axis=1)
        columns -= (total / np.bincount(step)[:, None])[step]
        return columns[:, 0], columns[:, 1], columns[:, 2:], self.group_M[risk_M]

    def after(self, k: int, y: int, known_M: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats, Ints]:
        """Return treatment, next outcome, regressors and groups of all decisions."""
        given = self.given_MK[known_M].astype(np.float64)
        history = np.concatenate(
            [np.ones((len(given), 1)), np.delete(given, k, axis=1), self.history_MP[known_M]], axis=1
        )
        return given[:, k], self.next_MY[known_M, y], history, self.group_M[known_M]


def _difference(x_M: Floats, y_M: Floats, rest_MP: Floats, group_M: Ints) -> Difference | None:
    """Return the coefficient of x in a linear regression, None where the rest determines it or there are no rows."""
    from scipy.special import stdtrit  # noqa: PLC0415 - scipy takes a while

    if not len(x_M):
        return None
    if rest_MP.shape[1]:
        scale = np.abs(rest_MP).max(axis=0)
        rest = rest_MP / np.where(scale > 0, scale, 1.0)
        both = np.column_stack([x_M, y_M])
        fitted, *_ = np.linalg.lstsq(rest.T @ rest, rest.T @ both, rcond=1e-10)  # ten times as fast as of `rest` itself
        x_M, y_M = (both - rest @ fitted).T
    group = np.unique(group_M, return_inverse=True)[1].reshape(-1)
    power, groups = float(x_M @ x_M), int(group.max(initial=0)) + 1
    if power < 1e-9 * len(x_M) or groups < 2:
        return None
    slope = float(x_M @ y_M) / power
    share_G = np.bincount(group, weights=x_M * (y_M - slope * x_M)) / power
    half = stdtrit(groups - 1, (1 + LEVEL) / 2) * np.sqrt((share_G**2).sum() * groups / (groups - 1))
    return Difference(slope, slope - float(half), slope + float(half))


def suspects(found: Sequence[Indication]) -> list[Indication]:
    """Return those with the pattern."""
    return [indication for indication in found if indication.is_suspect]
