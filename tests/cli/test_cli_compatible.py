"""Every verb that joins a model to a data set refuses the same differences in the same words."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cli_world import Run

from costar_cli.data import PanelSchema
from costar_cli.data.store import read_dataset, write_dataset
from costar_cli.errors import ExitCode

Call = Callable[..., Run]
LEVELS = "levels of treatment chemotherapy: model has off, on, data set has on, off"
UNIT = "unit of outcome tumour_volume: model has cm3, data set has mm3"


def other_levels(schema: PanelSchema) -> PanelSchema:
    """Let 1 mean `off`: a plan means its opposite."""
    treatments = schema.treatments.model_copy(update={"levels": (("on", "off"), ("off", "on"))})
    return schema.model_copy(update={"treatments": treatments})


def other_unit(schema: PanelSchema) -> PanelSchema:
    outcome = schema.outcomes[0].model_copy(update={"unit": "mm3"})
    return schema.model_copy(update={"outcomes": (outcome, *schema.outcomes[1:])})


def ask(verb: str, trained: Path, data: Path, plan: Path, folder: Path) -> list[object]:
    place = ["-w", trained, "--data", data]
    if verb == "whatif":
        return ["whatif", *place, "--subject", 1, "--plan", plan]
    if verb == "evaluate":
        return ["evaluate", *place, "--out", folder / "evaluation.h5", "--csv", folder / "e.csv", "--no-plots"]
    start = [] if verb == "finetune" else ["--domain", "target"]
    return ["finetune", *start, *place, "--out", folder / "model.h5", "--epochs", 1]


@pytest.mark.parametrize("verb", ["whatif", "evaluate", "finetune", "few-shot"])
@pytest.mark.parametrize(
    ("changes", "lines"),
    [([other_levels], [LEVELS]), ([other_unit], [UNIT]), ([other_unit, other_levels], [LEVELS, UNIT])],
)
def test_data_that_mean_something_else_are_refused_with_all_differences(
    verb: str,
    changes: list[Callable[[PanelSchema], PanelSchema]],
    lines: list[str],
    trained: Path,
    plan: Path,
    tmp_path: Path,
    call: Call,
) -> None:
    dataset = read_dataset(trained / "data.h5")
    schema = dataset.schema
    for change in changes:
        schema = change(schema)
    other = tmp_path / "other.h5"
    write_dataset(other, replace(dataset, schema=schema), overwrite=False)
    run = call(*ask(verb, trained, other, plan, tmp_path), "--json")
    error = run.document["error"]
    assert (run.code, error["type"]) == (ExitCode.MISMATCH, "MismatchError"), run.err
    assert error["details"] == lines
    assert "is incompatible with data set tumor" in error["problem"]
    assert not (tmp_path / "model.h5").exists()
    assert not (tmp_path / "evaluation.h5").exists()


@pytest.mark.parametrize("verb", ["whatif", "cohort", "search", "evaluate", "few-shot"])
def test_data_that_mean_something_else_are_told_before_an_output_that_exists(
    verb: str, trained: Path, plan: Path, tmp_path: Path, call: Call
) -> None:
    dataset, other = read_dataset(trained / "data.h5"), tmp_path / "other.h5"
    write_dataset(other, replace(dataset, schema=other_unit(dataset.schema)), overwrite=False)
    there = tmp_path / "there.csv"
    there.write_text("mine")
    (tmp_path / "there.h5").write_text("mine")
    words = {
        "whatif": ["whatif", "-s", 1, "-p", plan, "--csv", there],
        "cohort": ["whatif", "--subjects", "all", "-p", plan, "--csv", there],
        "search": ["search", "-s", 1, "--minimise", "tumour_volume at end", "--csv", there],
        "evaluate": ["evaluate", "--out", tmp_path / "there.h5", "--csv", there, "--no-plots"],
        "few-shot": ["finetune", "--domain", "target", "--out", tmp_path / "there.h5"],
    }[verb]
    model = [] if verb == "few-shot" else ["--model", trained / "model.h5"]
    run = call(*words, "-w", trained, "--data", other, *model, "--json")
    error = run.document["error"]
    assert (run.code, error["details"]) == (ExitCode.MISMATCH, [UNIT]), run.err
    assert there.read_text() == "mine"
