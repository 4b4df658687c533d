"""`costar verify`: is a file complete and unchanged?"""

from pathlib import Path
from typing import Annotated

import typer

from costar_cli.cli.options import JsonFlag, QuietFlag
from costar_cli.cli.session import open_output


def verify(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Artifact to verify")],
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Check every byte of an artifact against its digest."""
    from costar_cli.files import verify_artifact

    out = open_output(ctx, json=json, quiet=quiet)
    artifact = verify_artifact(file)
    out.read("file", file, artifact.digest, artifact.kind)
    out.text(f"OK: all checksums match in {file} ({artifact.kind})", f"digest {artifact.digest}")
    out.done({"kind": artifact.kind, "digest": artifact.digest, "schema_version": artifact.schema_version})
