"""The tables of docs/gallery: what a practitioner would have fitted, and ours, on the same split, beside the truth.

    python -m benchmarks.gallery

Writes benchmarks/results/gallery.csv: a row per table and model, with the error over the horizon on the test subjects'
rolling origins, and the effect of the treatment on the next step, averaged over the same origins. Tables are invented
by scripts in examples/own-data, whose effects are known.
"""

import csv
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

import costar_cli as costar
from costar_cli.data import Dataset, Panel, PanelSchema, Part, Queries

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[1]
OWN = ROOT / "examples" / "own-data"
RESULTS = ROOT / "benchmarks" / "results" / "gallery.csv"
TIMES = 6  # the subjects of the shipped tables of other shapes
COLUMNS = ("table", "setup", "model", "kind", "rmse", "effect", "truth", "subjects", "origins")

Floats = NDArray[np.float64]
Predict = Callable[[Panel, Queries], Floats]


@dataclass(frozen=True)
class Case:
    """A table of the gallery: files, what is given (levels and doses), its effect on the next step, a rival.

    `without` is what it is compared with; by default nothing.
    """

    files: Mapping[str, str]
    given: tuple[float, ...]
    truth: Callable[[Panel, Queries], float]
    rival: str
    fit: Callable[[Panel, int], Predict]
    tests: Mapping[str, Part]
    without: tuple[float, ...] | None = None


def history(q: int, queries: Queries) -> tuple[int, int]:
    """Return the row and the origin of a query."""
    return int(queries.subject[q]), int(queries.origin[q])


def shelf_effects(panel: Panel, horizon: int) -> Predict:
    """Return a regression of log sales with shelf effects on this week's and last week's promotion."""
    rows: list[list[float]] = []
    for n in range(panel.n_subjects):
        log, given = np.log1p(panel.outcomes[n, : panel.length[n], 0]), panel.treatments[n, :, 0]
        made = np.array([[log[t + 1], given[t], given[t - 1]] for t in range(1, len(log) - 1)])
        rows += (made - made.mean(axis=0)).tolist()
    x = np.array(rows)
    slopes = np.linalg.lstsq(x[:, 1:], x[:, 0], rcond=None)[0]

    def predict(panel: Panel, queries: Queries) -> Floats:
        answers = np.zeros((len(queries), horizon))
        for q in range(len(queries)):
            n, t = history(q, queries)
            given = np.concatenate([panel.treatments[n, :t, 0], queries.plan[q, :, 0].astype(np.float64)])
            log = np.log1p(panel.outcomes[n, : t + 1, 0])
            moved = slopes[0] * given + slopes[1] * np.concatenate([[0.0], given[:-1]])
            level = log[0] if t == 0 else float(np.mean(log[1:] - moved[:t]))
            answers[q] = np.expm1(level + moved[t : t + horizon])
        return answers

    return predict


def patient_effects(panel: Panel, horizon: int) -> Predict:
    """Return an autoregression with patient effects: the next pressure by this one and what is given."""
    rows: list[list[float]] = []
    for n in range(panel.n_subjects):
        seen, y = panel.observed_outcomes[n, :, 0], panel.outcomes[n, :, 0].astype(np.float64)
        steps = [t for t in range(int(panel.length[n]) - 1) if seen[t] and seen[t + 1]]
        made = np.array([[y[t + 1], y[t], panel.treatments[n, t, 0]] for t in steps]).reshape(-1, 3)
        rows += (made - made.mean(axis=0)).tolist() if len(made) else []
    x = np.array(rows)
    slope, effect = np.linalg.lstsq(x[:, 1:], x[:, 0], rcond=None)[0]

    def predict(panel: Panel, queries: Queries) -> Floats:
        answers = np.zeros((len(queries), horizon))
        for q in range(len(queries)):
            n, t = history(q, queries)
            y, given = panel.outcomes[n, : t + 1, 0].astype(np.float64), panel.treatments[n, :, 0]
            usual = (1 - slope) * y[0] if t == 0 else float(np.mean(y[1:] - slope * y[:-1] - effect * given[:t]))
            now = y[-1]
            for h in range(horizon):
                now = usual + slope * now + effect * float(queries.plan[q, h, 0])
                answers[q, h] = now
        return answers

    return predict


def boosted(panel: Panel, horizon: int) -> Predict:
    """Return gradient boosting of the outcome h steps ahead, by the last two rows, statics and the plan up to there."""

    def features(panel: Panel, n: int, t: int, plan_HA: NDArray[np.floating]) -> Floats:
        past, last = max(t - 1, 0), panel.treatments[n, max(t - 1, 0)] * (t > 0)
        parts = [panel.outcomes[n, t], panel.outcomes[n, past], panel.covariates[n, t], panel.statics[n], last]
        return np.concatenate([*parts, plan_HA.reshape(-1), [t]]).astype(np.float64)

    models = []
    for h in range(1, horizon + 1):
        pairs = [(n, t) for n in range(panel.n_subjects) for t in range(int(panel.length[n]) - h)]
        x = np.stack([features(panel, n, t, panel.treatments[n, t : t + h]) for n, t in pairs])
        y = np.array([panel.outcomes[n, t + h, 0] for n, t in pairs], dtype=np.float64)
        models.append(HistGradientBoostingRegressor(max_iter=150, learning_rate=0.06, random_state=0).fit(x, y))

    def predict(panel: Panel, queries: Queries) -> Floats:
        asked = [(*history(q, queries), queries.plan[q]) for q in range(len(queries))]
        steps = [np.stack([features(panel, n, t, plan[:h]) for n, t, plan in asked]) for h in range(1, horizon + 1)]
        return np.stack([model.predict(x) for model, x in zip(models, steps, strict=True)], axis=1)

    return predict


def half_again(panel: Panel, queries: Queries) -> float:
    """Return the effect of a promotion, half of what is sold without: by what each shelf sold before."""
    without = []
    for q in range(len(queries)):
        n, t = history(q, queries)
        given = panel.treatments[n, : t + 1, 0] * (np.arange(t + 1) < t)
        before = np.concatenate([[0.0], given[:-1]])
        usual = np.log1p(panel.outcomes[n, 1 : t + 1, 0]) - np.log(1.5) * given[:t] - np.log(0.9) * before[:t]
        carried = np.log(0.9) * (given[t - 1] if t else 0.0)
        without.append(np.exp((usual.mean() if t else np.log1p(panel.outcomes[n, 0, 0])) + carried))
    return 0.5 * float(np.mean(without))


def shrunk(panel: Panel, queries: Queries) -> float:
    """Return the effect of 100 mg on tumours, which grow by e^0.08 in a cycle and lose a factor of e^-0.2."""
    return float(panel.outcomes[queries.subject, queries.origin, 0].mean() * np.exp(0.08) * np.expm1(-0.2))


def week_of_pressure(_: Panel, __: Queries) -> float:
    """Return what the drug of the visits does in a week: on each day a share of 3 mmHg, of which a tenth goes back."""
    return float(sum(-3 * 0.5 ** (day / 4) * 0.9 ** (6 - day) for day in range(7)))


METHODS = ("last-value", "ridge", "boosting", "mixed")
SUPERVISED = {"supervised": Part("source", "test")}
CASES = {
    "shelves": Case(
        {"table": "shelves.csv", "statics": "stores.csv", "schema": "shelves.toml"}, (1,), half_again,
        "log-linear regression with shelf effects", shelf_effects, SUPERVISED,
    ),
    "fluids": Case(
        {"table": "log.csv", "schema": "log.toml"}, (1,), lambda _, __: 4.0,
        "autoregression with patient effects", patient_effects, SUPERVISED,
    ),
    "glucose": Case(
        {"table": "small.csv", "schema": "schema.toml"}, (1, 0), lambda _, __: -24.0,
        "gradient boosting of each day ahead", boosted, SUPERVISED | {"zero-shot": Part("target", "test")},
    ),
    "trial": Case(
        {"table": "trial.csv", "schema": "trial.toml"}, (100,), shrunk,
        "gradient boosting of each cycle ahead", boosted, SUPERVISED,
    ),
    "visits": Case(
        {"table": "visits.csv", "schema": "visits.toml"}, (1, 7), week_of_pressure,
        "autoregression with patient effects, visits taken for even steps", patient_effects, SUPERVISED, without=(0, 7),
    ),
}  # fmt: skip


def beginning(queries: Queries, values: Sequence[float], schema: PanelSchema) -> Queries:
    """Return queries whose first step gives these levels, the others what was given."""
    plan = queries.plan.copy()
    plan[:, 0] = schema.treatments.encode(values)
    return replace(queries, plan=plan, outcomes=None, scored=None)


def measure(name: str, case: Case, dataset: Dataset) -> list[dict[str, object]]:
    """Return a row per model and set-up."""
    train, never = dataset.panel("source", "train"), case.without or (0,) * len(case.given)
    predictors: dict[str, tuple[str, Predict]] = {case.rival: ("practice", case.fit(train, dataset.horizon))}
    for method in METHODS:
        model = costar.fit(dataset, method).fitted
        predictors[method] = ("costar", lambda panel, queries, m=model: m.rollout(panel, queries).mean(axis=0)[..., 0])
    rows = []
    for setup, part in case.tests.items():
        panel, queries = dataset.panels[part], dataset.queries[part]["rolling_origin"]
        assert queries.outcomes is not None and queries.scored is not None  # noqa: S101, PT018 - rolling origins have both
        truth = case.truth(panel, queries)
        for label, (kind, predict) in predictors.items():
            error = (predict(panel, queries) - queries.outcomes[..., 0])[queries.scored]
            on, off = (beginning(queries, values, dataset.schema) for values in (case.given, never))
            effect = float(np.mean(predict(panel, on)[:, 0] - predict(panel, off)[:, 0]))
            facts = (name, setup, label, kind, float(np.sqrt(np.mean(error**2))), effect, truth)
            counts = (len(np.unique(queries.subject)), len(queries))
            rows.append(dict(zip(COLUMNS, (*facts, *counts), strict=True)))
    return rows


def main() -> None:
    """Measure all tables and store the rows."""
    lines: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, OWN / "make_shapes.py", folder, str(TIMES)], check=True)
        subprocess.run([sys.executable, OWN / "make_trial.py", Path(folder, "trial.csv")], check=True)
        for name, case in CASES.items():
            own = {role: Path(folder, file) for role, file in case.files.items()}
            files = {role: path if path.exists() else OWN / path.name for role, path in own.items()}
            dataset = costar.read_table(files["table"], schema=files["schema"], statics=files.get("statics"))
            lines += measure(name, case, dataset)
    with RESULTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: f"{v:.4g}" if isinstance(v, float) else v for key, v in row.items()} for row in lines)


if __name__ == "__main__":
    main()
