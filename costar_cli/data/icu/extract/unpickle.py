"""Texts that pandas and PyTables have pickled, read by an unpickler that makes arrays and texts and nothing else."""

import io
import pickle  # noqa: TID251 - the one place: what PyTables unpickles must pass here
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

ADMITTED: Final = {
    "numpy": {"ndarray", "dtype"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.numeric": {"_frombuffer"},
    "numpy._core.numeric": {"_frombuffer"},
    "pandas.core.indexes.frozen": {"FrozenList"},
    "_codecs": {"encode"},  # how old pickles keep bytes
}
READERS: Final = ("tables.atom.pickle", "tables.attributeset.pickle")


class _Refusing(pickle.Unpickler):
    """Makes what `ADMITTED` names, and lists what else a pickle asks for."""

    def __init__(self, data: bytes, refused: list[str], **options: Any) -> None:  # noqa: ANN401 - as `pickle.loads`
        super().__init__(io.BytesIO(data), **options)
        self._refused = refused

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - a class or a function
        """Return what a pickle asks for by name, if it is admitted."""
        if name in ADMITTED.get(module, ()):
            return super().find_class(module, name)
        self._refused.append(f"{module}.{name}")
        raise pickle.UnpicklingError(f"{module}.{name} is not admitted")


class _PickleModule:
    """The module `pickle` but for `loads`."""

    def __init__(self, refused: list[str]) -> None:
        self._refused = refused

    def loads(self, data: bytes, **options: Any) -> Any:  # noqa: ANN401 - as `pickle.loads`
        """Return arrays and texts."""
        return _Refusing(data, self._refused, **options).load()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - anything of the module
        return getattr(pickle, name)


@contextmanager
def arrays_and_texts_only() -> Iterator[list[str]]:
    """Let PyTables unpickle arrays and texts alone; yield the list of what else files ask for, which is not made."""
    refused: list[str] = []
    module = _PickleModule(refused)
    with patch(READERS[0], module), patch(READERS[1], module):
        yield refused
