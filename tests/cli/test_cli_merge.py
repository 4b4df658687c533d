"""Parts of answers become one table, or are refused: copies, other parts under a part's name, damaged and odd files."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from cli_world import Run, assert_no_merge, run_process

from costar_cli.errors import ExitCode
from costar_cli.files import tables
from costar_cli.files.tables import QUESTION, SHARD, is_sealed, table_file
from tests.artifact.crafting import reseal_part

Call = Callable[..., Run]
WHOLE = Path("m.parquet")


def part(number: int, of: int = 2, *, rows: int = 200, question: str = "q") -> Path:
    """Write a part of answers, as `costar whatif --shard` does."""
    path = Path(f"m.shard-{number}-of-{of}.parquet")
    with table_file(path, {QUESTION: question, SHARD: f"{number}/{of}"}) as table:
        if rows:
            table.write({"n": range(number * rows, (number + 1) * rows), "text": [f"part {number}"] * rows})
    return path


def test_parts_merge_in_order_and_once(call: Call) -> None:
    for number in (2, 1):
        part(number)
    assert call("merge", WHOLE, "--json").document["result"]["merged"] == [str(part(i)) for i in (1, 2)]
    assert pl.read_parquet(WHOLE)["n"].to_list() == list(range(200, 600))
    assert call("merge", WHOLE, "--json").document["status"] == "up_to_date"


def test_a_table_that_has_no_parts_is_no_benchmark(call: Call) -> None:
    Path("answers.csv").write_text("a\n")
    ended = call("merge", "answers.csv")
    assert ended.code == ExitCode.USAGE
    assert "files of this kind have no parts" in ended.err
    assert "FILE.parquet of answers" in ended.err


def test_a_part_under_the_name_of_another_one_is_refused(call: Call) -> None:
    copy = shutil.copy(part(1), "m.shard-2-of-2.parquet")
    assert_no_merge(call, WHOLE, ExitCode.MISMATCH, f"{copy} is part 1/2", "--shard")
    part(2)
    part(1, 3).rename("m.shard-1-of-2.parquet")
    assert_no_merge(call, WHOLE, ExitCode.MISMATCH, "m.shard-1-of-2.parquet is part 1/3")


def test_a_part_in_the_place_of_the_whole_is_another_table(call: Call) -> None:
    part(2)
    shutil.copy(part(1), WHOLE)
    ended = call("merge", WHOLE)
    assert (ended.code, "is another table" in ended.err) == (ExitCode.MISMATCH, True)


def changed(path: Path, at: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def test_a_damaged_bit_anywhere_in_a_part_is_noticed_before_it_is_read() -> None:
    path = part(1, rows=20)
    sound = path.read_bytes()
    assert is_sealed(path)
    for at in range(0, len(sound), 7):
        changed(path, at, at % 8)
        assert not is_sealed(path), at
        path.write_bytes(sound)
    path.write_bytes(sound + b"PAR1")
    assert not is_sealed(path)


def test_a_damaged_part_is_refused_and_a_damaged_whole_is_not_up_to_date(call: Call) -> None:
    part(2)
    changed(part(1), 40, 3)
    assert_no_merge(call, WHOLE, ExitCode.ARTIFACT, "a part is damaged", "m.shard-1-of-2.parquet", "--shard I/N")
    part(1)
    assert call("merge", WHOLE).code == 0
    changed(WHOLE, 40, 3)
    assert call("merge", WHOLE).code == ExitCode.MISMATCH


def test_parts_that_somebody_changed_and_sealed_are_read_by_another_process_first(call: Call) -> None:
    part(1)
    path = part(2)
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[:footer] + bytes([data[footer] ^ 0xFF]) + data[footer + 1 :])
    assert reseal_part(path)
    assert_no_merge(call, WHOLE, ExitCode.ARTIFACT, "cannot be read", path)


@pytest.mark.parametrize("other", ["sound", "damaged", "gone", "changed"])
def test_a_part_that_is_replaced_while_it_is_merged_is_refused(
    other: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    another = part(4, 9).rename("another.parquet")
    part(1)
    second, write = part(2), tables.write_together

    def swapped(*words: Any) -> None:
        if other in ("sound", "damaged"):
            another.replace(second)
        if other == "gone":
            second.unlink()
        elif other != "sound":
            changed(second, 20, 1)
        write(*words)

    monkeypatch.setattr(tables, "write_together", swapped)
    assert_no_merge(call, WHOLE, ExitCode.MISMATCH, f"where: {second}", "was replaced while it was read")
    assert not list(Path().glob(".*"))


def test_parts_of_other_columns_are_refused(call: Call) -> None:
    part(1)
    with table_file(Path("m.shard-2-of-2.parquet"), {QUESTION: "q", SHARD: "2/2"}) as table:
        table.write({"other": ["a"]})
    assert_no_merge(call, WHOLE, ExitCode.ARTIFACT, "cannot be read", "m.shard-1-of-2.parquet, m.shard-2-of-2.parquet")


def test_a_part_that_does_not_say_which_it_is_is_refused(call: Call) -> None:
    for number in (1, 2):
        with table_file(Path(f"m.shard-{number}-of-2.parquet"), {QUESTION: "q"}) as table:
            table.write({"n": [number]})
    assert_no_merge(call, WHOLE, ExitCode.MISMATCH, "m.shard-2-of-2.parquet does not say", "--shard I/N")


@pytest.mark.parametrize("number", ["01", "0", "3", "²", "\u0661"])
def test_a_name_that_is_none_of_a_part_is_refused(number: str, call: Call) -> None:
    part(2)
    shutil.copy(part(1), odd := f"m.shard-{number}-of-2.parquet")
    if number == "²":  # no digit
        assert call("merge", WHOLE).code == 0
    else:
        assert_no_merge(call, WHOLE, ExitCode.USAGE, "no name of a part", odd)


def test_so_many_parts_as_nobody_makes_are_not_looked_for(call: Call) -> None:
    shutil.copy(part(1), "m.shard-1-of-99999999999.parquet")
    assert_no_merge(call, WHOLE, ExitCode.USAGE, "no name of a part")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="of systems with pipes")
@pytest.mark.parametrize("pipe", [WHOLE, Path("m.shard-1-of-2.parquet")])
def test_pipes_are_refused_and_not_waited_for(pipe: Path) -> None:
    for number in (1, 2):
        part(number)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    ended = run_process("merge", WHOLE, cwd=Path.cwd())
    assert ended.code == (ExitCode.STORAGE if pipe == WHOLE else ExitCode.ARTIFACT)
    assert "no regular file" in ended.err
    assert str(pipe) in ended.err
