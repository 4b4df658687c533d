"""Recorded outputs of all verbs on small stored files: what a change of structure must leave as it is.

`world/` holds data sets and models, so that a recorded output depends on no training. A case is one command; recorded
are its messages, its result and the files that it writes: tables with all digits, pages as their text.

    python -m tests.contract.outputs           # record all cases again, for a change that means to change outputs
    python -m tests.contract.outputs whatif    # those whose name begins so
    python -m tests.contract.outputs --world   # build the stored files again, then record everything
"""

import contextlib
import io
import json
import math
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

import costar_cli as costar
from costar_cli.cli.app import main

HERE = Path(__file__).parent
WORLD, RECORDED, MACHINE = HERE / "world", HERE / "recorded", HERE / "recorded" / "machine.json"
EXAMPLES = HERE.parents[1] / "examples"
DAYS, BOTH = [{"chemotherapy": 1}, {}, {}], {"chemotherapy": 1, "radiotherapy": 1}
DOSE = {"repeat": {"dose": 50}, "times": 4}
PLANS = {
    "chemo.json": {"origin": 6, "plans": {"watch": [{}, {}, {}], "chemo": DAYS, "both": [BOTH, {}, {}]}},
    "one.json": {"plans": {"chemo": DAYS}},
    "rules.json": {
        "plans": {
            "watch": {"repeat": {}, "times": 3},
            "large": {"rule": "chemotherapy if tumour_volume > 2", "else": {}, "times": 3},
            "three in ten": {"rule": "chemotherapy", "with probability": 0.3, "times": 3},
        }
    },
    "insulin.json": json.loads((EXAMPLES / "own-data" / "plan-own.json").read_text()),
    "visits.json": json.loads((EXAMPLES / "own-data" / "plan-visits.json").read_text()),
    "doses.json": {"plans": {"none": {"repeat": {"dose": 0}, "times": 4}, "full": DOSE}},
}  # fmt: skip
VOLATILE = (
    (re.compile(r"\b[0-9a-f]{64}\b"), "<digest>"),
    (re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{8}\b"), "<digest>"),
    (re.compile(r"(?<=[(]model )[0-9]{8}\b|(?<=[(]encoder )[0-9]{8}\b|(?<=[(]dataset )[0-9]{8}\b"), "<digest>"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+\d\d:\d\d)?"), "<now>"),
    (re.compile(r'("(?:elapsed_s|costar|torch|numpy|polars|h5py|python|scipy|platform)": )[^,}]+'), r"\1<here>"),
    (re.compile(r"(done, .*, )[\d.]+ s\b"), r"\1<time>"),
    (re.compile(r"costar \d+\.\d+\.\d+"), "costar <version>"),
    (re.compile(r"^progress  .*\n", re.MULTILINE), ""),  # a busy machine says that it is still running
)
LONGEST = 60  # rows of a table that are recorded one by one
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class Case:
    """One command on a stored workspace; `files` are what it writes, under names without a folder."""

    name: str
    workspace: str
    arguments: str
    files: tuple[str, ...] = ()


def _both(name: str, workspace: str, arguments: str) -> list[Case]:
    """Return a command as people and as programs read it."""
    return [Case(name, workspace, arguments), Case(f"{name}-json", workspace, f"{arguments} --json")]


def _tables(name: str, workspace: str, arguments: str) -> list[Case]:
    return [
        Case(f"{name}-{kind}", workspace, f"{arguments} --csv t.{kind}", (f"t.{kind}",)) for kind in ("csv", "parquet")
    ]


MIXED, RIDGE, SCORE = "-m model-mixed.h5", "-m model-ridge.h5", "evaluate --no-plots -o e.h5"
ONE, MANY = "whatif -s 45 --plan chemo.json", "whatif --subjects source/test --skip-unknown --plan chemo.json"
SEARCH = "--minimise 'tumour_volume at end' --at-most 'chemotherapy 2' --not-consecutive radiotherapy"
CASES: Sequence[Case] = (
    # one subject
    *_both("whatif", "tumor", f"{ONE} {MIXED}"),
    Case("whatif-details", "tumor", f"{ONE} {MIXED} --show all"),
    *_both("whatif-costar", "tumor", ONE),
    *_both("whatif-two-models", "tumor", f"{ONE} {MIXED} {RIDGE}"),
    Case("whatif-truth", "tumor", f"{ONE} --truth --level 0.5 --level 0.9 {MIXED} --json"),
    Case("whatif-reference", "tumor", f"{ONE} --reference both {MIXED} --json"),
    Case("whatif-sensitivity", "tumor", f"{ONE} --sensitivity {MIXED} --json"),
    Case("whatif-widen", "tumor", f"{ONE} --widen {MIXED} --json"),
    Case("whatif-abstain", "tumor", f"{ONE} --abstain {MIXED} --json"),
    Case("whatif-rules", "tumor", f"whatif -s 45 --origin 6 --plan rules.json {MIXED} --json"),
    Case("whatif-one-plan", "tumor", f"whatif -s 45 --plan one.json {MIXED}"),
    Case("whatif-page", "tumor", f"{ONE} {MIXED} --report page.html", ("page.html",)),
    Case("whatif-out", "tumor", f"{ONE} {MIXED} -o e.h5"),
    *_tables("whatif", "tumor", f"{ONE} {MIXED} --truth"),
    *_both("whatif-dates", "glucose", f"whatif -s S-012 --plan insulin.json {RIDGE}"),
    *_both("whatif-visits", "visits", "whatif -s V-01 --plan visits.json"),
    *_both("whatif-ends", "trial", "whatif -s T007 --origin 3 --plan doses.json"),
    Case("whatif-sweep", "trial", "whatif -s T007 --origin 3 --sweep 'dose 0:60:20' --csv t.csv", ("t.csv",)),
    # many subjects
    *_both("cohort", "tumor", f"{MANY} {MIXED}"),
    *_tables("cohort", "tumor", f"{MANY} {MIXED} --truth"),
    Case("cohort-costar", "tumor", f"{MANY} --csv t.csv", ("t.csv",)),
    Case(
        "cohort-jsonl",
        "glucose",
        f"whatif --subjects target/test --plan insulin.json {RIDGE} --csv t.jsonl",
        ("t.jsonl",),
    ),
    Case(
        "cohort-ends",
        "trial",
        "whatif --subjects source/test --origin 3 --skip-unknown --plan doses.json --csv t.csv",
        ("t.csv",),
    ),
    Case(
        "cohort-all-origins", "visits", "whatif -s V-01 -s V-02 --origin all --skip-unknown --plan visits.json --json"
    ),
    *_both("average", "tumor", f"{MANY} {MIXED} --average"),
    Case("average-details", "tumor", f"{MANY} {MIXED} --average --show all"),
    Case("average-table", "tumor", f"{MANY} {MIXED} --average --csv t.csv", ("t.csv",)),
    Case("average-costar", "tumor", f"{MANY} --average --json"),
    Case("average-by", "glucose", f"whatif --subjects all --plan insulin.json {RIDGE} --average --by sex --json"),
    # search
    *_both("search", "tumor", f"search -s 45 --origin 6 {MIXED} {SEARCH}"),
    Case("search-costar", "tumor", f"search -s 45 --origin 6 {SEARCH} --by upper --json"),
    Case("search-table", "tumor", f"search -s 45 --origin 6 {MIXED} {SEARCH} --csv t.csv", ("t.csv",)),
    Case("search-page", "tumor", f"search -s 45 --origin 6 {MIXED} {SEARCH} --report p.html", ("p.html",)),
    *_both("search-cohort", "tumor", f"search --subjects source/test --skip-unknown --origin 6 {MIXED} {SEARCH}"),
    Case(
        "search-doses", "trial", "search -s T007 --origin 3 --minimise 'tumour at end' --levels 'dose 0,30,60' --json"
    ),
    # evaluate
    *_both("evaluate", "tumor", f"{SCORE}"),
    Case("evaluate-tables", "tumor", f"{SCORE} --csv s.csv --predictions p.parquet", ("s.csv", "p.parquet")),
    Case("evaluate-search", "tumor", f"{SCORE} {MIXED} --search {SEARCH.partition(' --at')[0]} --json"),
    *_both("evaluate-dates", "glucose", f"{SCORE}"),
    Case("evaluate-visits", "visits", f"{SCORE} --json"),
    *_both("evaluate-ends", "trial", f"{SCORE}"),
    Case("evaluate-details", "trial", f"{SCORE} --show all"),
    # files
    *(Case(f"inspect-{name}", name, "inspect data.h5") for name in ("tumor", "glucose", "visits", "trial")),
    Case("inspect-details", "glucose", "inspect data.h5 --show all --arrays"),
    Case("inspect-json", "tumor", "inspect model-mixed.h5 --json"),
    Case("inspect-costar", "tumor", "inspect model.h5"),
    Case("inspect-page", "glucose", "inspect data.h5 --report p.html", ("p.html",)),
    Case("inspect-card", "tumor", "inspect model.h5 --report p.html", ("p.html",)),
    Case("inspect-export", "glucose", "inspect data.h5 --export e --format csv", ("e/table.csv", "e/schema.toml")),
    Case("verify", "tumor", "verify model.h5 --json"),
    # making
    Case("simulate", "tumor", "simulate tumor --train 12 --val 4 --test 4 --steps 10 --horizon 3 -o d.h5 --json"),
    Case("ingest", "glucose", "ingest table small.csv --schema schema.toml -o d.h5"),
    Case("ingest-init", "glucose", "ingest table small.csv --init --out s.toml", ("s.toml",)),
    Case("finetune-ridge", "tumor", "finetune --method ridge -o m.h5 --json"),
    Case("finetune-auto", "glucose", "finetune --method auto --parts closed-form -o m.h5"),
    # errors
    Case("error-subject", "tumor", "whatif -s 999 --plan chemo.json"),
    Case("error-plan", "tumor", "whatif -s 45 --plan insulin.json --json"),
    Case("error-origin", "tumor", f"{ONE.replace('chemo.json', 'one.json')} --origin 99"),
    Case("error-search", "tumor", "search -s 45 --minimise 'volume at end'"),
)

PART: Mapping[str, Any] = {"part": "source/test", "origin": "last", "frame": "polars"}
AIM: Mapping[str, Any] = {"minimise": "tumour_volume at end", "at_most": "chemotherapy 2"}
FRAMES: Mapping[str, Callable[[costar.Model, costar.Dataset], Any]] = {
    "frame-predict": lambda model, data: model.predict(data, "chemo.json", truth=True, **PART),
    "frame-average": lambda model, data: model.average(data, "chemo.json", **PART),
    "frame-search": lambda model, data: model.search(data, **AIM, **PART),
}


class _Text(HTMLParser):
    """The words of a page, a line for each element; no styles, scripts or drawings."""

    SILENT = frozenset({"style", "script", "svg"})

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.silent = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.silent += tag in self.SILENT

    def handle_endtag(self, tag: str) -> None:
        self.silent -= tag in self.SILENT

    def handle_data(self, data: str) -> None:
        if not self.silent and data.strip():
            self.words.append(" ".join(data.split()))


def _content(path: Path) -> str:
    """Return a written file as text: pages as their words, tables with all digits, of long ones the head and sums."""
    if not path.exists():
        return "(not written)"
    if path.suffix == ".html":
        page = _Text()
        page.feed(path.read_text("utf-8"))
        return "\n".join(page.words)
    if path.suffix == ".parquet":
        return _table(pl.read_parquet(path))
    if path.suffix == ".csv":
        return _table(pl.read_csv(path, infer_schema_length=None))
    return path.read_text("utf-8")


def _table(frame: pl.DataFrame) -> str:
    frame = frame.with_columns(pl.selectors.float().cast(pl.Float64))
    sums = frame.select(pl.selectors.numeric().fill_nan(None).sum()).row(0, named=True)
    return frame.head(LONGEST).write_csv() + (f"{frame.height} rows, sums {sums}" if frame.height > LONGEST else "")


@contextlib.contextmanager
def workspace(name: str) -> Iterator[Path]:
    """A copy of a stored workspace with the plans beside its files, as the current folder."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "w"
        shutil.copytree(WORLD / name, place)
        for file in ("small.csv", "schema.toml"):
            shutil.copy(EXAMPLES / "own-data" / file, place)
        for file, plan in PLANS.items():
            (place / file).write_text(json.dumps(plan))
        os.chdir(place)
        try:
            yield place
        finally:
            os.chdir(before)


def output_of(case: Case) -> str:
    """Run a command in this process; return exit code, messages, result and files, less what changes by itself."""
    with workspace(case.workspace) as place:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([*shlex.split(case.arguments), *_place(case)])
        sections = {"exit": str(code), "stdout": out.getvalue(), "stderr": err.getvalue()}
        sections |= {name: _content(place / name) for name in case.files}
        text = "".join(f"=== {name}\n{content.rstrip()}\n" for name, content in sections.items())
        text = text.replace(str(place.resolve()), "<folder>").replace(str(place), "<folder>")
    for pattern, instead in VOLATILE:
        text = pattern.sub(instead, text)
    return text


def frame_of(name: str) -> str:
    """Return a frame of the Python API on the stored tumours as a table."""
    with workspace("tumor"):
        frame = FRAMES[name](costar.load_model("model-mixed.h5"), costar.read_dataset("data.h5"))
        return _table(pl.DataFrame(frame))


def _place(case: Case) -> list[str]:
    verb = case.arguments.split()[0]
    threads = [] if verb in {"inspect", "verify", "simulate", "ingest"} else ["--threads", "1"]
    return [*threads, *([] if verb == "verify" else ["-w", "."])]


def differences(expected: str, text: str, *, relative: float) -> list[str]:
    """Return the lines in which two outputs differ in a word, or in a number by more than this."""
    lines, mine = expected.splitlines(), text.splitlines()
    found = [] if len(lines) == len(mine) else [f"{len(lines)} lines were recorded, {len(mine)} came out"]
    for number, (one, other) in enumerate(zip(lines, mine, strict=False), start=1):
        if one != other and not _alike(one, other, relative):
            found += [f"line {number}", f"- {one[:300]}", f"+ {other[:300]}"]
    return found


def _alike(one: str, other: str, relative: float) -> bool:
    numbers = [[float(n) for n in NUMBER.findall(line)] for line in (one, other)]
    if NUMBER.sub("#", one).split() != NUMBER.sub("#", other).split() or len(numbers[0]) != len(numbers[1]):
        return False
    return all(math.isclose(a, b, rel_tol=relative, abs_tol=relative) for a, b in zip(*numbers, strict=True))


def machine() -> dict[str, str]:
    """Return what rounding depends on."""
    cpu = next((s.partition(":")[2].strip() for s in _cpuinfo() if s.startswith("model name")), platform.processor())
    kernels = torch.backends.cpu.get_cpu_capability()  # of one name there are several processors
    blas = os.environ.get("OPENBLAS_CORETYPE", "")
    return {
        "cpu": cpu,
        "kernels": kernels,
        "blas": blas,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "polars": pl.__version__,
    }


def _cpuinfo() -> list[str]:
    info = Path("/proc/cpuinfo")
    return info.read_text().splitlines() if info.exists() else []


def build_world() -> None:
    """Make the stored workspaces: tumours, dates with a target, visits at any time, doses with ends."""
    shutil.rmtree(WORLD, ignore_errors=True)
    own = EXAMPLES / "own-data"
    sizes = "--train 40 --val 160 --test 20 --target-train 10 --target-val 10 --target-test 8"
    sizes += " --steps 14 --horizon 3 --seed 1"
    few = "--members 2 --threads 1"
    trial = WORLD / "trial" / "trial.csv"
    commands = {
        "tumor": [
            f"simulate tumor {sizes}",
            *(f"finetune --method {method} --threads 1" for method in ("mixed", "ridge")),
            f"pretrain --epochs 1 {few}",
            f"finetune --epochs 3 {few}",
            f"finetune --domain target --epochs 2 {few}",
        ],
        "glucose": [f"ingest table {own}/small.csv --schema {own}/schema.toml", "finetune --method ridge --threads 1"],
        "visits": [f"ingest table {own}/visits.csv --schema {own}/visits.toml", "finetune --method mixed --threads 1"],
        "trial": [f"ingest table {trial} --schema {own}/trial.toml", "finetune --method mixed --threads 1"],
    }
    for name, lines in commands.items():
        (WORLD / name).mkdir(parents=True)
        if name == "trial":
            subprocess.run([sys.executable, str(own / "make_trial.py"), str(trial)], check=True)
        for line in lines:
            assert main([*line.split(), "-w", str(WORLD / name)]) == 0, line
    trial.unlink()
    for path in (*WORLD.glob("*/.lock*"), WORLD / "tumor" / "encoder.h5"):
        path.unlink()
    shutil.rmtree(WORLD / "tumor" / "runs", ignore_errors=True)


def record(prefix: str) -> None:
    """Write the recorded outputs whose name begins so, and the machine that made them."""
    RECORDED.mkdir(exist_ok=True)
    names = {*(case.name for case in CASES), *FRAMES}
    for path in RECORDED.glob("*.txt"):
        if path.stem not in names:
            path.unlink()
    for case in CASES:
        if case.name.startswith(prefix):
            (RECORDED / f"{case.name}.txt").write_text(output_of(case), "utf-8")
    for name in FRAMES:
        if name.startswith(prefix):
            (RECORDED / f"{name}.txt").write_text(frame_of(name), "utf-8")
    MACHINE.write_text(json.dumps(machine(), indent=1) + "\n")


if __name__ == "__main__":
    if "--world" in sys.argv:
        build_world()
    record(next((word for word in sys.argv[1:] if not word.startswith("-")), ""))
