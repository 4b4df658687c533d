"""What training subjects were given: the combinations of treatments that occur, and whether a treatment ever stops."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Final, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.findings import shown
from costar_cli.data.panel import Panel
from costar_cli.data.schema import PanelSchema, TreatmentEncoding, Values

MOST_KEPT: Final = 4_096  # combinations; of data with more, none is called unseen
WITH_OTHERS: Final = ("others", "part")  # what was given, though never by itself
FEWEST: Final = 20  # steps after a given one that tell whether a treatment stops

LackKind = Literal["never", "apart", "others", "part"]
Given = frozenset[tuple[int, int]]  # treatments and their levels, but references


@dataclass(frozen=True, slots=True)
class Decisions:
    """Levels `[M, names]`, subject rows `[M]` and outcomes `[M,Y]` of the steps that have a next one.

    `given [M, all names]` says which treatments, doses included, were not at their reference. They are sorted by
    subject and step.
    """

    values: NDArray[np.int64]
    given: NDArray[np.bool_]
    subject: NDArray[np.int64]
    outcomes: NDArray[np.float32]

    @classmethod
    def of(cls, panel: Panel, schema: PanelSchema) -> Self:
        """Return the decisions of a panel."""
        subject, step = np.nonzero(panel.decided)
        values = schema.treatments.decode(panel.treatments[subject, step])
        levels = values[:, : len(schema.treatments.names)].astype(np.int64)
        return cls(levels, values != 0, subject, panel.outcomes[subject, step])


class UnseenTreatment(NamedTuple):
    """What nobody was given, in words, and how near anybody came to it.

    Something of it was `never` given; or all of it was, but `apart`, never at the same step; or only with `others`; or
    it is a `part` of what was always given together.
    """

    what: str
    kind: LackKind

    @property
    def told(self) -> str:
        """Return what nobody was given, as it stands in a list."""
        return f"{self.what} without others" if self.kind in WITH_OTHERS else self.what


@dataclass(frozen=True, slots=True)
class Support:
    """What a model can have learned of treatments, in steps whose outcome is known.

    `seen` are the combinations of levels that were given, None where there are too many to keep. Per treatment or dose,
    `untreated` counts steps at the reference level, `stopped` and `continued` the steps after one at another level that
    went back to the reference and those that did not. `unmeasured` are, of each outcome, the steps of series at which
    no subject has it, though many are there and some have it later: visits at which it is not measured. Empty where
    that is not known.
    """

    seen: frozenset[tuple[int, ...]] | None
    untreated: tuple[int, ...]
    stopped: tuple[int, ...]
    continued: tuple[int, ...]
    unmeasured: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(cls, panel: Panel, schema: PanelSchema) -> Self:
        """Return what the subjects of a panel were given."""
        decisions = Decisions.of(panel, schema)
        given = decisions.given
        after = given[:-1] & (decisions.subject[1:] == decisions.subject[:-1])[:, None]
        rows = np.unique(decisions.values, axis=0)
        # The steps after the first at which nobody has an outcome, of those before the last that somebody has
        has_TY, there_T = panel.targets.any(axis=0), panel.observed.sum(axis=0)
        later_TY = np.flip(np.logical_or.accumulate(np.flip(has_TY, axis=0), axis=0), axis=0)
        lacks_TY = ~has_TY & later_TY & (there_T >= FEWEST)[:, None]
        lacks_TY[:1] = False  # no answer is at the first step
        return cls(
            frozenset(tuple(row) for row in rows.tolist()) if len(rows) <= MOST_KEPT else None,
            _counts(~given),
            _counts(after & ~given[1:]),
            _counts(after & given[1:]),
            (tuple(tuple(np.flatnonzero(lacks_T).tolist()) for lacks_T in lacks_TY.T) if lacks_TY.any() else ()),
        )

    def to_meta(self) -> dict[str, Any]:
        """Return the support as JSON, numbers of levels for their names."""
        return {
            "seen": None if self.seen is None else sorted(map(list, self.seen)),
            "untreated": list(self.untreated),
            "stopped": list(self.stopped),
            "continued": list(self.continued),
            **({"unmeasured": list(map(list, self.unmeasured))} if any(self.unmeasured) else {}),
        }

    def __or__(self, other: "Support") -> "Support":
        """Return the support of both together."""
        both = None if self.seen is None or other.seen is None else self.seen | other.seen
        return Support(
            both if both is None or len(both) <= MOST_KEPT else None,
            _sums(self.untreated, other.untreated),
            _sums(self.stopped, other.stopped),
            _sums(self.continued, other.continued),
            tuple(
                tuple(sorted({*mine} & {*theirs}))
                for mine, theirs in zip(self.unmeasured, other.unmeasured, strict=False)
            ),
        )

    def unmeasured_at(self, step_QH: NDArray[np.integer], outcomes: int) -> NDArray[np.bool_]:
        """Return at which steps of series each of the outcomes is not measured, `[Q,H,Y]`."""
        steps = self.unmeasured or ((),) * outcomes
        return np.stack([np.isin(step_QH, np.array(of, dtype=np.int64)) for of in steps], axis=-1)

    def unseen(self, encoding: TreatmentEncoding) -> list[UnseenTreatment]:
        """Return the classes, or combinations of binary treatments, that nobody was given."""
        every: Sequence[tuple[int, ...]] = encoding.classes
        if not every and prod(map(len, encoding.levels)) <= MOST_KEPT:
            every = [tuple(reversed(row)) for row in product((0, 1), repeat=len(encoding.names))]
        return self._lacks(every, encoding)

    def unseen_in(self, plan: Values, encoding: TreatmentEncoding) -> list[UnseenTreatment]:
        """Return what of a plan `[steps, names]` nobody was given, each once."""
        levels = plan[:, : len(encoding.names)].astype(np.int64)
        return self._lacks(dict.fromkeys(tuple(row) for row in levels.tolist()), encoding)

    def always_together(self, encoding: TreatmentEncoding) -> list[tuple[str, ...]]:
        """Return the treatments of which nobody was given one without the rest, group by group.

        Doses are not checked; the growth model checks them itself (spec MIXED-6).
        """
        size = range(len(encoding.names))
        rows = ([[level * (i == name) for i in size] for name, level in sorted(group)] for group in self._groups())
        return [tuple(map(encoding.describe_levels, group)) for group in rows]

    def _groups(self) -> list[Given]:
        rows_of: dict[tuple[int, int], list[int]] = {}
        for i, row in enumerate(sorted(self.seen or ())):
            for one in _wanted(row):
                rows_of.setdefault(one, []).append(i)
        groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for one, rows in rows_of.items():
            groups.setdefault(tuple(rows), []).append(one)
        return [frozenset(group) for group in groups.values() if len(group) > 1]

    def unseen_steps(self, plan_QHA: NDArray[np.number], encoding: TreatmentEncoding) -> NDArray[np.bool_]:
        """Return which steps of encoded plans give what nobody was given, `[Q,H]`."""
        if self.seen is None:
            return np.zeros(plan_QHA.shape[:2], dtype=bool)
        idle = np.zeros(len(encoding.doses))
        seen_SA = encoding.encode([[*row, *idle] for row in sorted(self.seen)])
        place_A = np.random.default_rng(0).integers(2**63, size=encoding.level_width)  # a number for each combination

        def numbered(given: NDArray[np.number]) -> NDArray[np.int64]:
            return np.asarray(given[..., : encoding.level_width].astype(np.int64) @ place_A)

        return ~np.isin(numbered(plan_QHA), numbered(seen_SA))

    def _lacks(self, rows: Iterable[tuple[int, ...]], encoding: TreatmentEncoding) -> list[UnseenTreatment]:
        lacking = [row for row in rows if row not in self.seen] if self.seen is not None else []
        if not lacking:
            return []
        seen, groups = [_wanted(row) for row in self.seen or ()], self._groups()
        ever: Given = frozenset().union(*seen)
        lacks = []
        for row in lacking:
            wanted = _wanted(row)
            kind: LackKind = "apart"
            if not wanted or not ever >= wanted:
                kind = "never"
            elif any(wanted & group and not wanted >= group for group in groups):
                kind = "part"
            elif any(given > wanted for given in seen):
                kind = "others"
            lacks.append(UnseenTreatment(encoding.describe_levels(row), kind))
        return lacks

    def absorbing(self, encoding: TreatmentEncoding) -> list[str]:
        """Return the treatments that, once started, never stop; one that is always given is none of them."""
        counts = zip(encoding.all_names, self.untreated, self.stopped, self.continued, strict=True)
        return [name for name, untreated, stopped, on in counts if untreated and not stopped and on >= FEWEST]

    def stops(self, before: Values, plan: Values, encoding: TreatmentEncoding) -> Iterator[tuple[str, int]]:
        """Yield each absorbing treatment that a plan stops, and the step of the plan, from 0, at which it does.

        `before [origin,names]` holds the values that were given before the plan, `plan [steps,names]` those of the
        plan.
        """
        course = np.concatenate([before[-1:], plan]) != 0
        late = len(course) - len(plan)
        for i, name in enumerate(encoding.all_names):
            ends = np.flatnonzero(course[:-1, i] & ~course[1:, i])
            if len(ends) and name in self.absorbing(encoding):
                yield name, int(ends[0]) + 1 - late


def never_together(lacks: Sequence[UnseenTreatment], who: str) -> str:
    """Return that the combinations of treatments among `lacks` were never given together; nothing without any."""
    whats = [lack.what for lack in lacks if lack.kind == "apart"]
    which = f"combination {shown(whats)} was" if len(whats) == 1 else f"combinations {shown(whats)} were"
    return f"the {which} never given together to {who}, though each treatment alone or with others was" if whats else ""


def _wanted(row: Sequence[int]) -> Given:
    return frozenset((name, level) for name, level in enumerate(row) if level)


def _counts(where: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(where.sum(axis=0).tolist())


def _sums(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))
