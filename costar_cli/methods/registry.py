"""Which methods there are, and how to read a trained one."""

from collections.abc import Mapping
from pathlib import Path

from costar_cli.artifact import Artifact, read_artifact
from costar_cli.errors import ArtifactError
from costar_cli.methods.base import FittedModel, Method
from costar_cli.methods.costar.method import CostarMethod
from costar_cli.methods.recurrent.crn import CrnMethod
from costar_cli.methods.recurrent.gnet import GNetMethod
from costar_cli.methods.recurrent.rmsn import RmsnMethod
from costar_cli.methods.regression.msm import MsmMethod
from costar_cli.methods.regression.naive import LastValueMethod
from costar_cli.methods.regression.ridge import RidgeMethod
from costar_cli.methods.transformers.ct import CtMethod
from costar_cli.methods.transformers.edct import EdctMethod

__all__ = ["METHODS", "load_model", "model_of"]

_ALL: tuple[Method, ...] = (
    CostarMethod(),
    MsmMethod(),
    RmsnMethod(),
    CrnMethod(),
    CrnMethod("crn-erm", balances=False),
    GNetMethod(),
    CtMethod(),
    CtMethod("ct-erm"),
    EdctMethod(),
    RidgeMethod(),
    LastValueMethod(),
)
METHODS: Mapping[str, Method] = {method.name: method for method in _ALL}


def load_model(path: Path, device: str = "cpu") -> FittedModel:
    """Read a fine-tuned model of any method.

    Raises:
        ArtifactError: the file is missing, damaged, no model, or of a method that this version does not know.
    """
    return model_of(read_artifact(path, kind="model"), device)


def model_of(artifact: Artifact, device: str = "cpu") -> FittedModel:
    """Return the fitted model that an artifact of kind `model` holds.

    Raises:
        ArtifactError: it is of a method that this version does not know, or lacks something.
    """
    method = str(artifact.meta.get("method"))
    if method not in METHODS:
        raise ArtifactError(
            f"the model is of method {method!r}, which this version does not know",
            where=str(artifact.path),
            fix=f"known methods: {', '.join(METHODS)}; upgrade costar for others",
        )
    try:
        return METHODS[method].load(artifact, device)
    except (KeyError, ValueError, TypeError) as error:
        raise ArtifactError(
            "the model artifact lacks or garbles something",
            where=f"{artifact.path}: {error}",
            fix="train it again with `costar finetune`",
        ) from error
