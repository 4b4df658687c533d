"""A variational LSTM that reads some columns of a series, with a head on its outputs, and the stage that trains it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.base import StepLoss
from costar_cli.methods.recurrent.lstm import LstmPass, LstmState, Masks, draw_masks, variational_lstm
from costar_cli.methods.shared.balancing import masked_mean
from costar_cli.methods.shared.members import Dims, Params, call_members, member_module, n_members, submodule
from costar_cli.methods.shared.microbatches import encode_in_microbatches, microbatch_size
from costar_cli.methods.shared.stage import NetworkStage
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.windows import Column, Windows

CPU_ELEMENTS = 2**23  # gates computed at once while a panel is encoded: a loop over steps needs wide ones to pay


class RecurrentNetwork(nn.Module):
    """Parameters of one member: `lstm.*`, `head.*`, and where there are such networks `adapter.*` and `features.*`.

    Args:
        dims: numbers of covariates, treatments, outcomes and statics.
        reads: the columns of the input, in order.
        width: units of each layer.
        layers: number of layers.
        head: what reads the outputs.
        adapted: width of the vector that the LSTM starts from, if that needs a map to its own width.
        features: width of what a network makes of the columns at each step, if the LSTM reads that and not the columns.
    """

    def __init__(
        self,
        dims: Dims,
        reads: tuple[Column, ...],
        *,
        width: int,
        layers: int,
        head: nn.Module,
        adapted: int | None = None,
        features: int | None = None,
    ) -> None:
        super().__init__()
        dx, da, dy, dv = dims
        sizes = {"previous": da, "treatment": da, "covariates": dx, "outcomes": dy, "statics": dv}
        self.reads, n_read = reads, sum(sizes[name] for name in reads)
        self.features = None
        if features is not None:
            self.features = nn.Sequential(nn.Linear(n_read, features), nn.ELU(), nn.Linear(features, features))
        self.lstm = nn.LSTM(features or n_read, width, layers)
        self.head = head
        self.adapter = None if adapted is None else nn.Linear(adapted, width)

    @property
    def elements_per_position(self) -> int:
        """Return how many numbers one position of one row takes at its widest."""
        return 4 * self.lstm.hidden_size

    def inputs(self, column: Callable[[Column], Tensor]) -> Tensor:
        """Return the columns that the network reads, side by side."""
        return torch.cat([column(name) for name in self.reads], dim=-1)

    def read_members(self, params_R: Params, batch: Windows) -> Tensor:
        """Return what the LSTMs of members read of a batch, `[R,T,B,I]`: the columns, or the features of them."""
        inputs_RTBI = self.inputs(batch.column)
        if self.features is None:
            return inputs_RTBI
        features_RTBI: Tensor = call_members(self.features, submodule(params_R, "features."), inputs_RTBI)
        return features_RTBI

    def run_members(self, params_R: Params, batch: Windows, masks: Masks = None) -> Tensor:
        """Return the outputs `[R,T,B,D]` of members on a batch, differentiable by their parameters."""
        start = None
        if batch.encoded_RBD is not None:
            vector_RBD = batch.encoded_RBD
            if self.adapter is not None:
                vector_RBD = call_members(self.adapter, submodule(params_R, "adapter."), vector_RBD)
            start = LstmState.both(vector_RBD, self.lstm.num_layers)
        inputs_RTBI = self.read_members(params_R, batch)
        return variational_lstm(submodule(params_R, "lstm."), inputs_RTBI, start=start, masks=masks).outputs

    def call_head(self, params_R: Params, *args_R: Tensor) -> Any:  # noqa: ANN401 - heads differ
        """Return what the heads of members make of their arguments."""
        return call_members(self.head, submodule(params_R, "head."), *args_R)

    def starting_from(self, vector_QD: Tensor) -> LstmState:
        """Return the state of this one member that starts from a vector."""
        adapted = vector_QD if self.adapter is None else self.adapter(vector_QD)
        return LstmState.both(adapted[None], self.lstm.num_layers)

    def run(self, inputs_TQI: Tensor, start: LstmState | None = None) -> LstmPass:
        """Run this one member, `R = 1` in the result."""
        params = {name: value[None] for name, value in self.lstm.named_parameters()}
        read_TQI = inputs_TQI if self.features is None else self.features(inputs_TQI)
        return variational_lstm(params, read_TQI[None], start=start)

    def step(self, columns: Mapping[Column, Tensor], state: LstmState) -> tuple[Tensor, LstmState]:
        """Return this one member's outputs `[Q,D]` for one more position, and the state after it."""
        done = self.run(self.inputs(lambda name: columns[name])[None], state)
        return done.outputs[0, 0], done.last


Make = Callable[[], RecurrentNetwork]


class Passed(NamedTuple):
    """One member's pass over a batch of series: its network, the batch, and what came out (`R = 1`)."""

    network: RecurrentNetwork
    batch: Windows
    done: LstmPass

    @property
    def outputs_TBD(self) -> Tensor:
        """Return the outputs at every position."""
        return self.done.outputs[0]


Read = Callable[[Passed], Tensor]


def over_subjects(network: RecurrentNetwork, panel: PanelTensors, steps: int, read: Read) -> Tensor:
    """Return what can be read, `[T,B,..]`, of one member's pass over the first steps of every series, as `[N,T,..]`."""
    subject_N = torch.arange(len(panel.length_N), device=panel.y_NTY.device)
    member_R = torch.zeros(1, dtype=torch.long, device=subject_N.device)

    def encode(subject_B: Tensor) -> tuple[Tensor]:
        batch = Windows.of(panel, member_R, subject_B[None], torch.zeros_like(subject_B)[None], steps).time_first()
        done = network.run(network.inputs(batch.column)[0])
        return (read(Passed(network, batch, done)).transpose(0, 1),)

    largest = steps * network.elements_per_position
    size = microbatch_size(largest, len(subject_N), subject_N.device, cpu_elements=CPU_ELEMENTS)
    return encode_in_microbatches(encode, subject_N, size=size)[0]


def over_members(make: Make, params_R: Params, panel: PanelTensors, read: Read) -> Tensor:
    """Return what can be read of every member's pass over the positions of a panel, `[R,N,T-1,..]`."""
    steps = panel.y_NTY.shape[1] - 1
    networks = (member_module(make(), params_R, member) for member in range(n_members(params_R)))
    return torch.stack([over_subjects(network, panel, steps, read) for network in networks])


class RecurrentStage(NetworkStage[RecurrentNetwork], ABC):
    """Trains one network on rows, with the masks of a variational LSTM; methods say what it minimises."""

    @abstractmethod
    def objective(self, params_R: Params, state_R: Params, batch: Windows, masks: Masks) -> Tensor:
        """Return what each member minimises, `[R]`."""

    @abstractmethod
    def error(self, params_R: Params, batch: Windows) -> Tensor:
        """Return the factual error at every position, `[R,T,B]`, without dropout; its mean is what selects."""

    def weight(self, batch: Windows) -> Tensor:
        """Return how much that error counts at every position, `[R,T,B]`."""
        return batch.weight

    def loss(self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]) -> StepLoss:
        """Return each member's objective on its mini-batch."""
        batch = self.train.batch(rows_RB, state_R["member"].long()).time_first()
        masks = draw_masks(self.network.lstm, self.dropout, streams, rows_RB.shape[1], batch.panel.y_NTY)
        return self.objective(params_R, state_R, batch, masks), state_R | {"updates": state_R["updates"] + 1}

    @torch.no_grad()
    def validation_loss(
        self, params_R: Params, state_R: Params, rows_RB: Tensor, streams: Sequence[Stream]
    ) -> tuple[Tensor, Tensor]:
        """Return `(error, weight)` of a validation batch."""
        batch = self.validation.batch(rows_RB, state_R["member"].long()).time_first()
        weight = self.weight(batch)
        return masked_mean(self.error(params_R, batch), weight), weight.flatten(1).sum(dim=1)
