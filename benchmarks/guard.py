"""Whether costar is still as much faster than plain implementations as the pages say: ratios hold on other machines.

    python -m benchmarks.guard [--share 0.7]

Benchmarks with a yardstick run again, a few rounds each, and the ratios that the pages quote are compared with those of
`benchmarks/results/`. Exit code 1 says that one is below the given share of the stored one, or, of what bands and a
start cost, as much above it.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from benchmarks.machine import ROOT, machine, machine_slug
from benchmarks.measure import number, run_child

GUARDED = {
    "simulate": ("ratio_to_loop", "ratio_to_numpy_loop"),
    "pretrain_step": ("ratio_to_literal", "finetune_ratio_to_literal"),
    "profile_steps": tuple(f"literal_{name}" for name in ("crn_encoder", "gnet_network", "ct")),
    "processes": ("pretrain_cpu_divided_over_shared", "finetune_cpu_divided_over_shared"),
    "scoring": ("ratio_to_literal", "ratio_to_cropped", "ratio"),
    "rollouts": tuple(f"ratio_{name}" for name in ("costar", "crn", "ct", "rmsn", "gnet")),
    "whatif": tuple(f"ratio_{name}_{how}" for name in ("mixed", "growth", "costar") for how in ("process", "command")),
    "mixed": ("spread_ratio",),
    "boosting": ("tumor_time", "tumor_lightgbm_time"),
    "evaluate_memory": ("evaluate_rss_mb",),
    "start": ("version", "help", "whatif", "average", "search"),
}
# Than what is stored, where that says nothing about ratios.
SHORTER = {"mixed": ("--worlds", "1"), "profile_steps": ("--only", "crn", "gnet", "ct")}
NEEDS = {"boosting": "lightgbm"}
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
    for name, keys in GUARDED.items():
        if name in NEEDS and find_spec(NEEDS[name]) is None:
            print(f"{name}: left out, {NEEDS[name]} is not installed")
            continue
        more = ["--quick"] if options.quick else SHORTER.get(name, ())
        now = json.loads(run_child("-m", f"benchmarks.{name}", "--json", "--repeats", "3", *more).stdout)
        for key in keys:
            before, after = (document["figures"][key] for document in (stored(name), now))
            old, new = (after["value"], before["value"]) if after["at_most"] else (before["value"], after["value"])
            is_slower = new < options.share * old
            slower += is_slower
            verdict = "SLOWER" if is_slower else "as fast"
            text = f"{number(after['value'])}, stored {number(before['value'])}: {verdict}"
            print(f"{name}, {key}: {text}{', BUSY' if now['busy'] else ''}", flush=True)
    return int(slower > 0)


if __name__ == "__main__":
    sys.exit(main())
