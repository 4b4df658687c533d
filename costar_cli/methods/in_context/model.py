"""The conditioned model, and answers by simulating courses step by step (spec CONTEXT-6)."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from costar_cli.data import Panel
from costar_cli.files import Artifact
from costar_cli.methods.base import Device
from costar_cli.methods.in_context.basis import HIDDEN, LAGS, LEARNED, Basis, Function, facts_of, network
from costar_cli.methods.in_context.head import effects_before
from costar_cli.methods.in_context.settings import InContextConfig
from costar_cli.methods.shared.course import Course, Floats, along
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.simulated import Chance, Histories, SimulatedModel
from costar_cli.methods.shared.steps import weight_of

ENCODED: Final = 2**13  # steps whose columns are made at once
LEAST_CHANCE: Final = 1e-3  # that a binary variable is 0 or 1
NETWORK: Final = "network."
NOISE: Final = "noise"  # the variance of what a step leaves open
OWN_EFFECTS: Final = 5  # of the seeds of a subject, that of its effects


@dataclass(frozen=True, slots=True)
class OwnCourse(Course):
    """Where series stand, with the effects that each has of its own, as what was before the origin shows them."""

    effect_MEK: Floats


def response(now_M: Floats, change_M: Floats, *, binary: bool) -> Floats:
    """Return a change in units, of a binary variable the logit of the probability that it implies."""
    if not binary:
        return change_M
    return np.asarray(logit((now_M + change_M).clip(LEAST_CHANCE, 1 - LEAST_CHANCE)))


@dataclass(frozen=True, kw_only=True)
class InContextModel(SimulatedModel):
    """Weights of learned features, given a data set; one member. Answers take numpy and scipy alone, on the CPU."""

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: Device = "cpu", **own: Any) -> Self:  # noqa: ANN401, ARG003
        """Read a model artifact.

        Raises:
            ValueError: arrays are not those of the schema's variables.
        """
        model = super().from_artifact(artifact, "cpu", **own)
        e, basis, replicates = len(model.scales.kinds), model.basis, model.rows_of("head.replicates")
        arrays = {
            "head.weight": (e, basis.width),
            "head.replicates": (replicates, e, basis.width),
            "subjects.variance": (e, basis.own_effects),
            "dose_scale": (basis.factors,),
        }
        arrays |= {f"{NETWORK}{name}": shape for name, shape in model.shapes_of_network().items()}
        arrays |= {NOISE: (e,)} if NOISE in model.params else {}
        model.require_simulated(arrays, within=("head.", "subjects.", "dose_scale", NETWORK))
        variances = (model.params["subjects.variance"], model._noise_E)
        if any((values < 0).any() for values in variances) or (model.params["dose_scale"] <= 0).any():
            raise ValueError("a variance is negative, or the scale of a dose is not above 0")
        return model

    @staticmethod
    def shapes_of_network() -> dict[str, tuple[int, ...]]:
        """Return the shape of each array of the network."""
        found: dict[str, tuple[int, ...]] = {}
        for name, (inputs, outputs) in LEARNED.items():
            for i, (reads, returns) in enumerate([(inputs, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, outputs)]):
                found |= {f"{name}.{i}.weight": (returns, reads), f"{name}.{i}.bias": (returns,)}
        return found

    @property
    def draws_training(self) -> bool:
        """Return that draws hold what the training subjects leave open."""
        return True

    @property
    def replicates(self) -> int:
        """Return how many draws of the weights there are."""
        return len(self._replicates_BEP)

    @property
    def samples(self) -> int:
        """Return how many courses a prediction is the mean of."""
        return int((self.record.settings or {}).get("samples", InContextConfig().samples))

    @cached_property
    def basis(self) -> Basis:
        """Return which columns there are."""
        return Basis.of(self.schema, self.scales)

    def encode(self, panel: Panel) -> Histories:
        """Return where every subject stands at every step, with its own effects."""
        course, steps, n = self._along(panel), panel.n_steps, panel.n_subjects
        effect_TNEK = np.zeros((steps, n, len(self.scales.kinds), self.basis.own_effects))
        for some, e, differ_NTK, left_NT in self._own_rows(panel, course):
            effect_TNEK[:, some, e] = effects_before(differ_NTK, left_NT, self._variance_EK[e]).swapaxes(0, 1)
        parts = {field.name: getattr(course, field.name) for field in fields(course)}
        effect_MEK = effect_TNEK.reshape(steps * n, *effect_TNEK.shape[2:])
        return Histories(OwnCourse(**parts, effect_MEK=effect_MEK), panel.subject_id)

    def begin(
        self,
        panel: Panel,
        subject_Q: NDArray[np.integer],
        origin_Q: NDArray[np.integer],
        start: Course,
        chance: Chance,
    ) -> Course:
        """Return where each draw stands, with effects drawn from what the steps before the origin leave open of them.

        All series of a subject have the same chance.
        """
        course = super().begin(panel, subject_Q, origin_Q, start, chance)
        assert isinstance(course, OwnCourse)  # noqa: S101 - `encode` makes no other
        if not self._noise_E.any():
            return course
        root_QEKK, n = self._roots(panel, subject_Q, origin_Q), chance.row_HSQ.shape[1]
        drawn, row_Q = np.unique(chance.subject_Q, return_inverse=True)
        normal_NSEK = np.stack([
            np.random.default_rng([chance.seed, OWN_EFFECTS, int(i)]).standard_normal((n, *root_QEKK.shape[1:3]))
            for i in drawn.astype(np.uint64)
        ])  # fmt: skip
        apart_QSEK = (root_QEKK[:, None] @ normal_NSEK[row_Q, ..., None])[..., 0]
        apart_MEK = apart_QSEK.swapaxes(0, 1).reshape(course.effect_MEK.shape)
        return replace(course, effect_MEK=course.effect_MEK + apart_MEK)

    def _roots(self, panel: Panel, subject_Q: NDArray[np.integer], origin_Q: NDArray[np.integer]) -> Floats:
        """Return roots `[Q,E,K,K]` of the covariance of each series' effects, given the steps before its origin."""
        k = self.basis.own_effects
        root_QEKK = np.zeros((len(subject_Q), len(self.scales.kinds), k, k))
        asked, row_Q = np.unique(subject_Q, return_inverse=True)
        panel = panel.take(asked.astype(np.int64))
        for some, e, differ_NTK, _ in self._own_rows(panel, self._along(panel)):
            in_Q = np.flatnonzero((row_Q >= some.start) & (row_Q < some.stop))
            before_QT1 = (np.arange(panel.n_steps) < origin_Q[in_Q, None])[..., None]
            known_QTK = differ_NTK[row_Q[in_Q] - some.start] * before_QT1
            precision_QKK = known_QTK.swapaxes(1, 2) @ known_QTK + np.diag(1 / self._variance_EK[e])
            inverse_QKK = np.linalg.inv(np.linalg.cholesky(precision_QKK))
            root_QEKK[in_Q, e] = np.sqrt(self._noise_E[e]) * inverse_QKK.swapaxes(1, 2)
        return root_QEKK

    def _along(self, panel: Panel) -> Course:
        return along(panel, self.scales, LAGS, panel.treatments.astype(np.float64) @ self.table)

    def _own_rows(self, panel: Panel, course: Course) -> Iterator[tuple[slice, int, Floats, Floats]]:
        """Yield of some subjects and a variable what effects of their own are learned from.

        These are the columns `[N,T,K]` that subjects differ in, and what common weights leave of the answers `[N,T]`,
        both zero where there was none.
        """
        steps, n = panel.n_steps, panel.n_subjects
        varying, size = np.flatnonzero(self._variance_EK.any(axis=1)), max(1, ENCODED // steps)
        low_E, high_E = self.scales.limits
        dose_NTL = panel.treatments.astype(np.float64) @ self.table
        value_NTE = np.concatenate([panel.outcomes, panel.covariates], axis=2).astype(np.float64)
        after_NTE, seen_NT = np.roll(value_NTE, -1, axis=1), np.zeros(panel.observed.shape, dtype=bool)
        seen_NT[:, :-1] = panel.decided[:, :-1] & panel.observed[:, 1:]  # of a history, what was filled counts as well
        for first in range(0, n if len(varying) else 0, size):
            some = slice(first, min(first + size, n))
            rows = (np.arange(steps)[None] * n + np.arange(n)[some, None]).ravel()  # steps of a subject together
            own, seen_M = course.take(rows), seen_NT[some].ravel()
            facts, unit_ME = facts_of(own, self.scales, dose_NTL[some].reshape(len(rows), -1)), own.unit(self.scales)
            for e in varying:
                column_MP, differ_MK = self.basis.columns(facts, int(e), self._learned, np)
                change_M = ((after_NTE[some, :, e].ravel() - own.now_ME[:, e]) / unit_ME[:, e]).clip(
                    low_E[e], high_E[e]
                )
                root_M = np.where(seen_M, np.sqrt(weight_of(unit_ME[:, e], self.scales, int(e))), 0.0)
                left_M = np.where(seen_M, change_M - column_MP @ self._weight_EP[e], 0.0) * root_M
                differ_NTK = (differ_MK * root_M[:, None]).reshape(-1, steps, differ_MK.shape[1])
                yield some, int(e), differ_NTK, left_M.reshape(-1, steps)

    def responses(self, course: Course, dose_ML: Floats, replicate_S: NDArray[np.int64] | None) -> Floats:
        """Return what the weights predict, or draws of them, with the effects of each series."""
        assert isinstance(course, OwnCourse)  # noqa: S101 - `encode` makes no other
        facts, now_ME, binary_E = facts_of(course, self.scales, dose_ML), course.now_ME, self.scales.having("binary")
        response_ME = np.empty_like(now_ME)
        for e in range(len(binary_E)):
            column_MP, differ_MK = self.basis.columns(facts, e, self._learned, np)
            change_M = (differ_MK * course.effect_MEK[:, e]).sum(axis=1)
            if replicate_S is None:
                change_M += column_MP @ self._weight_EP[e]
            else:
                weight_SP = self._replicates_BEP[replicate_S, e]
                column_SQP = column_MP.reshape(len(weight_SP), -1, column_MP.shape[1])
                change_M += (column_SQP @ weight_SP[..., None]).ravel()
            response_ME[:, e] = response(now_ME[:, e], change_M, binary=bool(binary_E[e]))
        return response_ME

    @cached_property
    def _learned(self) -> dict[str, Function]:
        arrays = {name.removeprefix(NETWORK): value for name, value in self.params.items() if name.startswith(NETWORK)}
        return network({name: np.asarray(value[0], dtype=np.float64) for name, value in arrays.items()})

    @cached_property
    def _weight_EP(self) -> Floats:
        return np.asarray(self.params["head.weight"][0].astype(np.float64))

    @cached_property
    def _replicates_BEP(self) -> Floats:
        return np.asarray(self.params["head.replicates"][0].astype(np.float64))

    @cached_property
    def _variance_EK(self) -> Floats:
        return np.asarray(self.params["subjects.variance"][0].astype(np.float64))

    @cached_property
    def _noise_E(self) -> Floats:
        noise_E = self.params[NOISE][0] if NOISE in self.params else np.zeros(len(self.scales.kinds))  # of files before
        return np.asarray(noise_E, dtype=np.float64)

    @cached_property
    def table(self) -> Floats:
        """Return the factors `[A,L]` of each column of the treatments, doses in their usual size."""
        return np.asarray(dose_table(self.schema.treatments) / self.params["dose_scale"][0].astype(np.float64))
