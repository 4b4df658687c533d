"""Pages from Python: of an answer, a search, a data set and a model, the same as the command line's."""

import os
import shutil
import warnings

import pytest

import costar_cli as costar
from costar_cli.cli.app import main
from tests.cli.cli_world import REPOSITORY
from tests.pages.reading import read_alone

OWN = REPOSITORY / "examples" / "own-data"
PLANS = {"watch": [{}, {}], "chemo": [{"chemotherapy": 1}, {}]}


def subject_of(dataset: costar.Dataset) -> int:
    return int(dataset.panels["source", "test"].subject_id[0])


@pytest.fixture
def files(dataset, ridge, tmp_path):
    """The data set and the model in files, for the command line."""
    dataset.save(tmp_path / "data.h5")
    ridge.save(tmp_path / "ridge.h5")
    return ["--data", str(tmp_path / "data.h5"), "--model", str(tmp_path / "ridge.h5"), "--quiet"]


@pytest.mark.filterwarnings("ignore::costar_cli.errors.CostarWarning")
def test_the_page_of_an_answer_is_that_of_the_command_line(dataset, ridge, files, tmp_path):
    plan, page = tmp_path / "plan.json", tmp_path / "page.html"
    plan.write_text('{"plans": {"watch": [{}, {}], "chemo": [{"chemotherapy": 1}, {}]}}')
    subject = subject_of(dataset)
    report = costar.estimate_outcomes({"ridge": ridge}, dataset, PLANS, subject=subject, origin=8)
    costar.write_report(report, page)
    words = ["whatif", "-s", str(subject), "-p", str(plan), "--origin", "8", "--report", str(tmp_path / "cli.html")]
    assert main([*words, *files]) == 0
    assert page.read_text() == (tmp_path / "cli.html").read_text()


@pytest.mark.filterwarnings("ignore::costar_cli.errors.CostarWarning")
def test_the_page_of_a_search_is_that_of_the_command_line(dataset, ridge, files, tmp_path):
    subject, words = (
        subject_of(dataset),
        ["search", "--minimise", "tumour_volume at end", "--at-most", "chemotherapy 1"],
    )
    report = costar.search_plans(
        ridge, dataset, subject=subject, minimise="tumour_volume at end", at_most="chemotherapy 1", steps=3, origin=8
    )
    costar.write_report(report, tmp_path / "page.html")
    words += ["-s", str(subject), "--steps", "3", "--origin", "8", "--report", str(tmp_path / "cli.html")]
    assert main([*words, *files]) == 0
    assert (tmp_path / "page.html").read_text() == (tmp_path / "cli.html").read_text()
    frame = report.to_frame()
    assert frame["subject"].unique().tolist() == [subject]
    assert frame["rank"].dropna().tolist() == [1, 2, 3, 4, 5]


@pytest.mark.filterwarnings("ignore::costar_cli.errors.CostarWarning")
def test_the_card_of_a_model_has_its_data_and_its_scores(dataset, ridge, tmp_path):
    scores = costar.evaluate_models(ridge, dataset, bootstrap=0)
    costar.write_report(ridge, tmp_path / "card.html", dataset=dataset, evaluations=[scores])
    text = read_alone((tmp_path / "card.html").read_text()).text
    row = next(row for row in scores.rows if row.basis == "ours")
    for words in ("Model card", "Shift from source to target", f"{row.mean.average:.4g}", ridge.digest):
        assert words in text
    costar.write_report(ridge, tmp_path / "card.html", overwrite=True)
    assert "is not in the folder of this file" in (tmp_path / "card.html").read_text()


@pytest.mark.filterwarnings("ignore::costar_cli.errors.CostarWarning")
def test_a_card_takes_evaluations_of_its_model_alone(dataset, ridge, tmp_path):
    others = costar.evaluate_models(costar.fit(dataset, "mean", preset="quick"), dataset, bootstrap=0)
    own = costar.evaluate_models(ridge, dataset, bootstrap=0)
    for evaluations, problem in (([own, others], "number 2"), (own, "not a list of evaluations"), ([7], "not a list")):
        with pytest.raises(costar.CostarError, match=problem) as caught:
            costar.write_report(ridge, tmp_path / "card.html", evaluations=evaluations)
        assert caught.value.where == "evaluations="
    assert not (tmp_path / "card.html").exists()


def test_a_data_set_has_a_page(dataset, tmp_path):
    costar.write_report(dataset, tmp_path / "data.html")
    assert "Subjects and lengths" in read_alone((tmp_path / "data.html").read_text()).text


@pytest.mark.parametrize(
    ("call", "error", "problem"),
    [
        (lambda model, data, path: costar.write_report(model, path), costar.CostarError, "exists"),
        (
            lambda model, data, path: costar.write_report(7, path, overwrite=True),
            costar.CostarError,
            "no page about int",
        ),
        (
            lambda model, data, path: costar.write_report(data, path, dataset=data, overwrite=True),
            costar.CostarError,
            "only a model's card",
        ),
        (
            lambda model, data, path: costar.write_report(
                model, path, dataset=costar.simulate("linear", preset="quick", train=20), overwrite=True
            ),
            costar.CostarError,
            "trained on another data set",
        ),
    ],
)
def test_a_page_that_cannot_be_made_replaces_nothing(call, error, problem, dataset, ridge, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("mine")
    with pytest.raises(error, match=problem) as caught:
        call(ridge, dataset, page)
    assert page.read_text() == "mine"
    assert caught.value.where.endswith("=")
    assert caught.value.fix


def test_a_page_replaces_no_input_and_nothing_that_is_no_regular_file(dataset, ridge, tmp_path):
    dataset.save(tmp_path / "data.h5")
    ridge.save(tmp_path / "ridge.h5")
    os.mkfifo(tmp_path / "pipe")
    for name in ("data.h5", "ridge.h5"):
        held = (tmp_path / name).read_bytes()
        with pytest.raises(costar.CostarError, match=name) as caught:
            costar.write_report(ridge, tmp_path / name, overwrite=True)
        assert (tmp_path / name).read_bytes() == held
        assert caught.value.where == "path="
    with pytest.raises(costar.CostarError, match="a report is an HTML page, not `page"):
        costar.write_report(ridge, tmp_path / "page.pdf")
    with pytest.raises(costar.CostarError, match="no regular file"):
        costar.write_report(ridge, tmp_path / "pipe", overwrite=True)
    assert (tmp_path / "pipe").is_fifo()


def test_a_page_replaces_no_link_to_nothing_unless_asked(ridge, tmp_path):
    link = tmp_path / "page.html"
    link.symlink_to("elsewhere")
    with pytest.raises(costar.CostarError, match="exists") as caught:
        costar.write_report(ridge, link)
    assert link.is_symlink()
    assert "`overwrite=True`" in caught.value.fix


@pytest.fixture(scope="module")
def of_table(tmp_path_factory):
    """A table's file, the data set that was read from it, and a model of it."""
    table = tmp_path_factory.mktemp("table") / "small.csv"
    shutil.copy(OWN / "small.csv", table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", costar.CostarWarning)
        data = costar.read_table(table, schema=OWN / "schema.toml")
        return table, data, costar.fit(data, "ridge", preset="quick")


@pytest.mark.filterwarnings("ignore::costar_cli.errors.CostarWarning")
@pytest.mark.parametrize("about", ["data", "answer", "search", "card"])
def test_a_page_never_replaces_the_table_that_it_comes_from(about, of_table):
    table, data, ridge = of_table
    subject = "N-006"
    words = {"dataset": data} if about == "card" else {}
    what = {
        "data": lambda: data,
        "answer": lambda: costar.estimate_outcomes({"ridge": ridge}, data, {"none": [{}]}, subject=subject),
        "search": lambda: costar.search_plans(
            ridge, data, subject=subject, minimise=f"{data.schema.outcomes[0].name} at end", steps=1
        ),
        "card": lambda: ridge,
    }[about]()
    held = table.read_bytes()
    with pytest.raises(costar.CostarError, match="is the table behind the data set that is read"):
        costar.write_report(what, table, overwrite=True, **words)
    assert table.read_bytes() == held
