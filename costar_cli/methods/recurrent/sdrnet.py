"""SDR-Net: sequentially doubly robust regressions on the network of IGC-Net (Luedtke et al. 2017; spec SDR-1 to 4).

The heads are those of IGC-Net. Their pseudo-outcomes are corrected along the observed series: as long as it follows the
drawn plan, by what each next head, and at last the outcome, differ from what was expected, over the probability of
having followed. A propensity network, trained first, estimates how likely treatments were.

Letters beside the project's: `J` steps of a plan after the first, `D` width of what is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from costar_cli.data import TreatmentMode
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.base import Fit, FitTask, Fitted
from costar_cli.methods.recurrent.igcnet import READS, IgcNetModel, IgcStage, igc_training, known_in, outputs_and_inputs
from costar_cli.methods.recurrent.lstm import Masks
from costar_cli.methods.recurrent.network import Passed, RecurrentNetwork, over_members
from costar_cli.methods.recurrent.rmsn import PropensityStage
from costar_cli.methods.recurrent.settings import SdrNetConfig, SdrPropensityConfig
from costar_cli.methods.shared.balancing import treatment_cross_entropy
from costar_cli.methods.shared.members import Dims, Params, of_members, with_prefix
from costar_cli.methods.shared.network_weights import TreatmentWeights, log_likelihood
from costar_cli.methods.shared.stage import NetworkTraining, one_stage, stage_shares
from costar_cli.methods.shared.trained import ReadsModels
from costar_cli.methods.shared.windows import Windows

RAREST = 1e-3  # frequency of a treatment that weights are relative to


def propensity_network(dims: Dims, shape: SdrPropensityConfig) -> RecurrentNetwork:
    """Return a network: `z_t` of IGC-Net to logits of `a_t` (spec SDR-1)."""
    head = nn.Linear(shape.width + sum(dims), dims[1])
    return RecurrentNetwork(dims, READS, width=shape.width, layers=shape.layers, head=head)


class SdrPropensityStage(PropensityStage):
    """Cross-entropy of the treatments, of what is known at every position."""

    def __init__(self, training: NetworkTraining[RecurrentNetwork], mode: TreatmentMode) -> None:
        super().__init__(training)
        self.mode = mode

    def predicted(self, params_R: Params, batch: Windows, masks: Masks = None) -> Tensor:
        """Return the logits at every position."""
        logits: Tensor = self.network.call_head(params_R, outputs_and_inputs(self.network, params_R, batch, masks))
        return logits


class SdrStage(IgcStage):
    """Squared errors of all heads, weighted by the treatment of the position, of corrected pseudo-outcomes.

    Args:
        training: the network and its rows.
        horizon: number of heads.
        log_propensity_RNT: logarithm of how likely the treatment at every position of every training subject was.
        weights: of these positions.
        largest: bound of the weights of corrections.
    """

    def __init__(
        self,
        training: NetworkTraining[RecurrentNetwork],
        horizon: int,
        log_propensity_RNT: Tensor,
        weights: TreatmentWeights,
        largest: float,
    ) -> None:
        super().__init__(training, horizon)
        self._log_RNT, self._weights, self._largest = log_propensity_RNT, weights, largest

    def weigh(self, batch: Windows) -> Tensor:
        """Return the weight of the treatment at every position, `[R,T,B]` (spec SDR-3)."""
        return self._weights.of_steps(batch.member_R, batch.subject_RB)

    def pseudo_outcomes(self, params_R: Params, batch: Windows, known: Tensor, later: Tensor) -> Tensor:
        """Return what heads 2 to H learn from at all positions but the last, `[R,T-1,B,J,Y]` (spec SDR-2)."""
        log_RTB = self._log_RNT[batch.member_R[:, None], batch.subject_RB].transpose(1, 2)
        plans, last, n_later = later[:, :-1], known.shape[1] - 1, later.shape[-2]
        # Positions beyond the last are no targets: heads learn as far as outcomes were observed.
        after = [torch.arange(step, last + step, device=known.device).clamp(max=last) for step in range(1, n_later + 1)]
        expected = [self.network.call_head(params_R, known[:, at], plans[..., j:, :]) for j, at in enumerate(after)]
        target, seen = batch.target, batch.observed
        corrected: Tensor = expected[0].clone()
        log_weight = torch.zeros_like(log_RTB[:, 1:])
        for j, at in enumerate(after):
            is_followed = (batch.treatment[:, at] == plans[..., j, :]).all(dim=-1)
            log_weight = torch.where(is_followed, log_weight - log_RTB[:, at], -torch.inf)
            weight = log_weight.exp().clamp(max=self._largest)[..., None, None]
            outcome = target[:, at]
            if seen is not None:
                outcome = torch.where(seen[:, at] > 0, outcome, expected[j][..., 0, :])
            following = torch.cat([outcome[..., None, :], *expected[j + 1 : j + 2]], dim=-2)
            corrected[..., j:, :] += weight * (following - expected[j])
        return corrected


@dataclass(frozen=True)
class SdrNetMethod(ReadsModels):
    """Sequentially doubly robust regressions with a recurrent network (spec SDR-1 to 4)."""

    model = IgcNetModel

    name: str = "sdrnet"

    def fit(self, task: FitTask) -> Fit:
        """Train the propensity network, then all heads at once.

        Raises:
            MismatchError: what to start from is no SDR-Net of enough members.
            UsageError: the settings give the networks a different shape than what to start from.
        """
        config, mode = task.settings_of(SdrNetConfig), task.schema.treatments.mode
        start, shared = IgcNetModel.start_of(task, self.name, config), stage_shares(task.config, task.horizon)
        training = igc_training(task, self.name, config, shared[1], start)
        make = partial(propensity_network, task.schema.dims, config.propensity)
        propensity_R = yield SdrPropensityStage(
            NetworkTraining(
                name=task.stage_name(f"{self.name} propensity"),
                make=make,
                network=config.propensity,
                config=config.propensity.training(shared[0]),
                train=training.train,
                validation=training.validation,
                start_R=start.params_of("propensity") if start else None,
            ),
            mode,
        )
        panel = training.train.panel
        log_RNT = over_members(make, propensity_R, panel, partial(_log_propensity, mode))
        weights = TreatmentWeights(_log_frequency(panel, mode) - log_RNT, panel)
        stage = SdrStage(training, task.horizon, log_RNT, weights, config.largest_weight)

        def complete(params_R: Params, members: Sequence[int]) -> Fitted:
            networks = with_prefix(params_R, "network") | with_prefix(of_members(propensity_R, members), "propensity")
            return Fitted(networks, {"weights": weights.described})

        return (yield from one_stage(task, stage, complete, select_on="own-loss"))


SDRNET = SdrNetMethod()


def _log_propensity(mode: TreatmentMode, passed: Passed) -> Tensor:
    """Return the logarithm of the probability of the treatment at every position, `[T,B]`."""
    return _log_likelihood(passed.network.head(known_in(passed)), passed.batch.treatment[0], mode)


def _log_frequency(panel: PanelTensors, mode: TreatmentMode) -> Tensor:
    """Return the same of how often treatments are given whatever the history, `[N,T-1]`."""
    active_NT, given_NTA = panel.active_NT, panel.a_NTA[:, :-1]
    share_A = (given_NTA * active_NT[..., None]).sum(dim=(0, 1)) / active_NT.sum().clamp(min=1)
    share_A = share_A.clamp(RAREST, 1 - RAREST)
    logits_A = share_A.log() if mode == "multiclass" else torch.logit(share_A)
    return _log_likelihood(logits_A.expand(given_NTA.shape), given_NTA, mode)


def _log_likelihood(logits: Tensor, given: Tensor, mode: TreatmentMode) -> Tensor:
    if mode == "multiclass":
        return -treatment_cross_entropy(logits, given, mode)
    return log_likelihood(logits, given)
