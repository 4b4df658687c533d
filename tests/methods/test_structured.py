"""The structured decoder: its recurrence, known laws that it rolls out, forms of outcomes, and safe gradients."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from costar_cli.data import Scaler, TreatmentEncoding, Variable
from costar_cli.methods.mixed.law import carried
from costar_cli.methods.shared.covariate_transition import Rates, Reach
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.members import call_members, named_params, stack_members
from costar_cli.methods.shared.outcome_forms import OutcomeForm, choose_forms, usual_size
from costar_cli.methods.shared.outcome_scale import OutcomeScale
from costar_cli.methods.shared.structured import StructuredDecoder
from tests.methods.linear_worlds import random_dataset

BINARY = np.eye(2)
RELATIVE = OutcomeForm("relative", zero=-0.5, sd=0.8, mean=0.6, low=0.0, high=50.0)
ADDITIVE = OutcomeForm("additive", zero=0.1, sd=1.2, mean=-0.1, low=-9.0, high=9.0)
LOCAL = OutcomeForm("local", zero=-0.3, sd=1.0, mean=0.4, low=0.0, high=30.0)
FORMS = {"relative": RELATIVE, "additive": ADDITIVE, "local": LOCAL}


def decoder(*forms: OutcomeForm, carry_overs: int = 1, fading: int = 0) -> StructuredDecoder:
    torch.manual_seed(0)
    return StructuredDecoder(5, forms, BINARY, carry_overs=carry_overs, fading=fading, hidden=7)


def inputs(n_outcomes: int, n: int = 3, steps: int = 6, horizon: int = 4) -> tuple[torch.Tensor, ...]:
    rng = torch.Generator().manual_seed(1)
    z, y = torch.randn(n, steps, 5, generator=rng), torch.rand(n, steps, n_outcomes, generator=rng)
    previous, plan = (torch.randint(2, (n, steps, *shape, 2), generator=rng).float() for shape in ((), (horizon,)))
    return z, y, previous, plan


def predict(module: StructuredDecoder, z, y, previous, plan) -> torch.Tensor:
    return module(z, y, module.scale.units(y), previous, plan)


def test_its_shapes_are_known_without_values_and_without_the_compiler(monkeypatch: pytest.MonkeyPatch):
    """To load a model takes its shapes; the compiler, which PyTorch imports for arithmetic on no values, a second."""
    for name in ("torch._dynamo", "sympy"):
        monkeypatch.setitem(sys.modules, name, None)
    with torch.device("meta"):
        module = StructuredDecoder(5, [RELATIVE], BINARY, carry_overs=2, fading=1, covariates=REACH)
    assert module.effects[0].weight.is_meta
    assert module.decay_CL.shape == (2, 2)


@pytest.mark.parametrize("carry_overs", [1, 2])
@pytest.mark.parametrize("steps", [1, 2, 7, 16])
def test_exposures_are_those_of_the_recurrence(steps: int, carry_overs: int):
    module, dose = decoder(ADDITIVE, carry_overs=carry_overs), np.random.default_rng(0).integers(2, size=(3, steps, 2))
    decay = torch.sigmoid(module.decay_CL).detach().double().numpy()
    found = module.exposures(torch.from_numpy(dose).float()).detach()
    np.testing.assert_allclose(found, carried(dose.astype(float), decay), rtol=1e-5)


def test_a_law_that_is_known_is_rolled_out_as_by_hand():
    """Growth of 10 % a step, less a third of it for what is left of a dose."""
    module = decoder(RELATIVE)
    theta = torch.tensor([[[0.1, 0.0, -0.3, 0.0]]])
    plan = torch.tensor([[[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]])
    left, decay, expected = 0.5, float(torch.sigmoid(module.decay_CL.detach())[0, 0]), [2.0]
    for given in (1, 0, 0):
        left = decay * left + given
        expected.append(expected[-1] * (1 + 0.1 - 0.3 * left))
    y = module.scale.standardised(torch.tensor([[2.0]]))
    found = module.roll(theta, y, torch.ones(1, 1), torch.tensor([[0.5, 0.0]]), plan)
    torch.testing.assert_close(module.scale.in_sd(found)[0, :, 0].detach(), torch.tensor(expected[1:]))


@pytest.mark.parametrize("kind", FORMS)
def test_without_effects_the_last_value_stays(kind: str):
    module = decoder(FORMS[kind], fading=1)
    nn.init.zeros_(module.effects[-1].weight)
    z, y, previous, plan = inputs(1)
    found = predict(module, z, y, previous, plan)
    torch.testing.assert_close(found, y[:, :, None].clamp(min=FORMS[kind].zero).expand_as(found), atol=1e-5, rtol=1e-5)


def test_a_step_of_the_plan_changes_no_step_before_it():
    module, (z, y, previous, plan) = decoder(RELATIVE, LOCAL, ADDITIVE, carry_overs=2, fading=1), inputs(3)
    before = predict(module, z, y, previous, plan)
    plan[:, :, 2] = 1 - plan[:, :, 2]
    after = predict(module, z, y, previous, plan)
    assert torch.equal(before[:, :, :2], after[:, :, :2])
    assert (before[:, :, 2:] != after[:, :, 2:]).flatten(2).any(dim=2).all()


def test_answers_of_one_origin_are_those_of_all_origins_at_once():
    module, (z, y, previous, plan) = decoder(RELATIVE, LOCAL, carry_overs=2, fading=2), inputs(2)
    unit = module.scale.units(y)
    whole = predict(module, z, y, previous, plan)
    theta, exposure = module.theta(z), module.exposures(previous)
    one = module.roll(theta[1, 3:4], y[1, 3:4], unit[1, 3:4], exposure[1, 3:4], plan[1, 3:4])
    torch.testing.assert_close(one[0], whole[1, 3])
    shorter = [values[:, :4] for values in (z, y, previous, plan)]
    torch.testing.assert_close(predict(module, *shorter), whole[:, :4])


REACH = ([-2.0, -2.0, -2.0], [2.0, 2.0, 2.0])


@pytest.mark.parametrize("covariates", [None, REACH])
def test_plans_that_begin_alike_are_rolled_out_together_until_they_part(covariates: Reach | None):
    torch.manual_seed(0)
    module = StructuredDecoder(5, (RELATIVE, LOCAL), BINARY, carry_overs=2, fading=1, covariates=covariates)
    history_Q = torch.tensor([2] * 8 + [0] * 8 + [2, 1])  # the second of four is asked about twice, the last never
    every = torch.cartesian_prod(*[torch.arange(2.0)] * 3)[:, :, None].expand(-1, -1, 2)
    plan_QHA = torch.cat([every, every[torch.randperm(8)], every[:1], every[:1]])
    start = [torch.rand(4, 2, module.n_effects), torch.rand(4, 2), torch.rand(4, 2), torch.rand(4, 4)]
    more = [torch.rand(4, 3), torch.rand(4, 3)] if covariates else []
    steps: list[int] = []
    module._step, own = lambda *args: (steps.append(len(args[1])), own(*args))[1], module._step
    shared = module.roll(*start, plan_QHA, *more, history_Q=history_Q)
    assert steps[0] < steps[1] < steps[2] == len(history_Q)
    alone = module.roll(*(values[history_Q] for values in start), plan_QHA, *(values[history_Q] for values in more))
    torch.testing.assert_close(shared, alone)


@pytest.mark.parametrize("covariates", [None, REACH])
def test_members_rolled_out_together_are_each_alone(covariates: Reach | None):
    torch.manual_seed(0)
    forms, more = (RELATIVE, LOCAL), {"carry_overs": 2, "fading": 2, "covariates": covariates}
    members = [StructuredDecoder(5, forms, BINARY, **more) for _ in range(2)]
    for member in members:
        for values in member.parameters():
            values.data = torch.randn_like(values) / 2
    y, unit, plan = torch.rand(3, 2), torch.rand(3, 2), torch.randint(2, (3, 4, 2)).float()
    theta, exposure = torch.randn(2, 3, 2, members[0].n_effects) / 4, torch.rand(2, 3, 4)
    own = [torch.rand(2, 3, 3), torch.rand(2, 3, 3)] if covariates else []
    together = members[0].roll(theta, y, unit, exposure, plan, *own, rates=Rates.of_members(members))
    assert not torch.allclose(*together)
    for r, member in enumerate(members):
        alone = member.roll(theta[r], y, unit, exposure[r], plan, *(values[r] for values in own))
        torch.testing.assert_close(together[r], alone)
        other = members[1 - r].roll(theta[r], y, unit, exposure[r], plan, *(values[r] for values in own))
        assert not torch.allclose(together[r], other)


def test_a_course_that_follows_the_forecast_is_taught_what_is_rolled_out():
    """Each step from the truth before it is the rollout where the truth is what was rolled out."""
    torch.manual_seed(0)
    forms = (RELATIVE, LOCAL)
    module = StructuredDecoder(5, forms, BINARY, carry_overs=2, fading=1, hidden=7, covariates=REACH)
    (z, y, previous, plan), x = inputs(2), torch.rand(3, 6, 3)
    law, unit, theta, exposure = module.covariates, module.scale.units(y), module.theta(z), module.exposures(previous)
    assert law is not None
    origin, horizon = 2, 3
    z = z[:, [origin]].expand_as(z)  # every origin knows the same, so that only what was true before a step differs
    theta, drift = module.theta(z)[:, origin], law.drift(z)[:, origin]
    plan = previous[:, origin + 1 : origin + 1 + horizon]  # what is given next is the plan
    start = theta, y[:, origin], unit[:, origin], exposure[:, origin], plan, x[:, origin], drift
    rolled = module.roll(*start)
    for step in range(1, horizon):
        y[:, origin + step] = rolled[:, step - 1]
    before = y[:, origin : origin + horizon]
    covariates = [x[:, origin]]
    for step in range(1, horizon):
        known = module(
            z,
            before[:, None].expand(-1, 6, -1, -1),
            unit,
            previous,
            plan[:, None].expand(-1, 6, -1, -1),
            torch.stack([*covariates, *[x[:, origin]] * (horizon - step)], dim=1)[:, None].expand(-1, 6, -1, -1),
        )
        covariates.append(known[:, origin, step - 1, 2:])
    taught = module(
        z,
        before[:, None].expand(-1, 6, -1, -1),
        unit,
        previous,
        plan[:, None].expand(-1, 6, -1, -1),
        torch.stack(covariates, dim=1)[:, None].expand(-1, 6, -1, -1),
    )
    torch.testing.assert_close(taught[:, origin, :, :2], rolled, atol=1e-5, rtol=1e-4)


def test_a_rollout_that_forecasts_covariates_is_told_where_they_stand():
    module, (z, y, previous, plan) = StructuredDecoder(5, [ADDITIVE], BINARY, covariates=REACH), inputs(1)
    unit, exposure = module.scale.units(y), module.exposures(previous)
    at_origin = (values[:, 0] for values in (module.theta(z), y, unit, exposure, plan))
    with pytest.raises(TypeError, match="knows where they are"):
        module.roll(*at_origin)


def test_forecast_covariates_stay_near_what_was_learned_from():
    torch.manual_seed(0)
    module = StructuredDecoder(5, [ADDITIVE], BINARY, covariates=REACH)
    assert module.covariates is not None
    x = torch.full((4, 3), 50.0)
    after = module.covariates.after(x, x, torch.zeros(4, 5))
    torch.testing.assert_close(after, torch.full((4, 3), 4.0))


def test_members_together_are_members_apart():
    module, given = decoder(RELATIVE, ADDITIVE, fading=1), inputs(2)
    members = [named_params(decoder(RELATIVE, ADDITIVE, fading=1)) for _ in range(2)]
    members[1] = {name: value + 0.1 for name, value in members[1].items()}
    arguments = (given[0], given[1], module.scale.units(given[1]), *given[2:])
    both = call_members(module, stack_members(members), *(torch.stack([value, value]) for value in arguments))
    for found, params in zip(both, members, strict=True):
        torch.testing.assert_close(found, functional_call(module, params, arguments))
    assert not torch.allclose(both[0], both[1])


@pytest.mark.parametrize("value", [-3.0, 0.0, 1e-7, 1e6])
def test_gradients_are_finite_whatever_the_outcomes(value: float):
    """Below zero, at zero, hardly above it, and far beyond what was seen; with large effects."""
    module, (z, _, previous, plan) = decoder(RELATIVE, LOCAL, ADDITIVE, carry_overs=2, fading=1), inputs(3)
    u = torch.full((*z.shape[:2], 3), value)
    y = module.scale.standardised(u)
    predicted = predict(module, 100 * z, y, previous, plan)
    penalty = module.penalty(predicted, torch.zeros_like(predicted), y, module.scale.units(y))
    penalty.mean().backward()
    assert torch.isfinite(penalty).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in module.parameters())
    assert torch.isfinite(module.scale.columns(y, module.scale.units(y))).all()


def test_columns_of_relative_outcomes_do_not_tell_the_unit_of_a_change():
    """Twice the outcome is the same change, and a level that is higher by log(2) / 4."""
    scale, u = OutcomeScale([RELATIVE]), torch.tensor([[[1.0], [1.5], [1.2]]])
    one, two = (scale.columns(scale.standardised(x), torch.ones_like(x)) for x in (u, 2 * u))
    torch.testing.assert_close(two[..., 1], one[..., 1], atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(two[..., 0] - one[..., 0], torch.full((1, 3), np.log(2) / 4), atol=1e-4, rtol=1e-4)


def test_local_units_are_running_means_that_know_no_later_step():
    scale, u = OutcomeScale([LOCAL]), torch.tensor([[[4.0], [0.0], [1.0]]])
    found = scale.units(scale.standardised(u))
    torch.testing.assert_close(found[0, :, 0], torch.tensor([4.2 / 3, 4.2 / 4, 5.2 / 5]))


def test_local_units_in_the_units_of_the_data_are_those_of_networks():
    scale, y = OutcomeScale([LOCAL]), np.random.default_rng(0).poisson(3.0, size=(4, 7, 1)).astype(float)
    sd = np.array([2.5])
    found = usual_size(y, np.arange(1, 8)[:, None], sd) / sd
    of_networks = scale.units(scale.standardised(torch.from_numpy(y / sd).float()))
    np.testing.assert_allclose(found, of_networks.numpy(), rtol=1e-5)


def test_the_penalty_is_in_the_scale_of_the_origin_and_grows_linearly_for_large_relative_errors():
    scale = OutcomeScale([RELATIVE])
    y, unit = scale.standardised(torch.tensor([[1.0], [10.0]])), torch.ones(2, 1)
    error_unit = scale.error_unit(y, unit)
    torch.testing.assert_close(error_unit[:, 0], torch.tensor([1.01, 10.01]))

    def penalty(error: float) -> torch.Tensor:
        return scale.penalty(y + error * error_unit * scale.sd_Y, y, error_unit)

    torch.testing.assert_close(penalty(0.05), torch.full((2, 1), 0.0025), atol=1e-6, rtol=1e-3)
    torch.testing.assert_close(penalty(3.0) - penalty(2.0), torch.full((2, 1), 0.2), atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize(
    ("kind", "shift", "form"),
    [("continuous", 0.0, "additive"), ("continuous", 50.0, "relative"), ("count", 50.0, "local")],
)
def test_forms_are_chosen_by_the_outcomes(kind: str, shift: float, form: str):
    dataset = random_dataset((1, 2, 1, 1), one_hot=False, horizon=3, n=8)
    panel = dataset.panel("source", "train")
    panel = replace(panel, outcomes=panel.outcomes - panel.outcomes.mean() + np.float32(shift))
    schema = dataset.schema.model_copy(update={"outcomes": (Variable(name="y", kind=kind),)})
    (chosen,) = choose_forms(panel, schema, Scaler.fit(panel, schema))
    assert chosen.kind == form
    assert choose_forms(panel, schema, Scaler.fit(panel, schema), "additive")[0].kind == "additive"


def test_an_outcome_that_returns_from_zero_is_local_and_one_that_was_never_observed_is_additive():
    dataset = random_dataset((1, 2, 1, 1), one_hot=False, horizon=3, n=8)
    panel, schema = dataset.panel("source", "train"), dataset.schema
    returning = replace(panel, outcomes=(panel.outcomes - panel.outcomes.mean()).clip(min=0))
    assert choose_forms(returning, schema, Scaler.fit(returning, schema))[0].kind == "local"
    unseen = replace(panel, outcome_observed=np.zeros_like(panel.outcomes, dtype=bool))
    assert choose_forms(unseen, schema, Scaler.fit(unseen, schema))[0].kind == "additive"


def test_filled_outcomes_say_nothing_of_the_form():
    dataset = random_dataset((1, 2, 1, 1), one_hot=False, horizon=3, n=8)
    panel, schema = dataset.panel("source", "train"), dataset.schema
    seen, scaler = panel.observed_outcomes.copy(), Scaler.fit(panel, schema)
    seen[:, 1] = False

    def forms(fill: float) -> tuple[OutcomeForm, ...]:
        outcomes = np.where(seen, panel.outcomes, np.float32(fill))
        return choose_forms(replace(panel, outcomes=outcomes, outcome_observed=seen), schema, scaler)

    assert forms(0.0) == forms(1e6)


def test_classes_are_decoded_to_factors():
    encoding = TreatmentEncoding(
        mode="multiclass",
        names=("a", "b"),
        levels=(("off", "on"), ("off", "on")),
        classes=((0, 0), (1, 0), (0, 1), (1, 1)),
    )
    module = StructuredDecoder(5, [RELATIVE], dose_table(encoding))
    assert module.n_effects == 1 + 1 + 2
    exposure = module.exposures(torch.eye(4)[None, :, :])
    assert exposure.shape == (1, 4, 2)
