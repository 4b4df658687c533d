"""Steps that are recorded and replayed, as CUDA graphs do, give what steps computed as ever give."""

import weakref
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks import cohort
from costar_cli.config.models import OptimiserConfig, RuntimeConfig
from costar_cli.data import Dataset
from costar_cli.errors import TrainingError
from costar_cli.methods.base import Stage
from costar_cli.methods.costar import contrastive, pretraining
from costar_cli.methods.costar.pretraining import PretrainStage
from costar_cli.methods.costar.supervised import SupervisedStage
from costar_cli.methods.shared.streams import ReplayedStream, Stream
from costar_cli.reporting import NullReporter
from costar_cli.training import Runtime, checkpoint, loop, pretrain
from costar_cli.training.graphs import ReplayedSteps
from costar_cli.training.group import GroupState
from costar_cli.training.step import gradients, training_step
from tests.datasets.table_worlds import Listener
from tests.fits import KilledError, fit_method, identity_of
from tests.methods.invariant_worlds import NAMES, fit, registered, world
from tests.train.replays import CpuRecorder
from tests.train.worlds import (
    CPU,
    ENCODER,
    EXACT,
    FINETUNE,
    PRETRAIN,
    close,
    panels,
    run_finetune,
    run_pretrain,
    supervised_stage,
)

ALL = OptimiserConfig(weight_decay=0.1, schedule="cosine", warmup=3, averaging=0.9, max_grad_norm=0.05)


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch) -> Iterator[None]:
    """One thread computes all microbatches, and the contrast asks nothing of the data."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(contrastive, "attend_to_keys", contrastive.attend_to_keys_chunked)
    yield
    torch.set_num_threads(before)


def stage_on(runtime: Runtime, kind: str, dataset: Dataset, **changes: object) -> Any:
    """A stage whose panels are on the device of a runtime, in its precision."""
    if kind == "pretrain":
        return cohort.pretrain_stage(dataset, PRETRAIN.model_copy(update=changes), runtime)
    return cohort.finetune_stage(dataset, FINETUNE.model_copy(update=changes), runtime)


def batches(stage: Stage, members: int, count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    size = stage.config.batch_size
    return [
        torch.stack([torch.randperm(stage.n_train, generator=generator)[:size] for _ in range(members)])
        for _ in range(count)
    ]


def numbers(state: GroupState) -> dict[str, Tensor]:
    return {name: torch.from_numpy(value) for name, value in state.to_arrays().items()}


def take(step: Callable[[Tensor], Tensor], state: GroupState, rows: list[Tensor]) -> Tensor:
    losses = []
    for rows_RB in rows:
        losses.append(step(rows_RB))
        state.step += 1
    return torch.stack(losses)


def both_ways(stage: Stage, members: int, rows: list[Tensor], runtime: Runtime):
    """Return losses and numbers of steps as ever, those of replayed steps, and the recorder."""
    ever, state = (GroupState.fresh(stage, list(range(members)), runtime) for _ in range(2))
    expected = take(lambda rows_RB: training_step(stage, ever, rows_RB, runtime), ever, rows)
    recorder, told = CpuRecorder(), Listener()
    losses = take(ReplayedSteps(stage, state, runtime, recorder, told), state, rows)
    assert told.notes == []
    return (expected, numbers(ever)), (losses, numbers(state)), recorder


def require_same(expected, found, **tolerance: float) -> None:
    torch.testing.assert_close(found[0], expected[0], **tolerance)
    assert found[1].keys() == expected[1].keys()
    for name, value in expected[1].items():
        torch.testing.assert_close(found[1][name], value, msg=lambda text, name=name: f"{name}: {text}", **tolerance)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("kind", ["pretrain", "finetune"])
def test_replayed_steps_give_the_weights_of_steps_as_ever(kind: str, members: int, tumor_dataset: Dataset):
    runtime = Runtime.resolve(EXACT)
    stage = stage_on(runtime, kind, tumor_dataset, optimiser=ALL)
    expected, found, recorder = both_ways(stage, members, batches(stage, members, 5), runtime)
    assert (recorder.recorded, recorder.replays) == (1, 4)
    require_same(expected, found, rtol=1e-9, atol=1e-12)


def test_batches_of_another_size_are_computed_as_ever_and_go_on_from_replayed_ones(tumor_dataset: Dataset):
    runtime = Runtime.resolve(EXACT)
    stage = stage_on(runtime, "pretrain", tumor_dataset, optimiser=ALL)
    whole = batches(stage, 2, 6)
    rows = [*whole[:3], whole[3][:, :5], *whole[4:]]
    expected, found, recorder = both_ways(stage, 2, rows, runtime)
    assert (recorder.recorded, recorder.replays) == (1, 4)
    require_same(expected, found, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("most", "largest"), [(40, None), (None, 60), (None, 80), (None, 110)])
def test_replayed_steps_contrast_the_positions_that_others_contrast(
    most: int | None, largest: int | None, tumor_dataset: Dataset, monkeypatch
):
    """Some batches have more active positions than may be contrasted, some have not; padded ones never count."""
    if largest is not None:
        monkeypatch.setitem(pretraining.LARGEST, "train", largest)
        monkeypatch.setattr(pretraining, "CAP", 30)
    runtime = Runtime.resolve(EXACT)
    stage = stage_on(runtime, "pretrain", tumor_dataset, max_contrast=most)
    panel = stage._panels["train"]
    ends_N = torch.arange(len(panel.length_N)) % 17
    stage._panels["train"] = replace(panel, length_N=(panel.length_N - ends_N).clamp(min=3))
    rows = batches(stage, 2, 6)
    active = [int(stage._active("train", rows_RB).flatten(1).sum(dim=1).max()) for rows_RB in rows]
    assert 60 < min(active) < 80 < max(active) < 110
    expected, found, _ = both_ways(stage, 2, rows, runtime)
    require_same(expected, found, rtol=1e-9, atol=1e-12)


def test_graphs_are_for_one_process_on_a_gpu_and_elsewhere_a_note_says_so_once(tumor_dataset: Dataset, tmp_path: Path):
    told, config = Listener(), PRETRAIN.model_copy(update={"epochs": 1})
    runtime, identity = CPU.model_copy(update={"graphs": True}), identity_of(config)
    Runtime.resolve(CPU).tell_of_graphs(CPU, told)
    fit_method(tumor_dataset, "ridge", None, FINETUNE, runtime=runtime, reporter=told)  # which trains no network
    assert told.notes == []
    assert not Runtime.resolve(CPU).graphs
    pretrain(tumor_dataset, config, runtime, checkpoint=tmp_path / "run.h5", identity=identity, reporter=told)
    assert told.notes == ["training goes on without CUDA graphs, which `runtime.graphs` asks for: they need a GPU"]


class Asking:
    """A stage whose loss asks the device for a number."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def __getattr__(self, name: str):
        return getattr(self.stage, name)

    def loss(self, params_R, state_R, rows_RB, streams):
        loss_R, state_R = self.stage.loss(params_R, state_R, rows_RB, streams)
        return loss_R * (1.0 if float(loss_R.detach().sum()) < 1e9 else 2.0), state_R


def test_a_stage_that_cannot_be_recorded_is_trained_as_ever_and_says_so_once(tumor_dataset: Dataset):
    stage, runtime = supervised_stage(tumor_dataset), Runtime.resolve(CPU)
    rows, told, (ever, state) = (
        batches(stage, 2, 4),
        Listener(),
        (GroupState.fresh(stage, [0, 1], runtime) for _ in "ab"),
    )
    expected = take(lambda rows_RB: training_step(stage, ever, rows_RB, runtime), ever, rows)
    losses = take(ReplayedSteps(Asking(stage), state, runtime, CpuRecorder(), told), state, rows)
    assert len(told.notes) == 1
    assert told.notes[0].startswith("stage `finetune` is trained without CUDA graphs: aten._local_scalar_dense")
    require_same((expected, numbers(ever)), (losses, numbers(state)), rtol=1e-5, atol=1e-6)


class Drawing(Asking):
    """A stage whose loss draws a permutation or a seed from its members' streams, and shows what it has in memory."""

    def __init__(self, stage: Stage, kind: str) -> None:
        super().__init__(stage)
        self.kind, self.drawn, self.made = kind, list[Tensor](), list[weakref.ref[Tensor]]()

    def loss(self, params_R, state_R, rows_RB, streams):
        loss_R, state_R = self.stage.loss(params_R, state_R, rows_RB, streams)
        alive = sum(made() is not None for made in self.made)
        held = loss_R * 1.0
        self.made.append(weakref.ref(held))
        if self.kind == "permutation":
            orders_R8 = torch.stack([stream.permutation(8) for stream in streams])
            return loss_R * (1 + orders_R8[:, 0]), state_R
        seeds = [stream.torch_seed() for stream in streams]
        assert alive == 0, "a failed recording is still in memory"
        return loss_R * (1 + torch.tensor(seeds) % 7), state_R


@pytest.mark.parametrize(
    ("kind", "replays", "reasons"),
    [("permutation", 3, []), ("torch_seed", 0, ["a step seeds a generator of its own, which cannot be recorded"])],
)
def test_steps_that_draw_orders_are_replayed_and_those_that_seed_generators_are_not(
    kind: str, replays: int, reasons: list[str], tumor_dataset: Dataset
):
    runtime, recorder, told = Runtime.resolve(EXACT), CpuRecorder(), Listener()
    stage = Drawing(stage_on(runtime, "finetune", tumor_dataset), kind)
    rows, (ever, state) = batches(stage, 2, 4), (GroupState.fresh(stage, [0, 1], runtime) for _ in "ab")
    expected = take(lambda rows_RB: training_step(stage, ever, rows_RB, runtime), ever, rows)
    losses = take(ReplayedSteps(stage, state, runtime, recorder, told), state, rows)
    require_same((expected, numbers(ever)), (losses, numbers(state)), rtol=1e-9, atol=1e-12)
    assert recorder.replays == replays
    assert [note.rpartition(": ")[2] for note in told.notes] == reasons


def test_a_member_that_has_stopped_cannot_stop_replayed_steps_of_others(tumor_dataset: Dataset):
    stage, runtime = supervised_stage(tumor_dataset), Runtime.resolve(CPU)
    state = GroupState.fresh(stage, [0, 1], runtime)
    steps = ReplayedSteps(stage, state, runtime, CpuRecorder(), NullReporter())
    rows = batches(stage, 2, 4)
    take(steps, state, rows[:2])
    with torch.no_grad():
        next(iter(state.params.values()))[0] = torch.nan
    state.records[0].stopped = True
    loss_R = take(steps, state, rows[2:3])[0]
    assert torch.isnan(loss_R).tolist() == [True, False]
    state.records[0].stopped = False
    with pytest.raises(TrainingError, match="not finite") as caught:
        take(steps, state, rows[3:])
    assert caught.value.where == "finetune, member 0, epoch 1, step 4"


def replay_all(monkeypatch, die_at: int | None = None) -> tuple[list[CpuRecorder], Listener]:
    """Let all training be replayed, and end at a step, if one is named; return a recorder per group, and notes."""
    recorders, told, taken = [], Listener(), [0]

    def stepping(stage, state, runtime, reporter):
        recorders.append(CpuRecorder())
        steps = ReplayedSteps(stage, state, runtime, recorders[-1], told)

        def counted(rows_RB: Tensor) -> Tensor:
            if taken[0] == die_at:
                raise KilledError
            taken[0] += 1
            return steps(rows_RB)

        return counted

    monkeypatch.setattr(loop, "stepping", stepping)
    if die_at is not None:
        monkeypatch.setattr(checkpoint.time, "monotonic", lambda: 10**6 * (taken[0] == die_at))
    return recorders, told


@pytest.mark.parametrize("run", [run_pretrain, pytest.param(run_finetune, marks=pytest.mark.slow)])
def test_replayed_training_that_was_killed_resumes_to_the_weights_of_a_whole_one(
    run, tumor_dataset: Dataset, tmp_path: Path, monkeypatch
):
    runtime = EXACT.model_copy(update={"group": 2})
    (tmp_path / "whole").mkdir()
    whole = run(tumor_dataset, tmp_path / "whole", members=2, runtime=runtime)
    with monkeypatch.context() as patched:
        replay_all(patched, die_at=3)
        with pytest.raises(KilledError):
            run(tumor_dataset, tmp_path, members=2, runtime=runtime)
    recorders, told = replay_all(monkeypatch)
    resumed = run(tumor_dataset, tmp_path, members=2, runtime=runtime)
    assert told.notes == []
    assert [recorder.recorded for recorder in recorders] == [1]
    close(whole.arrays, resumed.arrays)
    torch.testing.assert_close(resumed.meta["history"]["train_loss"], whole.meta["history"]["train_loss"])


NETWORKS = [name for name in NAMES if not registered(name).closed_form and registered(name).name != "stack"]
QUICKLY = {"crn", "costar, structured"}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param(name, data, marks=() if data == "ward" and name in QUICKLY else pytest.mark.slow)
        for name in NETWORKS
        for data in ("tumor", "ward")
    ],
)
def test_all_stages_of_a_network_can_be_replayed(name: str, data: str, monkeypatch):
    runtime = EXACT.model_copy(update={"group": 2})
    ever = fit(name, world(data), runtime=runtime)
    recorders, told = replay_all(monkeypatch)
    replayed = fit(name, world(data), runtime=runtime)
    assert told.notes == []
    assert all(recorder.recorded == 1 for recorder in recorders)
    close(ever.arrays, replayed.arrays)


def test_all_pretexts_can_be_replayed(tumor_dataset: Dataset, tmp_path: Path, monkeypatch):
    pretext = "contrastive+masked+next_step"
    runtime, paths = EXACT.model_copy(update={"group": 2}), (tmp_path / "a", tmp_path / "b")
    ever = run_pretrain(tumor_dataset, paths[0], runtime=runtime, pretext=pretext)
    _, told = replay_all(monkeypatch)
    replayed = run_pretrain(tumor_dataset, paths[1], runtime=runtime, pretext=pretext)
    assert told.notes == []
    close(ever.arrays, replayed.arrays)


class Nowhere(Stream):
    """Random numbers without values, on a device that holds none."""

    def random_bytes(self, count: int, device: torch.device) -> Tensor:
        return torch.empty(count, dtype=torch.uint8, device=device)

    def normal(self, *shape: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    def uniform(self, *shape: int, device: torch.device) -> Tensor:
        return torch.empty(shape, device=device)


class OneDevice(TorchDispatchMode):
    """Fails where numbers come from another device, or are asked for by the host."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        values = [v for v in tree_leaves((args, kwargs, result)) if isinstance(v, Tensor)]
        here = [v for v in values if v.device.type == "cpu" and (v.ndim or func.overloadpacket is COPY)]
        assert not here, f"{func} reads or writes memory of the host: {[v.shape for v in here]}"
        return result


COPY = torch.ops.aten._to_copy


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("make", [PretrainStage, SupervisedStage])
def test_what_is_recorded_stays_on_the_device(make, members: int, tumor_dataset: Dataset, monkeypatch):
    """On `meta`, which stands in for a GPU: no tensor of the host is read, no number comes back to it."""
    far = []
    for panel in panels(tumor_dataset):
        tensors = {f.name: getattr(panel, f.name) for f in fields(panel)}
        far.append(replace(panel, **{n: v.to("meta") for n, v in tensors.items() if isinstance(v, Tensor)}))
    config = {"config": PRETRAIN} if make is PretrainStage else {"config": FINETUNE, "encoder_config": ENCODER}
    if make is SupervisedStage:
        config |= {"horizon": tumor_dataset.horizon}
    stage = make(tumor_dataset.schema.dims, train=far[0], validation=far[1], **config)
    runtime = replace(Runtime.resolve(CPU), name="meta")
    state = GroupState.fresh(stage, list(range(members)), runtime)
    streams = [ReplayedStream(Nowhere(0)) for _ in range(members)]
    monkeypatch.setattr(torch.amp, "is_autocast_available", lambda _: False)  # it does not know `meta`
    rows_RB = torch.empty(members, 8, dtype=torch.int64, device="meta")
    gradients(stage, state, rows_RB, streams, runtime)  # the step that warms up
    for stream in streams:
        stream.refill(Nowhere(0))
    with OneDevice():
        found = gradients(stage, state, rows_RB, streams, runtime)
    assert found.loss_R.shape == (members,)
    assert all(value.grad is not None for name, value in state.params.items() if "static" not in name)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("kind", ["pretrain", "finetune"])
def test_cuda_graphs_give_the_weights_of_steps_as_ever(kind: str, members: int, tumor_dataset: Dataset):
    runtime = Runtime.resolve(RuntimeConfig(device="cuda", graphs=True))
    assert runtime.graphs
    stage = stage_on(runtime, kind, tumor_dataset, optimiser=ALL)
    rows = [rows_RB.cuda() for rows_RB in batches(stage, members, 6)]
    told, (ever, state) = Listener(), (GroupState.fresh(stage, list(range(members)), runtime) for _ in "ab")
    expected = take(lambda rows_RB: training_step(stage, ever, rows_RB, runtime), ever, rows)
    losses = take(loop.stepping(stage, state, runtime, told), state, rows)
    assert told.notes == []
    require_same((expected, numbers(ever)), (losses, numbers(state)), rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("graphs", [False, True])
def test_steps_without_dropout_on_a_gpu_agree_with_those_on_a_cpu(graphs, tumor_dataset: Dataset):
    """Both draw the same views; bytes of dropout alone are drawn where they are needed."""
    found = []
    for device in ("cpu", "cuda"):
        runtime = Runtime.resolve(RuntimeConfig(device=device, precision="float64", graphs=graphs))
        stage = stage_on(runtime, "pretrain", tumor_dataset, encoder=ENCODER.model_copy(update={"dropout": 0.0}))
        state = GroupState.fresh(stage, [0, 1, 2], runtime)
        rows = [rows_RB.to(runtime.device) for rows_RB in batches(stage, 3, 5)]
        losses = take(loop.stepping(stage, state, runtime, NullReporter()), state, rows)
        found.append((losses.cpu(), numbers(state)))
    require_same(*found, rtol=1e-4, atol=1e-6)
