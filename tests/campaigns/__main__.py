"""Run campaigns: `python -m tests.campaigns [SECONDS EACH] [SEED] [NAME...]`; exit code 1 says that a case failed."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from shutil import rmtree

from tests.campaigns.driver import Campaign, forked, warm
from tests.campaigns.world import workspace

OF_FILES = ("mutations", "text")
OF_VERBS = ("kills", "disks", "races", "numbers", "sealed")


def main(seconds: float, seed: int, names: Sequence[str]) -> int:
    """Run each for so many seconds, in a process of its own: threads of one do not survive the forks of the next."""
    if len(names) == 1 and names[0] in OF_FILES:
        return alone(seconds, seed, names[0])
    names = names or (*OF_FILES, *OF_VERBS)
    if unknown := [name for name in names if name not in (*OF_FILES, *OF_VERBS)]:
        sys.exit(f"no campaign is called {', '.join(unknown)}: they are {', '.join((*OF_FILES, *OF_VERBS))}")
    command = [sys.executable, "-m", "tests.campaigns", str(seconds), str(seed)]
    codes = [subprocess.call([*command, name]) for name in names if name in OF_FILES]
    return max([*codes, *on_one_workspace(seconds, seed, [name for name in names if name in OF_VERBS])])


def on_one_workspace(seconds: float, seed: int, names: Sequence[str]) -> list[int]:
    """Run campaigns that are forked with everything imported, each on a copy of one workspace; return exit codes."""
    if not names:
        return []
    with tempfile.TemporaryDirectory(prefix="campaigns-") as folder:
        warm()
        source = workspace(Path(folder) / "source")
        pids = (forked(partial(alone, seconds, seed, name, source)) for name in names)
        return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def alone(seconds: float, seed: int, name: str, source: Path | None = None) -> int:
    """Run one campaign, and print a line of it."""
    campaign = Campaign(name, seconds, seed, source)
    try:
        import_module(f"tests.campaigns.{name}").run(campaign)
    finally:
        rmtree(campaign.folder, ignore_errors=True)
    print(campaign.line(), flush=True)
    return int(len(campaign.failures) > 0)


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(float(given[0]) if given else 280.0, int(given[1]) if given[1:] else int(time.time()), given[2:]))
