"""The body of `costar evaluate --refute`: models fitted again in cheap versions, and what that finds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costar_cli.cli.scores import number
from costar_cli.cli.session import Session
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import CostarError, MismatchError
from costar_cli.methods.registry import METHODS
from costar_cli.reporting import NullReporter

if TYPE_CHECKING:
    from costar_cli.api.fitting import FitPlan
    from costar_cli.config.models import Config, RefuteConfig, RuntimeConfig
    from costar_cli.data import Dataset
    from costar_cli.data.record import ModelRecord
    from costar_cli.evaluation.refute import Refutation
    from costar_cli.methods.base import FittedModel


@dataclass(frozen=True)
class Refits:
    """Fits the method of a model again, from scratch, with the model's own settings but the costly ones."""

    plan: "FitPlan"

    @classmethod
    def of(cls, record: "ModelRecord", config: "RefuteConfig", runtime: "RuntimeConfig") -> "Refits":
        """Return what fits a model like the one that has this record.

        Raises:
            MismatchError: its settings are of another version.
        """
        from costar_cli.api.fitting import FitPlan
        from costar_cli.config.models import EncoderConfig, FinetuneConfig

        method = record.method
        try:
            shared = FinetuneConfig.model_validate(record.config)
            encoder = shared.encoder if record.encoder is None else EncoderConfig.model_validate(record.encoder)
            of_parts = {part["method"]: _own(part["method"], part.get("settings")) for part in record.parts or ()}
            own = _own(method, record.settings)
        except (ValueError, KeyError, TypeError) as error:
            raise MismatchError(
                "the model's settings are not those of this version", where=str(error), fix="retrain it"
            ) from error
        updates = min(config.updates, shared.updates or config.updates)
        changes = {"members": 1, "updates": updates, "encoder": encoder}
        return cls(FitPlan(method, "source", shared.model_copy(update=changes), runtime, own, {}, of_parts))

    @property
    def trains_networks(self) -> bool:
        """Return whether anything of the method has updates, which refits have fewer of."""
        return not METHODS.in_closed_form(self.plan.method, self.plan.part_settings)

    def __call__(self, data: "Dataset", seed: int) -> "FittedModel":
        """Fit to the source's subjects of a data set."""
        from dataclasses import replace

        from costar_cli.data.record import ModelRecord
        from costar_cli.files import Artifact

        plan = replace(self.plan, config=self.plan.config.model_copy(update={"seed": seed}))
        # nothing continues a refit, or asks it for bands or lights
        trained = plan.run(data, None, checkpoint=None, reporter=NullReporter(), judged=False)
        artifact = Artifact(kind="model", arrays=trained.arrays, meta=trained.meta)
        return METHODS[plan.method].load(artifact, ModelRecord.of(artifact).device or "cpu")


def _own(method: str, document: Any) -> "Config | None":  # noqa: ANN401 - JSON
    settings = METHODS[method].settings_class
    return settings.model_validate(document or {}) if settings else None


def make_refutations(
    session: Session,
    data: Path,
    path: Path,
    models: Callable[[], Mapping[str, "FittedModel"]],
    parents: Mapping[str, str],
    *,
    overwrite: bool,
) -> list["Refutation"]:
    """Refute every model of the source domain and store what is found, or see that it is up to date; and show it.

    Arrays of the file are found values with their bounds; everything is in its meta.
    """
    from costar_cli.config.models import EvaluateConfig, RefuteConfig
    from costar_cli.evaluation.refute import Refutation
    from costar_cli.files import read_artifact, write_artifact

    seed = session.settings[EvaluateConfig].seed
    config = {**session.settings[RefuteConfig].model_dump(mode="json"), "seed": seed}
    step = session.step("refutation", path, parents=parents, config=config)
    with session.making(step, overwrite=overwrite, again=overwrite) as current:
        if current:
            session.out.up_to_date("refutation", path, current.digest)
            found = [Refutation.from_json(one) for one in read_artifact(path, kind="refutation").meta["refutations"]]
        else:
            import numpy as np

            found = _refute_all(session, data, models())
            rows = [(finding.lower, finding.found, finding.upper) for one in found for finding in one.findings]
            arrays = {"found": np.array(rows, dtype=np.float64).reshape(-1, 3)}
            documents = [one.to_json() for one in found]
            meta = {"refutations": documents, "fingerprint": step.fingerprint, "config": config}
            artifact = write_artifact(
                path, kind="refutation", arrays=arrays, meta=meta, parents=step.parents, overwrite=overwrite
            )
            session.out.wrote("refutation", path, artifact.digest)
    headers = ["test", "of", "expected", "found", "95 % interval", "passes within", "verdict"]
    for refutation in found:
        lines: list[list[object]] = []
        for test, findings in refutation.by_test().items():
            first = findings[0]  # which decides the test
            of = first.quantity + (f" (and {len(findings) - 1} more)" if len(findings) > 1 else "")
            interval = None
            if first.lower is not None and first.upper is not None and first.sd is not None:
                interval = f"{first.lower:.3f} to {first.upper:.3f}"
            margin = f"{first.expected - first.margin:.3f} to {first.expected + first.margin:.3f}"
            lines.append([test, of, f"{first.expected:.3f}", number(first.found), interval, margin, first.verdict])
        title = f"refutation of {refutation.model} ({METHODS.label(refutation.method)}); effects in sds"
        session.out.table(headers, lines, title=title, keys=2)
        session.out.text(*dict.fromkeys(f"{f.test}: {f.note}" for f in refutation.findings if f.note))
        for note in refutation.notes:
            session.out.note(note)
    return found


def _refute_all(session: Session, data: Path, models: Mapping[str, "FittedModel"]) -> list["Refutation"]:
    from costar_cli.config.models import EvaluateConfig, RefuteConfig, RuntimeConfig
    from costar_cli.data import Part
    from costar_cli.evaluation.refute import Refutation, refute

    source = [Part("source", split) for split in ("train", "val", "test")]
    dataset = session.load_dataset(data, queries=False, truth=False, parts=source)
    config, seed = session.settings[RefuteConfig], session.settings[EvaluateConfig].seed
    found = []
    for label, model in models.items():
        if model.record.of_target:
            session.out.note(f"{label} is not refuted: it was adapted to few subjects; the source's model is")
            continue
        try:
            refits = Refits.of(model.record, config, session.settings[RuntimeConfig])
            findings = refute(model, dataset, refits, config, seed=seed, reporter=session.reporter, label=label)
        except CostarError as error:
            session.out.say(Diagnostic.of("not-refuted", label, problem=error.problem))
            continue
        # in which way refits are cheaper than the model
        notes = [f"each refit learns from a random half of the training subjects, at most {config.subjects // 2:,}"]
        if refits.trains_networks:
            notes.append(f"refitted networks have one member and at most {refits.plan.config.updates:,} updates")
        if METHODS[refits.plan.method].pretrained:
            notes.append("refits start from random weights, without pretraining")
        settings = config.model_dump(mode="json")
        found.append(Refutation(label, model.method, config.refits, tuple(findings), tuple(notes), settings))
    return found
