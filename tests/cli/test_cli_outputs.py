"""No verb replaces what it reads, another's file without `--overwrite`, or anything but a regular file."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import PLAN, TINY_COHORT, Run, write_ward

from costar_cli.cli.views import EvaluationFiles
from costar_cli.errors import ExitCode
from costar_cli.evaluation.report import read_evaluation
from costar_cli.files import file_sha256, read_artifact, read_header, write_artifact
from costar_cli.files.digest import shown_in
from costar_cli.report.figures.style import figure, save

Call = Callable[..., Run]
ASK = ["whatif", "-s", 1, "-p", "plan.json"]
COHORT = ["whatif", "--subjects", "people.txt", "-p", "plan.json"]
SEARCH = ["search", "-s", 1, "--minimise", "tumour_volume at end"]
EVALUATE = ["evaluate", "--no-plots", "--bootstrap", 0]
INSPECT = ["inspect", "costar-workspace/data.h5"]
WARD = ["patient,day,pressure,drug", *(f"{n},{day},{n + day},none" for n in range(40) for day in range(9))]
BENCHMARK = ["benchmark", "tumor", "--preset", "quick"]
DATA, MODEL, ENCODER = (f"costar-workspace/{name}.h5" for name in ("data", "model", "encoder"))


def furnished(folder: Path, trained: Path) -> Path:
    """A folder with a workspace, a plan, a file of subjects, settings, and somebody's own file."""
    shutil.copytree(trained, folder / "costar-workspace")
    (folder / "plan.json").write_text(PLAN)
    (folder / "people.txt").write_text("1\n2\n")
    (folder / "own.csv").write_text("mine")
    (folder / "settings.toml").write_text("[runtime]\nthreads = 1\n")
    os.mkfifo(folder / "pipe.csv")
    (folder / "folder.csv").mkdir()
    (folder / "own" / "schema.toml").mkdir(parents=True)
    (folder / "old").mkdir()
    (folder / "old" / "table.parquet").write_text("mine")
    for name in ("cells.csv", "sweep.md"):
        (folder / "own" / name).write_text("mine")
    shutil.copy(trained / "data.h5", folder / "d.h5")
    (folder / "table.csv").write_text("a table")
    behind = {"table": file_sha256(folder / "table.csv")}
    dataset = read_artifact(folder / "d.h5")
    write_artifact(folder / "behind.h5", kind="dataset", arrays=dataset.arrays, meta=dataset.meta, parents=behind)
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path) -> Path:
    """The current folder, furnished."""
    return furnished(tmp_path, trained)


@pytest.fixture(scope="module")
def kept(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A furnished folder in which nothing is ever written."""
    return furnished(tmp_path_factory.mktemp("kept"), trained)


def contents(folder: Path) -> dict[Path, bytes]:
    hidden = (".lock", ".lock-holder")
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name not in hidden}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([*EVALUATE, "--csv", "own.csv"], ExitCode.MISMATCH, "`own.csv` exists"),
        ([*EVALUATE, "--csv", DATA, "--overwrite"], ExitCode.MISMATCH, f"`{DATA}` is the data set that is read"),
        ([*EVALUATE, "--out", MODEL, "--overwrite"], ExitCode.MISMATCH, f"`{MODEL}` is the model that is read"),
        ([*EVALUATE, "--csv", "e.h5", "--out", "e.h5"], ExitCode.USAGE, "--out and --csv write `e.h5`"),
        ([*EVALUATE, "--csv", "pipe.csv", "--overwrite"], ExitCode.STORAGE, "no regular file"),
        ([*EVALUATE, "--csv", "missing/e.csv"], ExitCode.STORAGE, "there is no folder `missing`"),
        ([*EVALUATE, "--csv", "x" * 256], ExitCode.STORAGE, "a name is too long for the disk"),
        (["finetune", "--out", "é" * 128], ExitCode.STORAGE, "a name is too long for the disk"),
        ([*ASK, "--csv", "x" * 300], ExitCode.STORAGE, "a name is too long for the disk"),
        ([*EVALUATE, "--csv", "-"], ExitCode.USAGE, "nothing is written to standard output"),
        ([*EVALUATE, "--csv", "--overwrite"], ExitCode.USAGE, "`--overwrite` is no name of an output"),
        (["evaluate", "--plots", "--overwrite"], ExitCode.USAGE, "looks like an option"),
        ([*EVALUATE, "--out", "r.csv"], ExitCode.USAGE, "both --out and --csv write `r.csv`"),
        ([*EVALUATE, "--csv", ENCODER, "--overwrite"], ExitCode.MISMATCH, "is the encoder behind the model"),
        ([*EVALUATE, "--data", "d.h5", "--csv", DATA, "--overwrite"], ExitCode.MISMATCH, "is the data set"),
        (["evaluate", "--plots", "own.csv"], ExitCode.STORAGE, "`own.csv` is no folder"),
        ([*EVALUATE, "--predictions", "own.csv"], ExitCode.MISMATCH, "`own.csv` exists"),
        ([*EVALUATE, "--predictions", "rows.txt"], ExitCode.USAGE, "end the name in .csv, .parquet, .jsonl"),
        ([*ASK, "--csv", "plan.json", "--overwrite"], ExitCode.MISMATCH, "`plan.json` is the plan that is read"),
        ([*ASK, "--report", DATA, "--overwrite"], ExitCode.MISMATCH, "is the data set that is read"),
        ([*ASK, "--out", MODEL, "--overwrite"], ExitCode.MISMATCH, "is the model that is read"),
        ([*ASK, "-m", MODEL, "--out", MODEL, "--overwrite"], ExitCode.MISMATCH, "is the model that is read"),
        (
            [*ASK, "--config", "settings.toml", "--csv", "settings.toml", "--overwrite"],
            ExitCode.MISMATCH,
            "`settings.toml` is the configuration that is read",
        ),
        ([*ASK, "--csv", "a.csv", "--report", "./a.csv"], ExitCode.USAGE, "both --csv and --report write `a.csv`"),
        ([*ASK, "--report", ENCODER, "--overwrite"], ExitCode.MISMATCH, "is the encoder behind the model"),
        ([*ASK, "--report", "--overwrite"], ExitCode.USAGE, "give --report a name, and `--overwrite` after it"),
        ([*ASK, "--report", "a.pdf"], ExitCode.USAGE, "a report is an HTML page, not `a.pdf`"),
        ([*SEARCH, "--report", "a.pdf"], ExitCode.USAGE, "end the name in .html"),
        ([*INSPECT, "--report", "a.json"], ExitCode.USAGE, "a report is an HTML page, not `a.json`"),
        (["inspect", MODEL, "--report", "card.md"], ExitCode.USAGE, "a report is an HTML page, not `card.md`"),
        ([*EVALUATE, "--out", "e.json"], ExitCode.USAGE, "is an artifact, HDF5, not `e.json`"),
        ([*ASK, "--out", "a.parquet"], ExitCode.USAGE, "end the name in .h5"),
        (["finetune", "--out", "m.csv"], ExitCode.USAGE, "is an artifact, HDF5, not `m.csv`"),
        (["simulate", "tumor", *TINY_COHORT, "-o", "d.txt"], ExitCode.USAGE, "end the name in .h5"),
        ([*ASK, "--csv", "a.xls"], ExitCode.USAGE, "end the name in .csv, .parquet, .jsonl"),
        ([*EVALUATE, "--csv", "e.parquet"], ExitCode.USAGE, "end the name in .csv"),
        ([*ASK, "--csv", "missing/a.csv"], ExitCode.STORAGE, "there is no folder `missing`"),
        ([*ASK, "--csv", "-"], ExitCode.USAGE, "nothing is written to standard output"),
        ([*ASK, "--csv", "folder.csv", "--overwrite"], ExitCode.STORAGE, "`folder.csv` is a folder"),
        ([*ASK, "--csv", "pipe.csv", "--overwrite"], ExitCode.STORAGE, "`pipe.csv` is no regular file"),
        ([*COHORT, "--csv", "people.txt", "--overwrite"], ExitCode.MISMATCH, "is the file of subjects that is read"),
        ([*SEARCH, "--csv", DATA, "--overwrite"], ExitCode.USAGE, "end the name in .csv"),
        (
            [*SEARCH, "--reference", "plan.json", "--out", "plan.json", "--overwrite"],
            ExitCode.MISMATCH,
            "`plan.json` is the plan that is read",
        ),
        ([*SEARCH, "--data", "own.csv", "--csv", "own.csv", "--overwrite"], ExitCode.MISMATCH, "is the data set"),
        ([*INSPECT, "--report", DATA, "--overwrite"], ExitCode.MISMATCH, "is the data set that is read"),
        ([*INSPECT, "--report", "own.csv"], ExitCode.MISMATCH, "`own.csv` exists"),
        ([*INSPECT, "--report", "x/table.csv", "--export", "x", "--format", "csv"], ExitCode.USAGE, "both --report"),
        ([*INSPECT, "--report", "pipe.csv", "--overwrite"], ExitCode.STORAGE, "`pipe.csv` is no regular file"),
        ([*INSPECT, "--export", "own"], ExitCode.STORAGE, "`own/schema.toml` is a folder"),
        ([*INSPECT, "--report", "p.html", "--export", "old"], ExitCode.MISMATCH, "`old/table.parquet` exists"),
        ([*INSPECT, "--report", "p.html", "--export", "own.csv"], ExitCode.STORAGE, "`own.csv` is no folder"),
        (["inspect", MODEL, "--report", "p.html", "--export", "x"], ExitCode.ARTIFACT, "holds a model, not a data"),
        (["inspect", "behind.h5", "--report", "table.csv", "--overwrite"], ExitCode.MISMATCH, "the table behind"),
        ([*BENCHMARK, "--folder", "own"], ExitCode.MISMATCH, "`own/cells.csv` exists and is no file of a benchmark"),
        ([*BENCHMARK, "--folder", "own", "--gamma", "0,2"], ExitCode.MISMATCH, "`own/sweep.md` exists and is no file"),
        (["inspect", MODEL, "--report", DATA, "--overwrite"], ExitCode.MISMATCH, "the data set behind the model"),
        (["pretrain", "--out", DATA, "--overwrite"], ExitCode.MISMATCH, "is the data set that is read"),
        (["pretrain", "--fresh", "--out", "folder.csv"], ExitCode.STORAGE, "`folder.csv` is a folder"),
        (["finetune", "--out", "m.csv", "--log", "m.csv"], ExitCode.USAGE, "both --out and --log write `m.csv`"),
        (["finetune", "--out", "m.h5", "--log", "own.csv"], ExitCode.MISMATCH, "is no log of this run"),
        (["finetune", "--out", "m.h5", "--log", "pipe.csv", "--overwrite"], ExitCode.STORAGE, "no regular file"),
        (
            ["simulate", "tumor", *TINY_COHORT, "--config", "settings.toml", "-o", "settings.toml", "--overwrite"],
            ExitCode.MISMATCH,
            "`settings.toml` is the configuration that is read",
        ),
    ],
)  # fmt: skip
def test_an_output_that_would_replace_what_it_must_not_is_refused_before_any_work(
    words: list[object], code: ExitCode, said: str, kept: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(kept)
    before = contents(kept)
    run = call(*words)
    assert run.code == code, run.err
    assert said in run.err
    if "that is read" in run.err:
        assert "add --overwrite" not in run.err
    assert contents(kept) == before


def test_tables_models_and_schemas_that_ingest_reads_are_never_replaced(tmp_path: Path, call: Call) -> None:
    ingest = write_ward(Path(), WARD, horizon=2)
    assert call(*ingest).code == 0
    assert call("finetune", "--method", "ridge", "-o", "m.h5").code == 0
    before = contents(tmp_path)
    for words, said in (
        (["ingest", "table", "t.csv", "--like", "m.h5", "-o", "m.h5"], "`m.h5` is the model that is read"),
        (["ingest", "table", "t.csv", "--init", "-o", "t.csv"], "`t.csv` is the table that is read"),
        ([*ingest, "-o", "s.toml"], "`s.toml` is the schema that is read"),
        ([*ingest, "-o", "t.csv"], "`t.csv` is the table that is read"),
    ):
        run = call(*words, "--overwrite")
        assert run.code == ExitCode.MISMATCH, run.err
        assert said in run.err
    assert contents(tmp_path) == before


def test_an_export_does_not_replace_the_schema_that_its_data_set_was_made_by(tmp_path: Path, call: Call) -> None:
    rows = [f"{n},{day},{n % 3 + day},{'drug' if (n + day) % 2 else 'none'}" for n in range(30) for day in range(6)]
    ingest = write_ward(tmp_path, ["patient,day,pressure,drug", *rows], horizon=2)
    own, data = tmp_path / "schema.toml", tmp_path / "o.h5"
    own.write_text((tmp_path / "s.toml").read_text() + "# mine\n")
    ingest[ingest.index("--schema") + 1] = str(own)
    assert call(*ingest, "--out", data).code == 0
    mine = own.read_bytes()
    refused = call("inspect", data, "--export", tmp_path, "--overwrite")
    assert refused.code == ExitCode.MISMATCH
    assert "is the schema behind the data set that is read" in refused.err
    assert own.read_bytes() == mine
    own.write_bytes(mine + b"# a remark changes nothing\n")
    assert call("inspect", data, "--export", tmp_path, "--overwrite").code == ExitCode.MISMATCH
    own.write_text("# written anew")
    for _ in range(2):
        assert call("inspect", data, "--export", tmp_path, "--overwrite").code == 0


@pytest.mark.parametrize("name", ["😀" * 60 + ".h5", "x" * 254])
def test_a_long_name_that_the_disk_allows_is_written(name: str, here: Path, call: Call) -> None:
    run = call("finetune", "--method", "ridge", "--out", name)
    assert run.code == 0, run.err
    assert (here / name).is_file()


def test_the_table_of_an_evaluation_is_made_again_with_it_and_no_other_is(here: Path, call: Call) -> None:
    assert call(*EVALUATE).code == 0
    table = here / "costar-workspace" / "evaluation.csv"
    first = table.read_bytes()
    table.write_text("old")
    assert call(*EVALUATE, "--overwrite").code == 0
    assert table.read_bytes() == first
    assert call(*EVALUATE, "--csv", "scores.csv").code == 0
    assert call(*EVALUATE, "--csv", "scores.csv").code == 0
    assert (here / "scores.csv").read_bytes() == first
    assert call(*EVALUATE, "--csv", "own.csv").code == ExitCode.MISMATCH
    assert call(*EVALUATE, "--csv", "own.csv", "--overwrite").code == 0
    assert (here / "own.csv").read_bytes() == first


def test_a_fit_in_closed_form_says_that_it_has_no_epochs_and_leaves_no_log(here: Path, call: Call) -> None:
    run = call("finetune", "--method", "ridge", "-o", "m.h5", "--log", "log.csv")
    assert run.code == 0, run.err
    assert "this method has no epochs to log" in run.err
    assert not (here / "log.csv").exists()


DRAWN = {"learning.png", "trajectories.png", "representations.png", "natural_course.png", "rmse.png"}


@pytest.fixture
def sketches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures that are empty, and drawn in no time, but saved as all others are."""

    def sketch(*arguments: object, **_: object) -> Path:
        with figure(1, 1) as drawn:
            return save(drawn, next(one for one in arguments if isinstance(one, Path)))

    for name in ("learning.plot_learning", "trajectories.plot_trajectories", "evaluation.plot_natural",
                 "evaluation.plot_rmse", "embedding.plot_representations"):  # fmt: skip
        monkeypatch.setattr(f"costar_cli.report.figures.{name}", sketch)


@pytest.mark.usefixtures("sketches")
@pytest.mark.parametrize("killed_at", ["table", "rmse.png"])
def test_a_killed_evaluation_leaves_no_view_of_an_older_one(
    killed_at: str, here: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, evaluate = here / "costar-workspace", ["evaluate", "--bootstrap", 0]
    assert call(*evaluate, "--level", 0.8).code == 0
    with monkeypatch.context() as patch:
        patch.setattr("costar_cli.files.atomic.os.replace", killed_before(killed_at))
        assert call(*evaluate, "--overwrite").code == ExitCode.INTERRUPTED
    run = call(*evaluate)
    assert run.code == 0
    assert "up to date" in run.out
    digest = read_header(place / "evaluation.h5").digest
    assert {path.name for path in (place / "plots").iterdir()} == DRAWN
    assert {shown_in(path) for path in (place / "plots").iterdir()} == {digest}
    assert (place / "evaluation.csv").read_text() == read_evaluation(place / "evaluation.h5").to_csv()
    assert "wrote" not in call(*evaluate).out


def killed_before(name: str) -> Callable[[Path, Path], None]:
    """A move into place that ends the process where a view of that name would be moved, of a table any."""
    really = os.replace

    def replace(made: Path, target: Path) -> None:
        if target.name == name or (name == "table" and target.suffix == ".csv"):
            raise KeyboardInterrupt
        really(made, target)

    return replace


@pytest.mark.usefixtures("sketches")
def test_figures_replace_figures_of_evaluations_and_nothing_else(here: Path, call: Call) -> None:
    shutil.rmtree(here / "own")
    (here / "own").mkdir()
    (here / "own" / "rmse.png").write_bytes(b"mine")
    run = call("evaluate", "--bootstrap", 0, "--plots", "own")
    assert run.code == ExitCode.MISMATCH
    assert "`own/rmse.png` exists and shows no evaluation" in run.err
    assert call("evaluate", "--bootstrap", 0, "--plots", "own", "--overwrite").code == 0
    pit = here / "own" / "pit.png"
    pit.write_bytes((here / "own" / "rmse.png").read_bytes())
    assert call("evaluate", "--bootstrap", 0, "--level", 0.8, "--out", "e.h5", "--plots", "own").code == 0
    assert {path.name for path in (here / "own").iterdir()} == DRAWN


@pytest.mark.usefixtures("sketches")
def test_an_evaluation_elsewhere_leaves_the_figures_of_the_workspace(here: Path, call: Call) -> None:
    plots = here / "costar-workspace" / "plots"
    assert call("evaluate", "--bootstrap", 0).code == 0
    before = {path: path.read_bytes() for path in plots.iterdir()}
    (here / "elsewhere").mkdir()
    other = here / "elsewhere" / "evaluation.h5"
    assert call("evaluate", "--bootstrap", 0, "--level", 0.8, "--out", other, "--overwrite").code == 0
    assert {path: path.read_bytes() for path in plots.iterdir()} == before
    assert {path.name for path in other.parent.iterdir()} == {"evaluation.h5", "evaluation.csv", "evaluation-plots"}
    assert {path.name for path in (other.parent / "evaluation-plots").iterdir()} == DRAWN


def test_a_refutation_is_beside_its_evaluation(here: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[EvaluationFiles] = []
    monkeypatch.setattr("costar_cli.cli.evaluate.run_evaluate", lambda _, files, *rest, **how: asked.append(files))
    for out in ("costar-workspace/evaluation.h5", "elsewhere/evaluation.h5"):
        assert call("evaluate", "--refute", "--out", out).code == 0
    beside = ["costar-workspace/refutation.h5", "elsewhere/evaluation-refutation.h5"]
    assert [str(files.refutation) for files in asked] == beside


@pytest.mark.usefixtures("sketches")
def test_a_figure_that_is_missing_is_drawn_again_with_the_next_evaluation(here: Path, call: Call) -> None:
    plots = here / "costar-workspace" / "plots"
    assert call("evaluate", "--bootstrap", 0).code == 0
    for name in ("learning.png", "rmse.png"):
        (plots / name).unlink()
        run = call("evaluate", "--bootstrap", 0)
        assert "up to date" in run.out
        assert {path.name for path in plots.iterdir()} == DRAWN
    run = call("evaluate", "--bootstrap", 0)
    assert "wrote" not in run.out


@pytest.mark.usefixtures("sketches")
def test_no_evaluation_removes_a_figure_of_somebody_else_that_it_does_not_draw(here: Path, call: Call) -> None:
    shutil.rmtree(here / "own")
    (here / "own").mkdir()
    (here / "own" / "pit.png").write_bytes(b"mine")
    evaluate = ["evaluate", "--bootstrap", 0, "--plots", "own", "--overwrite"]
    assert call(*evaluate).code == 0
    assert {path.name for path in (here / "own").iterdir()} == {*DRAWN, "pit.png"}
    assert (here / "own" / "pit.png").read_bytes() == b"mine"
