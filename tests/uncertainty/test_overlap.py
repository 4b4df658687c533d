"""Overlap in the data report: known policies are seen, weights are those of the MSM, nothing odd breaks the page."""

from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data import Dataset, Part, Variable
from costar_cli.data.report import describe_dataset
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.inference.overlap import Overlap, describe_overlap
from costar_cli.report.figures.data import figures
from costar_cli.report.pages import report_page, report_tables
from costar_cli.reporting import NullReporter
from tests.methods.linear_worlds import fit, linear_data


@pytest.fixture(scope="module")
def linear() -> Dataset:
    return linear_data(gamma=4)


def medians(overlap: Overlap, domain: str, *, given: bool) -> np.ndarray:
    """The median probability of treatments in an arm, by bin of all axes."""
    mine = [arm.median for arm in overlap.propensities if (arm.domain, arm.given) == (domain, given)]
    return np.array([value for line in mine for value in line if value is not None])


def test_arms_are_as_likely_to_be_treated_only_where_the_policy_ignores_the_history():
    dataset = simulate_tumor(
        TumorConfig(train=60, gamma=8, val=2, test=2, target_val=2, target_test=2, target_train=60), NullReporter()
    )
    overlap = describe_overlap(dataset)
    for given in (False, True):
        assert np.abs(medians(overlap, "target", given=given) - 0.5).max() < 0.15
    source = [medians(overlap, "source", given=given) for given in (False, True)]
    assert source[1].max() - source[0].max() > 0.2


def test_weights_are_those_that_the_marginal_structural_model_records(linear: Dataset):
    overlap, meta = describe_overlap(linear), fit(linear, "msm").meta
    recorded = [{name: value for name, value in step.items() if name != "truncated_share"} for step in meta["weights"]]
    assert [dict(step) for step in overlap.weights["source"]] == recorded


def test_combinations_that_never_occur_are_named(tumor_dataset: Dataset):
    part = Part("source", "train")
    panel = tumor_dataset.panels[part]
    alone = np.where(panel.treatments[..., 3:] > 0, [0, 1, 0, 0], panel.treatments).astype(np.float32)
    dataset = replace(tumor_dataset, panels={**tumor_dataset.panels, part: replace(panel, treatments=alone)})
    overlap = describe_overlap(dataset)
    assert overlap.never["source"] == ("chemotherapy+radiotherapy",)
    notes = {table.title: table.note for table in report_tables(describe_dataset(dataset), overlap)}
    assert "Never given in source: chemotherapy+radiotherapy." in notes["Overlap"]


def test_the_report_has_a_section_on_overlap(linear: Dataset):
    report, overlap = describe_dataset(linear), describe_overlap(linear)
    assert "Overlap" in [table.title for table in report_tables(report, overlap)]
    assert 'id="overlap"' in report_page(report, overlap)
    assert "overlap" in [name for name, *_ in figures(report, overlap)]


def test_a_positive_outcome_that_spans_decades_has_a_log_axis_everywhere(tumor_dataset: Dataset, linear: Dataset):
    for dataset, scale in ((tumor_dataset, "log"), (linear, "linear")):
        drawn = {name: figure for name, _, figure in figures(describe_dataset(dataset), describe_overlap(dataset))}
        along, *_ = drawn["overlap"].axes[-2:]
        histogram, course = drawn["outcomes"].axes[:2]
        assert (along.get_xscale(), histogram.get_xscale(), course.get_yscale()) == (scale,) * 3
    edges = describe_dataset(tumor_dataset).outcomes[0].edges
    assert np.allclose(np.diff(np.log(edges)), np.log(edges[-1] / edges[0]) / (len(edges) - 1))


def test_new_subjects_have_a_report_without_training_parts(linear: Dataset):
    part = Part("target", "test")
    new = replace(linear, panels={part: linear.panels[part]}, queries={}, truth={})
    page = report_page(describe_dataset(new), describe_overlap(new))
    assert 'id="outcomes"' in page
    assert 'id="overlap"' not in page


def test_odd_names_and_single_steps_are_shown_without_complaint(tumor_dataset: Dataset):
    evil = '<script>alert(1)</script>"&\x1b[31m$x_1$'
    schema = tumor_dataset.schema.model_copy(update={"outcomes": (Variable(name=evil),), "step": "<i>day</i>"})
    panels = {p: x.take(np.arange(1)) for p, x in tumor_dataset.panels.items()}
    tiny = replace(tumor_dataset, panels=panels, schema=schema, queries={}, truth={})
    page = report_page(describe_dataset(tiny), describe_overlap(tiny))
    assert "<script" not in page
    assert "<i>" not in page
    short = {p: replace(x, length=np.ones_like(x.length)) for p, x in panels.items()}
    assert describe_overlap(replace(tiny, panels=short)).propensities == ()
