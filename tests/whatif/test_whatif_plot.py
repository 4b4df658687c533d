"""A plot is written for every kind of data set, and user text never breaks it."""

import json

import numpy as np
import pytest
from whatif_worlds import SCHEMAS, TUMOR, LinearModel, make_dataset

from costar_cli.errors import StorageError, UsageError
from costar_cli.plans import parse_plans
from costar_cli.questions import estimate_outcomes
from costar_cli.report.figures.style import label_text, plan_style
from costar_cli.report.figures.whatif import plot_whatif

PNG = b"\x89PNG\r\n\x1a\n"
STEPS = {"tumor": {"chemotherapy": 1}, "icu": {"ventilation": 1}, "retail": {"price_class": "-20 %"}}


def report_of(name="tumor", *, names=("as is", "changed"), models=None, subject=4, **options):
    schema = SCHEMAS[name]
    plans = dict(zip(names, ([{}] * 4, [STEPS[name]] * 2), strict=True))
    request = parse_plans(json.dumps({"plans": plans}), schema.treatments, horizon=6)
    dataset = make_dataset(name, with_truth=True)
    return estimate_outcomes(dataset, models or {"costar": LinearModel(schema)}, request, subject=subject, **options)


@pytest.mark.parametrize("name", list(SCHEMAS))
def test_each_kind_of_data_set_is_drawn(tmp_path, name):
    path = tmp_path / "plot.png"
    plot_whatif(report_of(name), path)
    assert path.read_bytes().startswith(PNG)
    assert len(path.read_bytes()) > 10_000


def test_two_models_with_truth_and_one_member_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "costar_cli.questions.truth.truth_of", lambda _: lambda d, p, r, o, values: np.ones((*values.shape[:-1], 1))
    )
    models = {"a": LinearModel(TUMOR), "b": LinearModel(TUMOR, coefficients=(1.0,))}
    plot_whatif(report_of(models=models, origin=3, truth=True), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(PNG)


def test_a_subject_of_one_step_is_drawn(tmp_path):
    plot_whatif(report_of(subject=6), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").exists()


def test_user_text_is_shown_as_it_is(tmp_path):
    plot_whatif(report_of(names=("$\\frac{$x_{", "_无 " + "x" * 90)), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").exists()
    assert label_text("_hidden") == " _hidden"
    assert label_text("a$b$") == r"a\$b\$"
    assert len(label_text("x" * 500)) <= 90


def test_the_same_report_gives_the_same_bytes(tmp_path):
    for suffix in ("png", "svg", "pdf"):
        first, second = tmp_path / f"1.{suffix}", tmp_path / f"2.{suffix}"
        plot_whatif(report_of(), first)
        plot_whatif(report_of(), second)
        assert first.read_bytes() == second.read_bytes()


def test_another_file_type_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError) as caught:
        plot_whatif(report_of(), tmp_path / "plot.gif")
    assert caught.value.where == "--plot"


def test_a_missing_folder_is_a_storage_error(tmp_path):
    with pytest.raises(StorageError):
        plot_whatif(report_of(), tmp_path / "none" / "plot.png")


def test_plans_look_different():
    assert len({plan_style(i) for i in range(42)}) == 42
