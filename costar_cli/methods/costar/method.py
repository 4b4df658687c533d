"""COSTAR: fine-tune a pretrained encoder with an outcome predictor, in one stage."""

from costar_cli.config.choices import DecoderName
from costar_cli.config.models import EncoderConfig
from costar_cli.errors import MismatchError, UsageError
from costar_cli.methods.base import Fit, FitTask, Fitted
from costar_cli.methods.costar.model import CostarModel
from costar_cli.methods.costar.predictor import decoder_for
from costar_cli.methods.costar.pretraining import PREDICTOR
from costar_cli.methods.costar.supervised import SupervisedStage
from costar_cli.methods.registry import REFERENCE
from costar_cli.methods.shared.members import Params
from costar_cli.methods.shared.stage import one_stage
from costar_cli.methods.shared.trained import ReadsModels, model_to_start_from

__all__ = ["COSTAR", "CostarMethod"]


class CostarMethod(ReadsModels):
    """Encoder and outcome predictor trained together on every origin (spec COSTAR-17, COSTAR-18)."""

    model = CostarModel

    def fit(self, task: FitTask) -> Fit:
        """Train from a pretrained encoder, from the source's model (few-shot), or from scratch.

        Raises:
            MismatchError: there are fewer members to start from than asked for, or the source's model has another
                decoder.
            UsageError: `config.encoder` contradicts the encoder to start from.
        """
        start = model_to_start_from(task, CostarModel, REFERENCE)
        encoder = _encoder_config(task, start)
        few_shot = start is not None and start.horizon > 0
        hidden = start.hidden if start and few_shot else task.config.hidden
        decoder = _decoder(task, start if few_shot else None)
        meta = {"encoder": encoder.model_dump(), "hidden": hidden, "decoder": decoder}
        stage = SupervisedStage(
            task.schema.dims,
            task.horizon,
            task.config.model_copy(update={"hidden": hidden, "decoder": decoder}),
            encoder,
            train=task.tensors(task.train),
            validation=task.tensors(task.validation),
            start_R=_without_predictor(start.params) if start else None,
            drop_last=task.domain == "source",
            name=task.stage_name("finetune"),
        )
        return (yield from one_stage(task, stage, lambda params_R, _: Fitted(params_R, dict(meta))))


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


def _without_predictor(params: Params) -> Params:
    """Return the parameters without the predictor that pretraining contrasts with."""
    return {name: value for name, value in params.items() if not name.startswith(PREDICTOR)}
