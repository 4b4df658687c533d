"""Verbs on disks that fill up, and with outputs that are folders, links, pipes, devices or inputs."""

import os
from pathlib import Path

from tests.campaigns.driver import Campaign, costar, in_child
from tests.campaigns.world import VERBS, copied, damaged, workspace

OUT = {"simulate": "--out", "ridge": "--out", "mixed": "--out", "evaluate": "--csv", "report": "--report"}
ODD = ("folder", "pipe", "link", "dangling link", "input")


def run(campaign: Campaign) -> None:
    """Run verbs with little room, or with odd outputs."""
    source, place = workspace(campaign.folder / "source"), campaign.folder / "case"
    kept = campaign.folder / "kept.txt"
    for _ in campaign.rounds():
        verb = campaign.random.choice([name for name in VERBS if name != "verify"])
        copied(source, place)
        kept.write_text("kept")
        if campaign.random.random() < 0.5 or verb not in OUT:
            room = campaign.random.choice([1, 1_000, 5_000, 20_000, 60_000, 200_000])
            what, words, codes = f"{verb} with {room} bytes", VERBS[verb], {0, 8}
            ended = in_child(costar(*words, cwd=place), file_bytes=room)
        else:
            odd = campaign.random.choice(ODD)
            path = _made(odd, place, kept)
            words, codes = [*VERBS[verb], OUT[verb], str(path)], {0, 2, 5, 8}
            what = f"{verb} with {OUT[verb]} a {odd}"
            before = path.read_bytes() if odd == "input" else b""
            ended = in_child(costar(*words, cwd=place))
            campaign.document(ended, what)  # with little room it may have none either
            if odd == "input" and path.read_bytes() != before:
                campaign.fail(f"{what}: the input was replaced")
        campaign.judge(ended, what, codes=codes)
        if found := damaged(place):
            campaign.fail(f"{what}: {found}")


def _made(odd: str, place: Path, kept: Path) -> Path:
    path = place / "odd.h5"
    if odd == "folder":
        path.mkdir()
    elif odd == "pipe":
        os.mkfifo(path)
    elif odd == "input":
        return place / "costar-workspace" / "data.h5"
    else:
        path.symlink_to(kept if odd == "link" else place / "nowhere" / "x")
    return path
