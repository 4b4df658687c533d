"""Weights against loss of follow-up: errors as if everybody had stayed (spec SCORE-22)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, PanelSchema, Queries
from costar_cli.errors import UsageError
from costar_cli.evaluation.setups import Candidate
from costar_cli.inference import Hazards, survival_of
from costar_cli.inference.at_risk import AtRisk
from costar_cli.inference.propensity import nothing_ahead

# 1,190 of 3,000 subjects lost by level: the mean of those who stayed was 0.465 too low, weighted 0.032, truncated here
# 0.087, at 1 and 99 % 0.114. Death has no weights: an outcome of the dead is not missing.
TRUNCATED: Final = (0.005, 0.995)  # quantiles beyond which weights are set to these

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DropoutWeights:
    """The weights of a test part, in figures.

    `lost` of its `subjects` were lost to follow-up; `lower` and `upper` are the quantiles at which weights are
    truncated; `effective` is how many answers of weight one would be as precise as all, as a share.
    """

    test: str
    subjects: int
    lost: int
    lower: float
    upper: float
    effective: float
    truncated_at: tuple[float, float] = TRUNCATED


@dataclass(frozen=True, eq=False, slots=True)
class StayWeights:
    """How much what was observed at a step of a test panel counts, `[N,T]`: more where most of its kind were lost."""

    weight_NT: Floats
    summary: DropoutWeights

    @classmethod
    def of(cls, hazards: Hazards, panel: Panel, *, test: str) -> Self:
        """Return the weights of a panel: stabilised by the mean hazard of each step, and truncated."""
        risk = AtRisk.of(panel, hazards.schema, terminal=False)
        asked = risk.queries
        lost_M = hazards.along(panel, asked, nothing_ahead(panel, asked), terminal=False)[:, 0].sum(axis=-1)
        step_M = asked.origin.astype(np.int64)
        at_risk_T = np.bincount(step_M, minlength=panel.n_steps)
        lost_T = np.bincount(step_M, weights=lost_M, minlength=panel.n_steps) / np.maximum(at_risk_T, 1)
        ratio_NT = np.ones((panel.n_subjects, panel.n_steps))
        ratio_NT[asked.subject, step_M] = (1 - lost_T[step_M]) / (1 - lost_M)
        weight_NT = np.ones_like(ratio_NT)
        weight_NT[:, 1:] = np.cumprod(ratio_NT[:, :-1], axis=1)
        counts_NT = panel.observed & (np.arange(panel.n_steps) > panel.first_origin[:, None])
        own_M = weight_NT[counts_NT] if counts_NT.any() else np.ones(1)
        lower, upper = (float(limit) for limit in np.quantile(own_M, TRUNCATED))
        own_M = np.clip(own_M, lower, upper)
        effective = float(own_M.sum() ** 2 / (own_M**2).sum() / len(own_M))
        lost = int(risk.ended_ME.any(axis=1).sum())
        summary = DropoutWeights(test, panel.n_subjects, lost, lower, upper, effective)
        return cls(np.clip(weight_NT, lower, upper), summary)

    def at(self, queries: Queries) -> Floats:
        """Return the weights `[Q,H]` of the outcomes that queries ask for."""
        step_QH = queries.origin.astype(np.int64)[:, None] + np.arange(queries.horizon) + 1
        return np.asarray(self.weight_NT[queries.subject[:, None], np.minimum(step_QH, self.weight_NT.shape[1] - 1)])


def hazards_of_losses(schema: PanelSchema, candidates: Sequence[Candidate]) -> Hazards:
    """Return the hazards of losses by which all models are weighed: those of the first of the source, or of any.

    Raises:
        UsageError: the data name no loss of follow-up, or no model knows its hazard.
    """
    if all(end.terminal for end in schema.ends):
        raise UsageError(
            "`--ipcw` weighs for loss of follow-up, which the data set does not record",
            fix="say in a column of role `censored` who was lost, or leave `--ipcw` out",
        )
    for candidate in sorted(candidates, key=lambda candidate: candidate.domain != "source"):
        found = survival_of(candidate.model)
        if found is not None and candidate.model.schema.ends == schema.ends:
            return found.hazards
    raise UsageError(
        "`--ipcw` needs hazards of loss of follow-up, and none of the models has them",
        fix="fit a model to this data set with `costar finetune`, and evaluate it, too",
    )
