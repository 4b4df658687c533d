"""One entry of the registry: what is known of a method before it is loaded, and where it is."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import UsageError

if TYPE_CHECKING:
    import torch

    from costar_cli.config.models import Config
    from costar_cli.data import PanelSchema
    from costar_cli.data.record import ModelRecord
    from costar_cli.files import Artifact
    from costar_cli.methods.base import Estimator, Fit, FitTask, FittedModel

STRUCTURED: Final = "structured"  # the decoder that integrates over gaps
AUTO: Final = "auto"  # what the command line calls the stack of the short list

# Of the settings that all methods share, those on which models depend. Networks have epochs, patience, batch size and
# learning rate among their own settings.
OF_NETWORKS: Final = (
    "seed", "members", "updates", "select_on", "calibrate_on", "validation_batch_size", "precision", "domain",
)  # fmt: skip
OF_CLOSED_FORMS: Final = ("domain",)

# What a section of settings, a variable `COSTAR_...` or the top of a settings file already means.
RESERVED: Final = frozenset(
    {"benchmark", "config", "debug", "evaluate", "finetune", "ingest", "preset", "pretrain", "refute", "runtime"}
    | {"simulate", "workspace"}
)
Adjusts = Literal["none", "outcomes", "shrunk", "all"]  # from the least
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method: what is known of it before it is loaded, and where it is.

    Attributes:
        name: what the command line and files call it; the section of its settings is the name with `_` for `-`.
        label: what tables and figures call it, as the paper does.
        estimator: what fits it and reads a fitted one (`methods.base.Estimator`), or where it is: `package.module:NAME`
            is imported when it is first used, so that listing methods loads none.
        settings: the class of the settings that it alone has, or where that is; None where it has none.
        needs: those of its own settings, by name, without which it cannot be fitted; their default is None. Until they
            are set, `all` methods of a benchmark leave it out.
        closed_form: the fit has no epochs, and no randomness of which more members would show the spread: one member is
            all there is. What it draws by the seed (which rows it reads, say) stands in `reads`.
        by_arrays: it is fitted without torch, which takes a second or more to import, and so has no stages.
        learns_from_source: adapting to the target needs the source's training subjects again.
        pretrained: it can start from the encoder that `costar pretrain` makes; it has no settings but the shared ones.
        reads: those of the settings that all methods share, by name, on which its model depends; None for all, or for
            `domain` alone where the fit is in closed form. As long as these, its own settings and the data are the
            same, a model is up to date.
        selects: fitting looks at validation subjects, to stop or to choose; None where that is so of networks alone.
        presets: what `quick`, `default` and `paper` change in its own settings, `{"quick": {"network.epochs": 3}}`;
            those of costar's own methods are in `settings/presets/`.
        order: its place in tables, from the simplest to the newest; the reference closes them.
        suggested: its place among the methods to try where another one loses to the last value; None for never.
        short_list: its place among the methods that are worth trying on any data set, the quickest to fit first; None
            for those that are not.
        short_list_width: the most outcomes and covariates with which a list takes it: with more its fit takes minutes;
            None for any number.
        stepwise: its models predict each step from the one before, so that rules of treatment can act on outcomes; of
            some methods that depends on their decoder (`stepwise` of `FittedModel`).
        adjusts: which reactions of treatment inside a plan its estimates are adjusted for: `all`, as it simulates
            outcomes and covariates step by step or weighs by treatment; those to `outcomes`, which are fed back, while
            covariates stay what they were at the origin; or `none`, as each step is a regression on history and plan.
            Its models may say otherwise, as their decoder does (`inference.reactions`).
        shrinks: what adjusts for all is only `shrunk` where an outcome is binary: its effects come out too small.
        combines: it is made of other methods, which its setting `parts` names.
        takes_doses: it answers plans of treatments that are numbers; others refuse data that have some.
        takes_gaps: a longer gap between visits is more time to it, or nothing at all; to others that take doses it is a
            covariate, of which `finetune` warns, unless their decoder is the structured one.
        as_given: it predicts outcomes as the data have them, also where their schema has a transform for models.
    """

    name: str
    label: str
    estimator: "Estimator | str"
    settings: "type[Config] | str | None" = None
    needs: Collection[str] = ()
    closed_form: bool = False
    by_arrays: bool = False
    learns_from_source: bool = False
    pretrained: bool = False
    reads: Collection[str] | None = None
    selects: bool | None = None
    presets: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    order: int = 100
    suggested: int | None = None
    short_list: int | None = None
    short_list_width: int | None = None
    stepwise: bool = False
    adjusts: Adjusts = "none"
    shrinks: bool = False
    combines: bool = False
    takes_doses: bool = False
    takes_gaps: bool = False
    as_given: bool = False

    @property
    def section(self) -> str:
        """Return the section of its own settings."""
        return self.name.replace("-", "_")

    @cached_property
    def settings_class(self) -> "type[Config] | None":
        """Return the class of its own settings, None where it has none."""
        return _imported(self.settings) if isinstance(self.settings, str) else self.settings

    @property
    def selects_on_validation(self) -> bool:
        """Return whether fitting it looks at validation subjects."""
        return not self.closed_form if self.selects is None else self.selects

    def default_settings(self) -> "Config | None":
        """Return its own settings where nobody chose any."""
        return self.settings_class() if self.settings_class else None

    def lacks(self, settings: "Config | None") -> list[str]:
        """Return the full names of the settings that it needs, and that its own settings leave open."""
        return [f"{self.section}.{name}" for name in self.needs if getattr(settings, name, None) is None]

    def shared_settings(self, shared: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of the settings of all methods, by name, on which its model depends."""
        reads = OF_CLOSED_FORMS if self.reads is None and self.closed_form else self.reads
        return {name: value for name, value in shared.items() if reads is None or name in reads}

    @cached_property
    def loaded(self) -> "Estimator":
        """Return what fits the method.

        Raises:
            UsageError: it cannot be imported.
        """
        if not isinstance(self.estimator, str):
            return self.estimator
        try:
            estimator: Estimator = _imported(self.estimator)
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"the method {self.name} cannot be loaded: {error}",
                where=self.estimator,
                fix="install what it needs, or upgrade the package that adds it",
            ) from error
        return estimator

    def parts(self, settings: "Config | None", start: "ModelRecord | None") -> list[str]:
        """Return the methods that this one is made of, the quickest to fit first; none for most.

        Args:
            settings: its own; None for the default ones.
            start: the record of the encoder or the model that the fit starts from, None of neither.

        Raises:
            UsageError: the settings name none, or one that cannot be a part.
            ArtifactError: the model to start from is made of what this version cannot take as parts.
        """
        if not self.combines:
            return []
        from costar_cli.methods.registry import METHODS, named_parts  # noqa: PLC0415 - it lists the entries

        if start is not None and start.parts is not None:
            return named_parts(start)
        text = getattr(settings or self.default_settings(), "parts", "")
        return METHODS.choose(text, f"{self.section}.parts", pretrained=start is not None)

    def fit(self, task: "FitTask") -> "Fit":
        """Fit all members, stage by stage; see `Estimator.fit`.

        Raises:
            UsageError: the data have doses, which the method does not take.
        """
        self.require_doses(task.schema)
        return self.loaded.fit(task)

    def require_doses(self, schema: "PanelSchema") -> None:
        """See that the method takes the treatments of a data set.

        Raises:
            UsageError: some are doses, and it takes levels alone.
        """
        if schema.treatments.doses and not self.takes_doses:
            from costar_cli.methods.registry import METHODS  # noqa: PLC0415 - it lists the entries

            names = ", ".join(dose.name for dose in schema.treatments.doses)
            uneven = all(dose.elapsed is not None for dose in schema.treatments.doses)
            other = "ingest with even steps (`gaps`)" if uneven else "give the dose `levels` instead of `kind`"
            raise UsageError(
                f"{self.label} takes treatments with named levels alone, and this data set has doses: {names}",
                where=f"--method {self.name}",
                fix=f"choose one of {', '.join(n for n, method in METHODS.items() if method.takes_doses)}, or {other}",
            )

    def adjusts_for(self, found: Adjusts, *, binary: bool) -> Adjusts:
        """Return which reactions a model adjusts for that rolls out as far as `found`, with a binary outcome or not."""
        return "shrunk" if found == "all" and binary and self.shrinks else found

    def doubts(self, schema: "PanelSchema", decoder: str | None = None) -> list[Diagnostic]:
        """Return what of a data set the method, with a decoder where it has several, cannot use as it is meant."""
        uneven = any(dose.elapsed is not None for dose in schema.treatments.doses)
        if not uneven or self.takes_gaps or not self.takes_doses or decoder == STRUCTURED:
            return []
        from costar_cli.methods.registry import METHODS  # noqa: PLC0415 - it lists the entries

        over = next(name for name, method in METHODS.items() if method.takes_gaps and method.stepwise)
        also = "" if decoder is None else f", and so does `finetune.decoder = {STRUCTURED}`"
        return [Diagnostic.of("time-as-covariate", label=self.label, other=over, also=also)]

    def load(self, artifact: "Artifact", device: "torch.device | str" = "cpu") -> "FittedModel":
        """Return the fitted model that an artifact of kind `model` holds; it answers in the units of the data."""
        from costar_cli.methods.shared.transformed import load_transformed  # noqa: PLC0415 - it needs torch

        if not self.transforms_outcomes:
            return self.loaded.load(artifact, device)
        return load_transformed(artifact, lambda learned: self.loaded.load(learned, device))

    @property
    def transforms_outcomes(self) -> bool:
        """Return whether it learns outcomes as their schema transforms them, and leaves that to no other method."""
        return not (self.as_given or self.combines)

    def problems(self, taken: Collection[str] = ()) -> Iterator[str]:
        """Yield what is wrong with an entry of an installed package, whose section may be none of those `taken`."""
        from costar_cli.config.models import settings_problems  # noqa: PLC0415 - pydantic takes a while

        if not _NAME.fullmatch(self.name):
            yield f"the name {self.name!r} is not made of small letters, digits and `-`"
        if self.name == AUTO:
            yield f"`{AUTO}` is no method, but the choice of several"
        if self.section in {*RESERVED, *taken}:
            yield f"settings `{self.section}` are something else's"
        if self.settings_class is not None:
            yield from settings_problems(self.settings_class, self.presets)


def _imported(reference: str) -> Any:  # noqa: ANN401 - whatever stands there
    """Return what `package.module:NAME` refers to."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
