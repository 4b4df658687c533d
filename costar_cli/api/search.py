"""Searches in the Python API: what `costar search` answers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack, get_args

from costar_cli.api.calls import When, one_of, origin_of, reporting, require_data_set, texts
from costar_cli.api.data import new_dataset
from costar_cli.api.estimates import Plans, losses_on, plan_request
from costar_cli.api.predictions import places_of
from costar_cli.config.choices import RankingName
from costar_cli.config.requests import SearchWords
from costar_cli.data import Dataset
from costar_cli.data.compatible import other_data, require_compatible
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import UsageError
from costar_cli.files.frames import FrameName, frame_name, is_frame
from costar_cli.inference import calibration_of, interval_kind, support_of
from costar_cli.methods.shared.transformed import on_transforms
from costar_cli.plans import PlanRequest, TreatmentPlan, parse_origin
from costar_cli.questions import Cohort, join_places, names_of, refuse_unseen, unseen_in_plans, warnings_on_plans
from costar_cli.questions.diagnostics import on_reactions
from costar_cli.questions.search import SearchReport, SearchRequest, SubjectAnswer, search, with_notes
from costar_cli.questions.search.report import SHOWN
from costar_cli.reporting import Reporter, warnings_of

if TYPE_CHECKING:
    from costar_cli.api.calls import Progress
    from costar_cli.api.model import Model
    from costar_cli.data import Location
    from costar_cli.files.frames import Frame
    from costar_cli.methods.base import FittedModel

CHUNK: Final = 256  # subjects whose histories are encoded at once


def fixed_plans(plans: Plans, model: "FittedModel", *, where: str, single: bool = False) -> tuple[TreatmentPlan, ...]:
    """Return the plans that a file or an argument holds.

    Raises:
        UsageError: they do not fit the data set, one of them is a rule or a shift, or several where a `single` one is
            needed.
    """
    found = plan_request(plans, model.schema, model.horizon, where=where).plans
    fixed = tuple(plan for plan in found if isinstance(plan, TreatmentPlan))
    if len(fixed) < len(found):
        raise UsageError("a search chooses among fixed plans, not rules or shifts", where=where, fix="list their steps")
    if not fixed or (single and len(fixed) > 1):
        fix = "give a single plan" if single else "leave the column `subject` out"
        raise UsageError(f"{len(fixed):,} plans where one is needed" if single else "no plans", where=where, fix=fix)
    return fixed


def words_of(words: Mapping[str, Any]) -> SearchWords:
    """Return the words of a search.

    Raises:
        UsageError: unknown words, or values of another kind.
    """
    names = {field.name: field for field in fields(SearchWords)}
    for name in words:
        one_of(name, names, name, "argument")
    one_of(words.get("by", "estimate"), get_args(RankingName), "by", "way to decide")
    for name in ("steps", "beam"):
        value = words.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise UsageError(f"{value!r} is no whole number", where=f"{name}=", fix="give a number such as 3")
    level = words.get("level", 0.9)
    if isinstance(level, bool) or not isinstance(level, Real):
        raise UsageError(f"{level!r} is no number", where="level=", fix="give a number between 0 and 1, such as 0.9")
    several: dict[str, Any] = {name: texts(value, name) for name, value in words.items() if names[name].default == ()}
    return SearchWords(**{**words, **several})


def request_of(model: "FittedModel", words: SearchWords, *, flags: bool = False) -> SearchRequest:
    """Return what a model is asked, with the plans read; `flags` say how messages call the places of these.

    Raises:
        UsageError: plans to choose from, or to compare with, that do not fit.
    """
    read = {field.name: getattr(words, field.name) for field in fields(words)}
    if words.only_from is not None:
        read["only_from"] = fixed_plans(words.only_from, model, where="--only-from" if flags else "only_from=")
    if words.reference is not None:
        where = "--reference" if flags else "reference="
        (read["reference"],) = fixed_plans(words.reference, model, where=where, single=True)
    return SearchRequest(**read)


class SearchArguments(TypedDict, total=False):
    """The keyword arguments of a search, for those who check types; `Model.search` says what each is."""

    minimise: str | Sequence[str]
    maximise: str | Sequence[str]
    cost: str | Sequence[str]
    at_most: str | Sequence[str]
    at_least: str | Sequence[str]
    not_consecutive: str | Sequence[str]
    not_with: str | Sequence[str]
    levels: str | Sequence[str]
    only_from: Plans | None
    reference: Plans | None
    steps: int | None
    beam: int | None
    by: RankingName
    level: float
    unsupported: bool


def search_plans(
    model: "Model",
    dataset: Dataset,
    *,
    subject: int | str,
    origin: When = "last",
    progress: "Progress" = False,
    **words: Unpack[SearchArguments],
) -> SearchReport:
    """Search the best plan of one subject, as `costar search` does; `Model.search` does so for many, as a frame.

    Args:
        model: what predicts.
        dataset: where the subject is, in whatever domain and split.
        subject: number or label of the subject.
        origin: index of the last known step, `last`, -K for K steps before the last, or a date.
        progress: True for progress on stderr, or a `Reporter`.
        **words: the objective, constraints and the rest, as `Model.search` takes them.

    Returns:
        A report: `to_frame()`, `to_json()`, `plan_document()` for a file of the best plan, and the notes that the
        command line prints.

    Raises:
        UsageError: an unknown subject, an objective or constraints that do not fit, all problems at once.
        MismatchError: a model of other variables, treatments or units than the data set's.
    """
    require_data_set(dataset)
    require_compatible(dataset, model.fitted.schema, model="the model")
    request, places = request_of(model.fitted, words_of(dict(words))), [dataset.find_subject(subject)]
    with reporting(progress) as reporter:
        cohort = cohort_of(dataset, places, origin)
        [report] = search_cohort(model.method, model.fitted, dataset, cohort, request, reporter)
    return report


def cohort_of(
    dataset: Dataset,
    places: "Sequence[Location]",
    origin: When,
    *,
    where: str = "origin=",
    skip: bool = False,
    reporter: Reporter | None = None,
) -> Cohort:
    """Return subjects from one origin each; the arguments are those of `Cohort.of`.

    Raises:
        UsageError: no origin, all of them, or one that a subject lacks.
    """
    panel, start = join_places(dataset, places), parse_origin(origin_of(origin), where=where, single=True)
    return Cohort.of(
        panel, names_of(panel), places, origin=start, skip=skip, where=where, terminal=dataset.schema.terminal,
        reporter=reporter,
    )  # fmt: skip


def best_plans(
    model: "Model",
    data: "Dataset | Frame",
    words: SearchWords,
    *,
    subjects: Iterable[int | str] | None,
    part: str | None,
    origin: When,
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
        request, cohort = request_of(fitted, words), cohort_of(data, places_of(data, subjects, part), origin)
        reports = list(search_cohort(model.method, fitted, data, cohort, request, reporter))
    answers = [answer for report in reports for answer in report.answers]
    return replace(reports[0], answers=answers).to_frame(library)


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
    question = request.question(model, many=many)
    other = other_data(f"model `{label}`", model.parents, dataset)
    general = (
        *([other] if other else ()),
        *warnings_of(f"model `{label}`", model.record.warnings),
        *losses_on(dataset, models, cohort.places),
        *on_reactions(models, plans=2, steps=len(question.reference)),  # a search compares plans, however many are left
    )
    support = support_of(model)
    for warning in general:
        reporter.say(warning)
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
                calibration_of(model), members=model.members if model.draws_are_members else None,
                on_outcomes=tuple(on_transforms(model)),
                judges_precision=support is not None and support.judges_precision,
                parents={"dataset": dataset.digest, f"model/{label}": model.digest},
                sources=dataset.parents,
            )  # fmt: skip
            own_warnings: tuple[Diagnostic, ...] = ()
            if not many and report.answers[0].best.found:
                plan = TreatmentPlan("best", report.answers[0].best.values_MHA[0])
                own_warnings = tuple(warnings_on_plans(models, part, PlanRequest((plan,))))
            for warning in own_warnings:
                reporter.say(warning)
            yield with_notes(replace(report, diagnostics=(*general, *own_warnings)))
