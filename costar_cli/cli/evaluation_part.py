"""The body of `costar evaluate --shard`: a part of the test subjects scored into a file, for `costar merge`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

from costar_cli.api.outputs import check_outputs, check_places
from costar_cli.cli.evaluation import EvaluationInputs, plan_report
from costar_cli.cli.session import BuildStep, Session
from costar_cli.cli.views import write_predictions
from costar_cli.config.choices import SetupName
from costar_cli.errors import UsageError

if TYPE_CHECKING:
    from costar_cli.evaluation.scores import Scores
    from costar_cli.files.shards import Shard

__all__ = ["PartFiles", "run_part"]


@dataclass(frozen=True)
class PartFiles:
    """What a part reads; the `report` and the table of `predictions` that all parts make, where it is asked for."""

    data: Path
    models: Sequence[Path]
    report: Path
    predictions: Path | None = None

    def check(self, shard: "Shard", session: Session, *, overwrite: bool) -> None:
        """See, before any work, that the files of a part can be written.

        Raises:
            UsageError: an evaluation or predictions that cannot be merged.
            StorageError: a folder does not exist, or an output is no regular file.
            MismatchError: a file is read, or predictions may not be replaced.
        """
        if self.report.suffix.lower() != ".h5":
            fix = "name the whole evaluation: --out FILE.h5"
            raise UsageError("parts of evaluations are .h5 files", where=f"--out {self.report}", fix=fix)
        if self.predictions is not None and self.predictions.suffix.lower() != ".parquet":
            fix = "name the whole table: --predictions FILE.parquet"
            raise UsageError("parts of predictions are Parquet files", where="--predictions", fix=fix)
        check_places([("--out", self.report), ("--predictions", self.predictions)], read=session.read_by())
        check_outputs([("--out", shard.beside(self.report))], read=session.read_by(), overwrite=True)
        table = None if self.predictions is None else shard.beside(self.predictions)
        check_outputs([("--predictions", table)], read=session.read_by(), overwrite=overwrite)


def run_part(
    session: Session, files: PartFiles, setups: Sequence[SetupName] | None, shard: "Shard", *, overwrite: bool
) -> None:
    """Score the shard's subjects, or see that it is up to date; the workspace stays free for other parts."""
    inputs = EvaluationInputs(session, files.data, files.models)
    inputs.require_fitting()
    whole = plan_report(session, inputs, files.report, setups)
    config = {**whole.config, "shard": str(shard)}
    step = session.step("evaluation-part", shard.beside(files.report), parents=whole.parents, config=config)
    files.check(shard, session, overwrite=overwrite)
    current = step.find(overwrite=overwrite, again=overwrite)
    if current is None:
        _make(session, inputs, setups, shard, step, whole, overwrite=overwrite)
    else:
        session.out.up_to_date("part", step.path, current.digest)
    merged = [files.report]
    if files.predictions is not None:
        write_predictions(session, files.predictions, inputs, setups, shard)
        merged.append(files.predictions)
    session.out.next(*(join(["costar", "merge", str(path)]) for path in merged))
    session.out.done({"shard": str(shard), "whole": str(files.report)}, status="up_to_date" if current else "done")


def _make(
    session: Session, inputs: EvaluationInputs, setups: Sequence[SetupName] | None, shard: "Shard",
    step: BuildStep, whole: BuildStep, *, overwrite: bool,
) -> None:  # fmt: skip
    from costar_cli.config.models import EvaluateConfig
    from costar_cli.evaluation import named_candidates
    from costar_cli.evaluation.run import score_models

    session.check_writable(step.path)
    candidates, config = named_candidates(inputs.models), session.settings[EvaluateConfig]
    scored = score_models(inputs.dataset, candidates, config, setups=setups, reporter=session.reporter, shard=shard)
    made_of: dict[str, Any] = {"fingerprint": whole.fingerprint, "config": dict(whole.config)}
    scores = replace(scored, whole=made_of, parents=step.parents)
    artifact = scores.write(step.path, fingerprint=step.fingerprint, config=step.config, overwrite=overwrite)
    session.out.wrote("part", step.path, artifact.digest)
    session.out.text(*_subjects(scores, inputs, shard))


def _subjects(scores: "Scores", inputs: EvaluationInputs, shard: "Shard") -> list[str]:
    """Return how many subjects of each test part were scored."""
    counts = {part: panel.n_subjects for part, panel in inputs.dataset.panels.items()}
    tests = dict.fromkeys(row.test for row in scores.rows if row.test is not None)
    named = {str(part): f"{len(shard.own(count)):,} of {count:,} subjects of {part}" for part, count in counts.items()}
    return [f"part {shard}: {', '.join(named[test] for test in tests)}"]
