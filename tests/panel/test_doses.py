"""Treatments that are numbers: encoded columns, files, and schemas that stay as they were without them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from costar_cli.data import Part, TreatmentEncoding
from costar_cli.data.compatible import require_compatible
from costar_cli.data.dose import Basis, Dose
from costar_cli.data.report import describe_dataset
from costar_cli.data.store import read_dataset, write_dataset
from costar_cli.errors import ArtifactError, MismatchError
from costar_cli.report.figures.data import figures
from costar_cli.report.pages.data import report_tables
from tests.dose_worlds import linear_doses

GIVEN = np.concatenate([np.zeros(50), np.random.default_rng(0).gamma(2, 3, 200).round(2)])


@pytest.mark.parametrize("basis", ["identity", "log1p", "splines"])
@given(value=st.decimals(0, 40, places=3, allow_nan=False).map(float))
def test_a_dose_is_told_by_the_first_of_its_columns(basis: Basis, value: float) -> None:
    dose = Dose.learn("dose", GIVEN, basis=basis)
    columns = dose.encode([0.0, value]).astype(np.float32)
    assert not columns[0].any()
    assert dose.decode(columns[:, 0]).tolist() == [0.0, pytest.approx(value, rel=1e-5, abs=1e-5)]
    assert columns.shape == (2, dose.width)
    assert len(dose.columns) == dose.width


def test_identity_tells_doses_of_six_digits_exactly() -> None:
    dose = Dose.learn("dose", GIVEN)
    values = np.array([0.1, 2.5, 12.345, 0.000123456, 99999.9])
    assert dose.decode(dose.encode(values).astype(np.float32)[..., 0]).tolist() == values.tolist()


def test_columns_are_of_order_one() -> None:
    for basis in ("identity", "log1p", "splines"):
        rms = np.sqrt((Dose.learn("dose", 1e4 * GIVEN, basis=basis).encode(1e4 * GIVEN) ** 2).mean(axis=0))
        assert ((rms > 0.01) & (rms < 2)).all()


def test_splines_are_linear_beyond_their_knots_and_bend_between_them() -> None:
    dose = Dose.learn("dose", GIVEN, basis="splines")
    beyond = dose.encode(dose.knots[-1] + np.arange(4.0))
    assert np.allclose(np.diff(beyond, 2, axis=0), 0, atol=1e-9)
    assert np.abs(np.diff(dose.encode(np.linspace(*dose.knots[:2], 5)), 2, axis=0)).max() > 1e-3


def test_levels_and_doses_stand_side_by_side() -> None:
    dose = Dose.learn("chemo", GIVEN, unit="mg")
    encoding = TreatmentEncoding(
        mode="multiclass", names=("drug",), levels=(("no", "a", "b"),), classes=((0,), (1,), (2,)), doses=(dose,)
    )
    values = [[0, 0.0], [2, 2.5]]
    assert encoding.width == 4
    assert encoding.decode(encoding.encode(values)).tolist() == values
    assert encoding.describe(values[1]) == "drug=b+chemo=2.5 mg"
    assert encoding.describe(values[0]) == "drug=no"


def test_a_schema_without_doses_is_written_as_before() -> None:
    encoding = TreatmentEncoding(mode="multilabel", names=("a",), levels=(("off", "on"),))
    assert set(encoding.model_dump(mode="json")) == {"mode", "names", "levels", "classes"}
    assert TreatmentEncoding.model_validate(encoding.model_dump(mode="json")) == encoding


def test_doses_are_read_as_they_were_written(tmp_path: Path) -> None:
    data = linear_doses(40, basis="splines")
    write_dataset(tmp_path / "data.h5", data)
    read = read_dataset(tmp_path / "data.h5")
    assert read.schema == data.schema
    part = Part("source", "test")
    assert np.array_equal(read.panels[part].treatments, data.panels[part].treatments)
    assert np.array_equal(read.queries[part]["doses"].plan, data.queries[part]["doses"].plan)
    assert read.queries[part]["doses"].plan.dtype == np.float32


def test_a_dose_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    data = linear_doses(40)
    panel = data.panels[part := Part("source", "train")]
    panel.treatments[3, 2] = np.nan
    with pytest.raises((ArtifactError, Exception), match="treatments that the schema does not encode"):
        write_dataset(tmp_path / "data.h5", replace(data, panels={**data.panels, part: panel}))


def test_models_of_another_scale_of_the_dose_are_refused() -> None:
    data = linear_doses(40)
    dose = data.schema.treatments.doses[0]
    other = data.schema.model_copy(update={
        "treatments": data.schema.treatments.model_copy(update={
            "doses": (dose.model_copy(update={"scale": 8.0, "unit": "g"}),)})})  # fmt: skip
    with pytest.raises(MismatchError) as error:
        require_compatible(data, other, model="the model")
    assert [line.split(":")[0] for line in error.value.details] == ["unit of dose dose", "scale of dose dose"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"low": 3.0, "high": 3.0}, "range"),
        ({"knots": (1.0, 2.0, 3.0)}, "splines"),
        ({"levels": (2.0, 1.0)}, "ascend"),
        ({"levels": (0.0, np.inf)}, "finite"),
        ({"basis": "splines", "knots": (1.0, 2.0, np.inf)}, "finite"),
        ({"high": np.inf}, "finite"),
    ],
)
def test_a_dose_that_makes_no_sense_is_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Dose.model_validate(Dose.learn("dose", GIVEN).model_dump() | change)


def test_the_data_report_tells_what_doses_are_like() -> None:
    data = linear_doses(60)
    report = describe_dataset(data)
    (summary,) = report.doses
    train = data.panels[Part("source", "train")]
    assert (summary.outcome, summary.unit) == ("dose", "mg")
    assert 0.6 < summary.observed < 0.9
    assert sum(summary.counts) > 0.6 * train.n_subjects * (train.n_steps - 1)
    assert "Doses" in [table.title for table in report_tables(report)]
    assert "doses" in [name for name, _, _ in figures(report)]
