import subprocess
import sys

import evaluate_worlds as worlds
import matplotlib.image
import numpy as np
import pytest

from costar_cli.config.models import EvaluateConfig
from costar_cli.data.record import ModelRecord
from costar_cli.errors import DataError, StorageError
from costar_cli.evaluation import run_evaluation
from costar_cli.report.figures.embedding import plot_representations
from costar_cli.report.figures.evaluation import plot_rmse
from costar_cli.report.figures.learning import LearningCurve, plot_learning
from costar_cli.report.figures.trajectories import Example, PlanForecast, plot_trajectories


def drawn(path):
    """Return the image, which must have ink on it."""
    image = matplotlib.image.imread(path)
    assert image.shape[0] > 300
    assert image.shape[1] > 500
    assert (image[..., :3].min(axis=-1) < 0.5).mean() > 0.002
    return image


@pytest.fixture(scope="module")
def report():
    data = worlds.dataset()
    model = worlds.oracle(data, members=2, error=worlds.independent_noise(1.0))
    models = [worlds.candidate(model), worlds.candidate(model, "target"), worlds.candidate(model, init="scratch")]
    return run_evaluation(data, models, EvaluateConfig(bootstrap=50))


def test_rmse_by_horizon(report, tmp_path):
    assert plot_rmse(report, tmp_path / "plots" / "rmse.png") == tmp_path / "plots" / "rmse.png"
    image = drawn(tmp_path / "plots" / "rmse.png")
    assert image.shape[1] == pytest.approx(150 * (2.6 + 2.9 * 3), abs=1)


def test_the_same_report_draws_the_same_picture(report, tmp_path):
    first, second = (plot_rmse(report, tmp_path / f"{i}.png").read_bytes() for i in range(2))
    assert first == second


def test_learning_curves_of_members_that_stopped_early(tmp_path):
    history = {
        "train_loss": [[3.0, 1.0, 0.1], [2.0, 1.0]],
        "validation_loss": [[3.0, 2.0, None], [2.5, 2.0]],
        "best_epoch": [1, 1],
    }
    curve = LearningCurve.of_last_stage("Fine-tuning", ModelRecord(history=history))
    assert curve.references == {}
    drawn(plot_learning([curve, curve], tmp_path / "learning.png"))


@pytest.mark.parametrize(
    ("log_n", "expected"),
    [
        (8.0, {"random guessing": 8.0}),
        ([7.0, 9.0], {"random guessing": 8.0}),
        ({"log N, training": 60.0}, {"random guessing, training": 60.0}),
        ({"training": 8.0, "validation": 9.0}, {"training": 8.0, "validation": 9.0}),
    ],
)
def test_contrastive_curves_have_their_log_n_line(tmp_path, log_n, expected):
    meta = {"history": {"train_loss": [[9.0, 7.0]], "validation_loss": [[9.0, 8.0]]}, "log_n_reference": log_n}
    curve = LearningCurve.of_last_stage("Pretraining", ModelRecord.read(meta), loss="Contrastive loss")
    assert curve.references == expected
    drawn(plot_learning([curve], tmp_path / "learning.png"))


@pytest.mark.parametrize(("level", "truth"), [(0.9, True), (None, False)])
def test_trajectories_with_and_without_truth_and_bands(tmp_path, level, truth):
    rng = np.random.default_rng(0)
    plans = tuple(
        PlanForecast(
            rng.integers(2, size=(6, 2)),
            rng.normal(size=6),
            rng.normal(size=6) if truth else None,
            (np.full(6, -3.0), np.full(6, 3.0)) if level else None,
        )
        for _ in range(3)
    )
    examples = [
        Example(f"subject {n}", worlds.schema(), 9, rng.normal(size=10), plans[: 3 - n], level) for n in range(2)
    ]
    drawn(plot_trajectories(examples, tmp_path / "trajectories.png"))


def test_representations_by_treatment_and_outcome(tmp_path):
    rng = np.random.default_rng(0)
    names = np.array([f"price {i}" for i in range(12)])
    treatments = names[rng.integers(12, size=40)]
    outcomes = rng.poisson(1.0, size=40).astype(float)
    path = plot_representations(
        rng.normal(size=(40, 6)), treatments, outcomes, tmp_path / "tsne.png", outcome_label="Sales (units)"
    )
    drawn(path)


def test_a_constant_outcome_still_draws(tmp_path):
    z = np.random.default_rng(0).normal(size=(12, 4))
    drawn(plot_representations(z, ["none"] * 12, np.ones(12), tmp_path / "tsne.png", outcome_label="Sales"))


@pytest.mark.parametrize("z", [np.zeros((3, 4)), np.full((30, 4), np.nan)])
def test_representations_that_cannot_be_mapped_are_a_clear_error(tmp_path, z):
    with pytest.raises(DataError):
        plot_representations(z, ["none"] * len(z), np.ones(len(z)), tmp_path / "t.png", outcome_label="y")


def test_a_folder_that_cannot_be_written_is_a_storage_error(report, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="a part of the path is a file"):
        plot_rmse(report, tmp_path / "file" / "rmse.png")


def test_scoring_does_not_import_matplotlib_or_sklearn():
    code = "import sys, costar_cli.evaluation; print(sorted({'matplotlib', 'sklearn'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
