"""The Python API makes what the command line makes, to the last byte, and refuses what it refuses."""

import csv
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import costar_cli as costar
from costar_cli.cli.app import main
from costar_cli.errors import ArtifactError, MismatchError, UsageError
from costar_cli.files import read_header
from costar_cli.reporting import NullReporter
from tests.api.worlds import COHORT, QUICK, flags


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command line makes of the cohort: data, encoder, and models of three kinds."""
    root = tmp_path_factory.mktemp("api")
    place, training = ["--workspace", str(root), "--quiet"], flags(QUICK)
    assert main(["simulate", "tumor", *flags({"gamma": 10.0, "seed": 3, **COHORT}), *place]) == 0
    assert main(["pretrain", *training, *place]) == 0
    assert main(["finetune", *training, *place]) == 0
    assert main(["finetune", "--domain", "target", *training, *place]) == 0
    assert main(["finetune", "--method", "ridge", *flags({"preset": "quick"}), *place]) == 0
    return root


def test_a_simulated_data_set_is_the_file_of_the_command_line(dataset, workspace, tmp_path):
    assert dataset.digest == read_header(workspace / "data.h5").digest
    dataset.save(tmp_path / "data.h5")
    assert (tmp_path / "data.h5").read_bytes() == (workspace / "data.h5").read_bytes()
    assert costar.read_dataset(workspace / "data.h5").digest == dataset.digest
    with pytest.raises(MismatchError):
        dataset.save(tmp_path / "data.h5")


def test_the_same_seed_and_settings_give_the_weights_of_the_command_line(dataset, model, ridge, workspace, tmp_path):
    assert model.digest == read_header(workspace / "model.h5").digest
    adapted = costar.fit(dataset, domain="target", start=model, **QUICK)
    assert adapted.digest == read_header(workspace / "model-target.h5").digest
    assert ridge.digest == read_header(workspace / "model-ridge.h5").digest
    adapted.save(tmp_path / "model.h5")
    assert (tmp_path / "model.h5").read_bytes() == (workspace / "model-target.h5").read_bytes()


def test_an_encoder_is_pretrained_once_for_several_fits(dataset, model, workspace, tmp_path):
    encoder = costar.pretrain(dataset, **QUICK)
    assert encoder.digest == read_header(workspace / "encoder.h5").digest
    encoder.save(tmp_path / "encoder.h5")
    assert costar.fit(dataset, start=encoder, **QUICK).digest == model.digest


def test_a_model_is_saved_under_no_name_of_a_table(model, tmp_path):
    with pytest.raises(UsageError, match="what is written is an artifact, HDF5") as error:
        model.save(tmp_path / "m.csv")
    assert (error.value.where, error.value.fix) == ("path=", "end the name in .h5")
    assert not (tmp_path / "m.csv").exists()


def test_a_loaded_model_is_the_saved_one(model, tmp_path):
    model.save(tmp_path / "model.h5")
    loaded = costar.load_model(tmp_path / "model.h5", device="cpu")
    assert (loaded.method, loaded.members, loaded.horizon, loaded.domain) == ("costar", 2, 6, "source")
    assert loaded.digest == model.digest
    assert repr(loaded) == repr(model) == f"<Model costar on source, horizon 6: 2 members, {model.digest[:8]}>"
    loaded.save(tmp_path / "again.h5")
    assert (tmp_path / "again.h5").read_bytes() == (tmp_path / "model.h5").read_bytes()
    with pytest.raises(ArtifactError, match="not a model"):
        costar.load_model(_data(tmp_path))


def _data(folder: Path) -> Path:
    costar.simulate("linear", preset="quick", train=4, val=2, test=2, target_val=2, target_test=2).save(folder / "d.h5")
    return folder / "d.h5"


def test_numbers_of_numpy_are_numbers(dataset):
    again = costar.simulate("tumor", gamma=np.float32(10), seed=np.int64(3), **COHORT)
    assert again.digest == dataset.digest


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda d: costar.simulate("tumr"), r"no data set 'tumr'[\s\S]*did you mean 'tumor'"),
        (lambda d: costar.simulate("tumor", gama=1), "`gama=`: no such setting, did you mean `gamma`"),
        (lambda d: costar.simulate("tumor", train=0, steps="x"), r"2 settings[\s\S]*train = 0[\s\S]*steps = 'x'"),
        (lambda d: costar.simulate("tumor", preset="quik"), r"no preset 'quik'[\s\S]*did you mean 'quick'"),
        (lambda d: costar.fit(d, "cnr"), r"no method 'cnr'[\s\S]*did you mean 'crn'"),
        (lambda d: costar.fit(d, epoch=1), "`epoch=`: no such setting, did you mean `epochs`"),
        (lambda d: costar.fit(d, pretrain={"epoch": 1}), r"pretrain.epoch \(`pretrain=`\): no such setting"),
        (lambda d: costar.fit(d, epochs=0), r"finetune.epochs = 0 \(`epochs=`\): expected an integer, at least 1"),
        (lambda d: costar.fit(d, domain="target"), r"starts from the source model[\s\S]*start=source"),
        (lambda d: costar.fit(d, "ridge", init="scratch"), "only COSTAR is pretrained, ridge is not"),
        (lambda d: costar.fit(d, start="model.h5"), "cannot start from str"),
    ],
)
def test_what_is_not_understood_is_said_with_place_and_fix(dataset, call, problem):
    with pytest.raises(UsageError, match=problem):
        call(dataset)


def test_an_error_shows_problem_place_and_fix():
    error = UsageError("no such thing", where="here", fix="look there", details=["one", "two"])
    assert str(error) == "no such thing\n  - one\n  - two\n  where: here\n  fix: look there"
    assert issubclass(UsageError, costar.CostarError)


@pytest.mark.filterwarnings("ignore:worse than the last value:costar_cli.errors.CostarWarning")
def test_nothing_is_printed_unless_progress_is_asked_for(dataset, capfd):
    costar.fit(dataset, "mixed")
    assert capfd.readouterr() == ("", "")
    costar.fit(dataset, init="scratch", progress=True, **QUICK | {"members": 1})
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "done" in printed.err


def test_a_reporter_of_ones_own_hears_that_a_data_set_was_changed(dataset, ridge):
    heard = NullReporter()
    panels = {part: panel.take(np.arange(4)) for part, panel in dataset.panels.items()}
    changed = replace(dataset, panels=panels, queries={}, truth={})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        costar.fit(changed, "ridge", domain="target", start=ridge, progress=heard)
    assert "trained on another data set" in heard.warnings[0]


def test_warnings_point_to_the_caller(dataset, ridge):
    with pytest.warns(costar.CostarWarning) as caught:
        costar.fit(replace(dataset, config={"other": 1}), "ridge", domain="target", start=ridge)
    assert {warning.filename for warning in caught} == {__file__}


def test_an_interrupted_fit_goes_on_from_its_checkpoints(dataset, model, tmp_path):
    class Stopping(NullReporter):
        def task(self, title, **facts):
            if "fine" in title.lower():
                raise KeyboardInterrupt
            return super().task(title, **facts)

    settings = {"pretrain": {"epochs": 1}, "checkpoints": tmp_path / "runs", **QUICK}
    with pytest.raises(KeyboardInterrupt):
        costar.fit(dataset, progress=Stopping(), **settings)
    assert (tmp_path / "runs" / "encoder.h5").exists()
    assert costar.fit(dataset, **settings).digest == model.digest
    assert list((tmp_path / "runs").iterdir()) == []


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, costar_cli; print(dir(costar_cli)); print([m for m in sys.modules if "
    code += "(m.startswith('costar_cli.') and 'config' not in m)"
    code += " or m in ('numpy', 'torch', 'pandas', 'polars', 'pydantic', 'h5py', 'typer')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, loaded = done.stdout.splitlines()
    assert loaded == "[]"
    assert all(repr(name) in names for name in costar.__all__)


def test_no_name_of_the_api_is_that_of_a_module():
    package = Path(costar.__file__).parent
    modules = {path.stem for path in package.glob("*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    assert modules & set(costar.__all__) == set()
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        costar.fitt  # noqa: B018


def test_files_in_a_known_form_are_ingested_as_by_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # whose workspace the verbs lock
    items = {"train_items": 1, "val_items": 1, "test_items": 1}
    items |= {"target_train_items": 1, "target_val_items": 1, "target_test_items": 1}
    world = ["--scale", "0.01", "--preset", "quick", "--export", str(tmp_path / "m5"), *flags(items)]
    assert main(["simulate", "m5", *world, "--out", str(tmp_path / "world.h5"), "--quiet"]) == 0
    asked = ["--preset", "quick", *flags(items), "--out", str(tmp_path / "data.h5"), "--quiet"]
    assert main(["ingest", "m5", str(tmp_path / "m5"), *asked]) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", costar.CostarWarning)
        ingested = costar.ingest("m5", tmp_path / "m5", preset="quick", **items)
    assert ingested.digest == read_header(tmp_path / "data.h5").digest
    assert set(ingested.parents) == set(read_header(tmp_path / "data.h5").parents) != set()
    with pytest.raises(UsageError, match=r"no data set 'M5'[\s\S]*did you mean 'm5'"):
        costar.ingest("M5", tmp_path)
    with pytest.raises(UsageError, match="`stays` is about the embedded cohort"):
        costar.simulate("mimic", mimic_extract=tmp_path / "x.h5", stays=10)


def test_epochs_are_logged_and_the_same_call_continues_the_log(dataset, tmp_path):
    log = tmp_path / "log.csv"
    quick = QUICK | {"pretrain": {"epochs": 1}}
    costar.fit(dataset, log=log, **quick)
    with log.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["stage"], row["member"]) for row in rows] == [(s, m) for s in ("pretrain", "finetune") for m in "12"]
    costar.fit(dataset, log=log, **quick)
    assert len(log.read_text().splitlines()) == 1 + len(rows)
    with pytest.raises(costar.CostarError, match="exists and is no log of this run") as caught:
        costar.fit(dataset, log=log, **quick | {"epochs": 2})
    assert (caught.value.where, caught.value.fix) == ("log=", "choose another name, or delete it")
