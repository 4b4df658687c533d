"""Effects in a population, in the Python API: what `costar effect` estimates."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, get_args

from costar_cli.api.calls import Progress, When, levels_of, origin_of, reporting, require_data_set, texts
from costar_cli.api.estimates import Plans, plan_request
from costar_cli.config.choices import LearnerName, ProtocolName
from costar_cli.config.nearest import did_you_mean
from costar_cli.config.requests import EffectRequest
from costar_cli.data.dataset import Dataset, Location
from costar_cli.data.schema import PanelSchema, step_word
from costar_cli.effects import ESTIMATORS, Assigned, EffectReport, Regime, Settings, enrol, estimate
from costar_cli.effects.diagnostics import cautions
from costar_cli.effects.effects import Source, made_here
from costar_cli.effects.trials import ANY_EVENT
from costar_cli.errors import UsageError
from costar_cli.plans import AnyPlan, IndexTimes, Origin, PlanOdds, TreatmentPlan, parse_origin
from costar_cli.plans.plan import in_words
from costar_cli.questions import choose_subjects, join_places
from costar_cli.questions.groups import groups_of
from costar_cli.questions.request import reference_place
from costar_cli.questions.subjects import Cohort, domain_column, names_of
from costar_cli.reporting import Reporter

ALL: Final = "all"
MEASURES: Final = (
    "mean", "difference", "ratio", "risk", "risk-difference", "risk-ratio", "rmst", "rmst-difference",
)  # fmt: skip


def estimate_effects(
    dataset: Dataset,
    plans: Plans,
    *,
    subjects: str | Iterable[int | str] = "all",
    estimator: str | Sequence[str] = "sdr",
    outcome: str | Sequence[str] = (),
    measure: str | Sequence[str] = (),
    origin: When | None = None,
    when: str | None = None,
    once: bool = False,
    protocol: ProtocolName = "per-protocol",
    grace: int = 0,
    by: str | None = None,
    reference: str | None = None,
    level: float | Sequence[float] = 0.9,
    learner: LearnerName = "auto",
    probability: Mapping[str, str] | None = None,
    truncate: float = 0.99,
    folds: int = 5,
    seed: int = 0,
    unsupported: bool = False,
    progress: Progress = False,
) -> EffectReport:
    """Estimate mean outcomes under plans in a population, and their contrasts, as `costar effect` does.

    Args:
        dataset: where the subjects are.
        plans: see `estimate_outcomes`; plans may also be rules, shifts, and policies that read the natural treatment.
        subjects: `all`, a part such as `source/train`, a file of subjects, or what the data call them.
        estimator: `sdr` (sequentially doubly robust), `tmle`, `gformula`, `ipw`, several, or `all`.
        outcome: which outcomes or events; all by default.
        measure: which quantities, of `mean`, `difference`, `ratio`, and of events `risk`, `risk-difference`,
            `risk-ratio`, `rmst`; all by default.
        origin: the step at which trials start, from 0, or a date; that of the plans, or 0.
        when: a condition: a trial starts at every step at which it holds.
        once: only the first trial of each subject.
        protocol: `per-protocol` or `intention-to-treat`.
        grace: steps by which a plan's first treatment may start later.
        by: groups, as in `Model.average`.
        reference: the plan that others are compared with; the first by default.
        level: of intervals, or several.
        learner: `regression`, `trees`, `super-learner` (both, weighted by held-out errors), or `auto` (the better).
        probability: columns with the known probabilities of randomised treatments, by treatment.
        truncate: quantile at which weights are cut.
        folds: parts of subjects for cross-fitting.
        seed: of the parts.
        unsupported: answer for plans that nobody follows to the end, too.
        progress: True for progress on stderr, or a `Reporter`.

    Raises:
        UsageError: plans, subjects or options that do not fit; fewer than 50 subjects; plans that nobody follows.
    """
    require_data_set(dataset, outcomes=False)
    request = EffectRequest(
        estimator=texts(estimator, "estimator"), outcome=texts(outcome, "outcome"), measure=texts(measure, "measure"),
        origin=origin_of(origin), when=when, once=once, protocol=protocol, grace=grace, by=by, reference=reference,
        levels=levels_of(level), learner=learner,
        probability=tuple(f"{name}={column}" for name, column in (probability or {}).items()),
        truncate=truncate, folds=folds, seed=seed, unsupported=unsupported,
    )  # fmt: skip
    who = subjects if isinstance(subjects, str) else [*subjects]
    places = choose_subjects(dataset, who, where="subjects=")
    with reporting(progress) as reporter:
        return effects_of(dataset, places, plans, request, reporter, where="plans=")


def effects_of(
    dataset: Dataset,
    places: Sequence[Location],
    plans: Plans,
    request: EffectRequest,
    reporter: Reporter,
    *,
    where: str = "--plan",
    source: Source = made_here,
) -> EffectReport:
    """Return the effects of plans on subjects of a data set; see `estimate_effects`.

    `source` gives their curves, where these are made in parts.

    Raises:
        UsageError: see `estimate_effects`.
    """
    request = replace(request, estimator=_split(request.estimator), measure=_split(request.measure))
    settings = _settings(dataset, request)
    panel = join_places(dataset, places)
    chosen = request.origin
    start: Origin | None = chosen if chosen is None or type(chosen) is int else parse_origin(chosen)
    read = plan_request(
        plans, dataset.schema, max(panel.n_steps - 1, 1), origin=0 if start is None else start,
        begin=lambda origin: IndexTimes.of(panel, origin), where=where,
    )  # fmt: skip
    if read.by_subject:
        fix = "write plans that are the same for all, or rules"
        raise UsageError("the effect of a plan is that of one plan for everybody", where=where, fix=fix)
    if start is None:
        start = 0 if read.origin is None else read.origin
    if request.when is not None and request.origin is not None:
        raise UsageError("both --when and --origin are given", where="--when", fix="give one of them")
    reference = reference_place([plan.name for plan in read.plans], request.reference)
    regimes = tuple(_assigned(plan, request) for plan in read.plans)
    trials, flow = enrol(
        dataset.schema, panel, read.horizon, origin=start, when=request.when, once=request.once,
        extra_NE=domain_column(places), left_out=tuple(settings.known.values()),
    )  # fmt: skip
    _check_outcomes(trials.schema, request, events=trials.events() is not None)
    cohort = Cohort(trials.panel, names_of(trials.panel), (), trials.subject_M, trials.origin_M)
    groups, in_GM = groups_of(cohort, dataset.schema, request.by)
    targets = [target for target in (trials.outcomes(), trials.events()) if target and target.only(request.outcome)]
    total = len(regimes) * len(settings.estimators) * len(targets)
    with reporter.task("estimate", total=total, unit="curve") as task:
        effects = estimate(
            trials, regimes, settings, reference=reference,
            groups=groups, in_GM=in_GM, outcomes=request.outcome, tick=task.advance, source=source,
        )  # fmt: skip
    diagnostics = tuple(cautions(effects, flow))
    for one in diagnostics:
        reporter.say(one)
    digest = {} if not dataset.digest else {"dataset": dataset.digest}
    word = step_word(trials.schema.step)
    first = start if isinstance(start, str) else f"{word} {start}" if isinstance(start, int) else f"{start}"
    if first == "all":
        first = f"each {word}"
    parts = tuple(dict.fromkeys(str(place.part) for place in places))
    begun = start if isinstance(start, int) and start >= 0 else 0
    texts = tuple(
        in_words(trials.schema, plan.values, begun) if isinstance(plan, TreatmentPlan) else plan.text
        for plan in read.plans
    )
    return EffectReport(request, dataset.name, effects, flow, texts, first, parts, diagnostics, digest)


def _split(texts: Iterable[str]) -> tuple[str, ...]:
    """Return each name once; a text may hold several, separated by commas."""
    return tuple(dict.fromkeys(name.strip() for text in texts for name in text.split(",") if name.strip()))


def _settings(dataset: Dataset, request: EffectRequest) -> Settings:
    """Return how effects are estimated.

    Raises:
        UsageError: an unknown estimator or measure, a number out of range, probabilities of no treatment or column.
    """
    estimators = list(ESTIMATORS) if ALL in request.estimator else list(request.estimator)
    chosen: list[tuple[str, str, Sequence[str]]] = [("estimator", name, [*ESTIMATORS, ALL]) for name in estimators]
    chosen += [("measure", name, MEASURES) for name in request.measure]
    chosen += [("learner", request.learner, get_args(LearnerName))]
    chosen += [("protocol", request.protocol, get_args(ProtocolName))]
    for what, name, known_names in chosen:
        if name not in known_names:
            fix = f"{did_you_mean(name, known_names, quoted=True)} choose from {', '.join(known_names)}".strip()
            raise UsageError(f"there is no {what} {name!r}", where=f"--{what}", fix=fix)
    ranges: list[tuple[str, float, float, float]] = [("--level", level, 0.5, 0.999) for level in request.levels]
    ranges += [("--truncate", request.truncate, 0.5, 1), ("--folds", request.folds, 2, 20)]
    ranges += [("--grace", request.grace, 0, 1000), ("--seed", request.seed, 0, 2**63 - 1)]
    for flag, value, low, high in ranges:
        if not low <= value <= high:
            raise UsageError(f"{value:g} is out of range", where=flag, fix=f"give {low:g} to {high:g}")
    encoding = dataset.schema.treatments
    columns, known = [variable.name for variable in dataset.schema.covariates], dict[str, str]()
    for text in request.probability:
        name, _, column = (part.strip() for part in text.partition("="))
        where, fix = "--probability", "write TREATMENT=COLUMN, such as `--probability treated=p_treated`"
        if name not in encoding.names or column not in columns:
            wrong, of = (name, encoding.names) if name not in encoding.names else (column, columns)
            guess = did_you_mean(wrong, of, quoted=True)
            raise UsageError(f"there is no {'treatment' if of is encoding.names else 'covariate'} {wrong!r}",
                             where=where, fix=f"{guess} {fix}".strip())  # fmt: skip
        if len(encoding.levels[encoding.names.index(name)]) != 2:
            raise UsageError(f"{name} has more than two levels", where=where, fix="leave it out: it is estimated")
        known[name] = column
        for panel in dataset.panels.values():
            shares = panel.covariates[..., columns.index(column)][panel.observed]
            if len(shares) and not (shares.min() >= 0 and shares.max() <= 1):
                problem = f"{column} goes from {shares.min():g} to {shares.max():g}, and is no probability"
                raise UsageError(problem, where=where, fix="name a column with numbers from 0 to 1")
    if known and (encoding.doses or set(known) != set(encoding.names)):
        missing = ", ".join(sorted({*encoding.all_names} - {*known}))
        raise UsageError(f"no probability of {missing}", where="--probability", fix="give one for each, or for none")
    return Settings(
        estimators=tuple(name for name in ESTIMATORS if name in estimators), learner=request.learner,
        folds=request.folds, truncated=request.truncate, known=known, unsupported=request.unsupported,
        seed=request.seed,
    )  # fmt: skip


def _assigned(plan: AnyPlan, request: EffectRequest) -> Regime:
    """Return a plan as trials assign it.

    Raises:
        UsageError: a plan of odds is to be assigned.
    """
    initial = request.protocol == "intention-to-treat"
    if isinstance(plan, PlanOdds) and (initial or request.grace):
        fix = "leave out --protocol and --grace, or the plan"
        raise UsageError(f"plan {plan.name!r} changes odds, and starts nothing", where="--plan", fix=fix)
    return Assigned(plan, request.grace, initial) if initial or request.grace else plan


def _check_outcomes(schema: PanelSchema, request: EffectRequest, *, events: bool) -> None:
    """See that what is measured is there.

    Raises:
        UsageError: an outcome or event that the data do not have, or measures of what they do not have.
    """
    known = [
        *(outcome.name for outcome in schema.outcomes),
        *((*schema.terminal.values(), ANY_EVENT) if events else ()),
    ]
    of_events = {name.startswith(("risk", "rmst")) for name in request.measure}
    if of_events == {True} and not events:
        fix = "measure `mean`, `difference` or `ratio`, or ingest a table whose series end with events"
        raise UsageError(f"{' and '.join(request.measure)} are of events, and no series ends with one",
                         where="--measure", fix=fix)  # fmt: skip
    if of_events == {False} and not schema.outcomes:
        fix = "measure `risk`, `risk-difference`, `risk-ratio` or `rmst`"
        raise UsageError(f"{' and '.join(request.measure)} are of outcomes, and the data have events alone",
                         where="--measure", fix=fix)  # fmt: skip
    for name in request.outcome:
        if name not in known:
            guess = did_you_mean(name, known, quoted=True)
            fix = f"{guess} outcomes and events are {', '.join(known)}".strip()
            raise UsageError(f"there is no outcome or event {name!r}", where="--outcome", fix=fix)
