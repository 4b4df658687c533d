"""Calibration of models: scales, bands, what travels with a file, and who gets none."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Panel, PanelSchema, Queries, Scaler
from costar_cli.data.record import ModelRecord
from costar_cli.data.windows import factual_windows
from costar_cli.errors import ArtifactError, UsageError
from costar_cli.files import Artifact
from costar_cli.inference import OutcomeFacts, calibrate, calibration_of, estimate, halves, held_out
from costar_cli.inference.calibration import Calibration
from costar_cli.inference.conformal import GRID
from costar_cli.methods import METHODS
from costar_cli.methods.base import FittedModel
from costar_cli.plans import PlanRequest, TreatmentPlan
from costar_cli.questions import estimate_outcomes
from costar_cli.reporting import Reporter
from tests.fits import artifact_of, fit_method, model_of
from tests.methods.invariant_worlds import world
from tests.methods.linear_worlds import random_dataset
from tests.train.worlds import as_model, run_finetune, run_pretrain

PRETRAININGS = [
    pytest.param({"epochs": 1, "updates": 1}, True, id="last epoch"),
    pytest.param({"epochs": 1, "updates": 1, "keep": "best"}, False, id="best epoch"),
    pytest.param({"learning_rate": 1e-12}, False, id="patience", marks=pytest.mark.slow),
]


@dataclass
class Guess(FittedModel):
    """Members that predict the level at the origin, `apart` from each other in sds."""

    schema: PanelSchema
    scaler: Scaler
    horizon: int
    members: int = 5
    apart: float = 1.0
    method: str = "crn"
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def record(self) -> ModelRecord:
        return ModelRecord.read(self.meta)

    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 1, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        level_QY = panel.outcomes[queries.subject, queries.origin]
        mean_QHY = np.repeat(level_QY[:, None], queries.horizon, axis=1)
        offset_R = np.linspace(-1, 1, self.members) * self.apart
        sd_Y = self.scaler.outcomes[1]
        return (mean_QHY + offset_R[:, None, None, None] * sd_Y).astype(np.float32)


def guess(dataset: Dataset, **own: Any) -> Guess:
    scaler = Scaler.fit(dataset.panel("source", "train"), dataset.schema)
    return Guess(dataset.schema, scaler, dataset.horizon, **own)


def facts(dataset: Dataset) -> OutcomeFacts:
    train = dataset.panel("source", "train")
    return OutcomeFacts.of(train, dataset.schema, Scaler.fit(train, dataset.schema))


def calibrated(dataset: Dataset, **own: Any) -> tuple[Guess, Calibration]:
    model = guess(dataset, **own)
    calibration = calibrate(
        model,
        held_out(model, dataset.panel("source", "val"), facts(dataset)),
        facts(dataset),
        domain="source",
        apart=True,
    )
    assert calibration is not None
    return model, calibration


def mixed(dataset: Dataset, domain: str = "source", start: Any = None) -> Artifact:
    settings = METHODS["mixed"].settings_class(iterations=15)
    return artifact_of(fit_method(dataset, "mixed", settings, FinetuneConfig(epochs=1), domain=domain, start=start))


def test_bands_cover_the_subjects_that_calibrated_them_and_nest_by_level() -> None:
    dataset = random_dataset((1, 2, 2, 1), one_hot=False, n=40)
    model, calibration = calibrated(dataset)
    windows = factual_windows(dataset.panel("source", "val"), dataset.horizon)
    assert windows is not None
    found = estimate(model, windows.panel, windows.queries, facts(dataset))
    levels = (0.3, 0.5, 0.8)
    bands = calibration.bands(found, levels)
    assert bands.lower_LQHY.shape == (3, *found.mean_QHY.shape)
    assert (bands.lower_LQHY[1:] <= bands.lower_LQHY[:-1]).all()
    assert (bands.upper_LQHY[1:] >= bands.upper_LQHY[:-1]).all()
    assert ((bands.lower_LQHY <= found.mean_QHY) & (found.mean_QHY <= bands.upper_LQHY)).all()
    y_QHY = windows.queries.outcomes
    inside_LQHY = (bands.lower_LQHY <= y_QHY) & (y_QHY <= bands.upper_LQHY)
    weight_Q = 1 / np.bincount(windows.queries.subject)[windows.queries.subject]
    for level, inside_QHY in zip(levels, inside_LQHY, strict=True):
        covered_HY = (inside_QHY * weight_Q[:, None, None]).sum(axis=0) / weight_Q.sum()
        assert (covered_HY >= level).all()
        assert (covered_HY < level + 0.2).all()


def test_the_scale_of_black_boxes_is_their_spread_and_a_share_of_the_level(tumor_dataset: Dataset) -> None:
    panel, told = tumor_dataset.panel("source", "val"), facts(tumor_dataset)
    queries = factual_windows(panel, tumor_dataset.horizon).asked
    wide, same = (estimate(guess(tumor_dataset, apart=apart), panel, queries, told) for apart in (1.0, 0.0))
    spread = np.linspace(-1, 1, 5).std(ddof=1) * guess(tumor_dataset).scaler.outcomes[1]
    assert wide.sd_QHY**2 - same.sd_QHY**2 == pytest.approx(np.full_like(wide.sd_QHY, spread[0] ** 2), rel=1e-4)
    alive = same.level_QY > 1
    assert (same.sd_QHY[:, 0] / same.level_QY)[alive].min() > 0.05
    assert (same.share_QHY == 1).all()


def test_subjects_with_nothing_left_to_predict_do_not_calibrate(tumor_dataset: Dataset) -> None:
    panel, told = tumor_dataset.panel("source", "val"), facts(tumor_dataset)
    assert told.least[0] == pytest.approx(1e-3 * tumor_dataset.panel("source", "train").outcomes.max())
    gone = replace(panel, outcomes=np.concatenate([panel.outcomes[:6], np.zeros_like(panel.outcomes[6:])]))
    model = guess(tumor_dataset)
    some = calibrate(model, held_out(model, gone, told), told, domain="source", apart=True)
    assert some is not None
    alive = calibrate(model, held_out(model, panel.take(np.arange(6)), told), told, domain="source", apart=True)
    assert some.subjects == alive.subjects <= 6
    assert (some.radius_LHYB == alive.radius_LHYB).all()
    assert (
        calibrate(model, held_out(model, gone.take(np.arange(6, 12)), told), told, domain="source", apart=True).subjects
        == 0
    )


def test_limits_that_cannot_occur_are_moved_but_never_past_the_estimate(tumor_dataset: Dataset) -> None:
    model, calibration = calibrated(tumor_dataset)
    panel = tumor_dataset.panel("source", "val")
    found = estimate(model, panel, factual_windows(panel, tumor_dataset.horizon).asked, facts(tumor_dataset))
    assert calibration.bands(found, [0.8], clip=False).lower_LQHY.min() < 0
    assert calibration.bands(found, [0.8]).lower_LQHY.min() == 0
    below = replace(found, mean_QHY=found.mean_QHY - 1e4)
    assert (calibration.bands(below, [0.8]).lower_LQHY[0] == below.mean_QHY).all()


def test_the_values_that_can_occur_are_no_band_where_there_are_too_few_subjects(tumor_dataset: Dataset) -> None:
    model, calibration = calibrated(tumor_dataset)
    panel = tumor_dataset.panel("source", "val")
    found = estimate(model, panel, factual_windows(panel, tumor_dataset.horizon).asked, facts(tumor_dataset))
    bounded = replace(calibration, facts=replace(calibration.facts, lower=(0.0,), upper=(1e6,)))
    bands = bounded.bands(found, [0.8, GRID[-1] + 5e-4])
    assert np.isfinite(bands.lower_LQHY[0]).all()
    assert np.isneginf(bands.lower_LQHY[1]).all()
    assert np.isposinf(bands.upper_LQHY[1]).all()


@pytest.mark.parametrize("members", [1, 2])
def test_ensembles_of_fewer_than_three_members_are_not_calibrated(tumor_dataset: Dataset, members: int) -> None:
    panel, told = tumor_dataset.panel("source", "val"), facts(tumor_dataset)
    few = guess(tumor_dataset, members=members)
    assert calibrate(few, held_out(few, panel, told), told, domain="source", apart=True) is None
    closed = guess(tumor_dataset, members=1, method="ridge")
    assert calibrate(closed, held_out(closed, panel, told), told, domain="source", apart=True) is not None


def test_a_fit_ends_with_a_calibration_that_its_file_keeps() -> None:
    dataset = world("tumor")
    artifact = mixed(dataset)
    calibration = calibration_of(METHODS["mixed"].load(artifact))
    assert calibration is not None
    assert (calibration.domain, calibration.unit, calibration.apart) == ("source", "subject", True)
    assert calibration.subjects == dataset.panel("source", "val").n_subjects
    again = Calibration.read(calibration.to_meta(), calibration.to_arrays(), (dataset.horizon, 1))
    assert again.facts == calibration.facts
    assert (again.radius_LHYB == calibration.radius_LHYB).all()


def test_few_shot_calibrates_on_the_target_s_held_out_subjects() -> None:
    dataset = world("tumor")
    source = METHODS["mixed"].load(mixed(dataset))
    adapted = METHODS["mixed"].load(mixed(dataset, "target", source))
    calibration = calibration_of(adapted)
    assert calibration is not None
    assert calibration.domain == "target"
    assert calibration.subjects <= dataset.panel("target", "val").n_subjects
    assert calibration.facts == calibration_of(source).facts


def test_methods_that_select_on_validation_calibrate_on_the_other_half() -> None:
    dataset, model = world("tumor"), {}
    for calibrate_on in ("half", "all"):
        trained = fit_method(dataset, "ridge", None, FinetuneConfig(epochs=1, calibrate_on=calibrate_on))
        model[calibrate_on] = trained.meta
        calibration = calibration_of(model_of(trained))
        assert calibration is not None
        assert calibration.apart == (calibrate_on == "half")
    n = dataset.panel("source", "val").n_subjects
    assert model["half"]["selected_on"]["source/val"] + model["half"]["calibrated_on"]["source/val"] == n
    assert "calibrated_on" not in model["all"]
    assert model["half"]["selected_on"]["source/val"] + model["half"]["calibration"]["subjects"] == n
    assert model["all"]["selected_on"]["source/val"] == model["all"]["calibration"]["subjects"] == n


def test_halves_share_no_subject_and_keep_clusters_together() -> None:
    panel = world("tumor").panel("source", "train")
    first, second = halves(panel)
    assert sorted([*first.subject_id, *second.subject_id]) == sorted(panel.subject_id)
    assert abs(first.n_subjects - second.n_subjects) <= 1
    clustered = replace(panel, cluster=np.arange(panel.n_subjects) // 4)
    first, second = halves(clustered)
    assert not set(first.cluster) & set(second.cluster)


def test_models_of_older_versions_have_no_calibration_and_damaged_ones_say_so() -> None:
    artifact = mixed(world("tumor"))
    old = replace(artifact, meta={k: v for k, v in artifact.meta.items() if k != "calibration"})
    assert calibration_of(METHODS["mixed"].load(old)) is None
    radius = artifact.arrays["calibration/radius"]
    for broken in (
        radius[:-1],
        np.full_like(radius, np.nan),
        -1 - radius,
        radius[::-1] + np.arange(999)[::-1, None, None, None],
    ):
        damaged = replace(artifact, arrays={**artifact.arrays, "calibration/radius": broken})
        with pytest.raises(ArtifactError, match="calibration"):
            calibration_of(METHODS["mixed"].load(damaged))
    missing = replace(artifact, arrays={k: v for k, v in artifact.arrays.items() if k != "calibration/units"})
    with pytest.raises(ArtifactError, match="calibration"):
        calibration_of(METHODS["mixed"].load(missing))


DAMAGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no facts": lambda meta: meta.pop("facts"),
    "no lower bounds": lambda meta: meta["facts"].pop("lower"),
    "a word": lambda meta: meta["facts"].update(lower=["low"]),
    "a list": lambda meta: meta["facts"].update(least=[[1.0]]),
    "too large": lambda meta: meta["facts"].update(upper=[10**400]),
    "bounds not in order": lambda meta: meta["facts"].update(lower=[2.0], upper=[1.0]),
    "no form": lambda meta: meta["facts"].update(forms=[{"kind": "relative"}]),
    "another number of outcomes": lambda meta: meta["facts"].update(
        {name: 2 * values for name, values in meta["facts"].items()}
    ),
    "fewer than no subjects": lambda meta: meta.update(subjects=-1),
    "endless windows": lambda meta: meta.update(windows=float("inf")),
    "no mapping": lambda meta: meta.update(facts="none"),
}


@pytest.fixture(scope="module")
def fitted() -> Artifact:
    return mixed(world("tumor"))


@pytest.mark.parametrize("damage", list(DAMAGES.values()), ids=list(DAMAGES))
def test_damaged_facts_are_an_error_that_says_what_to_do(
    fitted: Artifact, damage: Callable[[dict[str, Any]], object]
) -> None:
    dataset, meta = world("tumor"), deepcopy(dict(fitted.meta))
    damage(meta["calibration"])
    model = METHODS["mixed"].load(replace(fitted, meta=meta))
    plans = (TreatmentPlan("never", np.zeros((2, len(dataset.schema.treatments.names)), dtype=np.int64)),)
    with pytest.raises(ArtifactError, match="calibration is damaged") as caught:
        estimate_outcomes(dataset, {"mixed": model}, PlanRequest(plans, 1), subject=0, origin=1)
    assert caught.value.where == "calibration in the model's file"
    assert "costar finetune" in str(caught.value.fix)


def test_a_stack_s_scale_is_that_of_the_mixture() -> None:
    dataset = world("tumor")
    trained = fit_method(
        dataset, "stack", METHODS["stack"].settings_class(parts="ridge,mixed"), FinetuneConfig(epochs=1)
    )
    model = model_of(trained)
    calibration = calibration_of(model)
    assert calibration is not None
    panel = dataset.panel("source", "test")
    queries = factual_windows(panel, dataset.horizon).asked
    found = estimate(model, panel, queries)
    assert found.members_RQHY == pytest.approx(model.rollout(panel, queries))
    weight_PHY = model.weight_RPHY[0]
    parts = [estimate(model.parts[name], panel, queries, calibration.facts) for name in model.parts]
    expected = sum(
        w_HY * (part.sd_QHY**2 + (part.mean_QHY - found.mean_QHY) ** 2)
        for w_HY, part in zip(weight_PHY, parts, strict=True)
    )
    assert found.sd_QHY**2 == pytest.approx(expected, rel=1e-3)


def test_levels_and_horizons_out_of_range_are_errors() -> None:
    dataset = random_dataset((1, 2, 1, 1), one_hot=False, n=40)
    model, calibration = calibrated(dataset)
    panel = dataset.panel("source", "test")
    found = estimate(model, panel, factual_windows(panel, dataset.horizon).asked, facts(dataset))
    with pytest.raises(UsageError, match="level"):
        calibration.bands(found, [1.0])
    assert np.isinf(calibration.bands(found, [GRID[-1] + 5e-4], clip=False).upper_LQHY).all()
    same = replace(found, mean_QHY=0 * found.mean_QHY, sd_QHY=0 * found.sd_QHY)  # plans that do not differ so far
    assert not calibration.bands(same, [GRID[-1] + 5e-4], clip=False).upper_LQHY.any()
    longer = replace(found, mean_QHY=np.repeat(found.mean_QHY, 2, axis=1))
    with pytest.raises(UsageError, match="steps"):
        calibration.bands(longer, [0.5])


@pytest.mark.parametrize(("changes", "apart"), PRETRAININGS)
def test_an_encoder_that_was_selected_on_the_calibration_subjects_is_told(
    changes: dict[str, Any], *, apart: bool, tmp_path: Path
) -> None:
    dataset = world("tumor")
    encoder = as_model(run_pretrain(dataset, **{"members": 3, "patience": 1, "epochs": 8, **changes}))
    trained = run_finetune(dataset, start=encoder, members=3, epochs=1, updates=1, calibrate_on="half")
    assert trained.meta["calibration"]["apart"] == apart
