"""`Model.predict`: many subjects under the same plans, answered in one batch, as a tidy frame."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from costar_cli.api.calls import reporting
from costar_cli.api.data import new_panel
from costar_cli.api.estimates import Plans, plan_request
from costar_cli.cohort import (
    Cohort,
    answer_cohort,
    as_told,
    choose_subjects,
    doubts,
    join_columns,
    join_places,
    names_of,
    parse_origin,
    tidy_columns,
    true_answers,
)
from costar_cli.errors import UsageError
from costar_cli.frames import FrameName, frame_name, is_frame, make_frame
from costar_cli.panel.compatible import other_data, require_compatible
from costar_cli.panel.dataset import Dataset, Location
from costar_cli.panel.panel import Panel
from costar_cli.plans import PlanRequest
from costar_cli.plans.untrusted import Problems
from costar_cli.reporting import warnings_of
from costar_cli.whatif.estimate import check_request, refuse_unseen
from costar_cli.whatif.notes import unseen_in_plans

if TYPE_CHECKING:
    from costar_cli.api.calls import Progress
    from costar_cli.api.model import Model
    from costar_cli.frames import Frame


def predict(
    model: "Model",
    data: "Dataset | Panel | Frame",
    plans: Plans,
    *,
    subjects: Iterable[int | str] | None,
    part: str | None,
    origin: int | str | None,
    level: float | Sequence[float],
    truth: bool,
    unsupported: bool,
    subject: str | None,
    time: str | None,
    frame: FrameName | None,
    progress: "Progress",
) -> "Frame":
    """Return what `Model.predict` says."""
    fitted, library = model.fitted, frame_name(data, frame)
    request = plan_request(plans, fitted.schema, fitted.horizon)
    cohort = _cohort(model, data, subjects, part, request.origin if origin is None else origin,
                     subject=subject, time=time, progress=progress)  # fmt: skip
    levels = tuple(level) if isinstance(level, Sequence) else (level,)
    if truth and not isinstance(data, Dataset):
        fix = "leave it out, or give the simulated data set"
        raise UsageError("the truth is known of simulated data sets alone", where="truth=", fix=fix)
    problems = Problems()
    check_request({model.method: fitted}, request, levels, problems)
    problems.raise_any("the request does not fit", where="predict", fix=problems.fix)
    if not unsupported:
        refuse_unseen(unseen_in_plans({model.method: fitted}, as_told(request)))
    made = []
    with reporting(progress) as reporter:
        for warning in _warnings(model, data, request, cohort):
            reporter.warn(warning)
        with reporter.task("estimate", total=len(cohort), unit="subject") as task:
            for answers in answer_cohort(model.method, fitted, cohort, request, levels=levels):
                found = true_answers(data, answers) if truth and isinstance(data, Dataset) else None
                made.append(tidy_columns(answers, truth_QHY=found))
                task.advance(len(answers.cohort))
    columns = dict(join_columns(made))
    if cohort.places:
        part_of = columns.pop("domain") + "/" + columns.pop("split")
        columns = {"subject": columns.pop("subject"), "part": part_of, **columns}
    if all(isinstance(name, int) for name in cohort.names):
        columns["subject"] = columns["subject"].astype(int)
    return make_frame(columns, library)


def _cohort(
    model: "Model",
    data: "Dataset | Panel | Frame",
    subjects: Iterable[int | str] | None,
    part: str | None,
    origin: int | str | None,
    *,
    subject: str | None,
    time: str | None,
    progress: "Progress",
) -> Cohort:
    """Return the subjects to ask about.

    Raises:
        UsageError: data of another kind, unknown subjects, or arguments that belong to another kind of data.
    """
    fitted = model.fitted
    start = "last" if origin is None else parse_origin(origin, where="origin=")
    if isinstance(data, Dataset):
        require_compatible(data, fitted.schema, model="the model")
        places = _places(data, subjects, part)
        panel = join_places(data, places)
        return Cohort.of(panel, names_of(panel), places, origin=start, where="origin=")
    if part is not None or subjects is not None:
        name = "part" if part is not None else "subjects"
        raise UsageError(f"`{name}` chooses from a data set", where=f"{name}=", fix="give the rows that you ask about")
    if isinstance(data, Panel):
        _check_widths(data, fitted.schema.dims)
        return Cohort.of(data, names_of(data), origin=start, where="origin=")
    if is_frame(data):
        with reporting(progress) as reporter:
            panel = new_panel(model, data, reporter, subject=subject, time=time)
        return Cohort.of(panel, names_of(panel), origin=start, where="origin=")
    raise UsageError(
        f"cannot predict from {type(data).__name__}",
        where="data=",
        fix="give a data set, a panel, or a frame of pandas or polars",
    )


def _places(dataset: Dataset, subjects: Iterable[int | str] | None, part: str | None) -> list[Location]:
    """Return where the subjects named are, or all of a part, or all there are."""
    if part is not None and part not in map(str, dataset.panels):
        has = ", ".join(str(one) for one in dataset.panels)
        raise UsageError(f"the data set has no part {part!r}", where="part=", fix=f"choose from {has}")
    if subjects is None:
        return choose_subjects(dataset, part or "all", where="subjects=")
    places = choose_subjects(dataset, [subjects] if isinstance(subjects, int | str) else subjects, where="subjects=")
    if strangers := [place for place in places if part not in (None, str(place.part))]:
        name = dataset.panel_of(strangers[0]).names[0]
        raise UsageError(f"subject {name} is not in {part}", where="subjects=")
    return places


def _check_widths(panel: Panel, dims: tuple[int, int, int, int]) -> None:
    names = ("covariates", "treatments", "outcomes", "statics")
    given = [getattr(panel, name).shape[-1] for name in names]
    if wrong := [
        f"{name}: {has}, not {want}" for name, has, want in zip(names, given, dims, strict=True) if has != want
    ]:
        raise UsageError("the panel has other columns than the model", where="data=", details=wrong)


def _warnings(model: "Model", data: object, request: PlanRequest, cohort: Cohort) -> Iterator[str]:
    """Yield what may make the answers wrong, as `costar whatif` says it of one subject."""
    if isinstance(data, Dataset) and (other := other_data("the model", model.fitted.parents, data)):
        yield other
    yield from warnings_of("the model", model.fitted.meta)
    yield from doubts({model.method: model.fitted}, cohort, request)
