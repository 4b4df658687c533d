"""Train the network of the in-context model on simulated worlds, and say how it does on worlds that it never saw.

    python -m benchmarks.in_context train [--updates 4000] [--seed 1] [--out FILE.npz]
    python -m benchmarks.in_context worlds [--worlds 150] [--weights FILE.npz]

`train` draws a new world for every update (`draw_world`: a random temporal structural model in which treatment reacts
to the course), conditions on some of its subjects in closed form, and lowers the negative log likelihood of the steps
of the others, each given its own history up to a random step. `worlds` prints, over worlds of other seeds, the mean
negative log likelihood and the mean logarithm of the squared error, with and without the learned features.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from costar_cli.methods.in_context.basis import HIDDEN, LAGS, LEARNED, PRIORS, Basis, Facts, Function, facts_of
from costar_cli.methods.in_context.head import SUBJECT_SCALES
from costar_cli.methods.in_context.method import WEIGHTS
from costar_cli.methods.shared.course import Course, Scales

Floats = NDArray[np.float64]
LEARNING_RATE, WARM_UP, WORLDS_OF_UPDATE = 1e-3, 50, 2
MOST_ROWS: Final = 7_000  # of a world
QUERIES: Final = 60
LEAST_NOISE: Final = 1e-10


class World(NamedTuple):
    """Values `[N,T,E]`, doses `[N,T,L]`, statics `[N,V]`, and which variables grow in proportion to their level."""

    value_NTE: Floats
    dose_NTL: Floats
    static_NV: Floats
    relative_E: NDArray[np.bool_]


def draw_world(rng: np.random.Generator) -> World:
    """Draw a temporal structural model, and a panel from it; treatment reacts to the course, subjects may differ."""
    steps = int(rng.integers(10, 50))
    n = min(int(rng.integers(40, 300)), MOST_ROWS // steps)
    e, doses, statics = int(rng.integers(1, 6)), int(rng.integers(1, 4)), int(rng.integers(0, 4))

    def some(scale: float, share: float, *shape: int) -> Floats:
        return np.asarray(rng.normal(0, scale, shape) * (rng.random(shape) < share))

    binary = rng.random() < 0.5
    static_NV = (rng.random((n, statics)) < 0.4) * 1.0 if binary else rng.normal(size=(n, statics))
    pull_NE = (
        rng.uniform(0.02, 0.6, e) * (rng.random(e) < 0.8) * np.exp(rng.choice([0, 0.3], e) * rng.normal(size=(n, e)))
    )
    rest_NE = static_NV @ some(0.5, 0.4, statics, e) + rng.choice([0, 0.5, 1.0], e) * rng.normal(size=(n, e))
    others_EE, momentum_E = some(0.25, 0.35, e, e), some(0.2, 0.5, e)
    np.fill_diagonal(others_EE, 0)
    effect_LE = some(0.5, 0.6, doses, e)
    effect_NLE = effect_LE + rng.choice([0, 0.3, 0.6], (doses, e)) * np.abs(effect_LE) * rng.normal(size=(n, doses, e))
    keep_L, saturates_L = rng.choice([0, 0, 0.5, 0.7, 0.85, 0.95], doses), rng.random(doses) < 0.3
    by_level_LE, by_other_LEE = some(0.35, 0.4, doses, e), some(0.35, 0.15, doses, e, e)
    together_E, waves_EE = some(0.4, 0.25, e), some(0.4, 0.25, e, e)
    pace_EE, trend_E = rng.uniform(0.5, 2.0, (e, e)), some(0.02, 0.3, e)
    noise_E = np.exp(rng.uniform(np.log(0.02), np.log(0.6), e))
    heavy, uneven = rng.random() < 0.3, float(rng.choice([0, 0, 0.5]))
    reacts, habit_L = float(rng.choice([0, 0.5, 1, 2, 4])), rng.choice([0, 1, 2], doses)
    towards_LE, base_L = some(1.0, 0.6, doses, e), rng.normal(-0.3, 1, doses)
    amounts_L, by_static_VL = rng.random(doses) < 0.2, rng.normal(0, 0.3, (statics, doses))

    state_NE = rest_NE + rng.normal(size=(n, e)) * rng.uniform(0.3, 1.2)
    before_NE, left_NL, was_NL = state_NE, np.zeros((n, doses)), np.zeros((n, doses))
    state_NTE, dose_NTL = np.empty((n, steps, e)), np.zeros((n, steps, doses))
    for t in range(steps):
        state_NTE[:, t], bent_NE = state_NE, np.tanh(state_NE)
        logit_NL = (
            base_L + reacts * state_NE.clip(-3, 3) @ towards_LE.T + habit_L * (was_NL - 0.5) + static_NV @ by_static_VL
        )
        dose_NL = (rng.random((n, doses)) < 1 / (1 + np.exp(-logit_NL))) * 1.0
        dose_NL = np.where(amounts_L, dose_NL * rng.choice([0.5, 1, 1.5], (n, doses)), dose_NL)
        left_NL = keep_L * left_NL + dose_NL
        acts_NL = np.where(saturates_L, 1.5 * left_NL / (0.5 + left_NL), left_NL * (1 - 0.5 * keep_L))
        change_NE = pull_NE * (rest_NE - state_NE) + bent_NE @ others_EE.T + momentum_E * (state_NE - before_NE)
        change_NE = change_NE + np.einsum("nl,nle->ne", acts_NL, effect_NLE) + acts_NL @ by_level_LE * bent_NE
        change_NE += np.einsum("nl,leb,nb->ne", acts_NL, by_other_LEE, bent_NE)
        if doses > 1:
            change_NE += (acts_NL[:, :1] * acts_NL[:, 1:2]) * together_E
        change_NE += (waves_EE * np.sin(pace_EE * state_NE[:, None, :])).sum(axis=2) + trend_E
        chance_NE = rng.standard_t(4, (n, e)) / np.sqrt(2) if heavy else rng.normal(size=(n, e))
        before_NE, dose_NTL[:, t], was_NL = state_NE, dose_NL, dose_NL
        state_NE = (state_NE + change_NE.clip(-3, 3) + noise_E * chance_NE * (1 + uneven * np.abs(bent_NE))).clip(-6, 6)
    relative_E, scale_E = rng.random(e) < 0.35, np.exp(rng.uniform(-2, 4, e))
    value_NTE = (
        np.where(relative_E, np.exp(rng.uniform(0.2, 1.0, e) * state_NTE), state_NTE + rng.normal(0, 3, e)) * scale_E
    )
    return World(value_NTE, dose_NTL, static_NV, relative_E)


class Task(NamedTuple):
    """One variable of a world: facts of M = N T steps, its number, and its changes `[N,T]`."""

    facts: Facts
    basis: Basis
    e: int
    change_NT: Tensor


def task_of(world: World, e: int) -> Task:
    """Return the steps of a world, with the changes of a variable."""
    value_NTE, dose_NTL, static_NV, relative_E = world
    n, steps, variables = value_NTE.shape
    kinds = tuple("relative" if one else "additive" for one in relative_E)
    mean_E, sd_E = value_NTE.mean(axis=(0, 1)), value_NTE.std(axis=(0, 1)) + 1e-9
    wide_E, none_V = np.full(variables, np.inf), np.zeros(static_NV.shape[1])
    scales = Scales(kinds, -wide_E, wide_E, wide_E < 0, mean_E, sd_E, none_V, none_V + 1)  # type: ignore[arg-type]
    course, found, changes = Course.begin(value_NTE[:, 0], static_NV, scales, LAGS, dose_NTL.shape[2]), [], []
    low_E, high_E = scales.limits
    for t in range(steps - 1):
        found.append(facts_of(course, scales, dose_NTL[:, t]))
        change_NE = (value_NTE[:, t + 1] - value_NTE[:, t]) / course.unit(scales)
        changes.append(change_NE[:, e].clip(low_E[e], high_E[e]))
        course = course.after(dose_NTL[:, t], value_NTE[:, t + 1])
    arrays = [np.stack(parts, axis=1) for parts in zip(*found, strict=True)]  # of each subject together
    facts = Facts(*(torch.tensor(a.reshape(n * (steps - 1), *a.shape[2:]), dtype=torch.float32) for a in arrays))
    return Task(
        facts, Basis(variables, dose_NTL.shape[2], static_NV.shape[1]), e, torch.tensor(np.stack(changes, axis=1))
    )


class Network(nn.Module):
    """The features, and the prior sds of all weights in sds of the noise."""

    def __init__(self) -> None:
        super().__init__()
        self.learned = nn.ModuleDict({name: _layers(*sizes) for name, sizes in LEARNED.items()})
        kinds = {**PRIORS, "subject": 3, "subject.dose": 3}
        start = {"intercept": 1.0, "dose.static": -3.0, "doses": -3.0, "subject": -1.0, "subject.dose": -1.0}
        logs = {name: nn.Parameter(torch.full((size,), start.get(name, -2.0))) for name, size in kinds.items()}
        self.log_sd = nn.ParameterDict({name.replace(".", "_"): value for name, value in logs.items()})

    def priors(self) -> dict[str, Tensor]:
        """Return the logarithms of prior sds."""
        names = [*PRIORS, "subject", "subject.dose"]
        return {name: self.log_sd[name.replace(".", "_")] for name in names}

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """Return what the package ships."""
        found = {f"prior.{name}": value for name, value in self.priors().items()}
        for name in LEARNED:
            for i, layer in enumerate([m for m in self.learned[name] if isinstance(m, nn.Linear)]):  # type: ignore[union-attr,arg-type]
                found |= {f"{name}.{i}.weight": layer.weight, f"{name}.{i}.bias": layer.bias}
        return {name: value.detach().numpy() for name, value in found.items()}

    @classmethod
    def of(cls, weights: Mapping[str, NDArray[np.floating]]) -> "Network":
        """Return the network that has some weights."""
        network = cls()
        with torch.no_grad():
            for name, value in network.weights().items():
                torch.from_numpy(value).copy_(torch.tensor(np.asarray(weights[name], dtype=np.float32)))
        return network


def _layers(inputs: int, outputs: int) -> nn.Sequential:
    hidden = [nn.Linear(inputs, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, HIDDEN), nn.SiLU()]
    return nn.Sequential(*hidden, nn.Linear(HIDDEN, outputs), nn.Tanh())


def loss(network: Network, world: World, rng: np.random.Generator, *, without: bool = False) -> tuple[Tensor, float]:
    """Return the negative log likelihood of steps of subjects that are not conditioned on, and their squared error.

    Each is given its own history up to a random step; scales of subjects' effects are weighed by their evidence.
    `without` leaves out what the network learned.
    """
    facts, basis, e, change_NT = task_of(world, int(rng.integers(world.value_NTE.shape[2])))
    learned: dict[str, Function] = dict(network.learned.items())
    if without:
        learned = {name: lambda x, size=size: torch.zeros(*x.shape[:-1], size) for name, (_, size) in LEARNED.items()}
    n, steps = change_NT.shape
    column_MP, differ_MK = (a.double().reshape(n, steps, -1) for a in basis.columns(facts, e, learned, torch))
    priors = network.priors()
    prior_P, own_K = basis.prior(priors, torch).double(), basis.own_prior(priors, torch).double()
    order = rng.permutation(n)
    given = int(rng.integers(max(10, n // 3), n - 8))
    known, asked = order[:given], order[given : given + QUERIES]
    origin_Q = torch.tensor(rng.integers(0, steps, len(asked)))
    history_QT = torch.arange(steps) < origin_Q[:, None]
    evidences, likelihoods, errors = [], [], []
    for scale in SUBJECT_SCALES:
        variance_K = scale**2 * torch.exp(2 * own_K) if scale else None
        evidence, mean_P, root_PP, noise = _condition(
            column_MP[known], differ_MK[known], change_NT[known], prior_P, variance_K
        )
        mean_QT = column_MP[asked] @ mean_P
        flat_PM = torch.linalg.solve_triangular(root_PP, column_MP[asked].flatten(0, 1).T, upper=False)
        open_QT = flat_PM.square().sum(0).reshape(mean_QT.shape)
        if variance_K is not None:
            seen_QTK = differ_MK[asked] * history_QT[..., None]
            cover_QKK = torch.linalg.inv(seen_QTK.mT @ seen_QTK + torch.diag(1 / variance_K))
            own_QK = (cover_QKK @ (seen_QTK.mT @ (change_NT[asked] - mean_QT)[..., None]))[..., 0]
            mean_QT = mean_QT + (differ_MK[asked] @ own_QK[..., None])[..., 0]
            open_QT = open_QT + ((differ_MK[asked] @ cover_QKK) * differ_MK[asked]).sum(-1)
        variance_QT, error_QT = noise * (1 + open_QT), (change_NT[asked] - mean_QT) ** 2
        evidences.append(evidence)
        likelihoods.append(-0.5 * (torch.log(variance_QT) + error_QT / variance_QT))
        errors.append(error_QT)
    weight_G = torch.softmax(torch.stack(evidences), 0)
    mixed_QT = torch.logsumexp(torch.stack(likelihoods) + torch.log(weight_G + 1e-12)[:, None, None], 0)
    ahead_QT = ~history_QT
    return -mixed_QT[ahead_QT].mean(), float(errors[int(weight_G.argmax())][ahead_QT].mean().detach())


def _condition(
    column_NTP: Tensor, differ_NTK: Tensor, change_NT: Tensor, prior_P: Tensor, variance_K: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return evidence, mean weights, the lower root of their precision, and the noise (spec CONTEXT-4)."""
    flat_MP, precision_P = column_NTP.flatten(0, 1), torch.exp(-2 * prior_P)
    square_PP, cross_P, total = flat_MP.T @ flat_MP, flat_MP.T @ change_NT.flatten(), change_NT.square().sum()
    determinant = torch.zeros((), dtype=torch.float64)
    if variance_K is not None:
        inner_NKK = differ_NTK.mT @ differ_NTK + torch.diag(1 / variance_K)
        root_NKK = torch.linalg.cholesky(inner_NKK)
        right = torch.cat([differ_NTK.mT @ column_NTP, differ_NTK.mT @ change_NT[..., None]], dim=2)
        half = torch.linalg.solve_triangular(root_NKK, right, upper=False).flatten(0, 1)
        taken = half.T @ half
        square_PP, cross_P, total = square_PP - taken[:-1, :-1], cross_P - taken[:-1, -1], total - taken[-1, -1]
        determinant = (
            2 * torch.log(torch.diagonal(root_NKK, dim1=1, dim2=2)).sum() + len(inner_NKK) * torch.log(variance_K).sum()
        )
    root_PP = torch.linalg.cholesky(square_PP + torch.diag(precision_P))
    mean_P = torch.cholesky_solve(cross_P[:, None], root_PP)[:, 0]
    n = change_NT.numel()
    noise = ((total - mean_P @ cross_P) / n).clamp_min(LEAST_NOISE)
    evidence = -0.5 * (
        n * torch.log(noise) + 2 * torch.log(torch.diagonal(root_PP)).sum() - torch.log(precision_P).sum() + determinant
    )
    return evidence, mean_P, root_PP, noise


def judge(network: Network, worlds: int, *, seed: int = 999, without: bool = False) -> tuple[float, float]:
    """Return the mean negative log likelihood and mean log squared error over worlds that were not trained on."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        found = [
            (float(nll), np.log(error))
            for nll, error in (loss(network, draw_world(rng), rng, without=without) for _ in range(worlds))
        ]
    nll, error = np.mean(found, axis=0)
    return float(nll), float(error)


def train(updates: int, seed: int, out: Path, *, judged: int = 40) -> None:
    """Train, say now and then how it does, and write the weights."""
    torch.manual_seed(seed)
    network, rng = Network(), np.random.default_rng(seed)
    optimiser = torch.optim.Adam(network.parameters(), LEARNING_RATE)
    for i in range(updates):
        optimiser.param_groups[0]["lr"] = (
            LEARNING_RATE * min(1, (i + 1) / WARM_UP) * (0.51 + 0.5 * np.cos(np.pi * i / updates))
        )
        optimiser.zero_grad()
        for _ in range(WORLDS_OF_UPDATE):
            nll, _ = loss(network, draw_world(rng), rng)
            if torch.isfinite(nll):
                (nll / WORLDS_OF_UPDATE).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        if i % 250 == 0 or i == updates - 1:
            print(i, "nll {:.4f}, log error {:.4f}".format(*judge(network, judged)), flush=True)
            np.savez(out, **network.weights())


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "worlds"])
    parser.add_argument("--updates", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worlds", type=int, default=150)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if asked.what == "train":
        train(asked.updates, asked.seed, asked.out)
        return
    with np.load(asked.weights, allow_pickle=False) as weights:
        network = Network.of(weights)
    for name, without in (("with learned features", False), ("without", True)):
        print(
            f"{name}: nll {{:.4f}}, log error {{:.4f}}".format(
                *judge(network, asked.worlds, seed=4_242, without=without)
            )
        )


if __name__ == "__main__":
    main()
