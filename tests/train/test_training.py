"""Training runs: members, seeds, early stopping, kept weights, divergence."""

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from costar_cli.config.models import RuntimeConfig
from costar_cli.data import Dataset, Part
from costar_cli.errors import DataError, DeviceError, MismatchError, TrainingError, UsageError
from costar_cli.evaluation import Candidate
from costar_cli.files import write_artifact
from costar_cli.methods.base import Fitted
from costar_cli.methods.costar.pretraining import PretrainStage
from costar_cli.methods.costar.supervised import SupervisedStage
from costar_cli.methods.entry import Method
from costar_cli.methods.shared import cores
from costar_cli.methods.shared.microbatches import cores_for_microbatches
from costar_cli.reporting import NullReporter
from costar_cli.training import RunIdentity, Runtime, loop
from costar_cli.training.checkpoint import Checkpoint
from costar_cli.training.group import GroupState, MemberRecord
from costar_cli.training.loop import train_members
from costar_cli.training.step import Gradients, require_finite
from tests.fits import fit_method
from tests.train.worlds import (
    CPU,
    ENCODER,
    EXACT,
    FINETUNE,
    PRETRAIN,
    as_model,
    close,
    panels,
    pretrain_stage,
    run_finetune,
    run_pretrain,
    same,
    supervised_stage,
)


@pytest.mark.parametrize("run", [run_pretrain, run_finetune])
def test_same_seed_gives_the_same_bytes_and_another_seed_others(run, tumor_dataset: Dataset, whole, tmp_path: Path):
    first, second = whole(run, members=2), run(tumor_dataset, tmp_path / "b", members=2)
    assert same(first.arrays, second.arrays)
    assert first.meta == second.meta
    for name, trained in (("x", first), ("y", second)):
        content = {"arrays": trained.arrays, "meta": trained.meta, "parents": trained.parents}
        write_artifact(tmp_path / name, kind="encoder" if run is run_pretrain else "model", **content)
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()
    assert not same(first.arrays, run(tumor_dataset, tmp_path / "c", members=2, seed=6).arrays)


@pytest.mark.parametrize("run", [run_pretrain, run_finetune])
def test_members_trained_together_equal_members_trained_apart(run, tumor_dataset: Dataset, tmp_path: Path):
    together = run(tumor_dataset, tmp_path / "a", members=3, runtime=EXACT.model_copy(update={"group": 3}))
    apart = run(tumor_dataset, tmp_path / "b", members=3, runtime=EXACT.model_copy(update={"group": 1}))
    pairs = run(tumor_dataset, tmp_path / "c", members=3, runtime=EXACT.model_copy(update={"group": 2}))
    close(together.arrays, apart.arrays)
    close(pairs.arrays, apart.arrays)
    np.testing.assert_allclose(together.meta["history"]["train_loss"], apart.meta["history"]["train_loss"], rtol=1e-4)


@dataclass(frozen=True)
class Returning:
    """A method whose fit ends with these parameters."""

    params: dict[str, object]

    def fit(self, task):
        yield from ()
        return Fitted(self.params)


@pytest.mark.parametrize(
    ("params", "problem", "fix"),
    [
        ({}, "the fit of forest returned no parameters", "return at least one array that leads with the member axis"),
        (
            {"a": torch.zeros(1, 2), "b": torch.zeros(3, 1)},
            "the fit of forest returned an array of shape [3, 1]",
            "[1,",
        ),
        ({"a": torch.tensor(3.0)}, "the fit of forest returned an array of shape []", "return an array [1,...]"),
        ({"a": [[1.0, 2.0]]}, "the fit of forest returned a parameter of type list", "return an array [1,...]"),
        ({"a": np.zeros((2, 2))}, "the fit of forest returned an array of shape [2, 2]", "return an array [1,...]"),
    ],
)
def test_a_fit_without_a_tensor_of_all_members_says_what_to_return(
    params, problem: str, fix: str, tumor_dataset: Dataset, tmp_path: Path
):
    method = Method(name="forest", label="Forest", estimator=Returning(params), closed_form=True)
    with pytest.raises(UsageError) as error:
        run_finetune(tumor_dataset, tmp_path, method=method)
    assert error.value.problem == problem
    assert fix in error.value.fix


def test_members_differ_in_initialisation_order_and_result(tumor_dataset: Dataset, tmp_path: Path):
    params = run_pretrain(tumor_dataset, tmp_path).arrays["params/encoder.embedding.scalar.weight"]
    assert not np.allclose(params[0], params[1])


@pytest.mark.parametrize("threads", [1, 2])
def test_thread_count_changes_rounding_only(threads, tumor_dataset: Dataset, tmp_path: Path, monkeypatch):
    from costar_cli.methods.costar import representation

    monkeypatch.setattr(representation, "CPU_ELEMENTS", 2_000)  # several microbatches per batch
    with cores_for_microbatches(threads):
        one = run_finetune(tumor_dataset, tmp_path / "a", runtime=EXACT, epochs=2)
    monkeypatch.undo()
    close(one.arrays, run_finetune(tumor_dataset, tmp_path / "b", runtime=EXACT, epochs=2).arrays)


def test_pieces_on_several_threads_give_the_gradient_of_one(monkeypatch, tumor_dataset: Dataset):
    from costar_cli.methods.costar import representation
    from costar_cli.methods.shared.members import stack_members
    from costar_cli.methods.shared.streams import Stream

    stage = supervised_stage(tumor_dataset)
    params = {n: v.requires_grad_() for n, v in stack_members([stage.initial(0)[0]]).items()}
    slopes = []
    for elements in (10**9, 2_000):
        monkeypatch.setattr(representation, "CPU_ELEMENTS", elements)
        loss, _ = stage.loss(params, {}, torch.arange(24)[None], [Stream(1)])
        slopes.append(torch.autograd.grad(loss.sum(), list(params.values())))
    for whole, microbatches in zip(*slopes, strict=True):
        torch.testing.assert_close(whole, microbatches, rtol=1e-4, atol=1e-6)


def test_training_lowers_the_loss(tumor_dataset: Dataset, tmp_path: Path):
    history = run_finetune(tumor_dataset, tmp_path, epochs=12, patience=12).meta["history"]
    assert history["train_loss"][0][-1] < 0.7 * history["train_loss"][0][0]


def test_patience_stops_a_member_and_the_best_epoch_is_kept():
    record = MemberRecord()
    improved = [record.add_epoch(0.0, loss, patience=2) for loss in (3.0, 2.0, 2.5, 2.0)]
    assert improved == [True, True, False, False]
    assert record.best_epoch == 1
    assert record.stopped
    assert record.best_loss == 2.0


@pytest.mark.parametrize("keep", ["last", "best"])
def test_kept_weights_are_those_of_the_epoch_that_the_stage_names(
    keep, tumor_dataset: Dataset, tmp_path: Path, monkeypatch
):
    losses = iter([1.0, 0.5, 0.9, 0.8])
    monkeypatch.setattr(loop, "validate", lambda *_: [next(losses)])
    seen = []
    finish = loop.finish_epoch

    def spy(stage, state, *others):
        seen.append({n: v.detach().clone() for n, v in state.params.items()})
        finish(stage, state, *others)

    monkeypatch.setattr(loop, "finish_epoch", spy)
    stage = pretrain_stage(tumor_dataset, members=1, epochs=4, patience=9, keep=keep)
    run = Checkpoint(tmp_path / "run.h5", RunIdentity("f"), reporter=NullReporter())
    trained = train_members(stage, 1, Runtime.resolve(CPU), run, NullReporter())
    expected = seen[{"last": 3, "best": 1}[keep]]
    assert all(torch.equal(trained.params[n], expected[n]) for n in expected)
    assert trained.history["best_epoch"] == [1]


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_divergence_is_one_clear_error(where, tumor_dataset: Dataset, tmp_path: Path, monkeypatch):
    stage = supervised_stage(tumor_dataset)
    calls = iter(range(10**6))

    def diverging(params, state, rows, streams):
        total = sum(value.flatten(1).sum(dim=1) for value in params.values())
        if next(calls) < 7:
            return total * 0 + 1, state
        return (total * torch.inf if where == "loss" else (total - total.detach()).abs().sqrt()), state

    monkeypatch.setattr(stage, "loss", diverging)
    run = Checkpoint(tmp_path / "run.h5", RunIdentity("f"), reporter=NullReporter())
    with pytest.raises(TrainingError, match="not finite") as error:
        train_members(stage, 1, Runtime.resolve(CPU), run, NullReporter())
    assert error.value.where == "finetune, member 0, epoch 2, step 3"
    assert "--learning-rate" in error.value.fix


def test_values_that_are_not_finite_stop_training_before_it_starts(tumor_dataset: Dataset, tmp_path: Path):
    panel = tumor_dataset.panel("source", "train")
    outcomes = panel.outcomes.copy()
    outcomes[3, 2] = np.nan
    part = next(iter(tumor_dataset.panels))
    broken = replace(tumor_dataset, panels={**tumor_dataset.panels, part: replace(panel, outcomes=outcomes)})
    for run in (run_pretrain, run_finetune):
        with pytest.raises(DataError, match="finite"):
            run(broken, tmp_path)


def test_few_shot_starts_from_the_source_model_and_leaves_it_alone(tumor_dataset: Dataset, tmp_path: Path):
    encoder = as_model(run_pretrain(tumor_dataset, tmp_path))
    source = run_finetune(tumor_dataset, tmp_path, start=encoder)
    assert source.meta["members"] == 2
    model = as_model(source)
    before = {n: v.clone() for n, v in model.params.items()}
    target = run_finetune(tumor_dataset, tmp_path / "t", start=model, domain="target", learning_rate=1e-12, epochs=1)
    assert all(torch.equal(before[n], v) for n, v in model.params.items())
    learned = [n for n in source.arrays if not n.startswith("practice/")]  # those are of the target's own subjects
    close({n: target.arrays[n] for n in learned}, {n: source.arrays[n] for n in learned}, atol=1e-6)
    assert target.meta["trained_on"] == {"source/train": 40, "target/train": 6}
    assert target.parents == {"dataset": tumor_dataset.digest, "model": "d"}
    assert source.parents == {"dataset": tumor_dataset.digest, "encoder": "d"}
    assert all(np.array_equal(target.arrays[n], source.arrays[n]) for n in source.arrays if n.startswith("scaler/"))


def test_finetuning_refuses_what_does_not_fit(tumor_dataset: Dataset, tmp_path: Path):
    encoder = as_model(run_pretrain(tumor_dataset, tmp_path, epochs=1))
    with pytest.raises(MismatchError, match="only 2 to start from"):
        run_finetune(tumor_dataset, tmp_path, start=encoder, members=3)
    other = replace(encoder, schema=encoder.schema.model_copy(update={"statics": ()}))
    with pytest.raises(MismatchError, match="the encoder to start from is incompatible") as caught:
        run_finetune(tumor_dataset, tmp_path, start=other)
    assert caught.value.details == ("statics: model has none, data set has patient_type",)
    with pytest.raises(UsageError, match="different shape"):
        run_finetune(
            tumor_dataset, tmp_path, start=encoder, encoder=encoder.encoder_config.model_copy(update={"width": 16})
        )


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("place", [Runtime.resolve, Runtime.of_arrays])
def test_cuda_without_a_gpu_is_one_clear_error(place):
    with pytest.raises(DeviceError, match="no CUDA device"):
        place(RuntimeConfig(device="cuda"))


@pytest.mark.parametrize("precision", ["float64", "tf32", "bf16"])
def test_every_precision_trains(precision, tumor_dataset: Dataset, tmp_path: Path):
    trained = run_pretrain(tumor_dataset, tmp_path, runtime=RuntimeConfig(device="cpu", precision=precision), epochs=1)
    torch.set_float32_matmul_precision("highest")
    dtype = np.float64 if precision == "float64" else np.float32
    assert trained.arrays["params/encoder.embedding.scalar.weight"].dtype == dtype
    assert np.isfinite(trained.meta["history"]["train_loss"]).all()


def test_a_validation_outlier_ends_training_at_once_and_is_named(tumor_dataset: Dataset, tmp_path: Path):
    part = Part("source", "val")
    outcomes = tumor_dataset.panels[part].outcomes.copy()
    outcomes[:, 3, 0] = 1e30
    panels = {**tumor_dataset.panels, part: replace(tumor_dataset.panels[part], outcomes=outcomes)}
    dataset, state = replace(tumor_dataset, panels=panels), tmp_path / "run.h5"
    config = FINETUNE.model_copy(update={"epochs": 3, "members": 1, "select_on": "own-loss"})
    for _ in range(2):
        with pytest.raises(TrainingError, match="error on validation is not finite") as caught:
            fit_method(dataset, "crn-erm", None, config, run_state=state)
        assert caught.value.where.endswith("member 0, epoch 1")
        (said,) = [text for text in caught.value.details if "sd from the rest" in text]
        assert "12 values" in said
        assert "1e+30 (subject" in said
        assert "step 3)" in said


def test_a_stopped_member_cannot_stop_its_companions(tumor_dataset: Dataset):
    stage = supervised_stage(tumor_dataset)
    state = GroupState.fresh(stage, [0, 1], Runtime.resolve(CPU))
    found = Gradients(torch.tensor([torch.nan, 1.0]), torch.ones(2))
    state.records[0].stopped = True
    require_finite(stage, state, found)
    state.records[0].stopped = False
    with pytest.raises(TrainingError, match="not finite"):
        require_finite(stage, state, found)


def test_counts_of_another_data_set_are_not_carried_over(tumor_dataset: Dataset, tmp_path: Path):
    mine, other = (replace(tumor_dataset, digest=digest) for digest in ("a" * 64, "b" * 64))
    source = as_model(run_finetune(mine, tmp_path / "a", epochs=1))
    here = run_finetune(mine, tmp_path / "b", start=source, domain="target", epochs=1)
    assert here.meta["selected_on"] == {"source/val": 12, "target/val": 7}
    (worse,) = here.meta["warnings"]
    assert worse.startswith("worse than the last value carried forward on validation")
    there = run_finetune(other, tmp_path / "c", start=source, domain="target", epochs=1)
    assert there.meta["trained_on"] == {"target/train": 6}
    assert there.meta["warnings"][0] == worse
    assert "another data set (aaaaaaaa)" in there.meta["warnings"][1]


def test_labelled_target_subjects_of_a_real_few_shot_model_include_those_it_was_selected_on(tumor_dataset, tmp_path):
    source = run_finetune(tumor_dataset, tmp_path / "a", epochs=1)
    target = run_finetune(tumor_dataset, tmp_path / "b", start=as_model(source), domain="target", epochs=1)
    counts = [Candidate(as_model(t)).labelled_target_subjects for t in (source, target)]
    assert counts == [0, 6 + 7]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_all_stages_run_on_a_gpu_and_agree_with_the_cpu_on_predictions(tumor_dataset: Dataset, tmp_path: Path):
    cuda = RuntimeConfig(device="cuda")
    encoder = as_model(run_pretrain(tumor_dataset, tmp_path, runtime=cuda))
    model = as_model(run_finetune(tumor_dataset, tmp_path, start=encoder, runtime=cuda))
    part, sets = next(iter(tumor_dataset.queries.items()))
    on_gpu = replace(model, params={n: v.cuda() for n, v in model.params.items()}, device="cuda")
    cpu, gpu = (m.rollout(tumor_dataset.panels[part], sets["sequence"]) for m in (model, on_gpu))
    np.testing.assert_allclose(gpu, cpu, rtol=1e-3, atol=1e-2)


def test_everything_an_encoder_computes_with_is_on_the_device_of_the_data(tumor_dataset: Dataset, monkeypatch):
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())  # it does not know `meta`
    train, val = panels(tumor_dataset)
    names = ("x_NTX", "a_NTA", "y_NTY", "v_NV")
    far = [replace(p, **{name: getattr(p, name).to("meta") for name in names}) for p in (train, val)]
    dims = tumor_dataset.schema.dims
    supervised = SupervisedStage(dims, 6, FINETUNE, ENCODER, train=far[0], validation=far[1])
    stages = [PretrainStage(dims, PRETRAIN, *far), supervised]
    for stage in stages:
        tensors = [*stage.encoder.buffers(), *stage.encoder.parameters()]
        assert tensors
        assert {t.device.type for t in tensors} == {"meta"}
        history, statics = far[0].history_NTS, far[0].v_NV
        assert stage.encoder(history, statics).z_BTD.device.type == "meta"


def test_threads_chosen_for_a_fit_without_torch_hold_for_the_next_one_with_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cores, "_CHOSEN", [])
    before = torch.get_num_threads()
    try:
        assert Runtime.of_arrays(RuntimeConfig(threads=1)).threads == 1
        assert Runtime.resolve(RuntimeConfig(device="cpu")).threads == 1
    finally:
        torch.set_num_threads(before)


def test_members_share_a_step_where_that_pays_unless_told_otherwise(tumor_dataset: Dataset) -> None:
    few, many = (supervised_stage(tumor_dataset, batch_size=size) for size in (8, 10**6))
    on_cpu = Runtime.resolve(CPU)
    assert on_cpu.group_size(few, 5) == 5
    assert on_cpu.group_size(many, 5) == on_cpu.group_size(pretrain_stage(tumor_dataset), 5) == 1
    assert Runtime(name="cuda").group_size(many, 5) == 5
    assert Runtime.resolve(CPU.model_copy(update={"group": 2})).group_size(many, 5) == 2
