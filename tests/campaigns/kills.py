"""Verbs that a signal ends at a random moment: what they leave can be read, and the same command finishes."""

import signal

from tests.campaigns.driver import Campaign, costar, in_child
from tests.campaigns.world import VERBS, copied, damaged, workspace

SHARE = {
    "evaluate": 1,
    "report": 2,
    "mixed": 2,
    "verify": 4,
    "pretrain": 2,
    "finetune": 2,
    "benchmark": 2,
}  # of cases: the costly ones less often
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run(campaign: Campaign) -> None:
    """Send signals to verbs."""
    source, place = workspace(campaign.folder / "source"), campaign.folder / "case"
    takes: dict[str, float] = {}
    whole: dict[str, dict[str, bytes]] = {}
    for _ in campaign.rounds():
        (verb,) = campaign.random.choices(list(VERBS), [SHARE.get(verb, 8) for verb in VERBS])
        if verb not in takes:
            ended = in_child(costar(*VERBS[verb], cwd=copied(source, place)))
            campaign.judge(ended, f"{verb} alone", codes={0})
            takes[verb], whole[verb] = ended.seconds, _outputs(place)
        number = campaign.random.choice(SIGNALS)
        delay = campaign.random.uniform(0.0, takes[verb])
        what = f"{verb}, {number.name} after {delay:.2f} s"
        copied(source, place)
        ended = in_child(costar(*VERBS[verb], cwd=place), stop=(delay, number))
        campaign.judge(ended, what, codes={0, -number if number == signal.SIGKILL else 128 + number})
        if number != signal.SIGKILL:
            campaign.document(ended, what)
        if found := damaged(place):
            campaign.fail(f"{what}: {found}")
        again = in_child(costar(*VERBS[verb], cwd=place))
        campaign.judge(again, f"{what}, then again", codes={0})
        if differ := [name for name, data in whole[verb].items() if _outputs(place).get(name) != data]:
            campaign.fail(f"{what}, then again: {differ} differ from an undisturbed run")


def _outputs(place) -> dict[str, bytes]:
    """Return the files that a verb made, but for what tells how long it took."""
    kinds = {".h5", ".csv", ".png", ".html", ".parquet", ".toml"}
    paths = [path for path in place.rglob("*") if path.suffix in kinds and not path.name.startswith(".")]
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in paths
        if "runs" not in path.parts and path.name != "cells.csv"
    }
