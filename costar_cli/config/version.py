"""The version, where every room can read it without importing the package's public names."""

from typing import Final

__all__ = ["VERSION"]

VERSION: Final = "0.3.0"
