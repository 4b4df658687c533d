"""Trained encoders and models: what `fit` and `load_model` return, and how they are kept."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from costar_cli.api.calls import PathLikeText, Progress, one_of
from costar_cli.artifact import Artifact, content_digest, read_artifact, write_artifact
from costar_cli.artifact.digest import canonical_json
from costar_cli.config.choices import DeviceName
from costar_cli.config.models import RuntimeConfig
from costar_cli.frames import FrameName
from costar_cli.methods.registry import model_of
from costar_cli.train import Runtime

if TYPE_CHECKING:
    from costar_cli.api.estimates import Plans
    from costar_cli.frames import Frame
    from costar_cli.methods.base import FittedModel
    from costar_cli.panel import Dataset, Panel
    from costar_cli.train import Trained


@dataclass(frozen=True, eq=False, repr=False)
class _Learned:
    """What training made, as its file holds it or would hold it."""

    artifact: Artifact

    @property
    def digest(self) -> str:
        """Return the digest of its file, saved or not."""
        return self.artifact.digest

    @property
    def members(self) -> int:
        """Return the number of ensemble members."""
        return int(self.artifact.meta["members"])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what its training warned of."""
        return tuple(dict.fromkeys(self.artifact.meta.get("warnings", ())))

    def save(self, path: PathLikeText, *, overwrite: bool = False) -> None:
        """Write it to a file, as `costar pretrain` and `costar finetune` do.

        Raises:
            MismatchError: the file exists and `overwrite` is false.
            StorageError: the disk is full, read-only or forbidden.
        """
        own = self.artifact
        write_artifact(path, kind=own.kind, arrays=own.arrays, meta=own.meta, parents=own.parents, overwrite=overwrite)

    def __repr__(self) -> str:
        several = "s" * (self.members != 1)
        return f"<{type(self).__name__} {self._what}: {self.members} member{several}, {self.digest[:8]}>"

    @property
    def _what(self) -> str:
        return str(self.artifact.meta["method"])


class Encoder(_Learned):
    """A pretrained encoder, from which `fit(..., start=encoder)` starts."""


@dataclass(frozen=True, eq=False, repr=False)
class Model(_Learned):
    """A trained ensemble that answers treatment plans; `fitted` is what computes the answers."""

    fitted: "FittedModel"

    @property
    def method(self) -> str:
        """Return the name of its method."""
        return self.fitted.method

    @property
    def horizon(self) -> int:
        """Return the most steps of a plan that it answers."""
        return self.fitted.horizon

    @property
    def domain(self) -> str:
        """Return the domain on which it was trained last: `source` or `target`."""
        return str(self.artifact.meta.get("domain", "source"))

    def predict(
        self,
        data: "Dataset | Panel | Frame",
        plans: "Plans",
        *,
        subjects: Iterable[int | str] | None = None,
        part: str | None = None,
        origin: int | str | None = None,
        level: float | Sequence[float] = 0.9,
        truth: bool = False,
        unsupported: bool = False,
        subject: str | None = None,
        time: str | None = None,
        frame: FrameName | None = None,
        progress: Progress = False,
    ) -> "Frame":
        """Predict the outcomes of many subjects under treatment plans.

        Args:
            data: a data set; a panel of its kind; or a frame of pandas or polars with a row per subject and step, read
                as `costar.read_new_subjects` does.
            plans: named plans, `{"chemo": [{"chemotherapy": 1}, {}]}`; one plan, a list of steps; a document as in
                `plan.json`; or the path of one. Every subject is asked about under each of them.
            subjects: of a data set, the subjects to ask about; all by default.
            part: of a data set, the part to ask about, such as `target/test`.
            origin: index of the last known step, `last`, `all`, or -K for K steps before the last; that of the plans,
                or each subject's last one.
            level: probability between `lower` and `upper` (docs/uncertainty.md); of several, all but the first have
                columns such as `lower_0.5`.
            truth: add what the simulator says, of a simulated data set.
            unsupported: answer plans of treatments that no training subject was given, too.
            subject: of a frame, the column that says whose row it is, where it is not called as in training.
            time: of a frame, the column of time, likewise; where there is none, a subject's rows are steps as they
                stand.
            frame: `pandas` or `polars`; that of the data by default, pandas where it came in neither.
            progress: True for progress on stderr, or a `Reporter`.

        Returns:
            A row per subject, plan, step and outcome: `subject`, `part` (of a data set), `origin`, `plan`, `step` (from
            1), `time` (origin + step), `outcome`, `unit`, `estimate` (the members' mean, in the units of the data),
            `lower`, `upper`, `level`, `interval_kind`, the lights `precision`, `practice` and `support`
            (docs/support.md), and `truth` where it was asked for.

        Raises:
            UsageError: unknown subjects, plans that do not fit, truth of observed data.
            DataError: a frame that cannot be read.
            MismatchError: a data set of other variables, treatments or units than the model's.
        """
        from costar_cli.api.predictions import predict

        return predict(
            self, data, plans, subjects=subjects, part=part, origin=origin, level=level, truth=truth,
            unsupported=unsupported, subject=subject, time=time, frame=frame, progress=progress,
        )  # fmt: skip

    @property
    def _what(self) -> str:
        init = self.artifact.meta.get("init")
        return f"{self.method}{' from scratch' * (init == 'scratch')} on {self.domain}, horizon {self.horizon}"


def of_training(kind: str, trained: "Trained") -> Artifact:
    """Return what training made as its file would give it, with the digest that the file would have."""
    meta = json.loads(canonical_json(trained.meta))
    digest = content_digest(kind, arrays=trained.arrays, meta=meta, parents=trained.parents)
    return Artifact(kind=kind, arrays=trained.arrays, meta=meta, parents=trained.parents, digest=digest)


def load_model(path: PathLikeText, *, device: DeviceName = "auto") -> Model:
    """Read a model that `costar finetune` or `Model.save` wrote.

    Args:
        path: the file.
        device: where it answers: `cpu`, `cuda`, or `auto` for a GPU where there is one.

    Raises:
        ArtifactError: the file is missing, holds no model, or one of a method that this version does not know.
        DeviceError: there is no such device.
    """
    one_of(device, get_args(DeviceName), "device", "device")
    return model_on(read_artifact(path, kind="model"), RuntimeConfig(device=device))


def model_on(artifact: Artifact, runtime: RuntimeConfig) -> Model:
    """Return the model that an artifact holds, on the device of the settings."""
    return Model(artifact, model_of(artifact, str(Runtime.resolve(runtime).device)))
