"""Parts of an evaluation: put together, they are what scores all subjects at once, whatever is scored."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from costar_cli.config.models import EvaluateConfig, FinetuneConfig
from costar_cli.data import Dataset, Part, Variable
from costar_cli.data.calendar import Calendar
from costar_cli.data.queries import rolling_origin
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.errors import ArtifactError
from costar_cli.evaluation import Candidate, EvaluationReport, run_evaluation
from costar_cli.evaluation.run import score_models
from costar_cli.evaluation.scores import Scored, Scores
from costar_cli.files import Artifact, fingerprint, read_artifact, write_artifact
from costar_cli.files.shards import Shard
from costar_cli.methods.mixed.settings import MixedConfig
from costar_cli.reporting import NullReporter
from tests.datasets import m5_worlds
from tests.dose_worlds import linear_doses
from tests.evaluate.test_dropout import DROPOUT, lost
from tests.fits import fit_method, model_of

SIZES = {"train": 80, "val": 30, "test": 30, "target_train": 5, "target_val": 5, "target_test": 12}
TEST = Part("source", "test")
Arrays = dict[str, NDArray[Any]]
Case = tuple[Dataset, list[Candidate], EvaluateConfig]


def fitted(data: Dataset, *methods: str) -> list[Candidate]:
    quick = {"mixed": MixedConfig(iterations=15)}
    fits = [fit_method(data, method, quick.get(method), FinetuneConfig(members=1)) for method in methods]
    return [Candidate(model_of(fit)) for fit in fits]


@cache
def tumours() -> Case:
    """Bands, lights, a limit, counterfactual questions and windows, in two set-ups."""
    data = simulate_tumor(TumorConfig(gamma=4, steps=25, **SIZES), NullReporter())
    return replace(data, digest="d" * 64), fitted(data, "mixed", "last-value"), EvaluateConfig(bootstrap=50)


@cache
def retail() -> Case:
    """Series that belong to clusters."""
    data = m5_worlds.dataset()
    return data, fitted(data, "ridge"), EvaluateConfig(bootstrap=50)


@cache
def followed() -> Case:
    """Series that end, some of them lost, with dates: weights, hazards and periods."""
    full = simulate_tumor(TumorConfig(gamma=4, steps=25, ends=True, **SIZES), NullReporter())
    schema = full.schema.model_copy(update={"ends": (*full.schema.ends, DROPOUT)})
    risk = {part: np.full(panel.outcomes.shape[:2], 0.02) for part, panel in full.panels.items()}
    panels = {part: lost(panel, risk[part], len(schema.ends)) for part, panel in full.panels.items()}
    dated = panels[TEST]
    begin_N1 = np.datetime64("2024-01-20", "us").astype(np.int64) + np.zeros((dated.n_subjects, 1), np.int64)
    panels[TEST] = replace(dated, calendar=Calendar(begin_N1, "us", 86_400_000_000))
    queries = rolling_origin(panels[TEST], 6)
    assert queries is not None
    data = replace(full, schema=schema, panels=panels, queries={TEST: {"rolling_origin": queries}}, truth={})
    return data, fitted(data, "ridge", "mean"), EvaluateConfig(bootstrap=0, ipcw=True)


@cache
def binary() -> Case:
    """An outcome that is 0 or 1."""
    full = simulate_tumor(TumorConfig(gamma=4, steps=25, **SIZES), NullReporter())
    schema = full.schema.model_copy(update={"outcomes": (Variable(name="large", kind="binary", standardize=False),)})
    panels = {
        part: replace(panel, outcomes=(panel.outcomes > 0.1) * np.float32(1)) for part, panel in full.panels.items()
    }
    queries = rolling_origin(panels[TEST], 6)
    assert queries is not None
    data = replace(full, schema=schema, panels=panels, queries={TEST: {"rolling_origin": queries}}, truth={})
    return data, fitted(data, "ridge"), EvaluateConfig(bootstrap=0)


@cache
def dosed() -> Case:
    """Doses, by the time since which quantiles and residuals are checked."""
    data = replace(linear_doses(120), digest="d" * 64)
    return data, fitted(data, "ridge", "mean"), EvaluateConfig(bootstrap=0)


@cache
def at_once(case: Callable[[], Case]) -> EvaluationReport:
    return run_evaluation(*case())


def scored_in_parts(case: Case, count: int, folder: Path) -> dict[Path, Any]:
    data, models, config = case
    paths = []
    for shard in (Shard(number, count) for number in range(1, count + 1)):
        scores = score_models(data, models, config, setups=None, reporter=NullReporter(), shard=shard)
        paths.append(folder / f"e.{shard.name}.h5")
        whole = {"fingerprint": fingerprint("evaluation", parents={}, config={}), "config": {}}
        replace(scores, whole=whole).write(paths[-1], fingerprint=str(shard), config={}, overwrite=False)
    return {path: Scores.read(path) for path in paths}


def differences(one: Any, other: Any, place: str = "") -> list[str]:
    """Where two documents differ by more than rounding."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [found for key in one for found in differences(one[key], other[key], f"{place}/{key}")]
    if (
        isinstance(one, Sequence)
        and isinstance(other, Sequence)
        and not isinstance(one, str)
        and len(one) == len(other)
    ):
        return [
            found for i, pair in enumerate(zip(one, other, strict=True)) for found in differences(*pair, f"{place}/{i}")
        ]
    close = isinstance(one, float) and isinstance(other, float) and one == pytest.approx(other, rel=1e-4, abs=1e-6)
    return [] if close or one == other else [f"{place}: {one} {other}"]


def same(report: EvaluationReport, whole: EvaluationReport) -> None:
    assert differences(report.to_json(), whole.to_json()) == []
    for ours, theirs in zip(report.errors, whole.errors, strict=True):
        if ours is None or theirs is None:
            assert ours is theirs
            continue
        np.testing.assert_array_equal(ours.count, theirs.count)
        np.testing.assert_allclose(ours.members, theirs.members, rtol=1e-3, atol=1e-6)
        assert (ours.cluster is None) == (theirs.cluster is None)
        if ours.cluster is not None:
            np.testing.assert_array_equal(ours.cluster, theirs.cluster)


@pytest.mark.parametrize(
    ("count", "case"),
    [*((3, case) for case in (tumours, retail, followed, binary, dosed)), *((1, case) for case in (followed, dosed))],
)
def test_parts_put_together_are_the_whole(count: int, case: Callable[[], Case], tmp_path: Path) -> None:
    parts = scored_in_parts(case(), count, tmp_path)
    assert [part.shard for part in parts.values()] == [f"{number}/{count}" for number in range(1, count + 1)]
    same(Scores.merge(parts, NullReporter()), at_once(case))


def test_the_cases_have_everything_that_is_scored() -> None:
    reports = {case: at_once(case) for case in (tumours, retail, followed, binary, dosed)}
    rows = [row for report in reports.values() for row in report.rows]
    assert any(row.bands and row.bands.lights and row.bands.groups and row.factual for row in rows)
    assert any(row.basis == "limit" for row in rows)
    assert {check.label for check in reports[dosed].doses} == {"Ridge regression", "Mean so far"}
    assert any(row.periods and row.unweighted for row in rows)
    assert reports[followed].dropout
    assert {found.kind for report in reports.values() for found in report.probabilities} == {"end", "outcome"}
    assert any(errors is not None and errors.cluster is not None for errors in reports[retail].errors)


def test_more_parts_than_subjects_leave_some_empty(tmp_path: Path) -> None:
    full, models, config = followed()
    panel = full.panels[TEST].take(np.arange(8))
    queries = rolling_origin(panel, 6)
    assert queries is not None
    data = replace(full, panels={**full.panels, TEST: panel}, queries={TEST: {"rolling_origin": queries}})
    parts = scored_in_parts((data, models[:1], config), 10, tmp_path)
    same(Scores.merge(parts, NullReporter()), run_evaluation(data, models[:1], config))


def test_a_limit_that_fails_in_one_part_has_no_row(tmp_path: Path) -> None:
    data, models, config = tumours()
    parts = scored_in_parts((data, models[1:], config), 2, tmp_path)
    path, part = next(iter(parts.items()))
    rows = tuple(replace(row, sums={}) if row.basis == "limit" else row for row in part.rows)
    warned = replace(part, rows=rows, warnings=(*part.warnings, "no row"))
    report = Scores.merge({**parts, path: warned}, NullReporter())
    assert "limit" not in {row.basis for row in report.rows}
    assert "no row" in report.warnings


def test_a_part_holds_its_own_subjects_alone() -> None:
    data, models, config = tumours()
    scores = score_models(data, models, config, setups=None, reporter=NullReporter(), shard=Shard(1, 3))
    columns = [column for row in scores.rows if isinstance(row, Scored) for column in row.sums.items()]
    held = {name: array.base.size / max(array.size, 1) for name, array in columns if array.base is not None}
    assert columns
    assert {name: times for name, times in held.items() if times > 1} == {}


@cache
def sound_parts() -> list[tuple[Artifact, Scores]]:
    """Two parts of an evaluation with everything that bands, the course and events leave."""
    data, models, config = followed()
    with TemporaryDirectory() as folder:
        parts = scored_in_parts((data, models[:1], config), 2, Path(folder))
        return [(read_artifact(path), scores) for path, scores in parts.items()]


def changed(folder: Path, change: Callable[[Arrays, dict[str, Any]], object], *, both: bool) -> list[Path]:
    """The second part, or both, changed and sealed again."""
    paths = []
    for number, (sound, _) in enumerate(sound_parts()):
        if both or number == 1:
            arrays, meta = dict(sound.arrays), json.loads(json.dumps(sound.meta))
            change(arrays, meta)
            paths.append(folder / f"e.shard-{number + 1}-of-2.h5")
            write_artifact(paths[-1], kind=sound.kind, arrays=arrays, meta=meta, parents=sound.parents)
    return paths


def array_by(name: str, to: Callable[[Any], Any]) -> Callable[[Arrays, dict[str, Any]], object]:
    def change(arrays: Arrays, meta: dict[str, Any]) -> None:
        assert f"rows/000/{name}" in arrays
        arrays[f"rows/000/{name}"] = to(arrays[f"rows/000/{name}"])

    return change


def row_by(**facts: Any) -> Callable[[Arrays, dict[str, Any]], object]:
    return lambda _, meta: meta["scores"]["rows"][0].update(facts)


FORGED: dict[str, Callable[[Arrays, dict[str, Any]], object]] = {
    "a row less": lambda _, meta: meta["scores"]["rows"].pop(),
    "no rows": lambda _, meta: meta["scores"]["rows"].clear(),
    "no row": lambda _, meta: meta["scores"].update(rows=[None]),
    "horizon": lambda _, meta: meta["scores"].update(horizon=10**9),
    "no arrays": lambda arrays, _: arrays.clear(),
    "a further row": lambda arrays, _: arrays.update({"rows/900/errors/factual/count": np.ones((3, 6), np.int64)}),
    "outcomes": array_by("errors/factual/members", lambda a: a[..., :-1, :]),
    "subjects": array_by("errors/factual/count", lambda a: a[:3]),
    "no numbers": array_by("errors/factual/members", lambda a: np.full_like(a, np.nan)),
    "negative": array_by("errors/factual/members", lambda a: -1 - a),
    "text": array_by("errors/factual/members", lambda a: a.astype("U4")),
    "counts": array_by("errors/factual/count", lambda a: -1 - a),
    "parts of counts": array_by("errors/factual/count", lambda a: a + 0.5),
    "cluster": lambda arrays, _: arrays.update({"rows/000/errors/factual/cluster": np.zeros((2, 2), np.int64)}),
    "mass": array_by("bands/scores/factual/mass", lambda a: -1 - a),
    "bins": array_by("bands/scores/factual/pit", lambda a: a[:1]),
    "lights": array_by("bands/lights/factual/sums/support", lambda a: a[:1]),
    "origins": array_by("course/origin", lambda a: np.full_like(a, 2**40)),
    "course": array_by("course/predicted", lambda a: np.full_like(a, np.nan)),
    "observed": array_by("course/observed", lambda a: np.full_like(a, np.inf)),
    "since": lambda arrays, _: arrays.update({"rows/000/course/since": np.zeros((1, 2))}),
    "events": array_by("ends/0/came", lambda a: a.astype(np.float64)),
    "groups": lambda _, meta: meta["scores"]["rows"][0]["bands"].update(labels={}),
    "set-up": row_by(setup="other"),
    "basis": row_by(basis="other"),
    "level": lambda _, meta: meta["scores"]["config"].update(level=0.5),
    "version": lambda _, meta: meta["whole"].update(fingerprint="f" * 64),
}
UNTOLD = [{"a row less", "both"}, {"level", "both"}]


@pytest.mark.parametrize(
    ("what", "which"), [(what, which) for what in FORGED for which in ("one", "both") if {what, which} not in UNTOLD]
)
def test_parts_that_are_not_as_scoring_leaves_them_are_refused(what: str, which: str, tmp_path: Path) -> None:
    paths = changed(tmp_path, FORGED[what], both=which == "both")
    first = {} if which == "both" else {tmp_path / "sound.h5": sound_parts()[0][1]}
    with pytest.raises(ArtifactError, match="incomplete or damaged"):
        Scores.merge(first | {path: Scores.read(path) for path in paths}, NullReporter())


def test_unchanged_parts_are_read(tmp_path: Path) -> None:
    paths = changed(tmp_path, lambda *_: None, both=True)
    assert Scores.merge({path: Scores.read(path) for path in paths}, NullReporter()).rows
