"""The page of effects in a population: the answer, its followers, the trial that it emulates (TARGET 2025)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from costar_cli.data.findings import counted, percent
from costar_cli.data.schema import labelled, steps_of
from costar_cli.effects import ESTIMATORS, FEW, EffectReport
from costar_cli.effects.diagnostics import UNLIKELY, balance, baseline, followers, natural_course, positivity
from costar_cli.questions.effect_tables import MAIN, end_tables, followers_table, steps_table
from costar_cli.questions.tables import decimals_of, estimate_text
from costar_cli.report.pages.page import (
    MOST_NAMED,
    Item,
    Page,
    ReportTable,
    Section,
    listed,
    render,
    svg,
    under_plans,
    warnings_and_notes,
)
from costar_cli.report.pages.whatif import lineage

ABOUT_ANSWER: Final = (
    "Means are over all trials, had all of them followed the plan. In brackets: {level} intervals, from influence "
    "curves. Followers: how many follow the plan until then, and in brackets their effective number; ? where that is "
    "below {few:g}, and intervals may miss their nominal level."
)
ABOUT_FOLLOWERS: Final = (
    "How many follow each plan up to a step, of those still in follow-up, and the weights with which they represent "
    "all trials. The mean weight should be near the number of trials divided by that of followers; otherwise the "
    "propensity model is wrong. Cut: at the {cut:g} quantile of each step."
)
ABOUT_BALANCE: Final = (
    "How the followers of a plan at a step differ from all who followed it until then, in standard deviations, before "
    "and after weighting. Less than 0.1 (dotted) is usually considered balanced (Austin 2009). Markers show the step "
    "with the largest difference, lines the range over steps; steps with fewer than {few:g} effective followers, where "
    "differences are due to chance, are only in the table."
)
ABOUT_NATURAL: Final = (
    "The observed course, and the estimate of it by the same models: the mean weighted for loss to follow-up, and "
    "g-computation with treatments {treatments}. A gap to the observed course means that a model is wrong, or that "
    "subjects lost to follow-up differ from those who stayed."
)
ABOUT_POSITIVITY: Final = (
    "The probability of the treatment that a plan gives, among those who followed it until then: where it is near 0, "
    "the data hold no comparable subjects. Plans that depend on the natural treatment have no such probability; their "
    "ratio to the propensity is shown instead."
)
ABOUT_TARGET: Final = (
    "The randomised trial that would answer the question, and how these data emulate it, in the order of the TARGET "
    "statement (Cashin et al. 2025, JAMA, doi 10.1001/jama.2025.13350). Title, background, sources of the data, "
    "ethics, registration, funding and access to data are yours to add."
)
ABOUT_BASELINE: Final = (
    "Mean (standard deviation) or share at time zero, of all trials and of those that follow the first step of each "
    "plan. SMD: standardised mean difference from all trials, and in brackets after weighting."
)
ASSUMPTIONS: Final = (
    "Exchangeability: given {given}, treatment at a step does not depend on potential outcomes. Positivity: every "
    "subject has some chance of following each plan. Consistency: the recorded treatment is the treatment of the plan. "
    "No interference between {unit}s. No relevant errors of measurement."
)
LOSS: Final = " Loss to follow-up does not depend on potential outcomes, given the same."


def effects_page(report: EffectReport, parents: Mapping[str, str], figure_name: str = "effects") -> str:
    """Return the page; the same report gives the same text.

    Args:
        report: the answer.
        parents: digests of what it was made from, by role.
        figure_name: keeps the ids of the figures its own.
    """
    from costar_cli.report.figures.population import draw_effects  # noqa: PLC0415 - matplotlib only where it is drawn

    effects, flow, schema = report.effects, report.flow, report.effects.trials.schema
    shown = [*balance(effects)]
    answer = ABOUT_ANSWER.format(level=f"{100 * report.request.levels[0]:g} %", few=FEW)
    tables, every = end_tables(report), steps_table(report)
    if (shared := followers_table(report)) is not None:  # by estimators
        tables.append(shared)
    ends = [ReportTable(table.title, "", table.headers, table.rows) for table in tables]
    ends.append(ReportTable(every.title, "", every.headers, every.rows, folded=True))
    what, steps = ", ".join(_quantities(report)), steps_of(max(map(len, effects.plans)), schema.step)
    question = (
        f"What would {what} be on average over {steps} after time zero, if all followed each of these plans? "
        f"Estimates: {' and '.join(ESTIMATORS[name] for name in effects.settings.estimators)}. "
        f"Contrasts are with plan {effects.plans[effects.reference].name}."
    )
    question += " Steps of plans count from time zero." * (report.request.when is not None)
    plans = tuple((plan.name, text) for plan, text in zip(effects.plans, report.texts, strict=True))
    sections = [
        Section("Answer", texts=[answer], pictures=[svg(draw_effects(report), figure_name)], tables=ends),
        Section("Question", texts=[question], tables=[ReportTable("", "", ("plan", "in words"), plans)]),
        warnings_and_notes(report.diagnostics),
        *_diagnostics(report, shown, figure_name),
        _target(report, shown),
        lineage(parents),
    ]
    subtitle = f"{report.dataset}, {counted(flow.trials, 'trial')} of {counted(flow.units, _unit(report))}"
    return render(Page("Effects in a population", subtitle, sections, list(_answer(report))))


def _answer(report: EffectReport) -> Iterator[str]:
    """Yield means or risks at the end of plans, and their differences, of everybody and by the first estimator."""
    effects, reference = report.effects, report.effects.plans[report.effects.reference].name
    ends = {plan.name: len(plan) for plan in effects.plans}
    units = {outcome.name: outcome.unit for outcome in effects.trials.schema.outcomes}
    mine = [row for row in report.rows
            if (row["estimator"], row["group"]) == (effects.settings.estimators[0], effects.groups[0])
            and row["step"] == ends[row["plan"]] and row["estimate"] is not None]  # fmt: skip
    for outcome, quantity in dict.fromkeys((row["outcome"], row["quantity"]) for row in mine):
        of = [row for row in mine if (row["outcome"], row["quantity"]) == (outcome, quantity)]
        decimals, compared = decimals_of(row["estimate"] for row in of), quantity.endswith(("difference", "ratio"))
        if quantity not in MAIN and not report.request.measure:
            continue
        texts = [
            estimate_text({name: row[name] for name in ("estimate", "lower", "upper")}, decimals) or "" for row in of
        ]
        ratio, begin = quantity.endswith("ratio"), "The" if compared else "If all followed the plan, the"
        what = f"{begin} {quantity} of {labelled(outcome, '')}" + f" {'to' if ratio else 'from'} {reference}" * compared
        limits = f"{100 * report.request.levels[0]:g} % interval" * any(row["lower"] is not None for row in of)
        values = dict(zip((row["plan"] for row in of), texts, strict=True))
        yield under_plans(what, values, "" if ratio else units.get(outcome, ""), limits)
    if few := list(dict.fromkeys(row["plan"] for row in mine if not row["supported"])):
        whose = listed(few) if len(few) <= MOST_NAMED else f"{len(few)} plans"
        yield f"Fewer than {FEW:g} effective followers support {whose}: these intervals may be too narrow."


def _unit(report: EffectReport) -> str:
    return "subject" if report.effects.trials.panel.cluster is None else "cluster"


def _quantities(report: EffectReport) -> list[str]:
    """Return the outcomes and events that are measured, as pages call them."""
    units = {outcome.name: outcome.unit for outcome in report.effects.trials.schema.outcomes}
    return [labelled(name, units.get(name, "")) for name in dict.fromkeys(row["outcome"] for row in report.rows)]


def _diagnostics(report: EffectReport, shown: Sequence[Mapping[str, Any]], figure_name: str) -> list[Section]:
    """Return what shows whether the models can be trusted: weights, balance, the natural course, and positivity."""
    from costar_cli.report.figures.population import draw_balance, draw_natural  # noqa: PLC0415 - matplotlib

    effects, course = report.effects, [*natural_course(report.effects)]
    schema, love = effects.trials.schema, draw_balance(shown)
    follow = tuple(
        (row["plan"], row["step"], row["followed"], row["followers"], percent(row["share"]),
         *(f"{row[name]:.1f}" for name in ("mean", "largest", "effective", "cut_mean", "cut_largest", "cut_effective")))
        for row in followers(effects)
    )  # fmt: skip
    of_follow = (
        "plan", "step", "in follow-up", "follow", "share", "mean weight", "largest", "effective", "mean, cut",
        "largest, cut", "effective, cut",
    )  # fmt: skip
    differences = tuple(
        (row["plan"], row["step"], row["column"], f"{row['before']:+.2f}", f"{row['after']:+.2f}") for row in shown
    )
    of_differences = ("plan", "step", "column", "before", "after")
    modelled = "as they were given" if schema.treatments.doses else "drawn from the propensity model"
    means = tuple(
        (labelled(row["outcome"], ""), row["step"], row["measured"], row["observed"], row["weighted"], row["gformula"])
        for row in course
    )
    of_means = ("outcome", "step", "trials", "observed", "weighted", "g-computation")
    chances = tuple(
        (row["plan"], row["step"], row["decisions"], row["least"], row["low"],
         None if row["unlikely"] is None else percent(row["unlikely"]), f"{row['largest_ratio']:.1f}")
        for row in positivity(effects)
    )  # fmt: skip
    unlikely = f"below {UNLIKELY:g}"
    of_chances = ("plan", "step", "decisions", "least likely", "5 % quantile", unlikely, "largest ratio")
    return [
        Section(
            "Who follows", texts=[ABOUT_FOLLOWERS.format(cut=report.request.truncate)],
            tables=[ReportTable("", "", of_follow, follow)],
        ),
        Section(
            "Balance", texts=[ABOUT_BALANCE.format(few=FEW)],
            tables=[ReportTable("Balance by step", "", of_differences, differences, folded=True)],
            pictures=[] if love is None else [svg(love, f"{figure_name}-balance")],
        ),
        Section(
            "Natural course", texts=[ABOUT_NATURAL.format(treatments=modelled)],
            tables=[ReportTable("", "", of_means, means)],
            pictures=[svg(draw_natural(course, schema.step), f"{figure_name}-natural")],
        ),
        Section("Positivity", texts=[ABOUT_POSITIVITY], tables=[ReportTable("", "", of_chances, chances)]),
    ]  # fmt: skip


def _target(report: EffectReport, shown: Sequence[Mapping[str, Any]]) -> Section:
    """Return the protocol of the target trial and its emulation, flow, baseline, results and limitations."""
    effects, flow, level = report.effects, report.flow, f"{100 * report.request.levels[0]:g} %"
    ends = {plan.name: len(plan) for plan in effects.plans}
    counts = [
        ("Subjects selected", flow.subjects),
        ("Their steps at which a decision could be made", flow.rows),
        ("Eligible at time zero", flow.eligible),
        ("of these, early enough for every step of the plans", flow.followed),
        ("Trials", flow.trials),
        (f"{_unit(report).capitalize()}s in these trials", flow.units),
    ]
    for row in followers(effects):
        if row["step"] == ends[row["plan"]]:
            counts.append((f"In follow-up at the end of {row['plan']}", row["followed"]))
            counts.append((f"of these, followed {row['plan']} to its end", row["followers"]))
    results = []
    for row in report.rows:  # contrasts at the last step that both plans have
        if row["reference"] is None or row["estimate"] is None:
            continue
        if row["step"] != min(ends[row["plan"]], ends[row["reference"]]):
            continue
        group = f" in {row['group']}" * (len(effects.groups) > 1)
        text = f"{labelled(row['outcome'], '')}, {row['quantity']} of {row['plan']} from {row['reference']}{group}, "
        text += f"{row['estimator']}: {row['estimate']:.4g}"
        if row["lower"] is not None:
            text += f" ({level} interval {row['lower']:.4g} to {row['upper']:.4g})"
        results.append((text + " ?" * (not row["supported"]),))
    codes = {one.code for one in report.diagnostics}
    limits = ["Limitation: unrecorded variables that drive both treatment and outcome bias every number here."]
    if any(not row["supported"] for row in report.rows):
        limits.append(
            f"Limitation: some plans have fewer than {FEW:g} effective followers at some step (marked ?): there "
            "intervals may miss their nominal level, and g-computation extrapolates."
        )
    if "effect-positivity" in codes:
        limits.append("Limitation: what some plan does is very rare in the data; see Positivity.")
    if "effect-lost" in codes:
        limits.append("Limitation: some were lost to follow-up; others with the same history represent them.")
    limits.append("Effects hold for this population, with everything that plans leave open as observed in it.")
    return Section(
        "Target trial",
        texts=[ABOUT_TARGET],
        tables=[
            ReportTable("Protocol", "", ("component", "target trial", "emulation"), tuple(_protocol(report, shown))),
            ReportTable("Flow", "", ("who", "number"), tuple(counts)),
            _baseline(report, shown),
            ReportTable("Results", "", ("at the end of each plan",), tuple(results)),
        ],
        items=[Item(text) for text in limits],
    )


def _protocol(report: EffectReport, shown: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Yield the components of the protocol: how the target trial has them, and how the data stand in for it."""
    effects, request, flow = report.effects, report.request, report.flow
    trials, schema = effects.trials, effects.trials.schema
    steps, unit, ends = steps_of(trials.steps, schema.step), _unit(report), list(schema.terminal.values())
    condition = f" with {request.when}" if request.when is not None else ""
    yield (
        "Eligibility",
        f"Subjects in follow-up at time zero{condition}",
        (
            f"The same, as recorded in {report.dataset} ({', '.join(report.parts)}): {flow.eligible:,} of "
            f"{flow.rows:,} moments of {counted(flow.subjects, 'subject')}"
        ),
    )
    strategies = "; ".join(f"{plan.name}: {text}" for plan, text in zip(effects.plans, report.texts, strict=True))
    grace = f" The first treatment may start up to {steps_of(request.grace, schema.step)} later." * bool(request.grace)
    yield "Treatment strategies", f"{strategies}.{grace}", "The same; treatments as recorded at each step"
    known = ", ".join(f"{name} in {column}" for name, column in effects.settings.known.items())
    columns = [variable.name for variable in (*schema.outcomes, *schema.covariates)]
    given = f"{', '.join(labelled(name, '') for name in columns if name not in trials.left_out)} and treatments so far"
    given += f", {', '.join(labelled(variable.name, '') for variable in schema.statics)}" * bool(schema.statics)
    yield (
        "Assignment",
        "At random at time zero, known to all",
        f"Randomised in the data, with known probability: {known}" if known
        else f"Taken to be random at each step given {given}",
    )  # fmt: skip
    zero, again = report.start, flow.trials > flow.units
    if request.when is not None:
        zero = f"{'the first' if request.once else 'each'} step at which {request.when}"
    yield (
        "Time zero",
        f"{zero[:1].upper()}{zero[1:]}",
        "The same" + f"; a {unit} may enter again: {flow.trials:,} trials of {flow.units:,}" * again,
    )
    until = f"From time zero for {steps}" + f", until {' or '.join(ends)}" * bool(ends) + ", or until lost"
    left = flow.eligible - flow.followed
    late = f"; {left:,} eligible moments too late for that many steps are left out" * (left > 0)
    yield "Follow-up", until, f"The same{late}"
    yield "Outcome", f"{', '.join(_quantities(report))}, after each step", "The same, where recorded"
    assigned = request.protocol == "intention-to-treat"
    contrast = (
        "Of being assigned a plan's first step, whatever follows (intention to treat)" if assigned
        else "Of following a plan to its end (per protocol)"
    )  # fmt: skip
    nouns = ", ".join(dict.fromkeys(row["quantity"] for row in report.rows))
    reference = effects.plans[effects.reference].name
    yield "Causal contrast", f"{contrast}: {nouns}, against {reference}", "The same, standardised to all who entered"
    lost = any(not estimates.target.kept_MK.all() for estimates in effects.targets)
    worst = max((abs(row["after"]) for row in shown if row["effective"] >= FEW), default=None)
    weighed = (
        f"; of what is recorded, weighting leaves differences of up to {worst:.2f} sds" if worst is not None else ""
    )
    assumed = f"{ASSUMPTIONS.format(given=given, unit=unit)}{LOSS * lost} No data can show the first{weighed}."
    without = "None beyond those of a trial without loss" + " and with full adherence" * (not assigned)
    yield "Identifying assumptions", without, assumed
    arms = f"Means by arm and their contrasts, with {100 * request.levels[0]:g} % intervals"
    yield "Analysis", arms, _analysis(report)


def _analysis(report: EffectReport) -> str:
    """Return how effects were estimated."""
    settings, unit = report.effects.settings, _unit(report)
    learners = " and ".join(dict.fromkeys(estimates.learner.text for estimates in report.effects.targets))
    how = " and ".join(ESTIMATORS[name] for name in settings.estimators)
    return (
        f"{how[:1].upper()}{how[1:]}; outcomes by {learners}; cross-fitted in {settings.folds} folds by "
        f"{unit}; weights cut at their {settings.truncated:g} quantile; intervals from influence curves by {unit}, "
        "bands over all steps, p-values adjusted for all contrasts (Holm)"
    )


def _baseline(report: EffectReport, shown: Sequence[Mapping[str, Any]]) -> ReportTable:
    """Return the characteristics at time zero, a column for all and two for each plan."""
    rows = [*baseline(report.effects, shown)]
    headers = ["characteristic", f"all (n = {rows[0]['trials']:,})"]
    for row in rows[1 : 1 + len(report.effects.plans)]:
        headers += [f"{row['plan']} (n = {row['trials']:,})", "SMD"]
    lines: dict[str, list[str | None]] = {}
    for row in rows:
        mean, sd = (None if row[name] is None else f"{row[name]:.4g}" for name in ("mean", "sd"))
        text = mean if mean is None else percent(row["mean"]) if row["share"] else f"{mean} ({sd})" if sd else mean
        line = lines.setdefault(row["column"], [labelled(row["column"], row["unit"])])
        line.append(text)
        if row["plan"] is not None:
            line.append(None if row["before"] is None else f"{row['before']:+.2f} ({row['after']:+.2f})")
    return ReportTable("Baseline", ABOUT_BASELINE, headers, list(lines.values()))
