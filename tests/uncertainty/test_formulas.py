"""Formulas of uncertainty against values that are worked out another way: by hand, by loops, or by closed forms."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from costar_cli.data import Panel, PanelSchema, Part, Queries, Scaler, TreatmentEncoding, Variable
from costar_cli.data.dose import Dose
from costar_cli.inference import Estimates, draws, estimate
from costar_cli.inference.floor import LEVEL, mean_score
from costar_cli.inference.overlap import _cross_fitted
from costar_cli.inference.propensity import CELLS, Courses, DoseRecord, PropensityModel, decisions_of
from costar_cli.inference.support import Limits, PlanSupport
from costar_cli.inference.weights import log_ratios
from costar_cli.methods.base import PredictiveDistribution
from costar_cli.methods.stack.model import StackModel
from tests.dose_worlds import linear_doses
from tests.fits import model_of
from tests.methods.linear_worlds import linear_data
from tests.methods.stack_worlds import stacked
from tests.uncertainty.test_floor import EVERYTHING
from tests.whatif.whatif_worlds import TUMOR, LinearModel, make_dataset


def test_windows_weigh_by_the_product_of_the_inverse_probabilities_of_all_steps_so_far() -> None:
    probability_QH = np.random.default_rng(0).uniform(0.05, 0.95, (7, 4))
    seen_QHY, outcome_QHY = np.arange(28).reshape(7, 4, 1) % 3 > 0, np.full((7, 4, 1), 5.0)
    asked = []

    class Known:
        def log_probability(self, panel: object, queries: object, course_QHY: NDArray[np.float64]) -> NDArray:
            asked.append(course_QHY)
            return np.log(probability_QH)

    windows = SimpleNamespace(
        panel=None, asked=None, observed_QHY=seen_QHY, queries=SimpleNamespace(outcomes=outcome_QHY)
    )
    held = SimpleNamespace(windows=windows, estimates=SimpleNamespace(mean_QHY=np.full((7, 4, 1), 9.0)))
    weight_QH = np.exp(log_ratios(Known(), held))
    for q in range(7):
        weight = 1.0
        for h in range(4):
            weight /= probability_QH[q, h]
            assert weight_QH[q, h] == pytest.approx(weight)
    np.testing.assert_array_equal(asked[0], np.where(seen_QHY, 5.0, 9.0))  # predictions stand for what was not seen


@pytest.fixture
def dosed() -> tuple[PanelSchema, Panel, NDArray[np.float64]]:
    """Nine steps of doses of either sign for five subjects, in units of the encoding."""
    rng = np.random.default_rng(3)
    dose_NT = rng.normal(0, 4, (5, 9)).round(2) * (rng.random((5, 9)) < 0.7)
    dose = Dose.learn("mg", dose_NT.ravel())
    schema = PanelSchema(
        covariates=(Variable(name="x"),),
        treatments=TreatmentEncoding(mode="multilabel", names=(), levels=(), doses=(dose,)),
        outcomes=(Variable(name="y"),),
        statics=(Variable(name="v"),),
    )  # fmt: skip
    given_NTA = schema.treatments.encode(dose_NT[..., None]).astype(np.float32)
    panel = Panel(
        rng.normal(2, 3, (5, 9, 1)).astype(np.float32), given_NTA, rng.normal(7, 2, (5, 9, 1)).astype(np.float32),
        rng.normal(size=(5, 1)).astype(np.float32), np.full(5, 9), np.arange(5),
    )  # fmt: skip
    return schema, panel, given_NTA[..., 0].astype(np.float64)


def test_what_practice_may_know_is_means_of_outcomes_and_doses_and_the_total_dose_so_far(dosed) -> None:
    schema, panel, given_NT = dosed
    scaler = Scaler.fit(panel, schema)
    plan_QH = np.array([[3.0, -9.0, 0.0], [0.0, 1.0, 2.0]])
    origin_Q, predicted_QHY = np.array([6, 2]), np.random.default_rng(1).normal(7, 2, (2, 3, 1))
    encoded = schema.treatments.encode(plan_QH[..., None]).astype(np.float32)
    queries = Queries(np.array([4, 1], np.int32), origin_Q.astype(np.int16), encoded)
    found = Courses.of(panel, queries, predicted_QHY, scaler, schema.treatments)
    for q, (row, origin) in enumerate(zip((4, 1), origin_Q, strict=True)):
        for h in range(3):
            outcomes = [*panel.outcomes[row, : origin + 1, 0], *predicted_QHY[q, :h, 0]]
            standard = (np.array(outcomes) - scaler.outcomes[0, 0]) / scaler.outcomes[1, 0]
            doses = [*given_NT[row, :origin], *encoded[q, :h, 0]]
            total = float(np.sum(doses))
            x = (panel.covariates[row, origin, 0] - scaler.covariates[0, 0]) / scaler.covariates[1, 0]
            v = (panel.statics[row, 0] - scaler.statics[0, 0]) / scaler.statics[1, 0]
            means = [np.mean(standard[-steps:]) for steps in (1, 5, 15)]
            np.testing.assert_allclose(found.outcome_QHSY[q, h, :, 0], means, rtol=1e-5)
            other = [doses[-1], np.mean(doses[-5:]), np.sign(total) * np.log1p(abs(total)), np.log1p(origin + h), x, v]
            np.testing.assert_allclose(found.other_QHP[q, h], other, rtol=1e-4, atol=1e-6)


def test_the_share_of_a_dose_is_that_of_its_cell_and_the_two_beside_it_with_half_a_dose_more() -> None:
    rng = np.random.default_rng(0)
    dose_M = np.append(rng.gamma(2, 3, 400), [0.0, 40.0])
    record, width = DoseRecord.of(dose_M), 40 / CELLS
    for dose in (0.0, 0.9, 3.1, 17.2, 33.0, 39.9, 40.0, 41.0, 43.9, 44.5, 900.0, -0.1, -1.9, -3.9, -4.1):
        cell = CELLS - 1 if dose == 40 else np.floor(dose / width)
        of_M = np.minimum(np.floor(dose_M / width), CELLS - 1)
        near = int((np.abs(of_M - cell) <= 1).sum())
        assert record.log_share(np.array(dose)) == pytest.approx(np.log((near + 0.5) / 403)), dose


def test_a_dose_that_was_never_given_is_as_unlikely_as_its_share_after_any_course() -> None:
    data = linear_doses(60)
    panel = data.panels[Part("source", "train")]
    practice = PropensityModel.fit(panel, data.schema, Scaler.fit(panel, data.schema))
    decided = int((panel.length - 1).sum())
    plan = data.schema.treatments.encode(np.full((len(panel.length), 2, 1), 1e3)).astype(np.float32)
    rows = np.arange(panel.n_subjects, dtype=np.int32)
    queries = Queries(rows, np.full(len(rows), 8, np.int16), plan)
    log_QH = practice.log_probability(panel, queries, np.full((len(rows), 2, 1), 10.0))
    assert (log_QH <= np.log(0.5 / (decided + 1)) + 1e-9).all()


def test_the_score_of_a_floor_is_the_interval_score_of_bands_that_the_other_half_calibrates() -> None:
    """Half of the subjects err by one sd, the others by three: bands of three and of one sd."""
    n, each, sd, unit = 120, 3, 0.5, 4.0
    first_N = np.random.default_rng(0).permutation(n) % 2 == 0  # which half a subject is in
    whose_Q = np.repeat(np.arange(n), each)
    error_Q = np.where(first_N, 1.0, 3.0)[whose_Q] * sd
    queries = SimpleNamespace(outcomes=error_Q[:, None, None], subject=whose_Q)
    windows = SimpleNamespace(
        panel=SimpleNamespace(cluster=None, n_subjects=n), queries=queries,
        observed_QHY=np.ones((n * each, 1, 1), dtype=bool),
    )  # fmt: skip
    cells = np.ones((n * each, 1, 1))
    none = np.zeros((1, n * each, 1, 1))
    found = Estimates(
        none[0], sd * cells, cells, cells[:, 0], unit * cells[:, 0], none, origin_Q=np.zeros(n * each, np.int64)
    )
    covered, missed = (
        2 * 3 * sd,
        2 * sd + 2 / 0.1 * (3 - 1) * sd,
    )  # width, and 2/alpha of the miss
    assert pytest.approx(0.9) == LEVEL
    assert mean_score(windows, found, EVERYTHING) == pytest.approx((covered + missed) / 2 / unit)
    first_Q = np.flatnonzero(first_N[whose_Q])
    more = replace_rows(windows, found, np.concatenate([np.arange(n * each), *[first_Q] * 5]))
    assert mean_score(*more, EVERYTHING) == pytest.approx((covered + missed) / 2 / unit)  # a subject counts once


def replace_rows(windows: SimpleNamespace, found: Estimates, rows: NDArray[np.int64]) -> tuple:
    """Return the questions in these rows."""
    queries = SimpleNamespace(outcomes=windows.queries.outcomes[rows], subject=windows.queries.subject[rows])
    taken = SimpleNamespace(panel=windows.panel, queries=queries, observed_QHY=windows.observed_QHY[rows])
    return taken, found.take(rows)


def test_the_variance_of_a_stack_is_that_of_draws_of_its_parts() -> None:
    """A mixture of normals with weights .3 and .7: what a million draws have, and what of it is not noise."""
    stack = model_of(stacked(parts="mixed"))
    assert isinstance(stack, StackModel)
    shape = (1, 2, stack.horizon, len(stack.schema.outcomes))
    weight = np.broadcast_to(np.array([0.3, 0.7])[None, :, None, None], shape)
    parts = {"one": Normal(TUMOR, mean=2.0, own=0.5, noise=1.0), "two": Normal(TUMOR, mean=5.0, own=1.5, noise=0.25)}
    both = replace(stack, params={"weights": torch.from_numpy(weight.copy())}, parts=parts)
    panel = make_dataset().panels[Part("source", "test")]
    queries = Queries(np.zeros(1, np.int32), np.zeros(1, np.int16), panel.treatments[:1, :1])
    found = estimate(both, panel, queries)
    rng = np.random.default_rng(0)
    from_two = rng.random(1_000_000) < 0.7
    own = rng.normal(np.where(from_two, 5.0, 2.0), np.where(from_two, 1.5, 0.5))
    drawn = rng.normal(own, np.where(from_two, 0.25, 1.0))
    assert found.mean_QHY[0, 0, 0] == pytest.approx(drawn.mean(), abs=0.01)
    assert found.sd_QHY[0, 0, 0] == pytest.approx(drawn.std(), rel=0.005)
    assert found.share_QHY[0, 0, 0] == pytest.approx(own.var() / drawn.var(), abs=0.005)


@dataclass
class Normal(LinearModel):
    """A model that predicts one normal distribution for everything."""

    mean: float = 0.0
    own: float = 1.0
    noise: float = 1.0
    calibrated: bool = field(default=False)
    has_distribution: bool = True

    def predict_distribution(
        self, panel: Panel, queries: Queries, summed_Y: np.ndarray | None = None
    ) -> PredictiveDistribution:
        shape = (1, len(queries), queries.horizon, len(self.schema.outcomes))
        mean, own, noise = (np.full(shape, value, np.float32) for value in (self.mean, self.own, self.noise))
        return PredictiveDistribution(mean, own, noise)


def test_draws_of_a_black_box_vary_by_the_floor_as_a_share_of_the_level() -> None:
    level_RQHY = np.tile(np.array([3.0, -20.0])[:, None, None], (3, 1, 4, 1))  # members that are of one mind
    model = LinearModel(TUMOR, calibrated=False, meta={"calibration": {"floor": 0.03}})
    model.rollout = lambda panel, queries: level_RQHY  # type: ignore[method-assign]
    queries = Queries(np.arange(2, dtype=np.int32), np.zeros(2, np.int16), np.zeros((2, 4, 1), np.uint8))
    drawn_SQHY = draws(model, None, queries, 20_000)
    np.testing.assert_allclose(drawn_SQHY.std(axis=0), 0.03 * np.abs(level_RQHY[0]), rtol=0.02)
    np.testing.assert_allclose(drawn_SQHY.mean(axis=0), level_RQHY[0], rtol=0.002)


def test_lights_compare_the_rarest_step_so_far_the_whole_course_and_the_spread_with_what_was_usual() -> None:
    likely_QH = np.log([[0.001, 0.9, 0.9], [0.2, 0.2, 0.9], [0.9, 0.9, 0.9]])
    limits = Limits(
        spread_LHY=np.array([0.2, 0.4])[:, None, None] * np.ones((1, 3, 1)),
        rarest_LH=np.log([0.1, 0.01])[:, None] * np.ones(3),
        course_LH=np.log([0.05, 0.0005])[:, None] * np.ones(3),
    )
    practice = SimpleNamespace(log_probability=lambda panel, queries, course: likely_QH, encoding=None)
    support = PlanSupport(practice, limits, precise=False, windows=100)
    queries = Queries(np.arange(3, dtype=np.int32), np.zeros(3, np.int16), np.zeros((3, 3, 1), np.uint8))
    cells = np.ones((3, 3, 1))
    found = Estimates(
        cells,
        np.array([0.5, 1.5, 2.5])[:, None, None] * cells,
        cells,
        cells[:, 0],
        5 * cells[:, 0],
        cells[None],
        origin_Q=np.zeros(3, np.int64),
    )
    ratings = support.ratings(None, queries, found)
    assert ratings.rarest_QH.tolist() == [[2, 2, 2], [0, 0, 0], [0, 0, 0]]  # a rare step stays rare
    assert ratings.course_QH.tolist() == [[1, 1, 1], [0, 1, 1], [0, 0, 0]]  # .2, .04, .036
    assert ratings.precision_QHY[..., 0].tolist() == [[0] * 3, [1] * 3, [2] * 3]  # .1, .3 and .5 of the unit
    assert ratings.rating_QHY[..., 0].tolist() == [[2, 2, 2], [1, 1, 1], [2, 2, 2]]
    np.testing.assert_allclose(ratings.probability_QH, np.exp(likely_QH))


def test_how_likely_subjects_were_to_be_treated_rests_on_those_of_the_other_half() -> None:
    """The last decisions of subjects of even number change: no history does, and nothing that is said of them."""
    data = linear_data()
    panel = data.panel("source", "train")
    scaler, queries = Scaler.fit(panel, data.schema), decisions_of(panel, most=10_000)
    even_N = np.arange(panel.n_subjects) % 2 == 0
    changed = panel.treatments.copy()
    last_N = np.flatnonzero(even_N & (panel.length > 1)), panel.length[even_N & (panel.length > 1)] - 2
    changed[last_N] = 1 - changed[last_N]
    before, after = (
        _cross_fitted(replace(panel, treatments=given), queries, data.schema, scaler)[0]
        for given in (panel.treatments, changed)
    )
    even_M = even_N[queries.subject]
    np.testing.assert_array_equal(before[even_M], after[even_M])
    assert (before[~even_M] != after[~even_M]).any()
