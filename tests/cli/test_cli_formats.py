"""The first commands of the pages on MEDS, OMOP and NONMEM, as they stand: from files to what-if and effect."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from cli_world import REPOSITORY, Run

from costar_cli.data.table.schema_file import toml_row, toml_value
from tests.datasets import meds_world, omop_world
from tests.datasets.test_nonmem import trial

Call = Callable[..., Run]
FENCED = re.compile(r"```(sh|json)\n(.*?)```", re.DOTALL)
DEADLY = (0.05, 0.25)  # of death within an hour, without and with the drug
INFUSION = 'role = "treatment"\nkind = "continuous"\nunit = "mg/h"\n'


def run_page(form: str, call: Call, plan: str, signals: str | None = None) -> dict[str, Run]:
    """Run the commands that a page begins with, on the plan that it shows, and return what each said."""
    blocks = FENCED.findall((REPOSITORY / "docs" / f"data-{form}.md").read_text("utf-8"))
    assert [kind for kind, _ in blocks[:2]] == ["sh", "json"]
    Path(plan).write_text(blocks[1][1])
    runs = {}
    for line in blocks[0][1].splitlines():
        program, *words = shlex.split(line, comments=True)
        assert program == "costar"
        run = call(*words, "--json")
        assert run.code == 0, f"{line}\n{run.err}"
        runs[words[0]] = run
        if "--init" in words:
            assert signals is not None
            assert Path("signals.toml").read_text()
            Path("signals.toml").write_text(signals)  # as a user would settle them
    assert list(runs) == ["ingest", "finetune", "whatif", "effect"]
    return runs


def differences(run: Run, outcome: str) -> dict[tuple[str, int], float]:
    """Return the differences of an outcome under plans, by plan and step."""
    return {
        (row["plan"], row["step"]): row["estimate"]
        for row in run.document["result"]["differences"]
        if row["outcome"] == outcome
    }


def effects(run: Run, quantity: str, outcome: str) -> dict[tuple[str, int], tuple[float, float, float]]:
    """Return estimates about an outcome and their limits, by plan and step."""
    return {
        (row["plan"], row["step"]): (row["estimate"], row["lower"], row["upper"])
        for row in run.document["result"]["effects"]
        if (row["quantity"], row["outcome"]) == (quantity, outcome)
    }


def test_meds_with_deaths(call: Call) -> None:
    rows = meds_world.make_rows(700, hours=4, deadly=DEADLY)
    alive = min(
        {row["subject_id"] for row in rows} - {row["subject_id"] for row in rows if row["code"] == "MEDS_DEATH"}
    )
    called = 10_002_428 - alive  # the page's patient lives
    meds_world.write_meds(Path("mimic-meds"), [row | {"subject_id": row["subject_id"] + called} for row in rows])
    signals = Path("mimic-meds/signals.toml").read_text()
    runs = run_page("meds", call, "plan.json", signals.replace(INFUSION, 'role = "treatment"\n'))
    assert differences(runs["whatif"], "pressure")["drug", 1] == pytest.approx(meds_world.EFFECT, abs=0.3)
    risks = effects(runs["effect"], "risk", "death")
    for plan, hourly in zip(("none", "drug"), DEADLY, strict=True):
        estimate, lower, upper = risks[plan, 2]
        truth = 1 - (1 - hourly) ** 2
        assert lower < truth < upper, plan
        assert estimate == pytest.approx(truth, abs=0.08)
    assert effects(runs["effect"], "risk difference", "death")["drug", 2][0] > 0.2


def test_omop(call: Call) -> None:
    Path("cdm").mkdir()
    omop_world.write_omop(Path("cdm"), omop_world.make_tables(200))
    said = omop_world.SIGNALS
    lines = [toml_row("name", said["name"]), toml_row("horizon", said["horizon"])]
    lines += [f"{table} = {toml_value(said[table])}" for table in ("time", "columns")]
    runs = run_page("omop", call, "plan.json", "\n".join(lines))
    assert differences(runs["whatif"], "pressure")["ace", 1] == pytest.approx(omop_world.EFFECT, abs=0.4)
    found = effects(runs["effect"], "difference", "pressure")
    assert found["ace", 1][0] == pytest.approx(omop_world.EFFECT, abs=0.3)
    assert found["ace", 2][0] == pytest.approx(omop_world.EFFECT, abs=0.3)


def test_nonmem_with_every_dose_halved(call: Call) -> None:
    """Columns as in nlmixr2's warfarin; doses do not react, so that half of each takes half of what doses add."""
    records = pl.read_csv(trial(Path("trial.csv"), 120)).rename(str.lower)
    records = records.with_columns(pl.col("dv").fill_null(0.0), pl.col("amt").fill_null(0), dvid=pl.lit("cp"))
    pca = records.filter(pl.col("evid") == 0).with_columns(dv=100 - 3 * pl.col("dv"), dvid=pl.lit("pca"))
    records = records.filter((pl.col("time") > 0) | (pl.col("evid") == 1))
    pl.concat([records, pca]).sort("id", "time", "evid", maintain_order=True).write_csv("warfarin.csv")
    Path("plan.json").write_text(json.dumps({"plans": {"none": [{}, {}], "100": [{"amt": 100}, {}]}}))
    runs = run_page("nonmem", call, "shift.json")
    kept = 0.5 ** (4 / 6)  # of a concentration after four hours
    assert differences(runs["whatif"], "cp")["100", 1] == pytest.approx(10 * kept, rel=0.1)
    assert differences(runs["whatif"], "cp")["100", 2] == pytest.approx(10 * kept**2, rel=0.15)
    found = effects(runs["effect"], "difference", "cp")
    given = pl.concat([records, pca]).group_by("id", "time").agg(pl.col("amt").sum()).sort("id", "time")
    given = given.group_by("id").agg(pl.col("amt").head(2))
    first, second = (given["amt"].list.get(i).mean() / 2 / 10 for i in (0, 1))
    assert found["half", 1][0] == pytest.approx(-first * kept, rel=0.15)
    assert found["half", 2][0] == pytest.approx(-(first * kept**2 + second * kept), rel=0.15)
