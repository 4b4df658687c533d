"""Codes hold treatments exactly, for any encoding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.data import PanelSchema, TreatmentEncoding
from costar_cli.data.store_arrays import code_dtype, pack_treatments, unpack_treatments
from costar_cli.errors import DataError
from tests.property.strategies import encodings, panels, schemas, seeds


@given(st.data(), schemas())
def test_unpacked_codes_are_the_treatments(data: st.DataObject, schema: PanelSchema):
    treatments = data.draw(panels(schema)).treatments
    codes = pack_treatments(treatments, schema.treatments)
    assert codes.nbytes < treatments.nbytes
    assert np.array_equal(unpack_treatments(codes, schema.treatments), treatments)


@given(encodings(), seeds())
def test_decoded_treatments_encode_to_the_same(encoding: TreatmentEncoding, seed: int):
    rng = np.random.default_rng(seed)
    values = np.stack([rng.integers(len(levels), size=20) for levels in encoding.levels], axis=-1)
    encoded = encoding.encode(values)
    assert encoded.shape == (20, encoding.width)
    assert np.array_equal(encoding.decode(encoded), values)


def test_many_classes_and_many_bits_are_held():
    levels = tuple(f"level {i}" for i in range(300))
    price = TreatmentEncoding(
        mode="multiclass", names=("price",), levels=(levels,), classes=tuple((i,) for i in range(300))
    )
    assert code_dtype(price) == np.uint16
    encoded = np.concatenate([np.eye(300), np.zeros((1, 300))])
    assert np.array_equal(unpack_treatments(pack_treatments(encoded, price), price), encoded)
    names = tuple(f"drug {i}" for i in range(11))
    drugs = TreatmentEncoding(mode="multilabel", names=names, levels=(("off", "on"),) * 11)
    given_ = np.random.default_rng(0).integers(2, size=(5, 3, 11))
    assert pack_treatments(given_, drugs).shape == (5, 3, 2)
    assert np.array_equal(unpack_treatments(pack_treatments(given_, drugs), drugs), given_)


CLASSES = TreatmentEncoding(mode="multiclass", names=("a",), levels=(("0", "1", "2"),), classes=((0,), (1,), (2,)))
BITS = TreatmentEncoding(mode="multilabel", names=("a", "b"), levels=(("off", "on"),) * 2)


@pytest.mark.parametrize(
    ("encoding", "encoded"),
    [(CLASSES, [[1, 1, 0]]), (CLASSES, [[2, 0, 0]]), (CLASSES, [[1, 0]]), (BITS, [[0.5, 0]]), (BITS, [[np.nan, 0]])],
)
def test_what_is_not_a_treatment_is_not_packed(encoding: TreatmentEncoding, encoded: list[list[float]]):
    with pytest.raises(DataError):
        pack_treatments(np.array(encoded), encoding)


@pytest.mark.parametrize(
    ("encoding", "codes"),
    [
        (CLASSES, np.array([3], np.uint8)),
        (CLASSES, np.array([0], np.int64)),
        (BITS, np.array([[0, 0]], np.uint8)),
        (BITS, np.array([[0.0]])),
    ],
)
def test_codes_outside_the_schema_are_errors(encoding: TreatmentEncoding, codes: np.ndarray):
    with pytest.raises(DataError):
        unpack_treatments(codes, encoding)
