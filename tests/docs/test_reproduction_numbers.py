"""The figures of docs/reproduction.md that costar itself computed."""

import csv
from pathlib import Path

import numpy as np
import pytest

from benchmarks.reference_policy import cohort, last_value_rmse, with_policy_of_another_patient
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
STUDY = RESULTS / "benchmark-tumor-2000"


def stored(name: str, folder: Path = STUDY) -> list[dict[str, str]]:
    with (folder / name).open(encoding="utf-8", newline="") as file:
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


def test_what_is_said_of_few_shot_follows_from_the_study() -> None:
    before, after = (quoted_tables.averages("benchmark-tumor-2000", setup) for setup in ("zero-shot", "few-shot"))
    fall = {method: round(100 * (1 - after[method] / before[method])) for method in before}
    assert (
        f"COSTAR's error falls by {fall['COSTAR']} %, that of CT by {fall['CT']} %, of CT(ERM) by {fall['CT(ERM)']} %, "
        f"of CRN(ERM) by {fall['CRN(ERM)']} %, of CRN by {fall['CRN']} %, of ridge regression by "
        f"{fall['Ridge regression']} %; that of MSM stays, that of RMSN grows by {-fall['RMSN']} %."
    ) in page_text()
    assert fall["MSM"] == 0
    printed = {
        method: [published_row("tumor", setup, method).average_over(1, 6) for setup in ("zero-shot", "few-shot")]
        for method in ("costar", "ct-erm")
    }
    theirs = {method: round(100 * (1 - few / zero)) for method, (zero, few) in printed.items()}
    said = f"In the paper COSTAR's falls by {theirs['costar']} %, that of CT(ERM) by {theirs['ct-erm']} %."
    assert said in page_text()


def test_gains_of_the_study_are_those_of_its_tables() -> None:
    errors = quoted_tables.averages("benchmark-tumor-2000", "zero-shot")
    lower = published_row("tumor", "zero-shot", "costar").average_over(1, 6)
    for method, name in (("RMSN", "rmsn"), ("CRN(ERM)", "crn-erm"), ("CRN", "crn")):
        ours = 100 * (1 - errors["COSTAR"] / errors[method])
        average = published_row("tumor", "zero-shot", name).average_over(1, 6)
        theirs = 100 * (average - lower) / average
        assert f"{method} ({ours:.1f} %, {'published ' if method == 'RMSN' else ''}{theirs:.1f} %)" in page_text()


def test_what_is_said_of_the_study_follows_from_its_comparisons() -> None:
    compared = {(row["setup"], row["method"]): row for row in stored("comparisons.csv")}
    for (setup, method), row in compared.items():
        leads = float(row["avg_difference"]) > 0 and float(row["p_holm"]) <= 0.05
        assert leads == (
            (setup, method) not in {("zero-shot", "MSM"), *(("supervised", m) for m in ("RMSN", "CRN(ERM)"))}
        )
    msm, rmsn = compared["zero-shot", "MSM"], compared["supervised", "RMSN"]
    interval = f"interval {float(msm['avg_lower']):.2f} to {float(msm['avg_upper']):.2f}"
    assert f"({float(msm['avg_difference']):.2f}, {interval})" in page_text()
    assert f"difference {float(rmsn['avg_lower']):.2f} to {float(rmsn['avg_upper']):.2f})" in page_text()
    largest = max(float(r["p_holm"]) for (s, m), r in compared.items() if s == "zero-shot" and m != "MSM")
    assert f"p at most {largest:.2f})" in page_text()
    least = min(float(r["avg_difference"]) for (s, _), r in compared.items() if s == "few-shot")
    assert f"In few-shot it leads by {least:.2f} or more" in page_text()
