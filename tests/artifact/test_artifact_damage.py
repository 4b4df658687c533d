"""Accidents: flipped bytes and lost ends."""

import numpy as np
import pytest

from costar_cli.errors import ArtifactError
from costar_cli.files import read_artifact, verify_artifact
from tests.artifact.crafting import sample_arrays, write


@pytest.fixture
def raw(tmp_path):
    arrays = sample_arrays()
    arrays["plan"], arrays["scored"] = arrays["plan"][:1000], arrays["scored"][:5]
    artifact = write(tmp_path / "a.h5", arrays, meta={"notes": ["text"] * 40})
    return artifact, (tmp_path / "a.h5").read_bytes()


def test_a_flipped_byte_is_always_verified_and_never_changes_what_is_read(tmp_path, raw):
    artifact, data = raw
    rng = np.random.default_rng(1)
    path = tmp_path / "flipped.h5"
    offsets = np.unique(np.concatenate([np.arange(0, 1200, 9), rng.integers(0, len(data), 500)]))
    for offset in offsets:
        flipped = bytearray(data)
        flipped[offset] ^= int(rng.integers(1, 256))
        path.write_bytes(flipped)
        with pytest.raises(ArtifactError) as caught:
            verify_artifact(path)
        assert str(path) in (caught.value.where or "")
        try:
            read = read_artifact(path)
        except ArtifactError:
            continue
        assert (read.digest, read.meta, read.versions) == (artifact.digest, artifact.meta, artifact.versions)
        for name, array in artifact.arrays.items():
            np.testing.assert_array_equal(read.arrays[name], array)


def test_a_lost_end_is_reported_with_sizes(tmp_path, raw):
    _, data = raw
    path = tmp_path / "short.h5"
    for length in [*range(0, len(data), 97), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(ArtifactError) as caught:
            read_artifact(path)
        if length >= 1024:
            assert caught.value.problem == f"the file is truncated: {length:,} of {len(data):,} bytes"


def test_an_added_end_is_verified(tmp_path, raw):
    _, data = raw
    path = tmp_path / "long.h5"
    path.write_bytes(data + b"x")
    with pytest.raises(ArtifactError, match="other bytes of the file were changed"):
        verify_artifact(path)


def test_swapped_blocks_are_caught(tmp_path, raw):
    _, data = raw
    rng = np.random.default_rng(2)
    path = tmp_path / "swapped.h5"
    for _ in range(100):
        a, b = sorted(int(x) for x in rng.integers(1024, len(data) - 64, 2))
        swapped = bytearray(data)
        swapped[a : a + 64], swapped[b : b + 64] = data[b : b + 64], data[a : a + 64]
        if swapped == data:
            continue
        path.write_bytes(swapped)
        with pytest.raises(ArtifactError):
            verify_artifact(path)
