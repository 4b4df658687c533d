"""What the marginal structural model says against itself: treatment models that are not done, and low overlap."""

import pytest

from costar_cli.config.models import FinetuneConfig
from costar_cli.methods.regression.msm import low_confidence
from costar_cli.methods.regression.settings import MsmConfig
from costar_cli.reporting import NullReporter
from tests.fits import fit_method
from tests.methods.linear_worlds import fit, linear_data


def test_too_few_iterations_are_recorded_and_told():
    data = linear_data(gamma=0.8)
    enough, too_few = fit(data, "msm").meta, fit(data, "msm", MsmConfig(iterations=1)).meta
    assert enough["treatment_models_converged"]
    assert not too_few["treatment_models_converged"]
    assert "warnings" not in enough
    assert "did not converge in 1 iterations" in too_few["warnings"][0]
    assert "`msm.iterations`" in too_few["warnings"][0]


@pytest.mark.parametrize(
    ("share", "largest", "told"),
    [
        (0.21, 1_000.0, None),
        (0.19, 3_504.4, "weights 0.19, largest 3,504"),
        (0.92, 1.2e13, "weights 0.92, largest 1e+13"),
    ],
)
def test_low_overlap_is_told_with_what_to_do(share, largest, told):
    meta = {"treatment_models_converged": True, "least_effective_share": share, "largest_weight": largest}
    doubts = list(low_confidence(meta, MsmConfig()))
    assert len(doubts) == (told is not None)
    if told:
        assert told in doubts[0]
        assert "compare it with an unweighted method" in doubts[0]


def test_doubts_reach_whoever_fits_and_the_models_file():
    heard = NullReporter()
    trained = fit_method(linear_data(gamma=3), "msm", None, FinetuneConfig(), reporter=heard)
    assert trained.meta["least_effective_share"] < 0.2
    assert len(trained.meta["warnings"]) == 1
    assert [warning for warning in heard.warnings if "overlap is low" in warning] == trained.meta["warnings"]
