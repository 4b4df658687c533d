"""The figures of docs/data-mimic.md are those that docs/mimic_numbers.py computes."""

import sys
from collections.abc import Iterator

import pytest

from simulators.icu import IcuCohort, simulate_icu
from tests.cli.cli_world import REPOSITORY

PAGE = (REPOSITORY / "docs" / "data-mimic.md").read_text("utf-8")

sys.path.insert(0, str(REPOSITORY / "docs"))

import mimic_numbers  # noqa: E402


@pytest.fixture(scope="module")
def cohort() -> IcuCohort:
    return simulate_icu(mimic_numbers.CALIBRATION_STAYS, seed=0)


def missing(lines: Iterator[str]) -> list[str]:
    shown = PAGE.splitlines()
    return [line for line in lines if line.rstrip() not in shown]


@pytest.mark.slow
def test_calibration_and_correlations_are_the_measured_ones(cohort: IcuCohort) -> None:
    for table in (mimic_numbers.calibration_table, mimic_numbers.correlation_table, mimic_numbers.lag_table):
        assert missing(table(cohort)) == []


@pytest.mark.slow
def test_patients_per_part_and_treatment_rates_are_the_simulated_ones() -> None:
    assert missing(mimic_numbers.split_table()) == []
    assert missing(mimic_numbers.treatment_table()) == []
