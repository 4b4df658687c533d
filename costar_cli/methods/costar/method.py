"""COSTAR: fine-tune a pretrained encoder with an outcome predictor, in one stage."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from costar_cli.config.choices import DecoderName, OutputName
from costar_cli.config.models import STRUCTURED, EncoderConfig, FinetuneConfig
from costar_cli.data.record import ModelRecord
from costar_cli.data.tensors import PanelTensors
from costar_cli.errors import DataError, MismatchError, UsageError
from costar_cli.files import Artifact
from costar_cli.methods.base import Device, Fit, FitTask, Fitted, FittedModel, FittedPart
from costar_cli.methods.costar.decoding import DecoderShape
from costar_cli.methods.costar.model import CostarModel
from costar_cli.methods.costar.predictor import decoder_for
from costar_cli.methods.costar.remainder import ADDED, BASES, META, SHARE, Base, Judge, RemainderModel
from costar_cli.methods.costar.supervised import ENCODER, HEAD, SupervisedStage
from costar_cli.methods.registry import METHODS, REFERENCE
from costar_cli.methods.shared.combining import FAILS
from costar_cli.methods.shared.covariate_transition import reach_of, reach_of_covariates
from costar_cli.methods.shared.members import Params
from costar_cli.methods.shared.outcome_forms import OutcomeForm, choose_forms
from costar_cli.methods.shared.stage import one_stage
from costar_cli.methods.shared.trained import ReadsModels, model_to_start_from


class CostarMethod(ReadsModels):
    """Encoder and outcome predictor trained together on every origin (spec COSTAR-17, COSTAR-18)."""

    model = CostarModel

    def fit(self, task: FitTask) -> Fit:
        """Train from a pretrained encoder, from the source's model (few-shot), or from scratch.

        Where the remainder of a closed form is learned, this is fitted first; in few-shot it is the source's.

        Raises:
            MismatchError: there are fewer members to start from than asked for, or the source's model has another
                decoder.
            UsageError: `config.encoder` contradicts the encoder to start from, or a setting of the structured decoder
                is given to another one.
        """
        source = task.start if isinstance(task.start, RemainderModel) else None
        start = model_to_start_from(replace(task, start=source.network) if source else task, CostarModel, REFERENCE)
        _refuse_another(task, start, source)
        judge = Judge.of(task) if task.config.remainder and not source else None
        base, doubts = (source.base, ()) if source else _base(task, judge)
        encoder = _encoder_config(task, start)
        train = task.tensors(task.train)
        shape = _decoder_shape(task, start, encoder, train)
        meta = {"encoder": encoder.model_dump(), **shape.to_facts()}
        stage = SupervisedStage(
            task.schema.dims,
            task.horizon,
            task.config,
            encoder,
            train=train,
            validation=task.tensors(task.validation),
            shape=shape,
            treatments=task.schema.treatments,
            # Without what only pretraining needs: a predictor, and heads of pretexts
            start_R={k: v for k, v in start.params.items() if k.startswith((ENCODER, HEAD))} if start else None,
            # A last batch of three subjects would weigh as much as one of 64; in few-shot every subject is precious.
            drop_last=task.domain == "source",
            name=task.stage_name("finetune"),
            # What the closed form predicts from every position of the subjects to learn from and to select on
            base={
                name: torch.from_numpy(base.answers(task.learned_panel(part), task.horizon)).to(train.y_NTY)
                for name, part in (("train", task.train), ("validation", task.validation))
            }
            if base
            else None,
        )
        if base is None:
            return (yield from one_stage(task, stage, lambda params_R, _: Fitted(params_R, dict(meta))))
        more_meta, arrays = base.stored()

        def complete(params_R: Params, members: Sequence[int]) -> Fitted:
            everything = torch.ones(len(members), task.horizon, len(task.schema.outcomes))
            share_RHY = torch.as_tensor(source.share_RHY[list(members)]) if source else everything
            said = meta | more_meta | {ADDED: float(share_RHY.mean())}
            return Fitted({**params_R, SHARE: share_RHY}, said, doubts, arrays)

        fitted = yield from one_stage(task, stage, complete)
        if judge is None:  # in few-shot, or without a step to judge by
            return fitted
        params_R = {name: value for name, value in fitted.params.items() if name != SHARE}
        network = CostarModel(
            params=params_R, schema=task.schema, scaler=task.scaler, horizon=task.horizon, encoder_config=encoder,
            shape=shape, device=task.device,
        )  # fmt: skip
        share_RHY = torch.from_numpy(judge.shares(base, network, task.horizon)).float()
        said = fitted.meta | {ADDED: float(share_RHY.mean())}
        return replace(fitted, params={**params_R, SHARE: share_RHY}, meta=said)

    def load(self, artifact: Artifact, device: Device = "cpu") -> FittedModel:
        """Return the model that an artifact holds, with the closed form whose remainder it predicts, if any."""
        if META in (ModelRecord.read(artifact.meta).facts or {}):
            return RemainderModel.from_artifact(artifact, device)
        return super().load(artifact, device)


COSTAR = CostarMethod()


def _refuse_another(task: FitTask, start: CostarModel | None, source: RemainderModel | None) -> None:
    """Stop where the settings ask for another closed form than the source's model has.

    Raises:
        MismatchError: they do, or for one where it has none, or for none where it has one.
    """
    asked = task.config.remainder
    if start is None or not start.horizon or asked is None:
        return
    have = source.base.model.method if source else None
    if asked not in (have, source is not None):
        said = f"predicts the remainder of {METHODS.label(have)}" if have else "has no closed form under it"
        raise MismatchError(
            f"the source's model {said}", where="finetune.remainder", fix="omit it, or train another source model"
        )


def _base(task: FitTask, judge: Judge | None) -> tuple[Base | None, tuple[str, ...]]:
    """Return the closed form fitted to the subjects that the network learns from, if any, and what is doubtful of it.

    Raises:
        DataError: none could be fitted.
        UsageError: the settings name none of the possible ones.
    """
    asked = task.config.remainder
    if not asked:
        return None, ()
    if isinstance(asked, str) and asked not in BASES:
        raise UsageError(
            f"{asked!r} is no closed form whose remainder can be learned",
            where="finetune.remainder",
            fix=f"choose true, or one of {', '.join(BASES)}",
        )
    if task.fit_part is None:
        raise TypeError("closed forms are fitted by the run that the task is of")
    parts, reasons = dict[str, FittedPart](), list[str]()
    for name in [asked] if isinstance(asked, str) else BASES if judge else BASES[:1]:
        try:
            parts[name] = task.fit_part(name, None)
        except FAILS as error:
            reasons.append(f"{METHODS.label(name)} could not be fitted: {error}")
    if not parts:
        raise DataError("no closed form could be fitted", details=reasons, fix="leave `finetune.remainder` out")
    bases = {name: Base.of(part.artifact, part.model) for name, part in parts.items()}
    kept = next(iter(bases)) if judge is None or len(bases) == 1 else judge.better(bases)
    return bases[kept], (*reasons, *parts[kept].warnings)


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


def _decoder_shape(
    task: FitTask, start: CostarModel | None, encoder: EncoderConfig, train: PanelTensors
) -> DecoderShape:
    """Return the source model's decoder, or the one of the settings.

    Raises:
        MismatchError: the settings ask for another decoder than the source's model has.
        UsageError: they ask for what only the structured decoder has, and it is another one.
    """
    config, source = task.config, start if start and start.horizon else None
    n_covariates = task.schema.dims[0]
    if source is not None:
        for name in ("decoder", "output"):
            _require_same(name, getattr(config, name), getattr(source.shape, name))
        _require_structured(config, source.shape.decoder)
        _require_same("carry_overs", config.carry_overs, source.shape.carry_overs)
        if n_covariates:  # without them there is nothing to forecast or not
            _require_same("covariates", config.covariates, source.shape.covariates)
        return replace(source.shape, forms=source.shape.forms or _forms(task, encoder, source.shape.output))
    decoder = config.decoder or decoder_for(task.schema.treatments)
    _require_structured(config, decoder)
    output = config.output or ("relative" if decoder == "structured" or config.remainder else "level")
    forms = start.shape.forms if start else ()
    forecasts = decoder == "structured" and config.covariates != "none"
    return DecoderShape(
        decoder,
        output,
        config.hidden,
        config.carry_overs or 1,
        forms or _forms(task, encoder, output),
        reach_of_covariates(reach_of(train), n_covariates) if forecasts else None,
    )


def _require_structured(config: FinetuneConfig, decoder: DecoderName) -> None:
    """Stop where the settings ask for what only the structured decoder has, and it is another one."""
    for name in STRUCTURED:
        value = getattr(config, name)
        if value is not None and decoder != "structured":
            raise UsageError(
                f"`{name} = {value}` would change nothing with the decoder {decoder}",
                where=f"finetune.{name}",
                fix="leave it out, or train the source model with `decoder = structured`",
            )


def _require_same(name: str, asked: object, source: object) -> None:
    if asked not in (None, source):
        what = name.replace("_", "-")
        raise MismatchError(
            f"the source's model has the {what} {source}, not {asked}",
            where=f"finetune.{name}",
            fix=f"omit it, or train a source model with that {what}",
        )


def _forms(task: FitTask, encoder: EncoderConfig, output: OutputName) -> tuple[OutcomeForm, ...]:
    """Return the forms in which outcomes change, where something needs them."""
    if (encoder.inputs, output, task.config.loss) == ("level", "level", "squared"):
        return ()
    return choose_forms(task.panels[task.train], task.schema, task.scaler)
