"""Pairs of processes in one workspace, and inputs that are replaced while they are read."""

import os
import shutil
import time
from functools import partial
from pathlib import Path

from costar_cli.files import read_header
from tests.campaigns.driver import Campaign, costar, forked, in_child
from tests.campaigns.world import VERBS, copied, damaged, left_over


def run(campaign: Campaign) -> None:
    """Let processes meet."""
    source, place = campaign.source, campaign.folder / "case"
    data = place / "costar-workspace" / "data.h5"
    other = campaign.folder / "other.h5"
    assert in_child(costar(*VERBS["simulate"][:-3], "--seed", 9, "--out", other, cwd=source)).code == 0
    fitted = {}
    for path in (source / "costar-workspace" / "data.h5", other):
        copied(source, place)
        shutil.copy(path, data)
        assert in_child(costar(*VERBS["ridge"], cwd=place)).code == 0
        fitted[read_header(path).digest] = read_header(data.with_name("model-ridge.h5")).digest
    for _ in campaign.rounds():
        copied(source, place)
        verbs = [campaign.random.choice(["simulate", "ridge", "mixed", "evaluate", "report"]) for _ in range(2)]
        swaps = campaign.random.random() < 0.5
        pid = forked(partial(_second, campaign, place, verbs[1], other if swaps else None))
        verb = "ridge" if swaps else verbs[0]
        what = f"{verb} while data are replaced" if swaps else f"{verb} and {verbs[1]}"
        ended = in_child(costar(*VERBS[verb], cwd=place))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        campaign.calibrated(ended, what, codes={0, 4, 5, 7})
        campaign.document(ended, what)
        if code not in {0, 4, 5, 7}:
            campaign.fail(f"{what}: the other ended with {code}")
        if found := damaged(place) + left_over(place):
            campaign.fail(f"{what}: {found}")
        model = read_header(data.with_name("model-ridge.h5"))
        if swaps and ended.code == 0 and fitted[model.parents["dataset"]] != model.digest:
            campaign.fail(f"{what}: the model names data that it was not made from")


def _second(campaign: Campaign, place: Path, verb: str, other: Path | None) -> int:
    """Run a verb a little later, or put other data in the place of those that the first one reads."""
    time.sleep(campaign.random.uniform(0, 0.5))
    if other is None:
        return in_child(costar(*VERBS[verb], cwd=place)).code
    data = place / "costar-workspace" / "data.h5"
    shutil.copy(other, data.with_name("new-data"))
    os.replace(data.with_name("new-data"), data)
    return 0
