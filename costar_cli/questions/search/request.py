"""What is searched, checked against a model: objective, constraints, doses, length, reference and visits of plans."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from costar_cli.config.requests import SearchWords
from costar_cli.data import TreatmentEncoding
from costar_cli.data.schema import steps_axis
from costar_cli.data.visits import elapsed_dose
from costar_cli.errors import UsageError
from costar_cli.methods.base import FittedModel
from costar_cli.plans import TreatmentPlan
from costar_cli.plans.doses import named_doses
from costar_cli.plans.untrusted import Problems
from costar_cli.questions.search.candidates import WIDTH_OF_MANY, Candidates, list_of_plans, no_treatment, usual_amounts
from costar_cli.questions.search.constraints import FEW, Constraints, Given
from costar_cli.questions.search.objective import Objective
from costar_cli.questions.search.scoring import DRAWS_OF_MANY, SHORT_OF_MANY, SearchQuestion

NO_DOSES: Final = "leave --levels out: treatments with levels have all of them tried"


@dataclass(frozen=True)
class SearchRequest(SearchWords):
    """What is searched, with the plans read."""

    only_from: tuple[TreatmentPlan, ...] | None = None
    reference: TreatmentPlan | None = None

    @property
    def named(self) -> tuple[TreatmentPlan, ...]:
        """Return the plans that somebody named."""
        return (*(self.only_from or ()), *([self.reference] if self.reference else ()))

    def question(self, model: FittedModel, *, many: bool = False) -> SearchQuestion:
        """Return the question that a model is asked, of `many` subjects with fewer draws for each.

        Raises:
            UsageError: all that is wrong with it, or constraints that no plan meets.
        """
        problems, encoding, steps = Problems(), model.schema.treatments, self.steps
        if self.only_from is not None:
            steps = list_of_plans(self.only_from, steps, problems) or len(self.only_from[0])
        if steps is not None and not 1 <= steps <= model.horizon:
            problems.add(f"plans of {steps} steps; the model answers 1 to {model.horizon}", fix="change --steps")
        steps = steps or model.horizon
        steps = min(max(steps, 1), model.horizon) if self.only_from is None else steps
        objective = Objective.parse(
            model.schema, steps, problems, minimise=self.minimise, maximise=self.maximise, cost=self.cost
        )
        constraints = Constraints.parse(
            encoding, problems, at_most=self.at_most, at_least=self.at_least,
            not_consecutive=self.not_consecutive, not_with=self.not_with, only=self.only_from,
        )  # fmt: skip
        costs = ((f"--cost {cost.given.name!r}", cost.given) for cost in objective.costs)
        amounts = self._amounts(encoding, [*constraints.given, *costs], problems)
        if not 0 < self.level < 1:
            problems.add(
                f"level {self.level:g} is not above 0 and below 1", fix="choose one between 0 and 1, such as 0.9"
            )
        if self.beam is not None and self.beam < 1:
            problems.add(f"a beam of width {self.beam}", fix="give --beam a number from 1")
        idle = no_treatment(encoding, steps)
        if idle is not None and self.only_from is not None:
            idle = seen_like(idle, self.only_from[0], encoding)  # its outcomes are seen when those of the others are
        if (reference := self.reference or idle) is None:
            problems.add("this data set has no plan without treatment to compare with", fix="give --reference a plan")
        else:
            if len(reference) != steps:
                problem = f"the reference plan has {len(reference)} steps, and plans have {steps}"
                problems.add(problem, fix="give as many")
            usual = TreatmentPlan("others", np.tile(encoding.idle, (steps, 1)))
            check_times([*(self.only_from or (usual,)), reference], objective, encoding, problems)
        problems.raise_any("the search does not fit", where="`costar search`", fix=problems.fix)
        assert reference is not None  # noqa: S101 - it was a problem
        candidates = Candidates.of(
            model, constraints, steps, unsupported=self.unsupported, width=self.beam, amounts=amounts
        )
        asked = SearchQuestion(objective, candidates, reference, self.level, self.by, self.unsupported)
        if not many:
            return asked
        narrow = replace(candidates, width=self.beam or WIDTH_OF_MANY)
        return replace(asked, candidates=narrow, short=SHORT_OF_MANY, draws=DRAWS_OF_MANY, many=True)

    def _amounts(
        self, encoding: TreatmentEncoding, asked: Sequence[tuple[str, Given]], problems: Problems
    ) -> dict[str, list[float]]:
        """Return the named doses to choose from; it is a problem if no plan gives an amount that is `asked` about."""
        named: dict[str, list[float]] = {}
        for text in self.levels:
            try:
                dose, values = named_doses(text, encoding, where="--levels", fewest=1, without=NO_DOSES)
            except UsageError as error:
                problems.add(f"--levels: {error.problem}", fix=error.fix or "")
                continue
            if dose.name in named:
                problems.add(f"--levels: {dose.name} is named twice", fix="name all its doses at once")
            named[dose.name] = values
        if self.levels and self.only_from is not None:
            problems.add("--levels and --only-from both say what to choose from", fix="leave one of them out")
        for text, given in asked if len(named) == len(self.levels) else ():
            if not given.dose or given.level is None:
                continue
            dose = encoding.doses[given.treatment - len(encoding.names)]
            listed = {value for plan in self.only_from or () for value in plan.values[:, given.treatment].tolist()}
            there_are = sorted(listed or named.get(dose.name) or usual_amounts(dose))
            if not given.among(np.array(there_are)).any():
                others = "" if listed or dose.elapsed else "; others: --levels"
                shown = ", ".join(map(dose.text, there_are[:FEW])) + ", ..." * (len(there_are) > FEW)
                fix = f"choose one of {shown}{others}"
                problems.add(f"{text}: no plan of this search gives {dose.name} {dose.text(given.level)}", fix=fix)
        return named


def seen_like(plan: TreatmentPlan, other: TreatmentPlan, encoding: TreatmentEncoding) -> TreatmentPlan:
    """Return a plan with the visits of another one, where visits are at any time and both have as many."""
    dose = elapsed_dose(encoding)
    if dose is None or len(plan) != len(other):
        return plan
    values, place = plan.values.copy(), encoding.all_names.index(dose.name)
    values[:, place] = other.values[:, place]
    return replace(plan, values=values)


def check_times(
    plans: Sequence[TreatmentPlan], objective: Objective, encoding: TreatmentEncoding, problems: Problems
) -> None:
    """Add a problem where what is read of plans of the same length is seen at different times (spec SEARCH-9)."""
    dose = elapsed_dose(encoding)
    if dose is None or len({len(plan) for plan in plans}) != 1:
        return
    place = encoding.all_names.index(dose.name)
    time_PH = np.cumsum([plan.values[:, place] for plan in plans], axis=1)
    for step in objective.read:
        time_P = time_PH[:, step]
        other = int(np.abs(time_P - time_P[0]).argmax())
        if not np.isclose(time_P[other], time_P[0], rtol=1e-6):
            seen = " and ".join(f"{time_P[p]:.6g} {steps_axis(dose.unit)} ({plans[p].name})" for p in (0, other))
            problem = f"step {step + 1} of plans is seen after {seen}, and outcomes of different times do not compare"
            problems.add(problem, fix="give all plans, the reference too, the same time until that step")
            return
