"""Rates of ends where visits are at any time: known effects per unit of time (spec SURV-9)."""

import numpy as np
import pytest

from costar_cli.data import End, Panel, PanelSchema, Queries, Scaler, TreatmentEncoding, Variable
from costar_cli.data.dose import Dose
from costar_cli.data.visits import ELAPSED
from costar_cli.inference import Hazards, OutcomeFacts
from costar_cli.inference.rates import ends_in, fit_rates
from costar_cli.inference.survival import AtRisk

EFFECT, SLOPE, DEATH, RECOVERY = 1.0, 0.8, -6.0, 0.002  # of the drug and of the level on the log rate of death; per day
GAP = Dose.learn(ELAPSED, np.array([1.0, 60.0]), unit="day").model_copy(update={"elapsed": 14.0})
SCHEMA = PanelSchema(
    treatments=TreatmentEncoding(mode="multilabel", names=("drug",), levels=(("off", "on"),), doses=(GAP,)),
    outcomes=(Variable(name="y"),),
    ends=(End(name="death"), End(name="recovery"), End(name="lost", terminal=False)),
)


def visited(n: int = 2_000, steps: int = 10, seed: int = 2) -> Panel:
    """Subjects who are seen after 1 to 60 days, sooner where they are ill; drug and level make death likelier."""
    rng = np.random.default_rng(seed)
    y_NT, drug_NT, gap_NT = (np.zeros((n, steps)) for _ in range(3))
    length, end, here = np.full(n, steps), np.zeros(n, dtype=np.int64), np.ones(n, dtype=bool)
    y_NT[:, 0] = rng.normal(size=n)
    for t in range(steps - 1):
        drug_NT[:, t] = rng.random(n) < 1 / (1 + np.exp(-y_NT[:, t]))
        gap_NT[:, t] = np.clip(rng.exponential(20 * np.exp(-0.3 * y_NT[:, t])), 1, 60)
        log_death = DEATH + SLOPE * y_NT[:, t] + EFFECT * drug_NT[:, t]
        until = np.stack([rng.exponential(1 / np.exp(log_death)), rng.exponential(1 / RECOVERY, n)])
        first, when = until.argmin(axis=0), until.min(axis=0)
        now = here & (when < gap_NT[:, t])
        gap_NT[now, t] = when[now]  # the row of the end is at its own time
        end[now], length[now], here = first[now] + 1, t + 2, here & ~now
        y_NT[:, t + 1] = 0.9 * y_NT[:, t] + rng.normal(scale=0.4, size=n)
    there, given = np.arange(steps) < length[:, None], np.arange(steps) < length[:, None] - 1
    treatments = SCHEMA.treatments.encode(np.stack([drug_NT, gap_NT], axis=-1)) * given[..., None]
    return Panel(
        np.zeros((n, steps, 0), np.float32), treatments.astype(np.float32),
        (y_NT * there)[..., None].astype(np.float32), np.zeros((n, 0), np.float32), length, np.arange(n), end=end,
    )  # fmt: skip


def fitted(panel: Panel) -> Hazards:
    scaler = Scaler.fit(panel, SCHEMA)
    hazards = Hazards.fit(panel, SCHEMA, scaler, OutcomeFacts.of(panel, SCHEMA, scaler))
    assert hazards is not None
    return hazards


@pytest.fixture(scope="module")
def world() -> tuple[Panel, Hazards]:
    panel = visited()
    return panel, fitted(panel)


def test_hazard_ratios_are_recovered_within_sampling_error_under_irregular_visits(world: tuple[Panel, Hazards]) -> None:
    panel, hazards = world
    risk = AtRisk.of(panel, SCHEMA, terminal=True)
    treated = risk.queries.plan[risk.ended_ME[:, 0], 0, 0] > 0
    se = np.sqrt(1 / treated.sum() + 1 / (~treated).sum())
    drug = hazards.coef_EP[0, -2]  # the last column is how long the step is, which rates do not see
    assert abs(drug - EFFECT) < 2 * se
    assert (hazards.coef_EP[:2, -1] == 0).all()
    assert abs(hazards.coef_EP[1, -2]) < 4 / np.sqrt((panel.end == 2).sum())
    asked = ask(panel, 0, drug=0, days=30.0)
    rate_Q = -np.log1p(-hazards.along(panel, asked, np.zeros((len(asked), 1, 1)))[:, 0].sum(axis=-1)) / 30
    true_Q = np.exp(DEATH + SLOPE * panel.outcomes[:, 0, 0]) + RECOVERY
    assert np.log(rate_Q / true_Q).std() < 0.25
    assert abs(np.log(rate_Q / true_Q).mean()) < 0.1


def ask(panel: Panel, origin: int, *, drug: int, days: float) -> Queries:
    rows = np.arange(panel.n_subjects, dtype=np.int32)
    plan = SCHEMA.treatments.encode(np.tile([float(drug), days], (len(rows), 1, 1))).astype(np.float32)
    return Queries(rows, np.full(len(rows), origin, np.int16), plan)


def test_half_of_the_time_is_half_of_the_hazard(world: tuple[Panel, Hazards]) -> None:
    panel, hazards = world
    some = panel.take(np.arange(20))
    nothing = np.zeros((20, 1, 1))
    long, short = (
        -np.log1p(-hazards.along(some, ask(some, 0, drug=1, days=days), nothing)[:, 0, :2].sum(axis=-1))
        for days in (40.0, 20.0)
    )
    np.testing.assert_allclose(long, 2 * short, rtol=1e-5)


def test_expected_ends_are_as_many_as_came_by_time_at_risk(world: tuple[Panel, Hazards]) -> None:
    other, hazards = visited(seed=1), world[1]
    risk = AtRisk.of(other, SCHEMA, terminal=True)
    ends_ME = hazards.along(other, risk.queries, np.zeros((len(risk.queries), 1, 1)))[:, 0]
    came = int(risk.ended_ME.sum())  # the time of those who died is that until their death, over which rates are summed
    assert abs(-np.log1p(-ends_ME.sum(axis=-1)).sum() - came) < 3 * np.sqrt(came)


def test_thinned_steps_give_the_same_rates(world: tuple[Panel, Hazards], monkeypatch: pytest.MonkeyPatch) -> None:
    panel, hazards = world
    monkeypatch.setattr("costar_cli.inference.survival.MOST_DECISIONS", 6_000)
    fewer, asked = fitted(panel), ask(panel, 1, drug=1, days=14.0)
    nothing = np.zeros((len(asked), 1, 1))
    both = [found.along(panel, asked, nothing)[..., :2].mean() for found in (hazards, fewer)]
    assert both[0] == pytest.approx(both[1], rel=0.1)


def test_a_constant_rate_is_ends_by_time_and_ends_add_up() -> None:
    rng = np.random.default_rng(0)
    ended_ME, time_M = rng.random((500, 2)) < 0.05, rng.uniform(1, 30, 500)
    intercept_E, coef_EP = fit_rates(np.zeros((500, 1)), ended_ME, time_M, np.arange(500), ridges=(1.0,))
    np.testing.assert_allclose(np.exp(intercept_E), ended_ME.sum(axis=0) / time_M.sum(), rtol=1e-5)
    assert not coef_EP.any()
    ends_QHE = ends_in(np.log(np.array([[[0.1, 0.2]]])), np.array([[1e9]]))
    np.testing.assert_allclose(ends_QHE, [[[1 / 3, 2 / 3]]])


@pytest.mark.parametrize(
    ("log_rates", "ends"), [((-800, -900), (0, 0)), ((800, -800), (1, 0)), ((800, 900), (0.5, 0.5))]
)
def test_rates_too_small_or_too_large_for_a_number_still_give_probabilities(
    log_rates: tuple[float, float], ends: tuple[float, float]
) -> None:
    np.testing.assert_allclose(ends_in(np.array([[log_rates]]), np.ones((1, 1))), [[ends]], atol=1e-12)
