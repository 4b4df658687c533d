"""Searches in the Python API: what `costar search` answers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from costar_cli.api.calls import reporting
from costar_cli.api.data import new_dataset
from costar_cli.api.estimates import Plans, losses_on_domain, plan_request
from costar_cli.api.predictions import places_of
from costar_cli.cohort import Cohort, doubts, join_places, names_of
from costar_cli.errors import UsageError
from costar_cli.frames import FrameName, frame_name, is_frame, make_frame
from costar_cli.methods.shared.transformed import on_transforms
from costar_cli.panel import Dataset
from costar_cli.panel.compatible import other_data, require_compatible
from costar_cli.plans import PlanRequest, TreatmentPlan, parse_origin
from costar_cli.reporting import Reporter, warnings_of
from costar_cli.search import SearchReport, SearchRequest, SubjectAnswer, notes_on, search
from costar_cli.search.report import SHOWN
from costar_cli.uncertainty import calibration_of, draws_are_members, interval_kind
from costar_cli.whatif.estimate import refuse_unseen
from costar_cli.whatif.notes import unseen_in_plans

if TYPE_CHECKING:
    from costar_cli.api.calls import Progress
    from costar_cli.api.model import Model
    from costar_cli.frames import Frame
    from costar_cli.methods.base import FittedModel
    from costar_cli.panel import Location

CHUNK: Final = 256  # subjects whose histories are encoded at once


def fixed_plans(plans: Plans, model: "FittedModel", *, where: str, single: bool = False) -> tuple[TreatmentPlan, ...]:
    """Return the plans that a file or an argument holds.

    Raises:
        UsageError: they do not fit the data set, one of them is a rule or a shift, or several where a `single` one is
            needed.
    """
    found = plan_request(plans, model.schema, model.horizon).plans
    fixed = tuple(plan for plan in found if isinstance(plan, TreatmentPlan))
    if len(fixed) < len(found):
        raise UsageError("a search chooses among fixed plans, not rules or shifts", where=where, fix="list their steps")
    if not fixed or (single and len(fixed) > 1):
        fix = "give a single plan" if single else "leave the column `subject` out"
        raise UsageError(f"{len(fixed):,} plans where one is needed" if single else "no plans", where=where, fix=fix)
    return fixed


def best_plans(
    model: "Model",
    data: "Dataset | Frame",
    request: SearchRequest,
    *,
    subjects: Iterable[int | str] | None,
    part: str | None,
    origin: int | str,
    frame: FrameName | None,
    progress: "Progress",
) -> "Frame":
    """Return what `Model.search` says.

    Raises:
        UsageError: data of another kind.
    """
    library, fitted = frame_name(data, frame), model.fitted
    with reporting(progress) as reporter:
        if is_frame(data):
            data = new_dataset(model, data, reporter, subject=None, time=None)
        if not isinstance(data, Dataset):
            problem = f"cannot search plans for {type(data).__name__}"
            raise UsageError(problem, where="data=", fix="give a data set, or a frame of pandas or polars")
        require_compatible(data, fitted.schema, model="the model")
        places = places_of(data, subjects, part)
        panel, start = join_places(data, places), parse_origin(origin, where="origin=", single=True)
        cohort = Cohort.of(panel, names_of(panel), places, origin=start, where="origin=", terminal=data.schema.terminal)
        reports = list(search_cohort(model.method, fitted, data, cohort, request, reporter))
    answers = [answer for report in reports for answer in report.answers]
    columns = {name: values for name, values in reports[0].columns(answers).items() if name not in ("domain", "split")}
    part_of = {answer.name: str(answer.part) for answer in answers}
    names = columns.pop("subject")
    assert isinstance(names, list)  # noqa: S101 - as they are written
    return make_frame({"subject": names, "part": [part_of[name] for name in names], **columns}, library)


def search_cohort(
    label: str,
    model: "FittedModel",
    dataset: "Dataset",
    cohort: Cohort,
    request: SearchRequest,
    reporter: Reporter,
) -> Iterator[SearchReport]:
    """Yield the best plans of some subjects after others; a single subject is searched more closely than one of many.

    Warnings are told to the reporter once; each report has those of its own subjects.

    Raises:
        UsageError: what is asked for does not fit, named plans give what nobody was given, or no plan is left.
        TrainingError: a prediction is not finite.
    """
    if not request.unsupported:
        refuse_unseen(unseen_in_plans({label: model}, request.named))
    many, models = len(cohort) > 1, {label: model}
    question, general = request.question(model, many=many), tuple(_general(label, model, dataset, cohort))
    for warning in general:
        reporter.warn(warning)
    with reporter.task("search", total=len(cohort), unit="subject") as task:
        for first in range(0, len(cohort), CHUNK):
            part, answers = cohort.take(slice(first, first + CHUNK)), []
            places: Sequence[Location | None] = part.places or [None] * len(part.names)
            known = part.known()
            found = search(label, model, known.take(part.subject_M), part.origin_M, question)
            dates = part.panel.dates(part.subject_M, part.origin_M)
            dates_M = [None] * len(part.subject_M) if dates is None else dates.tolist()
            for row, origin, date, best in zip(
                part.subject_M.tolist(), part.origin_M.tolist(), dates_M, found, strict=True
            ):
                place, length = places[row], int(part.panel.length[row])
                own = best.first(SHOWN) if many else best
                answers.append(SubjectAnswer(part.names[row], place and place.part, origin, length, own, date))
                task.advance()
            panel = None if many else known
            report = SearchReport(
                dataset.name, model.schema, label, model.method, interval_kind(model), question, answers, panel,
                calibration_of(model), members=model.members if draws_are_members(model) else None,
                on_outcomes=tuple(on_transforms(model)),
            )  # fmt: skip
            own_warnings = () if many else tuple(_on_best(models, part, report))
            for warning in own_warnings:
                reporter.warn(warning)
            report = replace(report, warnings=(*general, *own_warnings))
            yield replace(report, notes=tuple(notes_on(report)))


def _general(label: str, model: "FittedModel", dataset: "Dataset", cohort: Cohort) -> Iterator[str]:
    """Yield what may make all answers wrong: other data, what training warned of, a domain where it does badly."""
    if other := other_data(f"model `{label}`", model.parents, dataset):
        yield other
    yield from warnings_of(f"model `{label}`", model.meta)
    for domain in dict.fromkeys(place.part.domain for place in cohort.places):
        yield from losses_on_domain(dataset, {label: model}, domain)


def _on_best(models: "Mapping[str, FittedModel]", cohort: Cohort, report: SearchReport) -> Iterator[str]:
    """Yield what of the best plan was not learnt."""
    best = report.answers[0].best
    if best.found:
        yield from doubts(models, cohort, PlanRequest((TreatmentPlan("best", best.values_MHA[0]),)))
