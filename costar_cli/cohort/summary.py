"""What a cohort's answers come to: by plan, the mean estimate at each step, and how many the data support."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.cohort.answers import CohortAnswers
from costar_cli.panel.schema import Variable
from costar_cli.uncertainty import LIGHTS

MOST_PLANS: Final = 1_000  # that a summary lists

Row = dict[str, Any]


@dataclass(eq=False)
class Tally:
    """Sums over the answers of one model, chunk after chunk.

    `names` are those of all plans. By plan, for the first of them in the order in which they come: `totals` of
    estimates `[H,Y]`, `counts [H]` of how many questions have the step, how many have which light at worst, all 0
    where the model has none, and by plan and column the totals of `survival` `[H]`, where the model knows of ends.
    """

    outcomes: Sequence[Variable]
    horizon: int
    answers: int = 0
    names: set[str] = field(default_factory=set)
    totals: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    counts: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    lights: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    survival: dict[str, dict[str, NDArray[np.float64]]] = field(default_factory=dict)

    def add(self, answers: CohortAnswers) -> None:
        """Count a chunk."""
        self.answers += len(answers)
        names = [plan.name for plan in answers.plans_Q]
        self.names.update(names)
        distinct = dict.fromkeys(names)
        fresh = [name for name in distinct if name not in self.totals][: max(MOST_PLANS - len(self.totals), 0)]
        listed = [name for name in distinct if name in self.totals] + fresh
        known = {name: i for i, name in enumerate(listed)}
        plan_Q = np.array([known.get(name, len(listed)) for name in names])  # the others in the last place
        own_QH, plans = answers.own_QHY[..., 0], len(listed) + 1
        sums, counts = np.zeros((plans, self.horizon, len(self.outcomes))), np.zeros((plans, self.horizon), np.int64)
        marks = np.zeros((plans, len(LIGHTS)), dtype=np.int64)
        here = slice(own_QH.shape[1])
        np.add.at(sums[:, here], plan_Q, np.where(answers.own_QHY, answers.estimates.mean_QHY, 0.0))
        np.add.at(counts[:, here], plan_Q, own_QH)
        if answers.worst_Q is not None:
            np.add.at(marks, (plan_Q, answers.worst_Q), 1)
        ends = answers.goes_on.columns if answers.goes_on else {}
        gone = {column: np.zeros((plans, self.horizon)) for column in ends}
        for column, values_QH in ends.items():
            np.add.at(gone[column][:, here], plan_Q, np.where(own_QH, values_QH, 0.0))
        for name, i in known.items():
            before = self.survival.setdefault(name, {})
            before.update({column: before.get(column, 0.0) + sums_PH[i] for column, sums_PH in gone.items()})
            for kept, new in ((self.totals, sums), (self.counts, counts), (self.lights, marks)):
                kept[name] = kept[name] + new[i] if name in kept else new[i]

    def rows(self, most: int = MOST_PLANS) -> Iterator[Row]:
        """Yield a row per plan and outcome, then survival: the mean by step, and how many answers have which light."""
        for name in list(self.totals)[:most]:
            steps, lights = int((self.counts[name] > 0).sum()), self.lights[name]
            mean_HY = self.totals[name][:steps] / self.counts[name][:steps, None]
            support = dict(zip(LIGHTS, lights.tolist(), strict=True)) if lights.any() else None
            found = [
                (outcome.name, outcome.unit, mean_H) for outcome, mean_H in zip(self.outcomes, mean_HY.T, strict=True)
            ]
            ends = self.survival[name].items()
            found += [(column, "", total_H[:steps] / self.counts[name][:steps]) for column, total_H in ends]
            for of, unit, mean_H in found:
                yield {
                    "plan": name,
                    "outcome": of,
                    "unit": unit,
                    "answers": int(self.counts[name][0]),
                    "steps": steps,
                    "mean": mean_H.tolist(),
                    "support": support,
                }
