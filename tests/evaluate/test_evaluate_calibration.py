"""Scores of bands, where the distribution is known: a normal one, whose bands keep their level by construction."""

import numpy as np
import pytest
from scipy.stats import norm

from costar_cli.evaluation.calibrated import band_summary
from costar_cli.evaluation.calibration import add_answers, crps, interval_scores, pit_bins, share_over_subjects
from costar_cli.evaluation.sums import BINS, LEVELS, REPORTED, blank, columns_of

FOLDER = "bands/scores/factual"
Z = norm.ppf((1 + np.array(LEVELS)) / 2)


def normal_bands(mean, sd):
    half = Z.reshape(-1, *[1] * np.ndim(mean)) * sd
    return mean - half, mean + half


def world(subjects=400, queries=4, horizon=3, outcomes=2, seed=0, spread=1.0):
    """Answers of a normal model that thinks its sd `spread` times as large as it is."""
    rng = np.random.default_rng(seed)
    shape = subjects * queries, horizon, outcomes
    mean, sd = rng.normal(10, 5, shape), rng.uniform(1, 3, shape)
    truth = rng.normal(mean, sd)
    return np.repeat(np.arange(subjects), queries), truth, mean, sd * spread


def scored(subject, truth, mean, sd, *, informative=None, groups=None, sizes=None, denominator=(1.0, 1.0), n=None):
    shape = {"N": n or int(subject.max()) + 1, "H": truth.shape[1]}
    sums = blank(FOLDER, **shape)
    for name, size in (sizes or {}).items():
        sums |= blank(f"{FOLDER}/groups/{name}", **shape, G=size)
    every = np.ones(truth.shape, dtype=bool)
    add_answers(
        sums,
        FOLDER,
        subject,
        truth,
        mean,
        lambda rows: normal_bands(mean[rows], sd[rows]),
        scored_QHY=every,
        informative_QHY=every if informative is None else informative,
        denominator_Y=np.array(denominator),
        groups=groups,
    )
    return columns_of(sums, FOLDER) | {name: columns_of(sums, f"{FOLDER}/groups/{name}") for name in sizes or {}}


def test_a_normal_model_covers_its_level_and_its_pit_is_uniform():
    sums = scored(*world(subjects=2_000))
    coverage_K = sums["coverage"].mean(axis=(1, 2))
    assert coverage_K == pytest.approx(REPORTED, abs=0.01)
    assert (sums["reliability"] / 2_000).mean(axis=1) == pytest.approx(LEVELS, abs=0.015)
    assert sums["pit"].mean(axis=1) / 2_000 == pytest.approx(np.full(BINS, 1 / BINS), abs=0.004)
    assert sums["pit"].sum(axis=0) == pytest.approx([2_000] * 3)


def test_bands_that_are_too_narrow_cover_too_little_and_heap_the_pit_at_its_ends():
    sums = scored(*world(spread=0.5))
    expected = 2 * norm.cdf(norm.ppf((1 + np.array(REPORTED)) / 2) / 2) - 1
    assert sums["coverage"].mean(axis=(1, 2)) == pytest.approx(expected, abs=0.03)
    share_B = sums["pit"].mean(axis=1) / len(sums["count"])
    assert share_B[[0, -1]] == pytest.approx(norm.cdf(norm.ppf(0.025) / 2), abs=0.02)
    assert share_B[BINS // 2] < 1 / BINS


def test_the_crps_is_that_of_the_closed_form():
    mean, sd = np.zeros((1, 1, 1)), np.full((1, 1, 1), 2.0)
    for z in (-4.0, -1.0, 0.0, 0.3, 2.5):
        truth = mean + z * sd
        found = crps(*normal_bands(mean, sd), mean, truth)
        exact = 2 * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
        assert found.item() == pytest.approx(exact, rel=0.02)


def test_the_crps_of_a_certain_prediction_is_its_absolute_error():
    mean, truth = np.zeros((1, 1, 1)), np.full((1, 1, 1), 3.0)
    same = np.zeros((len(LEVELS), 1, 1, 1))
    assert crps(same, same, mean, truth).item() == pytest.approx(3.0)


def test_a_level_without_a_band_is_passed_over_by_the_crps():
    mean, sd = np.zeros((1, 1, 1)), np.ones((1, 1, 1))
    lower, upper = normal_bands(mean, sd)
    known = crps(lower, upper, mean, mean).item()
    lower[-2:], upper[-2:] = -np.inf, np.inf
    assert crps(lower, upper, mean, mean).item() == pytest.approx(known, rel=0.1)
    lower[:], upper[:] = -np.inf, np.inf
    assert np.isnan(crps(lower, upper, mean, mean)).all()


def test_the_interval_score_is_the_width_and_a_penalty_for_a_miss():
    lower, upper = np.zeros((len(LEVELS), 1, 1, 1)), np.full((len(LEVELS), 1, 1, 1), 2.0)
    at = LEVELS.index(0.8)
    for truth, expected in ((1.0, 2.0), (2.0, 2.0), (2.5, 2 + 10 * 0.5), (-1.0, 2 + 10 * 1.0)):
        assert interval_scores(lower, upper, np.full((1, 1, 1), truth))[at].item() == pytest.approx(expected)


def test_an_answer_on_coinciding_bounds_spreads_over_their_bins():
    lower, upper = normal_bands(np.ones((1, 1, 1)), np.full((1, 1, 1), 1.0))
    lower = lower.clip(min=0)  # the bands from 0.7 on end at zero
    touching = int((lower == 0).sum())
    first, last = pit_bins(lower, upper, np.ones((1, 1, 1)), np.zeros((1, 1, 1)))
    assert (first.item(), last.item()) == (0, touching)
    inside = pit_bins(lower, upper, np.ones((1, 1, 1)), np.full((1, 1, 1), 1.001))
    assert [part.item() for part in inside] == [BINS // 2, BINS // 2]


def test_every_subject_counts_once_however_often_it_is_asked_about():
    subject = np.array([0] * 99 + [1])
    truth = np.where(subject == 0, 0.0, 100.0)[:, None, None]
    mean, sd = np.zeros_like(truth), np.ones_like(truth)
    sums = scored(subject, truth, mean, sd, denominator=[1.0])
    share = share_over_subjects(sums["coverage"][-1], sums["mass"], np.arange(2))[0]
    assert share.average == pytest.approx(0.5)
    assert sums["count"].tolist() == [[99], [1]]


def test_answers_that_say_nothing_are_summed_apart():
    subject, truth, mean, sd = world(subjects=50, outcomes=1)
    dead = np.zeros(truth.shape, dtype=bool)
    dead[1::4] = True
    truth[dead] = mean[dead]  # every band covers them
    sums = scored(subject, truth, mean, sd, informative=~dead, denominator=[1.0])
    alone = scored(subject[~dead[:, 0, 0]], *(x[~dead[:, 0, 0]] for x in (truth, mean, sd)), denominator=[1.0])
    assert sums["coverage"] == pytest.approx(alone["coverage"])
    assert sums["crps"] == pytest.approx(alone["crps"])
    assert (sums["absorbed"] == 1).all()
    assert (sums["absorbed_coverage"] == 1).all()


def test_widths_and_scores_are_in_the_denominators_units():
    subject, truth, mean, sd = world(subjects=50)
    one, tenth = scored(subject, truth, mean, sd), scored(subject, truth, mean, sd, denominator=[10.0, 10.0])
    for name in ("width", "score", "crps"):
        assert tenth[name] == pytest.approx(one[name] / 10)
    assert tenth["coverage"] == pytest.approx(one["coverage"])


def test_groups_have_coverage_and_error_of_their_own():
    subject, truth, mean, sd = world(outcomes=1)
    hard = np.arange(len(subject)) % 4 == 3  # one query of each subject, where the model is too sure of itself
    sd[hard] /= 3
    group = np.where(np.arange(len(subject)) % 4 == 0, -1, hard.astype(int))[:, None, None]
    sums = scored(subject, truth, mean, sd, groups={"kind": group}, sizes={"kind": 2}, denominator=[1.0])
    found = sums["kind"]
    assert (found["subjects"] == 400).all()
    easy, difficult = found["coverage"][REPORTED.index(0.9)].mean(axis=-1) / 400
    assert easy == pytest.approx(0.9, abs=0.02)
    assert difficult == pytest.approx(2 * norm.cdf(1.645 / 3) - 1, abs=0.04)
    error = (truth - mean)[hard][:, 0, 0]
    assert found["squares"][1, 0] == pytest.approx((error**2).sum())


def test_large_query_sets_are_scored_in_batches_alike(monkeypatch):
    asked = world(subjects=30)
    whole = scored(*asked)
    monkeypatch.setattr("costar_cli.evaluation.calibration._BATCH", 7)
    parts = scored(*asked)
    for name in ("coverage", "width", "score", "crps", "reliability", "pit"):
        assert parts[name] == pytest.approx(whole[name])


@pytest.mark.parametrize("per_cluster", [1, 4])
def test_the_interval_of_a_coverage_holds_the_true_one_as_often_as_it_says(per_cluster):
    """Subjects of a cluster are alike: only an interval over clusters knows how little they say."""
    rng = np.random.default_rng(5)
    n, repetitions = 200, 400
    held, alone = [], []
    for _ in range(repetitions):
        level = np.repeat(rng.beta(9, 1, size=n // per_cluster), per_cluster)  # mean 0.9
        mean_NH = rng.binomial(8, level)[:, None] / 8
        count_NH = np.ones((n, 1), dtype=np.int64)
        for units, found in ((np.arange(n) // per_cluster, held), (np.arange(n), alone)):
            low, high = (limit.average for limit in share_over_subjects(mean_NH, count_NH, units)[1:])
            found.append(low <= 0.9 <= high)
    assert np.mean(held) == pytest.approx(0.95, abs=0.03)
    assert per_cluster == 1 or np.mean(alone) < 0.85


@pytest.mark.parametrize("whole", [1.0, 0.1 * 3 + 0.7, 1 - 1e-16])  # rounded otherwise
def test_a_share_without_a_miss_has_an_upper_end_of_one_and_a_lower_end_below(whole):
    count = np.ones((40, 2), dtype=np.int64)
    _, lower, upper = share_over_subjects(np.full((40, 2), whole), count, np.arange(40))
    assert upper.average == pytest.approx(1.0)
    assert 0.85 < lower.average < 0.95


def test_few_subjects_have_no_interval():
    count = np.ones((19, 1), dtype=np.int64)
    _, lower, upper = share_over_subjects(np.ones((19, 1)), count, np.arange(19))
    assert lower.average is upper.average is None


def test_a_step_that_nobody_answers_is_unknown():
    count = np.tile(np.array([1, 0]), (30, 1))
    share = share_over_subjects(np.ones((30, 2)), count, np.arange(30))[0]
    assert share.steps == (1.0, None)
    assert share.average is None


def test_a_level_without_a_band_has_unknown_coverage_and_an_answer_that_does_not_count_changes_nothing():
    subject, truth, mean, sd = world(subjects=50, outcomes=1)
    every, last = np.ones(truth.shape, dtype=bool), np.zeros(truth.shape, dtype=bool)
    every[0], last[1::4] = False, True

    def bands(rows):
        lower, upper = normal_bands(mean[rows], sd[rows])
        lower[LEVELS.index(0.9) :, :, 1], upper[LEVELS.index(0.9) :, :, 1] = -np.inf, np.inf
        lower[:, ~every[rows]], upper[:, ~every[rows]] = -np.inf, np.inf
        return lower, upper

    sums = blank(FOLDER, N=50, H=3) | blank(f"{FOLDER}/groups/kind", G=2, H=3)
    add_answers(
        sums, FOLDER, subject, truth, mean, bands, scored_QHY=every, informative_QHY=~last, denominator_Y=np.ones(1),
        groups={"kind": np.zeros(truth.shape, dtype=int)},
    )  # fmt: skip
    found = band_summary(sums, "factual", factor=1.0, groups={"kind": ["a", "b"]}, absorbed_share={"factual": 0.25})
    steps, details = {level: of.coverage.steps for level, of in found.calibration.items()}, found.details
    assert [value is None for value in steps["0.8"]] == [False, False, False]
    assert [value is None for value in steps["0.9"]] == [False, True, False]
    assert found.calibration["0.9"].coverage.average is found.calibration["0.9"].coverage_lower.average is None
    assert [level for level, share in details.reliability.items() if share is None] == ["0.9", "0.95"]
    assert [level for level, share in details.absorbed_coverage.items() if share is None] == ["0.9", "0.95"]
    assert [level for level, share in details.groups[0].coverage.items() if share is None] == ["0.9", "0.95"]
    assert details.pit == ()
    assert details.crps.average is not None
