"""Whether costar is still as much faster than plain implementations as it was: ratios hold elsewhere, times do not.

    python -m benchmarks.guard [--share 0.7]

Benchmarks with a yardstick run again, a few rounds each, and their ratios are compared with those of
`benchmarks/results/`. Exit code 1 says that one is below the given share of the stored one.
"""

import argparse
import json
import sys
from collections.abc import Sequence

from benchmarks.machine import ROOT, machine, machine_slug
from benchmarks.measure import number, run_child

GUARDED = {"simulate": "ratio_to_loop", "pretrain_step": "ratio_to_literal", "scoring": "ratio_to_literal"}
RESULTS = ROOT / "benchmarks" / "results"


def stored(name: str) -> dict[str, object]:
    """Return the stored result of a benchmark: of this machine, or else of another."""
    here = RESULTS / f"{name}-{machine_slug(machine())}.json"
    path = here if here.is_file() else next(iter(sorted(RESULTS.glob(f"{name}-*.json"))))
    result: dict[str, object] = json.loads(path.read_text())
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmarks and print a line of each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard", description=__doc__)
    parser.add_argument("--share", type=float, default=0.7, help="of the stored ratio, below which it fails")
    parser.add_argument("--quick", action="store_true", help="toy sizes: shows that it runs, says nothing about speed")
    options, slower = parser.parse_args(argv), 0
    for name, key in GUARDED.items():
        before = stored(name)["figures"][key]["value"]
        quick = ["--quick"] if options.quick else []
        now = json.loads(run_child("-m", f"benchmarks.{name}", "--json", "--repeats", "3", *quick).stdout)
        ratio = now["figures"][key]["value"]
        is_slower = ratio < options.share * before
        slower += is_slower
        verdict = "SLOWER" if is_slower else "as fast"
        print(f"{name}, {key}: {number(ratio)}, stored {number(before)}: {verdict}{', BUSY' if now['busy'] else ''}")
    return int(slower > 0)


if __name__ == "__main__":
    sys.exit(main())
