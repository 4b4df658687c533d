"""The card of a model: what it is, its data, its scores, and what it must not be used for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from costar_cli.data import PanelSchema
from costar_cli.data.findings import counted, percent
from costar_cli.data.record import ModelRecord
from costar_cli.data.report import DataReport
from costar_cli.data.schema import labelled, steps_of
from costar_cli.evaluation import EvaluationReport, ReportRow
from costar_cli.files.digest import making_text
from costar_cli.inference import Reactions
from costar_cli.methods.registry import METHODS
from costar_cli.report.pages.data import report_tables
from costar_cli.report.pages.page import Item, Page, ReportTable, Section, listed, render, svg
from costar_cli.report.pages.whatif import lineage

SHOWN_OF_DATA: Final = ("Subjects and lengths", "Shift from source to target")
MOST_SHIFTS: Final = 10
UNKNOWN: Final = "unknown"
NOT_SCORED: Final = "There is no evaluation of this model in its folder: `costar evaluate` makes one."
ABOUT_LEARNT: Final = ("outcome", "what", "typical", "90 % of subjects", "carry-over")
USE: Final = """\
To estimate, with bands, the outcomes of subjects like those of the training data over the next {horizon} steps of one \
{step}, under treatment plans that such subjects received, and to compare such plans: as one input among others to \
people who know the subject.
Its estimates are causal only if everything that drives both treatment and outcome is in the data. `costar whatif \
--sensitivity` says how strong a hidden confounder would have to be to change a ranking.\
"""
MISUSE: Final = """\
Choosing a treatment without a person who is responsible for it.
Plans that the data do not support (rated red), subjects unlike those of the training data, more than {horizon} steps.
Reading a band as a guarantee for one subject: it covers its share of new subjects on average, under the treatments \
that they received.
Comparing its errors with those on other data, or of another protocol.\
"""


def model_card(content: Mapping[str, Any], data: DataReport | None, evaluations: Mapping[str, EvaluationReport]) -> str:
    """Return the page; the same files give the same text.

    Args:
        content: of the model's file, as `artifact.describe` tells it.
        data: on the data set that it was trained on, where that is at hand.
        evaluations: those in which the model was scored, by digest.

    Raises:
        ValueError: the file does not describe its variables as costar does.
    """
    from costar_cli.report.figures.evaluation import draw_rmse  # noqa: PLC0415 - matplotlib where something is drawn

    record, digest = ModelRecord.read(content["meta"], lenient=True), str(content["digest"])
    schema = PanelSchema.model_validate(content["meta"].get("schema")) if record.schema is None else record.schema
    method = METHODS.label(record.method)
    rows = [(report, row) for report in evaluations.values() for row in report.rows if _is_of(row, digest)]
    words = {"horizon": str(record.horizon), "step": schema.step}
    tables = [_score_table(report, digest) for report in evaluations.values()]
    pictures = [svg(draw_rmse(report), f"scores-{i}") for i, report in enumerate(evaluations.values())]
    others = [counted(len(schema.covariates), "covariate"), counted(len(schema.statics), "static feature")]
    facts: list[tuple[str, object]] = [
        ("method", method),
        ("predicts", ", ".join(labelled(outcome.name, outcome.unit) for outcome in schema.outcomes)),
        ("predicts up to", steps_of(record.horizon or 1, schema.step)),
        ("treatments", ", ".join(schema.treatments.all_names)),
        ("reads", f"past treatments and outcomes, {' and '.join(others)}"),
        ("members", record.members),
        ("starts from", record.init),
    ]
    counts = {"trained": record.trained_on, "selected": record.selected_on, "calibrated": record.calibrated_on}
    for what, on in counts.items():
        if on:
            facts.append((f"{what} on", ", ".join(f"{part}: {counted(n, 'subject')}" for part, n in on.items())))
    of_learnt = ("outcome", "what", "typical", "subjects", "carry_over")
    learnt = tuple(tuple(row.get(name) for name in of_learnt) for row in record.learnt or ())
    parents = {"model": digest} | {f"from {role}": str(parent) for role, parent in content["parents"].items()}
    versions = [(f"written by {name}", str(version)) for name, version in content["versions"].items()]
    sections = [
        Section("Scores", texts=[] if tables else [NOT_SCORED], tables=tables, pictures=pictures),
        Section("Known limits", items=list(_limits(record, rows, data, schema))),
        _calibration(record.calibration, rows),
        Section("Intended use", texts=USE.format(**words).splitlines()),
        Section("Misuse", items=[Item(text) for text in MISUSE.format(**words).splitlines()]),
        Section("Model", tables=[ReportTable("", "", ("fact", "value"), tuple(facts))]),
        *_on_training(record, data, schema),
        Section("Learned effects", tables=[ReportTable("", "", ABOUT_LEARNT, learnt)]),
        lineage(parents, [*(("evaluation", one) for one in evaluations), *versions]),
    ]
    subtitle = f"{method} on {record.dataset_name}, fitted to the {record.domain} domain, {digest[:12]}"
    shown = [one for one in sections if one.texts or one.items or any(table.rows for table in one.tables)]
    return render(Page(f"Model card: {method}", subtitle, shown, list(_answer(rows)) or [NOT_SCORED]))


def _answer(rows: Sequence[tuple[EvaluationReport, ReportRow]]) -> Iterator[str]:
    """Yield how large the model's error is in each set-up, next to the last value's and the least possible one."""
    for report, row in rows:
        if row.mean.average is None:
            continue
        beside = [other for other in report.rows if (other.setup, other.truth) == (row.setup, row.truth)]
        others = [
            f"{one.mean.average:.3g} ({one.label[:1].lower()}{one.label[1:]})" for one in beside
            if one.mean.average is not None and (one.is_last_value or one.basis == "limit")
        ]  # fmt: skip
        scores = row.calibration.get(f"{report.level:g}")
        share = None if scores is None else scores.coverage.average
        score = f"an RMSE of {row.mean.average:.3g} {report.unit.label}".strip()
        score += f", against {listed(others)}" * bool(
            others
        ) + f"; its {100 * report.level:g} % bands cover {percent(share)}" * (share is not None)
        yield f"{row.setup.capitalize()}, {row.truth} outcomes: {score}."


def is_scored(report: EvaluationReport, digest: str) -> bool:
    """Return whether an evaluation scores the model of a digest."""
    return any(_is_of(row, digest) for row in report.rows)


def _is_of(row: ReportRow, digest: str) -> bool:
    return row.provenance is not None and row.provenance.model_digest == digest


def _joined(values: Sequence[object] | None) -> str:
    """Return the different values of the members."""
    return ", ".join(dict.fromkeys(map(str, values or ())))


def _score_table(report: EvaluationReport, digest: str) -> ReportTable:
    """Return the model's rows, and those that they are compared with: the last value, the simulator where known."""
    mine = [row for row in report.rows if _is_of(row, digest)]
    beside = {(row.setup, row.truth) for row in mine}
    rows = [
        row
        for row in report.rows
        if row in mine or ((row.setup, row.truth) in beside and (row.basis == "limit" or row.is_last_value))
    ]
    steps = [f"step {h + 1}" for h in range(report.horizon)]
    headers = ("set-up", "questions", "model", "average", f"{report.level:.0%} interval", *steps)
    unit = report.unit.label or "outcome units"
    note = (
        f"RMSE in {unit}, lower is better, mean over members; the interval is resampled by test subject and leaves out "
        "the variation between training runs."
    )
    cells = []
    for row in rows:
        limits = [side.average for side in (row.lower, row.upper) if side is not None and side.average is not None]
        interval = f"{limits[0]:.4g} to {limits[1]:.4g}" if len(limits) == 2 else "none"
        cells.append((row.setup, row.truth, row.label, row.mean.average, interval, *row.mean.steps))
    return ReportTable("", note, headers, tuple(cells))


def _calibration(calibration: Mapping[str, Any] | None, rows: Sequence[tuple[EvaluationReport, ReportRow]]) -> Section:
    if calibration is None:
        return Section("Calibration", texts=["The model has no calibration: it shows no bands."])
    apart = "" if calibration.get("apart") is True else ", which also selected it: its bands are somewhat too narrow"
    about = f"Calibrated on {calibration.get('subjects')} {calibration.get('domain')} subjects{apart}."
    measured = tuple(
        (
            row.setup,
            row.truth,
            f"{float(level):.0%}",
            UNKNOWN if share is None else f"{share:.1%}",
            scores.width.average,
        )
        for _, row in rows
        for level, scores in row.calibration.items()
        for share in (scores.coverage.average,)
    )
    headers = ("set-up", "questions", "band", "covered", "mean width")
    note = "Measured on the test subjects of the evaluations above, averaged over steps."
    if any(covered == UNKNOWN for *_, covered, _ in measured):
        note += f" {UNKNOWN.capitalize()}: too few calibration subjects for such a band, or no predictions to score."
    return Section("Calibration", texts=[about], tables=[ReportTable("", note, headers, measured)])


def _on_training(record: ModelRecord, data: DataReport | None, schema: PanelSchema) -> Iterator[Section]:
    """Yield what the model was trained on, how, and which treatments the data support."""
    if data is None:
        yield Section("Data", texts=["The data set of the training is not in the folder of this file."])
    else:
        about = (
            f"The {MOST_SHIFTS} largest differences are shown; `costar inspect --report` of the data set has them all."
        )
        shown = [
            replace(table, rows=table.rows[:MOST_SHIFTS])
            for table in report_tables(data)
            if table.title in SHOWN_OF_DATA
        ]
        yield Section("Data", texts=[about] if len(data.shifts) > MOST_SHIFTS else (), tables=shown)
    stages = tuple((stage.name, _joined(stage.steps), _joined(stage.ended_by)) for stage in record.stages or ())
    texts = [] if stages else ["Fitted in closed form: no epochs."]
    if (validation := record.validation) is not None:
        texts.append(
            f"Validation: RMSE {validation.score:.3f} sd, last value carried forward {validation.last_value:.3f} sd, "
            f"over {validation.horizon} steps from {validation.windows:,} origins."
        )
    texts += [f"Made with {making_text(making)}." for making in record.made_with or ()]
    yield Section("Training", texts=texts, tables=[ReportTable("", "", ("stage", "updates", "ended by"), stages)])
    items = []
    if support := record.support:
        items += [Item(f"Never given in training: {lack.told}", "red") for lack in support.unseen(schema.treatments)]
        items += [Item(f"Never stopped in training: {name}", "amber") for name in support.absorbing(schema.treatments)]
    reliability = (record.practice or {}).get("reliability")
    rows = tuple(
        (row.get("treatment"), percent(row.get("expected")), percent(row.get("observed")), row.get("decisions"))
        for row in (reliability if isinstance(reliability, list) else [])
        if isinstance(row, Mapping)
    )
    names = ("treatment", "expected", "observed", "decisions")
    note = "Expected and observed shares of treated decisions of held-out subjects: calibration of the propensities."
    texts = [] if items or rows else ["The file does not record which treatments the data support."]
    yield Section("Support", texts=texts, tables=[ReportTable("", note, names, rows)], items=items)


def _limits(
    record: ModelRecord,
    rows: Sequence[tuple[EvaluationReport, ReportRow]],
    data: DataReport | None,
    schema: PanelSchema,
) -> Iterator[Item]:
    """Yield the limits that the file of a model and its evaluations show."""
    for warning in record.warnings:
        yield Item(warning, "warning")
    for report in {id(report): report for report, _ in rows}.values():
        mine = {id(row) for _, row in rows}
        for row, errors in report.losers():
            if id(row) in mine:
                yield Item(f"{row.setup}: worse than the last value carried forward ({errors})", "warning")
    known = Reactions.read(record.reactions)
    if known is not None and known.matter:
        label, doses = METHODS.label(record.method), bool(schema.treatments.doses)
        yield Item(str(known.diagnostic(label, doses=doses, binary=schema.has_binary)), "warning")
    suspicions = [str(suspect.diagnostic()) for suspect in record.indication]
    yield from (Item(suspicion, "warning") for suspicion in suspicions)
    if stopped := record.stopped_by_budget:
        yield Item(f"Training stopped at its limit while validation still improved: {', '.join(stopped)}", "note")
    if record.calibration is None:
        yield Item("No bands: the error of single estimates is unknown", "warning")
    if not rows:
        yield Item("Not scored in any evaluation in its folder", "warning")
    if record.unlabelled_target_subjects:
        yield Item("Its encoder learned from target histories, also in the zero-shot set-up", "note")
    for finding in data.findings if data else ():
        if finding.severity != "note" and finding.text not in suspicions:
            yield Item(f"Data: {finding.text}", "warning")
    yield Item("It cannot adjust for confounders that are not in the data", "note")
