"""Run every benchmark and keep the results: one JSON document each, and a table of all documents.

    python -m benchmarks.all [--quick] [--threads 2] [--only NAME ...] [--results FOLDER]
    python -m benchmarks.all --table

Results go to `benchmarks/results/NAME-MACHINE.json`, replacing those of the same machine; `README.md` beside them is
written from every document in the folder, so each number in it can be traced to a command, a commit and a machine.
`--table` only writes that table.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import machine_slug
from benchmarks.measure import load_text, number, run_child

__all__ = ["BENCHMARKS", "main", "render", "stored"]

RESULTS = Path(__file__).resolve().parent / "results"
BENCHMARKS = (
    "start",
    "simulate",
    "simulate_mimic",
    "pretrain_step",
    "default_preset",
    "quick_preset",
    "scoring",
    "rollouts",
    "mixed",
    "boosting",
    "evaluate_memory",
    "whatif",
    "cohort_whatif",
    "search",
    "members",
    "processes",
    "profile_steps",
    "fused_lstm",
    "ingest_m5",
    "ingest_table",
    "ingest_events",
    "large",
    "growth",
    "growth_commands",
)
TITLES = {
    "start": "Starting a command",
    "simulate": "Simulating a cohort",
    "simulate_mimic": "Simulating ICU patients at paper size",
    "pretrain_step": "Pretraining step",
    "default_preset": "The default preset",
    "quick_preset": "The quick preset",
    "scoring": "Scoring the test sets",
    "rollouts": "Queries per second of every method",
    "mixed": "The mixed-effects model",
    "boosting": "Boosting beside LightGBM",
    "evaluate_memory": "Evaluating at paper size",
    "whatif": "What bands and lights cost a what-if question",
    "cohort_whatif": "A cohort of 10,000 under ten plans",
    "search": "Searching plans",
    "members": "Members together or apart",
    "processes": "Members in several processes",
    "profile_steps": "Where a step's time goes",
    "fused_lstm": "A compiled LSTM",
    "ingest_m5": "Ingesting M5 at full size",
    "ingest_table": "Ingesting a large table",
    "ingest_events": "Ingesting ten million events",
    "large": "100,000 tumour patients, all steps",
    "growth": "How cost grows",
    "growth_commands": "How commands grow",
}


def run_all(names: Sequence[str], options: Sequence[str], folder: Path) -> list[str]:
    """Run benchmarks one after another, each in its own process; return the names of those that failed."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in names:
            print(f"{name} ...", file=sys.stderr, flush=True)
            out = Path(temporary) / f"{name}.json"
            try:
                child = run_child("-m", f"benchmarks.{name}", *options, "--out", str(out))
            except RuntimeError as error:
                print(error, file=sys.stderr)
                failed.append(name)
                continue
            print(child.stdout, end="", flush=True)
            document = json.loads(out.read_text())
            document["command"] = document["command"].partition(" --out")[0]
            target = folder / f"{name}-{machine_slug(document['machine'])}.json"
            target.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")
    return failed


def stored(folder: Path) -> list[dict[str, Any]]:
    """Return the documents of a folder, by machine, then in the order of the benchmarks."""
    paths = sorted(path for name in BENCHMARKS for path in folder.glob(f"{name}-*.json"))
    documents = [json.loads(path.read_text()) for path in paths]
    return sorted(documents, key=lambda d: (machine_slug(d["machine"]), BENCHMARKS.index(d["benchmark"])))


def render(documents: Sequence[dict[str, Any]]) -> str:
    """Return the Markdown table of the documents."""
    lines = ["# Results", "", "Written by `python -m benchmarks.all`; do not edit. Times are medians.", ""]
    previous = None
    for document in documents:
        slug = machine_slug(document["machine"])
        if slug != previous:
            lines += [f"## {_machine(document['machine'])}", ""]
        previous = slug
        lines += [f"### {TITLES[document['benchmark']]}", "", _origin(document), ""]
        lines += ["| what | measured | goal |", "| --- | ---: | --- |"]
        lines += [
            f"| {figure['label']} | {_measured(figure)} | {_goal(figure)} |" for figure in document["figures"].values()
        ]
        lines.append("")
    return "\n".join(lines)


def write_table(folder: Path) -> Path:
    """Write the table beside the documents."""
    path = folder / "README.md"
    path.write_text(render(stored(folder)))
    return path


def _machine(described: dict[str, Any]) -> str:
    where = f"{described['cpu']}, {described['cores']} cores, {described['memory_gb']:.0f} GB"
    return f"{where}, {described['gpu']}" if described["gpu"] else where


def _origin(document: dict[str, Any]) -> str:
    where = document["machine"]
    quick = " **Toy sizes: says nothing about speed.**" if document["options"].get("quick") else ""
    return (
        f"`{document['command']}`, {document['date'][:10]}, commit {document['commit'] or 'unknown'}, "
        f"{where['threads']} threads, torch {where['torch']}, {load_text(document)}.{quick}"
    )


def _measured(figure: dict[str, Any]) -> str:
    return f"{number(figure['value'])} {figure['unit']}".strip()


def _goal(figure: dict[str, Any]) -> str:
    if figure["goal"] is None:
        return ""
    bound = "at most" if figure["at_most"] else "at least"
    return f"{bound} {number(figure['goal'])}, {'met' if figure['met'] else '**missed**'}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="toy sizes")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS), metavar="NAME")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="write the table from the documents that are there")
    options = parser.parse_args(argv)
    failed: list[str] = []
    if not options.table:
        quick = ["--quick"] if options.quick else []
        failed = run_all(options.only, [*quick, "--threads", str(options.threads)], options.results)
    print(f"wrote {write_table(options.results)}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
