"""RMSN: recurrent marginal structural networks (Lim et al. 2018; spec RMSN-1 to 6).

Two propensity networks give each step the weight that it would have had if treatments had not followed the history; an
encoder and a decoder are trained on outcomes so weighted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from costar_cli.data import TreatmentMode
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.base import Fit, FitTask
from costar_cli.methods.recurrent.lstm import Masks
from costar_cli.methods.recurrent.model import Networks, QueryBatch, RecurrentModel, state_at
from costar_cli.methods.recurrent.network import Make, RecurrentNetwork, RecurrentStage, over_members
from costar_cli.methods.recurrent.rolled import RolledLstm, RolledLstmModel
from costar_cli.methods.recurrent.settings import RmsnConfig, RmsnNetworkConfig
from costar_cli.methods.shared.balancing import masked_mean, squared_error, treatment_cross_entropy
from costar_cli.methods.shared.members import Dims, Params
from costar_cli.methods.shared.network_weights import TreatmentWeights, log_likelihood
from costar_cli.methods.shared.rolled_model import fit_rolled
from costar_cli.methods.shared.stage import NetworkTraining, encoder_then_decoder, stage_shares
from costar_cli.methods.shared.trained import ReadsModels
from costar_cli.methods.shared.windows import Column, OriginRows, SubjectRows, Windows


def rmsn_networks(dims: Dims, config: RmsnConfig) -> dict[str, Make]:
    """Return what makes each of the four networks, by name, in the order of training."""
    _, da, dy, _ = dims

    def make(shape: RmsnNetworkConfig, n_outputs: int, *reads: str, adapted: int | None = None) -> RecurrentNetwork:
        head = nn.Linear(shape.width, n_outputs)
        columns = cast("tuple[Column, ...]", reads)
        return RecurrentNetwork(dims, columns, width=shape.width, layers=shape.layers, head=head, adapted=adapted)

    history = ("previous", "covariates", "outcomes", "statics")
    return {
        "treatment": partial(make, config.treatment, da, "previous"),
        "history": partial(make, config.history, da, *history),
        "encoder": partial(make, config.encoder, dy, "covariates", "outcomes", "treatment", "statics"),
        "decoder": partial(make, config.decoder, dy, "treatment", "outcomes", "statics", adapted=config.encoder.width),
    }


class RmsnStage(RecurrentStage):
    """One of the four networks; the gradient of each member is clipped."""

    def predicted(self, params_R: Params, batch: Windows, masks: Masks = None) -> Tensor:
        """Return what the head makes of the outputs at every position."""
        outputs: Tensor = self.network.call_head(params_R, self.network.run_members(params_R, batch, masks))
        return outputs


class PropensityStage(RmsnStage):
    """Cross-entropy of the treatments, as independent binaries unless `mode` says that they are classes."""

    mode: TreatmentMode = "multilabel"

    def objective(self, params_R: Params, state_R: Params, batch: Windows, masks: Masks) -> Tensor:
        """Return the mean cross-entropy over active positions."""
        return masked_mean(self._cross_entropy(params_R, batch, masks), batch.active)

    def error(self, params_R: Params, batch: Windows) -> Tensor:
        """Return the cross-entropy at every position."""
        return self._cross_entropy(params_R, batch, None)

    def weight(self, batch: Windows) -> Tensor:
        """Return 1 where there is a treatment to guess, whether or not its outcome was observed."""
        return batch.active

    def _cross_entropy(self, params_R: Params, batch: Windows, masks: Masks) -> Tensor:
        logits = self.predicted(params_R, batch, masks)
        return treatment_cross_entropy(logits, batch.treatment, self.mode)


class OutcomeStage(RmsnStage):
    """Squared error of the outcomes, weighted in training, plain where it selects.

    Args:
        training: the network and its rows.
        weigh: returns the weight `[R,T,B]` of every position of a batch.
    """

    def __init__(self, training: NetworkTraining[RecurrentNetwork], weigh: Callable[[Windows], Tensor]) -> None:
        super().__init__(training)
        self._weigh = weigh

    def objective(self, params_R: Params, state_R: Params, batch: Windows, masks: Masks) -> Tensor:
        """Return the weighted mean squared error over observed targets."""
        error_RTB = squared_error(self.predicted(params_R, batch, masks), batch.target, batch.observed)
        return masked_mean(self._weigh(batch) * error_RTB, batch.weight)

    def error(self, params_R: Params, batch: Windows) -> Tensor:
        """Return squared errors."""
        return squared_error(self.predicted(params_R, batch), batch.target, batch.observed)


@dataclass(frozen=True)
class RmsnModel(RecurrentModel):
    """A fitted RMSN; what it knows of a history is the encoder's state before the origin's treatment."""

    def makes(self) -> Mapping[str, Make]:
        """Return the encoder, and the decoder if there is one."""
        makes = rmsn_networks(self.schema.dims, cast("RmsnConfig", self.settings))
        return {name: makes[name] for name in ("encoder", "decoder") if name == "encoder" or self.horizon > 1}

    def predict(self, networks: Networks, asked: QueryBatch) -> Tensor:
        """Return the encoder's outcome after the first treatment, then the decoder's, fed with those before."""
        encoder, plan = networks["encoder"], asked.plan_QHA.unbind(1)
        known: dict[Column, Tensor] = {
            "covariates": asked.covariates_QX,
            "outcomes": asked.outcomes_QY,
            "treatment": plan[0],
            "statics": asked.statics_QV,
        }
        output, _ = encoder.step(known, state_at(asked.known_QD, encoder))
        outcomes = [encoder.head(output)]
        if len(plan) > 1:
            decoder = networks["decoder"]
            state = decoder.starting_from(output)
            for treatment in plan[1:]:
                seen: dict[Column, Tensor] = {
                    "treatment": treatment,
                    "outcomes": outcomes[-1],
                    "statics": asked.statics_QV,
                }
                output, state = decoder.step(seen, state)
                outcomes.append(decoder.head(output))
        return torch.stack(outcomes, dim=1)


@dataclass(frozen=True)
class RmsnMethod(ReadsModels):
    """The recurrent marginal structural network (spec RMSN-1 to 6)."""

    model = RmsnModel
    rolled = RolledLstmModel

    name: str = "rmsn"

    def fit(self, task: FitTask) -> Fit:
        """Train the propensity networks, the encoder on weighted steps, and the decoder on weighted windows.

        Raises:
            DataError: no subject is long enough for the decoder.
            MismatchError: what to start from is no RMSN of enough members.
            UsageError: the settings give the networks a different shape than what to start from.
        """
        config = task.settings_of(RmsnConfig)
        start, makes = RmsnModel.start_of(task, self.name, config), rmsn_networks(task.schema.dims, config)
        panels = task.tensors(task.train), task.tensors(task.validation)
        series, shared = [SubjectRows(panel) for panel in panels], stage_shares(task.config, task.horizon)
        propensity: dict[str, Params] = {}
        for name, network in (("treatment", config.treatment), ("history", config.history)):
            propensity[name] = yield PropensityStage(
                NetworkTraining(
                    name=task.stage_name(f"rmsn {name} propensity"),
                    make=makes[name],
                    network=network,
                    config=network.training(shared[0]),
                    train=series[0],
                    validation=series[1],
                    start_R=start.params_of(name) if start else None,
                )
            )
        numerator_RNT, denominator_RNT = (
            over_members(
                makes[name],
                params_R,
                panels[0],
                lambda passed: log_likelihood(passed.network.head(passed.outputs_TBD), passed.batch.treatment[0]),
            )
            for name, params_R in propensity.items()
        )
        weights = TreatmentWeights(numerator_RNT - denominator_RNT, panels[0])
        if config.outputs.structured:
            return (yield from self._rolled(task, config, weights, panels[0], propensity))
        return (
            yield from encoder_then_decoder(
                task,
                self.name,
                config,
                makes,
                panels,
                stage=partial(_weighted_stage, weights),
                encode=lambda panel, encoder_R: over_members(
                    makes["encoder"], encoder_R, panel, lambda passed: passed.outputs_TBD
                ),
                start=start,
                before=propensity,
                meta={"weights": weights.described},
            )
        )

    def _rolled(
        self,
        task: FitTask,
        config: RmsnConfig,
        weights: TreatmentWeights,
        panel: PanelTensors,
        propensity: Mapping[str, Params],
    ) -> Fit:
        """Train one network whose states are rolled out, each step weighted (spec NET-21)."""
        clipped = weights.clipped_over_origins(panel, task.horizon)

        def weigh(series: Windows) -> Tensor:
            raw_RBTH = weights.of_origins(series.member_R, series.subject_RB, task.horizon)
            raw_RHBT = raw_RBTH.movedim(-1, 1)
            clipped_RHM = clipped.take(series.member_R)(raw_RHBT.flatten(2))
            return clipped_RHM.view(raw_RHBT.shape).movedim(1, -1)

        return (
            yield from fit_rolled(
                task,
                f"{self.name} network",
                config.encoder,
                partial(RolledLstm, task.schema, config),
                RolledLstmModel.start_of(task, self.name, config),
                config.encoder.training(stage_shares(task.config, task.horizon)[1]),
                weigh=weigh,
                before=propensity,
                meta={"weights": weights.described},
            )
        )


RMSN = RmsnMethod()


def _weighted_stage(weights: TreatmentWeights, name: str, training: NetworkTraining[RecurrentNetwork]) -> OutcomeStage:
    """Return the stage of the encoder, on weighted steps, or of the decoder, on weighted windows."""
    if name == "encoder":
        return OutcomeStage(training, lambda batch: weights.of_steps(batch.member_R, batch.subject_RB))
    rows = cast("OriginRows", training.train)
    clipped = weights.clipped_over(rows)

    def weigh(batch: Windows) -> Tensor:
        raw = weights.of_windows(batch.member_R, batch.subject_RB, batch.at[:, 0], rows.steps)
        return clipped.take(batch.member_R)(raw)

    return OutcomeStage(training, weigh)
