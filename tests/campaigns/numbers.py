"""Tables of extreme numbers through ingestion, a fit, an evaluation and a question: finite answers, or one error."""

from random import Random

from tests.campaigns.driver import Campaign, costar, in_child
from tests.cli.cli_world import WARD

EXTREMES = ("0", "-0.0", "1e-300", "1e-45", "1e30", "-1e30", "1e38", "1e300", "1e308", "inf", "nan", "", "7", "3.5")
METHODS = ("ridge", "mixed", "seasonal-naive", "boosting")


def run(campaign: Campaign) -> None:
    """Make tables and run the verbs on them."""
    folder = campaign.folder / "case"
    folder.mkdir()
    (folder / "schema.toml").write_text(WARD.format(horizon=2, more='rate = { role = "covariate" }'))
    for _ in campaign.rounds():
        (folder / "t.csv").write_text(table(campaign.random))
        method = campaign.random.choice(METHODS)
        for words in (
            ["ingest", "table", "t.csv", "--schema", "schema.toml", "--overwrite", "--json"],
            ["finetune", "--method", method, "--threads", "1", "--overwrite", "--json"],
            ["evaluate", "--no-plots", "--overwrite", "--json"],
        ):
            model = ["--model", f"costar-workspace/model-{method}.h5"] if words[0] == "evaluate" else []
            ended = in_child(costar(*words, *model, cwd=folder))
            campaign.calibrated(ended, f"{words[0]} {method}")
            campaign.document(ended, f"{words[0]} {method}")
            if ended.code:
                break


def table(random: Random) -> str:
    """Return a table whose numbers are of one size but for a few, or all of them extreme."""
    subjects, days, share = random.choice([3, 12, 30]), random.choice([1, 3, 8]), random.choice([0.01, 0.1, 1])
    few = random.sample(EXTREMES, 2)

    def number() -> str:
        return random.choice(few) if random.random() < share else f"{random.gauss(50, 10):.2f}"

    rows = [
        f"p{subject},{day},{number()},{number()},{random.choice(['none', 'drug'])}"
        for subject in range(subjects)
        for day in range(days)
    ]
    return "\n".join(["patient,day,rate,pressure,drug", *rows]) + "\n"
