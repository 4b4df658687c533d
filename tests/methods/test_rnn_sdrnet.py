"""SDR-Net: corrected pseudo-outcomes, propensities, and effects where one of its two models is wrong."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from costar_cli.config.models import FinetuneConfig
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.recurrent import sdrnet
from costar_cli.methods.recurrent.igcnet import IgcStage, PlanHeads, igc_network
from costar_cli.methods.recurrent.network import RecurrentNetwork
from costar_cli.methods.recurrent.sdrnet import SdrStage
from costar_cli.methods.recurrent.settings import SdrNetConfig
from costar_cli.methods.shared.members import stack_members
from costar_cli.methods.shared.network_weights import TreatmentWeights
from costar_cli.methods.shared.stage import NetworkTraining
from costar_cli.methods.shared.windows import SubjectRows
from tests.feedback_worlds import LINEAR
from tests.fits import fit_method, model_of
from tests.methods.linear_worlds import answer
from tests.methods.rnn_worlds import tensors, ward

HORIZON = 4
CONFIG = SdrNetConfig.model_validate({"network": {"width": 5, "representation": 4, "hidden": 6, "dropout": 0}})


@pytest.fixture(scope="module")
def panel() -> PanelTensors:
    return tensors(ward())


def stages_on(panel: PanelTensors, largest: float) -> tuple[IgcStage, SdrStage, Tensor]:
    """The stages of IGC-Net and of SDR-Net on a panel, and made-up logarithms of propensities `[1,N,T-1]`."""
    rows = SubjectRows(panel)
    training = NetworkTraining(
        name="sdr",
        make=partial(igc_network, (2, 2, 2, 1), CONFIG, HORIZON),
        network=CONFIG.network,
        config=CONFIG.network.training(FinetuneConfig()),
        train=rows,
        validation=rows,
    )
    n, steps = panel.a_NTA.shape[:2]
    log_RNT = (0.2 + 0.6 * torch.rand(1, n, steps - 1, generator=torch.Generator().manual_seed(3))).log()
    weights = TreatmentWeights(-log_RNT, panel)
    return IgcStage(training, HORIZON), SdrStage(training, HORIZON, log_RNT, weights, largest), log_RNT


def pseudo_outcomes(stage: IgcStage, later: Tensor, subjects: int) -> Tensor:
    """What heads 2 to H of a fresh network learn from, under plans `[1,T,B,J,A]`."""
    batch = stage.train.batch(torch.arange(subjects)[None], torch.zeros(1, dtype=torch.long)).time_first()
    params = stack_members([stage.initial(0)[0]])
    with torch.no_grad():
        known = torch.cat([stage.network.run_members(params, batch), stage.network.inputs(batch.column)], dim=-1)
        return stage.pseudo_outcomes(params, batch, known, later)


def test_a_pseudo_outcome_is_corrected_step_by_step_as_long_as_the_series_follows_the_plan(
    panel: PanelTensors,
) -> None:
    """The recursion of SDR-2, one subject and position at a time; half of the plans are what was given."""
    _, stage, log_RNT = stages_on(panel, largest=1e9)
    subjects, steps = 5, panel.a_NTA.shape[1] - 1
    later = torch.randint(2, (1, steps, subjects, HORIZON - 1, 2), generator=torch.Generator().manual_seed(1)).float()
    for t in range(0, steps - HORIZON, 2):
        later[0, t] = panel.a_NTA[:subjects, t + 1 : t + HORIZON]
    found = pseudo_outcomes(stage, later, subjects)

    network = stage.network
    network.load_state_dict(stage.initial(0)[0])
    batch = stage.train.batch(torch.arange(subjects)[None], torch.zeros(1, dtype=torch.long)).time_first()
    read = network.inputs(batch.column)[0]
    known_TBD = torch.cat([network.run(read).outputs[0], read], dim=-1)

    def corrected(subject: int, t: int, plan: Tensor) -> Tensor:
        """What is expected at t + 1 of the rest of a plan, corrected by what was found at t + 2 and later."""
        if not len(plan):
            return panel.y_NTY[subject, t + 1]
        expected: Tensor = network.head(known_TBD[t + 1, subject], plan)[-1]
        if not torch.equal(panel.a_NTA[subject, t + 1], plan[0]):
            return expected
        weight = torch.exp(-log_RNT[0, subject, t + 1])
        return expected + weight * (corrected(subject, t + 1, plan[1:]) - expected)

    compared = 0
    for subject in range(subjects):
        for t in range(int(panel.length_N[subject]) - 1):
            for k in range(2, HORIZON + 1):
                if t + k < panel.length_N[subject]:
                    expected = corrected(subject, t, later[0, t, subject, : k - 1])
                    torch.testing.assert_close(found[0, t, subject, k - 2], expected, rtol=1e-4, atol=1e-4)
                    compared += 1
    assert compared > 50


def test_without_weights_pseudo_outcomes_are_those_of_igc_net_and_large_ones_are_bounded(panel: PanelTensors) -> None:
    plain, none, _ = stages_on(panel, largest=0)
    subjects, steps = 5, panel.a_NTA.shape[1] - 1
    later = torch.stack([panel.a_NTA[:subjects, 1:steps].transpose(0, 1)] * (HORIZON - 1), dim=2)[None]
    later = torch.cat([later, later[:, -1:]], dim=1)
    without = pseudo_outcomes(plain, later, subjects)
    assert torch.equal(pseudo_outcomes(none, later, subjects), without)
    small, large = (pseudo_outcomes(stages_on(panel, largest)[1], later, subjects) for largest in (0.01, 1e9))
    assert 0 < (small - without).abs().max() < 0.05 < (large - without).abs().max()


def test_an_outcome_that_was_not_observed_corrects_nothing(panel: PanelTensors) -> None:
    plain, *_ = stages_on(panel, largest=1e9)
    filled = PanelTensors(
        panel.x_NTX, panel.a_NTA, panel.y_NTY, panel.v_NV, panel.length_N, torch.zeros_like(panel.y_NTY)
    )
    _, stage, _ = stages_on(filled, largest=1e9)
    later = torch.cat([panel.a_NTA[:5, 1:].transpose(0, 1), panel.a_NTA[:5, -1:].transpose(0, 1)])[:-1, :, None]
    later = later.expand(-1, -1, HORIZON - 1, -1)[None]
    assert torch.equal(pseudo_outcomes(stage, later, 5)[..., 0, :], pseudo_outcomes(plain, later, 5)[..., 0, :])


@pytest.mark.parametrize("mode", ["multilabel", "multiclass"])
def test_weights_compare_propensities_with_how_often_treatments_are_given(panel: PanelTensors, mode: Any) -> None:
    given = panel.a_NTA[..., :1]
    if mode == "multiclass":
        given = torch.cat([given, 1 - given], dim=-1)
    classes = PanelTensors(panel.x_NTX, given, panel.y_NTY, panel.v_NV, panel.length_N)
    active = classes.active_NT > 0
    share = given[:, :-1, 0][active].mean()
    expected = torch.where(given[:, :-1, 0] > 0, share, 1 - share)[active]
    torch.testing.assert_close(sdrnet._log_frequency(classes, mode).exp()[active], expected, rtol=1e-4, atol=1e-5)


STEPS = 4
TRUE = float(np.subtract(*(LINEAR.mean_under([a] * STEPS, origin=1) for a in (1, 0)))[-1])


def effect(method: str) -> float:
    """The share of the known effect of always treating that a method finds with 1,000 subjects."""
    data = LINEAR.dataset(n=1000, rows=STEPS + 2, horizon=STEPS)
    model = model_of(fit_method(data, method, None, FinetuneConfig(members=1, epochs=40)))
    always, never = (
        answer(model, data.panel("source", "test"), origin=1, plan=[treated] * STEPS) for treated in (1, 0)
    )
    return float((always - never)[-1]) / TRUE


@pytest.mark.slow
def test_heads_that_do_not_see_the_confounder_are_corrected_by_propensities_that_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """IGC-Net finds .69 of the effect, SDR-Net .90; its weights are clipped."""
    read = RecurrentNetwork.inputs

    def blind(network: RecurrentNetwork, column: Callable[[Any], Tensor]) -> Tensor:
        is_blind = isinstance(network.head, PlanHeads)
        return read(network, lambda name: column(name) * (not (is_blind and name == "covariates")))

    monkeypatch.setattr(RecurrentNetwork, "inputs", blind)
    plain, robust = effect("igcnet"), effect("sdrnet")
    assert plain < 0.8
    assert robust == pytest.approx(1, abs=0.15)


@pytest.mark.slow
def test_propensities_that_know_nothing_leave_what_heads_that_see_the_confounder_find(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def coin(_mode: object, passed: Any) -> Tensor:
        return torch.full_like(passed.outputs_TBD[..., 0], 0.5).log()

    monkeypatch.setattr(sdrnet, "_log_propensity", coin)
    assert effect("sdrnet") == pytest.approx(1, abs=0.1)
