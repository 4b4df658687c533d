"""What `costar inspect` shows of an artifact."""

import os
from pathlib import Path
from typing import Any

from costar_cli.artifact.reader import open_artifact

__all__ = ["describe"]


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return kind, digest, lineage, config, the rest of meta, versions, and every array's name, type, shape and size.

    All of it is JSON. No array is read.

    Raises:
        ArtifactError: as `read_artifact`.
    """
    path = Path(path)
    with open_artifact(path) as opened:
        header, manifest = opened.header, opened.manifest
        arrays = [
            {
                "name": name,
                "dtype": entry.dtype,
                "shape": entry.shape,
                "bytes": opened.members[name].raw_bytes,
                "stored_bytes": opened.members[name].stored_bytes,
                "sha256": entry.sha256,
            }
            for name, entry in sorted(manifest.arrays.items())
        ]
    return {
        "path": str(path),
        "kind": manifest.kind,
        "schema_version": manifest.schema_version,
        "digest": header.digest,
        "parents": manifest.parents,
        "config": manifest.meta.get("config"),
        "meta": {key: value for key, value in manifest.meta.items() if key != "config"},
        "versions": dict(header.versions),
        "file_bytes": header.total_bytes,
        "array_bytes": sum(array["bytes"] for array in arrays),
        "arrays": arrays,
    }
