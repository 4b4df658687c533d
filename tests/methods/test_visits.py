"""Visits at any time: what is learned of time is that of the world, whenever it is looked at."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

import costar_cli as costar
from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Part
from costar_cli.data.visits import elapsed
from costar_cli.data.windows import FactualWindows, factual_windows
from costar_cli.errors import UsageError
from costar_cli.evaluation.worlds import contrasts
from costar_cli.inference.overlap import describe_overlap
from costar_cli.methods import METHODS
from costar_cli.methods.base import FittedModel
from costar_cli.methods.mixed.law import Basis, GrowthTransition, Series, carried, lasting
from costar_cli.methods.mixed.likelihood import log_likelihood, start_values
from costar_cli.methods.mixed.model import MixedModel
from costar_cli.methods.mixed.rollout import Rollout
from costar_cli.methods.mixed.settings import MixedConfig
from costar_cli.plans import TreatmentPlan, parse_plans
from costar_cli.questions.search import no_treatment
from costar_cli.questions.support import _Reasons
from costar_cli.reporting import NullReporter
from tests.datasets.table_worlds import ingest, make_schema
from tests.fits import fit_method, model_of

HALF_LIFE, LEFT, EFFECT, NOISE = 4.0, 0.9, -0.9, 0.4  # days; of a level after a day; per day; sd per day


def visited(share: float = 0.3, subjects: int = 50, days: int = 40, seed: int = 0) -> pl.DataFrame:
    """A level, below 0, that reverts day by day, seen and treated on a random share of the days."""
    rng, decay, rows = np.random.default_rng(seed), 0.5 ** (1 / HALF_LIFE), []
    for i in range(subjects):
        level, drug, drift = rng.normal(20, 4), 0.0, 2 + rng.normal(scale=0.3)
        for day in range(days):
            if day == 0 or rng.random() < share:
                given = rng.random() < 1 / (1 + np.exp((18 - level) / 3))
                rows.append((f"s{i:03d}", day, level - 60, "yes" if given else "no"))
                drug += given
            level = LEFT * level + drift + EFFECT * drug + rng.normal(scale=NOISE)
            drug *= decay
    return pl.DataFrame(rows, schema=["patient", "day", "pressure", "drug"], orient="row")


def dataset_of(frame: pl.DataFrame, gaps: str, folder: Path) -> Dataset:
    schema = make_schema(
        {"drug": {"role": "treatment"}}, ("site", "heart rate", "age", "sex"), time={"gaps": gaps}, horizon=3
    )
    return ingest(frame, schema, folder=folder)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return dataset_of(visited(), "elapsed", tmp_path_factory.mktemp("visits"))


@pytest.fixture(scope="module")
def mixed(data: Dataset) -> MixedModel:
    model = model_of(fit_method(data, "mixed", MixedConfig(iterations=20), FinetuneConfig(members=1)))
    assert isinstance(model, MixedModel)
    return model


def rmse(model: FittedModel, windows: FactualWindows) -> float:
    assert windows.queries.outcomes is not None
    return float(np.sqrt(((model.rollout(windows.panel, windows.asked)[0] - windows.queries.outcomes) ** 2).mean()))


def test_gaps_are_a_column_of_plans_and_of_the_past(data: Dataset):
    panel = data.panels[Part("source", "test")]
    gap_NT = elapsed(data.schema.treatments, panel.treatments)
    assert gap_NT is not None
    frame = visited().filter(pl.col("patient") == panel.names[0])
    apart = frame["day"].diff().drop_nulls().to_numpy()
    np.testing.assert_allclose(gap_NT[0, : len(apart)], apart)
    asked = data.queries[Part("source", "test")]["rolling_origin"]
    first = asked.subject == 0
    of_plan = elapsed(data.schema.treatments, asked.plan[first])
    assert of_plan is not None
    np.testing.assert_allclose(of_plan[0], apart[:3])


@pytest.mark.slow
def test_the_half_life_drift_effect_and_noise_of_the_world_are_found(tmp_path: Path):
    many = dataset_of(visited(subjects=300, days=60), "elapsed", tmp_path)
    model = model_of(fit_method(many, "mixed", None, FinetuneConfig(members=1)))
    assert isinstance(model, MixedModel)
    [law], [learnt] = model.laws, model.effects
    half_life = np.log(0.5) / np.log(learnt.decay[0, 0])
    assert half_life == pytest.approx(HALF_LIFE, rel=0.12)
    assert law.reversion == pytest.approx(LEFT, abs=0.01)
    assert law.sd * learnt.means(np.zeros((1, 0)))[0, 2] == pytest.approx(EFFECT, rel=0.06)
    assert law.sd * learnt.noise == pytest.approx(NOISE, rel=0.06)


@pytest.mark.slow
def test_it_beats_counting_visits_as_even_steps(tmp_path: Path):
    errors = []
    for gaps in ("elapsed", "ignore"):
        data = dataset_of(visited(subjects=200), gaps, tmp_path)
        windows = factual_windows(data.panels[Part("source", "test")], 3)
        assert windows is not None
        errors.append(rmse(model_of(fit_method(data, "mixed", None, FinetuneConfig(members=1))), windows))
    assert errors[0] < 0.75 * errors[1]


@pytest.mark.parametrize("decay", [0.3, 0.9, 0.9 + 1e-9, 1.0])
def test_a_gap_of_whole_steps_is_as_many_steps(decay: float):
    gap = np.arange(1.0, 9.0)
    steps = [sum(0.9 ** (n - 1 - j) * decay**j for j in range(n)) for n in range(1, 9)]
    np.testing.assert_allclose(lasting(gap, decay, 0.9), steps, rtol=1e-5)


LAW = GrowthTransition(0, relative=True, basis="log", linked=False, mean=10.0, sd=3.0, low=0.0, high=100.0)


def after(growth: np.ndarray, gap: float) -> np.ndarray:
    """Where a level of 10 stands after gaps of one length, by the law of growth by shares."""
    ten = np.full_like(growth, 10.0)
    return LAW.next(ten, growth, ten, 0 * ten, 10 * ten, np.full_like(growth, gap))


def test_chance_in_short_gaps_leaves_a_level_near_where_it_was():
    noise = np.random.default_rng(0).normal(scale=0.3, size=10_000)
    level = after(noise * np.sqrt(1 / 7), 1 / 7)
    assert level.min() > 0
    assert np.log(level / 10).std() == pytest.approx(0.3 * np.sqrt(1 / 7), rel=0.05)


def test_a_rise_in_a_short_gap_counts_as_a_fall_does():
    y_NTY = np.array([[10.0, 11.0], [10.0, 9.0]])[..., None]
    none, seen, gap_NT = np.zeros((2, 2, 0)), np.ones((2, 2, 1), bool), np.full((2, 2), 0.04)
    series = Series(y_NTY, y_NTY, none, np.zeros((2, 0)), none, np.array([2, 2]), seen, gap_NT)
    design = LAW.design(series, np.zeros(1), np.ones(1))
    assert design.counted_NT.tolist() == [[1], [1]]
    np.testing.assert_allclose(design.response_NT[:, 0], [0.5, -0.5], rtol=1e-6)  # 0.1 over the noise of 0.04 steps


@pytest.mark.parametrize("unit", [1.0, 1e9])
@pytest.mark.parametrize("gap", [0.04, 0.5, 1.0, 3.0, 9.0])
def test_the_gain_is_the_slope_of_the_next_level_by_growth(gap: float, unit: float):
    """In whatever unit the outcome is."""
    growth, small = np.array([-0.2, -0.02, 0.0, 0.03]), 1e-6
    level = np.full((1, 4), 10.0 * unit)
    before: Any = SimpleNamespace(y_YQ=level, usual_YQ=level)
    step: Any = SimpleNamespace(before=before, growth=[growth], gap_Q=np.full(4, gap))
    slope = (after(growth + small, gap) - after(growth - small, gap)) / (2 * small)
    gain = Rollout.gain(replace(LAW, mean=10 * unit, sd=3 * unit, high=100 * unit), step)
    np.testing.assert_allclose(gain, slope * unit, rtol=1e-5)


def test_an_answer_after_a_gap_is_that_after_its_parts(mixed: MixedModel, data: Dataset):
    """A linear law rolled over two visits, the second without a treatment, ends where one over both gaps ends."""
    windows = factual_windows(data.panels[Part("source", "test")], 1, most=20)
    assert windows is not None
    encoding = data.schema.treatments
    values = encoding.decode(windows.asked.plan)
    values[..., -1] = 6.0
    whole = replace(windows.asked, plan=encoding.encode(values))
    parts = np.concatenate([values, np.zeros_like(values)], axis=1)
    parts[:, 0, -1], parts[:, 1, -1] = 2.5, 3.5
    halves = replace(windows.asked, plan=encoding.encode(parts))
    at_once, in_parts = mixed.rollout(windows.panel, whole)[0], mixed.rollout(windows.panel, halves)[0]
    np.testing.assert_allclose(in_parts[:, 1], at_once[:, 0], atol=0.15)  # reversions of subjects differ a little


def test_what_is_left_of_doses_at_an_origin_decays_once(mixed: MixedModel, data: Dataset):
    """By the whole time since the visit before, whatever the decay: one that is gone at once stays a number."""
    panel = data.panels[Part("source", "test")]
    series = Series.of(panel, mixed.scaler, data.schema.treatments)
    assert series.gap_NT is not None
    fast = replace(mixed, params=dict(mixed.params) | {"outcome0.decay": np.zeros((1, 1, 1))})
    for model, decay in ((mixed, float(mixed.effects[0].decay[0, 0])), (fast, 0.0)):
        after = carried(series.dose_NTL, np.array([[decay]]), series.gap_NT)[:, :, 0]
        found = model.encode(panel).exposure[0].reshape(panel.n_subjects, -1)
        np.testing.assert_allclose(found[:, 1:], (after * decay**series.gap_NT)[:, :-1], atol=1e-12)
        windows = factual_windows(panel, 3, most=5)
        assert windows is not None
        assert np.isfinite(model.rollout(windows.panel, windows.asked)).all()


def test_distribution_and_draws_agree_with_the_rollout_over_gaps(mixed: MixedModel, data: Dataset):
    windows = factual_windows(data.panels[Part("source", "test")], 3, most=30)
    assert windows is not None
    found = mixed.predict_distribution(windows.panel, windows.asked)
    drawn = mixed.draw_outcomes(windows.panel, windows.asked, 400, seed=0)
    np.testing.assert_allclose(found.mean, mixed.rollout(windows.panel, windows.asked), rtol=1e-5)
    np.testing.assert_allclose(drawn.mean(axis=0), found.mean[0], atol=0.5)
    sd = found.sd[0]
    np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=0.25)
    assert windows.queries.outcomes is not None
    inside = np.abs(windows.queries.outcomes - found.mean[0]) < 1.645 * sd
    assert 0.75 < inside.mean() < 1.0


def test_other_methods_take_the_gap_or_say_that_they_do_not(data: Dataset):
    windows = factual_windows(data.panels[Part("source", "test")], 3)
    assert windows is not None
    naive = rmse(model_of(fit_method(data, "last-value", None, FinetuneConfig(members=1))), windows)
    assert rmse(model_of(fit_method(data, "ridge", None, FinetuneConfig(members=1))), windows) < 0.8 * naive
    with pytest.raises(UsageError, match="has doses: elapsed"):
        METHODS["crn"].require_doses(data.schema)


INTEGRATES = {"boosting": False, "gcomp": False, "msm": False, "growth": True, "mixed": True, "mean": True}


@pytest.mark.parametrize("method", INTEGRATES)
def test_methods_that_do_not_integrate_over_gaps_say_so(data: Dataset, method: str):
    assert bool(METHODS[method].doubts(data.schema)) is not INTEGRATES[method]


def test_only_the_structured_decoder_of_costar_integrates_over_gaps(data: Dataset):
    assert METHODS["costar"].doubts(data.schema, "structured") == []
    [said] = METHODS["costar"].doubts(data.schema, "stepped")
    assert "finetune.decoder = structured" in said.text


def test_a_fit_warns_that_gaps_are_a_covariate(data: Dataset):
    reporter = NullReporter()
    trained = fit_method(data, "ridge", None, FinetuneConfig(members=1), reporter=reporter)
    [said] = [warning for warning in reporter.warnings if "covariate" in warning]
    assert "Ridge regression" in said
    assert "--method mixed" in said
    assert said in trained.meta["warnings"]


def test_the_gap_is_no_treatment_to_contrast_or_to_give(data: Dataset):
    asked = contrasts(data.panels[Part("source", "train")], data.schema, 3)
    assert [contrast.name for contrast in asked] == ["always drug", "drug once"]
    usual = data.schema.treatments.idle[-1]
    for contrast in asked:
        for plan in (contrast.plan, contrast.reference):
            np.testing.assert_allclose(data.schema.treatments.decode(plan)[:, -1], usual)
    assert {arm.treatment for arm in describe_overlap(data).propensities} == {"drug"}


def test_a_search_compares_with_no_treatment_at_visits_as_far_apart_as_usual(data: Dataset):
    reference, plain = no_treatment(data.schema.treatments, 2), parse_plans("[{}, {}]", data.schema, horizon=3).plans[0]
    assert reference is not None
    np.testing.assert_array_equal(reference.values, plain.values)


def test_nobody_is_told_that_a_gap_was_never_received_before(data: Dataset):
    unknown: Any = SimpleNamespace(sd_QHY=np.ones((1, 1, 1)))
    told = _Reasons(data.schema, "s1", np.zeros(2, bool), unknown, unknown)
    for drug, said in ((1.0, "never received drug before"), (0.0, "the prediction's sd")):
        reason = told._precision(0, TreatmentPlan("p", np.array([[drug, 6.0]])), 0, 0, "red")
        assert said in reason
        assert "elapsed" not in reason


@pytest.mark.parametrize("relative", [True, False], ids=["relative", "amounts"])
@pytest.mark.parametrize("gap", [0.5, 1.0, 3.0])
def test_the_density_of_an_outcome_after_a_gap_sums_to_one(gap: float, *, relative: bool):
    """It is of the outcome, not of the response that the law makes of it: laws are compared by it."""
    basis: Basis = "log" if relative else "raw"
    law = GrowthTransition(0, relative=relative, basis=basis, linked=False, mean=10.0, sd=3.0, low=0.0, high=1e6)
    then = np.linspace(0.02, 60, 3000)
    y_NTY = np.stack([np.full_like(then, 10.0), then], axis=1)[..., None]
    n, seen = len(then), np.ones((len(then), 2, 1), bool)
    none, dose = np.zeros((n, 2, 0)), np.zeros((n, 2, 1))
    series = Series(y_NTY, y_NTY, none, np.zeros((n, 0)), dose, np.full(n, 2), seen, np.full((n, 2), gap))
    design = law.design(series, np.zeros(1), np.ones(1))
    effects = replace(start_values(design, carry_overs=1, hidden=1), noise=0.1)
    each = (log_likelihood(design.take(slice(i, i + 1)), effects) for i in range(0, n, 10))
    density = np.exp([*each]) * (design.counted_NT[::10, 0] > 0)
    assert density.sum() * (then[10] - then[0]) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("relative", [True, False], ids=["shares", "amounts"])
def test_growth_by_shares_and_by_amounts_are_told_apart_over_gaps(tmp_path: Path, *, relative: bool):
    """Levels that grow to several times their size, seen after 1 to 9 days: the law and its drift are found."""
    rng, rows = np.random.default_rng(0), []
    for i in range(60):
        level, day = rng.uniform(5, 10), 0
        for gap in rng.integers(1, 10, size=12):
            rows.append((f"s{i:02d}", day, level, "yes" if rng.random() < 0.5 else "no"))
            day += int(gap)
            for _ in range(gap):
                level += level * rng.normal(0.05, 0.02) if relative else rng.normal(0.7, 0.3)
    frame = pl.DataFrame(rows, schema=["patient", "day", "pressure", "drug"], orient="row")
    data = dataset_of(frame, "elapsed", tmp_path)
    model = model_of(fit_method(data, "mixed", MixedConfig(iterations=30), FinetuneConfig(members=1)))
    assert isinstance(model, MixedModel)
    [law], [learnt] = model.laws, model.effects
    assert law.relative == relative
    if relative:
        assert learnt.noise == pytest.approx(0.02, rel=0.1)
        at_level = model.posterior(data.panels[Part("source", "test")], np.zeros(1, int), np.zeros(1, int))[0][0][0]
        assert at_level[0] == pytest.approx(0.05, abs=0.01)
    else:
        assert law.sd * learnt.noise == pytest.approx(0.3, rel=0.1)


def led(subjects: int = 80, visits: int = 20, seed: int = 0) -> pl.DataFrame:
    """A level that follows another, which moves at random from visit to visit, after 1 day or 12."""
    rng, rows = np.random.default_rng(seed), []
    for i in range(subjects):
        level, walk, day = rng.normal(), rng.normal(), 0
        for gap in rng.choice([1, 12], size=visits):
            rows.append((f"s{i:02d}", day, level, walk, "yes" if rng.random() < 0.5 else "no"))
            day += int(gap)
            for _ in range(gap):
                level = LEFT * level + walk + rng.normal(scale=0.1)
            walk += rng.normal(scale=0.5 * np.sqrt(gap))
    return pl.DataFrame(rows, schema=["patient", "day", "pressure", "heart rate", "drug"], orient="row")


def test_bands_hold_as_often_after_short_gaps_as_after_long_ones_where_covariates_lead(tmp_path: Path):
    schema = make_schema({"drug": {"role": "treatment"}}, ("site", "age", "sex"), time={"gaps": "elapsed"}, horizon=2)
    data = ingest(led(), schema, folder=tmp_path)
    model = model_of(fit_method(data, "mixed", MixedConfig(iterations=20), FinetuneConfig(members=1)))
    assert isinstance(model, MixedModel)
    assert model.draws_covariates
    windows = factual_windows(data.panels[Part("source", "test")], 2)
    assert windows is not None
    assert windows.queries.outcomes is not None
    found = model.predict_distribution(windows.panel, windows.asked)
    drawn = model.draw_outcomes(windows.panel, windows.asked, 300, seed=0)
    gap_QH = elapsed(data.schema.treatments, windows.asked.plan)
    assert gap_QH is not None
    error_Q = (windows.queries.outcomes - found.mean[0])[:, 1, 0]
    for first in (1.0, 12.0):
        after_Q = (gap_QH[:, 0] == first) & (gap_QH[:, 1] == 1)
        sd_Q = found.sd[0, after_Q, 1, 0]
        assert 0.78 < (np.abs(error_Q[after_Q]) < 1.645 * sd_Q).mean() < 0.97
        np.testing.assert_allclose(drawn[:, after_Q, 1, 0].std(axis=0).mean(), sd_Q.mean(), rtol=0.05)


@pytest.mark.filterwarnings("ignore::costar_cli.errors.CostarWarning")
def test_an_effect_of_plans_that_say_when_to_come_is_told_to_leave_that_to_practice(tmp_path: Path) -> None:
    uneven = visited(subjects=90, days=30).with_columns(pl.col("day") + 0.3 * pl.col("day").sin())
    data = dataset_of(uneven, "elapsed", tmp_path)
    plans = {"plans": {"none": {"repeat": {}, "times": 1}}}
    with pytest.raises(UsageError, match="nobody follows plan 'none'") as caught:
        costar.estimate_effects(data, plans)
    assert "leave the time until the next visit to usual care" in str(caught.value.fix)
    rule = {"rule": "drug = 1 if natural drug = 0", "times": 1}
    assert costar.estimate_effects(data, {"plans": {"given": rule}}).rows[0]["estimate"] is not None
