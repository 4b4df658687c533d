"""Who is asked about, and from when."""

import numpy as np
import pytest

from costar_cli.data import Dataset, Location, Part
from costar_cli.errors import UsageError
from costar_cli.plans import parse_origin
from costar_cli.questions import Cohort, choose_subjects, join_places, names_of, read_subjects
from tests.whatif.whatif_worlds import make_dataset

TEST = Part("target", "test")


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return make_dataset()


def cohort_of(dataset: Dataset, places: list[Location], **options: object) -> Cohort:
    panel = join_places(dataset, places)
    return Cohort.of(panel, names_of(panel), places, **options)


def numbers(dataset: Dataset, places: list[Location]) -> list[int]:
    return join_places(dataset, places).subject_id.tolist()


def test_subjects_are_all_a_part_or_those_named(dataset, tmp_path):
    assert numbers(dataset, choose_subjects(dataset, "all")) == list(range(12))
    assert numbers(dataset, choose_subjects(dataset, "target/test")) == [8, 9, 10, 11]
    assert numbers(dataset, choose_subjects(dataset, ["9", 1, "9", "4"])) == [1, 4, 9]
    (tmp_path / "ids.txt").write_text("9\n\n 1\r\n4\n")
    (tmp_path / "ids.csv").write_text("plan,subject\na,9\na,1\nb,9\nb,4\n")
    for name in ("ids.txt", "ids.csv"):
        assert numbers(dataset, choose_subjects(dataset, str(tmp_path / name))) == [1, 4, 9]


def test_unknown_subjects_are_named_at_once_and_can_be_left_out(dataset, reporter):
    with pytest.raises(UsageError, match="22 subjects are not in the data set") as caught:
        choose_subjects(dataset, [1, *range(100, 122)])
    assert len(caught.value.details) == 21
    assert caught.value.details[-1] == "and 2 more"
    assert "--skip-unknown" in caught.value.fix
    places = choose_subjects(dataset, [1, 100, 101], skip=True, reporter=reporter)
    assert numbers(dataset, places) == [1]
    assert "2 subjects are not in the data set ('100', '101')" in reporter.warnings[0]
    with pytest.raises(UsageError, match="no subject to ask about"):
        choose_subjects(dataset, ["100"], skip=True)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "names no subject"),
        (b"subject\n", "names no subject"),
        (b"\x89HDF\r\n\x1a\n\xff", "is no text file"),
        (b"1\0\n2\n", "is no text file"),
        (b"patient,plan\n1,a\n", "has no column `subject`"),
        (b'{"plans": {"watch": [{}]}}', "is JSON, no list of subjects"),
        (b'{\n  "a": 1\n}\n', "is JSON, no list of subjects"),
        (b'\xef\xbb\xbf["1", "2"]', "is JSON, no list of subjects"),
        (b"[\n  1,\n  2\n]", "is JSON, no list of subjects"),
        (b'{"subject": 1}\n{"subject": 2}\n', "is JSON, no list of subjects"),
        (b"subject\n" + b"x" * 200_000, "is no CSV file: field larger than"),
    ],
)
def test_a_file_that_names_no_subjects_is_refused(dataset, tmp_path, content, problem):
    (tmp_path / "ids").write_bytes(content)
    with pytest.raises(UsageError, match=problem):
        choose_subjects(dataset, str(tmp_path / "ids"))


def test_subjects_may_be_called_by_brackets(tmp_path):
    (tmp_path / "ids.txt").write_text("[ward B] 1\n{x}\n")
    assert read_subjects(tmp_path / "ids.txt", flag="--subjects") == ["[ward B] 1", "{x}"]


@pytest.mark.parametrize(
    ("who", "meant"), [("target/tset", "target/test"), ("All", "all"), ("source-train", "source/train")]
)
def test_what_is_nearly_a_part_is_corrected(dataset, who, meant):
    with pytest.raises(UsageError, match=f"`{who}` is neither `all`, a split such as") as caught:
        choose_subjects(dataset, who)
    assert caught.value.fix.startswith(f"did you mean `{meant}`? If not: give a file with a subject per line")


@pytest.mark.parametrize(
    ("who", "problem"), [("target/train", "no split 'target/train'"), ("nowhere", "neither `all`, a split such as")]
)
def test_what_is_neither_a_part_nor_a_file_is_refused(dataset, who, problem):
    with pytest.raises(UsageError, match=problem):
        choose_subjects(dataset, who)


def test_an_origin_counts_from_the_first_step_or_back_from_the_last(dataset):
    places = choose_subjects(dataset, "target/test")
    last = [19, 11, 0, 19]
    assert cohort_of(dataset, places).origin_M.tolist() == last
    some = choose_subjects(dataset, [8, 9, 11])
    assert cohort_of(dataset, some, origin=parse_origin("3")).origin_M.tolist() == [3, 3, 3]
    assert cohort_of(dataset, some, origin=parse_origin("-2")).origin_M.tolist() == [17, 9, 17]
    every = cohort_of(dataset, places, origin=parse_origin("all"))
    assert np.bincount(every.subject_M).tolist() == [20, 12, 1, 20]
    assert every.origin_M[every.subject_M == 1].tolist() == list(range(12))


@pytest.mark.parametrize("origin", [15, -15])
def test_subjects_that_are_too_short_are_named_and_can_be_left_out(dataset, reporter, origin):
    places = choose_subjects(dataset, "target/test")
    with pytest.raises(UsageError, match=f"origin {origin} is outside the series of 2 subjects") as caught:
        cohort_of(dataset, places, origin=origin)
    assert caught.value.details == ("9 (last step 11)", "10 (last step 0)")
    kept = cohort_of(dataset, places, origin=origin, skip=True, reporter=reporter)
    assert kept.panel.subject_id[kept.subject_M].tolist() == [8, 11]
    assert "9 (last step 11)" in reporter.warnings[0]
    with pytest.raises(UsageError, match="no subject has the origin 99") as caught:
        cohort_of(dataset, places, origin=99, skip=True)
    assert "--skip-unknown" not in caught.value.fix


@pytest.mark.parametrize("text", ["2024-02-31", "first", "1.5", "--1", ""])
def test_an_origin_that_is_no_step_is_refused(text):
    with pytest.raises(UsageError, match="is no origin"):
        parse_origin(text)


def test_consecutive_moments_bring_their_subjects_along(dataset):
    every = cohort_of(dataset, choose_subjects(dataset, "target/test"), origin="all")
    part = every.take(slice(30, 34))
    assert part.panel.subject_id.tolist() == [9, 10, 11]
    assert [part.names[i] for i in part.subject_M] == [9, 9, 10, 11]
    assert part.origin_M.tolist() == [10, 11, 0, 0]
    assert part.places[0] == Location(TEST, 1)
