"""EDCT: sizes, formulas of encoder and decoder, what the decoder learns from, and that it walks as it was trained."""

import numpy as np
import pytest
import torch

from costar_cli.data import Dataset
from costar_cli.errors import DataError
from costar_cli.methods import METHODS
from costar_cli.methods.base import FinalStage
from costar_cli.methods.shared.members import member_module, submodule
from costar_cli.methods.transformers.edct import DecoderStage, EdctModel
from costar_cli.methods.transformers.edct_network import EdctDecoder, EdctEncoder
from costar_cli.methods.transformers.settings import EdctConfig
from costar_cli.settings.presets import preset_settings
from tests.methods.ct_worlds import EDCT_SHAPE, SETTINGS, ask, attended, causal_rows, fed_forward, fit, task
from tests.methods.rnn_worlds import ward

DIMS = {"tumor": (0, 4, 1, 1), "mimic": (25, 3, 2, 44), "m5": (47, 22, 1, 22)}
SHAPE = EdctConfig.model_validate(EDCT_SHAPE)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return ward()


@pytest.fixture(scope="module")
def model(dataset) -> EdctModel:
    return fit("edct", dataset)[1]


def settings_for(dataset: str) -> EdctConfig:
    values = {"encoder": {}, "decoder": {}}
    for key, (value, _) in preset_settings("default", dataset).items():
        section, _, rest = key.partition(".")
        if section == "edct":
            network, name = rest.split(".")
            values[network][name] = value
    return EdctConfig.model_validate(values)


def lin(n_in: int, n_out: int) -> int:
    return n_in * n_out + n_out


def head(s: int, r: int, f: int, da: int, dy: int) -> int:
    return lin(s, r) + lin(r, f) + lin(f, da) + lin(r + da, f) + lin(f, dy)


@pytest.mark.parametrize(
    ("data", "horizon", "encoder", "decoder"),
    [("tumor", 6, 10_121, 12_209), ("mimic", 11, 147_181, 341_346), ("m5", 6, 159_055, 340_152)],
)
def test_parameter_counts_follow_from_the_sizes(data, horizon, encoder, decoder):
    settings, dims = settings_for(data), DIMS[data]
    _, da, dy, dv = dims
    e, d, steps = settings.encoder, settings.decoder, horizon - 1
    s, r = e.width, e.representation
    attention, forward = lambda w: 3 * w * w + 5 * w, lambda w: 8 * w * w + 7 * w
    expected = (
        lin(sum(dims), s)
        + 2 * (2 * e.clip_distance + 1) * (s // e.heads)
        + e.layers * (attention(s) + lin(s, s) + forward(s))
        + head(s, r, e.hidden, da, dy),
        lin(da + dy + dv, r)
        + 2 * (2 * steps + 1 + d.clip_distance + 1) * (r // d.heads)
        + d.layers * (2 * attention(r) + forward(r))
        + head(r, d.representation, d.hidden, da, dy),
    )
    networks = EdctEncoder(dims, e), EdctDecoder(dims, r, steps, d)
    assert tuple(sum(v.numel() for v in network.parameters()) for network in networks) == expected == (encoder, decoder)


def test_the_encoder_is_the_one_of_the_formulas():
    torch.manual_seed(0)
    network = EdctEncoder((2, 3, 2, 4), SHAPE.encoder).double()
    history, statics, plan = (torch.randn(5, *s).double() for s in ((9, 7), (4,), (9, 3)))
    tokens = network.embedding(torch.cat([history, statics[:, None].expand(-1, 9, -1)], dim=-1))
    causal, rows = torch.ones(5, 9, 9, dtype=torch.bool).tril(), causal_rows(9, SHAPE.encoder.clip_distance)
    for block in network.block_list:
        own = attended(block.own, 0, tokens, tokens, causal, rows, network.tables)
        tokens = fed_forward(block.feed_forward, 0, own)
    representation = network.head.represent(tokens)
    found, outcomes = network(history, statics, plan)
    torch.testing.assert_close(found, representation, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(outcomes, network.head.outcomes(representation, plan), rtol=1e-5, atol=1e-6)


def test_the_decoder_is_the_one_of_the_formulas():
    torch.manual_seed(0)
    steps, window = 4, 7
    network = EdctDecoder((2, 3, 2, 4), 6, steps, SHAPE.decoder).double()
    memory, inputs, plan = (torch.randn(5, *s).double() for s in ((window, 6), (steps, 9), (steps, 3)))
    length = torch.tensor([1, 2, 4, 7, 7])
    seen = torch.arange(window) >= window - length[:, None]
    tokens = network.embedding(inputs)
    causal = torch.ones(5, steps, steps, dtype=torch.bool).tril()
    distance = window - 1 - torch.arange(window) + torch.arange(steps)[:, None]
    assert network.cross_tables.key.shape[0] == SHAPE.decoder.clip_distance + 1
    assert network.own_tables.key.shape[0] == 2 * steps + 1
    back = SHAPE.decoder.clip_distance - distance.clamp(max=SHAPE.decoder.clip_distance)
    for block in network.block_list:
        own = attended(block.own, 0, tokens, tokens, causal, causal_rows(steps, steps), network.own_tables)
        looked = attended(block.cross, 0, own, memory, seen[:, None].expand(-1, steps, -1), back, network.cross_tables)
        tokens = fed_forward(block.feed_forward, 0, looked)
    expected = network.head.outcomes(network.head.represent(tokens), plan)
    _, outcomes = network(memory, (~seen).double(), inputs, plan)
    torch.testing.assert_close(outcomes, expected, rtol=1e-5, atol=1e-6)
    _, blind = network(torch.where(seen[..., None], memory, 99.0), (~seen).double(), inputs, plan)
    torch.testing.assert_close(blind, outcomes, rtol=0, atol=1e-12)


@pytest.fixture(scope="module")
def decoder_stage(dataset) -> DecoderStage:
    fitting = METHODS["edct"].fit(task(dataset, "edct", members=2))
    encoder = next(fitting)
    members = [encoder.initial(r)[0] for r in range(2)]
    last = fitting.send({n: torch.stack([m[n].double() for m in members]) for n in members[0]})
    assert isinstance(last, FinalStage)
    return last.stage


def test_the_decoder_learns_from_every_origin_with_observed_outcomes(decoder_stage, dataset):
    stage, steps = decoder_stage, dataset.horizon - 1
    panel = stage.rows["train"].panel
    length = panel.length_N.tolist()
    expected = [(n, t) for n in range(len(length)) for t in range(1, length[n] - 1 - steps)]
    rows = stage.rows["train"]
    assert list(zip(rows.subject_M.tolist(), rows.start_M.tolist(), strict=True)) == expected
    assert stage.n_train == len(expected)
    batch = stage.batch("train", {"member": torch.tensor([1.0])}, torch.arange(stage.n_train)[None], [])
    (memory, hidden, inputs, plan), windows = (x[0] for x in batch.inputs), batch.windows
    assert bool(windows.active.all())
    for row in range(0, len(expected), 17):
        n, t = expected[row]
        assert hidden[row].tolist() == [1.0] * (memory.shape[1] - t) + [0.0] * t
        assert torch.equal(memory[row, -t:], rows.encoded_RNTD[1, n, :t])
        at = range(t, t + steps)
        known = [torch.cat([panel.a_NTA[n, s - 1], panel.y_NTY[n, s], panel.v_NV[n]]) for s in at]
        assert torch.equal(inputs[row], torch.stack(known))
        assert torch.equal(plan[row], panel.a_NTA[n, t : t + steps])
        assert torch.equal(windows.target[0, row], panel.y_NTY[n, t + 1 : t + 1 + steps])


def test_each_member_decodes_its_own_representations(decoder_stage):
    rows = torch.arange(6).expand(2, 6)
    both = decoder_stage.batch("train", {"member": torch.tensor([0.0, 1.0])}, rows, []).inputs[0]
    for member in range(2):
        alone = decoder_stage.batch("train", {"member": torch.tensor([float(member)])}, rows[:1], []).inputs[0]
        assert torch.equal(both[member], alone[0])
    assert not torch.equal(both[0], both[1])
    assert float(decoder_stage.initial(1)[1]["member"]) == 1


def test_the_decoder_walks_as_it_was_trained(model, dataset):
    """A walk fed with observed outcomes gives what the training pass gives for the same origin."""
    panel = model.scaled(dataset.panel("source", "test"))
    states, steps = model.encode_history(1, panel), dataset.horizon - 1
    begin = states.walks(slice(0, len(panel.v_NV)))
    subjects, origin = torch.tensor([0, 2, 3]), 3
    walk = begin(subjects, origin)
    observed = [panel.y_NTY[subjects, origin + 1 + j][:, None] for j in range(steps)]
    given = [panel.a_NTA[subjects, origin + j][:, None] for j in range(steps + 1)]
    with torch.no_grad():
        first = walk.first(given[0])
        walked = [walk.next(observed[j], given[j], given[j + 1]) for j in range(steps)]
        inputs = torch.cat(
            [torch.cat([given[j], observed[j], panel.v_NV[subjects][:, None]], dim=-1) for j in range(steps)], dim=1
        )
        memory = states.representation_NTr[subjects, : origin + 1]
        plan = torch.cat(given[1:], dim=1)
        _, whole = states.decoder(memory, torch.zeros(memory.shape[:2]), inputs, plan)
        _, one = states.encoder(panel.history_NTS[subjects], panel.v_NV[subjects], panel.a_NTA[subjects])
    torch.testing.assert_close(torch.cat(walked, dim=1), whole, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(first[:, 0], one[:, origin], rtol=1e-4, atol=1e-5)


def test_rollouts_feed_predictions_back(model, dataset):
    """Answers one by one, encoder and decoder run anew for each step (spec EDCT-5)."""
    panel = dataset.panel("source", "test")
    queries, seen = ask(dataset, panel, n=14), model.scaled(panel)
    answers = model.rollout(panel, queries)
    sd = model.scaler.outcomes[1]
    encoder = member_module(EdctEncoder(dataset.schema.dims, SHAPE.encoder), model.params_of("encoder"), 0)
    decoder = member_module(
        EdctDecoder(dataset.schema.dims, 6, dataset.horizon - 1, SHAPE.decoder), model.params_of("decoder"), 0
    )
    for q, (n, origin) in enumerate(zip(queries.subject.tolist(), queries.origin.tolist(), strict=True)):
        plan = torch.from_numpy(queries.plan[q]).float()
        upto = seen.history_NTS[n : n + 1, : origin + 1]
        given = torch.cat([seen.a_NTA[n : n + 1, :origin], plan[None, :1]], dim=1)
        with torch.no_grad():
            memory, outcomes = encoder(upto, seen.v_NV[n : n + 1], given)
            predicted = [outcomes[0, -1]]
            for j in range(1, dataset.horizon):
                inputs = torch.stack([torch.cat([plan[i], predicted[i], seen.v_NV[n]]) for i in range(j)])
                _, later = decoder(memory, torch.zeros(1, origin + 1), inputs[None], plan[None, 1 : j + 1])
                predicted.append(later[0, -1])
        expected = model.scaler.unscale_outcomes(torch.stack(predicted).numpy())
        np.testing.assert_allclose(answers[0, q] / sd, expected / sd, rtol=1e-4, atol=1e-5)


def test_series_too_short_for_a_decoder_are_an_error():
    with pytest.raises(DataError, match="no subject has enough steps to learn 11 predicted steps"):
        fit("edct", ward(horizon=11))


def test_confusion_and_averages_reach_both_networks(dataset):
    _, plain = fit("edct", dataset, members=1, epochs=1)
    _, confused = fit("edct with confusion", dataset, members=1, epochs=1)
    assert SETTINGS["edct with confusion"].averaging == 0.99
    for network in ("encoder.", "decoder."):
        one, other = (submodule(model.params, network) for model in (plain, confused))
        assert not any(torch.equal(one[key], other[key]) for key in one if key.endswith("weight"))
