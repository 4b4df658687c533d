"""The wheel: it builds, holds what it must, and works where only it and its dependencies are installed."""

import email
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import costar_cli
from docs import dist

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("costar_cli", "simulators")


def run(*command: object, **options: object) -> str:
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, **options).stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    files = run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).splitlines()
    for name in [f for f in files if f.startswith(("costar_cli/", "simulators/", "pyproject", "README", "LICENSE"))]:
        if (ROOT / name).is_file():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out, source)
    (built,) = out.glob("*.whl")
    return built


def beside_the_code() -> set[Path]:
    """The files of the packages that are no modules: setuptools packs those that it is told of."""
    every = {path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()}
    return {path for path in every if path.suffix not in {".py", ".pyc"}}


def test_every_file_beside_the_code_is_package_data() -> None:
    packed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["package-data"]
    found = {path for package in PACKAGES for glob in packed[package] for path in (ROOT / package).glob(glob)}
    assert ROOT / "costar_cli" / "methods" / "in_context" / "weights.npz" in beside_the_code()
    assert beside_the_code() - found == set()


@pytest.mark.slow
def test_wheel_holds_packages_types_and_published_tables_but_no_tests(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"costar_cli", "simulators"}
    for expected in (
        "costar_cli/py.typed",
        "simulators/py.typed",
        "costar_cli/evaluation/published/zero_shot.csv",
        "costar_cli/schemas/documents.json",
    ):
        assert expected in names
    assert len([name for name in names if name.endswith(".csv")]) == 4
    assert {path.relative_to(ROOT).as_posix() for path in beside_the_code()} <= set(names)
    presets = {name for name in names if name.startswith("costar_cli/settings/presets/") and name.endswith(".toml")}
    assert presets == {path.relative_to(ROOT).as_posix() for path in ROOT.glob("costar_cli/settings/presets/*.toml")}


@pytest.mark.slow
def test_two_builds_are_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whatever the folder and the times of the files."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    built = []
    for name, mtime in (("one", 1_600_000_000), ("two", 1_650_000_000)):
        source = tmp_path / name / "source"
        for part in ("costar_cli", "simulators"):
            shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / part, source / part)
            os.utime(source / part, (mtime, mtime))
        built.append({path.name: path.read_bytes() for path in dist.build(tmp_path / name / "dist", source)})
    assert sorted(name.rpartition(".")[2] for name in built[0]) == ["gz", "whl"]
    assert built[0] == built[1]


def test_every_extra_for_users_is_in_all_and_recipes_have_the_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    named = extras["all"][0].removeprefix("costar[").rstrip("]").split(",")
    useless_alone = {"chronos"}  # it needs weights, too
    assert sorted(named) == sorted(set(extras) - {"all", "docs", "test"} - useless_alone)
    recipe = (ROOT / "examples" / "packaging" / "meta.yaml").read_text("utf-8")
    other = {"torch": "pytorch", "matplotlib": "matplotlib-base"}  # as conda calls them
    for requirement in project["dependencies"]:
        name, _, lowest = requirement.partition(">=")
        assert f"- {other.get(name, name)} >={lowest}\n" in recipe
    assert f'version = "{project["version"]}"' in recipe


@pytest.mark.slow
def test_wheel_carries_its_licence_and_says_who_made_it(wheel: Path):
    archive = zipfile.ZipFile(wheel)
    (licence,) = (name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE"))
    assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    facts = email.message_from_bytes(archive.read(metadata))
    assert (facts["License-Expression"], facts["License-File"]) == ("Apache-2.0", "LICENSE")
    assert facts["Author"] == "costar developers"
    assert "Typing :: Typed" in facts.get_all("Classifier")


def test_the_citation_names_the_licence_and_the_version_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = (ROOT / "CITATION.cff").read_text("utf-8").splitlines()
    assert f"version: {project['version']}" in lines
    assert f"license: {project['license']}" in lines


def test_the_metadata_names_systems_and_versions_of_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    classifiers = project["classifiers"]
    systems = [name for name in classifiers if name.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]  # where the tests ran
    lowest = project["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {lowest}" in classifiers
    assert project["authors"] == [{"name": "costar developers"}]
    assert (ROOT / "costar_cli" / "py.typed").is_file()
    assert "Typing :: Typed" in classifiers


def test_the_changelog_has_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"\n## [{version}] - 2" in text
    assert costar_cli.__version__ == version
    for part in text.split("\n### ")[1:]:
        lines = [line for line in part.splitlines()[1:] if line.startswith("- ")]
        breaking = [line.startswith("- Breaking:") for line in lines]
        assert breaking == sorted(breaking, reverse=True), part[:20]


@pytest.mark.slow
def test_wheel_works_in_a_clean_environment(wheel: Path, tmp_path: Path):
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python, costar = (tmp_path / "venv" / "bin" / name for name in ("python", "costar"))
    run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
    assert "costar" in run(costar, "--version", cwd=tmp_path)
    sizes = ["--train", 8, "--val", 4, "--test", 3, "--target-train", 3, "--target-val", 3, "--target-test", 3]
    run(costar, "simulate", "tumor", *sizes, "--steps", 12, cwd=tmp_path)
    run(costar, "finetune", "--from", "scratch", "--epochs", 1, "--members", 1, cwd=tmp_path)
    assert "Last value carried forward" in run(python, "-m", "costar_cli", "evaluate", "--no-plots", cwd=tmp_path)
