"""Conditions say what they say, and nothing else can be said."""

import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.data.expression import Column, Natural, parse_condition, parse_rule
from costar_cli.data.table.splits import holds

PEOPLE = pl.DataFrame({"age": [20.0, 50.0, 90.0, None], "site": ["a", "b", "a", "b"], "ill": [1.0, 0.0, 1.0, 1.0]})


def true_rows(text: str) -> list[int]:
    said = holds(parse_condition(text), {name: PEOPLE[name] for name in PEOPLE.columns})
    return [i for i, value in enumerate(said.to_list()) if value]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("age >= 50", [1, 2]),
        ("50 <= age", [1, 2]),
        ("age = 20 or age == 90", [0, 2]),
        ("age != 50", [0, 2]),
        ("not age < 50", [1, 2]),
        ("site = 'a' and ill = true", [0, 2]),
        ('site != "a"', [1, 3]),
        ("age > 10 and site = 'b' or ill = true and age > 80", [1, 2]),
        ("age > 10 and (site = 'b' or ill = true)", [0, 1, 2]),
        ("NOT (age < 30 OR age > 60)", [1]),
        ("age > -1e1", [0, 1, 2]),
        ("`age` < 60", [0, 1]),
        ("age > ill", [0, 1, 2]),
        ("ill = false", [1]),
    ],
)
def test_conditions_mean_what_they_say(text: str, rows: list[int]):
    assert true_rows(text) == rows


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a column or a constant expected before the end"),
        ("age", "a comparison such as `>=` expected before the end"),
        ("age >", "a column or a constant expected before the end"),
        ("age > 3 age < 5", "`and` or `or` expected before `age`"),
        ("(age > 3", "`)` expected before the end"),
        ("1 < 2", "compares two constants"),
        ("age ~ 3", "`~ 3` is not understood"),
        ("age > 'x", "is not understood"),
        ("__import__('os').system('true')", "`.system('tru` is not understood"),
        ("read_csv('/etc/passwd') = 1", "expected before `(`"),
        ("age > 3; drop", "`; drop` is not understood"),
        ("(" * 100 + "age > 1" + ")" * 100, "nested more than"),
        ("not " * 100 + "age > 1", "nested more than"),
        ("age > 1 or " * 200 + "age > 1", "more than 1,000 characters"),
        ("and > 3", "a column or a constant expected before `and`"),
    ],
)
def test_what_is_no_condition_is_refused_with_its_place(text: str, problem: str):
    with pytest.raises(ValueError, match=re.escape(problem)):
        parse_condition(text)


def test_columns_are_read_as_what_they_are_compared_with():
    uses = parse_condition("age > 3 and site = 'x' and ill = true and a < b and age = site").uses
    assert uses["age"] == {"number"}
    assert uses["site"] == {"text", "number"}
    assert uses["ill"] == {"binary"}
    assert uses["a"] == uses["b"] == {"number"}


def test_a_rule_is_treatments_and_a_condition_that_may_count_earlier_steps():
    given_, condition = parse_rule("chemo and `dose of b` = '2 mg' if volume > 30 and chemo in last 2 < 1")
    assert given_ == {"chemo": 1.0, "dose of b": "2 mg"}
    assert condition is not None
    assert condition.columns == (Column("volume"), Column("chemo", 2))
    assert parse_rule("none") == ({}, None)
    assert parse_rule("natural") == (None, None)


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("dose = natural dose", Natural("dose")),
        ("dose = natural dose - 1", Natural("dose", plus=-1)),
        ("dose = natural dose -1", Natural("dose", plus=-1)),
        ("dose = natural dose + 0.5", Natural("dose", plus=0.5)),
        ("dose = natural dose - -2", Natural("dose", plus=2)),
        ("dose = natural dose * 0.9", Natural("dose", factor=0.9)),
        ("dose = natural `dose`", Natural("dose")),
    ],
)
def test_a_rule_may_move_the_natural_treatment(text: str, moved: Natural):
    given_, condition = parse_rule(text + " if natural dose > 2 and natural < 3 and natural in last 2 < 1")
    assert given_ == {"dose": moved}
    assert condition is not None
    assert condition.columns == (Column("dose", natural=True), Column("natural"), Column("natural", 2))


def test_the_natural_treatment_belongs_to_rules_alone():
    with pytest.raises(ValueError, match="a comparison such as `>=` expected before `dose`"):
        parse_condition("natural dose > 1")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a treatment expected before the end"),
        ("chemo volume > 3", "`if` expected before `volume`"),
        ("chemo if", "a column or a constant expected before the end"),
        ("chemo and chemo if volume > 3", "`chemo` is given twice"),
        ("chemo = dose if volume > 3", "a number or a text in quotes, not `dose`"),
        ("chemo if volume in next 2 > 3", "reads the future"),
        ("chemo if chemo in last < 3", "needs a whole number of steps"),
        ("chemo if chemo in last 1.5 < 3", "needs a whole number of steps"),
        ("chemo if chemo in 2 < 3", "`in last` and a number of steps expected"),
    ],
)
def test_what_is_no_rule_is_refused_with_its_place(text: str, problem: str):
    with pytest.raises(ValueError, match=re.escape(problem)):
        parse_rule(text)


def test_a_window_belongs_to_rules_alone():
    with pytest.raises(ValueError, match="a comparison such as `>=` expected before `in`"):
        parse_condition("ill in last 2 > 1")


@given(st.text(max_size=60))
def test_any_text_is_a_condition_or_a_plain_complaint(text: str):
    try:
        condition = parse_condition(text)
    except ValueError:
        return
    assert condition.uses
