"""Closed forms and trees end where a signal asks for it, also where the exception that it raised was lost."""

import importlib
import signal

import pytest

from costar_cli.config.models import Config
from costar_cli.errors import Termination
from costar_cli.methods.boosting.settings import BoostingConfig
from costar_cli.methods.gcomp.settings import GcompConfig
from costar_cli.methods.in_context.settings import InContextConfig
from costar_cli.methods.regression.settings import MsmConfig, RidgeConfig
from tests.methods.linear_worlds import fit, random_dataset

STEPS: dict[str, tuple[str, str, Config]] = {  # the function that fits one step of the horizon
    "ridge": ("regression.ridge", "_fit_step", RidgeConfig()),
    "msm": ("regression.msm", "_weighted_regression", MsmConfig()),
    "boosting": ("boosting.method", "grow", BoostingConfig(trees=2)),
    "gcomp": ("gcomp.method", "choose", GcompConfig(learner="ridge")),
    "in-context": ("in_context.method", "condition", InContextConfig()),
}


@pytest.mark.parametrize("method", STEPS)
def test_a_fit_ends_at_the_step_after_a_signal_whose_exception_was_lost(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, name, settings = STEPS[method]
    module, fitted = importlib.import_module(f"costar_cli.methods.{room}"), list[object]()
    fit_step = getattr(module, name)

    def signalled_in_the_second(*args: object, **options: object) -> object:
        fitted.append(fit_step(*args, **options))
        if len(fitted) == 2:
            termination.came = signal.SIGTERM
        return fitted[-1]

    monkeypatch.setattr(module, name, signalled_in_the_second)
    with Termination() as termination, pytest.raises(KeyboardInterrupt):
        fit(random_dataset((1, 1, 1, 1), one_hot=False, n=40), method, settings)
    assert len(fitted) == 2
