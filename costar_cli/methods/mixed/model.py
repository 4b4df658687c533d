"""The fitted growth model: what a history says of its subject's effects, and answers of it (spec MIXED-8 to 11)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter
from scipy.special import expit, log_ndtr, ndtri

from costar_cli.data import Panel, Queries
from costar_cli.data.visits import elapsed, elapsed_dose
from costar_cli.files import Artifact
from costar_cli.methods.base import Decide, Device, PredictFn, PredictiveDistribution
from costar_cli.methods.entry import Adjusts
from costar_cli.methods.mixed.covariates import CovariateEquations, equations_of, equations_shapes
from costar_cli.methods.mixed.effects import OPEN, Effects, effects_of, effects_shapes
from costar_cli.methods.mixed.law import Floats, GrowthTransition, Series, carried, remaining
from costar_cli.methods.mixed.logit import LogitPosterior, stratified
from costar_cli.methods.mixed.posterior import Known, Posterior
from costar_cli.methods.mixed.rollout import Given, Histories, Rollout, State
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.trained import AnswerJob, EncodingModel, require_horizon

SUBJECTS: Final = 512  # whose histories are summed at once: their cross products take most of the memory
DISTRIBUTED: Final = 2_048  # queries whose derivatives are held at once
DRAWS: Final = 256  # courses that probabilities are means over
COURSES: Final = 1_024  # queries whose courses are held at once
LINEAR: Final = (  # of files from before spec MIXED-14
    "it gives binary outcomes ({}) a linear law, as older versions did, with probabilities up to .2 off: fit it again "
    "with `costar finetune --overwrite`"
)


@dataclass(frozen=True, kw_only=True)
class MixedModel(EncodingModel[Histories]):
    """A fitted mixed-effects growth model; one member, as nothing in it is random."""

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: Device = "cpu", **own: Any) -> Self:  # noqa: ANN401, ARG003
        """Read a model artifact; the model computes on the CPU, whatever the device of networks.

        Raises:
            ValueError: laws or arrays are not those of the schema's outcomes.
        """
        model = super().from_artifact(artifact, "cpu", **own)
        laws, shapes = model.laws, dict[str, tuple[int, ...]]()
        if [law.outcome for law in laws] != list(range(len(model.schema.outcomes))):
            raise ValueError("there is not one law for each outcome, in order")
        dx, _, dy, dv = model.schema.dims
        factors, exposures = model._table.shape[1], 0
        for law in laws:
            carry_overs, hidden = (len(model.params[f"outcome{law.outcome}.{n}"][0]) for n in ("decay", "hidden"))
            shapes |= effects_shapes(law, dx, dy, dv, factors=factors, carry_overs=carry_overs, hidden=hidden)
            exposures += carry_overs * factors
        linked = dx > 0 and any(law.linked for law in laws)
        uneven = elapsed_dose(model.schema.treatments) is not None  # columns stand twice (spec MIXED-12)
        columns = (1 + dx + dy + factors + exposures) * (1 + uneven)
        shapes |= equations_shapes(dx, columns, uneven=uneven) if linked else {}
        model = model.require_arrays(shapes, optional=[name for name in shapes if name.endswith(f".{OPEN}")])
        kinds = ((model.schema.outcomes[law.outcome], law.logit) for law in laws)
        if old := [outcome.name for outcome, logit in kinds if outcome.kind == "binary" and not logit]:
            return replace(model, record=model.record.with_warnings([LINEAR.format(", ".join(old))]))
        return model

    @property
    def stepwise(self) -> bool:
        """Return that each step grows from the one before."""
        return True

    @property
    def adjusts(self) -> Adjusts:
        """Return which reactions inside a plan it adjusts for: where covariates may not act, those to outcomes."""
        return "outcomes" if (self.record.settings or {}).get("covariates") == "none" else "all"

    @property
    def has_distribution(self) -> bool:
        """Return that it knows what chance adds after the origin."""
        return True

    @property
    def draws_training(self) -> bool:
        """Return whether draws hold what the training subjects leave open (spec MIXED-11); not in older files."""
        return all(learnt.open is not None for learnt in self.effects)

    @cached_property
    def laws(self) -> list[GrowthTransition]:
        """Return the law of each outcome."""
        return TypeAdapter(list[GrowthTransition]).validate_python(self.record.facts["laws"])

    @cached_property
    def effects(self) -> list[Effects]:
        """Return what was learnt of each outcome."""
        return [effects_of(self.params, outcome) for outcome in range(len(self.laws))]

    @property
    def draws_courses(self) -> bool:
        """Return that treatments may be decided on the way."""
        return True

    @property
    def draws_covariates(self) -> bool:
        """Return whether courses have covariates: where these act on nothing, they are not forecast."""
        return self.equations is not None

    @cached_property
    def equations(self) -> CovariateEquations | None:
        """Return the equations with which covariates are forecast, None where they act on nothing."""
        return equations_of(self.params)

    def encode(self, panel: Panel) -> Histories:
        """Return every subject's expected effects at every step, each from the steps before it."""
        chunks, steps = [], panel.n_steps
        for rows_M in np.split(np.arange(panel.n_subjects), range(SUBJECTS, panel.n_subjects, SUBJECTS)):
            series, n = self._series(panel, rows_M), len(rows_M)
            row_M, step_M = np.repeat(np.arange(n), steps), np.tile(np.arange(steps), n)
            effects, exposures, own_sd = [], [], []
            for law, learnt in zip(self.laws, self.effects, strict=True):
                found = self._sums(series, law, learnt, links=False)
                mean_MP, factor_MZZ = found.at(row_M, step_M)
                effects.append(np.ascontiguousarray(mean_MP.T))
                own_sd.append(factor_MZZ[None, : len(row_M) * law.logit, 0, 0].reshape(-1, len(row_M)))
                exposures.append(np.ascontiguousarray(found.exposure_NTJ.reshape(n * steps, -1).T))
            y_YM, usual_YM, x_XM, before_LM = (
                values.reshape(n * steps, -1).T.copy()
                for values in (series.y_NTY, series.usual_NTY, series.x_NTX, series.before_NTL)
            )
            chunks.append(Histories(steps, y_YM, usual_YM, x_XM, before_LM, effects, exposures, own_sd))
            del series, found, mean_MP, factor_MZZ  # most of the memory, which the next chunk needs

        def join(name: str) -> Any:  # noqa: ANN401
            values = [getattr(chunk, name) for chunk in chunks]
            if isinstance(values[0], list):
                return [np.concatenate(parts, axis=1) for parts in zip(*values, strict=True)]
            return np.concatenate(values, axis=1)

        names = ("y_YM", "usual_YM", "x_XM", "before_LM", "effects", "exposure", "own_sd")
        return Histories(steps, **{name: join(name) for name in names})

    def jobs(self, states: Histories, queries: Queries, batch_size: int) -> Iterator[Iterable[AnswerJob]]:
        """Yield jobs of `batch_size` queries each, which are answered under the expected effects."""

        def predict(some: Queries) -> Floats:
            at_Q = some.subject.astype(np.int64) * states.steps + some.origin
            start = State(states.y_YM, states.usual_YM, states.x_XM, states.before_LM, states.exposure).take(at_Q)
            effects, own_sd = ([np.take(of, at_Q, axis=1) for of in each] for each in (states.effects, states.own_sd))
            given = [*map(self._given, some.plan.swapaxes(0, 1))]
            steps = self._rollout.steps(start, given, effects, chance_HYQ=self._chances(start, given, effects, own_sd))
            return self._scaled([step.after.y_YQ for step in steps])[None]

        return self.jobs_of_all_members(predict, queries, batch_size)

    def _chances(
        self, start: State, given: Sequence[Given], effects: list[Floats], own_sd: list[Floats]
    ) -> Floats | None:
        """Return the probabilities `[H,Y,Q]` of binary outcomes, None where there are none (spec MIXED-14).

        They are means over courses with drawn outcomes, covariates and intercepts, the same chance for all queries.
        """
        if not any(law.logit for law in self.laws):
            return None
        n, steps = len(self.laws), len(given)
        shock_HJS, own_YS = self._course_chance
        chance_HYQ = np.zeros((steps, n, start.y_YQ.shape[1]))
        for first in range(0, start.y_YQ.shape[1], COURSES):
            some_Q = np.arange(first, min(first + COURSES, start.y_YQ.shape[1]))
            at_M, draw_M = np.tile(some_Q, DRAWS), np.repeat(np.arange(DRAWS), len(some_Q))
            own = [values.take(at_M, axis=1) for values in effects]
            for effects_PM, sd_1Q, own_S in zip(own, own_sd, own_YS, strict=True):
                effects_PM[: len(sd_1Q)] += sd_1Q.take(at_M, axis=1) * own_S[draw_M]
            plans = [Given(g.dose_LQ.take(at_M, axis=1), None if g.gap_Q is None else g.gap_Q[at_M]) for g in given]
            shock_HJM = shock_HJS[:steps, :, draw_M]
            for h, step in enumerate(self._rollout.steps(start.take(at_M), plans, own, shock_HJM)):
                for law in (law for law in self.laws if law.logit):
                    p_M = expit(step.growth[law.outcome])
                    chance_HYQ[h, law.outcome, some_Q] = p_M.reshape(DRAWS, -1).mean(axis=0)
        return chance_HYQ

    @cached_property
    def _course_chance(self) -> tuple[Floats, Floats]:
        """Return noise `[H,Y+X,S]` and standard deviates of intercepts `[Y,S]`, the same for all that is asked."""
        n, x = len(self.laws), 0 if self.equations is None else len(self.equations.residual)
        standard = ndtri(stratified((self.horizon * (n + x) + n,), DRAWS, 0))
        standard_HJS = standard[n:].reshape(self.horizon, n + x, DRAWS)
        return self._scaled_shocks([*np.split(standard_HJS[:, :n], n, axis=1)], standard_HJS[:, n:]), standard[:n]

    def _scaled(self, y_HYQ: list[Floats]) -> Floats:
        y_QHY = np.stack([y_YQ.T for y_YQ in y_HYQ], axis=1)
        return np.asarray((y_QHY - self.scaler.outcomes[0]) / self.scaler.outcomes[1])

    def _begin(
        self, panel: Panel, subject_Q: NDArray[np.integer], origin_Q: NDArray[np.integer]
    ) -> tuple[State, list[Known]]:
        """Return where rollouts begin, and what is known of each outcome's effects there; subjects are encoded once."""
        subjects, row_Q = np.unique(subject_Q, return_inverse=True)
        series, step_Q = self._series(panel, subjects.astype(np.int64)), origin_Q.astype(np.int64)
        sums = [
            self._sums(series, law, learnt, links=True) for law, learnt in zip(self.laws, self.effects, strict=True)
        ]
        start = State(
            series.y_NTY[row_Q, step_Q].T,
            series.usual_NTY[row_Q, step_Q].T,
            series.x_NTX[row_Q, step_Q].T,
            series.before_NTL[row_Q, step_Q].T,
            [found.exposure_NTJ[row_Q, step_Q].T for found in sums],
        )
        return start, [Known.at(found, row_Q, step_Q) for found in sums]

    def _given(self, plan_QA: NDArray[np.number]) -> Given:
        """Return what a step of plans gives."""
        dose_QL = plan_QA.astype(np.float64, copy=False) @ self._table
        return Given(dose_QL.T, elapsed(self.schema.treatments, plan_QA))

    def predict_distribution(
        self, panel: Panel, queries: Queries, summed_Y: NDArray[np.bool_] | None = None
    ) -> PredictiveDistribution:
        """Predict mean and standard deviation, by the derivatives of the rollout (spec MIXED-9).

        Of some outcomes `summed_Y [Y]` it predicts the sums since the origin.

        The share of the parameters is what is not known of the subject's own effects and of the means of all subjects,
        the latter not in older files; the share of the noise is what happens to it, and to its covariates, between the
        origin and the step. What is not known of spreads, half-lives and covariates' weights is left out.

        Raises:
            UsageError: the plans are longer than the horizon that the model was trained for.
        """
        summed_Y = np.zeros(len(self.laws), dtype=bool) if summed_Y is None else summed_Y
        require_horizon(self.horizon, queries)
        shape = (3, 1, len(queries), queries.horizon, len(self.laws))
        mean, parameter, noise = found = np.empty(shape, dtype=np.float32)
        for first in range(0, len(queries), DISTRIBUTED):
            part = slice(first, first + DISTRIBUTED)
            found[:, 0, part] = self._distribution(panel, queries.take(part), summed_Y)
        return PredictiveDistribution(mean, parameter, noise)

    def bounds(self, panel: Panel, queries: Queries) -> tuple[Floats, Floats]:
        """Return what courses stay within `[Q,Y]`: a series that already is beyond the law's bounds may stay there."""
        reached_QY = panel.outcomes[queries.subject, queries.origin].astype(np.float64)
        low_Y, high_Y = (np.array(values) for values in zip(*((law.low, law.high) for law in self.laws), strict=True))
        return np.minimum(reached_QY, low_Y), np.maximum(reached_QY, high_Y)

    def draw_outcomes(
        self,
        panel: Panel,
        queries: Queries,
        n: int,
        seed: int,
        *,
        ask: PredictFn | None = None,
        floor: float = 0.0,
        among: NDArray[np.integer] | None = None,
    ) -> Floats:
        """Draw effects from the posterior and noise after the origin, both the same for all of a subject's plans.

        Returns `[S,Q,H,Y]`, S = n, in the units of the data (spec MIXED-10). What training leaves open of the means of
        effects is drawn once for all subjects (spec MIXED-11). Subjects `among` others have the chance that they have
        where all are asked about.

        Raises:
            UsageError: the plans are longer than the horizon that the model was trained for.
        """
        plan_QHA = queries.plan.astype(np.float64)
        return self.draw_courses(
            panel, queries.subject, queries.origin, lambda h, _: np.tile(plan_QHA[:, h], (n, 1)),
            steps=queries.horizon, n=n, seed=seed, among=among,
        )  # fmt: skip

    def draw_courses(
        self,
        panel: Panel,
        subject_Q: NDArray[np.integer],
        origin_Q: NDArray[np.integer],
        decide: Decide,
        *,
        steps: int,
        n: int,
        seed: int,
        among: NDArray[np.integer] | None = None,
    ) -> Floats:
        """Draw as `draw_outcomes` does, with treatments that are decided on the way (spec MIXED-10, PLAN-5).

        Raises:
            UsageError: the plans are longer than the horizon that the model was trained for.
        """
        subjects, row_Q = np.unique(subject_Q, return_inverse=True)
        plan_QHA = np.zeros((len(row_Q), steps, self.schema.treatments.width), dtype=np.uint8)
        queries = Queries(row_Q.astype(np.int32), origin_Q.astype(np.int16), plan_QHA)
        require_horizon(self.horizon, queries)
        start, known = self._begin(panel, subject_Q, origin_Q)
        if among is not None:
            subjects = np.unique(among)
            row_Q = np.searchsorted(subjects, subject_Q)
        rng, at_M = np.random.default_rng(seed), np.tile(np.arange(len(queries)), n)
        whose_M = row_Q[at_M] + np.repeat(np.arange(n) * len(subjects), len(queries))  # a subject in a draw
        own = []
        # What training leaves open is the same for all queries of a draw (spec MIXED-11); not in files of version 0.3.0
        of_population, changes = np.random.default_rng([seed, 1]), list[Floats | None]()
        for learnt in self.effects:
            size = n, len(learnt.mean)
            changes.append(None if learnt.open is None else of_population.normal(size=size) @ learnt.open.T)
        weight_SGX = self.equations.drawn(of_population, n) if self.equations else None
        for found, change_SP in zip(known, changes, strict=True):
            standard_MZ = rng.normal(size=(n * len(subjects), found.factor_QZZ.shape[2]))[whose_M]
            effects_PM = np.take(found.mean_QP.T, at_M, axis=1)
            if change_SP is not None:
                moves_UPP, of_Q = found.moves()
                for p, effect_M in enumerate(effects_PM):  # one after the other: all of them are as large as the draws
                    effect_M += (change_SP @ moves_UPP[:, p].T)[:, of_Q].reshape(-1)  # noqa: PLW2901 - in its place
            effects_PM[: found.factor_QZZ.shape[1]] += np.einsum("mzi,mi->zm", found.factor_QZZ[at_M], standard_MZ)
            own.append(effects_PM)
        shock_HSM = self._shocks(rng, (steps, n * len(subjects)))[..., whose_M]
        states = [start.take(at_M)]
        given = (self._given(decide(h, self._told(states[-1]))) for h in range(steps))  # once the last state is known
        for step in self._rollout.steps(states[0], given, own, shock_HSM, weight_SGX):
            states.append(step.after)  # noqa: PERF401 - `decide` reads it before the next step
        return np.stack([state.y_YQ.T for state in states[1:]], axis=1).reshape(n, len(queries), steps, -1)

    def _told(self, state: State) -> Floats:
        """Return the outcomes of courses `[M,Y]`, and behind them their covariates where these are drawn, in units."""
        if not self.draws_covariates:
            return state.y_YQ.T
        mean_X, sd_X = self.scaler.covariates
        return np.concatenate([state.y_YQ.T, mean_X + sd_X * state.x_XQ.T], axis=1)

    def _shocks(self, rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        """Return noise of the growth of outcomes, then of covariates, `[H,S,M]`."""
        standard_H1M = [rng.normal(size=(shape[0], 1, shape[1])) for _ in self.laws]
        x = 0 if self.equations is None else len(self.equations.residual)
        return self._scaled_shocks(standard_H1M, rng.normal(size=(shape[0], x, shape[1])))

    def _scaled_shocks(self, of_outcomes: list[Floats], of_covariates_HXM: Floats) -> Floats:
        """Return noise from standard normals: of logits, logistic; of covariates, with their covariance."""
        noise_HJM = [
            log_ndtr(standard_H1M) - log_ndtr(-standard_H1M) if law.logit else learnt.noise * standard_H1M
            for law, learnt, standard_H1M in zip(self.laws, self.effects, of_outcomes, strict=True)
        ]
        if self.equations is not None:
            size, axes = np.linalg.eigh(self.equations.residual)
            noise_HJM.append((axes * np.sqrt(size.clip(min=0))) @ of_covariates_HXM)
        return np.concatenate(noise_HJM, axis=1)

    def posterior(
        self, panel: Panel, subject: NDArray[np.integer], origin: NDArray[np.integer]
    ) -> list[tuple[Floats, Floats]]:
        """Return each outcome's expected effects `[M,P]` of histories, and the covariance `[M,Z,Z]` of the random ones.

        Effects are of a column of ones, the levels, the exposures, and what covariates do, in this order.
        """
        _, known = self._begin(panel, subject, origin)
        return [(found.mean_QP, found.factor_QZZ @ found.factor_QZZ.swapaxes(1, 2)) for found in known]

    def _series(self, panel: Panel, rows_M: NDArray[np.int64]) -> Series:
        return Series.of(panel.take(rows_M), self.scaler, self.schema.treatments)

    @cached_property
    def _table(self) -> Floats:
        return dose_table(self.schema.treatments, timeless=True)

    @cached_property
    def _rollout(self) -> Rollout:
        return Rollout(self.laws, self.effects, self.equations)

    def _sums(
        self, series: Series, law: GrowthTransition, effects: Effects, *, links: bool
    ) -> Posterior | LogitPosterior:
        """Return what histories add up to; that of `links`, too, where it is asked what training leaves open."""
        design = law.design(series, *self._rollout.moments, filled_too=True)
        exposure_NTJ = carried(design.dose_NTL, effects.decay, design.gap_NT)
        left_NTJ = exposure_NTJ * remaining(effects.decay.reshape(-1), design.gap_NT, axis=-1)
        before = [(0, 0), (1, 0), (0, 0)]
        if law.logit:
            return LogitPosterior.of(design, effects, effects.means(series.v_NV), np.pad(left_NTJ, before))
        acting_NTJ = design.acting(exposure_NTJ, effects.decay)
        random_NTZ = np.concatenate([design.level_NTB, acting_NTJ], axis=-1) * design.counted_NT[..., None]
        prior_NP, z = effects.means(series.v_NV), effects.n_random
        expected_NT = np.einsum("ntz,nz->nt", random_NTZ, prior_NP[:, :z])
        expected_NT += (design.link_NTF @ effects.mean[z:]) * design.counted_NT
        turned_NTZ = random_NTZ @ effects.spread
        summed_NTZ = (turned_NTZ * (design.response_NT - expected_NT)[..., None]).cumsum(axis=1)
        phi_NTP = np.concatenate([random_NTZ, design.link_NTF], axis=-1) if links else random_NTZ
        cross_NTZP = (turned_NTZ[..., None] * phi_NTP[..., None, :]).cumsum(axis=1)
        earlier = (
            np.pad(left_NTJ, before),
            np.pad(summed_NTZ, before),
            np.pad(cross_NTZP, [*before, (0, 0)]),
        )
        return Posterior(effects, prior_NP, *earlier)

    def _distribution(self, panel: Panel, queries: Queries, summed_Y: NDArray[np.bool_]) -> Floats:
        """Return means, and the sds that parameters and noise share `[3,Q,H,Y]`, of outcomes or of their sums.

        Sums stand behind outcomes and covariates in the state.
        """
        start, known = self._begin(panel, queries.subject, queries.origin)
        effects, factors = [found.mean_QP.T.copy() for found in known], [found.left_open() for found in known]
        n_state, q, n = len(self.laws) + (len(start.x_XQ) if self.equations else 0), len(queries), len(self.laws)
        summed = np.flatnonzero(summed_Y)
        size, told = n_state + len(summed), np.arange(n)
        told[summed] = n_state + np.arange(len(summed))
        adds_SS = np.eye(size)
        adds_SS[told[summed], summed] = 1
        first_Y = np.cumsum([0, *(factor.shape[2] for factor in factors)])
        by_effect_QSZ, covariance_QSS = np.zeros((q, size, first_Y[-1])), np.zeros((q, size, size))
        parameter, noise = (np.empty((q, queries.horizon, n)) for _ in range(2))
        y_HYQ, given = [], [*map(self._given, queries.plan.swapaxes(0, 1))]
        own_sd = [
            x.factor_QZZ[None, : q * law.logit, 0, 0].reshape(-1, q) for law, x in zip(self.laws, known, strict=True)
        ]
        chance_HYQ = self._chances(start, given, effects, own_sd)
        for h, step in enumerate(self._rollout.steps(start, given, effects, chance_HYQ=chance_HYQ)):
            y_HYQ.append(step.after.y_YQ)
            slope_QSS = np.tile(np.eye(size), (q, 1, 1))
            slope_QSS[:, :n_state, :n_state] = self._rollout.slopes(step, effects, n_state)
            by_effect_QSZ = slope_QSS @ by_effect_QSZ
            covariance_QSS = slope_QSS @ covariance_QSS @ slope_QSS.swapaxes(1, 2)
            each = zip(self.laws, self.effects, step.columns, step.spans, factors, strict=True)
            for law, learnt, columns, span, factor_QPK in each:
                o, scale_Q = law.outcome, self._rollout.gain(law, step)
                phi_QP = np.stack([np.ones(q) * span.level_Q, *columns], axis=1)
                own = slice(first_Y[o], first_Y[o + 1])
                by_effect_QSZ[:, o, own] += scale_Q[:, None] * (phi_QP[:, None] @ factor_QPK)[:, 0]
                if law.logit:  # what is left of the variance of 0 and 1, all of which is noise and parameters
                    left_Q = step.after.y_YQ[o] * (1 - step.after.y_YQ[o]) - (by_effect_QSZ[:, o] ** 2).sum(axis=1)
                    covariance_QSS[:, o, o] = np.maximum(covariance_QSS[:, o, o], left_Q)
                else:
                    covariance_QSS[:, o, o] += (scale_Q * learnt.noise * span.noise_Q) ** 2
            if self.equations is not None:
                covariance_QSS[:, n:n_state, n:n_state] += self.equations.covariance(step.gap_Q)
            if len(summed):
                by_effect_QSZ, covariance_QSS = adds_SS @ by_effect_QSZ, adds_SS @ covariance_QSS @ adds_SS.T
            parameter[:, h] = np.sqrt((by_effect_QSZ[:, told] ** 2).sum(axis=2))
            noise[:, h] = np.sqrt(np.diagonal(covariance_QSS, axis1=1, axis2=2)[:, told].clip(min=0))
        mean_QHY = self.scaler.unscale_outcomes(self._scaled(y_HYQ))
        mean_QHY[..., summed] = mean_QHY[..., summed].cumsum(axis=1)
        return np.stack([mean_QHY, parameter, noise])
