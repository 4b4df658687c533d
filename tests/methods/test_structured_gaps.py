"""The structured decoder over gaps: a gap is so many steps in which nothing is given (spec GROWTH-8)."""

from pathlib import Path

import numpy as np
import pytest
import torch

from costar_cli.config.models import EncoderConfig, FinetuneConfig
from costar_cli.data import Part
from costar_cli.data.windows import factual_windows
from costar_cli.methods.growth.settings import GrowthConfig, GrowthNetworkConfig
from costar_cli.methods.mixed import law
from costar_cli.methods.shared.covariate_transition import Rates, Reach
from costar_cli.methods.shared.gaps import GapColumn, carried_over, lasting
from costar_cli.methods.shared.members import call_members, stack_members
from costar_cli.methods.shared.outcome_forms import OutcomeForm
from costar_cli.methods.shared.structured import StructuredDecoder
from tests.fits import fit_method, model_of
from tests.methods.test_structured import ADDITIVE, BINARY, FORMS, LOCAL, REACH, RELATIVE
from tests.methods.test_visits import dataset_of, rmse, visited

GAPS = GapColumn(2, 1.0)
TIMED = np.concatenate([BINARY, np.zeros((1, 2))])  # the gap is no dose


def decoder(*forms, timed: bool = True, seed: int = 0, size: float = 1.0, **more) -> StructuredDecoder:
    torch.manual_seed(seed)
    table, gaps = (TIMED, GAPS) if timed else (BINARY, None)
    module = StructuredDecoder(5, forms, table, hidden=7, gaps=gaps, **more)
    for values in module.parameters():
        values.data *= size
    return module


def with_gap(doses: torch.Tensor, gap: float | torch.Tensor) -> torch.Tensor:
    told = torch.as_tensor(gap, dtype=doses.dtype).expand(doses.shape[:-1])[..., None]
    return torch.cat([doses, told], dim=-1)


def start(n_outcomes: int, n: int = 4, n_exposures: int = 4) -> tuple[torch.Tensor, ...]:
    rng = torch.Generator().manual_seed(3)
    y, unit = 1 + torch.rand(n, n_outcomes, generator=rng), torch.ones(n, n_outcomes)
    return y, unit, torch.rand(n, n_exposures, generator=rng)


def effects(module: StructuredDecoder, n: int = 4) -> torch.Tensor:
    rng = torch.Generator().manual_seed(4)
    return 0.1 * torch.randn(n, module.n_outcomes, module.n_effects, generator=rng)


@pytest.mark.parametrize("decay", [1e-10, 0.3, 0.899, 0.9, 0.9005, 1.0])
def test_what_lasts_is_what_the_mixed_model_says(decay: float):
    gap = np.array([0.05, 0.5, 1.0, 3.0, 20.0])
    found = lasting(torch.from_numpy(gap), torch.tensor(0.9).double(), torch.tensor(decay).double())
    np.testing.assert_allclose(found, law.lasting(gap, decay, 0.9), rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("left", [0.5, 0.999, 0.9995, 1 - 2**-20, 1.0])
def test_what_lasts_over_long_gaps_is_a_sum_over_their_steps_and_so_is_its_gradient(left: float, dtype: torch.dtype):
    """However slowly a level reverts."""
    rate = torch.tensor(left, dtype=dtype, requires_grad=True)
    for gap in (1, 3, 900, 5_000, 20_000):
        steps, exact = np.arange(gap), float(rate.detach())
        found = lasting(torch.tensor(float(gap), dtype=dtype), rate, torch.ones_like(rate))
        [slope] = torch.autograd.grad(found, rate)
        assert found.item() == pytest.approx((exact**steps).sum(), rel=1e-4)
        if exact < 1:  # where both are equal, either of them may be the larger one
            assert slope.item() == pytest.approx((steps * exact ** np.maximum(steps - 1, 0)).sum(), rel=1e-3)


@pytest.mark.parametrize("decay", [1e-30, 0.9, 1.0])
def test_what_lasts_has_a_finite_gradient_everywhere(decay: float):
    left, rate = torch.tensor(0.9, requires_grad=True), torch.tensor(decay, requires_grad=True)
    lasting(torch.tensor([0.01, 1.0, 50.0]), left, rate).sum().backward()
    assert torch.isfinite(left.grad)
    assert torch.isfinite(rate.grad)


def test_what_is_left_of_doses_decays_by_the_time_between_visits():
    rng = np.random.default_rng(0)
    dose, gap = rng.integers(2, size=(3, 9, 2)).astype(float), rng.uniform(0.2, 5, size=(3, 9))
    decay = np.array([0.3, 0.8])
    after = law.carried(dose, decay[None], gap)
    expected = after * decay ** gap[..., None]
    found = carried_over(*map(torch.from_numpy, (dose, gap, decay)))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("covariates", [None, REACH])
@pytest.mark.parametrize("kind", FORMS)
def test_usual_gaps_are_even_steps(kind: str, covariates: Reach | None):
    more = {"carry_overs": 2, "fading": 1, "covariates": covariates}
    timed, even = decoder(FORMS[kind], **more), decoder(FORMS[kind], timed=False, **more)
    y, unit, exposure = start(1)
    plan = torch.randint(2, (4, 3, 2)).float()
    own = [torch.rand(4, 3), torch.rand(4, 3)] if covariates else []
    left = exposure * even.rates().decay_1J
    found = timed.roll(effects(timed), y, unit, left, with_gap(plan, 1.0), *own)
    torch.testing.assert_close(found, even.roll(effects(even), y, unit, exposure, plan, *own))


@pytest.mark.parametrize("kind", ["additive", "local"])
def test_a_gap_of_four_steps_is_four_steps_without_a_dose(kind: str):
    """So it is exactly where a law is linear, whatever the effects of its own level."""
    timed, even = (
        decoder(FORMS[kind], fading=1, carry_overs=2),
        decoder(FORMS[kind], timed=False, fading=1, carry_overs=2),
    )
    (y, unit, exposure), theta = start(1), effects(timed)
    theta[..., 1] = -theta[..., 1].abs()
    once = torch.tensor([1.0, 0.0]).expand(4, 1, 2)
    found = timed.roll(theta, y, unit, exposure * even.rates().decay_1J, with_gap(once, 4.0))
    steps = torch.cat([once, torch.zeros(4, 3, 2)], dim=1)
    torch.testing.assert_close(found[:, 0], even.roll(theta, y, unit, exposure, steps)[:, 3], rtol=1e-4, atol=1e-5)


def test_growth_by_shares_compounds_over_a_gap():
    module = decoder(RELATIVE)
    y, unit, exposure = start(1, n_exposures=2)
    theta = torch.zeros(4, 1, module.n_effects)
    theta[..., 0] = 0.05
    found = module.roll(theta, y, unit, exposure, with_gap(torch.zeros(4, 1, 2), 6.0))
    grown = module.scale.in_sd(found)[:, 0] / module.scale.in_sd(y)
    torch.testing.assert_close(grown, torch.full_like(grown, 1.05**6), rtol=1e-4, atol=0)


def test_covariates_over_a_gap_are_those_of_steps_without_a_dose():
    """Where none acts on another; doses of a step act in its first unit of time alone."""
    module = decoder(ADDITIVE, covariates=REACH, timed=False)
    law_of = module.covariates
    change = 0.1 * torch.randn(3, 3 + 1 + 4)
    change[:, :3] = -0.2 * torch.eye(3)
    law_of.change.weight.data = change
    rates, x, drift = module.rates(), torch.rand(5, 3), 0.1 * torch.rand(5, 3)
    level, exposure, dose = torch.rand(5, 1), torch.rand(5, 2), torch.ones(5, 2)
    stepped, left, given = x, exposure, dose
    for _ in range(3):
        stepped = law_of.after(stepped, drift, torch.cat([level, left, given], dim=-1), rates.change_GX)
        left, given = left * rates.decay_1J, torch.zeros(5, 2)
    found = law_of.after_gap(x, drift, torch.cat([level, exposure, dose], dim=-1), torch.full((5,), 3.0), rates)
    torch.testing.assert_close(found, stepped)


@pytest.mark.parametrize("covariates", [None, REACH])
def test_members_and_plans_that_begin_alike_are_rolled_out_as_each_alone(covariates: Reach | None):
    forms, more = (RELATIVE, LOCAL), {"carry_overs": 2, "fading": 2, "covariates": covariates}
    members = [decoder(*forms, seed=seed, **more) for seed in range(2)]
    y, unit, exposure = start(2)
    theta = torch.stack([effects(member) for member in members])
    exposure_RUJ = torch.stack([exposure, exposure / 2])
    own = [torch.rand(4, 3), torch.rand(2, 4, 3)] if covariates else []
    history_Q = torch.tensor([0, 0, 0, 2, 2, 3])
    doses, gaps = torch.randint(2, (6, 3, 2)).float(), torch.rand(6, 3) * 3 + 0.1
    doses[:3, 0], gaps[:3, 0] = doses[0, 0], gaps[0, 0]
    plan = with_gap(doses, gaps)
    together = members[0].roll(
        theta, y, unit, exposure_RUJ, plan, *own, history_Q=history_Q, rates=Rates.of_members(members)
    )
    for r, member in enumerate(members):
        mine = [values[history_Q] for values in (theta[r], y, unit, exposure_RUJ[r])]
        also = [own[0][history_Q], own[1][r][history_Q]] if own else []
        torch.testing.assert_close(together[r], member.roll(*mine, plan, *also))


@pytest.mark.parametrize("covariates", [None, REACH])
def test_what_is_learned_from_is_what_is_rolled_out(covariates: Reach | None):
    """The first step from each origin in training is that of a rollout; so are all where covariates do not follow."""
    module = decoder(RELATIVE, LOCAL, carry_overs=2, fading=1, covariates=covariates)
    rng = torch.Generator().manual_seed(5)
    z, y = torch.randn(3, 6, 5, generator=rng), torch.rand(3, 6, 2, generator=rng)
    given = with_gap(torch.randint(2, (3, 9, 2), generator=rng).float(), 0.2 + 3 * torch.rand(3, 9, generator=rng))
    previous, plan = given[:, :6], given[:, 1:].unfold(1, 3, 1).movedim(-1, 2)
    x = torch.rand(3, 6, 3, generator=rng)
    before = y if covariates is None else y[:, :, None].expand(-1, -1, 3, -1)
    args = (z, before, module.scale.units(y), previous, plan)
    more = [] if covariates is None else [x[:, :, None].expand(-1, -1, 3, -1)]
    taught = module(*args, *more)
    members = call_members(module, stack_members([dict(module.named_parameters())]), *(v[None] for v in (*args, *more)))
    torch.testing.assert_close(members[0], taught)
    at = (0, 2), (4, 1)
    own = [] if covariates is None else [x[at], module.covariates.drift(z)[at]]
    inputs = (module.theta(z), y, module.scale.units(y), module.exposures(previous), plan)
    rolled = module.roll(*(values[at] for values in inputs), *own)
    steps = 3 if covariates is None else 1
    torch.testing.assert_close(taught[at][:, :steps, :2], rolled[:, :steps])


def test_the_half_life_of_a_known_world_is_found():
    """Of a level that reverts while a drug wears off day by day, looked at on random days."""
    half_life, usual, rng = 4.0, 3.0, np.random.default_rng(0)
    gap, given = rng.integers(1, 8, size=(40, 12)), rng.integers(2, size=(40, 12)).astype(float)
    level, drug, seen = rng.normal(size=40), np.zeros(40), []
    for visit in range(12):
        seen.append(level.copy())
        drug += given[:, visit]
        for day in range(7):
            on = day < gap[:, visit]
            level = np.where(on, 0.9 * level - 0.4 * drug + 0.5 + rng.normal(scale=0.02, size=40), level)
            drug = np.where(on, drug * 0.5 ** (1 / half_life), drug)
    y = torch.from_numpy(np.stack(seen, axis=1)).float()[..., None]
    plan = torch.from_numpy(np.stack([given, gap / usual], axis=-1)).float()
    form = OutcomeForm("additive", zero=0.0, sd=1.0, mean=0.0, low=-99.0, high=99.0)
    torch.manual_seed(0)
    module = StructuredDecoder(1, [form], np.array([[1.0], [0.0]]), gaps=GapColumn(1, 1.0), hidden=8)
    z, previous = torch.ones(40, 12, 1), torch.nn.functional.pad(plan[:, :-1], (0, 0, 1, 0))
    optimiser = torch.optim.Adam(module.parameters(), lr=0.05)
    for _ in range(150):
        told = module(z, y, torch.ones_like(y), previous, plan[:, :, None])
        loss = (told[:, :-1, 0] - y[:, 1:]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    found = usual * np.log(0.5) / np.log(float(torch.sigmoid(module.decay_CL.detach())[0, 0]))
    assert found == pytest.approx(half_life, rel=0.05)


SMALL = EncoderConfig()
QUICK = {"epochs": 40, "learning_rate": 1e-2}
FITS = {
    "growth": (0.85, GrowthConfig(network=GrowthNetworkConfig(carry_overs=1, dropout=0.1, **QUICK)), {}),
    "costar": (0.95, None, {"decoder": "structured", "encoder": SMALL, "step_weights": "uniform", **QUICK}),
}


@pytest.mark.slow
@pytest.mark.parametrize("method", FITS)
def test_it_beats_counting_visits_as_even_steps(method: str, tmp_path: Path):
    most, settings, shared = FITS[method]
    errors = []
    for gaps in ("elapsed", "ignore"):
        data = dataset_of(visited(subjects=150), gaps, tmp_path)
        windows = factual_windows(data.panels[Part("source", "test")], 3)
        assert windows is not None
        trained = fit_method(data, method, settings, FinetuneConfig(members=1, **shared))
        assert not any("covariate" in warning for warning in trained.meta.get("warnings", ()))
        errors.append(rmse(model_of(trained), windows))
    assert errors[0] < most * errors[1]
