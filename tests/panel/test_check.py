"""What is looked at before training: unusable values are errors, weak treatments and overlap are warnings."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from costar_cli.data import Dataset, Panel, Part, Queries
from costar_cli.data.check import check_dataset
from costar_cli.data.findings import counted, invalid, panel_problems, query_problems, raise_errors, shown
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError
from costar_cli.reporting import NullReporter
from tests.property.strategies import datasets

TRAIN, TEST = Part("source", "train"), Part("source", "test")


def with_panel(dataset: Dataset, part: Part, **fields: np.ndarray) -> Dataset:
    return replace(dataset, panels={**dataset.panels, part: replace(dataset.panels[part], **fields)})


def with_queries(dataset: Dataset, part: Part, **fields: np.ndarray) -> Dataset:
    changed = {"one_step": replace(dataset.queries[part]["one_step"], **fields)}
    return replace(dataset, queries={**dataset.queries, part: changed})


def warnings(dataset: Dataset) -> list[Diagnostic]:
    reporter = NullReporter()
    findings = check_dataset(dataset, reporter)
    assert [finding for finding in findings if finding.severity == "warning"] == reporter.diagnostics
    return reporter.diagnostics


def treated(panel: Panel, chosen: np.ndarray) -> np.ndarray:
    """Encode class numbers `[N,T]` as the treatments of a tumour panel."""
    decided = np.arange(panel.n_steps) < panel.length[:, None] - 1
    return (np.eye(4, dtype=np.float32)[chosen] * decided[..., None]).astype(np.float32)


@given(datasets())
def test_drawn_panels_and_queries_hold_all_invariants(dataset: Dataset):
    for part, panel in dataset.panels.items():
        assert panel_problems(panel, dataset.schema) == []
        for queries in dataset.queries[part].values():
            assert query_problems(queries, panel, dataset.schema) == []


def test_default_cohort_trains_without_a_warning():
    dataset = simulate_tumor(TumorConfig(train=500, test=5, target_test=5), NullReporter())
    assert warnings(dataset) == []
    assert "never-treated" in {finding.code for finding in check_dataset(dataset) if finding.severity == "note"}


@pytest.mark.parametrize(("field", "value"), [("outcomes", np.nan), ("outcomes", np.inf), ("statics", np.nan)])
def test_values_that_are_not_finite_are_errors_with_their_place(tumor_dataset: Dataset, field: str, value: float):
    values = getattr(tumor_dataset.panels[TEST], field).copy()
    values[3, ..., 0].flat[-1 if values.ndim == 2 else 1] = value
    with pytest.raises(DataError) as caught:
        check_dataset(with_panel(tumor_dataset, TEST, **{field: values}))
    name = "tumour_volume" if field == "outcomes" else "patient_type"
    assert caught.value.problem == f"'{name}' has 1 NaN or infinite value"
    assert caught.value.where.startswith(f"source/test, {field}, first at subject 55")
    assert caught.value.fix


def test_all_errors_of_a_data_set_are_told_at_once(tumor_dataset: Dataset):
    outcomes = tumor_dataset.panels[TEST].outcomes.copy()
    outcomes[0, 0] = np.nan
    broken = with_panel(tumor_dataset, TEST, outcomes=outcomes)
    train = tumor_dataset.panels[TRAIN]
    broken = with_panel(broken, TRAIN, outcomes=train.outcomes * np.where(train.observed, np.nan, 0)[..., None])
    with pytest.raises(DataError) as caught:
        check_dataset(broken)
    assert caught.value.problem == "the data set has 2 problems"
    assert [line.split(",")[0] for line in caught.value.details] == ["source/train", "source/test"]


def edited(values: np.ndarray, index: tuple, value: float) -> np.ndarray:
    values = values.copy()
    values[index] = value
    return values


def panel_breaks(panel: Panel) -> dict[str, dict[str, np.ndarray]]:
    short = int(np.flatnonzero(panel.length < panel.n_steps)[0])
    return {
        "1 padded step with values": {"outcomes": edited(panel.outcomes, (short, -1, 0), 5)},
        "treatments that the schema does not encode": {"treatments": edited(panel.treatments, (0, 0), 1)},
        "outcomes has 2 columns, the schema has 1": {"outcomes": np.repeat(panel.outcomes, 2, axis=-1)},
        "statics has 0 columns, the schema has 1": {"statics": panel.statics[:, :0]},
    }


def test_broken_panels_are_errors(tumor_dataset: Dataset):
    part = Part("target", "test")  # some of whose subjects end early
    for message, fields in panel_breaks(tumor_dataset.panels[part]).items():
        with pytest.raises(DataError) as caught:
            check_dataset(with_panel(tumor_dataset, part, **fields))
        assert message in str(caught.value.problem), message
        assert caught.value.where.startswith("target/test")


def query_breaks(queries: Queries, panel: Panel) -> dict[str, dict[str, np.ndarray]]:
    return {
        "1 query about rows outside the panel's 0 to 7": {"subject": edited(queries.subject, (0,), 8)},
        "1 query with an origin outside": {"origin": edited(queries.origin, (5,), panel.length[queries.subject[5]])},
        "queries with an origin outside": {"origin": np.full_like(queries.origin, -1)},
        "1 query with treatments that the schema": {"plan": edited(queries.plan, (2,), 1)},
        "plan has 3 columns, the schema has 4": {"plan": queries.plan[..., :3]},
        "outcomes has 2 columns": {"outcomes": np.repeat(queries.outcomes, 2, axis=-1)},
        "1 NaN or infinite answer": {"outcomes": edited(queries.outcomes, (4, 0, 0), np.nan)},
    }


def test_broken_queries_are_errors(tumor_dataset: Dataset):
    queries, panel = tumor_dataset.queries[TEST]["one_step"], tumor_dataset.panels[TEST]
    for message, fields in query_breaks(queries, panel).items():
        with pytest.raises(DataError) as caught:
            check_dataset(with_queries(tumor_dataset, TEST, **fields))
        assert message in str(caught.value.problem)
        assert caught.value.where.startswith("source/test, one_step")


def test_treatments_without_contrast_are_warnings(tumor_dataset: Dataset):
    panel = tumor_dataset.panels[TRAIN]
    rng = np.random.default_rng(0)
    never_radio = treated(panel, rng.integers(2, size=(panel.n_subjects, panel.n_steps)))
    [warning] = warnings(with_panel(tumor_dataset, TRAIN, treatments=never_radio))
    assert warning.code == "treatment-constant"
    assert str(warning).startswith("source/train: treatment 'radiotherapy' is always 'off'")
    none = treated(panel, np.zeros((panel.n_subjects, panel.n_steps), dtype=int))
    assert len(warnings(with_panel(tumor_dataset, TRAIN, treatments=none))) == 2


def test_deterministic_policies_have_weak_overlap():
    """Chemotherapy whenever the tumour is large, and only then; radiotherapy at random."""
    dataset = simulate_tumor(TumorConfig(train=300, gamma=0, test=2, target_test=2), NullReporter())
    panel = dataset.panels[TRAIN]
    coins = np.random.default_rng(0).integers(2, size=(panel.n_subjects, panel.n_steps))
    chosen = (panel.outcomes[..., 0] > np.median(panel.outcomes[panel.observed])) + 2 * coins
    [warning] = warnings(with_panel(dataset, TRAIN, treatments=treated(panel, chosen)))
    assert warning.code == "weak-overlap"
    assert "overlap is weak: given 'tumour_volume', treatment 'chemotherapy' is almost never" in warning.text
    assert "'off' where it is above" in warning.text
    assert "'on' where it is at most" in warning.text


def test_outcome_that_never_changes_is_an_error(tumor_dataset: Dataset):
    panel = tumor_dataset.panels[TRAIN]
    constant = np.where(panel.observed[..., None], np.float32(2), np.float32(0))
    with pytest.raises(DataError, match="outcomes never change: 'tumour_volume'"):
        check_dataset(with_panel(tumor_dataset, TRAIN, outcomes=constant))


def test_outcome_that_never_changes_within_a_subject_is_a_warning(tumor_dataset: Dataset):
    panel = tumor_dataset.panels[TRAIN]
    own = np.arange(1, panel.n_subjects + 1, dtype=np.float32)[:, None, None]
    still = np.where(panel.observed[..., None], own, np.float32(0))
    found = warnings(with_panel(tumor_dataset, TRAIN, outcomes=still))
    [warning] = [finding for finding in found if finding.code == "outcomes-constant-by-subject"]
    assert warning.text == "outcomes never change within a subject: 'tumour_volume'"


def test_series_without_a_complete_horizon_are_an_error_that_names_the_longest(tumor_dataset: Dataset):
    panel = tumor_dataset.panels[TRAIN]

    def cut(steps: int) -> Dataset:
        fields = {name: getattr(panel, name)[:, :steps].copy() for name in ("covariates", "treatments", "outcomes")}
        fields["treatments"][:, -1] = 0
        return with_panel(tumor_dataset, TRAIN, **fields, length=np.minimum(panel.length, steps))

    with pytest.raises(DataError, match="no subject has two observed steps"):
        check_dataset(cut(1))
    with pytest.raises(DataError, match="no subject has the 7 observed steps") as error:
        check_dataset(cut(6))
    assert error.value.fix is not None
    assert "a horizon of at most 5" in error.value.fix
    assert not {"series-too-short", "some-series-short"} & {warning.code for warning in warnings(cut(7))}


def test_constant_statics_are_a_note(tumor_dataset: Dataset):
    statics = np.ones_like(tumor_dataset.panels[TRAIN].statics)
    findings = check_dataset(with_panel(tumor_dataset, TRAIN, statics=statics))
    (note,) = [finding for finding in findings if finding.code == "statics-constant"]
    assert (note.severity, note.text) == ("note", "statics are the same for all subjects: 'patient_type'")


def test_findings_read_well():
    finding = invalid("3 values missing", "row 7", "fill them")
    assert str(finding) == "row 7: 3 values missing (fill them)"
    assert finding.to_json() == {
        "code": "invalid-data",
        "severity": "error",
        "subject": "row 7",
        "text": "3 values missing",
        "fix": "fill them",
    }
    assert shown("abcdefg") == "'a', 'b', 'c', 'd', 'e' and 2 more"
    assert (counted(1, "row"), counted(2, "query", "queries")) == ("1 row", "2 queries")
    assert counted(1951, "row") == "1,951 rows"
    weak, odd = Diagnostic.of("schema-unsure", doubt="weak"), Diagnostic.of("never-treated", untreated=1, subjects=2)
    raise_errors([weak, odd], what="the table")
    with pytest.raises(DataError) as caught:
        raise_errors([finding, weak], what="the table")
    assert (caught.value.problem, caught.value.where, caught.value.fix) == ("3 values missing", "row 7", "fill them")


@pytest.mark.parametrize("part", [Part("source", "train"), Part("source", "val"), Part("target", "test")])
@pytest.mark.parametrize("value", [1e30, -1e9])
def test_values_that_no_unit_explains_are_warned_of_with_their_place(tumor_dataset: Dataset, part: Part, value: float):
    outcomes = tumor_dataset.panels[part].outcomes.copy()
    outcomes[3, 1, 0] = value
    found = warnings(with_panel(tumor_dataset, part, outcomes=outcomes))
    (said,) = [str(finding) for finding in found if finding.code == "outliers"]
    subject = tumor_dataset.panels[part].names[3]
    assert said.startswith(f"{part}: 'tumour_volume' has 1 value more than 1,000,000 sd from the rest: {value:g} ")
    assert f"(subject {subject}, step 1)" in said
