"""From a table of intervals to survival under plans on the command line: the truth within sampling error."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from cli_world import Run

from tests.interval_world import intervals, true_survival


def test_survival_of_intervals_is_the_truth_within_sampling_error(call: Callable[..., Run], tmp_path: Path) -> None:
    n, steps = 3_000, 2
    intervals(n).write_csv(tmp_path / "ss.csv")
    assert call("ingest", "table", "ss.csv", "--init").code == 0
    schema = tmp_path / "schema.toml"
    text = re.sub(r"^horizon = \d+", f"horizon = {steps}", re.sub(r"  # CHECK.*", "", schema.read_text()), flags=re.M)
    schema.write_text(text)
    built = call("ingest", "table", "ss.csv", "--schema", "schema.toml")
    assert built.code == 0, built.err
    assert "left out" not in built.err
    assert call("finetune", "--method", "ridge", "--quiet").code == 0
    plans = {"origin": 0, "plans": {"none": [{}] * steps, "drug": [{"drug": 1}] * steps}}
    (tmp_path / "plan.json").write_text(json.dumps(plans))
    asked = call("whatif", "--subjects", "source/test", "--plan", "plan.json", "--csv", "answers.csv", "--quiet")
    assert asked.code == 0, asked.err
    rows = [line.split(",") for line in (tmp_path / "answers.csv").read_text().splitlines()]
    table = {name: [row[i] for row in rows[1:]] for i, name in enumerate(rows[0])}
    plan, step, survival = (np.array(table[name]) for name in ("plan", "step", "survival"))
    assert len(survival) == 2 * steps * round(0.15 * n)
    for drug, name in enumerate(("none", "drug")):
        found = [survival[(plan == name) & (step == str(h))].astype(float).mean() for h in (1, 2)]
        truth, treated = true_survival(drug, steps), 0.7 * n / 2  # training subjects with this drug in an interval
        se = truth * np.sqrt((1 / truth[0] - 1) / treated * np.arange(1, steps + 1))  # of a product of shares
        assert (np.abs(found - truth) < 3 * se).all(), (name, found, truth, se)
