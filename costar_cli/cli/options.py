"""Every option that more than one verb has, defined once."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from costar_cli.config.choices import DeviceName, PrecisionName, PresetName
from costar_cli.config.requests import Flag
from costar_cli.errors import UsageError
from costar_cli.methods.entry import AUTO
from costar_cli.methods.registry import METHODS


class OneOf:
    """The choices of an option that are not known before somebody asks: what installed packages add is among them."""

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self._names = names

    def __call__(self, value: str) -> str:
        """Return a value that is one of the choices, as Typer does with those that it knows.

        Raises:
            ValueError: it is none of them.
        """
        names = list(self._names())
        if value not in names:
            raise ValueError(f"{value!r} is not one of {', '.join(map(repr, names))}.")
        return value

    def text(self) -> str:
        """Return the choices as the help shows them."""
        return "|".join(self._names())

    def complete(self, incomplete: str) -> list[str]:
        """Return the choices that begin so, for the shell's completion."""
        return [name for name in self._names() if name.startswith(incomplete)]


def setting(*flags: str, panel: str, metavar: str | None = None) -> OptionInfo:
    """Return the option of a setting, whose help is the setting's own description.

    It is read when help is shown (`cli.verb.described`): no other run pays for the settings of all verbs.
    """
    option: OptionInfo = typer.Option(*flags, metavar=metavar, rich_help_panel=panel)
    return option


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that Typer sees with a flag per field, for each parameter that is a dataclass of flags.

    A field is annotated with a `Flag`, or as an option of this module. Of `tuple[T, ...]` the flag may be repeated.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint) and isinstance(hint, type)}
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY))
            continue
        of_group = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            made = field.default_factory is not MISSING
            default = None if made else Parameter.empty if field.default is MISSING else field.default
            own = of_group[field.name]
            kind, *more = get_args(own)
            if get_origin(own) is Annotated and isinstance(flag := more[0], Flag):
                info = typer.Option(
                    *(flag.names or (f"--{field.name.replace('_', '-')}",)),
                    help=flag.help, metavar=flag.metavar, rich_help_panel=flag.panel,
                )  # fmt: skip
                if get_origin(kind) is tuple:
                    kind, default = list[get_args(kind)[0]] | None, None  # type: ignore[misc]
                elif get_origin(kind) in (Union, UnionType):  # steps may be numbers, plans may be there already
                    kind = next((one | None for one in (str, Path) if one in get_args(kind)), kind)
                own = Annotated[kind, info]
            parameters.append(Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=own))

    def run(**values: Any) -> None:  # noqa: ANN401 - what Typer parsed
        made: dict[str, object] = {}
        for name, group in groups.items():
            own = {field.name: values.pop(field.name) for field in fields(group)}
            made[name] = group(
                **{
                    key: tuple(value) if isinstance(value, list) else value
                    for key, value in own.items()
                    if value not in (None, [])
                }
            )
        command(**values, **made)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    return run


FILES, SETTINGS, TRAINING, MACHINE, MESSAGES = "Files", "Settings", "Training", "Machine", "Messages"
EXPERT = "Expert settings"  # which no page needs to explain: their help says what they are

WorkspaceOpt = Annotated[
    Path,
    typer.Option(
        "--workspace", "-w", envvar="COSTAR_WORKSPACE", help="Folder of the experiment", rich_help_panel=FILES
    ),
]
DataOpt = Annotated[
    Path | None, typer.Option("--data", help="Data set (default: the workspace's)", rich_help_panel=FILES)
]
LikeOpt = Annotated[
    Path | None,
    typer.Option(
        "--like", help="Model or data set: read new subjects as its data were, without a schema", rich_help_panel=FILES
    ),
]
OutOpt = Annotated[
    Path | None, typer.Option("--out", "-o", help="Output file (default: in the workspace)", rich_help_panel=FILES)
]
OverwriteFlag = Annotated[
    bool, typer.Option("--overwrite", help="Replace files made from other inputs or settings", rich_help_panel=FILES)
]
CsvSafeFlag = Annotated[
    bool,
    typer.Option(
        "--csv-safe", help="Put ' before cells of .csv files that spreadsheets would execute", rich_help_panel=FILES
    ),
]
FreshFlag = Annotated[
    bool, typer.Option("--fresh", help="Start over instead of continuing an interrupted run", rich_help_panel=FILES)
]

PlotOpt = Annotated[
    Path | None, typer.Option("--plot", help="Figure to write: .png, .svg or .pdf", rich_help_panel=FILES)
]
NoPlotsFlag = Annotated[bool, typer.Option("--no-plots", help="Skip the figures", rich_help_panel=FILES)]
ReportOpt = Annotated[
    Path | None,
    typer.Option("--report", help="Report to write: a self-contained HTML page", rich_help_panel=FILES),
]
DataReportOpt = Annotated[
    Path | None,
    typer.Option(
        "--report",
        help="Report to write: a self-contained HTML page; of a data set also `-`, tables on stdout",
        rich_help_panel=FILES,
    ),
]
LogOpt = Annotated[
    Path | None,
    typer.Option(
        "--log",
        help="Log of the epochs to write: FILE.csv, FILE.jsonl, or a folder for TensorBoard",
        rich_help_panel=FILES,
    ),
]
PresetOpt = Annotated[
    PresetName | None,
    typer.Option(
        "--preset",
        envvar="COSTAR_PRESET",
        help="Sizes, epochs and members: a demonstration, a sensible result on a CPU, or the paper's protocol",
        rich_help_panel=SETTINGS,
    ),
]
ConfigFileOpt = Annotated[
    Path | None,
    typer.Option("--config", "-c", envvar="COSTAR_CONFIG", help="TOML file of settings", rich_help_panel=SETTINGS),
]
SeedOpt = Annotated[
    int | None,
    typer.Option(
        "--seed", help="Random seed; the same seed, threads and versions give identical files", rich_help_panel=SETTINGS
    ),
]

HorizonOpt = Annotated[
    int | None, typer.Option("--horizon", help="Steps predicted from an origin", rich_help_panel=SETTINGS)
]

EpochsOpt = Annotated[int | None, setting("--epochs", panel=TRAINING)]
PatienceOpt = Annotated[int | None, setting("--patience", panel=EXPERT)]
BatchSizeOpt = Annotated[int | None, setting("--batch-size", panel=EXPERT)]
LearningRateOpt = Annotated[float | None, setting("--learning-rate", panel=EXPERT)]
METHOD_NAMES = OneOf(lambda: [*METHODS, AUTO])
MethodOpt = Annotated[
    str,
    typer.Option(
        "--method",
        parser=METHOD_NAMES,
        autocompletion=METHOD_NAMES.complete,
        help=f"Method to train; `{AUTO}` fits a short list of them and combines them",
    ),
]
PartsOpt = Annotated[str | None, setting("--parts", panel=TRAINING, metavar="<name,...>")]
MinutesOpt = Annotated[float | None, setting("--minutes", panel=TRAINING)]
MembersOpt = Annotated[int | None, setting("--members", panel=TRAINING)]

DeviceOpt = Annotated[DeviceName | None, setting("--device", panel=MACHINE)]
PrecisionOpt = Annotated[PrecisionName | None, setting("--precision", panel=MACHINE)]
ThreadsOpt = Annotated[int | None, setting("--threads", panel=MACHINE)]
MemoryOpt = Annotated[float | None, setting("--max-memory", panel=MACHINE)]
GroupOpt = Annotated[int | None, setting("--group", panel=MACHINE)]
ShardOpt = Annotated[str | None, typer.Option("--shard", metavar="I/N", help="Make part I of N, to be merged")]
MergeFlag = Annotated[
    bool, typer.Option("--merge", help="Answer from the parts of averages or effects that --shard made beside --csv")
]

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print exactly one JSON document, also on failure", rich_help_panel=MESSAGES)
]
QuietFlag = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print results, warnings and errors only", rich_help_panel=MESSAGES)
]
# What `--show` adds to the screen of a verb, beside `all`
SHOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "pretrain": ("members", "notes"),
    "finetune": ("members", "notes"),
    "evaluate": ("days", "course", "coverage", "effects", "support", "notes"),
    "score": ("days", "course", "coverage", "effects", "support", "notes"),
    "whatif": ("days", "support", "notes"),
    "search": ("days", "notes"),
    "effect": ("days", "notes"),
    "benchmark": ("effects", "notes"),
    "inspect": ("settings", "support"),
}
ShowOpt = Annotated[str | None, typer.Option("--show", metavar="<name,...>", rich_help_panel=MESSAGES)]


def topics_of(verb: str, show: str | None) -> tuple[str, ...]:
    """Return the topics that a verb is asked to show; `all` where it has no choice.

    Raises:
        UsageError: a topic that the verb does not have.
    """
    if verb not in SHOWN:
        return ("all",)
    topics = tuple(filter(None, map(str.strip, (show or "").split(","))))
    if unknown := [topic for topic in topics if topic not in (*SHOWN[verb], "all")]:
        fix = f"choose from {', '.join(SHOWN[verb])}, all"
        raise UsageError(f"`{unknown[0]}` is not a topic of `costar {verb}`", where="--show", fix=fix)
    return topics


DEFAULT_MODEL = "default: the workspace's COSTAR, else its stack, else its only method"
AskedModelsOpt = Annotated[
    list[Path] | None,
    typer.Option("--model", "-m", help=f"Model to ask ({DEFAULT_MODEL}); may be repeated", rich_help_panel=FILES),
]
ModelsOpt = Annotated[
    list[Path] | None,
    typer.Option(
        "--model", "-m", help="Model to score (default: all of the workspace); may be repeated", rich_help_panel=FILES
    ),
]

# Of a cohort, about which `whatif` and `search` ask
SubjectsOpt = Annotated[
    str | None,
    typer.Option(
        "--subjects",
        help="Cohort: `all`, a split such as `target/test`, or a file of subjects (one per line, or a CSV column)",
    ),
]
SkipUnknownFlag = Annotated[
    bool, typer.Option("--skip-unknown", help="Leave out subjects that are unknown, or too short for the origin")
]
