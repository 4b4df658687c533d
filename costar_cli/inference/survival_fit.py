"""What a model says of whether series go on: the hazards that travel with it, how they are learnt, answers of plans.

Spec SURV-4 to 6 and SURV-10. `E` counts ends, `M` steps at risk.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Domain, Panel, Queries, as_plans
from costar_cli.data.windows import MOST_WINDOWS
from costar_cli.inference.at_risk import AtRisk
from costar_cli.inference.estimates import held_by
from costar_cli.inference.outcomes import OutcomeFacts
from costar_cli.inference.propensity import nothing_ahead
from costar_cli.inference.rates import expected_ends, loss_of_rates
from costar_cli.inference.survival import Hazards, log_loss
from costar_cli.methods.base import FittedModel

BINS: Final = 10
BASES: Final = ("fitted", "anchored", "source")
LOSSES: Final = ("log_loss", "constant_log_loss")  # per step, of the hazards and of those that are always the same

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Survival:
    """The hazards of a model's data, and how right they are on held-out subjects.

    `subjects`, `decisions` and `events` (by end) are what they were fitted to, `domain` says of whom. `held_out` has
    the mean log loss of a step, that of hazards which are the same at all steps, and the steps; `reliability` the
    expected and the observed share of steps that end, in tenths of the expected one. `basis` says what hazards of
    few-shot models are: `fitted` to the target's subjects, or the source's, `anchored` at how often these ended, or as
    they are (spec SURV-11).
    """

    hazards: Hazards
    domain: Domain
    subjects: int
    decisions: int
    events: Mapping[str, int]
    held_out: Mapping[str, Any]
    reliability: tuple[Mapping[str, Any], ...]
    basis: str = "fitted"

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
        return self.hazards.to_arrays()

    def to_meta(self) -> dict[str, Any]:
        """Return the facts that it holds beside them."""
        plain = {name: getattr(self, name) for name in ("domain", "basis", "subjects", "decisions")}
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
        hazards = Hazards.read(model, arrays)
        if (domain := meta["domain"]) not in ("source", "target"):
            raise ValueError(f"hazards of an unknown domain, {str(domain)[:40]!r}")
        if (basis := meta.get("basis", "fitted")) not in BASES:
            raise ValueError(f"hazards on an unknown basis, {str(basis)[:40]!r}")
        rows = tuple(row for row in meta["reliability"] if isinstance(row, Mapping))
        events = {str(name): int(count) for name, count in dict(meta["events"]).items()}
        held = dict(meta["held_out"])
        if held and not np.isfinite([float(held[name]) for name in LOSSES]).all():
            raise ValueError("log losses that are not finite")
        return cls(hazards, domain, int(meta["subjects"]), int(meta["decisions"]), events, held, rows, basis)


@dataclass(frozen=True, eq=False, slots=True)
class SurvivalForecast:
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


def survival_forecast(
    model: FittedModel, panel: Panel, queries: Queries, predicted_QHY: Floats
) -> SurvivalForecast | None:
    """Return how likely the series of queries are to go on, None where a model knows of no terminal end."""
    found = survival_of(model)
    terminal = [e for e, end in enumerate(model.schema.ends) if end.terminal]
    if found is None or not terminal:
        return None
    survival_QH, ended_QHE = found.along(panel, queries, predicted_QHY)
    names = (model.schema.ends[e].name for e in terminal)
    events, held = {name: found.events.get(name, 0) for name in names}, found.held_out
    tells = not held or float(held[LOSSES[0]]) < float(held[LOSSES[1]])
    return SurvivalForecast(survival_QH, ended_QHE[..., terminal], events, tells)


def learn_survival(
    model: FittedModel,
    train: Panel,
    held: Panel,
    facts: OutcomeFacts,
    *,
    domain: Domain,
    start: Survival | None = None,
) -> tuple[Survival | None, str]:
    """Fit hazards to a model's training subjects and see how right they are on others.

    Args:
        model: just fitted.
        train: the subjects that it was fitted to.
        held: others.
        facts: of the outcomes.
        domain: of all these subjects.
        start: what the model started from knows of the same ends.

    Returns:
        The hazards, None where series have no ends; and what makes them doubtful, nothing otherwise.
    """
    schema = model.schema
    hazards = Hazards.fit(train, schema, model.scaler, facts) if schema.ends else None
    if hazards is None:
        return start, ""
    events = {end.name: int((train.ends == code).sum()) for code, end in enumerate(schema.ends, start=1)}
    decisions, time_NT = int((train.length - 1).sum()), hazards.time(train.treatments)
    share_E = np.array([events[end.name] * end.terminal for end in schema.ends])
    share_E = share_E / (decisions if time_NT is None else time_NT[train.decided].sum())
    basis, doubt = "fitted", ""
    if start is not None:
        candidates = {"fitted": hazards, "anchored": start.hazards.anchored(train), "source": start.hazards}
        basis, doubt = _best(candidates, train, held, share_E)
        hazards = candidates[basis]
    told, rows = _held_out(hazards, held, share_E)
    if (queries := survival_windows(held, model.horizon, every=1)) is not None:
        queries = queries.take(np.unique(np.linspace(0, len(queries) - 1, MOST_WINDOWS).round().astype(np.int64)))
        hazards = hazards.with_errors(held, queries, model.rollout(held, queries).mean(axis=0, dtype=np.float64))
    if start is not None and basis == "source":
        domain, events, decisions, subjects = start.domain, dict(start.events), start.decisions, start.subjects
    else:
        subjects = train.n_subjects
    return Survival(hazards, domain, subjects, decisions, events, told, tuple(rows), basis), doubt


def _best(candidates: Mapping[str, Hazards], train: Panel, held: Panel, share_E: Floats) -> tuple[str, str]:
    """Return which hazards a few-shot model has (spec SURV-11), and what is doubtful about that."""
    terminal = [code for code, end in enumerate(candidates["source"].schema.ends, start=1) if end.terminal]
    ended, ended_held = (int(np.isin(panel.ends, terminal).sum()) for panel in (train, held))
    if not terminal:
        return "source", ""
    if not ended:
        return "source", (
            f"survival is that of the source: none of the {train.n_subjects} training subjects of the target had a "
            "terminal event, and it may be another there"
        )
    if not ended_held:
        return "anchored", (
            "survival is that of the source, moved to how often the target's training subjects ended: none of "
            f"{held.n_subjects} held-out subjects had a terminal event, by which it could be checked"
        )
    losses = {name: _held_out(hazards, held, share_E)[0][LOSSES[0]] for name, hazards in candidates.items()}
    return min(losses, key=losses.__getitem__), ""


def survival_windows(panel: Panel, horizon: int, *, every: int | None = None) -> Queries | None:
    """Return questions about factual plans, one behind the other, or from `every` so many steps; None for none.

    Those that are short are padded by the last treatment.
    """
    step_T, first_N1 = np.arange(panel.n_steps), panel.first_origin[:, None]
    begins_NT = (step_T >= first_N1) & ((step_T - first_N1) % (every or horizon) == 0) & panel.decided
    row_Q, origin_Q = np.nonzero(begins_NT)
    if not len(row_Q):
        return None
    step_QH = np.minimum(origin_Q[:, None] + np.arange(horizon), panel.length[row_Q, None] - 2)
    plan = as_plans(panel.treatments[row_Q[:, None], step_QH])
    return Queries(row_Q.astype(np.int32), origin_Q.astype(np.int16), plan)


def survival_of(model: FittedModel) -> Survival | None:
    """Return the hazards that travel with a model, None where it has none.

    Raises:
        ArtifactError: what its file holds does not fit it.
    """
    return held_by(model, "survival", Survival.read)


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
