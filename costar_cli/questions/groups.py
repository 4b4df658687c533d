"""Groups of a cohort's moments: by the values of a static, or by quantiles of what was observed at the origin."""

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.nearest import did_you_mean
from costar_cli.data import PanelSchema
from costar_cli.errors import UsageError
from costar_cli.questions.subjects import Cohort

MOST_VALUES: Final = 8  # of a static that has a group for each
QUANTILES: Final = 4
MOST_GROUPS: Final = 100
MOST_DIGITS: Final = 10
EVERYBODY: Final = "all"

Floats = NDArray[np.float64]


def groups_of(cohort: Cohort, schema: PanelSchema, by: str | None) -> tuple[tuple[str, ...], NDArray[np.bool_]]:
    """Return the names of groups, everybody first, and which moments belong to each `[G,M]`.

    Args:
        cohort: the moments.
        schema: names of its columns.
        by: a static; or an outcome or covariate, whose quantiles at the origin make groups. `NAME:3` asks for so many.

    Raises:
        UsageError: there is no such column, or it has one value only; not 2 to 100 groups are asked for.
    """
    everybody = np.ones((1, len(cohort)), dtype=bool)
    if by is None:
        return (EVERYBODY,), everybody
    name, _, asked = by.partition(":") if by.rpartition(":")[2].isdecimal() else (by, "", "")
    count = int(asked) if asked and len(asked) < MOST_DIGITS else None
    if asked and (count is None or not 2 <= count <= MOST_GROUPS):
        raise UsageError(f"{asked[:20]} groups; 2 to {MOST_GROUPS} are possible", where="--by", fix=f"{name}:4")
    names, in_GM = list[str](), everybody[:0]
    if count is None:  # a static of several categories has a 0/1 column for each: `sex=f`, `sex=m`
        own = [i for i, variable in enumerate(schema.statics) if variable.name.startswith(f"{name}=")]
        in_GM = cohort.panel.statics[cohort.subject_M][:, own].T > 0.5
        some = np.flatnonzero(in_GM.any(axis=1))
        names, in_GM = [schema.statics[own[i]].name for i in some], in_GM[some]
    if not names:
        values_M, unit = _values(cohort, schema, name)
        distinct = np.unique(values_M)
        if count is None and name in _names(schema)[0] and len(distinct) <= MOST_VALUES:
            names = [f"{name} = {value:g}{unit}" for value in distinct]
            in_GM = values_M == distinct[:, None]
        else:
            edges = np.unique(np.quantile(values_M, np.linspace(0, 1, (count or QUANTILES) + 1)[1:-1]))
            edges = edges[edges < values_M.max()]
            shown = [f"{edge:.3g}" for edge in edges]
            names = [f"{name} up to {shown[0]}{unit}"] if shown else []
            names += [f"{name} {low} to {high}{unit}" for low, high in pairwise(shown)]
            names += [f"{name} above {shown[-1]}{unit}"] if shown else []
            in_GM = np.searchsorted(edges, values_M) == np.arange(len(names))[:, None]
    if len(names) < 2:
        raise UsageError(f"{name} has one value only: there is nothing to group by", where="--by", fix="leave it out")
    return (EVERYBODY, *names), np.concatenate([everybody, in_GM])


def _names(schema: PanelSchema) -> tuple[list[str], list[str], list[str]]:
    return tuple([v.name for v in of] for of in (schema.statics, schema.outcomes, schema.covariates))  # type: ignore[return-value]


def _values(cohort: Cohort, schema: PanelSchema, name: str) -> tuple[Floats, str]:
    """Return the value of a column at each moment, and its unit."""
    statics, outcomes, covariates = _names(schema)
    panel, row_M, origin_M = cohort.panel, cohort.subject_M, cohort.origin_M
    if name in statics:
        i, values_M, of = statics.index(name), panel.statics[row_M, statics.index(name)], schema.statics
    elif name in outcomes:
        i = outcomes.index(name)
        values_M, of = panel.outcomes[row_M, origin_M, i], schema.outcomes
    elif name in covariates:
        i = covariates.index(name)
        values_M, of = panel.covariates[row_M, origin_M, i], schema.covariates
    else:
        known = dict.fromkeys([*(static.partition("=")[0] for static in statics), *outcomes, *covariates])
        fix = did_you_mean(name, known, quoted=True) or f"it has {', '.join(known)}"
        raise UsageError(f"there is no static, outcome or covariate {name!r} to group by", where="--by", fix=fix)
    return values_M.astype(np.float64), f" {of[i].unit}".rstrip()
