"""Curves of effects that jobs make apart: one of each target, estimator and plan, as all of them have the same folds.

Regressions learn from all subjects, so effects are no sums over parts of these; a curve is the smallest piece of work.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costar_cli.effects.estimators import Curve
from costar_cli.files import Artifact, complete
from costar_cli.files.shards import Shard


class CurvesOfPart:
    """Makes a shard's curves, every N-th, and keeps them as arrays; a `Source`."""

    def __init__(self, shard: Shard) -> None:
        self._shard, self._places = shard, count()
        self.arrays: dict[str, NDArray[Any]] = {}

    def __call__(self, name: str, _shape: tuple[int, ...], make: Callable[[], Curve]) -> Curve | None:
        """Return a curve where it is of the shard."""
        if next(self._places) % self._shard.of != self._shard.number - 1:
            return None
        curve = make()
        self.arrays |= {f"curve/{name}/mean": curve.mean_GHQ, f"curve/{name}/influence": curve.influence_GMHQ}
        return curve


class CurvesOfParts:
    """Has the curves of all parts; a `Source`."""

    def __init__(self, parts: Sequence[Artifact]) -> None:
        self._part_of = {name: part for part in parts for name in part.arrays}
        self._first = parts[0]

    def __call__(self, name: str, shape: tuple[int, ...], _make: Callable[[], Curve]) -> Curve:
        """Return a curve that a part holds.

        Raises:
            ArtifactError: none does, or it is of another shape.
        """
        of_mean, of_influence = f"curve/{name}/mean", f"curve/{name}/influence"
        with complete(self._part_of.get(of_influence, self._first)):
            mean_GHQ, influence_GMHQ = (self._part_of[of].arrays[of] for of in (of_mean, of_influence))
            if influence_GMHQ.shape != shape or mean_GHQ.shape != (shape[0], *shape[2:]):
                raise ValueError(f"{of_influence} is {influence_GMHQ.shape}, not {shape}")
            return Curve(mean_GHQ.astype(np.float64), influence_GMHQ.astype(np.float64))
