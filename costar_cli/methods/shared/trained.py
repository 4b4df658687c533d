"""What trained models share: how they are stored and read, how they answer queries, and how a fit starts from them."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, PanelSchema, Queries, Scaler
from costar_cli.data.record import ModelRecord
from costar_cli.errors import MismatchError, UsageError, first_of
from costar_cli.files import Artifact
from costar_cli.methods.base import FitTask, FittedModel
from costar_cli.methods.model import Device, Parameters
from costar_cli.methods.shared.cores import side_by_side
from costar_cli.reporting import NullReporter, Reporter

StatesT = TypeVar("StatesT")
ModelT = TypeVar("ModelT", bound=FittedModel)
PARAMS = "params/"  # prefix of the parameters in an artifact
ATTACHED = ("calibration/", "practice/", "survival/")  # prefixes of what was learned of its answers, once it was fitted


def model_arrays(params: Parameters, scaler: Scaler) -> dict[str, NDArray[np.generic]]:
    """Return what a model's or encoder's artifact holds: parameters of all members by name, and the scaler."""
    arrays: dict[str, NDArray[np.generic]] = {
        PARAMS + name: value if isinstance(value, np.ndarray) else value.detach().cpu().numpy()
        for name, value in params.items()
    }
    return arrays | {f"scaler/{name}": value for name, value in scaler.to_arrays().items()}


def read_fields(artifact: Artifact) -> dict[str, Any]:
    """Return the fields of `TrainedModel` that artifacts with parameters have; encoders have horizon 0.

    Raises:
        ValueError: the record is damaged, or the scaler is none of the schema's columns.
    """
    arrays, record = artifact.arrays, ModelRecord.read(artifact.meta)
    if record.schema is None:
        raise ValueError("schema is missing")
    return {
        "params": {
            name.removeprefix(PARAMS): np.array(value) for name, value in arrays.items() if name.startswith(PARAMS)
        },
        "method": record.method,
        "horizon": record.horizon or 0,
        "schema": record.schema,
        "scaler": Scaler.read(arrays, record.schema),
        "attached": {name: array for name, array in arrays.items() if name.startswith(ATTACHED)},
        "record": record,
        "digest": artifact.digest,
        "parents": artifact.parents,
    }


@dataclass(frozen=True, kw_only=True)
class TrainedModel(FittedModel):
    """A trained ensemble of R members, as its artifact has it; what is left to say is `rollout`."""

    method: str
    params: Parameters
    schema: PanelSchema
    scaler: Scaler
    horizon: int
    record: ModelRecord = field(default_factory=ModelRecord)
    attached: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)
    digest: str = ""
    parents: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: Device = "cpu", **own: Any) -> Self:  # noqa: ANN401, ARG003
        """Read a model artifact; `own` are the fields that this class adds.

        Closed forms have arrays, and compute on the CPU whatever the device of networks.
        """
        known = read_fields(artifact)
        if not known["horizon"]:
            raise ValueError("horizon is missing")
        return cls(**known, **own)

    @property
    def members(self) -> int:
        """Return R."""
        return len(next(iter(self.params.values())))

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
            kind = str(value.dtype).removeprefix("torch.")
            if tuple(value.shape) != shape or not kind.startswith(("float", "bfloat")):
                found = f"{kind} {list(value.shape)}"
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

    def load(self, artifact: Artifact, device: Device = "cpu") -> FittedModel:
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
    predict: Callable[[], Any]


@dataclass(frozen=True, kw_only=True)
class EncodingModel(TrainedModel, Generic[StatesT]):
    """A trained model that encodes a panel once and answers any number of queries from that."""

    @abstractmethod
    def encode(self, panel: Panel) -> StatesT:
        """Return what every member knows of every subject's history at every step."""

    def predicted(self, job: AnswerJob) -> NDArray[np.floating]:
        """Return the scaled outcomes of a job."""
        found: NDArray[np.floating] = job.predict()
        return found

    def together(self, fill: Callable[[AnswerJob], int], jobs: Iterable[AnswerJob]) -> Iterator[int]:
        """Yield what `fill` returns of jobs that may be done side by side, in order."""
        return side_by_side(fill, jobs)

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
            result[job.members, job.rows] = self.scaler.unscale_outcomes(self.predicted(job))
            return job.answers

        total = self.members * len(queries)
        with (reporter or NullReporter()).task("rollout", total=total, unit="query") as task:
            for together in self.jobs(states, queries, batch_size):
                for count in self.together(fill, together):
                    task.advance(count)
        return probabilities_within(self.schema, result)

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

    def jobs_of_all_members(
        self, predict: Callable[[Queries], Any], queries: Queries, size: int
    ) -> Iterator[Iterable[AnswerJob]]:
        """Yield jobs of `size` consecutive queries each, which all members answer: `predict` returns `[R,Q,tau,dy]`."""
        parts = [slice(first, min(first + size, len(queries))) for first in range(0, len(queries), size)]
        yield [
            AnswerJob(slice(None), rows, self.members * (rows.stop - rows.start), partial(predict, queries.take(rows)))
            for rows in parts
        ]


def probabilities_within(schema: PanelSchema, outcomes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return outcomes `[...,Y]`, those predicted of binary ones, which are probabilities, from 0 to 1 (spec SURV-8)."""
    binary = [o for o, outcome in enumerate(schema.outcomes) if outcome.kind == "binary"]
    if binary:
        outcomes[..., binary] = outcomes[..., binary].clip(0, 1)
    return outcomes


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
