import evaluate_worlds as worlds
import numpy as np

from costar_cli.data import Queries
from costar_cli.evaluation.score import serving_sets, truth_of


def steps(serving, truth):
    return {name: np.flatnonzero(served).tolist() for name, served in serving[truth].items()}


def test_one_step_serves_tau_1_and_sequence_serves_the_rest():
    on = worlds.panel(5)
    serving = serving_sets(on, worlds.answered_sets(on), worlds.HORIZON)
    assert list(serving) == ["counterfactual"]
    assert steps(serving, "counterfactual") == {"one_step": [0], "sequence": [1, 2, 3, 4, 5]}


def test_the_shortest_set_wins_a_step_that_two_sets_score():
    on = worlds.panel(5)
    sets = worlds.answered_sets(on) | {"sequence": worlds.counterfactual_queries(on, 6, 4)}
    assert steps(serving_sets(on, sets, 6), "counterfactual") == {"one_step": [0], "sequence": [1, 2, 3, 4, 5]}


def test_factual_and_counterfactual_sets_are_served_side_by_side():
    on = worlds.panel(5)
    sets = {"rolling_origin": worlds.factual_queries(on, 6), "every_price": worlds.counterfactual_queries(on, 6, 4)}
    serving = serving_sets(on, sets, 6)
    assert steps(serving, "factual") == {"rolling_origin": [0, 1, 2, 3, 4, 5]}
    assert steps(serving, "counterfactual") == {"every_price": [0, 1, 2, 3, 4, 5]}


def test_steps_beyond_the_horizon_are_not_served():
    on = worlds.panel(5)
    assert steps(serving_sets(on, {"a": worlds.counterfactual_queries(on, 6, 4)}, 2), "counterfactual") == {"a": [0, 1]}


def test_sets_without_answers_serve_nothing():
    on = worlds.panel(5)
    full = worlds.counterfactual_queries(on, 6, 4)
    assert serving_sets(on, {"questions": Queries(full.subject, full.origin, full.plan)}, 6) == {}


def test_followed_plans_are_factual_and_one_departure_makes_them_counterfactual():
    on = worlds.panel(5)
    queries = worlds.factual_queries(on, 6)
    assert truth_of(on, queries) == "factual"
    queries.plan[-1, 2] = np.roll(queries.plan[-1, 2], 1)
    assert truth_of(on, queries) == "counterfactual"


def test_departures_after_the_last_scored_step_do_not_matter():
    on = worlds.panel(5)
    queries = worlds.factual_queries(on, 6)
    queries.plan[:, 4:] = np.roll(queries.plan[:, 4:], 1, axis=-1)
    queries.scored[:, 4:] = False
    assert truth_of(on, queries) == "factual"


def test_answers_after_the_last_observed_step_can_only_be_simulated():
    on = worlds.panel(5)
    queries = worlds.factual_queries(on, 6)
    assert truth_of(worlds.without(on, length=on.length - 1), queries) == "counterfactual"
