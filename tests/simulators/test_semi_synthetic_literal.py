"""The vectorised semi-synthetic simulator against the equations written as a plain loop over patients and hours."""

import numpy as np
import pytest

from benchmarks.literal_semi_synthetic import (
    Chance,
    one_step_queries,
    sequence_queries,
    simulate_story,
)
from simulators.semi_synthetic import (
    OUTCOMES,
    PatientSeeds,
    draw_functions,
    draw_uniforms,
    matern_covariance,
    one_step_counterfactuals,
    sequence_counterfactuals,
    simulate_baseline,
    simulate_factual,
)
from simulators.semi_synthetic.draws import draw_path_normals, draw_plans, draw_trend_classes

LENGTH = np.array([34, 12, 26, 11, 2, 45])


@pytest.fixture(scope="module", params=[3, 17], ids=lambda seed: f"seed {seed}")
def world(request):
    seed = request.param
    covariates = np.random.default_rng(seed).standard_normal((len(LENGTH), LENGTH.max(), 25))
    seeds, functions = PatientSeeds(seed, np.array([40, 7, 12, 3, 90, 8])), draw_functions(seed)
    functions = functions.centred(covariates.reshape(-1, 25))
    baseline = simulate_baseline(functions, seeds, covariates, LENGTH)
    uniform = draw_uniforms(seeds, LENGTH, LENGTH.max())
    classes, normals = draw_trend_classes(seeds), draw_path_normals(seeds, LENGTH, LENGTH.max())
    roots = [
        np.linalg.cholesky(matern_covariance(LENGTH.max(), length_hours=o.path_hours, noise=o.path_noise))
        for o in OUTCOMES
    ]
    stories = []
    for i, n in enumerate(LENGTH):
        paths = [(root @ normals[i, :, j])[:n].tolist() for j, root in enumerate(roots)]
        chance = Chance(classes[i].tolist(), paths, uniform[i, :n].tolist())
        stories.append(simulate_story(functions, covariates[i, :n].tolist(), chance))
    return seeds, baseline, simulate_factual(baseline, uniform), stories


def test_untreated_outcomes_are_those_of_the_loop(world):
    _, baseline, _, stories = world
    for i, story in enumerate(stories):
        n = LENGTH[i]
        np.testing.assert_allclose(baseline.untreated[i, :n], np.array(story.states[0]).T, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(baseline.logit[i, :n], story.logits, rtol=1e-10, atol=1e-10)


def test_factual_series_are_those_of_the_loop(world):
    *_, factual, stories = world
    for i, story in enumerate(stories):
        n = LENGTH[i]
        np.testing.assert_allclose(factual.outcomes[i, :n], np.array(story.outcomes).T, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(factual.treatments[i, : n - 1], story.treatments)
        np.testing.assert_allclose(factual.probability[i, : n - 1], story.probabilities, rtol=1e-9)
    assert factual.treatments.any(axis=(0, 1)).all()


@pytest.mark.parametrize("kind", ["one_step", "sequence"])
def test_counterfactuals_are_those_of_the_loop(world, kind):
    seeds, baseline, factual, stories = world
    if kind == "one_step":
        fast = one_step_counterfactuals(baseline, factual)
        slow = [(i, *query) for i, story in enumerate(stories) for query in one_step_queries(story)]
    else:
        fast = sequence_counterfactuals(baseline, factual, seeds)
        n_origins = np.maximum(LENGTH - 11, 0)
        drawn = np.split(draw_plans(seeds, n_origins, 10, 10), np.cumsum(n_origins)[:-1])
        slow = [
            (i, *query)
            for i, story in enumerate(stories)
            for query in sequence_queries(story, [[list(map(tuple, p)) for p in o] for o in drawn[i].tolist()])
        ]
    subject, origin, plan, outcomes = zip(*slow, strict=True)
    np.testing.assert_array_equal(fast.subject, subject)
    np.testing.assert_array_equal(fast.origin, origin)
    np.testing.assert_array_equal(fast.treatments, np.array(plan))
    np.testing.assert_allclose(fast.outcomes, np.array(outcomes), rtol=1e-9, atol=1e-9)
