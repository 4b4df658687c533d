"""Artifacts: one HDF5 file each, written whole or not at all, read safely, never pickled; tables, shards and frames."""

from typing import TYPE_CHECKING

from costar_cli.config import importer

if TYPE_CHECKING:
    from costar_cli.files.atomic import write_bytes
    from costar_cli.files.digest import file_sha256, fingerprint, flatten
    from costar_cli.files.read import Artifact, complete, describe, read_artifact, read_header, verify_artifact
    from costar_cli.files.spec import SCHEMA_VERSION
    from costar_cli.files.write import content_digest, write_artifact

__all__ = [
    "SCHEMA_VERSION",
    "Artifact",
    "complete",
    "content_digest",
    "describe",
    "file_sha256",
    "fingerprint",
    "flatten",
    "read_artifact",
    "read_header",
    "verify_artifact",
    "write_artifact",
    "write_bytes",
]

_HOMES = {
    **dict.fromkeys(__all__, "read"),
    **dict.fromkeys(("fingerprint", "flatten"), "digest"),
    **dict.fromkeys(("content_digest", "write_artifact"), "write"),
    "SCHEMA_VERSION": "spec",
    "file_sha256": "digest",
    "write_bytes": "atomic",
}

if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others
    __getattr__ = importer(__name__, _HOMES)
