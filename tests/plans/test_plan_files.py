"""A plan file becomes plans that the data set understands, or one error that says everything that is wrong."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costar_cli.data import TreatmentEncoding
from costar_cli.errors import CostarError, StorageError, UsageError
from costar_cli.plans import PlanRequest, parse_plans, read_plans
from costar_cli.plans.untrusted import MAX_BYTES
from tests.whatif.whatif_worlds import ICU, RETAIL, TUMOR

HORIZON = 6
ENCODING = TUMOR.treatments
EXAMPLES = Path(__file__).parents[2] / "examples"


def parse(document: object, encoding: TreatmentEncoding = ENCODING) -> PlanRequest:
    return parse_plans(json.dumps(document), encoding, horizon=HORIZON)


def error_of(data: object, encoding: TreatmentEncoding = ENCODING) -> UsageError:
    text = data if isinstance(data, str | bytes) else json.dumps(data)
    with pytest.raises(UsageError) as caught:
        parse_plans(text, encoding, horizon=HORIZON)
    return caught.value


def all_text(error: CostarError) -> str:
    return "\n".join([error.problem, *error.details])


def test_named_plans_keep_names_order_values_and_own_lengths():
    request = parse({"origin": 30, "plans": {"watch": [{}], "both": [{"chemotherapy": 1, "radiotherapy": 1}, {}]}})
    assert request.origin == 30
    assert [plan.name for plan in request.plans] == ["watch", "both"]
    assert [plan.values.tolist() for plan in request.plans] == [[[0, 0]], [[1, 1], [0, 0]]]
    assert request.horizon == 2


def test_named_plans_need_no_word_around_them():
    plans = {
        "natural": {"natural": True, "times": 2},
        "treat": [{"chemotherapy": 1}],
        "no": {"repeat": {}, "times": 3},
    }
    read = parse_plans(json.dumps(plans), TUMOR, horizon=6).plans
    assert [(plan.name, len(plan)) for plan in read] == [("natural", 2), ("treat", 1), ("no", 3)]


def test_a_plain_list_is_one_plan_and_has_no_origin():
    request = parse([{"chemotherapy": 1}, {}])
    assert [(plan.name, plan.values.tolist()) for plan in request.plans] == [("plan", [[1, 0], [0, 0]])]
    assert request.origin is None


@pytest.mark.parametrize("value", [1, 1.0, "1", True, "on"])
def test_a_level_is_a_number_a_truth_value_or_a_label(value):
    assert parse([{"radiotherapy": value}]).plans[0].values.tolist() == [[0, 1]]


def test_multilabel_treatments_combine_freely():
    request = parse([{"vasopressor": "yes", "dialysis": True}, {"ventilation": 1}], ICU.treatments)
    assert request.plans[0].values.tolist() == [[1, 0, 1], [0, 1, 0]]


def test_price_classes_are_given_by_name_and_never_by_their_place():
    label = RETAIL.treatments.levels[0][7]
    request = parse([{"price_class": label}, {}], RETAIL.treatments)
    assert request.plans[0].values.tolist() == [[7], [0]]
    for place in (0, 1, 7, "7"):
        assert "'price_class' cannot be" in error_of([{"price_class": place}], RETAIL.treatments).problem


def test_all_problems_are_reported_at_once_with_plan_step_and_name():
    error = error_of(
        {
            "origin": "thirty",
            "plan": 1,
            "plans": {
                "watch": [],
                "long": [{}] * 7,
                "chemo": [{"chemoterapy": 1}, {"chemoterapy": 1}, {"radiotherapy": 2}, 5],
            },
        }
    )
    assert error.details[0] == "unknown key 'plan'; did you mean 'plans'?"
    assert error.details[1:] == (
        "`origin` must be a whole number, the index of a step, or a date, not 'thirty'",
        "plan 'watch': has no steps; the model answers plans of 1 to 6",
        "plan 'long': has 7 steps; the model answers plans of 1 to 6",
        "plan 'chemo', steps 1, 2: no treatment 'chemoterapy'; did you mean 'chemotherapy'?",
        "plan 'chemo', step 3: 'radiotherapy' cannot be 2; it takes 0 = 'off', 1 = 'on'",
        "plan 'chemo', step 4: a step must be an object such as {} or {'chemotherapy': 1}, not 5",
    )
    assert "7 problems" in error.problem


def test_a_single_problem_is_the_error_itself_and_the_fix_lists_the_treatments():
    error = error_of([{"chemo": 1}])
    assert error.problem == "plan 'plan', step 1: no treatment 'chemo'; did you mean 'chemotherapy'?"
    assert error.details == ()
    assert "chemotherapy (0 = 'off', 1 = 'on')" in str(error.fix)


def test_a_close_label_is_suggested():
    assert "did you mean '-20 %'?" in error_of([{"price_class": "-20%"}], RETAIL.treatments).problem
    assert "did you mean 'on'?" in error_of([{"radiotherapy": "ON"}]).problem


def test_a_combination_without_a_class_is_an_error_that_names_the_known_ones():
    encoding = TreatmentEncoding(
        mode="multiclass", names=("a", "b"), levels=(("no", "yes"),) * 2, classes=((0, 0), (1, 0))
    )
    assert (
        "a=yes, b=yes does not occur in the data set; known: none, a" in error_of([{"a": 1, "b": 1}], encoding).problem
    )
    assert "price_class=above" in error_of([{"price_class": "above"}], RETAIL.treatments).problem


@pytest.mark.parametrize("value", [-1, 2, 0.5, 10**400, 1e999, None, [], {}, "", "maybe", float("nan")])
def test_values_that_are_no_level_are_errors(value):
    assert "'chemotherapy' cannot be" in error_of([{"chemotherapy": value}]).problem


def test_true_is_ambiguous_for_a_treatment_of_many_levels_and_false_is_the_reference():
    assert "cannot be true; it takes 'unchanged', " in error_of([{"price_class": True}], RETAIL.treatments).problem
    assert parse([{"price_class": False}], RETAIL.treatments).plans[0].values.tolist() == [[0]]


@pytest.mark.parametrize("origin", [True, 1.5, "3", [], float("inf")])
def test_an_origin_that_is_no_whole_number_is_an_error(origin):
    assert "`origin` must be a whole number" in error_of({"origin": origin, "plans": {"a": [{}]}}).problem


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({}, "there is no `plans`"),
        ({"watch": [{}], "origin": 3}, "there is no `plans`: put 'watch' under it"),
        ({"watch": [{}], "now": {"x": 1}}, "there is no `plans`: put 'watch', 'now' under it"),
        ({"plan": [{}]}, "unknown key 'plan'; did you mean 'plans'?"),
        ({"repeat": [{}]}, "plan 'plan': there is neither `times` nor `until`"),
        ({"plans": {}}, "`plans` is empty"),
        ({"plans": [{}]}, "`plans` must be an object"),
        ({"plans": None}, "`plans` must be an object"),
        (
            {"plans": {"a": {}}},
            "a list of steps or an object with `repeat`, `at`, `shift`, `natural`, `odds` or `rule`, not an object",
        ),
        ({"plans": {"": [{}]}}, "a name of 1 to 100 printable characters is needed"),
        ({"plans": {"a\nb": [{}]}}, "a name of 1 to 100 printable characters is needed"),
        ({"plans": {"\ud800": [{}]}}, "a name of 1 to 100 printable characters is needed"),
        ([], "has no steps"),
        ([[]], "a step must be an object"),
        (3, "holds an object or a list, not 3"),
        ('"plan"', "holds an object or a list, not 'plan'"),
        (None, "holds an object or a list, not null"),
    ],
)
def test_a_wrong_shape_is_named(document, said):
    error = error_of(document)
    assert said in all_text(error)
    assert error.fix


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[{}", "not JSON"),
        ("[{},]", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        ("[" * 100_000, "levels deep"),
        ('{"plans":' * 100, "levels deep"),
        ("[" + "9" * 10_000 + "]", "not usable as JSON"),
        (" " * (MAX_BYTES + 1), "larger than"),
    ],
)
def test_what_is_no_json_or_too_much_of_it_is_an_error(text, said):
    assert said in error_of(text).problem


def test_not_json_names_line_and_column():
    assert error_of('{\n "plans": nope}').where == "plan.json, line 2, column 11"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"plans": {"a": [{}], "a": [{}]}}', "plan 'a' is written more than once"),
        ('[{"chemotherapy": 0, "chemotherapy": 1}]', "plan 'plan', step 1: 'chemotherapy' is written more than once"),
        ('{"plans": {"a": [{}]}, "plans": {"a": [{}]}}', "'plans' is written more than once"),
    ],
)
def test_repeated_keys_are_errors(text, said):
    assert said in error_of(text).problem


def test_brackets_inside_strings_do_not_count_as_depth():
    assert parse({"plans": {'[[[[[[[[[[[[[[[[[[{{{{ \\"': [{}]}}).plans[0].values.tolist() == [[0, 0]]


def test_thousands_of_plans_are_read():
    assert len(parse({"plans": {str(i): [{}] for i in range(5_000)}}).plans) == 5_000


@pytest.mark.parametrize(
    "document",
    [
        [{f"x{i}": 0 for i in range(50_000)}],
        [{f"x{i}": 0} for i in range(50_000)],
        {f"x{i}": 0 for i in range(50_000)},
        {"plans": {"a": [{"chemotherapy": "x" * 900_000}]}},
    ],
)
def test_a_hostile_file_is_refused_quickly_with_a_short_message(document):
    begun = time.process_time()
    error = error_of(document)
    assert time.process_time() - begun < 5
    assert len(all_text(error)) < 10_000


def test_a_missing_file_a_folder_and_a_large_file_are_usage_errors(tmp_path):
    large = tmp_path / "large.json"
    large.write_bytes(b" " * (MAX_BYTES + 1))
    for path in (tmp_path / "none.json", tmp_path, large):
        with pytest.raises(UsageError) as caught:
            read_plans(path, ENCODING, horizon=HORIZON)
        assert caught.value.where == "--plan"


def test_a_path_that_cannot_be_opened_is_a_storage_error():
    with pytest.raises(StorageError):
        read_plans(Path("plan\0.json"), ENCODING, horizon=HORIZON)


def test_a_byte_order_mark_is_ignored(tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(b'\xef\xbb\xbf[{"chemotherapy": 1}]')
    assert read_plans(path, ENCODING, horizon=HORIZON).plans[0].values.tolist() == [[1, 0]]


@pytest.mark.parametrize("path", sorted([*EXAMPLES.glob("plan.json"), *EXAMPLES.glob("plans/*.*")]), ids=str)
def test_the_example_plans_fit_the_tumour_data_set(path):
    request = read_plans(path, TUMOR, horizon=HORIZON)
    assert request.plans
    assert all(1 <= len(plan) <= HORIZON for plan in request.plans)


def test_there_are_example_plans():
    assert (EXAMPLES / "plan.json").is_file()
    assert len(list(EXAMPLES.glob("plans/*.json"))) >= 3


# A grammar that often comes near to a valid plan, so that every branch is reached.
SCALARS = st.none() | st.booleans() | st.integers(-2, 3) | st.integers() | st.floats() | st.text(max_size=5)
KEYS = st.sampled_from(["plans", "origin", "chemotherapy", "radiotherapy", "plan"]) | st.text(max_size=5)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=8) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=30
)
STEPS = st.lists(st.dictionaries(KEYS, SCALARS, max_size=3) | ANYTHING, max_size=8)
NEARLY = st.fixed_dictionaries({"plans": st.dictionaries(st.text(max_size=5), STEPS, max_size=4) | ANYTHING})


@settings(max_examples=300, deadline=None)
@given(ANYTHING | STEPS | NEARLY)
def test_any_json_gives_valid_plans_or_a_usage_error(document):
    try:
        request = parse(document)
    except UsageError as error:
        all_text(error).encode()  # printable: no lone surrogates
        return
    for plan in request.plans:
        assert plan.values.shape == (len(plan), 2)
        assert 1 <= len(plan) <= HORIZON
        ENCODING.encode(plan.values)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet='[]{}":,0123456789.eE+-nulltruefasNaN\\ ', max_size=60))
def test_any_bytes_give_plans_or_a_usage_error(data):
    try:
        parse_plans(data, ENCODING, horizon=HORIZON)
    except UsageError as error:
        all_text(error).encode()


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=9),
        st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=HORIZON),
        min_size=1,
        max_size=5,
    )
)
def test_valid_plans_come_back_as_written(plans):
    written = {name: [dict(zip(ENCODING.names, step, strict=True)) for step in steps] for name, steps in plans.items()}
    request = parse({"plans": written})
    assert {plan.name: [tuple(row) for row in plan.values.tolist()] for plan in request.plans} == plans
    assert all(plan.values.dtype == np.int64 for plan in request.plans)
