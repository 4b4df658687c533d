"""What plans a search may choose from: how often, one after another, together, or from a list."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.nearest import did_you_mean
from costar_cli.data import TreatmentEncoding, Values
from costar_cli.data.levels import as_number, find_level, known_levels
from costar_cli.plans import TreatmentPlan
from costar_cli.plans.untrusted import Problems

FEW: Final = 8  # names in a message
SIX_DIGITS: Final = 5e-6
SEPARATORS: Final = re.compile(r"\s*,\s*|\s+and\s+|\s+")


@dataclass(frozen=True, slots=True)
class Given:
    """A treatment of which something is asked: at one level, or at any but its reference; `dose` tells a number."""

    name: str
    treatment: int
    level: float | None = None
    dose: bool = False

    @classmethod
    def find(cls, text: str, encoding: TreatmentEncoding) -> Self | None:
        """Return what `NAME` or `NAME=LEVEL` says, None where there is no such treatment or level."""
        names, n = encoding.all_names, len(encoding.names)
        if text in names:
            return cls(text, names.index(text), dose=names.index(text) >= n)
        name, _, level = text.rpartition("=")
        if name not in names:
            return None
        treatment = names.index(name)
        if treatment >= n:
            number = as_number(level)
            return None if number is None else cls(text, treatment, float(number), dose=True)
        place = find_level(level, encoding.levels[treatment])
        return None if place is None else cls(text, treatment, place)

    def at(self, values: Values) -> NDArray[np.bool_]:
        """Return where it is given, `[...]` of values `[...,names]`."""
        return self.among(values[..., self.treatment])

    def among(self, own: Values) -> NDArray[np.bool_]:
        """Return which of its levels or doses `[...]` are those that are meant; an amount of a dose to six digits."""
        if self.level is None:
            return np.asarray(own != 0)
        return np.isclose(own, self.level, rtol=SIX_DIGITS, atol=0) if self.dose else np.asarray(own == self.level)

    def amount(self, values: Values) -> NDArray[np.float64]:
        """Return how much of it is given, `[...]`: the size of a dose, 1 of anything else."""
        size = np.abs(values[..., self.treatment]) if self.dose and self.level is None else self.at(values)
        return np.asarray(size, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Times:
    """How many steps of a plan may, and must, give something."""

    given: Given
    least: int
    most: int
    text: str


@dataclass(frozen=True, slots=True)
class Constraints:
    """What holds of every plan that a search considers.

    `apart` is never given on consecutive steps, the step before the plan included; `never_with` never at the same step.
    `only` is the list of plans to choose from, where there is one.
    """

    times: tuple[Times, ...] = ()
    apart: tuple[Given, ...] = ()
    never_with: tuple[tuple[Given, Given], ...] = ()
    only: tuple[TreatmentPlan, ...] | None = None

    @classmethod
    def parse(
        cls,
        encoding: TreatmentEncoding,
        problems: Problems,
        *,
        at_most: Sequence[str] = (),
        at_least: Sequence[str] = (),
        not_consecutive: Sequence[str] = (),
        not_with: Sequence[str] = (),
        only: tuple[TreatmentPlan, ...] | None = None,
    ) -> Self:
        """Read constraints as flags give them, such as `chemotherapy 2`; what is wrong is added to the problems."""
        big = np.iinfo(np.int64).max
        times = [(text, f"--at-most {text!r}", _times(text, "--at-most", encoding, problems)) for text in at_most]
        limits = [Times(found[0], 0, found[1], flag) for _, flag, found in times if found]
        times = [(text, f"--at-least {text!r}", _times(text, "--at-least", encoding, problems)) for text in at_least]
        limits += [Times(found[0], found[1], big, flag) for _, flag, found in times if found]
        apart = [given_of(text, "--not-consecutive", encoding, problems) for text in not_consecutive]
        pairs: list[tuple[Given, Given]] = []
        for text in not_with:  # names may have spaces of their own
            cuts = ((text[: cut.start()].strip(), text[cut.end() :].strip()) for cut in SEPARATORS.finditer(text))
            both = ((Given.find(one, encoding), Given.find(other, encoding)) for one, other in cuts)
            words = SEPARATORS.split(text.strip())
            if pair := next(((one, other) for one, other in both if one and other), None):
                pairs.append(pair)
            elif len(words) != 2:
                problems.add(f"--not-with: {text!r} is not two treatments", fix='write --not-with "TREATMENT OTHER"')
            else:
                for word in words:  # one or both are wrong
                    given_of(word, "--not-with", encoding, problems)
        return cls(tuple(limits), tuple(g for g in apart if g), tuple(pairs), only)

    def allowed(self, values_KA: Values) -> NDArray[np.bool_]:
        """Return which treatments of one step nothing forbids, `[K]`."""
        open_K = np.ones(len(values_KA), dtype=bool)
        for one, other in self.never_with:
            both = np.flatnonzero(one.at(values_KA) & other.at(values_KA))
            open_K[both] = False
        return open_K

    def open_first(self, values_KA: Values, before_A: Values | None) -> NDArray[np.bool_]:
        """Return which treatments may be the first, after what was given at the step before the plan."""
        open_K = np.ones(len(values_KA), dtype=bool)
        for given in self.apart if before_A is not None else ():
            if given.at(np.asarray(before_A)):
                open_K &= ~given.at(values_KA)
        return open_K

    def count(self, values_KA: Values, steps: int, first_K: NDArray[np.bool_]) -> int:
        """Return how many plans of so many steps meet all constraints, a list apart.

        Only what constraints see of a plan is followed: how often each thing was given, and what was given last.
        """
        alike = Counter(zip(map(tuple, self.marks(values_KA).tolist()), first_K.tolist(), strict=True))
        n, reached = len(self.times), Counter({((0,) * len(self.times), (False,) * len(self.apart)): 1})
        for step in range(steps):
            after: Counter[tuple[tuple[int, ...], tuple[bool, ...]]] = Counter()
            for (counts, last), ways in reached.items():
                for (marks, first), several in alike.items():
                    if (step == 0 and not first) or any(a and b for a, b in zip(last, marks[n:], strict=True)):
                        continue
                    so_far = tuple(c + m for c, m in zip(counts, marks[:n], strict=True))
                    limits = zip(self.times, so_far, strict=True)  # which a plan with some steps left can still meet
                    if all(limit.least - (steps - step - 1) <= count <= limit.most for limit, count in limits):
                        after[so_far, tuple(marks[n:])] += ways * several
            reached = after
        return sum(reached.values())

    def marks(self, values_KA: Values) -> NDArray[np.bool_]:
        """Return what constraints see of the treatments of a step, `[K, times + apart]`."""
        seen = [*(limit.given for limit in self.times), *self.apart]
        return np.array([given.at(values_KA) for given in seen], dtype=bool).reshape(len(seen), len(values_KA)).T

    def plans(self, values_KA: Values, steps: int) -> NDArray[np.uint16]:
        """Return every plan that meets all constraints, a list and the step before apart, `[P,steps]`.

        Plans are rows of treatments: places in `values_KA`. Beginnings that no plan can continue are left out at once.
        """
        plans_PH, marks_KM = np.zeros((1, 0), dtype=np.uint16), self.marks(values_KA)
        for _ in range(steps):
            plans_PH = self.extended(plans_PH, marks_KM, steps)
        return plans_PH

    def extended(self, plans_PH: NDArray[np.uint16], marks_KM: NDArray[np.bool_], steps: int) -> NDArray[np.uint16]:
        """Return the beginnings, one step longer, that plans of so many steps may have."""
        p, k = len(plans_PH), len(marks_KM)
        longer = np.empty((p, k, plans_PH.shape[1] + 1), dtype=np.uint16)
        longer[..., :-1], longer[..., -1] = plans_PH[:, None], np.arange(k)
        longer = longer.reshape(p * k, -1)
        return longer[self.fits(longer, marks_KM, steps)]

    def fits(self, plans_PH: NDArray[np.uint16], marks_KM: NDArray[np.bool_], steps: int) -> NDArray[np.bool_]:
        """Return which beginnings of plans can become plans that meet all constraints, `[P]`."""
        open_P, n, left = np.ones(len(plans_PH), dtype=bool), len(self.times), steps - plans_PH.shape[1]
        for i, limit in enumerate(self.times):
            count_P = marks_KM[plans_PH, i].sum(axis=1)
            open_P &= (count_P <= limit.most) & (count_P >= limit.least - left)
        for i in range(n, marks_KM.shape[1]):
            given_PH = marks_KM[plans_PH, i]
            open_P &= ~(given_PH[:, 1:] & given_PH[:, :-1]).any(axis=1)
        return open_P

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the constraints as flags; a list of plans is none."""
        return tuple(text for text, _ in self._parts())

    def _parts(self) -> "Iterator[tuple[str, Constraints]]":
        """Yield each constraint alone, after its flag."""
        yield from ((limit.text, Constraints(times=(limit,))) for limit in self.times)
        yield from ((f"--not-consecutive {given.name!r}", Constraints(apart=(given,))) for given in self.apart)
        for a, b in self.never_with:
            yield f"--not-with '{a.name} {b.name}'", Constraints(never_with=((a, b),))

    @property
    def given(self) -> Iterator[tuple[str, Given]]:
        """Yield what the constraints are about, after their flags."""
        for text, part in self._parts():
            alone = (*(limit.given for limit in part.times), *part.apart, *chain(*part.never_with))
            yield from ((text, given) for given in alone)

    def contradictions(self, values_KA: Values, steps: int, before_A: Values | None) -> Iterator[str]:
        """Yield the constraints that together leave no plan, as flags: one that could go without others is left out."""
        parts = list(self._parts())
        needed = list(parts)
        for part in parts:
            without = [other for other in needed if other is not part]
            rest = [one for _, one in without]
            joined = Constraints(
                tuple(limit for one in rest for limit in one.times),
                tuple(given for one in rest for given in one.apart),
                tuple(pair for one in rest for pair in one.never_with),
            )
            open_KA = values_KA[joined.allowed(values_KA)]
            if not joined.count(open_KA, steps, joined.open_first(open_KA, before_A)):
                needed = without
        yield from (text for text, _ in needed)


def given_of(text: str, flag: str, encoding: TreatmentEncoding, problems: Problems) -> Given | None:
    """Return the treatment that a flag names; where there is none, the problem says which there are."""
    found = Given.find(text.strip(), encoding)
    if found is None:
        name, _, level = text.strip().rpartition("=")
        names = encoding.all_names
        known = f"treatments are {', '.join(names[:FEW])}" + ", ..." * (len(names) > FEW)
        if name in names[len(encoding.names) :]:
            problems.add(f"{flag}: {name} cannot be {level!r}: a dose is a number", fix=f'write {flag} "{name}=5"')
        elif name in names:
            levels = encoding.levels[encoding.names.index(name)]
            near = did_you_mean(level, levels, lead="; ", quoted=True)
            problems.add(f"{flag}: {name} has no level {level!r}{near}", fix=f"{name} takes {known_levels(levels)}")
        else:
            near = did_you_mean(text.strip(), names, lead="; ", quoted=True)
            problems.add(f"{flag}: there is no treatment {text.strip()!r}{near}", fix=known)
    return found


def _times(text: str, flag: str, encoding: TreatmentEncoding, problems: Problems) -> tuple[Given, int] | None:
    """Return what a limit such as `chemotherapy 2` says."""
    name, _, number = text.strip().rpartition(" ")
    if not name or not number.isdecimal() or len(number) > len("1000"):
        problems.add(f"{flag}: {text!r} is not a treatment and a number of steps", fix=f'write {flag} "TREATMENT 2"')
        return None
    found = given_of(name, flag, encoding, problems)
    return None if found is None else (found, int(number))
