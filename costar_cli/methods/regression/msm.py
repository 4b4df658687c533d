"""Marginal structural model: linear outcomes weighted by the inverse probability of the treatments (spec MSM-1 to 5).

In closed form: one logistic regression per treatment for what was given, with the doses before it (numerator) and with
the whole recent history (denominator); then one weighted linear regression per step of the horizon.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, PanelSchema, Part, Scaler, TreatmentEncoding
from costar_cli.data.panel import join_panels
from costar_cli.errors import DataError, Termination
from costar_cli.methods.base import Fit, FitTask, Fitted
from costar_cli.methods.regression.linear import Floats, LinearModel, ScaledSeries, unpacked_plan
from costar_cli.methods.regression.settings import MsmConfig, PlanForm
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.ipw import (
    TRUNCATED,
    clip_to_quantiles,
    cumulative_weights,
    describe_weights,
    truncated_share,
)
from costar_cli.methods.shared.keys import keyed_bits
from costar_cli.methods.shared.logistic import one_thread
from costar_cli.methods.shared.trained import ReadsModels
from costar_cli.methods.shared.treatment_models import TreatmentModels

LAG = 1  # steps before the origin whose covariates and outcomes count too
CHUNK_ROWS = 65_536  # decisions whose probabilities are computed at once
LEAST_SHARE, LARGEST_WEIGHT = 0.2, 1_000.0  # beyond either of them, overlap is called low


class LagFeatures:
    """Doses so far, covariates and outcomes of the last two steps, and statics; the columns of every regression.

    Before the second step there is no step before: the first one stands for it.
    """

    def __init__(self, panel: Panel, scaler: Scaler, schema: PanelSchema) -> None:
        self.series = ScaledSeries.of(panel, scaler)
        self.given_NTL = panel.treatments.astype(np.float64) @ dose_table(schema.treatments) * panel.observed[..., None]
        before = np.zeros((panel.n_subjects, 1, self.given_NTL.shape[2]))
        self._dose_NTL = np.concatenate([before, self.given_NTL.cumsum(axis=1)], axis=1)

    @property
    def width(self) -> int:
        """Return P."""
        x, y = self.series.x_NTX.shape[2], self.series.y_NTY.shape[2]
        return int(self.given_NTL.shape[2] + (LAG + 1) * (x + y) + self.series.v_NV.shape[1])

    def at(self, subject: NDArray[np.integer], origin: NDArray[np.integer]) -> Floats:
        """Return the features `[M,P]` of histories; treatments at and after the origin are not among them."""
        x, y, v = self.series.x_NTX, self.series.y_NTY, self.series.v_NV
        lags = [np.maximum(origin - lag, 0) for lag in range(LAG, -1, -1)]
        recent = [series[subject, step] for series in (x, y) for step in lags]
        return np.concatenate([self.doses(subject, origin), *recent, v[subject]], axis=1)

    def doses(self, subject: NDArray[np.integer], origin: NDArray[np.integer], stop: int | None = None) -> Floats:
        """Return how often each treatment was given, `[M,L]`: before the origin, or over `stop` steps from it on."""
        if stop is None:
            return np.asarray(self._dose_NTL[subject, origin])
        return np.asarray(self._dose_NTL[subject, origin + stop] - self._dose_NTL[subject, origin])


@dataclass(frozen=True)
class MsmModel(LinearModel):
    """A fitted marginal structural model; one member, as nothing in it is random."""

    def array_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each array, without the member axis."""
        if self.record.facts["plan"] not in get_args(PlanForm):
            raise ValueError(f"a plan enters as {self.record.facts['plan']!r}, not as one of {get_args(PlanForm)}")
        (dx, _, dy, dv), steps = self.schema.dims, self.horizon
        encoding = self.schema.treatments
        doses = dose_table(encoding).shape[1]
        given = doses - sum(dose.width - 1 for dose in encoding.doses)  # a model each, of a dose whether there is any
        known = doses + (LAG + 1) * (dx + dy) + dv
        planned = steps if self.record.facts["plan"] == "dose" else steps * (steps + 1) // 2
        return {
            "numerator.intercept": (given,),
            "numerator.weight": (given, doses),
            "denominator.intercept": (given,),
            "denominator.weight": (given, known),
            "outcome.intercept": (steps, dy),
            "outcome.history": (steps, known, dy),
            "outcome.plan": (planned, doses, dy),
        }

    def encode(self, panel: Panel) -> LagFeatures:
        """Return the features of every history of a panel."""
        return LagFeatures(panel, self.scaler, self.schema)

    def treatments(self, encoded: NDArray[np.generic]) -> Floats:
        """Return the factors `[...,L]`: levels other than the reference, and doses."""
        return np.asarray(encoded.astype(np.float64) @ dose_table(self.schema.treatments))

    def weights(self) -> tuple[Floats, Floats, Floats]:
        """Return the regressions' weights; with `plan = "dose"` it does not matter when a plan treats."""
        intercept, history, plan = (
            self.params[f"outcome.{name}"].astype(np.float64) for name in ("intercept", "history", "plan")
        )
        # Doses get the total effect of a plan right and its timing wrong, as in the paper. The released code also
        # copies the prediction of step 1 to step 0, and asks later steps from an origin one step later: not here.
        if self.record.facts["plan"] == "steps":
            return intercept, history, unpacked_plan(plan, self.horizon)
        given_HJ = np.tri(self.horizon)  # plan step j counts in step h if j <= h
        return intercept, history, given_HJ[:, :, None, None] * plan[:, :, None]


class MsmMethod(ReadsModels):
    """The marginal structural model; few-shot refits it with the target's subjects added."""

    model = MsmModel

    def fit(self, task: FitTask) -> Fit:
        """Fit treatment models, then outcome models; there are no stages to train.

        Raises:
            DataError: no subject has the steps that the last predicted step needs.
        """
        yield from ()
        config = task.settings_of(MsmConfig)
        parts = dict.fromkeys([Part("source", "train"), task.train])
        panel = join_panels([task.panels[part] for part in parts])
        features = LagFeatures(panel, task.scaler, task.schema)
        decisions = _Decisions(features, panel, config, task.config.seed, task.schema.treatments)
        numerator, denominator = decisions.fit_treatments()
        log_ratio_NT = decisions.log_ratios(numerator, denominator)
        steps = [decisions.fit_outcomes(log_ratio_NT, h) for h in range(task.horizon)]
        outcome = {name: [step[name] for step, _ in steps] for name in ("intercept", "history", "plan")}
        arrays = {
            "numerator.intercept": numerator.given.intercept_L,
            "numerator.weight": numerator.given.coef_LP,
            "denominator.intercept": denominator.given.intercept_L,
            "denominator.weight": denominator.given.coef_LP,
            "outcome.intercept": np.stack(outcome["intercept"]),
            "outcome.history": np.stack(outcome["history"]),
            "outcome.plan": np.concatenate(outcome["plan"]),
        }
        weights = [weights for _, weights in steps]
        meta: dict[str, Any] = {
            "plan": config.plan,
            "weights": weights,
            "least_effective_share": min(step["effective_share"] for step in weights),
            "largest_weight": max(step["largest"] for step in weights),
            TRUNCATED: weights[-1][TRUNCATED],
            "treatment_models_converged": numerator.converged and denominator.converged,
        }
        params = {name: values[None] for name, values in arrays.items()}
        return Fitted(params, meta, tuple(low_confidence(meta, config)))


MSM = MsmMethod()


def low_confidence(meta: Mapping[str, Any], config: MsmConfig) -> Iterator[str]:
    """Yield what may make the estimates wrong: treatment models that are not done, and low overlap."""
    if not meta["treatment_models_converged"]:
        yield (
            f"MSM's weights have not converged: logistic regressions of the treatments did not converge in "
            f"{config.iterations} iterations, so raise `msm.iterations`"
        )
    share, largest = meta["least_effective_share"], meta["largest_weight"]
    if share < LEAST_SHARE or largest > LARGEST_WEIGHT:
        shown = f"{largest:,.0f}" if largest < 1e6 else f"{largest:.0e}"
        yield (
            "overlap is low: some histories nearly determine the treatment (effective share of MSM's weights "
            f"{share:.2f}, largest {shown}), so compare it with an unweighted method, such as `ridge`, before relying "
            "on it"
        )


def overlap_weights(
    panel: Panel, schema: PanelSchema, scaler: Scaler, horizon: int, *, most_numbers: int
) -> tuple[list[Mapping[str, float]], list[str]]:
    """Return what the weights of a marginal structural model of these subjects are like by predicted step.

    Returns:
        The description of each step's weights, as far as series are long enough, and what the model would warn of.
    """
    config = MsmConfig(most_numbers=most_numbers)
    decisions = _Decisions(LagFeatures(panel, scaler, schema), panel, config, 0, schema.treatments)
    if not decisions.decided_NT.any():
        return [], []
    numerator, denominator = decisions.fit_treatments()
    log_ratio_NT, steps = decisions.log_ratios(numerator, denominator), []
    for h in range(horizon):
        subject_M, origin_M = decisions.rows(h)
        if len(subject_M):
            steps.append(describe_weights(*decisions.weights(log_ratio_NT, subject_M, origin_M, h)))
    meta = {
        "treatment_models_converged": numerator.converged and denominator.converged,
        "least_effective_share": min(step["effective_share"] for step in steps),
        "largest_weight": max(step["largest"] for step in steps),
    }
    return steps, list(low_confidence(meta, config))


class _Decisions:
    """Every treatment decision of the training subjects that has a step before it, and the regressions on them."""

    def __init__(
        self, features: LagFeatures, panel: Panel, config: MsmConfig, seed: int, encoding: TreatmentEncoding
    ) -> None:
        self.features, self.config, self._seed, self._encoding = features, config, seed, encoding
        self.observed_NTY = panel.outcome_observed  # None where no outcome was filled
        step_T = np.arange(features.given_NTL.shape[1])
        self.decided_NT = (step_T >= LAG) & (step_T < panel.length[:, None] - 1)

    def fit_treatments(self) -> tuple[TreatmentModels, TreatmentModels]:
        """Return the models of the numerator, which knows the doses, and of the denominator, which knows all."""
        subject_M, step_M = self.rows(0)
        known_MP, given_ML = self.features.at(subject_M, step_M), self.features.given_NTL[subject_M, step_M]
        fit = partial(TreatmentModels.fit, encoding=self._encoding, iterations=self.config.iterations)
        return fit(known_MP[:, : given_ML.shape[1]], given_ML), fit(known_MP, given_ML)

    def log_ratios(self, numerator: TreatmentModels, denominator: TreatmentModels) -> Floats:
        """Return the logarithm `[N,T]` of each decision's stabilised weight; 0 where there was no decision."""
        log_ratio_NT = np.zeros(self.decided_NT.shape)
        subject, step = np.nonzero(self.decided_NT)
        for first in range(0, len(subject), CHUNK_ROWS):
            at = subject[first : first + CHUNK_ROWS], step[first : first + CHUNK_ROWS]
            known_MP, given_ML = self.features.at(*at), self.features.given_NTL[at]
            above_M = numerator.log_likelihood(known_MP[:, : given_ML.shape[1]], given_ML)
            log_ratio_NT[at] = above_M - denominator.log_likelihood(known_MP, given_ML)
        return log_ratio_NT

    def fit_outcomes(self, log_ratio_NT: Floats, h: int) -> tuple[dict[str, Floats], dict[str, float]]:
        """Return the weighted regression of the outcome h + 1 steps ahead, and what its weights were like."""
        Termination.stop_if_signalled()
        answered_NT = None if self.observed_NTY is None else np.asarray(self.observed_NTY.any(axis=2))
        subject_M, origin_M = self.rows(h, answered_NT)
        observed_MY = None if self.observed_NTY is None else self.observed_NTY[subject_M, origin_M + h + 1]
        if not len(subject_M) or (observed_MY is not None and not observed_MY.any(axis=0).all()):
            raise DataError(
                f"no training subject has the {h + LAG + 2} observed steps that predicted step {h + 1} needs",
                fix="choose a shorter horizon, or add longer series",
            )
        raw_M, weight_M = self.weights(log_ratio_NT, subject_M, origin_M, h)
        if self.config.plan == "dose":
            planned_MKL = self.features.doses(subject_M, origin_M, h + 1)[:, None]
        else:
            planned_MKL = self.features.given_NTL[subject_M[:, None], origin_M[:, None] + np.arange(h + 1)]
        design = np.concatenate([self.features.at(subject_M, origin_M), planned_MKL.reshape(len(raw_M), -1)], axis=1)
        answer_MY = self.features.series.y_NTY[subject_M, origin_M + h + 1]
        coef_PY, intercept_Y = _weighted_regression(design, answer_MY, weight_M, observed_MY)
        width, shape = self.features.width, (*planned_MKL.shape[1:], answer_MY.shape[1])
        fitted = {"history": coef_PY[:width], "plan": coef_PY[width:].reshape(shape)}
        described = dict(describe_weights(raw_M, weight_M)) | {TRUNCATED: truncated_share(raw_M, weight_M)}
        return fitted | {"intercept": intercept_Y}, described

    def weights(
        self, log_ratio_NT: Floats, subject_M: NDArray[np.intp], origin_M: NDArray[np.intp], h: int
    ) -> tuple[Floats, Floats]:
        """Return the weight of each row `[M]` over steps 0 to h, before and after clipping."""
        raw_M = cumulative_weights(log_ratio_NT, subject_M, origin_M, h)
        return raw_M, clip_to_quantiles(raw_M, self.config.clip)

    def rows(self, h: int, answered_NT: NDArray[np.bool_] | None = None) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the origins from which h + 1 decisions follow, a random subset of them where there are too many.

        With `answered_NT`, only those are taken whose answer, one step later, is at such a step.
        """
        ahead_NT = np.zeros_like(self.decided_NT)
        ahead_NT[:, : max(ahead_NT.shape[1] - h, 0)] = self.decided_NT[:, h:]
        if answered_NT is not None:
            ahead_NT[:, : max(ahead_NT.shape[1] - h - 1, 0)] &= answered_NT[:, h + 1 :]
        subject_M, origin_M = np.nonzero(self.decided_NT & ahead_NT)
        most = max(1, self.config.most_numbers // self.features.width)
        if len(subject_M) > most:
            rng = np.random.Generator(keyed_bits(self._seed, "msm", "rows", h))
            chosen = np.sort(rng.permutation(len(subject_M))[:most])
            subject_M, origin_M = subject_M[chosen], origin_M[chosen]
        return subject_M, origin_M


def _weighted_regression(
    design_MP: Floats, answer_MY: Floats, weight_M: Floats, observed_MY: NDArray[np.bool_] | None
) -> tuple[Floats, Floats]:
    """Return weights `[P,Y]` and intercepts `[Y]`, of each outcome from the rows where it was observed.

    Without a mask, `design_MP` is overwritten.
    """
    from sklearn.linear_model import LinearRegression  # noqa: PLC0415  # a second to import, needed here alone

    with one_thread("blas"):
        if observed_MY is None:
            model = LinearRegression(copy_X=False).fit(design_MP, answer_MY, sample_weight=weight_M)
            return model.coef_.T, np.asarray(model.intercept_)
        models = [
            LinearRegression(copy_X=False).fit(design_MP[rows_M], answer_M[rows_M], sample_weight=weight_M[rows_M])
            for answer_M, rows_M in zip(answer_MY.T, observed_MY.T, strict=True)
        ]
    return np.stack([model.coef_ for model in models], axis=1), np.array([model.intercept_ for model in models])
