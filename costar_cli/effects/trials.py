"""Subjects followed from time zero: what was known, given and measured at each step (spec EFFECT-1 and 2).

`M` counts trials, a subject from one origin each; `H` steps after it, `K` decisions, `P` columns of a history, `Q`
quantities that are measured.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, PanelSchema, Values
from costar_cli.plans import IndexTimes
from costar_cli.plans.rule import PLANNED, STEP, Course, Options

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RECENT: Final = 2  # earlier steps that stand in a history of their own; those before count in its means
ANY_EVENT: Final = "any event"
CLIP: Final = 8.0  # sds beyond which a value of a history is taken as that many: one slip must not decide a regression


class Regime(Protocol):
    """What decides about treatments: a plan, or how trials assign one."""

    @property
    def name(self) -> str:
        """Return what it is called."""
        ...

    @property
    def window(self) -> int:
        """Return how many earlier steps decisions read."""
        ...

    @property
    def reads_natural(self) -> bool:
        """Return whether decisions depend on the treatment that would be given anyway."""
        ...

    def __len__(self) -> int: ...

    def options(self, step: int, course: Course) -> Options:
        """Return what may be given at a step, from 0, and how likely."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class Target:
    """What effects are measured on, `[M,H,Q]` after each step, and who is followed until then.

    Attributes:
        names: of the quantities.
        kinds: of each: `continuous`, `binary`, `count` or `event`, whether it has come by then.
        value_MHQ: 0 where it was not measured.
        measured_MHQ: where it was.
        kept_MK: whether a trial is still followed after decision k.
        settled_MK: whether all later values are known before decision k is made, as those of events are after one.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    value_MHQ: Floats
    measured_MHQ: Bools
    kept_MK: Bools
    settled_MK: Bools

    def only(self, names: Collection[str]) -> "Target | None":
        """Return the target of some quantities, all of no names; None of those that it does not have, or of none.

        Several events stay together: the risk of one depends on the others.
        """
        if not self.names:  # outcomes of data with events alone
            return None
        if not names or (self.kinds[0] == "event" and {*self.names, ANY_EVENT} & {*names}):
            return self
        at = [q for q, name in enumerate(self.names) if name in names]
        chosen = tuple(self.names[q] for q in at), tuple(self.kinds[q] for q in at)
        value_MHQ, measured_MHQ = self.value_MHQ[..., at], self.measured_MHQ[..., at]
        return Target(*chosen, value_MHQ, measured_MHQ, self.kept_MK, self.settled_MK) if at else None


@dataclass(frozen=True, eq=False)
class Trials:
    """Trials of so many steps: subject `subject_M` of the panel from row `origin_M` on.

    Attributes:
        schema: what columns mean.
        panel: the subjects.
        subject_M: rows of the panel.
        origin_M: the step of each at which the first decision is made.
        steps: decisions of a plan, H.
        extra_NE: further columns of subjects that histories hold, such as the domain.
        left_out: covariates that no regression sees: known probabilities of treatment, which tell nothing else.
    """

    schema: PanelSchema
    panel: Panel
    subject_M: Ints
    origin_M: Ints
    steps: int
    extra_NE: Floats | None = field(default=None, repr=False)
    left_out: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.subject_M)

    @cached_property
    def unit_M(self) -> Ints:
        """Return the unit of sampling that each trial belongs to, counted from 0: its subject's cluster, or itself."""
        unit_N = np.arange(self.panel.n_subjects) if self.panel.cluster is None else self.panel.cluster
        return np.asarray(np.unique(unit_N[self.subject_M], return_inverse=True)[1], dtype=np.int64)

    @property
    def units(self) -> int:
        """Return the number of units of sampling."""
        return int(self.unit_M.max(initial=-1)) + 1

    def folds(self, count: int, seed: int) -> Ints:
        """Return the part `[M]`, of so many, that each trial is in: all trials of a unit are in one."""
        return np.asarray((np.random.default_rng(seed).permutation(self.units) % count)[self.unit_M], dtype=np.int64)

    @cached_property
    def row_MK(self) -> Ints:
        """Return the rows at which decisions are made, within the panel also where a series has ended."""
        return np.asarray(np.minimum(self._after(0), self.panel.n_steps - 1))

    @cached_property
    def _last_M(self) -> Ints:
        last_M: Ints = self.panel.length[self.subject_M] - 1
        return last_M

    @cached_property
    def ended_M(self) -> Ints:
        """Return the code of the terminal event that each subject's series ends with; 0 where it ends with none."""
        ends_M = self.panel.ends[self.subject_M]
        return np.asarray(np.where(np.isin(ends_M, list(self.schema.terminal)), ends_M, 0))

    def _after(self, first: int) -> Ints:
        """Return the rows `[M,H]` from so many steps after the origin on, which may be beyond a series."""
        rows_MH: Ints = self.origin_M[:, None] + first + np.arange(self.steps)
        return rows_MH

    @cached_property
    def decided_MK(self) -> Bools:
        """Return where a decision is made: the row is there, and the series has not ended with an event there."""
        at_MK = self._after(0)
        last_M1, ended_M1 = self._last_M[:, None], self.ended_M[:, None] > 0
        return np.asarray((at_MK < last_M1) | ((at_MK == last_M1) & ~ended_M1))

    @cached_property
    def records_last(self) -> bool:
        """Return whether data have the treatment of the last row of a series that is lost, after which nothing is seen.

        Series that the panel cuts go on, and have it in any case.
        """
        lost_N = (self.panel.length < self.panel.n_steps) & ~np.isin(self.panel.ends, list(self.schema.terminal))
        last_LA = self.panel.treatments[lost_N, self.panel.length[lost_N] - 1]
        return bool((self.schema.treatments.decode(last_LA) != self.schema.treatments.idle).any())

    def outcomes(self) -> Target:
        """Return the measured outcomes; a series that ends, however it does, is one that is no longer followed.

        Effects on them are those in a population in which nobody's series had ended.
        """
        at_MH = self._after(1)
        there_MH = (at_MH < self._last_M[:, None]) | ((at_MH == self._last_M[:, None]) & (self.ended_M[:, None] == 0))
        row_MH = np.minimum(at_MH, self.panel.n_steps - 1)
        seen_MHY = self.panel.observed_outcomes[self.subject_M[:, None], row_MH] & there_MH[..., None]
        value_MHY = self.panel.outcomes[self.subject_M[:, None], row_MH].astype(np.float64)
        outcomes = self.schema.outcomes
        return Target(
            tuple(outcome.name for outcome in outcomes), tuple(outcome.kind for outcome in outcomes),
            np.where(seen_MHY, value_MHY, 0.0), seen_MHY, there_MH, np.zeros_like(there_MH),
        )  # fmt: skip

    def events(self) -> Target | None:
        """Return whether each terminal event has come by each step; None where series have no such ends."""
        codes = list(self.schema.terminal)
        if not codes:
            return None
        at_MH = self._after(1)
        over_MH = (self.ended_M[:, None] > 0) & (at_MH >= self._last_M[:, None])
        there_MH = (at_MH <= self._last_M[:, None]) | over_MH
        come_MHQ = over_MH[..., None] & (self.ended_M[:, None, None] == np.array(codes))
        settled_MK = (self.ended_M[:, None] > 0) & (self._after(0) >= self._last_M[:, None])
        return Target(
            tuple(self.schema.terminal.values()), ("event",) * len(codes), come_MHQ.astype(np.float64),
            np.repeat(there_MH[..., None], len(codes), axis=2), there_MH, settled_MK,
        )  # fmt: skip

    @cached_property
    def _history_NTP(self) -> tuple[NDArray[np.float32], tuple[str, ...], int]:
        """Return what is known at each row before its treatment is given, standardised, the names, and how many of
        the first columns are of that row.

        Outcomes and covariates at the row, at the one before, and their mean so far; treatments at the two rows before
        and their mean; statics; how far the series has come. What was filled is told by a column of its own.
        """
        panel, seen_NT = self.panel, self.panel.observed
        n, rows = seen_NT.shape
        series = [
            (variable.name, values_NTC[..., i], known_NTC[..., i])
            for variables, values_NTC, known_NTC in (
                (self.schema.outcomes, panel.outcomes, panel.observed_outcomes),
                (self.schema.covariates, panel.covariates, panel.observed_covariates),
            )
            for i, variable in enumerate(variables)
            if variable.name not in self.left_out
        ]
        count_T = np.arange(1, rows + 1)
        now, before, means, flags = [], [], [], []
        for name, value_NT, known_NT in series:
            value = value_NT[seen_NT].astype(np.float64)
            sd = float(value.std()) or 1.0
            z_NT = np.where(seen_NT, np.clip((value_NT - value.mean()) / sd, -CLIP, CLIP), 0.0)
            now.append((name, z_NT))
            lag_NT = np.zeros_like(z_NT)
            lag_NT[:, 1:] = z_NT[:, :-1]
            before.append((f"{name}, 1 before", lag_NT))
            means.append((f"{name}, mean", z_NT.cumsum(axis=1) / count_T))
            if (known_NT | ~seen_NT).all():
                continue
            flags.append((f"{name} measured", known_NT.astype(np.float64)))
        current = len(now)
        given_NTA = self._treatment_columns(panel.treatments)
        doses = []
        for i in range(given_NTA.shape[-1]):
            for lag in range(1, RECENT + 1):
                lag_NT = np.zeros((n, rows))
                lag_NT[:, lag:] = given_NTA[:, :-lag, i]
                doses.append((f"treatment {i + 1}, {lag} before", lag_NT))
            total_NT = np.zeros((n, rows))
            total_NT[:, 1:] = given_NTA[:, :-1, i].cumsum(axis=1) / count_T[:-1]
            doses.append((f"treatment {i + 1}, mean", total_NT))
        statics = [(v.name, _standard(panel.statics[:, i])) for i, v in enumerate(self.schema.statics)]
        extra = [] if self.extra_NE is None else [(f"extra {i}", column) for i, column in enumerate(self.extra_NE.T)]
        fixed = [(name, np.repeat(column[:, None], rows, axis=1)) for name, column in [*statics, *extra]]
        passed = [("row", np.repeat(_standard(np.arange(rows))[None], n, axis=0))]
        columns = [*now, *flags, *before, *means, *doses, *fixed, *passed]
        names = tuple(name for name, _ in columns)
        return np.stack([column for _, column in columns], axis=-1).astype(np.float32), names, current

    @property
    def column_names(self) -> tuple[str, ...]:
        """Return what the columns of histories are called."""
        return self._history_NTP[1]

    @property
    def present(self) -> tuple[int, ...]:
        """Return the places of the columns of every regression: outcomes and covariates at the row, and statics."""
        names, current = self._history_NTP[1:]
        return (*range(current), *range(self._first_fixed, len(names) - 1))

    @property
    def last_given(self) -> tuple[int, ...]:
        """Return the places of the columns of the treatments just before."""
        each, count = RECENT + 1, self.given(0, slice(1)).shape[-1]  # columns of a treatment: steps before, and mean
        return tuple(range(self._first_fixed - each * count, self._first_fixed, each))

    @property
    def _first_fixed(self) -> int:
        """Return the place of the first column of what does not change, which treatments stand before."""
        extra = 0 if self.extra_NE is None else self.extra_NE.shape[1]
        return len(self.column_names) - 1 - len(self.schema.statics) - extra

    def history(self, k: int, rows: NDArray[np.int64] | Bools | slice = slice(None)) -> Floats:
        """Return what was known `[M,P]` before decision k of some trials, standardised over the panel."""
        return self._history_NTP[0][self.subject_M[rows], self.row_MK[rows, k]].astype(np.float64)

    def _treatment_columns(self, encoded: NDArray[np.floating]) -> Floats:
        """Return encoded treatments `[...,da]` without the column of the reference class."""
        columns = encoded.astype(np.float64)
        return columns[..., 1:] if self.schema.treatments.mode == "multiclass" else columns

    def given(self, k: int, rows: NDArray[np.int64] | Bools | slice = slice(None)) -> Floats:
        """Return the columns `[M,A]` of the treatments that were given at decision k."""
        return self._treatment_columns(self.panel.treatments[self.subject_M[rows], self.row_MK[rows, k]])

    def values(self, k: int) -> Values:
        """Return the treatments that were given at decision k as plans call them, `[M,names]`."""
        return self.schema.treatments.decode(self.panel.treatments[self.subject_M, self.row_MK[:, k]])

    def columns_of(self, values_MA: Values) -> Floats:
        """Return the columns of treatments `[...,names]` that a plan gives."""
        return self._treatment_columns(self.schema.treatments.encode(values_MA))

    def course(self, k: int, *, window: int = 1, usual_MA: Values | None = None) -> Course:
        """Return where trials stand when decision k is made.

        Args:
            k: the decision, from 0.
            window: how many earlier steps a plan reads.
            usual_MA: the treatment that would be given anyway; that of the data by default.
        """
        encoding, row_M = self.schema.treatments, self.row_MK[:, k]
        moments = IndexTimes(self.panel, self.subject_M, row_M)
        counted = {STEP: row_M.astype(np.float64), PLANNED: np.full(len(self), float(k + 1))}
        return Course(
            columns=counted | moments.columns(self.schema),
            given_MTA=moments.before(encoding, window),
            usual_MA=self.values(k) if usual_MA is None else usual_MA,
            encoding=encoding,
        )


def _standard(values: Sequence[float] | NDArray[np.number]) -> Floats:
    """Return values less their mean, in sds; zeros where all are equal."""
    array = np.asarray(values, dtype=np.float64)
    return np.asarray((array - array.mean()) / (array.std() or 1.0))
