"""The table of sums that scoring leaves of a row: named columns, and what is done to all of them alike.

A column is an array whose axes follow from its name. Statistics are functions of columns; a part of an evaluation is a
file of them. Axes: `R` members, `N` subjects, `H` steps, `Y` outcomes; `K` reported levels, `L` all levels, `B` bins of
the PIT, `G` groups of answers, `P` calendar periods; `Q` windows of the natural course and `S` their steps; `M` answers
about an event; `4CH` are sums by rating and step.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.inference import SUPPORT_LEVELS

LEVELS: Final = tuple(round(0.05 * i, 2) for i in range(1, 20))
TAILS: Final = tuple(sorted({round(tail, 4) for level in LEVELS for tail in ((1 - level) / 2, (1 + level) / 2)}))
REPORTED: Final = (0.5, 0.8, 0.9, 0.95)  # each is one of `LEVELS`
RATINGS: Final = ("precision", "practice", "support")  # in the order in which they are shown
BINS: Final = 2 * len(LEVELS) + 2  # of the PIT: between neighbouring quantiles, and beyond the outermost

Sums = Mapping[str, NDArray[Any]]

ERRORS: Final = {"members": "RNHY", "ensemble": "NHY", "count": "NH", "cluster": "N", "weight": "NH"}
BANDS: Final = {
    **dict.fromkeys(("coverage", "width", "score", "absorbed_coverage"), "KNH"),
    **dict.fromkeys(("count", "mass", "crps", "w1", "absorbed"), "NH"),
    "reliability": "LH",
    "pit": "BH",
    "cluster": "N",
}
ORDERS: Final = dict.fromkeys(("signs", "signed", "ordered", "pairs", "regret", "random", "origins"), "NH")
COURSE: Final = {
    **dict.fromkeys(("subject", "unit", "origin"), "Q"),
    **dict.fromkeys(("observed", "seen", "predicted"), "QSY"),
    **dict.fromkeys(("weight", "since", "dose"), "QS"),
    **dict.fromkeys(("lower", "upper"), "QSYL"),
}
OF_DOSES: Final = ("since", "dose", "lower", "upper")  # columns of the course that data with doses have
PLACES: Final[Mapping[str, Mapping[str, str]]] = {  # folders of columns, and the axes of those that may be in them
    r"(errors|unweighed)/(counterfactual|factual)": ERRORS,
    r"effects/counterfactual": ERRORS,
    r"orders/counterfactual": ORDERS,
    r"periods/sums/(counterfactual|factual)": {name: axes.replace("N", "P") for name, axes in ERRORS.items()},
    r"bands/scores/(counterfactual|factual|windows)": BANDS,
    r"bands/scores/(counterfactual|factual|windows)/groups/\w+": {
        "subjects": "GH", "coverage": "KGH", "squares": "GH",
    },
    r"bands/lights/(counterfactual|factual|windows)/sums": dict.fromkeys(RATINGS, "4CH"),
    r"course": COURSE,
    r"ends/\d+": dict.fromkeys(("step", "predicted", "came", "weight", "time"), "M"),
}  # fmt: skip
OPTIONAL: Final = {"cluster", "weight", "time", "w1"}
SIZES: Final = {"K": len(REPORTED), "L": len(LEVELS), "B": BINS, "C": len(SUPPORT_LEVELS), "4": 4}
COUNTS: Final = (
    "count", "absorbed", "cluster", "subject", "unit", "origin", "step", "signed", "pairs", "origins",
)  # fmt: skip  # whole numbers from 0
FLAGS: Final = ("seen", "came")
FINITE: Final = (
    "members", "ensemble", "weight", "mass", "subjects", "squares", "predicted", "time", "signs", "ordered", "regret",
    "random",
)  # fmt: skip
SIGNED: Final = ("predicted",)
LAST_ORIGIN: Final = np.iinfo(np.int16).max  # as queries hold them


def blank(folder: str, **sizes: int) -> dict[str, NDArray[Any]]:
    """Return the columns of a folder, those that may be left out aside, to which nothing was added yet."""
    lengths = SIZES | sizes
    return {
        f"{folder}/{name}": np.zeros([lengths[axis] for axis in axes], np.int64 if name in COUNTS else np.float64)
        for name, axes in _columns_in(folder).items()
        if name not in OPTIONAL
    }


def columns_of(sums: Sums, folder: str) -> dict[str, NDArray[Any]]:
    """Return the columns of a folder by their own names; none where there is no such folder."""
    inside = ((name.rpartition("/"), column) for name, column in sums.items())
    return {name: column for (place, _, name), column in inside if place == folder}


def kinds_of(sums: Sums, folder: str) -> list[str]:
    """Return the names of the folders in a folder, in order."""
    start = f"{folder}/"
    return list(dict.fromkeys(name.removeprefix(start).split("/")[0] for name in sums if name.startswith(start)))


@cache
def _columns_in(folder: str) -> Mapping[str, str]:
    found = [columns for place, columns in PLACES.items() if re.fullmatch(place, folder)]
    if not found:
        raise ValueError(f"there are no sums `{folder}`")
    return found[0]


def _axes(name: str) -> str:
    folder, _, column = name.rpartition("/")
    if column not in (columns := _columns_in(folder)):
        raise ValueError(f"there are no sums `{name}`")
    return columns[column]


def cut(sums: Sums, subjects: range) -> dict[str, NDArray[Any]]:
    """Return sums with the rows of some subjects alone, where subjects have rows.

    They are copies, unless all rows are kept, so that memory can forget the others.
    """
    found = {}
    for name, column in sums.items():
        some = column
        if "N" in (axes := _axes(name)):
            some = column[(*[slice(None)] * axes.index("N"), slice(subjects.start, subjects.stop))]
        found[name] = column if some.shape == column.shape else some.copy()
    return found


def merged(parts: Sequence[Sums]) -> dict[str, NDArray[Any]]:
    """Return the sums of parts as those of one: rows in the order of the parts, and what has no rows of subjects added.

    Raises:
        ValueError: columns do not fit together.
    """
    found: dict[str, NDArray[Any]] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        columns = [part[name] for part in parts if name in part]
        rows = next((i for i, axis in enumerate(_axes(name)) if axis in "NQM"), None)
        found[name] = reduce(np.add, columns) if rows is None else np.concatenate(columns, axis=rows)
    return found


def check_sums(sums: Sums, sizes: Mapping[str, int]) -> None:
    """See that columns are as scoring leaves them: complete, of their types, in range, and of lengths that fit.

    Args:
        sums: the columns of a row.
        sizes: known lengths of axes, of groups by the name of their grouping.

    Raises:
        ValueError: a column is not as scoring leaves it.
    """
    known = {**SIZES, **sizes}
    for name, column in sums.items():
        axes, (folder, _, own) = _axes(name), name.rpartition("/")
        if column.dtype.kind not in ("iu" if own in COUNTS else "b" if own in FLAGS else "f"):
            raise ValueError(f"`{name}` holds {column.dtype}")
        if own in FINITE and not np.isfinite(column).all():
            raise ValueError(f"`{name}` is not finite")
        if own in (*COUNTS, *FINITE) and own not in SIGNED and (column < 0).any():
            raise ValueError(f"`{name}` is negative")
        # groups and events have lengths of their own, which go by the last word of their folder
        lengths = [folder.rpartition("/")[2] if axis in "GM" else axis for axis in axes]
        expected = tuple(known.setdefault(*pair) for pair in zip(lengths, column.shape, strict=False))
        if column.ndim != len(axes) or column.shape != expected:
            raise ValueError(f"`{name}` has shape {column.shape}, which does not fit the others")
    for folder in {name.rpartition("/")[0] for name in sums}:
        optional = {*OPTIONAL, *OF_DOSES} if folder == "course" else OPTIONAL
        optional = {*OPTIONAL, *_columns_in(folder)} if folder.startswith("bands/lights") else optional
        if missing := _columns_in(folder).keys() - optional - columns_of(sums, folder).keys():
            raise ValueError(f"`{folder}` lacks `{min(missing)}`")
    if course := columns_of(sums, "course"):
        seen = course["observed"][course["seen"]]
        if course["weight"].shape[1] > known["H"] or (course["origin"] > LAST_ORIGIN).any():
            raise ValueError("the natural course has steps that no series has")
        if not np.isfinite(seen).all():
            raise ValueError("what was observed in the natural course is not finite")
