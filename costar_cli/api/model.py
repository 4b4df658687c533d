"""Trained encoders and models: what `fit` and `load_model` return, and how they are kept."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from costar_cli.api.calls import PathLikeText, Progress, When, levels_of, one_of, origin_of
from costar_cli.api.outputs import check_artifact_name
from costar_cli.config.choices import DeviceName, RankingName
from costar_cli.config.models import RuntimeConfig
from costar_cli.config.requests import WhatIfRequest
from costar_cli.data.record import ModelRecord
from costar_cli.files import Artifact, content_digest, read_artifact, write_artifact
from costar_cli.files.digest import canonical_json
from costar_cli.files.frames import FrameName
from costar_cli.methods.registry import METHODS
from costar_cli.methods.shared.cores import use_threads
from costar_cli.methods.stored import model_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from costar_cli.api.estimates import Plans
    from costar_cli.data import Dataset, Panel
    from costar_cli.files.frames import Frame
    from costar_cli.methods.base import FittedModel
    from costar_cli.training import Trained


@dataclass(frozen=True, eq=False, repr=False)
class _Learned:
    """What training made, as its file holds it or would hold it."""

    artifact: Artifact

    @property
    def record(self) -> ModelRecord:
        """Return the facts of its file."""
        return ModelRecord.of(self.artifact)

    @property
    def digest(self) -> str:
        """Return the digest of its file, saved or not."""
        return self.artifact.digest

    @property
    def members(self) -> int:
        """Return the number of ensemble members."""
        return self.record.members or 1

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what its training warned of."""
        return tuple(dict.fromkeys(self.record.warnings))

    def save(self, path: PathLikeText, *, overwrite: bool = False) -> None:
        """Write it to a file, as `costar pretrain` and `costar finetune` do.

        Raises:
            MismatchError: the file exists and `overwrite` is false.
            StorageError: the disk is full, read-only or forbidden.
            UsageError: the file is named like a table, a page or a figure.
        """
        check_artifact_name(Path(path), flag="path=")
        own = self.artifact
        write_artifact(path, kind=own.kind, arrays=own.arrays, meta=own.meta, parents=own.parents, overwrite=overwrite)

    def _repr_html_(self) -> str:
        """Return the facts that a notebook shows; every text is escaped."""
        from costar_cli.report.pages.page import ReportTable, fragment

        facts = {"method": self.record.method, "data set": self.record.dataset_name, "fitted to": self.record.domain,
                 "members": self.members, "horizon": self.record.horizon, "digest": self.digest}  # fmt: skip
        facts |= {f"warning {i}": text for i, text in enumerate(self.warnings, start=1)}
        rows = tuple((name, value) for name, value in facts.items() if value is not None)
        return fragment(f"{type(self).__name__} {self._what}", [ReportTable("", "", ("fact", "value"), rows)])

    def plot(self) -> "Figure":
        """Return its learning curves as a figure of matplotlib.

        Raises:
            DataError: it is fitted in closed form, without epochs.
        """
        from costar_cli.report.figures.learning import LearningCurve, draw_learning

        return draw_learning(LearningCurve.of_stages(self.record.method, self.record))

    def __repr__(self) -> str:
        several = "s" * (self.members != 1)
        return f"<{type(self).__name__} {self._what}: {self.members} member{several}, {self.digest[:8]}>"

    @property
    def _what(self) -> str:
        return self.record.method


class Encoder(_Learned):
    """A pretrained encoder, from which `fit(..., start=encoder)` starts."""


@dataclass(frozen=True, eq=False, repr=False)
class Model(_Learned):
    """A trained ensemble that answers treatment plans; `fitted` is what computes the answers."""

    fitted: "FittedModel"

    @property
    def method(self) -> str:
        """Return the name of its method."""
        return self.fitted.method

    @property
    def horizon(self) -> int:
        """Return the most steps of a plan that it answers."""
        return self.fitted.horizon

    @property
    def domain(self) -> str:
        """Return the domain on which it was trained last: `source` or `target`."""
        return self.record.domain or "source"

    def predict(
        self,
        data: "Dataset | Panel | Frame",
        plans: "Plans",
        *,
        subjects: Iterable[int | str] | None = None,
        part: str | None = None,
        origin: When | None = None,
        level: float | Sequence[float] = 0.9,
        truth: bool = False,
        unsupported: bool = False,
        subject: str | None = None,
        time: str | None = None,
        frame: FrameName | None = None,
        progress: Progress = False,
    ) -> "Frame":
        """Predict the outcomes of many subjects under treatment plans.

        Args:
            data: a data set; a panel of its kind; or a frame of pandas or polars with a row per subject and step, read
                as `costar.read_new_subjects` does.
            plans: named plans, `{"chemo": [{"chemotherapy": 1}, {}]}`; one plan, a list of steps; a document as in
                `plan.json`; or the path of one. Every subject is asked about under each of them.
            subjects: of a data set, the subjects to ask about; all by default.
            part: of a data set, the part to ask about, such as `target/test`.
            origin: index of the last known step, `last`, `all`, -K for K steps before the last, or a date; that of the
                plans, or each subject's last one.
            level: probability between `lower` and `upper` (docs/uncertainty.md); of several, all but the first have
                columns such as `lower_0.5`.
            truth: add what the simulator says, of a simulated data set.
            unsupported: answer plans of treatments that no training subject was given, too.
            subject: of a frame, the column that says whose row it is, where it is not called as in training.
            time: of a frame, the column of time, likewise; where there is none, a subject's rows are steps as they
                stand.
            frame: `pandas` or `polars`; that of the data by default, pandas where it came in neither.
            progress: True for progress on stderr, or a `Reporter`.

        Returns:
            A row per subject, plan, step and outcome: `subject`, `label`, of a data set `dataset`, `part`, `domain`
            and `split`, `origin`, `plan`, `step` (from 1), `time` (origin + step), of data with dates its `date`,
            `outcome`, `unit`, `estimate` (the members' mean, in the units of the data), `lower`, `upper`, `level`,
            `interval_kind`, the lights `precision`, `practice` and `support` (docs/support.md), and `truth` where it
            was asked for.

        Raises:
            UsageError: unknown subjects, plans that do not fit, truth of observed data.
            DataError: a frame that cannot be read.
            MismatchError: a data set of other variables, treatments or units than the model's.
        """
        from costar_cli.api.predictions import Arguments, predict

        arguments = Arguments(
            data=data, plans=plans, subjects=subjects, part=part, subject=subject, time=time, progress=progress
        )
        request = WhatIfRequest(origin=origin_of(origin), levels=levels_of(level), truth=truth, unsupported=unsupported)
        return predict(self, arguments, request, frame)

    def average(
        self,
        data: "Dataset | Panel | Frame",
        plans: "Plans",
        *,
        by: str | None = None,
        reference: str | None = None,
        subjects: Iterable[int | str] | None = None,
        part: str | None = None,
        origin: When | None = None,
        level: float | Sequence[float] = 0.9,
        truth: bool = False,
        unsupported: bool = False,
        subject: str | None = None,
        time: str | None = None,
        frame: FrameName | None = None,
        progress: Progress = False,
    ) -> "Frame":
        """Estimate mean outcomes of many subjects under plans, and mean differences between plans.

        Args:
            by: a static, or an outcome or covariate whose quantiles at the origin make groups (`NAME:3` for three).
            reference: the plan that others are compared with; the first by default.
            data: this and all other arguments are as in `predict`.

        Returns:
            A row per quantity (`outcome` or `difference`), group, plan, step and outcome: `estimate` with `lower`,
            `upper`, `level` and `interval_kind`, what they include, or why there are none; `estimator`: `model`, or
            `tmle` where the mean of a model without a posterior is corrected by those who followed the plan
            (docs/averages.md), and `model_estimate`, what the model alone says; `moments` and `units`, how many
            questions and subjects (or clusters) there are; `truth` where it was asked for.

        Raises:
            UsageError: as in `predict`; plans that differ between subjects.
        """
        from costar_cli.api.predictions import Arguments, average

        arguments = Arguments(
            data=data, plans=plans, subjects=subjects, part=part, subject=subject, time=time, progress=progress
        )
        request = WhatIfRequest(
            origin=origin_of(origin), levels=levels_of(level), truth=truth, unsupported=unsupported,
            average=True, by=by, reference=reference,
        )  # fmt: skip
        return average(self, arguments, request, frame)

    def search(
        self,
        data: "Dataset | Frame",
        *,
        minimise: str | Sequence[str] = (),
        maximise: str | Sequence[str] = (),
        cost: str | Sequence[str] = (),
        at_most: str | Sequence[str] = (),
        at_least: str | Sequence[str] = (),
        not_consecutive: str | Sequence[str] = (),
        not_with: str | Sequence[str] = (),
        levels: str | Sequence[str] = (),
        only_from: "Plans | None" = None,
        reference: "Plans | None" = None,
        steps: int | None = None,
        beam: int | None = None,
        by: RankingName = "estimate",
        level: float = 0.9,
        unsupported: bool = False,
        subjects: Iterable[int | str] | None = None,
        part: str | None = None,
        origin: When = "last",
        frame: FrameName | None = None,
        progress: Progress = False,
    ) -> "Frame":
        """Search the best plan of each subject (docs/search.md); a single subject is searched more closely.

        Args:
            data: a data set, or a frame of new subjects as in `predict`.
            minimise: what to make small, as `costar search --minimise` takes it, such as `"outcome at end"`; one text
                or several, as of all arguments down to `levels`.
            maximise: what to make large.
            cost: what treatments cost, in the objective's unit.
            at_most: how often treatments may be given, such as `"chemotherapy 2"`.
            at_least: how often they must be.
            not_consecutive: treatments that are not given in two steps on end.
            not_with: treatments that are not given together.
            levels: doses to choose from, such as `"dose 0,5,10"`; some over the range of the data by default.
            only_from: plans to choose from, instead of all.
            reference: the plan that others are compared with; no treatment by default.
            steps: the length of plans; the horizon by default.
            beam: how many plans a beam search keeps, where one is wanted.
            by: what decides: the estimate, or a limit of its interval.
            level: of the intervals.
            unsupported: consider plans that the data do not support, too.
            subjects: as in `predict`, as are `part`, `frame` and `progress`.
            part: see there.
            origin: index of the last known step, `last`, -K for K steps before the last, or a date.
            frame: see there.
            progress: see there.

        Returns:
            A row per subject and plan, the best five and the reference, whose `rank` is missing: `plan` in words,
            `objective` with `lower` and `upper`, `difference` from the reference with its limits, `probability_best`,
            `support`, `margin`, `expected_regret`, how many plans were `alike`, `considered` and `left_out`, and the
            `reason` where no plan is the best.

        Raises:
            UsageError: an objective or constraints that do not fit, all problems at once; unknown subjects.
        """
        from costar_cli.api.search import best_plans, words_of

        words = {
            "minimise": minimise, "maximise": maximise, "cost": cost, "at_most": at_most, "at_least": at_least,
            "not_consecutive": not_consecutive, "not_with": not_with, "only_from": only_from, "reference": reference,
            "steps": steps, "beam": beam, "by": by, "level": level, "unsupported": unsupported, "levels": levels,
        }  # fmt: skip
        return best_plans(
            self, data, words_of(words), subjects=subjects, part=part, origin=origin, frame=frame, progress=progress
        )

    @property
    def _what(self) -> str:
        return (
            f"{self.method}{' from scratch' * (self.record.init == 'scratch')} on {self.domain}, horizon {self.horizon}"
        )


def of_training(kind: str, trained: "Trained") -> Artifact:
    """Return what training made as its file would give it, with the digest that the file would have."""
    meta = json.loads(canonical_json(trained.meta))
    digest = content_digest(kind, arrays=trained.arrays, meta=meta, parents=trained.parents)
    return Artifact(kind=kind, arrays=trained.arrays, meta=meta, parents=trained.parents, digest=digest)


def load_model(path: PathLikeText, *, device: DeviceName = "auto") -> Model:
    """Read a model that `costar finetune` or `Model.save` wrote.

    Args:
        path: the file.
        device: where it answers: `cpu`, `cuda`, or `auto` for a GPU where there is one.

    Raises:
        ArtifactError: the file is missing, holds no model, or one of a method that this version does not know.
        DeviceError: there is no such device.
    """
    one_of(device, get_args(DeviceName), "device", "device")
    return model_on(read_artifact(path, kind="model"), RuntimeConfig(device=device))


def model_on(artifact: Artifact, runtime: RuntimeConfig) -> Model:
    """Return the model that an artifact holds, on the device of the settings."""
    return Model(artifact, model_of(artifact, device_for(runtime, [ModelRecord.of(artifact)])))


def device_for(runtime: RuntimeConfig, records: Iterable[ModelRecord]) -> str:
    """Return the device on which models answer, after setting threads and arithmetic; closed forms need no torch.

    Raises:
        DeviceError: CUDA was asked for and there is none, or the device lacks the precision.
    """
    kinds = ((record.method, [str(part.get("method")) for part in record.parts or ()]) for record in records)
    if runtime.device != "cuda" and all(METHODS.in_closed_form(*kind) for kind in kinds):
        if runtime.threads is not None:
            use_threads(runtime.threads)
        return "cpu"
    from costar_cli.training import Runtime

    return str(Runtime.resolve(runtime).device)
