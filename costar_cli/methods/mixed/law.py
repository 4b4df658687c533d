"""The law of one outcome: what grows in a step, and the columns on which growth depends (spec MIXED-1 to 4)."""

from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, Self, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from costar_cli.data import Panel, Scaler, TreatmentEncoding
from costar_cli.data.visits import elapsed
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.outcome_forms import LEVEL_UNIT, usual_size

Floats = NDArray[np.float64]
Basis = Literal["log", "raw", "both"]
SubjectsT = TypeVar("SubjectsT", "Series", "Design")

SHIFT: Final = 1e-8  # of an sd, added to positive outcomes; a larger one ruins the intervals of small outcomes
NEAR: Final = 1e-6  # between two rates, below which they are told apart by this much
LEAST_LEFT: Final = 0.05  # of a level after a step
LEAST_WEIGHT: Final = 1e-6  # of a transition whose probability is nearly 0 or 1
LEAST_STEPS, MOST_STEPS = 1e-3, 1e3  # that the mean doses of all count beside those of a subject
LARGEST: Final = 5.0  # change per step, in units of the scale; larger ones are left out and never predicted


@dataclass(frozen=True, slots=True)
class Series:
    """A panel in double precision: outcomes `[N,T,Y]` in their units, the rest standardised, doses `[N,T,L]`.

    `usual_NTY` is the mean size that an outcome of the subject had up to a step, in its units; `seen_NTY` says which
    outcomes were observed, not filled, `known_NTX` which covariates, None for all. `gap_NT` is how long it is, in units
    of a step, until the next one; None where that is one everywhere.
    """

    y_NTY: Floats
    usual_NTY: Floats
    x_NTX: Floats
    v_NV: Floats
    dose_NTL: Floats
    length_N: NDArray[np.int64]
    seen_NTY: NDArray[np.bool_]
    gap_NT: Floats | None = None
    known_NTX: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, panel: Panel, scaler: Scaler, encoding: TreatmentEncoding) -> Self:
        """Scale a panel; doses are those of treatment factors, whatever the encoding."""
        there_NT1 = panel.observed[..., None]
        y_NTY = panel.outcomes.astype(np.float64)
        return cls(
            y_NTY,
            usual_size(np.where(there_NT1, y_NTY, 0.0), there_NT1.cumsum(axis=1), scaler.outcomes[1]),
            np.where(there_NT1, (panel.covariates - scaler.covariates[0]) / scaler.covariates[1], 0.0),
            (panel.statics - scaler.statics[0]) / scaler.statics[1],
            panel.treatments.astype(np.float64) @ dose_table(encoding, timeless=True),
            panel.length,
            panel.observed_outcomes,
            elapsed(encoding, panel.treatments),
            panel.observed_covariates,
        )

    def take(self, rows_M: NDArray[np.int64]) -> "Series":
        """Return some subjects."""
        return _taken(self, rows_M)

    @property
    def before_NTL(self) -> Floats:
        """Return the sums of all doses before each step `[N,T,L+1]`, and last how many steps these are."""
        dose_NTL = np.pad(self.dose_NTL, [(0, 0), (0, 0), (0, 1)], constant_values=1.0)
        return np.asarray(dose_NTL.cumsum(axis=1) - dose_NTL)

    def habits(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the mean of doses, and the steps whose mean varies as much about a subject's as these do about it."""
        steps_N = (self.length_N - 1).clip(1)  # nothing is given at a last row
        there_NT1 = (np.arange(self.dose_NTL.shape[1]) < steps_N[:, None])[..., None]
        own_NL = (self.dose_NTL * there_NT1).sum(axis=1) / steps_N[:, None]
        mean_L = steps_N @ own_NL / steps_N.sum()
        within_L = np.square((self.dose_NTL - own_NL[:, None]) * there_NT1).sum(axis=(0, 1))
        within_L /= max(int((steps_N - 1).sum()), 1)
        between_L = np.square(own_NL - mean_L).mean(axis=0) - within_L * (1 / steps_N).mean()
        steps_L = within_L / np.maximum(between_L, within_L / MOST_STEPS + np.finfo(np.float64).tiny)
        return tuple(mean_L.tolist()), tuple(steps_L.clip(LEAST_STEPS).tolist())


def carried(dose_NTL: Floats, decay_CL: Floats, gap_NT: Floats | None = None) -> Floats:
    """Return the exposures `[N,T,CL]` after each step's dose: `e_t = decay^gap * e_(t-1) + dose_t`."""
    return carried_and_slope(dose_NTL, decay_CL, gap_NT, slope=False)[0]


def carried_and_slope(
    dose_NTL: Floats, decay_CL: Floats, gap_NT: Floats | None, *, slope: bool = True
) -> tuple[Floats, Floats]:
    """Return exposures, and their slopes by the logarithms of decays: finite, however near to zero a decay is."""
    decay_J1 = decay_CL.reshape(-1, 1)
    # Subjects last: they are many, and each operation is over all of them.
    dose_TLN = dose_NTL.transpose(1, 2, 0)
    carried_TJN = np.tile(np.ascontiguousarray(dose_TLN), (1, len(decay_CL), 1))  # what is left is added to doses
    slope_TJN = np.zeros_like(carried_TJN) if slope else carried_TJN[:0]
    for step in range(1, len(carried_TJN)):
        gap_N = 1.0 if gap_NT is None else gap_NT[:, step - 1]
        left_JN, earlier_JN = decay_J1**gap_N, carried_TJN[step - 1]
        if slope:
            slope_TJN[step] = left_JN * (slope_TJN[step - 1] + gap_N * earlier_JN)
        carried_TJN[step] += left_JN * earlier_JN
    carried_NTJ, slope_NTJ = (np.ascontiguousarray(x_TJN.transpose(2, 0, 1)) for x_TJN in (carried_TJN, slope_TJN))
    return carried_NTJ, slope_NTJ


def remaining(decay: Floats, gap: Floats | None, *, axis: int) -> Floats:
    """Return what is left of exposures after a step, or after gaps, of which there are one per element of an axis."""
    return decay if gap is None else np.asarray(decay ** np.expand_dims(gap, axis))


def lasting(gap: Floats, decay: Floats | float, reversion: Floats | float) -> Floats:
    """Return how much acts over a gap what acts by 1 in a step, and decays, on a level that reverts (spec MIXED-12)."""
    apart = np.where(np.abs(reversion - decay) < NEAR, reversion - NEAR, decay)
    return np.asarray((reversion**gap - apart**gap) / (reversion - apart))


def noise_over(gap: Floats, reversion: Floats | float) -> Floats:
    """Return the sd over a gap of noise whose sd in a step is 1 (spec MIXED-12)."""
    return np.sqrt(lasting(gap, 1.0, reversion**2))


def compounding(gap: Floats) -> Floats:
    """Return over how many steps growth compounds in a gap: a shorter one than a step is one (spec MIXED-12)."""
    return np.maximum(gap, 1.0)


@dataclass(frozen=True, slots=True)
class Design:
    """The transitions of one outcome: columns at step t, the response that follows, and which of them count.

    Shapes: `level_NTB` (a column of ones and the levels), `link_NTF` (covariates and other outcomes, standardised),
    `dose_NTL`, `response_NT`, `counted_NT` (1 or 0), `log_scale_NT` (what turns densities of responses into those of
    outcomes). There are T - 1 transitions. Where steps are uneven, `gap_NT` has their lengths, in which everything but
    `dose_NTL` is integrated, divided by the sd of noise of one step (spec MIXED-12). Where the law is `logit`,
    responses are 0 or 1 (spec MIXED-14); `weight_NT` multiplies all columns of the linear regression in its place.
    """

    level_NTB: Floats
    link_NTF: Floats
    dose_NTL: Floats
    v_NV: Floats
    response_NT: Floats
    counted_NT: Floats
    log_scale_NT: Floats
    gap_NT: Floats | None = None
    reversion: float = 1.0
    logit: bool = False
    weight_NT: Floats | None = None

    @property
    def n(self) -> int:
        """Return how many transitions count."""
        return int(self.counted_NT.sum())

    def acting(self, exposure_NTJ: Floats, decay_CL: Floats) -> Floats:
        """Return what exposures `[N,T,CL]` come to until the next step."""
        if self.gap_NT is None or self.logit or self.weight_NT is not None:
            return exposure_NTJ
        gap_NT1 = self.gap_NT[..., None]
        acting_NTJ = exposure_NTJ * lasting(gap_NT1, decay_CL.reshape(-1), self.reversion)
        return acting_NTJ / noise_over(gap_NT1, self.reversion)

    def columns(self, decay_CL: Floats) -> Floats:
        """Return the columns `[N,T,P]` of the transitions."""
        exposure_NTJ = self.acting(carried(self.dose_NTL, decay_CL, self.gap_NT), decay_CL)
        phi_NTP = np.concatenate([self.level_NTB, exposure_NTJ, self.link_NTF], axis=-1)
        return phi_NTP if self.weight_NT is None else phi_NTP * self.weight_NT[..., None]

    def take(self, rows: slice | NDArray[np.int64]) -> "Design":
        """Return some subjects."""
        return _taken(self, rows)

    def linearised(self, logit_NT: Floats | None = None) -> "Design":
        """Return the linear regression with noise of sd 1 that stands for a logistic one near some logits.

        By default these are that of the mean response, everywhere. A design that is linear stays as it is.
        """
        if not self.logit:
            return self
        if logit_NT is None:
            share = (self.response_NT.sum() + 0.5) / (self.n + 1)  # never 0 or 1
            logit_NT = np.full_like(self.response_NT, logit(share))
        p_NT = expit(logit_NT)
        root_NT = np.sqrt(np.maximum(p_NT * (1 - p_NT), LEAST_WEIGHT))
        response_NT = self.counted_NT * (root_NT * logit_NT + (self.response_NT - p_NT) / root_NT)
        return replace(self, response_NT=response_NT, logit=False, weight_NT=root_NT)


def _taken(held: SubjectsT, rows: slice | NDArray[np.int64]) -> SubjectsT:
    """Return some subjects of what holds arrays that lead with them."""
    values = {field.name: getattr(held, field.name) for field in fields(held)}
    taken: dict[str, Any] = {name: x[rows] for name, x in values.items() if isinstance(x, np.ndarray)}
    return replace(held, **taken)


@dataclass(frozen=True)
class GrowthTransition:
    """The form of one outcome's growth, and what it learnt of the source's training subjects.

    Attributes:
        outcome: its column.
        relative: a step changes the outcome by a share of its level; otherwise by an amount.
        basis: whether growth depends on the logarithm of the level, on the level, or on both.
        linked: whether covariates and the other outcomes act on growth.
        mean, sd: of the outcome, among observed values.
        low, high: bounds of what is predicted, unless a series already is beyond them; `high` of a relative law is the
            largest value of source-train, at which series end.
        local: amounts and levels are in units of the subject's usual size (`Series.usual_NTY`), not of one sd.
        reversion: what is left, after a step, of a difference in the level; where steps are uneven (spec MIXED-12).
        logit: the outcome is 0 or 1, and growth is the logit of the next one's probability (spec MIXED-14).
        habits: mean doses of all, and how many steps these count, where the doses that a subject usually had act on
            growth (spec MIXED-15).
    """

    outcome: int
    relative: bool
    basis: Basis
    linked: bool
    mean: float
    sd: float
    low: float
    high: float
    local: bool = False
    reversion: float = 1.0
    logit: bool = False
    habits: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    @classmethod
    def of(cls, series: Series, outcome: int, *, relative: bool, basis: Basis, linked: bool) -> Self:
        """Take scale and bounds from observed outcomes."""
        seen_M = series.y_NTY[series.seen_NTY[..., outcome], outcome]
        low, high = float(seen_M.min()), float(seen_M.max())
        if not relative:
            room = 0.5 * (high - low)
            low, high = (max(low - room, 0.0) if low >= 0 else low - room), high + room
        sd = float(seen_M.std())
        return cls(outcome, relative, basis, linked, float(seen_M.mean()), sd or 1.0, 0.0 if relative else low, high)

    @classmethod
    def choices(cls, series: Series, outcome: int, *, relative: bool, binary: bool = False) -> list[Self]:
        """Return the laws that the likelihood chooses from; only outcomes that are never negative have a usual size."""
        if binary:
            law = cls.of(series, outcome, relative=False, basis="raw", linked=False)
            return [replace(law, low=0.0, high=1.0, logit=True)]
        forms: list[tuple[bool, Basis]] = [(True, basis) for basis in get_args(Basis)] if relative else []
        laws = [
            cls.of(series, outcome, relative=is_relative, basis=basis, linked=False)
            for is_relative, basis in [*forms, (False, "raw")]
        ]
        return [*laws, replace(laws[-1], local=True)] if laws[-1].low >= 0 else laws

    @property
    def shift(self) -> float:
        """Return what is added to positive outcomes before they divide or have a logarithm."""
        return SHIFT * self.sd

    @property
    def levels(self) -> tuple[Literal["log", "raw"], ...]:
        """Return the level columns."""
        return ("log", "raw") if self.basis == "both" else (self.basis,)

    @property
    def limits(self) -> tuple[float, float]:
        """Return the smallest and largest change per step, in units of the scale."""
        return (-1.0 if self.relative else -LARGEST), LARGEST

    def scale(self, y: Floats, usual: Floats) -> Floats:
        """Return the unit of a change from y, for subjects of a usual size."""
        if self.local:
            return usual
        return np.maximum(y, 0) + self.shift if self.relative else np.full_like(y, self.sd)

    def level(self, y: Floats, usual: Floats) -> list[Floats]:
        """Return the level columns of y."""
        centre, unit = (usual, usual) if self.local else (self.mean, self.sd)
        columns = {
            "log": lambda: np.log(np.maximum(y, 0) / self.sd + SHIFT) / LEVEL_UNIT,
            "raw": lambda: (y - centre) / unit,
        }
        return [columns[name]() for name in self.levels]

    def slope(self, y: Floats, usual: Floats) -> list[Floats]:
        """Return the derivatives of the level columns by y."""
        columns = {
            "log": lambda: 1 / (np.maximum(y, 0) + self.shift) / LEVEL_UNIT,
            "raw": lambda: 1 / usual if self.local else np.full_like(y, 1 / self.sd),
        }
        return [columns[name]() for name in self.levels]

    def next(
        self, y: Floats, growth: Floats, usual: Floats, low: Floats, high: Floats, gap: Floats | None = None
    ) -> Floats:
        """Return y after a step, or after a gap of some length, within bounds; of a binary outcome its probability."""
        if self.logit:
            return np.asarray(expit(growth))
        if gap is None:
            return np.clip(y + self.scale(y, usual) * np.clip(growth, *self.limits), low, high)
        steps = compounding(gap)
        change = steps * np.clip(growth / steps, *self.limits)
        if self.relative:
            change = (1 + change / steps) ** steps - 1
        return np.clip(y + self.scale(y, usual) * change, low, high)

    def reverting(self, mean_P: Floats) -> float:
        """Return what is left, after a step, of a difference in the level, under some means of effects."""
        effect = dict(zip(self.levels, mean_P[1:], strict=False))
        raw = self.mean / self.sd if self.relative else 1.0
        left = 1 + effect.get("log", 0.0) / LEVEL_UNIT + effect.get("raw", 0.0) * raw
        return float(np.clip(left, LEAST_LEFT, 1.0))

    def links(self, y_NTY: Floats, x_NTX: Floats, mean_Y: Floats, sd_Y: Floats, before_NTL: Floats) -> Floats:
        """Return the columns `[...,F]` of covariates, of the other outcomes, and of habits, none where they do not act.

        The doses that a subject usually had are drawn to those of all as if some more steps had shown these.
        """
        columns = [np.zeros((*y_NTY.shape[:-1], 0))]
        if self.linked:
            others = [o for o in range(y_NTY.shape[-1]) if o != self.outcome]
            columns += [x_NTX, ((y_NTY - mean_Y) / sd_Y)[..., others]]
        if self.habits is not None:
            total_NTL, steps_NT1 = np.split(before_NTL, [-1], axis=-1)
            usual_L, steps_L = np.array(self.habits)
            columns.append((total_NTL - steps_NT1 * usual_L) / (steps_NT1 + steps_L))
        return np.concatenate(columns, axis=-1)

    def design(self, series: Series, mean_Y: Floats, sd_Y: Floats, *, filled_too: bool = False) -> Design:
        """Return the transitions of a panel's subjects.

        Args:
            series: the panel.
            mean_Y: of outcomes, for the columns of the others.
            sd_Y: likewise.
            filled_too: also count transitions from or to an outcome that was filled: in histories both are the same.
        """
        y_NT = series.y_NTY[..., self.outcome]
        now_NT, then_NT = y_NT[:, :-1], y_NT[:, 1:]
        inside_NT = there_NT = np.arange(1, y_NT.shape[1]) < series.length_N[:, None]
        if not filled_too:
            seen_NT = series.seen_NTY[..., self.outcome]
            inside_NT = inside_NT & seen_NT[:, :-1] & seen_NT[:, 1:]
        now_NT, then_NT = np.where(inside_NT, now_NT, self.mean), np.where(inside_NT, then_NT, self.mean)
        usual_NT = series.usual_NTY[:, :-1, self.outcome]
        scale_NT = self.scale(now_NT, usual_NT)
        response_NT = (then_NT - now_NT) / scale_NT
        gap_NT = None if series.gap_NT is None else np.where(there_NT, series.gap_NT[:, :-1], 1.0)
        links_NTF = self.links(series.y_NTY[:, :-1], series.x_NTX[:, :-1], mean_Y, sd_Y, series.before_NTL[:, :-1])
        level_NTB = np.stack([np.ones_like(now_NT), *self.level(now_NT, usual_NT)], axis=-1)
        links_NTF = np.where(inside_NT[..., None], links_NTF, 0.0)
        if self.logit:
            counted_NT, none_NT = inside_NT.astype(np.float64), np.zeros_like(now_NT)
            return Design(
                level_NTB, links_NTF, series.dose_NTL[:, :-1], series.v_NV, then_NT * counted_NT, counted_NT, none_NT,
                gap_NT, logit=True,
            )  # fmt: skip
        steps_NT = np.ones_like(now_NT) if gap_NT is None else compounding(gap_NT)
        grown_NT = np.maximum(1 + response_NT, 0.0)
        if gap_NT is not None and self.relative:
            response_NT = steps_NT * (grown_NT ** (1 / steps_NT) - 1)
        counts_NT = inside_NT & (np.abs(response_NT / steps_NT) < LARGEST)
        if self.relative:
            counts_NT &= (now_NT > 10 * self.shift) & (then_NT > 0) & (then_NT < self.high)
        design = Design(
            level_NTB,
            links_NTF,
            series.dose_NTL[:, :-1],
            series.v_NV,
            np.where(counts_NT, response_NT, 0.0),
            counts_NT.astype(np.float64),
            np.where(counts_NT, np.log(scale_NT), 0.0),
        )
        return design if gap_NT is None else self._integrated(design, gap_NT, np.where(counts_NT, grown_NT, 1.0))

    def _integrated(self, design: Design, gap_NT: Floats, grown_NT: Floats) -> Design:
        """Return a design whose columns are integrated over the gaps, in units of their noise (spec MIXED-12).

        Args:
            design: the transitions as if none were longer than another.
            gap_NT: how long they are.
            grown_NT: by what each has multiplied the outcome, where growth compounds.
        """
        noise_NT = noise_over(gap_NT, self.reversion)
        weight_NT1 = (lasting(gap_NT, 1.0, self.reversion) / noise_NT)[..., None]
        scale_NT = np.log(noise_NT)
        if self.relative:  # the response to a unit of the outcome is smaller by the slope of the root
            scale_NT = scale_NT + (1 - 1 / compounding(gap_NT)) * np.log(grown_NT)
        return replace(
            design,
            level_NTB=design.level_NTB * weight_NT1,
            link_NTF=design.link_NTF * weight_NT1,
            response_NT=design.response_NT / noise_NT,
            log_scale_NT=design.log_scale_NT + design.counted_NT * scale_NT,
            gap_NT=gap_NT,
            reversion=self.reversion,
        )
