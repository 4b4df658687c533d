"""Artifacts with changed bytes, changed and sealed again, with changed metadata, other structures; parts of tables."""

from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np

from costar_cli.cli.merge import merge_answers
from costar_cli.errors import ArtifactError, MismatchError
from costar_cli.files import read_artifact, verify_artifact
from costar_cli.files.tables import QUESTION, SHARD, is_sealed, table_file
from tests.artifact.crafting import reseal, reseal_part, sample_arrays, tamper, write
from tests.artifact.test_artifact_attacks import STRUCTURES
from tests.artifact.test_artifact_large_groups import large_group
from tests.campaigns.driver import Campaign, in_child
from tests.campaigns.hdf5_blocks import Block, blocks_of, repaired

ARCHIVES = sorted((Path(__file__).parents[1] / "artifact/archives/v1.0").glob("*.h5"))
HEADER = 1024
SOUND, REFUSED, WRONG = 0, 4, 3
WHOLE = "answers.parquet"
PARTS = 0.02  # of all cases; one that is sealed again takes a second


def run(campaign: Campaign) -> None:
    """Change files and read them."""
    sources = {path.name: path.read_bytes() for path in ARCHIVES}
    write(campaign.folder / "own.h5", sample_arrays(1))
    sources["own.h5"] = (campaign.folder / "own.h5").read_bytes()
    blocks = {name: [b for b in blocks_of(data) if b.start >= HEADER] for name, data in sources.items()}
    dense = large_group(campaign.folder / "dense.h5").read_bytes()
    trees = [b for b in blocks_of(dense) if b.name in {"BTHD", "BTLF", "FRHP"}]
    path, random = campaign.folder / "case.h5", campaign.random
    in_child(lambda: _make_parts(campaign.folder))  # threads of polars do not survive the forks
    for _ in campaign.rounds():
        if random.random() < PARTS:
            _change_part(campaign)
            continue
        name = random.choice(list(sources))
        kind = random.choices(["bytes", "resealed", "metadata", "structure", "trees"], [4, 4, 8, 2, 0.4])[0]
        data = sources[name] if kind != "trees" else dense
        what = f"{kind} of {name}: {_change(kind, path, data, blocks[name] if kind != 'trees' else trees, random)}"
        ended = in_child(lambda: _read(path, sealed=kind != "bytes", data=data))  # noqa: B023 - run at once
        campaign.calibrated(ended, what, codes={SOUND, REFUSED}, limit_s=25 if kind == "trees" else 5)


def _make_parts(folder: Path) -> int:
    for number in (1, 2):
        with table_file(
            folder / f"answers.shard-{number}-of-2.parquet", {QUESTION: "q", SHARD: f"{number}/2"}
        ) as table:
            table.write({"n": range(300), "x": np.arange(300) * 0.1, "plan": np.array(["a", "b", None] * 100, object)})
    return 0


def _change_part(campaign: Campaign) -> None:
    """Change bytes of a part's data or of its metadata, seal half of them again, and merge."""
    random, path = campaign.random, campaign.folder / "answers.shard-2-of-2.parquet"
    sound = path.read_bytes()
    changed, at = bytearray(sound), list[int]()
    footer = len(sound) - 8 - int.from_bytes(sound[-8:-4], "little")
    for _ in range(random.choice([1, 1, 2, 4])):
        at.append(random.randrange(random.choice([0, footer]), len(sound)))
        changed[at[-1]] = random.choice([0, 1, 127, 255, random.randrange(256)])
    path.write_bytes(changed)
    again = random.random() < 0.5 and reseal_part(path)
    is_same = is_sealed(path) and not again
    ended = in_child(lambda: _merge(campaign.folder / WHOLE))
    campaign.calibrated(ended, f"part of answers, sealed again: {again}, at {at}",
                   codes={SOUND} if is_same else {SOUND, REFUSED, 5} if again else {REFUSED})  # fmt: skip
    path.write_bytes(sound)
    (campaign.folder / WHOLE).unlink(missing_ok=True)


def _merge(path: Path) -> int:
    try:
        merge_answers(path)
    except (ArtifactError, MismatchError) as error:
        return int(error.exit_code)
    return SOUND


def _change(kind: str, path: Path, data: bytes, blocks: list[Block], random: Random) -> str:
    changed, at = bytearray(data), list[int]()
    if kind == "structure":
        path.write_bytes(data)
        attack = random.choice([name for name in STRUCTURES if "plan" not in str(STRUCTURES[name])])
        try:
            tamper(path, STRUCTURES[attack][0])
        except (KeyError, ValueError, OSError, RuntimeError):  # this file lacks what the attack is about
            path.write_bytes(data)
        return attack
    block = random.choice(blocks)
    span = (block.start + 4, block.start + block.size) if kind in {"metadata", "trees"} else (HEADER, len(data))
    for _ in range(random.choice([1, 1, 2, 4])):
        at.append(random.randrange(*span) if kind != "bytes" else random.randrange(len(data)))
        changed[at[-1]] = random.choice([0, 1, 127, 255, random.randrange(256)])
    if kind in {"metadata", "trees"}:
        repaired(changed, block)
    path.write_bytes(changed)
    if kind != "bytes":
        with suppress(ArtifactError):  # what follows the header is not even HDF5
            reseal(path)
    return f"{block.name if kind != 'bytes' else ''} at {at}"


def _read(path: Path, *, sealed: bool, data: bytes) -> int:
    try:
        found = read_artifact(path)
        verify_artifact(path)
    except ArtifactError:
        return REFUSED
    changed = path.read_bytes() != data
    path.write_bytes(data)
    before = read_artifact(path)
    same = before.digest == found.digest and all(
        np.array_equal(before.arrays[name], array, equal_nan=array.dtype.kind == "f")
        for name, array in found.arrays.items()
    )
    return SOUND if same and (sealed or not changed) else WRONG
