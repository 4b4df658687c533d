"""Confounding by indication is said where it is, and nothing is said of randomised treatment."""

from dataclasses import replace

import numpy as np
import pytest

import costar_cli as costar
from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Panel, PanelSchema, Part, TreatmentEncoding, Variable
from costar_cli.data.indication import Indication, indications
from costar_cli.data.record import ModelRecord
from costar_cli.data.report import describe_dataset
from costar_cli.errors import ArtifactError
from costar_cli.files import Artifact
from costar_cli.plans import PlanRequest, TreatmentPlan
from costar_cli.questions import Cohort, names_of, warnings_on_plans
from costar_cli.report.pages import report_tables
from tests.fits import fit_method

SCHEMA = PanelSchema(
    outcomes=(Variable(name="pressure", unit="mmHg"),),
    treatments=TreatmentEncoding(mode="multilabel", names=("pressor",), levels=(("off", "on"),)),
)


def world(
    *, effect: float, hidden: float = 0.0, seen: float = 0.0, arms: bool = False, patients: int = 400, seed: int = 0
) -> Panel:
    """Patients whose state is recorded with noise; treatment follows the state (`hidden`), the record, or chance."""
    rng, steps = np.random.default_rng(seed), 12
    state, base = rng.normal(0, 6, patients), rng.normal(75, 4, patients)
    outcomes = np.zeros((patients, steps, 1), np.float32)
    given = np.zeros((patients, steps, 1), np.float32)
    arm = rng.random(patients) < 0.5
    for t in range(steps):
        outcomes[:, t, 0] = base + state + rng.normal(0, 6, patients)
        logit = -1 - hidden * state - seen * (outcomes[:, t, 0] - 75)
        given[:, t, 0] = arm if arms else rng.random(patients) < 1 / (1 + np.exp(-logit))
        state = 0.7 * state + effect * given[:, t, 0] + rng.normal(0, 4, patients)
    empty = np.zeros((patients, steps, 0), np.float32)
    return Panel(
        covariates=empty, treatments=given, outcomes=outcomes, statics=np.zeros((patients, 0), np.float32),
        length=np.full(patients, steps), subject_id=np.arange(patients),
    )  # fmt: skip


def found(panel: Panel) -> Indication:
    (indication,) = indications(panel, SCHEMA)
    return indication


def test_no_effect_and_strong_selection_by_what_is_hidden_is_said():
    said = found(world(effect=0.0, hidden=0.4))
    assert said.before.upper < 0 > said.effect.upper
    assert said.is_suspect
    for words in (
        "pressor was begun where pressure was lower before, -",
        "the same sign",
        "costar whatif --sensitivity",
    ):
        assert words in said.diagnostic().text


@pytest.mark.parametrize("arms", [False, True])
def test_nothing_is_said_of_randomised_treatment_with_an_effect(*, arms: bool):
    for seed in range(5):
        said = found(world(effect=-6.0, arms=arms, seed=seed))
        assert said.before.sign == 0
        assert said.effect.upper < 0
        assert not said.is_suspect


def test_a_treatment_that_helps_those_who_need_it_is_not_suspected():
    said = found(world(effect=6.0, hidden=0.2))
    assert said.before.upper < 0 < said.effect.lower
    assert not said.is_suspect


def test_intervals_cover_the_effect_where_treatment_is_randomised():
    """No interval of 99 % leaves the truth out in more than two of 40 worlds, but by a chance below 1 %."""
    missed = 0
    for seed in range(40):
        said = found(world(effect=-3.0, patients=100, seed=seed))
        missed += not said.effect.lower < -3.0 < said.effect.upper
    assert missed <= 2


def test_few_who_begin_say_nothing():
    assert indications(world(effect=0.0, patients=15), SCHEMA) == []


def test_models_and_reports_tell_it_of_plans_that_give_the_treatment():
    suspect, half = world(effect=0.0, hidden=0.4), 200
    held = replace(world(effect=0.0, hidden=0.4, patients=half), subject_id=1_000 + np.arange(half))
    dataset = Dataset("ward", SCHEMA, 2, {Part("source", "train"): suspect, Part("source", "val"): held})
    report = describe_dataset(dataset)
    (finding,) = [found for found in report.findings if found.code == "confounding-by-indication"]
    assert finding.severity == "warning"
    (table,) = [t for t in report_tables(report) if t.title == "Treatments and the outcome before them"]
    assert (table.rows[0][0], table.rows[0][-1]) == ("pressor", "yes")
    model = costar.fit(dataset, "last-value")
    never, now = (TreatmentPlan(name, np.array([[given], [0]])) for name, given in (("never", 0), ("now", 1)))
    cohort = Cohort.of(held, names_of(held))
    for plans, expected in (([never], []), ([never, now], [replace(finding, subject="")])):
        warnings = warnings_on_plans({"m": model.fitted}, cohort, PlanRequest(tuple(plans)))
        assert [warning for warning in warnings if warning.code == finding.code] == expected


def test_what_a_model_keeps_comes_back_and_damage_is_an_error():
    said = found(world(effect=0.0, hidden=0.4))
    assert ModelRecord.read({"indication": [said.to_meta()]}).indication == (said,)
    assert ModelRecord.read({}).indication == ()
    endless = {**said.to_meta()["before"], "upper": float("inf")}
    changes = ({"before": 1}, {"before": endless}, {"treatment": 3}, {"begun": "many"})
    for damaged in (3, [{}], *([said.to_meta() | change] for change in changes)):
        with pytest.raises(ArtifactError, match="incomplete or damaged") as caught:
            ModelRecord.of(Artifact("model", {}, {"indication": damaged}))
        assert "indication" in caught.value.where


def test_outcomes_of_the_first_and_last_step_alone_are_no_evidence():
    def ends_alone(seed: int) -> Panel:
        panel = world(effect=-6.0, hidden=0.4, patients=100, seed=seed)
        observed = np.zeros(panel.outcomes.shape, dtype=bool)
        observed[:, [0, -1]] = True
        outcomes = np.where(observed, panel.outcomes, panel.outcomes[:, :1])
        return replace(panel, outcomes=outcomes, outcome_observed=observed, subject_id=panel.subject_id + 1000 * seed)

    panels = {part: ends_alone(seed) for seed, part in enumerate(Part.all())}
    assert indications(panels[Part("source", "train")], SCHEMA) == []
    trained = fit_method(Dataset("ends", SCHEMA, 2, panels), "ridge", None, FinetuneConfig())
    assert "indication" not in trained.meta
