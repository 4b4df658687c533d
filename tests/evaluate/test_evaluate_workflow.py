import csv
import io
import json
from dataclasses import replace

import evaluate_worlds as worlds
import numpy as np
import pytest

from costar_cli.config.models import EvaluateConfig
from costar_cli.data import Part
from costar_cli.errors import MismatchError, TrainingError
from costar_cli.evaluation import EvaluationReport, paired_difference, run_evaluation
from costar_cli.evaluation.score import TestPart, score
from costar_cli.reporting import NullReporter

CONFIG = EvaluateConfig(bootstrap=100)
NAIVE = "Last value carried forward"


def evaluate(data, *models, config=CONFIG, **options):
    return run_evaluation(data, models, config, **options)


def test_an_oracle_scores_zero_at_every_step():
    data = worlds.dataset()
    row = evaluate(data, worlds.candidate(worlds.oracle(data, members=2))).row("supervised", "COSTAR")
    assert row.mean.steps == (0.0,) * 6
    assert (row.mean.average, row.ensemble.average, row.sd.average) == (0.0, 0.0, 0.0)


def test_a_constant_error_comes_out_in_the_error_unit():
    data = worlds.dataset(factor=100 / 50, label="% of V_max")
    report = evaluate(data, worlds.candidate(worlds.oracle(data, error=-1.5)))
    row = report.row("zero-shot", "COSTAR")
    assert row.mean.steps == pytest.approx([3.0] * 6, rel=1e-5)
    assert row.mean.average == pytest.approx(3.0, rel=1e-5)
    assert report.unit.label == "% of V_max"


def test_the_standardized_space_divides_by_the_source_train_sd_and_sums_outcomes():
    data = worlds.dataset(outcomes=2, space="standardized", label="sd")
    model = worlds.oracle(data, error=1.0)
    report = evaluate(data, worlds.candidate(model))
    row = report.row("zero-shot", "COSTAR")
    sd = model.scaler.outcomes[1]
    assert row.mean.steps == pytest.approx([np.sqrt((1 / sd**2).sum())] * 6, rel=1e-5)
    assert [row.outcomes[f"outcome_{y + 1}"].average for y in range(2)] == pytest.approx(1 / sd, rel=1e-5)
    assert report.unit.denominator == pytest.approx(sd)


def test_models_that_standardise_differently_are_not_mixed():
    data = worlds.dataset(space="standardized")
    model = worlds.oracle(data)
    other = replace(model, scaler=replace(model.scaler, outcomes=2 * model.scaler.outcomes))
    with pytest.raises(MismatchError, match="standardise outcomes differently"):
        evaluate(data, worlds.candidate(model), worlds.candidate(other, name="other"))


def test_mean_and_sd_are_over_members_and_the_average_is_per_member():
    data = worlds.dataset()
    model = worlds.oracle(data, members=3, error=lambda member, *_: [1.0, 2.0, 6.0][member])
    row = evaluate(data, worlds.candidate(model)).row("zero-shot", "COSTAR")
    assert row.mean.steps == pytest.approx([3.0] * 6, rel=1e-5)
    assert row.sd.steps == pytest.approx([np.std([1, 2, 6], ddof=1)] * 6, rel=1e-5)
    assert row.sd.average == pytest.approx(np.std([1, 2, 6], ddof=1), rel=1e-5)
    assert [m.average for m in row.members] == pytest.approx([1.0, 2.0, 6.0], rel=1e-5)
    assert row.ensemble.average == pytest.approx(3.0, rel=1e-5)


def test_one_member_has_no_sd():
    data = worlds.dataset()
    row = evaluate(data, worlds.candidate(worlds.oracle(data))).row("zero-shot", "COSTAR")
    assert row.sd is None


def test_the_ensemble_mean_beats_the_mean_member_when_errors_are_independent():
    data = worlds.dataset()
    model = worlds.oracle(data, members=4, error=worlds.independent_noise(1.0))
    row = evaluate(data, worlds.candidate(model)).row("zero-shot", "COSTAR")
    assert all(e < 0.65 * m for e, m in zip(row.ensemble.steps, row.mean.steps, strict=True))
    assert row.ensemble.average == pytest.approx(row.mean.average / 2, rel=0.15)


def test_rows_are_ordered_by_setup_with_naive_and_published_beside_ours():
    data = worlds.dataset()
    model = worlds.oracle(data)
    report = evaluate(data, worlds.candidate(model, "target"), worlds.candidate(model))
    assert [(row.setup, row.label, row.basis) for row in report.rows] == [
        (setup, label, basis)
        for setup in ("zero-shot", "few-shot", "supervised")
        for label, basis in (("COSTAR", "ours"), (NAIVE, "naive"), ("COSTAR", "published, different protocol"))
    ]
    published = report.rows[2]
    assert published.mean.average == pytest.approx(0.9027, abs=1e-4)
    assert published.truth is None


def test_a_cohort_of_another_size_has_no_published_rows():
    data = worlds.dataset()
    smaller = replace(data, config={**data.config, "train": 300})
    report = evaluate(smaller, worlds.candidate(worlds.oracle(data)))
    assert {row.basis for row in report.rows} == {"ours", "naive"}


def test_data_that_the_paper_does_not_know_have_no_published_rows():
    data = worlds.dataset(name="my-cohort")
    report = evaluate(data, worlds.candidate(worlds.oracle(data)))
    assert {row.basis for row in report.rows} == {"ours", "naive"}


def test_each_setup_records_the_labels_that_its_model_has_seen():
    data = worlds.dataset()
    model = worlds.oracle(data)
    report = evaluate(data, worlds.candidate(model), worlds.candidate(model, "target"))
    assert report.row("zero-shot", "COSTAR").provenance.labelled_target_subjects == 0
    assert report.row("few-shot", "COSTAR").provenance.labelled_target_subjects == 3
    assert report.row("few-shot", "COSTAR").provenance.trained_on == {
        "source/train": 10,
        "source/val": 10,
        "target/train": 3,
    }


def test_a_zero_shot_model_that_has_seen_target_labels_is_called_out():
    data = worlds.dataset()
    leaky = worlds.candidate(worlds.oracle(data), trained_on={"source/train": 10, "target/train": 4})
    reporter = NullReporter()
    report = evaluate(data, leaky, config=EvaluateConfig(bootstrap=0), reporter=reporter)
    assert report.warnings == ("COSTAR in zero-shot has seen 4 labelled target subjects",)
    assert reporter.warnings == list(report.warnings)


def test_data_of_another_digest_are_a_warning_and_recorded():
    data = worlds.dataset()
    model = worlds.oracle(data)
    reporter = NullReporter()
    config = EvaluateConfig(bootstrap=0)
    report = evaluate(data, worlds.candidate(model, digest="e" * 64), config=config, reporter=reporter)
    assert len(reporter.warnings) == 1
    assert "trained on another data set (eeeeeeee) than this one (dddddddd)" in reporter.warnings[0]
    assert report.warnings == tuple(reporter.warnings)
    assert report.row("zero-shot", "COSTAR").provenance.same_data is False
    assert evaluate(data, worlds.candidate(model)).row("zero-shot", "COSTAR").provenance.same_data is True


def test_rows_say_what_was_scored_and_against_which_truth():
    data = worlds.dataset(subjects=12)
    row = evaluate(data, worlds.candidate(worlds.oracle(data))).row("zero-shot", "COSTAR")
    assert row.truth == "counterfactual"
    assert row.query_sets == ("one_step", *["sequence"] * 5)
    assert row.scored == (12 * 12, *[12 * 8] * 5)
    assert (row.subjects, row.test) == (12, "target/test")


def test_factual_and_counterfactual_answers_get_rows_of_their_own():
    data = worlds.dataset()
    part = Part("target", "test")
    sets = dict(data.queries[part]) | {"rolling_origin": worlds.factual_queries(data.panels[part], 6)}
    data = replace(data, queries={part: sets})
    report = evaluate(data, worlds.candidate(worlds.oracle(data, error=1.0)))
    ours = [row for row in report.rows if row.basis == "ours"]
    assert [(row.truth, row.query_sets[0]) for row in ours] == [
        ("counterfactual", "one_step"),
        ("factual", "rolling_origin"),
    ]
    assert report.row("zero-shot", "COSTAR", "factual") is ours[1]


def test_a_diverged_model_is_a_clear_error_that_names_the_query_set():
    data = worlds.dataset()
    with pytest.raises(TrainingError, match="not finite") as caught:
        evaluate(data, worlds.candidate(worlds.oracle(data, error=np.nan)))
    assert caught.value.where.startswith("costar, query set one_step; first: member 1")


def test_foreign_models_are_turned_away_before_anything_is_scored():
    data = worlds.dataset()
    with pytest.raises(MismatchError, match="model COSTAR is incompatible with data set tumor"):
        evaluate(data, worlds.candidate(replace(worlds.oracle(data), schema=worlds.schema(outcomes=2))))


@pytest.mark.parametrize("chunk_bytes", [1, 3000, 10**9])
@pytest.mark.parametrize("batch_size", [1, 7, 16_384])
def test_batches_and_chunks_do_not_change_the_score(chunk_bytes, batch_size):
    data = worlds.dataset()
    part = Part("target", "test")
    test_part = TestPart.of(data.panels[part], data.queries[part], data.horizon)
    model = worlds.oracle(data, members=2, error=worlds.independent_noise(1.0))
    options = {"denominator_Y": np.ones(1), "task": _Silent()}
    whole = score(model, test_part, batch_size=10**6, **options)["counterfactual"]
    parts = score(model, test_part, batch_size=batch_size, chunk_bytes=chunk_bytes, **options)["counterfactual"]
    assert parts.members == pytest.approx(whole.members, rel=1e-12)
    assert parts.ensemble == pytest.approx(whole.ensemble, rel=1e-12)
    assert (parts.count == whole.count).all()


class _Silent:
    def advance(self, units=1, **metrics):
        pass


def test_progress_adds_up_to_the_announced_total():
    data = worlds.dataset()
    model = worlds.oracle(data)
    seen = []

    class Counting(NullReporter):
        def task(self, title, *, total=None, done=0, unit="step"):
            seen.append(total)
            return super().task(title, total=total)

    part = TestPart.of(data.panel("target", "test"), data.queries["target", "test"], data.horizon)
    evaluate(data, worlds.candidate(model), worlds.candidate(model, "target"), reporter=Counting())
    assert seen == [5 * part.n_queries]  # zero-shot, few-shot, supervised, and naive on two test parts


def test_evaluation_is_deterministic():
    data = worlds.dataset()
    model = worlds.candidate(worlds.oracle(data, members=2, error=worlds.independent_noise(1.0)))
    assert evaluate(data, model).to_json() == evaluate(data, model).to_json()


def test_interval_surrounds_the_mean_and_can_be_switched_off():
    data = worlds.dataset(subjects=24)
    model = worlds.candidate(worlds.oracle(data, members=2, error=worlds.independent_noise(1.0)))
    row = evaluate(data, model).row("zero-shot", "COSTAR")
    assert row.lower.average < row.mean.average < row.upper.average
    off = evaluate(data, model, config=EvaluateConfig(bootstrap=0)).row("zero-shot", "COSTAR")
    assert (off.lower, off.upper) == (None, None)


def test_two_methods_can_be_compared_without_scoring_again():
    data = worlds.dataset(subjects=24)
    good = worlds.oracle(data, error=worlds.independent_noise(1.0))
    bad = replace(good, error=worlds.independent_noise(1.3), method="crn")
    report = evaluate(data, worlds.candidate(good), worlds.candidate(bad))
    first, second = (report.errors_of("zero-shot", label) for label in ("COSTAR", "CRN"))
    found = paired_difference(first, second, level=0.95, replicates=200, seed=0)
    assert found.average < 0
    assert found.interval.average[1] < 0


def test_report_survives_json():
    data = worlds.dataset(outcomes=2, space="standardized")
    model = worlds.oracle(data, members=2, error=worlds.independent_noise(1.0))
    report = evaluate(data, worlds.candidate(model), worlds.candidate(model, "target"))
    text = json.dumps(report.to_json(), allow_nan=False)
    assert EvaluationReport.from_json(json.loads(text)) == report


def test_csv_holds_one_line_per_row_with_the_values_of_the_report():
    data = worlds.dataset()
    model = worlds.oracle(data, members=2, error=worlds.independent_noise(1.0))
    report = evaluate(data, worlds.candidate(model))
    lines = list(csv.DictReader(io.StringIO(report.to_csv())))
    assert len(lines) == len(report.rows)
    for line, row in zip(lines, report.to_rows(), strict=True):
        written = {"dataset": report.dataset, **row, "unit": report.unit.label}
        assert {key: "" if value is None else str(value) for key, value in written.items()} == line
    assert (lines[0]["dataset"], list(lines[0])[-1]) == (report.dataset, "unit")
    ours = lines[0]
    assert (ours["setup"], ours["label"], ours["members"]) == ("zero-shot", "COSTAR", "2")
    assert float(ours["tau1_mean"]) == report.rows[0].mean.steps[0]
    assert lines[2]["tau1_lower"] == ""


def test_predictions_are_bounded_and_each_subject_is_encoded_once_per_query_set():
    data = worlds.dataset()
    part = Part("target", "test")
    test_part = TestPart.of(data.panels[part], data.queries[part], data.horizon)
    model = worlds.oracle(data, members=2)
    calls = []

    class Watching:
        def __getattr__(self, name):
            return getattr(model, name)

        def rollout(self, panel, queries, **options):
            prediction = model.rollout(panel, queries, **options)
            calls.append((queries.horizon, prediction.nbytes, panel.subject_id.tolist()))
            return prediction

    score(Watching(), test_part, denominator_Y=np.ones(1), batch_size=16, task=_Silent(), chunk_bytes=1500)
    assert max(size for _, size, _ in calls) <= 1500
    assert len(calls) > 4
    for horizon in (1, 6):
        encoded = [subject for tau, _, subjects in calls for subject in subjects if tau == horizon]
        assert encoded == data.panels[part].subject_id.tolist()
