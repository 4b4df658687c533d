"""The conditioned model, and answers by simulating courses step by step (spec CONTEXT-6)."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

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
MOST_VARIANCE: Final = 1e12


@dataclass(frozen=True, slots=True)
class OwnCourse(Course):
    """Where series stand, with the effects that each has of its own, as what was before the origin shows them."""

    effect_MEK: Floats


class _Rows(NamedTuple):
    """The columns of N subjects at T steps, those that they differ in, and what common weights leave of answers.

    All are zero where there was no visit to come.
    """

    column_NTP: Floats
    differ_NTK: Floats
    left_NT: Floats


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
        if any(((values < 0) | (values > MOST_VARIANCE)).any() for values in variances):
            raise ValueError(f"a variance is not between 0 and {MOST_VARIANCE:g}")
        if (model.params["dose_scale"] <= 0).any():
            raise ValueError("the scale of a dose is not above 0")
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
        (course, dose_NTL), steps, n = self._along(panel), panel.n_steps, panel.n_subjects
        effect_TNEK = np.zeros((steps, n, len(self.scales.kinds), self.basis.own_effects))
        for some, e, rows in self._own_rows(panel, course, dose_NTL):
            effect_NTK = effects_before(rows.differ_NTK, rows.left_NT, self._variance_EK[e])
            effect_TNEK[:, some, e] = effect_NTK.swapaxes(0, 1)
        parts = {field.name: getattr(course, field.name) for field in fields(course)}
        effect_MEK = effect_TNEK.reshape(steps * n, *effect_TNEK.shape[2:])
        return Histories(OwnCourse(**parts, effect_MEK=effect_MEK), panel.subject_id)

    def drawn_starts(
        self,
        panel: Panel,
        subject_Q: NDArray[np.integer],
        origin_Q: NDArray[np.integer],
        start: Course,
        chance: Chance,
    ) -> Course:
        """Return where each draw stands, with effects drawn given its weights and the steps before the origin.

        All plans of a subject have the same effects.
        """
        course = super().drawn_starts(panel, subject_Q, origin_Q, start, chance)
        assert isinstance(course, OwnCourse)  # noqa: S101 - `encode` makes no other
        assert chance.replicate_S is not None  # noqa: S101 - nothing is drawn of means
        if not self._noise_E.any() or not self._varying:
            return course
        moment_Q2 = np.stack([subject_Q, origin_Q], axis=1).astype(np.int64)
        moment_U2, first_U, moment_Q = np.unique(moment_Q2, axis=0, return_index=True, return_inverse=True)
        n, places = len(chance.replicate_S), {e: i for i, e in enumerate(self._varying)}
        normal_USVK = np.stack([
            np.random.default_rng([chance.seed, OWN_EFFECTS, int(i)])
            .standard_normal((n, len(places), self.basis.own_effects))
            for i in chance.subject_Q[first_U].astype(np.uint64)
        ])  # fmt: skip
        effect_SQEK = course.effect_MEK.reshape(n, len(subject_Q), *course.effect_MEK.shape[1:])  # not a copy
        for e, some, root_UKK, moved_UKP in self._own_posteriors(panel, moment_U2):
            fewer_BP = self._weight_EP[e] - self._replicates_BEP[:, e]
            apart_USK = (moved_UKP @ fewer_BP.T).swapaxes(1, 2)[:, chance.replicate_S]
            apart_USK += normal_USVK[some, :, places[e]] @ root_UKK.swapaxes(1, 2)
            here = np.flatnonzero(np.isin(moment_Q, some))
            effect_SQEK[:, here, e] += apart_USK[np.searchsorted(some, moment_Q[here])].swapaxes(0, 1)
        return course

    def _own_posteriors(
        self, panel: Panel, moment_U2: NDArray[np.int64]
    ) -> Iterator[tuple[int, NDArray[np.int64], Floats, Floats]]:
        """Yield of a variable, and some moments (subject, origin), what steps before them say of effects.

        That is a root `[U,K,K]` of their covariance, and by how much their means rise as weights fall `[U,K,P]`.
        """
        asked, row_U = np.unique(moment_U2[:, 0], return_inverse=True)
        panel = panel.take(asked)
        for subjects, e, rows in self._own_rows(panel, *self._along(panel)):
            here = np.flatnonzero((row_U >= subjects.start) & (row_U < subjects.stop))
            for first in range(0, len(here), len(rows.differ_NTK)):  # as many at once as there are subjects
                some = here[first : first + len(rows.differ_NTK)]
                before_UT1 = (np.arange(panel.n_steps) < moment_U2[some, 1:])[..., None]
                of_U = row_U[some] - subjects.start
                known_UKT = (rows.differ_NTK[of_U] * before_UT1).swapaxes(1, 2)
                precision_UKK = known_UKT @ rows.differ_NTK[of_U] + np.diag(1 / self._variance_EK[e])
                inverse_UKK = np.linalg.inv(np.linalg.cholesky(precision_UKK))
                moved_UKP = inverse_UKK.swapaxes(1, 2) @ (inverse_UKK @ (known_UKT @ rows.column_NTP[of_U]))
                yield e, some, np.sqrt(self._noise_E[e]) * inverse_UKK.swapaxes(1, 2), moved_UKP

    def _along(self, panel: Panel) -> tuple[Course, Floats]:
        """Return where every subject stands at every step, and the doses `[N,T,L]` it has there."""
        dose_NTL = panel.treatments.astype(np.float64) @ self.table
        return along(panel, self.scales, LAGS, dose_NTL), dose_NTL

    def _own_rows(self, panel: Panel, course: Course, dose_NTL: Floats) -> Iterator[tuple[slice, int, _Rows]]:
        """Yield of some subjects and a variable the rows that its effects are learned from: those of all visits.

        They are multiplied by the roots of their weights. Values that a visit lacks were filled, and count as well.
        """
        steps, n = panel.n_steps, panel.n_subjects
        size, (low_E, high_E) = max(1, ENCODED // steps), self.scales.limits
        value_NTE = np.concatenate([panel.outcomes, panel.covariates], axis=2).astype(np.float64)
        after_NTE, seen_NT = np.roll(value_NTE, -1, axis=1), np.zeros(panel.observed.shape, dtype=bool)
        seen_NT[:, :-1] = panel.decided[:, :-1] & panel.observed[:, 1:]
        for first in range(0, n if len(self._varying) else 0, size):
            some = slice(first, min(first + size, n))
            at = (np.arange(steps)[None] * n + np.arange(n)[some, None]).ravel()  # steps of a subject together
            own, seen_M, shape = course.take(at), seen_NT[some].ravel(), seen_NT[some].shape
            facts, unit_ME = facts_of(own, self.scales, dose_NTL[some].reshape(len(at), -1)), own.unit(self.scales)
            for e in self._varying:
                column_MP, differ_MK = self.basis.columns(facts, e, self._learned, np)
                change_M = (after_NTE[some, :, e].ravel() - own.now_ME[:, e]) / unit_ME[:, e]
                left_M = np.where(seen_M, change_M.clip(low_E[e], high_E[e]) - column_MP @ self._weight_EP[e], 0.0)
                root_M1 = np.where(seen_M, np.sqrt(weight_of(unit_ME[:, e], self.scales, e)), 0.0)[:, None]
                column_NTP, differ_NTK = ((x * root_M1).reshape(*shape, -1) for x in (column_MP, differ_MK))
                yield some, e, _Rows(column_NTP, differ_NTK, (left_M * root_M1[:, 0]).reshape(shape))

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

    @property
    def _varying(self) -> list[int]:
        """Return in which variables subjects differ."""
        return [int(e) for e in np.flatnonzero(self._variance_EK.any(axis=1))]

    @cached_property
    def _noise_E(self) -> Floats:
        """Return the variance of each step's noise; older files have none, and draw no effects of subjects."""
        noise_E = self.params[NOISE][0] if NOISE in self.params else np.zeros(len(self.scales.kinds))
        return np.asarray(noise_E, dtype=np.float64)

    @cached_property
    def table(self) -> Floats:
        """Return the factors `[A,L]` of each column of the treatments, doses in their usual size."""
        return np.asarray(dose_table(self.schema.treatments) / self.params["dose_scale"][0].astype(np.float64))
