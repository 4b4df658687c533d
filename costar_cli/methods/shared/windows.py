"""What networks learn from: whole series for encoders, windows after every origin for decoders.

Both are drawn by index from a scaled panel: 10,000 series of 60 steps hold half a million windows, which are never
copied. Position s of a series predicts `y_{s+1}` from the history up to s and `a_s`; it is active below `length - 1`.
"""

from dataclasses import dataclass, replace
from typing import Literal, Protocol, Self

import torch
from torch import Tensor

from costar_cli.data.tensors import PanelTensors
from costar_cli.errors import DataError
from costar_cli.methods.shared.balancing import target_weight

Column = Literal["previous", "covariates", "outcomes", "statics", "treatment"]


@dataclass(frozen=True, slots=True)
class Windows:
    """Positions of the rows of R members, looked up in the panel when asked for.

    What is looked up has the axes of `at` and then its own: `[R,B,T,..]`, or `[R,T,B,..]` for networks that take time
    first, or `[R,B,T,H,..]` for the plans of every origin. Beyond the end of the panel its last step is repeated.

    Attributes:
        panel: where the series are.
        member_R: which members these are.
        subject_RB: row of the panel.
        at: position in the series.
        encoded_RBD: what an encoder knew at the step before the window; what a decoder starts from.
        is_time_first: whether `at` has the time before the rows.
    """

    panel: PanelTensors
    member_R: Tensor
    subject_RB: Tensor
    at: Tensor
    encoded_RBD: Tensor | None = None
    is_time_first: bool = False

    @classmethod
    def of(cls, panel: PanelTensors, member_R: Tensor, subject_RB: Tensor, start_RB: Tensor, steps: int) -> Self:
        """Return `steps` positions of each subject from its start on."""
        return cls(panel, member_R, subject_RB, start_RB[..., None] + torch.arange(steps, device=start_RB.device))

    def time_first(self) -> Self:
        """Return the same windows, the time before the rows."""
        return replace(self, at=self.at.transpose(1, 2).contiguous(), is_time_first=True)

    def twice(self) -> Self:
        """Return each row and, behind all of them, each row again."""
        return replace(self, subject_RB=self.subject_RB.repeat(1, 2), at=self.at.repeat(1, 2, 1))

    def unrolled(self, horizon: int) -> Self:
        """Return for each position the `horizon` steps that begin there."""
        return replace(self, at=self.at[..., None] + torch.arange(horizon, device=self.at.device))

    def column(self, name: Column) -> Tensor:
        """Return what is known at each position: `a_{t-1}`, `x_t`, `y_t`, v, or `a_t`, just decided."""
        if name == "statics":
            return self.panel.v_NV[self._subject].expand(*self.at.shape, -1)
        if name == "previous":
            given = (self.at > 0).to(self.panel.a_NTA.dtype)[..., None]
            return self._at(self.panel.a_NTA, -1) * given
        series = {"covariates": self.panel.x_NTX, "outcomes": self.panel.y_NTY, "treatment": self.panel.a_NTA}
        return self._at(series[name], 0)

    @property
    def history(self) -> Tensor:
        """Return `[x_t, a_{t-1}, y_t]` at each position."""
        return torch.cat([self.column("covariates"), self.column("previous"), self.column("outcomes")], dim=-1)

    @property
    def statics_RBV(self) -> Tensor:
        """Return the statics of each row."""
        return self.panel.v_NV[self.subject_RB]

    @property
    def treatment(self) -> Tensor:
        """Return the treatment of each position."""
        return self.column("treatment")

    @property
    def target(self) -> Tensor:
        """Return the outcomes after each treatment, `[...,dy]`."""
        return self._at(self.panel.y_NTY, 1)

    @property
    def next_covariates(self) -> Tensor:
        """Return the covariates observed with the target, `[...,dx]`."""
        return self._at(self.panel.x_NTX, 1)

    @property
    def next_seen(self) -> Tensor | None:
        """Return 1 where a next covariate was observed and 0 where it was filled, `[...,dx]`; None if all were."""
        return None if self.panel.seen_NTX is None else self._at(self.panel.seen_NTX, 1)

    def error_of_covariates(self, predicted: Tensor) -> Tensor:
        """Return the mean squared error `[...]` of next covariates that follow from present ones, both observed."""
        squares = (predicted - self.next_covariates).square()
        if self.next_seen is not None and self.panel.seen_NTX is not None:
            squares = squares * self.next_seen * self._at(self.panel.seen_NTX, 0)
        return squares.mean(dim=-1)

    @property
    def active(self) -> Tensor:
        """Return 1 where a position has a target, 0 in the padding."""
        return self._below(1)

    @property
    def observed(self) -> Tensor | None:
        """Return 1 where an outcome of the target was observed, else 0, `[...,dy]`; None if all were."""
        return None if self.panel.observed_NTY is None else self._at(self.panel.observed_NTY, 1)

    @property
    def weight(self) -> Tensor:
        """Return how much the target of each position counts: the share of it that was observed."""
        return target_weight(self.active, self.observed)

    @property
    def active_next(self) -> Tensor:
        """Return 1 where the next position has a target, too: where next covariates are learned from."""
        return self._below(2)

    @property
    def _subject(self) -> Tensor:
        """Return the rows of the panel with axes that broadcast to those of `at`."""
        if self.is_time_first:
            return self.subject_RB[:, None]
        return self.subject_RB[(..., *[None] * (self.at.ndim - 2))]

    def _below(self, distance: int) -> Tensor:
        return (self.at < self.panel.length_N[self._subject] - distance).to(self.panel.y_NTY.dtype)

    def _at(self, series_NTF: Tensor, offset: int) -> Tensor:
        return series_NTF[self._subject, (self.at + offset).clamp(0, series_NTF.shape[1] - 1)]


class Rows(Protocol):
    """What a network learns from: `SubjectRows` or `OriginRows`."""

    @property
    def panel(self) -> PanelTensors:
        """Return the series that the rows look into."""

    def __len__(self) -> int: ...

    def batch(self, rows_RB: Tensor, member_R: Tensor) -> Windows:
        """Return rows of each member."""


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

    def batch(self, rows_RB: Tensor, member_R: Tensor) -> Windows:
        """Return rows of each member."""
        subject_RB = self.subjects[rows_RB]
        steps = self.panel.y_NTY.shape[1] - 1
        return Windows.of(self.panel, member_R, subject_RB, torch.zeros_like(subject_RB), steps)


class OriginRows:
    """One row per subject and start t = 1..L-steps-1 of a window of `steps` positions, L active ones (spec PANEL-11).

    Inputs within a window are observed ones (teacher forcing). What a decoder starts from is what the
    encoder knew at t-1, which each member has of its own.

    Args:
        panel: a scaled panel.
        steps: positions of a window: the horizon without its first step.
        encoded_RNTD: what the encoders know at every position.

    Raises:
        DataError: no subject has a window.
    """

    def __init__(self, panel: PanelTensors, steps: int, encoded_RNTD: Tensor) -> None:
        self.panel, self.steps, self.encoded_RNTD = panel, steps, encoded_RNTD
        # Starts end at L - P - 1, as in the specification, which leaves the last whole window of a series out.
        windows_N = (panel.length_N - 1 - steps - 1).clamp(min=0)
        if not int(windows_N.sum()):
            raise DataError(
                f"no subject has enough steps to learn {steps + 1} predicted steps",
                fix=f"a decoder needs a subject with {steps + 3} observed steps in each split; use a shorter horizon",
            )
        self.subject_M = torch.repeat_interleave(windows_N)
        first_N = windows_N.cumsum(0) - windows_N
        self.start_M = torch.arange(len(self.subject_M), device=windows_N.device) - first_N[self.subject_M] + 1

    def __len__(self) -> int:
        return len(self.subject_M)

    def batch(self, rows_RB: Tensor, member_R: Tensor) -> Windows:
        """Return rows of each member."""
        subject_RB, start_RB = self.subject_M[rows_RB], self.start_M[rows_RB]
        batch = Windows.of(self.panel, member_R, subject_RB, start_RB, self.steps)
        return replace(batch, encoded_RBD=self.encoded_RNTD[member_R[:, None], subject_RB, start_RB - 1])
