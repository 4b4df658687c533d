"""`--method mixed` through the verbs: what it learnt is printed, and its answers are evaluated and asked for."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import Run

from costar_cli.cli.app import main
from costar_cli.errors import ArtifactError
from costar_cli.files import read_artifact, read_header, write_artifact
from costar_cli.methods import load_model

Call = Callable[..., Run]

SETTINGS = """
[simulate.tumor]
gamma = 10
train = 60
val = 10
test = 6
target_train = 6
target_val = 6
target_test = 6
steps = 30
[evaluate]
bootstrap = 0
[runtime]
threads = 1
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "settings.toml").write_text(SETTINGS)
    place = ["--workspace", str(folder), "--config", str(folder / "settings.toml"), "--quiet"]
    assert main(["simulate", "tumor", *place]) == 0
    assert main(["finetune", "--method", "mixed", *place]) == 0
    assert main(["finetune", "--method", "mixed", "--domain", "target", *place]) == 0
    return folder


def test_inspect_tells_in_words_and_units_what_was_learnt(made: Path, call: Call) -> None:
    run = call("inspect", made / "model-mixed.h5")
    assert "what the model learnt of tumour_volume" in run.out
    (chemotherapy,) = (line for line in run.out.splitlines() if line.startswith("chemotherapy, in the first day"))
    assert chemotherapy.rstrip().endswith("half-life 1 day")  # spec TUMOR-1
    (radiotherapy,) = (line for line in run.out.splitlines() if line.startswith("radiotherapy, in the first day"))
    assert radiotherapy.rstrip().endswith("none")
    rows = call("inspect", made / "model-mixed.h5", "--json").document["result"]["meta"]["learnt"]
    assert {row["outcome"] for row in rows} == {"tumour_volume"}


def test_a_file_that_says_something_else_there_is_inspected_all_the_same(
    made: Path, tmp_path: Path, call: Call
) -> None:
    content = read_artifact(made / "model-mixed.h5", kind="model")
    for other in ("words", [1, {"what": None}], {"a": 1}):
        path = tmp_path / f"{type(other).__name__}.h5"
        meta = {**content.meta, "learnt": other}
        write_artifact(path, kind="model", arrays=content.arrays, meta=meta, parents=content.parents)
        assert call("inspect", path).code == 0


def test_a_file_that_lacks_something_is_refused_when_it_is_read(made: Path, tmp_path: Path) -> None:
    content = read_artifact(made / "model-mixed.h5", kind="model")
    arrays = {name: values for name, values in content.arrays.items() if name != "params/outcome0.decay"}
    write_artifact(tmp_path / "m.h5", kind="model", arrays=arrays, meta=content.meta, parents=content.parents)
    with pytest.raises(ArtifactError, match="incomplete or damaged"):
        load_model(tmp_path / "m.h5")


def test_it_is_evaluated_and_is_far_better_than_the_last_value(made: Path, call: Call) -> None:
    models = ["--model", made / "model-mixed.h5", "--model", made / "model-mixed-target.h5"]
    run = call("evaluate", "-w", made, "-c", made / "settings.toml", *models, "--no-plots", "--json")
    assert run.code == 0, run.err
    average = {(row["setup"], row["label"]): row["mean"]["average"] for row in run.document["result"]["rows"]}
    naive = next(label for _, label in average if label.startswith("Last value"))
    for setup in ("zero-shot", "few-shot", "supervised"):
        assert average[setup, "Mixed effects"] < 0.6 * average[setup, naive]


def test_few_shot_learns_from_both_domains_and_keeps_the_sources_law(made: Path) -> None:
    source, target = (read_header(made / f"model-mixed{domain}.h5").meta for domain in ("", "-target"))
    assert target["laws"] == source["laws"]
    assert set(target["trained_on"]) == {"source/train", "target/train"}
