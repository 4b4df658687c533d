"""The figures of docs/reproduction.md that costar itself computed."""

import csv
from pathlib import Path

import numpy as np

from benchmarks.reference_policy import cohort, last_value_rmse, with_policy_of_another_patient
from simulators.tumor import simulate_factual


def test_the_references_test_policy_makes_the_source_more_than_twice_as_hard_and_tau_1_the_hardest() -> None:
    patients, noise = cohort(10, 300)
    ours = last_value_rmse(patients, noise, simulate_factual(patients, noise, 10.0))
    theirs = last_value_rmse(patients, noise, with_policy_of_another_patient(patients, noise, 10.0))
    assert 1.4 < ours.mean() < 2.6
    assert theirs.mean() > 2 * ours.mean()
    assert ours.argmin() == 0
    assert theirs.argmax() == 0


def test_without_confounding_the_test_policy_does_not_matter() -> None:
    patients, noise = cohort(10, 300)
    ours = simulate_factual(patients, noise, 0.0)
    theirs = with_policy_of_another_patient(patients, noise, 0.0)
    assert np.array_equal(ours.treatments, theirs.treatments)
    assert np.array_equal(ours.volume_cm3, theirs.volume_cm3)


ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
STUDY = RESULTS / "benchmark-tumor-2000"
SETUPS = ("zero-shot", "few-shot", "supervised")


def stored(name: str, folder: Path = STUDY) -> list[dict[str, str]]:
    with (folder / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_of_the_study_is_what_the_benchmark_wrote() -> None:
    averages = {
        (row["setup"], row["basis"].split(",")[0], row["method"]): f"{float(row['avg']):.3f}"
        for row in stored("results.csv")
    }
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8").partition("<!-- study -->\n")[2]
    printed = [line.strip("| ").split("|") for line in page.splitlines()[2:12] if line.startswith("|")]
    assert len(printed) == 9
    for name, *cells in printed:
        columns = [(setup, basis) for setup in SETUPS for basis in ("ours", "published")]
        expected = [averages.get((*column, name.strip()), "") for column in columns]
        assert [cell.strip() for cell in cells] == expected[: len(cells)], name


def test_the_table_of_the_quick_benchmarks_is_what_they_wrote() -> None:
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8").partition("<!-- quick -->\n")[2]
    printed = [line.strip("| ").split("|") for line in page.partition("\n\n")[0].splitlines()[2:]]
    assert len(printed) == 11
    columns = [(data, setup) for data in ("tumor", "mimic", "m5") for setup in SETUPS]
    for column, (data, setup) in enumerate(columns, start=1):
        averages = {
            row["method"]: f"{float(row['avg']):.3f}"
            for row in stored("results.csv", RESULTS / f"benchmark-{data}-quick")
            if (row["setup"], row["truth"], row["basis"]) == (setup, "counterfactual", "ours")
        }
        assert {cells[0].strip(): cells[column].strip(" *") for cells in printed} == averages


def test_on_the_linear_system_methods_that_adjust_are_ahead_of_regressions() -> None:
    errors = {
        row["method"]: float(row["avg"])
        for row in stored("results.csv", RESULTS / "benchmark-linear-quick")
        if (row["setup"], row["basis"]) == ("zero-shot", "ours")
    }
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8").replace("\n  ", " ")
    ranked = ["MSM", "CT", "G-Net", "Ridge regression", "COSTAR"]
    assert ranked == sorted(ranked, key=errors.__getitem__)
    for method in ranked:
        assert f"{method.lower() if method.startswith('Ridge') else method} ({errors[method]:.2f})" in page


def test_ablations_that_matter_are_those_that_the_page_names() -> None:
    folder = RESULTS / "benchmark-tumor-ablations"
    gains = {
        row["name"]: float(row["gain"])
        for row in stored("results.csv", folder)
        if row["gain"] and row["basis"] == "ours"
    }
    matter = {
        row["name"]: gains[row["name"]] for row in stored("comparisons.csv", folder) if float(row["p_holm"]) <= 0.05
    }
    assert {name: round(gain, 1) for name, gain in matter.items()} == {
        "ssl-none": 7.4, "weights-uniform": 20.8, "decoder-one-step": 29.8, "decoder-taught": 23.3,
    }  # fmt: skip
    assert (round(gains["encoder-feature"], 1), round(gains["encoder-vt-relative"], 1)) == (-8.8, -6.7)


def test_what_is_said_of_the_study_follows_from_its_comparisons() -> None:
    compared = {(row["setup"], row["method"]): row for row in stored("comparisons.csv")}
    for (setup, method), row in compared.items():
        leads = float(row["avg_difference"]) > 0 and float(row["p_holm"]) <= 0.05
        assert leads == (
            (setup, method) not in {("zero-shot", "MSM"), *(("supervised", m) for m in ("RMSN", "CRN(ERM)"))}
        )
