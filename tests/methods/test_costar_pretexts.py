"""Pretexts beside contrast: what is hidden, what is asked, what they learn, and who says that target data were used."""

from dataclasses import replace

import pytest
import torch

from costar_cli.config.models import EncoderConfig
from costar_cli.data import Dataset, Part, Scaler
from costar_cli.errors import MismatchError
from costar_cli.evaluation import Candidate
from costar_cli.methods.costar.inputs import EncoderInputs
from costar_cli.methods.costar.pretexts import Masked, NextStep
from costar_cli.methods.costar.pretraining import PretrainStage
from costar_cli.methods.shared.members import named_params, stack_members
from costar_cli.methods.shared.outcome_forms import choose_forms
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.windows import SubjectRows
from tests.methods.invariant_worlds import world
from tests.train.worlds import ENCODER, PRETRAIN, as_model, panels, run_finetune, run_pretrain

PRETEXTS = ["masked", "next_step", "contrastive+masked", "contrastive+next_step", "masked+next_step"]


def stage(dataset: Dataset, pretext: str, **changes: object) -> PretrainStage:
    config = PRETRAIN.model_copy(update={"pretext": pretext, **changes})
    scaler = Scaler.fit(dataset.panel("source", "train"), dataset.schema)
    forms = choose_forms(dataset.panel("source", "train"), dataset.schema, scaler)
    return PretrainStage(dataset.schema.dims, config, *panels(dataset), forms)


@pytest.mark.parametrize("inputs", ["level", "relative"])
def test_whole_steps_and_whole_variables_are_hidden(inputs: str) -> None:
    dataset = world("ward")
    of = stage(dataset, "masked", encoder=ENCODER.model_copy(update={"inputs": inputs}))
    history, (dx, da, dy, _) = of._history["train"], dataset.schema.dims
    (masked,) = of._beside
    assert isinstance(masked, Masked)
    seen = masked.seen(history[None], [Stream(1)])[0]
    hidden = (seen == masked.mean_S) & (history != masked.mean_S)
    variables = masked.variable_S.tolist()
    assert variables[:dx] == list(range(dx))
    assert set(variables[dx : dx + da]) == {dx}
    assert sorted(set(variables[dx + da :])) == [dx + 1 + outcome for outcome in range(dy)]
    whole = hidden.all(dim=1)  # [N,S]: variables that are hidden throughout; each with all of its scalars
    for variable in set(variables):
        own = masked.variable_S == variable
        assert torch.equal(whole[:, own].any(dim=1), whole[:, own].all(dim=1))
    rest = hidden & ~whole[:, None]
    elsewhere = (~whole)[:, None].expand_as(rest)
    assert torch.equal((rest & elsewhere).any(dim=2), (rest | ~elsewhere).all(dim=2) & (rest & elsewhere).any(dim=2))
    assert 0.05 < hidden.float().mean() < 0.5


@pytest.mark.parametrize("data", ["tumor", "ward"])
def test_knowing_nothing_costs_one_of_each_pretext(data: str) -> None:
    of = stage(world(data), "masked+next_step")
    masked, following = of._beside
    rows = SubjectRows(of._panels["train"])
    series = rows.batch(torch.arange(len(rows))[None], torch.zeros(1, dtype=torch.long))
    history = of._history["train"][None]
    many = [(history, masked.seen(history, [Stream(seed)])) for seed in range(40)]
    z = torch.zeros(*history.shape[:3], ENCODER.width)
    for pretext, asked, tolerance in ((masked, many, 0.1), (following, [(history, history)], 1e-4)):
        head = of._heads[pretext.name]
        nothing = stack_members([{name: torch.zeros_like(value) for name, value in head.named_parameters()}])
        shares = [float(pretext.loss(head, nothing, z, one, series)) / pretext.guess for one in asked]
        assert sum(shares) / len(shares) == pytest.approx(1, rel=tolerance)
    assert of.reference() == 2


def test_the_next_step_is_asked_with_its_treatment_and_told_from_the_origins_scale() -> None:
    """A head that knows the response of each treatment makes no error on a series that follows it."""
    dataset = world("tumor")
    panel = dataset.panel("source", "train")
    grows = panel.treatments @ torch.linspace(0.1, -0.2, panel.treatments.shape[-1]).numpy()
    outcomes = panel.outcomes.copy()
    for t in range(panel.n_steps - 1):
        outcomes[:, t + 1] = outcomes[:, t] * (1 + grows[:, t, None])
    dataset = replace(dataset, panels={**dataset.panels, Part("source", "train"): replace(panel, outcomes=outcomes)})
    of = stage(dataset, "next_step")
    (following,) = of._beside
    assert isinstance(following, NextStep)
    assert following.scale.has_relative
    head = torch.nn.Linear(ENCODER.width + panel.treatments.shape[-1], 1)
    with torch.no_grad():
        head.weight.zero_()
        head.weight[0, ENCODER.width :] = torch.linspace(0.1, -0.2, panel.treatments.shape[-1])
        head.bias.zero_()
    rows = SubjectRows(of._panels["train"])
    series = rows.batch(torch.arange(len(rows))[None], torch.zeros(1, dtype=torch.long))
    history = of._history["train"][None]
    z = torch.zeros(*history.shape[:3], ENCODER.width)
    known = stack_members([named_params(head)])
    assert float(following.loss(head, known, z, (history, history), series)) < 1e-4 * following.guess


@pytest.mark.parametrize("pretext", PRETEXTS)
def test_every_pretext_learns_and_hands_on_the_encoder_alone(pretext: str, tumor_dataset: Dataset):
    trained = run_pretrain(tumor_dataset, pretext=pretext, epochs=6, members=1, learning_rate=0.01)
    first, *later = trained.meta["history"]["train_loss"][0]
    assert min(later) < first
    assert trained.meta["reference"] == 1 + ("+" in pretext)
    heads = {name.split("/")[1].split(".")[0] for name in trained.arrays if name.startswith("params/")}
    assert heads == {"encoder", *pretext.replace("contrastive", "predictor").split("+")}
    model = run_finetune(tumor_dataset, start=as_model(trained), epochs=1)
    assert {n.split("/")[1].split(".")[0] for n in model.arrays if n.startswith("params/")} == {"encoder", "head"}


def test_all_encoders_have_each_pretext() -> None:
    for architecture in ("vt", "ct"):
        of = stage(world("linear"), "masked+next_step", encoder=EncoderConfig(architecture=architecture, width=8))
        params, state = of.initial(0)
        loss, _ = of.loss(stack_members([params]), state, torch.arange(4)[None], [Stream(1)])
        assert torch.isfinite(loss).all()


def test_unlabelled_target_histories_are_learned_from_and_told_of() -> None:
    dataset = world("tumor")
    plain, with_target = (
        run_pretrain(dataset, pretext="masked", epochs=1, unlabelled_target=flag) for flag in (False, True)
    )
    n = dataset.panel("target", "train").n_subjects
    assert plain.meta["pretrained_on"].keys() == {"source/train"}
    assert with_target.meta["pretrained_on"]["target/train"] == with_target.meta["unlabelled_target_subjects"] == n
    source = run_finetune(dataset, start=as_model(with_target), epochs=1)
    few = run_finetune(dataset, start=as_model(source), epochs=1, domain="target")
    for model in (source, few):
        assert Candidate(as_model(model)).label == "COSTAR (uses unlabelled target)"
        assert Candidate(as_model(model), "mine").label == "mine (uses unlabelled target)"
        assert Candidate(as_model(model)).unlabelled_target_subjects == n
    assert "unlabelled_target_subjects" not in run_finetune(dataset, start=as_model(plain)).meta


def test_target_histories_that_are_not_there_are_named() -> None:
    dataset = world("tumor")
    source = {part: panel for part, panel in dataset.panels.items() if part.domain == "source"}
    with pytest.raises(MismatchError, match="no target subjects to learn histories from"):
        run_pretrain(replace(dataset, panels=source, queries={}, truth={}), unlabelled_target=True)


def test_variables_of_relative_inputs_belong_to_their_outcomes() -> None:
    dataset = world("ward")
    scaler = Scaler.fit(dataset.panel("source", "train"), dataset.schema)
    forms = choose_forms(dataset.panel("source", "train"), dataset.schema, scaler, "local")
    assert EncoderInputs(dataset.schema.dims, "relative", forms).variables == [0, 1, 2, 3, 3, 3, 4, 5, 4, 5, 4, 5]
