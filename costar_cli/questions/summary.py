"""What a cohort's answers come to: by plan, the mean estimate at each step and the last, and how many are supported."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.schema import Variable
from costar_cli.inference import SUPPORT_LEVELS, TOO_FEW
from costar_cli.questions.answers import ModelAnswers

MOST_PLANS: Final = 1_000  # that a summary lists
SUMS: Final = ("totals", "counts", "ends", "ratings")
SURVIVAL: Final = "survival/"  # before the names of columns of it

Row = dict[str, Any]


@dataclass(eq=False)
class Tally:
    """Sums over the answers of one model, chunk after chunk.

    `names` are those of all plans. By plan, for the first of them in the order in which they come: `totals` of
    estimates `[H,Y]`, `counts [H]` of how many questions have the step, totals at `ends [Y]`, each question's own last
    step, how many have which light at worst, all 0 where the model has none, and by plan and column the totals of
    `survival`, `[H + 1]` with those at the ends last, where the model knows of ends. `interval_kind` is what limits of
    the answers are, or why none has any; empty while there are no answers. `effective` counts, where bands are widened,
    the calibration subjects that weights leave at each step, the fewest of any chunk.
    """

    outcomes: Sequence[Variable]
    horizon: int
    answers: int = 0
    interval_kind: str = ""
    names: set[str] = field(default_factory=set)
    totals: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    counts: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    ends: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    ratings: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    survival: dict[str, dict[str, NDArray[np.float64]]] = field(default_factory=dict)
    effective: tuple[float, ...] = ()

    def add(self, answers: ModelAnswers) -> None:
        """Count a chunk."""
        self.answers += len(answers)
        if answers.effective:
            longer = zip_longest(self.effective or answers.effective, answers.effective, fillvalue=np.inf)
            self.effective = tuple(min(pair) for pair in longer)
        if answers.band.lower is None or (answers.band.limited & answers.own_QHY).any():
            self.interval_kind = answers.interval_kind
        self.interval_kind = self.interval_kind or TOO_FEW
        names = [plan.name for plan in answers.plans_Q]
        self.names.update(names)
        distinct = dict.fromkeys(names)
        fresh = [name for name in distinct if name not in self.totals][: max(MOST_PLANS - len(self.totals), 0)]
        listed = [name for name in distinct if name in self.totals] + fresh
        known = {name: i for i, name in enumerate(listed)}
        plan_Q = np.array([known.get(name, len(listed)) for name in names])  # the others in the last place
        own_QH, plans = answers.own_QHY[..., 0], len(listed) + 1
        sums, counts = np.zeros((plans, self.horizon, len(self.outcomes))), np.zeros((plans, self.horizon), np.int64)
        marks = np.zeros((plans, len(SUPPORT_LEVELS)), dtype=np.int64)
        here, last = slice(own_QH.shape[1]), (np.arange(len(answers)), answers.steps_Q - 1)
        at_end = np.zeros((plans, len(self.outcomes)))
        np.add.at(at_end, plan_Q, answers.measured_QHY[last])
        np.add.at(sums[:, here], plan_Q, np.where(answers.own_QHY, answers.measured_QHY, 0.0))
        np.add.at(counts[:, here], plan_Q, own_QH)
        if answers.worst_Q is not None:
            np.add.at(marks, (plan_Q, answers.worst_Q), 1)
        columns = answers.survival_forecast.columns if answers.survival_forecast else {}
        gone = {column: np.zeros((plans, self.horizon + 1)) for column in columns}
        for column, values_QH in columns.items():
            np.add.at(gone[column][:, here], plan_Q, np.where(own_QH, values_QH, 0.0))
            np.add.at(gone[column][:, -1], plan_Q, values_QH[last])
        for name, i in known.items():
            before = self.survival.setdefault(name, {})
            before.update({column: before.get(column, 0.0) + sums_PH[i] for column, sums_PH in gone.items()})
            for kept, new in (
                (self.totals, sums), (self.counts, counts), (self.ends, at_end), (self.ratings, marks)
            ):  # fmt: skip
                kept[name] = kept[name] + new[i] if name in kept else new[i]

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the sums of the plans that are listed, in order, by name."""
        if not self.totals:
            return {}
        sums = {what: np.stack([*getattr(self, what).values()]) for what in SUMS}
        first, *_ = self.survival.values()
        return sums | {SURVIVAL + name: np.stack([of[name] for of in self.survival.values()]) for name in first}

    def take(
        self, columns: Mapping[str, NDArray[Any]], plans: Sequence[str], *, answers: int, interval_kind: str
    ) -> None:
        """Add the sums of another tally about the same plans; see `columns`."""
        self.answers += answers
        self.names.update(plans)
        if interval_kind and (not self.interval_kind or interval_kind != TOO_FEW):
            self.interval_kind = interval_kind
        for i, plan in enumerate(plans[:MOST_PLANS]):
            gone = self.survival.setdefault(plan, {})
            for name, sums in columns.items():
                of, key = (
                    (gone, name.removeprefix(SURVIVAL)) if name.startswith(SURVIVAL) else (getattr(self, name), plan)
                )
                of[key] = of[key] + sums[i] if key in of else sums[i]

    def rows(self, most: int = MOST_PLANS) -> Iterator[Row]:
        """Yield a row per plan and outcome, then survival: means by step and at the end, and answers by light.

        The mean at the end is over each question's own last step; a step's mean is over those that have it. It is None
        where one of them is to a step at which no training subject has the outcome.
        """
        for name in list(self.totals)[:most]:
            steps, ratings = int((self.counts[name] > 0).sum()), self.ratings[name]
            counts = self.counts[name][:steps]
            support = dict(zip(SUPPORT_LEVELS, ratings.tolist(), strict=True)) if ratings.any() else None
            total_YH = np.vstack([self.totals[name].T, *(total[None, :-1] for total in self.survival[name].values())])
            end_Y = [*self.ends[name], *(total[-1] for total in self.survival[name].values())]
            named = [(outcome.name, outcome.unit) for outcome in self.outcomes]
            named += [(column, "") for column in self.survival[name]]
            for (of, unit), total_H, end in zip(named, total_YH, end_Y, strict=True):
                yield {
                    "plan": name,
                    "outcome": of,
                    "unit": unit,
                    "answers": int(counts[0]),
                    "answers_per_step": counts.tolist(),
                    "steps": steps,
                    "mean": [None if np.isnan(mean) else float(mean) for mean in total_H[:steps] / counts],
                    "mean_at_end": None if np.isnan(end) else float(end / counts[0]),
                    "support": support,
                }
