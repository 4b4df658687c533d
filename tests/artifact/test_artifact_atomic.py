"""Whatever happens while writing, the path holds the complete old artifact or the complete new one."""

import errno
import os
import resource
import tempfile
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from costar_cli.errors import ArtifactError, MismatchError, StorageError, storage_error, storing
from costar_cli.files import read_artifact, verify_artifact
from tests.artifact.crafting import NEW, OLD, assert_old_and_alone, write

pytestmark = pytest.mark.usefixtures("system")


@contextmanager
def unprivileged():
    """Act as nobody for a while, if this is root, whom permissions do not stop."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def largest_file(n_bytes):
    """Let the system refuse to grow any file beyond a size."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_existing_file_is_kept_unless_overwriting(path):
    before = path.read_bytes()
    with pytest.raises(MismatchError) as caught:
        write(path, NEW)
    assert caught.value.where == str(path)
    assert "--overwrite" in (caught.value.fix or "")
    assert path.read_bytes() == before
    write(path, NEW, overwrite=True)
    np.testing.assert_array_equal(read_artifact(path).arrays["plan"], NEW["plan"])


def test_file_that_appears_meanwhile_is_kept(tmp_path, monkeypatch):
    path = tmp_path / "a.h5"

    def verify(temp):
        path.write_bytes(b"someone else's")
        return verify_artifact(temp)

    monkeypatch.setattr("costar_cli.files.write.verify_artifact", verify)
    with pytest.raises(MismatchError):
        write(path, NEW)
    assert path.read_bytes() == b"someone else's"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("function", ["write", "ftruncate", "fsync", "replace"])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "quota"),
        (OSError(errno.EROFS, "Read-only file system"), "read-only"),
        (PermissionError(errno.EACCES, "Permission denied"), "no permission"),
        (OSError(errno.EIO, "Input/output error"), "cannot be written: Input/output error"),
        (KeyboardInterrupt(), ""),
        (MemoryError(), ""),
    ],
)
def test_failure_at_any_call_leaves_the_old_file_alone(path, monkeypatch, function, error, words):
    def fail(*_arguments):
        raise error

    monkeypatch.setattr(os, function, fail)
    expected = StorageError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected) as caught:
        write(path, NEW, overwrite=True)
    monkeypatch.undo()
    if isinstance(caught.value, StorageError):
        assert words in caught.value.problem
        assert caught.value.where == str(path)
        assert caught.value.fix
    assert_old_and_alone(path)


def test_failure_at_each_single_write_leaves_the_old_file_alone(path, monkeypatch):
    calls, os_write = 0, os.write

    def count(*arguments):
        nonlocal calls
        calls += 1
        if calls == last:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os_write(*arguments)

    monkeypatch.setattr(os, "write", count)
    last, complete = 0, False
    while not complete:
        last, calls = last + 1, 0
        try:
            write(path, NEW, overwrite=True)
            complete = True
        except StorageError:
            assert_old_and_alone(path)
    assert last > 5  # each write has failed once


def test_a_disk_without_inodes_is_told_from_a_full_one(path, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_files=100, f_favail=0))
    found = storage_error(OSError(errno.ENOSPC, "No space left on device"), path.parent / "new" / "a.h5")
    assert "no inodes are left" in found.problem
    assert "remove some files" in found.fix


def test_a_file_that_is_in_the_way_is_told_from_one_that_is_a_part_of_the_path(path):
    with pytest.raises(StorageError, match="a file of that name exists") as caught, storing(path):
        path.open("x")
    assert caught.value.fix == "move it away, or write elsewhere"
    inside = path / "folder" / "a.h5"
    for make in (inside.touch, (path / "folder").mkdir, lambda: path.mkdir(exist_ok=True)):
        with pytest.raises(StorageError, match="a part of the path is a file") as caught, storing(inside):
            make()
        assert caught.value.fix == "give a path in a folder, or write elsewhere"


def test_short_writes_are_continued(tmp_path, monkeypatch):
    os_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: os_write(fd, memoryview(data)[:1000]))
    write(tmp_path / "a.h5", NEW)
    verify_artifact(tmp_path / "a.h5")


def test_file_larger_than_allowed_leaves_the_old_file_alone(path):
    write(path.parent / "new.h5", NEW)
    new_bytes = (path.parent / "new.h5").stat().st_size
    (path.parent / "new.h5").unlink()
    for n_bytes in (0, 500, 3000, new_bytes - 1):
        with largest_file(n_bytes), pytest.raises(StorageError, match="larger than the system allows"):
            write(path, NEW, overwrite=True)
        assert_old_and_alone(path)


def test_file_that_reads_back_differently_is_not_kept(path, monkeypatch):
    os_write = os.write

    def rot(fd, data):
        damaged = bytearray(data)
        damaged[len(damaged) // 2] ^= len(damaged) > 2000
        return os_write(fd, damaged)

    monkeypatch.setattr(os, "write", rot)
    with pytest.raises(ArtifactError):
        write(path, NEW, overwrite=True)
    monkeypatch.undo()
    assert_old_and_alone(path)


def test_forbidden_folder_is_a_storage_error():
    with tempfile.TemporaryDirectory(prefix="costar-test-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o555)
        with unprivileged(), pytest.raises(StorageError, match="no permission"):
            write(folder / "a.h5", NEW)
        with unprivileged(), pytest.raises(StorageError, match="no permission"):
            write(folder / "new" / "a.h5", NEW)
        assert list(folder.iterdir()) == []
        folder.chmod(0o755)
        write(folder / "a.h5", NEW)
        (folder / "a.h5").chmod(0o200)
        with unprivileged(), pytest.raises(ArtifactError, match="no permission to read"):
            read_artifact(folder / "a.h5")


def test_places_where_no_file_can_be(tmp_path):
    with pytest.raises(StorageError, match="a folder of that name"):
        write(tmp_path, NEW, overwrite=True)
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="is a file, not a folder"):
        write(tmp_path / "file" / "a.h5", NEW)
    with pytest.raises(StorageError, match="a name is too long for the disk"):
        write(tmp_path / ("x" * 300), NEW)


@pytest.mark.parametrize("letter", ["x", "é", "😀"])
def test_a_name_of_as_many_bytes_as_there_may_be_is_written(tmp_path, letter):
    path = tmp_path / (letter * (252 // len(letter.encode())) + ".h5")
    write(path, NEW)
    assert list(tmp_path.iterdir()) == [path]


def test_missing_folders_are_made_and_links_followed(tmp_path):
    write(tmp_path / "large disk" / "deep" / "a.h5", OLD)
    link = tmp_path / "data.h5"
    link.symlink_to("large disk/deep/a.h5")
    written = write(link, NEW, overwrite=True)
    assert link.is_symlink()
    assert written.path == link
    assert read_artifact(tmp_path / "large disk" / "deep" / "a.h5").digest == written.digest
    dangling = tmp_path / "model.h5"
    dangling.symlink_to("elsewhere.h5")
    write(dangling, NEW)
    assert (tmp_path / "elsewhere.h5").exists()


def test_new_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    write(tmp_path / "a.h5", NEW)
    assert (tmp_path / "a.h5").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_readers_keep_the_file_that_they_opened(path):
    with path.open("rb") as file:
        before = file.read(100)
        write(path, NEW, overwrite=True)
        file.seek(0)
        assert file.read(100) == before
