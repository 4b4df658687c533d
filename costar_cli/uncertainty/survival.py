"""Whether a series goes on: hazards of its ends, step by step, given the course so far and the plan (spec SURV-2 to 5).

Fitted beside a model, to the subjects that it learnt from; along a plan, the outcomes that it predicts continue the
course. `E` counts ends, `P` columns of a regression, `M` decisions, `Z` outcomes that have a logarithm; `K`, `S` and
`L` are those of practice.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, xlogy

from costar_cli.methods.base import FittedModel
from costar_cli.methods.shared.doses import dose_names, dose_table
from costar_cli.panel import Domain, Panel, PanelSchema, Plans, Queries, Scaler, as_plans
from costar_cli.panel.visits import elapsed, elapsed_dose
from costar_cli.uncertainty.estimates import reading
from costar_cli.uncertainty.outcomes import OutcomeFacts
from costar_cli.uncertainty.practice import CHUNK, DOSES, KNOTS, Courses, fit_chain, nothing_ahead
from costar_cli.uncertainty.rates import ends_in, expected_ends, fit_rates, loss_of_rates

MOST_DECISIONS: Final = 20_000  # without an end that the regressions learn from
BEFORE_ENDS: Final = (0.1, 0.5, 0.9)  # quantiles of levels before an end, where their effects may bend, too
USUAL: Final = (0.005, 0.995)  # quantiles of the changes of logarithms
RIDGES: Final = (0.3, 3.0, 30.0, 300.0)
BINS: Final = 10
LOSSES: Final = ("log_loss", "constant_log_loss")  # per step, of the hazards and of those that are always the same
ARRAYS: Final = "survival/"
FIELDS: Final = ("floor", "moments", "knots", "intercept", "coef")

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class AtRisk:
    """Steps after which a series may end, as plans of one step, and which end came `[M,E]`.

    `share` is that of the steps without an end that are there.
    """

    queries: Queries
    ended_ME: NDArray[np.bool_]
    share: float = 1.0

    @classmethod
    def of(cls, panel: Panel, schema: PanelSchema, *, terminal: bool) -> Self:
        """Return the steps of a panel that may end by a terminal event, or by a loss of follow-up (spec SURV-2).

        What was given at the last step of those who were lost is not known: plans of losses give nothing.
        """
        end_N = panel.ends
        lost_N = np.isin(end_N, [code for code, end in enumerate(schema.ends, start=1) if not end.terminal])
        last_N = panel.length - (1 if terminal else ~lost_N)
        step_T = np.arange(panel.n_steps)
        row_M, step_M = np.nonzero((step_T < last_N[:, None]) & (step_T >= panel.first_origin[:, None]))
        final_M = step_M == last_N[row_M] - 1
        ended_ME = final_M[:, None] & (end_N[row_M, None] == np.arange(1, len(schema.ends) + 1))
        ended_ME &= [end.terminal == terminal for end in schema.ends]
        plan = panel.treatments[row_M, step_M][:, None] * terminal
        return cls(Queries(row_M.astype(np.int32), step_M.astype(np.int16), as_plans(plan)), ended_ME)

    def thinned(self, most: int) -> "AtRisk":
        """Return all steps with an end, and of those without at most so many, evenly spread."""
        ended_M = self.ended_ME.any(axis=1)
        if (others := int((~ended_M).sum())) <= most:
            return self
        spread = np.linspace(0, others - 1, most).round().astype(np.int64)
        rows = np.union1d(np.flatnonzero(ended_M), np.flatnonzero(~ended_M)[spread])
        return AtRisk(self.queries.take(rows), self.ended_ME[rows], most / others)


@dataclass(frozen=True, eq=False, slots=True)
class Hazards:
    """The probability of each end of the schema at each step, given that the series went on until then.

    Outcomes enter standardised, and those that grow by shares by their logarithm, too: `floor_Y` is the least value
    that has one, 0 of the others, `moments_4Z` mean and sd of the logarithms, and how far they usually change in a
    step, down and up. `knots_KSY` are those of outcomes, then of logarithms; `coef_EP` those of a history, then of the
    treatments of the step. Where steps are of any length, those of terminal ends are of the logarithm of a rate per
    unit of time, which the length of the step leaves alone.
    """

    schema: PanelSchema
    scaler: Scaler
    floor_Y: Floats
    moments_4Z: Floats
    knots_KSY: Floats
    intercept_E: Floats
    coef_EP: Floats

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
        logs_NTZ = _logs(panel.outcomes, floor_Y)
        logs_MZ, changes_NTZ = logs_NTZ[panel.observed], np.diff(logs_NTZ, axis=1)
        grows_NT = panel.observed[:, 1:] & (panel.outcomes[:, 1:, floor_Y > 0] > 0).all(axis=-1)
        usual_2Z = np.quantile(
            changes_NTZ[grows_NT] if grows_NT.any() else np.zeros((1, logs_MZ.shape[1])), USUAL, axis=0
        )
        moments_4Z = np.stack([logs_MZ.mean(axis=0), np.maximum(logs_MZ.std(axis=0), 1e-6), *usual_2Z])
        blank = cls(schema, scaler, floor_Y, moments_4Z, np.zeros((0, 0, 0)), np.zeros(ends), np.zeros((ends, 0)))
        courses = blank._courses(panel, risk.queries, nothing_ahead(panel, risk.queries))
        course_MSY = courses.outcome_QHSY[:, 0]
        ended_M = risk.ended_ME.any(axis=1)
        before_KSY = np.quantile(course_MSY[ended_M] if ended_M.any() else course_MSY, BEFORE_ENDS, axis=0)
        blank = replace(blank, knots_KSY=np.concatenate([np.quantile(course_MSY, KNOTS, axis=0), before_KSY]))
        hazards = blank._fitted(courses, risk, terminal=True)
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
                seen, stands_for_M = self._seen(width), np.where(ended_ME.any(axis=1), 1.0, 1 / risk.share)
                fitted = fit_rates(
                    columns_MP[:, seen], ended_ME, time_QH[:, 0] * stands_for_M, subject_M, ridges=RIDGES
                )
                intercept_E[which_E], coef_EP[np.ix_(which_E, seen)] = fitted
        return replace(self, intercept_E=intercept_E, coef_EP=coef_EP)

    def _which(self, *, terminal: bool) -> NDArray[np.bool_]:
        """Return which ends `[E]` are terminal, or which are losses of follow-up."""
        return np.array([end.terminal == terminal for end in self.schema.ends], dtype=bool)

    def _seen(self, width: int) -> NDArray[np.bool_]:
        """Return the columns `[P]` that rates may see: all but how long the step is."""
        names, timeless = (dose_names(self.schema.treatments, timeless=timeless) for timeless in (False, True))
        seen = np.ones(width, dtype=bool)
        seen[width - len(names) :] = [name in timeless for name in names]
        return seen

    def check(self) -> None:
        """See that the numbers, which may be anybody's, are those of such columns.

        Raises:
            ValueError: a shape that does not fit, or a number that is not finite.
        """
        covariates, _, outcomes, statics = self.schema.dims
        ends, factors = len(self.schema.ends), dose_table(self.schema.treatments).shape[1]
        held = (self.floor_Y, self.moments_4Z, self.knots_KSY, self.intercept_E, self.coef_EP)
        if not all(np.isfinite(values).all() for values in held):
            raise ValueError("hazards have numbers that are not finite")
        both, knots = outcomes + int((self.floor_Y > 0).sum()), len(KNOTS) + len(BEFORE_ENDS)
        width = (knots + 1) * both + (len(DOSES) + 2) * factors + 1 + covariates + statics
        shapes = ((outcomes,), (4, both - outcomes), (knots, 1, both), (ends,), (ends, width))
        if tuple(values.shape for values in held) != shapes:
            raise ValueError(f"hazards have the shapes {[values.shape for values in held]}, not {list(shapes)}")
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
            columns_QHP = self._columns(self._courses(panel, asked, predicted_QHY[rows]), asked)
            if time_QH is not None:
                log_QHE = columns_QHP @ self.coef_EP[which_E].T + self.intercept_E[which_E]
                found_QHE[rows][..., which_E] = ends_in(log_QHE, time_QH[rows])
                continue
            goes_on_QH = np.ones(columns_QHP.shape[:2])
            for e in np.flatnonzero(which_E):
                hazard_QH = expit(columns_QHP @ self.coef_EP[e] + self.intercept_E[e])
                found_QHE[rows, :, e] = hazard_QH * goes_on_QH
                goes_on_QH *= 1 - hazard_QH
        return found_QHE

    def time(self, plan: Plans) -> Floats | None:
        """Return how long steps `[...]` are by which rates of terminal ends grow, None where hazards are per step.

        In usual lengths of a step.
        """
        dose, time = elapsed_dose(self.schema.treatments), elapsed(self.schema.treatments, plan)
        return None if dose is None or dose.elapsed is None or time is None else time / dose.elapsed

    def _logs_ahead(self, predicted_QHY: Floats, before_QZ: Floats) -> Floats:
        """Return logarithms of predictions `[Q,H,Z]` that change from step to step as those of series that go on do."""
        logs_QHZ, (low_Z, high_Z) = _logs(predicted_QHY, self.floor_Y), self.moments_4Z[2:]
        for h in range(logs_QHZ.shape[1]):
            logs_QHZ[:, h] = np.clip(logs_QHZ[:, h], before_QZ + low_Z, before_QZ + high_Z)
            before_QZ = logs_QHZ[:, h]
        return logs_QHZ

    def _columns(self, courses: Courses, queries: Queries) -> Floats:
        """Return the columns `[Q,H,P]` of the regressions, of queries and what is known before their steps."""
        return np.concatenate(
            [courses.columns(self.knots_KSY), queries.plan @ dose_table(self.schema.treatments)], axis=-1
        )

    def _courses(self, panel: Panel, queries: Queries, predicted_QHY: Floats) -> Courses:
        """Return what is known before each step, logarithms as further outcomes."""
        known = panel.outcomes.astype(np.float64)
        both_NTY = np.concatenate([known, _logs(known, self.floor_Y)], axis=-1)
        before_QZ = both_NTY[queries.subject, queries.origin, known.shape[2] :]
        ahead_QHY = np.concatenate([predicted_QHY, self._logs_ahead(predicted_QHY, before_QZ)], axis=-1)
        scaler = replace(self.scaler, outcomes=np.concatenate([self.scaler.outcomes, self.moments_4Z[:2]], axis=1))
        seen = replace(panel, outcomes=both_NTY, outcome_observed=None)
        courses = Courses.of(seen, queries, ahead_QHY, scaler, self.schema.treatments)
        return replace(courses, outcome_QHSY=courses.outcome_QHSY[:, :, :1])  # of means, only that of the last step


@dataclass(frozen=True, eq=False, slots=True)
class Survival:
    """The hazards of a model's data, and how right they are on held-out subjects.

    `subjects`, `decisions` and `events` (by end) are what they were fitted to, `domain` says of whom. `held_out` has
    the mean log loss of a step, that of hazards which are the same at all steps, and the steps; `reliability` the
    expected and the observed share of steps that end, in tenths of the expected one.
    """

    hazards: Hazards
    domain: Domain
    subjects: int
    decisions: int
    events: Mapping[str, int]
    held_out: Mapping[str, Any]
    reliability: tuple[Mapping[str, Any], ...]

    def along(self, panel: Panel, queries: Queries, predicted_QHY: Floats) -> tuple[Floats, Floats]:
        """Return how likely a series is to go on through each step of plans, `[Q,H]`, and each end by then, `[Q,H,E]`.

        At the origin the subject is known to go on (spec SURV-4).
        """
        ends_QHE = self.hazards.along(panel, queries, predicted_QHY)
        survival_QH = np.cumprod(1 - ends_QHE.sum(axis=-1), axis=1)
        before_QH = np.concatenate([np.ones((len(survival_QH), 1)), survival_QH[:, :-1]], axis=1)
        return survival_QH, np.cumsum(before_QH[..., None] * ends_QHE, axis=1)

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays that a model's artifact holds."""
        held = self.hazards
        values = (held.floor_Y, held.moments_4Z, held.knots_KSY, held.intercept_E, held.coef_EP)
        return {ARRAYS + name: array for name, array in zip(FIELDS, values, strict=True)}

    def to_meta(self) -> dict[str, Any]:
        """Return the facts that it holds beside them."""
        plain = {name: getattr(self, name) for name in ("domain", "subjects", "decisions")}
        of = {"events": dict(self.events), "held_out": dict(self.held_out)}
        return {**plain, **of, "reliability": [dict(row) for row in self.reliability]}

    @classmethod
    def read(cls, model: FittedModel, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[np.generic]]) -> Self:
        """Read what `to_meta` and `to_arrays` returned.

        Raises:
            ValueError: it does not fit the model.
            KeyError: something is missing.
            TypeError: something is of another kind.
        """
        numbers = (np.asarray(arrays[ARRAYS + name]).astype(np.float64) for name in FIELDS)
        hazards = Hazards(model.schema, model.scaler, *numbers)
        hazards.check()
        if (domain := meta["domain"]) not in ("source", "target"):
            raise ValueError(f"hazards of an unknown domain, {str(domain)[:40]!r}")
        rows = tuple(row for row in meta["reliability"] if isinstance(row, Mapping))
        events = {str(name): int(count) for name, count in dict(meta["events"]).items()}
        held = dict(meta["held_out"])
        if held and not np.isfinite([float(held[name]) for name in LOSSES]).all():
            raise ValueError("log losses that are not finite")
        return cls(hazards, domain, int(meta["subjects"]), int(meta["decisions"]), events, held, rows)


@dataclass(frozen=True, eq=False, slots=True)
class GoesOn:
    """How likely series are to go on through each step of plans, `[Q,H]`, and to have had each end by then, `[Q,H,E]`.

    `events` counts the training subjects that had each terminal end, `tells` says whether hazards do better on held-out
    subjects than constant ones.
    """

    survival_QH: Floats
    ended_QHE: Floats
    events: Mapping[str, int]
    tells: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Return what the terminal ends are called."""
        return tuple(self.events)

    @property
    def columns(self) -> dict[str, Floats]:
        """Return what tables of answers have, `[Q,H]` by name: ends on their own where there are several."""
        several = {f"ended_{name}": self.ended_QHE[..., e] for e, name in enumerate(self.names) if len(self.names) > 1}
        return {"survival": self.survival_QH} | several


def goes_on(model: FittedModel, panel: Panel, queries: Queries, predicted_QHY: Floats) -> GoesOn | None:
    """Return how likely the series of queries are to go on, None where a model knows of no terminal end."""
    found = survival_of(model)
    terminal = [e for e, end in enumerate(model.schema.ends) if end.terminal]
    if found is None or not terminal:
        return None
    survival_QH, ended_QHE = found.along(panel, queries, predicted_QHY)
    names = (model.schema.ends[e].name for e in terminal)
    events, held = {name: found.events.get(name, 0) for name in names}, found.held_out
    tells = not held or float(held[LOSSES[0]]) < float(held[LOSSES[1]])
    return GoesOn(survival_QH, ended_QHE[..., terminal], events, tells)


def learn_survival(
    model: FittedModel, train: Panel, held: Panel, facts: OutcomeFacts, *, domain: Domain
) -> Survival | None:
    """Fit hazards to a model's training subjects and see how right they are on others; None where series have no ends.

    Args:
        model: just fitted.
        train: the subjects that it was fitted to.
        held: others.
        facts: of the outcomes.
        domain: of all these subjects.
    """
    schema = model.schema
    hazards = Hazards.fit(train, schema, model.scaler, facts) if schema.ends else None
    if hazards is None:
        return None
    events = {end.name: int((train.ends == code).sum()) for code, end in enumerate(schema.ends, start=1)}
    decisions = int((train.length - 1).sum())
    time_NT = hazards.time(train.treatments)
    share_E = np.array([events[end.name] * end.terminal for end in schema.ends])
    share_E = share_E / (decisions if time_NT is None else time_NT[train.decided].sum())
    told, rows = _held_out(hazards, held, share_E)
    return Survival(hazards, domain, train.n_subjects, decisions, events, told, tuple(rows))


def survival_of(model: FittedModel) -> Survival | None:
    """Return the hazards that travel with a model, None where it has none.

    Raises:
        ArtifactError: what its file holds does not fit it.
    """
    meta = model.meta.get("survival")
    if not meta:
        return None
    with reading(model, "survival"):
        return Survival.read(model, meta, getattr(model, "attached", {}))


def log_loss(probability_ME: Floats, ended_ME: NDArray[np.bool_]) -> Floats:
    """Return the logarithmic loss `[M]` of ends that exclude each other, and of none of them (spec SURV-5)."""
    none_M, tiny = 1 - probability_ME.sum(axis=-1), np.finfo(np.float64).tiny
    of_ends_M = xlogy(ended_ME, np.maximum(probability_ME, tiny)).sum(axis=-1)
    return np.asarray(-of_ends_M - xlogy(~ended_ME.any(axis=-1), np.maximum(none_M, tiny)))


def _held_out(hazards: Hazards, panel: Panel, share_E: Floats) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the log loss of terminal ends on other subjects, and expected beside observed shares in tenths."""
    risk = AtRisk.of(panel, hazards.schema, terminal=True)
    if not len(risk.queries):
        return {}, []
    expected_ME = hazards.along(panel, risk.queries, nothing_ahead(panel, risk.queries))[:, 0]
    constant_ME = np.broadcast_to(np.maximum(share_E, 1e-12), expected_ME.shape)
    time_QH, rank_ME = hazards.time(risk.queries.plan), expected_ME
    if time_QH is None:
        losses = [float(log_loss(p_ME, risk.ended_ME).mean()) for p_ME in (expected_ME, constant_ME)]
    else:
        expected_ME = expected_ends(expected_ME)
        rank_ME = expected_ME / time_QH
        losses = [float(loss_of_rates(rate_ME, time_QH, risk.ended_ME).mean()) for rate_ME in (rank_ME, constant_ME)]
    told = dict(zip(LOSSES, losses, strict=True)) | {"decisions": len(expected_ME)}
    rows = []
    for e in (e for e, end in enumerate(hazards.schema.ends) if end.terminal):
        expected_M, ended_M = expected_ME[:, e], risk.ended_ME[:, e]
        for part_M in np.array_split(np.argsort(rank_ME[:, e], kind="stable"), min(BINS, len(expected_M))):
            shares = {"expected": float(expected_M[part_M].mean()), "observed": float(ended_M[part_M].mean())}
            rows.append({"end": hazards.schema.ends[e].name, **shares, "decisions": len(part_M)})
    return told, rows


def _logs(values: NDArray[np.floating], floor_Y: Floats) -> Floats:
    """Return the logarithm `[...,Z]` of outcomes that have one."""
    has_Y = floor_Y > 0
    return np.asarray(np.log(np.maximum(values[..., has_Y].astype(np.float64), floor_Y[has_Y])))
