"""Where differences between plans are forecasts and no effects, every verb that compares plans says so in one line."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import Run

from costar_cli.cli.app import main
from costar_cli.data.store import write_dataset
from tests.feedback_worlds import LINEAR

Call = Callable[..., Run]

LINE = "forecasts and does not adjust for treatment that reacts to the course inside a plan (it changes in "
TWO = '{"origin": 1, "plans": {"never": [{}, {}, {}], "always": [{"a": "on"}, {"a": "on"}, {"a": "on"}]}}'
ONE = '{"origin": 1, "plans": {"always": [{"a": "on"}, {"a": "on"}, {"a": "on"}]}}'
SHORT = '{"origin": 1, "plans": {"never": [{}], "always": [{"a": "on"}]}}'


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a world whose treatment reacts, and a regression and a model with effects of it."""
    folder = tmp_path_factory.mktemp("effects") / "w"
    folder.mkdir()
    write_dataset(folder / "data.h5", LINEAR.dataset(n=150))
    for method in ("ridge", "mixed"):
        assert main(["finetune", "--method", method, "--workspace", str(folder), "--quiet"]) == 0
    return folder


def lines(run: Run) -> list[str]:
    assert run.code == 0, run.err
    return [line for line in (run.out + run.err).splitlines() if LINE in line]


def test_finetune_says_it_and_suggests_a_method_that_adjusts(made: Path, call: Call) -> None:
    run = call("finetune", "--method", "ridge", "--workspace", made)  # up to date
    [line] = lines(run)
    assert "Ridge regression forecasts" in line
    document = call("finetune", "--method", "ridge", "--workspace", made, "--json").document
    assert document["result"]["reactions"]["adjusts"] == "none"
    assert any("--method growth" in command for command in document["next"])
    other = call("finetune", "--method", "mixed", "--workspace", made, "--json").document
    assert other["result"]["reactions"]["adjusts"] == "all"
    assert not any("--method" in command and "--domain" not in command for command in other["next"])


@pytest.mark.parametrize("verb", ["one subject", "averages", "search"])
def test_what_compares_plans_says_it_once(made: Path, call: Call, verb: str) -> None:
    Path("two.json").write_text(TWO, "utf-8")
    words = {
        "one subject": ("whatif", "--subject", 2_000_000, "--plan", "two.json"),
        "averages": ("whatif", "--subjects", "source/test", "--plan", "two.json", "--average"),
        "search": ("search", "--subject", 2_000_000, "--origin", 1, "--minimise", "y at end"),
    }[verb]
    [line] = lines(call(*words, "--workspace", made, "--model", made / "model-ridge.h5"))
    assert "model `model-ridge` " in line
    assert "; `--method growth` adjusts" in line
    assert lines(call(*words, "--workspace", made, "--model", made / "model-mixed.h5")) == []


@pytest.mark.parametrize("plans", [ONE, SHORT])
def test_one_plan_and_plans_of_one_step_need_no_word(made: Path, call: Call, plans: str) -> None:
    Path("plan.json").write_text(plans, "utf-8")
    model = ("--workspace", made, "--model", made / "model-ridge.h5", "--plan", "plan.json")
    assert lines(call("whatif", "--subject", 2_000_000, *model)) == []
    assert lines(call("whatif", "--subjects", "source/test", "--average", *model)) == []


def test_the_card_of_a_model_says_it_among_its_limits(made: Path, call: Call) -> None:
    for method, count in (("ridge", 1), ("mixed", 0)):
        assert call("inspect", made / f"model-{method}.h5", "--report", f"{method}.html").code == 0
        assert Path(f"{method}.html").read_text("utf-8").count(LINE) == count
