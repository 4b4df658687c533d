"""What notebooks show of data sets, models, answers and scores: a line, tables, figures; and parts and origins."""

import datetime
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import costar_cli as costar
from costar_cli.errors import DataError, UsageError
from tests.pages.reading import EVIL, assert_inert, read

SIZES = {"train": 30, "val": 12, "test": 6, "target_train": 6, "target_val": 6, "target_test": 6, "steps": 16}
PLANS = {"watch": [{}, {}], "chemo": [{"chemotherapy": 1}, {}]}


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """A data set, a model, and what is asked of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", costar.CostarWarning)  # few patients
        dataset = costar.simulate("tumor", gamma=2, preset="quick", seed=3, **SIZES)
        model = costar.fit(dataset, "ridge", preset="quick", threads=1)
        subject = int(dataset["source/test"].subject_id[0])
        return {
            "dataset": dataset,
            "model": model,
            "answer": costar.estimate_outcomes(model, dataset, PLANS, subject=subject, origin=6),
            "search": costar.search_plans(
                model, dataset, subject=subject, origin=6, minimise="tumour_volume at end", steps=2
            ),
            "effects": costar.estimate_effects(dataset, PLANS, origin=3, learner="regression", unsupported=True),
            "scores": costar.evaluate_models(model, dataset, bootstrap=0),
        }


@pytest.mark.parametrize("name", ["answer", "search", "effects", "scores", "model"])
def test_a_result_is_one_short_line(results: dict[str, Any], name: str) -> None:
    text = repr(results[name])
    assert text.startswith(f"<{type(results[name]).__name__}")
    assert len(text) < 160
    assert "\n" not in text
    assert text.endswith(">")


@pytest.mark.parametrize("name", ["answer", "search", "effects", "scores", "dataset"])
def test_a_result_has_a_table_and_a_figure(results: dict[str, Any], name: str) -> None:
    html, drawn = results[name]._repr_html_(), results[name].plot()
    assert "table" in read(html).tags
    assert isinstance(drawn, Figure)
    assert drawn.axes


def test_tables_have_the_numbers_of_the_results(results: dict[str, Any]) -> None:
    last = [row for row in results["answer"].to_rows() if row["step"] == 2]
    text = read(results["answer"]._repr_html_()).text
    assert all(f"{row['estimate']:.3g}"[:3] in text for row in last)
    assert "source/test" in read(results["dataset"]._repr_html_()).text
    assert results["model"].digest in read(results["model"]._repr_html_()).text


def test_names_are_text_in_tables_and_no_control_characters_in_lines(results: dict[str, Any]) -> None:
    answer, scores, dataset = results["answer"], results["scores"], results["dataset"]
    evil = [
        replace(answer, history=replace(answer.history, name=EVIL)),
        replace(scores, dataset=EVIL),
        replace(dataset, name=EVIL),
    ]
    for result in evil:
        assert_inert(read(result._repr_html_()))
        assert "\x1b" not in repr(result)


def test_a_model_in_closed_form_has_no_learning_curve_to_draw(results: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="closed form"):
        results["model"].plot()


def test_a_search_of_many_has_no_single_figure(results: dict[str, Any]) -> None:
    many = replace(results["search"], answers=[*results["search"].answers] * 2)
    assert repr(many).startswith("<SearchReport: 2 subjects, minimise tumour_volume at end")
    with pytest.raises(UsageError, match="many subjects"):
        many.plot()


def test_parts_are_indexed_as_they_are_spelled(results: dict[str, Any]) -> None:
    dataset = results["dataset"]
    for name in dataset:
        assert name in dataset
        assert dataset[name] is dataset[tuple(name.split("/"))]
    assert dataset["source/train"].n_subjects == SIZES["train"]
    assert "source/tests" not in dataset
    with pytest.raises(DataError, match="no split 'source/tests'") as error:
        dataset["source/tests"]
    assert "source/test" in (error.value.fix or "")


@pytest.mark.parametrize(
    "origin",
    ["2024-01-03", datetime.date(2024, 1, 3), datetime.datetime(2024, 1, 3), pd.Timestamp("2024-01-03"),
     np.datetime64("2024-01-03"), np.datetime64("2024-01-03", "ns")],
)  # fmt: skip
def test_an_origin_is_a_date_as_python_pandas_or_numpy_have_it(dated: tuple[Any, Any], origin: Any) -> None:
    dataset, model = dated
    predicted = model.predict(dataset, [{"drug": 1}], origin=origin)
    assert set(predicted["origin"]) == {2}
    assert set(predicted["date"].str[:10]) == {"2024-01-04"}
    answer = costar.estimate_outcomes(model, dataset, [{"drug": 1}], subject="s0", origin=origin)
    assert answer.history.origin == 2
    found = costar.search_plans(model, dataset, subject="s0", origin=origin, minimise="y at end", steps=1)
    assert found.answers[0].origin == 2


@pytest.fixture(scope="module")
def dated() -> tuple[Any, Any]:
    """Daily records of 40 subjects from the first of January on, and a regression on them."""
    rng, days = np.random.default_rng(0), pd.date_range("2024-01-01", periods=8).strftime("%Y-%m-%d")
    rows = [(f"s{i}", day, rng.normal(), int(rng.integers(2))) for i in range(40) for day in days]
    columns = {"id": {"role": "subject"}, "day": {"role": "time"}, "y": {"role": "outcome"},
               "drug": {"role": "treatment", "levels": ["0", "1"]}}  # fmt: skip
    schema = {"name": "dated", "horizon": 2, "columns": columns, "time": {"step": "1d"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", costar.CostarWarning)
        dataset = costar.read_table(pd.DataFrame(rows, columns=list(columns)), schema=schema)
        return dataset, costar.fit(dataset, "ridge", threads=1)
