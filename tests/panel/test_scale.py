"""Standardisation: the moments of source-train, whatever the target holds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.data import Dataset, Panel, PanelSchema, Scaler, TreatmentEncoding, Variable
from costar_cli.data.tensors import PanelTensors
from costar_cli.data.transforms import scaled
from tests.property.strategies import panels, schemas

DRUG = TreatmentEncoding(mode="multilabel", names=("drug",), levels=(("off", "on"),))


def hand_made(*, standardize: bool = True) -> tuple[Panel, PanelSchema]:
    schema = PanelSchema(
        outcomes=(Variable(name="y", standardize=standardize),), statics=(Variable(name="v"),), treatments=DRUG
    )
    outcomes = np.array([[1, 3, 100, 0], [5, 100, 0, 0]], dtype=np.float32)[..., None]
    panel = Panel(
        covariates=np.zeros((2, 4, 0), np.float32),
        treatments=np.zeros((2, 4, 1), np.float32),
        outcomes=outcomes,
        statics=np.array([[2], [4]], np.float32),
        length=np.array([3, 2]),
        subject_id=np.array([0, 1]),
    )
    return panel, schema


def test_moments_are_those_of_the_history_steps():
    """All observed steps but the last of each subject: 1, 3 and 5; population sd (spec PANEL-8)."""
    scaler = Scaler.fit(*hand_made())
    assert scaler.outcomes[:, 0] == pytest.approx([3.0, np.sqrt(8 / 3)])
    assert scaler.statics[:, 0] == pytest.approx([3.0, 1.0])
    assert scaler.scale_outcomes(np.array([[3.0], [3 + np.sqrt(8 / 3)]])).ravel() == pytest.approx([0.0, 1.0])


def test_variables_that_keep_their_scale_are_left_alone():
    scaler = Scaler.fit(*hand_made(standardize=False))
    assert scaler.outcomes[:, 0].tolist() == [0.0, 1.0]


def test_constant_variables_become_zero():
    panel, schema = hand_made()
    panel = replace(panel, outcomes=np.full_like(panel.outcomes, 0.1))
    scaler = Scaler.fit(panel, schema)
    assert scaler.outcomes[1, 0] == 1.0
    assert not scaler.scale_outcomes(panel.outcomes).any()


@given(st.data(), schemas())
def test_scaled_training_history_has_mean_zero_and_sd_one(data: st.DataObject, schema: PanelSchema):
    panel = data.draw(panels(schema, min_subjects=2))
    scaler = Scaler.fit(panel, schema)
    used = np.arange(panel.n_steps) < np.maximum(panel.length - 1, 1)[:, None]
    for values, moments in [
        (panel.outcomes[used], scaler.outcomes),
        (panel.covariates[used], scaler.covariates),
        (panel.statics, scaler.statics),
    ]:
        z = scaled(values, moments).astype(np.float64)
        assert np.allclose(z.mean(axis=0), 0, atol=1e-4)
        varies = (values != values[:1]).any(axis=0)
        assert np.allclose(z.std(axis=0)[varies], 1, atol=1e-4)


@given(st.data(), schemas())
def test_unscaled_is_the_inverse_of_scaled(data: st.DataObject, schema: PanelSchema):
    panel = data.draw(panels(schema))
    scaler = Scaler.fit(panel, schema)
    back = scaler.unscale_outcomes(scaler.scale_outcomes(panel.outcomes))
    tolerance = 1e-5 * (np.abs(panel.outcomes) + scaler.outcomes[1] + np.abs(scaler.outcomes[0]))
    assert (np.abs(back - panel.outcomes) <= tolerance).all()


def test_changing_target_data_changes_no_scaled_source_array(tumor_dataset: Dataset):
    """Only source-train is read (spec PANEL-8)."""

    def source_arrays(dataset: Dataset) -> list[np.ndarray]:
        scaler = Scaler.fit(dataset.panel("source", "train"), dataset.schema)
        tensors = [
            PanelTensors.from_panel(panel, scaler) for part, panel in dataset.panels.items() if part.domain == "source"
        ]
        arrays = [getattr(t, name) for t in tensors for name in PanelTensors.__slots__]
        return [values.numpy() for values in arrays if values is not None]

    other = {
        part: replace(panel, outcomes=panel.outcomes * 7 + 1, statics=panel.statics - 9)
        if part.domain == "target"
        else panel
        for part, panel in tumor_dataset.panels.items()
    }
    changed = source_arrays(replace(tumor_dataset, panels=other))
    assert all(np.array_equal(a, b) for a, b in zip(changed, source_arrays(tumor_dataset), strict=True))


def test_tensors_are_scaled_and_padding_is_zero(tumor_dataset: Dataset):
    panel = tumor_dataset.panel("target", "test")
    scaler = Scaler.fit(tumor_dataset.panel("source", "train"), tumor_dataset.schema)
    tensors = PanelTensors.from_panel(panel, scaler)
    assert not tensors.y_NTY.numpy()[~panel.observed].any()
    scaled_y = (panel.outcomes - scaler.outcomes[0]) / scaler.outcomes[1]
    assert np.allclose(tensors.y_NTY.numpy()[panel.observed], scaled_y[panel.observed], rtol=1e-6)
    assert np.array_equal(tensors.a_NTA.numpy(), panel.treatments)
    history = tensors.history_NTS.numpy()
    assert np.array_equal(history[:, 1:, :4], panel.treatments[:, :-1])
    assert not history[:, 0, :4].any()
