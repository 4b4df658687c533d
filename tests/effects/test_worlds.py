"""Worlds for effects have the truths that are written down, and what they promise of treatment."""

import numpy as np
import pytest
from scipy.special import expit

from tests.effect_worlds import TRUTH, WORLDS, panel_world
from tests.mortal_world import REGIMES, TRUE_ENDS, mortal_panel, true_ends

N = 20_000
LAWS = [name for name in WORLDS if name in ("overlap", "panel-binary") or not name.startswith(("overlap", "panel"))]


@pytest.mark.parametrize("name", LAWS)
def test_written_truths_are_those_of_the_regimes(name: str) -> None:
    assert set(TRUTH[name]) == set(WORLDS[name].regimes)
    for regime, (true, se) in TRUTH[name].items():
        mean, error = WORLDS[name].mean_under(regime, n=N)
        assert abs(mean - true) < 4 * np.hypot(error, se), regime


def test_the_panel_of_econml_has_the_constants_of_its_notebook() -> None:
    # Marginal effects of both treatments by period, that of `create_instance(10, random_seed=12345)` of EconML 0.17
    effects = [[0.05509021, 0.05760207], [0.29118846, 0.24326831], [0.13030029, 0.60557796]]
    world, zero = panel_world(), np.zeros((1, 2))
    unit = np.eye(2)
    for period, each in enumerate(effects):
        for i, effect in enumerate(each):
            x_NX, y_N = np.zeros((1, 100)), np.zeros(1)
            for t in range(3):  # the same noise twice: all is linear, so that their difference is the effect
                given = unit[i : i + 1] if t == period else zero
                x_NX, y_N = world.update(x_NX, y_N, given, np.random.default_rng(t))
            base_x, base_y = np.zeros((1, 100)), np.zeros(1)
            for t in range(3):
                base_x, base_y = world.update(base_x, base_y, zero, np.random.default_rng(t))
            assert y_N[0] - base_y[0] == pytest.approx(effect, abs=1e-7)
    assert TRUTH["panel"]["always"][0] == pytest.approx(np.sum(effects), abs=1e-5)


def test_treatment_overlaps_where_the_world_is_called_so() -> None:
    x_NTX, _, a_NHA = WORLDS["overlap"].draw(N, 3)
    p_NH = x_NTX[:, :-1, 1]
    assert 0.3 < p_NH.min() < 0.32
    assert 0.68 < p_NH.max() < 0.7
    for low in (0.3, 0.4, 0.5, 0.6):
        chosen = (p_NH >= low) & (p_NH < low + 0.1)
        assert abs(a_NHA[..., 0][chosen].mean() - p_NH[chosen].mean()) < 0.02


def test_a_known_probability_is_that_of_the_treatment_unless_it_is_called_wrong() -> None:
    for name in ("trial", "overlap-known", "overlap-treatment-wrong"):
        world = WORLDS[name]
        x_NTX, _, a_NHA = world.draw(N, 3)
        p_NH = world.show(x_NTX)[:, :-1, world.covariates.index("p")]
        z = (a_NHA[..., 0] - p_NH) / np.sqrt(p_NH * (1 - p_NH))
        errors = [
            abs((z * weight).sum() / np.sqrt((weight**2).sum())) for weight in (np.ones_like(p_NH), x_NTX[:, :-1, 0])
        ]
        assert (max(errors) > 20) == (name == "overlap-treatment-wrong")


def test_a_dose_follows_the_course() -> None:
    world = WORLDS["doses"]
    x_NTX, y_NT, a_NHA = world.draw(N, 3)
    x_N, y_N, dose_N = x_NTX[:, :-1, 0].ravel(), y_NT[:, :-1].ravel(), a_NHA.ravel()
    design = np.column_stack([np.ones(len(x_N)), x_N, y_N])[dose_N > 0]
    coef = np.linalg.lstsq(design, dose_N[dose_N > 0], rcond=None)[0]
    assert coef == pytest.approx([2, 0.5, 0.3], abs=0.1)
    less = world.regimes["less"].decide(x_NTX[:, 0], y_NT[:, 0], np.array([[1.5], [2.0], [2.5]]))
    assert less.ravel().tolist() == [1.5, 2.0, 1.5]


def test_data_sets_and_tables_hold_the_same_course() -> None:
    for name in ("trial", "doses", "overlap-treatment-wrong"):
        world = WORLDS[name]
        dataset, table = world.dataset(50, 4), world.table(50, 4)
        (panel,) = dataset.panels.values()
        assert table["y"].to_numpy() == pytest.approx(panel.outcomes.ravel(), abs=1e-6)
        for i, covariate in enumerate(world.covariates):
            assert table[covariate].to_numpy() == pytest.approx(panel.covariates[..., i].ravel(), abs=1e-6)
        given = dataset.schema.treatments.decode(panel.treatments)[:, :-1].reshape(-1)
        assert table[world.treatments[0]].drop_nulls().to_numpy() == pytest.approx(given, abs=1e-5)


def test_written_ends_are_those_of_the_regimes() -> None:
    x_N, y_N = np.random.default_rng(5).normal(size=(2, N))
    for name, (_, step) in REGIMES.items():
        _, ends_HE = true_ends(x_N, y_N, [step] * 5, copies=1)
        assert ends_HE == pytest.approx(np.transpose(TRUE_ENDS[name]), abs=0.012)


def test_follow_up_is_lost_by_the_course_and_leaves_the_last_treatment() -> None:
    panel, whole = mortal_panel(N, 5, rows=6, losing=True), mortal_panel(N, 5, rows=6)
    lost_N = (panel.end == 0) & (panel.length < 6)
    assert 0.15 < lost_N.mean() < 0.25
    assert (whole.length[whole.end == 0] == 6).all()
    rows = np.flatnonzero(lost_N)
    last = panel.length[rows] - 1
    x_M, a_M = panel.covariates[rows, last, 0], panel.treatments[rows, last, 0]
    expected = expit(-2.6 + 0.9 * x_M - 0.5 * a_M)
    assert panel.outcome_observed is not None
    assert panel.outcome_observed[rows, last].all()
    assert 0 < a_M.mean() < 1
    at_risk = np.arange(5) < (panel.length - (panel.end > 0))[:, None]
    chance_NT = expit(-2.6 + 0.9 * panel.covariates[:, :5, 0] - 0.5 * panel.treatments[:, :5, 0])
    assert abs((chance_NT * at_risk).sum() / lost_N.sum() - 1) < 0.05
    assert expected.mean() > 1.1 * chance_NT[at_risk].mean()
