"""Seven lines that ask for effects, on tumours, ICU data, a table with deaths, and one in the form of gfoRmula's."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from cli_world import REPOSITORY, Run
from scipy.special import expit

from costar_cli.cli.app import main
from costar_cli.data import Part
from costar_cli.data.store import read_dataset

Call = Callable[..., Run]

ESTIMATORS = ("tmle", "sdr", "gformula", "ipw")
STEPS = 2
TUMOUR = (
    "--train 200 --val 40 --test 40 --target-train 8 --target-val 6 --target-test 5 --steps 12 --horizon 3 --seed 1"
)
ICU = "--stays 450 --hours 20 --horizon 3 --plans-per-origin 1 --seed 2"
WARD = """
name = "{name}"
horizon = 3

[columns]
{columns}

[time]
step = 1
{stop}
"""
FORM = {
    "id": "subject",
    "t0": "time",
    "L1": "covariate",
    "L2": "outcome",
    "L3": "static",
    "A": "treatment",
    "Y": "event",
}


@dataclass(frozen=True)
class World:
    """A data set and how it is asked.

    Attributes:
        outcome: that plans are compared by.
        treatment: that one plan gives at each step, and the other never.
        when: eligibility.
        by: groups.
        event: what ends series, where something does.
        steps: of plans; of three treatments in the ICU few keep to one for long.
        slow: whether g-computation takes long; it then has ridge regressions alone, and two folds.
    """

    outcome: str
    treatment: str
    when: str
    by: str
    event: str | None = None
    steps: int = STEPS
    slow: bool = False

    def plans(self) -> dict[str, object]:
        return {
            "never": {"repeat": {}, "times": self.steps},
            "always": {"repeat": {self.treatment: 1}, "times": self.steps},
        }


WORLDS = {
    "tumour": World("tumour_volume", "chemotherapy", "tumour_volume >= 2 and chemotherapy == 0", "patient_type"),
    "icu": World("y1", "t1", "y1 >= -1 and t1 == 0 and step <= 4", "age:2", steps=1, slow=True),
    "deaths": World("marker", "drug", "marker >= 5.5 and drug == 0", "age:3", "death"),
    "gformula": World("L2", "A", "L2 >= -0.5 and A == 0", "L3:2", "Y"),
}


def course(n: int, seed: int, given: int | None = None) -> pl.DataFrame:
    """Subjects in the columns of gfoRmula's public tables: row t has L, then A; Y says whether death came by t + 1."""
    rng, rows = np.random.default_rng(seed), list[pl.DataFrame]()
    l3_N, l2_N, a_N, alive_N = rng.integers(5, 11, n), rng.normal(size=n), np.zeros(n), np.ones(n, dtype=bool)
    for t in range(6):
        l1_N = (rng.random(n) < expit(-0.5 + 0.5 * l2_N - 0.5 * a_N)).astype(int)
        l2_N = 0.6 * l2_N + 0.3 * l1_N - 0.4 * a_N + 0.5 * rng.normal(size=n)
        chance_N = rng.random(n)
        a_N = (chance_N < expit(0.2 + 0.5 * l1_N + 0.6 * l2_N)) * 1.0 if given is None else np.full(n, float(given))
        y_N = rng.random(n) < expit(-2.2 + 1.2 * l2_N + 0.1 * (l3_N - 7) - 0.8 * a_N)
        here = {"id": np.arange(n), "t0": t, "L1": l1_N, "L2": l2_N, "L3": l3_N, "A": a_N.astype(int), "Y": y_N * 1}
        rows.append(pl.DataFrame(here).filter(alive_N))
        alive_N &= ~y_N
    return pl.concat([part.cast({"t0": pl.Int64}) for part in rows]).sort("id", "t0")


def make(name: str, folder: Path) -> None:
    """Make a data set in `w`, by commands alone."""
    place = ["--workspace", str(folder / "w"), "--quiet"]
    if name in ("tumour", "icu"):
        words = {"tumour": ("tumor", TUMOUR), "icu": ("mimic", ICU)}[name]
        assert main(["simulate", words[0], *words[1].split(), *place]) == 0
        return
    table, schema = folder / "t.csv", folder / "s.toml"
    if name == "gformula":
        course(700, 1).with_columns(t1=pl.col("t0") + 1).write_csv(table)
        columns = "\n".join(f'{column} = {{ role = "{role}" }}' for column, role in FORM.items())
        schema.write_text(WARD.format(name="ward", columns=columns, stop='stop = "t1"'), "utf-8")
    else:
        example = REPOSITORY / "examples" / "own-data"
        rows = subprocess.check_output([sys.executable, example / "make_deaths_csv.py"], text=True).splitlines()
        table.write_text("\n".join(row for row in rows if row < "P400" or row.startswith("patient")), "utf-8")
        schema = example / "deaths.toml"
    assert main(["ingest", "table", str(table), "--schema", str(schema), *place]) == 0


@pytest.fixture(scope="module", params=WORLDS)
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Path]:
    """A world, and the folder with its data set, its plans and g-computation fitted to it."""
    world, folder = WORLDS[request.param], tmp_path_factory.mktemp(request.param)
    make(request.param, folder)
    (folder / "plans.json").write_text(json.dumps({"origin": 1, "plans": world.plans()}), "utf-8")
    fast = folder / "fast.toml"
    fast.write_text('[gcomp]\nlearner = "ridge"\nlags = 1\nfolds = 2\n', "utf-8")  # ICU data have 27 equations
    line = ["finetune", "--method", "gcomp", *(["--config", str(fast)] if world.slow else [])]
    assert main([*line, "--workspace", str(folder / "w"), "--quiet"]) == 0
    return world, folder


@pytest.fixture
def ask(asked: tuple[World, Path], call: Call, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Run a line in the folder of a world, as it is typed there."""
    monkeypatch.chdir(asked[1])
    return lambda line, *more: call(*line.split(), *more, "--plan", "plans.json", "-w", "w")


def last(run: Run, rows: str) -> list[dict[str, Any]]:
    """Return the rows of a document about the last step of plans."""
    assert run.code == 0, run.err
    result = run.document["result"][rows]
    return [row for row in result if row["step"] == max(row["step"] for row in result)]


def test_the_default_has_means_and_a_difference_of_each_plan(
    asked: tuple[World, Path], ask: Callable[..., Run]
) -> None:
    world = asked[0]
    rows = [row for row in last(ask("effect --subjects all --json"), "effects") if row["outcome"] == world.outcome]
    assert {row["estimator"] for row in rows} == {"sdr"}
    assert [(row["quantity"], row["plan"]) for row in rows] == [
        *(("mean", plan) for plan in world.plans()), ("difference", list(world.plans())[1]),
    ]  # fmt: skip
    assert all(np.isfinite(row["estimate"]) for row in rows)


def test_each_estimator_answers_alone_and_beside_the_others(asked: tuple[World, Path], ask: Callable[..., Run]) -> None:
    line = f"effect --subjects all --outcome {asked[0].outcome} --json --estimator"
    together = last(ask(line, "all"), "effects")
    assert {row["estimator"] for row in together} == set(ESTIMATORS)
    for estimator in ESTIMATORS:
        alone = last(ask(line, estimator), "effects")
        assert [row["estimate"] for row in alone] == pytest.approx(
            [row["estimate"] for row in together if row["estimator"] == estimator], rel=1e-9
        )


def test_trials_start_where_a_subject_is_eligible(asked: tuple[World, Path], ask: Callable[..., Run]) -> None:
    world, folder = asked
    flow = ask("effect --json --when", world.when, "--outcome", world.outcome).document["result"]["flow"]
    subjects = sum(panel.n_subjects for panel in read_dataset(folder / "w" / "data.h5").panels.values())
    assert 50 <= flow["units"] <= flow["subjects"] == subjects
    assert flow["units"] < flow["trials"] <= flow["eligible"] < flow["rows"]


def test_risks_of_death_by_group_or_that_nothing_ends_series(
    asked: tuple[World, Path], ask: Callable[..., Run]
) -> None:
    world, _ = asked
    run = ask(f"effect --outcome {world.event or 'death'} --measure risk,risk-ratio,rmst --by {world.by} --json")
    if world.event is None:
        assert run.code == 2
        error = run.document["error"]
        assert error["problem"] == "risk and risk-ratio and rmst are of events, and no series ends with one"
        assert "ingest a table whose series end with events" in error["fix"]
        return
    rows = last(run, "effects")
    assert {row["quantity"] for row in rows} == {"risk", "risk ratio", "rmst", "rmst difference"}
    assert len({row["group"] for row in rows}) == 1 + int(world.by[-1])


def test_averages_by_a_model_name_their_estimator(asked: tuple[World, Path], ask: Callable[..., Run]) -> None:
    rows = last(ask("whatif --subjects all --average --json"), "averages")
    assert {row["plan"] for row in rows} == set(asked[0].plans())
    assert {row["estimator"] for row in rows} <= {"model", "tmle"}
    assert all(np.isfinite(row["estimate"]) for row in rows)


def test_step_by_step_g_computation_answers_for_a_subject(asked: tuple[World, Path], ask: Callable[..., Run]) -> None:
    folder = asked[1]
    panel = read_dataset(folder / "w" / "data.h5").panels[Part("source", "test")]
    subject = panel.names[int((panel.length > 2).argmax())]
    run = ask("whatif --model gcomp --json --subject", subject)
    rows = [row for row in last(run, "differences") if row["estimate"] is not None]
    assert rows
    assert all(row["estimate"] != 0 for row in rows)
    [model] = run.document["result"]["models"].values()
    assert (model["method"], model["trained_on_subject"]) == ("gcomp", False)


def test_effects_of_a_table_in_the_form_of_gformula_are_the_true_ones(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make("gformula", tmp_path)
    Path("plans.json").write_text(json.dumps({"plans": WORLDS["gformula"].plans()}), "utf-8")
    run = call("effect", "--plan", "plans.json", "-w", "w", "--outcome", "Y", "-e", "sdr", "-e", "gformula", "--json")
    rows = last(run, "effects")
    for plan, given in (("never", 0), ("always", 1)):
        everybody = course(100_000, 9, given)
        truth = everybody.filter((pl.col("Y") == 1) & (pl.col("t0") < STEPS)).height / 100_000
        for row in (row for row in rows if (row["quantity"], row["plan"]) == ("risk", plan)):
            assert abs(row["estimate"] - truth) < 3 * row["se"] < 0.15
