"""What the growth model learnt, in words and in the units of the data."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from costar_cli.data import PanelSchema
from costar_cli.data.schema import step_word
from costar_cli.data.visits import elapsed_dose
from costar_cli.methods.mixed.effects import Effects
from costar_cli.methods.mixed.law import Floats, GrowthTransition, Series
from costar_cli.methods.shared.doses import dose_names
from costar_cli.methods.shared.outcome_forms import LEVEL_UNIT

NINETY: Final = 1.645  # sds on each side of the mean that hold 90 % of subjects
LONGEST: Final = 1_000  # steps of a half-life, beyond which nothing is lost
SMALL: Final = 0.01  # of an sd, below which a level that only shrinks is not worth an example
SHORTEST: Final = 0.05  # share that is left a step later, below which there is no carry-over to speak of
TOLD: Final = (0.05, 0.5, 0.95)  # quantiles of the doses given, of which the effect is told where it is no line


def explain(
    schema: PanelSchema, laws: Sequence[GrowthTransition], effects: Sequence[Effects], series: Series
) -> list[dict[str, str]]:
    """Return one row per thing that was learnt: of which outcome, what it is, its typical value, that of subjects.

    `subjects` is the range of 90 % of the subjects, from what their statics say and from the spread beyond that. The
    effect of a dose is that of one unit; where it is no line, that of low, usual and high doses, against none.
    """
    encoding, rows, elapsed = schema.treatments, [], elapsed_dose(schema.treatments)
    names = dose_names(encoding, timeless=True)
    one_LL = np.eye(len(names))
    doses = [dose for dose in encoding.doses if dose.elapsed is None]
    first = len(names) - sum(dose.width for dose in doses)
    given = [*map(_Given, names[:first], one_LL)]
    for dose in doses:
        own_WL = one_LL[first : first + dose.width]
        straight, amounts, column_NT = dose.basis == "identity", [1.0], series.dose_NTL[..., first]
        if not straight:  # a low, a usual and a high one of those given, by the first of their columns
            given_M = dose.decode(column_NT[column_NT != 0])
            amounts = np.unique(np.quantile(given_M, TOLD, method="inverted_cdf")).tolist() if given_M.size else []
        for amount in amounts:
            what = f"per {dose.text(amount)}" if straight else f"{dose.text(amount)} against 0"
            given.append(_Given(f"{dose.name}, {what}", dose.encode([amount])[0] @ own_WL))
        first += dose.width
    for law, found in zip(laws, effects, strict=True):
        outcome = schema.outcomes[law.outcome]
        words = _Words(law, found, series, outcome.unit, step_word(elapsed.unit if elapsed else schema.step))
        rows += [{"outcome": outcome.name, **row} for row in words.rows(given)]
    return rows


@dataclass(frozen=True, slots=True)
class _Given:
    """A level, one unit of a dose, or a dose of one whose effect is no line: its name, and each factor `[L]` of it."""

    name: str
    factors_L: Floats


class _Words:
    """One outcome's effects in words."""

    def __init__(self, law: GrowthTransition, effects: Effects, series: Series, unit: str, step: str) -> None:
        self.law, self.effects, self.unit, self.step = law, effects, unit, step
        means_NP = effects.means(series.v_NV)
        z = effects.n_random
        self.mean_P = means_NP.mean(axis=0)
        self.covariance_ZZ = np.cov(means_NP[:, :z].T, ddof=0).reshape(z, z) + effects.spread @ effects.spread.T
        seen_M = series.y_NTY[series.seen_NTY[..., law.outcome], law.outcome]
        self.usual = float(np.median(seen_M[seen_M > SMALL * law.sd] if law.relative else seen_M))
        if law.local:
            self.usual = float(np.median(series.usual_NTY[series.seen_NTY[..., law.outcome], law.outcome]))

    def rows(self, given: Sequence[_Given]) -> Iterator[dict[str, str]]:
        """Yield what was learnt, each with its typical value and that of 90 % of the subjects."""
        law, n_levels = self.law, len(self.law.levels)
        how = "in % of the level" if law.relative else "in % of the usual size" if law.local else "in amounts"
        if law.logit:
            how = "times the odds of 1"
        yield {"what": f"change per {self.step}", "typical": how, "subjects": "", "carry_over": ""}
        at_usual_Z = np.zeros(self.effects.n_random)
        at_usual_Z[0] = 1
        at_usual_Z[1 : 1 + n_levels] = [float(column) for column in law.level(*[np.array(self.usual)] * 2)]
        growth = "odds of 1 after a" if law.logit else "growth per"
        yield self._row(f"{growth} {self.step} without treatment, at {self._number(self.usual)}", at_usual_Z)
        more = {"log": ("at twice the level", np.log(2) / LEVEL_UNIT), "raw": (f"per {self._number(law.sd)} more", 1.0)}
        if law.local:
            more["raw"] = "at twice the usual size", 1.0
        if law.logit:
            more["raw"] = "at 1 instead of 0", 1 / law.sd
        for i, name in enumerate(law.levels):
            weights_Z = np.zeros(self.effects.n_random)
            what, weights_Z[1 + i] = more[name]
            yield self._row(f"{'odds' if law.logit else 'growth'} {what}, in addition", weights_Z)
        for c, decay_L in enumerate(self.effects.decay):
            number = f", carry-over {c + 1}" if len(self.effects.decay) > 1 else ""
            for one in given:
                weights_Z = np.zeros(self.effects.n_random)
                weights_Z[1 + n_levels + c * len(decay_L) :][: len(decay_L)] = one.factors_L
                row = self._row(f"{one.name}{number}, in the first {self.step}", weights_Z)
                weights_Z[1 + n_levels + c * len(decay_L) :][: len(decay_L)] *= decay_L
                yield row | {"carry_over": self._carry_over(decay_L[one.factors_L != 0], weights_Z)}
        if not law.logit:
            noise = self._change(self.effects.noise).lstrip("+")
            yield {"what": f"chance per {self.step}", "typical": f"sd {noise}", "subjects": "", "carry_over": ""}
        acts = f"act on {'the odds' if law.logit else 'growth'}"
        if law.linked:
            yield {"what": "covariates and other outcomes", "typical": acts, "subjects": "", "carry_over": ""}
        if law.habits:
            yield {"what": "doses that are usual for the subject", "typical": acts, "subjects": "", "carry_over": ""}

    def _row(self, what: str, weights_Z: Floats) -> dict[str, str]:
        typical = float(weights_Z @ self.mean_P[: len(weights_Z)])
        sd = max(float(weights_Z @ self.covariance_ZZ @ weights_Z), 0.0) ** 0.5
        low, high = self._change(typical - NINETY * sd), self._change(typical + NINETY * sd)
        subjects = f"{low} to {high}" if sd or not self.law.logit else ""  # most effects on odds are those of all
        return {"what": what, "typical": self._change(typical), "subjects": subjects, "carry_over": ""}

    def _change(self, growth: float) -> str:
        """Return a change per step: a share of the level in percent, an amount, or by what odds are multiplied."""
        if self.law.logit:
            return f"{np.exp(growth):.3g}"
        if self.law.relative or self.law.local:
            return f"{100 * growth:+.3g} %"
        return f"{self.law.sd * growth:+.3g} {self.unit}".rstrip()

    def _number(self, value: float) -> str:
        return f"{value:.3g} {self.unit}".rstrip()

    def _carry_over(self, decay_K: Floats, later_Z: Floats) -> str:
        """Return how what is given wears off; what it still does a step later where its factors do so differently."""
        words = set()
        for decay in decay_K.tolist():
            if decay < SHORTEST:
                words.add("none")
                continue
            half_life = np.log(0.5) / np.log(min(decay, 1 - 1e-9))
            number = f"{half_life:.2g}"
            steps = f"{number} {self.step}{'' if number == '1' else 's'}"
            words.add("lasting" if half_life >= LONGEST else f"half-life {steps}")
        if len(words) == 1:
            return words.pop()
        return f"{self._change(float(later_Z @ self.mean_P[: len(later_Z)]))} in the next {self.step}"
