"""Models with one linear regression per step of the horizon: what the MSM and the ridge anchor share."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from costar_cli.methods.shared.trained import EncodingModel, require_horizon
from costar_cli.panel import Panel, Queries, Scaler
from costar_cli.reporting import NullReporter, Reporter

__all__ = ["Floats", "HistoryFeatures", "LinearModel", "ScaledSeries", "unpacked_plan"]

Floats = NDArray[np.float64]


class HistoryFeatures(Protocol):
    """The columns of a regression that are known at an origin."""

    def at(self, subject: NDArray[np.integer], origin: NDArray[np.integer]) -> Floats:
        """Return the features `[M,P]` of the histories of these subjects at these origins."""


@dataclass(frozen=True, slots=True)
class ScaledSeries:
    """The series of a panel in double precision, standardised where the scaler says so; padding is never read."""

    x_NTX: Floats
    y_NTY: Floats
    v_NV: Floats

    @classmethod
    def of(cls, panel: Panel, scaler: Scaler) -> "ScaledSeries":
        """Scale a panel."""
        return cls(
            (panel.covariates - scaler.covariates[0]) / scaler.covariates[1],
            (panel.outcomes - scaler.outcomes[0]) / scaler.outcomes[1],
            (panel.statics - scaler.statics[0]) / scaler.statics[1],
        )


@dataclass(frozen=True, kw_only=True)
class LinearModel(EncodingModel[HistoryFeatures]):
    """A fitted model that is linear in features of the history and in the plan, for R members.

    `params` lead with the member axis and are in units of standardised outcomes.
    """

    @abstractmethod
    def encode(self, panel: Panel) -> HistoryFeatures:
        """Return the features of every history of a panel."""

    @abstractmethod
    def treatments(self, encoded: NDArray[np.generic]) -> Floats:
        """Return the treatments `[...,B]` that the regressions see of encoded ones `[...,da]`."""

    @abstractmethod
    def weights(self) -> tuple[Floats, Floats, Floats]:
        """Return intercepts `[R,H,Y]`, and weights of the history `[R,H,P,Y]` and of the plan's steps `[R,H,H,B,Y]`.

        The weight of plan step j in step h is zero for j > h.
        """

    def answer(
        self,
        states: HistoryFeatures,
        queries: Queries,
        *,
        batch_size: int = 16_384,
        reporter: Reporter | None = None,
    ) -> NDArray[np.float32]:
        """Predict as `rollout` does, from what `encode` returned."""
        require_horizon(self.horizon, queries)
        tau, dy = queries.horizon, len(self.schema.outcomes)
        intercept_RHY, history_RHPY, plan_RHJBY = self.weights()
        of_plan_RBH = plan_RHJBY[:, :tau, :tau].transpose(0, 2, 3, 1, 4).reshape(self.members, -1, tau * dy)
        of_history_RPH = history_RHPY[:, :tau].transpose(0, 2, 1, 3).reshape(self.members, -1, tau * dy)
        result = np.empty((self.members, len(queries), tau, dy), dtype=np.float32)
        with (reporter or NullReporter()).task("rollout", total=len(queries), unit="query") as task:
            for first in range(0, len(queries), batch_size):
                part = slice(first, first + batch_size)
                known_QP = states.at(queries.subject[part].astype(np.int64), queries.origin[part].astype(np.int64))
                planned_QB = self.treatments(queries.plan[part]).reshape(len(known_QP), -1)
                scaled_RQH = known_QP @ of_history_RPH + planned_QB @ of_plan_RBH
                scaled_RQHY = scaled_RQH.reshape(self.members, -1, tau, dy) + intercept_RHY[:, None, :tau]
                result[:, part] = self.scaler.unscale_outcomes(scaled_RQHY)
                task.advance(len(known_QP))
        return result


def unpacked_plan(packed: Floats, horizon: int) -> Floats:
    """Return weights `[R,H,H,B,Y]` of plan step j in step h, of those stored for j <= h only, `[R,H(H+1)/2,B,Y]`."""
    plan_RHJBY = np.zeros((len(packed), horizon, horizon, *packed.shape[2:]))
    plan_RHJBY[:, *np.tril_indices(horizon)] = packed
    return plan_RHJBY
