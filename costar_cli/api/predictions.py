"""`Model.predict`: many subjects under the same plans, answered in one batch, as a tidy frame."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from costar_cli.api.calls import reporting
from costar_cli.api.data import new_dataset
from costar_cli.api.estimates import Plans, plan_request
from costar_cli.data.compatible import require_compatible
from costar_cli.data.dataset import Dataset, Location
from costar_cli.data.panel import Panel, join_panels
from costar_cli.errors import UsageError
from costar_cli.files.frames import FrameName, frame_name, is_frame, make_frame
from costar_cli.plans import PlanRequest, parse_origin
from costar_cli.questions import (
    Averager,
    Cohort,
    ModelAnswers,
    Places,
    answer_cohort,
    choose_subjects,
    groups_of,
    join_columns,
    join_places,
    possible_plans,
    read_request,
    refuse_unseen,
    tidy_columns,
    true_answers,
    unseen_in_plans,
    warnings_about,
)

if TYPE_CHECKING:
    from costar_cli.api.calls import Progress
    from costar_cli.api.model import Model
    from costar_cli.files.frames import Frame


@dataclass(frozen=True, kw_only=True)
class PredictRequest:
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


def predict(model: "Model", asked: PredictRequest, frame: FrameName | None) -> "Frame":
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


def average(
    model: "Model", asked: PredictRequest, by: str | None, reference: str | None, frame: FrameName | None
) -> "Frame":
    """Return what `Model.average` says."""
    library = frame_name(asked.data, frame)
    cohort, request = _question(model, asked)
    averager = Averager(cohort, request, *groups_of(cohort, model.fitted.schema, by), reference)
    for answers, found in _answers(model, asked, cohort, request):
        averager.add(answers, found)
    effects = averager.finish(model.method, model.fitted, asked.levels)
    rows = list(effects.to_rows())
    return make_frame({name: [row[name] for row in rows] for name in rows[0] if name != "model"}, library)


def _question(model: "Model", asked: PredictRequest) -> tuple[Cohort, PlanRequest]:
    """Return the moments that are asked about and the plans, checked."""
    fitted = model.fitted
    origin = None if asked.origin is None else parse_origin(asked.origin, where="origin=")
    panel, places = _asked_about(model, asked)
    data = asked.data if isinstance(asked.data, Dataset) else None
    cohort, request = read_request(
        {"the model": fitted},
        panel,
        places,
        lambda begin: plan_request(asked.plans, fitted.schema, fitted.horizon, origin=origin, begin=begin),
        dataset=data,
        origin=origin,
        levels=asked.levels,
        where=Places("plans=", "origin=", request="predict"),
    )
    if asked.truth and data is None:
        fix = "leave it out, or give the simulated data set"
        raise UsageError("the truth is known of simulated data sets alone", where="truth=", fix=fix)
    if not asked.unsupported:
        refuse_unseen(unseen_in_plans({model.method: fitted}, possible_plans(request)))
    return cohort, request


def _answers(
    model: "Model", asked: PredictRequest, cohort: Cohort, request: PlanRequest
) -> Iterator[tuple[ModelAnswers, NDArray[np.float64] | None]]:
    """Yield the answers, and the simulator's where they are asked for, chunk after chunk."""
    data = asked.data if isinstance(asked.data, Dataset) else None
    with reporting(asked.progress) as reporter:
        for warning in warnings_about({model.method: model.fitted}, cohort, request, dataset=data):
            reporter.warn(warning)
        with reporter.task("estimate", total=len(cohort), unit="subject") as task:
            for answers in answer_cohort(model.method, model.fitted, cohort, request, levels=asked.levels):
                yield answers, true_answers(data, answers) if asked.truth and data is not None else None
                task.advance(len(answers.cohort))


def _asked_about(model: "Model", asked: PredictRequest) -> tuple[Panel, list[Location]]:
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
