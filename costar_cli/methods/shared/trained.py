"""What trained models share: how they are stored and read, how they answer queries, and how a fit starts from them."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from costar_cli.config.models import Config
from costar_cli.data import Panel, PanelSchema, Queries, Scaler
from costar_cli.data.record import ModelRecord
from costar_cli.data.tensors import PanelTensors
from costar_cli.data.truncated import STRETCH, Stretches
from costar_cli.errors import MismatchError, UsageError, first_of
from costar_cli.files import Artifact
from costar_cli.methods.base import FitTask, FittedModel
from costar_cli.methods.registry import METHODS
from costar_cli.methods.shared.members import Params, n_members, submodule
from costar_cli.methods.shared.microbatches import on_cores
from costar_cli.reporting import NullReporter, Reporter

StatesT = TypeVar("StatesT")
ModelT = TypeVar("ModelT", bound=FittedModel)
PARAMS = "params/"  # prefix of the parameters in an artifact
ATTACHED = ("calibration/", "practice/", "survival/")  # prefixes of what was learned of its answers, once it was fitted
NETWORK_SHAPE = ("width", "representation", "hidden", "layers", "heads", "clip_distance", "components")
SHAPE = (*NETWORK_SHAPE, "decoder", "carry_overs", "fading", "covariates")


def model_arrays(params: Params, scaler: Scaler) -> dict[str, NDArray[np.generic]]:
    """Return what a model's or encoder's artifact holds: parameters of all members by name, and the scaler."""
    arrays: dict[str, NDArray[np.generic]] = {
        PARAMS + name: value.detach().cpu().numpy() for name, value in params.items()
    }
    return arrays | {f"scaler/{name}": value for name, value in scaler.to_arrays().items()}


def read_fields(artifact: Artifact, device: torch.device | str) -> dict[str, Any]:
    """Return the fields of `TrainedModel` that artifacts with parameters have, on a device; encoders have horizon 0.

    Raises:
        ValueError: the record is damaged, or the scaler is none of the schema's columns.
    """
    arrays, record = artifact.arrays, ModelRecord.read(artifact.meta)
    if record.schema is None:
        raise ValueError("schema is missing")
    return {
        "params": {
            name.removeprefix(PARAMS): torch.from_numpy(np.array(value)).to(device)
            for name, value in arrays.items()
            if name.startswith(PARAMS)
        },
        "method": record.method,
        "horizon": record.horizon or 0,
        "schema": record.schema,
        "scaler": Scaler.read(arrays, record.schema),
        "attached": {name: array for name, array in arrays.items() if name.startswith(ATTACHED)},
        "record": record,
        "digest": artifact.digest,
        "parents": artifact.parents,
        "device": device,
    }


@dataclass(frozen=True, kw_only=True)
class TrainedModel(FittedModel):
    """A trained ensemble of R members, as its artifact has it; what is left to say is `rollout`."""

    method: str
    params: Params
    schema: PanelSchema
    scaler: Scaler
    horizon: int
    record: ModelRecord = field(default_factory=ModelRecord)
    attached: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)
    digest: str = ""
    parents: Mapping[str, str] = field(default_factory=dict)
    device: torch.device | str = "cpu"

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: torch.device | str = "cpu", **own: Any) -> Self:  # noqa: ANN401
        """Read a model artifact; `own` are the fields that this class adds."""
        known = read_fields(artifact, device)
        if not known["horizon"]:
            raise ValueError("horizon is missing")
        return cls(**known, **own)

    @property
    def members(self) -> int:
        """Return R."""
        return n_members(self.params)

    def require_arrays(
        self, shapes: Mapping[str, tuple[int, ...]], *, optional: Collection[str] = (), within: tuple[str, ...] = ("",)
    ) -> Self:
        """Return the model, once its parameters are seen to be floats of these shapes, each behind the member axis.

        Args:
            shapes: by name.
            optional: names that files of older versions lack.
            within: prefixes of names; others may be there, too.

        Raises:
            ValueError: naming parameters that are missing, unknown, no numbers, or of another shape.
        """
        params, members = self.params, self.members
        wrong = [] if members else ["there are no members"]
        wrong += [f"{name} is missing" for name in shapes if name not in params and name not in optional]
        wrong += [f"{name} is unknown" for name in params if name.startswith(within) and name not in shapes]
        for name, value in ((name, params[name]) for name in shapes if name in params):
            shape = (members, *shapes[name])
            if tuple(value.shape) != shape or not value.is_floating_point():
                found = f"{value.dtype} {list(value.shape)}".removeprefix("torch.")
                wrong.append(f"{name} is {found}, not float {list(shape)}")
        if wrong:
            raise ValueError("; ".join(first_of(wrong)))
        return self


class ReadsModels:
    """What the estimators of this package share: their models are read from artifacts by the class of the model.

    `rolled` is the class of a model whose outcomes are rolled out, where that is a choice (spec NET-21).
    """

    model: ClassVar[type[Any]]
    rolled: ClassVar[type[Any] | None] = None

    def load(self, artifact: Artifact, device: torch.device | str = "cpu") -> FittedModel:
        """Return the model that an artifact holds; closed forms compute on the CPU."""
        outputs = (ModelRecord.read(artifact.meta).settings or {}).get("outputs", {})
        kind = self.rolled if self.rolled and outputs.get("decoder") == "structured" else self.model
        model: FittedModel = kind.from_artifact(artifact, device)
        return model


class AnswerJob(NamedTuple):
    """Some queries that are answered together.

    `predict` returns the scaled outcomes of `members` and `rows`, as these index `[R,Q,tau,dy]`; a row may occur twice.
    `answers` counts those to different rows.
    """

    members: slice | int
    rows: slice | NDArray[np.int64]
    answers: int
    predict: Callable[[], Tensor | NDArray[np.floating]]


@dataclass(frozen=True, kw_only=True)
class EncodingModel(TrainedModel, Generic[StatesT]):
    """A trained model that encodes a panel once and answers any number of queries from that."""

    @abstractmethod
    def encode(self, panel: Panel) -> StatesT:
        """Return what every member knows of every subject's history at every step, on the model's device."""

    @abstractmethod
    def jobs(self, states: StatesT, queries: Queries, batch_size: int) -> Iterator[Iterable[AnswerJob]]:
        """Yield all queries, at most `batch_size` in a job: together those jobs that may be done side by side."""

    def answer(
        self, states: StatesT, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict as `rollout` does, on a panel that `encode` has seen.

        Raises:
            UsageError: the plans are longer than the horizon that the model was trained for.
        """
        require_horizon(self.horizon, queries)
        result = np.empty((self.members, len(queries), queries.horizon, len(self.schema.outcomes)), dtype=np.float32)

        def fill(job: AnswerJob) -> int:
            with torch.no_grad():
                scaled = job.predict()
            values = scaled.cpu().numpy() if isinstance(scaled, Tensor) else scaled
            result[job.members, job.rows] = self.scaler.unscale_outcomes(values)
            return job.answers

        total = self.members * len(queries)
        with (reporter or NullReporter()).task("rollout", total=total, unit="query") as task:
            for together in self.jobs(states, queries, batch_size):
                for count in on_cores(fill, together, device=torch.device(self.device)):
                    task.advance(count)
        binary = [o for o, outcome in enumerate(self.schema.outcomes) if outcome.kind == "binary"]
        if binary:  # predictions of these are probabilities (spec SURV-8)
            result[..., binary] = result[..., binary].clip(0, 1)
        return result

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict the outcomes of every query, `[R,Q,tau,dy]` in the units of the data.

        Only the subjects asked about are encoded, each once.

        Raises:
            UsageError: the plans are longer than the horizon that the model was trained for.
        """
        require_horizon(self.horizon, queries)
        subjects, row = np.unique(queries.subject, return_inverse=True)
        asked = replace(queries, subject=row.astype(np.int32))
        states, asked = self.encode_asked(panel.take(subjects.astype(np.int64)), asked)
        return self.answer(states, asked, batch_size=batch_size, reporter=reporter)

    def encode_asked(self, panel: Panel, queries: Queries) -> tuple[StatesT, Queries]:
        """Return what queries about all subjects of a panel need to know, and the queries that `answer` then takes."""
        return self.encode(panel), queries

    def scaled(self, panel: Panel) -> PanelTensors:
        """Return a panel on the model's device, in its precision, as networks see it."""
        dtype = next(iter(self.params.values())).dtype
        return PanelTensors.from_panel(panel, self.scaler, device=self.device, dtype=dtype)

    def jobs_of_all_members(
        self, predict: Callable[[Queries], Tensor | NDArray[np.floating]], queries: Queries, size: int
    ) -> Iterator[Iterable[AnswerJob]]:
        """Yield jobs of `size` consecutive queries each, which all members answer: `predict` returns `[R,Q,tau,dy]`."""
        parts = [slice(first, min(first + size, len(queries))) for first in range(0, len(queries), size)]
        yield [
            AnswerJob(slice(None), rows, self.members * (rows.stop - rows.start), partial(predict, queries.take(rows)))
            for rows in parts
        ]


@dataclass(frozen=True)
class InStretches(Generic[StatesT]):
    """What a model knows of long series, stretch by stretch."""

    stretches: Stretches
    states: StatesT


class _WithoutDraws(TorchFunctionMode):
    """Normal numbers are not drawn: where tensors have no values, PyTorch imports its compiler to draw them."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - of any function
        return (torch.empty if func is torch.randn else func)(*args, **(kwargs or {}))


@dataclass(frozen=True, kw_only=True)
class SeriesModel(EncodingModel[StatesT]):
    """A trained network; where it has learned from stretches of long series, it looks as far back (spec PANEL-14)."""

    @abstractmethod
    def networks(self) -> Mapping[str, Callable[[], nn.Module]]:
        """Return what makes each network that answers need, by the prefix of its parameters."""

    def require_shapes(self) -> Self:
        """Return the model, once its parameters are seen to be those of such networks; their values are not made.

        Raises:
            ValueError: as `require_arrays`.
        """
        networks, shapes = self.networks(), dict[str, tuple[int, ...]]()
        for prefix, make in networks.items():
            with torch.device("meta"), _WithoutDraws():
                shapes |= {f"{prefix}{name}": tuple(value.shape) for name, value in make().named_parameters()}
        return self.require_arrays(shapes, within=tuple(networks))

    @abstractmethod
    def encode_series(self, panel: Panel) -> StatesT:
        """Return what every member knows of every subject's history at every step, on the model's device."""

    def encode(self, panel: Panel) -> StatesT:
        """Return what every member knows of the histories, or of their stretches: what `answer` reads."""
        if not self._cuts(panel):
            return self.encode_series(panel)
        stretches = Stretches.of(panel)
        return cast("StatesT", InStretches(stretches, self.encode_series(stretches.panel)))

    def answer(
        self, states: StatesT, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict as `rollout` does, on a panel that `encode` has seen."""
        if isinstance(states, InStretches):
            queries, states = states.stretches.queries(queries), states.states
        return super().answer(states, queries, batch_size=batch_size, reporter=reporter)

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict the outcomes of every query; only the subjects asked about, or their stretches, are encoded."""
        if self._cuts(panel):
            panel, queries = Stretches.asked(panel, queries)
        return super().rollout(panel, queries, batch_size=batch_size, reporter=reporter)

    def _cuts(self, panel: Panel) -> bool:
        return panel.n_steps > STRETCH and self.record.stretch is not None


@dataclass(frozen=True, kw_only=True)
class NetworkModel(SeriesModel[StatesT]):
    """A trained model of a method with settings of its own; `params` are named `NETWORK.*` where there are several."""

    settings: Any  # of the method's own type

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: torch.device | str = "cpu", **own: Any) -> Self:  # noqa: ANN401
        """Read a model artifact."""
        record = ModelRecord.read(artifact.meta)
        kind = METHODS[record.method].settings_class
        settings = kind and kind.model_validate(record.settings)
        return super().from_artifact(artifact, device, settings=settings, **own).require_shapes()

    @classmethod
    def start_of(cls, task: FitTask, method: str, settings: Config) -> Self | None:
        """Return the model that a fit starts from, if there is one.

        Raises:
            MismatchError: it is of a different method, or has fewer members than asked for.
            UsageError: the settings give its networks a different shape.
        """
        start = model_to_start_from(task, NetworkModel, method)  # type: ignore[type-abstract]
        differing = _other_shapes(start.settings, settings) if start else []
        if differing:
            raise UsageError(
                "the networks of the source model differ in shape from the settings",
                where=f"[{method.replace('-', '_')}]",
                fix="adapt it with the settings that it was trained with",
                details=differing,
            )
        return cast("Self | None", start)

    def params_of(self, network: str) -> Params:
        """Return the parameters of one network, without its name."""
        return submodule(self.params, f"{network}.")


def _other_shapes(source: Config, asked: Config) -> list[str]:
    """Return in words which settings of the networks' shapes differ."""
    theirs, mine = source.model_dump(), asked.model_dump()
    return [
        f"{network}.{key}: the source model has {value}, the settings say {mine[network][key]}"
        for network, values in theirs.items()
        if isinstance(values, dict)
        for key, value in values.items()
        if key in SHAPE and mine[network][key] != value
    ]


def require_horizon(horizon: int, queries: Queries) -> None:
    """Stop when plans are longer than what a model answers.

    Raises:
        UsageError: naming both lengths.
    """
    if queries.horizon > horizon:
        raise UsageError(
            f"plans of {queries.horizon} steps are longer than the model's horizon",
            fix=f"ask for 1 to {horizon} steps, or train with a longer `--horizon`",
        )


def model_to_start_from(task: FitTask, kind: type[ModelT], method: str) -> ModelT | None:
    """Return the model that a fit starts from, if there is one.

    Raises:
        MismatchError: it is of a different method, or has fewer members than asked for.
    """
    start = task.start
    if start is None:
        return None
    if not isinstance(start, kind) or start.method != method:
        raise MismatchError(
            f"the model to start from is of method {start.method}, not {method}",
            where="--start",
            fix=f"`costar finetune --method {method}` makes one",
        )
    if task.members > start.members:
        raise MismatchError(
            f"{task.members} members were asked for, but there {'is' if start.members == 1 else 'are'} only "
            f"{start.members} to start from",
            where="--members",
            fix=f"use `--members {start.members}` or fewer",
        )
    return start
