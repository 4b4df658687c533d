"""Trained models as `evaluate` and `whatif` read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from costar_cli.errors import ArtifactError, UsageError
from costar_cli.steps.session import Session

if TYPE_CHECKING:
    from costar_cli.artifact import Artifact
    from costar_cli.methods.base import FittedModel

__all__ = ["MAKE_MODEL", "LoadedModel", "load_models", "name_models"]

MAKE_MODEL = "`costar finetune` makes one"


@dataclass(frozen=True)
class LoadedModel:
    """A model, the header of its file, and a name that is its own among the models of this run."""

    name: str
    header: "Artifact"
    model: "FittedModel"


def name_models(paths: Sequence[Path], workspace: Path) -> dict[str, Path]:
    """Return models by name: the file's name, with its folder where two files are called alike.

    Raises:
        ArtifactError: there is no model.
        UsageError: a model is given twice.
    """
    if not paths:
        raise ArtifactError("there is no model yet", where=str(workspace), fix=MAKE_MODEL)
    stems = [path.stem for path in paths]
    named = {path.stem if stems.count(path.stem) == 1 else str(path.with_suffix("")): path for path in paths}
    if len(named) < len(paths):
        raise UsageError("a model is given twice", where="--model", fix="give each model once")
    return named


def load_models(session: Session, headers: dict[str, "Artifact"], named: dict[str, Path]) -> list[LoadedModel]:
    """Load models onto the device that the settings ask for, and warn of those that record less than today's do."""
    from costar_cli.config.models import RuntimeConfig
    from costar_cli.methods import load_model
    from costar_cli.train.runtime import Runtime

    for name, header in headers.items():
        missing = [words for key, words in _RECORDED.items() if key not in header.meta]
        if missing and "made_with" not in header.meta:
            what = f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not recorded"
            session.out.warn(f"model `{name}` was made by an older costar: {what}; train it again")
    device = Runtime.resolve(session.settings[RuntimeConfig]).device
    return [LoadedModel(name, headers[name], load_model(path, device=str(device))) for name, path in named.items()]


_RECORDED = {"support": "what its training subjects were given", "validation": "its validation error"}
