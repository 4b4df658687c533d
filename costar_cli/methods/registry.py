"""Which methods there are, with the facts about each; importing this loads none of them, nor torch.

Everything that lists methods reads `METHODS`: choices and help, settings, tables, figures, the benchmark, suggestions.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from costar_cli.config.nearest import did_you_mean
from costar_cli.config.plugins import Plugins, load_plugins
from costar_cli.errors import ArtifactError, UsageError
from costar_cli.methods.entry import AUTO, OF_CLOSED_FORMS, OF_NETWORKS, Method

if TYPE_CHECKING:
    from costar_cli.data.record import ModelRecord

REFERENCE: Final = "costar"  # the default, and whom the others are compared with
LAST_VALUE: Final = "last-value"  # the naive anchor, which every evaluation scores

SHORT_LIST: Final = "short-list"  # of methods that are worth trying on any data set
CLOSED_FORM: Final = "closed-form"  # those of them that have no epochs
LISTS: Final = (SHORT_LIST, CLOSED_FORM)

THAT_ADJUST: Final = ", of those that adjust"  # ends what a stack calls its choice among such parts


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
        by_arrays=True,
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
    Method(
        name="igcnet",
        label="IGC-Net",
        estimator="costar_cli.methods.recurrent.igcnet:IGCNET",
        settings="costar_cli.methods.recurrent.settings:IgcNetConfig",
        reads=[name for name in OF_NETWORKS if name != "select_on"],
        order=17,
        adjusts="all",
        suggested=13,
    ),
    Method(
        name="sdrnet",
        label="SDR-Net",
        estimator="costar_cli.methods.recurrent.sdrnet:SDRNET",
        settings="costar_cli.methods.recurrent.settings:SdrNetConfig",
        reads=[name for name in OF_NETWORKS if name != "select_on"],
        order=18,
        adjusts="outcomes",  # on three data sets it finds 106 % of the known effect, and 5 % is the most for `all`
        suggested=14,
    ),
    Method(
        name="causal-cpc",
        label="Causal CPC",
        estimator="costar_cli.methods.recurrent.causal_cpc:CAUSAL_CPC",
        settings="costar_cli.methods.recurrent.settings:CausalCpcConfig",
        reads=OF_NETWORKS,
        order=20,
        stepwise=True,
    ),
    _network("ct", "CT", "transformers.ct:CT", "CtConfig", order=10, suggested=8),
    _network("ct-erm", "CT(ERM)", "transformers.ct:CT_ERM", "CtErmConfig", order=9, suggested=5),
    _network("edct", "EDCT", "transformers.edct:EDCT", "EdctConfig", order=11, suggested=9),
    Method(
        name="ridge",
        label="Ridge regression",
        estimator="costar_cli.methods.regression.ridge:RIDGE",
        settings="costar_cli.methods.regression.settings:RidgeConfig",
        closed_form=True,
        by_arrays=True,
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
        by_arrays=True,
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
        by_arrays=True,
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
        name="gcomp",
        label="G-computation",
        estimator="costar_cli.methods.gcomp.method:GCOMP",
        settings="costar_cli.methods.gcomp.settings:GcompConfig",
        closed_form=True,
        by_arrays=True,
        learns_from_source=True,
        reads=("seed", "calibrate_on", *OF_CLOSED_FORMS),
        selects=True,
        order=16,
        stepwise=True,
        adjusts="all",
        suggested=12,
        short_list=8,
        short_list_width=12,
        takes_doses=True,
    ),
    Method(
        name="in-context",
        label="In-context model",
        estimator="costar_cli.methods.in_context.method:IN_CONTEXT",
        settings="costar_cli.methods.in_context.settings:InContextConfig",
        closed_form=True,
        by_arrays=True,
        learns_from_source=True,
        reads=("seed", *OF_CLOSED_FORMS),
        order=19,
        stepwise=True,
        adjusts="all",
        takes_doses=True,
    ),
    Method(
        name="chronos",
        label="Chronos-2 (forecast, does not adjust)",
        estimator="costar_cli.methods.chronos.method:CHRONOS",
        settings="costar_cli.methods.chronos.settings:ChronosConfig",
        needs=("weights",),
        closed_form=True,
        order=21,
        takes_doses=True,
    ),
    Method(
        name="stack",
        label="Stacking",
        estimator="costar_cli.methods.stack.method:STACK",
        settings="costar_cli.methods.stack.settings:StackConfig",
        learns_from_source=True,
        order=22,
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
        short_list=9,
        takes_doses=True,
        takes_gaps=True,
    ),
    Method(
        name=LAST_VALUE,
        label="Last value carried forward",
        estimator="costar_cli.methods.regression.naive:LAST_VALUE",
        closed_form=True,
        by_arrays=True,
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
        by_arrays=True,
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
        by_arrays=True,
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
        sections = {method.section for method in _BUILT_IN}
        names = {method.name for method in _BUILT_IN}
        return load_plugins("costar.methods", Method, names, lambda method: method.problems(sections))

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

    def in_closed_form(self, name: str, parts: Collection[str] = ()) -> bool:
        """Return whether a method, or each of the parts that it combines, is fitted in closed form."""
        names = parts or (name,)
        return all(one in self and self[one].closed_form for one in names)

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
