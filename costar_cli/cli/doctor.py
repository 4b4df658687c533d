"""`costar doctor`: is this machine, this installation and this workspace fit for work?"""

import typer

from costar_cli.cli.health import check_all
from costar_cli.cli.options import JsonFlag, QuietFlag, WorkspaceOpt
from costar_cli.cli.session import open_output
from costar_cli.cli.workspace import DEFAULT_WORKSPACE, Workspace


def doctor(
    ctx: typer.Context,
    workspace: WorkspaceOpt = DEFAULT_WORKSPACE,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Check Python, packages, devices, memory, disk, and the files of the workspace."""
    out = open_output(ctx, json=json, quiet=quiet, workspace=workspace)
    checks = check_all(Workspace(workspace))
    out.table(["", "check", "found"], [[check.status, check.name, check.found] for check in checks])
    for check in checks:
        if check.fix:
            out.note(f"{check.name}: {check.fix}")
    if any(check.status == "readable" for check in checks):
        out.note("files were opened but not read in full: `costar verify FILE` checks every byte")
    broken = [check for check in checks if check.status == "broken"]
    out.done({"checks": [check.to_json() for check in checks]}, status="failed" if broken else "done")
    if broken:
        raise typer.Exit(int(broken[0].exit_code))
