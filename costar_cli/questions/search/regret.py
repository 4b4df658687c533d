"""How much is lost by following a model's best plans, where the simulator knows the truth (spec SEARCH-8)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Dataset, Panel, PanelSchema, Part, Values, as_plans
from costar_cli.data.base import Answer
from costar_cli.data.registry import truth_of
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import UsageError
from costar_cli.inference import encoded_predictor
from costar_cli.methods.base import FittedModel
from costar_cli.questions.search.candidates import treatments_of_step
from costar_cli.questions.search.objective import Floats, Objective
from costar_cli.questions.search.request import SearchRequest
from costar_cli.questions.search.run import best_of
from costar_cli.questions.search.scoring import CalibratedModel, SubjectPlans
from costar_cli.reporting import NullReporter, Reporter

MOST_PLANS: Final = 10_000  # whose truth is asked for, of each subject
SUBJECTS: Final = 100
CLOSE: Final = 1e-6  # of the range of true losses: what is as good as the best


@dataclass(frozen=True, slots=True)
class Regret:
    """What a policy loses against each subject's best plan.

    `mean` is in units of the objective with its standard error, `relative` over that of a random plan, and `best` the
    share of subjects for whom it finds a best plan. `covered` is the share whose true objective lies within the
    interval, of policies that have one.
    """

    part: str
    policy: str
    subjects: int
    plans: int
    steps: int
    mean: float
    error: float
    relative: float | None
    best: float
    covered: float | None = None

    def to_json(self) -> dict[str, object]:
        """Return it as plain JSON data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, eq=False, slots=True)
class _Truth:
    """True losses `[N,P]` of all plans for some subjects, and the plans that policies choose, by place."""

    loss_NP: Floats
    chosen: Mapping[str, NDArray[np.int64]]
    covered_N: Floats
    steps: int


def regret_request(
    schema: PanelSchema, *, minimise: Sequence[str], maximise: Sequence[str], cost: Sequence[str]
) -> SearchRequest:
    """Return an objective; the first outcome at the end is minimised where none is named."""
    default = () if maximise else (f"{schema.outcomes[0].name} at end",)
    return SearchRequest(tuple(minimise) or default, tuple(maximise), tuple(cost))


def regrets(
    models: Mapping[str, FittedModel],
    dataset: Dataset,
    request: SearchRequest,
    *,
    subjects: int = SUBJECTS,
    seed: int = 0,
    reporter: Reporter | None = None,
) -> list[Regret]:
    """Return the regret of the models' plans and of simple policies, on the test subjects of each domain.

    Treatments that the simulator has no truth of are left out, with a note, and plans are shortened where there would
    be more than `MOST_PLANS`. Of each subject one origin is drawn, among steps from which the outcomes still say
    something.

    Raises:
        UsageError: no simulator knows the truth, or the objective does not fit.
    """
    answer, parts = known_truth(dataset)
    told = reporter or NullReporter()
    values_KA = treatments_of_step(next(iter(models.values())), unsupported=True)
    row = int(dataset.panels[parts[0]].length.argmax())

    def refusal(some_KA: Values) -> UsageError | None:
        row_K, origin_K = np.full(len(some_KA), row), np.zeros(len(some_KA), dtype=np.int64)
        try:
            answer(dataset, parts[0], row_K, origin_K, some_KA[:, None])
        except UsageError as error:
            return error
        return None

    if (refused := refusal(values_KA)) is not None:
        known_K = np.array([refusal(values_A[None]) is None for values_A in values_KA])
        if not known_K.any():
            raise refused
        if untold := [dataset.schema.treatments.describe(values_A) for values_A in values_KA[~known_K]]:
            told.say(Diagnostic.of("regret-without-truth", treatments=" or ".join(untold)))
        values_KA = values_KA[known_K]
    with told.task("regret", total=len(models) * len(parts), unit="part") as task:
        found: list[Regret] = []
        for part in parts:
            for label, model in models.items():
                truth = _truth(label, model, dataset, part, answer, values_KA, request, subjects, seed)
                if truth is not None:
                    found += _of_part(str(part), label, truth, first=label == next(iter(models)))
                task.advance()
    return found


def known_truth(dataset: Dataset) -> tuple[Answer, list[Part]]:
    """Return what answers plans, and the test parts whose truth it knows.

    Raises:
        UsageError: no simulator knows the truth.
    """
    answer = truth_of(dataset.name)
    parts = [part for part in dataset.panels if part.split == "test" and dataset.truth.get(part)]
    if answer is None or not parts:
        fix = "leave it out: the best plan is unknown in observed data"
        raise UsageError(f"data set `{dataset.name}` holds no simulator's truth", where="--search", fix=fix)
    return answer, parts


def _truth(
    label: str,
    model: FittedModel,
    dataset: Dataset,
    part: Part,
    answer: Answer,
    values_KA: Values,
    request: SearchRequest,
    subjects: int,
    seed: int,
) -> _Truth | None:
    steps = request.steps or model.horizon
    while steps > 1 and len(values_KA) ** steps > MOST_PLANS:
        steps -= 1
    question = replace(request, steps=steps, unsupported=True).question(model, many=True)
    plans_PH = question.candidates.constraints.plans(values_KA, steps)
    candidates = replace(question.candidates, values_KA=values_KA, plans_PH=plans_PH)
    question, objective = replace(question, candidates=candidates), question.objective
    calibrated, panel = CalibratedModel.of(label, model), dataset.panels[part]
    row_N, origin_N = _origins(calibrated, panel, objective, subjects, seed)
    if not len(row_N):
        return None
    table_KA, cost_K = as_plans(model.schema.treatments.encode(values_KA)), objective.costs_of(values_KA)
    treated_P = candidates.treatments_K[plans_PH].sum(axis=1)
    ask, cost_P = encoded_predictor(panel.take(row_N)), cost_K[plans_PH].sum(axis=1)
    shape = (len(plans_PH), candidates.steps, len(model.schema.outcomes))
    loss_NP, covered_N = np.empty((len(row_N), len(plans_PH))), np.full(len(row_N), np.nan)
    names = (label, f"{label}, any plan", f"{label}, greedy", "last treatment")
    chosen = {name: np.full(len(row_N), -1) for name in names}
    for n, (row, origin) in enumerate(zip(row_N.tolist(), origin_N.tolist(), strict=True)):
        loss_NP[n] = objective.loss(np.reshape(answer(dataset, part, row, origin, values_KA[plans_PH]), shape), cost_P)
        alone = panel.take(np.array([row])).until(origin + 1)
        subject = SubjectPlans(calibrated, question, alone, n, origin, ask, table_KA, cost_K)
        chosen[names[1]][n] = np.lexsort((treated_P, subject.losses(plans_PH)))[0]
        best = best_of(replace(subject, question=replace(question, unsupported=False)))
        if best.found:
            same_HK = (best.values_MHA[0][:, None] == values_KA).all(axis=-1)
            at = _index(same_HK.argmax(axis=1), len(values_KA)) if same_HK.any(axis=1).all() else -1
            chosen[label][n] = at  # -1 where it gives what cannot be chosen
            low, high = np.sort(objective.shown(best.limits_M2[0]))
            has_level = np.isfinite(high - low) and (calibrated.joint or objective.single is not None)
            covered_N[n] = low <= loss_NP[n, at] <= high if has_level else np.nan
        chosen[names[2]][n] = _index(_greedy(subject), len(values_KA))
        last = _nearest(subject.before, values_KA, len(model.schema.treatments.names))
        chosen[names[3]][n] = -1 if last is None else _index(np.full(candidates.steps, last), len(values_KA))
    given_K = (values_KA != 0).sum(axis=1)
    least, most = int(given_K.argmin()), int(np.lexsort((values_KA.sum(axis=1), given_K))[-1])
    for name, place in (("never", least), ("always", most)):  # the same to everybody at every step
        chosen[name] = np.full(len(row_N), _index(np.full(plans_PH.shape[1], place), len(values_KA)))
    return _Truth(loss_NP, chosen, covered_N, candidates.steps)


def _origins(
    calibrated: CalibratedModel, panel: Panel, objective: Objective, subjects: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows of some subjects and an origin of each, which has a step before it and the plan's steps after."""
    step_T = np.arange(panel.n_steps)
    open_NT = (step_T >= 1) & (step_T < panel.length[:, None] - objective.steps) & panel.observed_outcomes.all(axis=-1)
    if calibrated.facts is not None:
        outcomes = sorted({outcome for _, outcome in objective.concerns})
        flat_MY = panel.outcomes.reshape(-1, panel.outcomes.shape[2])
        tells_NT = calibrated.facts.informative(flat_MY)[:, outcomes].all(axis=1).reshape(open_NT.shape)
        open_NT = open_NT & tells_NT
    rng, rows = np.random.default_rng(seed), np.flatnonzero(open_NT.any(axis=1))
    rows = np.sort(rng.permutation(rows)[:subjects])
    return rows, np.array([rng.choice(np.flatnonzero(open_NT[row])) for row in rows], dtype=np.int64)


def _index(places_H: NDArray[np.integer], kinds: int) -> int:
    """Return the place of a plan among all plans, which are in the order of their steps."""
    return int(np.ravel_multi_index(tuple(places_H), (kinds,) * len(places_H)))


def _nearest(before_A: Values | None, values_KA: Values, levels: int) -> int | None:
    """Return the treatment of the same levels, the first of the columns, whose doses are nearest; None without any."""
    assert before_A is not None  # noqa: S101 - origins have a step before them
    doses_KD = values_KA[:, levels:]
    range_D = np.where(np.ptp(doses_KD, axis=0) > 0, np.ptp(doses_KD, axis=0), 1.0)
    apart_K = np.abs((doses_KD - before_A[levels:]) / range_D).sum(axis=1)
    same_K = (values_KA[:, :levels] == before_A[:levels]).all(axis=1)
    return int(np.where(same_K, apart_K, np.inf).argmin()) if same_K.any() else None


def _greedy(subject: SubjectPlans) -> NDArray[np.int64]:
    """Return the plan `[H]`, places of treatments, each of which is the best if the plan ended there."""
    objective, kinds, places = subject.question.objective, len(subject.table_KA), np.zeros(0, dtype=np.int64)
    for step in range(objective.steps):
        some_KH = np.concatenate([np.tile(places, (kinds, 1)), np.arange(kinds)[:, None]], axis=1)
        y_RKHY = subject.predicts(subject.calibrated.model, subject.queries(subject.table_KA[some_KH]))
        terms = tuple(replace(term, step=min(term.step, step)) for term in objective.terms)
        ended = replace(objective, terms=terms, steps=step + 1)
        loss_K = ended.loss(subject.calibrated.clip(y_RKHY).mean(axis=0), subject.cost_K[some_KH].sum(axis=1))
        places = some_KH[int(loss_K.argmin())]
    return places


def _of_part(part: str, label: str, truth: _Truth, *, first: bool) -> Iterator[Regret]:
    """Yield the regret of a model's plans and, with the first model, of the policies that need none."""
    loss_NP, n = truth.loss_NP, np.arange(len(truth.loss_NP))
    least_N, mean_N = loss_NP.min(axis=1), loss_NP.mean(axis=1)
    close_N, random = CLOSE * (loss_NP.max(axis=1) - least_N), float((mean_N - least_N).mean())

    def told(policy: str, loss_N: Floats, of_N: NDArray[np.bool_], covered: float | None = None) -> Regret:
        regret_N = (loss_N - least_N)[of_N]
        error = float(regret_N.std(ddof=1) / np.sqrt(len(regret_N))) if len(regret_N) > 1 else 0.0
        mean, best = float(regret_N.mean()), float((regret_N <= close_N[of_N]).mean())
        relative = mean / float((mean_N - least_N)[of_N].mean()) if random > 0 else None
        return Regret(part, policy, len(regret_N), loss_NP.shape[1], truth.steps, mean, error, relative, best, covered)

    every_N = np.ones(len(n), dtype=bool)
    for policy, place_N in truth.chosen.items():
        known_N = place_N >= 0
        if known_N.any() and (first or policy.startswith(label)):
            asked_N = np.isfinite(truth.covered_N)
            covered = float(truth.covered_N[asked_N].mean()) if policy == label and asked_N.any() else None
            yield told(policy, loss_NP[n, np.maximum(place_N, 0)], known_N, covered)
    if first:
        yield told("random", mean_N, every_N)
        yield told("best single plan", loss_NP[:, int(loss_NP.mean(axis=0).argmin())], every_N)
