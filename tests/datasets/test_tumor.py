"""The tumour data set: six parts, child seeds, queries on the test parts, and a truth that meets their answers."""

import time
from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data import Dataset, Part
from costar_cli.data.findings import not_finite, panel_problems, query_problems
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import TUMOR_SCHEMA, simulate_tumor, tumor_truth
from costar_cli.errors import UsageError
from costar_cli.evaluation.published import is_published_data
from costar_cli.reporting import NullReporter
from tests.shifted_views import exploded, shifted

SOURCE_TEST, TARGET_TEST = Part("source", "test"), Part("target", "test")


def simulate(**settings: object) -> Dataset:
    sizes = {"train": 15, "val": 5, "test": 6, "target_train": 4, "target_val": 5, "target_test": 6, "steps": 15}
    return simulate_tumor(TumorConfig(**{**sizes, "seed": 1, **settings}), NullReporter())


def test_parts_have_their_sizes_and_consecutive_unique_ids(tumor_dataset: Dataset):
    sizes = {str(part): panel.n_subjects for part, panel in tumor_dataset.panels.items()}
    assert list(sizes.values()) == [40, 12, 8, 6, 7, 9]
    assert list(tumor_dataset.panels) == Part.all()
    ids = np.concatenate([panel.subject_id for panel in tumor_dataset.panels.values()])
    assert np.array_equal(ids, np.arange(82))


def test_data_set_says_what_it_is(tumor_dataset: Dataset, tumor_config: TumorConfig):
    assert tumor_dataset.schema.dims == (0, 4, 1, 1)
    assert tumor_dataset.schema.treatments.columns == (
        "none",
        "chemotherapy",
        "radiotherapy",
        "chemotherapy+radiotherapy",
    )
    assert tumor_dataset.horizon == 6
    assert TumorConfig.model_validate(tumor_dataset.config) == tumor_config
    assert tumor_dataset.schema.error_unit.factor == pytest.approx(100 / 1150.34651)


def test_panels_and_queries_hold_all_invariants(tumor_dataset: Dataset):
    for part, panel in tumor_dataset.panels.items():
        assert panel.n_steps == 20
        assert panel_problems(panel, TUMOR_SCHEMA) + not_finite(panel, TUMOR_SCHEMA) == []
        assert not panel.treatments[np.arange(panel.n_subjects), panel.length - 1].any(), "no treatment on the last day"
        for queries in tumor_dataset.queries.get(part, {}).values():
            assert query_problems(queries, panel, TUMOR_SCHEMA) == []


def test_only_test_parts_have_queries_one_per_option_and_day(tumor_dataset: Dataset):
    assert set(tumor_dataset.queries) == {SOURCE_TEST, TARGET_TEST}
    for part, sets in tumor_dataset.queries.items():
        days = int((tumor_dataset.panels[part].length - 1).sum())
        assert {name: len(queries) for name, queries in sets.items()} == {"one_step": 4 * days, "sequence": 10 * days}
        one_step, sequence = sets["one_step"], sets["sequence"]
        assert one_step.horizon == 1
        assert one_step.scored.all()
        assert sequence.horizon == 6
        assert not sequence.scored[:, 0].any(), "the first step is factual"
        assert sequence.scored[:, 1:].all()


def test_first_steps_of_sequences_are_the_factual_ones(tumor_dataset: Dataset):
    for part, sets in tumor_dataset.queries.items():
        panel, queries = tumor_dataset.panels[part], sets["sequence"]
        subject, origin = queries.subject, queries.origin
        assert np.array_equal(queries.plan[:, 0], panel.treatments[subject, origin])
        assert np.array_equal(queries.outcomes[:, 0], panel.outcomes[subject, origin + 1])


def test_siblings_share_all_but_their_plan_and_its_outcome(tumor_dataset: Dataset):
    """Spec TUMOR-9 and TUMOR-10: per patient and day, 4 one-step and 10 sequence rows with one history."""
    for part, sets in tumor_dataset.queries.items():
        for name, branches in (("one_step", 4), ("sequence", 10)):
            queries = sets[name]
            groups = np.arange(len(queries)).reshape(-1, branches)
            view = exploded(tumor_dataset.panels[part], queries)
            for values in (view.prev_outputs, view.prev_treatments):
                for group in groups[:: max(1, len(groups) // 10)]:
                    past = slice(0, int(queries.origin[group[0]]) + 1)
                    assert (values[group, past] == values[group[:1], past]).all()
            assert (np.diff(queries.subject.reshape(-1, branches)) == 0).all()
            assert (np.diff(queries.origin.reshape(-1, branches)) == 0).all()
            plans = queries.plan.reshape(len(groups), branches, -1)
            assert all(len(np.unique(plan, axis=0)) == branches for plan in plans[:50]), "the options differ"


def test_more_treatment_never_grows_the_tumour_one_step_ahead(tumor_dataset: Dataset):
    for sets in tumor_dataset.queries.values():
        queries = sets["one_step"]
        option = queries.plan[:, 0].argmax(axis=-1).reshape(-1, 4)
        volume = np.take_along_axis(queries.outcomes[:, 0, 0].reshape(-1, 4), option.argsort(axis=1), axis=1)
        none, chemo, radio, both = volume.T
        assert ((chemo <= none) & (radio <= none) & (both <= chemo) & (both <= radio)).all()


@pytest.mark.parametrize("plans", ["sliding", "random"])
@pytest.mark.parametrize("paired", [0, 1])
def test_truth_meets_every_stored_answer(plans: str, paired: int):
    dataset = simulate(plans=plans, paired=bool(paired), horizon=4)
    for part, sets in dataset.queries.items():
        for queries in sets.values():
            values = dataset.schema.treatments.decode(queries.plan)
            truth = tumor_truth(dataset, part, queries.subject, queries.origin, values)
            assert np.allclose(truth, queries.outcomes[..., 0], rtol=1e-5, atol=0)


def test_truth_of_the_factual_treatments_is_the_factual_series(tumor_dataset: Dataset):
    for part, panel in tumor_dataset.panels.items():
        view = shifted(panel)
        for row in range(panel.n_subjects):
            last = int(view.sequence_lengths[row])
            values = TUMOR_SCHEMA.treatments.decode(panel.treatments[row, :last])
            truth = tumor_truth(tumor_dataset, part, row, 0, values)
            assert truth.shape == (last,)
            assert np.allclose(truth, view.outputs[row, :last, 0], rtol=1e-5, atol=0)


def test_truth_goes_on_beyond_the_observed_days_and_stays_at_an_end(tumor_dataset: Dataset):
    panel = tumor_dataset.panels[TARGET_TEST]
    untreated = np.zeros((6, 2), dtype=int)
    for row in range(panel.n_subjects):
        last = int(panel.length[row] - 1)
        volume = tumor_truth(tumor_dataset, TARGET_TEST, row, last, untreated)
        if last < panel.n_steps - 1:
            assert (volume == volume[0]).all()
            assert volume[0] == pytest.approx(panel.outcomes[row, last, 0])
        else:
            assert (volume > 0).all()
    ended = panel.length < panel.n_steps
    assert ended.any()
    assert not ended.all(), "the test sees both"


@pytest.mark.parametrize(
    ("row", "origin", "steps", "message"),
    [
        (9, 0, 1, "rows of target/test go from 0 to 8"),
        (0, -1, 1, "origin -1 is outside"),
        (0, 20, 1, "origin 20 is outside"),
        (0, 19, 7, "goes on for 6 steps"),
    ],
)
def test_questions_beyond_the_simulation_name_the_allowed_range(
    tumor_dataset: Dataset, row: int, origin: int, steps: int, message: str
):
    panel = tumor_dataset.panels[TARGET_TEST]
    row = int(panel.length.argmax()) if row == 0 else row
    with pytest.raises(UsageError, match=message):
        tumor_truth(tumor_dataset, TARGET_TEST, row, origin, np.zeros((steps, 2)))


def test_data_without_truth_says_so(tumor_dataset: Dataset):
    observed = replace(tumor_dataset, truth={})
    with pytest.raises(UsageError, match="no simulated truth of source/test") as caught:
        tumor_truth(observed, SOURCE_TEST, 0, 0, np.zeros((1, 2)))
    assert caught.value.where == "--truth"


def test_same_seed_gives_the_same_data_and_another_seed_other_data():
    first, again, other = simulate(), simulate(), simulate(seed=2)
    for part, panel in first.panels.items():
        assert np.array_equal(panel.outcomes, again.panels[part].outcomes)
        assert not np.array_equal(panel.outcomes, other.panels[part].outcomes)


def test_unpaired_parts_have_their_own_patients_and_noise():
    dataset = simulate()
    for name in ("initial_volume_cm3", "rho", "growth_noise", "recovery_uniform"):
        first = [truth[name][:4] for truth in dataset.truth.values()]
        for i, values in enumerate(first):
            assert not any(np.isclose(values, other).any() for other in first[:i]), name


def test_paired_domains_share_patients_and_noise_and_differ_in_policy():
    dataset = simulate(paired=True, gamma=8.0)
    for split in ("train", "val", "test"):
        source, target = Part("source", split), Part("target", split)
        n = min(dataset.panels[source].n_subjects, dataset.panels[target].n_subjects)
        for name, values in dataset.truth[source].items():
            assert np.array_equal(values[:n], dataset.truth[target][name][:n]), name
        ours, theirs = dataset.panels[source], dataset.panels[target]
        assert np.array_equal(ours.statics[:n], theirs.statics[:n])
        assert np.array_equal(ours.outcomes[:n, 0], theirs.outcomes[:n, 0])
        assert not np.array_equal(ours.treatments[:n], theirs.treatments[:n])


def test_size_of_one_part_does_not_change_the_others():
    small, large = simulate(), simulate(train=30)
    for part in (SOURCE_TEST, TARGET_TEST):
        assert np.array_equal(small.panels[part].outcomes, large.panels[part].outcomes)
        assert np.array_equal(small.queries[part]["sequence"].outcomes, large.queries[part]["sequence"].outcomes)


def test_confounded_source_treats_large_tumours_and_target_treats_at_random():
    dataset = simulate(train=300, target_train=300, steps=40)

    def share_treated(part: Part, low: float, high: float) -> float:
        panel = dataset.panels[part]
        decided = np.arange(panel.n_steps) < panel.length[:, None] - 1
        volume = panel.outcomes[..., 0]
        chosen = decided & (volume >= low) & (volume < high)
        return float(panel.treatments[chosen][:, 1:].sum(axis=1).mean())

    source, target = Part("source", "train"), Part("target", "train")
    assert share_treated(source, 300, 2000) > 5 * share_treated(source, 0, 5)
    assert share_treated(target, 300, 2000) == pytest.approx(0.75, abs=0.08)
    assert share_treated(target, 0, 5) == pytest.approx(0.75, abs=0.02)


def test_sizes_beyond_memory_are_usage_errors():
    with pytest.raises(UsageError, match="up to 354,000,000 counterfactual answers"):
        simulate(test=99_999, target_test=1, steps=60, horizon=6)


def test_progress_counts_patients():
    class Counting(NullReporter):
        total = done = 0

        def task(self, title, *, total=None, done=0, unit="step"):
            self.total = total
            return super().task(title, total=total, done=done, unit=unit)

    reporter = Counting()
    simulate_tumor(TumorConfig(train=3, val=2, test=1, target_train=1, target_val=1, target_test=1, steps=5), reporter)
    assert reporter.total == 9


def test_paper_size_takes_seconds():
    start = time.process_time()
    dataset = simulate_tumor(TumorConfig(), NullReporter())
    assert time.process_time() - start < 10  # half a second on an idle core
    sizes = [len(queries) for sets in dataset.queries.values() for queries in sets.values()]
    assert min(sizes) > 190_000
    assert 480_000 < max(sizes) < 590_001


def test_a_hidden_confounder_changes_who_is_treated_and_is_kept_as_truth():
    plain, hidden = simulate(), simulate(drop_confounder=True)
    assert hidden.config["drop_confounder"] is True
    assert "drop_confounder" not in plain.config
    part = Part("source", "train")
    np.testing.assert_array_equal(hidden.truth[part]["rho"], plain.truth[part]["rho"])
    np.testing.assert_array_equal(hidden.truth[part]["hidden_confounder"] > 0, plain.truth[part]["rho"] > 0.00536)
    assert hidden.schema == plain.schema
    one_step = hidden.queries[SOURCE_TEST]["one_step"]
    answered = tumor_truth(
        hidden, SOURCE_TEST, one_step.subject, one_step.origin, TUMOR_SCHEMA.treatments.decode(one_step.plan)
    )
    np.testing.assert_allclose(answered.ravel(), one_step.outcomes.ravel(), rtol=1e-6)
    assert not is_published_data("tumor", {**TumorConfig().model_dump(), "drop_confounder": True})


def test_ends_are_death_at_the_largest_volume_and_recovery_at_none_and_change_nothing_else() -> None:
    plain, kept = simulate(target_train=60, steps=60), simulate(target_train=60, steps=60, ends=True)
    assert "ends" not in plain.config
    assert "ends" not in plain.schema.model_dump()
    assert kept.schema.terminal == {1: "death", 2: "recovery"}
    for part, panel in kept.panels.items():
        last_N = panel.outcomes[np.arange(panel.n_subjects), panel.length - 1, 0]
        np.testing.assert_array_equal(panel.ends, np.where(last_N <= 0, 2, np.where(last_N > 1_150, 1, 0)))
        np.testing.assert_array_equal(panel.outcomes, plain.panels[part].outcomes)
        assert plain.panels[part].end is None
    assert (kept.panel("target", "train").ends == 2).sum() > 10
