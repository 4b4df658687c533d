"""What to do next: commands that are true when pasted, and what may help where a model loses to the last value."""

import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Final, TypedDict

from costar_cli.cli.session import Session
from costar_cli.methods.registry import METHODS, REFERENCE

if TYPE_CHECKING:
    from costar_cli.data.record import ModelRecord
    from costar_cli.evaluation import EvaluationReport
    from costar_cli.evaluation.rows import ReportRow
    from costar_cli.files import Artifact
    from costar_cli.settings.resolve import Settings

LACKS: Final[Mapping[str, tuple[str, ...]]] = {  # of `CARRIED`, what a verb that is suggested does not take
    "ingest table": ("preset", "config"),
    "evaluate": ("preset",),
    "whatif": ("preset",),
}

ASKED: Final = ("--subject", "ID", "--plan", "plan.json")  # of `whatif`
REPEATED: Final = ("seed", "members", "patience", "batch_size", "learning_rate", "step_weights")  # settings with flags

Value = Path | str | Sequence[Path] | None


def next_command(given: Mapping[str, str], verb: str, *words: str, **files: Value) -> str:
    """Return a command, quoted for a shell.

    Args:
        given: the flags to repeat, by name; those that the verb does not take are left out.
        verb: for example `ingest table`.
        words: further words of the command.
        files: flags by name (`data`, `model`, `start`), each with a file or several; None leaves one out.
    """
    kept = {name: value for name, value in given.items() if name not in LACKS.get(verb, ())}
    return join(["costar", *verb.split(), *_flags(kept), *words, *_flags(files)])


def _flags(named: Mapping[str, Value]) -> Iterator[str]:
    for name, value in named.items():
        for one in [] if value is None else [value] if isinstance(value, str | Path) else value:
            yield from (f"--{name}", str(one))


def other_than(path: Path, *defaults: Path) -> Path | None:
    """Return a file that a verb has to be told of, None for one that it finds by itself."""
    return None if path.resolve() in {default.resolve() for default in defaults} else path


def after_loss(
    session: Session, record: "ModelRecord", files: Mapping[str, Value], evaluated: Collection[tuple[str, str]] = ()
) -> list[str]:
    """Return what to run where a model loses to the last value: longer training, and the first other method.

    Args:
        session: the run.
        record: the model's.
        files: the flags that longer training needs; of them `data` is repeated for the other method.
        evaluated: methods and domains that were scored, wherever their files lie.
    """
    return [*train_longer(session, record, files), *other_method(session, record, files.get("data"), evaluated)]


def instead_of_losers(
    session: Session,
    models: "Sequence[tuple[Path, Artifact]]",
    report: "EvaluationReport",
    data: Path | None,
    trainable: Collection[str],
) -> list[str]:
    """Return, for each model that loses to the last value: longer training, and the best other model, or a new one.

    `trainable` are the domains of which the data have somebody to train on: of new subjects, nobody.
    """
    from costar_cli.data.record import ModelRecord

    scored = [row for row in report.rows if row.basis == "ours" and row.provenance]
    losing = {row.provenance.model_digest for row, _ in report.losers() if row.provenance}
    records = [ModelRecord.of(header) for _, header in models]
    methods = {(record.method, record.domain or "source") for record in records}
    paths = {header.digest: path for path, header in models}
    commands: list[str] = []
    for (path, header), record in zip(models, records, strict=True):
        if header.digest not in losing:
            continue
        trains = (record.domain or "source") in trainable
        if trains and other_than(path, *session.workspace.models()) is None:  # what others started from is not known
            commands += train_longer(session, record, {"data": data})
        if (best := best_other(scored, header.digest, losing)) in paths:
            commands.append(next_command(session.given, "whatif", *ASKED, data=data, model=paths[best]))
        elif trains:
            commands += other_method(session, record, data, methods)
    return commands


def best_other(rows: "Sequence[ReportRow]", digest: str, losing: Collection[str]) -> str:
    """Return which model is best in a set-up of this one and loses to the last value nowhere; nothing if none is."""
    setups = {row.setup for row in rows if row.provenance and row.provenance.model_digest == digest}
    errors = {
        row.provenance.model_digest: row.mean.average
        for row in rows
        if row.provenance and row.setup in setups and not row.is_last_value and row.mean.average is not None
    }
    return min(errors.keys() - losing, key=lambda other: (errors[other], other), default="")


def train_longer(session: Session, record: "ModelRecord", files: Mapping[str, Value]) -> list[str]:
    """Return the command that trains a model with this record again for longer, with its settings otherwise.

    That is twice the passes over the rows that the longest stage was allowed which ended by its budget. There is none
    where patience ended all stages, and none where somebody set `finetune.updates`, of which epochs are shares.
    """
    from costar_cli.config.models import FinetuneConfig, RuntimeConfig

    ended = [stage for stage in record.stages or () if stage.ended_by_budget]
    if not ended:
        return []
    # chosen epochs put the updates of a preset aside, which nobody asked for
    if session.settings.is_chosen("finetune.updates") and session.settings[FinetuneConfig].updates is not None:
        return []
    method, domain = record.method, record.domain or "source"
    words = ["--method", method] if method != REFERENCE else []
    words += ["--from", "scratch"] if record.init == "scratch" else []
    words += ["--parts", ",".join(part["method"] for part in record.parts)] if record.parts is not None else []
    words += ["--domain", domain] if domain != "source" else []
    nearest = _nearest_settings(session, record)
    words += _preset(session, nearest)
    without = nearest[FinetuneConfig].model_dump(mode="json")
    for name in REPEATED:  # what the model was trained with, and the settings say otherwise
        value = (record.config or {}).get(name)
        if value is not None and value != without[name]:
            words += [f"--{name.replace('_', '-')}", str(value)]
    if record.precision is not None and record.precision != nearest[RuntimeConfig].precision:
        words += ["--precision", str(record.precision)]
    planned = (record.config or {})["epochs"]
    epochs = 2 * math.ceil(max(float(planned if stage.passes is None else stage.passes) for stage in ended))
    return [next_command(session.given, "finetune", *words, "--epochs", str(epochs), "--overwrite", **files)]


def other_method(
    session: Session,
    record: "ModelRecord",
    data: Value,
    evaluated: Collection[tuple[str, str]] = (),
    *,
    adjusting: bool = False,
) -> list[str]:
    """Return the commands that train the first other method of which there is no model for the domain yet.

    For the target its source model comes first, where it is missing. `evaluated` are methods and domains that were
    scored, wherever their files lie. `adjusting` methods are those whose differences between plans are effects.
    """
    domain, place = record.domain or "source", session.workspace
    own = place.model  # of a method, by domain
    traits = traits_of(record)
    others = METHODS.adjusting(**traits) if adjusting else METHODS.suggested(binary=traits["binary"])
    there = {method for method in others if own(method, "pretrained", domain).exists()}
    there |= {method for method, of in evaluated if of == domain} | {record.method}
    method = next((method for method in others if method not in there), None)
    if method is None:
        return []
    words = ["--method", method, *_preset(session, _nearest_settings(session, record))]
    wanted = ["source"] if domain == "source" or not own(method).exists() else []
    wanted += ["target"] if domain == "target" else []
    steps = ([*words, "--domain", "target"] if step == "target" else words for step in wanted)
    return [next_command(session.given, "finetune", *step, data=data) for step in steps]


class Traits(TypedDict):
    """What of data decides which methods adjust: whether some treatments are doses, and some outcomes binary."""

    doses: bool
    binary: bool


def traits_of(record: "ModelRecord") -> Traits:
    """Return what a model's file says of its data."""
    schema = record.schema
    return {"doses": bool(schema and schema.treatments.doses), "binary": bool(schema and schema.has_binary)}


def _preset(session: Session, settings: "Settings") -> list[str]:
    """Return the flag that asks for the preset of settings, unless it is in force without one."""
    return [] if settings.preset == session.settings.preset else ["--preset", settings.preset]


def _nearest_settings(session: Session, record: "ModelRecord") -> "Settings":
    """Return the settings without flags of the preset that differs least from those a model was trained with.

    `evaluate` does not take the preset of training, and a model's file does not name it.
    """
    from costar_cli.config.models import FinetuneConfig, PretrainConfig
    from costar_cli.files import flatten
    from costar_cli.settings.presets import PRESETS
    from costar_cli.settings.resolve import method_settings, resolve

    file, first = session.given.get("config"), session.settings.preset
    names = [first] if "preset" in session.given else [first, *(name for name in PRESETS if name != first)]
    there = flatten({name: getattr(record, name) or {} for name in ("config", "settings", "encoder")})
    found: list[tuple[int, Settings]] = []
    for name in names:
        settings = resolve(
            {}, preset=name, file=Path(file) if file else None, environ=os.environ, dataset=record.dataset_name
        )
        own = method_settings(settings, record.method, settings[FinetuneConfig])
        document = {
            "config": settings[FinetuneConfig].model_dump(mode="json"),
            "settings": own.model_dump(mode="json") if own else {},
            "encoder": settings[PretrainConfig].encoder.model_dump(mode="json"),
        }
        # `updates` that `--epochs` put aside are None, and do not count
        here, known = flatten(document), {key: value for key, value in there.items() if value is not None}
        found.append((sum(here[key] != known[key] for key in here.keys() & known.keys()), settings))
    return min(found, key=itemgetter(0))[1]
