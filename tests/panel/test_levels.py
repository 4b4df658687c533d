"""One rule says which level of a treatment a value names, wherever the value was written."""

import json
from pathlib import Path

import polars as pl
import pytest

from costar_cli.data import TreatmentEncoding
from costar_cli.data.levels import find_level, is_switch
from costar_cli.data.table.treatments import guessed_levels
from costar_cli.errors import CostarError, UsageError
from costar_cli.plans import parse_plans
from tests.datasets.table_worlds import ingest, make_schema, of, problems, ward

DOSES = ("0", "2", "4")
OFF_ON = ("off", "on")
NAMES = ("none", "low", "high")


@pytest.mark.parametrize(
    ("value", "levels", "level"),
    [
        (2, DOSES, "2"), (2.0, DOSES, "2"), ("2", DOSES, "2"), ("2.0", DOSES, "2"), ("2e0", DOSES, "2"),
        (4, DOSES, "4"),
        (1, DOSES, None), (3, DOSES, None), ("2 mg", DOSES, None), (False, DOSES, "0"), (True, DOSES, None),
        (1, ("0", "1", "2"), "1"), (True, ("0", "1", "2"), None), (1, ("2", "1", "0"), "1"),
        (0.1, ("0.0", "0.1"), "0.1"), ("0.10", ("0.0", "0.1"), "0.1"), (2**53 + 1, (str(2**53), "0"), None),
        ("1.0", ("1", "1.0"), "1.0"), ("1.00", ("1", "1.0"), None),
        (0, OFF_ON, "off"), (1, OFF_ON, "on"), (1.0, OFF_ON, "on"), ("1", OFF_ON, "on"), (True, OFF_ON, "on"),
        ("False", OFF_ON, "off"), (2, OFF_ON, None), (-1, OFF_ON, None), ("ON", OFF_ON, None), ("", OFF_ON, None),
        (1, ("no", "yes"), "yes"), (True, ("none", "drug"), "drug"),
        (1, ("N", "Y"), "Y"), (False, ("N", "Y"), "N"), (True, ("f", "t"), "t"), (0, ("nein", "ja"), "nein"),
        (1, ("absent", "present"), "present"), (True, ("Control", "treated"), "treated"), (1, ("sham", "x"), "x"),
        (0, ("standard_care", "drug X"), "standard_care"), (1, ("no surgery", "surgery"), "surgery"),
        (0, ("c", "treated"), "c"), (1, ("-", "+"), "+"),
        *((value, ("Y", "N"), None) for value in (0, 1, True, False)),
        *((value, ("a", "b"), None) for value in (0, 1, True, False)),
        *((value, ("n", "s"), None) for value in (0, 1, True, False)),
        (1, ("present", "absent"), None), (0, ("drug X", "sham"), None), (1, ("none", "placebo"), None),
        (False, ("C", "A", "B"), None),
        (1, ("yes", "no"), None), (True, ("drug", "placebo"), None), (0, ("drug", "placebo"), None),
        (1, ("2", "4"), None), (True, ("2", "4"), None), (4, ("2", "4"), "4"),
        (1, ("none", "5"), None), (5, ("none", "5"), "5"), ("none", ("none", "5"), "none"),
        (1, ("1", "0"), "1"), (True, ("1", "0"), "1"), (True, ("True", "False"), "True"),
        ("true", ("True", "true"), "true"),
        (0, NAMES, None), (1, NAMES, None), (False, NAMES, "none"), (True, NAMES, None), ("low", NAMES, "low"),
        (False, ("high", "none", "low"), None),
        (None, OFF_ON, None), ([], OFF_ON, None), (float("nan"), DOSES, None), (float("inf"), DOSES, None),
        (10**400, DOSES, None), ("9" * 10_000, DOSES, None), ("1_0", ("0", "10"), None),
    ],
)  # fmt: skip
def test_a_value_names_a_level_by_text_then_by_number_and_never_by_its_place(value, levels, level):
    place = find_level(value, levels)
    assert (None if place is None else levels[place]) == level


@pytest.mark.parametrize(
    ("levels", "switch"),
    [
        (OFF_ON, True),
        (("0", "1"), True),
        (("1", "0"), False),
        (("yes", "no"), False),
        (("2", "4"), False),
        (("a", "b"), False),
        (NAMES, False),
    ],
)
def test_zero_and_one_stand_for_two_levels_only_where_they_are_read_back_as_them(levels, switch):
    assert is_switch(levels) is switch


@pytest.mark.parametrize(
    ("count", "levels", "by_name"),
    [
        ({"Y": 90, "N": 10}, ("N", "Y"), True),
        ({"ja": 90, "nein": 10}, ("nein", "ja"), True),
        ({"drug X": 90, "sham": 10}, ("sham", "drug X"), True),
        ({"treated": 90, "c": 10}, ("c", "treated"), True),
        ({"placebo": 90, "none": 5, "drug": 20}, ("none", "drug", "placebo"), True),
        ({"4": 90, "2": 10}, ("2", "4"), True),
        ({"b": 90, "a": 10}, ("b", "a"), False),
        ({"C": 90, "A": 10, "B": 10}, ("C", "A", "B"), False),
    ],
)
def test_the_reference_is_guessed_by_the_words_that_0_and_1_go_by_and_only_then_by_frequency(count, levels, by_name):
    assert guessed_levels(count) == (levels, by_name)


def plan_of(value: object, levels: tuple[str, ...]) -> str:
    encoding = TreatmentEncoding(
        mode="multiclass", names=("dose",), levels=(levels,), classes=tuple((i,) for i in range(len(levels)))
    )
    plan = parse_plans(json.dumps([{"dose": value}]), encoding, horizon=6).plans[0]
    return levels[int(plan.values[0, 0])]


def test_a_dose_in_a_plan_is_that_dose():
    assert [plan_of(dose, DOSES) for dose in (0, 2, 4, 2.0, "4")] == ["0", "2", "4", "2", "4"]


@pytest.mark.parametrize("value", [0, 1, True, False])
def test_levels_that_say_nothing_of_their_order_are_written_by_name(value: object):
    assert [plan_of(name, ("Y", "N")) for name in ("Y", "N")] == ["Y", "N"]
    with pytest.raises(UsageError, match="it takes 'Y', 'N'"):
        plan_of(value, ("Y", "N"))


def test_a_table_of_yes_and_no_in_letters_has_no_as_its_reference(tmp_path: Path):
    often = ward().with_columns(drug=pl.when(pl.col("drug") == "none").then(pl.lit("N")).otherwise(pl.lit("Y")))
    dataset = ingest(often, make_schema({"drug": {"role": "treatment"}}), folder=tmp_path)
    assert dataset.schema.treatments.levels == (("N", "Y"),)


def test_a_comparison_is_named_in_words_where_an_absence_is_not():
    arms = TreatmentEncoding(mode="multilabel", names=("arm", "op"), levels=(("placebo", "given"), ("N", "Y")))
    assert [arms.describe(values) for values in ((0, 0), (1, 1))] == ["arm=placebo", "arm=given+op"]


def test_a_dose_that_the_data_lack_is_refused_with_the_doses_and_what_to_do():
    with pytest.raises(UsageError) as caught:
        plan_of(3, DOSES)
    assert caught.value.problem == "plan 'plan', step 1: 'dose' cannot be 3; it takes '0', '2', '4'"
    assert 'kind = "continuous"' in str(caught.value.fix)


def test_tables_and_query_files_read_levels_by_the_same_rule(tmp_path: Path):
    doses = {"none": "0", "low": "2", "high": "4.0"}
    frame = ward().with_columns(pl.col("drug").replace(doses))
    dataset = ingest(frame, make_schema({"drug": {"role": "treatment", "levels": [0, 2, 4]}}), folder=tmp_path)
    panel, row = of(dataset, "p01")
    given = dataset.schema.treatments.decode(panel.treatments[row])[:, 0]
    assert [DOSES[level] for level in given] == [
        "4" if dose == "4.0" else dose for dose in frame.filter(pl.col("patient") == "p01")["drug"]
    ]
    by_place = ward().with_columns(pl.col("drug").replace({"none": "0", "low": "1", "high": "2"}))
    schema = make_schema({"drug": {"role": "treatment", "levels": list(NAMES)}})
    assert any("that are not levels: '0', '1', '2'" in line for line in problems(by_place, schema, folder=tmp_path))


def test_a_table_that_spells_one_dose_in_two_ways_has_one_level_of_it(tmp_path: Path):
    twice = pl.when(pl.col("day") % 2 == 0).then(pl.lit("2")).otherwise(pl.lit("2.0"))
    frame = ward().with_columns(drug=pl.when(pl.col("drug") == "none").then(pl.lit("0")).otherwise(twice))
    dataset = ingest(frame, make_schema({"drug": {"role": "treatment"}}), folder=tmp_path)
    assert dataset.schema.treatments.levels == (("0", "2"),)


def test_an_unknown_dose_of_a_table_advises_classes(tmp_path: Path):
    frame = ward().with_columns(pl.col("drug").replace({"none": "0", "low": "2", "high": "3"}))
    schema = make_schema({"drug": {"role": "treatment", "levels": [0, 2, 4]}})
    found = problems(frame, schema, folder=tmp_path)
    assert any("that are not levels: '3'" in line and 'kind = "continuous"' in line for line in found)


def test_step_words_name_the_level_where_on_and_off_would_not_do():
    doses = TreatmentEncoding(mode="multilabel", names=("dose", "ice"), levels=(("2", "4"), ("no", "yes")))
    assert [doses.describe(values) for values in ((0, 0), (1, 1))] == ["dose=2", "dose=4+ice"]


def test_a_class_of_the_schema_is_named_by_levels_too(tmp_path: Path):
    schema = make_schema(
        {"drug": {"role": "treatment", "levels": list(NAMES)}},
        treatments={"mode": "multiclass", "classes": [["none"], [1]]},
    )
    with pytest.raises(CostarError, match="1 is not a level of its treatment"):
        ingest(ward(), schema, folder=tmp_path)
