"""The registry: one list of methods, light to import, and what packages may add to it."""

import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import Field

from costar_cli.config.models import Config
from costar_cli.errors import UsageError
from costar_cli.methods.entry import Method
from costar_cli.methods.registry import LAST_VALUE, METHODS, REFERENCE
from costar_cli.settings.keys import all_keys, all_sections
from tests.plugin_world import install

PACKAGE = Path(__file__).resolve().parents[2] / "costar_cli"


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("methods.registry", ("torch", "numpy", "h5py", "pydantic")),
        ("settings.resolve", ("torch", "h5py")),
        *(
            (f"methods.{folder}.settings", ("torch", "h5py"))
            for folder in sorted(path.parent.name for path in (PACKAGE / "methods").glob("*/settings.py"))
        ),
    ],
)
def test_facts_and_settings_load_no_implementation(module: str, heavy: tuple[str, ...]) -> None:
    listed = "list(METHODS.items())" if module == "methods.registry" else ""
    code = f"import sys\nfrom costar_cli.methods.registry import METHODS\nimport costar_cli.{module}\n{listed}\n"
    assert run(f"{code}print([name for name in {heavy} if name in sys.modules])") == "[]"


@pytest.mark.parametrize("name", METHODS)
def test_every_entry_leads_to_its_implementation_and_settings(name: str) -> None:
    method = METHODS[name]
    assert callable(method.loaded.fit)
    assert callable(method.loaded.load)
    assert getattr(method.loaded, "name", name) == name
    settings = method.default_settings()
    assert method.settings_class is None or isinstance(settings, method.settings_class)
    assert all_sections().get(method.section) is method.settings_class


def test_the_order_of_tables_is_the_papers_with_anchors_first_and_the_reference_last() -> None:
    assert sorted(METHODS, key=METHODS.place) == [
        LAST_VALUE, "mean", "seasonal-naive", "ridge",
        "msm", "rmsn", "crn-erm", "crn", "ct-erm", "ct", "edct", "gnet", "mixed", "growth", "boosting", "gcomp",
        "igcnet", "sdrnet", "in-context", "causal-cpc", "chronos", "stack", REFERENCE,
    ]  # fmt: skip
    assert METHODS.place("edct") < METHODS.place("forest") < METHODS.place(REFERENCE)


def test_where_a_model_loses_the_growth_network_is_suggested_first_and_what_finds_no_effects_last() -> None:
    assert METHODS.suggested() == [
        "growth", "gnet", "crn-erm", "rmsn", "ct-erm", "msm", "crn", "ct", "edct", "mixed", "gcomp", "igcnet",
        "sdrnet", "ridge", "boosting",
    ]  # fmt: skip
    assert METHODS.suggested(binary=True)[-3:] == ["growth", "ridge", "boosting"]
    assert METHODS.adjusting(doses=False, binary=False) == ["growth", "msm", "mixed", "gcomp", "igcnet"]
    assert METHODS.adjusting(doses=True, binary=False) == ["growth", "msm", "mixed", "gcomp"]
    assert METHODS.adjusting(doses=False, binary=True) == ["msm", "mixed", "gcomp", "igcnet"]


def test_methods_are_listed_nowhere_else() -> None:
    names = "|".join(sorted(set(METHODS) - {REFERENCE, "ct", "mean"}))  # `ct` is an encoder, too, `mean` a statistic
    quoted = re.compile(rf"""["']({names})["']""")
    elsewhere = [path for path in PACKAGE.rglob("*.py") if not path.is_relative_to(PACKAGE / "methods")]
    assert [path for path in elsewhere if quoted.search(path.read_text("utf-8"))] == []


def test_import_contracts_keep_every_family_apart_from_the_others_and_from_what_they_share() -> None:
    """The contracts of `pyproject.toml`, which `make lint` checks, name every family."""
    families = {path.parent.name for path in (PACKAGE / "methods").glob("*/__init__.py")} - {"shared"}
    settings = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    contracts = {contract["name"]: contract for contract in settings["contracts"]}
    modules = {f"costar_cli.methods.{family}" for family in families}
    assert set(contracts["Families of methods do not know each other"]["modules"]) == modules
    assert set(contracts["What methods share knows none of them"]["forbidden_modules"]) == modules


def test_a_model_in_closed_form_depends_on_no_shared_setting_but_the_domain_unless_it_says_so() -> None:
    shared = {"domain": "source", "seed": 10, "members": 5, "epochs": 200}
    forest = Method(name="forest", label="Forest", estimator="forest:FOREST")
    assert forest.shared_settings(shared) == shared
    assert replace(forest, closed_form=True).shared_settings(shared) == {"domain": "source"}
    seeded = replace(forest, closed_form=True, reads=("domain", "seed"))
    assert seeded.shared_settings(shared) == {"domain": "source", "seed": 10}


def test_no_two_settings_have_one_variable() -> None:
    variables = [key.env for key in all_keys().values()]
    assert len(variables) == len(set(variables))


class Demanding(Config):
    trees: int


class Own(Config):
    trees: int = Field(3, ge=1)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": "Forest"}, "the name 'Forest' is not made of small letters, digits and `-`"),
        ({"name": "crn_erm"}, "the name 'crn_erm' is not made of small letters, digits and `-`"),
        ({"name": "pretrain"}, "settings `pretrain` are something else's"),
        ({"settings": dict}, "its settings are no subclass of `costar_cli.config.models.Config`"),
        ({"settings": Demanding}, "its setting `trees` has no default"),
        ({"settings": Own, "presets": {"quick": {"trees": 0}}}, "its preset `quick` is not valid: 1 validation error"),
        ({"settings": Own, "presets": {"paper": {"leaf.x": 1}}}, "its preset `paper` is not valid: 1 validation error"),
    ],
)
def test_an_entry_of_somebody_else_is_checked(changes: dict[str, object], problem: str) -> None:
    entry = Method(name="forest", label="Forest", estimator="forest:FOREST")
    assert list(entry.problems()) == []
    assert next(replace(entry, **changes).problems()).startswith(problem)


def test_an_implementation_that_cannot_be_imported_is_an_error_of_use() -> None:
    with pytest.raises(UsageError, match="the method forest cannot be loaded: No module named 'forest'"):
        _ = Method(name="forest", label="Forest", estimator="forest:FOREST").loaded


BAD = """
from costar_cli.config.models import Config
from costar_cli.methods import Method

class Own(Config):
    trees: int = 3

def entry(name, **facts):
    return Method(name=name, label=name, estimator="nowhere:IT", **facts)

A, RIDGE, RUNTIME, B = entry("a", settings="nowhere:Own"), entry("ridge"), entry("runtime"), entry("b", settings=Own)
"""


def test_what_cannot_be_used_is_warned_of_once_and_breaks_nothing(tmp_path: Path) -> None:
    entries = {"a": "bad:A", "b": "bad:B", "ridge": "bad:RIDGE", "runtime": "bad:RUNTIME", "x": "bad:MISSING"}
    install(tmp_path, "costar-bad", {"costar.methods": entries}, bad=BAD)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from costar_cli.methods.registry import METHODS\n"
        "from costar_cli.settings.resolve import resolve\n"
        "print(*METHODS, *resolve({}, environ={'COSTAR_B_TREES': '5'}).warnings, sep='\\n')\n"
        "print(resolve({}, environ={'COSTAR_B_TREES': '5'}).origins['b.trees'])"
    )
    *lines, origin = run(code).splitlines()
    assert lines[: len(METHODS) + 1] == [*METHODS, "b"]
    assert origin == "COSTAR_B_TREES"
    of = "of package costar-bad 1.0 is left out"
    assert lines[len(METHODS) + 1 :] == [
        f"method `a` {of}: ModuleNotFoundError: No module named 'nowhere'",
        f"method `ridge` {of}: the name is taken",
        f"method `runtime` {of}: settings `runtime` are something else's",
        f"method `x` {of}: AttributeError: module 'bad' has no attribute 'MISSING'",
    ]
