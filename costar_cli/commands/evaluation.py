"""The body of `costar evaluate`: files in, report out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from costar_cli.commands.models import MAKE_MODEL, LoadedModel, load_models, name_models
from costar_cli.commands.session import BuildStep, Session
from costar_cli.commands.training import MAKE_DATA
from costar_cli.config.choices import SetupName

if TYPE_CHECKING:
    from costar_cli.artifact import Artifact
    from costar_cli.evaluate import EvaluationReport, PerStep
    from costar_cli.panel import Dataset

__all__ = ["EvaluationFiles", "run_evaluate"]


@dataclass(frozen=True)
class EvaluationFiles:
    """What `evaluate` reads and writes; no `plots`, no drawing."""

    data: Path
    models: Sequence[Path]
    report: Path
    csv: Path
    plots: Path | None


def run_evaluate(
    session: Session, files: EvaluationFiles, setups: Sequence[SetupName] | None, *, overwrite: bool
) -> None:
    """Make the evaluation, or see that it is up to date, and show it."""
    from costar_cli.config.models import EvaluateConfig
    from costar_cli.evaluate.store import read_evaluation

    data = session.read("dataset", files.data, "dataset", MAKE_DATA)
    named = name_models(files.models, session.workspace.root)
    headers = {name: session.read(name, path, "model", MAKE_MODEL) for name, path in named.items()}
    parents = {"dataset": data.digest} | {f"model/{name}": header.digest for name, header in headers.items()}
    config = {**session.settings[EvaluateConfig].model_dump(mode="json"), "setups": setups}
    step = session.step("evaluation", files.report, parents=parents, config=config)
    with session.writing(files.report):
        current = step.find(overwrite=overwrite)
        if current:
            report = read_evaluation(files.report, errors=False)
            session.out.up_to_date("evaluation", files.report, current.digest)
        else:
            models = load_models(session, headers, named)
            report = _evaluate(session, files, data, models, setups, step, overwrite=overwrite)
    _show(session, report)
    session.out.next("costar whatif --subject ID --plan plan.json")
    session.out.done(report.to_json(), status="up_to_date" if current else "done")


def _evaluate(
    session: Session,
    files: EvaluationFiles,
    data: "Artifact",
    models: Sequence[LoadedModel],
    setups: Sequence[SetupName] | None,
    step: BuildStep,
    *,
    overwrite: bool,
) -> "EvaluationReport":
    from costar_cli.config.models import EvaluateConfig
    from costar_cli.evaluate import Candidate, run_evaluation
    from costar_cli.evaluate.store import write_evaluation
    from costar_cli.panel import Part
    from costar_cli.panel.store import read_dataset
    from costar_cli.whatif.store import write_bytes

    tests = [part for part in Part.all() if part.split == "test" and str(part) in data.meta.get("parts", {})]
    dataset = read_dataset(files.data, truth=False, parts=tests)
    alike = len({_kind(model) for model in models}) < len(models)
    candidates = [
        Candidate(m.model, m.header.meta, m.header.parents, m.header.digest, name=m.name if alike else None)
        for m in models
    ]
    config = session.settings[EvaluateConfig]
    report = run_evaluation(dataset, candidates, config, setups=setups, reporter=session.reporter)
    artifact = write_evaluation(
        files.report, report, parents=step.parents, fingerprint=step.fingerprint, overwrite=overwrite
    )
    session.out.wrote("evaluation", files.report, artifact.digest)
    write_bytes(files.csv, report.to_csv().encode())
    session.out.wrote("csv", files.csv)
    if files.plots is not None:
        _plot(session, files.plots, report, dataset, models)
    return report


def _kind(loaded: LoadedModel) -> tuple[object, ...]:
    """Return what the report calls a model unless it is given a name."""
    meta = loaded.header.meta
    return loaded.model.method, meta.get("init"), meta.get("domain")


def _plot(
    session: Session,
    folder: Path,
    report: "EvaluationReport",
    dataset: "Dataset",
    models: Sequence[LoadedModel],
) -> None:
    from costar_cli.commands.evaluation_plots import draw_plots

    folder.mkdir(parents=True, exist_ok=True)
    encoder = session.workspace.encoder
    for role, path in draw_plots(folder, report, dataset, models, encoder, session.reporter):
        session.out.wrote(role, path, kind="plot")


def _show(session: Session, report: "EvaluationReport") -> None:
    """Print a table: one line per row of the report, the average over steps first."""
    unit = report.unit.label or "outcome units"
    session.out.text(f"RMSE in {unit} on {report.dataset}: mean over members ± sd, and their ensemble's own")
    headers = ["setup", "model", "average", "ensemble", f"{report.level:.0%} interval"]
    headers += [f"tau={h + 1}" for h in range(report.horizon)]
    rows = []
    for row in report.rows:
        label = row.label if row.basis == "ours" else f"{row.label} ({row.basis})"
        interval = _interval(row.lower, row.upper)
        steps = [_number(value) for value in (*row.mean.steps, *[None] * report.horizon)[: report.horizon]]
        ensemble = row.ensemble.average if row.ensemble and len(row.members) > 1 else None
        average = _spread(row.mean.average, row.sd.average if row.sd else None)
        rows.append([row.setup, label, average, _number(ensemble), interval, *steps])
    session.out.table(headers, rows)


def _spread(mean: float | None, sd: float | None) -> str | None:
    return _number(mean) if sd is None or mean is None else f"{_number(mean)} ± {_number(sd)}"


def _interval(lower: "PerStep | None", upper: "PerStep | None") -> str | None:
    if lower is None or upper is None or lower.average is None or upper.average is None:
        return None
    return f"{_number(lower.average)} to {_number(upper.average)}"


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"
