"""Effects of plans in a population, where treatment reacts to the course: doubly robust, by computation, by weights."""

from costar_cli.effects.effects import ANY_GROUP, ESTIMATORS, FEW, Effects, Settings, TargetEstimates, estimate, holm
from costar_cli.effects.enrolment import Assigned, Flow, enrol
from costar_cli.effects.estimators import EstimatorName
from costar_cli.effects.report import EffectReport
from costar_cli.effects.trials import Regime, Target, Trials

__all__ = [
    "ANY_GROUP",
    "ESTIMATORS",
    "FEW",
    "Assigned",
    "EffectReport",
    "Effects",
    "EstimatorName",
    "Flow",
    "Regime",
    "Settings",
    "Target",
    "TargetEstimates",
    "Trials",
    "enrol",
    "estimate",
    "holm",
]
