"""The base class of settings, and those that verbs and all methods share: defaults, bounds, and what each does.

Methods and data sets have settings of their own beside their code. Defaults are the paper's for tumours (spec SIZE-1);
`settings/presets` holds what differs per preset.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from costar_cli.config.choices import (
    ArchitectureName,
    CovariatesName,
    DecoderName,
    DeviceName,
    InputsName,
    LossName,
    OutputName,
    PrecisionName,
    PretextName,
    ScheduleName,
    SelectionName,
    StepWeights,
)

STRUCTURED = ("carry_overs", "covariates")  # of the structured decoder alone
TOKEN_SETTINGS = ("pool", "blocks", "feature_encoding")  # of COSTAR's own encoder alone


class Config(BaseModel):
    """The base of every configuration: immutable, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class WithAdditions(BaseModel):
    """Fields that came later are left out where they say nothing, so that what was written before stays what it was."""

    additions: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_empty_additions(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the fields."""
        fields: dict[str, Any] = plain(self)
        usual = {name: type(self).model_fields[name].default for name in self.additions}
        return {name: value for name, value in fields.items() if name not in usual or (value and value != usual[name])}


def settings_problems(settings: Any, presets: Mapping[str, Mapping[str, object]]) -> Iterator[str]:  # noqa: ANN401
    """Yield what is wrong with settings that somebody else wrote, which would be wrong in every run of costar.

    Args:
        settings: what should be their class.
        presets: values by preset and by name, `network.epochs`.
    """
    if not (isinstance(settings, type) and issubclass(settings, Config)):
        yield "its settings are no subclass of `costar_cli.config.models.Config`"
    elif lacking := [name for name, field in settings.model_fields.items() if field.is_required()]:
        yield f"its setting `{lacking[0]}` has no default"
    else:
        for preset, values in {"": {}, **presets}.items():
            try:
                settings.model_validate(nested(values), strict=True)
            except ValueError as error:
                what = f"its preset `{preset}` is" if preset else "its defaults together are"
                yield f"{what} not valid: {' '.join(str(error).split())}"


def nested(values: Mapping[str, object]) -> dict[str, Any]:
    """Return `{"network": {"epochs": 3}}` of `{"network.epochs": 3}`."""
    nested: dict[str, Any] = {}
    for name, value in values.items():
        *path, last = name.split(".")
        table = nested
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    return nested


def heads_divide_width(settings: Any) -> Any:  # noqa: ANN401 - settings of attention, whatever they hold beside it
    """Return settings with `width` and `heads`, unless the width cannot be shared out among the heads."""
    if settings.width % settings.heads:
        raise ValueError(f"width {settings.width} is not a multiple of heads {settings.heads}")
    return settings


class EncoderConfig(Config):
    """The shape of the COSTAR encoder (spec COSTAR-1 to 7), or of one in its place (spec COSTAR-19 to 21).

    `pool`, `blocks` and `feature_encoding` (`TOKEN_SETTINGS`) are about the tokens of COSTAR's own; the others have
    none, and refuse any value but the default.
    """

    architecture: ArchitectureName = Field("costar", description="COSTAR's encoder, or a plain (vt) or causal (ct) one")
    width: int = Field(24, ge=2, le=4096, description="Model width d, a multiple of heads")
    layers: int = Field(1, ge=1, le=64, description="Pairs of temporal and feature-wise blocks; blocks of vt and ct")
    heads: int = Field(2, ge=1, le=64, description="Attention heads")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout rate, quantised to 1/256")
    clip_distance: int = Field(
        15, ge=1, le=1000, description="Largest relative position; longer distances are clipped to it"
    )
    pool: Literal["component", "token"] = Field("component", description="Mean of component means, or of all tokens")
    blocks: Literal["both", "temporal", "feature"] = Field("both", description="Which attention blocks a layer has")
    feature_encoding: Literal["tree", "absolute"] = Field("tree", description="Feature positional encoding")
    inputs: InputsName = Field(
        "level",
        description="Outcomes in histories: as they are, or relative (their level in the form in which they grow, and "
        "their last change)",
    )

    _heads_divide_width = model_validator(mode="after")(heads_divide_width)

    @model_validator(mode="after")
    def _tokens_are_costars(self) -> Self:
        defaults = {name: field.default for name, field in type(self).model_fields.items() if name in TOKEN_SETTINGS}
        idle = [f"`{name} = {getattr(self, name)}`" for name, value in defaults.items() if getattr(self, name) != value]
        if idle and self.architecture != "costar":
            raise ValueError(
                f"{' and '.join(idle)} would change nothing with `architecture = {self.architecture}`: "
                f"leave {'it' if len(idle) == 1 else 'them'} out, or choose `architecture = costar`"
            )
        return self


WeightDecay = Annotated[float, Field(ge=0, le=10, description="Decoupled weight decay (AdamW); 0: none")]
Warmup = Annotated[int, Field(ge=0, le=1_000_000, description="Steps over which the learning rate rises to its value")]
Schedule = Annotated[
    ScheduleName,
    Field(description="Learning rate after the warm-up: constant, or falling to 0 along half a cosine"),
]
Averaging = Annotated[
    float, Field(ge=0, lt=1, description="Decay of the moving average of the weights, which is what is kept; 0: none")
]
Clipping = Annotated[float | None, Field(gt=0, description="Gradient clipping: maximum norm per member")]


class OptimiserConfig(Config):
    """What a stage may add to Adam (spec NET-18 to 20); by default nothing."""

    weight_decay: WeightDecay = 0.0
    warmup: Warmup = 0
    schedule: Schedule = "constant"
    averaging: Averaging = 0.0
    max_grad_norm: Clipping = None


class TrainingConfig(Config):
    """What both training stages share."""

    epochs: int = Field(200, ge=1, le=100_000, description="Maximum epochs; overrides the preset's number of updates")
    updates: int | None = Field(
        None,
        ge=1,
        description="Maximum optimiser steps; epochs are then equal shares of them, however many the subjects",
    )
    patience: int = Field(20, ge=1, description="Early stopping: epochs without improvement of the validation loss")
    batch_size: int = Field(64, ge=1, description="Batch size: subjects per optimiser step and member")
    validation_batch_size: int = Field(256, ge=1, description="Batch size of validation, in subjects")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="Adam's learning rate")
    seed: int = Field(10, ge=0, lt=2**63, description="Seed of initialisation, shuffling, dropout and augmentation")
    optimiser: OptimiserConfig = OptimiserConfig()


class PretrainConfig(TrainingConfig):
    """Self-supervised pretraining (spec COSTAR-8 to 13)."""

    members: int = Field(5, ge=1, le=1000, description="Ensemble members trained together")
    encoder: EncoderConfig = EncoderConfig()
    pretext: PretextName = Field(
        "contrastive",
        description="What the encoder learns from histories without labels: to tell them apart, to fill in what is "
        "hidden of them, or what comes next under a treatment; or two of these",
    )
    unlabelled_target: bool = Field(
        False,
        description="Learn from the histories of the target's training subjects, too; whatever is made from the "
        "encoder is then marked as one that uses unlabelled target data",
    )
    mask_share: float = Field(0.15, gt=0, lt=1, description="Share of steps, and of variables, that `masked` hides")
    momentum: float = Field(0.99, ge=0, lt=1, description="Momentum of the key encoder")
    ssl_loss: Literal["info_nce", "spectral"] = Field("info_nce", description="Self-supervised loss")
    spectral_sigma: float = Field(1.0, gt=0, description="Weight of the spectral loss's second term")
    temperature: float = Field(1.0, gt=0, description="Temperature of the contrastive loss")
    components: bool = Field(True, description="Contrast the component representations too")
    augment_probability: float = Field(0.5, ge=0, le=1, description="Probability of each augmentation")
    augment_sigma: float = Field(0.5, ge=0, description="Standard deviation of scale, shift and jitter")
    augment_granularity: Literal["batch", "sample"] = Field(
        "batch", description="What shares one random draw of each augmentation"
    )
    max_contrast: int | None = Field(None, ge=2, description="Contrast a random subset of this many positions")
    keep: Literal["last", "best"] = Field("last", description="Which epoch's weights to keep")


class FinetuneConfig(WithAdditions, TrainingConfig):
    """Supervised training of encoder and outcome predictor (spec COSTAR-14 to 18)."""

    additions: ClassVar[tuple[str, ...]] = ("remainder",)

    members: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="Ensemble members, trained in parallel; as many as the encoder has, where there is one",
    )
    batch_size: int = Field(32, ge=1, description="Batch size: subjects per optimiser step and member")
    hidden: int = Field(128, ge=1, description="Hidden units of the outcome predictor")
    select_on: SelectionName = Field(
        "rolling-origin",
        description="What selects an epoch's weights: the whole model's error over all steps from validation origins, "
        "the same for every method, in sds or in each subject's own scale, or the validation loss of the method's own "
        "last stage",
    )
    calibrate_on: Literal["half", "all"] = Field(
        "all",
        description="Validation subjects that calibrate intervals, where a method selects on validation: the half that "
        "is then not selected on, or all, selected on as well; methods that select nothing calibrate on all",
    )
    step_weights: StepWeights = Field("inverse", description="Weights of the predicted steps in the loss")
    decoder: DecoderName | None = Field(
        None,
        description="Decoder (default: the source model's, or by the kind of treatments)",
    )
    output: OutputName | None = Field(
        None,
        description="What the decoder's numbers mean: outcomes, their increments since the origin, or increments "
        "relative to the subject's own scale there (default: the source model's, or level; structured: relative)",
    )
    carry_overs: int | None = Field(
        None,
        ge=1,
        le=2,
        description="Carry-overs of each treatment that the structured decoder learns (default: the source model's, or "
        "1)",
    )
    covariates: CovariatesName | None = Field(
        None,
        description="Whether the structured decoder forecasts covariates with the outcomes, and learns each step from "
        "the truth before it (default: the source model's, or forecast)",
    )
    remainder: bool | str | None = Field(
        None,
        union_mode="left_to_right",  # `yes` is no name
        description="Fit a closed form first, `mixed` or `boosting`, or the one that validation prefers (true), "
        "and predict what it leaves: as much of it is added as validation errors and observed effects allow (default: "
        "the source model's, or no)",
    )
    loss: LossName = Field(
        "squared", description="Loss: squared errors, or errors in the subject's own scale, large ones by their size"
    )
    encoder: EncoderConfig | None = Field(
        None, description="Encoder shape when training from scratch (default: `pretrain.encoder`)"
    )

    @model_validator(mode="after")
    def _choices_belong_together(self) -> Self:
        if self.decoder == "structured" and self.output == "level":
            raise ValueError(
                "`decoder = structured` predicts changes, no levels: leave `output` out, or choose `increment` or "
                "`relative`"
            )
        if self.remainder and (self.decoder == "structured" or self.output == "level"):
            raise ValueError(
                "`remainder` needs a decoder that predicts changes of all steps at once: choose "
                "`decoder = stepped` or `non_autoregressive`, and leave `output` out"
            )
        for name in STRUCTURED:
            value = getattr(self, name)
            if value is not None and self.decoder not in (None, "structured"):
                raise ValueError(
                    f"`{name} = {value}` would change nothing with `decoder = {self.decoder}`: "
                    "leave it out, or choose `decoder = structured`"
                )
        return self


class RuntimeConfig(Config):
    """Where and how to compute; changes speed and rounding, not the method."""

    device: DeviceName = Field("auto", description="Compute device")
    precision: PrecisionName = Field("float32", description="Floating-point precision of training")
    group: int | None = Field(None, ge=1, description="Ensemble members trained in one step (default: as many as pay)")
    graphs: bool | None = Field(
        None, description="Replay training steps as CUDA graphs (default: on a GPU, in one process)"
    )
    threads: int | None = Field(None, ge=1, le=1024, description="CPU threads")
    max_memory: float | None = Field(
        None,
        gt=0,
        description="Main memory in GB that training on a CPU aims at: less is slower "
        "(default: half of the machine's, or of a tighter limit)",
    )


class EvaluateConfig(WithAdditions, Config):
    """How to score (docs/spec/scores.md)."""

    additions: ClassVar[tuple[str, ...]] = ("ipcw",)

    level: float = Field(0.95, gt=0, lt=1, description="Confidence level of the bootstrap intervals")
    bootstrap: int = Field(1000, ge=0, le=1_000_000, description="Bootstrap replicates (0: none)")
    query_batch_size: int = Field(16_384, ge=1, description="Queries per batch; limits memory")
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of the bootstrap and of t-SNE")
    ipcw: bool = Field(
        False,
        description="Weigh what was observed by the inverse probability that its subject was not lost to follow-up",
    )


class RefuteConfig(Config):
    """How `costar evaluate --refute` refits a model (docs/spec/refute.md)."""

    refits: int = Field(
        5, ge=2, le=1_000, description="Refits of each test, each to another random half of the subjects"
    )
    subjects: int = Field(800, ge=4, le=1_000_000, description="Most training subjects that refits draw from")
    updates: int = Field(300, ge=1, description="Most optimiser steps of a network that is refitted, with one member")
    margin: float = Field(
        0.2, gt=0, lt=1, description="Change of an effect, as a share of it, up to which it counts as the same"
    )


class BenchmarkConfig(Config):
    """What a benchmark compares; how models are trained and scored is said elsewhere."""

    methods: str = Field(
        "all",
        min_length=1,
        description="Methods to compare: `all`, or a comma-separated list, which may name ablations of COSTAR",
    )
    setups: str = Field(
        "all",
        min_length=1,
        description="Set-ups to score: `all`, or a comma-separated list of zero-shot, few-shot, supervised",
    )
    data_seeds: str = Field(
        "1", description="Number of data sets to simulate, with consecutive seeds; or their seeds: `10,101,1010`"
    )
    ablations: bool = Field(False, description="Also train ablations of COSTAR, each with one component changed")

    @field_validator("data_seeds", mode="before")
    @classmethod
    def _names_seeds(cls, value: object) -> str:
        """Return the text, of which a count may be given as a number."""
        text = str(value)
        numbers = _numbers(text)
        if not numbers:
            raise ValueError("give a count, such as `3`, or seeds with commas, such as `10,101,1010`")
        if len(set(numbers)) < len(numbers):
            raise ValueError("a seed occurs twice")
        if len(numbers) == 1 and not 1 <= numbers[0] <= 1000:
            raise ValueError("a count is from 1 to 1000; `--seed` is the seed of a single data set")
        return text

    def seeds(self, first: int) -> tuple[int, ...]:
        """Return the seeds of the data sets, which follow the first where only their number was given."""
        numbers = _numbers(self.data_seeds)
        return numbers if len(numbers) > 1 else tuple(range(first, first + numbers[0]))


def _numbers(text: str) -> tuple[int, ...]:
    """Return whole numbers with commas between them; nothing where it is something else."""
    words = [word.strip() for word in text.split(",")]
    return tuple(map(int, words)) if all(re.fullmatch(r"[0-9]{1,18}", word) for word in words) else ()
