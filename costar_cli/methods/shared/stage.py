"""What stages of training share: one way to start, how steps are divided into epochs, and the order of stages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor, nn

from costar_cli.config.choices import SelectionName
from costar_cli.config.models import Config, FinetuneConfig, TrainingConfig
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.base import FinalStage, Fit, FitTask, Fitted, Stage
from costar_cli.methods.shared.members import Params, named_params, of_members, with_prefix
from costar_cli.methods.shared.networks import NetworkModel
from costar_cli.methods.shared.streams import Stream
from costar_cli.methods.shared.windows import OriginRows, Rows, SubjectRows

NetworkT = TypeVar("NetworkT", bound=nn.Module)


class PlainStage:
    """A stage that keeps the best weights as they are, on complete passes over its rows, without gradient clipping.

    Its steps do not depend on the number of epochs.
    """

    keep: str = "best"
    scheduled: bool = False
    drop_last: bool = False
    max_grad_norm: float | None = None
    members_at_once: int | None = None

    def weights(self, params_R: Params, state_R: Params) -> Params:
        """Return the weights to keep: the parameters themselves."""
        return params_R

    def reference(self) -> float | None:
        """Return nothing: most losses have no natural reference."""
        return None


def initial_params(
    make: Callable[[], nn.Module], config: TrainingConfig, stage: str, member: int, start_R: Params | None = None
) -> Params:
    """Return one member's parameters: freshly drawn from its own stream, or those to start from, where there are any.

    Args:
        make: returns a freshly initialised network.
        config: where the seed is.
        stage: name of the stage, part of the stream's key.
        member: the member's number.
        start_R: earlier weights of all or some of the parameters, `[R,...]`.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(Stream(config.seed, stage, "initial", member).torch_seed())
        fresh = named_params(make())
    return fresh | {name: value[member].cpu() for name, value in (start_R or {}).items()}


@dataclass(frozen=True, kw_only=True)
class NetworkTraining(Generic[NetworkT]):
    """One network of a fit, and what it learns from.

    Attributes:
        name: what progress and random streams call the stage.
        make: returns a freshly initialised network.
        network: settings of the network.
        config: settings of its training.
        train: rows to learn from.
        validation: rows to select on.
        start_R: parameters to start from, or none.
    """

    name: str
    make: Callable[[], NetworkT]
    network: Any  # each network has settings of its own type
    config: TrainingConfig
    train: Rows
    validation: Rows
    start_R: Params | None = None


class NetworkStage(PlainStage, Generic[NetworkT]):
    """Trains one network on rows.

    A member's state is its number, since decoders start from what the member's own encoder knows, and the number of
    its updates.
    """

    def __init__(self, training: NetworkTraining[NetworkT]) -> None:
        self.name, self.config = training.name, training.config
        self.network = training.make().to(training.train.panel.y_NTY.device)
        self.train, self.validation = training.train, training.validation
        self.n_train, self.n_validation = len(training.train), len(training.validation)
        self.dropout: float = training.network.dropout
        self.max_grad_norm: float | None = getattr(training.network, "max_grad_norm", None)
        self._make, self._start_R = training.make, training.start_R

    def initial(self, member: int) -> tuple[Params, Params]:
        """Return a member: freshly drawn parameters, or those to start from."""
        params = initial_params(self._make, self.config, self.name, member, self._start_R)
        return params, {"member": torch.tensor(float(member)), "updates": torch.tensor(0.0)}


def one_stage(
    task: FitTask,
    stage: Stage,
    complete: Callable[[Params, Sequence[int]], Fitted],
    settings: Config | None = None,
    select_on: SelectionName | None = None,
) -> Fit:
    """Train the last stage of a fit, and return what the fit ends with; the arguments are those of `FinalStage`."""
    params_R = yield FinalStage(stage, complete, settings, select_on)
    return complete(params_R, range(task.members))


def encoder_then_decoder(
    task: FitTask,
    method: str,
    settings: Any,  # noqa: ANN401 - of the method's own type, with those of both networks
    makes: Mapping[str, Callable[[], NetworkT]],
    panels: Sequence[PanelTensors],
    *,
    stage: Callable[[str, NetworkTraining[NetworkT]], Stage],
    encode: Callable[[PanelTensors, Params], Tensor],
    start: NetworkModel[Any] | None,
    before: Mapping[str, Params] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Fit:
    """Train an encoder and, where more than one step is predicted, a decoder on what all members' encoders know.

    Args:
        task: what to fit to.
        method: the method's name, with which the names of both stages begin.
        settings: settings of both networks, `encoder` and `decoder`.
        makes: what makes each network, by name.
        panels: those to learn from and to select on.
        stage: returns the stage of a network, `encoder` or `decoder`.
        encode: returns what all encoders know at every position of a panel, `[R,N,T-1,D]`, given their parameters.
        start: the model to start from, or none.
        before: networks that are already trained, by name.
        meta: facts that the artifact records.

    Raises:
        DataError: no subject is long enough for the decoder.
    """
    trained, shared = dict(before or {}), stage_shares(task.config, task.horizon)

    def make_stage(name: str, config: TrainingConfig, rows: Sequence[Rows]) -> Stage:
        training = NetworkTraining(
            name=task.stage_name(f"{method} {name}"),
            make=makes[name],
            network=getattr(settings, name),
            config=config,
            train=rows[0],
            validation=rows[1],
            start_R=start.params_of(name) if start else None,
        )
        return stage(name, training)

    def complete(last: str, last_R: Params, members: Sequence[int]) -> Fitted:
        networks = {name: of_members(params_R, members) for name, params_R in trained.items()} | {last: last_R}
        named = [with_prefix(params_R, name) for name, params_R in networks.items()]
        return Fitted({name: value for one in named for name, value in one.items()}, dict(meta or {}))

    encoder = make_stage("encoder", settings.encoder.training(shared[0]), [SubjectRows(panel) for panel in panels])
    if task.horizon == 1:
        return (yield from one_stage(task, encoder, partial(complete, "encoder")))
    trained["encoder"] = yield encoder
    windows = [OriginRows(panel, task.horizon - 1, encode(panel, trained["encoder"])) for panel in panels]
    training = settings.decoder.training(shared[1])
    many = max(4096, training.validation_batch_size)  # its rows are short, so that many are validated at once
    decoder = make_stage("decoder", training.model_copy(update={"validation_batch_size": many}), windows)
    return (yield from one_stage(task, decoder, partial(complete, "decoder")))


def stage_shares(shared: FinetuneConfig, horizon: int) -> tuple[FinetuneConfig, FinetuneConfig]:
    """Return the settings of an encoder's and of a decoder's stage, which share the updates of one network.

    Where one step is predicted there is no decoder, and the encoder has them all.
    """
    if shared.updates is None or horizon == 1:
        return shared, shared
    first = max(1, shared.updates // 2)
    updates = first, max(1, shared.updates - first)
    encoder, decoder = (shared.model_copy(update={"updates": count}) for count in updates)
    return encoder, decoder


@dataclass(frozen=True, slots=True)
class EpochSchedule:
    """How the optimiser steps of a stage are divided.

    An epoch is a pass over the rows or, where `updates` says how many steps there are, an equal share of them; the last
    one may then be shorter. Passes follow one another without regard to epochs.

    Attributes:
        epochs: most epochs.
        steps_per_epoch: steps between two validations.
        steps_per_pass: mini-batches of all rows.
        steps: most steps.
    """

    epochs: int
    steps_per_epoch: int
    steps_per_pass: int
    steps: int

    @classmethod
    def of(cls, config: TrainingConfig, n_rows: int, *, drop_last: bool) -> Self:
        """Return the pace of a stage; an incomplete last mini-batch may be left out, unless it is the only one."""
        full, rest = divmod(n_rows, config.batch_size)
        per_pass = full + (1 if rest and (not drop_last or not full) else 0)
        if config.updates is None:
            return cls(config.epochs, per_pass, per_pass, config.epochs * per_pass)
        per_epoch = -(-config.updates // config.epochs)
        return cls(-(-config.updates // per_epoch), per_epoch, per_pass, config.updates)

    def before(self, epoch: int) -> int:
        """Return how many steps come before an epoch, counted from 0: all of them before the one after the last."""
        return min(epoch * self.steps_per_epoch, self.steps)


@dataclass(frozen=True)
class AlphaSchedule:
    """The weight of the balancing loss over training: `largest * (2 / (1 + exp(-10 p)) - 1)` (spec NET-14).

    `p` is the share of epochs done, so alpha is 0 during the first epoch and `0.9999 * largest` after the last one.
    """

    largest: float
    epochs: int
    steps_per_epoch: int

    @classmethod
    def over(cls, largest: float, training: TrainingConfig, n_rows: int, *, drop_last: bool) -> "AlphaSchedule":
        """Return the schedule of a stage with these settings on so many rows."""
        pace = EpochSchedule.of(training, n_rows, drop_last=drop_last)
        return cls(largest, pace.epochs, max(pace.steps_per_epoch, 1))

    def alpha(self, updates: Tensor) -> Tensor:
        """Return alpha at the step that follows this many updates, in their shape."""
        epochs_done = torch.floor((updates + 0.5) / self.steps_per_epoch)  # the half guards against rounding
        return self.largest * (2 / (1 + torch.exp(-10 * epochs_done / self.epochs)) - 1)
