"""What the encoder reads of a panel: every series as it is, or outcomes in relative form (spec COSTAR-24)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from costar_cli.config.choices import InputsName
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.shared.members import Dims
from costar_cli.methods.shared.outcome_forms import OutcomeForm
from costar_cli.methods.shared.outcome_scale import OutcomeScale


@dataclass(frozen=True)
class EncoderInputs:
    """The scalars of a history at each step, in order X, A, Y.

    Attributes:
        dims: numbers of covariates, treatments, outcomes and statics.
        kind: `level` for outcomes as they are, `relative` for their level in the form in which they grow and their
            last change, and the unit of changes where that is the subject's own.
        forms: one per outcome; only `relative` needs them.
    """

    dims: Dims
    kind: InputsName = "level"
    forms: tuple[OutcomeForm, ...] = ()

    @property
    def token_dims(self) -> Dims:
        """Return the numbers of tokens, by component."""
        dx, da, dy, dv = self.dims
        return dx, da, dy if self.kind == "level" else len(self._columns), dv

    @property
    def variables(self) -> list[int]:
        """Return for each scalar of a history which variable it belongs to; all treatments are one."""
        dx, da, dy, _ = self.dims
        outcomes = range(dy) if self.kind == "level" else [column % dy for column in self._columns]
        return [*range(dx), *[dx] * da, *(dx + 1 + outcome for outcome in outcomes)]

    def history(self, panel: PanelTensors) -> Tensor:
        """Return `[x_t, a_{t-1}, y_t]`, or what stands for the outcomes, per step: `[N,T,S]`."""
        history_NTS = panel.history_NTS
        if self.kind == "level":
            return history_NTS
        scale: OutcomeScale = OutcomeScale(self.forms).to(panel.y_NTY)
        columns_NTC = scale.columns(panel.y_NTY, scale.units(panel.y_NTY))[..., self._columns]
        return torch.cat([history_NTS[..., : -self.dims[2]], columns_NTC], dim=-1)

    @property
    def _columns(self) -> list[int]:
        """Return which of level, change and unit of each outcome are tokens: units that are always 1 are none."""
        dy = self.dims[2]
        return [*range(2 * dy), *(2 * dy + o for o, form in enumerate(self.forms) if form.kind == "local")]
