"""`costar doctor`: is this machine, this installation and this workspace fit for work?"""

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
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


def check_all(workspace: Workspace) -> list[Check]:
    """Return every finding, the machine's first."""
    return [
        _python(),
        *_packages(),
        _simulators(),
        *_plugins(),
        *_devices(),
        _memory(),
        _disk(workspace.root),
        _folder(workspace.root),
        *_artifacts(workspace),
    ]


def _python() -> Check:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}, costar {VERSION}"
    return Check("python", "ok", found)


def _packages() -> Iterator[Check]:
    """Check the packages that the installed costar declares."""
    from importlib.metadata import PackageNotFoundError, requires, version

    for line in requires("costar") or ():
        if "extra ==" in line:
            continue
        name = line.split(">")[0].split("=")[0].split("<")[0].split(";")[0].strip()
        try:
            yield Check(name, "ok", version(name))
        except PackageNotFoundError:
            fix = f"`{sys.executable} -m pip install '{line}'`"
            yield Check(name, "broken", "not installed", fix, ExitCode.FAILURE)


def _simulators() -> Check:
    """Check that the package `simulators` is the one installed beside `costar_cli`, and not another of that name."""
    spec = find_spec("simulators")
    places = [Path(place).resolve() for place in (spec.submodule_search_locations or ())] if spec else []
    if Path(costar_cli.__path__[0]).resolve().with_name("simulators") in places:
        return Check("simulators", "ok", "costar's own")
    if not places:
        found, fix = "not installed", "install costar again"
    else:
        found = f"{places[0]} is another package than costar's"
        fix = "remove or rename it, or use an environment without it"
    return Check("simulators", "broken", found, fix, ExitCode.FAILURE)


def _plugins() -> Iterator[Check]:
    """Say what installed packages add, and which of it is left out."""
    from costar_cli.data.registry import installed
    from costar_cli.methods.registry import METHODS

    for kind, plugins in (("data set", installed()), ("method", METHODS.installed)):
        yield from (Check(f"{kind} {added.name}", "ok", "added by an installed package") for added in plugins.found)
        for problem in plugins.problems:
            yield Check(f"added {kind}", "note", problem, "upgrade or remove the package")


def _devices() -> Iterator[Check]:
    try:
        import torch
    except ImportError as error:
        yield Check("devices", "broken", f"torch cannot be imported: {error}", "reinstall it", ExitCode.FAILURE)
        return
    yield Check("threads", "ok", f"{torch.get_num_threads()} of {os.cpu_count()} cores")
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    yield Check("devices", "ok", ", ".join(["cpu", *(f"cuda ({name})" for name in names)]))


def _memory() -> Check:
    from costar_cli.config.memory import MACHINE, free_memory, total_memory

    free, total = free_memory(), total_memory()
    found = f"{free.n_bytes / GIB:.1f} GiB free of {total.n_bytes / GIB:.1f}"
    found += "" if total.of == MACHINE else f", of {total.of}"
    if free.n_bytes < LEAST_MEMORY_GIB * GIB:
        return Check("memory", "note", found, "use smaller sizes or a smaller --batch-size")
    return Check("memory", "ok", found)


def _disk(root: Path) -> Check:
    place = next(folder for folder in (root.absolute(), *root.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(place).free
    found = f"{free / GIB:.1f} GiB free at {place}"
    if free < LEAST_DISK_GIB * GIB:
        return Check("disk", "note", found, "free some space, or choose another --workspace")
    return Check("disk", "ok", found)


def _folder(root: Path) -> Check:
    if not root.exists():
        return Check("workspace", "ok", f"{root} does not exist yet; `costar simulate tumor` creates it")
    if not root.is_dir() or not os.access(root, os.W_OK):
        fix = "choose another folder with --workspace"
        return Check("workspace", "broken", f"{root} cannot be written", fix, ExitCode.STORAGE)
    return Check("workspace", "ok", str(root))


def _artifacts(workspace: Workspace) -> Iterator[Check]:
    """Check that each file can be opened, and was made from the files beside it; `verify` reads all of it."""
    from costar_cli.files import read_header

    headers: dict[Path, Artifact] = {}
    for path in workspace.files():
        try:
            headers[path] = read_header(path)
        except CostarError as error:
            fix = "recreate it with --overwrite, or remove it"
            yield Check(path.name, "broken", error.problem, fix, error.exit_code)
    for path, header in headers.items():
        found = f"{header.kind} {header.digest[:8]}"
        orphan = _orphaned(header.parents, headers, workspace)
        if orphan:
            yield Check(path.name, "note", f"{found}, made from a different {orphan}")
        else:
            yield Check(path.name, "readable", found)
    if workspace.runs.is_dir() and any(workspace.runs.glob("*.h5")):
        names = ", ".join(sorted(path.stem for path in workspace.runs.glob("*.h5")))
        yield Check("runs", "note", f"interrupted: {names}", "the same command continues; --fresh starts over")


def _orphaned(parents: Mapping[str, str], headers: Mapping[Path, "Artifact"], workspace: Workspace) -> str | None:
    """Return the role of the first parent that is not the file here."""
    here = {"dataset": workspace.data, "encoder": workspace.encoder}
    for role, path in here.items():
        if role in parents and path in headers and headers[path].digest != parents[role]:
            return role
    return None
