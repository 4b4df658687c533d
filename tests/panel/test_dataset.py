from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from costar_cli.data import Dataset, End, Panel, PanelSchema, Part, Queries, TreatmentEncoding, Variable
from costar_cli.errors import DataError, UsageError


def test_parts_have_one_canonical_order():
    assert [str(part) for part in Part.all()] == [
        "source/train",
        "source/val",
        "source/test",
        "target/train",
        "target/val",
        "target/test",
    ]


def test_subject_is_found_in_whatever_domain_and_split_it_is(tumor_dataset: Dataset):
    for part, panel in tumor_dataset.panels.items():
        for row in (0, panel.n_subjects - 1):
            location = tumor_dataset.find_subject(int(panel.subject_id[row]))
            assert location == (part, row)


def test_a_dataset_is_shown_in_a_few_lines(tumor_dataset: Dataset):
    many = [Variable(name=f"outcome {i}", unit="") for i in range(10)]
    panels = {
        part: replace(panel, outcomes=np.repeat(panel.outcomes, 10, axis=2))
        for part, panel in tumor_dataset.panels.items()
    }
    schema = tumor_dataset.schema.model_copy(update={"outcomes": tuple(many)})
    shown = repr(
        replace(tumor_dataset, name="\x1b[31m", schema=schema, panels=panels, digest="0123456789")
    ).splitlines()
    assert repr(tumor_dataset).splitlines()[0] == "<Dataset tumor, horizon 6"
    assert shown[0] == "<Dataset \\x1b[31m, horizon 6, 01234567"
    train = tumor_dataset.panels[Part("source", "train")]
    assert shown[1] == f"  source/train: 40 subjects, {train.length.sum():,} steps"
    assert shown[-2] == f"  outcomes: {', '.join(f'outcome {i}' for i in range(8))} and 2 more"
    assert shown[-1] == "  treatments: chemotherapy, radiotherapy>"
    assert len(shown) == 3 + len(panels)


def test_unknown_subject_is_an_error_that_names_the_ranges(tumor_dataset: Dataset):
    with pytest.raises(UsageError) as caught:
        tumor_dataset.find_subject(999)
    assert "999" in caught.value.problem
    assert "source/train: 0 to 39" in caught.value.fix
    assert "target/test: 73 to 81" in caught.value.fix


@pytest.mark.parametrize("subject", ["--5", "-", "5-"])
def test_what_is_no_number_is_an_unknown_subject(subject: str, tumor_dataset: Dataset):
    with pytest.raises(UsageError):
        tumor_dataset.find_subject(subject)


def with_labels(dataset: Dataset, form: str) -> Dataset:
    panels = {
        part: replace(panel, label=np.array([form.format(i + 1) for i in panel.subject_id]))
        for part, panel in dataset.panels.items()
    }
    return replace(dataset, panels=panels)


def test_a_label_is_found_by_its_exact_text_and_by_no_number(tumor_dataset: Dataset):
    padded = with_labels(tumor_dataset, "{:02d}")
    location = padded.find_subject("07")
    assert padded.panels[location.part].names[location.row] == "07"
    for number in ("7", 7, "+7", "7.0"):  # subject number 7 is called 08
        with pytest.raises(UsageError, match="no subject"):
            padded.find_subject(number)
    with pytest.raises(UsageError) as caught:
        padded.find_subject("7")
    assert caught.value.fix == "did you mean 07?"
    with pytest.raises(UsageError) as caught:
        with_labels(tumor_dataset, "{:03d}").find_subject("07")
    assert caught.value.fix == "did you mean 007?"


def test_a_label_with_blanks_around_it_is_not_taken_for_the_label(tumor_dataset: Dataset):
    padded = with_labels(tumor_dataset, "{:02d}")
    with pytest.raises(UsageError) as caught:
        padded.find_subject(" 08")
    assert (caught.value.problem, caught.value.fix) == ("no subject ' 08' in the data set", "did you mean 08?")
    blank = with_labels(tumor_dataset, " {:02d}")
    location = blank.find_subject(" 08")
    assert blank.panels[location.part].names[location.row] == " 08"


@pytest.mark.parametrize("wanted", ["0", "99", "x"])
def test_no_other_patient_is_offered_for_a_number_or_a_letter(wanted: str, tumor_dataset: Dataset):
    with pytest.raises(UsageError) as caught:
        with_labels(tumor_dataset, "{:02d}").find_subject(wanted)
    assert str(caught.value.fix).startswith("choose from source/train: 01, ...")


def test_a_number_finds_no_subject_that_has_a_name(tumor_dataset: Dataset):
    named = with_labels(tumor_dataset, "patient {}")
    with pytest.raises(UsageError) as caught:
        named.find_subject("0")
    assert "source/train: patient 1, ..." in str(caught.value.fix)


def test_missing_part_is_an_error_that_names_the_parts(tumor_dataset: Dataset):
    source_only = {part: panel for part, panel in tumor_dataset.panels.items() if part.domain == "source"}
    dataset = replace(tumor_dataset, panels=source_only, queries={}, truth={})
    with pytest.raises(DataError) as caught:
        dataset.panel("target", "test")
    assert "source/train, source/val, source/test" in caught.value.fix


def test_subject_ids_are_unique_over_all_parts(tumor_dataset: Dataset):
    panels = dict(tumor_dataset.panels)
    first, second = Part("source", "train"), Part("target", "test")
    panels[second] = panels[second].take(np.arange(2))
    panels[second] = replace(panels[second], subject_id=panels[first].subject_id[:2])
    with pytest.raises(DataError, match="not unique in the data set: 0, 1"):
        replace(tumor_dataset, panels=panels)


def test_queries_need_a_panel_and_a_data_set_needs_a_part(tumor_dataset: Dataset):
    train = Part("source", "train")
    with pytest.raises(DataError, match="without a panel"):
        replace(tumor_dataset, panels={train: tumor_dataset.panels[train]})
    with pytest.raises(DataError, match="no subjects"):
        Dataset("empty", tumor_dataset.schema, 6, {})


def test_panel_arrays_must_agree(tumor_dataset: Dataset):
    panel = tumor_dataset.panel("source", "val")
    with pytest.raises(DataError, match="disagree") as caught:
        replace(panel, treatments=panel.treatments[:, 1:], statics=panel.statics[1:])
    assert len(caught.value.details) == 2
    with pytest.raises(DataError, match=r"statics has \(12,\), expected \(12, any\)"):
        replace(panel, statics=panel.statics[:, 0])
    for length in (0, panel.n_steps + 1):
        with pytest.raises(DataError, match="lengths must be between 1 and 20"):
            replace(panel, length=np.full_like(panel.length, length))


def test_panel_rows_are_taken_in_order(tumor_dataset: Dataset):
    plain = tumor_dataset.panel("source", "val")
    names, items = np.array([f"p{i}" for i in plain.subject_id]), plain.subject_id // 2
    mask = plain.observed[..., None] & (np.arange(plain.n_steps)[:, None] != 2)
    panel = replace(plain, label=names, cluster=items, outcome_observed=mask, since=plain.length - 1, end=items % 3)
    rows = np.array([5, 2, 2])
    assert panel.take(rows).calendar is None
    for field in set(Panel.__slots__) - {"calendar", "covariate_observed"}:  # tumours have no covariates
        assert np.array_equal(getattr(panel.take(rows), field), getattr(panel, field)[rows])


def test_query_arrays_must_agree():
    plan = np.zeros((3, 2, 1), np.uint8)
    subject, origin = np.zeros(3, np.int32), np.zeros(3, np.int16)
    answers, scored = np.zeros((3, 2, 1), np.float32), np.ones((3, 2), bool)
    queries = Queries(subject, origin, plan, answers, scored)
    assert (len(queries), queries.horizon) == (3, 2)
    assert len(queries.take(np.array([2, 0]))) == 2
    assert Queries(subject, origin, plan).take(slice(1)).outcomes is None
    wrong = [
        (subject[:2], origin, plan, answers, scored),
        (subject, origin, plan[0], answers, scored),
        (subject, origin, plan, answers, None),
        (subject, origin, plan, answers[:, :1], scored),
        (subject, origin, plan, answers[..., 0], scored),
        (subject, origin, plan, answers, scored[:, :1]),
    ]
    for arrays in wrong:
        with pytest.raises(DataError):
            Queries(*arrays)


LEVELS = (("off", "on"), ("0", "5", "10"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mode": "multilabel", "names": ("a",), "levels": ()}, "one tuple of levels"),
        ({"mode": "multilabel", "names": ("a", "a"), "levels": (("0", "1"),) * 2}, "used once"),
        ({"mode": "multilabel", "names": ("a", "b"), "levels": LEVELS}, "binary"),
        ({"mode": "multilabel", "names": ("a",), "levels": (("0", "1"),), "classes": ((0,),)}, "multiclass"),
        ({"mode": "multiclass", "names": ("a",), "levels": (("0",),), "classes": ((0,),)}, "two or more levels"),
        ({"mode": "multiclass", "names": ("a",), "levels": (("0", "0"),), "classes": ((0,),)}, "two or more levels"),
        ({"mode": "multiclass", "names": ("a", "b"), "levels": LEVELS, "classes": ((0, 3),)}, "does not have"),
        ({"mode": "multiclass", "names": ("a", "b"), "levels": LEVELS, "classes": ((0, 1), (0, 1))}, "once"),
        ({"mode": "multiclass", "names": ("a", "b"), "levels": LEVELS, "classes": ((0,),)}, "one value per"),
        ({"mode": "multilabel", "names": (" a",), "levels": (("0", "1"),)}, "pattern"),
    ],
)
def test_treatment_encodings_that_contradict_themselves_are_rejected(fields: dict, message: str):
    with pytest.raises(ValidationError, match=message):
        TreatmentEncoding(**fields)


def test_schema_names_each_column_once():
    drug = TreatmentEncoding(mode="multilabel", names=("drug",), levels=(("off", "on"),))
    with pytest.raises(ValidationError, match="its own name: drug, y"):
        PanelSchema(
            outcomes=(Variable(name="y"), Variable(name="drug")), statics=(Variable(name="y"),), treatments=drug
        )
    with pytest.raises(ValidationError, match="at least one outcome"):
        PanelSchema(outcomes=(), treatments=drug)
    with pytest.raises(ValidationError, match="at least one outcome"):
        PanelSchema(outcomes=(), treatments=drug, ends=(End(name="dropout", terminal=False),))


def test_values_without_a_class_or_level_are_not_encoded():
    dose = TreatmentEncoding(mode="multiclass", names=("a", "b"), levels=LEVELS, classes=((0, 0), (1, 1), (1, 2)))
    assert dose.encode([1, 2]).tolist() == [0, 0, 1]
    assert [dose.describe(row) for row in dose.classes] == ["b=0", "a+b=5", "a+b=10"]
    for values, message in [
        ([0, 1], "no class"),
        ([0, 3], "not one of its levels"),
        ([-1, 0], "not one of its levels"),
    ]:
        with pytest.raises(ValueError, match=message):
            dose.encode(values)
