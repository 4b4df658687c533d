"""How much memory a process may take: the least of what the machine has, its container allows, and its own limits."""

from pathlib import Path

import psutil
import pytest

from costar_cli.config import memory
from costar_cli.config.memory import free_memory, free_under_own_limits, total_memory

GIB = 2**30
NO_LIMIT = 9223372036854771712  # as version 1 writes it
FILES = {2: ("memory.max", "memory.current", ""), 1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")}


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(memory, "MOUNTED", tmp_path / "mounted")
    monkeypatch.setattr(memory, "GROUPS", tmp_path / "cgroup")
    return tmp_path


def write_group(folder: Path, version: int, limit: object, used: int, of_files: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    most, now, total = FILES[version]
    (folder / most).write_text(f"{limit}\n")
    (folder / now).write_text(f"{used}\n")
    inactive, active = of_files // 2, of_files - of_files // 2
    (folder / "memory.stat").write_text(f"anon 7\n{total}inactive_file {inactive}\n{total}active_file {active}\n")


@pytest.mark.parametrize(
    ("line", "mount", "version"),
    [
        ("0::/jobs/one", "", 2),
        ("0::/jobs/one", "unified", 2),
        ("4:cpu,memory:/jobs/one", "memory", 1),
    ],
    ids=["version 2", "both", "version 1"],
)
def test_the_lowest_limit_around_a_process_counts_and_pages_of_files_do_not(
    groups: Path, line: str, mount: str, version: int
) -> None:
    (groups / "cgroup").write_text(f"9:name=systemd:/\n{line}\n")
    root = groups / "mounted" / mount
    write_group(root, version, NO_LIMIT if version == 1 else "max", 3 * GIB)
    write_group(root / "jobs", version, GIB, GIB // 2, of_files=GIB // 4)
    write_group(root / "jobs" / "one", version, 2 * GIB, GIB // 4)
    assert total_memory() == (GIB, memory.CONTAINER)
    assert free_memory() == (GIB - GIB // 4, memory.CONTAINER)


def test_a_container_sees_its_own_group_as_the_root(groups: Path) -> None:
    (groups / "cgroup").write_text("4:memory:/docker/of-the-host\n")
    write_group(groups / "mounted" / "memory", 1, GIB, 2 * GIB)
    assert free_memory() == (0, memory.CONTAINER)


@pytest.mark.parametrize("text", ["", "nonsense\n", "0::/../../..\n", "0::/missing\n"])
def test_groups_that_say_nothing_leave_the_machine(groups: Path, text: str) -> None:
    (groups / "cgroup").write_text(text)
    write_group(groups / "mounted", 2, "max", 5)
    assert total_memory() == (psutil.virtual_memory().total, memory.MACHINE)


def test_limits_of_the_process_itself_count(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    used = psutil.Process().memory_info()
    most = {resource.RLIMIT_DATA: used.data + GIB // 8, resource.RLIMIT_AS: used.vms + GIB}
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (most.get(limit, -1), -1))
    assert free_memory().n_bytes <= GIB // 8
    assert "`ulimit -d`" in str(free_memory())
    (addresses, with_files), (data, without) = free_under_own_limits()
    assert (with_files, without) == (True, False)
    assert GIB // 8 >= data.n_bytes > 0
    assert GIB >= addresses.n_bytes > GIB // 2
    assert "`ulimit -v`" in str(addresses)


def test_without_limits_of_its_own_there_is_nothing_to_say(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, -1))
    assert free_under_own_limits() == []


def test_processes_share_the_machine_and_each_has_limits_of_its_own(
    groups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = pytest.importorskip("resource")
    machine, most = psutil.virtual_memory().total, {resource.RLIMIT_DATA: -1}
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (most.get(limit, -1), -1))
    assert total_memory(4) == (machine // 4, memory.MACHINE)
    most[resource.RLIMIT_DATA] = machine // 3
    assert total_memory(2).n_bytes == machine // 3
    assert total_memory(4) == (machine // 4, memory.MACHINE)


def test_a_system_without_one_of_the_limits_has_the_others(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.delattr(resource, "RLIMIT_AS")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (GIB, -1))
    assert [str(limit.of) for limit, _ in free_under_own_limits()] == ["this process, under `ulimit -d`"]
