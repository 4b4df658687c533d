"""How every verb reads its command line: one value per option, all that is missing at once, help with examples."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, get_args

import typer
from typer.core import TyperCommand, TyperOption

from costar_cli.cli.groups import without_types_of_switches
from costar_cli.cli.options import EXPERT, MACHINE, SHOWN, OneOf
from costar_cli.errors import UsageError
from costar_cli.reporting.output import Output

if TYPE_CHECKING:
    from costar_cli.settings.keys import Key

ALL_HELP: Final = "help of all options"
MOST_EXAMPLES: Final = 2  # of the short help
MOST_OPTIONS: Final = 12  # of a verb whose short help has them all
RARE_PANELS: Final = (EXPERT, MACHINE)
RARE: Final = ("--debug", "--quiet", "--csv-safe", "--shard", "--merge", "--config", "--fresh", "--log",
               "--skip-unknown")  # fmt: skip
RARE_OF: Final[Mapping[str, tuple[str, ...]]] = {  # options that the short help of a verb leaves out
    "simulate tumor": (
        "--twin",
        "--drop-confounder",
        "--ends",
        "--visits",
        "--plans",
        "--target-gamma",
        "--paired",
        "--target-val",
    ),
    **dict.fromkeys(
        ("simulate mimic", "ingest mimic"),
        (
            "--source-above",
            "--source-to",
            "--target-above",
            "--target-to",
            "--target-val",
            "--target-test",
            "--few-shot",
            "--trust-pickle",
            "--min-hours",
            "--export-extract",
            "--center",
        ),
    ),
    **dict.fromkeys(
        ("simulate m5", "ingest m5"),
        ("--target-test", "--target-val", "--few-shot", "--edges", "--train-items", "--price", "--export"),
    ),
    "ingest nonmem": (
        "--name",
        "--time-unit",
        "--items",
        "--doses",
        "--below",
        "--categorical",
        "--carry",
        "--steady-state",
        "--target",
        "--table",
        "--preset",
    ),
    "simulate linear": ("--drop-confounder", "--target-gamma", "--treatment-effect", "--doses"),
    **dict.fromkeys(
        (("simulate glucose", "simulate hiv", "simulate warfarin", "simulate sepsis")),
        ("--target-gamma", "--target-val"),
    ),
    "finetune": ("--start", "--step-weights", "--epochs", "--parts", "--from", "--seed", "--out"),
    "score": ("--plots", "--bootstrap", "--seed", "--no-plots"),
    "evaluate": ("--minimise", "--maximise", "--cost", "--bootstrap", "--ipcw", "--plots", "--predictions", "--seed"),
    "whatif": ("--sweep", "--abstain", "--widen", "--out", "--unsupported", "--sensitivity", "--reference", "--level"),
    "search": (
        "--cost",
        "--by",
        "--only-from",
        "--beam",
        "--steps",
        "--not-with",
        "--reference",
        "--levels",
        "--at-least",
        "--level",
        "--not-consecutive",
        "--data",
        "--overwrite",
    ),
    "effect": ("--once", "--protocol", "--grace", "--learner", "--probability", "--unsupported", "--report", "--level"),
    "benchmark": (
        "--ray",
        "--list",
        "--folder",
        "--ablations",
        "--no-plots",
        "--setups",
        "--workers",
        "--seed",
        "--overwrite",
        "--members",
        "--twin",
        "--protocol",
        "--protocols",
    ),
}
LIST = "<name,...>"  # metavar of options whose value is a list with commas


def _set_debug(ctx: typer.Context, value: bool) -> None:
    if value and isinstance(ctx.obj, Output):
        ctx.obj.debug = True


def _show_all_help(ctx: typer.Context, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[ALL_HELP] = True
        sys.stdout.write(ctx.get_help())  # Typer prints it by itself where it draws frames
        raise typer.Exit


_shared = typer.Typer(add_completion=False)


@_shared.command()
def _options_of_every_verb(
    debug: bool = typer.Option(
        False, "--debug", help="Show tracebacks of errors", rich_help_panel="Messages",
        callback=_set_debug, is_eager=True, expose_value=False,
    ),
    help_all: bool = typer.Option(
        False, "--help-all", help="Show all options and exit",
        callback=_show_all_help, is_eager=True, expose_value=False,
    ),
) -> None:  # fmt: skip
    """Declare what no verb has to declare."""


class Option(TyperOption):
    """An option that costs nothing where it has no value: Typer builds a reader of each with pydantic, 20 ms in all."""

    def process_value(self, ctx: typer.Context, value: Any) -> Any:  # type: ignore[override]  # noqa: ANN401
        """Return the value as its type."""
        if value is None and not (self.multiple or self.required or self.callback):
            return None
        return super().process_value(ctx, value)


class Verb(TyperCommand):
    """A verb: its options as declared, and `--debug`.

    An option that takes one value takes it once: of two values one would be dropped without a word.
    """

    def __init__(self, name: str | None, **settings: Any) -> None:  # noqa: ANN401 - Typer's own
        super().__init__(name, **settings)
        params: list[Any] = [*self.params, *typer.main.get_command(_shared).params]
        for param in params:
            if type(param) is TyperOption:
                param.__class__ = Option
            # what one value may be: `<path>`, not `<list[Path]>`, and the names of `OneOf`
            if isinstance(choices := param.type_descriptor.parameter_info.parser, OneOf):
                param.bare_type = choices.text
            if param.type_descriptor.is_list:
                (element,) = get_args(param.type_descriptor.annotation)
                param.bare_type = element.__name__.lower
        self.params = params

    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]
        """Return the parameters, `--help` among them."""
        return without_types_of_switches(super().get_params(ctx))

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse, after a look at how often each option was given.

        Raises:
            UsageError: a single value was given twice, or something that is required is missing, or the value of an
                option is empty or another option.
        """
        if not ctx.resilient_parsing:
            parser = self.make_parser(ctx)
            for param in self._single_values():
                repeatable = copy(param)
                repeatable.multiple = True
                repeatable.add_to_parser(parser, ctx)
            given: dict[str, Any] = parser.parse_args(list(args))[0]
            if not (given.get("help") or given.get("help_all")):
                self._check(ctx, given)
        return super().parse_args(ctx, args)

    def _single_values(self) -> Iterator[TyperOption]:
        for param in self.params:
            if isinstance(param, TyperOption) and not (param.is_flag or param.multiple or param.count):
                yield param

    def _check(self, ctx: typer.Context, given: dict[str, Any]) -> None:
        """See that options have values, single values come once, and nothing required is missing, in this order."""
        flags = {flag for param in self.params for flag in (*param.opts, *param.secondary_opts) if flag[0] == "-"}
        fix = f"`{ctx.command_path} --help` says what it takes"
        for param in self.params:
            if not isinstance(param, TyperOption) or param.is_flag or param.count:
                continue
            if any(not str(value).strip() for value in given.get(param.name) or ()):  # an empty path would be a folder
                raise UsageError(f"the value of `{param.opts[0]}` is empty", where=f"`{ctx.command_path}`", fix=fix)
            annotation = param.type_descriptor.annotation
            if Path in (annotation, *get_args(annotation)):
                continue  # what names a file, a folder or several is looked at where it is used
            if taken := flags.intersection(given.get(param.name) or ()):
                problem = f"`{param.opts[0]}` has no value: `{taken.pop()}` follows it"
                raise UsageError(problem, where=f"`{ctx.command_path}`", fix=fix)

        if params := [param for param in self._single_values() if len(given.get(param.name) or ()) > 1]:
            repeated = [f"{' / '.join(p.opts)}: {', '.join(f'`{value}`' for value in given[p.name])}" for p in params]
            lists = [f"`{p.opts[0]} {quote(','.join(given[p.name]))}`" for p in params if p.metavar == LIST]
            fixes = [f"separate them with commas: {' '.join(lists)}"] if lists else []
            if others := [p.opts[0] for p in params if p.metavar != LIST]:
                fixes.append(f"give {'each of them' if len(others) > 1 else others[0] if lists else 'it'} once")
            raise UsageError(
                f"more than one value for {repeated[0] if len(repeated) == 1 else f'{len(repeated)} options'}",
                where=f"`{ctx.command_path}`",
                fix="; ".join(fixes),
                details=repeated if len(repeated) > 1 else (),
            )
        missing = [
            f"{param.param_type_name} {param.get_error_hint()}"  # type: ignore[attr-defined]
            for param in self.params
            if param.required and not given.get(param.name) and param.value_from_envvar(ctx) is None
        ]
        if missing:
            fix = f"`{ctx.command_path} --help` lists its options"
            raise UsageError(f"missing {' and '.join(missing)}", where=f"`{ctx.command_path}`", fix=fix)

    def format_help(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # noqa: ANN401
        """Write the help: with examples, and with the defaults of settings."""
        path = ctx.command_path.partition(" ")[2]
        examples = examples_of(path)
        declared, hidden = self.params, {*RARE, *RARE_OF.get(path, ())}
        everyday = [
            param
            for param in declared
            if len(declared) <= MOST_OPTIONS
            or not isinstance(param, TyperOption)
            or not (param.rich_help_panel in RARE_PANELS or hidden.intersection(param.opts))
        ]
        shown = declared if ALL_HELP in ctx.meta else everyday
        more = [f"All options: {ctx.command_path} --help-all"] * (len(shown) < len(declared))
        examples = examples[:MOST_EXAMPLES] if more else examples
        if len(everyday) == len(declared):
            shown = [param for param in shown if "--help-all" not in param.opts]
        self.epilog = "\n\n".join([*more, *(["Examples:", *examples] if examples else [])]) or None
        params = [described(path, param) for param in shown]
        for i, param in enumerate(params):
            if not isinstance(param, TyperOption) or param.default is not None or param.is_flag:
                continue
            if (key := _setting(path, param.opts)) is None:
                continue
            from costar_cli.settings.presets import DEFAULT_PRESET, PRESETS, general_settings

            values = {name: general_settings(name).get(str(key), key.default) for name in PRESETS}
            default = values.pop(DEFAULT_PRESET)
            others = [f"{name} {_text(value)}" for name, value in values.items() if value != default]
            if default is not None and (text := "; ".join([_text(default), *others])):
                params[i] = copy(param)
                params[i].default = text  # text in `show_default` would get parentheses
        self.params = params
        try:
            super().format_help(ctx, formatter)
        finally:
            self.params = declared


def described(path: str, param: Any) -> Any:  # noqa: ANN401 - Typer's own
    """Return a parameter of a verb, `ingest table`, with its help: that of a setting is the setting's description."""
    if not isinstance(param, TyperOption) or param.help:
        return param
    if param.opts == ["--show"]:
        shown = copy(param)
        shown.help = f"More on the screen: {', '.join(SHOWN[path])}, or all"
        return shown
    shown, key = copy(param), _setting(path, param.opts)
    shown.help = key.field.description if key else None
    return shown


def _setting(path: str, flags: Sequence[str]) -> "Key | None":
    """Return the setting that a flag of a verb sets, None for other flags."""
    from costar_cli.methods.registry import METHODS
    from costar_cli.settings.keys import all_keys

    others = {"benchmark": ["finetune"], "score": ["evaluate"]}
    sections = [path.replace(" ", "."), *others.get(path, []), "runtime"]
    sections += [METHODS.combining.section] * (path == "finetune")
    keys = {key.section: key for key in all_keys().values() if key.flag in flags}
    return next((keys[section] for section in sections if section in keys), None)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "ingest table": (
        "costar ingest table visits.csv --init",
        "costar ingest table visits.csv --schema schema.toml --statics patients.csv",
        "costar ingest table new-patients.csv --like costar-workspace/model.h5",
    ),
    "check": ("costar check visits.csv", "costar check visits.csv --schema schema.toml --json"),
    "ingest meds": (
        "costar ingest meds mimic-meds --init",
        "costar ingest meds mimic-meds --signals signals.toml",
        "costar ingest meds new-patients --like costar-workspace/model.h5",
    ),
    "ingest omop": (
        "costar ingest omop cdm --init",
        "costar ingest omop cdm.duckdb --signals signals.toml",
        "costar ingest omop new-patients --like costar-workspace/model.h5",
    ),
    "pretrain": (
        "costar pretrain --members 5",
        "costar pretrain --preset quick --workspace demo",
        "costar pretrain --log epochs.csv",
    ),
    "finetune": (
        "costar finetune",
        "costar finetune --method auto --minutes 2",
        "costar finetune --method crn --domain target",
    ),
    "evaluate": (
        "costar evaluate",
        "costar evaluate --setup few-shot --csv scores.csv",
        "costar evaluate --fail-if 'zero-shot.costar.average > 1.1' --fail-if 'zero-shot.costar.coverage90 < 0.85'",
        "costar evaluate --shard 1/16",
    ),
    "score": (
        "costar score mine.parquet --model mixed",
        "costar score mine.parquet other.csv --trained target",
    ),
    "search": (
        'costar search --subject 12 --minimise "tumour_volume at end" --at-most "chemotherapy 2"',
        'costar search --subjects target/test --minimise "tumour_volume mean" --out plans.csv',
    ),
    "whatif": (
        "costar whatif --subject 12 --plan plan.json",
        "costar whatif --subject 12 --plan plan.json --truth --plot whatif.png",
    ),
    "explore": (
        "costar explore",
        "costar explore --subject 12 --port 8765 --no-browser",
        "costar explore --subject 12 --freeze page.html",
    ),
    "effect": (
        "costar effect --plan plans.json",
        'costar effect --plan plans.json --estimator all --when "severity >= 6" --csv effects.csv',
    ),
    "benchmark": (
        "costar benchmark tumor --methods all --members 5",
        "costar benchmark tumor --preset quick --methods costar,crn --list",
        "costar benchmark tumor --gamma 0,2,4,6,8,10 --data-seeds 10,101,1010",
        "costar benchmark tumor --data-seeds 8 --workers 4",
        "costar benchmark tumor --data-seeds 8 --shard 1/16",
    ),
    "merge": ("costar merge costar-workspace/benchmark/tumor-default", "costar merge costar-workspace/evaluation.h5"),
    "inspect": (
        "costar inspect costar-workspace/model.h5",
        "costar inspect --report data.html",
    ),
    "verify": ("costar verify costar-workspace/model.h5",),
    "settings": ("costar settings", "costar settings pretrain.encoder", "costar settings schema"),
    "doctor": ("costar doctor", "costar doctor --workspace demo --json"),
}


def examples_of(path: str) -> tuple[str, ...]:
    """Return the examples of a verb, `ingest table`; those of a data set come from its entry in the registry."""
    if path in EXAMPLES:
        return EXAMPLES[path]
    from costar_cli.data.registry import all_sources

    return next((source.examples for source in all_sources() if f"{source.verb} {source.name}" == path), ())
