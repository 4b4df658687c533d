import evaluate_worlds as worlds
import numpy as np

from costar_cli.config.models import EvaluateConfig
from costar_cli.data import Scaler
from costar_cli.evaluation import run_evaluation
from costar_cli.methods.regression.naive import LastValue

CONFIG = EvaluateConfig(bootstrap=0)


def test_the_value_at_the_origin_is_repeated_whatever_the_plan():
    on = worlds.panel(4)
    queries = worlds.counterfactual_queries(on, 6, 3)
    model = LastValue(horizon=6, schema=worlds.schema(), scaler=Scaler.fit(on, worlds.schema()))
    prediction = model.rollout(on, queries)
    assert prediction.shape == (1, 12, 6, 1)
    for q in range(12):
        last = on.outcomes[queries.subject[q], queries.origin[q], 0]
        assert (prediction[0, q] == last).all()


def test_naive_row_equals_hand_computation_for_one_step_and_sequence():
    data = worlds.dataset()
    report = run_evaluation(data, [worlds.candidate(worlds.oracle(data))], CONFIG)
    row = report.row("zero-shot", "Last value carried forward")
    on, sets = data.panel("target", "test"), data.queries["target", "test"]

    def rmse(queries, h):
        last = on.outcomes[queries.subject, queries.origin, 0].astype(float)
        return np.sqrt(np.mean((last - queries.outcomes[:, h, 0]) ** 2))

    expected = [rmse(sets["one_step"], 0)] + [rmse(sets["sequence"], h) for h in range(1, 6)]
    assert np.allclose(row.mean.steps, expected)
    assert np.isclose(row.mean.average, np.mean(expected))


def test_the_last_value_as_a_model_is_shown_once():
    data = worlds.dataset()
    naive = LastValue(horizon=6, schema=data.schema, scaler=Scaler.fit(data.panel("source", "train"), data.schema))
    model = worlds.candidate(worlds.oracle(data))
    report = run_evaluation(data, [model, worlds.candidate(naive)], CONFIG)
    rows = [row for row in report.rows if row.setup == "supervised" and row.label.startswith("Last value")]
    assert [row.basis for row in rows] == ["ours"]
    alone = run_evaluation(data, [model], CONFIG)
    assert rows[0].mean == alone.row("supervised", "Last value carried forward").mean
