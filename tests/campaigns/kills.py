"""Verbs that a signal ends at a random moment: what is left can be read; the same command finishes, and tidies up."""

import csv
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from tests.campaigns.driver import Campaign, in_child, lives
from tests.campaigns.world import VERBS, copied, damaged, left_over, verb_work

SHARE = {
    "evaluate": 1,
    "report": 2,
    "mixed": 2,
    "verify": 4,
    "pretrain": 2,
    "finetune": 2,
    "benchmark": 2,
    "part": 2,
}  # of cases: the costly ones less often
MEASURED = ("wall_s", "partial", "memory_mb")  # of a benchmark's cells: what they took, not what they found
EVENTS = {"open", "os.mkdir", "os.remove", "os.rename", "os.rmdir"}  # of Python's audit, each told before it happens
TEMPORARY = re.compile(r"(^|/)\.[^/]*\.(tmp|dir)(/|$)")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run(campaign: Campaign) -> None:
    """Send signals to verbs: half of them at any moment, half when a temporary file was just touched."""
    source, place = campaign.source, campaign.folder / "case"
    takes: dict[str, float] = {}
    touches: dict[str, int] = {}
    whole: dict[str, dict[str, bytes]] = {}
    for _ in campaign.rounds():
        (verb,) = campaign.random.choices(list(VERBS), [SHARE.get(verb, 8) for verb in VERBS])
        touched = Touches()
        if verb not in takes:
            ended = in_child(touched.by(verb_work(verb, copied(source, place))))
            campaign.calibrated(ended, f"{verb} alone", codes={0})
            takes[verb], touches[verb], whole[verb] = ended.seconds, touched.count(), _outputs(place)
            touched = Touches()
        number = campaign.random.choice(SIGNALS)
        if touches[verb] and campaign.random.random() < 0.5:
            which, delay = campaign.random.randint(1, touches[verb]), campaign.random.uniform(0.0, 0.003)
            what = f"{verb}, {number.name} at touch {which} and {delay * 1000:.1f} ms"
            stop = partial(_at_touch, touched, which, delay, number)
        else:
            delay = campaign.random.uniform(0.0, takes[verb])
            what, stop = f"{verb}, {number.name} after {delay:.2f} s", partial(_after, delay, number)
        copied(source, place)
        ended = in_child(touched.by(verb_work(verb, place)), stop=stop)
        campaign.calibrated(ended, what, codes={0, -number if number == signal.SIGKILL else 128 + number})
        found = damaged(place)
        if number != signal.SIGKILL:
            campaign.document(ended, what)
            found += left_over(place)
        if found:
            campaign.fail(f"{what}: {found}")
        again = in_child(verb_work(verb, place))
        campaign.calibrated(again, f"{what}, then again", codes={0})
        if found := left_over(place):
            campaign.fail(f"{what}, then again: {found}")
        if differ := [name for name, data in whole[verb].items() if _outputs(place).get(name) != data]:
            campaign.fail(f"{what}, then again: {differ} differ from an undisturbed run")


class Touches:
    """Through a pipe, a process tells each time that it opens, moves or removes a temporary file."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._count = 0

    def __del__(self) -> None:
        os.close(self._reader)
        os.close(self._writer)

    def by(self, work: Callable[[], int]) -> Callable[[], int]:
        """Return work that tells."""

        def telling() -> int:
            sys.addaudithook(self._see)
            return work()

        return telling

    def _see(self, event: str, arguments: tuple[object, ...]) -> None:
        if event in EVENTS and isinstance(arguments[0], (str, os.PathLike)) and TEMPORARY.search(str(arguments[0])):
            os.write(self._writer, b".")

    def count(self) -> int:
        """Return how many there were."""
        with suppress(BlockingIOError):
            self._count += len(os.read(self._reader, 1 << 16))
        return self._count


def _at_touch(touched: Touches, which: int, delay_s: float, number: int, pid: int) -> None:
    """Send a signal soon after a process touched a temporary file for the so-manieth time."""
    while lives(pid):
        if touched.count() >= which:
            time.sleep(delay_s)
            os.kill(pid, number)
            return
        time.sleep(0.0002)


def _after(seconds: float, number: int, pid: int) -> None:
    """Send a signal once a process has taken so much CPU time; on a busy machine the clock tells of others."""
    child = psutil.Process(pid)
    while lives(pid):
        if sum(child.cpu_times()[:2]) >= seconds:
            os.kill(pid, number)
            return
        time.sleep(0.004)


def _outputs(place: Path) -> dict[str, bytes]:
    """Return the files that a verb made, but for what tells how long it took."""
    kinds = {".h5", ".csv", ".png", ".html", ".parquet", ".toml"}
    paths = [path for path in place.rglob("*") if path.suffix in kinds and not path.name.startswith(".")]
    return {str(path.relative_to(place)): _lasting(path) for path in paths if "runs" not in path.parts}


def _lasting(path: Path) -> bytes:
    """Return the content of a file, without what the cells of a benchmark took."""
    if path.name != "cells.csv":
        return path.read_bytes()
    with path.open(newline="", encoding="utf-8") as file:
        rows = [[value for name, value in row.items() if name not in MEASURED] for row in csv.DictReader(file)]
    return repr(rows).encode()
