"""Which model answers where nobody names one, and which file is inspected."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import Run

from costar_cli.cli.models import ModelChoice
from costar_cli.cli.workspace import Workspace
from costar_cli.errors import ExitCode, UsageError

Call = Callable[..., Run]
SEARCH = "--minimise", "tumour_volume at end", "--steps", 2


@pytest.fixture
def several(trained: Path, tmp_path: Path) -> Path:
    """A workspace with data, and models by the names of the growth model's, for both domains, and of the stack's."""
    folder = tmp_path / "several"
    folder.mkdir()
    shutil.copy(trained / "data.h5", folder)
    for name in ("model-mixed.h5", "model-stack.h5"):
        shutil.copy(trained / "model.h5", folder / name)
    shutil.copy(trained / "model-target.h5", folder / "model-mixed-target.h5")
    return folder


def files(folder: Path, *names: str) -> ModelChoice:
    for name in names:
        (folder / f"model{name}.h5").touch()
    return ModelChoice.of(Workspace(folder))


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["", "-target", "-mean", "-stack"], ["model", "model-target"]),
        (["-scratch", "-mean", "-stack"], ["model-scratch"]),
        (["-target", "-crn"], ["model-target"]),
        (["-mean", "-msm", "-stack", "-stack-target"], ["model-stack", "model-stack-target"]),
        (["-crn-erm", "-crn-erm-target"], ["model-crn-erm", "model-crn-erm-target"]),
        (["-mine"], ["model-mine"]),
        ([], []),
    ],
)
def test_costar_comes_first_then_the_stack_then_the_only_method(
    tmp_path: Path, names: list[str], chosen: list[str]
) -> None:
    choice = files(tmp_path, *names)
    assert [path.stem for path in choice.files] == chosen
    assert {path.stem for path in choice.others} == {f"model{name}" for name in names} - set(chosen)


def test_several_methods_without_a_default_are_an_error_that_lists_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="model-crn, model-crn-erm") as caught:
        files(tmp_path, "-crn", "-crn-erm")
    assert f"--model {tmp_path / 'model-crn.h5'}" in caught.value.fix


def test_another_method_changes_no_answer(several: Path, plan: Path, call: Call) -> None:
    ask = "whatif", "-w", several, "-s", 1, "-p", plan
    assert list(call(*ask, "--json").document["result"]["models"]) == ["model-stack"]
    shutil.copy(several / "model-stack.h5", several / "model-mean.h5")
    run = call(*ask, "--show", "notes")
    assert "by model-stack" in run.out
    others = "model-mean, model-mixed, model-mixed-target"
    assert f"note  using model-stack.h5; other models: {others} (--model)" in run.err


def test_each_domain_has_the_model_that_was_adapted_to_it_whatever_the_method(
    several: Path, plan: Path, call: Call
) -> None:
    (several / "model-stack.h5").unlink()
    source, target = "model-mixed", "model-mixed-target"
    asked = [
        (source, "-s", 1),
        (target, "-s", 50),
        (target, "--subjects", "target/test"),
        (source, "--subjects", "all"),
    ]
    for expected, *who in asked:
        words = "-w", several, *who, "--origin", 4, "--skip-unknown", "--json"
        assert list(call("whatif", *words, "-p", plan).document["result"]["models"]) == [expected]
        assert call("search", *words, *SEARCH).document["result"]["model"]["label"] == expected


@pytest.mark.parametrize("verb", ["whatif", "cohort", "search"])
def test_a_question_that_no_default_model_answers_asks_for_one(
    several: Path, plan: Path, call: Call, verb: str
) -> None:
    shutil.copy(several / "model-stack.h5", several / "model-msm.h5")
    (several / "model-stack.h5").unlink()
    asked = {
        "whatif": ["whatif", "-s", 1, "-p", plan],
        "cohort": ["whatif", "--subjects", "source/test", "-p", plan, "--skip-unknown"],
        "search": ["search", "-s", 1, *SEARCH],
    }[verb]
    run = call(*asked, "-w", several)
    assert run.code == ExitCode.USAGE
    assert "no default: model-msm, model-mixed, model-mixed-target" in run.err
    assert f"--model {several / 'model-msm.h5'}" in run.err
    assert call(*asked, "-w", several, "--model", several / "model-msm.h5").code == 0


def test_what_evaluate_suggests_names_models_unless_the_default_is_among_them(several: Path, call: Call) -> None:
    place = "-w", several, "--threads", 1
    assert call("finetune", "--method", "msm", *place).code == 0
    (several / "model-stack.h5").unlink()
    msm = several / "model-msm.h5"
    for name in ("model-stack.h5", "model-mixed.h5"):
        shutil.copy(msm, several / name)
    ask = f"costar whatif --workspace {several} --subject ID --plan plan.json"
    scored = "evaluate", *place, "--no-plots", "--bootstrap", 0, "--overwrite", "--json"
    assert call(*scored, "--model", several / "model-stack.h5").document["next"] == [ask]
    assert call(*scored, "--model", msm).document["next"] == [f"{ask} --model {msm}"]
    (several / "model-stack.h5").unlink()
    assert call(*scored, "--model", msm).document["next"] == [f"{ask} --model {msm}"]


def test_the_data_set_of_the_workspace_is_inspected_where_no_file_is_named(
    trained: Path, tmp_path: Path, call: Call
) -> None:
    run = call("inspect", "-w", trained)
    assert run.out == call("inspect", trained / "data.h5").out
    assert f"note  this is the workspace's data set, {trained / 'data.h5'}" in run.err
    document = call("inspect", "-w", trained, "--report", "-", "--json").document
    assert (document["workspace"], document["result"]["kind"]) == (str(trained), "dataset")
    none = call("inspect", "-w", tmp_path / "none")
    assert (none.code, "`costar simulate` or `costar ingest` makes one" in none.err) == (ExitCode.ARTIFACT, True)
