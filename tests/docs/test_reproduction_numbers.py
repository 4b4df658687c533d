"""The figures of docs/reproduction.md that costar itself computed."""

import csv
from pathlib import Path

import numpy as np
import pytest

from benchmarks.reference_policy import cohort, last_value_rmse, with_policy_of_another_patient
from costar_cli.cli.pretrain import GAINS_LITTLE
from costar_cli.evaluation.published import published_row
from docs import quoted_goals, quoted_tables
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
PAPER_SIZE = "benchmark-tumor-paper"


def stored(name: str) -> list[dict[str, str]]:
    with (RESULTS / PAPER_SIZE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("page", quoted_tables.PAGES, ids=lambda page: page.name)
def test_quoted_tables_are_those_of_the_stored_results(page: Path) -> None:
    """`python -m docs.quoted_tables` writes them."""
    text = page.read_text("utf-8")
    assert quoted_tables.BLOCK.search(text)
    assert quoted_tables.rewritten(text) == text


def test_every_quoted_table_is_on_a_page() -> None:
    text = "".join(page.read_text("utf-8") for page in quoted_tables.PAGES)
    assert {match["name"] for match in quoted_tables.BLOCK.finditer(text)} == set(quoted_tables.TABLES)


def test_nothing_is_bold_where_no_difference_is_tested() -> None:
    lines = (line.split(" | ") for line in quoted_tables.published_form_table() if line.startswith("|"))
    heads, _, *rows = lines
    bold = {
        head.strip(" |").split(",")[0] for row in rows for head, cell in zip(heads, row, strict=True) if "**" in cell
    }
    assert bold == {"ICU", "linear system"}


@pytest.mark.parametrize("folder", [f"benchmark-{data}-ablations" for data in ("tumor", "mimic", "m5")])
def test_ablations_are_changes_of_the_full_models_own_error(folder: str) -> None:
    errors = quoted_tables.averages(folder, "zero-shot", key="name")
    shown = [line.split(" | ")[1] for line in list(quoted_tables.ablation_table(folder))[2:]]
    assert shown == [f"{100 * (errors[name] / errors['costar'] - 1):+.1f} %" for name in errors if name != "costar"]


def test_pretraining_gained_as_little_as_its_verb_says() -> None:
    worlds = ("tumor", "mimic", "m5")
    errors = [quoted_tables.averages(f"benchmark-{data}-ablations", "zero-shot", key="name") for data in worlds]
    assert "three simulated worlds" in GAINS_LITTLE
    assert max(1 - found["costar"] / found["ssl-none"] for found in errors) < 0.01


def test_goals_are_judged_by_the_numbers_beside_them() -> None:
    _, _, *lines = quoted_goals.table()
    judged = [line.strip("| ").split(" | ") for line in lines]
    assert len(judged) == len(quoted_goals.GOALS)
    for _, *cells, verdict in judged:
        pairs = [cell.rstrip(")").split(" (") for cell in cells if cell.strip()]
        excess = [100 * (float(number) / float(aim) - 1) for number, aim in pairs]
        if verdict == "met":
            assert max(excess) < 1
        else:
            assert float(verdict.split()[-2]) == pytest.approx(max(excess), abs=1.2)


def page_text() -> str:
    return " ".join((ROOT / "docs" / "reproduction.md").read_text("utf-8").split())


def errors_at_the_papers_size(setup: str) -> dict[str, float]:
    return quoted_tables.averages(PAPER_SIZE, setup)


def test_gains_at_the_papers_size_are_those_of_its_table() -> None:
    errors, text = errors_at_the_papers_size("zero-shot"), page_text()
    lower = published_row("tumor", "zero-shot", "costar").average_over(1, 6)
    names = {r["method"]: r["name"] for r in quoted_tables.rows(PAPER_SIZE)}
    for method in ("RMSN", "CT(ERM)", "CT", "MSM", "CRN", "CRN(ERM)", "G-Net"):
        ours = 100 * (1 - errors["COSTAR"] / errors[method])
        printed = 100 * (1 - lower / published_row("tumor", "zero-shot", names[method]).average_over(1, 6))
        in_brackets = f"{method} ({ours:.1f}, {printed:.1f})"
        in_words = f"{method} {ours:.1f} ({'published ' if method == 'RMSN' else ''}{printed:.1f})"
        assert in_brackets in text or in_words in text, method


def test_the_order_at_the_papers_size_follows_from_its_comparisons() -> None:
    compared = {(row["setup"], row["method"]): row for row in stored("comparisons.csv")}
    zero, few = (compared[setup, "G-Net"] for setup in ("zero-shot", "few-shot"))
    by = f"errs by {-float(zero['avg_difference']):.2f} more, interval {-float(zero['avg_upper']):.2f} to"
    assert f"{by} {-float(zero['avg_lower']):.2f})" in page_text()
    lead = f"(by {-float(few['avg_difference']):.2f}, {-float(few['avg_upper']):.2f} to {-float(few['avg_lower']):.2f})"
    assert lead in page_text()
    for method in ("CRN(ERM)", "G-Net"):
        assert float(compared["supervised", method]["avg_upper"]) < 0
    for method in ("RMSN", "CT(ERM)"):
        row = compared["supervised", method]
        assert float(row["avg_lower"]) < 0 < float(row["avg_upper"])


def test_what_is_said_of_balancing_labels_and_size_holds_at_the_papers_size() -> None:
    setups = ("zero-shot", "few-shot", "supervised")
    zero, few, supervised = map(errors_at_the_papers_size, setups)
    for errors in (zero, few, supervised):
        assert errors["CRN"] > errors["CRN(ERM)"]
        assert errors["CT"] > errors["CT(ERM)"]
    fall = {method: round(100 * (1 - few[method] / zero[method])) for method in zero}
    costar, rmsn = f"COSTAR's error by {fall['COSTAR']} % (published 3 %)", f"that of RMSN by {fall['RMSN']} %"
    assert f"lower {costar}, {rmsn}" in page_text()
    networks = ("RMSN", "CRN(ERM)", "CRN", "CT(ERM)", "CT", "EDCT", "G-Net", "COSTAR")
    limit = {
        row["setup"]: float(row["avg"])
        for row in quoted_tables.rows(PAPER_SIZE)
        if (row["basis"], row["truth"], row["table"]) == ("limit", "counterfactual", "methods")
    }
    assert {name for name in networks if supervised[name] > 1.5 * limit["supervised"]} == {"CRN"}
    assert min(zero[name] for name in (*networks, "MSM")) > 1.8 * limit["zero-shot"]
