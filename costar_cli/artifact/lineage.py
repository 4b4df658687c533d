"""Which artifact was made from which, and whether it would be made the same again."""

from collections.abc import Mapping
from typing import Any

from costar_cli import __version__
from costar_cli.artifact.digest import canonical_json, sha256
from costar_cli.artifact.record import Artifact
from costar_cli.errors import MismatchError

__all__ = ["check_parents", "differing_parents", "fingerprint"]


def fingerprint(kind: str, *, parents: Mapping[str, str], config: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what an artifact is made from: parent digests, resolved config, costar's version.

    Verbs store it as `meta["fingerprint"]`; when it is equal, the work is done already.
    """
    return sha256(
        canonical_json({"kind": kind, "parents": dict(parents), "config": dict(config), "costar": __version__})
    )


def differing_parents(artifact: Artifact, found: Mapping[str, str]) -> list[str]:
    """Return in words which of the `found` digests, by role, the artifact was not made from."""
    return [
        f"the {artifact.kind} was made from another {role}: {_short(recorded)}, not {_short(digest)}"
        for role, digest in found.items()
        if (recorded := artifact.parents.get(role)) != digest
    ]


def check_parents(artifact: Artifact, found: Mapping[str, str]) -> None:
    """Check that the artifact was made from the `found` digests, by role.

    Raises:
        MismatchError: it was not.
    """
    if differing := differing_parents(artifact, found):
        problem, *details = differing
        raise MismatchError(
            problem,
            where=str(artifact.path) if artifact.path else None,
            fix="give the files that belong together, or make it again",
            details=details,
        )


def _short(digest: str | None) -> str:
    return "none recorded" if digest is None else digest[:12]
