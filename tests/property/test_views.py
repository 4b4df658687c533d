"""The invariants of the shifted arrays (spec PANEL-3), for panels of any shape."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.data import Panel, PanelSchema, Queries
from tests.property.strategies import panels, query_sets, schemas
from tests.shifted_views import ShiftedArrays, exploded, shifted


@st.composite
def schema_and_panel(draw: st.DrawFn) -> tuple[PanelSchema, Panel]:
    schema = draw(schemas())
    return schema, draw(panels(schema))


@st.composite
def panel_and_queries(draw: st.DrawFn) -> tuple[Panel, Queries]:
    schema, panel = draw(schema_and_panel())
    return panel, draw(query_sets(panel, schema, answered=True))


def assert_shifted(view: ShiftedArrays) -> None:
    mask = view.active_entries[..., 0]
    assert (np.diff(mask, axis=1) <= 0).all(), "the mask is a prefix"
    assert np.array_equal(mask.sum(axis=1), view.sequence_lengths)
    active = view.active_entries[:, 1:] == 1
    assert np.array_equal(view.prev_outputs[:, 1:] * active, view.outputs[:, :-1] * active)
    assert np.array_equal(view.prev_treatments[:, 1:] * active, view.current_treatments[:, :-1] * active)
    assert not view.prev_treatments[:, :1].any(), "nothing was given before the first step"
    for name in ShiftedArrays.__slots__:
        values = getattr(view, name)
        assert values is None or np.isfinite(values).all(), f"{name} has NaN"
        if values is not None and values.ndim == 3:
            assert not values[mask == 0].any(), f"{name} has values in the padding"


@given(schema_and_panel())
def test_factual_view_is_a_shift_of_the_panel(example: tuple[PanelSchema, Panel]):
    _, panel = example
    view = shifted(panel)
    assert_shifted(view)
    assert np.array_equal(view.sequence_lengths, panel.length - 1)
    for n, length in enumerate(panel.length):
        assert np.array_equal(view.prev_outputs[n, : length - 1], panel.outcomes[n, : length - 1])
        assert np.array_equal(view.outputs[n, : length - 1], panel.outcomes[n, 1:length])
        assert np.array_equal(view.vitals[n, : length - 1], panel.covariates[n, : length - 1])


@given(panel_and_queries())
def test_exploded_query_has_its_history_then_its_plan_and_answers(example: tuple[Panel, Queries]):
    panel, queries = example
    view = exploded(panel, queries)
    assert_shifted(view)
    assert np.array_equal(view.future_past_split, queries.origin + 1)
    for q, (row, origin) in enumerate(zip(queries.subject, queries.origin, strict=True)):
        ahead = slice(origin, origin + queries.horizon)
        assert np.array_equal(view.prev_outputs[q, : origin + 1], panel.outcomes[row, : origin + 1])
        assert np.array_equal(view.current_treatments[q, :origin], panel.treatments[row, :origin])
        assert np.array_equal(view.current_treatments[q, ahead], queries.plan[q])
        assert np.array_equal(view.outputs[q, ahead], queries.outcomes[q])
        assert view.sequence_lengths[q] == origin + queries.horizon


@given(panel_and_queries())
def test_siblings_share_everything_up_to_their_origin(example: tuple[Panel, Queries]):
    panel, queries = example
    view = exploded(panel, queries)
    for q in range(len(queries)):
        for other in range(q):
            if (queries.subject[q], queries.origin[q]) == (queries.subject[other], queries.origin[other]):
                past = slice(0, queries.origin[q] + 1)
                for values in (view.prev_outputs, view.prev_treatments, view.vitals):
                    assert np.array_equal(values[q, past], values[other, past])
                assert np.array_equal(view.static_features[q], view.static_features[other])
