"""The causal transformer's network: sizes, formulas, causality, hidden covariates, members."""

import pytest
import torch

from costar_cli.methods.registry import METHODS
from costar_cli.methods.shared.members import call_members, named_params, stack_members
from costar_cli.methods.shared.relative_attention import RelativeTables
from costar_cli.methods.transformers.ct_network import CtNetwork
from costar_cli.methods.transformers.settings import CtConfig, CtErmConfig, CtNetworkConfig
from costar_cli.methods.transformers.units import Attention, FeedForward, Norm
from costar_cli.settings.presets import preset_settings
from tests.methods.ct_worlds import CT_SHAPE, attended, causal_rows, fed_forward, literal_ct

TUMOR, MIMIC, M5 = (0, 4, 1, 1), (25, 3, 2, 44), (47, 22, 1, 22)
ALL = [(3, 4, 2, 5), (0, 4, 1, 1), (2, 3, 1, 0)]


def paper(method: str, dataset: str) -> CtConfig | CtErmConfig:
    """Return a method's settings for a data set under the preset `paper`."""
    section = method.replace("-", "_") + ".network."
    values = {
        key.removeprefix(section): value
        for key, (value, _) in preset_settings("paper", dataset).items()
        if key.startswith(section)
    }
    return METHODS[method].settings_class.model_validate({"network": values})


@pytest.mark.parametrize(
    ("method", "dataset", "dims", "count"),
    [
        ("ct", "tumor", TUMOR, 9_317),
        ("ct-erm", "tumor", TUMOR, 5_131),
        ("ct", "mimic", MIMIC, 43_877),
        ("ct-erm", "mimic", MIMIC, 43_877),
        ("ct", "m5", M5, 79_106),
    ],
)
def test_parameter_counts_are_those_of_the_paper_without_its_unused_layer(method, dataset, dims, count):
    network = CtNetwork(dims, paper(method, dataset).network)
    assert sum(value.numel() for value in network.parameters()) == count


def test_epochs_and_patience_of_the_paper_hold_under_its_preset_alone():
    assert (paper("ct", "tumor").network.epochs, paper("ct", "tumor").network.patience) == (150, 150)
    assert (paper("ct", "mimic").network.epochs, paper("ct", "mimic").network.patience) == (200, 20)
    assert not any(key.startswith("ct.network.epochs") for key in preset_settings("default", "tumor"))


def world(dims: tuple[int, int, int, int], batch: int = 6, steps: int = 11):
    torch.manual_seed(0)
    network = CtNetwork(dims, CtNetworkConfig.model_validate(CT_SHAPE)).double()
    history, plan = torch.randn(batch, steps, sum(dims[:3])).double(), torch.randn(batch, steps, dims[1]).double()
    hidden = (torch.arange(steps) >= torch.tensor([0, 1, 3, 8, steps, steps])[:, None]).double()
    return network, history, torch.randn(batch, dims[3]).double(), hidden, plan


@pytest.mark.parametrize("dims", ALL)
def test_the_network_is_the_one_of_the_formulas(dims):
    network, *inputs = world(dims)
    _, outcomes = network(*inputs)
    torch.testing.assert_close(outcomes, literal_ct(network, *inputs), rtol=1e-5, atol=1e-6)


def test_the_norm_divides_by_the_unbiased_deviation():
    values = torch.tensor([[1.0, 2.0, 6.0]])
    assert Norm(1, 3)(values).tolist()[0] == pytest.approx([-2 / 7**0.5, -1 / 7**0.5, 3 / 7**0.5], abs=1e-6)


@pytest.mark.parametrize("dims", ALL)
def test_nothing_after_a_step_changes_its_outcome(dims):
    network, history, statics, hidden, plan = world(dims)
    _, before = network(history, statics, hidden, plan)
    history, plan = history.clone(), plan.clone()
    history[:, 6:], plan[:, 6:] = 99, -99
    _, after = network(history, statics, hidden, plan)
    torch.testing.assert_close(after[:, :6], before[:, :6], rtol=0, atol=1e-12)
    assert (after[:, 6:] - before[:, 6:]).abs().amax(dim=(0, 2)).min() > 1e-3


def test_hidden_covariates_change_nothing_and_visible_ones_do():
    network, history, statics, hidden, plan = world(ALL[0])
    _, before = network(history, statics, hidden, plan)
    changed = torch.where(hidden[..., None].bool() & (torch.arange(9) < 3), 99.0, history)
    torch.testing.assert_close(network(changed, statics, hidden, plan)[1], before, rtol=0, atol=1e-12)
    seen = history.clone()
    seen[:, 0, :3] += 1
    moved = (network(seen, statics, hidden, plan)[1] - before).abs().amax(dim=(1, 2))
    assert moved[0] == 0
    assert moved[1:].min() > 1e-4


def test_what_is_known_before_the_split_does_not_depend_on_it():
    network, history, statics, hidden, plan = world(ALL[0])
    _, late = network(history, statics, torch.zeros_like(hidden), plan)
    _, early = network(history, statics, hidden, plan)
    torch.testing.assert_close(early * (1 - hidden[..., None]), late * (1 - hidden[..., None]), rtol=0, atol=1e-12)
    assert ((early - late).abs() * hidden[..., None]).max() > 1e-3


@pytest.mark.parametrize("dims", ALL)
def test_members_called_together_equal_members_called_apart(dims):
    network, *inputs = world(dims)
    others = [CtNetwork(dims, network.config).double() for _ in range(2)]
    params = stack_members([named_params(module) for module in (network, *others)])
    masks = {n: (torch.rand(3, 6, *s) > 0.1).double() for n, s in network.mask_shapes(11).items()}
    together = call_members(network, params, *(x.expand(3, *x.shape) for x in inputs), masks)
    for r in range(3):
        own = {n: v[r : r + 1] for n, v in params.items()}
        apart = call_members(network, own, *(x[None] for x in inputs), {n: m[r : r + 1] for n, m in masks.items()})
        for some, all_ in zip(apart, together, strict=True):
            torch.testing.assert_close(some[0], all_[r], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("projected", [False, True])
def test_dropout_thins_probabilities_and_what_passes_the_feed_forward_unit(projected):
    torch.manual_seed(0)
    attention, tables = Attention(2, 8, 2, 0.25, projected=projected).double(), RelativeTables(9, 4).double()
    values, sources = torch.randn(2, 2, 3, 7, 8).double().unbind(0)
    mask = (torch.rand(3, 2, 2, 7, 7) > 0.25).double()
    out = attention(values, sources, tables, {"a": mask}, "a")
    causal, rows = torch.ones(3, 7, 7, dtype=torch.bool).tril(), causal_rows(7, 4)
    for unit in range(2):
        expected = attended(attention, unit, values[unit], sources[unit], causal, rows, tables, mask[:, unit] / 0.75)
        torch.testing.assert_close(out[unit], expected, rtol=1e-5, atol=1e-6)
    feed_forward = FeedForward(2, 8, 0.25).double()
    masks = {n: (torch.rand(3, *s) > 0.25).double() for n, s in feed_forward.mask_shapes("f", 7).items()}
    out = feed_forward(values, masks, "f")
    for unit in range(2):
        factors = (masks["f.inner"][:, unit] / 0.75, masks["f.outer"][:, unit] / 0.75)
        torch.testing.assert_close(
            out[unit], fed_forward(feed_forward, unit, values[unit], factors), rtol=1e-5, atol=1e-6
        )
