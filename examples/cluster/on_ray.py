"""Run a command of costar in parts on a Ray cluster; a part whose worker or node dies is run again.

    ray start --head
    python on_ray.py 8 costar effect --plan plans.json --csv effects.csv
    costar effect --plan plans.json --csv effects.csv --merge

Files are on a disk that all nodes share. RAY_ADDRESS names another cluster than the one of this machine.
"""

import os
import subprocess
import sys

import ray


@ray.remote(num_cpus=1, max_retries=3)
def part(command: list[str], folder: str) -> None:
    """Make one part; a task of Ray."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")


def main() -> None:
    """Run as many parts as the first argument says of the command that follows."""
    count, command = int(sys.argv[1]), sys.argv[2:]
    ray.init(address="auto", log_to_driver=False)
    shards = [f"{number}/{count}" for number in range(1, count + 1)]
    ray.get([part.remote([*command, "--shard", shard], os.getcwd()) for shard in shards])


if __name__ == "__main__":
    main()
