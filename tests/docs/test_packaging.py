"""The files of examples/packaging agree with the project: what is copied, pinned, required and called exists."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.cli_world import REPOSITORY
from tests.docs.test_pages_hold import flags

PACKAGING = REPOSITORY / "examples" / "packaging"
DOCKERFILE = (PACKAGING / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
RECIPE = (PACKAGING / "meta.yaml").read_text("utf-8")
WORKFLOW = (PACKAGING / "github-actions.yml").read_text("utf-8")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
CALLED = {"matplotlib-base": "matplotlib", "pytorch": "torch"}  # packages by conda's name


def steps(instruction: str) -> list[str]:
    return re.findall(rf"^{instruction} (.+)$", DOCKERFILE, re.MULTILINE)


def copied() -> list[str]:
    """What the first stage copies out of the repository."""
    return [name for line in steps("COPY") if "--from" not in line for name in line.split()[:-1]]


def test_the_image_copies_what_its_steps_read_and_starts_the_command() -> None:
    assert {"pyproject.toml", "constraints.txt", "costar_cli", "simulators"} <= set(copied())
    assert [name for name in copied() if not (REPOSITORY / name).exists()] == []
    pins = (REPOSITORY / "constraints.txt").read_text("utf-8")
    [pattern] = re.findall(r"grep '([^']+)' constraints\.txt", DOCKERFILE)
    assert len(re.findall(pattern, pins, re.MULTILINE)) == 1
    [extra] = re.findall(r"'\.\[(\w+)\]'", DOCKERFILE)
    assert extra in PROJECT["optional-dependencies"]
    [entry] = steps("ENTRYPOINT")
    assert entry == f'["{next(iter(PROJECT["scripts"]))}"]'


def test_the_recipe_requires_what_the_project_does() -> None:
    listed = re.findall(r"^    - ([\w-]+) (>=\S+)$", RECIPE.partition("  run:\n")[2], re.MULTILINE)
    assert {CALLED.get(name, name) + least for name, least in listed} == {
        f"python{PROJECT['requires-python']}", *PROJECT["dependencies"],
    }  # fmt: skip
    assert f'version = "{PROJECT["version"]}"' in RECIPE
    assert f"costar = {PROJECT['scripts']['costar']}" in RECIPE


def test_the_workflow_calls_verbs_and_flags_that_exist() -> None:
    known = flags()
    lines = re.findall(r"run: (costar .+)$", WORKFLOW, re.MULTILINE)
    assert len(lines) == 4
    for line in lines:
        words = line.split()[1:]
        verb = next(verb for verb in (" ".join(words[:2]), words[0]) if verb in known)
        assert set(re.findall(r"--[\w-]+", line)) <= known[verb], line
    assert re.findall(r"^(\w+):", WORKFLOW, re.MULTILINE) == ["name", "on", "jobs"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_steps_of_the_image_install_a_costar_that_runs(tmp_path: Path) -> None:
    """The steps run as they stand, from the copied files alone, but with the packages of this machine's own index."""
    for name in copied():
        source = REPOSITORY / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / name)
    install = steps("RUN")[0].replace("/opt/costar", str(tmp_path / "venv"))
    install = re.sub(r"--index-url \S+", "", install).replace("python -m venv", f"{sys.executable} -m venv")
    subprocess.run(["bash", "-ec", install], cwd=tmp_path, check=True)
    costar = tmp_path / "venv" / "bin" / "costar"
    shown = subprocess.run([costar, "--version"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert PROJECT["version"] in shown.stdout
