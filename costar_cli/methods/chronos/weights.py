"""The weights of Chronos-2: two files in a folder, known by their digests, read without code of theirs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.errors import MismatchError, UsageError
from costar_cli.files import file_sha256
from costar_cli.methods.model import Device

CONFIG: Final = "config.json"
TENSORS: Final = "model.safetensors"
SETTING: Final = "chronos.weights"
FETCH: Final = "`hf download amazon/chronos-2 --local-dir FOLDER` fetches them; then `COSTAR_CHRONOS_WEIGHTS=FOLDER`"

Input = Mapping[str, NDArray[np.floating] | Mapping[str, NDArray[np.floating]]]
"""Of one forecast: `target [Y,T]`, `past_covariates` by name `[T]`, `future_covariates` of some of them `[H]`."""


class Pipeline(Protocol):
    """What is asked of `chronos.Chronos2Pipeline`."""

    def predict_quantiles(
        self, inputs: Sequence[Input], prediction_length: int, quantile_levels: list[float]
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return tensors of quantiles `[Y,H,K]`, one of each input, and of medians `[Y,H]`."""


@dataclass(frozen=True)
class Weights:
    """A folder with weights, and the SHA-256 of its two files."""

    folder: Path
    digests: Mapping[str, str]

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Return the weights in a folder.

        Raises:
            UsageError: a file is missing.
        """
        folder = folder.expanduser().resolve()
        for name in (CONFIG, TENSORS):
            if not (folder / name).is_file():
                raise UsageError(f"{SETTING}: the folder has no file `{name}`", where=str(folder), fix=FETCH)
        return cls(folder, {name: file_sha256(folder / name) for name in (CONFIG, TENSORS)})

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Self:
        """Return the weights that a model's file names.

        Raises:
            ValueError: it names none.
        """
        folder, digests = facts.get("weights"), facts.get("weights_sha256")
        if not isinstance(folder, str) or not isinstance(digests, Mapping) or set(digests) != {CONFIG, TENSORS}:
            raise ValueError("the file does not name a folder of weights and the digests of its files")
        return cls(Path(folder), dict(digests))

    def to_meta(self) -> dict[str, Any]:
        """Return what `read` takes."""
        return {"weights": str(self.folder), "weights_sha256": dict(self.digests)}

    def load(self, device: Device) -> Pipeline:
        """Return the forecaster, once its files are seen to be those of the digests.

        Raises:
            UsageError: files or packages are missing, or the files are not of Chronos-2.
            MismatchError: the files are others than those of the digests.
        """
        if type(self).of(self.folder).digests != self.digests:
            raise MismatchError(
                "the weights of Chronos-2 are not those that the model was fitted with",
                where=str(self.folder),
                fix="restore the files, or fit again: `costar finetune --method chronos --overwrite`",
            )
        return load_pipeline(self.folder, tuple(self.digests.values()), str(device))


@lru_cache(maxsize=1)  # the fit, its calibration and its evaluation take one copy of some hundred million weights
def load_pipeline(folder: Path, digests: tuple[str, ...], device: str) -> Pipeline:  # noqa: ARG001 - a key of the cache
    """Return the forecaster of a folder whose files have these digests.

    Raises:
        UsageError: packages are missing, or the files are not of Chronos-2.
    """
    try:
        from chronos.chronos2 import Chronos2Model, Chronos2Pipeline  # noqa: PLC0415 - an extra
        from chronos.chronos2.config import Chronos2CoreConfig  # noqa: PLC0415
        from safetensors.torch import load_file  # noqa: PLC0415
    except ImportError as error:
        problem, fix = f"Chronos-2 cannot be imported: {error}", "`pip install 'costar[chronos]'`"
        raise UsageError(problem, where="--method chronos", fix=fix) from error
    # `from_pretrained` also looks for adapters, pickles and the Hub; these two files are all that is read here.
    try:
        model = Chronos2Model(Chronos2CoreConfig.from_dict(json.loads((folder / CONFIG).read_text("utf-8"))))
        model.load_state_dict(load_file(folder / TENSORS))
    except Exception as error:  # whatever a file of something else makes the packages raise
        raise UsageError(f"{SETTING}: not weights of Chronos-2: {error}", where=str(folder), fix=FETCH) from error
    pipeline: Pipeline = Chronos2Pipeline(model.to(device).eval())
    return pipeline
