"""The exact marginal likelihood of growth with random effects, and its maximum (spec MIXED-5 to 6)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from costar_cli.errors import Termination
from costar_cli.methods.mixed.densities import Apart, fitted_logits, marginal
from costar_cli.methods.mixed.directions import START_DECAY, Pairs, gram, likeness, nearly_alike, sharing, silent
from costar_cli.methods.mixed.effects import ARRAYS, Effects, effects_from
from costar_cli.methods.mixed.law import NEAR, Design, Floats, carried_and_slope, lasting, noise_over
from costar_cli.methods.mixed.population import LEAST_NOISE, open_factor, usual_effect

MOST_CORRELATED: Final = 12  # random effects; with more of them, they are independent of each other
HISTORY: Final = 30  # of L-BFGS
ENOUGH: Final = 1e-5  # change of the log-likelihood in an iteration, below which it is done
SLOW: Final = 50, 0.1  # iterations that together add less than this: half a unit is one sd of one parameter
LATELY: Final = 10  # iterations: a rival is out of reach if so many times what they added
BEYOND: Final = 20.0  # and this much more would not be enough
PER_WEIGHT: Final = 10  # training subjects for each weight to or from a hidden unit
# Subjects beyond which the likelihood is summed over so many at a time: memory stays, and less of it is waited for.
MANY, AT_ONCE = 16_384, 2_048
FIRST = 4_096  # of so many: the optimiser starts from what these say, since its steps with all are dear
START_SPREAD: Final = 0.5  # of logits between subjects
MOST_WHITE: Final = 10.0  # sd of a prior on logistic effects of uncorrelated columns: where 0 and 1 are set apart
WALL: Final = 1e3  # per transition, above the least loss: what a step costs that leaves nothing of the precision
FLAT: Final = 1e-4  # gradient per transition at which an optimiser that cannot go on is done


def start_values(design: Design, *, carry_overs: int, hidden: int) -> Effects:
    """Return pooled least squares, and effects that spread as far as half of the residual allows (spec MIXED-6)."""
    factors, n_statics, is_logit, design = (
        design.dose_NTL.shape[-1],
        design.v_NV.shape[1],
        design.logit,
        design.linearised(),
    )
    decay_CL = np.array([START_DECAY, 0.9])[:carry_overs, None].repeat(factors, axis=1)
    counted_NT = design.counted_NT > 0
    phi_MP, response_M = design.columns(decay_CL)[counted_NT], design.response_NT[counted_NT]
    gram_PP = gram(phi_MP)
    mean_P = np.linalg.solve(gram_PP, phi_MP.T @ response_M / len(response_M))
    residual = max(float(np.var(response_M - phi_MP @ mean_P)), LEAST_NOISE * float(np.var(response_M)), 1e-12)
    n_random = design.level_NTB.shape[-1] + decay_CL.size
    guessed_ZZ, random_MZ = np.zeros((n_random, n_random)), phi_MP[:, :n_random]
    silent_ZK = silent(random_MZ.T @ random_MZ / len(random_MZ))
    if silent_ZK.size and design.dose_NTL.any():  # effects are of the usual size in directions that nothing tells of
        square_Z = np.square(random_MZ).mean(axis=0)
        axes_ZK, _ = np.linalg.qr(silent_ZK / np.where(square_Z > 0, square_Z, 1.0)[:, None])
        guessed_ZZ = usual_effect(design, decay_CL) ** 2 * axes_ZK @ axes_ZK.T
    spread_ZZ = np.linalg.cholesky(residual * np.linalg.inv(gram_PP[:n_random, :n_random]) / 4 + guessed_ZZ)
    if n_random > MOST_CORRELATED:
        spread_ZZ = np.diag(np.sqrt(residual / np.diag(gram_PP)[:n_random] / 4 + np.diag(guessed_ZZ)))
    if is_logit:  # the intercept alone differs between subjects (spec MIXED-14)
        spread_ZZ = np.diag(START_SPREAD * (np.arange(n_random) == 0))
    hidden = min(hidden, max(len(design.v_NV) // (PER_WEIGHT * (n_statics + n_random)), 1))
    rng = np.random.default_rng(0)  # nothing else is random: the first layer only has to look in different directions
    return Effects(
        np.asarray(mean_P, dtype=np.float64),
        np.asarray(spread_ZZ, dtype=np.float64),
        float(np.sqrt(residual) / 2),
        decay_CL,
        rng.normal(size=(hidden, n_statics)) / max(n_statics, 1) ** 0.5,
        rng.uniform(-1, 1, size=hidden),
        np.zeros((n_random, hidden)),
        _reach(design),
    )


def _reach(design: Design) -> Floats:
    return np.stack([design.v_NV.min(axis=0), design.v_NV.max(axis=0)])


FREE: Final = tuple(name for name in ARRAYS if name != "reach")  # what the likelihood depends on, beside the noise
Values = Mapping[str, NDArray[Any]]
"""Arrays of `Effects`, or slopes by them and by logarithms of decays, by name; `variance` is that of a response."""


@dataclass(frozen=True)
class _Space:
    """Coordinates in which columns are uncorrelated with variance one: the optimiser's steps are then of one size.

    `alike_L` is the factor whose decays each factor has.
    """

    of_mean_PP: Floats
    of_random_ZZ: Floats
    alike_L: NDArray[np.intp]
    noise: float
    least_noise: float
    spreading: str  # `full` spreads of effects, those of a `diagonal`, or of the `first`
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, design: Design, effects: Effects, alike_L: NDArray[np.intp]) -> "_Space":
        """Return the coordinates at some effects."""
        counted_NT = design.counted_NT > 0
        gram_PP = gram(design.columns(effects.decay)[counted_NT])
        response_M, z = design.response_NT[counted_NT], effects.n_random
        unit = 2 * effects.noise
        of_mean, of_random = (unit * np.linalg.inv(np.linalg.cholesky(of_PP)).T for of_PP in (gram_PP, gram_PP[:z, :z]))
        spreading = "first" if design.weight_NT is not None else "diagonal" if z > MOST_CORRELATED else "full"
        n_spread = {"first": 1, "diagonal": z, "full": z * (z + 1) // 2}[spreading]
        shapes = {name: getattr(effects, name).shape for name in FREE} | {"spread": (n_spread,), "variance": ()}
        if spreading == "diagonal":
            of_random = np.diag(unit / np.sqrt(np.diag(gram_PP)[:z]))
        least = max(LEAST_NOISE * float(np.var(response_M)), 1e-16)
        return cls(of_mean, of_random, alike_L, unit, least, spreading, shapes)

    @property
    def _places(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return row and column of each free element of the spreads' factor."""
        z = len(self.of_random_ZZ)
        diagonal = np.arange(1 if self.spreading == "first" else z)
        return np.tril_indices(z) if self.spreading == "full" else (diagonal, diagonal)

    def pack(self, effects: Effects) -> Floats:
        """Return effects as one vector."""
        whitened = np.linalg.solve(self.of_random_ZZ, effects.spread)
        if self.spreading == "full":
            square = whitened @ whitened.T
            whitened = np.linalg.cholesky(square + 1e-12 * np.eye(len(square)))
        noise = max(effects.noise**2 - self.least_noise, 1e-3 * effects.noise**2) ** 0.5
        return self._joined({
            "mean": np.linalg.solve(self.of_mean_PP, effects.mean),
            "spread": whitened[self._places],
            "decay": logit(effects.decay.clip(1e-6, 1 - 1e-6)),
            "hidden": effects.hidden,
            "bias": effects.bias,
            "output": np.linalg.solve(self.of_random_ZZ, effects.output),
            "variance": np.log(noise / self.noise),
        })  # fmt: skip

    def _joined(self, values: Values) -> Floats:
        return np.concatenate([np.ravel(values[name]) for name in self.shapes])

    def fill(self, **values: float) -> Floats:
        """Return a vector that has the same value for all of an array, 0 for those that have none."""
        return self._joined({name: np.full(shape, values.get(name, 0.0)) for name, shape in self.shapes.items()})

    def unpack(self, vector: Floats) -> Values:
        """Return the effects that a vector means, in the units of the columns."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])[:-1]
        parts = zip(np.split(vector, ends), self.shapes.items(), strict=True)
        free = {name: part.reshape(shape) for part, (name, shape) in parts}
        factor_ZZ = np.zeros_like(self.of_random_ZZ)
        factor_ZZ[self._places] = free["spread"]
        return free | {
            "mean": self.of_mean_PP @ free["mean"],
            "decay": expit(free["decay"])[:, self.alike_L],
            "output": self.of_random_ZZ @ free["output"],
            "spread": self.of_random_ZZ @ factor_ZZ,
            "variance": np.asarray(np.exp(2 * free["variance"]) * self.noise**2 + self.least_noise),
        }

    def slope(self, effects: Values, slopes: Values) -> Floats:
        """Return the slope by the vector that effects were unpacked from, given those by the effects."""
        of_decay_CL = np.zeros_like(effects["decay"])
        np.add.at(of_decay_CL.T, self.alike_L, (slopes["decay"] * (1 - effects["decay"])).T)
        return self._joined({
            **slopes,
            "mean": self.of_mean_PP.T @ slopes["mean"],
            "decay": of_decay_CL,
            "output": self.of_random_ZZ.T @ slopes["output"],
            "spread": (self.of_random_ZZ.T @ slopes["spread"])[self._places],
            "variance": 2 * (effects["variance"] - self.least_noise) * slopes["variance"],
        })  # fmt: skip


def _parts(design: Design) -> list[Design]:
    """Return the design of some subjects after others, of few subjects the whole, without what does not count."""
    if len(design.v_NV) <= MANY:
        return [_trimmed(design)]
    every = (design.take(slice(first, first + AT_ONCE)) for first in range(0, len(design.v_NV), AT_ONCE))
    return [_trimmed(some) for some in every if some.n]


def _trimmed(design: Design) -> Design:
    """Return a design without subjects that have no transition, and without the steps after the last one."""
    last = int(np.flatnonzero(design.counted_NT.any(axis=0)).max(initial=0)) + 1
    design = design.take(np.flatnonzero(design.counted_NT.any(axis=1)))
    of_steps = {field.name: getattr(design, field.name) for field in fields(design) if "_NT" in field.name}
    cut: dict[str, Any] = {name: None if x is None else x[:, :last] for name, x in of_steps.items()}
    return replace(design, **cut)


def _exposures(design: Design, decay_CL: Floats) -> tuple[Floats, Floats]:
    """Return what exposures come to `[N,T,CL]`, as `Design.acting` does, and its slope by each decay's logarithm."""
    decay_J, gap_NT = decay_CL.reshape(-1), design.gap_NT
    carried_NTJ, slope_NTJ = carried_and_slope(design.dose_NTL, decay_CL, gap_NT)
    if gap_NT is None or design.logit:
        return carried_NTJ, slope_NTJ
    gap_NT1 = gap_NT[..., None]
    noise_NT1, lasting_NTJ = noise_over(gap_NT1, design.reversion), lasting(gap_NT1, decay_J, design.reversion)
    apart_J = design.reversion - decay_J
    is_near_J = np.abs(apart_J) < NEAR
    change_NTJ = (lasting_NTJ * decay_J - gap_NT1 * decay_J**gap_NT1) / np.where(is_near_J, 1.0, apart_J)
    slope_NTJ = slope_NTJ * lasting_NTJ + carried_NTJ * np.where(is_near_J, 0.0, change_NTJ)
    return carried_NTJ * lasting_NTJ / noise_NT1, slope_NTJ / noise_NT1


class _Marginal(NamedTuple):
    """The log-density of responses, random effects integrated out, and what its slopes are made of.

    They are by the fixed part `[N,T]`, by the spreads and by the variance; `own_NZ` are the expected effects of each
    subject, given its responses. `loss_NTZ` is the slope of half the log-determinant of `M = 1 + S'X'X S / variance` by
    `X S`, columns times spreads: `X S M^-1 / variance`. None where there is no such matrix.
    """

    log_density: float
    of_fixed_NT: Floats
    of_spread_ZZ: Floats
    of_variance: float
    own_NZ: Floats
    loss_NTZ: Floats | None = None


def _linear(
    random_NTZ: Floats, mean_NZ: Floats, residual_NT: Floats, spread_ZZ: Floats, variance: float, n: int
) -> _Marginal:
    """Return the normal density of residuals whose covariance is `X S S'X' + variance`, of `n` that count (MIXED-5)."""
    # Columns are turned before they are squared: large spreads of columns that nearly cancel would leave no precision.
    z = len(spread_ZZ)
    turned_NTZ = (random_NTZ.reshape(-1, z) @ spread_ZZ).reshape(random_NTZ.shape)
    turned_NZT = turned_NTZ.swapaxes(1, 2)
    factor_NZZ = np.linalg.cholesky(np.eye(z) + turned_NZT @ turned_NTZ / variance)
    inverse_NZZ = np.linalg.inv(factor_NZZ)
    explained_NZ1 = inverse_NZZ @ (turned_NZT @ residual_NT[..., None]) / variance
    deviate_NZ1 = inverse_NZZ.swapaxes(1, 2) @ explained_NZ1  # expected, given all of a subject's responses
    left_NT = residual_NT - (turned_NTZ @ deviate_NZ1)[..., 0]
    total, explained = float((residual_NT**2).sum()) / variance, float((explained_NZ1**2).sum())
    half_log_det = float(np.log(factor_NZZ.diagonal(axis1=1, axis2=2)).sum())
    known = z * len(inverse_NZZ) - float((inverse_NZZ**2).sum() + (deviate_NZ1**2).sum())
    loss_NTZ = turned_NTZ @ (inverse_NZZ.swapaxes(1, 2) @ inverse_NZZ / variance)
    of_mean_NZ = (random_NTZ.swapaxes(1, 2) @ left_NT[..., None])[..., 0] / variance
    return _Marginal(
        -0.5 * (n * float(np.log(2 * np.pi * variance)) + total - explained) - half_log_det,
        left_NT / variance,
        of_mean_NZ.T @ deviate_NZ1[..., 0] - _product(random_NTZ, loss_NTZ),
        0.5 * (total - n - explained + known) / variance,
        mean_NZ + deviate_NZ1[..., 0] @ spread_ZZ.T,
        loss_NTZ,
    )


def _product(one_NTA: Floats, other_NTB: Floats) -> Floats:
    """Return the products of columns with columns `[A,B]`, summed over all transitions."""
    rows = one_NTA.shape[0] * one_NTA.shape[1]
    return np.asarray(one_NTA.reshape(rows, one_NTA.shape[2]).T @ other_NTB.reshape(rows, other_NTB.shape[2]))


def _logistic(design: Design, expected_NT: Floats, mean_NZ: Floats, spread_ZZ: Floats) -> _Marginal:
    """Return the density of responses that are 0 or 1, whose intercept alone differs between subjects (MIXED-14)."""
    log_N, of_fixed_NT, of_spread = marginal(expected_NT, spread_ZZ[0, 0], design.response_NT, design.counted_NT)
    of_spread_ZZ = np.zeros_like(spread_ZZ)
    of_spread_ZZ[0, 0] = of_spread
    return _Marginal(float(log_N.sum()), of_fixed_NT, of_spread_ZZ, 0.0, mean_NZ)


def _density(design: Design, effects: Values) -> tuple[float, Values]:
    """Return the logarithm of the density of all responses, the random effects integrated out (spec MIXED-5).

    Beside it, its slopes by the effects. `U` are hidden units.

    Raises:
        LinAlgError: nothing is left of the precision, which values that are not finite say, too.
    """
    acting_NTJ, growing_NTJ = _exposures(design, effects["decay"])
    random_NTZ = np.concatenate([design.level_NTB, acting_NTJ], axis=-1) * design.counted_NT[..., None]
    z, spread_ZZ = random_NTZ.shape[-1], effects["spread"]
    hidden_NU = np.tanh(design.v_NV @ effects["hidden"].T + effects["bias"])
    mean_NZ = effects["mean"][:z] + hidden_NU @ effects["output"].T
    expected_NT = (random_NTZ @ mean_NZ[..., None])[..., 0]
    expected_NT += (design.link_NTF @ effects["mean"][z:]) * design.counted_NT
    if design.logit:
        found = _logistic(design, expected_NT, mean_NZ, spread_ZZ)
    else:
        residual_NT, variance = design.response_NT - expected_NT, float(effects["variance"])
        found = _linear(random_NTZ, mean_NZ, residual_NT, spread_ZZ, variance, design.n)
    of_fixed_NT1, decays = found.of_fixed_NT[..., None], slice(z - growing_NTJ.shape[-1], z)
    of_mean_NZ = (random_NTZ.swapaxes(1, 2) @ of_fixed_NT1)[..., 0]
    of_unit_NU = of_mean_NZ @ effects["output"] * (1 - hidden_NU**2)
    of_acting_NJ = (growing_NTJ.swapaxes(1, 2) @ of_fixed_NT1)[..., 0]
    of_decay_J = (of_acting_NJ * found.own_NZ[:, decays]).sum(axis=0)
    if found.loss_NTZ is not None:
        of_decay_J -= (_product(growing_NTJ, found.loss_NTZ) * spread_ZZ[decays]).sum(axis=1)
    return found.log_density, {
        "mean": np.concatenate([of_mean_NZ.sum(axis=0), _product(of_fixed_NT1, design.link_NTF)[0]]),
        "decay": of_decay_J.reshape(effects["decay"].shape),
        "hidden": of_unit_NU.T @ design.v_NV,
        "bias": of_unit_NU.sum(axis=0),
        "output": of_mean_NZ.T @ hidden_NU,
        "spread": found.of_spread_ZZ,
        "variance": np.asarray(found.of_variance),
    }


def _summed(parts: Sequence[Design], effects: Values) -> tuple[float, dict[str, NDArray[Any]]]:
    """Return the logarithm of the density over all parts, and its slopes."""
    total, slopes = 0.0, {name: np.zeros_like(value) for name, value in effects.items()}
    for part in parts:
        log_density, of_part = _density(part, effects)
        total += log_density
        slopes = {name: slope + of_part[name] for name, slope in slopes.items()}
    return total, slopes


def log_likelihood(design: Design, effects: Effects) -> float:
    """Return the logarithm of the density of the outcomes of a design, in their units."""
    values = {name: getattr(effects, name) for name in FREE} | {"variance": np.asarray(effects.noise**2)}
    return _summed(_parts(design), values)[0] - float(design.log_scale_NT.sum())


@dataclass
class _Loss:
    """Minus the log-likelihood per transition, with priors, of the vectors of a space."""

    parts: Sequence[Design]
    space: _Space
    apart: Apart
    usual: float
    of_doses: slice
    prior: Floats
    n: int
    least: float = 0.0  # so far, or 0

    @classmethod
    def of(cls, design: Design, start: Effects, tied: Pairs) -> "_Loss":
        """Return the loss near some effects; weights of statics and effects of doses have priors (`maximise`)."""
        flat, likeness_LL = design.linearised(), likeness(design)
        space = _Space.of(flat, start, sharing(likeness_LL, tied))
        usual, pairs = usual_effect(flat, start.decay), [] if design.logit else nearly_alike(likeness_LL)
        prior = space.fill(mean=MOST_WHITE**-2 if design.logit else 0.0, hidden=1.0, output=len(start.hidden))
        of_doses = slice(design.level_NTB.shape[-1], start.n_random)
        apart = Apart.of(pairs, start.spread, start.decay, usual)
        return cls(_parts(design), space, apart, usual, of_doses, prior, max(design.n, 1))

    def __call__(self, vector: Floats) -> tuple[float, Floats]:
        """Return the loss and its slope; high above the least where a step leaves nothing of the precision."""
        Termination.stop_if_signalled()
        with np.errstate(all="ignore"):
            loss, slope = self._at(vector)
        if not (np.isfinite(loss) and np.isfinite(slope).all()):  # of an infinite loss L-BFGS-B would make an end
            return self.least + WALL, np.zeros_like(vector)
        self.least = min(self.least, loss)
        return loss, slope

    def _at(self, vector: Floats) -> tuple[float, Floats]:
        effects = self.space.unpack(vector)
        try:
            likelihood, slopes = _summed(self.parts, effects)
            of_apart, apart_ZZ = self.apart.loss(effects["spread"])
        except np.linalg.LinAlgError:
            return np.inf, np.zeros_like(vector)
        mean, output = effects["mean"][self.of_doses], effects["output"][self.of_doses]
        loss = of_apart - likelihood + 0.5 * ((mean**2).sum() + output.shape[1] * (output**2).sum()) / self.usual**2
        slopes = {name: -slope for name, slope in slopes.items()}
        slopes["mean"][self.of_doses] += mean / self.usual**2
        slopes["output"][self.of_doses] += output.shape[1] * output / self.usual**2
        slopes["spread"] += apart_ZZ
        loss += 0.5 * float(self.prior @ vector**2)
        return loss / self.n, (self.space.slope(effects, slopes) + self.prior * vector) / self.n


def maximise(design: Design, start: Effects, *, iterations: int, tied: Pairs = (), rival: float = -np.inf) -> Effects:
    """Return the effects of the largest likelihood, by L-BFGS from a start; `tied` factors have the same decays.

    It stops early where a rival's log-likelihood is out of reach. The result says whether it converged. Weights of what
    the statics say have a normal prior, with which their sum is of the size of the residuals: without it, few subjects
    would fit anything. Effects of doses have one, too, of the size that they usually have: a dose that was given twice
    says little of its effect.
    """
    if len(design.v_NV) > MANY:
        some = design.take(np.linspace(0, len(design.v_NV) - 1, FIRST).round().astype(np.int64))
        start = maximise(some, start, iterations=iterations, tied=tied) if some.n else start
    found, usual, is_steep = _climb(design, start, iterations, tied, rival)
    while is_steep and found.iterations < iterations:  # the coordinates of the start are too oblong for where it ended
        more, usual, is_steep = _climb(design, found, iterations - found.iterations, tied, rival)
        is_steep = is_steep and more.log_likelihood > found.log_likelihood + SLOW[1]
        found = replace(more, iterations=found.iterations + more.iterations)
    if design.logit:
        phi_NTP, mean_NP = design.columns(found.decay), found.means(design.v_NV)
        design = design.linearised(fitted_logits(design, np.einsum("ntp,np->nt", phi_NTP, mean_NP), found.spread[0, 0]))
    return replace(found, open=open_factor(design, found.spread, found.noise**2, found.decay, usual))


def _climb(design: Design, start: Effects, iterations: int, tied: Pairs, rival: float) -> tuple[Effects, float, bool]:
    """Return where a search ended (`maximise`), the sd of effects it took for usual, and whether it is steep there."""
    from scipy.optimize import minimize  # noqa: PLC0415  # half a second to import, needed here alone

    objective = _Loss.of(design, start, tied)
    space, n = objective.space, objective.n
    losses: list[float] = []
    few, little = SLOW[0], SLOW[1] / n

    def is_slow() -> bool:
        return len(losses) > few and losses[-few - 1] - losses[-1] < little

    log_scale = float(design.log_scale_NT.sum())

    def is_hopeless() -> bool:
        if len(losses) <= 2 * LATELY:
            return False
        gain = losses[-LATELY - 1] - losses[-1]
        return n * (LATELY * gain - losses[-1]) - log_scale + BEYOND < rival

    def stop_if_idle(intermediate_result: Any) -> None:  # noqa: ANN401
        losses.append(float(intermediate_result.fun))
        if is_slow() or is_hopeless():
            raise StopIteration

    enough = max(1e-9, ENOUGH / n)
    options = {"maxcor": HISTORY, "maxiter": iterations, "maxfun": 2 * iterations, "ftol": enough, "gtol": 1e-6}
    run: Any = minimize  # whose types know no function that returns its gradient, too
    begin = space.pack(start)
    found = run(objective, begin, jac=True, method="L-BFGS-B", callback=stop_if_idle, options=options)
    values = space.unpack(found.x)
    noise = np.ones(()) if design.logit else np.sqrt(values["variance"])
    effects = effects_from({**values, "noise": noise, "reach": _reach(design)}.__getitem__)
    is_flat = bool(np.abs(found.jac).max() < FLAT)
    ended = found.success or is_slow() or (is_flat and found.nit < iterations)
    reached = replace(
        effects,
        log_likelihood=log_likelihood(design, effects),
        converged=bool(ended),
        iterations=int(found.nit),
    )
    return reached, objective.usual, bool(ended and not is_flat)
