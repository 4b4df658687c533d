"""Whether costar is still as fast as the pages say, by ratios, which hold on other days and machines.

    python -m benchmarks.guard [--only NAME ...] [--share 0.7]

Benchmarks that the pages quote run again, a few rounds each, with as many threads: some 45 minutes in all.
Ratios to a yardstick are compared with those of `benchmarks/results/`. Times are compared twice: in seconds, and over a
fixed piece of work in the same run, the `unit_s` of each document. Slower means slower by both: from machine to machine
the interpreter's speed changes by more than that of arrays. Exit code 1 says that a figure is below the given share of
the stored one, or, where less is better, as much above it, in two runs of its benchmark. Not among them: GPUs, 100,000
patients, logs and tables of millions of rows, and parts of what is compared as a whole. A time that was stored before
`unit_s` is left out, and named.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.util import find_spec
from typing import Any

from benchmarks.machine import ROOT, machine, machine_slug
from benchmarks.measure import number, run_child

GUARDED = {
    "simulate": ("ratio_to_loop", "ratio_to_numpy_loop"),
    "pretrain_step": ("ratio_to_literal", "finetune_ratio_to_literal", "peak_rss_mb"),
    "profile_steps": ("literal_*", "hours_paper", "hours_default"),
    "fused_lstm": ("*_ours",),
    "processes": ("pretrain_cpu_divided_over_shared", "finetune_cpu_divided_over_shared"),
    "scoring": ("ratio_to_literal", "ratio_to_cropped", "ratio"),
    "rollouts": tuple(f"ratio_{name}" for name in ("costar", "crn", "ct", "rmsn", "gnet")),
    "whatif": tuple(f"ratio_{name}_{how}" for name in ("mixed", "growth", "costar") for how in ("process", "command")),
    "mixed": ("spread_ratio",),
    "boosting": ("tumor_time", "tumor_lightgbm_time"),
    "evaluate_memory": ("evaluate_rss_mb",),
    "start": ("version", "help", "whatif", "average", "search"),
    "default_preset": ("preset_min",),
    "quick_preset": ("*_cpu_s", "*_peak_mb"),
    "growth_commands": ("*_cpu", "*_memory"),
}
SHORTER = {"mixed": ("--worlds", "1")}  # than what is stored, where that says nothing about ratios
NEEDS = {"boosting": "lightgbm"}
TIMES, LESS_IS_BETTER = {"s", "min", "h"}, {"s", "min", "h", "MB"}
RESULTS = ROOT / "benchmarks" / "results"


def stored(name: str) -> dict[str, Any]:
    """Return the stored result of a benchmark: of this machine, or else of another."""
    here = RESULTS / f"{name}-{machine_slug(machine())}.json"
    path = here if here.is_file() else next(iter(sorted(RESULTS.glob(f"{name}-*.json"))))
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def guarded(name: str, figures: Mapping[str, object]) -> list[str]:
    """Return the names of the figures of a benchmark that are compared."""
    return [key for key in figures for pattern in GUARDED[name] if fnmatchcase(key, pattern)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmarks and print a line of each."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.guard", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=GUARDED, default=list(GUARDED), help="some of the benchmarks")
    parser.add_argument("--share", type=float, default=0.7, help="of the stored ratio, below which it fails")
    parser.add_argument("--quick", action="store_true", help="toy sizes: shows that it runs, says nothing about speed")
    options, slower = parser.parse_args(argv), set[str]()
    for name in options.only:
        if name in NEEDS and find_spec(NEEDS[name]) is None:
            print(f"{name}: left out, {NEEDS[name]} is not installed")
            continue
        found = slower_than_stored(name, options)
        if found:  # a disturbed minute ends before the next run
            print(f"{name}: once more", flush=True)
            found &= slower_than_stored(name, options)
        slower |= found
    print(f"slower in two runs: {', '.join(sorted(slower)) or 'none'}")
    return int(bool(slower))


def slower_than_stored(name: str, options: argparse.Namespace) -> set[str]:
    """Run a benchmark, print a line for each guarded figure, and return those that are clearly slower."""
    then, more = stored(name), ["--quick"] if options.quick else SHORTER.get(name, ())
    words = ["--json", "--repeats", "3", "--threads", str(then["options"]["threads"]), *more]
    now, slower = json.loads(run_child("-m", f"benchmarks.{name}", *words).stdout), set[str]()
    for key in guarded(name, now["figures"]):
        if key not in then["figures"]:
            print(f"{name}, {key}: left out, never stored")
            continue
        old, new = (document["figures"][key]["value"] for document in (then, now))
        unit, at_most = (now["figures"][key][what] for what in ("unit", "at_most"))
        shown = f"{number(new)} {unit}, stored {number(old)}"
        shares = [old / new if at_most or unit in LESS_IS_BETTER else new / old]
        if unit in TIMES:
            if "unit_s" not in then:
                print(f"{name}, {key}: left out, stored without the time of the fixed work")
                continue
            shares.append(shares[0] * now["unit_s"] / then["unit_s"])
            shown += f", over the fixed work {number(new / now['unit_s'])}, stored {number(old / then['unit_s'])}"
        is_slower = max(shares) < options.share
        slower |= {f"{name}, {key}"} if is_slower else set()
        print(f"{name}, {key}: {shown}: {'SLOWER' if is_slower else 'as fast'}{', BUSY' * now['busy']}", flush=True)
    return slower


if __name__ == "__main__":
    sys.exit(main())
