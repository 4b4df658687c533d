"""Models with one linear regression per step of the horizon: what the MSM and the ridge anchor share."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, Queries, Scaler
from costar_cli.files import Artifact
from costar_cli.methods.model import Device
from costar_cli.methods.shared.trained import AnswerJob, EncodingModel

Floats = NDArray[np.float64]
OPTIONAL = ("columns.mean", "columns.sd")  # files of version 0.3.0 do not have them


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

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: Device = "cpu", **own: Any) -> Self:  # noqa: ANN401, ARG003
        """Read a model artifact; the model computes on the CPU, whatever the device of networks.

        Raises:
            ValueError: an array is not of the shape that schema, horizon and settings give it.
        """
        model = super().from_artifact(artifact, "cpu", **own)
        return model.require_arrays(model.array_shapes(), optional=OPTIONAL)

    @abstractmethod
    def array_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each array of the model, without the member axis."""

    @abstractmethod
    def encode(self, panel: Panel) -> HistoryFeatures:
        """Return the features of every history of a panel."""

    @abstractmethod
    def treatments(self, encoded: NDArray[np.generic]) -> Floats:
        """Return the treatments `[...,L]` that the regressions see of encoded ones `[...,da]`."""

    @abstractmethod
    def weights(self) -> tuple[Floats, Floats, Floats]:
        """Return intercepts `[R,H,Y]`, and weights of the history `[R,H,P,Y]` and of the plan's steps `[R,H,H,L,Y]`.

        The weight of plan step j in step h is zero for j > h.
        """

    def jobs(self, states: HistoryFeatures, queries: Queries, batch_size: int) -> Iterator[Iterable[AnswerJob]]:
        """Yield jobs of `batch_size` queries each."""
        tau, dy = queries.horizon, len(self.schema.outcomes)
        intercept_RHY, history_RHPY, plan_RHJLY = self.weights()
        of_plan_RLH = plan_RHJLY[:, :tau, :tau].transpose(0, 2, 3, 1, 4).reshape(self.members, -1, tau * dy)
        of_history_RPH = history_RHPY[:, :tau].transpose(0, 2, 1, 3).reshape(self.members, -1, tau * dy)

        def predict(some: Queries) -> Floats:
            known_QP = states.at(some.subject.astype(np.int64), some.origin.astype(np.int64))
            planned_QL = self.treatments(some.plan).reshape(len(known_QP), -1)
            scaled_RQH = known_QP @ of_history_RPH + planned_QL @ of_plan_RLH
            return np.asarray(scaled_RQH.reshape(self.members, -1, tau, dy) + intercept_RHY[:, None, :tau])

        return self.jobs_of_all_members(predict, queries, batch_size)


def unpacked_plan(packed: Floats, horizon: int) -> Floats:
    """Return weights `[R,H,H,L,Y]` of plan step j in step h, of those stored for j <= h only, `[R,H(H+1)/2,L,Y]`."""
    plan_RHJLY = np.zeros((len(packed), horizon, horizon, *packed.shape[2:]))
    plan_RHJLY[:, *np.tril_indices(horizon)] = packed
    return plan_RHJLY
