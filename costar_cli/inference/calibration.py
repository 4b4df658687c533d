"""Calibration of a model's intervals on held-out subjects, and the bands that it gives (spec BAND-3 to 5, 8)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Domain, Panel
from costar_cli.errors import UsageError
from costar_cli.inference.conformal import BINS, GRID, Binning, table
from costar_cli.inference.estimates import FLOOR, Estimates, floor_in, held_by
from costar_cli.inference.floor import HeldOut, units_of
from costar_cli.inference.outcomes import OutcomeFacts
from costar_cli.inference.propensity import PropensityModel
from costar_cli.inference.weights import PlanTable, check_quantiles, log_ratios, weights_of
from costar_cli.methods.base import LEAST_MEMBERS, FittedModel
from costar_cli.methods.registry import METHODS

ARRAYS: Final = "calibration/"
CALIBRATED: Final = "calibrated"
TOO_FEW: Final = "none (too few calibration subjects)"  # of an answer of a calibrated model
RANGE: Final = "range of the members"  # of differences that nothing measures: it has no level
NO_LEVEL: Final = "none (not measured for differences of binary outcomes)"  # bands of outcomes of 0 and 1 say nothing
UNMEASURED: Final = "none (no training subject has the outcome at this step of a series)"  # nor is there an estimate
BLACK_BOX: Final = "none (single black box)"  # likewise, of too few members for a range

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Bands:
    """Intervals at some levels, in the units of the data; infinite where the calibration subjects are too few.

    `lower_LQHY` and `upper_LQHY` follow the order of `levels`.
    """

    levels: tuple[float, ...]
    lower_LQHY: Floats
    upper_LQHY: Floats


@dataclass(frozen=True, eq=False, slots=True)
class Calibration:
    """What held-out subjects say of a model's errors.

    Attributes:
        subjects: how many there were, with any informative window.
        domain: theirs.
        apart: they had no part in selecting the model.
        unit: what has a total weight of one: a subject, or the cluster that several belong to.
        windows: how many questions about them were asked.
        facts: of the outcomes.
        radius_LHYB: quantiles of the errors in units of their scale, at the levels `GRID`, by bin.
        units_HYB: how many units each of them rests on.
        plans: the same for plans under another policy, None where that is not known.
        floor: of the scale of black boxes, in units of errors (spec BAND-9).
        by: what bins are of: the share of the variance that parameters have, or how long the history is (spec BAND-4).
    """

    subjects: int
    domain: Domain
    apart: bool
    unit: Literal["subject", "cluster"]
    windows: int
    facts: OutcomeFacts
    radius_LHYB: Floats
    units_HYB: NDArray[np.int64]
    plans: PlanTable | None = None
    floor: float = FLOOR
    by: Binning = "share"

    def bands(self, estimates: Estimates, levels: Sequence[float], *, clip: bool = True) -> Bands:
        """Return intervals around estimates: a multiple of their scale, learned from the errors on held-out subjects.

        The estimate always lies within, also where it cannot occur itself.

        Args:
            estimates: of outcomes, or of differences between them.
            levels: in (0, 1); one between those that are kept takes the next larger.
            clip: move limits that cannot occur to the nearest value that can.

        Raises:
            UsageError: a longer horizon than the calibration's, or a level out of range.
        """
        mean_QHY, sd_QHY = estimates.mean_QHY, estimates.sd_QHY
        _, steps, outcomes = mean_QHY.shape
        if steps > self.radius_LHYB.shape[1]:
            raise UsageError(f"{steps} steps are more than the {self.radius_LHYB.shape[1]} that were calibrated")
        if not all(0 < level < 1 for level in levels):
            raise UsageError("a level is not between 0 and 1")
        every_LHYB = np.concatenate([self.radius_LHYB, np.full_like(self.radius_LHYB[:1], np.inf)])
        at_L = np.searchsorted(GRID, np.asarray(levels) - 1e-9)
        bin_QHY, h_H1, o_Y = estimates.bins(self.by), np.arange(steps)[:, None], np.arange(outcomes)
        radius_LQHY = every_LHYB[at_L][:, h_H1, o_Y, bin_QHY]
        known_QHY = sd_QHY > 0  # two plans that are the same so far differ by nothing, whatever the radius
        half_LQHY = np.multiply(radius_LQHY, sd_QHY, out=np.zeros_like(radius_LQHY), where=known_QHY)
        lower_LQHY, upper_LQHY = mean_QHY - half_LQHY, mean_QHY + half_LQHY
        if clip:
            finite_LQHY = np.isfinite(half_LQHY)  # the values that can occur are no band, where there is none
            lower_LQHY = np.where(finite_LQHY, self.facts.clip(lower_LQHY), -np.inf)
            upper_LQHY = np.where(finite_LQHY, self.facts.clip(upper_LQHY), np.inf)
        return Bands(tuple(levels), np.minimum(lower_LQHY, mean_QHY), np.maximum(upper_LQHY, mean_QHY))

    def reaches(self, level: float) -> NDArray[np.bool_]:
        """Return at which steps, of which outcomes, any subject has a band of a level, `[H,Y]`."""
        at = np.searchsorted(GRID, level - 1e-9)
        return np.asarray(np.isfinite(self.radius_LHYB[at : at + 1]).any(axis=(0, -1)))  # none beyond the last level

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays that a model's artifact holds."""
        plans = self.plans.to_arrays() if self.plans else {}
        return {f"{ARRAYS}radius": self.radius_LHYB.astype(np.float32), f"{ARRAYS}units": self.units_HYB, **plans}

    def to_meta(self) -> dict[str, Any]:
        """Return the facts that it holds beside them."""
        names = ("subjects", "domain", "apart", "unit", "windows", "floor", "by")
        return {**{name: getattr(self, name) for name in names}, "facts": self.facts.to_meta()}

    @classmethod
    def read(cls, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[np.generic]], shape: tuple[int, int]) -> Self:
        """Read what `to_meta` and `to_arrays` returned, of a model with so many steps and outcomes.

        Raises:
            ValueError: it is not a calibration of such a model.
            KeyError: something is missing.
            TypeError: something is of another kind.
            OverflowError: a number is too large.
        """
        radius = np.asarray(arrays[f"{ARRAYS}radius"]).astype(np.float64)
        units = np.asarray(arrays[f"{ARRAYS}units"]).astype(np.int64)
        by = meta.get("by", "share")  # as in files of version 0.3.0
        if by not in BINS:
            raise ValueError(f"bins of {str(by)[:40]!r}")
        facts, cells = OutcomeFacts.from_meta(meta["facts"]), (*shape, BINS[by])
        check_quantiles(radius, cells)
        if units.shape != cells or (units < 0).any() or len(facts.forms) != shape[1]:
            raise ValueError("counts of subjects, or facts of outcomes, are those of another model")
        if meta["domain"] not in ("source", "target") or meta["unit"] not in ("subject", "cluster"):
            raise ValueError(f"calibrated on an unknown domain or unit, {str(meta['domain'])[:40]!r}")
        counts = {name: int(meta[name]) for name in ("subjects", "windows")}
        if min(counts.values()) < 0:
            raise ValueError("a number of subjects or windows is negative")
        return cls(
            **counts, domain=meta["domain"], apart=bool(meta["apart"]), unit=meta["unit"], facts=facts,
            radius_LHYB=radius, units_HYB=units, plans=PlanTable.read(arrays, cells), floor=floor_in(meta),
            by=by,
        )  # fmt: skip


def calibrate(
    model: FittedModel,
    held: HeldOut | None,
    facts: OutcomeFacts,
    *,
    domain: Domain,
    apart: bool,
    practice: PropensityModel | None = None,
) -> Calibration | None:
    """Calibrate a model on factual windows of held-out subjects (spec BAND-2 to 4).

    Args:
        model: any; an ensemble of fewer than `LEAST_MEMBERS` is not calibrated.
        held: windows of the held-out subjects, None where no subject has a step to predict.
        facts: what source-train says of the outcomes.
        domain: the subjects'.
        apart: they had no part in selecting the model.
        practice: how subjects were treated, for plans under another policy (spec BAND-8).

    Returns:
        None where the members are too few, or there are no windows.
    """
    if held is None or not has_spread(model):
        return None
    windows, found = held.windows, held.estimates
    assert windows.queries.outcomes is not None  # noqa: S101 - rolling origins have answers
    score_QHY = np.abs(windows.queries.outcomes - found.mean_QHY) / found.sd_QHY
    counts_QHY = windows.observed_QHY & facts.informative(found.level_QY)[:, None]
    unit_N, clustered = units_of(windows)
    bin_QHY, bins = found.bins(by := found.binned_by), BINS[by]
    shape = (model.horizon, score_QHY.shape[2], bins)

    def tables(log_QH: Floats) -> tuple[Floats, Floats]:
        radius, units = np.full((len(GRID), *shape), np.inf), np.zeros(shape)
        for h, o in np.ndindex(score_QHY.shape[1:]):
            in_Q = counts_QHY[:, h, o]
            whose_M, weight_M = unit_N[windows.queries.subject[in_Q]], weights_of(log_QH[in_Q, h])
            scores_M, bin_M = score_QHY[in_Q, h, o], bin_QHY[in_Q, h, o]
            radius[:, h, o], units[h, o] = table(scores_M, whose_M, bin_M, weight_M, bins=bins)
        return radius, units

    radius, units = tables(np.zeros(score_QHY.shape[:2]))
    plans = None
    if practice is not None:
        wide, effective = tables(log_ratios(practice, held))
        plans = PlanTable(np.maximum(radius, wide), effective)
    subjects = len(np.unique(windows.queries.subject[counts_QHY.any(axis=(1, 2))]))
    unit: Literal["subject", "cluster"] = "cluster" if clustered else "subject"
    counts = units.astype(np.int64)
    return Calibration(subjects, domain, apart, unit, len(score_QHY), facts, radius, counts, plans, held.floor, by)


def halves(panel: Panel) -> tuple[Panel, Panel]:
    """Return two halves of held-out subjects, to select on and to calibrate on; both are all where there is one only.

    Clusters are kept together where there are several. The choice is a function of the panel alone, so that all methods
    and members are compared on the same subjects.
    """
    unit_N = panel.subject_id
    if panel.cluster is not None and len(np.unique(panel.cluster)) > 1:
        unit_N = panel.cluster
    units, row_N = np.unique(unit_N, return_inverse=True)
    if len(units) < 2:
        return panel, panel
    first_N = (np.random.default_rng(0).permutation(len(units)) % 2 == 0)[row_N]
    return panel.take(first_N), panel.take(~first_N)


def has_spread(model: FittedModel) -> bool:
    """Return whether a model says enough of how uncertain it is: in closed form, or with enough members."""
    return METHODS.in_closed_form(model.method, model.parts) or model.members >= LEAST_MEMBERS


def interval_kind(model: FittedModel) -> str:
    """Return what the limits around a model's estimates are: `calibrated`, or `none` with the reason."""
    if has_spread(model):
        return CALIBRATED if model.record.calibration else "none (not calibrated)"
    return "none (one member)" if model.members == 1 else f"none ({model.members} members)"


def has_range(model: FittedModel) -> bool:
    """Return whether limits of a calibrated model's differences are the range of its members (spec BAND-7)."""
    differ = model.tells_differences and not model.is_joint  # copies of a closed form would have a range of no width
    return bool(model.record.calibration) and differ and model.members >= LEAST_MEMBERS


def calibration_of(model: FittedModel) -> Calibration | None:
    """Return the calibration that travels with a model, None where it has none.

    Raises:
        ArtifactError: what its file holds is no calibration of it.
    """
    shape = (model.horizon, len(model.schema.outcomes))
    return held_by(model, "calibration", lambda _, meta, arrays: Calibration.read(meta, arrays, shape))
