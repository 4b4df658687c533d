"""What networks learn from: whole series for encoders, windows after every origin for decoders.

Both are drawn by index from a scaled panel: 10,000 series of 60 steps hold half a million windows, which are never
copied. Position s of a series predicts `y_{s+1}` from the history up to s and `a_s`; it is active below `length - 1`.
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from costar_cli.config.models import FinetuneConfig, TrainingConfig
from costar_cli.errors import DataError
from costar_cli.methods.shared.balancing import target_weight
from costar_cli.methods.shared.settings import NetworkConfig
from costar_cli.panel.tensors import PanelTensors

__all__ = ["Batch", "Column", "OriginRows", "SubjectRows", "decoder_training", "stage_shares"]

Column = Literal["previous", "covariates", "outcomes", "statics", "treatment"]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of R members over T positions, looked up in the panel when asked for.

    Attributes:
        panel: where the series are.
        member_R: which members these are.
        subject_RB: row of the panel.
        at_RTB: position in the series.
        initial_RBD: what a decoder starts from.
    """

    panel: PanelTensors
    member_R: Tensor
    subject_RB: Tensor
    at_RTB: Tensor
    initial_RBD: Tensor | None = None

    @classmethod
    def windows(cls, panel: PanelTensors, member_R: Tensor, subject_RB: Tensor, start_RB: Tensor, steps: int) -> Self:
        """Return `steps` positions of each subject from its start on."""
        step_T1 = torch.arange(steps, device=start_RB.device)[:, None]
        return cls(panel, member_R, subject_RB, start_RB[:, None] + step_T1)

    def column(self, name: Column) -> Tensor:
        """Return `[R,T,B,..]` of what is known at each position: `a_{t-1}`, `x_t`, `y_t`, v, or `a_t`, just decided."""
        if name == "statics":
            return self.panel.v_NV[self.subject_RB[:, None]].expand(*self.at_RTB.shape, -1)
        if name == "previous":
            given = (self.at_RTB > 0).to(self.panel.a_NTA.dtype)[..., None]
            return self._at(self.panel.a_NTA, -1) * given
        series = {"covariates": self.panel.x_NTX, "outcomes": self.panel.y_NTY, "treatment": self.panel.a_NTA}
        return self._at(series[name], 0)

    @property
    def target(self) -> Tensor:
        """Return the outcomes after each treatment, `[R,T,B,dy]`."""
        return self._at(self.panel.y_NTY, 1)

    @property
    def next_covariates(self) -> Tensor:
        """Return the covariates observed with the target, `[R,T,B,dx]`."""
        return self._at(self.panel.x_NTX, 1)

    @property
    def active(self) -> Tensor:
        """Return 1 where a position has a target, 0 in the padding, `[R,T,B]`."""
        return self._below(1)

    @property
    def observed(self) -> Tensor | None:
        """Return 1 where an outcome of the target was observed, else 0, `[R,T,B,dy]`; None if all were."""
        return None if self.panel.observed_NTY is None else self._at(self.panel.observed_NTY, 1)

    @property
    def weight(self) -> Tensor:
        """Return how much the target of each position counts, `[R,T,B]`: the share of it that was observed."""
        return target_weight(self.active, self.observed)

    @property
    def active_next(self) -> Tensor:
        """Return 1 where the next position has a target too, `[R,T,B]`: where next covariates are learned from."""
        return self._below(2)

    def _below(self, distance: int) -> Tensor:
        inside_RTB = self.at_RTB < self.panel.length_N[self.subject_RB][:, None] - distance
        return inside_RTB.to(self.panel.y_NTY.dtype)

    def _at(self, series_NTF: Tensor, offset: int) -> Tensor:
        return series_NTF[self.subject_RB[:, None], self.at_RTB + offset]


class SubjectRows:
    """One row per subject: all positions of its series.

    Args:
        panel: a scaled panel of at least two steps.
        subjects: rows of the panel to use; all by default.
    """

    def __init__(self, panel: PanelTensors, subjects: Tensor | None = None) -> None:
        self.panel = panel
        n_subjects = len(panel.length_N)
        self.subjects = torch.arange(n_subjects, device=panel.length_N.device) if subjects is None else subjects

    def __len__(self) -> int:
        return len(self.subjects)

    def batch(self, rows_RB: Tensor, member_R: Tensor) -> Batch:
        """Return rows of each member."""
        subject_RB = self.subjects[rows_RB]
        steps = self.panel.y_NTY.shape[1] - 1
        return Batch.windows(self.panel, member_R, subject_RB, torch.zeros_like(subject_RB), steps)


class OriginRows:
    """One row per subject and start t = 1..L-steps-1 of a window of `steps` positions, L active ones (spec PANEL-11).

    Inputs within a window are observed ones (teacher forcing). What a decoder starts from is the encoder's state at
    t-1, which each member has of its own.

    Args:
        panel: a scaled panel.
        steps: positions of a window: the horizon without its first step.
        initial_RNTD: the encoders' states at every position.

    Raises:
        DataError: no subject has a window.
    """

    def __init__(self, panel: PanelTensors, steps: int, initial_RNTD: Tensor) -> None:
        self.panel, self.steps, self.initial_RNTD = panel, steps, initial_RNTD
        windows_N = (panel.length_N - 1 - steps - 1).clamp(min=0)
        if not int(windows_N.sum()):
            raise DataError(
                f"no subject has enough steps to learn {steps + 1} predicted steps",
                fix=f"a decoder needs a subject with {steps + 3} observed steps in each part; use a shorter horizon",
            )
        self.subject_M = torch.repeat_interleave(windows_N)
        first_N = windows_N.cumsum(0) - windows_N
        self.start_M = torch.arange(len(self.subject_M), device=windows_N.device) - first_N[self.subject_M] + 1

    def __len__(self) -> int:
        return len(self.subject_M)

    def batch(self, rows_RB: Tensor, member_R: Tensor) -> Batch:
        """Return rows of each member."""
        subject_RB, start_RB = self.subject_M[rows_RB], self.start_M[rows_RB]
        batch = Batch.windows(self.panel, member_R, subject_RB, start_RB, self.steps)
        return replace(batch, initial_RBD=self.initial_RNTD[member_R[:, None], subject_RB, start_RB - 1])


def stage_shares(shared: FinetuneConfig, horizon: int) -> tuple[FinetuneConfig, FinetuneConfig]:
    """Return the settings of an encoder's and of a decoder's stage, which share the updates of one network.

    Where one step is predicted there is no decoder, and the encoder has them all.
    """
    if shared.updates is None or horizon == 1:
        return shared, shared
    first = max(1, shared.updates // 2)
    updates = first, max(1, shared.updates - first)
    encoder, decoder = (shared.model_copy(update={"updates": count}) for count in updates)
    return encoder, decoder


def decoder_training(network: NetworkConfig, shared: FinetuneConfig) -> TrainingConfig:
    """Return the settings of a decoder's stage; its rows are short, so that many are validated at once."""
    training = network.training(shared)
    return training.model_copy(update={"validation_batch_size": max(4096, training.validation_batch_size)})
