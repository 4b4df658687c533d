"""Which methods there are, with the facts about each; importing this loads none of them, nor torch.

Everything that lists methods reads `METHODS`: choices and help, settings, tables, figures, the benchmark, suggestions.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

from costar_cli.config.nearest import did_you_mean
from costar_cli.config.plugins import Plugins, load_plugins
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import ArtifactError, UsageError

if TYPE_CHECKING:
    import torch

    from costar_cli.config.models import Config
    from costar_cli.data import PanelSchema
    from costar_cli.data.record import ModelRecord
    from costar_cli.files import Artifact
    from costar_cli.methods.base import Estimator, Fit, FitTask, FittedModel

REFERENCE: Final = "costar"  # the default, and whom the others are compared with
STRUCTURED: Final = "structured"  # the decoder that integrates over gaps
LAST_VALUE: Final = "last-value"  # the naive anchor, which every evaluation scores

AUTO: Final = "auto"  # what the command line calls the stack of the short list
SHORT_LIST: Final = "short-list"  # of methods that are worth trying on any data set
CLOSED_FORM: Final = "closed-form"  # those of them that have no epochs
LISTS: Final = (SHORT_LIST, CLOSED_FORM)

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
THAT_ADJUST: Final = ", of those that adjust"  # ends what a stack calls its choice among such parts
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
        closed_form: the fit has no epochs, and no randomness of which more members would show the spread: one member is
            all there is. What it draws by the seed (which rows it reads, say) stands in `reads`.
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
    closed_form: bool = False
    learns_from_source: bool = False
    pretrained: bool = False
    reads: Collection[str] | None = None
    selects: bool | None = None
    presets: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    order: int = 100
    suggested: int | None = None
    short_list: int | None = None
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

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with an entry that somebody else wrote."""
        from costar_cli.config.models import settings_problems  # noqa: PLC0415 - pydantic takes a while

        if not _NAME.fullmatch(self.name):
            yield f"the name {self.name!r} is not made of small letters, digits and `-`"
        if self.name == AUTO:
            yield f"`{AUTO}` is no method, but the choice of several"
        if self.section in {*RESERVED, *(method.section for method in _BUILT_IN)}:
            yield f"settings `{self.section}` are something else's"
        if self.settings_class is not None:
            yield from settings_problems(self.settings_class, self.presets)


def _imported(reference: str) -> Any:  # noqa: ANN401 - whatever stands there
    """Return what `package.module:NAME` refers to."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def _network(name: str, label: str, where: str, settings: str, *, order: int, suggested: int) -> Method:
    """Return a method of trained networks in one of this package's folders.

    RMSN weighs by treatment and G-Net simulates covariates, but where the effect is known their published networks find
    45 and 67 % of it (docs/support.md): neither is taken to adjust for covariates. With the structured decoder they do,
    and find 75 to 108 % of effects on binary outcomes.
    """
    folder, _, _ = where.partition(".")
    return Method(
        name=name,
        label=label,
        estimator=f"costar_cli.methods.{where}",
        settings=f"costar_cli.methods.{folder}.settings:{settings}",
        reads=OF_NETWORKS,
        order=order,
        suggested=suggested,
        stepwise=True,
        adjusts="outcomes",
        shrinks=True,
    )


_BUILT_IN: Final[Sequence[Method]] = (
    Method(
        name=REFERENCE,
        label="COSTAR",
        estimator="costar_cli.methods.costar.method:COSTAR",
        pretrained=True,
        short_list=20,
        shrinks=True,
        takes_doses=True,
    ),
    Method(
        name="msm",
        label="MSM",
        estimator="costar_cli.methods.regression.msm:MSM",
        settings="costar_cli.methods.regression.settings:MsmConfig",
        closed_form=True,
        learns_from_source=True,
        reads=("seed", *OF_CLOSED_FORMS),
        order=5,
        suggested=6,
        short_list=5,
        adjusts="all",
        takes_doses=True,
    ),
    _network("rmsn", "RMSN", "recurrent.rmsn:RMSN", "RmsnConfig", order=6, suggested=4),
    _network("crn", "CRN", "recurrent.crn:CRN", "CrnConfig", order=8, suggested=7),
    _network("crn-erm", "CRN(ERM)", "recurrent.crn:CRN_ERM", "CrnErmConfig", order=7, suggested=3),
    _network("gnet", "G-Net", "recurrent.gnet:GNET", "GNetConfig", order=12, suggested=2),
    _network("ct", "CT", "transformers.ct:CT", "CtConfig", order=10, suggested=8),
    _network("ct-erm", "CT(ERM)", "transformers.ct:CT_ERM", "CtErmConfig", order=9, suggested=5),
    _network("edct", "EDCT", "transformers.edct:EDCT", "EdctConfig", order=11, suggested=9),
    Method(
        name="ridge",
        label="Ridge regression",
        estimator="costar_cli.methods.regression.ridge:RIDGE",
        settings="costar_cli.methods.regression.settings:RidgeConfig",
        closed_form=True,
        reads=("calibrate_on", *OF_CLOSED_FORMS),
        selects=True,
        order=4,
        suggested=1,
        short_list=4,
        takes_doses=True,
    ),
    Method(
        name="boosting",
        label="Gradient boosting",
        estimator="costar_cli.methods.boosting.method:BOOSTING",
        settings="costar_cli.methods.boosting.settings:BoostingConfig",
        closed_form=True,
        learns_from_source=True,
        reads=("seed", "calibrate_on", *OF_CLOSED_FORMS),
        selects=True,
        order=15,
        suggested=11,
        short_list=7,
        takes_doses=True,
    ),
    Method(
        name="mixed",
        label="Mixed effects",
        estimator="costar_cli.methods.mixed.method:MIXED",
        settings="costar_cli.methods.mixed.settings:MixedConfig",
        closed_form=True,
        learns_from_source=True,
        order=13,
        stepwise=True,
        adjusts="all",
        suggested=10,
        short_list=6,
        takes_doses=True,
        takes_gaps=True,
    ),
    Method(
        name="stack",
        label="Stacking",
        estimator="costar_cli.methods.stack.method:STACK",
        settings="costar_cli.methods.stack.settings:StackConfig",
        learns_from_source=True,
        order=20,
        combines=True,
        takes_doses=True,
        takes_gaps=True,
    ),
    Method(
        name="growth",
        label="Growth GRU",
        estimator="costar_cli.methods.growth.method:GROWTH",
        settings="costar_cli.methods.growth.settings:GrowthConfig",
        reads=[name for name in OF_NETWORKS if name != "select_on"],
        order=14,
        stepwise=True,
        adjusts="all",
        shrinks=True,
        suggested=0,
        short_list=8,
        takes_doses=True,
        takes_gaps=True,
    ),
    Method(
        name=LAST_VALUE,
        label="Last value carried forward",
        estimator="costar_cli.methods.regression.naive:LAST_VALUE",
        closed_form=True,
        order=1,
        short_list=1,
        takes_doses=True,
        takes_gaps=True,
        as_given=True,
    ),
    Method(
        name="mean",
        label="Mean so far",
        estimator="costar_cli.methods.regression.naive:MEAN",
        closed_form=True,
        order=2,
        short_list=2,
        takes_doses=True,
        takes_gaps=True,
        as_given=True,
    ),
    Method(
        name="seasonal-naive",
        label="Seasonal naive",
        estimator="costar_cli.methods.regression.seasonal:SEASONAL_NAIVE",
        settings="costar_cli.methods.regression.settings:SeasonalNaiveConfig",
        closed_form=True,
        order=3,
        short_list=3,
        takes_doses=True,
        takes_gaps=True,
        as_given=True,
    ),
)


class Methods(Mapping[str, Method]):
    """Methods by name: costar's own, then those of installed packages, which are looked for when first needed.

    Looked for late, because a package that adds a method imports this module, and because `costar --help` needs none.
    """

    @cached_property
    def installed(self) -> Plugins[Method]:
        """Return what the entry points `costar.methods` of installed packages add, and what of it cannot be used."""
        return load_plugins("costar.methods", Method, {method.name for method in _BUILT_IN}, Method.problems)

    @cached_property
    def _by_name(self) -> dict[str, Method]:
        return {method.name: method for method in (*_BUILT_IN, *self.installed.found)}

    def __getitem__(self, name: str) -> Method:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def place(self, name: str) -> tuple[bool, int]:
        """Return what sorts a method in tables: unknown ones after the others, the reference last."""
        return name == REFERENCE, self[name].order if name in self else Method.order

    def suggested(self, *, binary: bool = False) -> list[str]:
        """Return the methods to try where one loses to the last value carried forward, the first to try first.

        Those whose differences between plans are no effects come last; `binary` says that some outcomes are.
        """
        places = {name: method.suggested for name, method in self.items() if method.suggested is not None}
        kinds = {name: self[name].adjusts_for(self[name].adjusts, binary=binary) for name in places}
        return sorted(places, key=lambda name: (kinds[name] in {"none", "shrunk"}, places[name]))

    def adjusting(self, *, doses: bool, binary: bool) -> list[str]:
        """Return the methods that adjust for all reactions inside a plan, the first to try first.

        Args:
            doses: some treatments are doses.
            binary: some outcomes are.
        """
        able = [(name, self[name]) for name in self.suggested() if self[name].takes_doses or not doses]
        return [name for name, method in able if method.adjusts_for(method.adjusts, binary=binary) == "all"]

    @property
    def combining(self) -> Method:
        """Return the method that combines others where nobody says which to take."""
        return next(method for method in self.values() if method.combines)

    def short_list(self) -> list[str]:
        """Return the methods that are worth trying on any data set, the quickest to fit first."""
        places = {name: method.short_list for name, method in self.items() if method.short_list is not None}
        return sorted(places, key=places.__getitem__)

    def choose(self, text: str, where: str, *, pretrained: bool) -> list[str]:
        """Return the methods that a text names: `short-list`, its `closed-form` ones, or names with commas.

        Args:
            text: what was asked for.
            where: the setting that says so.
            pretrained: there is an encoder, without which no list has the methods that start from one.

        Raises:
            UsageError: an unknown name, a method that combines others, or none.
        """
        if text.strip() in LISTS:
            wanted = [self[name] for name in self.short_list()]
            closed = text.strip() == CLOSED_FORM
            return [m.name for m in wanted if (m.closed_form or not closed) and (pretrained or not m.pretrained)]
        names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        possible = [name for name, method in self.items() if not method.combines]
        choices = f"{', '.join(LISTS)}, or some of {', '.join(possible)}"
        if not names:
            raise UsageError("no part is named", where=where, fix=choices)
        for name in names:
            if name in possible:
                continue
            known = name in {AUTO, *self}
            problem = f"{name!r} cannot be a part" if known else f"unknown method: {name!r}"
            near = "" if known else did_you_mean(name, [*possible, *LISTS])
            raise UsageError(problem, where=where, fix=f"{near} {choices}".strip())
        return names

    def label(self, name: str) -> str:
        """Return what tables and figures call a method; an unknown one by its name."""
        return self[name].label if name in self else name


METHODS: Final = Methods()


def named_parts(record: "ModelRecord", where: str = "parts") -> list[str]:
    """Return the methods that a combination in a file is made of.

    Raises:
        ArtifactError: they are no list of methods that this version knows, each once, none made of others.
    """
    names = [str(part.get("method")) for part in record.parts or ()]
    unknown = [name for name in names if name not in METHODS]
    if not names or unknown:
        raise ArtifactError(
            f"a part of the model is of method {unknown[0]!r}, which this version does not know"
            if unknown
            else "the model is made of other methods, but has no parts",
            where=where,
            fix=f"known methods: {', '.join(METHODS)}; upgrade costar, or install the package that adds it",
        )
    if combined := [name for name in names if METHODS[name].combines]:
        problem = f"a part of the model is of method {combined[0]}, which is made of others itself"
    elif len(set(names)) < len(names):
        problem = "the model has two parts of the same method"
    else:
        return names
    raise ArtifactError(problem, where=where, fix="retrain it with `costar finetune`")
