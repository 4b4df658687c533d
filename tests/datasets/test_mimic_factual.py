"""The factual ICU data set: time alignment, no look-ahead, and scores on recorded outcomes alone."""

import numpy as np
import pytest

from costar_cli.data import Dataset, Part
from costar_cli.data.findings import not_finite, panel_problems, query_problems
from costar_cli.data.icu.factual import MIMIC_FACTUAL_SCHEMA, factual_dataset
from costar_cli.data.icu.table import IcuTable
from costar_cli.errors import DataError
from costar_cli.evaluation.score import serving_sets
from costar_cli.reporting import NullReporter
from tests.datasets.mimic_worlds import SOURCE_TEST, SOURCE_TRAIN, TARGET_TEST, factual_config, made_table, small_table

NAN = np.float32(np.nan)


@pytest.fixture(scope="module")
def table() -> IcuTable:
    return small_table()


@pytest.fixture(scope="module")
def factual(table: IcuTable) -> Dataset:
    return factual_dataset(table, factual_config(), NullReporter())


def row_of(dataset: Dataset, part: Part, table: IcuTable) -> tuple[int, slice]:
    """The row of a part's patient in the table, and its hours."""
    subject = int(dataset.panels[part].subject_id[0])
    row = int(np.flatnonzero(table.subject_id == subject)[0])
    start = int(table.length[:row].sum())
    return row, slice(start, start + int(min(table.length[row], 26)))


def test_data_set_says_what_it_is(factual: Dataset):
    assert factual.name == "mimic-factual"
    assert factual.schema.dims == (25, 2, 1, 44)
    assert factual.schema.outcomes[0].unit == "mmHg"
    assert factual.schema.error_unit.label == "mmHg"
    assert factual.truth == {}
    assert factual.config["embedded"] is True


def test_panels_and_queries_hold_all_invariants(factual: Dataset):
    for part, panel in factual.panels.items():
        assert panel_problems(panel, MIMIC_FACTUAL_SCHEMA) + not_finite(panel, MIMIC_FACTUAL_SCHEMA) == []
        assert not panel.treatments[np.arange(panel.n_subjects), panel.length - 1].any()
        for queries in factual.queries.get(part, {}).values():
            assert query_problems(queries, panel, MIMIC_FACTUAL_SCHEMA) == []


def test_treatment_of_a_step_is_what_the_next_hour_brought(factual: Dataset, table: IcuTable):
    for part in factual.panels:
        _, hours = row_of(factual, part, table)
        given = factual.panels[part].treatments[0, : hours.stop - hours.start - 1]
        assert np.array_equal(given[:, 0], table.vaso[hours][1:])
        assert np.array_equal(given[:, 1], table.vent[hours][1:])


def test_recorded_outcomes_are_stored_and_gaps_take_the_last_one(factual: Dataset, table: IcuTable):
    for part in factual.panels:
        _, hours = row_of(factual, part, table)
        recorded = table.diastolic[hours]
        stored = factual.panels[part].outcomes[0, : len(recorded), 0]
        seen = np.isfinite(recorded)
        assert np.array_equal(stored[seen], recorded[seen])
        gaps = np.flatnonzero(~seen[1:]) + 1
        assert np.array_equal(stored[gaps], stored[gaps - 1])
        assert np.array_equal(factual.panels[part].observed_outcomes[0, : len(recorded), 0], seen)


def test_nothing_is_filled_with_later_values():
    """Leading gaps take source-train's mean, whatever the patient has later."""
    length, ages = [26] * 40, [30.0] * 20 + [90.0] * 20
    table = made_table(length, ages)
    values, diastolic = table.values.copy(), table.diastolic.copy()
    starts = np.arange(40) * 26
    for hour in range(3):
        values[starts + hour], diastolic[starts + hour] = NAN, NAN
    filled = factual_dataset(
        made_table(length, ages, values=values, diastolic=diastolic), factual_config(), NullReporter()
    )
    train = np.isin(table.subject_id, filled.panels[SOURCE_TRAIN].subject_id).repeat(26)
    for panel in filled.panels.values():
        assert np.allclose(panel.outcomes[:, :3], np.nanmean(diastolic[train]), rtol=1e-6)
        assert np.allclose(panel.covariates[:, :3], np.nanmean(values[train], axis=0), atol=1e-6)


def test_rolling_origins_ask_for_what_was_given_and_score_recorded_hours(factual: Dataset, table: IcuTable):
    assert set(factual.queries) == {SOURCE_TEST, TARGET_TEST}
    for part, sets in factual.queries.items():
        panel, queries = factual.panels[part], sets["rolling_origin"]
        assert queries.horizon == 5
        assert len(queries) == int((panel.length - 5).sum())
        ahead = queries.origin[:, None].astype(int) + np.arange(5)
        rows = queries.subject[:, None]
        assert np.array_equal(queries.plan, panel.treatments[rows, ahead])
        assert np.array_equal(queries.outcomes, panel.outcomes[rows, ahead + 1])
        _, hours = row_of(factual, part, table)
        first = queries.subject == 0
        recorded = np.isfinite(table.diastolic[hours])
        assert np.array_equal(queries.scored[first], recorded[ahead[first] + 1])
        assert 0.75 < queries.scored.mean() < 1
        assert {truth: set(served) for truth, served in serving_sets(panel, sets, 5).items()} == {
            "factual": {"rolling_origin"}
        }


def test_patients_without_any_outcome_are_left_out_and_counted(table: IcuTable):
    diastolic = table.diastolic.copy()
    diastolic[: int(table.length[0])] = NAN
    everyone = factual_config(transfer=False, patients=10_000)
    columns = {name: getattr(table, name) for name in ("subject_id", "gender", "ethnicity", "values", "vent", "vaso")}
    changed = made_table(table.length.tolist(), table.age.tolist(), **columns, diastolic=diastolic)
    dataset = factual_dataset(changed, everyone, NullReporter())
    assert dataset.config["kept"]["without a diastolic pressure"] == 1
    assert table.subject_id[0] not in np.concatenate([panel.subject_id for panel in dataset.panels.values()])


def test_without_transfer_the_source_is_split_70_15_15(table: IcuTable):
    dataset = factual_dataset(table, factual_config(transfer=False, patients=200), NullReporter())
    sizes = {str(part): panel.n_subjects for part, panel in dataset.panels.items()}
    assert sizes == {"source/train": 140, "source/val": 30, "source/test": 30}
    assert set(dataset.queries) == {SOURCE_TEST}
    assert dataset.config["kept"]["source"] == 200


def test_changing_target_data_changes_nothing_of_the_source(factual: Dataset, table: IcuTable):
    target = np.concatenate([p.subject_id for part, p in factual.panels.items() if part.domain == "target"])
    hours = np.isin(np.repeat(table.subject_id, table.length), target)
    columns = {name: getattr(table, name) for name in ("subject_id", "gender", "ethnicity", "vent", "vaso")}
    values = np.where(hours[:, None], table.values + np.float32(50), table.values)
    diastolic = np.where(hours, table.diastolic + np.float32(20), table.diastolic)
    changed = made_table(table.length.tolist(), table.age.tolist(), **columns, values=values, diastolic=diastolic)
    other = factual_dataset(changed, factual_config(), NullReporter())
    for part, panel in factual.panels.items():
        same = part.domain == "source"
        assert np.array_equal(panel.covariates, other.panels[part].covariates) == same
        assert np.array_equal(panel.outcomes, other.panels[part].outcomes) == same


def test_a_table_without_the_factual_columns_says_so():
    bare = made_table([30] * 40, [30.0] * 20 + [90.0] * 20, diastolic=None)
    with pytest.raises(DataError, match="no diastolic pressure"):
        factual_dataset(bare, factual_config(), NullReporter())
