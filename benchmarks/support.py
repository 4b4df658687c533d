"""Whether ratings find the answers that are wrong: errors and coverage by rating, where the truth is known.

    python -m benchmarks.support DATA.h5 ... [--methods mixed,growth] [--preset quick] [--members 3] [--out FILE.csv]
    python -m benchmarks.support --summary FILE.csv ...

Each method is fitted to the source of each simulated data set, and asked about test subjects of the source (supervised)
and of the target (zero-shot), at origins where the outcome has not died out, over the whole horizon:

- `windows`: what came next, under the treatments given;
- `test sets`: the counterfactual questions of the data set;
- `first treatment`: the first treatment at every step; `all treatments`: all of them; `random`: any at any step.

Per light (spec SUPPORT-6) a row has its share of the answers to the last step, their error in the data set's unit, the
coverage of the 90 % band, the error without its red answers, and the AUROC with which the number behind the light finds
the worst tenth of errors in units of the outcome's level.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from benchmarks.comparing import Row, fitted, provenance, read, write
from costar_cli.data import Dataset, Panel, Part, Queries
from costar_cli.data.queries import rolling_origin
from costar_cli.data.registry import truth_of
from costar_cli.data.store import read_dataset
from costar_cli.data.support import Support
from costar_cli.evaluation.calibration import covered
from costar_cli.inference import NOT_JUDGED, SUPPORT_LEVELS, Calibration, calibration_of, estimate, support_of
from costar_cli.methods.base import FittedModel

FIELDS = (
    "data", "method", "setup", "questions", "answers", "light", "auroc",
    *(f"{what}_{rating}" for what in ("share", "rmse", "coverage") for rating in SUPPORT_LEVELS),
    "rmse", "rmse_without_red",
    "machine", "versions", "commit",
)  # fmt: skip
SETUPS = {"supervised": Part("source", "test"), "zero-shot": Part("target", "test")}
MOST = 2_000  # questions of a kind
LEVEL = 0.9
WORST = 0.1

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Asked:
    """Questions with the truth `[Q,H,Y]`."""

    queries: Queries
    truth_QHY: Floats


def questions(dataset: Dataset, part: Part, alive_NT: NDArray[np.bool_]) -> Iterator[tuple[str, Asked]]:
    """Yield what is asked about a part."""
    panel, horizon, rng = dataset.panel(*part), dataset.horizon, np.random.default_rng(0)
    windows = rolling_origin(panel, horizon)
    if windows is not None:
        yield "windows", _some(windows, alive_NT, rng)
    for queries in dataset.queries[part].values():
        if queries.outcomes is not None and queries.horizon == horizon and not _factual(dataset, part, queries):
            yield "test sets", _some(queries, alive_NT, rng)
    yield from plans(dataset, part, alive_NT, rng)


def plans(
    dataset: Dataset, part: Part, alive_NT: NDArray[np.bool_], rng: np.random.Generator, most: int = MOST // 4
) -> Iterator[tuple[str, Asked]]:
    """Yield questions about plans whose answers the simulator knows, each of the same subjects and origins."""
    panel, horizon, answer = dataset.panel(*part), dataset.horizon, truth_of(dataset.name)
    if answer is None or part not in dataset.truth:
        return
    encoding, ahead_NT = dataset.schema.treatments, np.arange(panel.n_steps) < panel.length[:, None] - horizon
    rows = np.flatnonzero((alive_NT & ahead_NT).any(axis=1))[:most]
    origins = [int(rng.choice(np.flatnonzero(alive_NT[row] & ahead_NT[row]))) for row in rows]
    seen = Support.of(dataset.panel("source", "train"), dataset.schema).seen
    classes = np.array(sorted(seen or {(0,) * len(encoding.names)}))  # what nobody was given is refused anyway
    first = next(row for row in classes if row[0] and not row[1:].any())
    named = {
        "first treatment": np.tile(first, (len(rows), horizon, 1)),
        "all treatments": np.tile(classes[classes.astype(bool).sum(axis=1).argmax()], (len(rows), horizon, 1)),
        "random": classes[rng.integers(len(classes), size=(len(rows), horizon))],
    }
    if len(encoding.names) == 1:
        del named["all treatments"]
    for name, values in named.items():
        truth = [answer(dataset, part, int(r), o, v) for r, o, v in zip(rows, origins, values, strict=True)]
        plan = encoding.encode(values).astype(np.uint8)
        queries = Queries(rows.astype(np.int32), np.array(origins, dtype=np.int16), plan)
        yield name, Asked(queries, np.array(truth, dtype=np.float64).reshape(len(rows), horizon, -1))


def alive(panel: Panel, calibration: Calibration | None) -> NDArray[np.bool_]:
    """Return the steps `[N,T]` at which no outcome has died out, as far as that is known."""
    level_MY = panel.outcomes.reshape(-1, panel.outcomes.shape[2]).astype(np.float64)
    says_MY = calibration.facts.informative(level_MY) if calibration else np.ones(level_MY.shape, dtype=bool)
    return np.asarray(says_MY.all(axis=1).reshape(panel.outcomes.shape[:2]) & panel.observed)


def _factual(dataset: Dataset, part: Part, queries: Queries) -> bool:
    from costar_cli.evaluation.score import truth_of as kind_of  # noqa: PLC0415 - another thing of the same name

    return kind_of(dataset.panel(*part), queries) == "factual"


def _some(queries: Queries, alive_NT: NDArray[np.bool_], rng: np.random.Generator) -> Asked:
    assert queries.outcomes is not None and queries.scored is not None  # noqa: S101, PT018 - asked where there are answers
    rows = np.flatnonzero(alive_NT[queries.subject, queries.origin] & queries.scored[:, -1])
    some = queries.take(np.sort(rng.permutation(rows)[:MOST]))
    assert some.outcomes is not None  # noqa: S101
    return Asked(replace(some, outcomes=None, scored=None), some.outcomes.astype(np.float64))


def auroc(score_M: Floats, bad_M: NDArray[np.bool_]) -> float:
    """Return how often a bad answer has the larger number than a good one, ties counting half."""
    bad, good = int(bad_M.sum()), int((~bad_M).sum())
    if not bad or not good:
        return np.nan
    return float((rankdata(score_M)[bad_M].sum() - bad * (bad + 1) / 2) / (bad * good))


def judged(dataset: Dataset, model: FittedModel, part: Part, asked: Asked) -> Iterator[Row]:
    """Yield a row for each light."""
    panel, support, calibration = dataset.panel(*part), support_of(model), calibration_of(model)
    if support is None:
        return
    found = estimate(model, panel, asked.queries)
    ratings = support.ratings(panel, asked.queries, found)
    truth_M = asked.truth_QHY[:, -1].ravel()
    unit = dataset.schema.error_unit
    sd_Y = model.scaler.error_scale(dataset.schema)
    error_M = unit.factor * np.abs((asked.truth_QHY - found.mean_QHY)[:, -1] / sd_Y).ravel()
    relative_M = np.abs((asked.truth_QHY - found.mean_QHY)[:, -1] / found.unit_QY).ravel()
    covered_M = np.full(len(truth_M), np.nan)
    if calibration is not None:
        bands = calibration.bands(found, [LEVEL])
        lower_M, upper_M = (limit[0, :, -1].ravel() for limit in (bands.lower_LQHY, bands.upper_LQHY))
        covered_M = covered(lower_M, upper_M, truth_M)
    outcomes = asked.truth_QHY.shape[2]
    log_QH = np.log(ratings.probability_QH)
    numbers = {
        "precision": ratings.spread_QHY[:, -1].ravel(),
        "rarest step": np.repeat(-log_QH.min(axis=1), outcomes),
        "course": np.repeat(-log_QH.sum(axis=1), outcomes),
    }
    marks = {
        "precision": ratings.precision_QHY[:, -1].ravel(),
        "rarest step": np.repeat(ratings.rarest_QH[:, -1], outcomes),
        "course": np.repeat(ratings.course_QH[:, -1], outcomes),
        "practice": np.repeat(ratings.practice_QH[:, -1], outcomes),
        "together": ratings.rating_QHY[:, -1].ravel(),
    }
    bad_M = relative_M >= np.quantile(relative_M, 1 - WORST)
    for name, mark_M in marks.items():
        values = {"answers": len(mark_M), "rmse": _rms(error_M), "rmse_without_red": _rms(error_M[mark_M < 2])}
        values["auroc"] = auroc(numbers[name], bad_M) if name in numbers else np.nan
        judged_M = mark_M != NOT_JUDGED
        for i, rating in enumerate(SUPPORT_LEVELS):
            mine_M = mark_M == i
            values[f"share_{rating}"] = float(mine_M[judged_M].mean()) if judged_M.any() else np.nan
            values[f"rmse_{rating}"] = _rms(error_M[mine_M])
            values[f"coverage_{rating}"] = float(covered_M[mine_M].mean()) if mine_M.any() else np.nan
        yield {"light": name} | {key: f"{value:.4g}" if np.isfinite(value) else "" for key, value in values.items()}


def _rms(values_M: Floats) -> float:
    return float(np.sqrt((values_M**2).mean())) if len(values_M) else np.nan


def measure(path: Path, options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of a data set."""
    dataset = read_dataset(path)
    made = provenance()
    for method in options.methods.split(","):
        model = fitted(dataset, method, preset=options.preset, members=options.members)
        calibration = calibration_of(model)
        for setup, part in SETUPS.items():
            alive_NT = alive(dataset.panel(*part), calibration)
            for name, asked in questions(dataset, part, alive_NT):
                about = {"data": path.stem, "method": method, "setup": setup, "questions": name} | made
                yield from (dict.fromkeys(FIELDS, "") | about | row for row in judged(dataset, model, part, asked))


def aurocs(rows: Sequence[Row]) -> Iterator[str]:
    """Yield how often the number behind a light ranks one of the worst answers above another."""
    numbers = ("precision", "rarest step", "course")
    yield f"| data | method | set-up | questions | {' | '.join(numbers)} |"
    yield "|---|---|---|---|---:|---:|---:|"
    for case, by_light in _cases(rows).items():
        yield f"| {' | '.join([*case, *(_short(by_light[name]['auroc']) for name in numbers)])} |"


def by_light(rows: Sequence[Row]) -> Iterator[str]:
    """Yield shares of the answers, errors and coverage by light, and what leaving out answers gains."""
    heads = "share, % | error | coverage, % | all | without red | green alone"
    yield f"| data | method | set-up | questions | light | {heads} |"
    yield "|" + "---|" * 11
    for case, of_case in _cases(rows).items():
        for name in ("precision", "practice", "together"):
            row = of_case[name]
            share, covered = (_three(row, what, 100) for what in ("share", "coverage"))
            errors = [_short(row[what]) for what in ("rmse", "rmse_without_red", "rmse_green")]
            yield f"| {' | '.join([*case, name, share, _three(row, 'rmse'), covered, *errors])} |"


def gains(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the error of all answers, and of those that are left without red or amber ones, with the share left out."""
    ratings = ("precision", "practice", "together")
    yield f"| data | method | set-up | all | without red: {' | '.join(ratings)} | green by both |"
    yield "|---|---|---|---:|---:|---:|---:|---:|"
    for (data, method, setup, _), by in _cases(rows).items():
        left = [
            f"{_short(by[name]['rmse_without_red'])} ({100 * float(by[name]['share_red']):.0f} %)"
            if by[name]["share_red"]
            else "not judged"
            for name in ratings
        ]
        green = f"{_short(by['together']['rmse_green'])} ({100 * (1 - float(by['together']['share_green'])):.0f} %)"
        yield f"| {' | '.join([data, method, setup, _short(by['together']['rmse']), *left, green])} |"


def _cases(rows: Sequence[Row]) -> dict[tuple[str, ...], dict[str, Row]]:
    """Return the rows by data set, method, set-up and questions, and by light."""
    cases: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("data", "method", "setup", "questions"))
        cases.setdefault(key, {})[row["light"]] = row
    return cases


def _three(row: Row, what: str, factor: int = 1) -> str:
    """Return a number of green, amber and red answers; a dash where there are none."""
    values = [row[f"{what}_{rating}"] for rating in SUPPORT_LEVELS]
    return " / ".join((f"{factor * float(v):.3g}" if factor > 1 else _short(v)) if v else "-" for v in values)


def _short(text: str) -> str:
    return f"{float(text):.2f}" if text else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every data set, write the rows as they come, and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", type=Path, help="data sets; with --summary, tables that --out wrote")
    parser.add_argument("--summary", action="store_true", help="measure nothing, read tables")
    parser.add_argument("--methods", default="mixed,growth", help="methods, separated by commas")
    parser.add_argument("--preset", default="quick", choices=("quick", "default", "paper"))
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--out", type=Path, help="table to write; rows of other data sets and methods are kept")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    if options.summary:
        rows = [row for path in options.data for row in read(path)]
    else:
        rows = read(options.out) if options.out and options.out.exists() else []
        for path in options.data:
            again = {(path.stem, method) for method in options.methods.split(",")}
            rows = [row for row in rows if (row["data"], row["method"]) not in again] + list(measure(path, options))
            if options.out:
                write(options.out, rows, FIELDS)
    sys.stdout.write("\n".join([*aurocs(rows), "", *by_light(rows)]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
