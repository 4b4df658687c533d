import evaluate_worlds as worlds
import numpy as np
import pytest

from costar_cli.data import Part, Queries
from costar_cli.errors import DataError
from costar_cli.report.figures.trajectories import choose_examples

PART = Part("target", "test")


def several_plans(data):
    """Ten plans from each of several origins of every subject."""
    on = data.panels[PART]
    rng = np.random.default_rng(0)
    subject, origin = np.repeat(np.arange(on.n_subjects), 30), np.tile(np.repeat([1, 5, 8], 10), on.n_subjects)
    shape = (len(subject), worlds.HORIZON)
    queries = Queries(
        subject=subject.astype(np.int32),
        origin=origin.astype(np.int16),
        plan=np.eye(4, dtype=np.uint8)[rng.integers(4, size=shape)],
        outcomes=rng.normal(10, 3, size=(*shape, 1)).astype(np.float32),
        scored=np.ones(shape, bool),
    )
    data.queries[PART] = {"sequence": queries}
    return queries


@pytest.fixture(scope="module")
def world():
    data = worlds.dataset()
    queries = several_plans(data)
    return data.panels[PART], queries, worlds.oracle(data, members=2)


def test_an_example_shows_one_subject_from_one_origin_under_several_plans(world):
    panel, queries, model = world
    examples = choose_examples(model, panel, queries, subjects=2, plans=3)
    assert len({example.subject for example in examples}) == len(examples) == 2
    for example in examples:
        assert len(example.plans) == 3
        row = int(np.flatnonzero(panel.subject_id == int(example.subject.split()[1]))[0])
        assert example.history.tolist() == panel.outcomes[row, : example.origin + 1, 0].tolist()
        for plan in example.plans:
            assert plan.values.shape == (worlds.HORIZON, 2)
            assert plan.estimate_H == pytest.approx(plan.truth_H)
            assert plan.limits is None


def test_examples_have_some_history_where_they_can(world):
    panel, queries, model = world
    assert all(example.origin >= 4 for example in choose_examples(model, panel, queries, subjects=3))
    early = queries.take(queries.origin == 1)
    assert all(example.origin == 1 for example in choose_examples(model, panel, early, subjects=3))


def test_the_choice_depends_on_the_seed_and_not_on_the_model(world):
    panel, queries, model = world

    def subjects(seed, error=0.0):
        other = worlds.FakeModel(model.answers, model.schema, model.scaler, error=error)
        return [example.subject for example in choose_examples(other, panel, queries, subjects=4, seed=seed)]

    assert subjects(0) == subjects(0, error=5.0)
    assert len({tuple(subjects(seed)) for seed in range(8)}) > 1


def test_queries_without_siblings_cannot_be_examples(world):
    panel, queries, model = world
    with pytest.raises(DataError, match="two plans from one origin"):
        choose_examples(model, panel, queries.take(np.arange(0, len(queries), 10)))
