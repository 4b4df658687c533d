"""What the two training verbs share: the file and the summary of a run."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from costar_cli.api.outputs import check_places
from costar_cli.cli.hints import traits_of
from costar_cli.cli.session import BuildStep, Session
from costar_cli.diagnostics import WORSE_THAN_LAST_VALUE, Diagnostic
from costar_cli.errors import ArtifactError, Termination
from costar_cli.methods.registry import METHODS, REFERENCE, THAT_ADJUST
from costar_cli.reporting import both_errors, launched, than_last_value, warnings_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from costar_cli.data.record import ModelRecord
    from costar_cli.files import Artifact
    from costar_cli.reporting.output import Output
    from costar_cli.training import Trained, TrainingLog


def make_trained(
    session: Session,
    step: BuildStep,
    train: "Callable[[TrainingLog | None], Trained]",
    *,
    overwrite: bool,
    fresh: bool,
    log: Path | None = None,
) -> tuple["Artifact", str]:
    """Train and store an encoder or a model, or see that it is up to date; return it and which of the two."""
    from costar_cli.config.models import RuntimeConfig
    from costar_cli.data.record import ModelRecord
    from costar_cli.files.digest import known_threads, making_differences, making_here
    from costar_cli.methods.shared import processes

    if log is not None:
        from costar_cli.training import check_log, log_file

        check_places([("--out", step.path), ("--log", log_file(log))], read=session.read_by(step))
        check_log(log, step.fingerprint, overwrite=overwrite)
    with session.making(step, overwrite=overwrite, again=fresh) as artifact:
        if artifact:
            session.out.up_to_date(step.kind, step.path, artifact.digest)
            record = ModelRecord.of(artifact)
            threads = known_threads(session.settings[RuntimeConfig].threads)
            here = {name: value for name, value in making_here("", threads or 0).items() if name != "device"}
            lines = making_differences(record.made_with or (), here | {"threads": threads})
            if lines and session.out.shows("notes"):
                made = f"made in a different environment ({'; '.join(lines)})"
                session.out.note(f"{made}: remade here, its digest may differ")
            for warning in warnings_of(f"{step.kind} `{step.path.stem}`", record.warnings):
                session.out.say(warning)
            if log is not None:
                session.out.note("nothing was trained, so that nothing is logged; --fresh trains again")
            return artifact, "up_to_date"
        from costar_cli.training import TrainingLog

        logged: AbstractContextManager[TrainingLog | None] = nullcontext()
        if log is not None and not launched("RANK"):
            logged = TrainingLog(log, step.fingerprint, overwrite=overwrite or fresh)
        with processes.together(), logged as to:
            trained = train(to)
        if log is not None:
            session.out.wrote("log", log, kind=log.suffix[1:] or "tensorboard")
        return _store(session, step, trained, overwrite=overwrite or fresh), "done"


def _store(session: Session, step: BuildStep, trained: "Trained", *, overwrite: bool) -> "Artifact":
    """Write what was trained, and forget the run's state; of several processes that trained it, the first one does."""
    from costar_cli.data.record import ModelRecord
    from costar_cli.files import Artifact, read_header, write_artifact
    from costar_cli.files.digest import making_differences
    from costar_cli.training import forget_runs

    if launched("RANK"):
        return Artifact(step.kind, {}, trained.meta)
    Termination.stop_if_signalled()
    try:
        before = read_header(step.path) if step.path.exists() else None
    except ArtifactError:
        before = None
    artifact = write_artifact(
        step.path,
        kind=step.kind,
        arrays=trained.arrays,
        meta=trained.meta,
        parents=trained.parents,
        overwrite=overwrite,
    )
    forget_runs(step.run)
    session.out.wrote(step.kind, step.path, artifact.digest)
    recorded = None if before is None else ModelRecord.read(before.meta, lenient=True).fingerprint
    if before is None or recorded != step.fingerprint or before.digest == artifact.digest:
        return artifact
    # of the same inputs and settings: threads or versions differ, or nothing that is promised
    made = ModelRecord.of(artifact).made_with or ()
    here, there = made[-1], ModelRecord.read(before.meta, lenient=True).made_with or ()
    lines = making_differences(there, here)
    if lines or not there:
        what = f"the digest was {before.digest[:8]} before"
        session.out.note(f"{what}: {'; '.join(lines) or 'that file does not record its environment'}")
    elif len(there) == len(made) == 1 and here["device"] == "cpu":
        session.out.say(Diagnostic.of("digest-differs", before=before.digest[:8]))
    return artifact


def show_training(session: Session, record: "ModelRecord", status: str, *next_commands: str) -> None:
    """Print how good the model is beside the last value, and what limits that; end the verb."""
    out, rows = session.out, _members(record)
    if out.shows("members"):
        if rows:  # a closed-form fit has no epochs to tell of
            shown = [["training limit" if cell == "budget" else cell for cell in row] for row in rows]
            out.table([field.replace("_", " ") for field in _FIELDS], shown, keys=1)
        show_parts(out, record)
    out.text(*_training_lines(record, rows))
    if record.stopped_by_budget:
        out.text("! stopped at the training limit: more epochs may lower the error")
    if effects := on_effects(record):
        out.say(effects)
        out.text(
            *["! its differences between plans are forecasts, not effects (--show notes)"] * (not out.shows("notes"))
        )
    out.release(1, words=WORSE_THAN_LAST_VALUE)
    out.next(*next_commands)
    reference = record.reference
    members = [dict(zip(_FIELDS, row, strict=True)) for row in rows]
    stages = [
        {"name": stage.name, "updates": list(stage.steps or ()), "ended_by": list(stage.ended_by or ())}
        for stage in record.stages or ()
    ]
    meta = record.to_meta()
    facts = {key: meta[key] for key in _FACTS if key in meta}
    out.done({"members": members, "reference_loss": reference, "stages": stages, **facts}, status=status)


def _training_lines(record: "ModelRecord", rows: "Sequence[Sequence[object]]") -> list[str]:
    """Return what was trained, and how it did on validation beside the last value carried forward."""
    from costar_cli.data.findings import counted

    weighed = sorted(record.leaderboard or (), key=lambda row: -(row.get("weight") or 0))
    shares = {row["method"]: row.get("weight") for row in weighed if row["method"] != METHODS.combining.name}
    parts = {str(name): f"{name} ({100 * share:.0f} %)" for name, share in shares.items() if share}
    what = METHODS.label(record.method) if record.horizon else "Encoder"
    what += f" of {', '.join(parts.values())}" if len(parts) > 1 else "".join(f", {name} alone" for name in parts)
    what += f", {counted(len(rows), 'member')}" * (len(rows) > 1)
    validation = record.validation
    if validation is None:
        if record.reference is None:
            return [what]
        losses = [row[3] for row in rows if isinstance(row[3], float)]
        loss = (
            f"training loss {min(losses):.4g}" + f" to {max(losses):.4g}" * (len(losses) > 1) if losses else "trained"
        )
        return [f"{what}: {loss}; loss of random guessing: {record.reference:.4g}"]
    source = "" if validation.source is None else f" (source model {validation.source:.3f})"
    errors = f"{both_errors(validation.score, validation.last_value)} sd{source}"
    lines = [
        f"{what}: {than_last_value(validation.score, validation.last_value)}",
        f"   validation RMSE {errors}, {counted(validation.windows, 'forecast')}",
    ]
    if record.method == REFERENCE and (added := record.facts.get("remainder_added")) is not None:
        base = METHODS.label(record.facts["base"]["method"])
        lines.append(f"   {base} fitted first, and {100 * added:.0f} % of COSTAR's correction added")
    return lines


def show_parts(out: "Output", record: "ModelRecord") -> None:
    """Print the parts of a combination with their errors and weights, as far as a file says them as costar does."""
    rows = record.leaderboard or ()
    if rows:
        columns = [name for name in PART_COLUMNS if any(row.get(name) is not None for row in rows)]
        cells: list[list[object]] = [[row.get(name) for name in columns] for row in rows]
        relative = set(record.relative or ())  # which outcomes are scored relative to their level (spec STACK-1)
        unit = "as a share of each outcome's level at the origin, or in its sd where it may be negative or "
        unit += "return from 0"
        if relative == {True}:
            unit = "as a share of the outcome's level at the origin"
        elif relative == {False}:
            unit = "in sd of the outcome"
        out.text("")
        out.table([PART_COLUMNS[name] for name in columns], cells, keys=1, title=f"errors on validation, {unit}")
        out.text("the error of a stack is in sample where one part has all weight, of other subjects where it mixes")
        if THAT_ADJUST in str(record.rules):
            out.text("where they err no more than chance, parts go first whose differences between plans are effects")
        if limit := (record.facts.get("effect_check") or {}).get("limit"):
            out.text(
                f"effects are compared with a doubly robust estimate: parts more than {limit:g} standard errors off "
                "have no weight"
            )
    for name, reason in (record.left_out or {}).items():
        if not any(warning.endswith(f" is left out of the stack: {reason}") for warning in record.warnings):
            out.note(f"{name} is not a part: {reason}")


def on_effects(record: "ModelRecord") -> "Diagnostic | None":
    """Return as a note that differences between plans are no effects, as far as a model's file says so."""
    from costar_cli.inference import Reactions

    known = Reactions.read(record.reactions)
    if known is None or not known.matter:
        return None
    return replace(known.diagnostic(METHODS.label(record.method), **traits_of(record)), severity="note")


PART_COLUMNS = {
    "method": "method", "error": "error", "se": "standard error", "effect": "effect off by (se)", "weight": "weight",
    "seconds": "seconds",
}  # fmt: skip
_FACTS = (
    "validation", "kept_source_members", "stopped_by_budget", "leaderboard", "left_out", "effect_check", "reactions",
)  # fmt: skip


_FIELDS = ("member", "epochs", "kept_epoch", "train_loss", "validation_loss", "updates", "ended_by")


def _members(record: "ModelRecord") -> list[list[object]]:
    """Return the fields of each member, of the last stage of its training.

    The epoch is the one whose weights are kept, counted from 1, and the losses are those there; 0 stands for the
    weights of the source's model, which have none. `ended_by` is `patience` or `budget` (epochs or updates ran out).
    Updates and what ended them are unknown in older files.
    """
    from costar_cli.data.record import StageRecord

    history, last = record.history or {}, (record.stages or (StageRecord(),))[-1]
    keeps_last = (record.config or {}).get("keep") == "last"
    n_members = len(history["train_loss"])
    rows: list[list[object]] = []
    for r in range(n_members):
        train_loss, validation_loss, best = (history[key][r] for key in ("train_loss", "validation_loss", "best_epoch"))
        epochs = len(train_loss)
        kept = epochs - 1 if keeps_last or not 0 <= best < epochs else best
        losses: list[float | None] = [train_loss[kept], validation_loss[kept]]
        if r + 1 in (record.kept_source_members or ()):
            kept, losses = -1, [None, None]
        steps, ended_by = (each[r] if each is not None else None for each in (last.steps, last.ended_by))
        rows.append([r + 1, epochs, kept + 1, *losses, steps, ended_by])
    return rows
