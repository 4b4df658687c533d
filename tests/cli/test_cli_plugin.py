"""An installed package adds a data set and a method: the verbs take both as costar's own."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import ANY

import pytest
from cli_world import REPOSITORY, Run, environment

from costar_cli.files import read_header
from tests.plugin_world import install

# One process for several lines: each alone would spend most of its time on importing torch.
SEVERAL = """
import contextlib, io, json, sys
from costar_cli.cli.app import main

runs = []
for words in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        runs.append((main(words), out.getvalue(), err.getvalue()))
json.dump(runs, sys.stdout)
"""
Costar = Callable[..., list[Run]]


def runner(place: Path, folder: Path) -> Costar:
    """Return what runs lines of `costar` in a folder, with the packages of a place installed."""

    def costar(*lines: str, **variables: str) -> list[Run]:
        env = environment(PYTHONPATH=str(place), COLUMNS="160", **variables)
        words = json.dumps([line.split() for line in lines])
        command = [sys.executable, "-c", SEVERAL]
        done = subprocess.run(command, input=words, cwd=folder, env=env, capture_output=True, text=True, check=True)
        return [Run(*run) for run in json.loads(done.stdout)]

    return costar


def test_the_example_package_goes_through_the_verbs(tmp_path: Path) -> None:
    source, place = tmp_path / "source", tmp_path / "place"
    shutil.copytree(REPOSITORY / "examples" / "plugin", source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    pip += ["--no-build-isolation", "--no-index", "--target", str(place), str(source)]
    subprocess.run(pip, check=True, capture_output=True, text=True, cwd=tmp_path)
    runs = runner(place, tmp_path)(
        "simulate garden --gamma 2 --preset quick --json",
        "finetune --method carry-over --json",
        "evaluate --no-plots --json",
        "whatif --subject 110 --plan source/plan-garden.json --origin 6 --truth --json",
        "benchmark garden --methods carry-over --list --json",
        "simulate garden --help",
        "simulate",
        COSTAR_SIMULATE_GARDEN_DAYS="12",
        COSTAR_CARRY_OVER_PENALTY="0.01",
    )
    assert [run.code for run in runs] == [0, 0, 0, 0, 0, 0, 2], [run.err for run in runs]
    made, _, scored, asked, listed, described, unnamed = runs
    assert made.document["result"]["name"] == "garden"
    config = made.document["config"]
    assert config["simulate.garden.gamma"] == {"value": 2.0, "origin": "--gamma"}
    assert config["simulate.garden.beds"] == {"value": 50, "origin": "preset quick"}
    assert config["simulate.garden.days"] == {"value": 12, "origin": "COSTAR_SIMULATE_GARDEN_DAYS"}
    (model,) = (tmp_path / "costar-workspace").glob("model*.h5")
    assert read_header(model).meta["settings"] == {"penalty": 0.01}
    error = {(row["setup"], row["basis"]): row["mean"]["average"] for row in scored.document["result"]["rows"]}
    assert error["zero-shot", "ours"] < 0.6 * error["zero-shot", "naive"]
    rows = {(row["plan"], row["step"]): row for row in asked.document["result"]["estimates"]}
    assert rows["watered", 1]["truth"] - rows["dry", 1]["truth"] == pytest.approx(10, abs=1e-4)
    assert rows["watered", 1]["estimate"] - rows["dry", 1]["estimate"] == pytest.approx(10, abs=1.5)
    assert "carry-over" in json.dumps(listed.document["result"])
    assert "Share of the moisture that is left after a day" in described.out
    assert "[default: 200; quick 50]" in described.out
    assert re.search("garden +Simulate garden beds", unnamed.err)


BAD = """
from costar_cli.config.models import Config
from costar_cli.data.base import DataSource

class Settings(Config):
    seed: int = 0

class Clashing(Settings):
    out: int = 0

class Demanding(Settings):
    path: str

def entry(name, settings=Settings, **facts):
    return DataSource(name=name, label=name, summary="Simulate.", settings=settings, make=print, **facts)

TUMOR, CLASHING, SEEDLESS = entry("tumor"), entry("clashing", Clashing), entry("seedless", Config)
DEMANDING, HASTY = entry("demanding", Demanding), entry("hasty", presets={"default": {"seed": "1"}})
IMPOSTOR, WRONG, SOUND = entry("impostor", dataset="mimic"), 3, entry("sound")
"""


def test_what_cannot_be_used_costs_one_warning_and_breaks_nothing(tmp_path: Path) -> None:
    names = ("tumor", "clashing", "seedless", "demanding", "hasty", "impostor", "wrong", "sound")
    entries = {name: f"bad_data:{name.upper()}" for name in names} | {"absent": "nowhere:IT"}
    install(tmp_path / "place", "costar-bad", {"costar.datasets": entries}, bad_data=BAD)
    costar = runner(tmp_path / "place", tmp_path)
    run, clashing, unnamed = costar("simulate tumor --preset quick --json", "simulate clashing --json", "simulate")
    assert run.code == 0, run.err
    warned = [warning for warning in run.document["warnings"] if "costar-bad 1.0" in warning]
    assert [warning.partition(" of package costar-bad 1.0 is left out: ")[::2] for warning in warned] == [
        ("data set `absent`", "ModuleNotFoundError: No module named 'nowhere'"),
        ("data set `clashing`", "its setting `out` is called like an option of every verb"),
        ("data set `demanding`", "its setting `path` has no default"),
        ("data set `hasty`", ANY),
        ("data set `impostor`", "its files would be called `mimic`, which is a data set of costar's own"),
        ("data set `seedless`", "its settings have no `seed`, which says what is drawn"),
        ("data set `tumor`", "the name is taken"),
        ("data set `wrong`", "`bad_data:WRONG` is of class int, not DataSource"),
    ]
    assert "its preset `default` is not valid: 1 validation error" in warned[3]
    refused = clashing.document["error"]
    assert (refused["exit_code"], refused["problem"]) == (2, warned[1])
    assert "sound" in unnamed.err
