"""The yardstick: the semi-synthetic simulation written down as spec ICU-6 to 15 read, one patient at a time.

Plain Python floats and `math`; outcomes are overwritten in place, hour by hour, and every branch starts from a copy.
`tests/simulators/test_semi_synthetic_literal.py` holds the vectorised simulator against it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from simulators.semi_synthetic import CovariateFunctions, FourierFunction

__all__ = ["Chance", "Story", "one_step_queries", "sequence_queries", "simulate_story", "spline", "untreated_outcomes"]

Treatment = tuple[bool, ...]
Outcomes = list[list[float]]  # [outcome][hour]
Query = tuple[int, list[Treatment], list[list[float]]]  # origin, plan, outcomes [hour][outcome]

WEIGHTS = [(0.9, 0.4, 2.0), (1.0, 0.5, 3.5)]  # per outcome: covariates, path, trend
CLASSES = [(1.0, 0.9, 0.0, -0.5, -1.0), (1.0, 1.0, 0.5, 0.2, 0.2), (-0.3, -0.2, -0.2, -0.3, -0.2)]
CONFOUNDERS = [(0,), (0, 1), (1,)]
WINDOW = [3, 3, 20]
OUTCOME_WEIGHT = [2.5, 2.0, 1.5]
COVARIATE_WEIGHT = [2.5, 0.25, 0.25]
BIAS = [0.0, 1.0, 0.0]
EFFECT = [-1.0, -1.0, -0.75]
EFFECT_HOURS = [20, 20, 7]
ACTING = [(0, 1), (1, 2)]  # treatments that act on y1, on y2


@dataclass
class Chance:
    """What chance holds for one patient: a trend class and a path per outcome, and uniforms [hour][treatment]."""

    classes: Sequence[int]
    paths: Sequence[Sequence[float]]
    uniforms: Sequence[Sequence[float]]


@dataclass
class Story:
    """One patient's factual run; `states[t]` holds both outcomes, scheduled effects included, before hour t's."""

    logits: list[list[float]]  # [hour][treatment]: what covariates add
    states: list[Outcomes]
    treatments: list[Treatment]
    probabilities: list[list[float]]

    @property
    def outcomes(self) -> Outcomes:
        return self.states[-1]


def evaluate(function: FourierFunction, x: Sequence[float]) -> float:
    total = 0.0
    for omega, phase, weight in zip(
        function.frequency.tolist(), function.phase.tolist(), function.weight.tolist(), strict=True
    ):
        angle = sum(o * x[c] for o, c in zip(omega, function.columns, strict=True)) + phase
        total += weight * math.sqrt(2 / 100) * math.cos(angle)
    return total - function.offset


def spline(kind: int, t: int, t_max: int) -> float:
    u = t / t_max
    basis = (
        (1 - u) ** 4,
        11 - 12 * u - 6 * u**2 + 12 * u**3 - 4 * u**4,
        11 + 12 * u - 6 * u**2 - 12 * u**3 + 6 * u**4,
        1 + 4 * u + 6 * u**2 + 4 * u**3 - 4 * u**4,
        u**4,
    )
    return sum(k * b / 24 for k, b in zip(CLASSES[kind], basis, strict=True))


def untreated_outcomes(
    functions: CovariateFunctions, covariates: Sequence[Sequence[float]], chance: Chance, t_max: int = 100
) -> Outcomes:
    result = []
    for j, (a_f, a_g, a_s) in enumerate(WEIGHTS):
        kind, path, f = chance.classes[j], chance.paths[j], functions.outcomes[j]
        result.append(
            [a_f * evaluate(f, x) + a_g * path[t] + a_s * spline(kind, t, t_max) for t, x in enumerate(covariates)]
        )
    return result


def covariate_logits(functions: CovariateFunctions, x: Sequence[float]) -> list[float]:
    return [BIAS[k] + COVARIATE_WEIGHT[k] * evaluate(functions.treatments[k], x) for k in range(3)]


def probabilities(logits: Sequence[float], y: Outcomes, t: int) -> list[float]:
    result = []
    for k in range(3):
        seen = [y[j][s] for j in CONFOUNDERS[k] for s in range(max(0, t - WINDOW[k]), t + 1)]
        result.append(1 / (1 + math.exp(-logits[k] - OUTCOME_WEIGHT[k] * sum(seen) / len(seen))))
    return result


def apply(y: Outcomes, t: int, given: Sequence[bool], p: Sequence[float]) -> None:
    """Overwrite later outcomes with the lowest of what the treatments given at t propose."""
    for j, acting in enumerate(ACTING):
        for later in range(t + 1, len(y[j])):
            proposals = [
                y[j][later] + EFFECT[k] * p[k] / math.sqrt(later - t)
                for k in acting
                if given[k] and later <= t + EFFECT_HOURS[k]
            ]
            y[j][later] = min(proposals, default=y[j][later])


def copied(y: Outcomes) -> Outcomes:
    return [list(series) for series in y]


def simulate_story(functions: CovariateFunctions, covariates: Sequence[Sequence[float]], chance: Chance) -> Story:
    y = untreated_outcomes(functions, covariates, chance)
    story = Story([covariate_logits(functions, x) for x in covariates], [copied(y)], [], [])
    for t in range(len(covariates) - 1):
        p = probabilities(story.logits[t], y, t)
        given = tuple(u < q for u, q in zip(chance.uniforms[t], p, strict=True))
        apply(y, t, given, p)
        story.treatments.append(given)
        story.probabilities.append(p)
        story.states.append(copied(y))
    return story


def follow(story: Story, origin: int, plan: Sequence[Treatment]) -> list[list[float]]:
    y, outcomes = copied(story.states[origin]), []
    for t, given in enumerate(plan, origin):
        apply(y, t, given, probabilities(story.logits[t], y, t))
        outcomes.append([series[t + 1] for series in y])
    return outcomes


def one_step_queries(story: Story) -> list[Query]:
    return [
        (t, [option], follow(story, t, [option]))
        for t in range(len(story.logits) - 1)
        for option in product((False, True), repeat=3)
    ]


def sequence_queries(story: Story, drawn: Sequence[Sequence[Sequence[Treatment]]], planned: int = 10) -> list[Query]:
    """Follow the drawn plans [origin][plan][hour] at t = 1..T-1-H; the forecast's origin is t-1, its step factual."""
    queries: list[Query] = []
    for t in range(1, len(story.logits) - planned):
        for option in drawn[t - 1]:
            factual = [series[t] for series in story.states[t]]
            queries.append((t - 1, [story.treatments[t - 1], *option], [factual, *follow(story, t, option)]))
    return queries
