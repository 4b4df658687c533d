"""What is asked: plans of treatment by name, of everybody or of each subject, and plans as people read them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from costar_cli.data import PanelSchema, TreatmentEncoding, Values
from costar_cli.data.calendar import Date
from costar_cli.data.schema import step_word
from costar_cli.errors import UsageError
from costar_cli.plans.rule import PlanRule, PlanShift

MOST_PAIRS: Final = 1_000_000  # of a subject and a plan, in one request


@dataclass(frozen=True, eq=False, slots=True)
class TreatmentPlan:
    """A named sequence of treatments: `values [steps, names]` as in `TreatmentEncoding`, levels and doses."""

    name: str
    values: Values

    def __len__(self) -> int:
        return int(self.values.shape[0])


AnyPlan = TreatmentPlan | PlanRule | PlanShift


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What a file of plans asks: one or several plans, and the origin unless the subject's last step is meant.

    `by_subject` has the plans of each subject by its name, where a table gives each its own; there are no `plans` then.
    """

    plans: tuple[AnyPlan, ...]
    origin: int | Date | None = None
    by_subject: Mapping[str, tuple[TreatmentPlan, ...]] = field(default_factory=dict)

    @property
    def horizon(self) -> int:
        """Return the number of steps of the longest plan."""
        return max(len(plan) for plan in chain(self.plans, *self.by_subject.values()))

    @property
    def fixed(self) -> tuple[TreatmentPlan, ...]:
        """Return the plans, none of which is a rule or a shift.

        Raises:
            UsageError: one is.
        """
        rules = [plan.name for plan in self.plans if not isinstance(plan, TreatmentPlan)]
        if rules:
            fix = "write its steps, or ask about one subject"
            raise UsageError(
                f"plan {rules[0]!r} depends on the subject: it is not answered here", where="--plan", fix=fix
            )
        return tuple(plan for plan in self.plans if isinstance(plan, TreatmentPlan))

    def of(self, subject: str) -> "PlanRequest":
        """Return what is asked about one subject.

        Raises:
            UsageError: the table of plans has none for it.
        """
        if not self.by_subject:
            return self
        if subject not in self.by_subject:
            fix = "add rows for it, or leave the column `subject` out: then the plans are everybody's"
            raise UsageError(f"the table of plans has none for subject {subject}", where="--plan", fix=fix)
        return PlanRequest(self.by_subject[subject], self.origin)


def in_words(schema: PanelSchema, values: ArrayLike, origin: int) -> str:
    """Return what a plan `[steps,names]` gives and when: `day 30-31 chemotherapy, then none`.

    The levels of a single treatment that is never just off or on stand behind its name: `dose: day 30-31 2, then 0`.
    """
    given, names = [schema.treatments.describe(row) for row in np.asarray(values)], schema.treatments.all_names
    named = len(names) == 1 and all(what.startswith(f"{names[0]}=") for what in given)
    given = [what.removeprefix(f"{names[0]}=") for what in given] if named else given
    course = spans(given, origin)
    if len(course) > 1:
        course[-1] = f"then {given[-1]}"
    return f"{f'{names[0]}: ' if named else ''}{step_word(schema.step)} {', '.join(course)}"


def spans(steps: Sequence[str], origin: int) -> list[str]:
    """Return what each run of equal steps is, and when: `30-31 chemotherapy`, `32 none`."""
    told, step = [], origin
    for what, run in groupby(steps):
        count = len(list(run))
        told.append(f"{step if count == 1 else f'{step}-{step + count - 1}'} {what}")
        step += count
    return told


def steps_by_name(encoding: TreatmentEncoding, values: ArrayLike) -> list[dict[str, str]]:
    """Return the treatments `[steps,names]` of a plan by name, with the names of their levels, or as numbers."""
    n, told = len(encoding.names), []
    for row in np.asarray(values).tolist():
        step = {name: of[int(value)] for name, of, value in zip(encoding.names, encoding.levels, row[:n], strict=True)}
        told.append(step | {dose.name: f"{value:.6g}" for dose, value in zip(encoding.doses, row[n:], strict=True)})
    return told
