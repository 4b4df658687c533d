"""`Model.predict`: many subjects under the same plans, answered in one batch, as a tidy frame."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from costar_cli.api.calls import reporting
from costar_cli.api.data import new_dataset
from costar_cli.api.estimates import Plans, plan_request
from costar_cli.cohort import (
    Averager,
    Cohort,
    CohortAnswers,
    Origin,
    answer_cohort,
    as_told,
    check_table,
    choose_subjects,
    doubts,
    groups_of,
    join_columns,
    join_places,
    names_of,
    parse_origin,
    tidy_columns,
    true_answers,
    with_plans,
)
from costar_cli.errors import UsageError
from costar_cli.frames import FrameName, frame_name, is_frame, make_frame
from costar_cli.panel.compatible import other_data, require_compatible
from costar_cli.panel.dataset import Dataset, Location
from costar_cli.panel.panel import Panel, join_panels
from costar_cli.plans import PlanRequest
from costar_cli.plans.untrusted import Problems
from costar_cli.reporting import warnings_of
from costar_cli.whatif.estimate import check_request, refuse_unseen
from costar_cli.whatif.notes import unseen_in_plans

if TYPE_CHECKING:
    from costar_cli.api.calls import Progress
    from costar_cli.api.model import Model
    from costar_cli.frames import Frame


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked of a model; `Model.predict` says what each argument is."""

    data: "Dataset | Panel | Frame"
    plans: Plans
    subjects: Iterable[int | str] | None
    part: str | None
    origin: int | str | None
    level: float | Sequence[float]
    truth: bool
    unsupported: bool
    subject: str | None
    time: str | None
    progress: "Progress"

    @property
    def levels(self) -> tuple[float, ...]:
        """Return the levels of intervals."""
        return tuple(self.level) if isinstance(self.level, Sequence) else (self.level,)


def predict(model: "Model", asked: Asked, frame: FrameName | None) -> "Frame":
    """Return what `Model.predict` says."""
    library = frame_name(asked.data, frame)
    cohort, request = _question(model, asked)
    made = [tidy_columns(answers, truth_QHY=found) for answers, found in _answers(model, asked, cohort, request)]
    columns = dict(join_columns(made))
    if cohort.places:
        part_of = columns.pop("domain") + "/" + columns.pop("split")
        columns = {"subject": columns.pop("subject"), "part": part_of, **columns}
    if all(isinstance(name, int) for name in cohort.names):
        columns["subject"] = columns["subject"].astype(int)
    return make_frame(columns, library)


def average(model: "Model", asked: Asked, by: str | None, reference: str | None, frame: FrameName | None) -> "Frame":
    """Return what `Model.average` says."""
    library = frame_name(asked.data, frame)
    cohort, request = _question(model, asked)
    averager = Averager(cohort, request, *groups_of(cohort, model.fitted.schema, by), reference)
    for answers, found in _answers(model, asked, cohort, request):
        averager.add(answers, found)
    rows = list(averager.finish(model.method, model.fitted, asked.levels).to_rows())
    return make_frame({name: [row[name] for row in rows] for name in rows[0] if name != "model"}, library)


def _question(model: "Model", asked: Asked) -> tuple[Cohort, PlanRequest]:
    """Return the moments that are asked about and the plans, checked."""
    fitted = model.fitted
    said = None if asked.origin is None else parse_origin(asked.origin, where="origin=")
    step = said if isinstance(said, int) and said >= 0 else None
    request = plan_request(asked.plans, fitted.schema, fitted.horizon, origin=step)
    cohort = _cohort(model, asked, request)
    if asked.truth and not isinstance(asked.data, Dataset):
        fix = "leave it out, or give the simulated data set"
        raise UsageError("the truth is known of simulated data sets alone", where="truth=", fix=fix)
    problems = Problems()
    check_request({model.method: fitted}, request, asked.levels, problems)
    problems.raise_any("the request does not fit", where="predict", fix=problems.fix)
    if not asked.unsupported:
        refuse_unseen(unseen_in_plans({model.method: fitted}, as_told(request)))
    return cohort, request


def _answers(
    model: "Model", asked: Asked, cohort: Cohort, request: PlanRequest
) -> Iterator[tuple[CohortAnswers, NDArray[np.float64] | None]]:
    """Yield the answers, and the simulator's where they are asked for, chunk after chunk."""
    with reporting(asked.progress) as reporter:
        for warning in _warnings(model, asked.data, request, cohort):
            reporter.warn(warning)
        with reporter.task("estimate", total=len(cohort), unit="subject") as task:
            for answers in answer_cohort(model.method, model.fitted, cohort, request, levels=asked.levels):
                truth = true_answers(asked.data, answers) if asked.truth and isinstance(asked.data, Dataset) else None
                yield answers, truth
                task.advance(len(answers.cohort))


def _cohort(model: "Model", asked: Asked, request: PlanRequest) -> Cohort:
    """Return the subjects to ask about.

    Raises:
        UsageError: data of another kind, unknown subjects, or arguments that belong to another kind of data.
    """
    fitted, data = model.fitted, asked.data
    origin = request.origin if asked.origin is None else asked.origin
    start = "last" if origin is None else parse_origin(origin, where="origin=")
    if isinstance(data, Dataset):
        require_compatible(data, fitted.schema, model="the model")
        places = places_of(data, asked.subjects, asked.part)
        if request.by_subject:
            places = with_plans(data, places, request, where="plans=")
        panel = join_places(data, places)
        return Cohort.of(panel, names_of(panel), places, origin=start, where="origin=")
    if asked.part is not None or asked.subjects is not None:
        name = "part" if asked.part is not None else "subjects"
        raise UsageError(f"`{name}` chooses from a data set", where=f"{name}=", fix="give the rows that you ask about")
    if isinstance(data, Panel):
        _check_widths(data, fitted.schema.dims)
        return _all_of(data, request, start)
    if is_frame(data):
        with reporting(asked.progress) as reporter:
            new = new_dataset(model, data, reporter, subject=asked.subject, time=asked.time)
        return _all_of(join_panels(list(new.panels.values())), request, start)
    raise UsageError(
        f"cannot predict from {type(data).__name__}",
        where="data=",
        fix="give a data set, a panel, or a frame of pandas or polars",
    )


def _all_of(panel: Panel, request: PlanRequest, start: Origin) -> Cohort:
    names = names_of(panel)
    if request.by_subject:
        check_table(names, names, request, where="plans=")
    return Cohort.of(panel, names, origin=start, where="origin=")


def places_of(dataset: Dataset, subjects: Iterable[int | str] | None, part: str | None) -> list[Location]:
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
