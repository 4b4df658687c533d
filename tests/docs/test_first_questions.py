"""From one patient to a decision: the same lines, as real processes, on tumours, intensive care, retail and a table."""

import csv
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from tests.cli.cli_world import REPOSITORY, environment
from tests.docs.conftest import COHORT
from tests.pages.reading import read_alone

OWN = REPOSITORY / "examples" / "own-data"
UNTREATED = ("off", "none", "no change")
TREATED = {"chemotherapy": 1}
CUT = {"price_change": "below -15.9 %"}


@dataclass(frozen=True)
class World:
    """How a data set is made, and what is asked about it: a treatment, a group, an objective, a constraint, a rule.

    `reads` is a rule on outcomes that gives the treatment at each step, for models that predict step by step.
    """

    made: str
    treated: dict[str, object]
    by: str
    outcome: str
    treatment: str
    rule: str
    reads: str = ""


WORLDS = {
    "tumour": World(
        f"simulate tumor {' '.join(COHORT)}", TREATED, "patient_type", "tumour_volume", "chemotherapy",
        "chemotherapy if chemotherapy in last 2 < 1", "chemotherapy if tumour_volume < 1000",
    ),
    "icu": World("simulate mimic --preset quick", {"t1": 1}, "y1:3", "y1", "t1", "t1 if t1 in last 2 < 1"),
    "retail": World(
        "simulate m5 --preset quick", CUT, "sales:2", "sales", "price_change",
        "price_change = 'below -15.9 %' if plan_step = 1",
    ),
    "table": World(
        f"ingest table {OWN / 'small.csv'} --schema {OWN / 'schema.toml'}", {"insulin": "basal"}, "diabetes", "glucose",
        "insulin", "insulin = 'basal' if plan_step <= 2",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Shell:
    """A folder with a data set and a model, in which lines are run as a user types them."""

    folder: Path
    path: str

    def run(self, *words: object, code: int = 0, typed: str | None = None) -> dict:
        """Run a line, with what is piped into it, and return its document."""
        command, env = ["costar", *map(str, words), "--json"], environment(PATH=self.path)
        done = subprocess.run(
            command, cwd=self.folder, env=env, input=typed, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, f"{command}\n{done.stderr[-2000:]}"
        return json.loads(done.stdout)


@pytest.fixture(params=[name if name == "tumour" else pytest.param(name, marks=pytest.mark.slow) for name in WORLDS])
def world(request: pytest.FixtureRequest) -> World:
    return WORLDS[request.param]


@pytest.fixture
def shell(world: World, tmp_path: Path, script_path: str) -> Shell:
    made = Shell(tmp_path, script_path)
    made.run(*world.made.split())
    made.run("finetune", "--method", "ridge", "--out", "model.h5")
    plans = {"plans": {"none": [{}, {}, {}], "treat": [world.treated, {}, {}]}}
    (tmp_path / "plans.json").write_text(json.dumps(plans))
    (tmp_path / "rule.json").write_text(json.dumps({"rule": world.rule, "times": 3}))
    return made


def new_subjects(world: World, shell: Shell) -> int:
    """Write a table of new subjects, and return how many: one of simulated data with 8 steps, or the example's."""
    if world.made.startswith("ingest"):
        shutil.copy(OWN / "new-patients.csv", shell.folder)
        return pl.read_csv(OWN / "new-patients.csv")["patient"].n_unique()
    shell.run("inspect", "costar-workspace/data.h5", "--export", "tables", "--format", "csv")
    with (shell.folder / "tables" / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    mine = [row | {"subject": "new-1"} for row in rows if row["subject"] == rows[-1]["subject"]][:8]
    kept = [name for name in mine[0] if name not in ("domain", "split")]
    with (shell.folder / "new-patients.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, kept, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(mine)
    return 1


def follow_an_outcome(world: World, shell: Shell, subject: str) -> None:
    """Ask about a rule that reads an outcome, and its opposite: these are treatment at each step, and none."""
    shell.run("finetune", "--method", "mixed", "--out", "mixed.h5")
    opposite = world.reads.replace("<", ">")
    plans = {"none": [{}] * 3, "always": [world.treated] * 3,
             "holds": {"rule": world.reads, "times": 3}, "never": {"rule": opposite, "times": 3}}  # fmt: skip
    (shell.folder / "reads.json").write_text(json.dumps({"plans": plans}))
    words = ("whatif", "--subject", subject, "--plan", "reads.json", "--model", "mixed.h5", "--unsupported")
    estimates = shell.run(*words)["result"]["estimates"]
    mean = {name: [row["estimate"] for row in estimates if row["plan"] == name] for name in plans}
    assert mean["holds"] == pytest.approx(mean["always"], rel=0.05)
    assert mean["never"] == pytest.approx(mean["none"], rel=0.05)
    assert mean["holds"] != pytest.approx(mean["never"], rel=0.05)


@pytest.mark.timeout(300)
def test_every_line_from_one_subject_to_a_decision_works(world: World, shell: Shell) -> None:
    model = ("--model", "model.h5")
    count = new_subjects(world, shell)
    parts = shell.run("ingest", "table", "new-patients.csv", "--like", "model.h5")["result"]["parts"]
    assert sum(part["subjects"] for part in parts) == count
    cohort = ("whatif", "--subjects", "target/test", "--plan", "plans.json", *model)
    counted = shell.run(*cohort, "--csv", "answers.parquet")["result"]
    answers = pl.read_parquet(shell.folder / "answers.parquet")
    assert set(answers["plan"]) == {"none", "treat"}
    assert answers.filter(pl.col("outcome") == world.outcome).height == 3 * counted["answers"]
    assert {"subject", "label", "domain", "split", "origin", "step", "estimate", "lower", "support"} <= {
        *answers.columns
    }
    assert answers["estimate"].is_finite().all()
    subject, again = answers["label"][0], shell.run(*cohort, "--csv", "answers.parquet", code=5)
    assert again["error"]["where"] == "--csv"
    asked = ("--subjects", "all", "--skip-unknown", "--origin", 3, "--plan", "plans.json", *model)
    averages = shell.run("whatif", *asked, "--average", "--by", world.by)["result"]["averages"]
    assert {row["group"] for row in averages} > {"all"}
    assert all(row["units"] > 0 for row in averages)
    one = ("whatif", "--subject", subject, *model, "--plan")
    piped = shell.run(*one, "-", typed=(shell.folder / "rule.json").read_text())["result"]
    ruled = shell.run(*one, "rule.json")["result"]
    assert piped["estimates"] == ruled["estimates"]
    assert [row["step"] for row in ruled["estimates"] if row["outcome"] == world.outcome] == [1, 2, 3]
    if world.reads:
        follow_an_outcome(world, shell, subject)
    search = ("search", "--subject", subject, "--minimise", f"{world.outcome} at end", *model)
    limits = ("--at-most", f"{world.treatment} 2", "--steps", 3)
    [found] = shell.run(*search, *limits, "--report", "search.html")["result"]["subjects"]
    page = read_alone((shell.folder / "search.html").read_text("utf-8")).text
    assert all(words in page for words in (str(subject), f"{world.outcome} at end", f"{found['considered']:,}"))
    assert found["considered"] > 1
    counts = [
        sum(step.get(world.treatment, "off") not in UNTREATED for step in plan["given"]) for plan in found["plans"]
    ]
    assert counts
    assert max(counts) <= 2
    gate = "zero-shot.ridge.average > 0.0001"
    judged = shell.run(
        "evaluate", *model, "--no-plots", "--fail-if", gate, "--fail-if", "zero-shot.ridge.tau1 > 1e9", code=10
    )
    assert {row["verdict"] for row in judged["result"]["gates"] if row["expression"] == gate} == {"failed"}
    assert {row["verdict"] for row in judged["result"]["gates"] if row["expression"] != gate} == {"passed"}
    shell.run("inspect", "model.h5", "--report", "card.html")
    assert "Ridge regression" in read_alone((shell.folder / "card.html").read_text("utf-8")).text
