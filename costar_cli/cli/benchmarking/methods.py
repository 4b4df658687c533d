"""What a benchmark compares, on which data: methods, set-ups, and COSTAR with one choice changed, a line each here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from costar_cli.cli.session import MADE_BY, read_kind
from costar_cli.config.choices import ArchitectureName, InitName, PretextName, SetupName
from costar_cli.config.models import TOKEN_SETTINGS, EncoderConfig
from costar_cli.config.nearest import did_you_mean
from costar_cli.data.base import DataSource
from costar_cli.data.registry import sources
from costar_cli.errors import ArtifactError, UsageError
from costar_cli.evaluation.setups import SETUPS
from costar_cli.methods.registry import METHODS, REFERENCE

if TYPE_CHECKING:
    from costar_cli.cli.session import Flags


@dataclass(frozen=True, slots=True)
class BenchmarkMethod:
    """One row of the tables: a method with its settings, or COSTAR with `changes` to them.

    `name` is what files and the command line call it; `component` and `choice` are what the paper's table of ablations
    calls it, empty for a method. `init` says whether COSTAR starts from a pretrained encoder.
    """

    name: str
    base: str
    component: str = ""
    choice: str = ""
    changes: Mapping[str, object] = field(default_factory=dict, hash=False)
    init: InitName = "pretrained"

    @property
    def is_ablation(self) -> bool:
        """Return whether this is COSTAR with something changed."""
        return bool(self.component)

    @property
    def label(self) -> str:
        """Return what tables call it."""
        return f"{self.component} {self.choice}" if self.is_ablation else METHODS.label(self.base)

    @property
    def is_pretrained(self) -> bool:
        """Return whether it starts from a pretrained encoder."""
        return METHODS[self.base].pretrained and self.init == "pretrained"

    @property
    def own_encoder(self) -> bool:
        """Return whether its encoder is pretrained in another way than the reference's."""
        return self.is_pretrained and any(key.startswith("pretrain.") for key in self.changes)


def _ablation(
    name: str, component: str, choice: str, changes: Mapping[str, object], *, init: InitName = "pretrained"
) -> BenchmarkMethod:
    return BenchmarkMethod(name, REFERENCE, component, choice, changes, init)


def _encoder(name: str, choice: str, architecture: ArchitectureName) -> BenchmarkMethod:
    """Return COSTAR with another encoder, to which the settings of tokens do not apply: they are the default's."""
    tokens = {f"pretrain.encoder.{key}": EncoderConfig.model_fields[key].default for key in TOKEN_SETTINGS}
    return _ablation(name, "Encoder", choice, {"pretrain.encoder.architecture": architecture, **tokens})


def _pretext(choice: str, pretext: PretextName, *, target: bool = False) -> BenchmarkMethod:
    """Return COSTAR whose encoder learned by another pretext, or of target histories, too (spec COSTAR-28 to 31)."""
    name = f"pretext-{choice}{' + target' * target}".replace(" + ", "-").replace(" ", "-")
    changes = {"pretrain.pretext": pretext} | ({"pretrain.unlabelled_target": True} if target else {})
    return _ablation(name, "Pretext", f"{choice}{', target' * target}", changes)


def _optimiser(choice: str, **settings: object) -> BenchmarkMethod:
    """Return COSTAR whose fine-tuning has another optimiser (spec NET-18 to 20)."""
    name = choice.replace("w/o ", "no-").replace("w/ ", "").replace(" ", "-")
    changes = {f"finetune.optimiser.{key}": value for key, value in settings.items()}
    return _ablation(f"optimiser-{name}", "Optimiser", choice, changes)


# Component and choice as the paper prints them; settings by their full name (docs/cli.md lists them).
ABLATIONS: Final[tuple[BenchmarkMethod, ...]] = (
    _encoder("encoder-vt", "w/ VT", "vt"),
    _encoder("encoder-vt-relative", "w/ VT, relative", "vt_relative"),
    _encoder("encoder-ct", "w/ CT", "ct"),
    _ablation("encoder-temporal", "Encoder", "TB only", {"pretrain.encoder.blocks": "temporal"}),
    _ablation("encoder-feature", "Encoder", "FB only", {"pretrain.encoder.blocks": "feature"}),
    _ablation("fpe-absolute", "FPE", "w/ abs", {"pretrain.encoder.feature_encoding": "absolute"}),
    _ablation("ssl-none", "SSL Loss", "none", {}, init="scratch"),
    _ablation("ssl-no-components", "SSL Loss", "w/o comp", {"pretrain.components": False}),
    _ablation("ssl-spectral", "SSL Loss", "spectral", {"pretrain.ssl_loss": "spectral"}),
    _ablation("weights-uniform", "SupL Loss", "w/ uni", {"finetune.step_weights": "uniform"}),
    _ablation("weights-inverse", "SupL Loss", "w/ inv", {"finetune.step_weights": "inverse"}),
    _ablation("weights-sq-inverse", "SupL Loss", "w/ sq.inv.", {"finetune.step_weights": "sq_inverse"}),
    _ablation("decoder-one-step", "Decoder", "w/ autoreg", {"finetune.decoder": "autoregressive_one_step"}),
    _ablation("decoder-taught", "Decoder", "w/ autoreg, taught", {"finetune.decoder": "autoregressive"}),
    # Not in the paper. Those that equal the reference are left out of a benchmark (spec COSTAR-24 to 27, NET-18).
    _ablation("inputs-level", "Inputs", "level", {"pretrain.encoder.inputs": "level"}),
    _ablation("inputs-relative", "Inputs", "relative", {"pretrain.encoder.inputs": "relative"}),
    _ablation("decoder-structured", "Decoder", "structured", {"finetune.decoder": "structured"}),
    _ablation(
        "decoder-one-shot", "Decoder", "one shot", {"finetune.decoder": "stepped", "finetune.output": "relative"}
    ),
    _ablation("output-increment", "Output", "increment", {"finetune.output": "increment"}),
    _ablation("output-relative", "Output", "relative", {"finetune.output": "relative"}),
    _ablation("loss-squared", "SupL Loss", "squared", {"finetune.loss": "squared"}),
    _ablation("loss-relative", "SupL Loss", "relative", {"finetune.loss": "relative_huber"}),
    _optimiser("plain", weight_decay=0.0, schedule="constant", warmup=0, averaging=0.0, max_grad_norm=None),
    _optimiser("w/ decay", weight_decay=1e-4),
    _optimiser("w/ cosine", schedule="cosine", warmup=50),
    _optimiser("w/ averaging", averaging=0.99),
    _optimiser("w/ clipping", max_grad_norm=1.0),
    _optimiser("w/o warm-up", warmup=0),
    _optimiser("w/o averaging", averaging=0.0),
    _pretext("masked", "masked"),
    _pretext("next step", "next_step"),
    _pretext("contrast + next step", "contrastive+next_step"),
    _pretext("contrast", "contrastive", target=True),
    _pretext("masked", "masked", target=True),
    _pretext("next step", "next_step", target=True),
)


def choose_methods(wanted: str, known: Sequence[str]) -> tuple[list[BenchmarkMethod], list[BenchmarkMethod]]:
    """Return the methods that a text names (`all`, or a comma-separated list), in the order of the tables.

    Returns:
        The methods, and those ablations that are named.

    Raises:
        UsageError: a name that is not known; all of them at once.
    """
    ablations = {ablation.name: ablation for ablation in ABLATIONS}
    names = _chosen(wanted, known, "--methods", also=list(ablations))
    methods = in_order([BenchmarkMethod(name, name) for name in names if name not in ablations])
    return methods, [ablation for name, ablation in ablations.items() if name in names]


def choose_setups(wanted: str, possible: Sequence[SetupName]) -> list[SetupName]:
    """Return the set-ups that a text names (`all` that are possible, or names with commas), in the paper's order.

    Raises:
        UsageError: a name that is not known, or a set-up that the data set does not allow.
    """
    names = _chosen(wanted, list(SETUPS), "--setups")
    lacking = [name for name in names if name not in possible]
    if wanted.strip() != "all" and lacking:
        raise UsageError(
            f"{lacking[0]} is not possible with this data set, which lacks the splits for it",
            where="--setups",
            fix=f"choose from {', '.join(possible)}",
        )
    return [name for name in possible if name in names]


def _chosen(wanted: str, known: Sequence[str], flag: str, also: Sequence[str] = ()) -> list[str]:
    """Return the names in a text, each once; `all` stands for those that are `known`, without `also`."""
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    fix = f"`all`, or some of {', '.join(known)}"
    if not names:
        raise UsageError("no name given", where=flag, fix=fix)
    possible = {*known, *also, "all"}
    wrong = [name for name in names if name not in possible]
    problems = [f"unknown name: {name!r}{did_you_mean(name, [*known, *also], lead=', ')}" for name in wrong]
    if problems:
        raise UsageError(problems[0], where=flag, fix=fix, details=problems[1:])
    everything = known if "all" in names else ()
    return list(dict.fromkeys([*everything, *(name for name in names if name != "all")]))


def in_order(methods: Sequence[BenchmarkMethod]) -> list[BenchmarkMethod]:
    """Return methods in the order of the tables, the reference last."""
    return sorted(methods, key=lambda method: METHODS.place(method.name))


@dataclass(frozen=True)
class BenchmarkData:
    """The data set of a benchmark: one that is simulated, or the file of one. `name` is what it calls itself."""

    name: str
    stem: str
    simulated: DataSource | None = None
    file: Path | None = None
    parts: tuple[str, ...] | None = None

    def flags(self, seed: int | None) -> "Flags":
        """Return the flags of the data set's own settings."""
        return {self.simulated.settings: {"seed": seed}} if self.simulated else {}

    @property
    def setups(self) -> list[SetupName]:
        """Return the set-ups that the data set has the parts for."""
        return [name for name, setup in SETUPS.items() if self.parts is None or setup.parts <= set(self.parts)]


def choose_data(text: str) -> BenchmarkData:
    """Return the data set that a word names, or the one in a file.

    Raises:
        UsageError: neither.
        ArtifactError: the file holds no data set.
    """
    simulated = sources()
    if text in simulated:
        return BenchmarkData(simulated[text].dataset, text, simulated=simulated[text])
    path = Path(text)
    if not path.exists() and path.suffix != ".h5":
        choices = f"choose from {', '.join(simulated)}, or give the file of a data set"
        fix = f"{did_you_mean(text, simulated)} {choices}".strip()
        raise UsageError(f"no such data set: {text!r}", where="DATASET", fix=fix)
    if not path.exists():
        raise ArtifactError("file not found", where=text, fix=MADE_BY["dataset"])
    header = read_kind("dataset", path)
    return BenchmarkData(str(header.meta["name"]), path.stem, file=path, parts=tuple(header.meta["parts"]))
