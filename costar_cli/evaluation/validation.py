"""Whether sums that were read from a file are such as scoring leaves: their types, shapes and ranges."""

from collections.abc import Mapping, MutableMapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.evaluation.calibration import BINS, LEVELS, REPORTED, BandScores, GroupScores
from costar_cli.evaluation.lights import KINDS, LightSums
from costar_cli.evaluation.metrics import SquaredErrors
from costar_cli.evaluation.natural import CourseAnswers
from costar_cli.evaluation.probabilities import EventAnswers
from costar_cli.inference import LIGHTS

__all__ = ["check_sums"]

# A letter for each axis, as the classes name them; `S` are the steps of the natural course.
AXES: Final[Mapping[type, Mapping[str, str]]] = {
    SquaredErrors: {"members": "RNHY", "ensemble": "NHY", "count": "NH", "cluster": "N", "weight": "NH"},
    BandScores: {
        **dict.fromkeys(("coverage", "width", "score", "absorbed_coverage"), "KNH"),
        **dict.fromkeys(("count", "mass", "crps", "absorbed"), "NH"),
        "reliability": "LH",
        "pit": "BH",
        "cluster": "N",
    },
    GroupScores: {"subjects": "GH", "coverage": "KGH", "squares": "GH"},
    CourseAnswers: {
        **dict.fromkeys(("subject", "unit", "origin"), "Q"),
        **dict.fromkeys(("observed", "seen", "predicted"), "QSY"),
        "weight": "QS",
    },
    EventAnswers: dict.fromkeys(("step", "predicted", "came", "weight", "time"), "M"),
}
FIXED: Final = {"K": len(REPORTED), "L": len(LEVELS), "B": BINS}
COUNTS: Final = ("count", "absorbed", "cluster", "subject", "unit", "origin", "step")  # whole numbers from 0
FLAGS: Final = ("seen", "came")
FINITE: Final = ("members", "ensemble", "weight", "mass", "subjects", "squares", "predicted", "time")
SIGNED: Final = ("predicted",)
LAST_ORIGIN: Final = np.iinfo(np.int16).max  # as queries hold them


def check_sums(sums: Any, sizes: MutableMapping[str, int]) -> None:  # noqa: ANN401 - of any class in `AXES`, or of lights
    """See that the arrays of sums are of their types and in range, and that their axes are as long as `sizes` says.

    Lengths of axes that `sizes` does not have are added to it.

    Raises:
        ValueError: an array is not as scoring leaves it.
    """
    if isinstance(sums, LightSums):
        for name, array in sums.sums.items():
            if name not in KINDS or array.shape != (4, len(LIGHTS), sizes["H"]):
                raise ValueError(f"sums by light `{name}` of shape {array.shape} are none")
            _check_values(name, array)
        return
    for name, axes in AXES[type(sums)].items():
        array = getattr(sums, name)
        if array is None:
            continue
        _check_values(name, array)
        expected = tuple({**FIXED, **sizes}.get(axis, length) for axis, length in zip(axes, array.shape, strict=False))
        if array.ndim != len(axes) or array.shape != expected:
            raise ValueError(f"`{name}` has shape {array.shape}, which does not fit the others")
        sizes.update({axis: n for axis, n in zip(axes, array.shape, strict=True) if axis not in FIXED})
    if isinstance(sums, CourseAnswers) and not _fits(sums, horizon=sizes["H"]):
        raise ValueError("the natural course has steps that no series has")


def _check_values(name: str, array: NDArray[Any]) -> None:
    kinds = "iu" if name in COUNTS else "b" if name in FLAGS else "f"
    if array.dtype.kind not in kinds:
        raise ValueError(f"`{name}` holds {array.dtype}")
    if name in FINITE and not np.isfinite(array).all():
        raise ValueError(f"`{name}` is not finite")
    if name in (*COUNTS, *FINITE) and name not in SIGNED and (array < 0).any():
        raise ValueError(f"`{name}` is negative")


def _fits(course: CourseAnswers, *, horizon: int) -> bool:
    seen = course.observed[course.seen]
    inside = course.origin <= LAST_ORIGIN
    return course.weight.shape[1] <= horizon and bool(inside.all() and np.isfinite(seen).all())
