"""Whether a series goes on: hazards of its ends, step by step, given the course so far and the plan (spec SURV-2 to 5).

Fitted beside a model, to the subjects that it learnt from; along a plan, the outcomes that it predicts continue the
course. `E` counts ends, `P` columns of a regression, `M` decisions, `Z` outcomes that have a logarithm; `K`, `S` and
`L` are those of propensity.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, xlogy

from costar_cli.data import Panel, PanelSchema, Plans, Queries, Scaler
from costar_cli.data.visits import elapsed, elapsed_dose
from costar_cli.inference.at_risk import AtRisk
from costar_cli.inference.course_errors import MOST_ERRORS, CourseErrors, Transition, least_squares_share
from costar_cli.inference.outcomes import OutcomeFacts
from costar_cli.inference.propensity import CHUNK, DOSES, KNOTS, Courses, fit_chain, nothing_ahead
from costar_cli.inference.rates import MOST_LOG, ends_in, fit_rates, level_shift
from costar_cli.methods.base import FittedModel
from costar_cli.methods.shared.doses import dose_names, dose_table

MOST_DECISIONS: Final = 20_000  # without an end that the regressions learn from
BEFORE_ENDS: Final = (0.1, 0.5, 0.9)  # quantiles of levels before an end, where their effects may bend, too
USUAL: Final = (0.005, 0.995)  # quantiles of the changes of logarithms
RIDGES: Final = (0.3, 3.0, 30.0, 300.0)
ARRAYS: Final = "survival/"
FIELDS: Final = {"floor": "floor_Y", "moments": "moments_4Z", "knots": "knots_KSY", "intercept": "intercept_E",
                 "coef": "coef_EP"}  # fmt: skip
OF_TRANSITION: Final = {"next_intercept": "intercept_C", "next_coef": "coef_CP", "next_range": "range_2C"}
OF_ERRORS: Final = {"errors_share": "share_HY", "errors_outcomes": "outcome_HKY", "errors_logits": "logit_HKE"}

Floats = NDArray[np.float64]
Ints = NDArray[np.integer]


@dataclass(frozen=True, eq=False, slots=True)
class Hazards:
    """The probability of each end of the schema at each step, given that the series went on until then.

    Outcomes enter standardised, and those that grow by shares by their logarithm, too: `floor_Y` is the least value
    that has one, 0 of the others, `moments_4Z` mean and sd of the logarithms, and how far they usually change in a
    step, down and up. `knots_KSY` are those of outcomes, then of logarithms; `coef_EP` those of a history, then of the
    treatments of the step. Where steps are of any length, those of terminal ends are of the logarithm of a rate per
    unit of time, which the length of the step leaves alone. `transition` continues outcomes and covariates, None where
    no step follows another; `errors` say how far courses may lie from the mean one, None where that is not known.
    """

    schema: PanelSchema
    scaler: Scaler
    floor_Y: Floats
    moments_4Z: Floats
    knots_KSY: Floats
    intercept_E: Floats
    coef_EP: Floats
    transition: Transition | None = None
    errors: CourseErrors | None = None

    @classmethod
    def fit(cls, panel: Panel, schema: PanelSchema, scaler: Scaler, facts: OutcomeFacts) -> "Hazards | None":
        """Fit the hazards to the subjects that a model learnt from; None where no step has a next one."""
        risk = AtRisk.of(panel, schema, terminal=True).thinned(MOST_DECISIONS)
        if not len(risk.queries):
            return None
        floor_Y, ends = np.zeros(len(schema.outcomes)), len(schema.ends)
        for o in (o for o, least in enumerate(facts.least) if least is not None):
            seen_M = panel.outcomes[..., o][panel.observed_outcomes[..., o]]
            floor_Y[o] = seen_M[seen_M > 0].min()
        # Of what was observed: a value that was carried forward has not changed. Where no outcome follows one of the
        # step before, all changes count.
        seen_NTZ, logs_NTZ = panel.observed_outcomes[..., floor_Y > 0], _logs(panel.outcomes, floor_Y)
        grows_NTZ = panel.observed[:, 1:, None] & (panel.outcomes[:, 1:, floor_Y > 0] > 0)
        pairs_NTZ, moments_4Z = grows_NTZ & seen_NTZ[:, :-1] & seen_NTZ[:, 1:], np.zeros((4, logs_NTZ.shape[2]))
        for z, logs_NT in enumerate(np.moveaxis(logs_NTZ, -1, 0)):
            logs_M, pairs_NT = logs_NT[seen_NTZ[..., z]], pairs_NTZ[..., z]
            changes_M = np.diff(logs_NT, axis=1)[pairs_NT if pairs_NT.any() else grows_NTZ[..., z]]
            usual_2 = np.quantile(changes_M, USUAL) if len(changes_M) else (0.0, 0.0)
            moments_4Z[:, z] = logs_M.mean(), max(logs_M.std(), 1e-6), *usual_2
        blank = cls(schema, scaler, floor_Y, moments_4Z, np.zeros((0, 0, 0)), np.zeros(ends), np.zeros((ends, 0)))
        courses = blank._courses(panel, risk.queries, nothing_ahead(panel, risk.queries))
        # The level, not means over 1, 5 and 15 steps: data tell these apart by tiny differences, and along predicted
        # courses the differences are large. Log loss of recovery on held-out tumours fell from 0.0061 to 0.0051 a step.
        course_MSY = courses.outcome_QHSY[:, 0]
        ended_M = risk.ended_ME.any(axis=1)
        before_KSY = np.quantile(course_MSY[ended_M] if ended_M.any() else course_MSY, BEFORE_ENDS, axis=0)
        blank = replace(blank, knots_KSY=np.concatenate([np.quantile(course_MSY, KNOTS, axis=0), before_KSY]))
        hazards = blank._fitted(courses, risk, terminal=True)._continued(courses, risk, panel)
        if all(end.terminal for end in schema.ends):
            return hazards
        losses = AtRisk.of(panel, schema, terminal=False).thinned(MOST_DECISIONS)
        courses = blank._courses(panel, losses.queries, nothing_ahead(panel, losses.queries))
        return hazards._fitted(courses, losses, terminal=False)

    def _fitted(self, courses: Courses, risk: AtRisk, *, terminal: bool) -> "Hazards":
        """Return the hazards with those of some ends fitted, in a chain: these exclude each other."""
        which_E, columns_MP = self._which(terminal=terminal), self._columns(courses, risk.queries)[:, 0]
        width = columns_MP.shape[1]
        intercept_E, coef_EP = self.intercept_E.copy(), np.zeros((len(which_E), width))
        coef_EP[:, : self.coef_EP.shape[1]] = self.coef_EP
        if which_E.any():
            ended_ME, owner_E = risk.ended_ME[:, which_E], np.zeros(int(which_E.sum()), dtype=np.int64)
            subject_M, time_QH = risk.queries.subject, self.time(risk.queries.plan) if terminal else None
            if time_QH is None:
                together_MP = np.concatenate([columns_MP, ended_ME], axis=1)
                fitted = fit_chain(together_MP, ended_ME, owner_E, subject_M, ridges=RIDGES)
                intercept_E[which_E] = fitted[0] + np.log(risk.share)  # as if no step had been left out
                coef_EP[which_E] = fitted[1][:, :width]
            else:
                names, timeless = (dose_names(self.schema.treatments, timeless=flag) for flag in (False, True))
                seen = np.ones(width, dtype=bool)  # all but how long the step is
                seen[width - len(names) :] = [name in timeless for name in names]
                stands_for_M = np.where(ended_ME.any(axis=1), 1.0, 1 / risk.share)
                fitted = fit_rates(
                    columns_MP[:, seen], ended_ME, time_QH[:, 0] * stands_for_M, subject_M, ridges=RIDGES
                )
                intercept_E[which_E], coef_EP[np.ix_(which_E, seen)] = fitted
        return replace(self, intercept_E=intercept_E, coef_EP=coef_EP)

    def _continued(self, courses: Courses, risk: AtRisk, panel: Panel) -> "Hazards":
        """Return the hazards with the transition from steps at risk to steps at risk.

        What the row of an end has was often filled, and no hazard reads it. Elsewhere only what was observed teaches
        how it changes: a value that was carried forward never moves.
        """
        asked = risk.queries
        goes_on_M = asked.origin < panel.length[asked.subject] - 2
        if not goes_on_M.any():
            return self
        subject_M, step_M = asked.subject[goes_on_M], asked.origin[goes_on_M].astype(np.int64)
        columns_MP = self._columns(courses, asked)[goes_on_M, 0]
        next_MC = np.concatenate(self._known(panel, (subject_M, step_M + 1)), axis=1)
        seen_NTC = _seen_cells(panel)
        now_MC, later_MC = (seen_NTC[subject_M, at] for at in (step_M, step_M + 1))
        seen_MC = now_MC.all(axis=1, keepdims=True) & later_MC
        return replace(self, transition=Transition.fit(columns_MP, next_MC, subject_M, ridges=RIDGES, seen_MC=seen_MC))

    def with_errors(self, panel: Panel, queries: Queries, predicted_QHY: Floats) -> "Hazards":
        """Return the hazards with what the courses of held-out subjects say of the mean ones (spec SURV-10).

        Args:
            panel: the held-out subjects.
            queries: factual plans, which may go on beyond the end of a series.
            predicted_QHY: outcomes after each step of the plan, in the units of the data.
        """
        if self.transition is None:
            return self
        step_QH = queries.origin.astype(np.int64)[:, None] + np.arange(queries.horizon)
        counts_QH = step_QH <= panel.length[queries.subject, None] - 2
        at = queries.subject[:, None], np.minimum(step_QH, panel.n_steps - 1)
        known_QHY, x_QHX = self._known(panel, at)
        seen_QH = counts_QH & _seen_cells(panel)[at].all(axis=-1)
        # What the choice of rows decides, such as whether x was measured, is no error.
        chosen_X = np.zeros(x_QHX.shape[2], dtype=bool)
        if seen_QH[:, 1:2].any():  # else nothing says how far courses lie, but what was filled
            chosen_X = (np.ptp(x_QHX[seen_QH], axis=0) == 0) & (np.ptp(x_QHX[counts_QH], axis=0) > 0)
            counts_QH = seen_QH
        share_HY = np.ones((queries.horizon, len(self.floor_Y)))

        def share(h: int, model_QY: Floats, next_QY: Floats) -> Floats:
            own = counts_QH[:, h]
            if own.any():
                share_HY[h] = least_squares_share(model_QY[own], next_QY[own], known_QHY[own, h])
            return np.asarray(share_HY[h])

        courses = self._courses(panel, queries, predicted_QHY)
        columns_QHP, mean_QHY = self._ahead(courses, queries, share)
        error_QHX = np.where(chosen_X, 0.0, x_QHX - columns_QHP[..., self._covariates])
        logit_QHE = error_QHX @ self.coef_EP[:, self._covariates].T
        shift_QHE = logit_QHE + self._of_outcomes(known_QHY) - self._of_outcomes(mean_QHY)
        shift_QH = shift_QHE[..., self._which(terminal=True)].sum(axis=-1)
        later, error_QHY = np.s_[:, 1:], known_QHY - mean_QHY
        errors = CourseErrors.of(share_HY[1:], error_QHY[later], logit_QHE[later], counts_QH[later], shift_QH[later])
        return replace(self, errors=errors)

    def anchored(self, panel: Panel) -> "Hazards":
        """Return the hazards, moved by a number for each terminal end so that the subjects of a panel end as often.

        The move has a normal prior (`level_shift`), so that an end that none of them had moves little.
        """
        risk = AtRisk.of(panel, self.schema, terminal=True)
        columns_MP = self._columns(
            self._courses(panel, risk.queries, nothing_ahead(panel, risk.queries)), risk.queries
        )[:, 0]
        # With the source's hazards alone, survival of .54 was predicted where .28 was true; moved, .25.
        time_QH, open_M = self.time(risk.queries.plan), np.ones(len(columns_MP), dtype=bool)
        intercept_E = self.intercept_E.copy()
        for e in np.flatnonzero(self._which(terminal=True)):
            logit_M, ended_M = columns_MP[open_M] @ self.coef_EP[e] + self.intercept_E[e], risk.ended_ME[open_M, e]
            intercept_E[e] += level_shift(logit_M, ended_M, None if time_QH is None else time_QH[open_M, 0])
            if time_QH is None:  # ends of a chain: a later one is possible where no earlier one came
                open_M &= ~risk.ended_ME[:, e]
        return replace(self, intercept_E=intercept_E)

    @property
    def _moments(self) -> Floats:
        """Return means and sds `[2,Y+Z]` of outcomes and logarithms."""
        return np.concatenate([self.scaler.outcomes, self.moments_4Z[:2]], axis=1)

    @property
    def _covariates(self) -> slice:
        """Return where the covariates stand among the columns."""
        factors = dose_table(self.schema.treatments).shape[1]
        first = (len(self.knots_KSY) + 1) * self._moments.shape[1] + (len(DOSES) + 1) * factors + 1
        return slice(first, first + self.schema.dims[0])

    def _known(self, panel: Panel, at: tuple[Ints, Ints]) -> tuple[Floats, Floats]:
        """Return outcomes, or their logarithms, and covariates of steps `at`, standardised."""
        level = panel.outcomes[at].astype(np.float64)
        both = (np.concatenate([level, _logs(level, self.floor_Y)], axis=-1) - self._moments[0]) / self._moments[1]
        return self._own_scale(both), (panel.covariates[at] - self.scaler.covariates[0]) / self.scaler.covariates[1]

    def _own_scale(self, both: Floats) -> Floats:
        """Return of standardised outcomes and logarithms `[...,Y+Z]` the logarithm where there is one `[...,Y]`."""
        has_Y, own = self.floor_Y > 0, both[..., : len(self.floor_Y)].copy()
        own[..., has_Y] = both[..., len(has_Y) :]
        return own

    def _which(self, *, terminal: bool) -> NDArray[np.bool_]:
        """Return which ends `[E]` are terminal, or which are losses of follow-up."""
        return np.array([end.terminal == terminal for end in self.schema.ends], dtype=bool)

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays that a model's artifact holds."""
        held = ((self, FIELDS), (self.transition, OF_TRANSITION), (self.errors, OF_ERRORS))
        return {ARRAYS + name: getattr(part, field) for part, fields in held if part for name, field in fields.items()}

    @classmethod
    def read(cls, model: FittedModel, arrays: Mapping[str, NDArray[np.generic]]) -> Self:
        """Read what `to_arrays` returned; files of earlier versions have neither transition nor errors.

        Raises:
            ValueError: a shape that does not fit the model, or a number that is not finite.
            KeyError: something is missing.
        """

        def numbers(fields: Mapping[str, str]) -> dict[str, Floats]:
            return {field: np.asarray(arrays[ARRAYS + name]).astype(np.float64) for name, field in fields.items()}

        def is_there(fields: Mapping[str, str]) -> bool:
            return any(ARRAYS + name in arrays for name in fields)

        transition = Transition(**numbers(OF_TRANSITION)) if is_there(OF_TRANSITION) else None
        errors = CourseErrors(**numbers(OF_ERRORS)) if is_there(OF_ERRORS) else None
        found = cls(model.schema, model.scaler, **numbers(FIELDS), transition=transition, errors=errors)
        found._check(model.horizon)
        return found

    def _check(self, horizon: int) -> None:
        """See that the numbers, which may be anybody's, are those of such columns."""
        covariates, _, outcomes, statics = self.schema.dims
        ends, factors = len(self.schema.ends), dose_table(self.schema.treatments).shape[1]
        both, knots = outcomes + int((self.floor_Y > 0).sum()), len(KNOTS) + len(BEFORE_ENDS)
        width = (knots + 1) * both + (len(DOSES) + 2) * factors + 1 + covariates + statics
        shapes = dict(
            zip(FIELDS, ((outcomes,), (4, both - outcomes), (knots, 1, both), (ends,), (ends, width)), strict=True)
        )
        if self.transition:
            both = outcomes + covariates
            shapes |= zip(OF_TRANSITION, ((both,), (both, width), (2, both)), strict=True)
        if self.errors:
            kept = (horizon - 1, MOST_ERRORS)
            shapes |= zip(OF_ERRORS, ((horizon - 1, outcomes), (*kept, outcomes), (*kept, ends)), strict=True)
        held = {name.removeprefix(ARRAYS): values for name, values in self.to_arrays().items()}
        if not all(np.isfinite(values.astype(np.float64)).all() for values in held.values()):
            raise ValueError("hazards have numbers that are not finite")
        if wrong := [name for name, values in held.items() if values.shape != shapes[name]]:
            raise ValueError(f"hazards have {wrong[0]} of shape {held[wrong[0]].shape}, not {shapes[wrong[0]]}")
        if (self.floor_Y < 0).any() or (self.moments_4Z[1] <= 0).any():
            raise ValueError("hazards have logarithms below 0, or without a spread")

    def along(self, panel: Panel, queries: Queries, predicted_QHY: Floats, *, terminal: bool = True) -> Floats:
        """Return the probability `[Q,H,E]` that each end comes at each step, given that none came before.

        Args:
            panel: the series.
            queries: origins and plans.
            predicted_QHY: outcomes after each step of the plan, in the units of the data.
            terminal: terminal ends, else losses of follow-up; those of the other kind have probability 0.
        """
        size = max(1, CHUNK // (max(queries.horizon, 1) * max(self.coef_EP.shape[1], 1)))
        found_QHE = np.zeros((len(queries), queries.horizon, len(self.schema.ends)))
        which_E, time_QH = self._which(terminal=terminal), self.time(queries.plan) if terminal else None
        for first in range(0, len(queries), size):
            rows = slice(first, first + size)
            asked = queries.take(rows)
            courses = self._courses(panel, asked, predicted_QHY[rows])
            columns_QHP, mean_QHY = self._ahead(courses, asked)
            logit_QHE = columns_QHP @ self.coef_EP[which_E].T + self.intercept_E[which_E]
            step_QH = None if time_QH is None else time_QH[rows]
            found_QHE[rows][..., which_E] = self._over_errors(mean_QHY, logit_QHE, which_E, step_QH)
        return found_QHE

    def _over_errors(
        self, mean_QHY: Floats, logit_QHE: Floats, which_E: NDArray[np.bool_], time_QH: Floats | None
    ) -> Floats:
        """Return the mean probabilities `[Q,H,E]` of ends over courses that lie from the mean one as others did.

        Args:
            mean_QHY: the mean course of outcomes, or of their logarithms.
            logit_QHE: of the ends `which_E` along it.
            which_E: ends of one kind.
            time_QH: as `time` returns it.
        """
        found_QHE = _probabilities(logit_QHE, time_QH)
        if self.errors is None or logit_QHE.shape[1] < 2:
            return found_QHE
        # At the mean course alone, 193 deaths were predicted two to four steps ahead on pygformula's sample data where
        # 260 came; now 247. A factor per step that makes sums agree says nothing of plans that move covariates.
        later, steps = np.s_[:, 1:], logit_QHE.shape[1] - 1
        mean_QHY, time_QH = mean_QHY[later], None if time_QH is None else time_QH[later]
        rest_QHE = logit_QHE[later] - self._of_outcomes(mean_QHY)[..., which_E]
        errors = (self.errors.outcome_HKY[:steps], self.errors.logit_HKE[:steps])
        total_QHE = np.zeros_like(rest_QHE)
        for error_HY, shift_HE in zip(*(np.swapaxes(values, 0, 1) for values in errors), strict=True):
            logit_QHE = self._of_outcomes(mean_QHY + error_HY) + shift_HE
            total_QHE += _probabilities(rest_QHE + logit_QHE[..., which_E], time_QH)
        found_QHE[later] = total_QHE / MOST_ERRORS
        return found_QHE

    def _of_outcomes(self, own_QHY: Floats) -> Floats:
        """Return what a course of outcomes, or of their logarithms, adds to the logits of ends `[Q,H,E]`."""
        bent_QHP = self._bent(own_QHY)
        return np.asarray(bent_QHP @ self.coef_EP[:, : bent_QHP.shape[-1]].T)

    def _bent(self, own_QHY: Floats) -> Floats:
        """Return the columns `[Q,H,...]` that a course of outcomes, or of their logarithms, becomes."""
        has_Y, (mean_C, sd_C) = self.floor_Y > 0, self._moments
        n, log_QHZ, level_QHY = len(has_Y), own_QHY[..., has_Y], own_QHY.copy()
        if has_Y.any():  # levels follow logarithms
            value_QHZ = np.exp(np.minimum(log_QHZ * sd_C[n:] + mean_C[n:], MOST_LOG))
            level_QHY[..., has_Y] = (value_QHZ - mean_C[:n][has_Y]) / sd_C[:n][has_Y]
        both_QHC = np.concatenate([level_QHY, log_QHZ], axis=-1)
        return Courses(both_QHC[:, :, None], both_QHC[..., :0]).columns(self.knots_KSY)

    def time(self, plan: Plans) -> Floats | None:
        """Return how long steps `[...]` are by which rates of terminal ends grow, None where hazards are per step.

        In usual lengths of a step.
        """
        dose, time = elapsed_dose(self.schema.treatments), elapsed(self.schema.treatments, plan)
        return None if dose is None or dose.elapsed is None or time is None else time / dose.elapsed

    def _columns(self, courses: Courses, queries: Queries) -> Floats:
        """Return the columns `[Q,H,P]` of the regressions, of queries and what is known before their steps."""
        return np.concatenate(
            [courses.columns(self.knots_KSY), queries.plan @ dose_table(self.schema.treatments)], axis=-1
        )

    def _ahead(
        self, courses: Courses, queries: Queries, share: Callable[[int, Floats, Floats], Floats] | None = None
    ) -> tuple[Floats, Floats]:
        """Return the columns `[Q,H,P]` of the mean course, and its outcomes `[Q,H,Y]`, or their logarithms.

        Covariates go on as they do in training, since those of the origin are out of date a step later. Outcomes are
        those that the model predicts, mixed with the transition's: `share` says in which share at each step, by default
        that of the errors.
        """
        columns_QHP, outcomes = self._columns(courses, queries), len(self.floor_Y)
        mean_QHY = self._own_scale(courses.outcome_QHSY[:, :, 0])
        for h in range(1, queries.horizon if self.transition else 0):
            next_QC = self.transition.after(columns_QHP[:, h - 1])  # type: ignore[union-attr]
            next_QY = next_QC[:, :outcomes]
            if share:
                share_Y = share(h, mean_QHY[:, h], next_QY)
            else:
                share_Y = np.ones(outcomes) if self.errors is None else self.errors.share_HY[h - 1]
            mean_QHY[:, h] = next_QY + share_Y * (mean_QHY[:, h] - next_QY)
            bent_QP = self._bent(mean_QHY[:, h : h + 1])[:, 0]
            columns_QHP[:, h, : bent_QP.shape[1]] = bent_QP
            columns_QHP[:, h, self._covariates] = next_QC[:, outcomes:]
        return columns_QHP, mean_QHY

    def _courses(self, panel: Panel, queries: Queries, predicted_QHY: Floats) -> Courses:
        """Return what is known before each step, logarithms as further outcomes."""
        known = panel.outcomes.astype(np.float64)
        both_NTY = np.concatenate([known, _logs(known, self.floor_Y)], axis=-1)
        # Logarithms change from step to step as those of series that go on do. Models predict 0 or below for tumours
        # that shrink, whose logarithm is that of an extinct one: hazards were 0 or 1.
        before_QZ = both_NTY[queries.subject, queries.origin, known.shape[2] :]
        logs_QHZ, (low_Z, high_Z) = _logs(predicted_QHY, self.floor_Y), self.moments_4Z[2:]
        for h in range(logs_QHZ.shape[1]):
            logs_QHZ[:, h] = np.clip(logs_QHZ[:, h], before_QZ + low_Z, before_QZ + high_Z)
            before_QZ = logs_QHZ[:, h]
        ahead_QHY = np.concatenate([predicted_QHY, logs_QHZ], axis=-1)
        scaler = replace(self.scaler, outcomes=self._moments)
        seen = replace(panel, outcomes=both_NTY, outcome_observed=None)
        courses = Courses.of(seen, queries, ahead_QHY, scaler, self.schema.treatments)
        return replace(courses, outcome_QHSY=courses.outcome_QHSY[:, :, :1])  # of means, only that of the last step


def log_loss(probability_ME: Floats, ended_ME: NDArray[np.bool_]) -> Floats:
    """Return the logarithmic loss `[M]` of ends that exclude each other, and of none of them (spec SURV-5)."""
    none_M, tiny = 1 - probability_ME.sum(axis=-1), np.finfo(np.float64).tiny
    of_ends_M = xlogy(ended_ME, np.maximum(probability_ME, tiny)).sum(axis=-1)
    return np.asarray(-of_ends_M - xlogy(~ended_ME.any(axis=-1), np.maximum(none_M, tiny)))


def _seen_cells(panel: Panel) -> NDArray[np.bool_]:
    """Return which outcomes, then covariates `[N,T,C]` were observed, not filled."""
    return np.concatenate([panel.observed_outcomes, panel.observed_covariates], axis=2)


def _logs(values: NDArray[np.floating], floor_Y: Floats) -> Floats:
    """Return the logarithm `[...,Z]` of outcomes that have one."""
    has_Y = floor_Y > 0
    return np.asarray(np.log(np.maximum(values[..., has_Y].astype(np.float64), floor_Y[has_Y])))


def _probabilities(logit_QHE: Floats, time_QH: Floats | None) -> Floats:
    """Return the probability `[Q,H,E]` of each end, of logits in a chain, or of logarithms of rates over a time."""
    if time_QH is not None:
        return ends_in(logit_QHE, time_QH)
    hazard_QHE, goes_on_QH = expit(logit_QHE), np.ones(logit_QHE.shape[:2])
    for e in range(hazard_QHE.shape[2]):
        own_QH = hazard_QHE[..., e].copy()
        hazard_QHE[..., e] *= goes_on_QH
        goes_on_QH *= 1 - own_QH
    return np.asarray(hazard_QHE)
