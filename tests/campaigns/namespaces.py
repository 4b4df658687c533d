"""File systems that a process alone sees: Linux lets anybody mount some in a namespace of their own."""

import ctypes
import os
from pathlib import Path

NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000  # of unshare(2)
READ_ONLY, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 32, 4096, 16384, 1 << 18  # of mount(2)


def bind_read_only(folder: Path) -> None:
    """Make a folder read-only for this process.

    Raises:
        OSError: the system forbids it.
    """
    _enter()
    _mount(str(folder), folder, "", BIND)
    _mount(str(folder), folder, "", BIND | REMOUNT | READ_ONLY)


def mount_tmpfs(folder: Path, options: str) -> None:
    """Put an empty file system in memory over a folder, for this process.

    Raises:
        OSError: the system forbids it.
    """
    _enter()
    _mount("none", folder, "tmpfs", 0, options)


def _enter() -> None:
    uid, gid = os.getuid(), os.getgid()
    _call("unshare", NEW_MOUNTS if uid == 0 else NEW_MOUNTS | NEW_USER)
    if uid:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    _mount("none", Path("/"), "", RECURSIVE | PRIVATE)


def _mount(source: str, target: Path, kind: str, flags: int, options: str = "") -> None:
    _call("mount", source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options.encode())


def _call(name: str, *arguments: object) -> None:
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None:
        raise OSError(f"no {name} on this system")
    if function(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
