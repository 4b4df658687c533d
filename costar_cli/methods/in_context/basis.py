"""The columns of a step: what histories hold, and features of them that a network learned (spec CONTEXT-1 to 3).

`M` rows; `E` variables, outcomes then covariates; `B = E - 1` others; `L` treatment factors; `V` statics; `P` columns;
`K` columns whose weights a subject has of its own. Everything here takes arrays of numpy or of torch, with which the
network is trained (`benchmarks/in_context.py`): `xp` is the library.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import PanelSchema
from costar_cli.methods.shared.course import DECAYS, Course, Floats, Scales
from costar_cli.methods.shared.doses import dose_table

LAGS: Final = 4  # past values that columns hold
MOST_DIFFERENCE: Final = 10.0  # units between the last value and an earlier one
MOST_LEVEL: Final = 10.0
MOST_SQUARED: Final = 3.0
LONG: Final = 30.0  # steps that the step is divided by
MOST_STEPS: Final = 3.0  # of these
LEAST_ROUGH: Final = 0.05
OWN, DOSED, OTHER = 10, 1 + len(DECAYS), 3  # facts of a variable, of a factor, of another variable
STATED: Final = OWN - 1  # facts of a variable that are columns: that it is relative is known to the network alone
LEVEL, DRIFT = 0, 6  # columns of a variable that subjects differ in
LEARNED: Final[Mapping[str, tuple[int, int]]] = {  # facts that each network reads, and the features it returns
    "own": (OWN, 12),
    "dose": (OWN + DOSED, 12),
    "other": (OWN + OTHER, 4),
    "pair": (3 + DOSED + OTHER, 3),
}
MOST_PAIRS: Final = 24  # factors times others, beyond which they have no columns together
MOST_OTHERS: Final = 30  # others, beyond which there are no features of them
MOST_STATIC: Final = 60  # factors times statics
MOST_DOSES: Final = 6  # factors, beyond which there are no features of them nor products
MOST_OWN: Final = 3  # factors that subjects differ in
FREE: Final = -1  # the group of columns whose prior is left as it is

HIDDEN: Final = 32  # of each network, twice
CACHED: Final = 2_048  # rows that a network reads at once: its layers stay in the cache

Arrays = Any  # of numpy or of torch
Function = Callable[[Arrays], Arrays]


class Facts(NamedTuple):
    """What is known before a step: of each variable `[M,E,OWN]` and `[M,E,OTHER]`, factor `[M,L,DOSED]`, static."""

    own: Arrays
    dosed: Arrays
    other: Arrays
    static: Arrays


def facts_of(course: Course, scales: Scales, dose_ML: Floats) -> Facts:
    """Return the facts of series that are given doses."""
    now_ME, unit_ME = course.now_ME, course.unit(scales)
    level_ME = course.level(scales).clip(-MOST_LEVEL, MOST_LEVEL)
    earlier_MKE = np.concatenate([course.value_MKE[:, 1:], course.mean_ME[:, None]], axis=1)
    apart_MKE = ((earlier_MKE - now_ME[:, None]) / unit_ME[:, None]).clip(-MOST_DIFFERENCE, MOST_DIFFERENCE)
    moved_ME = np.abs(np.diff(course.value_MKE, axis=1)).mean(axis=1) / unit_ME
    step_M1 = (course.step_M / LONG).clip(max=MOST_STEPS)[:, None]
    own_MEO = np.stack(
        [
            level_ME,
            level_ME.clip(-MOST_SQUARED, MOST_SQUARED) ** 2 - 1,
            *apart_MKE.swapaxes(0, 1),
            np.broadcast_to(step_M1, now_ME.shape),
            np.log(moved_ME.clip(max=MOST_DIFFERENCE) + LEAST_ROUGH),
            np.broadcast_to(scales.having("relative") * 1.0, now_ME.shape),
        ],
        axis=2,
    )
    total = 1 / (course.step_M[:, None] + 1)
    exposure_MDL = course.exposure_MJ.reshape(len(dose_ML), len(DECAYS), dose_ML.shape[1])
    last, half, slow, all_of = exposure_MDL.swapaxes(0, 1)
    dosed_MLD = np.stack([dose_ML, last, half, slow / 2, all_of * total], axis=2)
    return Facts(own_MEO, dosed_MLD, np.stack([level_ME, *apart_MKE.swapaxes(0, 1)[:2]], axis=2), course.static_MV)


@dataclass(frozen=True)
class Basis:
    """Which columns a data set has, by its numbers of variables, factors and statics."""

    variables: int
    factors: int
    statics: int

    @classmethod
    def of(cls, schema: PanelSchema, scales: Scales) -> Self:
        """Return the columns of a data set."""
        return cls(len(scales.kinds), dose_table(schema.treatments).shape[1], len(schema.statics))

    @property
    def others(self) -> int:
        """Return B."""
        return self.variables - 1

    @property
    def pairs(self) -> bool:
        """Return whether factors and others have columns together."""
        return 0 < self.factors * self.others <= MOST_PAIRS

    @property
    def few_doses(self) -> bool:
        """Return whether factors have features."""
        return self.factors <= MOST_DOSES

    @property
    def few_others(self) -> bool:
        """Return whether others have features."""
        return self.others <= MOST_OTHERS

    @property
    def by_static(self) -> bool:
        """Return whether doses and statics have products."""
        return self.factors * self.statics <= MOST_STATIC

    @cached_property
    def _parts(self) -> list[tuple[str, int, int]]:
        """Return the prior of each run of columns, how often it is repeated, and the group of the first, in order."""
        doses, others = self.factors, self.others
        parts = [("intercept", 1, FREE), ("own", 1, 0), ("own.learned", 1, 1)]
        of_dose = ["dose", "dose.level", *(["dose.learned"] if self.few_doses else [])]
        of_other = ["other", *(["other.learned"] if self.few_others else [])]
        parts += [(name, 1, 2 + 3 * i + j) for i in range(doses) for j, name in enumerate(of_dose)]
        first = 2 + 3 * doses
        parts += [(name, 1, first + 2 * i + j) for i in range(others) for j, name in enumerate(of_other)]
        first += 2 * others
        if self.pairs:
            parts += [
                (name, 1, first + 2 * i + j)
                for i in range(doses)
                for _ in range(others)
                for j, name in enumerate(("pair", "pair.learned"))
            ]
            first += 2 * doses
        parts += [("static", self.statics, first)] if self.statics else []
        parts += [("dose.static", doses * self.statics, first + 1)] if self.by_static and self.statics else []
        if self.few_doses and doses > 1:
            parts += [("doses", doses * (doses - 1) // 2, first + 2)]
        return parts

    @cached_property
    def width(self) -> int:
        """Return P."""
        return sum(PRIORS[name] * times for name, times, _ in self._parts)

    @cached_property
    def group_P(self) -> NDArray[np.int64]:
        """Return the group of each column, whose scale the data set decides; `FREE` for none."""
        groups = np.concatenate([np.full(PRIORS[name] * times, group) for name, times, group in self._parts])
        _, dense_P = np.unique(groups, return_inverse=True)  # the free group, which is first, becomes 0
        return np.asarray(dense_P - 1, dtype=np.int64)

    def prior(self, log_sd: Mapping[str, Arrays], xp: Any) -> Arrays:  # noqa: ANN401
        """Return the logarithm of each weight's prior sd `[P]`, in sds of the noise."""
        return xp.concatenate([log_sd[name] for name, times, _ in self._parts for _ in range(times)])

    @property
    def own_effects(self) -> int:
        """Return K."""
        return 3 + 3 * self.factors if self.factors <= MOST_OWN else 3

    def own_prior(self, log_sd: Mapping[str, Arrays], xp: Any) -> Arrays:  # noqa: ANN401
        """Return the logarithm of the sd `[K]` of what subjects have of their own, in sds of the noise."""
        of_doses = [log_sd["subject.dose"][i : i + 1] for i in range(3) for _ in range(self.factors)]
        return xp.concatenate([log_sd["subject"], *(of_doses if self.factors <= MOST_OWN else [])])

    def columns(self, facts: Facts, e: int, learned: Mapping[str, Function], xp: Any) -> tuple[Arrays, Arrays]:  # noqa: ANN401
        """Return the columns `[M,P]` of a variable, and those that subjects differ in `[M,K]`."""
        own_MO, dosed_MLD, static_MV = facts.own[:, e], facts.dosed, facts.static
        m, doses, others = len(own_MO), self.factors, self.others
        level_M1 = own_MO[:, LEVEL : LEVEL + 1]
        one_M1 = xp.ones_like(level_M1)
        found = [one_M1, own_MO[:, :STATED], learned["own"](own_MO)]
        if doses:
            parts = [dosed_MLD, dosed_MLD * level_M1[:, None]]
            if self.few_doses:
                parts.append(learned["dose"](xp.concatenate([_spread(own_MO, doses, xp), dosed_MLD], -1)))
            found.append(xp.concatenate(parts, -1).reshape(m, -1))
        if others:
            other_MBO = xp.concatenate([facts.other[:, :e], facts.other[:, e + 1 :]], 1)
            parts = [other_MBO]
            if self.few_others:
                parts.append(learned["other"](xp.concatenate([_spread(own_MO, others, xp), other_MBO], -1)))
            found.append(xp.concatenate(parts, -1).reshape(m, -1))
            if self.pairs:
                every_MLBO = _spread(other_MBO, doses, xp)
                dosed_MLBD = xp.swapaxes(_spread(dosed_MLD, others, xp), 1, 2)
                own_MLBO = _spread(_spread(own_MO[:, :3], others, xp), doses, xp)
                product_MLB2 = dosed_MLBD[..., :2] * every_MLBO[..., :1]
                read = xp.concatenate([own_MLBO, dosed_MLBD, every_MLBO], -1)
                found.append(xp.concatenate([product_MLB2, learned["pair"](read)], -1).reshape(m, -1))
        if self.statics:
            found.append(static_MV)
            if self.by_static:
                found.append((dosed_MLD[:, :, :1] * static_MV[:, None]).reshape(m, -1))
        if self.few_doses and doses > 1:
            first, second = np.triu_indices(doses, 1)
            both = xp.concatenate([dosed_MLD[:, first, :1], dosed_MLD[:, first, 2:3]], -1) * dosed_MLD[:, second, :1]
            found.append(both.reshape(m, -1))
        differ = [one_M1, level_M1, own_MO[:, DRIFT : DRIFT + 1]]
        if doses <= MOST_OWN:
            differ += [dosed_MLD[:, :, 0], dosed_MLD[:, :, 2], dosed_MLD[:, :, 0] * level_M1]
        return xp.concatenate(found, -1), xp.concatenate(differ, -1)


PRIORS: Final[Mapping[str, int]] = {  # how many columns each kind has
    "intercept": 1,
    "own": STATED,
    "own.learned": LEARNED["own"][1],
    "dose": DOSED,
    "dose.level": DOSED,
    "dose.learned": LEARNED["dose"][1],
    "other": OTHER,
    "other.learned": LEARNED["other"][1],
    "pair": 2,
    "pair.learned": LEARNED["pair"][1],
    "static": 1,
    "dose.static": 1,
    "doses": 2,
}


def _spread(rows: Arrays, times: int, xp: Any) -> Arrays:  # noqa: ANN401
    """Return `[M,times,...]`: each row so many times."""
    return xp.broadcast_to(rows[:, None], (len(rows), times, *rows.shape[1:]))


def network(weights: Mapping[str, Floats]) -> dict[str, Function]:
    """Return the functions of the features, of three layers each, in single precision: they take most of the time."""

    def of(name: str) -> Function:
        layers = [[weights[f"{name}.{i}.{kind}"].astype(np.float32) for kind in ("weight", "bias")] for i in range(3)]

        def features(x: Floats) -> Floats:
            rows, (last, last_bias) = x.reshape(-1, x.shape[-1]), layers[-1]
            found = np.empty((len(rows), len(last_bias)))
            for first in range(0, len(rows), CACHED):
                made = rows[first : first + CACHED].astype(np.float32)
                for weight, bias in layers[:-1]:
                    made = made @ weight.T
                    made += bias
                    fallen = np.exp(-made)
                    fallen += 1
                    made /= fallen
                found[first : first + CACHED] = np.tanh(made @ last.T + last_bias)
            return found.reshape(*x.shape[:-1], -1)

        return features

    return {name: of(name) for name in LEARNED}
