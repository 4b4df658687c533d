"""G-Net: draws that belong to a history, simulated futures, residuals of subjects held out."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from costar_cli.data import Dataset
from costar_cli.errors import DataError
from costar_cli.methods.recurrent.futures import Draws, Residuals
from costar_cli.methods.recurrent.gnet import ConditionalHead, GNetModel, gnet_network
from costar_cli.methods.shared.members import member_module
from costar_cli.methods.shared.streams import Stream
from tests.methods.rnn_worlds import SETTINGS, ask, fit, tensors, ward


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return ward()


@pytest.fixture(scope="module")
def model(dataset) -> GNetModel:
    return fit("gnet", dataset, epochs=6)[1]


def with_samples(model: GNetModel, samples: int) -> GNetModel:
    return replace(model, settings=model.settings.model_copy(update={"samples": samples}))


def with_seed(model: GNetModel, seed: int) -> GNetModel:
    return replace(model, record=replace(model.record, config={**(model.record.config or {}), "seed": seed}))


def without_noise(model: GNetModel) -> GNetModel:
    return replace(model, params=model.params | {"residuals.value": model.params["residuals.value"] * 0})


def ids(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(n) // 10, torch.arange(n) % 10


def test_draws_are_uniform_and_differ_by_everything_that_names_them():
    count, samples = 7, 200
    draws = Draws.of(3, 0, *ids(100)).below(count, samples, 0)
    assert draws.shape == (100, samples)
    expected = draws.numel() / count
    chi_squared = ((torch.bincount(draws.flatten(), minlength=count) - expected) ** 2 / expected).sum()
    assert chi_squared < 22.5  # the 99.9 % quantile with 6 degrees of freedom
    others = {
        "seed": Draws.of(4, 0, *ids(100)).below(count, samples, 0),
        "member": Draws.of(3, 1, *ids(100)).below(count, samples, 0),
        "step": Draws.of(3, 0, *ids(100)).below(count, samples, 1),
        "history": draws.roll(1, 0),
        "sample": draws.roll(1, 1),
    }
    for name, other in others.items():
        assert (draws == other).float().mean().item() == pytest.approx(1 / count, abs=0.01), name


def test_draws_of_a_history_do_not_depend_on_its_company():
    subject, origin = ids(100)
    together = Draws.of(3, 0, subject, origin).below(50, 8, 2)
    alone = Draws.of(3, 0, subject[37:38], origin[37:38]).below(50, 8, 2)
    assert torch.equal(together[37:38], alone)


def test_the_hash_is_splitmix64():
    keys = Draws(torch.tensor([1234567])).below(2**31, 3, 0)
    state, expected = 1234567, []
    for sample in range(3):
        z = (state + (sample * 2**20 + 1) * 0x9E3779B97F4A7C15) % 2**64
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
        expected.append((z ^ (z >> 31)) >> 33)
    assert keys[0].tolist() == expected


def test_a_residual_is_taken_at_the_position_or_where_the_subject_ends():
    residuals = Residuals(torch.arange(24.0).view(2, 6, 2), torch.tensor([6, 3]))
    found = residuals.at(torch.tensor([[0, 1], [1, 0]]), torch.tensor([4, 1]))
    assert found[..., 0].tolist() == [[8.0, 16.0], [14.0, 2.0]]


def test_the_head_gives_later_outputs_what_it_said_of_earlier_ones():
    torch.manual_seed(0)
    head, o = ConditionalHead(4, 3, 5, n_outputs=5, components=2), torch.randn(6, 4)
    assert [network[2].out_features for network in head.networks] == [3, 2]
    assert [network[0].in_features for network in head.networks] == [3, 3 + 3]
    first = head.networks[0](torch.nn.functional.elu(head.representation(o)))
    second = head.networks[1](torch.cat([first, torch.nn.functional.elu(head.representation(o))], dim=-1))
    torch.testing.assert_close(head(o), torch.cat([first, second], dim=-1))


def test_residuals_are_true_less_predicted_of_the_subjects_held_out(dataset, model):
    panel = tensors(dataset)
    config, dims = SETTINGS["gnet"], dataset.schema.dims
    held_out = Stream(5, "gnet network", "holdout").permutation(40)[:4].sort().values
    length = panel.length_N[held_out] - 2  # with covariates, the last target has none
    assert model.params["residuals.length"].tolist() == [length.tolist()] * 2
    for member in range(2):
        network = member_module(gnet_network(dims, config), model.params_of("network"), member)
        for k, n in enumerate(held_out.tolist()):
            x, a, y = panel.x_NTX[n], panel.a_NTA[n], panel.y_NTY[n]
            inputs = torch.cat([a, x, y, panel.v_NV[n].expand(len(y), -1)], dim=-1)[:, None]
            predicted = network.head(network.run(inputs).outputs[0, :, 0])
            found = model.residuals(member).value_KTE[k]
            stop = int(length[k])
            expected = torch.cat([y[1:], x[1:]], dim=-1)[:stop] - predicted[:stop]
            torch.testing.assert_close(found[:stop], expected, rtol=1e-4, atol=1e-5)
            assert not found[stop:].any()


def test_without_noise_a_rollout_is_the_one_step_prediction_repeated(dataset, model):
    """Each prediction is written down as if observed, then the next is asked for from there."""
    silent = without_noise(model)
    panel = dataset.panel("target", "test")
    queries = ask(silent, panel, n=10)
    rolled = silent.rollout(panel, queries)
    for row in range(len(queries)):
        for member in range(2):
            n, origin = int(queries.subject[row]), int(queries.origin[row])
            network = member_module(silent.makes()["network"](), silent.params_of("network"), member)
            seen = silent.encode(panel).panel
            x, a, y = (series[n, : origin + 1].clone() for series in (seen.x_NTX, seen.a_NTA, seen.y_NTY))
            for h in range(silent.horizon):
                a[-1] = torch.from_numpy(queries.plan[row, h])
                inputs = torch.cat([a, x, y, seen.v_NV[n].expand(len(y), -1)], dim=-1)[:, None]
                predicted = network.head(network.run(inputs).outputs[0, -1, 0])
                found = silent.scaler.scale_outcomes(rolled[member, row, h])
                np.testing.assert_allclose(found, predicted[:2], rtol=1e-3, atol=1e-4)
                y, x = torch.cat([y, predicted[None, :2]]), torch.cat([x, predicted[None, 2:]])
                a = torch.cat([a, torch.zeros(1, 2)])


@pytest.mark.parametrize("length", [12, 4])
def test_futures_add_the_residual_of_the_step_that_they_were_predicted_from(dataset, model, length):
    """All subjects held out have the same residual at a position, so that it does not matter who is drawn."""
    value_RKTE = model.params["residuals.value"]
    position_T1, output_E = torch.arange(value_RKTE.shape[2])[:, None], torch.arange(value_RKTE.shape[3])
    residual_TE = 0.5 * torch.sin(1.3 * position_T1 + output_E)
    last = min(length, len(residual_TE)) - 1
    changed = {
        "residuals.value": residual_TE.expand_as(value_RKTE).contiguous(),
        "residuals.length": torch.full_like(model.params["residuals.length"], last + 1),
    }
    timed = replace(model, params=model.params | changed)
    panel = dataset.panel("target", "test")
    queries = ask(timed, panel, n=10)
    assert len(set(queries.origin.tolist())) > 3
    rolled = timed.rollout(panel, queries)
    seen = timed.encode(panel).panel
    for row, (n, origin) in enumerate(zip(queries.subject.tolist(), queries.origin.tolist(), strict=True)):
        network = member_module(timed.makes()["network"](), timed.params_of("network"), 1)
        x, a, y = (series[n, : origin + 1].clone() for series in (seen.x_NTX, seen.a_NTA, seen.y_NTY))
        for h in range(timed.horizon):
            a[-1] = torch.from_numpy(queries.plan[row, h])
            inputs = torch.cat([a, x, y, seen.v_NV[n].expand(len(y), -1)], dim=-1)[:, None]
            predicted = network.head(network.run(inputs).outputs[0, -1, 0])
            found = timed.scaler.scale_outcomes(rolled[1, row, h])
            np.testing.assert_allclose(found, predicted[:2], rtol=1e-3, atol=1e-4)
            noisy = predicted + residual_TE[min(origin + h, last)]
            y, x = torch.cat([y, noisy[None, :2]]), torch.cat([x, noisy[None, 2:]])
            a = torch.cat([a, torch.zeros(1, 2)])


def test_more_futures_leave_less_noise_and_the_same_mean(dataset, model):
    panel = dataset.panel("target", "test")
    queries = ask(model, panel, n=30)
    many = np.mean([with_seed(with_samples(model, 1000), s).rollout(panel, queries) for s in range(4)], axis=0)
    spread = {}
    for samples in (10, 160):
        draws = np.stack([with_seed(with_samples(model, samples), s).rollout(panel, queries) for s in range(12)])
        spread[samples] = float(np.sqrt(((draws - many)[:, :, :, 2:] ** 2).mean()))
    assert spread[10] / spread[160] == pytest.approx(4, rel=0.25)
    first = with_seed(model, 1).rollout(panel, queries)[:, :, 0]
    assert np.array_equal(first, model.rollout(panel, queries)[:, :, 0])  # nothing is drawn before the first step


def test_too_few_subjects_to_hold_some_out_are_refused(dataset):
    settings = SETTINGS["gnet"].model_copy(update={"holdout": 0.99})
    with pytest.raises(DataError, match="too few to both learn from"):
        fit("gnet", dataset, settings=settings)
