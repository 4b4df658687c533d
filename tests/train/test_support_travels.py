"""What training subjects were never given is named by every stage, and travels with what was trained."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from costar_cli.config.models import FinetuneConfig
from costar_cli.data import Dataset, Part
from costar_cli.data.record import ModelRecord
from costar_cli.data.support import UnseenTreatment
from costar_cli.reporting import NullReporter
from costar_cli.training import pretrain
from costar_cli.training.identity import RunIdentity
from tests.fits import fit_method, model_of
from tests.train.worlds import CPU, PRETRAIN

BOTH = "chemotherapy+radiotherapy"


def without_both(dataset: Dataset, *domains: str) -> Dataset:
    """Give chemotherapy alone to training subjects of some domains who were given both."""
    panels = dict(dataset.panels)
    for domain in domains:
        panel = panels[Part(domain, "train")]
        given = panel.treatments.copy()
        given[given[..., 3] == 1] = np.eye(4)[1]
        panels[Part(domain, "train")] = replace(panel, treatments=given)
    return replace(dataset, panels=panels)


def told_of(heard: NullReporter) -> list[str]:
    return [warning for warning in heard.warnings if "training subject" in warning]


def test_pretraining_names_what_the_source_was_never_given(tumor_dataset: Dataset, tmp_path: Path):
    heard = NullReporter()
    run = {"checkpoint": tmp_path / "run.h5", "identity": RunIdentity("f"), "reporter": heard}
    config = PRETRAIN.model_copy(update={"epochs": 1})
    trained = pretrain(without_both(tumor_dataset, "source"), config, CPU, **run)
    [warning] = told_of(heard)
    assert f"the combination '{BOTH}' was never given together to a training subject" in warning
    assert ModelRecord.read(trained.meta).support.unseen(tumor_dataset.schema.treatments) == [
        UnseenTreatment(BOTH, "apart")
    ]


def test_fits_name_it_and_few_shot_adds_what_the_target_was_given(tumor_dataset: Dataset):
    encoding = tumor_dataset.schema.treatments
    for lacking, left in ((("source",), []), (("source", "target"), [UnseenTreatment(BOTH, "apart")])):
        dataset, heard = without_both(tumor_dataset, *lacking), NullReporter()
        source = fit_method(dataset, "last-value", None, FinetuneConfig(), reporter=heard)
        assert len(told_of(heard)) == 1
        few_shot = fit_method(dataset, "last-value", None, FinetuneConfig(), domain="target", start=model_of(source))
        assert ModelRecord.read(few_shot.meta).support.unseen(encoding) == left
    known = fit_method(tumor_dataset, "last-value", None, FinetuneConfig(), reporter=(heard := NullReporter()))
    assert told_of(heard) == []
    assert ModelRecord.read(known.meta).support.unseen(encoding) == []


def test_treatments_that_cannot_be_told_apart_are_not_called_never_given(tumor_dataset: Dataset):
    panels = {part: replace(panel, treatments=panel.treatments.copy()) for part, panel in tumor_dataset.panels.items()}
    for panel in panels.values():
        panel.treatments[(panel.treatments[..., 1:3] == 1).any(axis=-1)] = np.eye(4)[3]
    dataset, heard = replace(tumor_dataset, panels=panels), NullReporter()
    fit_method(dataset, "last-value", None, FinetuneConfig(), reporter=heard)
    [warning] = told_of(heard)
    assert warning.startswith("effects of 'chemotherapy', 'radiotherapy' cannot be separated: training subjects always")
    for panel in panels.values():
        panel.treatments[0, 0] = np.eye(4)[1]
    fit_method(dataset, "last-value", None, FinetuneConfig(), reporter=(heard := NullReporter()))
    [warning] = told_of(heard)
    assert warning.startswith(
        "no training subject received 'radiotherapy' without other treatments: what it does alone"
    )


def test_what_an_older_source_model_saw_is_unknown_and_so_is_what_its_successor_did(tumor_dataset: Dataset):
    source = fit_method(tumor_dataset, "last-value", None, FinetuneConfig())
    del source.meta["support"]
    few_shot = fit_method(tumor_dataset, "last-value", None, FinetuneConfig(), domain="target", start=model_of(source))
    assert "support" not in few_shot.meta
