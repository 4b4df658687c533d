"""What `costar evaluate` prints: a table of errors, and those of whatever else was scored."""

from collections.abc import Callable, Iterator, Sequence
from math import nan
from typing import TYPE_CHECKING, Final

from costar_cli.diagnostics import WORSE_THAN_LAST_VALUE
from costar_cli.reporting.output import Output

if TYPE_CHECKING:
    from costar_cli.evaluation import EvaluationReport, ReportRow

ABOUT_LIGHTS: Final = (
    "the table above uses a different set of predictions than the scores: outcomes that were not already zero at the "
    "forecast start, as they would be observed (a large sample), weighted equally per subject, all steps together, by "
    "the mean over ensemble members"
)
BAND: Final = "0.9"  # whose coverage stands beside the errors
RARE: Final = 0.00005  # predicted and observed shares below it are not shown: they would be 0.00 %


MOST_ROWS: Final = 5  # of the table on the screen
MOST_ALARMS: Final = 4
LONG_LABEL: Final = 16  # letters; longer labels leave no room for the error of the best possible
STATED: Final = frozenset(  # codes of warnings that the alarms below the table put into fewer words
    {"no-interval", "interval-uncertain", "worse-than-last-value", "worse-on-validation", "few-units"}
)


def show_scores(out: Output, report: "EvaluationReport", *, files: str = "") -> None:
    """Print one table of errors and a sentence for each alarm; before them whatever `--show` asks for.

    `files` says where the rest is.
    """
    if out.shows("days"):
        show_steps(out, report)
        show_periods(out, report)
        touched: dict[str, set[int]] = {}
        for row in report.rows:
            if row.provenance is not None:
                touched.setdefault(row.setup, set()).add(row.provenance.labelled_target_subjects)
        counts = ", ".join(f"{setup} {' or '.join(f'{n:,}' for n in sorted(seen))}" for setup, seen in touched.items())
        out.note(f"labelled target subjects used for training or selection: {counts}")
    if out.shows("course"):
        show_dropout(out, report)
        show_natural_course(out, report)
        show_doses(out, report)
    if out.shows("coverage"):
        show_probabilities(out, report)
        show_bands(out, report)
    if out.shows("effects"):
        show_effects(out, report)
    if out.shows("support"):
        show_light_scores(out, report)
    if out.shows("notes") and any(row.lower is not None for row in report.rows):
        out.note("interval: bootstrap over test subjects; excludes training variability")
    rows = [row for row in report.rows if row.basis == "ours"]
    out.text(_headline(report, rows))
    headers, lines = _score_table(report, rows)
    most = len(lines) if out.shows("days") or len(lines) <= MOST_ROWS else MOST_ROWS - 1
    out.table(headers, lines[:most], keys=1 + ("model" in headers))
    if left := len(lines) - most:
        out.text(f"and {left} more rows")
    alarms = list(_alarms(report, rows))
    shown = alarms if out.shows("notes") or len(alarms) <= MOST_ALARMS else alarms[: MOST_ALARMS - 1]
    out.text(*(f"! {alarm}" for alarm in shown))
    if left := len(alarms) - len(shown):
        out.text(f"! and {left} more alarms: --show notes")
    out.release(1, stated=STATED, words=WORSE_THAN_LAST_VALUE)
    topics = {
        "course": report.natural or report.dropout,
        "coverage": report.probabilities or any(row.band_tests for row in report.rows),
        "effects": any(row.effects for row in report.rows),
        "support": any(lights for row in report.rows for _, lights in row.light_tests),
    }
    out.more("days", *(name for name, has in topics.items() if has), files=files)


def _headline(report: "EvaluationReport", rows: "Sequence[ReportRow]") -> str:
    """Return what the numbers of the table are, and of how many subjects."""
    from costar_cli.data.schema import steps_of
    from costar_cli.evaluation.metrics import AVERAGED_STEPS

    counts = sorted({row.subjects for row in rows if row.subjects is not None})
    subjects = [f"{counts[0]:,} test subjects"] if len(counts) == 1 else []
    subjects = [f"{counts[0]:,} to {counts[-1]:,} test subjects"] if len(counts) > 1 else subjects
    kinds = {row.truth for row in rows}
    goals = {"factual": " from observed outcomes", "counterfactual": " from the truth"}
    goal = "".join(text for kind, text in goals.items() if kinds == {kind})
    what = f"RMSE{goal} in {report.unit.label or 'outcome units'}"
    return (
        f"{', '.join([report.dataset, *subjects])}: {what}, mean of "
        f"{steps_of(min(report.horizon, AVERAGED_STEPS), report.step)}"
    )


def _score_table(report: "EvaluationReport", rows: "Sequence[ReportRow]") -> tuple[list[str], list[list[object]]]:
    """Return a row per set-up and model, with the errors of the last value and of the best possible beside it."""
    kinds: dict[str, set[str | None]] = {}
    for row in rows:
        kinds.setdefault(row.setup, set()).add(row.truth)
    labels = {row.label for row in rows}
    several = len(labels) > 1
    beside = {(row.setup, row.truth, row.basis): row for row in report.rows if row.basis in ("naive", "limit")}
    band = any(_band(row) for row in rows)
    limit = report.limit_label is not None and (not several or max(map(len, labels)) <= LONG_LABEL)
    error = "error" if several or not labels else next(iter(labels))
    headers = ["set-up", *["model"] * several, error, f"{100 * report.level:.0f}% CI", "last value"]
    headers += ["best" if several else "best possible"] * limit + [f"{float(BAND):.0%} band"] * band
    lines: list[list[object]] = []
    before = None
    for row in rows:
        setup = f"{row.setup} ({row.truth})" if len(kinds[row.setup]) > 1 else row.setup
        line: list[object] = [None if setup == before else setup, *[row.label] * several, _short(row.mean.average)]
        before = setup
        line.append(_interval(row, _short))
        others = [beside.get((row.setup, row.truth, "naive")), *[beside.get((row.setup, row.truth, "limit"))] * limit]
        line += [other and _short(other.mean.average) for other in others]
        if band:
            found = _band(row)
            line.append(f"{100 * found[0]:.0f} %" + " !" * found[1] if found else None)
        lines.append(line)
    return headers, lines


def _band(row: "ReportRow") -> tuple[float, bool] | None:
    """Return which share of true outcomes the 90 % band holds, and whether that is too few by more than chance."""
    found = next((found.calibration[BAND] for kind, found in row.band_tests if kind == row.truth), None)
    if found is None or found.coverage.average is None:
        return None
    high = found.coverage_upper.average
    return found.coverage.average, high is not None and high < float(BAND)


def _alarms(report: "EvaluationReport", rows: "Sequence[ReportRow]") -> Iterator[str]:
    """Yield what makes the numbers of the table doubtful, a sentence each, the gravest first."""
    from costar_cli.inference import SUPPORT_LEVELS
    from costar_cli.reporting import HARDLY_BETTER, is_worse, less_error

    naive = {(row.setup, row.truth): row.mean.average for row in report.rows if row.basis == "naive"}
    worse, hardly = [], []
    for row in rows:
        own, rival = row.mean.average, naive.get((row.setup, row.truth))
        if own is None or rival is None or row.is_last_value:
            continue
        if is_worse(own, rival):
            worse.append((row.label, row.setup))
        elif (gain := less_error(own, rival)) < HARDLY_BETTER:
            hardly.append((row.label, f"{row.setup} ({100 * gain:.0f} % less error)"))
    if worse:
        yield f"worse than the last value carried forward: {_grouped(worse, rows)}"
    if hardly:
        yield f"hardly better than the last value: {_grouped(hardly, rows)}"
    narrow = [(row.label, row.setup) for row in rows if (band := _band(row)) and band[1]]
    if narrow:
        kind = "counterfactual answers" if any(row.truth == "counterfactual" for row in rows) else "these subjects"
        yield f"bands are too narrow for {kind}: {_grouped(narrow, rows)}"
    misled = []
    for row in rows:
        lights = next((lights for kind, lights in row.light_tests if kind == row.truth), {})
        errors = lights["support"].rmse_by_light if "support" in lights else {}
        known = [error for light in SUPPORT_LEVELS if (error := errors.get(light)) is not None]
        if errors.get(SUPPORT_LEVELS[-1]) is not None and len(known) > 1 and known[-1] == min(known):
            misled.append((row.label, row.setup))
    if misled:
        yield f"support ratings do not order errors here, red has the smallest: {_grouped(misled, rows)}"
    careful = dict.fromkeys(row.test for row in rows if row.caution and row.test)
    if careful:
        yield f"few subjects, so that CIs may be too narrow: {', '.join(careful)}"
    limited = [row.label for row in rows if row.stopped_by_budget]
    if limited:
        whose = ", ".join(dict.fromkeys(limited))
        yield f"training of {whose} stopped at its limit: more epochs may lower the error"


def _grouped(found: Sequence[tuple[str, str]], rows: "Sequence[ReportRow]") -> str:
    """Return models with their set-ups, where it is not all of them: `COSTAR in zero-shot, few-shot; Mixed effects`."""
    every: dict[str, set[str]] = {}
    for row in rows:
        every.setdefault(row.label, set()).add(row.setup)
    by_label: dict[str, list[str]] = {}
    for label, setup in found:
        by_label.setdefault(label, []).append(setup)
    return "; ".join(
        label if set(setups) == every[label] else f"{label} in {', '.join(dict.fromkeys(setups))}"
        for label, setups in by_label.items()
    )


def show_steps(out: Output, report: "EvaluationReport") -> None:
    """Print the errors, a line per row of the report, the average over steps first."""
    unit = report.unit.label or "outcome units"
    out.text(f"RMSE in {unit} on {report.dataset}: mean ± sd over ensemble members, and the error of the ensemble mean")
    bases = []  # of the rows of each set-up: the kind of answer, subjects and scored queries
    for row in report.rows:
        if row.truth is not None and row.subjects is not None:
            queries = " to ".join(f"{n:,}" for n in sorted({min(row.scored), max(row.scored)}))
            meaning = " (observed under the treatments given)" if row.truth == "factual" else ""
            subjects = f"{row.subjects:,} subject{'s' * (row.subjects != 1)} of {row.test}"
            bases.append(f"{row.setup}: {row.truth} outcomes{meaning}, {subjects}, {queries} scored queries per step")
    out.text(*dict.fromkeys(bases))
    has_limit = bool(report.limit_label)
    out.text(*([report.about_ratio] if report.about_ratio else []))
    several = len({row.truth for row in report.rows if row.truth}) > 1  # factual and counterfactual queries
    headers = ["setup", *["queries"] * several, "model", "average", *["ratio"] * has_limit]
    headers += ["ensemble", f"{report.level:.0%} interval"]
    headers += [f"tau={h + 1}" for h in range(report.horizon)]
    rows = []
    for row in report.rows:
        ratio = report.ratio_to_limit(row)
        ratios = [number(ratio.average if ratio else None)] if has_limit else []
        average = number(row.mean.average)
        if average is not None and row.sd is not None and row.sd.average is not None:
            average = f"{average} ± {number(row.sd.average)}"
        steps = [number(value) for value in (*row.mean.steps, *[None] * report.horizon)[: report.horizon]]
        ensemble = row.ensemble.average if row.ensemble and len(row.members) > 1 else None
        kind = [row.truth] if several else []
        label = row.marked_label if row.basis in ("ours", "limit") else f"{row.label} ({row.basis})"
        rows.append([row.setup, *kind, label, average, *ratios, number(ensemble), _interval(row), *steps])
    out.table(headers, rows, keys=2 + several)


def _short(value: float | None) -> str | None:
    """Return an error as the screen has room for it, with at least three digits."""
    return None if value is None else f"{value:.{3 if value < 10 else 2 if value < 100 else 1}f}"


def _interval(row: "ReportRow", text: "Callable[[float | None], str | None] | None" = None) -> str | None:
    """Return the limits of the average error, or that the subjects are too few for any."""
    if row.lower and row.upper and row.lower.average is not None and row.upper.average is not None:
        return " to ".join(str((text or number)(limit.average)) for limit in (row.lower, row.upper))
    return "too few" if row.no_interval else None


def show_bands(out: Output, report: "EvaluationReport") -> None:
    """Print how the bands of every calibrated model keep their levels; nothing where there are none."""
    from costar_cli.evaluation.sums import REPORTED

    scored = [(row, kind, found) for row in report.rows for kind, found in row.band_tests]
    if not scored:
        return
    asked = report.level if report.level in REPORTED else 0.9
    unit = report.unit.label or "outcome units"
    out.text(
        f"Coverage of calibrated bands in percent of answers, weighted equally per subject; width and interval score "
        f"of the {asked:.0%} band and CRPS in {unit}, lower is better"
    )
    headers = ["setup", "queries", "model", *[f"{level:.0%} band" for level in REPORTED]]
    headers += [f"CI of the {asked:.0%} coverage", "width", "interval score", "CRPS"]
    rows = []
    for row, kind, found in scored:
        at = found.calibration[str(asked)]
        shares = [found.calibration[str(level)].coverage.average for level in REPORTED]
        coverage = [nan if share is None else percent(share) for share in shares]
        low, high = percent(at.coverage_lower.average), percent(at.coverage_upper.average)
        numbers = [number(value.average) for value in (at.width, at.interval_score, found.details.crps)]
        rows.append([row.setup, kind, row.label, *coverage, f"{low} to {high}" if low and high else None, *numbers])
    out.table(headers, rows, keys=3)
    if any(cell != cell for row in rows for cell in row):  # noqa: PLR0124 - NaN is not equal to itself
        out.text("-: no such band, for too few calibration subjects, or nothing to score")
    died_out = [(f"{row.test}, {kind}", found.details.absorbed_share) for row, kind, found in scored]
    why = "of the answers are left out, where the outcome was already zero at the start of the forecast"
    out.text(*dict.fromkeys(f"{what}: {share:.0%} {why}" for what, share in died_out if share))


def show_effects(out: Output, report: "EvaluationReport") -> None:
    """Print how well differences between plans are predicted, and distributions under plans; nothing without any."""
    from costar_cli.evaluation.effects import ABOUT_EFFECTS

    scored = [(row, row.effects) for row in report.rows if row.effects is not None]
    if not scored:
        return
    unit = report.unit.label or "outcome units"
    out.text(f"Effects, mean of steps, in {unit}. {ABOUT_EFFECTS}")
    rows = []
    for row, effects in scored:
        crps, w1 = row.bands.crps if row.bands else None, effects.w1
        rows.append([
            row.setup, row.label, number(effects.pehe.average), percent(effects.sign.average),
            percent(effects.ranking.average), _short(effects.regret.average),
            percent(effects.relative_regret.average), number(crps.average if crps else None),
            number(w1.average if w1 else None),
        ])  # fmt: skip
    headers = ["setup", "model", "PEHE", "sign %", "ranking %", "regret", "of random %", "CRPS", "W1"]
    out.table(headers, rows, keys=2)
    if all(effects.w1 is None for _, effects in scored):
        stated = any(row.bands for row, _ in scored)
        why = "the simulator does not know the distribution of outcomes" if stated else "no row states a distribution"
        out.text(f"W1, the distance of predictive distributions to the true ones, is not available: {why}")


def show_dropout(out: Output, report: "EvaluationReport") -> None:
    """Print how what was observed is weighed for dropout, and the errors without; nothing where it is not."""
    if not report.dropout:
        return
    for of in report.dropout:
        low, high = (f"{level:.1%}" for level in of.truncated_at)
        out.text(
            f"{of.test}: weighed for loss of follow-up, {of.lost:,} of {of.subjects:,} subjects; weights of "
            f"{of.lower:.2f} to {of.upper:.2f}, truncated at their {low} and {high} quantiles, as precise as "
            f"{of.effective:.0%} of the answers would be without"
        )
    scored = [(row, row.unweighted) for row in report.rows if row.unweighted is not None]
    rows = [[row.setup, row.label, number(row.mean.average), number(plain.average)] for row, plain in scored]
    if rows:
        out.table(["setup", "model", "weighted average", "unweighted"], rows, keys=2)


def show_natural_course(out: Output, report: "EvaluationReport") -> None:
    """Print by how much mean predictions under the treatments given are off, by step since the origin."""
    if not report.natural:
        return
    from costar_cli.questions.tables import decimals_of, number_text

    out.text(
        "Natural course: mean outcome observed, and mean prediction minus it under the treatments that were given, by "
        f"step since the forecast start, with {report.level:.0%} intervals over subjects"
    )
    outcomes = dict.fromkeys(step.outcome for course in report.natural for step in course.steps)
    rows, told = [], set()
    for course in report.natural:
        for outcome in outcomes:
            steps = [step for step in course.steps if (step.axis, step.outcome) == ("origin", outcome)]
            decimals = decimals_of(step.observed for step in steps)
            seen = [number_text(step.observed, decimals) for step in steps]
            if (course.setup, outcome) not in told:
                rows.append([course.setup, "observed", outcome, *seen])
                told.add((course.setup, outcome))
            apart = [
                f"{step.difference:+.{decimals}f}"
                + (f" ({step.lower:.{decimals}f} to {step.upper:.{decimals}f})" if step.lower is not None else "")
                for step in steps
            ]
            rows.append([course.setup, course.label, outcome, *apart])
    longest = max(map(len, rows))
    out.table(["setup", "model", "outcome", *(f"tau={h + 1}" for h in range(longest - 3))],
              [[*row, *[None] * (longest - len(row))] for row in rows], keys=3)  # fmt: skip


def show_doses(out: Output, report: "EvaluationReport") -> None:
    """Print how many observed quantiles lie where the models expect them; nothing of data without doses."""
    if not report.doses:
        return
    from costar_cli.evaluation.doses import BAND

    out.text(
        "Predictive check: how many observed quantiles (10, 50, 90 %), by time since the last dose, lie in the "
        f"{report.doses[0].level:.0%} band of what the model expects, and residuals in its {BAND:.0%} band"
    )
    rows = []
    for check in report.doses:
        inside, every = check.inside
        of_time = [one for one in check.residuals if one.beside == "since_dose"]
        held = sum(one.inside * one.answers for one in of_time) / max(sum(one.answers for one in of_time), 1)
        rows.append(
            [check.setup, check.label, check.outcome, check.answers, f"{inside} of {every}", f"{100 * held:.0f} %"]
        )
    out.table(["setup", "model", "outcome", "answers", "quantiles inside", "residuals inside"], rows, keys=3)


def show_periods(out: Output, report: "EvaluationReport") -> None:
    """Print the errors by calendar period of the origin; nothing without dates."""
    scored = [row for row in report.rows if row.periods]
    if not scored:
        return
    names = sorted({found.period for row in scored for found in row.periods})
    unit = report.unit.label or "outcome units"
    out.text(f"RMSE in {unit} by period of the forecast start: average over steps, mean over ensemble members")
    rows = []
    for row in scored:
        average = {found.period: found.mean.average for found in row.periods}
        rows.append([row.setup, row.label, *(number(average.get(name)) for name in names)])
    out.table(["setup", "model", *names], rows, keys=2)


def show_light_scores(out: Output, report: "EvaluationReport") -> None:
    """Print errors and coverage by light for every model that has lights; nothing where there are none."""
    from costar_cli.evaluation.sums import RATINGS
    from costar_cli.inference import SUPPORT_LEVELS

    scored = [(row, kind, lights) for row in report.rows for kind, lights in row.light_tests]
    if not any(lights for _, _, lights in scored):
        return
    unit = report.unit.label or "outcome units"
    out.text(
        f"Answers by support rating: shares in percent, RMSE in {unit}, coverage of the 90% band in percent, each "
        "green / amber / red, and the RMSE where red answers are left out"
    )
    headers = ["setup", "queries", "model", "rating", "share", "RMSE", "coverage", "RMSE of all", "without red"]
    rows = [
        [
            row.setup, kind, row.label, name,
            " / ".join(percent(one.share[light]) or "-" for light in SUPPORT_LEVELS) if one.answers else "not judged",
            " / ".join(number(one.rmse_by_light[light]) or "-" for light in SUPPORT_LEVELS),
            " / ".join(percent(one.coverage[light]) or "-" for light in SUPPORT_LEVELS),
            number(one.rmse), number(one.rmse_without_red),
        ]
        for row, kind, lights in scored
        for name, one in ((name, lights[name]) for name in RATINGS if name in lights)
    ]  # fmt: skip
    out.table(headers, rows, keys=4)
    out.text(ABOUT_LIGHTS)


def show_probabilities(out: Output, report: "EvaluationReport") -> None:
    """Print scores of probabilities, of ends of series and of binary outcomes, by step since the origin."""
    if not report.probabilities:
        return
    rows: list[list[object]] = []
    for score in report.probabilities:
        for step in score.steps:
            if max(step.predicted, step.observed) < RARE:
                continue
            shares = (f"{100 * share:.2f} %" for share in (step.predicted, step.observed))
            scores = (step.log_loss, step.constant_log_loss, step.brier)
            losses = (None if loss is None else f"{loss:.4f}" for loss in scores)
            auroc = None if step.auroc is None else f"{step.auroc:.3f}"
            rows.append([score.setup, score.label, score.of, step.step, *shares, *losses, auroc, step.answers])
    headers = ["set-up", "method", "of", "step", "predicted", "observed"]
    headers += ["log loss", "of a constant", "Brier", "AUROC", "answers"]
    out.table(
        headers, rows, title="probabilities: ends of series at each step that they went on until, and binary outcomes"
    )


def percent(share: float | None) -> str | None:
    """Return a share in percent, None where it is unknown."""
    return None if share is None else f"{100 * share:.1f}"


def number(value: float | None) -> str | None:
    """Return a number with three decimals, None where it is unknown."""
    return None if value is None else f"{value:.3f}"
