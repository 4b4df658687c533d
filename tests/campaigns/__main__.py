"""Run campaigns: `python -m tests.campaigns [SECONDS EACH] [SEED] [NAME...]`; exit code 1 says that a case failed."""

import subprocess
import sys
import time
from importlib import import_module
from shutil import rmtree

from tests.campaigns.driver import Campaign

NAMES = ("mutations", "kills", "disks", "races", "text", "numbers", "sealed")


def main(seconds: float, seed: int, names: list[str]) -> int:
    """Run each for so many seconds, in a process of its own: threads of one do not survive the forks of the next."""
    if len(names) == 1:
        return alone(seconds, seed, names[0])
    command = [sys.executable, "-m", "tests.campaigns", str(seconds), str(seed)]
    codes = [subprocess.call([*command, name]) for name in names or NAMES]
    return max(codes)


def alone(seconds: float, seed: int, name: str) -> int:
    """Run one campaign, and print a line of it."""
    campaign = Campaign(name, seconds, seed)
    try:
        import_module(f"tests.campaigns.{name}").run(campaign)
    finally:
        rmtree(campaign.folder, ignore_errors=True)
    print(campaign.line(), flush=True)
    return int(len(campaign.failures) > 0)


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(float(given[0]) if given else 280.0, int(given[1]) if given[1:] else int(time.time()), given[2:]))
