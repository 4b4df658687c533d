"""Average effects: known means, intervals that cover, groups."""

from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data import Panel
from costar_cli.errors import UsageError
from costar_cli.inference import OutcomeFacts, draws
from costar_cli.plans import PlanRequest
from costar_cli.questions import Averager, Cohort, answer_cohort, groups_of
from costar_cli.questions import averages as averages_module
from costar_cli.questions.averages import _of_mean, half_widths, kind_of, same_plans, training_variance
from tests.fits import model_of
from tests.methods.stack_worlds import stacked
from tests.whatif.whatif_worlds import TUMOR, LinearModel, request_of

PLANS = {"watch": [{}] * 3, "chemo": [{"chemotherapy": 1}] * 2}


class PosteriorModel(LinearModel):
    """The same with a posterior: the coefficient is -2 with an sd of 1, the same for all subjects."""

    is_joint = draws_training = True

    def draw_outcomes(self, panel, queries, n, seed, **_):
        coefficients = np.random.default_rng(seed).normal(-2, 1, n)
        return replace(self, coefficients=tuple(coefficients)).rollout(panel, queries).astype(float)


def panel_of(level_N: np.ndarray, *, cluster: np.ndarray | None = None, steps: int = 4) -> Panel:
    """Subjects whose outcome is constant, of two types in turn."""
    n = len(level_N)
    return Panel(
        covariates=np.zeros((n, steps, 0), np.float32),
        treatments=np.tile(TUMOR.treatments.encode(np.zeros((1, 1, 2), int)), (n, steps, 1)),
        outcomes=np.tile(level_N[:, None, None], (1, steps, 1)).astype(np.float32),
        statics=(np.arange(n) % 2)[:, None].astype(np.float32),
        length=np.full(n, steps),
        subject_id=np.arange(n),
        cluster=cluster,
    )


def averages(cohort: Cohort, model: LinearModel, by: str | None = None, plans: dict | None = None, **options: object):
    request = request_of(plans or PLANS)
    averager = Averager(cohort, request, *groups_of(cohort, TUMOR, by), **options)
    for answers in answer_cohort("m", model, cohort, request):
        averager.add(answers)
    return averager.finish("m", model, (0.9, 0.5))


def cohort_of(panel: Panel, **options: object) -> Cohort:
    return Cohort.of(panel, panel.subject_id.tolist(), **options)


def test_means_and_differences_are_those_of_the_answers():
    level_N = np.random.default_rng(0).normal(50, 5, 60)
    found = averages(cohort_of(panel_of(level_N)), PosteriorModel(TUMOR), by="patient_type", reference="chemo")
    assert found.groups == ("all", "patient_type = 0", "patient_type = 1")
    assert found.moments_G.tolist() == [60, 30, 30]
    rows = list(found.to_rows())
    for group, own in (("all", level_N), ("patient_type = 1", level_N[1::2])):
        mine = [row for row in rows if row["group"] == group]
        level = own.astype(np.float32).mean()
        chemo = [row["estimate"] for row in mine if (row["plan"], row["quantity"]) == ("chemo", "outcome")]
        apart = [row["estimate"] for row in mine if (row["plan"], row["quantity"]) == ("watch", "difference")]
        np.testing.assert_allclose(chemo, [level - 2, level - 4], rtol=1e-5)
        np.testing.assert_allclose(apart, [2, 4], atol=1e-4)
    assert all(row["lower"] < row["lower_0.5"] < row["estimate"] < row["upper_0.5"] < row["upper"] for row in rows)
    assert {row["reference"] for row in rows if row["quantity"] == "difference"} == {"chemo"}


def test_the_interval_of_an_effect_that_all_share_is_that_of_training():
    cohort = cohort_of(panel_of(np.random.default_rng(0).normal(50, 5, 60)))
    rows = averages(cohort, PosteriorModel(TUMOR)).to_rows()
    row = next(row for row in rows if row["quantity"] == "difference" and row["step"] == 1)
    assert row["interval_kind"] == "subjects and training (posterior)"
    assert row["estimate"] == pytest.approx(-2, abs=1e-4)
    assert row["upper"] - row["estimate"] == pytest.approx(1.64, rel=0.15)  # of a normal, an sd of 1


class Rare(PosteriorModel):
    """A posterior much wider than its outcome, of which it knows the bounds."""

    def rollout(self, panel, queries, **options):
        return np.clip(super().rollout(panel, queries, **options), 0, 1)

    def draw_outcomes(self, panel, queries, n, seed, **_):
        off_S = np.random.default_rng(seed).normal(0, 3, n)[:, None, None, None]
        treated_Q11 = self.schema.treatments.decode(queries.plan).any(axis=(1, 2))[:, None, None]
        return off_S * np.where(treated_Q11, 1, 2) * np.ones((len(queries), queries.horizon, 1))


@pytest.mark.parametrize(("kind", "most", "apart"), [("binary", 1, (-1, 1)), ("count", None, None)])
def test_limits_of_means_stay_within_what_can_be(monkeypatch, kind, most, apart):
    outcome = TUMOR.outcomes[0].model_copy(update={"kind": kind})
    model = Rare(TUMOR.model_copy(update={"outcomes": (outcome,)}), calibrated=False)
    panel = panel_of(np.random.default_rng(0).integers(0, 2, 60).astype(float))
    facts = OutcomeFacts.of(panel, model.schema, model.scaler)
    monkeypatch.setattr(averages_module, "facts_of", lambda of: replace(facts, lower=(0.0,), upper=(most,)))
    rows = list(averages(cohort_of(panel), model).to_rows())
    outcomes, differences = ([row for row in rows if row["quantity"] == of] for of in ("outcome", "difference"))
    assert {row["lower"] for row in outcomes} == {0}
    assert all(row["lower"] <= row["lower_0.5"] <= row["estimate"] <= row["upper_0.5"] for row in outcomes)
    if most:
        assert {row["upper"] for row in outcomes} == {1}
        assert {(row["lower"], row["upper"]) for row in differences} == {apart}
    else:
        assert min(row["upper"] for row in outcomes) > 1
        assert max(row["lower"] for row in differences) < -1  # fewer than under another plan


def test_few_subjects_and_a_single_black_box_have_no_interval():
    few = averages(cohort_of(panel_of(np.arange(19.0))), PosteriorModel(TUMOR))
    one = averages(cohort_of(panel_of(np.arange(40.0))), LinearModel(TUMOR, coefficients=(-2.0,)))
    for found in (few, one):
        assert {row["lower"] for row in found.to_rows()} == {None}
    assert {row["interval_kind"] for row in few.to_rows()} == {"none (fewer than 20 units)"}
    assert one.interval_kind.startswith("none (a network shrinks effects, by how much nothing that it says shows; ")


def test_ensembles_have_no_interval_however_many_members_they_have_and_say_why():
    cohort = cohort_of(panel_of(np.random.default_rng(0).normal(50, 5, 60)))
    found = averages(cohort, LinearModel(TUMOR, coefficients=tuple(np.linspace(-3, -1, 9))))
    assert {row["lower"] for row in found.to_rows()} == {row["upper_0.5"] for row in found.to_rows()} == {None}
    assert found.interval_kind.startswith(
        "none (members of an ensemble learn from the same subjects and shrink effects"
    )
    assert all(row["estimate"] is not None for row in found.to_rows())


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ("mixed", "subjects and training (posterior)"),
        ("boosting", "none (the model does not measure how uncertain its training is)"),
        ("mixed,boosting", "none (the model does not measure how uncertain its training is)"),
        ("mixed,growth", "none (members of an ensemble"),
    ],
)
def test_a_stack_has_an_interval_where_all_its_parts_have_a_posterior(parts, kind):
    trained = stacked("tumor", parts)
    weights = np.full_like(trained.arrays["params/weights"], 1 / (1 + parts.count(",")))  # none is left out
    stack = model_of(replace(trained, arrays={**trained.arrays, "params/weights": weights}))
    assert kind_of(stack).startswith(kind)


def test_intervals_cover_the_mean_of_the_population():
    """Clusters of three with an effect of their own: intervals by subject would cover about two thirds."""
    rng, covered, by_subject = np.random.default_rng(1), 0, 0
    for run in range(200):
        unit_M = np.repeat(np.arange(40), 3)
        values = rng.normal(2, 1, 40)[unit_M] + rng.normal(0, 0.3, 120)
        shape = (120, 1, 1, 1)
        off = rng.normal(0, 0.1)  # what training got wrong
        half, alone = (
            half_widths(values.reshape(shape), units, np.full(shape[1:], 0.1), (0.9,), replicates=200, seed=run).item()
            for units in (unit_M, np.arange(120))
        )
        covered += abs(values.mean() + off - 2) < half
        by_subject += abs(values.mean() + off - 2) < alone
    assert 0.85 <= covered / 200 <= 0.95
    assert by_subject / 200 < 0.8


def test_clusters_are_resampled_as_one():
    panel = panel_of(np.repeat(np.arange(25.0), 4), cluster=np.repeat(np.arange(25), 4))
    found = averages(cohort_of(panel), PosteriorModel(TUMOR))
    assert (found.unit, found.units_G.tolist(), found.moments_G.tolist()) == ("cluster", [25], [100])


def test_what_a_subject_is_uncertain_by_does_not_become_smaller_with_its_moments():
    rng, unit_M = np.random.default_rng(0), np.repeat(np.arange(50), 20)
    theta_SU, shared_S = rng.normal(size=(2_000, 50)), rng.normal(scale=0.1, size=(2_000, 1))
    drawn = (theta_SU[:, unit_M] + shared_S)[:, :, None, None, None]
    assert _of_mean(drawn, unit_M, 50).item() == pytest.approx(0.01 + 1 / 50, rel=0.1)
    assert _of_mean(drawn, unit_M, 5_000).item() == pytest.approx(0.01, rel=0.15)  # units beyond those drawn


@pytest.mark.parametrize("plans", [3, 100])
def test_draws_of_many_plans_are_bounded_and_rest_on_a_hundred_moments(monkeypatch, plans):
    asked = []

    def counted(model, panel, queries, **options):
        asked.append((len(np.unique(queries.subject)), len(queries)))
        return draws(model, panel, queries, **options)

    monkeypatch.setattr(averages_module, "draws", counted)
    monkeypatch.setattr(averages_module, "MOST_DRAWN", 600)
    cohort = cohort_of(panel_of(np.random.default_rng(0).normal(50, 5, 300)))
    request = request_of({f"plan {i}": [{"chemotherapy": i % 2}] * (1 + i % 3) for i in range(plans)})
    everybody = np.ones((1, 300), dtype=bool)
    of_outcomes, of_differences = training_variance(
        PosteriorModel(TUMOR), cohort, request, everybody, np.arange(300), 1
    )
    assert min(subjects for subjects, _ in asked) >= 100
    assert max(queries for _, queries in asked) <= 600
    np.testing.assert_allclose(of_outcomes[0, 0, 0], of_outcomes[0, -1 - (plans + 1) % 2, 0], rtol=1e-6)
    assert of_differences[0, 1].max() == 0
    assert of_differences[0, 0, 0] > 0


def test_groups_are_quantiles_of_an_outcome_at_the_origin():
    cohort = cohort_of(panel_of(np.arange(40.0)))
    names, in_GM = groups_of(cohort, TUMOR, "tumour_volume:2")
    assert names == ("all", "tumour_volume up to 19.5 cm3", "tumour_volume above 19.5 cm3")
    assert in_GM.sum(axis=1).tolist() == [40, 20, 20]
    assert len(groups_of(cohort, TUMOR, "tumour_volume")[0]) == 5


@pytest.mark.parametrize(
    ("by", "problem"),
    [("patient_typ", "there is no static"), *((f"tumour_volume:{n}", "groups; 2 to 100") for n in (0, 1, 101, 10**9))],
)
def test_what_cannot_be_grouped_by_is_refused(by, problem):
    with pytest.raises(UsageError, match=problem):
        groups_of(cohort_of(panel_of(np.arange(40.0))), TUMOR, by)


def test_plans_of_different_names_have_no_average():
    plans = request_of(PLANS).plans
    request = PlanRequest((), by_subject={str(i): plans[i % 2 :] for i in range(4)})
    with pytest.raises(UsageError, match="the same plans for all subjects"):
        same_plans(cohort_of(panel_of(np.arange(4.0))), request)


def test_categories_of_a_static_make_groups():
    statics = tuple(TUMOR.statics[0].model_copy(update={"name": name}) for name in ("sex=f", "sex=m"))
    panel = replace(panel_of(np.arange(4.0)), statics=np.eye(2, dtype=np.float32)[[0, 1, 1, 1]])
    names, in_GM = groups_of(cohort_of(panel), TUMOR.model_copy(update={"statics": statics}), "sex")
    assert (names, in_GM.sum(axis=1).tolist()) == (("all", "sex=f", "sex=m"), [4, 1, 3])
