"""What a model is made from, and making it: one way for the Python API, the training verbs and the benchmark."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costar_cli.config.choices import DomainName
from costar_cli.config.models import (
    Config,
    EncoderConfig,
    FinetuneConfig,
    PretrainConfig,
    RuntimeConfig,
    TrainingConfig,
)
from costar_cli.data.dataset import Dataset, Part
from costar_cli.data.record import ModelRecord
from costar_cli.methods.registry import METHODS
from costar_cli.reporting import Reporter
from costar_cli.settings.resolve import Settings, method_settings

if TYPE_CHECKING:
    from costar_cli.files import Artifact
    from costar_cli.training import Trained, TrainingLog

DECODER = ("decoder", "output", "carry_overs", "covariates")


@dataclass(frozen=True)
class PretrainPlan:
    """An encoder to pretrain: with which settings, on which data set.

    `set_aside` are the updates of a preset that chosen epochs put aside.
    """

    config: PretrainConfig
    runtime: RuntimeConfig
    parents: Mapping[str, str]
    set_aside: int | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """Return the parts of the data set that pretraining reads."""
        target = (Part("target", "train"),) if self.config.unlabelled_target else ()
        return Part("source", "train"), Part("source", "val"), *target

    @property
    def identity(self) -> dict[str, Any]:
        """Return what makes the encoder that encoder, beside its parents."""
        return _identity(self.config, self.runtime)

    def run(
        self,
        dataset: Dataset,
        *,
        checkpoint: Path | None,
        reporter: Reporter,
        fresh: bool = False,
        log: "TrainingLog | None" = None,
    ) -> "Trained":
        """Pretrain on the parts `parts` of the data set; see `train.pretrain`."""
        from costar_cli.training import RunIdentity, pretrain

        identity = RunIdentity.of("encoder", parents=self.parents, config=self.identity)
        return pretrain(
            dataset, self.config, self.runtime,
            checkpoint=checkpoint, identity=identity, reporter=reporter, fresh=fresh, log=log, set_aside=self.set_aside,
        )  # fmt: skip


@dataclass(frozen=True)
class FitPlan:
    """A model to make: of which method, for which domain, with which settings, from what.

    `set_aside` are the updates of a preset that chosen epochs put aside.
    """

    method: str
    domain: DomainName
    config: FinetuneConfig
    runtime: RuntimeConfig
    settings: Config | None
    parents: Mapping[str, str]
    part_settings: Mapping[str, Config | None] = field(default_factory=dict)
    set_aside: int | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """Return what makes the model that model, beside its parents."""
        identity = {**_identity(self.config, self.runtime), "domain": self.domain}
        if METHODS[self.method].pretrained:
            return identity
        own = self.settings.model_dump(mode="json") if self.settings else {}
        read = METHODS[self.method].shared_settings(identity)  # others do not make it another model
        of_parts = {name: one.model_dump(mode="json") if one else {} for name, one in self.part_settings.items()}
        return read | {"method": self.method, "settings": own} | ({"parts": of_parts} if of_parts else {})

    @property
    def parts(self) -> tuple[Part, ...]:
        """Return the parts of the data set that the fit reads."""
        again = [Part("source", "train")] if METHODS[self.method].learns_from_source else []
        return tuple(dict.fromkeys([Part(self.domain, "train"), Part(self.domain, "val"), *again]))

    def run(
        self,
        dataset: Dataset,
        start: "Artifact | None",
        *,
        checkpoint: Path | None,
        reporter: Reporter,
        fresh: bool = False,
        log: "TrainingLog | None" = None,
        judged: bool = True,
    ) -> "Trained":
        """Fit to the parts `parts` of the data set, from an encoder, a model or nothing; see `train.finetune`."""
        from costar_cli.files import complete
        from costar_cli.methods.shared.transformed import load_transformed
        from costar_cli.methods.stored import model_of
        from costar_cli.training import RunIdentity, finetune

        fitted = None
        if start is not None:
            with complete(start):
                if start.kind == "encoder":
                    from costar_cli.methods.costar.model import CostarModel  # closed forms are fitted without torch

                    fitted = load_transformed(start, CostarModel.from_artifact)
                else:
                    fitted = model_of(start)
        return finetune(
            dataset,
            self.config,
            self.runtime,
            domain=self.domain,
            start=fitted,
            checkpoint=checkpoint,
            identity=RunIdentity.of("model", parents=self.parents, config=self.identity),
            reporter=reporter,
            fresh=fresh,
            method=METHODS[self.method],
            settings=self.settings,
            part_settings=self.part_settings,
            log=log,
            judged=judged,
            set_aside=self.set_aside,
        )


def plan_pretraining(settings: Settings, dataset: str) -> PretrainPlan:
    """Return what an encoder is made from, on the data set of a digest."""
    parents, set_aside = {"dataset": dataset}, settings.set_aside.get("pretrain")
    return PretrainPlan(settings[PretrainConfig], settings[RuntimeConfig], parents, set_aside)


def plan_fit(settings: Settings, method: str, domain: DomainName, *, dataset: str, start: "Artifact | None") -> FitPlan:
    """Return what a model is made from.

    Args:
        settings: the settings of all methods and stages.
        method: what to fit.
        domain: `source`, or `target` for few-shot adaptation.
        dataset: the digest of the data set.
        start: the header of the encoder or model to start from; None from random weights.
    """
    parents, config = {"dataset": dataset}, settings[FinetuneConfig]
    if start is not None:
        parents[start.kind] = start.digest
        inherited: dict[str, object] = {}  # from the artifact to start from, except for settings that the user chose
        if not settings.is_chosen("finetune.members"):
            inherited["members"] = ModelRecord.of(start).members
        if not settings.any_chosen("finetune.encoder."):
            inherited["encoder"] = None
        if start.kind == "model":  # a preset's decoder is that of a source model to be trained
            inherited |= {name: None for name in DECODER if not settings.is_chosen(f"finetune.{name}")}
        config = config.model_copy(update=inherited)
    own = method_settings(settings, method, config)
    parts = METHODS[method].parts(own, ModelRecord.of(start) if start else None)
    if start is None and any(METHODS[name].pretrained for name in (method, *parts)):
        config = config.model_copy(update={"encoder": pretrained_shape(settings)})
    of_parts = {name: method_settings(settings, name, config) for name in parts}
    set_aside = settings.set_aside.get("finetune")
    return FitPlan(method, domain, config, settings[RuntimeConfig], own, parents, of_parts, set_aside)


def pretrained_shape(settings: Settings) -> EncoderConfig:
    """Return the shape of an encoder of random weights: what pretraining would make, unless somebody chose one."""
    if not settings.any_chosen("finetune.encoder."):
        return settings[PretrainConfig].encoder
    return settings[FinetuneConfig].encoder or EncoderConfig()


def _identity(config: TrainingConfig, runtime: RuntimeConfig) -> dict[str, Any]:
    """Return what makes a training run that run: its settings and precision; not device, threads or grouping."""
    return {**config.model_dump(mode="json"), "precision": runtime.precision}
