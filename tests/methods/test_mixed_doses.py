"""What the growth model says of doses: effects per unit, or of named doses, that are those of the data."""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data import Dataset, Part, Queries, as_plans
from costar_cli.data.dose import Basis
from costar_cli.methods.mixed.model import MixedModel
from costar_cli.methods.mixed.settings import MixedConfig
from tests.dose_worlds import DECAY, EFFECT, Act, Floats, linear_doses
from tests.methods.linear_worlds import fit, model_of

TRAIN = Part("source", "train")


def told_and_estimated(data: Dataset, rows: dict[str, dict[str, str]], model: MixedModel, what: str) -> list[float]:
    """Return the effect of a dose in words, and how much less the first step of training subjects is without it."""
    [row] = [row for name, row in rows.items() if name == f"dose, {what}, in the first step"]
    [amount] = map(float, re.findall(r"([\d.]+) mg", what))
    panel, encoding = data.panels[TRAIN], data.schema.treatments
    n = panel.n_subjects
    plan = np.repeat([amount, 0.0], n).reshape(-1, 1, 1)
    asked = Queries(np.tile(np.arange(n), 2).astype(np.int32), np.full(2 * n, 8, np.int16),
                    as_plans(encoding.encode(plan)))  # fmt: skip
    given, none = model.rollout(panel, asked).mean(axis=0).reshape(2, -1).mean(axis=1)
    return [float(row["typical"]), float(given - none)]


def learnt(basis: Basis, act: Act, n: int) -> tuple[Dataset, MixedModel, dict[str, dict[str, str]]]:
    data = linear_doses(n, basis=basis, act=act)
    model = model_of(fit(data, "mixed"))
    assert isinstance(model, MixedModel)
    return data, model, {row["what"]: row for row in model.record.learnt or ()}


def test_the_effect_of_a_dose_is_told_per_unit_whatever_its_scale() -> None:
    data, model, rows = learnt("identity", lambda dose: dose, 100)
    assert data.schema.treatments.doses[0].scale == 2
    told, estimated = told_and_estimated(data, rows, model, "per 1 mg")
    assert told == pytest.approx(EFFECT, rel=0.05)
    assert told == pytest.approx(estimated, rel=0.02)
    half_life = float(rows["dose, per 1 mg, in the first step"]["carry_over"].split()[1])
    assert DECAY**half_life == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(("basis", "act"), [("log1p", np.log1p), ("splines", lambda dose: np.minimum(dose, 2.0))])
def test_the_effect_of_a_dose_that_is_no_line_is_told_at_low_usual_and_high_doses(basis: Basis, act: Act) -> None:
    data, model, rows = learnt(basis, act, 35)
    column = data.panels[TRAIN].treatments[..., 0]
    given = data.schema.treatments.doses[0].decode(column[column != 0])
    doses = [name.split(", ")[1] for name in rows if name.startswith("dose, ")]
    low_usual_high = np.quantile(given, [0.05, 0.5, 0.95], method="inverted_cdf")
    assert doses == [f"{dose:.6g} mg against 0" for dose in low_usual_high]
    for what in doses:
        told, estimated = told_and_estimated(data, rows, model, what)
        assert told == pytest.approx(EFFECT * act(np.array(float(what.split()[0]))), rel=0.12)
        assert told == pytest.approx(estimated, rel=0.08)
    high = rows[f"dose, {doses[-1]}, in the first step"]
    if basis == "log1p":
        assert high["carry_over"].startswith("half-life ")
    else:
        left, words = high["carry_over"].split(" ", 1)
        assert words == "in the next step"
        assert float(left) == pytest.approx(DECAY * float(high["typical"]), rel=0.25)


def regiven(data: Dataset, doses: Callable[[Floats], Floats]) -> Dataset:
    """Return a data set in whose training series other doses were given."""
    encoding, panel = data.schema.treatments, data.panels[TRAIN]
    given = doses(encoding.doses[0].decode(panel.treatments[..., 0]))
    panels = {**data.panels, TRAIN: replace(panel, treatments=encoding.encode(given[..., None]))}
    return replace(data, panels=panels)


@pytest.mark.parametrize(
    ("doses", "told"),
    [
        (np.zeros_like, "no training subject was given 'dose' before an observed step: "),
        (lambda dose: 2.0 * (dose > 1), "'dose' was given in too few amounts before an observed step: "),
        (lambda dose: dose * (np.arange(len(dose)) < 9)[:, None], "'dose' was given in 107 steps of 9 subjects: how"),
    ],
    ids=["never", "one amount", "rarely"],
)
def test_what_is_not_known_of_a_dose_is_told_of_it_and_not_of_its_columns(
    doses: Callable[[Floats], Floats], told: str
) -> None:
    trained = fit(regiven(linear_doses(35, basis="splines"), doses), "mixed", MixedConfig(iterations=5))
    about = [warning for warning in trained.meta["warnings"] if "dose" in warning]
    assert [warning[: len(told)] for warning in about] == [told]
    assert "spline" not in about[0]
