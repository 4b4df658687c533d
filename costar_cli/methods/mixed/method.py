"""The mixed-effects growth model as a method: how it is fitted, and read (spec MIXED-4 to 8)."""

from costar_cli.methods.base import Fit, FitTask
from costar_cli.methods.mixed.model import MixedModel
from costar_cli.methods.shared.trained import ReadsModels


class MixedMethod(ReadsModels):
    """The mixed-effects growth model; few-shot refits it to both domains' subjects, from the source's solution."""

    model = MixedModel

    def fit(self, task: FitTask) -> Fit:
        """Fit it as `fit_mixed` does; there are no stages to train."""
        from costar_cli.methods.mixed.fit import fit_mixed  # noqa: PLC0415 - answers need nothing of it

        yield from ()
        return fit_mixed(task)


MIXED = MixedMethod()
