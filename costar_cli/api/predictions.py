"""`Model.predict`: many subjects under the same plans, answered in one batch, as a tidy frame."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from costar_cli.api.calls import reporting
from costar_cli.api.estimates import Plans, plan_request
from costar_cli.api.histories import read_histories
from costar_cli.errors import UsageError
from costar_cli.frames import FrameName, frame_name, is_frame, make_frame
from costar_cli.panel.compatible import other_data, require_compatible
from costar_cli.panel.dataset import Dataset, Location
from costar_cli.panel.findings import counted
from costar_cli.panel.panel import Panel, join_panels
from costar_cli.panel.support import Support
from costar_cli.plans import PlanRequest, TreatmentPlan
from costar_cli.plans.untrusted import Problems
from costar_cli.reporting import warnings_of
from costar_cli.uncertainty import Estimates, calibration_of, interval_kind
from costar_cli.whatif.estimate import check_request, estimate_plans, plan_queries, refuse_unseen, true_outcomes
from costar_cli.whatif.notes import lacking, unseen_in_plans

if TYPE_CHECKING:
    from costar_cli.api.calls import Progress
    from costar_cli.api.model import Model
    from costar_cli.frames import Frame

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Asked:
    """Subjects to ask about: their panel, what the caller calls each, and where each is in a data set."""

    panel: Panel
    names: Sequence[object]
    places: Sequence[Location] = ()


def predict(
    model: "Model",
    data: "Dataset | Panel | Frame",
    plans: Plans,
    *,
    subjects: Iterable[int | str] | None,
    part: str | None,
    origin: int | None,
    level: float | Sequence[float],
    truth: bool,
    unsupported: bool,
    subject: str,
    time: str | None,
    frame: FrameName | None,
    progress: "Progress",
) -> "Frame":
    """Return what `Model.predict` says."""
    fitted, library = model.fitted, frame_name(data, frame)
    asked = _asked(model, data, subjects, part, subject=subject, time=time)
    request = plan_request(plans, fitted.schema.treatments, fitted.horizon)
    levels = tuple(level) if isinstance(level, Sequence) else (level,)
    start = request.origin if origin is None else origin
    origin_N = asked.panel.length - 1 if start is None else np.full(asked.panel.n_subjects, start)
    problems = Problems()
    _check_origin(asked, origin_N, problems)
    check_request({model.method: fitted}, request, levels, problems)
    problems.raise_any("the request does not fit", where="predict", fix=problems.fix)
    unseen = unseen_in_plans({model.method: fitted}, request.plans)
    if not unsupported:
        refuse_unseen(unseen)
    with reporting(progress) as reporter:
        for warning in _warnings(model, data, request, asked.panel, origin_N):
            reporter.warn(warning)
        queries = plan_queries(fitted, origin_N, request.plans)
        found = estimate_plans(model.method, fitted, asked.panel, queries, request.plans)
    columns = _columns(model, asked, origin_N, request.plans, found, levels)
    if truth:
        columns["truth"] = _truth(data, asked, origin_N, request.plans)
    return make_frame(columns, library)


def _asked(
    model: "Model",
    data: "Dataset | Panel | Frame",
    subjects: Iterable[int | str] | None,
    part: str | None,
    *,
    subject: str,
    time: str | None,
) -> _Asked:
    """Return the subjects to ask about.

    Raises:
        UsageError: data of another kind, unknown subjects, or arguments that belong to another kind of data.
    """
    fitted = model.fitted
    if isinstance(data, Dataset):
        require_compatible(data, fitted.schema, model="the model")
        return _of_dataset(data, subjects, part)
    if part is not None or subjects is not None:
        name = "part" if part is not None else "subjects"
        raise UsageError(f"`{name}` chooses from a data set", where=f"{name}=", fix="give the rows that you ask about")
    if isinstance(data, Panel):
        _check_widths(data, fitted.schema.dims)
        return _Asked(data, _names(data))
    if is_frame(data):
        panel, names = read_histories(data, fitted.schema, fitted.scaler, subject=subject, time=time)
        return _Asked(panel, names)
    raise UsageError(
        f"cannot predict from {type(data).__name__}",
        where="data=",
        fix="give a data set, a panel, or a frame of pandas or polars",
    )


def _of_dataset(dataset: Dataset, subjects: Iterable[int | str] | None, part: str | None) -> _Asked:
    """Return the subjects named, or all of a part, or all there are, in one panel."""
    parts = [one for one in dataset.panels if part in (None, str(one))]
    if not parts:
        has = ", ".join(str(one) for one in dataset.panels)
        raise UsageError(f"the data set has no part {part!r}", where="part=", fix=f"choose from {has}")
    if subjects is None:
        places = [Location(one, row) for one in parts for row in range(dataset.panels[one].n_subjects)]
    else:
        given = [subjects] if isinstance(subjects, int | str) else list(subjects)
        places = [dataset.find_subject(name) for name in given]
        if strangers := [name for name, place in zip(given, places, strict=True) if place.part not in parts]:
            raise UsageError(f"subject {strangers[0]} is not in {part}", where="subjects=")
    if not places:
        raise UsageError("there is no subject to ask about", where="subjects=")
    rows = {one: np.array([place.row for place in places if place.part == one]) for one in parts}
    panels = {one: dataset.panels[one].take(chosen) for one, chosen in rows.items() if len(chosen)}
    order = [place for one in panels for place in places if place.part == one]
    panel = join_panels(list(panels.values()))
    return _Asked(panel, _names(panel), order)


def _names(panel: Panel) -> list[object]:
    """Return what subjects are called: their labels as text, or their numbers."""
    return list(panel.names) if panel.label is not None else panel.subject_id.tolist()


def _check_widths(panel: Panel, dims: tuple[int, int, int, int]) -> None:
    names = ("covariates", "treatments", "outcomes", "statics")
    given = [getattr(panel, name).shape[-1] for name in names]
    if wrong := [
        f"{name}: {has}, not {want}" for name, has, want in zip(names, given, dims, strict=True) if has != want
    ]:
        raise UsageError("the panel has other columns than the model", where="data=", details=wrong)


def _check_origin(asked: _Asked, origin_N: NDArray[np.integer], problems: Problems) -> None:
    outside_N = (origin_N < 0) | (origin_N >= asked.panel.length)
    if outside_N.any():
        at = int(outside_N.argmax())
        who = f"{counted(int(outside_N.sum()), 'subject')}, first of {asked.names[at]}"
        last = int(asked.panel.length[at]) - 1
        problems.add(f"origin {origin_N[at]} is outside the series of {who}, whose last step is {last}",
                     fix="give a smaller `origin`, or leave these subjects out")  # fmt: skip


def _warnings(
    model: "Model", data: object, request: PlanRequest, panel: Panel, origin_N: NDArray[np.integer]
) -> Iterator[str]:
    """Yield what may make the answers wrong, as `costar whatif` says it of one subject."""
    if isinstance(data, Dataset) and (other := other_data("the model", model.fitted.parents, data.digest)):
        yield other
    yield from warnings_of("the model", model.fitted.meta)
    for of_plans in unseen_in_plans({model.method: model.fitted}, request.plans).values():
        for plan, lacks in of_plans.items():
            for words in lacking(f"plan `{plan}`", lacks, "training subject"):
                yield f"{words}: its effect was not learned"
    yield from _on_stopping(model, request.plans, panel, origin_N)


def _on_stopping(
    model: "Model", plans: Sequence[TreatmentPlan], panel: Panel, origin_N: NDArray[np.integer]
) -> Iterator[str]:
    """Yield a warning for each plan that stops what never stopped in the training data, with how many it concerns."""
    support, encoding = Support.from_meta(model.fitted.meta), model.fitted.schema.treatments
    if support is None:
        return
    count: dict[tuple[str, str], int] = {}
    for row, origin in enumerate(origin_N):
        given = encoding.decode(panel.treatments[row, : int(origin)])
        for plan in plans:
            for name, _ in support.stops(given, plan.values, encoding):
                count[plan.name, name] = count.get((plan.name, name), 0) + 1
    for (plan_name, name), subjects in count.items():
        never = "which, once started, never stopped in the training data: there are no data on stopping"
        yield f"plan `{plan_name}` stops {name} of {counted(subjects, 'subject')}, {never}"


def _columns(
    model: "Model",
    asked: _Asked,
    origin_N: NDArray[np.integer],
    plans: Sequence[TreatmentPlan],
    found: Estimates,
    levels: Sequence[float],
) -> dict[str, object]:
    """Return the columns of the frame: a row per subject, plan, step of the plan's own and outcome."""
    outcomes, shape_NPHY = model.fitted.schema.outcomes, (len(asked.names), len(plans), *found.mean_QHY.shape[1:])
    n, p, h, y = _rows(plans, shape_NPHY)
    subject = np.empty(len(asked.names), dtype=object)
    subject[:] = asked.names
    columns: dict[str, object] = {"subject": subject[n].tolist()}
    if asked.places:
        columns["part"] = np.array([str(place.part) for place in asked.places], dtype=object)[n].tolist()
    columns |= {
        "origin": origin_N[n].astype(np.int64),
        "plan": [plans[i].name for i in p],
        "step": h + 1,
        "time": origin_N[n].astype(np.int64) + h + 1,
        "outcome": [outcomes[i].name for i in y],
        "unit": [outcomes[i].unit for i in y],
        "estimate": found.mean_QHY.reshape(shape_NPHY)[n, p, h, y],
    }
    calibration = calibration_of(model.fitted)
    bands = calibration.bands(found, levels) if calibration else None
    for i, level in enumerate(levels):
        limits = np.full((2, len(n)), np.nan)
        if bands:
            limits = np.stack([x[i].reshape(shape_NPHY)[n, p, h, y] for x in (bands.lower_LQHY, bands.upper_LQHY)])
            limits[:, ~np.isfinite(limits).all(axis=0)] = np.nan
        further = f"_{level:g}" * (i > 0)
        columns |= {f"lower{further}": limits[0], f"upper{further}": limits[1]}
        if not i:
            columns["level"] = np.where(np.isnan(limits[0]), np.nan, level)
            columns["interval_kind"] = [interval_kind(model.fitted)] * len(n)
    return columns


def _rows(plans: Sequence[TreatmentPlan], shape: tuple[int, ...]) -> tuple[NDArray[np.intp], ...]:
    """Return subject, plan, step and outcome of each row: the steps that each plan has."""
    own_NPHY = np.zeros(shape, dtype=bool)
    for i, plan in enumerate(plans):
        own_NPHY[:, i, : len(plan)] = True
    return np.nonzero(own_NPHY)


def _truth(data: object, asked: _Asked, origin_N: NDArray[np.integer], plans: Sequence[TreatmentPlan]) -> Floats:
    """Return the simulator's answer for each row.

    Raises:
        UsageError: no simulator knows it.
    """
    if not isinstance(data, Dataset):
        fix = "leave it out, or give the simulated data set"
        raise UsageError("the truth is known of simulated data sets alone", where="truth=", fix=fix)
    answers = [
        np.concatenate([values_HY.ravel() for values_HY in true_outcomes(data, place, int(origin), tuple(plans))])
        for place, origin in zip(asked.places, origin_N, strict=True)
    ]
    return np.concatenate(answers)
