"""The retail panel from the command line: simulate and ingest, train, evaluate, and ask for other prices."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_world import Run

from costar_cli.cli.app import main
from costar_cli.data import Part
from costar_cli.data.store import read_dataset
from costar_cli.files import read_header

Call = Callable[..., Run]
TINY = [
    *("--scale", "0.001", "--train-items", "1", "--val-items", "1", "--test-items", "1"),
    *("--target-train-items", "1", "--target-val-items", "1", "--target-test-items", "1", "--seed", "3"),
]
SMALL_MODEL = {
    **{f"COSTAR_{stage}_ENCODER_{size}": n for stage in ("PRETRAIN", "FINETUNE")
       for size, n in (("WIDTH", "4"), ("LAYERS", "1"))},
    "COSTAR_PRETRAIN_EPOCHS": "1", "COSTAR_FINETUNE_EPOCHS": "1",
    "COSTAR_PRETRAIN_MEMBERS": "1", "COSTAR_FINETUNE_MEMBERS": "1", "COSTAR_RUNTIME_THREADS": "1",
}  # fmt: skip


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A workspace with the tiny panel and models of both domains; look, but do not write."""
    root = tmp_path_factory.mktemp("m5") / "shop"
    place = ["--workspace", str(root), "--quiet"]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL_MODEL.items():
            patch.setenv(name, value)
        assert main(["simulate", "m5", *TINY, *place]) == 0
        assert main(["pretrain", *place]) == 0
        assert main(["finetune", *place]) == 0
        assert main(["finetune", "--domain", "target", *place]) == 0
        yield root


def label_of(shop: Path) -> str:
    """A subject of the target's test part."""
    return read_dataset(shop / "data.h5", queries=False).panels[Part("target", "test")].names[3]


def write_plan(path: Path) -> Path:
    cut, rise = "-15.9 % to -11.0 %", "+19.4 % to +25.2 %"
    plans = {"keep": [{}] * 6, "cut": [{"price_change": cut}] * 6, "rise": [{"price_change": rise}, {}]}
    path.write_text(json.dumps({"origin": 20, "plans": plans}))
    return path


def test_a_simulation_is_the_same_bytes_again_and_a_what_if_knows_its_truth(
    shop: Path, tmp_path: Path, call: Call
) -> None:
    simulated = call("simulate", "m5", *TINY, "-w", "again", "--json")
    assert (simulated.code, simulated.document["status"]) == (0, "done"), simulated.err
    assert [part["part"] for part in simulated.document["result"]["parts"]] == [str(part) for part in Part.all()]
    assert simulated.document["config"]["simulate.m5.scale"] == {"value": 0.001, "origin": "--scale"}
    assert (tmp_path / "again" / "data.h5").read_bytes() == (shop / "data.h5").read_bytes()
    plan, label = write_plan(tmp_path / "plan.json"), label_of(shop)
    words = ["whatif", "--subject", label, "--plan", plan, "--truth", "-w", shop, "--unsupported", "--json"]
    asked = call(*words)
    assert asked.code == 0, asked.err
    answer = asked.document["result"]
    assert answer["label"] == label
    assert answer["plans"]["cut"][0] == {"price_change": "-15.9 % to -11.0 %"}
    assert all(row["truth"] is not None for row in answer["estimates"])
    true = {(row["plan"], row["step"]): row["truth"] for row in answer["estimates"]}
    assert all(true["cut", step] >= true["keep", step] for step in range(1, 7)), "the cheaper plan sells no less"
    assert all(row["truth"] == row["observed"] for row in answer["estimates"] if row["observed"] is not None)


def test_models_record_the_labels_that_they_touched(shop: Path) -> None:
    sizes = {str(part): panel.n_subjects for part, panel in read_dataset(shop / "data.h5").panels.items()}
    meta = read_header(shop / "model-target.h5").meta
    assert meta["trained_on"]["target/train"] == sizes["target/train"]
    assert meta["selected_on"]["target/val"] == sizes["target/val"]


def test_every_set_up_is_scored_on_factual_and_counterfactual_queries(shop: Path, call: Call) -> None:
    run = call(
        "evaluate",
        "--no-plots",
        "--bootstrap",
        "50",
        "-w",
        shop,
        "--json",
        "--out",
        "evaluation.h5",
        "--csv",
        "rows.csv",
    )
    rows = run.document["result"]["rows"]
    kinds = {(row["setup"], row["truth"]) for row in rows if row["basis"] == "ours"}
    assert kinds == {(s, t) for s in ("zero-shot", "few-shot", "supervised") for t in ("factual", "counterfactual")}
    assert {row["basis"] for row in rows} == {"ours", "naive", "limit"}


def test_the_answer_names_price_changes_and_units(shop: Path, tmp_path: Path, call: Call) -> None:
    plan, label = write_plan(tmp_path / "plan.json"), label_of(shop)
    words = ["--truth", "--plot", "plot.png", "-w", shop, "--unsupported"]  # 40 series do not have every class
    run = call("whatif", "--subject", label, "--plan", plan, *words)
    assert run.code == 0
    assert run.out.startswith(f"Subject {label} at the end of each plan: sales in units per week")
    lines = call(
        "whatif", "--subject", label, "--plan", plan, *words[:1], *words[3:], "--show", "days"
    ).out.splitlines()
    assert lines[0].startswith(f"subject {label} (target/test), week 20 of")
    assert lines[1:4] == [
        "plan keep: price_change: week 20-25 no change",
        "plan cut: price_change: week 20-25 -15.9 % to -11.0 %",
        "plan rise: price_change: week 20 +19.4 % to +25.2 %, then no change",
    ]
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_a_plan_may_start_at_the_last_week(shop: Path, tmp_path: Path, call: Call) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('[{"price_change": "-15.9 % to -11.0 %"}, {"price_change": "no change"}]')
    run = call("whatif", "--subject", label_of(shop), "--plan", plan, "--truth", "--json", "-w", shop)
    result = run.document["result"]
    assert run.code == 0
    assert result["origin"] == result["length"] - 1
    assert [row["truth"] is not None for row in result["estimates"]] == [True, True]


def test_the_class_that_no_price_has_is_called_out(shop: Path, tmp_path: Path, call: Call) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('[{"price_change": "unused"}]')
    words = ["whatif", "--subject", label_of(shop), "--plan", plan, "-w", shop, "--json"]
    unseen = call(*words)
    assert (unseen.code, unseen.document["error"]["type"]) == (2, "UsageError")
    assert "gives 'price_change=unused', which no training subject" in unseen.document["error"]["problem"]
    words += ["--unsupported"]
    run = call(*words)
    assert run.code == 0
    assert run.document["warnings"] == run.document["result"]["warnings"]
    [warning] = [line for line in run.document["warnings"] if "gives 'price_change=unused', which no training" in line]
    assert f"warning: {warning}" in run.err
    assert warning not in run.document["result"]["notes"]
    model = next(path for path in shop.glob("model*.h5"))
    assert re.search("never given .*price_change=unused", call("inspect", model).out)
    refused = call(*words, "--truth")
    assert (refused.code, refused.document["error"]["type"]) == (2, "UsageError")
    assert "class `unused`" in refused.document["error"]["problem"]


def test_unknown_price_changes_are_met_with_near_ones(shop: Path, tmp_path: Path, call: Call) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('[{"price_change": "-16 % to -11 %"}, {"price_change": 22}]')
    run = call("whatif", "--subject", label_of(shop), "--plan", plan, "-w", shop)
    assert run.code == 2
    assert "did you mean" in run.err
    assert "-15.9 % to -11.0 %" in run.err
    assert "(22 levels)" in run.err


def test_a_misspelt_subject_is_met_with_near_ones(shop: Path, tmp_path: Path, call: Call) -> None:
    label = label_of(shop)
    run = call("whatif", "--subject", label.lower(), "--plan", write_plan(tmp_path / "p.json"), "-w", shop)
    assert run.code == 2
    assert f"no subject {label.lower()}" in run.err
    assert "fix:" in run.err


def test_the_printed_scores_are_labelled_factual_or_counterfactual(shop: Path, call: Call) -> None:
    words = ["--no-plots", "--bootstrap", "50", "-w", shop, "--out", "evaluation.h5", "--csv", "rows.csv"]
    run, brief = call("evaluate", *words, "--show", "all"), call("evaluate", *words)
    assert (run.code, brief.code) == (0, 0)
    setups = ("zero-shot", "few-shot", "supervised")
    kinds = {f"{setup} ({kind})" for setup in setups for kind in ("factual", "counterfactual")}
    shown = re.findall(r"^(?:zero-shot|few-shot|supervised) \((?:counter)?factual\)", brief.out, re.MULTILINE)
    assert set(shown) <= kinds
    assert len(shown) >= 4
    assert len(brief.out.splitlines()) <= 15
    header, *rows = [
        line.split()
        for line in run.out.splitlines()
        if line.startswith(("setup ", "zero-shot ", "few-shot ", "supervised "))
    ]
    rows = rows[
        : next((at for at, row in enumerate(rows) if row[0] == "setup"), None)
    ]  # errors by light have their own
    assert header[:3] == ["setup", "queries", "model"]
    ours = [row[1] for row in rows if row[2] == "COSTAR" and "(published" not in row]
    assert sorted(ours) == ["counterfactual"] * 3 + ["factual"] * 3
    assert "RMSE in units per week on m5" in run.out


def test_exported_files_are_ingested_to_the_same_panel(tmp_path: Path, call: Call) -> None:
    small = [word for pair in zip(TINY[::2], TINY[1::2], strict=True) if pair[0] != "--scale" for word in pair]
    assert call("simulate", "m5", *TINY, "--export", "files", "-w", "one").code == 0
    run = call("ingest", "m5", "files", *small, "-w", "two", "--json")
    assert (run.code, run.document["status"]) == (0, "done")
    assert {role: Path(file["path"]).name for role, file in run.document["inputs"].items()} == {
        "calendar": "calendar.csv",
        "sell_prices": "sell_prices.csv",
        "sales": "sales_train_evaluation.csv",
    }
    one, two = (read_dataset(Path(name) / "data.h5") for name in ("one", "two"))
    assert one.schema == two.schema
    for part, panel in one.panels.items():
        assert panel.names == two.panels[part].names
        assert (panel.outcomes == two.panels[part].outcomes).all()
        assert (panel.treatments == two.panels[part].treatments).all()
    again = call("ingest", "m5", "files", *small, "-w", "two", "--json")
    assert again.document["status"] == "up_to_date"
    (Path("files") / "sell_prices.csv").write_text((Path("files") / "sell_prices.csv").read_text() + "\n")
    changed = call("ingest", "m5", "files", *small, "-w", "two")
    assert changed.code == 5, "other input, other data set"


def test_truth_is_refused_for_ingested_data(tmp_path: Path, call: Call) -> None:
    """Real M5 has no counterfactuals: nobody knows what would have been sold."""
    call("simulate", "m5", *TINY, "--export", "files", "-w", "one")
    assert call("ingest", "m5", "files", "--train-items", "1", "-w", "two").code == 0
    data = read_dataset(Path("two") / "data.h5")
    assert data.truth == {part: {} for part in data.panels}
    assert {name for sets in data.queries.values() for name in sets} == {"rolling_origin"}


def test_exports_replace_nothing_unless_told_to(tmp_path: Path, call: Call) -> None:
    assert call("simulate", "m5", *TINY, "--export", "files", "-w", "one").code == 0
    before = {path.name: path.read_bytes() for path in Path("files").iterdir()}
    assert set(before) == {"calendar.csv", "sell_prices.csv", "sales_train_evaluation.csv"}
    refused = call("simulate", "m5", *TINY, "--export", "files", "-w", "one", "--json")
    assert (refused.code, refused.document["error"]["type"]) == (5, "MismatchError")
    again = call("simulate", "m5", *TINY, "--export", "files", "-w", "one", "--overwrite", "--json")
    assert (again.code, again.document["status"]) == (0, "up_to_date")
    assert {path.name: path.read_bytes() for path in Path("files").iterdir()} == before
    Path("files/.export.01234567.dir").mkdir()  # what a killed process left
    Path("files/.export.01234567.tmp").touch()
    assert call("simulate", "m5", *TINY, "--export", "files", "-w", "one", "--overwrite").code == 0
    assert {path.name: path.read_bytes() for path in Path("files").iterdir()} == before
    Path("file").write_text("")
    assert call("simulate", "m5", *TINY, "--export", "file", "-w", "two").code == 8
    assert not (tmp_path / "two" / "data.h5").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["ingest", "m5", "nowhere"], 3, "folder not found"),
        (["ingest", "m5", __file__], 3, "this is not a folder but a file"),
        (["ingest", "m5"], 2, "DIR"),
        (["simulate", "m5", "--scale", "2"], 2, "simulate.m5.scale"),
        (["simulate", "m5", "--source-category", "HOUSEHOLD"], 2, "both HOUSEHOLD"),
        (["simulate", "m5", "--target-category", "TOYS"], 2, "TOYS"),
        (["simulate", "m5", "--edges", "some"], 2, "some"),
        (["simulate", "m5", "--horizon", "40"], 2, "simulate.m5.horizon"),
        (["simulate", "m5", "--train-items", "0"], 2, "simulate.m5.train_items"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_questions_have_exit_codes_and_reasons(words: list[str], code: int, message: str, call: Call) -> None:
    run = call(*words, "--json")
    assert run.code == code
    error = run.document["error"]
    assert message in json.dumps(error)
    assert error["exit_code"] == code
