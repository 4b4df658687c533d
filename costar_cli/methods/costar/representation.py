"""What training and encoding ask of an encoder, whatever its architecture."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from costar_cli.config.models import EncoderConfig
from costar_cli.methods.shared.dropout import Masks, MaskShapes, MaskSource
from costar_cli.methods.shared.streams import Stream

__all__ = ["Dims", "HistoryEncoder", "Representations"]

Dims = tuple[int, int, int, int]  # numbers of covariates, treatments, outcomes and statics


class Representations(NamedTuple):
    """What the encoder knows at each step: overall `z_BTD`, and per component `[C,B,T,D]` in order Y, A, X."""

    z_BTD: Tensor
    components_CBTD: Tensor


class HistoryEncoder(nn.Module, ABC):
    """Representations of every history of a subject in one pass that looks at no later step.

    Pure: what is random comes in as masks. Padding is inert, since it comes last.

    Args:
        dims: numbers of covariates, treatments, outcomes and statics; covariates and statics may be 0.
        config: shape of the encoder.
    """

    statics_are_series: ClassVar[bool] = False  # whether views of a subject differ in its statics, too
    takes_bytes: ClassVar[bool] = True  # masks as bytes of `Dropout`, or as zeros and ones

    def __init__(self, dims: Dims, config: EncoderConfig) -> None:
        super().__init__()
        self.dims, self.config = dims, config

    @property
    @abstractmethod
    def n_components(self) -> int:
        """Return C, the number of component representations; there may be none."""

    @abstractmethod
    def mask_shapes(self, n_steps: int) -> MaskShapes:
        """Return the shape of every dropout mask of one sample."""

    @abstractmethod
    def forward(self, history_BTS: Tensor, statics_BV: Tensor, masks: Masks = None) -> Representations:
        """Encode `history_BTS` (`[x_t, a_{t-1}, y_t]`, scaled) and `statics_BV`; without masks there is no dropout."""

    def mask_source(self, n_steps: int, streams: Sequence[Stream], like: Tensor) -> MaskSource:
        """Return what draws every mask for passes over `n_steps` steps, on the device of a tensor."""
        shapes, rate = self.mask_shapes(n_steps), self.config.dropout
        return MaskSource(shapes, rate, streams, device=like.device, dtype=like.dtype, raw=self.takes_bytes)
