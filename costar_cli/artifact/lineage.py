"""Whether an artifact would be made the same again."""

from collections.abc import Mapping
from typing import Any

from costar_cli import __version__
from costar_cli.artifact.digest import canonical_json, sha256

__all__ = ["fingerprint"]


def fingerprint(kind: str, *, parents: Mapping[str, str], config: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what an artifact is made from: parent digests, resolved config, costar's version.

    Verbs store it as `meta["fingerprint"]`; when it is equal, the work is done already.
    """
    return sha256(
        canonical_json({"kind": kind, "parents": dict(parents), "config": dict(config), "costar": __version__})
    )
