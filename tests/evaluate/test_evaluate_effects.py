"""Scores of effects and of distributions under plans, on known answers (spec SCORE-23 to 26)."""

from dataclasses import replace

import numpy as np
import pytest
from evaluate_worlds import candidate, dataset, independent_noise, oracle
from scipy.stats import norm

from costar_cli.config.models import EvaluateConfig
from costar_cli.data import Part, Queries
from costar_cli.data.linear.settings import LinearGaussianConfig
from costar_cli.data.linear.simulate import linear_gaussian_quantiles, linear_gaussian_truth, simulate_linear
from costar_cli.data.registry import limit_of
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor, tumor_limit, tumor_quantiles
from costar_cli.evaluation import run_evaluation
from costar_cli.evaluation.calibration import QUANTILES, crps, wasserstein
from costar_cli.evaluation.effects import EFFECTS, ORDERS, EffectScores, EffectSums
from costar_cli.evaluation.metrics import SquaredErrors
from costar_cli.evaluation.run import part_to_score
from costar_cli.evaluation.sums import LEVELS, columns_of, merged
from costar_cli.reporting import NullReporter

Z = norm.ppf((1 + np.array(LEVELS)) / 2)
PLANS = np.eye(4, dtype=np.uint8)
TEST = Part("target", "test")


def queries(answers_QH, plan_QH, subject=None, origin=None):
    """Queries of one outcome; plans are numbers of treatments."""
    outcomes, n = np.asarray(answers_QH, dtype=np.float32)[..., None], len(answers_QH)
    subject = np.zeros(n) if subject is None else subject
    origin = np.zeros(n) if origin is None else origin
    scored = np.ones(outcomes.shape[:2], dtype=bool)
    asked = np.asarray(subject, np.int32), np.asarray(origin, np.int16)
    return Queries(*asked, PLANS[np.asarray(plan_QH)], outcomes, scored)


def scores(predicted_RQH, asked, *, subjects=1, batch_size=100, denominator=1.0, factor=1.0):
    prediction = np.asarray(predicted_RQH, dtype=np.float32)[..., None]
    shape = {"members": len(prediction), "subjects": subjects, "horizon": asked.horizon, "outcomes": 1}
    sums = EffectSums.zeros(**shape)
    every = np.ones(asked.horizon, dtype=bool)
    sums.add(prediction, asked, steps_H=every, denominator_Y=np.array([denominator]), batch_size=batch_size)
    columns = sums.columns(None)
    return EffectScores.of(columns, SquaredErrors(**columns_of(columns, EFFECTS)), None, factor), columns


FOUR = [[0], [1], [2], [3]]


def test_the_truth_has_no_error_and_every_order_right():
    asked = queries([[4.0], [1.0], [7.0], [2.0]], FOUR)
    found, _ = scores([asked.outcomes[..., 0]], asked)
    assert (found.pehe.average, found.regret.average, found.relative_regret.average) == (0, 0, 0)
    assert (found.sign.average, found.ranking.average, found.effects) == (1, 1, (3,))


def test_a_shift_of_all_plans_of_an_origin_is_no_error_of_an_effect():
    asked = queries([[4.0], [1.0], [7.0], [2.0]], FOUR)
    found, _ = scores([asked.outcomes[..., 0] + 100], asked)
    assert (found.pehe.average, found.ranking.average) == (0, 1)


def test_reversed_ranks_have_no_pair_in_order_and_the_largest_regret():
    asked = queries([[4.0], [1.0], [7.0], [2.0]], FOUR)
    found, _ = scores([-asked.outcomes[..., 0]], asked)
    assert (found.sign.average, found.ranking.average) == (0, 0)
    assert found.regret.average == pytest.approx(7 - 1)
    assert found.relative_regret.average == pytest.approx(6 / (3.5 - 1))


def test_effects_are_against_the_first_plan_and_ranks_over_all_pairs():
    asked = queries([[4.0], [1.0], [7.0], [2.0]], FOUR)  # effects -3, 3, -2
    found, _ = scores([[[0.0], [-1.0], [1.0], [-4.0]]], asked)  # effects -1, 1, -4: the last two pairs swap places
    assert found.pehe.average == pytest.approx(np.sqrt((2**2 + 2**2 + 2**2) / 3))
    assert (found.sign.average, found.ranking.average) == (1, pytest.approx(5 / 6))
    assert found.regret.average == pytest.approx(2 - 1)  # the last plan is taken for the best


def test_what_says_the_same_of_all_plans_is_a_coin():
    asked = queries([[4.0], [1.0], [7.0], [2.0]], FOUR)
    found, _ = scores([np.zeros((4, 1))], asked)
    assert found.pehe.average == pytest.approx(np.sqrt((9 + 9 + 4) / 3))
    assert (found.sign.average, found.ranking.average, found.relative_regret.average) == (0.5, 0.5, 1)


def test_plans_that_are_the_same_so_far_are_no_effect_yet():
    asked = queries([[1.0, 5.0], [1.0, 3.0], [2.0, 2.0]], [[0, 0], [0, 1], [1, 0]])
    _, columns = scores([[[9.0, 0.0], [8.0, 1.0], [7.0, 2.0]]], asked)
    assert columns[f"{EFFECTS}/count"].tolist() == [[1, 2]]
    assert columns[f"{ORDERS}/pairs"].tolist() == [[2, 3]]
    assert columns[f"{ORDERS}/origins"].tolist() == [[1, 1]]


def test_an_origin_with_one_plan_and_an_unscored_answer_count_for_nothing():
    asked = queries([[1.0], [2.0], [3.0]], [[0], [0], [1]], origin=[3, 5, 5])
    asked.scored[2] = False
    asked.outcomes[2] = np.nan
    _, columns = scores([[[0.0], [0.0], [0.0]]], asked)
    assert not any(column.any() for column in columns.values())


def test_members_have_errors_of_their_own_and_the_mean_prediction_has_the_order():
    asked = queries([[0.0], [2.0]], [[0], [1]])
    found, _ = scores([[[0.0], [1.0]], [[0.0], [5.0]]], asked)  # errors 1 and 3, of the mean 1
    assert (found.pehe.average, found.ensemble.average) == (2, 1)


def test_errors_are_in_the_unit_of_the_report():
    asked = queries([[0.0], [2.0]], [[0], [1]])
    found, _ = scores([[[0.0], [-6.0]]], asked, denominator=2.0, factor=10.0)
    assert found.pehe.average == pytest.approx(10 * 8 / 2)
    assert found.regret.average == pytest.approx(10 * 2 / 2)


def random_world(seed=0, subjects=7, most=6, horizon=3):
    rng = np.random.default_rng(seed)
    rows = [(n, t) for n in range(subjects) for t in range(4) for _ in range(rng.integers(1, most))]
    subject, origin = np.array(rows)[rng.permutation(len(rows))].T
    plan = rng.integers(2, size=(len(rows), horizon))
    return queries(rng.integers(4, size=plan.shape), plan, subject, origin), rng.integers(4, size=(2, *plan.shape))


@pytest.mark.parametrize("seed", range(5))
def test_sums_are_those_of_plain_loops_whatever_the_batches(seed):
    asked, predicted = random_world(seed)
    _, columns = scores(predicted, asked, subjects=7, batch_size=4)
    _, whole = scores(predicted, asked, subjects=7)
    for name, column in whole.items():
        np.testing.assert_allclose(columns[name], column, err_msg=name)
    expected = {name: np.zeros((7, 3)) for name in ("pairs", "ordered", "signed", "signs", "squares", "effects")}
    mean, truth = predicted.mean(axis=0), asked.outcomes[..., 0]
    for h in range(3):
        for i in range(len(asked)):
            n = asked.subject[i]
            group = np.flatnonzero((asked.subject == n) & (asked.origin == asked.origin[i]))
            for j in group[group > i]:
                if (asked.plan[i, : h + 1] == asked.plan[j, : h + 1]).all():
                    continue
                true, said = truth[j, h] - truth[i, h], mean[j, h] - mean[i, h]
                right = (0.5 if said == 0 else float(np.sign(said) == np.sign(true))) * (true != 0)
                expected["pairs"][n, h] += true != 0
                expected["ordered"][n, h] += right
                if i == group[0]:
                    expected["signed"][n, h] += true != 0
                    expected["signs"][n, h] += right
                    expected["effects"][n, h] += 1
                    expected["squares"][n, h] += (said - true) ** 2
    for name in ("pairs", "ordered", "signed", "signs"):
        np.testing.assert_allclose(whole[f"{ORDERS}/{name}"], expected[name], err_msg=name)
    np.testing.assert_allclose(whole[f"{EFFECTS}/count"], expected["effects"])
    np.testing.assert_allclose(whole[f"{EFFECTS}/ensemble"][..., 0], expected["squares"], rtol=1e-6)


def test_parts_of_subjects_make_the_whole():
    asked, predicted = random_world()
    _, whole = scores(predicted, asked, subjects=7)
    parts = []
    for own in (range(3), range(3, 7)):
        inside = (asked.subject >= own.start) & (asked.subject < own.stop)
        some = replace(asked.take(inside), subject=asked.subject[inside] - np.int32(own.start))
        parts.append(scores(predicted[:, inside], some, subjects=len(own))[1])
    together = merged(parts)
    assert together.keys() == whole.keys()
    for name, column in whole.items():
        np.testing.assert_array_equal(together[name], column, err_msg=name)


def test_a_report_has_the_scores_and_the_truth_has_none_to_lose():
    data = dataset(subjects=24)
    for sets in data.queries.values():  # plans of the same origin, in groups of four
        for each in sets.values():
            each.origin[:] = np.repeat(each.origin[::4], 4)
    perfect, poor = oracle(data), oracle(data, error=independent_noise(2.0), method="msm")
    report = run_evaluation(data, [candidate(perfect), candidate(poor)], EvaluateConfig(bootstrap=50))
    effects = report.row("zero-shot", "COSTAR").effects
    assert (effects.pehe.average, effects.sign.average, effects.ranking.average) == (pytest.approx(0, abs=1e-5), 1, 1)
    other = report.row("zero-shot", "MSM").effects
    assert other.pehe.average > 1
    assert other.lower.average < other.pehe.average < other.upper.average
    document = next(row for row in report.to_json()["rows"] if row["label"] == "MSM" and "effects" in row)
    assert document["effects"]["pehe"]["average"] == other.pehe.average
    assert type(report).from_json(report.to_json()).row("zero-shot", "MSM").effects == other
    assert {"avg_pehe", "avg_ranking", "avg_w1"} <= report.to_rows()[0].keys()


def bands(mean, sd, finite=19):
    half = np.where(np.arange(len(LEVELS)) < finite, Z, np.inf).reshape(-1, *[1] * np.ndim(mean)) * sd
    return mean - half, mean + half, np.asarray(mean)


def normal_quantiles(mean, sd):
    return mean + sd * norm.ppf(QUANTILES).reshape(-1, *[1] * np.ndim(mean))


def test_crps_of_a_normal_distribution_is_the_closed_form():
    rng = np.random.default_rng(0)
    mean, sd, truth = rng.normal(size=(3, 50, 2, 1))
    sd = np.abs(sd) + 0.5
    z = (truth - mean) / sd
    exact = sd * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert crps(*bands(mean, sd), truth) == pytest.approx(exact, rel=0.05)


def test_w1_of_normal_distributions_is_how_far_they_are_moved():
    mean, sd = np.zeros((4, 1, 1)), np.full((4, 1, 1), 2.0)
    assert wasserstein(*bands(mean, sd), normal_quantiles(mean, sd)) == pytest.approx(0, abs=1e-12)
    assert wasserstein(*bands(mean + 3, sd), normal_quantiles(mean, sd)) == pytest.approx(3)
    # |sd - sd'| E|Z| = 0.798 of sds that differ by one, less what lies beyond the outermost quantiles
    assert wasserstein(*bands(mean, sd + 1), normal_quantiles(mean, sd)) == pytest.approx(np.sqrt(2 / np.pi), rel=0.03)
    sd[0] = 0  # a point: the distance of its sd to the other's
    assert wasserstein(*bands(mean, sd), normal_quantiles(mean, 1.0))[0] == pytest.approx(np.sqrt(2 / np.pi), rel=0.03)


def test_w1_ends_at_the_outermost_band_and_is_unknown_without_any():
    mean, sd = np.zeros((2, 1, 1)), np.ones((2, 1, 1))
    assert np.isfinite(wasserstein(*bands(mean, sd, finite=3), normal_quantiles(mean, sd))).all()
    assert np.isnan(wasserstein(*bands(mean, sd, finite=0), normal_quantiles(mean, sd))).all()


SMALL = {"train": 4, "val": 2, "test": 6, "target_train": 2, "target_val": 2, "target_test": 20}


def asked_of(data, name="sequence"):
    some = data.queries[TEST][name]
    return some, data.schema.treatments.decode(some.plan)


def test_the_linear_system_knows_its_quantiles_in_closed_form():
    data = simulate_linear(LinearGaussianConfig(**SMALL), NullReporter())
    some, plan = asked_of(data)
    shares = np.array([0.025, 0.5, 0.975])
    low, middle, high = linear_gaussian_quantiles(data, TEST, some.subject, some.origin, plan, shares)
    np.testing.assert_allclose(middle, linear_gaussian_truth(data, TEST, some.subject, some.origin, plan))
    one = (high - low)[0, 0] / (2 * norm.ppf(0.975))
    assert one == pytest.approx(0.5)  # the noise of one step
    happened = part_to_score(data, TEST).outcomes_of(some)
    inside = (low <= happened.outcomes[..., 0]) & (happened.outcomes[..., 0] <= high)
    assert inside[happened.scored].mean() == pytest.approx(0.95, abs=0.02)


def test_the_quantiles_of_tumours_lie_about_the_limit_and_cover_what_happens():
    data = simulate_tumor(TumorConfig(gamma=4, steps=30, **{**SMALL, "target_test": 60}), NullReporter())
    some, plan = asked_of(data)
    asked = data, TEST, some.subject, some.origin, plan
    low, middle, high = tumor_quantiles(*asked, np.array([0.05, 0.5, 0.95]))
    assert (low <= middle).all()
    assert (middle <= high).all()
    mean = tumor_limit(*asked)[..., 0]
    assert np.abs(middle - mean).mean() < 0.1 * np.abs(mean).mean()
    truth = some.outcomes[..., 0]
    says = some.scored & (truth > 0) & (truth < data.panels[TEST].outcomes.max())
    assert ((low <= truth) & (truth <= high))[says].mean() == pytest.approx(0.9, abs=0.04)


def test_data_without_a_known_distribution_say_so():
    data = simulate_tumor(TumorConfig(steps=30, visits=3, **SMALL), NullReporter())
    assert limit_of("tumor").quantiles is not None
    assert part_to_score(data, TEST).quantiles is None
    assert limit_of("m5").quantiles is None
