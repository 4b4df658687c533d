"""Memory that training gives back and asks for again at every step stays with the process."""

import ctypes
import sys

__all__ = ["keep_freed_memory"]

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -2, -3, -8  # malloc.h
MIB = 2**20


def keep_freed_memory() -> bool:
    """Tell the C library to reuse freed memory instead of returning it to the system; return whether it listened.

    A training step allocates and frees tensors of megabytes. By default glibc maps and unmaps them each time, and the
    kernel clears every page again: some ten thousand page faults per step. 32 MiB is the largest threshold it takes;
    larger tensors are mapped as before. All thresholds are set together because setting one freezes the others at
    their small defaults. One arena for all threads lets one use what another has freed, which lowers the peak. Other
    systems and C libraries keep their own ways.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 - other C libraries lack it
        mallopt = libc.mallopt
    except (AttributeError, OSError):
        return False
    settings = ((M_ARENA_MAX, 1), (M_MMAP_THRESHOLD, 32 * MIB), (M_TRIM_THRESHOLD, 256 * MIB), (M_TOP_PAD, 64 * MIB))
    return all(mallopt(option, value) == 1 for option, value in settings)
