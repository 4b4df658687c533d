"""Where differences between plans are forecasts and no effects, every verb that compares plans says so in one line."""

from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl
import pytest
from cli_world import Run

from costar_cli.cli.app import main
from costar_cli.data.store import write_dataset
from tests.feedback_worlds import BINARY, LINEAR

Call = Callable[..., Run]

LINE = "forecasts and does not adjust for treatment that reacts to the course inside a plan (it changes in "
TWO = '{"origin": 1, "plans": {"never": [{}, {}, {}], "always": [{"a": "on"}, {"a": "on"}, {"a": "on"}]}}'
TRUNCATED = "weights at the last step, so that effects lean to unadjusted ones"
ONE = '{"origin": 1, "plans": {"always": [{"a": "on"}, {"a": "on"}, {"a": "on"}]}}'
SHORT = '{"origin": 1, "plans": {"never": [{}], "always": [{"a": "on"}]}}'


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a world whose treatment reacts, and a regression and a model with effects of it."""
    folder = tmp_path_factory.mktemp("effects") / "w"
    folder.mkdir()
    write_dataset(folder / "data.h5", LINEAR.dataset(n=150))
    for method in ("ridge", "mixed", "msm"):
        assert main(["finetune", "--method", method, "--workspace", str(folder), "--quiet"]) == 0
    return folder


def lines(run: Run, words: str = LINE) -> list[str]:
    assert run.code == 0, run.err
    return [line for line in (run.out + run.err).splitlines() if words in line]


def test_finetune_says_it_and_suggests_a_method_that_adjusts(made: Path, call: Call) -> None:
    run = call("finetune", "--method", "ridge", "--workspace", made, "--show", "notes")  # up to date
    [line] = lines(run)
    assert "Ridge regression forecasts" in line
    document = call("finetune", "--method", "ridge", "--workspace", made, "--json").document
    assert document["result"]["reactions"]["adjusts"] == "none"
    assert any("--method growth" in command for command in document["next"])
    for method in ("mixed", "msm"):
        other = call("finetune", "--method", method, "--workspace", made, "--json").document
        assert other["result"]["reactions"]["adjusts"] == "all"
        assert ("truncated_share" in other["result"]["reactions"]) is (method == "msm")
        assert not any("--method" in command and "--domain" not in command for command in other["next"])


COMPARES: Mapping[str, tuple[object, ...]] = {
    "one subject": ("whatif", "--subject", 2_000_000, "--plan", "two.json"),
    "averages": ("whatif", "--subjects", "source/test", "--plan", "two.json", "--average"),
    "search": ("search", "--subject", 2_000_000, "--origin", 1, "--minimise", "y at end"),
}


@pytest.mark.parametrize("words", COMPARES.values(), ids=COMPARES)
def test_what_compares_plans_says_it_once(made: Path, call: Call, words: tuple[object, ...]) -> None:
    Path("two.json").write_text(TWO, "utf-8")
    [line] = lines(call(*words, "--workspace", made, "--model", made / "model-ridge.h5", "--show", "notes"))
    assert "model `model-ridge` " in line
    assert "; `--method growth` adjusts" in line
    assert lines(call(*words, "--workspace", made, "--model", made / "model-mixed.h5")) == []


@pytest.mark.parametrize("words", COMPARES.values(), ids=COMPARES)
def test_truncated_weights_are_told_where_plans_are_compared(made: Path, call: Call, words: tuple[object, ...]) -> None:
    Path("two.json").write_text(TWO, "utf-8")
    [line] = lines(call(*words, "--workspace", made, "--model", made / "model-msm.h5"), TRUNCATED)
    assert "model `model-msm` leaves out a part of what treatment reacts to" in line


def test_finetune_on_a_binary_outcome_says_that_a_rollout_shrinks_effects(tmp_path: Path, call: Call) -> None:
    write_dataset(tmp_path / "data.h5", BINARY.dataset(n=150))
    quick = ("--method", "growth", "--workspace", tmp_path, "--members", 1, "--epochs", 3)
    [line] = lines(call("finetune", *quick, "--show", "notes"), "makes effects on binary outcomes too small")
    assert line.endswith("forecasts, not effects; `--method msm` adjusts")
    document = call("finetune", *quick, "--json").document
    assert document["result"]["reactions"]["adjusts"] == "shrunk"
    assert any("--method msm" in command for command in document["next"])


@pytest.mark.parametrize("plans", [ONE, SHORT])
def test_one_plan_and_plans_of_one_step_need_no_word(made: Path, call: Call, plans: str) -> None:
    Path("plan.json").write_text(plans, "utf-8")
    model = ("--workspace", made, "--model", made / "model-ridge.h5", "--plan", "plan.json")
    assert lines(call("whatif", "--subject", 2_000_000, *model)) == []
    assert lines(call("whatif", "--subjects", "source/test", "--average", *model)) == []


def test_the_card_of_a_model_says_it_among_its_limits(made: Path, call: Call) -> None:
    for method, words, count in (("ridge", LINE, 1), ("mixed", LINE, 0), ("msm", TRUNCATED, 1)):
        assert call("inspect", made / f"model-{method}.h5", "--report", f"{method}.html").code == 0
        assert Path(f"{method}.html").read_text("utf-8").count(words) == count


def test_averages_of_a_forecast_are_corrected_where_enough_follow_and_say_so(made: Path, call: Call) -> None:
    Path("short.json").write_text(SHORT)
    words = ["whatif", "--workspace", made, "-m", made / "model-ridge.h5", "--subjects", "source/train", "--average"]
    run = call(*words, "--plan", "short.json", "--csv", "a.csv", "--plot", "a.png", "--show", "notes")
    [heading] = lines(run, "by model-ridge, corrected")
    assert heading.startswith("Mean y after 1 step (90 % CI), 150 answers, ")
    assert len(lines(run, "are corrected by what came of those who followed a plan")) == 1
    assert "targeted maximum likelihood" in run.err
    assert lines(run, "have no interval:") == []  # 69 of 150 follow `always` for a step
    table = pl.read_csv("a.csv")
    assert table["estimator"].to_list() == ["tmle"] * 3
    for row in table.to_dicts():
        assert row["lower"] < row["estimate"] < row["upper"]
        assert row["estimate"] != row["model_estimate"]
    Path("two.json").write_text(TWO)
    document = call(*words, "--plan", "two.json", "--json").document
    last = [row for row in document["result"]["averages"] if row["step"] == 3 and row["quantity"] == "outcome"]
    assert all("follow the plan through step 3, of 50 needed; by step" in row["interval_kind"] for row in last)
    assert call(*words, "--plan", "short.json", "-m", made / "model-mixed.h5").out.count("corrected") == 1
