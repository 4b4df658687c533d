"""A panel survives the way into a long table and back, whatever its names, lengths and treatments."""

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.panel import Dataset, Panel, PanelSchema
from costar_cli.panel.read_table import panel_from_frame
from costar_cli.panel.write_table import dataset_to_frames, panel_to_frame
from tests.property.strategies import datasets, panels, schemas


@st.composite
def schema_and_panel(draw: st.DrawFn) -> tuple[PanelSchema, Panel]:
    schema = draw(schemas())
    return schema, draw(panels(schema))


def assert_same_subjects(got: Panel, want: Panel) -> None:
    """Compare up to the order of subjects and trailing padding, which a table does not have."""
    want = want.take(np.argsort(want.subject_id))
    longest = int(want.length.max())
    for field in ("covariates", "treatments", "outcomes"):
        values = getattr(want, field)[:, :longest]
        assert getattr(got, field).dtype == np.float32
        assert np.array_equal(getattr(got, field), values), field
    for field in ("statics", "length", "subject_id"):
        assert np.array_equal(getattr(got, field), getattr(want, field)), field


@given(schema_and_panel())
def test_panel_to_table_and_back_is_the_same(example: tuple[PanelSchema, Panel]):
    schema, panel = example
    frame = panel_to_frame(panel, schema)
    assert frame.height == panel.length.sum()
    assert_same_subjects(panel_from_frame(frame, schema, allow_constant=True), panel)


@given(schema_and_panel(), st.randoms(use_true_random=False))
def test_rows_columns_and_types_of_the_table_do_not_matter(example, random):
    schema, panel = example
    frame = panel_to_frame(panel, schema)
    rows, columns = list(range(frame.height)), list(frame.columns)
    random.shuffle(rows)
    random.shuffle(columns)
    # not `select`, for which "*" and "^a$" are patterns
    shuffled = pl.DataFrame([frame[rows][name] for name in columns]).with_columns(pl.lit("left out").alias("domain"))
    as_text = shuffled.with_columns(pl.col("subject", "step").cast(pl.String))
    later = as_text.with_columns((shuffled["step"] + 7).alias("step"))
    for version in (shuffled, as_text, later):
        assert_same_subjects(panel_from_frame(version, schema, allow_constant=True), panel)


@given(datasets())
def test_each_part_has_a_table_led_by_domain_and_split(dataset: Dataset):
    frames = dataset_to_frames(dataset)
    assert list(frames) == list(dataset.panels)
    for part, frame in frames.items():
        assert frame.columns[:4] == ["domain", "split", "subject", "step"]
        assert frame.select("domain", "split").unique().rows() == [tuple(part)]
        assert set(frame["subject"]) == set(dataset.panels[part].subject_id)
    one = pl.concat(frames.values())
    assert one.select("subject", "step").is_unique().all()
