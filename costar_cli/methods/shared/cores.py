"""Threads for answers and small fits: without torch, whose threads networks use."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Final, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

LIMIT: Final = "OMP_NUM_THREADS"  # with which users limit all numerical libraries
_CHOSEN: list[int] = []


def use_threads(count: int) -> None:
    """Run on so many threads from now on, in this process."""
    _CHOSEN[:] = [count]


@contextmanager
def chosen(count: int) -> Iterator[None]:
    """Run on so many threads for a while."""
    before = list(_CHOSEN)
    use_threads(count)
    try:
        yield
    finally:
        _CHOSEN[:] = before


def chosen_threads() -> int | None:
    """Return the number that was chosen in this process, None where none was."""
    return _CHOSEN[0] if _CHOSEN else None


def thread_count() -> int:
    """Return the number of threads: the chosen one, that of OMP_NUM_THREADS, or the number of usable cores."""
    if _CHOSEN:
        return _CHOSEN[0]
    limit = os.environ.get(LIMIT, "")
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(limit) if limit.isdigit() and int(limit) else usable


def side_by_side(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield the function of each item, in order; with several threads items run side by side."""
    count = thread_count()
    return map(function, items) if count == 1 else _workers(count).map(function, items)


@lru_cache(maxsize=1)
def _workers(count: int) -> ThreadPoolExecutor:
    """Return threads that are kept: starting them costs more than a small batch."""
    return ThreadPoolExecutor(count)
