"""The fitted equations, and answers by simulating courses step by step (spec GCOMP-5 to 7)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel
from costar_cli.files import Artifact
from costar_cli.methods.base import Device
from costar_cli.methods.gcomp.design import Design
from costar_cli.methods.gcomp.learners import BOOSTING, OF_TREES, REGRESSIONS
from costar_cli.methods.gcomp.settings import MOST_LAGS, GcompConfig
from costar_cli.methods.shared.course import Course, Floats, along
from costar_cli.methods.shared.simulated import Histories, SimulatedModel
from costar_cli.methods.shared.trees import Forest, forests_of

TREES: Final = "trees."
AFFINE: Final = frozenset({"recent", "history"})  # equations without products


@dataclass(frozen=True, kw_only=True)
class GcompModel(SimulatedModel):
    """Fitted equations of one step; one member. Answering takes no library but numpy and scipy, on the CPU."""

    @classmethod
    def from_artifact(cls, artifact: Artifact, device: Device = "cpu", **own: Any) -> Self:  # noqa: ANN401, ARG003
        """Read a model artifact.

        Raises:
            ValueError: equations, residuals or trees are not those of the schema's variables.
        """
        model = super().from_artifact(artifact, "cpu", **own)
        facts, e = model.record.facts, len(model.scales.kinds)
        if not 1 <= model.lags <= MOST_LAGS:
            raise ValueError(f"{model.lags} lags are not 1 to {MOST_LAGS}")
        if len(model.learners) != e or not set(model.learners) <= {BOOSTING, *REGRESSIONS}:
            raise ValueError(f"there is not one known learner for each of {e} variables: {facts['learners']}")
        replicates, width = model.rows_of("linear.replicates"), 1 + model.design.width
        arrays = {"linear.weight": (e, width), "linear.replicates": (replicates, e, width)}
        model.require_simulated(arrays, within=("linear.",))
        for forest in model.forests.values():
            if max(forest.thresholds, default=-1) >= model.design.among(OF_TREES).sum():
                raise ValueError("a tree asks about a column that there is not")
        return model

    @property
    def draws_training(self) -> bool:
        """Return whether draws hold what the training subjects leave open: of trees nothing is known."""
        return not self.forests

    @property
    def lags(self) -> int:
        """Return how many past values are columns."""
        return int(self.record.facts["lags"])

    @property
    def learners(self) -> list[str]:
        """Return what predicts each variable."""
        return list(self.record.facts["learners"])

    @cached_property
    def design(self) -> Design:
        """Return the columns of the equations."""
        return Design.of(self.schema, self.scales, self.lags)

    @cached_property
    def forests(self) -> dict[int, Forest]:
        """Return the trees of each variable that has some."""
        grown = [e for e, learner in enumerate(self.learners) if learner == BOOSTING]
        if not grown:
            return {}
        trees = {name.removeprefix(TREES): value for name, value in self.params.items() if name.startswith(TREES)}
        return dict(zip(grown, forests_of(trees, (1, len(grown)))[0], strict=True))

    def encode(self, panel: Panel) -> Histories:
        """Return where every subject stands at every step."""
        dose_NTL = panel.treatments.astype(np.float64) @ self.table
        lags = self.lags if "history" in self._blocks else 0
        return Histories(along(panel, self.scales, lags, dose_NTL), panel.subject_id)

    def responses(self, course: Course, dose_ML: Floats, replicate_S: NDArray[np.int64] | None) -> Floats:
        """Return what the equations predict, or those of replicates."""
        columns_MP = self.design.columns(course, dose_ML, self._blocks)
        if replicate_S is None:
            response_ME = columns_MP @ self._weight_EP[:, 1:].T + self._weight_EP[:, 0]
        else:
            weight_SEP = self._replicates_BEP[replicate_S]
            columns_SQP = columns_MP.reshape(len(weight_SEP), -1, columns_MP.shape[1])
            response_SQE = columns_SQP @ weight_SEP[:, :, 1:].swapaxes(1, 2) + weight_SEP[:, None, :, 0]
            response_ME = response_SQE.reshape(len(columns_MP), -1)
        for e, forest in self.forests.items():
            response_ME[:, e] += forest.predict(columns_MP)
        return np.asarray(response_ME)

    @cached_property
    def affine(self) -> bool:
        """Return whether a step is the same linear function of values everywhere, up to bounds."""
        return set(self.learners) <= AFFINE and set(self.scales.kinds) == {"additive"} and not self.scales.whole_E.any()

    @cached_property
    def _blocks(self) -> tuple[str, ...]:
        """Return the blocks of columns that some equation has."""
        return tuple(dict.fromkeys(b for name in self.learners for b in {**REGRESSIONS, BOOSTING: OF_TREES}[name]))

    @cached_property
    def _weight_EP(self) -> Floats:
        return np.asarray(self.params["linear.weight"][0].astype(np.float64))

    @cached_property
    def _replicates_BEP(self) -> Floats:
        return np.asarray(self.params["linear.replicates"][0].astype(np.float64))

    @property
    def replicates(self) -> int:
        """Return how many samples of training subjects have equations."""
        return len(self._replicates_BEP)

    @property
    def samples(self) -> int:
        """Return how many courses a prediction is the mean of."""
        return int((self.record.settings or {}).get("samples", GcompConfig().samples))
