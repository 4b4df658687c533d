"""IGC-Net: what each head learns from, and the plans that are drawn for it."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from costar_cli.config.models import FinetuneConfig
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.recurrent import igcnet
from costar_cli.methods.recurrent.igcnet import PLANS, IgcStage, drawn_plans, igc_network
from costar_cli.methods.recurrent.settings import IgcNetConfig
from costar_cli.methods.shared.members import stack_members
from costar_cli.methods.shared.stage import NetworkTraining
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.windows import SubjectRows
from tests.methods.rnn_worlds import tensors, ward

HORIZON = 3
CONFIG = IgcNetConfig.model_validate({"network": {"width": 5, "representation": 4, "hidden": 6, "dropout": 0}})


@pytest.fixture(scope="module")
def panel() -> PanelTensors:
    return tensors(ward())


def stage_on(panel: PanelTensors) -> IgcStage:
    training = NetworkTraining(
        name="igc",
        make=partial(igc_network, (2, 2, 2, 1), CONFIG, HORIZON),
        network=CONFIG.network,
        config=CONFIG.network.training(FinetuneConfig()),
        train=SubjectRows(panel),
        validation=SubjectRows(panel),
    )
    return IgcStage(training, HORIZON)


def test_the_first_head_learns_outcomes_and_each_later_one_what_the_one_before_expects_a_step_later(
    panel: PanelTensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, drawn = stage_on(panel), list[torch.Tensor]()

    def spy(*args: object) -> torch.Tensor:
        drawn.append(drawn_plans(*args))
        return drawn[-1]

    monkeypatch.setattr(igcnet, "drawn_plans", spy)
    params, state = (stack_members([part]) for part in stage.initial(0))
    rows = torch.arange(6)[None]
    loss, _ = stage.loss(params, state, rows, [Stream(1, "plans")])

    network = stage.network
    network.load_state_dict({name: value[0] for name, value in params.items()})
    batch = stage.train.batch(rows, torch.zeros(1, dtype=torch.long)).time_first()
    read = network.inputs(batch.column)[0]
    known_TBD = torch.cat([network.run(read).outputs[0], read], dim=-1)
    errors: dict[int, list[torch.Tensor]] = {step: [] for step in range(HORIZON)}
    for subject in range(6):
        given, y = panel.a_NTA[subject], panel.y_NTY[subject]
        for t in range(int(panel.length_N[subject]) - 1):
            plan = torch.cat([given[t][None], drawn[0][0, t, subject]])
            answers = network.head(known_TBD[t, subject], plan)
            for step in range(HORIZON):
                if t + step + 1 < panel.length_N[subject]:
                    target = y[t + 1] if not step else network.head(known_TBD[t + 1, subject], plan[1:])[step - 1]
                    errors[step].append((answers[step] - target).square().sum())
    expected = torch.stack([torch.stack(values).mean() for values in errors.values()]).mean()
    torch.testing.assert_close(loss[0], expected, rtol=1e-4, atol=1e-6)


def test_no_gradient_flows_through_what_a_later_head_learns_from(panel: PanelTensors) -> None:
    """Where no outcome was observed, the first head has nothing to learn from."""
    stage = stage_on(replace(panel, observed_NTY=torch.zeros_like(panel.y_NTY)))
    params, state = (stack_members([part]) for part in stage.initial(0))
    params = {name: value.requires_grad_() for name, value in params.items()}
    loss, _ = stage.loss(params, state, torch.arange(6)[None], [Stream(1, "plans")])
    loss.sum().backward()
    assert not params["head.networks.0.0.weight"].grad.any()
    assert params["head.networks.1.0.weight"].grad.any()


def test_plans_are_treatments_of_the_batch_half_of_them_one_throughout_whatever_the_padding(
    panel: PanelTensors,
) -> None:
    marked = replace(panel, a_NTA=torch.rand(panel.a_NTA.shape) + 1)
    rows = torch.arange(40)[None]
    batch = SubjectRows(marked).batch(rows, torch.zeros(1, dtype=torch.long)).time_first()
    plans = drawn_plans(batch, 4, [Stream(1, "plans")])
    assert plans.shape == (1, marked.a_NTA.shape[1] - 1, 40, 4, 2)
    given = {tuple(a.tolist()) for n in range(40) for a in marked.a_NTA[n, : int(marked.length_N[n]) - 1]}
    assert {tuple(a.tolist()) for a in plans.flatten(0, 3)} <= given
    distinct = plans[0, : min(PLANS, plans.shape[1])].flatten(0, 1)
    constant = (distinct == distinct[:, :1]).all(dim=(1, 2)).double().mean()
    assert 0.4 < constant < 0.6
    longer = replace(marked, **{
        name: torch.nn.functional.pad(getattr(marked, name), (0, 0, 0, 30)) for name in ("x_NTX", "a_NTA", "y_NTY")
    })  # fmt: skip
    padded = SubjectRows(longer).batch(rows, torch.zeros(1, dtype=torch.long)).time_first()
    again = drawn_plans(padded, 4, [Stream(1, "plans")])
    assert torch.equal(again[:, : plans.shape[1]], plans)
    assert torch.equal(again[:, PLANS : 2 * PLANS], again[:, :PLANS])
