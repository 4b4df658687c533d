"""Trained encoders and models: what `fit` and `load_model` return, and how they are kept."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from costar_cli.api.calls import PathLikeText, one_of
from costar_cli.artifact import Artifact, content_digest, read_artifact, write_artifact
from costar_cli.artifact.digest import canonical_json
from costar_cli.config.choices import DeviceName
from costar_cli.config.models import RuntimeConfig
from costar_cli.methods.registry import model_of
from costar_cli.train import Runtime

if TYPE_CHECKING:
    from costar_cli.methods.base import FittedModel
    from costar_cli.train import Trained

__all__ = ["Encoder", "Model", "load_model", "model_on", "of_training"]


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
        ArtifactError: there is no such file, it holds no model, or one of a method that this version does not know.
        DeviceError: there is no such device.
    """
    one_of(device, get_args(DeviceName), "device", "device")
    return model_on(read_artifact(path, kind="model"), RuntimeConfig(device=device))


def model_on(artifact: Artifact, runtime: RuntimeConfig) -> Model:
    """Return the model that an artifact holds, on the device of the settings."""
    return Model(artifact, model_of(artifact, str(Runtime.resolve(runtime).device)))
