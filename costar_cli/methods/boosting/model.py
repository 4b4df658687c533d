"""The fitted trees: how they are stored, and how they answer queries (spec BOOST-1 to 5)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from costar_cli.data import Panel, Queries
from costar_cli.files import Artifact
from costar_cli.methods.boosting.features import Floats, Histories, history_width, plan_columns
from costar_cli.methods.boosting.settings import MOST_LAGS
from costar_cli.methods.model import Device
from costar_cli.methods.shared.distinct import distinct_plans
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.outcome_forms import OutcomeForm
from costar_cli.methods.shared.trained import AnswerJob, EncodingModel
from costar_cli.methods.shared.trees import Forest, Reached, forests_of


@dataclass(frozen=True, kw_only=True)
class BoostingModel(EncodingModel[Histories]):
    """Fitted trees of each step and outcome; one member. Answering takes no library but numpy, on the CPU."""

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: Device = "cpu", **own: Any) -> Self:  # noqa: ANN401, ARG003
        """Read a model artifact.

        Raises:
            ValueError: the trees are none, ask about columns that there are not, or belong to other data or settings.
            TypeError: likewise.
        """
        model = super().from_artifact(artifact, "cpu", **own)
        model._require_whole()
        n_factors = dose_table(model.schema.treatments).shape[1]
        for h, row in enumerate(model.forests):
            width = model.width + plan_columns(np.zeros((1, h + 1, n_factors))).shape[1]
            for forest in row:
                most = max(forest.thresholds, default=-1)
                if most >= width:
                    raise ValueError(f"a tree asks about column {most}, which there is not")
        return model

    def _require_whole(self) -> None:
        """Stop where settings, forms or arrays are not those of such a model."""
        if not 1 <= self.lags <= MOST_LAGS:
            raise ValueError(f"{self.lags} lags are not 1 to {MOST_LAGS}")
        if len(self.forms) != len(self.schema.outcomes):
            raise ValueError(f"{len(self.forms)} forms are not one for each of {len(self.schema.outcomes)} outcomes")
        if len(self.logistic) != len(self.forms) or any(type(one) is not bool for one in self.logistic):
            raise ValueError("the file does not say for each outcome whether its trees predict a probability")
        dx, _, dy, dv = self.schema.dims
        width = history_width(self.lags, dy, dose_table(self.schema.treatments).shape[1], dx, dv)
        if self.width != width:
            raise ValueError(f"a history has {width} columns, not {self.width}")

    @cached_property
    def forms(self) -> tuple[OutcomeForm, ...]:
        """Return how each outcome changes."""
        return tuple(OutcomeForm.from_meta(form) for form in self.record.facts["forms"])

    @property
    def logistic(self) -> Sequence[bool]:
        """Return which outcomes have trees of the logit of their probability, not of their change."""
        return tuple(self.record.facts.get("logistic") or (False,) * len(self.forms))

    @property
    def lags(self) -> int:
        """Return how many past outcomes are columns."""
        return int(self.record.facts["lags"])

    @cached_property
    def forests(self) -> list[list[Forest]]:
        """Return the trees of each step and outcome, `[H][Y]`."""
        return forests_of(self.params, (self.horizon, len(self.schema.outcomes)))

    @property
    def width(self) -> int:
        """Return how many columns a history has."""
        return int(self.record.facts["width"])

    def encode(self, panel: Panel) -> Histories:
        """Return the columns of every history of a panel."""
        return Histories(panel, self.scaler, self.schema.treatments, self.forms, self.lags)

    def jobs(self, states: Histories, queries: Queries, batch_size: int) -> Iterator[Iterable[AnswerJob]]:
        """Yield jobs of `batch_size` queries each."""

        def predict(some: Queries) -> Floats:
            return np.asarray(self.scaled_outcomes(states, some)[None])

        return self.jobs_of_all_members(predict, queries, batch_size)

    def scaled_outcomes(self, states: Histories, queries: Queries) -> Floats:
        """Return standardised outcomes `[Q,tau,dy]`; what queries share, a history or a plan, is looked at once."""
        steps = states.y_NTY.shape[1]
        asked_M, history_Q = np.unique(queries.subject.astype(np.int64) * steps + queries.origin, return_inverse=True)
        subject, origin = asked_M // steps, asked_M % steps
        first_W, plan_Q = distinct_plans(queries.plan)
        dose_WHL = queries.plan[first_W].astype(np.float64) @ dose_table(self.schema.treatments)
        plans = [plan_columns(dose_WHL[:, : h + 1]) for h in range(queries.horizon)]
        result_QHY = np.empty((len(queries), queries.horizon, len(self.forms)))
        for outcome, form in enumerate(self.forms):
            columns_MP = states.at(subject, origin, outcome)
            now_Q = states.y_NTY[subject, origin, outcome][history_Q]
            unit_Q = states.unit(subject, origin, outcome)[history_Q]
            low, high = (bound * form.sd * self.scaler.outcomes[1, outcome] for bound in (form.low, form.high))
            for h, plan_WP in enumerate(plans):
                forest = self.forests[h][outcome]
                parts: list[tuple[Reached, NDArray[np.intp]]] = [
                    (forest.reach(columns_MP), history_Q),
                    (forest.reach(plan_WP, start=self.width), plan_Q),
                ]
                if self.logistic[outcome]:
                    result_QHY[:, h, outcome] = expit(forest.sums(parts))
                    continue
                y_Q = now_Q + unit_Q * forest.sums(parts)
                result_QHY[:, h, outcome] = np.clip(y_Q, np.minimum(low, now_Q), np.maximum(high, now_Q))
        return np.asarray((result_QHY - self.scaler.outcomes[0]) / self.scaler.outcomes[1])
