"""Encoded treatments as small integers, for files.

Multiclass treatments `[..., da]` become the class number `[...]`, with the largest value of the integer type for
steps without a recorded treatment (all columns zero). Multilabel treatments become bits, `[..., ceil(da / 8)]`.
"""

import numpy as np
from numpy.typing import NDArray

from costar_cli.errors import DataError
from costar_cli.panel.schema import TreatmentEncoding

__all__ = ["code_dtype", "pack_treatments", "unpack_treatments"]


def code_dtype(encoding: TreatmentEncoding) -> np.dtype[np.unsignedinteger]:
    """Return the integer type of the codes: one byte unless there are more than 255 classes."""
    wide = encoding.mode == "multiclass" and encoding.width > 255
    return np.dtype(np.uint16 if wide else np.uint8)


def pack_treatments(encoded: NDArray[np.generic], encoding: TreatmentEncoding) -> NDArray[np.unsignedinteger]:
    """Return the codes of encoded treatments `[..., da]`.

    Raises:
        DataError: the treatments are not zeros and ones, or a step has more than one class.
    """
    given = encoded != 0
    count = given.sum(axis=-1)
    if encoded.shape[-1] != encoding.width or not (encoded[given] == 1).all():
        raise DataError(f"encoded treatments must be zeros and ones in {encoding.width} columns")
    if encoding.mode == "multilabel":
        return np.packbits(given, axis=-1)
    if (count > 1).any():
        raise DataError("a step has more than one class of a multiclass treatment")
    dtype = code_dtype(encoding)
    return np.where(count == 0, np.iinfo(dtype).max, given.argmax(axis=-1)).astype(dtype)


def unpack_treatments(codes: NDArray[np.unsignedinteger], encoding: TreatmentEncoding) -> NDArray[np.uint8]:
    """Return the encoded treatments `[..., da]` of codes.

    Raises:
        DataError: codes of the wrong type or width, or of classes that do not exist.
    """
    dtype, width = code_dtype(encoding), encoding.width
    if codes.dtype != dtype:
        raise DataError(f"treatment codes have type {codes.dtype}, expected {dtype}")
    if encoding.mode == "multilabel":
        if codes.ndim == 0 or codes.shape[-1] != -(-width // 8):
            raise DataError(f"treatment codes of {width} binary treatments have shape {codes.shape}")
        return np.unpackbits(codes.astype(np.uint8, copy=False), axis=-1, count=width)
    if ((codes >= width) & (codes != np.iinfo(dtype).max)).any():
        raise DataError(f"treatment codes name classes beyond the {width} of the schema")
    encoded: NDArray[np.uint8] = (codes[..., None] == np.arange(width, dtype=dtype)).astype(np.uint8)
    return encoded
