"""Canonical bytes of JSON and arrays, their SHA-256, and which types arrays have: here, in the manifest, in HDF5."""

import hashlib
import json
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NoReturn

import h5py
import numpy as np
from h5py import h5t
from numpy.typing import NDArray

from costar_cli.config import VERSION

MAX_JSON_DEPTH: Final = 64
NUMBERS: Final = {
    "int8": h5t.STD_I8LE,
    "int16": h5t.STD_I16LE,
    "int32": h5t.STD_I32LE,
    "int64": h5t.STD_I64LE,
    "uint8": h5t.STD_U8LE,
    "uint16": h5t.STD_U16LE,
    "uint32": h5t.STD_U32LE,
    "uint64": h5t.STD_U64LE,
    "float16": h5t.IEEE_F16LE,
    "float32": h5t.IEEE_F32LE,
    "float64": h5t.IEEE_F64LE,
}
TEXT: Final = re.compile(r"utf8\[([1-9]\d{0,5})\]", re.ASCII)
CLASSES: Final = {
    h5t.COMPOUND: "compound",
    h5t.VLEN: "variable-length",
    h5t.REFERENCE: "reference",
    h5t.OPAQUE: "opaque",
    h5t.ENUM: "enumerated",
    h5t.ARRAY: "array",
    h5t.BITFIELD: "bit field",
    h5t.TIME: "time",
}


def sha256(data: bytes) -> str:
    """Return the SHA-256 of bytes in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path, *, start: int = 0) -> str:
    """Return the SHA-256 of a file's bytes from a position on."""
    with path.open("rb") as file:
        if start:
            file.seek(start)
        return hashlib.file_digest(file, "sha256").hexdigest()


def array_sha256(array: NDArray[Any]) -> str:
    """Return the SHA-256 of a C-contiguous array's bytes, without a copy."""
    return hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest()


def canonical_json(value: object) -> bytes:
    """Return the UTF-8 JSON of a value: keys sorted, no spaces, shortest round-trip numbers.

    Raises:
        ValueError: something that JSON cannot hold (NaN, other keys than strings, other types), and where it is.
    """
    plain = _plain(value)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def parse_json(data: bytes) -> Any:  # noqa: ANN401 - JSON is anything
    """Return the value of UTF-8 JSON; stricter than `json.loads`.

    Raises:
        ValueError: not JSON, repeated keys, NaN or infinity, lone surrogates, or too deeply nested.
    """
    try:
        value = json.loads(data.decode(), parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_JSON_DEPTH} levels") from None
    return _plain(value)


def _plain(value: object, depth: int = 0) -> Any:  # noqa: ANN401 - JSON is anything
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f": {value} is not a JSON number")
        return value
    if isinstance(value, str):
        value.encode()  # raises UnicodeEncodeError, a ValueError, for lone surrogates
        return value
    if depth >= MAX_JSON_DEPTH:
        raise ValueError(f": nested deeper than {MAX_JSON_DEPTH} levels")
    if isinstance(value, Mapping):
        members = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f": the key {key!r} is not a string")
            try:
                members[str(_plain(key))] = _plain(item, depth + 1)
            except UnicodeEncodeError:
                raise ValueError(f"/{key!a}: not Unicode text") from None
            except ValueError as error:
                raise ValueError(f"/{key}{error}") from None
        return members
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    raise ValueError(f": {type(value).__name__} is not JSON")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key appears twice in one object")
    return members


def stored_array(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array as an artifact stores it: C order, little-endian, booleans as 0 and 1, text as UTF-8 bytes.

    Raises:
        ValueError: a type that artifacts do not hold.
    """
    array = np.asarray(array, order="C")
    if array.dtype == np.bool_:
        return array.view(np.uint8)
    if array.dtype.name in NUMBERS:
        return array.astype(array.dtype.newbyteorder("<"), copy=False)
    if array.dtype.kind == "U" and not array.size:
        return np.zeros(array.shape, "S1")  # of which numpy before 2.1 makes numbers
    if array.dtype.kind == "U":
        return np.asarray(np.char.encode(array, "utf-8"), order="C")
    raise ValueError(f"arrays of {array.dtype} cannot be stored in an artifact")


def dtype_tag(array: NDArray[Any], stored: NDArray[Any]) -> str:
    """Return the type's name in the manifest: that of numpy, or `utf8[bytes]`."""
    return f"utf8[{stored.dtype.itemsize}]" if array.dtype.kind == "U" else array.dtype.name


def stored_tag(tag: str) -> str:
    """Return the name of the type that stands for the manifest's in HDF5.

    Raises:
        ValueError: no type of an artifact.
    """
    if tag == "bool":
        return "uint8"
    if tag in NUMBERS or TEXT.fullmatch(tag):
        return tag
    raise ValueError(f"{tag[:40]!r} is not an artifact type")


def stored_width(tag: str) -> int:
    """Return the bytes per element of a stored type."""
    text = TEXT.fullmatch(tag)
    return int(text[1]) if text else np.dtype(tag).itemsize


def hdf5_tag(type_id: Any) -> str:  # noqa: ANN401 - h5py has no types
    """Return the name of an HDF5 type.

    Raises:
        ValueError: it is not a plain little-endian number or fixed-length UTF-8 text.
    """
    if type_id.committed():
        raise ValueError("its type is stored elsewhere in the file")
    if type_id.get_class() == h5t.STRING:
        if type_id.is_variable_str():
            raise ValueError("its text has variable length")
        if type_id.get_strpad() == h5t.STR_NULLPAD and type_id.get_cset() == h5t.CSET_UTF8:
            return stored_tag(f"utf8[{type_id.get_size()}]")
    for tag, known in NUMBERS.items():
        if type_id.equal(known):
            return tag
    raise ValueError(f"its type is {CLASSES.get(type_id.get_class(), 'a number or text of another layout')}")


def array_from_bytes(data: NDArray[np.uint8], tag: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the array that `data`, its stored bytes, stand for.

    Raises:
        ValueError: booleans other than 0 and 1, or text that is not UTF-8.
    """
    if tag == "bool":
        if data.size and data.max() > 1:
            raise ValueError("booleans other than 0 and 1")
        return data.view(np.bool_).reshape(shape)
    text = TEXT.fullmatch(tag)
    if text and not data.size:
        return np.zeros(shape, "U1")
    if text:
        return np.asarray(np.char.decode(data.view(f"S{text[1]}").reshape(shape), "utf-8"))
    little = data.view(np.dtype(tag).newbyteorder("<")).reshape(shape)
    return little.astype(np.dtype(tag), copy=False)


Making = dict[str, object]  # `device`, `threads`, and a version by the name of each piece of software
NOT_IMPORTED = ("scikit-learn", "scipy", "torch")  # their versions are looked up: importing them takes seconds
SHOWN: Final = "Evaluation"  # the text of a PNG file with the digest of the evaluation that it shows
TOGETHER: Final = "Figures"  # the text of the figure that is drawn last, with the names of all
SOFTWARE = ("costar", "numpy", "torch", "scikit-learn", "scipy")


def fingerprint(kind: str, *, parents: Mapping[str, str], config: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what an artifact is made from: parent digests, resolved config, costar's version.

    Verbs store it as `meta["fingerprint"]`; when it is equal, the work is done already.
    """
    return sha256(canonical_json({"kind": kind, "parents": dict(parents), "config": dict(config), "costar": VERSION}))


def flatten(config: object, prefix: str = "") -> dict[str, object]:
    """Return nested settings with dotted names: `{"encoder.width": 24}`."""
    if not isinstance(config, Mapping):
        return {prefix: config} if prefix else {}
    flat: dict[str, object] = {}
    for name, value in config.items():
        flat |= flatten(value, f"{prefix}.{name}" if prefix else str(name))
    return flat


def shown_in(figure: Path) -> str | None:
    """Return the digest of the evaluation that a PNG file shows, None where it names none or is no PNG file."""
    found = _text_of(figure, SHOWN)
    return found if found and re.fullmatch("[0-9a-f]{64}", found) else None


def drawn_with(figure: Path) -> frozenset[str]:
    """Return the names of all figures that were drawn with the last one, its own among them; of others, nothing."""
    return frozenset((_text_of(figure, TOGETHER) or "").split())


def _text_of(figure: Path, key: str) -> str | None:
    """Return a text of a PNG file, None where it has none or is no PNG file."""
    with figure.open("rb") as file:
        head = file.read(4096)  # texts stand before the pixels
    begin = head.find(b"tEXt" + key.encode() + b"\0")
    if begin < 4:
        return None
    length = int.from_bytes(head[begin - 4 : begin], "big")  # of key and text
    return head[begin + 4 : begin + 4 + length].partition(b"\0")[2].decode("latin-1")


def making_here(device: str, threads: int) -> Making:
    """Return what trains in this process."""
    versions = software_versions()
    return {"device": device, "threads": threads, **{name: versions[name] for name in SOFTWARE if name in versions}}


def makings_of(meta: Mapping[str, Any]) -> list[Making]:
    """Return what an artifact was trained with: several where a run was continued with others, none in older files."""
    stored = meta.get("made_with")
    return [making for making in stored if isinstance(making, dict)] if isinstance(stored, list) else []


def known_threads(chosen: int | None) -> int | None:
    """Return the number of threads that training would use, as far as that is known without starting it."""
    text = os.environ.get("OMP_NUM_THREADS", "")
    return chosen or (int(text) if text.isdecimal() else None)


def making_differences(there: Sequence[Mapping[str, object]], here: Mapping[str, object]) -> list[str]:
    """Return a line for each fact, such as `threads: 2 there, 1 here`, in which what is known here is another."""
    lines = [
        f"{name}: was {making[name]}, now {value}"
        for making in there
        for name, value in here.items()
        if value is not None and name in making and making[name] != value
    ]
    return list(dict.fromkeys(lines))


def making_text(making: Mapping[str, object]) -> str:
    """Return what trained in one line."""
    threads = making.get("threads")
    versions = ", ".join(f"{name} {making[name]}" for name in SOFTWARE if name in making)
    return f"{making.get('device')}, {threads} thread{'s' * (threads != 1)}, {versions}"


@cache
def software_versions() -> dict[str, str]:
    """Return the versions that a file records."""
    versions = {
        "costar": VERSION,
        "h5py": h5py.version.version,
        "hdf5": h5py.version.hdf5_version,
        "numpy": np.__version__,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
    }
    for name in NOT_IMPORTED:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {name: version.replace(" ", "")[:40] for name, version in versions.items()}
