"""`Model.predict`: many subjects under the same plans, answered in one batch, as a tidy frame."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from costar_cli.api.calls import reporting
from costar_cli.api.data import new_dataset
from costar_cli.api.estimates import Plans, plan_request, with_losses
from costar_cli.config.requests import WhatIfRequest
from costar_cli.data.compatible import require_compatible
from costar_cli.data.dataset import Dataset, Location
from costar_cli.data.panel import Panel, join_panels
from costar_cli.errors import UsageError
from costar_cli.files.frames import FrameName, frame_name, is_frame, make_frame
from costar_cli.questions import (
    ModelAnswers,
    Places,
    Question,
    choose_subjects,
    join_columns,
    join_places,
    tidy_columns,
)

if TYPE_CHECKING:
    from costar_cli.api.calls import Progress
    from costar_cli.api.model import Model
    from costar_cli.files.frames import Frame


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Who is asked about under which plans; `Model.predict` says what each argument is."""

    data: "Dataset | Panel | Frame"
    plans: Plans
    subjects: Iterable[int | str] | None
    part: str | None
    subject: str | None
    time: str | None
    progress: "Progress"


def predict(model: "Model", arguments: Arguments, request: WhatIfRequest, frame: FrameName | None) -> "Frame":
    """Return what `Model.predict` says."""
    library = frame_name(arguments.data, frame)
    question = _question(model, arguments, request)
    made = [tidy_columns(answers, truth_QHY=truth) for answers, truth in _answers(model, arguments, question)]
    columns: dict[str, object] = {}
    rows = join_columns(made)
    subject = rows.pop("subject")
    numbered = all(isinstance(name, int) for name in question.cohort.names)
    columns["subject"] = subject.astype(int) if numbered else subject
    if isinstance(arguments.data, Dataset):
        columns |= {"part": rows["domain"] + "/" + rows["split"], "dataset": [arguments.data.name] * len(subject)}
    columns |= rows
    return make_frame(columns, library)


def average(model: "Model", arguments: Arguments, request: WhatIfRequest, frame: FrameName | None) -> "Frame":
    """Return what `Model.average` says."""
    library = frame_name(arguments.data, frame)
    question = _question(model, arguments, request)
    averager = question.averager()
    for answers, truth in _answers(model, arguments, question):
        averager.add(answers, truth)
    effects = averager.finish(model.method, model.fitted, request.levels)
    with reporting(arguments.progress) as reporter:
        for warning in question.warnings_of_effects([effects]):
            reporter.say(warning)
    rows = list(effects.to_rows())
    return make_frame({name: [row[name] for row in rows] for name in rows[0] if name != "model"}, library)


def _question(model: "Model", arguments: Arguments, request: WhatIfRequest) -> Question:
    """Return the question about one model.

    Raises:
        UsageError: data of another kind, unknown subjects, or arguments that belong to another kind of data.
    """
    fitted, data, dataset = model.fitted, arguments.data, None
    if isinstance(data, Dataset):
        require_compatible(data, fitted.schema, model="the model")
        places, dataset = places_of(data, arguments.subjects, arguments.part), data
        panel = join_places(data, places)
    elif arguments.part is not None or arguments.subjects is not None:
        name = "part" if arguments.part is not None else "subjects"
        raise UsageError(f"`{name}` chooses from a data set", where=f"{name}=", fix="give the rows that you ask about")
    elif isinstance(data, Panel):
        names = ("covariates", "treatments", "outcomes", "statics")
        widths = [(name, getattr(data, name).shape[-1]) for name in names]
        if wrong := [
            f"{name}: {has}, not {want}"
            for (name, has), want in zip(widths, fitted.schema.dims, strict=True)
            if has != want
        ]:
            raise UsageError("the panel has other columns than the model", where="data=", details=wrong)
        panel, places = data, []
    elif is_frame(data):
        with reporting(arguments.progress) as reporter:
            new = new_dataset(model, data, reporter, subject=arguments.subject, time=arguments.time)
        panel, places = join_panels(list(new.panels.values())), []
    else:
        fix = "give a data set, a panel, or a frame of pandas or polars"
        raise UsageError(f"cannot predict from {type(data).__name__}", where="data=", fix=fix)
    question = Question.read(
        request, {model.method: fitted}, panel, places,
        lambda origin, begin: plan_request(arguments.plans, fitted.schema, fitted.horizon, origin=origin, begin=begin),
        dataset=dataset, where=Places("plans=", "origin=", request="predict"),
    )  # fmt: skip
    if request.truth and dataset is None:
        fix = "leave it out, or give the simulated data set"
        raise UsageError("the truth is known of simulated data sets alone", where="truth=", fix=fix)
    return with_losses(question)


def _answers(
    model: "Model", arguments: Arguments, question: Question
) -> Iterator[tuple[ModelAnswers, NDArray[np.float64] | None]]:
    """Yield answers and truth chunk after chunk, and tell what may make them wrong."""
    with reporting(arguments.progress) as reporter:
        question.warn(reporter)
        with reporter.task("estimate", total=len(question.cohort), unit="subject") as task:
            for answers, truth in question.answers(model.method):
                yield answers, truth
                task.advance(len(answers.cohort))


def places_of(dataset: Dataset, subjects: Iterable[int | str] | None, part: str | None) -> list[Location]:
    """Return where the subjects named are, or all of a part, or all there are."""
    if part is not None and part not in map(str, dataset.panels):
        has = ", ".join(str(one) for one in dataset.panels)
        raise UsageError(f"the data set has no split {part!r}", where="part=", fix=f"choose from {has}")
    if subjects is None:
        return choose_subjects(dataset, part or "all", where="subjects=")
    places = choose_subjects(dataset, [subjects] if isinstance(subjects, int | str) else subjects, where="subjects=")
    if strangers := [place for place in places if part not in (None, str(place.part))]:
        name = dataset.panel_of(strangers[0]).names[0]
        raise UsageError(f"subject {name} is not in {part}", where="subjects=")
    return places
