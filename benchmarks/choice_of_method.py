"""How often validation picks the method that is best where the truth is known, and how a stack of all compares.

    python -m benchmarks.choice_of_method DATA.h5 ... [--parts NAMES] [--preset quick] [--members 1] [--out FILE.csv]
    python -m benchmarks.choice_of_method DATA.h5 ... --limits --out FILE.csv
    python -m benchmarks.choice_of_method --summary FILE.csv ...

Each data set has methods fitted to its source, as parts of a stack, each as it is fitted alone. Three rules pick one of
them by its error on factual windows of the validation subjects:

- `raw`: the RMSE in sds of the outcomes;
- `relative`: the RMSE relative to the outcome's level at the origin (spec STACK-1);
- `plans`: the same with windows weighed by inverse probability of their later treatments (spec STACK-2).

Beside their picks stand two stacks, `stack observed` and `stack plans` (spec STACK-4), with the second and the third
rule's errors, and `stack unguarded`: the latter as it would be if it left the best plain method for anything that errs
less. All are scored on the counterfactual test questions of the target (zero-shot) and of the source
(supervised), or on what was observed where there are none, in the data set's error unit: the mean over tau = 1..6 of
the RMSE over all outcomes. `limit` is what the simulator itself would predict (spec LIMIT-1), where it is known: a
bound and no method; `--limits` scores nothing else, for tables that are there.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.comparing import Row, fitted, read, write
from costar_cli.data import Dataset, Part, Scaler
from costar_cli.data.store import read_dataset
from costar_cli.data.windows import factual_windows
from costar_cli.errors import UsageError
from costar_cli.evaluation.limit import known_limit, score_limit
from costar_cli.evaluation.metrics import SquaredErrors, average_over_steps
from costar_cli.evaluation.score import TestPart, score
from costar_cli.methods.base import FittedModel
from costar_cli.methods.registry import METHODS, SHORT_LIST
from costar_cli.methods.shared.combining import Errors, error_scales, weigh
from costar_cli.methods.shared.plan_weights import plan_weights
from costar_cli.methods.stack.method import anchors_among
from costar_cli.methods.stack.model import StackModel
from costar_cli.reporting import NullReporter, NullTask

__all__ = ["compare", "main", "summary"]

FIELDS = ("data", "name", "raw", "relative", "plans", "zero_shot", "supervised")
LIMIT = "limit"
RULES = ("raw", "relative", "plans")
SETUPS: Mapping[str, Part] = {"zero_shot": Part("target", "test"), "supervised": Part("source", "test")}


@dataclass(frozen=True)
class Judged:
    """Errors of a stack's parts by rule, and a stack by each rule that has one."""

    errors: Mapping[str, Sequence[float]]
    stacks: Mapping[str, StackModel]


def judged(dataset: Dataset, stack: StackModel) -> Judged:
    """Return what the rules say of the parts of a stack, of the mean over members."""
    train = dataset.panel("source", "train")
    windows = factual_windows(dataset.panel("source", "val"), dataset.horizon)
    if windows is None:
        raise UsageError("no validation subject has a step to predict", where=dataset.name)
    answers = [part.rollout(windows.panel, windows.asked).mean(axis=0) for part in stack.parts.values()]
    relative_QY, _ = error_scales(train, stack.scaler, windows)
    alike_QH = np.ones((len(windows.queries), windows.queries.horizon))
    plans_QH = plan_weights(train, windows, stack.scaler, dataset.schema.treatments).weight_QH
    raw_QY = np.broadcast_to(stack.scaler.outcomes[1], relative_QY.shape)
    by_rule = {
        "raw": Errors.of(answers, windows, raw_QY, alike_QH),
        "relative": Errors.of(answers, windows, relative_QY, alike_QH),
        "plans": Errors.of(answers, windows, relative_QY, plans_QH),
    }
    told = {rule: [errors.risk(errors.of_part(p))[0] for p in range(len(answers))] for rule, errors in by_rule.items()}
    stacks, plain = {}, anchors_among(list(stack.parts))
    for name, rule, anchors in (
        ("stack observed", "relative", plain),
        ("stack plans", "plans", plain),
        ("stack unguarded", "plans", ()),
    ):
        weight_PHY = weigh(by_rule[rule], anchors=anchors).weight_PHY
        steps = np.minimum(np.arange(stack.horizon), weight_PHY.shape[1] - 1)
        weight_RPHY = np.repeat(weight_PHY[None, :, steps], stack.members, axis=0)
        stacks[name] = replace(stack, params={"weights": torch.from_numpy(weight_RPHY)})
    return Judged(told, stacks)


def test_error(dataset: Dataset, model: FittedModel, part: Part) -> float:
    """Return the mean over members of a model's RMSE on a part's counterfactual questions, else its factual ones."""
    test = TestPart.of(dataset.panel(*part), dataset.queries[part], dataset.horizon)
    sd_Y = model.scaler.error_scale(dataset.schema)
    scored = score(model, test, denominator_Y=sd_Y, batch_size=16_384, task=NullTask())
    return average_error(dataset, scored.get("counterfactual") or scored["factual"])


def average_error(dataset: Dataset, errors: SquaredErrors) -> float:
    """Return the average over steps of the RMSE over all outcomes, the mean over members, in the data set's unit."""
    square_RH = errors.members.sum(axis=(1, 3)) / errors.count.sum(axis=0)
    return float(average_over_steps(np.sqrt(square_RH)).mean()) * dataset.schema.error_unit.factor


def limit_row(dataset: Dataset, name: str) -> Iterator[Row]:
    """Yield the row of what the simulator itself would predict, where that is known."""
    row = dict.fromkeys(FIELDS, "") | {"data": name, "name": LIMIT}
    sd_Y = Scaler.fit(dataset.panel("source", "train"), dataset.schema).error_scale(dataset.schema)
    asked: Mapping[str, Any] = {"batch_size": 16_384, "task": NullTask(), "reporter": NullReporter()}
    for setup, part in SETUPS.items():
        if part in dataset.panels and (limit := known_limit(dataset, part)):
            test = TestPart.of(dataset.panel(*part), dataset.queries[part], dataset.horizon)
            scored, _ = score_limit(dataset, limit, part, test, denominator_Y=sd_Y, **asked)
            row[setup] = f"{average_error(dataset, scored['counterfactual']):.6g}"
    if any(row[setup] for setup in SETUPS):
        yield row


def compare(path: Path, options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each part of a stack fitted to a data set, and for the stacks."""
    dataset = read_dataset(path)
    stack = fitted(dataset, METHODS.combining.name, preset=options.preset, members=options.members, parts=options.parts)
    assert isinstance(stack, StackModel)  # noqa: S101 - it is what was fitted
    said = judged(dataset, stack)
    models: dict[str, FittedModel] = {**stack.parts, **said.stacks}
    for i, (name, model) in enumerate(models.items()):
        row = dict.fromkeys(FIELDS, "") | {"data": path.stem, "name": name}
        if name in stack.parts:
            row |= {rule: f"{errors[i]:.6g}" for rule, errors in said.errors.items()}
        known = {setup: part for setup, part in SETUPS.items() if part in dataset.panels}
        yield row | {setup: f"{test_error(dataset, model, part):.6g}" for setup, part in known.items()}
    yield from limit_row(dataset, path.stem)


def summary(rows: Sequence[Row]) -> str:
    """Return, for each kind of data and set-up, how rules and stacks compare with the truly best method.

    A cell says how often the rule's pick is the best method, and how much larger its error is on average and at worst.
    """
    kinds = dict.fromkeys(row["data"].rstrip("0123456789") for row in rows)
    lines = ["| data | set-up | truly best | raw | relative | plans | stack observed | stack plans |", "|" + "---|" * 8]
    for kind in [*kinds, ""]:
        for setup in SETUPS:
            cases = [
                [row for row in rows if row["data"] == data]
                for data in dict.fromkeys(row["data"] for row in rows if row["data"].startswith(kind))
            ]
            cases = [case for case in cases if case[0][setup]]
            if not cases:
                continue
            cells = [_best(cases, setup) if kind else ""]
            cells += [_picked(cases, setup, rule) for rule in RULES]
            cells += [_stacked(cases, setup, name) for name in ("stack observed", "stack plans")]
            lines.append(f"| {kind or 'all'} | {setup.replace('_', '-')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _parts(case: Sequence[Row]) -> list[Row]:
    return [row for row in case if row["raw"]]


def _best(cases: Sequence[Sequence[Row]], setup: str) -> str:
    names = [min(_parts(case), key=lambda row: float(row[setup]))["name"] for case in cases]
    return ", ".join(f"{name} {names.count(name)}" if len(set(names)) > 1 else name for name in dict.fromkeys(names))


def _excess(case: Sequence[Row], setup: str, row: Row) -> float:
    return float(row[setup]) / min(float(part[setup]) for part in _parts(case)) - 1


def _picked(cases: Sequence[Sequence[Row]], setup: str, rule: str) -> str:
    picks = [min(_parts(case), key=lambda row: float(row[rule])) for case in cases]
    excess = [_excess(case, setup, pick) for case, pick in zip(cases, picks, strict=True)]
    return f"{sum(e == 0 for e in excess)} of {len(excess)}; {_amounts(excess)}"


def _stacked(cases: Sequence[Sequence[Row]], setup: str, name: str) -> str:
    return _amounts([_excess(case, setup, row) for case in cases for row in case if row["name"] == name])


def _amounts(excess: Sequence[float]) -> str:
    return f"{100 * np.mean(excess):+.0f} % ({100 * max(excess):+.0f} %)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare on every data set, write the rows as they come, and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", type=Path, help="data sets; with --summary, tables that --out wrote")
    parser.add_argument("--summary", action="store_true", help="compare nothing, read tables")
    parser.add_argument(
        "--limits", action="store_true", help="score what the simulator would predict, and nothing else"
    )
    parser.add_argument("--parts", default=SHORT_LIST, help="methods, as in `stack.parts`")
    parser.add_argument("--preset", default="quick", choices=("quick", "default", "paper"))
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--out", type=Path, help="table to write; rows of other data sets that it has are kept")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    if options.summary:
        rows = [row for path in options.data for row in read(path)]
    else:
        rows = read(options.out) if options.out and options.out.exists() else []
        for path in options.data:
            if options.limits:
                mine = list(limit_row(read_dataset(path), path.stem))
                rows = [row for row in rows if (row["data"], row["name"]) != (path.stem, LIMIT)] + mine
            else:
                rows = [row for row in rows if row["data"] != path.stem] + list(compare(path, options))
            if options.out:
                write(options.out, rows, FIELDS)
    sys.stdout.write(summary(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
