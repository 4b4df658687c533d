"""The invariants of design.md section 6, for every method: no leaks, plan causality, padding, encode once."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costar_cli.errors import UsageError
from costar_cli.methods import METHODS, FittedModel
from costar_cli.panel import Dataset, Panel, Queries
from tests.train.worlds import as_model, run_finetune


@pytest.fixture(scope="module", params=METHODS)
def model(request, tumor_dataset: Dataset, tmp_path_factory) -> FittedModel:
    assert request.param == "costar"
    return as_model(run_finetune(tumor_dataset, Path(tmp_path_factory.mktemp("run")), members=2, epochs=2))


@pytest.fixture
def panel(tumor_dataset: Dataset) -> Panel:
    return tumor_dataset.panel("target", "test")


def ask(model: FittedModel, panel: Panel, n: int = 40) -> Queries:
    rng = np.random.default_rng(0)
    subject = rng.integers(panel.n_subjects, size=n).astype(np.int32)
    origin = (rng.random(n) * panel.length[subject]).astype(np.int16)
    plan = np.eye(4, dtype=np.uint8)[rng.integers(4, size=(n, model.horizon))]
    return Queries(subject, origin, plan)


def test_nothing_after_the_origin_changes_a_prediction(model, panel):
    queries = ask(model, panel)
    expected = model.rollout(panel, queries)
    rng = np.random.default_rng(1)
    for row in range(0, len(queries), 7):
        one = queries.take(slice(row, row + 1))
        subject, origin = int(one.subject[0]), int(one.origin[0])
        outcomes, treatments = panel.outcomes.copy(), panel.treatments.copy()
        outcomes[subject, origin + 1 :] = rng.normal(size=outcomes[subject, origin + 1 :].shape) * 100
        treatments[subject, origin:] = 1 - treatments[subject, origin:]
        length = panel.length.copy()
        length[subject] = origin + 1
        for changed in (
            replace(panel, outcomes=outcomes, treatments=treatments),
            replace(panel, outcomes=outcomes, treatments=treatments, length=length),
        ):
            np.testing.assert_allclose(model.rollout(changed, one), expected[:, row : row + 1], rtol=1e-4, atol=1e-3)


def test_the_history_before_the_origin_does_change_predictions(model, panel):
    queries = ask(model, panel)
    changed = replace(panel, outcomes=panel.outcomes + 30)
    assert np.abs(model.rollout(panel, queries) - model.rollout(changed, queries)).min(axis=(0, 2, 3)).max() > 1e-3


def test_a_treatment_changes_no_step_before_it_acts(model, panel):
    queries = ask(model, panel)
    expected = model.rollout(panel, queries)
    for step in range(model.horizon):
        plan = queries.plan.copy()
        plan[:, step] = np.roll(plan[:, step], 1, axis=-1)
        changed = model.rollout(panel, replace(queries, plan=plan))
        np.testing.assert_allclose(changed[:, :, :step], expected[:, :, :step], rtol=1e-5, atol=1e-4)
        assert (np.abs(changed[:, :, step:] - expected[:, :, step:]) > 1e-6).any(axis=(0, 1, 3)).all()


def test_padding_changes_no_prediction(model, panel):
    queries = ask(model, panel)
    pad = ((0, 0), (0, 9), (0, 0))
    longer = replace(
        panel,
        covariates=np.pad(panel.covariates, pad),
        treatments=np.pad(panel.treatments, pad),
        outcomes=np.pad(panel.outcomes, pad),
    )
    np.testing.assert_allclose(model.rollout(longer, queries), model.rollout(panel, queries), rtol=1e-5, atol=1e-4)


def test_answers_do_not_depend_on_company_or_batch_size(model, panel):
    queries = ask(model, panel)
    expected = model.rollout(panel, queries)
    np.testing.assert_allclose(model.rollout(panel, queries, batch_size=3), expected, rtol=1e-5, atol=1e-4)
    alone = np.concatenate([model.rollout(panel, queries.take(slice(i, i + 1))) for i in range(5)], axis=1)
    np.testing.assert_allclose(alone, expected[:, :5], rtol=1e-5, atol=1e-4)


def test_short_plans_give_the_first_steps_and_long_ones_are_refused(model, panel):
    queries = ask(model, panel)
    short = replace(queries, plan=queries.plan[:, :2])
    np.testing.assert_allclose(
        model.rollout(panel, short), model.rollout(panel, queries)[:, :, :2], rtol=1e-5, atol=1e-4
    )
    long = replace(queries, plan=np.concatenate([queries.plan, queries.plan], axis=1))
    with pytest.raises(UsageError, match="horizon"):
        model.rollout(panel, long)


def test_representations_cover_every_subject_and_step(model, panel):
    assert model.represent(panel).shape == (2, panel.n_subjects, panel.n_steps, 8)
