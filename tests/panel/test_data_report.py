"""The data report: numbers that are known beforehand, and a page that can be opened by anybody without harm."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from costar_cli.data import Dataset, Part, Variable
from costar_cli.data.report import describe_dataset
from costar_cli.data.tumor.settings import TumorConfig
from costar_cli.data.tumor.simulate import simulate_tumor
from costar_cli.report.figures.data import draw_treatments
from costar_cli.report.pages import report_page, report_tables
from costar_cli.reporting import NullReporter
from tests.datasets.table_worlds import ingest, make_schema, ward
from tests.pages.reading import read, read_alone


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """A ward in which the south is older by 10 years, treats every day, and a third of the heart rates is missing."""
    frame = ward(60).with_columns(
        age=pl.when(pl.col("site") == "south").then(60.0).otherwise(50.0)
        + pl.col("patient").str.slice(1).cast(pl.Int64) % 2,
        drug=pl.when(pl.col("site") == "south").then(pl.lit("high")).otherwise("drug"),
    )
    frame = frame.with_columns(pl.when(pl.int_range(pl.len()) % 3 != 1).then("heart rate").alias("heart rate"))
    schema = make_schema({"heart rate": {"role": "covariate", "missing": "fill"}})
    return ingest(frame.filter((pl.col("patient") != "p01") | (pl.col("day") < 4)), schema, folder=tmp_path)


def test_parts_and_lengths_are_counted(dataset: Dataset):
    report = describe_dataset(dataset)
    assert sum(part.subjects for part in report.parts) == 60
    assert sum(part.steps for part in report.parts) == 358
    lengths = report.lengths["source"]
    assert (lengths[4], lengths[6], sum(lengths)) == (1, 39, 40)
    assert report.parts[2].queries == {"rolling_origin": len(dataset.queries[Part("source", "test")]["rolling_origin"])}


def test_missing_values_are_told_by_part(dataset: Dataset):
    [missing] = describe_dataset(dataset).missing
    assert missing.variable == "heart rate"
    assert missing.share == pytest.approx(119 / 358)
    assert missing.carried + missing.learned == 119
    assert missing.by_part["target/test"] == pytest.approx(1 / 3)


def test_treatments_are_counted_where_there_is_a_next_step(dataset: Dataset):
    uses = {(use.domain, use.level): use for use in describe_dataset(dataset).treatments}
    assert [uses["target", level].share for level in ("none", "low", "high")] == [0, 0, 1]
    assert uses["target", "high"].by_step == (1.0,) * 5
    shares = np.array([uses["source", level].by_step for level in ("none", "low", "high")])
    assert np.allclose(shares.sum(axis=0), 1)
    panels = [panel for part, panel in dataset.panels.items() if part.domain == "source"]
    given = np.concatenate([panel.treatments[:, 2, 1][panel.length > 3] for panel in panels])
    assert uses["source", "low"].by_step[2] == pytest.approx(given.mean())


def test_shift_is_the_difference_in_pooled_standard_deviations(dataset: Dataset):
    shifts = {shift.variable: shift for shift in describe_dataset(dataset).shifts}
    assert shifts["age"].difference == pytest.approx(10 / 0.5, rel=0.02)
    assert abs(shifts["pressure"].difference) < 0.5
    assert shifts["drug given"].target_mean == 1
    values = [abs(shift.difference) for shift in describe_dataset(dataset).shifts if shift.difference is not None]
    assert values == sorted(values, reverse=True)


def test_outcomes_are_summarised_by_domain_on_common_bins(dataset: Dataset):
    ours, theirs = describe_dataset(dataset).outcomes
    assert ours.edges == theirs.edges
    values = np.concatenate([p.outcomes[p.observed] for part, p in dataset.panels.items() if part.domain == "source"])
    assert sum(ours.counts) == len(values) == 238
    assert ours.mean == pytest.approx(values.mean(), rel=1e-6)
    assert ours.quantiles[3] == pytest.approx(np.median(values))
    assert len(ours.course.median) == 6
    assert all(
        low <= middle <= high
        for low, middle, high in zip(ours.course.lower, ours.course.median, ours.course.upper, strict=True)
    )


def test_treatments_without_contrast_and_weak_overlap_are_findings(dataset: Dataset):
    (same,) = [one for one in describe_dataset(dataset).findings if one.code == "treatment-constant"]
    assert same.text == "treatment 'drug' is always 'high'"
    tumors = simulate_tumor(TumorConfig(train=300, gamma=0, test=2, target_test=2), NullReporter())
    part = Part("source", "train")
    panel = tumors.panels[part]
    large = panel.outcomes[..., 0] > np.median(panel.outcomes[panel.observed])  # treated whenever it is large
    code = np.where(large[..., None], [0, 1, 0, 0], [1, 0, 0, 0]) * panel.observed[..., None]
    panels = {**tumors.panels, part: replace(panel, treatments=code.astype(np.float32))}
    found = describe_dataset(replace(tumors, panels=panels)).findings
    (weak,) = [one.text for one in found if one.code == "weak-overlap"]
    assert weak.startswith("overlap is weak: given 'tumour_volume', treatment 'chemotherapy' is almost never 'off'")


def test_a_data_set_that_cannot_be_trained_on_is_reported_all_the_same(dataset: Dataset):
    panel = dataset.panels[Part("source", "train")]
    still = replace(panel, outcomes=np.where(panel.observed[..., None], np.float32(2), np.float32(0)))
    broken = replace(dataset, panels={Part("source", "train"): still}, queries={}, config={})
    report = describe_dataset(broken)
    assert any(f.severity == "error" and "outcomes never change" in f.text for f in report.findings)
    assert report.shifts == ()
    assert "outcomes never change" in report_page(report)


def test_a_tumour_data_set_has_a_report_without_missing_values(tumor_dataset: Dataset):
    report = describe_dataset(tumor_dataset)
    assert report.missing == ()
    assert [table.title for table in report_tables(report)] == [
        "Subjects and lengths", "Treatments", "Treatments and the outcome before them", "Outcomes",
        "Shift from source to target"
    ]  # fmt: skip
    page = report_page(report)
    assert page == report_page(report), "the same data give the same page"
    assert page.count("<svg") == 4


def test_the_page_loads_nothing_runs_nothing_and_its_links_lead_somewhere(dataset: Dataset):
    reader = read_alone(report_page(describe_dataset(dataset)))
    for word in ("heart rate", "pressure (mmHg)", "Shift from source to target", "warning"):
        assert word in reader.text


def test_names_are_shown_as_they_are_whatever_is_in_them(dataset: Dataset):
    evil = '<script>alert(1)</script>"&\x1b[31m\u202e$x_1$'
    schema = dataset.schema.model_copy(update={"outcomes": (Variable(name=evil, unit="<b>"),), "step": "<i>day</i>"})
    reader = read(report_page(describe_dataset(replace(dataset, schema=schema, name=evil))))
    assert {"script", "b", "i"}.isdisjoint(reader.tags)
    assert "<script>alert(1)</script>" in reader.text
    assert "\x1b" not in reader.text
    assert "\u202e" not in reader.text


def test_many_variables_levels_and_one_step_are_drawn_without_complaint(tumor_dataset: Dataset):
    rng = np.random.default_rng(0)
    names = tuple(Variable(name=f"_covariate $number$ {i} " + "x" * 80) for i in range(60))
    panels = {
        part: replace(
            panel,
            covariates=rng.normal(size=(*panel.outcomes.shape[:2], 60)).astype(np.float32) * panel.observed[..., None],
        )
        for part, panel in tumor_dataset.panels.items()
    }
    wide = replace(tumor_dataset, panels=panels, schema=tumor_dataset.schema.model_copy(update={"covariates": names}))
    page = report_page(describe_dataset(wide))
    assert "The 40 largest of" in page
    tiny = replace(tumor_dataset, panels={p: x.take(np.arange(1)) for p, x in tumor_dataset.panels.items()}, queries={})
    assert "<svg" in report_page(describe_dataset(replace(tiny, truth={})))


def test_no_curve_leaves_its_picture(tumor_dataset: Dataset):
    """The target's shares are far above the source's, and both share an axis."""
    figure = draw_treatments(describe_dataset(tumor_dataset))
    for axes in figure.axes:
        heights = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.lines])
        assert np.nanmax(heights) > 0
        assert axes.get_ylim()[0] <= np.nanmin(heights) <= np.nanmax(heights) <= axes.get_ylim()[1]


def test_both_domains_show_the_same_levels_in_the_same_colours(tmp_path: Path):
    rng = np.random.default_rng(0)
    doses = [f"{i} mg" for i in range(12)]
    draws = {"north": rng.integers(0, 7, 2000), "south": rng.integers(5, 12, 2000)}
    frame = ward(60).with_columns(
        drug=pl.Series([doses[draws[site][i]] for i, site in enumerate(ward(60)["site"])]),
    )
    columns = {"drug": {"role": "treatment", "levels": doses}}
    classes = [[dose] for dose in doses]
    dataset = ingest(frame, make_schema(columns, treatments={"classes": classes}), folder=tmp_path)
    ours, theirs = draw_treatments(describe_dataset(dataset)).axes
    lines = [[(line.get_label(), line.get_color()) for line in axes.lines] for axes in (ours, theirs)]
    assert lines[0] == lines[1]
    assert len(lines[0]) == 7
