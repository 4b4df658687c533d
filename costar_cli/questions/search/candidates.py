"""Which plans a search considers: all that its constraints allow, or those that a beam reaches (spec SEARCH-2 to 3)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import TreatmentEncoding, Values
from costar_cli.data.dose import Dose
from costar_cli.data.findings import counted
from costar_cli.errors import UsageError
from costar_cli.methods.base import FittedModel
from costar_cli.plans import TreatmentPlan
from costar_cli.plans.untrusted import Problems
from costar_cli.questions.search.constraints import Constraints

MOST_EXHAUSTIVE: Final = 1_000_000
MOST_TREATMENTS: Final = 4_096  # of one step, to choose from
WIDTH: Final = 2_000  # of a beam
WIDTH_OF_MANY: Final = 500  # of the beam for each of many subjects
AMOUNTS: Final = 5  # of a dose, evenly over what was given
DIGITS: Final = 3  # of them
POLISHED: Final = 20  # plans of a beam that are improved step by step

Floats = NDArray[np.float64]
Places = NDArray[np.uint16]
Score = Callable[[Places], Floats]


@dataclass(frozen=True, eq=False)
class Candidates:
    """The treatments `values [K,names]` of a step, and the plans `[P,H]` of their places to choose from.

    Attributes:
        encoding: the treatments that there are.
        values_KA: levels and doses, as in `TreatmentEncoding`.
        steps: H.
        constraints: that all plans meet, but for what depends on the step before the plan.
        plans_PH: places in `values_KA`; None where there are too many, and a beam looks for them.
        possible: how many plans there would be without constraints.
        width: of the beam.
    """

    encoding: TreatmentEncoding
    values_KA: Values
    steps: int
    constraints: Constraints
    plans_PH: Places | None
    possible: int
    width: int

    @classmethod
    def of(
        cls,
        model: FittedModel,
        constraints: Constraints,
        steps: int,
        *,
        unsupported: bool,
        width: int | None = None,
        amounts: Mapping[str, Sequence[float]] | None = None,
    ) -> Self:
        """Return what there is to choose from.

        What no training subject of the model was given is left out, unless `unsupported`. A list of plans is taken as
        it is. `width` asks for a beam, however few plans there are; `amounts` are those of each dose to choose from.

        Raises:
            UsageError: no plan meets the constraints, or there are too many treatments to choose from.
        """
        encoding = model.schema.treatments
        if constraints.only is not None:
            plans = constraints.only
            values_KA, place = np.unique(np.concatenate([plan.values for plan in plans]), axis=0, return_inverse=True)
            every_PH = np.unique(place.reshape(len(plans), len(plans[0])).astype(np.uint16), axis=0)
            marks_KM, allowed_K = constraints.marks(values_KA), constraints.allowed(values_KA)
            open_P = constraints.fits(every_PH, marks_KM, len(plans[0])) & allowed_K[every_PH].all(axis=1)
            if not open_P.any():
                problem = f"none of the {len(plans):,} plans of the list meets the constraints"
                raise UsageError(problem, where="--only-from", fix="give fewer constraints, or other plans")
            open_PH = every_PH[open_P]
            return cls(encoding, values_KA, len(plans[0]), constraints, open_PH, len(plans), width or WIDTH)
        values_KA = treatments_of_step(model, unsupported=unsupported, amounts=amounts)
        open_KA = values_KA[constraints.allowed(values_KA)]
        count = constraints.count(open_KA, steps, np.ones(len(open_KA), dtype=bool))
        if not count:
            raise contradiction(constraints, values_KA, steps, None)
        plans_PH = constraints.plans(open_KA, steps) if count <= MOST_EXHAUSTIVE and width is None else None
        possible = len(values_KA) ** steps
        return cls(encoding, open_KA, steps, constraints, plans_PH, possible, width or WIDTH)

    @property
    def exhaustive(self) -> bool:
        """Return whether all plans are looked at."""
        return self.plans_PH is not None

    @property
    def treatments_K(self) -> NDArray[np.int64]:
        """Return how many treatments each gives, the time until the next visit apart."""
        return np.asarray(((self.values_KA != 0) & (self.encoding.idle == 0)).sum(axis=1))

    @property
    def nothing(self) -> int | None:
        """Return which gives nothing, or the least of doses that must be given; None where there is none."""
        levels, size_KA = len(self.encoding.names), np.abs(self.values_KA)
        least_A = np.where(np.arange(size_KA.shape[1]) < levels, 0, size_KA.min(axis=0))
        places = np.flatnonzero((size_KA == least_A).all(axis=1))
        return int(places[0]) if len(places) else None

    def after(self, before_A: Values | None, score: Score) -> Places:
        """Return the plans `[P,H]` to choose from for a subject, which `score` makes small where there are too many.

        There, they are those that a beam reaches, what its best become by changes of single steps, and constant plans.

        Args:
            before_A: what the subject was given at the step before the plan; None where there is no such step.
            score: the loss of whole plans.

        Raises:
            UsageError: none is left.
        """
        first_K, plans_PH = self.constraints.open_first(self.values_KA, before_A), self.plans_PH
        if plans_PH is None:
            marks_KM = self.constraints.marks(self.values_KA)
            plans_PH = np.zeros((1, 0), dtype=np.uint16)
            for step in range(self.steps):
                plans_PH = self.constraints.extended(plans_PH, marks_KM, self.steps)
                plans_PH = plans_PH if step else plans_PH[first_K[plans_PH[:, 0]]]
                if step < self.steps - 1 and len(plans_PH) > self.width:
                    plans_PH = plans_PH[np.argsort(self._promise(plans_PH, score), kind="stable")[: self.width]]
            if len(plans_PH):
                loss_P = score(plans_PH)
                best = np.argsort(loss_P, kind="stable")[:POLISHED]
                better = [self._polished(plans_PH[i], float(loss_P[i]), marks_KM, first_K, score) for i in best]
                # The data may support none of the plans that a beam prefers: without constant ones 22 of 104 products
                # had no supported plan.
                same_KH = np.repeat(np.arange(len(self.values_KA), dtype=np.uint16)[:, None], self.steps, axis=1)
                same_KH = same_KH[self.constraints.fits(same_KH, marks_KM, self.steps) & first_K]
                plans_PH = np.unique(np.concatenate([plans_PH, *better, same_KH]), axis=0)
        open_PH = plans_PH if first_K.all() else plans_PH[first_K[plans_PH[:, 0]]]
        if not len(open_PH):
            raise contradiction(self.constraints, self.values_KA, self.steps, before_A)
        return open_PH

    def _promise(self, plans_PH: Places, score: Score) -> Floats:
        """Return what beginnings come to if nothing is given after them, or the last treatments go on: the better."""
        left, rest = self.steps - plans_PH.shape[1], [plans_PH[:, -1:]]
        if (nothing := self.nothing) is not None:
            rest.append(np.full_like(plans_PH[:, :1], nothing))
        whole = [np.concatenate([plans_PH, np.repeat(after_P1, left, axis=1)], axis=1) for after_P1 in rest]
        return np.asarray(np.min([score(plans) for plans in whole], axis=0))

    def _polished(
        self, plan_H: Places, loss: float, marks_KM: NDArray[np.bool_], first_K: NDArray[np.bool_], score: Score
    ) -> Places:
        """Return the plan `[1,H]` from which no change of a single step is better."""
        while True:
            near_PH = np.tile(plan_H, (self.steps * len(self.values_KA), 1))
            step_P, place_P = np.divmod(np.arange(len(near_PH)), len(self.values_KA))
            near_PH[np.arange(len(near_PH)), step_P] = place_P
            near_PH = near_PH[self.constraints.fits(near_PH, marks_KM, self.steps) & first_K[near_PH[:, 0]]]
            loss_P = score(near_PH) if len(near_PH) else np.array([np.inf])
            if loss_P.min() >= loss:
                return plan_H[None]
            plan_H, loss = near_PH[loss_P.argmin()], float(loss_P.min())


def treatments_of_step(
    model: FittedModel, *, unsupported: bool, amounts: Mapping[str, Sequence[float]] | None = None
) -> Values:
    """Return what may be given at one step, `[K,names]`: what training subjects received, or all that can be given.

    `amounts` are those of each dose to choose from; others have some over the range of the data (spec SEARCH-9).

    Raises:
        UsageError: that is too much to choose from.
    """
    encoding, support, named = model.schema.treatments, model.record.support, amounts or {}
    if support is not None and support.seen is not None and not unsupported:
        every = sorted(support.seen)
    elif encoding.classes:
        every = list(encoding.classes)
    else:
        if prod(map(len, encoding.levels)) > MOST_TREATMENTS:
            problem = f"{len(encoding.names)} treatments have more than {MOST_TREATMENTS:,} combinations at each step"
            fix = "list the plans to choose from with --only-from"
            raise UsageError(problem, where="`costar search`", fix=fix)
        every = list(product(*(range(len(levels)) for levels in encoding.levels)))
    levels_KA = np.array(every, dtype=np.int64).reshape(len(every), len(encoding.names))
    of_doses = [named.get(dose.name) or usual_amounts(dose) for dose in encoding.doses]
    if len(levels_KA) * prod(map(len, of_doses)) > MOST_TREATMENTS:
        counts = ", ".join(f"{len(of)} of {dose.name}" for dose, of in zip(encoding.doses, of_doses, strict=True))
        fix = "name fewer with --levels" if of_doses else "list the plans to choose from with --only-from"
        beside = f" ({counts})" if counts else ""
        problem = f"there are more than {MOST_TREATMENTS:,} combinations of treatments at each step{beside}"
        raise UsageError(problem, where="`costar search`", fix=fix)
    if not of_doses:
        return levels_KA
    doses_DA = np.array(list(product(*of_doses)))
    both = np.repeat(levels_KA, len(doses_DA), axis=0), np.tile(doses_DA, (len(levels_KA), 1))
    return np.concatenate(both, axis=1)


def usual_amounts(dose: Dose) -> tuple[float, ...]:
    """Return the amounts of a dose that a search chooses from unless others are named (spec SEARCH-9)."""
    if dose.elapsed is not None:
        return (dose.elapsed,)
    if dose.levels:
        return tuple(sorted({0.0, *dose.levels}))
    curved = dose.basis == "log1p"
    low, high = np.log1p([dose.low, dose.high]) if curved else (dose.low, dose.high)
    even = np.linspace(low, high, AMOUNTS)
    amounts = [float(f"{value:.{DIGITS}g}") for value in (np.expm1(even) if curved else even)]
    none = [0.0] if dose.low <= 0 <= dose.high else []
    return tuple(sorted({*np.clip(amounts, dose.low, dose.high).tolist(), *none}))


def contradiction(constraints: Constraints, values_KA: Values, steps: int, before_A: Values | None) -> UsageError:
    """Return the error of constraints that no plan meets, with those that exclude each other."""
    named = list(constraints.contradictions(values_KA, steps, before_A)) or ["the constraints"]
    after = "" if before_A is None else ", after what the subject received last"
    return UsageError(
        f"no plan of {counted(steps, 'step')} meets {' and '.join(named)}{after}",
        where="`costar search`",
        fix="leave one of them out, or change it",
    )


def no_treatment(encoding: TreatmentEncoding, steps: int) -> TreatmentPlan | None:
    """Return the plan that gives nothing at any step; None where that cannot be given."""
    if encoding.classes and (0,) * len(encoding.names) not in encoding.classes:
        return None
    return TreatmentPlan("no treatment", np.tile(encoding.idle, (steps, 1)))


def list_of_plans(plans: tuple[TreatmentPlan, ...], steps: int | None, problems: Problems) -> int | None:
    """Return how many steps a list of plans to choose from has, all of them the same."""
    lengths = sorted({len(plan) for plan in plans})
    if steps is not None and lengths != [steps]:
        has = " and ".join(map(str, lengths))
        problems.add(f"--only-from: plans have {has} steps, not {steps}", fix="leave out --steps")
        return None
    if len(lengths) > 1:
        problems.add(f"--only-from: plans have {', '.join(map(str, lengths))} steps", fix="give plans of equal length")
        return None
    return lengths[0]
