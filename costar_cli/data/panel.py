"""The panel: N subjects over T steps, each series stored once, unshifted and unscaled (spec PANEL-1 to 2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.calendar import Calendar
from costar_cli.errors import DataError

Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Arrays = Mapping[str, tuple[NDArray[Any] | None, tuple[int | None, ...]]]  # with the shapes that they should have


def require_shapes(what: str, arrays: Mapping[str, tuple[NDArray[np.generic] | None, tuple[int | None, ...]]]) -> None:
    """Check the shapes of arrays that belong together; an array that is None is absent, an axis of None has any length.

    Raises:
        DataError: naming every array of another shape.
    """
    wrong = [
        f"{name} has {array.shape}, expected ({', '.join('any' if n is None else str(n) for n in shape)})"
        for name, (array, shape) in arrays.items()
        if array is not None
        and (array.ndim != len(shape) or any(n not in (None, size) for n, size in zip(shape, array.shape, strict=True)))
    ]
    if wrong:
        raise DataError(f"the arrays of {what} disagree in shape", details=wrong)


@dataclass(frozen=True, slots=True)
class Panel:
    """Subjects over time.

    At step t we observe `x_t` and `y_t`, then `a_t` is applied, and its effect first shows in `y_{t+1}`. The history
    at t is therefore `(x_{<=t}, y_{<=t}, a_{<t}, v)`. Steps at or beyond `length` are padding and hold zeros, and so
    does `a` at the last observed step when no treatment was recorded there.

    Shapes: `covariates [N,T,X]`, `treatments [N,T,A]` (encoded), `outcomes [N,T,Y]`, `statics [N,V]`,
    `length [N]` (observed steps, 1..T), `subject_id [N]` (unique in the data set). `calendar` says when steps were,
    where the data have dates. Six arrays may be absent: `label [N]`, what the data call each subject where that is
    no whole number; `cluster [N]`, the number of the unit that subjects belong to (the item whose yearly series are
    subjects): what is resampled as one; and `outcome_observed [N,T,Y]`, false where an outcome was not observed and
    `outcomes` holds what it was filled with. Filled outcomes are part of histories, but nothing is trained or scored on
    them. `covariate_observed [N,T,X]` says the same of covariates: how these change is learned from those observed. A
    mask that finds all observed says nothing and becomes None. `since [N]` is the step from which outcomes are
    this panel's to learn from, select on or score: what a subject had before is history, which another part of the data
    set learns from (spec TABLE-12). `end [N]` says why a series ends: 0 where it goes on or the study ends, else the
    number, from 1, of one of the schema's `ends`. A terminal event first shows at the last observed step; who was lost
    to follow-up was lost after it (spec SURV-1).
    """

    covariates: Floats
    treatments: Floats
    outcomes: Floats
    statics: Floats
    length: Ints
    subject_id: Ints
    label: NDArray[np.str_] | None = None
    cluster: Ints | None = None
    outcome_observed: Bools | None = None
    end: Ints | None = None
    calendar: Calendar | None = None
    since: Ints | None = None
    covariate_observed: Bools | None = None

    def __post_init__(self) -> None:
        n, t, dy = (*self.outcomes.shape, 0, 0, 0)[:3]
        shapes: dict[str, tuple[int | None, ...]] = {
            "covariates": (n, t, None),
            "treatments": (n, t, None),
            "outcomes": (n, t, dy),
            "statics": (n, None),
            "length": (n,),
            "subject_id": (n,),
            "label": (n,),
            "cluster": (n,),
            "outcome_observed": (n, t, dy),
            "covariate_observed": (n, t, (*self.covariates.shape, 0, 0, 0)[2]),
            "since": (n,),
            "end": (n,),
        }
        arrays: dict[str, tuple[NDArray[Any] | None, tuple[int | None, ...]]]
        arrays = {name: (getattr(self, name), shape) for name, shape in shapes.items()}
        if self.calendar is not None:
            arrays["time"] = (self.calendar.time_NK, (n, 1 if self.calendar.size is not None else t))
        require_shapes("a panel", arrays)
        if n and (self.length.min() < 1 or self.length.max() > t):
            raise DataError(f"lengths must be between 1 and {t}")
        if self.since is not None and (self.since < 0).any():
            raise DataError("the step from which outcomes are predicted is negative")
        for name in ("outcome_observed", "covariate_observed"):
            mask = getattr(self, name)
            if mask is not None and (mask | ~self.observed[..., None]).all():
                object.__setattr__(self, name, None)

    @property
    def n_subjects(self) -> int:
        """Return N."""
        return int(self.outcomes.shape[0])

    @property
    def n_steps(self) -> int:
        """Return the padded length T."""
        return int(self.outcomes.shape[1])

    @property
    def names(self) -> list[str]:
        """Return what each subject is called: its label, or its number."""
        return [str(name) for name in (self.subject_id if self.label is None else self.label)]

    @property
    def ends(self) -> Ints:
        """Return why each series ends, `[N]`: 0 where nothing is known of an end."""
        return np.zeros(self.n_subjects, dtype=np.int64) if self.end is None else self.end

    @property
    def observed(self) -> Bools:
        """Return the mask `[N,T]` of observed steps: a prefix of each row."""
        mask: Bools = np.arange(self.n_steps) < self.length[:, None]
        return mask

    @property
    def decided(self) -> Bools:
        """Return the mask `[N,T]` of steps that have a next one, which shows what was given."""
        mask: Bools = np.arange(self.n_steps) < self.length[:, None] - 1
        return mask

    @property
    def observed_outcomes(self) -> Bools:
        """Return the mask `[N,T,Y]` of outcomes that were observed, not filled."""
        steps = np.broadcast_to(self.observed[..., None], self.outcomes.shape)
        return steps if self.outcome_observed is None else steps & self.outcome_observed

    @property
    def observed_covariates(self) -> Bools:
        """Return the mask `[N,T,X]` of covariates that were observed, not filled."""
        steps = np.broadcast_to(self.observed[..., None], self.covariates.shape)
        return steps if self.covariate_observed is None else steps & self.covariate_observed

    @property
    def targets(self) -> Bools:
        """Return the mask `[N,T,Y]` of outcomes to learn from, select on or score: observed, and from `since` on."""
        if self.since is None:
            return self.observed_outcomes
        return self.observed_outcomes & (np.arange(self.n_steps) >= self.since[:, None])[..., None]

    @property
    def first_origin(self) -> Ints:
        """Return the step `[N]` before the first outcome to predict."""
        return np.zeros_like(self.length) if self.since is None else np.maximum(self.since, 1) - 1

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Self:
        """Return the panel of the given rows, in that order."""
        return replace(
            self,
            covariates=self.covariates[rows],
            treatments=self.treatments[rows],
            outcomes=self.outcomes[rows],
            statics=self.statics[rows],
            length=self.length[rows],
            subject_id=self.subject_id[rows],
            label=None if self.label is None else self.label[rows],
            cluster=None if self.cluster is None else self.cluster[rows],
            outcome_observed=None if self.outcome_observed is None else self.outcome_observed[rows],
            end=None if self.end is None else self.end[rows],
            calendar=self.calendar and self.calendar.take(rows),
            since=None if self.since is None else self.since[rows],
            covariate_observed=None if self.covariate_observed is None else self.covariate_observed[rows],
        )

    def until(self, steps: int) -> Self:
        """Return the panel of the first steps; series that are cut go on."""
        seen, seen_x = self.outcome_observed, self.covariate_observed
        return replace(
            self,
            covariates=self.covariates[:, :steps],
            treatments=self.treatments[:, :steps],
            outcomes=self.outcomes[:, :steps],
            length=np.minimum(self.length, steps),
            outcome_observed=None if seen is None else seen[:, :steps],
            end=None if self.end is None else np.where(self.length > steps, 0, self.end),
            calendar=self.calendar and self.calendar.until(steps),
            covariate_observed=None if seen_x is None else seen_x[:, :steps],
        )

    def dates(self, subject_Q: NDArray[np.integer], step_Q: NDArray[np.integer]) -> NDArray[np.object_] | None:
        """Return when steps `[Q]` of subjects are, as text, None where that is not known; None without a calendar."""
        known = self.calendar
        return None if known is None else known.texts(subject_Q, step_Q, self.length[subject_Q])


def join_panels(panels: Sequence[Panel]) -> Panel:
    """Return the subjects of several panels as one, padded to the longest; clusters and `since` are left out."""
    steps = max(panel.n_steps for panel in panels)

    def series(name: str) -> NDArray[Any]:
        arrays = [np.asarray(getattr(panel, name)) for panel in panels]
        return np.concatenate([np.pad(a, ((0, 0), (0, steps - a.shape[1]), (0, 0))) for a in arrays])

    labelled = any(panel.label is not None for panel in panels)
    ended = any(panel.end is not None for panel in panels)
    return Panel(
        covariates=series("covariates"),
        treatments=series("treatments"),
        outcomes=series("outcomes"),
        statics=np.concatenate([panel.statics for panel in panels]),
        length=np.concatenate([panel.length for panel in panels]),
        subject_id=np.concatenate([panel.subject_id for panel in panels]),
        label=np.concatenate([np.array(panel.names) for panel in panels]) if labelled else None,
        outcome_observed=series("observed_outcomes"),
        covariate_observed=series("observed_covariates"),
        end=np.concatenate([panel.ends for panel in panels]) if ended else None,
        calendar=Calendar.joined([panel.calendar for panel in panels]),
    )
