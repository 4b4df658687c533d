"""Hazards of ends: known effects are recovered, plans change survival, and files hold what was fitted (spec SURV)."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, End, Panel, PanelSchema, Part, Queries, Scaler, TreatmentEncoding, Variable
from costar_cli.data.panel import join_panels
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor, tumor_truth
from costar_cli.errors import ArtifactError
from costar_cli.inference import Hazards, OutcomeFacts, survival_of
from costar_cli.inference.survival import AtRisk, log_loss
from costar_cli.reporting import NullReporter
from tests.fits import fit_method, model_of

SCHEMA = PanelSchema(
    treatments=TreatmentEncoding(mode="multilabel", names=("drug",), levels=(("off", "on"),)),
    outcomes=(Variable(name="y"),),
    ends=(End(name="death"), End(name="recovery"), End(name="lost", terminal=False)),
)
EFFECT, SLOPE = 1.0, 0.8  # of the drug and of a level of one sd on the logit of death


def mortal_panel(n: int = 4_000, steps: int = 12, seed: int = 0) -> Panel:
    """Subjects whose level wanders; the drug, given by level, makes death likelier, recovery is plain chance."""
    rng = np.random.default_rng(seed)
    y_NT, a_NT = np.zeros((n, steps)), np.zeros((n, steps))
    length, end, here = np.full(n, steps), np.zeros(n, dtype=np.int64), np.ones(n, dtype=bool)
    y_NT[:, 0] = rng.normal(size=n)
    for t in range(steps - 1):
        a_NT[:, t] = rng.random(n) < expit(y_NT[:, t])
        risks = (expit(-4 + SLOPE * y_NT[:, t] + EFFECT * a_NT[:, t]), np.full(n, 0.02), np.full(n, 0.03))
        for code, risk in enumerate(risks, start=1):
            now = here & (rng.random(n) < risk)
            end[now], length[now], here = code, t + (2 if code < 3 else 1), here & ~now
        y_NT[:, t + 1] = 0.9 * y_NT[:, t] + rng.normal(scale=0.4, size=n)
    there = np.arange(steps) < length[:, None]
    given = there & (np.arange(steps) < length[:, None] - 1)
    return Panel(
        np.zeros((n, steps, 0), np.float32), (a_NT * given)[..., None].astype(np.float32),
        (y_NT * there)[..., None].astype(np.float32), np.zeros((n, 0), np.float32), length, np.arange(n), end=end,
    )  # fmt: skip


@pytest.fixture(scope="module")
def mortal() -> tuple[Panel, Hazards]:
    panel = mortal_panel()
    return panel, fitted(panel)


def fitted(panel: Panel) -> Hazards:
    scaler = Scaler.fit(panel, SCHEMA)
    hazards = Hazards.fit(panel, SCHEMA, scaler, OutcomeFacts.of(panel, SCHEMA, scaler))
    assert hazards is not None
    return hazards


def ask(rows: int, origin: int, plans: NDArray[np.int64]) -> Queries:
    """Each plan `[K,H]` of the drug for each of the first rows."""
    subject = np.repeat(np.arange(rows), len(plans)).astype(np.int32)
    plan = np.tile(plans, (rows, 1))[..., None].astype(np.uint8)
    return Queries(subject, np.full(len(subject), origin, np.int16), plan)


def test_hazard_ratio_and_slope_are_recovered_within_sampling_error(mortal: tuple[Panel, Hazards]) -> None:
    panel, hazards = mortal
    risk = AtRisk.of(panel, SCHEMA, terminal=True)
    deaths = int(risk.ended_ME[:, 0].sum())
    effect, se = hazards.coef_EP[0, -1], 2 / np.sqrt(deaths)  # of two arms of equal size
    assert abs(effect - EFFECT) < 2 * se
    assert abs(hazards.coef_EP[1, -1]) < 4 / np.sqrt((panel.end == 2).sum())  # recovery is the same under both


def test_expected_ends_are_as_many_as_came(mortal: tuple[Panel, Hazards]) -> None:
    other, hazards = mortal_panel(seed=1), mortal[1]
    for terminal, columns in ((True, [0, 1]), (False, [2])):
        risk = AtRisk.of(other, SCHEMA, terminal=terminal)
        expected_ME = hazards.along(other, risk.queries, np.zeros((len(risk.queries), 1, 1)), terminal=terminal)[:, 0]
        for e in columns:
            came = int(risk.ended_ME[:, e].sum())
            assert abs(expected_ME[:, e].sum() - came) < 4 * np.sqrt(came)
        assert expected_ME[:, [e for e in range(3) if e not in columns]].max() == 0


def test_losses_come_after_the_last_step_and_deaths_show_at_it() -> None:
    panel = mortal_panel(50)
    deaths, losses = (AtRisk.of(panel, SCHEMA, terminal=terminal) for terminal in (True, False))
    for risk, code, before in ((deaths, 1, 2), (losses, 3, 1)):
        rows = risk.queries.subject[risk.ended_ME[:, code - 1]]
        np.testing.assert_array_equal(rows, np.flatnonzero(panel.end == code))
        np.testing.assert_array_equal(
            risk.queries.origin[risk.ended_ME[:, code - 1]], panel.length[panel.end == code] - before
        )
    assert losses.queries.plan.max() == 0


def test_thinned_steps_give_the_same_hazards(mortal: tuple[Panel, Hazards], monkeypatch: pytest.MonkeyPatch) -> None:
    panel, hazards = mortal
    monkeypatch.setattr("costar_cli.inference.survival.MOST_DECISIONS", 8_000)
    fewer, asked = fitted(panel), ask(500, 2, np.array([[0], [1]]))
    nothing = np.zeros((len(asked), 1, 1))
    both = [found.along(panel, asked, nothing)[..., 0].mean() for found in (hazards, fewer)]
    assert both[0] == pytest.approx(both[1], rel=0.1)


def test_a_plan_acts_from_its_step_on_and_ends_add_up(mortal: tuple[Panel, Hazards]) -> None:
    panel, hazards = mortal
    asked = ask(3, 1, np.array([[0, 0, 0], [0, 1, 0]]))
    ends_QHE = hazards.along(panel, asked, np.zeros((6, 3, 1)))
    np.testing.assert_array_equal(ends_QHE[::2, 0], ends_QHE[1::2, 0])
    assert (ends_QHE[1::2, 1, 0] > ends_QHE[::2, 1, 0]).all()
    assert (ends_QHE >= 0).all()
    assert (ends_QHE.sum(axis=-1) < 1).all()


def test_later_steps_and_padding_do_not_change_hazards(mortal: tuple[Panel, Hazards]) -> None:
    panel, hazards = mortal
    long = np.flatnonzero(panel.length > 6)[:4]
    asked, ahead = ask(4, 3, np.array([[1, 0]])), np.ones((4, 2, 1))
    some = panel.take(long)
    np.testing.assert_array_equal(hazards.along(some, asked, ahead), hazards.along(some.until(5), asked, ahead))


def test_log_loss_is_that_of_the_end_that_came() -> None:
    loss = log_loss(np.array([[0.2, 0.3], [0.2, 0.3]]), np.array([[True, False], [False, False]]))
    np.testing.assert_allclose(loss, [-np.log(0.2), -np.log(0.5)])


def test_cut_series_go_on_and_joined_ones_keep_their_ends() -> None:
    panel = mortal_panel(40)
    cut = panel.until(3)
    assert (cut.ends[panel.length > 3] == 0).all()
    np.testing.assert_array_equal(cut.ends[panel.length <= 3], panel.ends[panel.length <= 3])
    joined = join_panels([replace(panel, end=None), panel])
    np.testing.assert_array_equal(joined.ends, np.concatenate([np.zeros(40), panel.ends]))


@pytest.fixture(scope="module")
def tumours() -> Dataset:
    sizes = {"train": 150, "val": 60, "test": 60, "target_train": 10, "target_val": 10, "target_test": 10}
    return simulate_tumor(TumorConfig(gamma=0, steps=40, ends=True, **sizes), NullReporter())


@pytest.mark.parametrize("damage", ["shape", "nan", "missing"])
def test_damaged_hazards_are_refused(tumours: Dataset, damage: str) -> None:
    trained = fit_method(tumours, "mean", None, FinetuneConfig())
    arrays = dict(trained.arrays)
    if damage == "missing":
        del arrays["survival/coef"]
    else:
        coef = arrays["survival/coef"].copy()
        arrays["survival/coef"] = coef[:, 1:] if damage == "shape" else np.full_like(coef, np.nan)
    with pytest.raises(ArtifactError, match="survival is damaged"):
        survival_of(model_of(replace(trained, arrays=arrays)))


@pytest.mark.parametrize("held", [{}, {"log_loss": 0.1}, {"log_loss": "low", "constant_log_loss": 1.0}, 3])
def test_what_held_out_subjects_say_is_checked(tumours: Dataset, held: object) -> None:
    trained = fit_method(tumours, "mean", None, FinetuneConfig())
    model = model_of(
        replace(trained, meta={**trained.meta, "survival": {**trained.meta["survival"], "held_out": held}})
    )
    if held == {}:  # there were none
        assert survival_of(model) is not None
        return
    with pytest.raises(ArtifactError, match="survival is damaged"):
        survival_of(model)


def test_few_shot_on_data_that_keep_no_ends_has_no_hazards(tumours: Dataset) -> None:
    source = model_of(fit_method(tumours, "mean", None, FinetuneConfig()))
    panels = {part: replace(panel, end=None) for part, panel in tumours.panels.items()}
    endless = replace(tumours, schema=tumours.schema.model_copy(update={"ends": ()}), panels=panels)
    for data, kept in ((tumours, True), (endless, False)):
        model = model_of(fit_method(data, "mean", None, FinetuneConfig(), domain="target", start=source))
        assert (survival_of(model) is not None) == kept


def test_hazards_of_recovery_beat_constant_ones_on_held_out_subjects(tumours: Dataset) -> None:
    survival = survival_of(model_of(fit_method(tumours, "mean", None, FinetuneConfig())))
    assert survival is not None
    assert survival.held_out["log_loss"] < 0.9 * survival.held_out["constant_log_loss"]
    assert survival.events["recovery"] == (tumours.panel("source", "train").end == 2).sum()


@pytest.mark.slow
def test_survival_under_plans_agrees_with_the_simulator() -> None:
    sizes = {"train": 600, "val": 200, "test": 300, "target_train": 10, "target_val": 10, "target_test": 10}
    tumours = simulate_tumor(TumorConfig(gamma=2, ends=True, **sizes), NullReporter())
    model = model_of(fit_method(tumours, "mixed", None, FinetuneConfig()))
    survival, part = survival_of(model), Part("source", "test")
    assert survival is not None
    panel = tumours.panels[part]
    for origin, tolerance in ((20, 0.02), (40, 0.08)):
        rows = np.flatnonzero(panel.length > origin + 1)
        for given in ([0, 0], [1, 0], [1, 1]):
            plans = np.tile(np.array(given), (len(rows), 6, 1))
            encoded = tumours.schema.treatments.encode(plans).astype(np.uint8)
            asked = Queries(rows.astype(np.int32), np.full(len(rows), origin, np.int16), encoded)
            predicted = model.rollout(panel, asked).mean(axis=0, dtype=np.float64)
            survival_QH, ends_QHE = survival.along(panel, asked, predicted)
            np.testing.assert_allclose(survival_QH, 1 - ends_QHE.sum(axis=-1), atol=1e-9)
            gone = (tumor_truth(tumours, part, rows, np.full(len(rows), origin), plans) <= 0).mean(axis=0)
            np.testing.assert_allclose(ends_QHE[..., 1].mean(axis=0), gone, atol=tolerance)
