"""Hypothesis strategies: schemas with unicode names, ragged panels, query sets, data sets.

Shapes, names and lengths are drawn by hypothesis; the values of arrays come from a drawn seed, so that examples stay
small and quick.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from costar_cli.data import Dataset, ErrorUnit, Panel, PanelSchema, Part, Queries, TreatmentEncoding, Variable

__all__ = ["datasets", "encodings", "names", "panels", "query_sets", "schemas", "seeds"]

KINDS = ("continuous", "count", "binary", "ordinal")


def seeds() -> st.SearchStrategy[int]:
    """Draw the seed of a generator."""
    return st.integers(0, 2**32 - 1)


def names() -> st.SearchStrategy[str]:
    """Draw a name in any script, with the odd bracket, space, slash or quote."""
    letters = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn"))
    text = st.text(letters, min_size=1, max_size=10).map(str.strip).filter(bool)
    return text | st.sampled_from(["[bold]", "a/b", "été", "剂量 mg", "x'y\"z"])


@st.composite
def encodings(draw: st.DrawFn, treatment_names: tuple[str, ...] | None = None) -> TreatmentEncoding:
    """Draw treatments: up to three, binary (multilabel) or with up to four levels and classes for all combinations."""
    if treatment_names is None:
        treatment_names = tuple(draw(st.lists(names(), min_size=1, max_size=3, unique=True)))
    multiclass = draw(st.booleans())
    most = 4 if multiclass else 2
    labels = st.lists(
        names() | st.sampled_from(["0", "1", "2", "5", "off", "on"]), min_size=2, max_size=most, unique=True
    )
    levels = tuple(tuple(draw(labels)) for _ in treatment_names)
    if not multiclass:
        return TreatmentEncoding(mode="multilabel", names=treatment_names, levels=levels)
    combinations = np.indices([len(choice) for choice in levels]).reshape(len(levels), -1).T
    classes = tuple(tuple(int(v) for v in row) for row in combinations)
    return TreatmentEncoding(mode="multiclass", names=treatment_names, levels=levels, classes=classes)


@st.composite
def schemas(draw: st.DrawFn, max_variables: int = 3) -> PanelSchema:
    """Draw a schema with at least one outcome and one treatment, and names that are all different."""
    n_x, n_v = draw(st.integers(0, max_variables)), draw(st.integers(0, max_variables))
    n_y, n_a = draw(st.integers(1, max_variables)), draw(st.integers(1, 3))
    reserved = {"subject", "step", "domain", "split"}
    free = names().filter(lambda name: name not in reserved)
    unique = draw(st.lists(free, min_size=n_x + n_v + n_y + n_a, max_size=n_x + n_v + n_y + n_a, unique=True))
    variables = [
        Variable(name=name, unit=draw(st.sampled_from(["", "cm³", "mg/dL"])), kind=draw(st.sampled_from(KINDS)))
        for name in unique[: n_x + n_v + n_y]
    ]
    return PanelSchema(
        covariates=tuple(variables[:n_x]),
        statics=tuple(variables[n_x : n_x + n_v]),
        outcomes=tuple(variables[n_x + n_v :]),
        treatments=draw(encodings(treatment_names=tuple(unique[n_x + n_v + n_y :]))),
        error_unit=draw(st.sampled_from([ErrorUnit(), ErrorUnit(factor=2.5, label="% of it", space="standardized")])),
    )


@st.composite
def panels(
    draw: st.DrawFn,
    schema: PanelSchema,
    *,
    min_subjects: int = 1,
    max_subjects: int = 6,
    min_longest: int = 1,
    max_steps: int = 8,
) -> Panel:
    """Draw a panel of ragged lengths; the last observed step may or may not have a recorded treatment.

    One series has `min_longest` steps or more.
    """
    n, steps = draw(st.integers(min_subjects, max_subjects)), draw(st.integers(min_longest, max_steps))
    length = np.array(draw(st.lists(st.integers(1, steps), min_size=n, max_size=n)), dtype=np.int64)
    if n and length.max() < min_longest:
        length[draw(st.integers(0, n - 1))] = steps
    ids = draw(st.lists(st.integers(-(2**40), 2**40), min_size=n, max_size=n, unique=True))
    rng = np.random.default_rng(draw(seeds()))
    observed = (np.arange(steps) < length[:, None])[..., None]
    decided = (np.arange(steps) < length[:, None] - draw(st.sampled_from([0, 1])))[..., None]
    return Panel(
        covariates=_values(rng, schema.covariates, (n, steps)) * observed,
        treatments=_treatments(rng, schema.treatments, (n, steps)).astype(np.float32) * decided,
        outcomes=_values(rng, schema.outcomes, (n, steps)) * observed,
        statics=_values(rng, schema.statics, (n,)),
        length=length,
        subject_id=np.array(ids, dtype=np.int64),
    )


@st.composite
def query_sets(
    draw: st.DrawFn, panel: Panel, schema: PanelSchema, *, answered: bool | None = None, max_horizon: int = 4
) -> Queries:
    """Draw up to twelve queries on a panel, with or without known answers."""
    q, tau = draw(st.integers(0, 12)), draw(st.integers(1, max_horizon))
    rng = np.random.default_rng(draw(seeds()))
    subject = rng.integers(panel.n_subjects, size=q)
    queries = Queries(
        subject=subject.astype(np.int32),
        origin=rng.integers(panel.length[subject]).astype(np.int16).reshape(q),
        plan=_treatments(rng, schema.treatments, (q, tau)),
    )
    if answered if answered is not None else draw(st.booleans()):
        outcomes = _values(rng, schema.outcomes, (q, tau))
        return replace(queries, outcomes=outcomes, scored=rng.random((q, tau)) < 0.8)
    return queries


@st.composite
def datasets(draw: st.DrawFn, *, max_subjects: int = 4, learnable: bool = False) -> Dataset:
    """Draw a data set of source/train and some of the other parts, with query sets and truth on some of them.

    Where it is `learnable`, no question is longer than its horizon, which a series of source/train has, and training
    series of both domains have a step to predict.
    """
    schema, horizon = draw(schemas()), draw(st.integers(1, 4 if learnable else 6))
    least = {"source/train": horizon + 1, "target/train": 2} if learnable else {}
    first, *others = Part.all()
    parts = [first, *draw(st.lists(st.sampled_from(others), max_size=5, unique=True))]
    panels_, queries, truth, first_id = {}, {}, {}, 0
    for part in sorted(parts, key=Part.all().index):
        panel = draw(panels(schema, max_subjects=max_subjects, min_longest=least.get(str(part), 1)))
        panel = replace(panel, subject_id=np.arange(first_id, first_id + panel.n_subjects))
        first_id += panel.n_subjects
        set_names = draw(st.lists(st.sampled_from(["one_step", "sequence", "rolling_origin"]), unique=True))
        panels_[part] = panel
        queries[part] = {
            name: draw(query_sets(panel, schema, max_horizon=horizon if learnable else 4)) for name in set_names
        }
        rng = np.random.default_rng(draw(seeds()))
        truth[part] = {"rho": rng.random(panel.n_subjects)} if draw(st.booleans()) else {}
    config = {"seed": 3, "note": draw(names())}
    return Dataset(draw(names()), schema, horizon, panels_, queries, truth, config)


def _values(rng: np.random.Generator, variables: tuple[Variable, ...], shape: tuple[int, ...]) -> NDArray[np.float32]:
    draws: dict[str, Any] = {
        "continuous": lambda: rng.normal(0, 10 ** rng.uniform(-6, 6), shape),
        "count": lambda: rng.poisson(3, shape),
        "binary": lambda: rng.integers(2, size=shape),
        "ordinal": lambda: rng.integers(1, 6, size=shape),
    }
    columns = [np.asarray(draws[v.kind](), dtype=np.float32) for v in variables]
    return np.stack(columns, axis=-1) if columns else np.zeros((*shape, 0), dtype=np.float32)


def _treatments(rng: np.random.Generator, encoding: TreatmentEncoding, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    if encoding.mode == "multilabel":
        return rng.integers(2, size=(*shape, encoding.width), dtype=np.uint8)
    return np.eye(encoding.width, dtype=np.uint8)[rng.integers(encoding.width, size=shape)]
