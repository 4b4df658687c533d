"""What `costar evaluate` prints of calibrated bands, calendar periods, and the natural course."""

from math import nan
from typing import TYPE_CHECKING, Final

from costar_cli.reporting.output import Output

if TYPE_CHECKING:
    from costar_cli.evaluation import EvaluationReport, ReportRow
    from costar_cli.evaluation.calibrated import Calibrated

ABOUT_LIGHTS: Final = (
    "errors by light are of other answers than the scores above: of outcomes that had not died out, as they would be "
    "observed (a sample of very many), each subject counting once, all steps together, by the mean over members"
)
RARE: Final = 0.00005  # predicted and observed shares below it are not shown: they would be 0.00 %


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
        coverage = [nan if share is None else _percent(share) for share in shares]
        low, high = _percent(at.coverage_lower.average), _percent(at.coverage_upper.average)
        numbers = [_number(value.average) for value in (at.width, at.interval_score, found.details.crps)]
        rows.append([row.setup, kind, row.label, *coverage, f"{low} to {high}" if low and high else None, *numbers])
    out.table(headers, rows, keys=3)
    if any(cell != cell for row in rows for cell in row):  # noqa: PLR0124 - NaN is not equal to itself
        out.text("-: no such band, for too few calibration subjects, or nothing to score")
    out.text(*dict.fromkeys(line for row, kind, found in scored if (line := _died_out(row, kind, found))))


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
    rows = [[row.setup, row.label, _number(row.mean.average), _number(plain.average)] for row, plain in scored]
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
        rows.append([row.setup, row.label, *(_number(average.get(name)) for name in names)])
    out.table(["setup", "model", *names], rows, keys=2)


def show_light_scores(out: Output, report: "EvaluationReport") -> None:
    """Print errors and coverage by light for every model that has lights; nothing where there are none."""
    from costar_cli.evaluation.sums import RATINGS
    from costar_cli.inference import LIGHTS

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
            " / ".join(_percent(one.share[light]) or "-" for light in LIGHTS) if one.answers else "not judged",
            " / ".join(_number(one.rmse_by_light[light]) or "-" for light in LIGHTS),
            " / ".join(_percent(one.coverage[light]) or "-" for light in LIGHTS),
            _number(one.rmse), _number(one.rmse_without_red),
        ]
        for row, kind, lights in scored
        for name, one in ((name, lights[name]) for name in RATINGS if name in lights)
    ]  # fmt: skip
    out.table(headers, rows, keys=4)
    out.text(ABOUT_LIGHTS)


def _died_out(row: "ReportRow", kind: str, found: "Calibrated") -> str | None:
    """Return in words how many answers are left out because the outcome had died out."""
    share = found.details.absorbed_share
    if not share:
        return None
    return f"{row.test}, {kind}: {share:.0%} of the answers are left out, where the outcome had died out at the origin"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f}"


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"


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
    headers = [
        "set-up",
        "method",
        "of",
        "step",
        "predicted",
        "observed",
        "log loss",
        "of a constant",
        "Brier",
        "AUROC",
        "answers",
    ]
    out.table(
        headers, rows, title="probabilities: ends of series at each step that they went on until, and binary outcomes"
    )
