"""Whether an artifact would be made the same again, and in which settings it would differ."""

from collections.abc import Mapping
from typing import Any

from costar_cli import __version__
from costar_cli.artifact.digest import canonical_json, sha256

__all__ = ["fingerprint", "flatten"]


def fingerprint(kind: str, *, parents: Mapping[str, str], config: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what an artifact is made from: parent digests, resolved config, costar's version.

    Verbs store it as `meta["fingerprint"]`; when it is equal, the work is done already.
    """
    return sha256(
        canonical_json({"kind": kind, "parents": dict(parents), "config": dict(config), "costar": __version__})
    )


def flatten(config: object, prefix: str = "") -> dict[str, object]:
    """Return nested settings with dotted names: `{"encoder.width": 24}`."""
    if not isinstance(config, Mapping):
        return {prefix: config} if prefix else {}
    flat: dict[str, object] = {}
    for name, value in config.items():
        flat |= flatten(value, f"{prefix}.{name}" if prefix else str(name))
    return flat
