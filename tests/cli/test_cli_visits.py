"""Tumours seen on random days, from the command line: every verb, and plans that say when visits are."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_world import Run

PLANS = {
    "origin": 3,
    "plans": {
        "treat": [{"chemotherapy": 1, "after": "3 days"}, {"after": 5}],
        "wait": [{"after": 3}, {"elapsed": 5}],
    },
}
SMALL = ("--train", 24, "--val", 12, "--test", 8, "--target-train", 8, "--target-val", 8, "--target-test", 8)
MIXED = "costar-workspace/model-mixed.h5"
EPOCH = ("--preset", "quick", "--epochs", 1, "--members", 1)


@pytest.mark.slow
def test_visits_go_through_all_verbs(call: Callable[..., Run]) -> None:
    assert call("simulate", "tumor", "--visits", 4, "--horizon", 3, *SMALL).code == 0
    assert call("pretrain", *EPOCH).code == 0
    costar = call("finetune", *EPOCH, "--json")
    assert costar.code == 0, costar.err
    assert not any("covariate" in warning for warning in costar.document["warnings"])
    assert call("finetune", "--method", "mixed").code == 0
    scored = call("evaluate", "--no-plots", "--bootstrap", 0)
    assert scored.code == 0, scored.err
    assert "Best possible" not in scored.out
    Path("plan.json").write_text(json.dumps(PLANS))
    subject = _seen_often(call)
    for method in ("", "-mixed"):
        model = f"costar-workspace/model{method}.h5"
        asked = ("whatif", "--subject", subject, "--truth", "--json", "--model", model)
        by_gap = call(*asked, "--plan", "plan.json")
        assert by_gap.code == 0, by_gap.err
        told = [one for one in by_gap.document["result"]["estimates"] if one["quantity"] == "outcome"]
        first, second = (one["date"] for one in told if one["plan"] == "wait")
        dated = {"treat": [{"chemotherapy": 1, "at": first}, {"at": second}], "wait": [{"at": first}, {"at": second}]}
        Path("dates.json").write_text(json.dumps({"origin": 3, "plans": dated}))
        by_date = call(*asked, "--plan", "dates.json")
        assert by_date.code == 0, by_date.err
        assert by_date.document["result"]["estimates"] == by_gap.document["result"]["estimates"]


def _seen_often(call: Callable[..., Run]) -> int:
    """Return a test patient with four visits or more."""
    for subject in range(36, 44):
        asked = call(
            "whatif", "--subject", subject, "--plan", "plan.json", "--model", "costar-workspace/model-mixed.h5"
        )
        if asked.code == 0:
            return subject
    raise AssertionError(asked.err)
