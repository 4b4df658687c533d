"""Verbs on disks that fill up, that nobody may write to, or that have no inodes left, and with odd outputs."""

import os
from collections.abc import Callable
from pathlib import Path

from tests.campaigns.driver import Campaign, Ended, costar, in_child
from tests.campaigns.namespaces import bind_read_only, mount_tmpfs
from tests.campaigns.world import VERBS, copied, damaged, left_over, verb_work

OUT = {"simulate": "--out", "ridge": "--out", "mixed": "--out", "evaluate": "--csv", "report": "--report"}
SYSTEMS = ("read-only", "full", "without inodes")
REFUSED = 77  # exit code of a child that may not mount
ODD = ("folder", "pipe", "link", "dangling link", "input")


def run(campaign: Campaign) -> None:
    """Run verbs with little room, or with odd outputs."""
    source, place = campaign.source, campaign.folder / "case"
    kept = campaign.folder / "kept.txt"
    mounts = _on("read-only", copied(source, place), lambda: 0, 0).code != REFUSED
    if not mounts:
        campaign.notes.append("no file systems of its own: the machine forbids mounts")
    for _ in campaign.rounds():
        verb = campaign.random.choice([name for name in VERBS if name != "verify"])
        copied(source, place)
        kept.write_text("kept")
        if mounts and campaign.random.random() < 0.4:
            system, room = campaign.random.choice(SYSTEMS), campaign.random.randint(0, 40)
            what, codes = f"{verb} on a file system that is {system} ({room})", {0, 8}
            ended = _on(system, place, verb_work(verb, place), room)
            campaign.document(ended, what)
        elif campaign.random.random() < 0.5 or verb not in OUT:
            room = campaign.random.choice([1, 1_000, 5_000, 20_000, 60_000, 200_000])
            what, codes = f"{verb} with {room} bytes", {0, 8}
            ended = in_child(verb_work(verb, place), file_bytes=room)
        else:
            odd = campaign.random.choice(ODD)
            path = _made(odd, place, kept, ".h5" if OUT[verb] == "--out" else OUT[verb].replace("--", "."))
            words, codes = [*VERBS[verb], OUT[verb], str(path)], {0, 2, 5, 8}
            what = f"{verb} with {OUT[verb]} a {odd}"
            before = path.read_bytes() if odd == "input" else b""
            ended = in_child(costar(*words, cwd=place))
            campaign.document(ended, what)  # with little room it may have none either
            if odd == "input" and path.read_bytes() != before:
                campaign.fail(f"{what}: the input was replaced")
        campaign.calibrated(ended, what, codes=codes)
        if found := damaged(place) + left_over(place):
            campaign.fail(f"{what}: {found}")


def _on(system: str, place: Path, work: Callable[[], int], room: int) -> Ended:
    """Run work in a process for which the case's folder is a file system with so little room.

    What it leaves is looked at in that process: nobody else sees it.
    """
    kept = {path.relative_to(place): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    pages = sum(-(-len(data) // 4096) for data in kept.values()) + room
    folders = {folder for path in kept for folder in path.parents}
    options = {"full": f"size={pages * 4}k", "without inodes": f"nr_inodes={len(kept) + len(folders) + 1 + room // 4}"}

    def mounted() -> int:
        try:
            bind_read_only(place) if system == "read-only" else mount_tmpfs(place, options[system])
        except OSError:
            return REFUSED
        for name, data in kept.items() if system in options else ():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
        code = work()
        if found := damaged(place) + left_over(place):
            os.write(2, f"Traceback: {found}".encode())
        return code

    return in_child(mounted)


def _made(odd: str, place: Path, kept: Path, ending: str) -> Path:
    path = place / f"odd{ending}"
    if odd == "folder":
        path.mkdir()
    elif odd == "pipe":
        os.mkfifo(path)
    elif odd == "input":
        return place / "costar-workspace" / "data.h5"
    else:
        path.symlink_to(kept if odd == "link" else place / "nowhere" / "x")
    return path
