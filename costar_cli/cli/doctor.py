"""`costar doctor`: is this machine, this installation and this workspace fit for work?"""

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

import costar_cli
from costar_cli.cli.options import JsonFlag, QuietFlag, WorkspaceOpt
from costar_cli.cli.session import open_output
from costar_cli.cli.workspace import DEFAULT_WORKSPACE, Workspace
from costar_cli.config import VERSION
from costar_cli.errors import CostarError, ExitCode

if TYPE_CHECKING:
    from costar_cli.files import Artifact


def doctor(
    ctx: typer.Context,
    workspace: WorkspaceOpt = DEFAULT_WORKSPACE,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Check Python, packages, devices, memory, disk, and the files of the workspace."""
    out = open_output(ctx, json=json, quiet=quiet, workspace=workspace)
    place = Workspace(workspace)
    checks = [*_installation(), *_machine(place.root), *_workspace(place)]
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


GIB = 2**30
LEAST_MEMORY_GIB, LEAST_DISK_GIB = 2.0, 1.0


@dataclass(frozen=True)
class Check:
    """One finding: `ok`, `readable` (opened, but not read through), `note` (works, but look) or `broken`."""

    name: str
    status: Literal["ok", "readable", "note", "broken"]
    found: str
    fix: str | None = None
    exit_code: ExitCode = ExitCode.OK

    def to_json(self) -> dict[str, object]:
        """Return the finding as plain data."""
        return {**asdict(self), "exit_code": int(self.exit_code)}


def _installation() -> Iterator[Check]:
    """Check Python and the packages that the installed costar declares, and say what others add to it."""
    from importlib.metadata import PackageNotFoundError, requires, version

    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}, costar {VERSION}"
    yield Check("python", "ok", found)
    for line in requires("costar") or ():
        if "extra ==" in line:
            continue
        name = line.split(">")[0].split("=")[0].split("<")[0].split(";")[0].strip()
        try:
            yield Check(name, "ok", version(name))
        except PackageNotFoundError:
            fix = f"`{sys.executable} -m pip install '{line}'`"
            yield Check(name, "broken", "not installed", fix, ExitCode.FAILURE)
    spec = find_spec("simulators")  # the package beside `costar_cli`, or another of that name
    places = [Path(place).resolve() for place in (spec.submodule_search_locations or ())] if spec else []
    if Path(costar_cli.__path__[0]).resolve().with_name("simulators") in places:
        yield Check("simulators", "ok", "costar's own")
    elif not places:
        yield Check("simulators", "broken", "not installed", "install costar again", ExitCode.FAILURE)
    else:
        found = f"{places[0]} is another package than costar's"
        fix = "remove or rename it, or use an environment without it"
        yield Check("simulators", "broken", found, fix, ExitCode.FAILURE)
    from costar_cli.data.registry import installed
    from costar_cli.methods.registry import METHODS

    for kind, plugins in (("data set", installed()), ("method", METHODS.installed)):
        yield from (Check(f"{kind} {added.name}", "ok", "added by an installed package") for added in plugins.found)
        for problem in plugins.problems:
            yield Check(f"added {kind}", "note", problem, "upgrade or remove the package")


def _machine(root: Path) -> Iterator[Check]:
    """Check devices, memory and the disk that a workspace is on."""
    try:
        import torch
    except ImportError as error:
        yield Check("devices", "broken", f"torch cannot be imported: {error}", "reinstall it", ExitCode.FAILURE)
    else:
        yield Check("threads", "ok", f"{torch.get_num_threads()} of {os.cpu_count()} cores")
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        yield Check("devices", "ok", ", ".join(["cpu", *(f"cuda ({name})" for name in names)]))
    from costar_cli.config.memory import MACHINE, free_memory, total_memory

    free, total = free_memory(), total_memory()
    found = f"{free.n_bytes / GIB:.1f} GiB free of {total.n_bytes / GIB:.1f}"
    found += "" if total.of == MACHINE else f", of {total.of}"
    if free.n_bytes < LEAST_MEMORY_GIB * GIB:
        yield Check("memory", "note", found, "use smaller sizes or a smaller --batch-size")
    else:
        yield Check("memory", "ok", found)
    place = next(folder for folder in (root.absolute(), *root.absolute().parents) if folder.is_dir())
    n_bytes = shutil.disk_usage(place).free
    found = f"{n_bytes / GIB:.1f} GiB free at {place}"
    if n_bytes < LEAST_DISK_GIB * GIB:
        yield Check("disk", "note", found, "free some space, or choose another --workspace")
    else:
        yield Check("disk", "ok", found)


def _workspace(workspace: Workspace) -> Iterator[Check]:
    """Check that each file can be opened, and was made from the files beside it; `verify` reads all of it."""
    from costar_cli.files import read_header

    root = workspace.root
    if not root.exists():
        yield Check("workspace", "ok", f"{root} does not exist yet; `costar simulate tumor` creates it")
    elif not root.is_dir() or not os.access(root, os.W_OK):
        fix = "choose another folder with --workspace"
        yield Check("workspace", "broken", f"{root} cannot be written", fix, ExitCode.STORAGE)
    else:
        yield Check("workspace", "ok", str(root))
    headers: dict[Path, Artifact] = {}
    for path in workspace.files():
        try:
            headers[path] = read_header(path)
        except CostarError as error:
            fix = "recreate it with --overwrite, or remove it"
            yield Check(path.name, "broken", error.problem, fix, error.exit_code)
    here = {
        role: headers[path].digest
        for role, path in (("dataset", workspace.data), ("encoder", workspace.encoder))
        if path in headers
    }
    for path, header in headers.items():
        found = f"{header.kind} {header.digest[:8]}"
        orphan = next((role for role, digest in here.items() if header.parents.get(role, digest) != digest), None)
        if orphan:
            yield Check(path.name, "note", f"{found}, made from a different {orphan}")
        else:
            yield Check(path.name, "readable", found)
    if workspace.runs.is_dir() and any(workspace.runs.glob("*.h5")):
        names = ", ".join(sorted(path.stem for path in workspace.runs.glob("*.h5")))
        yield Check("runs", "note", f"interrupted: {names}", "the same command continues; --fresh starts over")
