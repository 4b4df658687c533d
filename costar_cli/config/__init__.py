"""The version and lazy imports here, the base of all settings, and those that methods and verbs share, in the modules.

Nothing heavy is imported here, so that `costar --help` need not load pydantic.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final

__all__ = ["VERSION", "importer"]

VERSION: Final = "0.3.0"


def importer(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package whose names are imported when they are first used (PEP 562).

    `homes` say in which of the package's modules each name is.
    """

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get
