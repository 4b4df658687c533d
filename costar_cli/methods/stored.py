"""Fitted models of any method, read from their files; importing this loads no method, nor torch."""

from pathlib import Path
from typing import TYPE_CHECKING

from costar_cli.errors import ArtifactError
from costar_cli.methods.registry import METHODS

if TYPE_CHECKING:
    from costar_cli.files import Artifact
    from costar_cli.methods.base import FittedModel


def load_model(path: Path, device: str = "cpu") -> "FittedModel":
    """Read a fine-tuned model of any method.

    Raises:
        ArtifactError: the file is missing, damaged, no model, or of a method that this version does not know.
    """
    from costar_cli.files import read_artifact  # noqa: PLC0415 - the facts about methods need no HDF5

    return model_of(read_artifact(path, kind="model"), device)


def model_of(artifact: "Artifact", device: str = "cpu") -> "FittedModel":
    """Return the fitted model that an artifact of kind `model` holds.

    Raises:
        ArtifactError: it is of a method that this version does not know, or lacks something.
    """
    from costar_cli.data.record import ModelRecord  # noqa: PLC0415 - the facts about methods need no HDF5

    method = ModelRecord.of(artifact).method
    if method not in METHODS:
        raise ArtifactError(
            f"the model is of method {method!r}, which this version does not know",
            where=str(artifact.path),
            fix=f"known methods: {', '.join(METHODS)}; upgrade costar, or install the package that adds it",
        )
    from costar_cli.files import complete  # noqa: PLC0415 - as above

    with complete(artifact):
        return METHODS[method].load(artifact, device)
