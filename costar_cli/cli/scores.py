"""What `costar evaluate` prints: a table of errors, and those of whatever else was scored."""

from math import nan
from typing import TYPE_CHECKING, Final

from costar_cli.reporting.output import Output

if TYPE_CHECKING:
    from costar_cli.evaluation import EvaluationReport, ReportRow

ABOUT_LIGHTS: Final = (
    "errors by light are of other answers than the scores above: of outcomes that had not died out, as they would be "
    "observed (a sample of very many), each subject counting once, all steps together, by the mean over members"
)
BAND: Final = "0.9"  # whose coverage stands beside the errors
RARE: Final = 0.00005  # predicted and observed shares below it are not shown: they would be 0.00 %


def show_scores(out: Output, report: "EvaluationReport") -> None:
    """Print errors, their intervals and ratios to the best possible, and coverage of bands: a table per set-up.

    Before them, of details: errors by step and period, the natural course, probabilities, coverage, support ratings.
    """
    from costar_cli.data.findings import counted
    from costar_cli.evaluation.rows import ABOUT_BUDGET, BUDGET_SIGN

    label = report.limit_label
    truths = {row.setup: row.truth for row in reversed(report.rows) if row.truth}  # of published rows, that of ours
    tests: dict[tuple[str, str | None], list[ReportRow]] = {}
    for row in report.rows:
        tests.setdefault((row.setup, row.truth or truths.get(row.setup)), []).append(row)
    if out.details:
        show_steps(out, report)
        show_dropout(out, report)
        show_periods(out, report)
        show_natural_course(out, report)
        show_probabilities(out, report)
        show_bands(out, report)
        show_light_scores(out, report)
        touched: dict[str, set[int]] = {}
        for row in report.rows:
            if row.provenance is not None:
                touched.setdefault(row.setup, set()).add(row.provenance.labelled_target_subjects)
        counts = ", ".join(f"{setup} {' or '.join(f'{n:,}' for n in sorted(seen))}" for setup, seen in touched.items())
        out.note(f"labelled target subjects used for training or selection: {counts}")
    if any(row.lower is not None for row in report.rows):
        out.note("interval: bootstrap over test subjects; excludes training variability")
    unit = report.unit.label or "outcome units"
    kinds = {"factual": ": factual outcomes (as observed)", "counterfactual": ": counterfactual outcomes"}
    narrow = False  # whether a band holds fewer true outcomes than it says, by more than chance
    out.text(f"RMSE in {unit} on {report.dataset}, mean of {counted(report.horizon, 'step')}")
    for (setup, truth), rows in tests.items():
        first = next((row for row in rows if row.subjects is not None), rows[0])
        whose = f", {first.subjects:,} subject{'s' * (first.subjects != 1)} of {first.test}" if first.subjects else ""
        bands = {row.label: found.calibration[BAND] for row in rows for kind, found in row.band_tests if kind == truth}
        headers = ["model", "average", f"{report.level:.0%} interval", *["ratio"] * bool(label)]
        headers += [f"{float(BAND):.0%} band"] * bool(bands)
        lines: list[list[object]] = []
        for row in rows:
            ratio, band = report.ratio_to_limit(row), bands.get(row.label)
            line: list[object] = [_label(row), number(row.mean.average), _interval(row)]
            line += [number(ratio.average if ratio else None)] * bool(label)
            share, high = (None, None) if band is None else (band.coverage.average, band.coverage_upper.average)
            below = high is not None and high < float(BAND)
            narrow = narrow or below
            line += [f"{100 * share:.0f} %" + " !" * below if share is not None else None] * bool(bands)
            lines.append(line)
        out.table(headers, lines, title=f"{setup}{kinds.get(truth or '', '')}{whose}", keys=1)
    if label:
        out.text(f"ratio: to `{label}`, a lower bound, not a method")
    out_of_budget = any(row.stopped_by_budget for row in report.rows)
    out.text(*map(str, report.few_units), *[f"{BUDGET_SIGN} {ABOUT_BUDGET}"] * out_of_budget)
    out.text(*["! fewer true outcomes lie within the band than it says"] * narrow)
    parts = {
        "natural course": report.natural, "periods": any(row.periods for row in report.rows),
        "probabilities": report.probabilities, "coverage": any(row.band_tests for row in report.rows),
        "support": any(lights for row in report.rows for _, lights in row.light_tests), "dropout": report.dropout,
    }  # fmt: skip
    out.more(", ".join(["every step", *(name for name, has in parts.items() if has)]))


def show_steps(out: Output, report: "EvaluationReport") -> None:
    """Print the errors, a line per row of the report, the average over steps first."""
    unit = report.unit.label or "outcome units"
    out.text(f"RMSE in {unit} on {report.dataset}: mean ± sd over members, and the error of the ensemble mean")
    bases = []  # of the rows of each set-up: the kind of answer, subjects and scored queries
    for row in report.rows:
        if row.truth is not None and row.subjects is not None:
            queries = " to ".join(f"{n:,}" for n in sorted({min(row.scored), max(row.scored)}))
            meaning = " (observed under the treatments given)" if row.truth == "factual" else ""
            subjects = f"{row.subjects:,} subject{'s' * (row.subjects != 1)} of {row.test}"
            bases.append(f"{row.setup}: {row.truth} outcomes{meaning}, {subjects}, {queries} scored queries per step")
    out.text(*dict.fromkeys(bases))
    label = report.limit_label
    out.text(*([report.about_ratio] if report.about_ratio else []))
    several = len({row.truth for row in report.rows if row.truth}) > 1  # factual and counterfactual queries
    headers = ["setup", *["queries"] * several, "model", "average", *["ratio"] * bool(label)]
    headers += ["ensemble", f"{report.level:.0%} interval"]
    headers += [f"tau={h + 1}" for h in range(report.horizon)]
    rows = []
    for row in report.rows:
        ratio = report.ratio_to_limit(row)
        ratios = [number(ratio.average if ratio else None)] if label else []
        average = number(row.mean.average)
        if average is not None and row.sd is not None and row.sd.average is not None:
            average = f"{average} ± {number(row.sd.average)}"
        steps = [number(value) for value in (*row.mean.steps, *[None] * report.horizon)[: report.horizon]]
        ensemble = row.ensemble.average if row.ensemble and len(row.members) > 1 else None
        kind = [row.truth] if several else []
        shown, interval = _label(row), _interval(row)
        rows.append([row.setup, *kind, shown, average, *ratios, number(ensemble), interval, *steps])
    out.table(headers, rows, keys=2 + several)


def _label(row: "ReportRow") -> str:
    return row.marked_label if row.basis in ("ours", "limit") else f"{row.label} ({row.basis})"


def _interval(row: "ReportRow") -> str | None:
    """Return the limits of the average error, or that the subjects are too few for any."""
    if row.lower and row.upper and row.lower.average is not None and row.upper.average is not None:
        return f"{number(row.lower.average)} to {number(row.upper.average)}"
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
        f"Coverage of calibrated bands in percent of answers, each subject counting once; width and interval score of "
        f"the {asked:.0%} band and CRPS in {unit}, lower is better"
    )
    headers = ["setup", "queries", "model", *[f"{level:.0%} band" for level in REPORTED]]
    headers += [f"interval of {asked:.0%}", "width", "interval score", "CRPS"]
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
    why = "of the answers are left out, where the outcome had died out at the origin"
    out.text(*dict.fromkeys(f"{what}: {share:.0%} {why}" for what, share in died_out if share))


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
        f"step since the origin, with {report.level:.0%} intervals over subjects"
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


def show_periods(out: Output, report: "EvaluationReport") -> None:
    """Print the errors by calendar period of the origin; nothing without dates."""
    scored = [row for row in report.rows if row.periods]
    if not scored:
        return
    names = sorted({found.period for row in scored for found in row.periods})
    unit = report.unit.label or "outcome units"
    out.text(f"RMSE in {unit} by period of the origin: average over steps, mean over members")
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
        f"Answers by light: shares in percent, RMSE in {unit}, coverage of the 90% band in percent, each green / amber "
        "/ red, and the RMSE where red answers are left out"
    )
    headers = ["setup", "queries", "model", "light", "share", "RMSE", "coverage", "RMSE of all", "without red"]
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
