"""Levels of a treatment in the order of the numbers in their names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.data.levels import in_order


@pytest.mark.parametrize(
    "ordered",
    [
        [
            "below -15.9 %",
            "-15.9 % to -11.0 %",
            "-0.8 % to +0.3 %",
            "no change",
            "+0.3 % to +2.2 %",
            "above +25.2 %",
            "unused",
        ],
        ["off", "5 mg", "10 mg", "20 mg"],
        ["none", "1-2", "3-5", "10-20"],
        ["<5", "5-10", ">10"],
    ],
)
@given(data=st.data())
def test_levels_stand_in_the_order_of_their_numbers_wherever_the_reference_is_in_the_schema(ordered, data):
    reference = next(level for level in ordered if level in ("no change", "off", "none", "<5"))
    rest = data.draw(st.permutations([level for level in ordered if level != reference]))
    levels = [reference, *rest]
    assert [levels[place] for place in in_order(levels)] == ordered


@given(st.permutations(["none", "low", "medium 2", "high"]))
def test_levels_without_numbers_stay_as_they_are(levels):
    assert in_order(["off", *levels]) == [0, 1, 2, 3, 4]
