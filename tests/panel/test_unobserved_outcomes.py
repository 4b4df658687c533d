"""Outcomes that were not observed: kept apart from observed ones wherever a panel goes, and told of."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.data import Dataset, Panel, Part, Queries, Scaler, store_arrays
from costar_cli.data.check import check_dataset
from costar_cli.data.findings import panel_problems
from costar_cli.data.queries import rolling_origin
from costar_cli.data.report import describe_dataset
from costar_cli.data.store import read_dataset, write_dataset
from costar_cli.data.table import TableInputs, ingest_table
from costar_cli.data.table.export import dataset_to_frame, export_dataset
from costar_cli.data.table.schema_file import read_schema
from costar_cli.data.tensors import PanelTensors
from costar_cli.errors import ArtifactError, DataError
from costar_cli.evaluation.score import TestPart, score
from costar_cli.files import read_artifact
from costar_cli.methods.regression.naive import LastValue
from costar_cli.report.pages import report_tables
from costar_cli.reporting import NullReporter
from tests.datasets.table_worlds import assert_same_dataset
from tests.methods.linear_worlds import random_dataset

TRAIN, VAL, TEST = Part("source", "train"), Part("source", "val"), Part("source", "test")


def with_holes(panel: Panel, share: float = 0.3, seed: int = 0) -> Panel:
    """Lose some outcomes, and carry the value before them forward; whole numbers, so that sums are exact."""
    rng = np.random.default_rng(seed)
    observed = panel.observed[..., None] & (rng.random(panel.outcomes.shape) >= share)
    observed[:, 0] = True
    outcomes = np.round(panel.outcomes)
    for step in range(1, panel.n_steps):
        outcomes[:, step] = np.where(observed[:, step], outcomes[:, step], outcomes[:, step - 1])
    outcomes[~panel.observed] = 0
    return replace(panel, outcomes=outcomes, outcome_observed=observed)


@pytest.fixture(scope="module")
def holey() -> Dataset:
    """Two outcomes, each with holes of its own, in every part."""
    whole = random_dataset((1, 1, 2, 1), one_hot=False, horizon=2, n=40)
    panels = {part: with_holes(panel, seed=i) for i, (part, panel) in enumerate(whole.panels.items())}
    queries = {part: {"rolling_origin": rolling_origin(panels[part], 2)} for part in (TEST, Part("target", "test"))}
    return replace(whole, panels=panels, queries=queries)


def train_with(dataset: Dataset, mask: np.ndarray | None) -> Dataset:
    panels = {**dataset.panels, TRAIN: replace(dataset.panels[TRAIN], outcome_observed=mask)}
    return replace(dataset, panels=panels)


def test_a_mask_that_finds_everything_observed_says_nothing(holey: Dataset):
    panel = holey.panels[TRAIN]
    for mask in (np.ones(panel.outcomes.shape, bool), panel.observed[..., None].repeat(2, axis=2)):
        whole = replace(panel, outcome_observed=mask)
        assert whole.outcome_observed is None
        assert np.array_equal(whole.observed_outcomes, panel.observed[..., None].repeat(2, axis=2))
        assert PanelTensors.from_panel(whole, Scaler.fit(whole, holey.schema)).observed_NTY is None


def test_taken_subjects_keep_their_holes(holey: Dataset):
    panel = holey.panels[TRAIN]
    rows = np.array([3, 1, 7])
    assert np.array_equal(panel.take(rows).observed_outcomes, panel.observed_outcomes[rows])
    whole = np.flatnonzero(panel.observed_outcomes.all(axis=-1).sum(axis=1) == panel.length)
    assert panel.take(whole).outcome_observed is None


def test_a_mask_of_another_shape_is_refused(holey: Dataset):
    panel = holey.panels[TRAIN]
    with pytest.raises(DataError, match="disagree in shape"):
        replace(panel, outcome_observed=panel.outcome_observed[..., :1])


def test_outcomes_beyond_the_end_cannot_have_been_observed(holey: Dataset):
    panel = holey.panels[TRAIN]
    short = int(panel.length.argmin())
    mask = panel.outcome_observed.copy()
    mask[short, -1] = True
    [finding] = panel_problems(replace(panel, outcome_observed=mask), holey.schema)
    assert f"subject {panel.subject_id[short]}, step {panel.n_steps - 1}" in str(finding)


def test_a_file_keeps_the_mask_and_one_without_holes_has_none(tmp_path: Path, holey: Dataset):
    written = write_dataset(tmp_path / "holes.h5", holey)
    again = read_dataset(tmp_path / "holes.h5")
    for part, panel in holey.panels.items():
        assert np.array_equal(again.panels[part].outcome_observed, panel.outcome_observed)
    assert "source/train/panel/outcome_observed" in read_artifact(tmp_path / "holes.h5").arrays
    plain = {part: replace(panel, outcome_observed=None) for part, panel in holey.panels.items()}
    ones = {part: replace(panel, outcome_observed=np.ones(panel.outcomes.shape, bool)) for part, panel in plain.items()}
    digests = [
        write_dataset(tmp_path / f"{i}.h5", replace(holey, panels=panels)).digest
        for i, panels in enumerate((plain, ones))
    ]
    assert digests[0] == digests[1] != written.digest
    assert not any("outcome_observed" in name for name in read_artifact(tmp_path / "0.h5").arrays)


def test_a_file_whose_mask_is_no_mask_is_refused(tmp_path: Path, holey: Dataset, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(store_arrays.OPTIONAL_FIELDS, "outcome_observed", (np.dtype(np.float32), 3))
    write_dataset(tmp_path / "odd.h5", holey)
    monkeypatch.undo()
    with pytest.raises(ArtifactError, match="not as expected") as caught:
        read_dataset(tmp_path / "odd.h5")
    assert "outcome_observed is 3-d float32, expected 3-d bool" in str(caught.value.details)


@given(st.integers(0, 2**16), st.floats(0, 0.9))
def test_standardisation_is_learned_from_observed_outcomes_of_the_source(seed: int, share: float):
    whole = random_dataset((1, 1, 2, 1), one_hot=False, horizon=2, n=20)
    panel = with_holes(whole.panels[TRAIN], share, seed)
    mangled = replace(panel, outcomes=np.where(panel.observed_outcomes, panel.outcomes, np.float32(1e6)))
    found, same = Scaler.fit(panel, whole.schema), Scaler.fit(mangled, whole.schema)
    assert np.array_equal(found.outcomes, same.outcomes)
    history = np.arange(panel.n_steps) < np.maximum(panel.length - 1, 1)[:, None]
    for i in range(2):
        known = panel.outcomes[..., i][history & panel.observed_outcomes[..., i]].astype(np.float64)
        assert found.outcomes[:, i].tolist() == pytest.approx([known.mean(), known.std() or 1.0])
    none = Scaler.fit(replace(panel, outcome_observed=None), whole.schema)
    assert np.array_equal(found.covariates, none.covariates)


def test_rolling_origins_score_steps_where_every_outcome_was_observed(holey: Dataset):
    for part in (TEST, Part("target", "test")):
        panel, queries = holey.panels[part], holey.queries[part]["rolling_origin"]
        assert 0 < queries.scored.mean() < 1
        for q in range(len(queries)):
            n, t = int(queries.subject[q]), int(queries.origin[q])
            assert queries.scored[q].tolist() == panel.outcome_observed[n, t + 1 : t + 3].all(axis=-1).tolist()


def test_scores_do_not_see_what_an_answer_was_filled_with(holey: Dataset):
    """The last value carried forward, by hand; then with other values in the answers that nobody observed."""
    part = Part("target", "test")
    panel, queries = holey.panels[part], holey.queries[part]["rolling_origin"]
    model = LastValue(schema=holey.schema, scaler=Scaler.fit(holey.panels[TRAIN], holey.schema), horizon=2)

    def rmse(asked: Queries) -> list[float]:
        on = TestPart.of(panel, {"rolling_origin": asked}, 2)
        assert list(on.serving) == ["factual"]
        with NullReporter().task("score") as task:
            errors = score(model, on, denominator_Y=np.ones(2), batch_size=7, task=task)["factual"]
        return errors.rmse()[0].tolist()

    step = queries.origin[:, None] + np.arange(2) + 1
    squares = ((panel.outcomes[queries.subject, queries.origin][:, None] - queries.outcomes) ** 2).sum(axis=-1)
    counts = panel.observed_outcomes.all(axis=-1)[queries.subject[:, None], step]
    expected = [np.sqrt(squares[counts[:, h], h].mean()) for h in range(2)]
    assert rmse(queries) == pytest.approx(expected)
    other = np.where(queries.scored[..., None], queries.outcomes, np.float32(1e4))
    assert rmse(replace(queries, outcomes=other)) == rmse(queries)


def test_the_check_tells_how_much_was_observed_and_refuses_what_never_was(holey: Dataset):
    notes = [finding for finding in check_dataset(holey) if finding.code == "outcome-partly-observed"]
    assert {finding.subject for finding in notes} == {"source/train", "source/val", "target/train", "target/val"}
    share = holey.panels[TRAIN].observed_outcomes[holey.panels[TRAIN].observed][:, 1].mean()
    assert any(f"'y1' was observed at {100 * share:.1f} %" in finding.text for finding in notes)
    mask = holey.panels[TRAIN].outcome_observed.copy()
    mask[:, 1:, 1] = False
    with pytest.raises(DataError, match="'y1' was never observed after a first step"):
        check_dataset(train_with(holey, mask))
    panels = {**holey.panels, VAL: replace(holey.panels[VAL], outcome_observed=mask[: holey.panels[VAL].n_subjects])}
    panels[VAL] = replace(panels[VAL], outcome_observed=panels[VAL].outcome_observed & panels[VAL].observed[..., None])
    reporter = NullReporter()
    check_dataset(replace(holey, panels=panels), reporter)
    (never,) = [one for one in reporter.diagnostics if one.code == "outcome-never-observed"]
    assert str(never).startswith("source/val: outcome 'y1' was never observed")


def test_an_outcome_that_changes_only_where_it_was_filled_never_changes(holey: Dataset):
    panel = holey.panels[TRAIN]
    outcomes = panel.outcomes.copy()
    outcomes[..., 0] = np.where(panel.outcome_observed[..., 0], 3, outcomes[..., 0]) * panel.observed
    with pytest.raises(DataError, match="never change"):
        check_dataset(replace(holey, panels={**holey.panels, TRAIN: replace(panel, outcomes=outcomes)}))


def test_the_data_report_counts_and_shows_observed_outcomes_alone(holey: Dataset):
    report = describe_dataset(holey)
    source = [panel for part, panel in holey.panels.items() if part.domain == "source"]
    known = np.concatenate([panel.outcomes[..., 0][panel.outcome_observed[..., 0]] for panel in source])
    summary = next(o for o in report.outcomes if (o.outcome, o.domain) == ("y0", "source"))
    assert summary.mean == pytest.approx(known.astype(np.float64).mean())
    assert sum(summary.counts) == len(known)
    assert summary.observed == pytest.approx(len(known) / sum(int(panel.length.sum()) for panel in source))
    shift = next(s for s in report.shifts if s.variable == "y0")
    assert shift.source_mean == pytest.approx(summary.mean)
    missing = {m.variable: m for m in report.missing}
    assert set(missing) == {"y0", "y1"}
    hole = 1 - holey.panels[TRAIN].observed_outcomes[holey.panels[TRAIN].observed][:, 0].mean()
    assert missing["y0"].by_part["source/train"] == pytest.approx(hole)
    table = next(table for table in report_tables(report) if table.title == "Outcomes")
    assert table.rows[0][table.headers.index("observed")] == f"{100 * summary.observed:.1f} %"


def test_a_report_survives_a_domain_where_an_outcome_was_never_observed(holey: Dataset):
    panels = {
        part: panel
        if part.domain == "source"
        else replace(panel, outcome_observed=panel.outcome_observed & np.array([True, False]))
        for part, panel in holey.panels.items()
    }
    report = describe_dataset(replace(holey, panels=panels))
    assert [(o.outcome, o.domain) for o in report.outcomes] == [("y0", "source"), ("y0", "target"), ("y1", "source")]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_holes_go_to_tables_as_missing_values_and_come_back(tmp_path: Path, holey: Dataset, form: str):
    frame = dataset_to_frame(holey)
    hidden = sum(int((panel.observed[..., None] & ~panel.observed_outcomes).sum()) for panel in holey.panels.values())
    assert frame["y0"].null_count() + frame["y1"].null_count() == hidden
    table, schema, queries = export_dataset(holey, tmp_path, form)
    again = ingest_table(TableInputs([table], queries=queries), read_schema(schema), NullReporter())
    assert_same_dataset(again, holey)
