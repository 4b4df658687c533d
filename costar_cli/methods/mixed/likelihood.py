"""The exact marginal likelihood of growth with random effects, and its maximum (spec MIXED-5 to 6)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from costar_cli.errors import Termination
from costar_cli.methods.mixed.densities import Apart, fitted_logits, marginal
from costar_cli.methods.mixed.directions import START_DECAY, Pairs, gram, likeness, nearly_alike, sharing, silent
from costar_cli.methods.mixed.effects import ARRAYS, Effects, effects_from
from costar_cli.methods.mixed.law import NEAR, Design, Floats, noise_over
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
    factors, n_statics, logit, design = (
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
    if logit:  # the intercept alone differs between subjects (spec MIXED-14)
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


def _tensor(values: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values))


@dataclass(frozen=True)
class _Space:
    """Coordinates in which columns are uncorrelated with variance one: the optimiser's steps are then of one size.

    `alike_L` is the factor whose decays each factor has.
    """

    of_mean_PP: Tensor
    of_random_ZZ: Tensor
    alike_L: Tensor
    noise: float
    least_noise: float
    spreading: str  # `full` spreads of effects, those of a `diagonal`, or of the `first`
    shapes: tuple[tuple[int, ...], ...]

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
        shapes = (
            effects.mean.shape, effects.decay.shape, effects.hidden.shape, effects.bias.shape, effects.output.shape,
            (n_spread,), (),
        )  # fmt: skip
        if spreading == "diagonal":
            of_random = np.diag(unit / np.sqrt(np.diag(gram_PP)[:z]))
        least = max(LEAST_NOISE * float(np.var(response_M)), 1e-16)
        return cls(_tensor(of_mean), _tensor(of_random), _tensor(alike_L), unit, least, spreading, shapes)

    def pack(self, effects: Effects) -> Floats:
        """Return effects as one vector."""
        mean, random = self.of_mean_PP.numpy(), self.of_random_ZZ.numpy()
        whitened = np.linalg.solve(random, effects.spread)
        if self.spreading != "full":
            spread = np.diag(whitened)[: 1 if self.spreading == "first" else None]
        else:
            square = whitened @ whitened.T
            spread = np.linalg.cholesky(square + 1e-12 * np.eye(len(square)))[np.tril_indices(len(square))]
        decay = effects.decay.clip(1e-6, 1 - 1e-6)
        noise = max(effects.noise**2 - self.least_noise, 1e-3 * effects.noise**2) ** 0.5
        values = (
            np.linalg.solve(mean, effects.mean), np.log(decay / (1 - decay)), effects.hidden, effects.bias,
            np.linalg.solve(random, effects.output), spread, np.log(noise / self.noise),
        )  # fmt: skip
        return np.concatenate([np.ravel(value) for value in values])

    def unpack(self, vector: Tensor) -> dict[str, Tensor]:
        """Return the effects that a vector means, in the units of the columns."""
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        mean, decay, hidden, bias, output, spread, noise = (
            value.reshape(shape) for value, shape in zip(torch.split(vector, sizes), self.shapes, strict=True)
        )
        z = len(self.of_random_ZZ)
        if self.spreading != "full":
            factor = torch.diag(nn.functional.pad(spread, (0, z - len(spread))))
        else:
            row, column = (torch.from_numpy(index) for index in np.tril_indices(z))
            factor = torch.zeros(z, z, dtype=torch.float64).index_put((row, column), spread)
        return {
            "mean": self.of_mean_PP @ mean,
            "decay": torch.sigmoid(decay)[:, self.alike_L],
            "hidden": hidden,
            "bias": bias,
            "output": self.of_random_ZZ @ output,
            "spread": self.of_random_ZZ @ factor,
            "variance": (2 * noise).exp() * self.noise**2 + self.least_noise,
        }


@dataclass(frozen=True)
class _Tensors:
    """A design on the CPU, with the lags between its steps."""

    level_NTB: Tensor
    link_NTF: Tensor
    dose_LNT: Tensor
    v_NV: Tensor
    response_NT: Tensor
    counted_NT: Tensor
    lag_TT: Tensor
    gap_NT: Tensor | None
    reversion: float
    logit: bool

    @classmethod
    def of(cls, design: Design) -> "_Tensors":
        """Put a design into tensors; subjects without a transition are left out."""
        rows = design.counted_NT.any(axis=1)
        last = int(np.flatnonzero(design.counted_NT.any(axis=0)).max(initial=0)) + 1
        step_T = torch.arange(last)

        return cls(
            _tensor(design.level_NTB[rows, :last]),
            _tensor(design.link_NTF[rows, :last]),
            _tensor(design.dose_NTL[rows, :last].transpose(2, 0, 1)),
            _tensor(design.v_NV[rows]),
            _tensor(design.response_NT[rows, :last]),
            _tensor(design.counted_NT[rows, :last]),
            (step_T[None, :] - step_T[:, None]).double(),
            None if design.gap_NT is None else _tensor(design.gap_NT[rows, :last]),
            design.reversion,
            design.logit,
        )

    def exposures(self, decay_CL: Tensor) -> Tensor:
        """Return `[N,T,CL]`, each the doses so far times the decay to the power of their lag."""
        decay_J = decay_CL.reshape(-1)
        if self.gap_NT is None:
            power_JTT = torch.where(self.lag_TT >= 0, decay_J[:, None, None] ** self.lag_TT.clamp(min=0), 0.0)
            dose_JNT = self.dose_LNT.repeat(len(decay_CL), 1, 1)
            return (dose_JNT @ power_JTT).permute(1, 2, 0)
        gap_NT1 = self.gap_NT[..., None]  # exposures are integrated over gaps, as `Design.acting` does
        dose_TNJ = self.dose_LNT.permute(2, 1, 0).repeat(1, 1, len(decay_CL))
        left_NTJ, exposures = decay_J**gap_NT1, [dose_TNJ[0]]
        for step in range(1, len(dose_TNJ)):
            exposures.append(left_NTJ[:, step - 1] * exposures[-1] + dose_TNJ[step])
        if self.logit:
            return torch.stack(exposures, dim=1)
        apart_J = torch.where((self.reversion - decay_J).abs() < NEAR, self.reversion - NEAR, decay_J)
        lasting_NTJ = (self.reversion**gap_NT1 - apart_J**gap_NT1) / (self.reversion - apart_J)
        noise_NT1 = torch.from_numpy(noise_over(gap_NT1.numpy(), self.reversion))
        return torch.stack(exposures, dim=1) * lasting_NTJ / noise_NT1

    def log_likelihood(self, effects: dict[str, Tensor]) -> Tensor:
        """Return the logarithm of the density of all responses, the random effects integrated out (spec MIXED-5)."""
        counted_NT1 = self.counted_NT[..., None]
        random_NTZ = torch.cat([self.level_NTB, self.exposures(effects["decay"])], dim=-1) * counted_NT1
        z, variance, spread_ZZ = random_NTZ.shape[-1], effects["variance"], effects["spread"]
        statics_NZ = torch.tanh(self.v_NV @ effects["hidden"].T + effects["bias"]) @ effects["output"].T
        expected_NT = (random_NTZ @ (effects["mean"][:z] + statics_NZ)[..., None])[..., 0]
        of_links_NT = (self.link_NTF @ effects["mean"][z:]) * self.counted_NT
        if self.logit:
            return marginal(expected_NT + of_links_NT, spread_ZZ[0, 0], self.response_NT, self.counted_NT).sum()
        residual_NT = self.response_NT - expected_NT - of_links_NT
        spread_NTZ = random_NTZ @ spread_ZZ
        inner_NZZ = torch.eye(z, dtype=torch.float64) + spread_NTZ.mT @ spread_NTZ / variance
        factor_NZZ = torch.linalg.cholesky(inner_NZZ)
        explained_NZ1 = torch.linalg.solve_triangular(
            factor_NZZ, spread_NTZ.mT @ residual_NT[..., None] / variance, upper=False
        )
        n = self.counted_NT.sum()
        half_log_det = factor_NZZ.diagonal(dim1=-2, dim2=-1).log().sum()
        squares = (residual_NT**2).sum() / variance - (explained_NZ1**2).sum()
        log_density: Tensor = -0.5 * (n * (2 * np.pi * variance).log() + squares) - half_log_det
        return log_density


def _parts(design: Design) -> list[_Tensors]:
    """Return the design of some subjects after others, of few subjects the whole."""
    if len(design.v_NV) <= MANY:
        return [_Tensors.of(design)]
    every = (design.take(slice(first, first + AT_ONCE)) for first in range(0, len(design.v_NV), AT_ONCE))
    return [_Tensors.of(some) for some in every if some.n]


def _summed(parts: Sequence[_Tensors], effects: dict[str, Tensor]) -> Tensor:
    """Return the logarithm of the density over all parts, of several without keeping what their gradients need.

    That is a linear function of the effects, of the same value and gradient.
    """
    if len(parts) == 1:
        return parts[0].log_likelihood(effects)
    at = {name: value.detach().requires_grad_() for name, value in effects.items()}
    total, slopes = torch.zeros((), dtype=torch.float64), [torch.zeros_like(value) for value in at.values()]
    for part in parts:
        found = part.log_likelihood(at)
        if torch.is_grad_enabled():
            slopes_of = torch.autograd.grad(found, [*at.values()], allow_unused=True, materialize_grads=True)
            torch._foreach_add_(slopes, slopes_of)
        total += found.detach()
    apart = zip(slopes, effects.values(), at.values(), strict=True)
    return total + torch.stack([(slope * (now - then.detach())).sum() for slope, now, then in apart]).sum()


def log_likelihood(design: Design, effects: Effects) -> float:
    """Return the logarithm of the density of the outcomes of a design, in their units."""
    values = {name: torch.from_numpy(np.asarray(getattr(effects, name))) for name in ARRAYS}
    values["variance"] = torch.tensor(effects.noise**2, dtype=torch.float64)
    with torch.no_grad():
        return float(_summed(_parts(design), values)) - float(design.log_scale_NT.sum())


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
    space, of_doses = (
        _Space.of(flat, start, sharing(likeness_LL, tied)),
        slice(design.level_NTB.shape[-1], start.n_random),
    )
    usual, pairs = usual_effect(flat, start.decay), [] if design.logit else nearly_alike(likeness_LL)
    apart = Apart.of(pairs, start.spread, start.decay, usual)

    def objective(vector: Any) -> tuple[float, Any]:  # noqa: ANN401
        Termination.stop_if_signalled()
        given = torch.from_numpy(vector).requires_grad_()
        effects = space.unpack(given)
        try:
            likelihood, of_apart = _summed(parts, effects), apart.loss(effects["spread"])
        except RuntimeError:  # a step so long that nothing is left of the precision
            return np.inf, np.zeros_like(vector)
        output = torch.linalg.solve(space.of_random_ZZ, effects["output"])
        units = len(effects["hidden"])
        weights = (effects["hidden"] ** 2).sum() + units * (output**2).sum()
        of_doses_squared = (effects["mean"][of_doses] ** 2).sum() + units * (effects["output"][of_doses] ** 2).sum()
        loss = -likelihood + 0.5 * (weights + of_doses_squared / usual**2) + of_apart
        if design.logit:
            loss = loss + 0.5 * (torch.linalg.solve(space.of_mean_PP, effects["mean"]) / MOST_WHITE).square().sum()
        loss = loss / n
        (slope,) = torch.autograd.grad(loss, given)
        return float(loss.detach()), slope.numpy()

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
    with torch.no_grad():
        values = {name: value.numpy() for name, value in space.unpack(torch.from_numpy(found.x)).items()}
    values |= {"noise": np.ones(()) if design.logit else np.sqrt(values["variance"]), "reach": _reach(design)}
    effects = effects_from(values.__getitem__)
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
