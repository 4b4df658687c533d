"""The semi-synthetic ICU data set: splits, queries with their siblings, and a truth that meets every answer."""

from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data import Dataset, Part, Scaler
from costar_cli.data.findings import not_finite, panel_problems, query_problems
from costar_cli.data.icu.semi_synthetic import MIMIC_SCHEMA, mimic_truth, simulate_mimic
from costar_cli.data.icu.table import IcuTable
from costar_cli.errors import UsageError
from costar_cli.reporting import NullReporter
from tests.datasets.mimic_worlds import (
    SOURCE_TEST,
    SOURCE_TRAIN,
    TARGET_TEST,
    simulate,
    small_config,
    small_table,
)
from tests.datasets.table_worlds import Listener
from tests.shifted_views import exploded, shifted


@pytest.fixture(scope="module")
def table() -> IcuTable:
    return small_table()


@pytest.fixture(scope="module")
def mimic(table: IcuTable) -> Dataset:
    return simulate(table)


def test_data_set_has_the_papers_variables(mimic: Dataset):
    assert mimic.name == "mimic"
    assert mimic.schema.dims == (25, 3, 2, 44)
    assert mimic.schema.treatments.columns == ("t1", "t2", "t3")
    assert mimic.schema.treatments.mode == "multilabel"
    assert [outcome.name for outcome in mimic.schema.outcomes] == ["y1", "y2"]
    assert mimic.schema.step == "hour"
    assert mimic.schema.error_unit.space == "standardized"
    assert mimic.horizon == 5


def test_patients_of_a_domain_have_its_ages_and_parts_share_nobody(mimic: Dataset):
    ids = np.concatenate([panel.subject_id for panel in mimic.panels.values()])
    assert len(np.unique(ids)) == len(ids)
    assert list(mimic.panels) == Part.all()
    for part, panel in mimic.panels.items():
        age = panel.statics[:, -1]
        assert (age > (19 if part.domain == "source" else 85)).all()
        assert (age <= (45 if part.domain == "source" else np.float32(91.4))).all()
        assert (panel.length >= 20).all()
        assert (np.diff(panel.subject_id) > 0).all()


def test_counts_of_every_step_are_told_and_kept(table: IcuTable):
    reporter = Listener()
    dataset = simulate_mimic(small_config(), reporter, table)
    kept = dataset.config["kept"]
    short = int((table.length < 20).sum())
    assert kept["stays"] == 500
    assert kept["shorter than 20 hours"] == short
    left = kept["source"] + kept["target"]
    assert short + kept["without an age"] + kept["outside both age groups"] + left == 500
    sizes = {str(part): panel.n_subjects for part, panel in dataset.panels.items()}
    assert sum(n for part, n in sizes.items() if part.startswith("source")) == kept["source"] - kept.get(
        "source in no part", 0
    )
    assert (
        sum(n for part, n in sizes.items() if part.startswith("target")) == kept["target"] - kept["target in no part"]
    )
    told = " ".join(reporter.notes)
    assert f"{short} shorter than 20 hours" in told
    assert f"{kept['target in no part']} target in no part" in told


def test_panels_and_queries_hold_all_invariants(mimic: Dataset):
    for part, panel in mimic.panels.items():
        assert panel.n_steps == 26
        assert panel_problems(panel, MIMIC_SCHEMA) + not_finite(panel, MIMIC_SCHEMA) == []
        assert not panel.treatments[np.arange(panel.n_subjects), panel.length - 1].any(), "nothing in the last hour"
        for queries in mimic.queries.get(part, {}).values():
            assert query_problems(queries, panel, MIMIC_SCHEMA) == []


def test_only_test_parts_are_asked_about_as_often_as_specified(mimic: Dataset):
    assert set(mimic.queries) == {SOURCE_TEST, TARGET_TEST}
    for part, sets in mimic.queries.items():
        length = mimic.panels[part].length
        assert len(sets["one_step"]) == 8 * int((length - 1).sum())
        assert len(sets["sequence"]) == 4 * int((length - 5).sum())
        assert sets["one_step"].horizon == 1
        assert sets["one_step"].scored.all()
        assert sets["sequence"].horizon == 5
        assert not sets["sequence"].scored[:, 0].any(), "the first step is factual"
        assert sets["sequence"].scored[:, 1:].all()


@pytest.mark.parametrize(("name", "branches"), [("one_step", 8), ("sequence", 4)])
def test_siblings_share_all_but_their_plan_and_its_outcomes(mimic: Dataset, name: str, branches: int):
    """Spec ICU-13 and ICU-14: one history per patient and hour, and one factual first step of sequences."""
    for part, sets in mimic.queries.items():
        queries = sets[name].take(slice(0, 100 * branches))
        view = exploded(mimic.panels[part], queries)
        origin = queries.origin.reshape(-1, branches)
        assert (origin == origin[:, :1]).all()
        assert (np.diff(queries.subject.reshape(-1, branches), axis=1) == 0).all()
        for group, (first, *_) in enumerate(origin):
            rows = slice(group * branches, (group + 1) * branches)
            for values in (view.prev_outputs, view.prev_treatments, view.vitals):
                past = values[rows, : first + 1]
                assert (past == past[:1]).all()
            factual_steps = first + 1 if name == "sequence" else first
            outputs = view.outputs[rows, :factual_steps]
            assert (outputs == outputs[:1]).all()
        plans = queries.plan.reshape(-1, branches, queries.horizon * 3)
        assert all(len(np.unique(plan, axis=0)) == branches for plan in plans) or name == "sequence"


def test_first_steps_of_sequences_are_the_factual_ones(mimic: Dataset):
    for part, sets in mimic.queries.items():
        panel, queries = mimic.panels[part], sets["sequence"]
        assert np.array_equal(queries.plan[:, 0], panel.treatments[queries.subject, queries.origin])
        assert np.array_equal(queries.outcomes[:, 0], panel.outcomes[queries.subject, queries.origin + 1])


def test_treatment_only_lowers_and_without_any_the_outcomes_are_the_untreated_ones(mimic: Dataset):
    """Spec ICU-11."""
    for part, panel in mimic.panels.items():
        untreated = mimic.truth[part]["untreated"]
        assert (panel.outcomes <= untreated.astype(np.float32))[panel.observed].all()
        never = np.zeros((panel.n_subjects, int(panel.length.min()) - 1, 3))
        rows = np.arange(panel.n_subjects)
        answer = mimic_truth(mimic, part, rows, np.zeros_like(rows), never)
        assert np.array_equal(answer, untreated[:, 1 : never.shape[1] + 1])
        assert np.array_equal(panel.outcomes[:, 0], untreated[:, 0].astype(np.float32))
    assert (panel.outcomes < untreated.astype(np.float32) - 1e-3)[panel.observed].mean() > 0.3, "treatments do act"


def test_truth_meets_every_stored_answer_to_the_last_digit(mimic: Dataset):
    for part, sets in mimic.queries.items():
        for queries in sets.values():
            values = mimic.schema.treatments.decode(queries.plan)
            truth = mimic_truth(mimic, part, queries.subject, queries.origin, values)
            assert np.array_equal(truth.astype(np.float32), queries.outcomes)


def test_truth_of_the_factual_treatments_is_the_factual_series(mimic: Dataset):
    for part, panel in mimic.panels.items():
        view = shifted(panel)
        for row in range(0, panel.n_subjects, 5):
            last = int(view.sequence_lengths[row])
            truth = mimic_truth(mimic, part, row, 0, panel.treatments[row, :last])
            assert truth.shape == (last, 2)
            assert np.array_equal(truth.astype(np.float32), view.outputs[row, :last])


@pytest.mark.parametrize(
    ("row", "origin", "steps", "message", "fix"),
    [
        (-1, 0, 1, "rows of target/test go from 0 to", None),
        (0, -1, 1, "origin -1", "choose an origin from 0 to 24"),
        (0, 21, 5, "a plan of 5 hours from origin 21 ends after the stay", "choose an origin from 0 to 20"),
        (0, 0, 26, "a plan of 26 hours", "give a plan of up to 25 hours"),
    ],
)
def test_questions_beyond_the_stay_name_the_allowed_range(
    mimic: Dataset, row: int, origin: int, steps: int, message: str, fix: str | None
):
    row = int(mimic.panels[TARGET_TEST].length.argmax()) if row == 0 else row
    with pytest.raises(UsageError, match=message) as caught:
        mimic_truth(mimic, TARGET_TEST, row, origin, np.zeros((steps, 3)))
    assert caught.value.fix == fix


def test_data_without_truth_says_so(mimic: Dataset):
    with pytest.raises(UsageError, match="no simulated truth of source/test") as caught:
        mimic_truth(replace(mimic, truth={}), SOURCE_TEST, 0, 0, np.zeros((1, 3)))
    assert caught.value.where == "--truth"


def test_same_seed_gives_the_same_data_and_another_seed_other_data(mimic: Dataset):
    again, other = simulate(), simulate(seed=4)
    for part, panel in mimic.panels.items():
        assert np.array_equal(panel.outcomes, again.panels[part].outcomes)
        assert np.array_equal(panel.covariates, again.panels[part].covariates)
    source, others = mimic.panels[SOURCE_TRAIN], other.panels[SOURCE_TRAIN]
    assert not np.isin(source.outcomes[:, 0, 0], others.outcomes[:, 0, 0]).any()


def test_order_of_the_patients_in_the_table_does_not_matter(mimic: Dataset, table: IcuTable):
    order = np.random.default_rng(0).permutation(len(table))
    place, within = table.hours_of(order, int(table.length.max()))
    columns = {name: getattr(table, name)[order] for name in ("subject_id", "gender", "ethnicity", "age", "length")}
    shuffled = simulate(replace(table, **columns, values=table.values[place[within]]))
    for part, panel in mimic.panels.items():
        assert np.array_equal(panel.subject_id, shuffled.panels[part].subject_id)
        assert np.array_equal(panel.outcomes, shuffled.panels[part].outcomes)


def test_changing_target_data_changes_nothing_of_the_source(mimic: Dataset, table: IcuTable):
    """Spec ICU-2, ICU-7 and PANEL-8: imputation, standardisation and functions are learned from source-train."""
    target = np.concatenate([p.subject_id for part, p in mimic.panels.items() if part.domain == "target"])
    hours = np.isin(np.repeat(table.subject_id, table.length), target)
    values = np.where(hours[:, None], table.values * np.float32(7) + np.float32(50), table.values)
    changed = simulate(replace(table, values=values))
    for part, panel in mimic.panels.items():
        same = np.array_equal(panel.covariates, changed.panels[part].covariates)
        assert same == (part.domain == "source")
        if part.domain == "source":
            assert np.array_equal(panel.outcomes, changed.panels[part].outcomes)
            assert np.array_equal(panel.treatments, changed.panels[part].treatments)
    one = Scaler.fit(mimic.panels[SOURCE_TRAIN], MIMIC_SCHEMA)
    other = Scaler.fit(changed.panels[SOURCE_TRAIN], MIMIC_SCHEMA)
    for name, values in one.to_arrays().items():
        assert np.array_equal(values, other.to_arrays()[name])


def test_test_patients_of_the_source_teach_nothing(mimic: Dataset, table: IcuTable):
    hours = np.isin(np.repeat(table.subject_id, table.length), mimic.panels[SOURCE_TEST].subject_id)
    changed = simulate(replace(table, values=np.where(hours[:, None], table.values + np.float32(9), table.values)))
    for part in (SOURCE_TRAIN, TARGET_TEST):
        assert np.array_equal(mimic.panels[part].outcomes, changed.panels[part].outcomes)


def test_centred_functions_keep_treatments_uncertain_whatever_the_seed():
    for seed in (1, 2):
        rates = []
        for center in (True, False):
            panel = simulate(seed=seed, center=center).panels[SOURCE_TRAIN]
            rates.append(panel.treatments.sum(axis=(0, 1)) / (panel.length - 1).sum())
        assert (rates[0] > 0.05).all()
        assert (rates[0] < 0.6).all()
        assert not np.allclose(rates[0], rates[1], atol=0.02)


def test_confounded_treatments_follow_the_outcomes(mimic: Dataset):
    panel = mimic.panels[SOURCE_TRAIN]
    decided = np.arange(panel.n_steps) < panel.length[:, None] - 1
    y1, t1 = panel.outcomes[..., 0][decided], panel.treatments[..., 0][decided]
    assert t1[y1 > np.median(y1)].mean() > 2 * t1[y1 <= np.median(y1)].mean()


def test_sizes_beyond_memory_are_usage_errors(table: IcuTable):
    with pytest.raises(UsageError, match="counterfactual answers, more than 100,000,000"):
        simulate_mimic(small_config(plans_per_origin=1_000, hours=240, horizon=19), NullReporter(), enlarged(table))


def enlarged(table: IcuTable, times: int = 8) -> IcuTable:
    """The same patients several times over, under other identifiers."""
    columns = {name: np.tile(getattr(table, name), times) for name in ("gender", "ethnicity", "age", "length")}
    ids = np.arange(len(table) * times)
    return replace(table, **columns, subject_id=ids, values=np.tile(table.values, (times, 1)))
