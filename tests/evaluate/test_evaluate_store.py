from dataclasses import replace

import evaluate_worlds as worlds
import numpy as np
import pytest

from costar_cli.config.models import EvaluateConfig
from costar_cli.errors import ArtifactError
from costar_cli.evaluation import paired_difference, run_evaluation
from costar_cli.evaluation.report import read_evaluation, write_evaluation
from costar_cli.files import read_artifact, verify_artifact, write_artifact

PARENTS = {"dataset": "d" * 64, "model": "a" * 64}


@pytest.fixture(scope="module")
def report():
    data = worlds.dataset(subjects=24)
    model = worlds.oracle(data, members=3, error=worlds.independent_noise(1.0))
    return run_evaluation(data, [worlds.candidate(model), worlds.candidate(model, "target")], EvaluateConfig())


@pytest.fixture(scope="module")
def path(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("evaluation") / "evaluation.h5"
    write_evaluation(path, report, parents=PARENTS, fingerprint="f" * 64, config={})
    return path


def test_a_report_survives_the_artifact_with_its_errors(report, path):
    back = read_evaluation(path)
    assert back == report
    for ours, theirs in zip(back.errors, report.errors, strict=True):
        assert (ours is None) == (theirs is None)
        if theirs is not None:
            assert np.array_equal(ours.members, theirs.members)
            assert np.array_equal(ours.ensemble, theirs.ensemble)
            assert np.array_equal(ours.count, theirs.count)
            assert ours.cluster is None


def test_a_report_survives_with_the_units_that_are_resampled(report, tmp_path):
    unit_N = np.arange(len(report.errors[0].count)) // 3
    clustered = replace(report, errors=tuple(e and replace(e, cluster=unit_N) for e in report.errors))
    write_evaluation(tmp_path / "evaluation.h5", clustered, parents=PARENTS, fingerprint="f" * 64, config={})
    back = read_evaluation(tmp_path / "evaluation.h5")
    for ours, theirs in zip(back.errors, clustered.errors, strict=True):
        if theirs is not None:
            assert np.array_equal(ours.cluster, theirs.cluster)
            assert np.array_equal(ours.by_cluster().members, theirs.by_cluster().members)


def test_two_rows_can_be_paired_from_the_file_alone(path):
    report = read_evaluation(path)
    first, second = (report.errors_of("zero-shot", label) for label in ("COSTAR", "Last value carried forward"))
    found = paired_difference(first, second, level=0.95, replicates=200, seed=0)
    assert found.interval.average[1] < 0


def test_errors_can_be_left_on_disk(report, path):
    back = read_evaluation(path, errors=False)
    assert back == report
    assert back.errors == ()
    with pytest.raises(KeyError, match="no squared errors"):
        back.errors_of("zero-shot", "COSTAR")


def test_the_artifact_holds_rmse_and_intervals_of_every_row(report, path):
    artifact = read_artifact(path, kind="evaluation")
    rows = len(report.rows)
    assert artifact.arrays["rmse"].shape == (rows, 3, 6)
    assert artifact.arrays["interval"].shape == (rows, 2, 7)
    assert artifact.arrays["rmse"][0, 2] == pytest.approx(report.rows[0].members[2].steps)
    assert artifact.arrays["interval"][0, 1, -1] == report.rows[0].upper.average
    published = next(i for i, row in enumerate(report.rows) if row.truth is None)
    assert np.isnan(artifact.arrays["rmse"][published]).all()


def test_lineage_and_fingerprint_are_kept_and_the_digest_holds(path):
    artifact = verify_artifact(path)
    assert dict(artifact.parents) == PARENTS
    assert artifact.meta["fingerprint"] == "f" * 64


def test_the_same_report_gives_the_same_bytes(report, path, tmp_path):
    again = tmp_path / "again.h5"
    write_evaluation(again, report, parents=PARENTS, fingerprint="f" * 64, config={})
    assert again.read_bytes() == path.read_bytes()


def test_a_file_that_is_no_evaluation_is_turned_away(tmp_path):
    foreign = tmp_path / "evaluation.h5"
    foreign.write_bytes(b"not an artifact")
    with pytest.raises(ArtifactError):
        read_evaluation(foreign)


@pytest.mark.parametrize("odd", [None, {"rows": []}, {"rows": [""]}, {"unit": 3}])
def test_a_sealed_file_of_another_content_is_an_error_of_the_file(odd, path, tmp_path):
    sound, other = read_artifact(path), tmp_path / "other.h5"
    meta = {**sound.meta, "report": odd and {**sound.meta["report"], **odd}}
    write_artifact(other, kind="evaluation", arrays=sound.arrays, meta=meta, parents=sound.parents)
    with pytest.raises(ArtifactError, match="incomplete or damaged"):
        read_evaluation(other, errors=False)
