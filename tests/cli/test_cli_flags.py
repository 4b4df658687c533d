import re
import subprocess
import sys
from pathlib import Path

import typer
from cli_world import environment

from costar_cli.cli.app import app
from costar_cli.cli.options import EXPERT
from costar_cli.cli.verb import EXAMPLES, described
from costar_cli.data.base import OPTIONS_OF_VERBS
from costar_cli.data.registry import all_sources, sources
from costar_cli.methods.entry import RESERVED as SECTIONS
from costar_cli.methods.registry import METHODS
from costar_cli.settings.keys import all_keys, all_sections
from costar_cli.settings.resolve import RESERVED as VARIABLES

FLAGS = Path(__file__).with_name("flags.txt")


def all_flags() -> list[str]:
    """Every flag of every verb: `whatif --plan -p`."""
    root = typer.main.get_command(app)
    lines = []
    todo = [("costar", root)]
    while todo:
        path, command = todo.pop()
        todo += [(f"{path} {name}", inner) for name, inner in getattr(command, "commands", {}).items()]
        for parameter in command.params:
            is_option = parameter.param_type_name == "option"
            spelt = [*parameter.opts, *parameter.secondary_opts] if is_option else [parameter.name.upper()]
            lines.append(f"{path} {' '.join(spelt)}")
    return sorted(lines)


def test_a_new_flag_is_a_decision() -> None:
    """Update flags.txt, docs/cli.md and CHANGELOG.md in the same change as a flag."""
    assert FLAGS.read_text().splitlines() == all_flags()


def test_every_flag_is_in_a_page_or_an_example_or_among_expert_settings(repository: Path) -> None:
    """docs/cli.md, which lists all of them, does not count."""
    pages = [page for page in repository.glob("docs/**/*.md") if page.name != "cli.md" and "adr" not in page.parts]
    files = [
        repository / "README.md",
        *pages,
        *repository.glob("examples/**/*.sh"),
        *repository.glob("examples/**/*.py"),
    ]
    text = "".join(file.read_text() for file in files) + str(EXAMPLES)
    todo, silent = [("costar", typer.main.get_command(app))], []
    while todo:
        path, command = todo.pop()
        todo += [(f"{path} {name}", inner) for name, inner in getattr(command, "commands", {}).items()]
        for parameter in command.params:
            flags = [flag for flag in (*parameter.opts, *parameter.secondary_opts) if flag.startswith("--")]
            shown = any(re.search(rf"{re.escape(flag)}(?![\w-])", text) for flag in flags)
            if flags and not shown and getattr(parameter, "rich_help_panel", None) != EXPERT:
                silent.append(f"{path} {flags[0]}")
    assert silent == []


def test_names_that_mean_something_already_are_reserved() -> None:
    """Lower layers list by hand what installed packages may not call their methods, data sets and settings."""
    todo, variables = [typer.main.get_command(app)], set()
    while todo:
        command = todo.pop()
        todo += getattr(command, "commands", {}).values()
        variables |= {str(parameter.envvar) for parameter in command.params if parameter.envvar}
    assert variables == set(VARIABLES)
    own = {method.section for method in METHODS.values()}
    sections = {section.partition(".")[0] for section in all_sections() if section not in own}
    assert sections | {variable.removeprefix("COSTAR_").lower() for variable in variables} == SECTIONS
    simulate = typer.main.get_command(app).commands["simulate"]  # type: ignore[attr-defined]
    options = {parameter.name for parameter in simulate.commands["linear"].params}
    settings = {*sources()["linear"].settings.model_fields}
    assert (options - settings) | {"ctx", "help"} == OPTIONS_OF_VERBS


def test_the_reference_is_up_to_date(repository: Path) -> None:
    command = [sys.executable, repository / "docs" / "cli_reference.py", "--check"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_flag_has_help_and_no_two_verbs_disagree_on_what_a_shared_flag_means() -> None:
    """A data set's own settings mean what their descriptions say: of patients or items, days or weeks."""
    root = typer.main.get_command(app)
    settings = {
        (f"{source.verb} {source.name}", name): field.description
        for source in all_sources()
        for name, field in source.settings.model_fields.items()
        if name not in {"horizon", "seed"}
    }
    meanings: dict[str, set[str]] = {}
    todo = [("", root)]
    while todo:
        path, command = todo.pop()
        todo += [(f"{path} {name}".strip(), inner) for name, inner in getattr(command, "commands", {}).items()]
        for parameter in command.params:
            text = described(path, parameter).help
            assert text, parameter.name
            if (path, parameter.name) in settings:
                assert text == settings.pop((path, parameter.name))
            else:
                meanings.setdefault(parameter.opts[0], set()).add(text)
    assert not settings, "each setting of a data set is a flag"
    # Of the bootstrap, of the ensemble's spread; to look into, to verify; of encoders, of models that may follow one;
    # of answers, of a data set also on stdout.
    own = {"--level", "file", "--members", "--report"}
    own |= {"--show"}  # each verb has its own topics
    own |= {"--protocol"}  # of a target trial, of a published experiment
    own |= {"--subject", "--origin", "--reference", "--unsupported", "--out", "--model", "--by"}  # of searches
    assert {name for name, texts in meanings.items() if len(texts) > 1} <= own | {
        "--csv",
        "--export",
        "--queries",
        "--seed",
    }


def test_the_help_of_a_flag_that_sets_a_setting_is_the_settings_description() -> None:
    root = typer.main.get_command(app)
    for verb, section in (("pretrain", "pretrain"), ("finetune", "finetune"), ("evaluate", "evaluate")):
        for parameter in root.commands[verb].params:  # type: ignore[attr-defined]
            key = all_keys().get(f"{section}.{parameter.name}") or all_keys().get(f"runtime.{parameter.name}")
            if key is not None and parameter.name != "seed":  # what it promises is the same for every verb
                assert parameter.help is None, f"`{verb} {parameter.opts[0]}` has a text of its own"
                assert described(verb, parameter).help == key.field.description
