"""Who enters a study, and when: eligibility, time zero, and how long trials are followed (spec EFFECT-1)."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, PanelSchema
from costar_cli.data.expression import parse_condition
from costar_cli.effects.trials import Floats, Regime, Trials
from costar_cli.errors import UsageError
from costar_cli.plans import Origin
from costar_cli.plans.plan import IndexTimes
from costar_cli.plans.rule import Course, Options, condition_problem, readable

WHEN: Final = "--when"


@dataclass(frozen=True)
class Flow:
    """How many were asked about, and how many entered.

    Attributes:
        subjects: asked about.
        rows: of them, at which a decision could be made.
        eligible: rows at which the condition holds, or the origin is.
        followed: of these, the rows after which the study goes on for as many steps as the plans have.
        trials: that are estimated from.
        units: subjects, or clusters, that they are of.
    """

    subjects: int
    rows: int
    eligible: int
    followed: int
    trials: int
    units: int

    def to_json(self) -> dict[str, int]:
        """Return the counts by name."""
        return {"subjects": self.subjects, "rows": self.rows, "eligible": self.eligible, "followed": self.followed,
                "trials": self.trials, "units": self.units}  # fmt: skip


def enrol(
    schema: PanelSchema,
    panel: Panel,
    steps: int,
    *,
    origin: Origin = 0,
    when: str | None = None,
    once: bool = False,
    extra_NE: Floats | None = None,
    left_out: tuple[str, ...] = (),
    where: str = "--origin",
) -> tuple[Trials, Flow]:
    """Return the trials of a panel: subjects from one origin, or from each row at which a condition holds.

    Args:
        schema: what columns mean.
        panel: the subjects.
        steps: how many decisions plans have.
        origin: the row of each subject at which its trial starts, where no condition is given; `all` is every row.
        when: the condition.
        once: only the first row of each subject at which it holds.
        extra_NE: further columns of subjects.
        left_out: covariates that no regression sees.
        where: what messages call the place where the origin was given.

    Raises:
        UsageError: a condition that is none, reads what there is not, or never holds; no row that the study follows for
            so many steps.
    """
    over_N = np.isin(panel.ends, list(schema.terminal))
    open_NT = panel.observed & ~((np.arange(panel.n_steps) == panel.length[:, None] - 1) & over_N[:, None])
    subject_M, origin_M = np.nonzero(open_NT)
    rows = len(subject_M)
    if when is not None:
        trials = Trials(schema, panel, subject_M, origin_M, 1)
        holds_M = _holding(trials, when)
        if not holds_M.any():
            text = f"`{when}` holds at none of {rows:,} rows of {panel.n_subjects:,} subjects"
            raise UsageError(text, where=WHEN, fix="widen the condition, or ask about more subjects")
        subject_M, origin_M = subject_M[holds_M], origin_M[holds_M]
    elif origin != "all":
        moments = IndexTimes.of(panel, origin, where=where)
        inside = moments.take(~moments.outside_Q)
        inside = inside.take(open_NT[inside.subject_Q, inside.origin_Q])
        subject_M, origin_M = inside.subject_Q.astype(np.int64), inside.origin_Q.astype(np.int64)
    eligible = len(subject_M)
    # A trial that outlasts the study says nothing of its last steps, whoever is in it: that is no loss of follow-up.
    enough_M = origin_M + steps <= panel.n_steps - 1
    if not enough_M.any():
        longest = int(panel.n_steps - 1 - origin_M.min()) if eligible else 0
        problem = f"no trial is followed for {steps} steps: the longest has {longest}"
        problem = problem if eligible else f"no trial starts: no subject is followed up to {origin}"
        fix = "give plans of fewer steps, or an earlier origin"
        raise UsageError(problem, where=WHEN if when is not None else where, fix=fix)
    subject_M, origin_M = subject_M[enough_M], origin_M[enough_M]
    followed = len(subject_M)
    if once:
        first = np.unique(subject_M, return_index=True)[1]
        subject_M, origin_M = subject_M[first], origin_M[first]
    present, row_M = np.unique(subject_M, return_inverse=True)
    kept = panel.take(present).until(int(origin_M.max()) + steps + 1)
    extra_NE = None if extra_NE is None else extra_NE[present]
    trials = Trials(schema, kept, row_M.astype(np.int64), origin_M.astype(np.int64), steps, extra_NE, left_out)
    flow = Flow(panel.n_subjects, rows, eligible, followed, len(trials), trials.units)
    return trials, flow


def _holding(trials: Trials, when: str) -> NDArray[np.bool_]:
    """Return at which trials a condition holds before their first decision."""
    encoding = trials.schema.treatments
    try:
        condition = parse_condition(when, past=encoding.all_names)
    except ValueError as error:
        fix = 'write a condition such as "sofa >= 6 and ventilated in last 1 == 0"'
        raise UsageError(f"`{when}`: {error}", where=WHEN, fix=fix) from None
    if problem := condition_problem(condition, trials.schema, encoding):
        raise UsageError(f"`{when}`: {problem}", where=WHEN, fix=readable(trials.schema, encoding))
    window = max((column.last or 1 for column in condition.columns), default=1)
    course = trials.course(0, window=window)
    holds_M = np.broadcast_to(np.asarray(condition.holds(course.side)), (len(trials),))
    return np.asarray(holds_M, dtype=bool)


@dataclass(frozen=True, eq=False)
class Assigned:
    """A plan as trials assign it: its first decision alone, or with a grace period for its start.

    Attributes:
        plan: what it comes from.
        grace: decisions at which a treatment that the plan begins may still be none.
        initial: whether only the first decision (of those not in grace) is the plan's, and later ones are practice's.
    """

    plan: Regime
    grace: int = 0
    initial: bool = False
    reads_natural: bool = True

    @property
    def name(self) -> str:
        """Return what the plan is called."""
        return self.plan.name

    @property
    def window(self) -> int:
        """Return how many earlier steps decisions read."""
        return max(self.plan.window, self.grace)

    def __len__(self) -> int:
        return len(self.plan)

    def options(self, step: int, course: Course) -> Options:
        """Return what may be given at a step; see `Regime`."""
        chance_KM, values_KMA = self.plan.options(step, course)
        usual_MA, idle = course.usual_MA, np.asarray(course.encoding.idle)
        if self.initial and step > self.grace:
            return np.ones((1, len(usual_MA))), usual_MA[None].copy()
        if step < self.grace:
            started_M = (course.given_MTA[:, course.given_MTA.shape[1] - step :] != idle).any(axis=(1, 2))
            waits_M = ~started_M & (usual_MA == idle).all(axis=1)
            values_KMA = np.where(waits_M[None, :, None], usual_MA, values_KMA)
        return chance_KM, values_KMA
