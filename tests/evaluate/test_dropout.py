"""Weights against loss of follow-up: errors are nearer to those on complete series (spec SCORE-22)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from costar_cli.config.models import EvaluateConfig, FinetuneConfig
from costar_cli.data import Dataset, End, Panel, PanelSchema, Part, Scaler, TreatmentEncoding, Variable
from costar_cli.data.queries import rolling_origin
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.errors import UsageError
from costar_cli.evaluation import EvaluationReport, run_evaluation
from costar_cli.evaluation.dropout import StayWeights, hazards_of_losses
from costar_cli.evaluation.report import read_evaluation, write_evaluation
from costar_cli.evaluation.setups import Candidate
from costar_cli.inference import Hazards, OutcomeFacts
from costar_cli.methods.base import FittedModel
from costar_cli.reporting import NullReporter
from tests.fits import fit_method, model_of

TEST = Part("source", "test")
DROPOUT = End(name="dropout", terminal=False)


def lost(panel: Panel, risk_NT: np.ndarray[Any, Any], code: int, seed: int = 0) -> Panel:
    """The subjects of a panel, some of them lost after a step, with this risk at each."""
    step_T = np.arange(panel.n_steps)
    goes_NT = (np.random.default_rng(seed).random(risk_NT.shape) < risk_NT) & (step_T < panel.length[:, None] - 1)
    gone_N = goes_NT.any(axis=1)
    length = np.where(gone_N, goes_NT.argmax(axis=1) + 1, panel.length)
    there, given = (step_T < length[:, None])[..., None], (step_T < length[:, None] - 1)[..., None]
    return replace(
        panel, covariates=panel.covariates * there, outcomes=panel.outcomes * there,
        treatments=(panel.treatments * given).astype(panel.treatments.dtype),
        length=length, end=np.where(gone_N, code, panel.ends),
    )  # fmt: skip


def test_weighted_means_are_those_of_complete_series() -> None:
    schema = PanelSchema(
        treatments=TreatmentEncoding(mode="multilabel", names=("drug",), levels=(("off", "on"),)),
        outcomes=(Variable(name="y"),), ends=(DROPOUT,),
    )  # fmt: skip
    rng, (n, steps) = np.random.default_rng(1), (3_000, 8)
    y_NT = rng.normal(size=(n, 1)) + rng.normal(scale=0.4, size=(n, steps)).cumsum(axis=1)
    zeros = np.zeros((n, steps, 1), np.float32)
    complete = Panel(
        zeros[..., :0], zeros, y_NT[..., None].astype(np.float32), zeros[:, 0, :0], np.full(n, steps), np.arange(n)
    )
    panel = lost(complete, expit(-2.7 + 0.7 * y_NT), 1)
    scaler = Scaler.fit(panel, schema)
    hazards = Hazards.fit(panel, schema, scaler, OutcomeFacts.of(panel, schema, scaler))
    assert hazards is not None
    weights = StayWeights.of(hazards, panel, test="source/test")
    here_N = panel.length == steps
    left, truth = y_NT[here_N, -1], float(y_NT[:, -1].mean())
    weighed = float(np.average(left, weights=weights.weight_NT[here_N, -1]))
    plain = float(left.mean())
    assert abs(weighed - truth) < 0.25 * abs(plain - truth)
    assert abs(plain - truth) > 0.2
    assert weights.summary.lost == (~here_N).sum()
    assert weights.weight_NT[:, 0].min() == weights.weight_NT[:, 0].max() == 1
    assert weights.summary.lower < 1 < weights.summary.upper == weights.weight_NT.max()
    assert 0 < weights.summary.effective < 1


@pytest.fixture(scope="module")
def tumours() -> tuple[Dataset, Dataset]:
    """Tumours whose large ones are lost more often, and the same, followed to their ends."""
    sizes = {"train": 500, "val": 50, "test": 500, "target_train": 5, "target_val": 5, "target_test": 5}
    full = simulate_tumor(TumorConfig(gamma=0, steps=30, ends=True, **sizes), NullReporter())
    schema = full.schema.model_copy(update={"ends": (*full.schema.ends, DROPOUT)})
    panels = {
        part: lost(panel, expit(-4.0 + 0.4 * np.log(np.maximum(panel.outcomes[..., 0], 1e-3))), len(schema.ends))
        for part, panel in full.panels.items()
    }

    def of(panels: dict[Part, Panel]) -> Dataset:
        queries = rolling_origin(panels[TEST], 6)
        assert queries is not None
        asked = {TEST: {"rolling_origin": queries}}
        return replace(full, schema=schema, panels=panels, queries=asked, truth={})

    return of(panels), of(dict(full.panels))


def evaluated(data: Dataset, model: FittedModel, **settings: Any) -> EvaluationReport:
    return run_evaluation(data, [Candidate(model)], EvaluateConfig(bootstrap=0, **settings))


@pytest.mark.parametrize("method", ["mean", "ridge"])
def test_weighted_errors_are_nearer_to_those_on_complete_series(
    tumours: tuple[Dataset, Dataset], method: str, tmp_path: Path
) -> None:
    cut, complete = tumours
    model = model_of(fit_method(cut, method, None, FinetuneConfig()))
    report = evaluated(cut, model, ipcw=True)
    row, true = report.rows[0], evaluated(complete, model).rows[0].mean.average
    assert row.unweighted is not None
    found, plain = row.mean.average, row.unweighted.average
    assert found is not None and plain is not None and true is not None  # noqa: PT018
    assert abs(found - true) < 0.8 * abs(plain - true)
    assert plain == evaluated(cut, model).rows[0].mean.average
    write_evaluation(tmp_path / "e.h5", report, parents={}, fingerprint="", config={})
    again = read_evaluation(tmp_path / "e.h5")
    assert (again.rows, again.dropout) == (report.rows, report.dropout)
    assert again.errors[0] is not None
    steps_H = report.unit.factor * again.errors[0].rmse().mean(axis=0)
    np.testing.assert_allclose(steps_H, [step or np.nan for step in row.mean.steps])


def test_weights_reach_the_natural_course_and_probabilities(tumours: tuple[Dataset, Dataset]) -> None:
    cut, complete = tumours
    model = model_of(fit_method(cut, "ridge", None, FinetuneConfig()))
    weighed, plain, true = evaluated(cut, model, ipcw=True), evaluated(cut, model), evaluated(complete, model)
    observed = [report.natural[0].steps[5].observed for report in (weighed, plain, true)]
    assert abs(observed[0] - observed[2]) < abs(observed[1] - observed[2])
    for ours, theirs in zip(weighed.probabilities, plain.probabilities, strict=True):
        assert [step.answers for step in ours.steps] == [step.answers for step in theirs.steps]
        assert [step.predicted for step in ours.steps] != [step.predicted for step in theirs.steps]


def test_data_without_losses_have_no_weights(tumours: tuple[Dataset, Dataset]) -> None:
    cut, _ = tumours
    fitted = fit_method(cut, "mean", None, FinetuneConfig())
    with pytest.raises(UsageError, match="which the data set does not record"):
        hazards_of_losses(cut.schema.model_copy(update={"ends": cut.schema.ends[:2]}), [Candidate(model_of(fitted))])
    without = model_of(replace(fitted, meta={**fitted.meta, "survival": None}))
    with pytest.raises(UsageError, match="none of the models has them"):
        evaluated(cut, without, ipcw=True)
