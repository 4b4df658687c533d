"""`Model.predict`: many subjects under the same plans, answered in one batch, as a tidy frame."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from costar_cli.api.calls import reporting
from costar_cli.api.data import new_dataset
from costar_cli.api.estimates import Plans, plan_request
from costar_cli.errors import UsageError
from costar_cli.frames import FrameName, frame_name, is_frame, make_frame
from costar_cli.panel.compatible import other_data, require_compatible
from costar_cli.panel.dataset import Dataset, Location
from costar_cli.panel.panel import Panel, join_panels
from costar_cli.plans import Moments, Origin, PlanRequest, parse_origin
from costar_cli.plans.untrusted import Problems
from costar_cli.questions import (
    Averager,
    Cohort,
    CohortAnswers,
    answer_cohort,
    as_told,
    check_table,
    choose_subjects,
    doubts,
    groups_of,
    join_columns,
    join_places,
    names_of,
    tidy_columns,
    true_answers,
    with_plans,
)
from costar_cli.questions.estimate import check_request, refuse_unseen
from costar_cli.questions.notes import unseen_in_plans
from costar_cli.reporting import warnings_of

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
    columns: dict[str, object] = {}
    rows = join_columns(made)
    subject = rows.pop("subject")
    columns["subject"] = subject.astype(int) if all(isinstance(name, int) for name in cohort.names) else subject
    if isinstance(asked.data, Dataset):
        columns |= {"part": rows["domain"] + "/" + rows["split"], "dataset": [asked.data.name] * len(subject)}
    columns |= rows
    return make_frame(columns, library)


def average(model: "Model", asked: Asked, by: str | None, reference: str | None, frame: FrameName | None) -> "Frame":
    """Return what `Model.average` says."""
    library = frame_name(asked.data, frame)
    cohort, request = _question(model, asked)
    averager = Averager(cohort, request, *groups_of(cohort, model.fitted.schema, by), reference)
    for answers, found in _answers(model, asked, cohort, request):
        averager.add(answers, found)
    effects = averager.finish(model.method, model.fitted, asked.levels)
    rows = list(effects.to_rows())
    return make_frame({name: [row[name] for row in rows] for name in rows[0] if name != "model"}, library)


def _question(model: "Model", asked: Asked) -> tuple[Cohort, PlanRequest]:
    """Return the moments that are asked about and the plans, checked."""
    fitted = model.fitted
    origin = None if asked.origin is None else parse_origin(asked.origin, where="origin=")
    panel, places = _asked_about(model, asked)
    begin = partial(Moments.of, panel, where="plans=" if origin is None else "origin=")
    request = plan_request(asked.plans, fitted.schema, fitted.horizon, origin=origin, begin=begin)
    if request.by_subject and isinstance(asked.data, Dataset):
        places = with_plans(asked.data, places, request, where="plans=")
        panel = join_places(asked.data, places)
    names = names_of(panel)
    if request.by_subject and not places:
        check_table(names, names, request, where="plans=")
    start: Origin = "last" if request.origin is None else request.origin
    start = start if origin is None else origin
    cohort = Cohort.of(panel, names, places, origin=start, where="origin=", terminal=fitted.schema.terminal)
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


def _asked_about(model: "Model", asked: Asked) -> tuple[Panel, list[Location]]:
    """Return the subjects to ask about, and where they are in a data set.

    Raises:
        UsageError: data of another kind, unknown subjects, or arguments that belong to another kind of data.
    """
    fitted, data = model.fitted, asked.data
    if isinstance(data, Dataset):
        require_compatible(data, fitted.schema, model="the model")
        places = places_of(data, asked.subjects, asked.part)
        return join_places(data, places), places
    if asked.part is not None or asked.subjects is not None:
        name = "part" if asked.part is not None else "subjects"
        raise UsageError(f"`{name}` chooses from a data set", where=f"{name}=", fix="give the rows that you ask about")
    if isinstance(data, Panel):
        _check_widths(data, fitted.schema.dims)
        return data, []
    if is_frame(data):
        with reporting(asked.progress) as reporter:
            new = new_dataset(model, data, reporter, subject=asked.subject, time=asked.time)
        return join_panels(list(new.panels.values())), []
    raise UsageError(
        f"cannot predict from {type(data).__name__}",
        where="data=",
        fix="give a data set, a panel, or a frame of pandas or polars",
    )


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
