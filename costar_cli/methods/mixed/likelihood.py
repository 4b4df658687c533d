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
from costar_cli.methods.mixed.law import NEAR, Design, Floats, lasting, noise_over
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
"""Arrays of `Effects`, or slopes by them, by name; `variance` is that of a response."""


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
        np.add.at(of_decay_CL.T, self.alike_L, (slopes["decay"] * effects["decay"] * (1 - effects["decay"])).T)
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
    n = len(design.v_NV)
    size = n if n <= MANY else AT_ONCE
    every = (design.take(slice(first, first + size)) for first in range(0, n, size))
    return [_trimmed(some) for some in every if some.n or n <= MANY]


def _trimmed(design: Design) -> Design:
    """Return a design without subjects that have no transition, and without the steps after the last one."""
    last = int(np.flatnonzero(design.counted_NT.any(axis=0)).max(initial=0)) + 1
    design = design.take(np.flatnonzero(design.counted_NT.any(axis=1)))
    of_steps = {field.name: getattr(design, field.name) for field in fields(design) if "_NT" in field.name}
    cut: dict[str, Any] = {name: None if x is None else x[:, :last] for name, x in of_steps.items()}
    return replace(design, **cut)


def _exposures(design: Design, decay_CL: Floats) -> tuple[Floats, Floats]:
    """Return what exposures come to `[N,T,CL]`, as `Design.acting` does, and its slope by the decay of each."""
    decay_J, gap_NT = decay_CL.reshape(-1), design.gap_NT
    # Subjects last: they are many, and each operation is over all of them.
    dose_TLN = design.dose_NTL.transpose(1, 2, 0)
    carried_TJN = np.tile(np.ascontiguousarray(dose_TLN), (1, len(decay_CL), 1))  # what is left is added to doses
    slope_TJN = np.zeros_like(carried_TJN)
    for step in range(1, len(carried_TJN)):
        gap_N = 1.0 if gap_NT is None else gap_NT[:, step - 1]
        left_JN, earlier_JN = decay_J[:, None] ** gap_N, carried_TJN[step - 1]
        slope_TJN[step] = left_JN * (slope_TJN[step - 1] + gap_N / decay_J[:, None] * earlier_JN)
        carried_TJN[step] += left_JN * earlier_JN
    carried_NTJ, slope_NTJ = (np.ascontiguousarray(x_TJN.transpose(2, 0, 1)) for x_TJN in (carried_TJN, slope_TJN))
    if gap_NT is None or design.logit:
        return carried_NTJ, slope_NTJ
    gap_NT1 = gap_NT[..., None]
    noise_NT1, lasting_NTJ = noise_over(gap_NT1, design.reversion), lasting(gap_NT1, decay_J, design.reversion)
    apart_J = design.reversion - decay_J
    is_near_J = np.abs(apart_J) < NEAR
    change_NTJ = (lasting_NTJ - gap_NT1 * decay_J ** (gap_NT1 - 1)) / np.where(is_near_J, 1.0, apart_J)
    slope_NTJ = slope_NTJ * lasting_NTJ + carried_NTJ * np.where(is_near_J, 0.0, change_NTJ)
    return carried_NTJ * lasting_NTJ / noise_NT1, slope_NTJ / noise_NT1


class _Seen(NamedTuple):
    """What responses say, given the columns: log-density, and its slopes by fixed parts, spreads and the variance.

    `own_NZ` are the effects that the columns of each subject act by. `blurred_NTZ`, the columns turned by what is left
    unknown of them, is what the density loses by.
    """

    log_density: float
    toward_NT: Floats
    own_NZ: Floats
    blurred_NTZ: Floats
    of_spread_ZZ: Floats
    of_variance: float


def _seen_linear(
    random_NTZ: Floats, mean_NZ: Floats, residual_NT: Floats, spread_ZZ: Floats, variance: float, n: int
) -> _Seen:
    z = len(spread_ZZ)
    # Columns are turned before they are squared: large spreads of columns that nearly cancel would leave no precision.
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
    blurred_NTZ = turned_NTZ @ (inverse_NZZ.swapaxes(1, 2) @ inverse_NZZ / variance)
    of_mean_NZ = (random_NTZ.swapaxes(1, 2) @ left_NT[..., None])[..., 0] / variance
    of_spread_ZZ = of_mean_NZ.T @ deviate_NZ1[..., 0] - _over_rows(random_NTZ, blurred_NTZ)
    return _Seen(
        -0.5 * (n * float(np.log(2 * np.pi * variance)) + total - explained) - half_log_det, left_NT / variance,
        mean_NZ + deviate_NZ1[..., 0] @ spread_ZZ.T, blurred_NTZ, of_spread_ZZ,
        0.5 * (total - n - explained + known) / variance,
    )  # fmt: skip


def _over_rows(one_NTA: Floats, other_NTB: Floats) -> Floats:
    return np.asarray(one_NTA.reshape(-1, one_NTA.shape[-1]).T @ other_NTB.reshape(-1, other_NTB.shape[-1]))


def _seen_logit(design: Design, expected_NT: Floats, mean_NZ: Floats, spread_ZZ: Floats) -> _Seen:
    log_N, toward_NT, of_spread = marginal(expected_NT, spread_ZZ[0, 0], design.response_NT, design.counted_NT)
    of_spread_ZZ = np.zeros_like(spread_ZZ)
    of_spread_ZZ[0, 0] = of_spread
    nothing_NTZ = np.zeros((*toward_NT.shape, len(spread_ZZ)))
    return _Seen(float(log_N.sum()), toward_NT, mean_NZ, nothing_NTZ, of_spread_ZZ, 0.0)


def _density(design: Design, effects: Values) -> tuple[float, Values]:
    """Return the logarithm of the density of all responses, the random effects integrated out (spec MIXED-5).

    Beside it, its slopes by the effects.

    Raises:
        LinAlgError: nothing is left of the precision.
    """
    acting_NTJ, growing_NTJ = _exposures(design, effects["decay"])
    random_NTZ = np.concatenate([design.level_NTB, acting_NTJ], axis=-1) * design.counted_NT[..., None]
    z, spread_ZZ = random_NTZ.shape[-1], effects["spread"]
    hidden_NH = np.tanh(design.v_NV @ effects["hidden"].T + effects["bias"])
    mean_NZ = effects["mean"][:z] + hidden_NH @ effects["output"].T
    expected_NT = (random_NTZ @ mean_NZ[..., None])[..., 0]
    expected_NT += (design.link_NTF @ effects["mean"][z:]) * design.counted_NT
    if design.logit:
        seen = _seen_logit(design, expected_NT, mean_NZ, spread_ZZ)
    else:
        residual_NT, variance = design.response_NT - expected_NT, float(effects["variance"])
        seen = _seen_linear(random_NTZ, mean_NZ, residual_NT, spread_ZZ, variance, design.n)
    of_mean_NZ = (random_NTZ.swapaxes(1, 2) @ seen.toward_NT[..., None])[..., 0]
    of_unit_NH = of_mean_NZ @ effects["output"] * (1 - hidden_NH**2)
    decays = slice(z - growing_NTJ.shape[-1], z)
    of_acting_NJ = (growing_NTJ.swapaxes(1, 2) @ seen.toward_NT[..., None])[..., 0]
    of_decay_J = (of_acting_NJ * seen.own_NZ[:, decays]).sum(axis=0)
    of_decay_J -= (_over_rows(growing_NTJ, seen.blurred_NTZ) * spread_ZZ[decays]).sum(axis=1)
    of_link_F = np.tensordot(seen.toward_NT, design.link_NTF, axes=2)
    return seen.log_density, {
        "mean": np.concatenate([of_mean_NZ.sum(axis=0), of_link_F]),
        "decay": of_decay_J.reshape(effects["decay"].shape),
        "hidden": of_unit_NH.T @ design.v_NV,
        "bias": of_unit_NH.sum(axis=0),
        "output": of_mean_NZ.T @ hidden_NH,
        "spread": seen.of_spread_ZZ,
        "variance": np.asarray(seen.of_variance),
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


def maximise(design: Design, start: Effects, *, iterations: int, tied: Pairs = (), rival: float = -np.inf) -> Effects:
    """Return the effects of the largest likelihood, by L-BFGS from a start; `tied` factors have the same decays.

    It stops early where a rival's log-likelihood is out of reach. The result says whether it converged. Weights of what
    the statics say have a normal prior, with which their sum is of the size of the residuals: without it, few subjects
    would fit anything. Effects of doses have one, too, of the size that they usually have: a dose that was given twice
    says little of its effect.
    """
    from scipy.optimize import minimize  # noqa: PLC0415  # half a second to import, needed here alone

    if len(design.v_NV) > MANY:
        some = design.take(np.linspace(0, len(design.v_NV) - 1, FIRST).round().astype(np.int64))
        start = maximise(some, start, iterations=iterations, tied=tied) if some.n else start
    likeness_LL = likeness(design)
    flat, parts, n = design.linearised(), _parts(design), max(design.n, 1)
    space = _Space.of(flat, start, sharing(likeness_LL, tied))
    of_doses, units = slice(design.level_NTB.shape[-1], start.n_random), len(start.hidden)
    usual, pairs = usual_effect(flat, start.decay), [] if design.logit else nearly_alike(likeness_LL)
    apart = Apart.of(pairs, start.spread, start.decay, usual)
    prior = space.fill(mean=MOST_WHITE**-2 if design.logit else 0.0, hidden=1.0, output=units)

    def objective(vector: Floats) -> tuple[float, Floats]:
        Termination.stop_if_signalled()
        effects = space.unpack(vector)
        try:
            likelihood, slopes = _summed(parts, effects)
            of_apart, apart_ZZ = apart.loss(effects["spread"])
        except np.linalg.LinAlgError:  # a step so long that nothing is left of the precision
            return np.inf, np.zeros_like(vector)
        mean_D, output_DH = effects["mean"][of_doses], effects["output"][of_doses]
        loss = of_apart - likelihood + 0.5 * ((mean_D**2).sum() + units * (output_DH**2).sum()) / usual**2
        slopes = {name: -slope for name, slope in slopes.items()}
        slopes["mean"][of_doses] += mean_D / usual**2
        slopes["output"][of_doses] += units * output_DH / usual**2
        slopes["spread"] += apart_ZZ
        loss += 0.5 * float(prior @ vector**2)
        return loss / n, (space.slope(effects, slopes) + prior * vector) / n

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
    if design.logit:
        phi_NTP, mean_NP = design.columns(effects.decay), effects.means(design.v_NV)
        flat = design.linearised(fitted_logits(design, np.einsum("ntp,np->nt", phi_NTP, mean_NP), effects.spread[0, 0]))
    return replace(
        effects,
        open=open_factor(flat, effects.spread, effects.noise**2, effects.decay, usual),
        log_likelihood=log_likelihood(design, effects),
        converged=bool(found.success or is_slow() or (np.abs(found.jac).max() < FLAT and found.nit < iterations)),
        iterations=int(found.nit),
    )
