"""What `costar evaluate --predictions` adds: every prediction behind the scores, as a tidy table."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from costar_cli.config.choices import SetupName
from costar_cli.steps.session import Session

if TYPE_CHECKING:
    from costar_cli.steps.evaluation import EvaluationInputs

__all__ = ["write_predictions"]


def write_predictions(
    session: Session, path: Path, inputs: "EvaluationInputs", setups: Sequence[SetupName] | None
) -> None:
    """Predict what the scores rest on again, and write it a chunk of subjects at a time."""
    from costar_cli.artifact.tables import table_file
    from costar_cli.cohort import predicted_rows
    from costar_cli.config.models import EvaluateConfig
    from costar_cli.evaluate import named_candidates
    from costar_cli.evaluate.run import part_to_score
    from costar_cli.evaluate.setups import plan_jobs

    dataset, level = inputs.dataset, session.settings[EvaluateConfig].level
    jobs = plan_jobs(dataset, named_candidates(inputs.models), setups)
    tests = {part: part_to_score(dataset, part) for part in {job.setup.test for job in jobs}}
    total = sum(tests[job.setup.test].n_queries for job in jobs)
    with table_file(path) as table, session.reporter.task("Predicting", total=total, unit="query") as task:
        for job in jobs:
            for answered, columns in predicted_rows(job, tests[job.setup.test], level=level):
                table.write({"dataset": [dataset.name] * len(columns["step"])} | columns)
                task.advance(answered)
    session.out.wrote("predictions", path)
