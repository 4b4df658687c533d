"""Plans by CSV are those of JSON, for everybody or for each subject, and a table says all that is wrong with it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costar_cli.data import TreatmentEncoding
from costar_cli.errors import UsageError
from costar_cli.plans import PlanRequest, parse_plans, read_plan_file, read_plans
from tests.whatif.whatif_worlds import RETAIL, TUMOR


def parse(text: str | bytes, encoding: TreatmentEncoding = TUMOR.treatments) -> PlanRequest:
    return parse_plans(text, encoding, horizon=6, where="plans.CSV")


def problems_of(text: str | bytes) -> list[str]:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert caught.value.fix
    return [caught.value.problem, *caught.value.details]


def test_a_table_without_subjects_has_everybodys_plans_in_order_of_appearance():
    request = parse("plan,step,chemotherapy\nwatch,1,\nchemo,2,off\nchemo,1,on\nwatch,2,0\n")
    assert {plan.name: plan.values.tolist() for plan in request.plans} == {
        "watch": [[0, 0], [0, 0]],
        "chemo": [[1, 0], [0, 0]],
    }
    assert not request.by_subject
    assert request.horizon == 2


def test_a_table_with_subjects_has_the_plans_of_each():
    request = parse("subject,plan,step,radiotherapy\n7,a,1,1\nB-2,a,1,0\n7,b,1,0\n7,b,2,1\n")
    assert request.plans == ()
    assert {name: [plan.name for plan in own] for name, own in request.by_subject.items()} == {
        "7": ["a", "b"],
        "B-2": ["a"],
    }
    assert request.of("7").plans[1].values.tolist() == [[0, 0], [0, 1]]
    with pytest.raises(UsageError, match="has none for subject 8"):
        request.of("8")


def test_levels_are_read_as_in_json():
    assert parse('plan,step,price_class\na,1,"-10 %"\n', RETAIL.treatments).plans[0].values.tolist() == [[9]]


def test_all_problems_of_rows_are_named_with_plan_and_step():
    found = problems_of(
        "subject,plan,step,chemotherapy,radiotherapy\n1,a,1,2,\n1,a,2,yess,\n1,b,2,1,1\n,c,1,,\n2,d,x,,\n"
        + "".join(f"3,e,{step},1,0\n" for step in range(1, 8))
    )
    assert found[1:] == [
        "plan 'a', subject '1', step 1: 'chemotherapy' cannot be '2'; it takes 0 = 'off', 1 = 'on'",
        "plan 'a', subject '1', step 2: 'chemotherapy' cannot be 'yess'; it takes 0 = 'off', 1 = 'on'",
        "plan 'c', subject null, step 1: the column `subject` is empty",
        "plan 'b', subject '1', step 2: steps are not 1, 2, 3, ..., each once",
        "plan 'd', subject '2': steps are not 1, 2, 3, ..., each once",
        "plan 'e', subject '3', step 7: the model answers plans of 1 to 6 steps",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("plan,chemotherapy\na,1\n", "there is no column `step`"),
        ("plan,step,chemoterapy\na,1,1\n", "unknown column 'chemoterapy'; did you mean 'chemotherapy'?"),
        ("plan,step\na,1\n", "there is no column of a treatment: chemotherapy, radiotherapy"),
        ("plan,step,chemotherapy\n", "the table has no rows"),
        ("plan,step,chemotherapy\na,1,1,5\n", "not a CSV table"),
        ("plan,step,chemotherapy,chemotherapy\na,1,1,0\n", "unknown column 'chemotherapy_duplicated_0'"),
        (b"\xff\xfe\x00", "not a CSV table"),
        ("plan,step,chemotherapy\na,1,1\na,1,0\n", "steps are not 1, 2, 3, ..., each once"),
        ("plan,step,chemotherapy\n,1,1\n", "the column `plan` is empty"),
    ],
)
def test_a_table_of_another_shape_is_refused(text, problem):
    assert any(problem in line for line in problems_of(text))


@pytest.mark.parametrize(
    ("called", "asked"),
    [
        ("id", "subject"), ("patient", "subject"), ("PatientID", "subject"), ("subject_id", "subject"),
        ("store no", "subject"), ("label", "subject"), ("time", "step"), ("day", "step"), ("scenario", "plan"),
    ],
)  # fmt: skip
def test_a_column_of_another_name_is_told_what_it_is_called_here(called: str, asked: str):
    text = "subject,plan,step,chemotherapy\n7,a,1,1\n"
    assert parse(text).by_subject
    found = problems_of(text.replace(asked, called))
    assert any(f"unknown column '{called}'; if it is the {asked}, call it `{asked}`" in line for line in found)


def test_a_column_like_a_treatment_is_no_subject():
    assert "unknown column 'chemo_id'" in problems_of("plan,step,chemo_id\na,1,1\n")


def test_a_subject_called_na_has_its_plans():
    assert set(parse("subject,plan,step,chemotherapy\nNA,a,1,1\nnull,a,1,0\n").by_subject) == {"NA", "null"}


def test_a_combination_that_never_occurs_is_refused():
    encoding = TreatmentEncoding(
        mode="multiclass", names=("a", "b"), levels=(("no", "yes"),) * 2, classes=((0, 0), (1, 0))
    )
    with pytest.raises(UsageError, match="plan 'p', step 1: the combination a=yes, b=yes does not occur"):
        parse("plan,step,a,b\np,1,1,1\n", encoding)


def test_a_file_is_a_table_by_its_ending(tmp_path):
    path = tmp_path / "plans.csv"
    path.write_text("plan,step,chemotherapy\na,1,1\n")
    assert read_plans(path, TUMOR.treatments, horizon=6).plans[0].values.tolist() == [[1, 0]]
    path.write_bytes(b" " * 2_000_000 + b"x")
    assert len(read_plan_file(path)) == 2_000_001


@given(st.text(alphabet="plan,step\n123 chemotherapy'\"", max_size=60))
def test_any_text_gives_plans_or_a_usage_error(rest):
    try:
        request = parse("plan,step,chemotherapy\n" + rest)
    except UsageError:
        return
    assert all(1 <= len(plan) <= 6 for plan in request.plans)
