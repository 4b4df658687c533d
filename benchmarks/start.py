"""What commands take before they compute: processor time, over that of a bare interpreter or of the libraries alone.

    python -m benchmarks.start [--json] [--out FILE] [--quick]

`--version` and `--help` are compared with `python -c pass`; questions to a closed form about a small data set with
`python -c "import numpy, scipy.special, polars, h5py"`, less the answer itself, which is what the same question takes
when the process asks it again. Rivals take turns, each in a process of its own, with compiled bytecode as an installed
package has it.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from benchmarks.measure import Figure, Measured, run, run_child

BARE, LIBRARIES = "pass", "import numpy, scipy.special, polars, h5py"
SIZES = (
    "--train",
    "60",
    "--val",
    "30",
    "--test",
    "10",
    "--target-train",
    "1",
    "--target-val",
    "1",
    "--target-test",
    "1",
)
GOALS = {"version": 8.0, "help": 8.0, "whatif": 1.6, "average": 1.6, "search": 1.6}
AGAIN = """
import sys, time
from costar_cli.cli.app import main
for _ in range(2):
    start = time.process_time()
    main(sys.argv[1:])
print(time.process_time() - start)
"""


def measure(options: argparse.Namespace) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PYTHONPYCACHEPREFIX": f"{folder}/bytecode", "PYTHONDONTWRITEBYTECODE": ""}
        with patch.dict(os.environ, environment):
            return _measured(options, Path(folder))


def _measured(options: argparse.Namespace, folder: Path) -> Measured:
    place, plans = ("-w", str(folder)), folder / "plans.json"
    for words in (("simulate", "linear", *SIZES), ("finetune", "--method", "ridge", "--seed", str(options.seed))):
        run_child("-m", "costar_cli", *words, *place)
    plans.write_text('{"plans": {"never": [{}, {}], "once": [{"treatment": "on"}, {}]}}')
    model = ("--model", str(folder / "model-ridge.h5"), *place)
    commands = {
        "version": (BARE, ("--version",)),
        "help": (BARE, ("--help",)),
        "whatif": (LIBRARIES, ("whatif", "--subject", "0", "--plan", str(plans), *model)),
        "average": (LIBRARIES, ("whatif", "--subjects", "source/test", "--average", "--plan", str(plans), *model)),
        "search": (LIBRARIES, ("search", "--subject", "0", "--minimise", "outcome at end", "--steps", "2", *model)),
    }
    figures, details = dict[str, Figure](), dict[str, float]()
    for name, (against, words) in commands.items():
        pairs = [
            (run_child("-m", "costar_cli", *words).cpu_s, run_child("-c", against).cpu_s)
            for _ in range(options.repeats + 1)
        ][1:]  # the first writes bytecode
        answer_s = 0.0
        if against == LIBRARIES:
            again = [run_child("-c", AGAIN, *words).stdout.split()[-1] for _ in range(options.repeats)]
            answer_s = statistics.median(map(float, again))
            details[f"{name}_answer_s"] = answer_s
        ratio = statistics.median((ours - answer_s) / theirs for ours, theirs in pairs)
        what = f"{name} less its answer" if answer_s else name
        figures[name] = Figure(f"{what}, over {against!r}", ratio, "times", GOALS[name], at_most=True)
        details[f"{name}_s"] = statistics.median(ours for ours, _ in pairs)
    return Measured(figures, details)


def main(argv: Sequence[str] | None = None) -> None:
    run("start", __doc__, measure, argv, repeats=7)


if __name__ == "__main__":
    main()
