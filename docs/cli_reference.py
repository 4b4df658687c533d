"""Write docs/cli.md and the help pages of tests/cli/help.txt from the app; `--check` says whether they are up to date.

python docs/cli_reference.py [--check]
"""

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import typer

from costar_cli import errors
from costar_cli.cli.app import app
from costar_cli.cli.verb import described, examples_of
from costar_cli.settings.keys import Key, all_keys
from costar_cli.settings.presets import PRESETS

TARGET = Path(__file__).with_name("cli.md")
HELP = Path(__file__).parents[1] / "tests" / "cli" / "help.txt"

INTRODUCTION = """\
# Command line

<!-- Written by `python docs/cli_reference.py`; do not edit. -->

```
costar simulate tumor --gamma 10            # source gamma; target gamma 0
costar simulate linear | m5 | mimic         # a linear system of known effects, embedded retail and ICU cohorts
costar simulate glucose | hiv | warfarin | sepsis    # published models of disease and drug
costar check FILE                           # is a table suitable? before any model
costar ingest table FILE... --schema schema.toml     # your own; also `ingest mimic FILE`, `ingest m5 FOLDER`
costar pretrain [--members 5]
costar finetune [--method NAME] [--domain source|target] [--from pretrained|scratch]
costar evaluate [--setup zero-shot|few-shot|supervised] [--fail-if 'zero-shot.costar.average > 1.1']
costar whatif --subject 12 --plan plan.json
costar search --subject 12 --minimise "tumour_volume at end" --at-most "chemotherapy 2"
costar explore                               # the same in the browser, on this machine alone
costar benchmark tumor --methods all --members 5     # the paper's tables, ours beside the published
costar inspect FILE   costar verify FILE   costar settings [NAME]   costar doctor
```

## The workspace

A workspace is one experiment in one folder: `--workspace DIR`, else `COSTAR_WORKSPACE`, else `./costar-workspace`.
Verbs find their inputs there and write their outputs there; every input and output can also be given.

| file | made by |
|---|---|
| `data.h5` | `costar simulate`, `costar ingest` |
| `encoder.h5` | `costar pretrain` |
| `model.h5` | `costar finetune` |
| `model-target.h5` | `costar finetune --domain target` |
| `model-scratch.h5`, `model-scratch-target.h5` | the same with `--from scratch` |
| `model-NAME.h5`, `model-NAME-target.h5` | the same with `--method NAME` (`auto` makes a `stack`) |
| `evaluation.h5`, `evaluation.csv`, `plots/` | `costar evaluate` |
| `benchmark/` | `costar benchmark` ([benchmark.md](benchmark.md)) |
| `runs/` | the state of interrupted training runs |

`simulate`, `pretrain`, `finetune` and `evaluate` are build steps. With the same inputs, settings and version they say
`up to date` and exit 0. A file made from something else is never replaced silently: `--overwrite` replaces it; the
files that `whatif` is told to write are replaced with `--overwrite` alone. After an interruption the same
command continues, also with more `--epochs`; other settings exit 5 and list what differs, and `--fresh` starts over.
One process at a time writes in a workspace. `evaluate` scores all models, `whatif` and `search` ask
[one of them](concepts.md#which-model-answers). What `whatif --plan` reads is described under
[plan files](plans.md#plan-files).

## Output

Results go to stdout, everything else to stderr: what is read, notes, warnings, errors, what to do next. A progress bar
is drawn only where stderr is a terminal. `--quiet` leaves results, warnings and errors. `NO_COLOR` switches colour off.
Tables are never folded, so that `grep`, `cut` and `awk` work.

Where stderr is no terminal, work that takes long prints a line there at least every 30 seconds (not under `--quiet`).

Under `--json` stdout holds exactly one JSON document, also on failure, with these members:

| member | meaning |
|---|---|
| `schema` | `name`, `costar.` and the verb (`costar.simulate.tumor`) or `costar.error`, and `version` |
| `verb` | the verb, for example `simulate tumor` |
| `status` | `done`, `up_to_date`, `failed` or `interrupted` |
| `workspace` | the folder, or null |
| `inputs`, `outputs` | files by role: `path`, `kind`, `digest` |
| `config` | every setting of the verb by name: `value` and `origin` (flag, variable, file, preset or `default`) |
| `result` | what the verb found; null on failure, but what other cells found where some cells of a `benchmark` failed |
| `next` | commands to try next |
| `warnings` | what may make the result wrong |
| `diagnostics` | warnings and notes, each with `code`, `severity`, `subject`, `text`, `fix` ([codes](diagnostics.md)) |
| `error` | null, or `type`, `exit_code`, `problem`, `where`, `fix`, `details` |

The JSON Schema (draft 2020-12) of all documents, `result` included, ships in the package:

```sh
python -c 'from importlib.resources import files; print(files("costar_cli") / "schemas" / "documents.json")'
```

Versions 1.x add members and take none away.

## Gates

`costar evaluate --fail-if 'zero-shot.costar.average > 1.1'` does everything that `evaluate` does, and then exits with
code 10 if the condition holds; `--fail-if` may be repeated. A condition is `SET-UP.METHOD.NUMBER`, one of `<`, `<=`,
`>` and `>=`, and a value.

| part | what it can be |
|---|---|
| set-up | `zero-shot`, `few-shot`, `supervised` |
| method | the name that `--method` takes, or that of a model's file without `.h5`; `last-value` is always scored |
| number | `average` and `tau1`, `tau2`, ...: RMSE in the unit of the table, the mean over members |
|  | `ratio`: `average` divided by that of the simulator's own prediction, where it is known |
|  | `coverage50`, `coverage80`, `coverage90`, `coverage95`: the share of answers in the band, 0 to 1 |

A gate on a number that does not exist fails: no calibration, too few calibration subjects for the band (`cannot be
judged`), no known limit, nothing scored. Where several rows have the name, each is judged. A name that is both a
method's and a file's means the method. What a gate misspells is found before anything is scored. `--json` lists every
verdict in `result.gates` (`expression`, `setup`, `model`, `method`, `file`, `number`, `operator`, `bound`, `truth`,
`value`, `verdict`, `reason`), also when a gate failed.

## Predictions

`costar evaluate --predictions rows.parquet` (or `.csv`, `.jsonl`) writes every prediction that is scored, a row for
each model, query, scored step and outcome, so that other scores can be formed elsewhere: `dataset`, `setup`, `method`,
`model`, `queries` (the query set), `kind` (`counterfactual`, or `factual` where the truth was observed), the columns of
[a cohort's answers](cohorts.md), where `plan` has the treatments of all steps, then `truth` and `members_sd`, the
standard deviation between the members, and with `--ipcw` the `weight` of each squared error. Limits are at `--level`.
They are made when they are asked for, not kept with the evaluation, which holds scores alone. xarray makes a cube of
them, and a NetCDF file of that:

```python
rows = pandas.read_parquet("rows.parquet")
keys = ["setup", "model", "queries", "domain", "subject", "origin", "step", "outcome"]
xarray.Dataset.from_dataframe(rows.set_index(keys)[["estimate", "lower", "upper", "truth"]]).to_netcdf("rows.nc")
```

Where a query set asks about several plans from an origin, `plan` is one more key.
"""

SETTINGS = """\
## Settings

A flag wins over an environment variable, which wins over the TOML file given by `--config`, which wins over the preset,
which wins over the default. All problems of all sources are reported at once. A file looks like this:

```toml
preset = "quick"

[simulate.tumor]
gamma = 4.0

[pretrain]
epochs = 10

[pretrain.encoder]
width = 36

[runtime]
device = "cpu"
```

The variable of a setting is its name in capitals with underscores: `pretrain.encoder.width` is
`COSTAR_PRETRAIN_ENCODER_WIDTH`. `COSTAR_WORKSPACE`, `COSTAR_CONFIG`, `COSTAR_PRESET` and `COSTAR_DEBUG` stand for the
flags of those names. Without `--preset`, the preset is `default`.

`finetune --from scratch` takes the shape of its encoder from `[pretrain.encoder]`, unless a variable or file sets
anything of `[finetune.encoder]`: then all of it counts, and nothing of the other.
"""


def main() -> int:
    """Write the reference, or compare it."""
    texts = {TARGET: "\n".join(render()) + "\n"} | ({HELP: help_pages()} if draws_help_as_stored() else {})
    if "--check" not in sys.argv[1:]:
        for path, text in texts.items():
            path.write_text(text, "utf-8")
        return 0
    old = [path for path, text in texts.items() if not path.is_file() or path.read_text("utf-8") != text]
    for path in old:
        sys.stderr.write(f"{path} is not up to date: run `python docs/cli_reference.py`\n")
    return int(bool(old))


def draws_help_as_stored() -> bool:
    """Return whether help is drawn by the versions of constraints.txt: others may break lines elsewhere."""
    pinned = (TARGET.parents[1] / "constraints.txt").read_text("utf-8").splitlines()
    return all(f"{name}=={version(name)}" in pinned for name in ("rich", "typer"))


def help_pages() -> str:
    """Return the help of every command as a terminal of 80 columns shows it."""
    words = [[], ["simulate"], ["ingest"], *(path.split()[1:] for path, _ in commands())]
    code = f"from costar_cli.cli.app import main\nfor words in {words!r}: assert main([*words, '--help']) == 0"
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("COSTAR", "FORCE", "GITHUB"))}
    environment = {**plain, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8", "TERM": "dumb"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)  # noqa: S603
    return "\n".join(line.rstrip() for line in done.stdout.decode().splitlines()).strip("\n") + "\n"


def render() -> Iterator[str]:
    """Yield the lines of the reference."""
    yield INTRODUCTION
    yield from _exit_codes()
    yield "## Verbs\n"
    for path, command in commands():
        yield from _verb(path, command)
    yield SETTINGS
    yield from _settings()


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every verb with its parsed command, for example `costar simulate tumor`."""
    root = typer.main.get_command(app)
    context = typer.Context(root, info_name="costar")
    for name in root.list_commands(context):
        command = root.commands[name]
        if hasattr(command, "commands"):
            yield from ((f"costar {name} {inner}", leaf) for inner, leaf in command.commands.items())
        else:
            yield f"costar {name}", command


def _exit_codes() -> Iterator[str]:
    yield "## Exit codes\n"
    yield "| code | name | meaning |"
    yield "|---|---|---|"
    source = inspect.getsource(errors.ExitCode)
    for name, code, text in re.findall(r"^    ([A-Z]+) = (\d+)(?:  # (.*))?$", source, re.M):
        yield f"| {code} | {name.lower()} | {text or 'success'} |"
    yield ""


def _verb(path: str, command: Any) -> Iterator[str]:  # noqa: ANN401 - Typer's own class
    yield f"### `{path}`\n"
    yield inspect.cleandoc(command.help or "") + "\n"
    yield "\n".join(["```sh", *examples_of(path.partition(" ")[2]), "```\n"])
    context = typer.Context(command, info_name=path)
    yield "| option | takes | meaning |"
    yield "|---|---|---|"
    for parameter in command.params:
        if parameter.name != "help":
            yield _option(described(path.partition(" ")[2], parameter), context)
    yield ""


def _option(parameter: Any, context: typer.Context) -> str:  # noqa: ANN401 - Typer's own class
    is_option = parameter.param_type_name == "option"
    spelt = [*parameter.opts, *parameter.secondary_opts] if is_option else [parameter.name.upper()]
    names = ", ".join(f"`{name}`" for name in spelt)
    takes = "" if getattr(parameter, "is_flag", False) else parameter.display_type_rich(context).strip("<>")
    notes = []
    if parameter.required:
        notes.append("required")
    if parameter.default is not None and not getattr(parameter, "is_flag", False):
        notes.append(f"default `{parameter.default}`")
    if parameter.envvar:
        notes.append(f"variable `{parameter.envvar}`")
    text = parameter.help + (f" ({', '.join(notes)})" if notes else "")
    return f"| {names} | {_cell(takes)} | {_cell(text)} |"


def _settings() -> Iterator[str]:
    yield f"| setting | accepts | default | {' | '.join(f'`{name}`' for name in PRESETS)} | meaning |"
    yield "|---|---|---|" + "---|" * len(PRESETS) + "---|"
    for key in all_keys().values():
        presets = [_value(values.get(str(key))) for values in PRESETS.values()]
        yield f"| `{key}` | {key.expected} | {_value(_default(key))} | {' | '.join(presets)} | {_cell(_meaning(key))} |"


def _default(key: Key) -> object:
    return "nothing" if key.default is None else key.default


def _meaning(key: Key) -> str:
    return key.field.description or ""


def _value(value: object) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) and value > 9999 else str(value)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


if __name__ == "__main__":
    sys.exit(main())
