"""Artifacts: one HDF5 file each, written whole or not at all, safe to read, never pickled."""

from costar_cli.artifact.atomic import write_bytes
from costar_cli.artifact.digest import file_sha256
from costar_cli.artifact.lineage import fingerprint, flatten
from costar_cli.artifact.read import Artifact, complete, describe, read_artifact, read_header, verify_artifact
from costar_cli.artifact.spec import SCHEMA_VERSION
from costar_cli.artifact.write import content_digest, write_artifact

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
