"""Answers by Chronos-2 from the history and the plan (spec CHRONOS-1 to 3). `K` are levels of quantiles."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from costar_cli.data import Panel, Queries
from costar_cli.files import Artifact
from costar_cli.methods.chronos.weights import Input, Pipeline, Weights
from costar_cli.methods.model import Device, Parameters, PredictiveDistribution
from costar_cli.methods.shared.distinct import distinct_rows, rows_as_bytes
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.trained import TrainedModel, probabilities_within, require_horizon
from costar_cli.reporting import NullReporter, Reporter

LEVELS: Final = [0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95]  # the middles of tenths
WIDTH: Final = float(ndtri(LEVELS[-1]) - ndtri(LEVELS[0]))  # between the outer levels, in sd of a normal variable
FORECASTS: Final = 256  # inputs that are made at once


@dataclass(frozen=True, kw_only=True)
class ChronosModel(TrainedModel):
    """Chronos-2, which learned nothing of the data set: it reads each history as it answers."""

    params: Parameters = field(default_factory=lambda: {"none": np.zeros((1, 0))})
    device: Device = "cpu"

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: Device = "cpu", **own: Any) -> Self:  # noqa: ANN401
        """Read a model artifact; its weights are read when it first answers.

        Raises:
            ValueError: it does not say which weights those are.
        """
        model = super().from_artifact(artifact, device, **own).require_arrays({"none": (0,)})
        Weights.read(model.record.facts)
        return replace(model, device=device)

    @cached_property
    def weights(self) -> Weights:
        """Return which weights answer."""
        return Weights.read(self.record.facts)

    @cached_property
    def _pipeline(self) -> Pipeline:
        return self.weights.load(self.device)

    @property
    def has_distribution(self) -> bool:
        """Return that each outcome has quantiles."""
        return True

    @property
    def is_joint(self) -> bool:
        """Return that they do not say how answers to two plans go together."""
        return False

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Return the mean of each query `[1,Q,H,Y]`.

        Raises:
            UsageError: the plans are longer than the horizon of the data set that the model was made on; or the weights
                or the packages are missing.
        """
        return self._means(self._quantiles(panel, queries, batch_size, reporter or NullReporter()))

    def predict_distribution(
        self, panel: Panel, queries: Queries, summed_Y: NDArray[np.bool_] | None = None
    ) -> PredictiveDistribution | None:
        """Return mean and standard deviation by the quantiles; of sums nothing is known."""
        if summed_Y is not None and summed_Y.any():
            return None
        quantile_QHYK = self._quantiles(panel, queries, FORECASTS, NullReporter())
        mean = self._means(quantile_QHYK)
        noise = ((quantile_QHYK[..., -1] - quantile_QHYK[..., 0]) / WIDTH).clip(min=0)[None].astype(np.float32)
        return PredictiveDistribution(mean, np.zeros_like(mean), noise)

    def _means(self, quantile_QHYK: NDArray[np.float32]) -> NDArray[np.float32]:
        mean = quantile_QHYK.mean(axis=-1, dtype=np.float64)[None].astype(np.float32)
        return probabilities_within(self.schema, mean)

    def _quantiles(self, panel: Panel, queries: Queries, batch_size: int, reporter: Reporter) -> NDArray[np.float32]:
        """Return quantiles `[Q,H,Y,K]`: of each step the last ones of a forecast that knows the plan up to there.

        A forecast of the whole plan would let later treatments move the steps before them, as its steps attend to all
        known covariates. Queries that share a history and the beginning of a plan share a forecast.
        """
        require_horizon(self.horizon, queries)
        table_AL = dose_table(self.schema.treatments)
        dose_NTL = panel.treatments.astype(np.float64) @ table_AL
        shape = (len(queries), queries.horizon, panel.outcomes.shape[-1], len(LEVELS))
        quantile_QHYK = np.empty(shape, dtype=np.float32)
        with reporter.task("rollout", total=len(queries) * queries.horizon, unit="query") as task:
            for steps in range(1, queries.horizon + 1):
                plan_QHA = queries.plan[:, :steps]
                first_M, of_Q = distinct_rows(rows_as_bytes(queries.subject, queries.origin, plan_QHA))
                asked = replace(queries.take(first_M), plan=plan_QHA[first_M], outcomes=None, scored=None)
                found_MYK = np.empty((len(first_M), *shape[2:]), dtype=np.float32)
                for start in range(0, len(first_M), min(batch_size, FORECASTS)):
                    some = slice(start, min(start + min(batch_size, FORECASTS), len(first_M)))
                    inputs = list(_inputs(panel, dose_NTL, asked.take(some), table_AL))
                    found, _ = self._pipeline.predict_quantiles(
                        inputs=inputs, prediction_length=steps, quantile_levels=LEVELS
                    )
                    found_MYK[some] = np.stack([np.asarray(one)[:, -1] for one in found])
                quantile_QHYK[:, steps - 1] = found_MYK[of_Q]
                task.advance(len(queries))
        return quantile_QHYK


def _inputs(
    panel: Panel, dose_NTL: NDArray[np.float64], queries: Queries, table_AL: NDArray[np.float64]
) -> Iterator[Input]:
    """Yield what a forecast of each query reads: the history up to its origin, and treatments of the plan.

    A treatment stands at the step after it, where it first shows; which came before the first step is unknown. Statics
    are left out: the forecaster scales each series by its own past, and nothing of a constant is left.
    """
    plan_QHL = queries.plan.astype(np.float64) @ table_AL
    for n, origin, plan_HL in zip(queries.subject, queries.origin.astype(np.int64), plan_QHL, strict=True):
        past_TL = np.concatenate([np.full((1, plan_HL.shape[1]), np.nan), dose_NTL[n, :origin]])
        covariates = {f"x{i}": x_T for i, x_T in enumerate(panel.covariates[n, : origin + 1].T)}
        yield {
            "target": panel.outcomes[n, : origin + 1].T,
            "past_covariates": covariates | {f"a{i}": dose_T for i, dose_T in enumerate(past_TL.T)},
            "future_covariates": {f"a{i}": dose_H for i, dose_H in enumerate(plan_HL.T)},
        }
