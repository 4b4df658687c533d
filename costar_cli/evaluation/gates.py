"""Gates of `costar evaluate --fail-if`: conditions on numbers of an evaluation under which it fails."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from itertools import product
from operator import ge, gt, le, lt
from typing import Any, Final

from costar_cli.config.nearest import did_you_mean
from costar_cli.errors import GateError, UsageError
from costar_cli.evaluation.metrics import AVERAGED_STEPS, finite
from costar_cli.evaluation.report import EvaluationReport
from costar_cli.evaluation.rows import ReportRow
from costar_cli.evaluation.setups import SETUPS
from costar_cli.evaluation.sums import REPORTED
from costar_cli.methods.registry import LAST_VALUE, METHODS

WHERE: Final = "--fail-if"
FORM: Final = "write SET-UP.METHOD.NUMBER, one of < <= > >=, and a value: `zero-shot.costar.average > 1.1`"
LEVELS: Final = {f"coverage{100 * level:.0f}": str(level) for level in REPORTED}
_OPERATORS: Final = {"<": lt, "<=": le, ">": gt, ">=": ge}
_GATE = re.compile(
    r"\s*(?P<setup>[^.\s]+)\.(?P<model>.+)\.(?P<number>[^.\s]+?)\s*(?P<operator><=|>=|<|>)\s*"
    r"(?P<bound>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*"
)


@dataclass(frozen=True, slots=True)
class Gate:
    """A condition under which an evaluation fails: a number of each row of a set-up and a method, or of one model."""

    expression: str
    setup: str
    model: str
    number: str
    operator: str
    bound: float

    def fails(self, value: float) -> bool:
        """Return whether a value meets the condition."""
        return bool(_OPERATORS[self.operator](value, self.bound))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a gate says of one row: `passed` or `failed`, and why it failed without a value.

    `model` is what tables call the row, `method` its method, and `file` the name of its file without `.h5`.
    """

    expression: str
    setup: str
    model: str
    method: str
    file: str | None
    number: str
    operator: str
    bound: float
    truth: str | None
    value: float | None
    verdict: str
    reason: str | None = None

    @property
    def shown(self) -> str:
        """Return the verdict in words."""
        return f"{self.verdict}: {self.reason}" if self.reason else self.verdict

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as `gates` of `--json` lists it."""
        return asdict(self)


def parse_gates(expressions: Sequence[str]) -> list[Gate]:
    """Return the gates that texts say.

    Raises:
        UsageError: texts that are none, all of them.
    """
    found = [(text, _GATE.fullmatch(text)) for text in expressions]
    wrong = [f"{text!r} is not a valid gate" for text, match in found if match is None]
    if wrong:
        raise UsageError.of(wrong, f"{len(wrong)} gates are not valid", where=WHERE, fix=FORM)
    return [
        Gate(text.strip(), match["setup"], match["model"], match["number"], match["operator"], float(match["bound"]))
        for text, match in found
        if match
    ]


def check_gates(gates: Sequence[Gate], models: Mapping[str, Set[str]], horizon: int) -> None:
    """See that gates name what an evaluation has.

    Args:
        gates: as parsed.
        models: what can be named in each set-up that is scored: methods, and files of models.
        horizon: steps that are scored.

    Raises:
        UsageError: names that there are none of, all of them, with what there is.
    """
    numbers = ["average", "ratio", *(f"tau{h + 1}" for h in range(horizon)), *LEVELS]
    wrong = []
    for gate in gates:
        known = models[gate.setup] if gate.setup in models else frozenset().union(*models.values())
        if gate.setup not in SETUPS:
            near = did_you_mean(gate.setup, SETUPS, lead=", ")
            wrong.append(f"{gate.expression}: unknown set-up {gate.setup!r}{near}")
        elif gate.setup not in models:
            wrong.append(f"{gate.expression}: {gate.setup} is not scored")
        if gate.model not in known:
            what = "model of the method" if gate.model in METHODS else "model"
            near = "" if gate.model in METHODS else did_you_mean(gate.model, known, lead=", ")
            place = gate.setup if gate.setup in models else "any set-up"
            wrong.append(f"{gate.expression}: no {what} {gate.model!r} in {place}{near}")
        if gate.number not in numbers:
            near = did_you_mean(gate.number, numbers, lead=", ")
            wrong.append(f"{gate.expression}: unknown number {gate.number!r}{near}")
    if wrong:
        named = "; ".join(f"{setup}: {', '.join(sorted(names))}" for setup, names in models.items())
        fix = f"set-ups and methods here are {named}; numbers are {', '.join(numbers)}"
        raise UsageError.of(wrong, f"{len(wrong)} names in the gates are unknown", where=WHERE, fix=fix)


def names_of_model(method: str, files: Iterable[str]) -> set[str]:
    """Return what gates may call a model: its method and its files, save those that are called as a method."""
    return {method} | {name for name in files if name not in METHODS}


def judge_gates(gates: Sequence[Gate], report: EvaluationReport, files: Mapping[str, Set[str]]) -> list[Verdict]:
    """Return a verdict per gate and row that it is about; a value that does not exist fails.

    Args:
        gates: as parsed.
        report: the evaluation.
        files: names of models by digest: equal files have the same one.

    Raises:
        UsageError: a gate is about no row.
    """
    rows: list[tuple[ReportRow, Set[str], Set[str]]] = []  # with what gates may call them, and the files of the model
    for row in report.rows:
        if row.provenance is not None:
            own = files.get(row.provenance.model_digest, set())
            # of equal files the one that the row is called by, where it is
            own = {name for name in own if row.label == name or row.label.startswith(f"{name} (")} or own
            rows.append((row, names_of_model(row.provenance.method, own), own))
        elif row.is_last_value:  # neither the limit nor published rows have names
            rows.append((row, {LAST_VALUE}, set()))
    models: dict[str, set[str]] = {}
    for row, names, _ in rows:
        models.setdefault(row.setup, set()).update(names)
    check_gates(gates, models, report.horizon)
    verdicts = []
    for gate, (row, names, own) in product(gates, rows):
        if gate.setup != row.setup or gate.model not in names:
            continue
        number, why_none = _value(gate.number, row, report)
        value = None if number is None else finite(number)
        method = row.provenance.method if row.provenance else LAST_VALUE
        file = gate.model if gate.model in own else min(own, default=None)
        verdict = "failed" if value is None or gate.fails(value) else "passed"
        reason = why_none if value is None else None
        verdicts.append(
            Verdict(
                gate.expression, row.setup, row.label, method, file, gate.number, gate.operator, gate.bound,
                row.truth, value, verdict, reason,
            )
        )  # fmt: skip
    return verdicts


def _value(number: str, row: ReportRow, report: EvaluationReport) -> tuple[float | None, str]:
    """Return a number of a row, and why there is none where there is none."""
    if number == "ratio":
        ratio = report.ratio_to_limit(row)
        return (ratio.average, "the error has no ratio") if ratio else (None, "no limit is known for these data")
    if number in LEVELS:
        level = LEVELS[number]
        if level not in row.calibration:
            return None, "the model is not calibrated"
        why_none = "no answer to cover"
        if row.bands is not None and min(row.bands.answers[:AVERAGED_STEPS], default=0):
            why_none = f"cannot be judged: too few calibration subjects for a {float(level):.0%} band"
        return row.calibration[level].coverage.average, why_none
    step = None if number == "average" else int(number[3:]) - 1
    return row.mean.at(step), "nothing is scored there"


def require_passed(verdicts: Sequence[Verdict]) -> None:
    """See that no gate failed.

    Raises:
        GateError: one did; it lists those that failed.
    """
    failed = [verdict for verdict in verdicts if verdict.verdict == "failed"]
    if failed:
        lines = [f"{one.expression}: {one.reason or f'{one.value:.6g}'} ({one.model})" for one in failed]
        problem = "1 gate failed" if len(verdicts) == 1 else f"{len(failed)} of {len(verdicts)} gates failed"
        fix = "the evaluation was written; relax the gate or look at its rows"
        raise GateError(problem, where=WHERE, fix=fix, details=lines)
