"""Protocols of published experiments, and randomised twins of cohorts."""

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from cli_world import Run

from costar_cli.cli.benchmarking.sweep import with_twin
from costar_cli.config.choices import ExperimentName
from costar_cli.data import Part
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.reporting import NullReporter
from costar_cli.settings.protocols import protocols, read_protocol
from costar_cli.settings.resolve import resolve
from simulators.tumor import treatment_probability

Call = Callable[..., Run]

TINY = """
[simulate.tumor]
train = 24
val = 8
test = 4
target_train = 8
target_val = 6
target_test = 4
[evaluate]
bootstrap = 0
[benchmark]
data_seeds = "1"
[runtime]
threads = 1
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def test_each_protocol_is_valid_and_says_where_its_constants_are_from() -> None:
    for one in protocols():
        settings = resolve({}, dataset=one.dataset, protocol=one.name)
        assert all(settings.origins[key] == f"protocol {one.name}" for key in one.values)
        assert "arXiv:" in one.citation
        assert one.confirmed
        assert one.differs


def test_a_protocol_overrules_the_preset_and_a_file_overrules_both(tiny: Path) -> None:
    sizes = [
        resolve({}, preset="quick", file=file, dataset="tumor", protocol="hess2024")[TumorConfig]
        for file in (None, tiny)
    ]
    assert [(of.train, of.steps, of.plans) for of in sizes] == [(1_000, 30, "fixed"), (24, 30, "fixed")]


def test_the_list_names_every_protocol_with_its_source(call: Call) -> None:
    run = call("benchmark", "tumor", "--protocols")
    assert run.code == 0, run.err
    for one in protocols():
        assert f"{one.name}: {one.title}" in run.out
    assert call("benchmark", "linear", "--protocol", "ct2022").code == 2


def test_a_protocol_with_several_supports_is_a_grid(call: Call) -> None:
    methods = ["--methods", "ridge", "--data-seeds", "1"]
    cells = call("benchmark", "tumor", "--protocol", "clpfn2026", "--list", *methods, "--json").document["result"][
        "cells"
    ]
    sources = [cell["cell"] for cell in cells if "source" in cell["cell"]]
    protocol = read_protocol("clpfn2026")
    assert protocol.gamma is not None
    strengths = protocol.gamma.split(",")
    parts = [name.split("/")[:2] for name in sources if "ridge" in name]
    assert parts == [[f"support-{n}", f"gamma-{g}"] for n in protocol.support for g in strengths]


@pytest.mark.parametrize("name", get_args(ExperimentName))
def test_each_protocol_runs(name: ExperimentName, tiny: Path, tmp_path: Path, call: Call) -> None:
    gamma = [] if name == "costar2023" else ["--gamma", "3"]
    words = ["--methods", "ridge,last-value", "-c", tiny, "--folder", tmp_path / name, "--no-plots", *gamma]
    run = call("benchmark", "tumor", "--protocol", name, *words, "--json")
    assert run.code == 0, run.err
    result = run.document["result"]
    tables = result["tables"] if name == "costar2023" else result["benchmarks"][0]["tables"]
    wanted = {"supervised"} if gamma else {"zero-shot", "few-shot", "supervised"}
    assert {table["setup"] for table in tables} == wanted
    ridge = next(row for row in tables[0]["rows"] if row["name"] == "ridge")
    assert ridge["effects"]["pehe"] > 0
    assert len(ridge["mean"]["steps"]) == (2 if name == "hess2024" else 6)


def test_a_grid_is_written_as_one_table(
    tiny: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.write_text(tiny.read_text().replace("train = 24\n", "", 1))
    small = replace(read_protocol("clpfn2026"), support=(20, 30))
    monkeypatch.setattr("costar_cli.settings.protocols.read_protocol", lambda _: small)
    words = ["--methods", "ridge", "-c", tiny, "--folder", tmp_path / "g", "--no-plots", "--gamma", "2", "--json"]
    run = call("benchmark", "tumor", "--protocol", "clpfn2026", *words)
    assert run.code == 0, run.err
    assert run.document["result"]["values"] == [20, 30]
    assert {row["support"] for row in rows_of(tmp_path / "g" / "grid.csv")} == {"20", "30"}


SIZES = {"train": 40, "val": 5, "test": 30}
PAIRS = [(Part("source", split), Part("target", split)) for split in ("train", "val", "test")]


@pytest.fixture(scope="module")
def twins():
    return simulate_tumor(TumorConfig(gamma=8, steps=40, twin=True, **SIZES), NullReporter())


def test_a_twin_has_the_same_patients_and_noise(twins) -> None:
    for own, twin in PAIRS:
        assert twins.panels[own].n_subjects == twins.panels[twin].n_subjects
        assert twins.truth[own].keys() == twins.truth[twin].keys()
        for name, values in twins.truth[own].items():
            np.testing.assert_array_equal(values, twins.truth[twin][name], err_msg=name)
        np.testing.assert_array_equal(twins.panels[own].statics, twins.panels[twin].statics)
        np.testing.assert_array_equal(twins.panels[own].outcomes[:, 0], twins.panels[twin].outcomes[:, 0])


def test_treatment_of_a_twin_does_not_depend_on_the_history_and_that_of_the_source_does() -> None:
    sizes = {**SIZES, "train": 1_500}
    data = simulate_tumor(TumorConfig(gamma=8, steps=25, twin=True, **sizes), NullReporter())
    found = {}
    for part in PAIRS[0]:
        panel = data.panels[part]
        decided = np.arange(panel.n_steps) < panel.length[:, None] - 1
        given = data.schema.treatments.decode(panel.treatments)[..., 0] > 0
        large = panel.outcomes[..., 0] > np.median(panel.outcomes[..., 0][decided])
        found[part.domain] = [given[decided & (large == size)].mean() for size in (False, True)]
    assert found["target"] == pytest.approx([0.5, 0.5], abs=0.02)
    assert found["source"][1] - found["source"][0] > 0.1
    assert treatment_probability(np.array([1.0, 12.0]), 0.0).tolist() == [0.5, 0.5]


def test_a_twin_has_the_sizes_of_the_source_whatever_the_preset_says() -> None:
    config = resolve({TumorConfig: {"twin": True, "train": 7}}, preset="quick", dataset="tumor")[TumorConfig]
    assert (config.target_train, config.target_test, config.target_gamma, config.paired) == (7, config.test, 0, True)
    assert "twin" not in TumorConfig().model_dump()


def test_the_error_due_to_confounding_is_that_above_the_twin(tiny: Path, tmp_path: Path, call: Call) -> None:
    words = ["--methods", "ridge", "-c", tiny, "--no-plots", "--setups", "zero-shot", "--folder", tmp_path / "b"]
    run = call("benchmark", "tumor", *words, "--gamma", "6", "--twin", "--json")
    assert run.code == 0, run.err
    result = run.document["result"]
    assert result["values"] == [0, 6]
    rows = {row["name"]: row for row in result["rows"]}
    for row in rows.values():
        assert row["due_to_confounding"] == pytest.approx([row["mean"][1] - row["mean"][0]])
    assert rows["last-value"]["due_to_confounding"] == pytest.approx([0])  # it learns nothing
    assert rows["limit"]["due_to_confounding"] == pytest.approx([0])
    assert rows["ridge"]["due_to_confounding"][0] != 0
    table = rows_of(tmp_path / "b" / "sweep.csv")
    ridge = {float(row["gamma"]): row["due_to_confounding"] for row in table if row["name"] == "ridge"}
    assert ridge[0] == ""
    assert float(ridge[6]) == pytest.approx(rows["ridge"]["due_to_confounding"][0])
    assert "6 minus 0" in (tmp_path / "b" / "sweep.md").read_text()


def test_strengths_have_their_twin_once() -> None:
    class Benchmark:
        class data:  # noqa: N801
            simulated = None

    assert with_twin(Benchmark, "4,0.0") == "4,0.0"
    assert with_twin(Benchmark, "2,4") == "0,2,4"
