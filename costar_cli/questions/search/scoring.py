"""How plans of one subject are scored, and what decides between them."""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.choices import RankingName
from costar_cli.data import Panel, Plans, Queries, Values
from costar_cli.data.schema import step_word
from costar_cli.data.support import Support
from costar_cli.errors import TrainingError
from costar_cli.inference import (
    Calibration,
    OutcomeFacts,
    PlanSupport,
    PredictFn,
    calibration_of,
    facts_of,
    support_of,
)
from costar_cli.methods.base import FittedModel
from costar_cli.plans import TreatmentPlan
from costar_cli.questions.search.candidates import Candidates, Places
from costar_cli.questions.search.objective import Floats, Objective

BLOCK: Final = 65_536  # plans that are scored at once
SHORT: Final = 64  # plans that are compared by joint draws
SHORT_OF_MANY: Final = 24  # the same for each of many subjects
DRAWS: Final = 1_000
DRAWS_OF_MANY: Final = 200


@dataclass(frozen=True, eq=False, slots=True)
class SearchQuestion:
    """What is searched.

    Attributes:
        objective: what a plan is to make small, or large.
        candidates: the plans to choose from.
        reference: what plans are compared with.
        level: of intervals.
        by: what makes a plan best: its estimate, or the lower or upper limit of its interval.
        unsupported: choose among plans that the data do not support, too.
        short: how many of the best plans are compared by joint draws.
        draws: how many draws.
        many: it is asked of many subjects, so that one without an answer does not stop it.
    """

    objective: Objective
    candidates: Candidates
    reference: TreatmentPlan
    level: float = 0.9
    by: RankingName = "estimate"
    unsupported: bool = False
    short: int = SHORT
    draws: int = DRAWS
    many: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class CalibratedModel:
    """A model, and what it knows of its own answers; `label` is what messages call it."""

    label: str
    model: FittedModel
    facts: OutcomeFacts | None
    calibration: Calibration | None
    support: PlanSupport | None
    given: Support | None = None

    @classmethod
    def of(cls, label: str, model: FittedModel) -> "CalibratedModel":
        """Read what travels with a model.

        Raises:
            ArtifactError: it is damaged.
        """
        given = model.record.support
        return cls(label, model, facts_of(model), calibration_of(model), support_of(model), given)

    def lacks(self, objective: Objective, origin: int) -> str | None:
        """Return why nothing says what an objective is from an origin: a step at which nobody has the outcome."""
        schema, steps = self.model.schema, self.given.unmeasured if self.given else ()
        for h, outcome in objective.concerns if steps else ():
            if origin + 1 + h in steps[outcome]:
                at = f"{step_word(schema.step)} {origin + 1 + h}"
                return f"no training subject has {schema.outcomes[outcome].name} at {at} of its series"
        return None

    @property
    def joint(self) -> bool:
        """Return whether its draws are of a joint distribution, so that limits of differences have a level."""
        return self.model.is_joint

    def clip(self, y_HY: NDArray[np.floating]) -> Floats:
        """Return outcomes `[...,H,Y]`, those that cannot occur moved to the nearest that can."""
        wide_HY = np.asarray(y_HY, dtype=np.float64)
        return wide_HY if self.facts is None else self.facts.clip(wide_HY)


@dataclass(frozen=True, eq=False, slots=True)
class SubjectPlans:
    """One subject and how its plans are scored: `ask` knows the panel, in which the subject has the row `row`.

    `alone` is the panel of the subject; `table_KA` encodes the treatments to choose from, `cost_K` is their cost.
    """

    calibrated: CalibratedModel
    question: SearchQuestion
    alone: Panel
    row: int
    origin: int
    ask: PredictFn
    table_KA: Plans
    cost_K: Floats

    @property
    def before(self) -> Values | None:
        """Return what the subject was given at the step before the origin's, None where there is none."""
        given = self.alone.treatments[0, self.origin - 1] if self.origin else None
        return None if given is None else self.calibrated.model.schema.treatments.decode(given)

    def predicts(self, model: FittedModel, queries: Queries) -> NDArray[np.float32]:
        """Predict as the `rollout` of a model or of its part does, on this subject."""
        return self.ask(model, replace(queries, subject=np.full(len(queries), self.row, dtype=np.int32)))

    def queries(self, plan_PHA: Plans) -> Queries:
        """Return the questions of encoded plans."""
        p = len(plan_PHA)
        return Queries(np.zeros(p, dtype=np.int32), np.full(p, self.origin, dtype=np.int16), plan_PHA)

    def losses(self, plans_PH: Places) -> Floats:
        """Return the loss of each plan, that of the mean course over members.

        Raises:
            TrainingError: a prediction is not finite.
        """
        return self.scored(plans_PH).loss_P

    def scored(self, plans_PH: Places) -> "Scored":
        """Return the loss of each plan and, of not too many plans, the predictions that it rests on.

        Raises:
            TrainingError: a prediction is not finite.
        """
        loss_P, objective, y_RPHY = np.empty(len(plans_PH)), self.question.objective, None
        for first in range(0, len(plans_PH), BLOCK):
            some_PH = plans_PH[first : first + BLOCK]
            y_RPHY = self.predicts(self.calibrated.model, self.queries(self.table_KA[some_PH]))
            mean_PHY = self.calibrated.clip(y_RPHY).mean(axis=0)
            loss_P[first : first + BLOCK] = objective.loss(mean_PHY, self.cost_K[some_PH].sum(axis=1))
        if not np.isfinite(loss_P).all():
            raise TrainingError(
                f"model `{self.calibrated.label}` predicts values that are not finite for subject "
                f"{self.alone.names[0]}",
                fix="retrain it, with a lower --learning-rate if it diverged",
            )
        return Scored(loss_P, y_RPHY if len(plans_PH) <= BLOCK else None)

    def knows(self, y_RQHY: NDArray[np.float32]) -> PredictFn:
        """Return what predicts as `predicts` does, but for the model itself, whose predictions are known."""
        return lambda model, queries: y_RQHY if model is self.calibrated.model else self.predicts(model, queries)


class Scored(NamedTuple):
    """Losses of plans, and what they rest on; None of more than `BLOCK` plans."""

    loss_P: Floats
    y_RPHY: NDArray[np.float32] | None
