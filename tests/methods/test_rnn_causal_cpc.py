"""Causal CPC: what contexts are contrasted with, what bounds the information in representations, and its stages."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.nn import functional

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import TreatmentMode
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.recurrent.causal_cpc import (
    ContrastStage,
    OutcomeStage,
    contrast_network,
    info_nce,
    outcome_network,
)
from costar_cli.methods.recurrent.settings import CausalCpcConfig
from costar_cli.methods.shared.members import Params, stack_members
from costar_cli.methods.shared.stage import NetworkTraining
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.windows import SubjectRows
from tests.methods.rnn_worlds import fit, tensors, ward

DIMS = (2, 2, 2, 1)
STEPS, ORIGINS, ROWS = 3, 2, 6
CONFIG = CausalCpcConfig.model_validate(
    {
        "encoder": {"width": 5, "features": 4, "dropout": 0, "batch_size": 16},
        "decoder": {"representation": 4, "hidden": 6, "dropout": 0, "origins": ORIGINS, "batch_size": 16},
    }
)


@pytest.fixture(scope="module")
def panel() -> PanelTensors:
    return tensors(ward())


def contrast_stage(panel: PanelTensors) -> ContrastStage:
    return ContrastStage(
        NetworkTraining(
            name="contrast",
            make=partial(contrast_network, DIMS, CONFIG, STEPS),
            network=CONFIG.encoder,
            config=CONFIG.encoder.training(FinetuneConfig()),
            train=SubjectRows(panel),
            validation=SubjectRows(panel),
        )
    )


def outcome_stage(panel: PanelTensors, *, alpha: float = 1.0, mode: TreatmentMode = "multilabel") -> OutcomeStage:
    training = NetworkTraining(
        name="outcomes",
        make=partial(outcome_network, DIMS, CONFIG),
        network=CONFIG.decoder,
        config=CONFIG.decoder.training(FinetuneConfig()),
        train=SubjectRows(panel),
        validation=SubjectRows(panel),
    )
    return OutcomeStage(training, horizon=STEPS, origins=ORIGINS, alpha=alpha, mode=mode)


def started(stage: ContrastStage | OutcomeStage) -> tuple[Params, Params, torch.Tensor]:
    """Parameters that gradients reach, the state, and rows of one member; the module has the same parameters."""
    params, state = (stack_members([part]) for part in stage.initial(0))
    stage.network.load_state_dict({name: value[0] for name, value in params.items()})
    return {name: value.requires_grad_() for name, value in params.items()}, state, torch.arange(ROWS)[None]


def test_each_query_is_to_find_its_own_key_among_those_of_the_rows_that_count() -> None:
    queries, keys = torch.randn(2, 1, 4, 3, 5, generator=torch.Generator().manual_seed(0))
    active = torch.tensor([[1.0, 1, 0], [1, 1, 1], [0, 0, 0], [0, 1, 0]])
    found = info_nce(queries[None, 0], keys[None, 0], active[None])
    losses = []
    for query, key, counts in zip(queries[0], keys[0], active, strict=True):
        rows = counts.nonzero()[:, 0]
        if len(rows):
            losses.append(
                functional.cross_entropy(query[rows] @ key[rows].T, torch.arange(len(rows)), reduction="none")
            )
    torch.testing.assert_close(found, torch.cat(losses).mean()[None])


def test_contexts_are_contrasted_with_the_features_ahead_and_with_the_later_half_of_the_history(
    panel: PanelTensors,
) -> None:
    stage = contrast_stage(panel)
    params, state, rows = started(stage)
    loss, _ = stage.loss(params, state, rows, [Stream(1, "draws")])

    end_B, cut_B = Stream(1, "draws").uniform(2, ROWS, device=torch.device("cpu"))
    network, batch = stage.network, stage.train.batch(rows, torch.zeros(1, dtype=torch.long)).time_first()
    read_TBI = network.inputs(batch.column)[0]
    features_TBF = network.features(read_TBI)
    expected, foreseen, ahead, halves, later = [], [], [], [], []
    for b in range(ROWS):
        active = int(panel.length_N[b]) - 1
        end = int(end_B[b] * (active - 1))
        start = min(1 + int(cut_B[b] * end), end)
        contexts = network.run(read_TBI[:, b : b + 1]).outputs[0, :, 0]
        after = network.run(read_TBI[start : end + 1, b : b + 1]).outputs[0, -1, 0]
        ahead_KF, half = network.head(contexts[end][None], contexts[max(start - 1, 0)][None])
        steps = [end + k for k in range(1, STEPS + 1)]
        foreseen.append(ahead_KF[:, 0])
        expected.append(torch.stack([features_TBF[min(step, len(read_TBI) - 1), b] for step in steps]))
        ahead.append([float(step < active) for step in steps])
        halves.append(half[0])
        later.append((after, float(end > 0)))
    futures = info_nce(
        torch.stack(foreseen, dim=1)[None], torch.stack(expected, dim=1)[None], torch.tensor(ahead).T[None]
    )
    after_B, counts_B = (torch.stack([torch.as_tensor(value) for value in part]) for part in zip(*later, strict=True))
    torch.testing.assert_close(loss, futures + info_nce(torch.stack(halves)[None], after_B[None], counts_B[None]))


def test_keys_learn_too(panel: PanelTensors) -> None:
    stage = contrast_stage(panel)
    params, state, rows = started(stage)
    stage.loss(params, state, rows, [Stream(1, "draws")])[0].sum().backward()
    assert all(value.grad.any() for value in params.values())


@pytest.mark.parametrize("mode", ["multilabel", "multiclass"])
def test_the_bound_is_the_log_ratio_of_own_treatments_to_those_of_all_origins(
    panel: PanelTensors, mode: TreatmentMode
) -> None:
    """The contrastive log-ratio upper bound, over all pairs of origins and not over drawn ones."""
    if mode == "multiclass":
        panel = replace(panel, a_NTA=functional.one_hot(panel.a_NTA[..., 0].long(), 2).to(panel.a_NTA))
    stage = outcome_stage(panel, mode=mode)
    params, _, rows = started(stage)
    batch = stage.train.batch(rows, torch.zeros(1, dtype=torch.long)).time_first()
    share = torch.rand(1, ROWS, ORIGINS, generator=torch.Generator().manual_seed(0))
    windows, _, representations = stage._decoded(params, batch, share)
    guess = stage.network.head.balanced.treatment

    def log_likelihood(representation: torch.Tensor, treatment: torch.Tensor) -> torch.Tensor:
        logits = guess(representation)
        if mode == "multiclass":
            return -functional.cross_entropy(logits[None], treatment[None])
        return -functional.binary_cross_entropy_with_logits(logits, treatment)

    ratios, likelihoods = [], []
    for step in range(STEPS):
        active = [m for m in range(ROWS * ORIGINS) if windows.active[0, m, step]]
        given = {m: windows.treatment[0, m, step] for m in active}
        for m in active:
            own = log_likelihood(representations[0, m, step], given[m])
            others = [log_likelihood(representations[0, m, step], given[n]) for n in active]
            ratios.append(own - torch.stack(others).mean())
            likelihoods.append(own)
    bound, found = torch.stack(ratios).mean(), stage._told(params, representations, windows)[0]
    torch.testing.assert_close(found, bound - torch.stack(likelihoods).mean())
    slopes = (torch.autograd.grad(value, representations, retain_graph=True)[0] for value in (found, bound))
    torch.testing.assert_close(*slopes)


def test_the_bound_moves_representations_alone_and_guesses_the_network_that_guesses(panel: PanelTensors) -> None:
    stage, without = outcome_stage(panel), outcome_stage(panel, alpha=0.0)
    params, state, rows = started(stage)
    guesses = [name for name in params if ".treatment." in name]

    def slopes(of: OutcomeStage, names: list[str]) -> list[torch.Tensor]:
        loss, _ = of.loss(params, state, rows, [Stream(1, "draws")])
        return list(torch.autograd.grad(loss.sum(), [params[name] for name in names], materialize_grads=True))

    assert not any(slope.any() for slope in slopes(without, guesses))
    batch = stage.train.batch(rows, torch.zeros(1, dtype=torch.long)).time_first()
    drawn = Stream(1, "draws").uniform(ROWS, ORIGINS, device=torch.device("cpu"))[None]
    windows, _, representations = stage._decoded(params, batch, drawn)
    logits = stage.network.head.balanced.treatment.requires_grad_()(representations[0].detach())
    error = functional.binary_cross_entropy_with_logits(logits, windows.treatment[0], reduction="none").mean(dim=-1)
    lost = (error * windows.active[0]).sum() / windows.active[0].sum()
    expected = torch.autograd.grad(lost, list(stage.network.head.balanced.treatment.parameters()))
    for found, own in zip(slopes(stage, guesses), expected, strict=True):
        torch.testing.assert_close(found[0], own)
    encoder = [name for name in params if name.startswith("lstm.")]
    assert any(not torch.equal(a, b) for a, b in zip(slopes(stage, encoder), slopes(without, encoder), strict=True))


def test_the_decoder_is_a_gated_recurrent_unit_on_its_own_predictions(panel: PanelTensors) -> None:
    decoder = outcome_stage(panel).network.head
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(0))
    context, outcome, statics, plan = draw(7, 5), draw(7, 2), draw(7, 1), draw(7, STEPS, 2)
    outcomes, representations = decoder(context, outcome, statics, plan)
    state, previous = context, torch.zeros(7, 2)
    for step in range(STEPS):
        state = decoder.cell(torch.cat([previous, outcome, statics], dim=-1), state)
        balanced = decoder.balanced(state, plan[:, step])
        torch.testing.assert_close(representations[:, step], balanced.representation)
        torch.testing.assert_close(outcomes[:, step], balanced.outcomes)
        outcome, previous = balanced.outcomes, plan[:, step]


def test_outcomes_are_learned_from_predictions_and_not_from_observed_outcomes(panel: PanelTensors) -> None:
    """No outcome between origin and end is read: only what is compared with changes where they do."""
    stage = outcome_stage(panel)
    params, _, rows = started(stage)
    batch = stage.train.batch(rows, torch.zeros(1, dtype=torch.long)).time_first()
    share = torch.zeros(1, ROWS, ORIGINS)
    windows, outcomes, _ = stage._decoded(params, batch, share)
    later = panel.y_NTY.clone()
    later[:, 1:] += 1
    changed, again, _ = stage._decoded(params, replace(batch, panel=replace(panel, y_NTY=later)), share)
    assert torch.equal(outcomes, again)
    torch.testing.assert_close(changed.target, windows.target + 1)


def test_few_shot_goes_on_with_outcomes_and_leaves_contrast_out() -> None:
    dataset = ward()
    source, model = fit("causal-cpc", dataset, settings=CONFIG, epochs=2)
    few, _ = fit("causal-cpc", dataset, start=model, settings=CONFIG, epochs=2, domain="target")
    assert [stage["name"] for stage in source.meta["stages"]] == ["causal-cpc contrast", "causal-cpc outcomes"]
    assert [stage["name"] for stage in few.meta["stages"]] == ["causal-cpc outcomes on target"]
