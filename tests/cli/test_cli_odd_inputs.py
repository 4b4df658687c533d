"""Pipes, folders, devices and broken texts as settings, schemas, plans and subjects are refused, with a fix."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from cli_world import environment

from costar_cli.config.toml import read_toml
from costar_cli.data.table.schema_file import read_schema
from costar_cli.errors import CostarError, ExitCode
from costar_cli.plans.read import read_plan_file
from costar_cli.plans.untrusted import parse_json
from costar_cli.questions.subjects import read_subjects
from costar_cli.settings.resolve import from_file

READERS = {
    "settings": from_file,
    "schema": read_schema,
    "plans": read_plan_file,
    "subjects": lambda path: read_subjects(path, flag="--subjects"),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_pipe_without_a_writer_is_refused(tmp_path: Path, read) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CostarError, match="is a pipe that nobody writes to") as caught:
        read(tmp_path / "pipe")
    assert caught.value.fix


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("place", ["folder", "/dev/zero"])
def test_a_folder_and_an_endless_device_are_refused_with_a_fix(tmp_path: Path, read, place: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(CostarError) as caught:
        read(tmp_path / place)
    assert caught.value.fix


@pytest.mark.parametrize(
    "command",
    [
        ["ingest", "mimic", "pipe.h5"],
        ["simulate", "mimic", "--mimic-extract", "zeros.h5"],
        ["ingest", "table", "pipe.h5", "--init"],
    ],
)
def test_a_pipe_and_an_endless_device_are_no_files_of_data(tmp_path: Path, command: list[str]) -> None:
    os.mkfifo(tmp_path / "pipe.h5")
    (tmp_path / "zeros.h5").symlink_to("/dev/zero")
    line = [sys.executable, "-m", "costar_cli", *command]
    done = subprocess.run(
        line, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == ExitCode.DATA, done.stderr
    assert "this is not a file but a pipe or a device" in done.stderr
    assert "save the data in a file" in done.stderr


@pytest.mark.parametrize("late_s", [0.0, 0.3])
def test_a_pipe_is_read_to_its_end(tmp_path: Path, late_s: float) -> None:
    text = "a = 1\n" + "# filling\n" * 20_000  # more than a pipe holds
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Timer(late_s, lambda: (tmp_path / "pipe").write_text(text))
    writer.start()
    assert read_toml(tmp_path / "pipe", "config file") == (text, {"a": 1})
    writer.join()


def test_the_output_of_a_command_is_a_config_file(tmp_path: Path) -> None:
    costar = f"{sys.executable} -m costar_cli"
    line = f"{costar} simulate linear --preset quick -c <(sleep 0.2; echo '[simulate.linear]'; echo 'train = 30')"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=environment(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "text", ["{", b"\xff\xfe", "[" * 100, " " * 2_000_000, "9" * 5_000, '{"a": ' + "9" * 5_000 + "}"]
)
def test_plans_that_are_no_json_have_a_fix_and_nothing_of_python(text) -> None:
    with pytest.raises(CostarError) as caught:
        parse_json(text, where="plan.json", fix="write JSON")
    assert caught.value.fix == "write JSON"
    assert "sys." not in caught.value.problem


def test_numbers_of_thousands_of_digits_in_toml_say_nothing_of_python(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("a = " + "9" * 5_000)
    with pytest.raises(CostarError, match="number of thousands of digits") as caught:
        read_toml(tmp_path / "a.toml", "config file")
    assert "sys." not in caught.value.problem
