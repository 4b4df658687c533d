"""COSTAR: fine-tune a pretrained encoder with an outcome predictor, in one stage."""

from collections.abc import Sequence

import torch

from costar_cli.artifact import Artifact
from costar_cli.config.choices import DecoderName
from costar_cli.config.models import EncoderConfig
from costar_cli.errors import MismatchError, UsageError
from costar_cli.methods.base import Fit, FitTask, Fitted, LastStage
from costar_cli.methods.costar.model import CostarModel
from costar_cli.methods.costar.predictor import decoder_for
from costar_cli.methods.costar.supervised import SupervisedStage
from costar_cli.methods.shared.members import Params

__all__ = ["COSTAR", "CostarMethod"]


class CostarMethod:
    """Encoder and outcome predictor trained together on every origin (spec COSTAR-17, COSTAR-18)."""

    def fit(self, task: FitTask) -> Fit:
        """Train from a pretrained encoder, from the source's model (few-shot), or from scratch.

        Raises:
            MismatchError: there are fewer members to start from than asked for, or the source's model has another
                decoder.
            UsageError: `config.encoder` contradicts the encoder to start from.
        """
        start = task.start
        if start is not None and not isinstance(start, CostarModel):
            raise MismatchError("the model to start from is of a different method", where="--start")
        encoder = _encoder_config(task, start)
        few_shot = start is not None and start.horizon > 0
        hidden = start.hidden if start and few_shot else task.config.hidden
        decoder = _decoder(task, start if few_shot else None)
        meta = {"encoder": encoder.model_dump(), "hidden": hidden, "decoder": decoder}

        def complete(params_R: Params, members: Sequence[int]) -> Fitted:  # noqa: ARG001 - one stage has all parameters
            return Fitted(params_R, dict(meta))

        stage = SupervisedStage(
            task.schema.dims,
            task.horizon,
            task.config.model_copy(update={"hidden": hidden, "decoder": decoder}),
            encoder,
            train=task.tensors(task.train),
            validation=task.tensors(task.validation),
            start_R=_start(start, task.members),
            drop_last=task.domain == "source",
            name="finetune" if task.domain == "source" else "finetune on target",
        )
        params = yield LastStage(stage, complete)
        return complete(params, range(task.members))

    def load(self, artifact: Artifact, device: torch.device | str = "cpu") -> CostarModel:
        """Return the model that an artifact holds."""
        return CostarModel.from_artifact(artifact, device)


COSTAR = CostarMethod()


def _encoder_config(task: FitTask, start: CostarModel | None) -> EncoderConfig:
    if start is None:
        return task.config.encoder or EncoderConfig()
    if task.config.encoder not in (None, start.encoder_config):
        raise UsageError(
            "the pretrained encoder has a different shape",
            where="finetune.encoder",
            fix="omit it, or use `--from scratch`",
        )
    return start.encoder_config


def _decoder(task: FitTask, source: CostarModel | None) -> DecoderName:
    asked = task.config.decoder
    if source is None:
        return asked or decoder_for(task.schema.treatments)
    if asked not in (None, source.decoder):
        raise MismatchError(
            f"the source's model has the decoder {source.decoder}, not {asked}",
            where="finetune.decoder",
            fix="omit it, or train a source model with that decoder",
        )
    return source.decoder


def _start(start: CostarModel | None, members: int) -> Params | None:
    if start is None:
        return None
    if members > start.members:
        raise MismatchError(
            f"{members} members were asked for, but there are only {start.members} to start from",
            where="--members",
            fix=f"use `--members {start.members}` or fewer, or pretrain more",
        )
    return {n: v[:members] for n, v in start.params.items() if not n.startswith("predictor.")}
