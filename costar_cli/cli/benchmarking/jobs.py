"""The jobs of a benchmark: each is one artifact, or a model with its scores, made by the bodies of the verbs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from costar_cli.cli.benchmarking.methods import BenchmarkData, BenchmarkMethod
from costar_cli.cli.evaluation import EvaluationInputs, make_report, plan_report
from costar_cli.cli.finetune import FinetuneFiles, make_model, plan_model
from costar_cli.cli.pretrain import make_encoder, plan_encoder
from costar_cli.cli.session import BuildStep, Session
from costar_cli.cli.workspace import Workspace
from costar_cli.config.choices import DomainName
from costar_cli.diagnostics import WORSE_THAN_LAST_VALUE, Diagnostic
from costar_cli.errors import ArtifactError, CostarError, MismatchError
from costar_cli.files.shards import Shard
from costar_cli.methods.registry import REFERENCE
from costar_cli.reporting import Reporter, Task
from costar_cli.reporting.output import Output
from costar_cli.reporting.progress import OutputReporter

if TYPE_CHECKING:
    from costar_cli.settings.resolve import Settings

Role = Literal["data", "encoder", "source", "target"]


@dataclass(frozen=True, slots=True)
class Job:
    """What is made of one data set for one method: the data, an encoder, or a model of one domain with its scores.

    `seed` is the data set's. `needs` names the jobs that come first.
    """

    seed: int
    role: Role
    method: BenchmarkMethod | None = None
    needs: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return the job's name, `crn/target/10`."""
        return "/".join([*([self.method.name] if self.method else []), self.role, str(self.seed)])

    @property
    def is_scored(self) -> bool:
        """Return whether the job ends with scores."""
        return self.role in ("source", "target")

    def __str__(self) -> str:
        what = f"{self.method.label}, {self.role}" if self.method else "data set"
        return f"{what}, seed {self.seed}"


def plan_jobs(seeds: Sequence[int], methods: Sequence[BenchmarkMethod], *, few_shot: bool) -> list[Job]:
    """Return the jobs of a benchmark, each after those that it needs.

    Zero-shot and supervised scores are those of one model, trained on the source; a model of the target is few-shot's.
    Ablations are tested in zero-shot and supervised alone: the paper has no other.
    """
    jobs: dict[str, Job] = {}
    for seed in seeds:
        data = Job(seed, "data")
        jobs[data.key] = data
        for method in methods:
            needs = [data.key]
            if method.is_pretrained:
                owner = method if method.own_encoder else BenchmarkMethod(REFERENCE, REFERENCE)  # which others share
                encoder = Job(seed, "encoder", owner, (data.key,))
                jobs.setdefault(encoder.key, encoder)
                needs.append(encoder.key)
            source = Job(seed, "source", method, tuple(needs))
            jobs[source.key] = source
            if few_shot and not method.is_ablation:
                target = Job(seed, "target", method, (data.key, source.key))
                jobs[target.key] = target
    return list(jobs.values())


def jobs_of(shard: Shard, jobs: Sequence[Job]) -> list[Job]:
    """Return a part's jobs of a benchmark, in order: every N-th pair of data and method, with its needs."""
    pairs = list(dict.fromkeys((job.seed, job.method) for job in jobs if job.is_scored))
    own = {job.key for job in jobs if job.is_scored and (job.seed, job.method) in pairs[shard.number - 1 :: shard.of]}
    for job in reversed(jobs):  # what a job needs comes before it
        own |= set(job.needs) if job.key in own else set()
    return [job for job in jobs if job.key in own]


class JobEnd(NamedTuple):
    """How a job ended: the seconds that it took if it was made, or an error, or the job that it lacks.

    `died` says that the process that made it has ended.
    """

    job: Job
    took_s: float | None = None
    error: CostarError | None = None
    blocked: str | None = None
    died: bool = False


@dataclass
class Outcome:
    """What became of the jobs: how many were made now, and which could not be, by key."""

    made: int = 0
    failed: dict[str, CostarError] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)

    def blocked_by(self, job: Job) -> str | None:
        """Return what a job needs and could not be made."""
        return next((need for need in job.needs if need in self.failed or need in self.blocked), None)

    def is_there(self, job: Job) -> bool:
        """Return whether a job was made, now or before."""
        return job.key not in self.failed and job.key not in self.blocked


State = Literal["done", "started", "to do", "stale"]


class JobReporter(OutputReporter):
    """The reporter of a benchmark: messages name the job, and are not repeated for every job."""

    def __init__(self, out: Output) -> None:
        super().__init__(out)
        self.job: Job | None = None
        self.at = ""  # in front of each job of a sweep
        self._shown: set[str] = set()

    def note(self, message: str) -> None:
        """Pass a note on, once."""
        if self._is_new(message):
            super().note(f"{self.at}{self.job}: {message}" if self.job else message)

    def say(self, diagnostic: Diagnostic) -> None:
        """Pass a diagnostic on, once; a score repeats those of its model, which it names in front.

        That a model loses to the last value is said of all its set-ups together: each, and validation, would say it.
        """
        text, together = str(diagnostic), diagnostic.code == "cell-worse-than-last-value"
        if together or (WORSE_THAN_LAST_VALUE not in text and self._is_new(text)):
            place = self.at if together or not self.job else f"{self.at}{self.job}: "
            super().say(diagnostic.placed(place))

    @contextmanager
    def task(self, title: str, *, total: int | None = None, done: int = 0, unit: str = "step") -> Iterator[Task]:
        """Show a task, named after the job."""
        placed = f"{self.at}{self.job.key.rpartition('/')[0]}: {title}" if self.job else title
        with super().task(placed, total=total, done=done, unit=unit) as task:
            yield task

    def _is_new(self, message: str) -> bool:
        new = not any(message == shown or message.endswith(f": {shown}") for shown in self._shown)
        self._shown.add(message)
        return new


class ReporterOutput(Output):
    """A sink without results: of one job, as the benchmark's tables are the result, or of a call from Python.

    Warnings are the reporter's.
    """

    def __init__(self, reporter: Reporter, *, quiet: bool = True) -> None:
        super().__init__(quiet=quiet)
        self._reporter = reporter

    def _result(self, *lines: str) -> None:
        """Say nothing."""

    def say(self, diagnostic: Diagnostic) -> None:
        """Pass a warning on, and leave notes to the tables."""
        if diagnostic.severity != "note":
            self._reporter.say(diagnostic)


@dataclass(frozen=True)
class JobTask:
    """One artifact of a job: what it is made from, and how it is made."""

    name: str
    path: Path
    session: Session
    plan: Callable[[], BuildStep]
    make: Callable[[BuildStep, bool], object]


@dataclass(frozen=True)
class BenchmarkWorkspace:
    """The folder, data and settings of a benchmark.

    `seeds` are those of the data sets. Data set number i is simulated and trained on with the i-th seed after the
    settings' own. `at` says in front of each job which benchmark of a sweep it belongs to; `held`, that the process
    which started this one holds the workspaces.
    """

    data: BenchmarkData
    reporter: JobReporter
    settings: "Settings"
    folder: Path
    seeds: tuple[int, ...]
    at: str = ""
    held: bool = False

    @cached_property
    def silent(self) -> Output:
        """Return a sink that passes on warnings alone."""
        return ReporterOutput(self.reporter)

    def workspace(self, seed: int) -> Workspace:
        """Return the workspace of a data set; every verb can be used in it."""
        return Workspace(self.folder / f"seed-{seed}", held=self.held)

    def data_file(self, seed: int) -> Path:
        """Return a data set's file."""
        return self.data.file or self.workspace(seed).data

    def state(self, job: Job) -> State:
        """Return the state of a job: whether its files are there, and made from what they would be made from now."""
        for task in self.tasks(job):
            try:
                step = task.plan()
                if not step.find(overwrite=False):
                    return "started" if step.run.exists() else "to do"
            except MismatchError:
                return "stale"
            except ArtifactError:
                return "to do"  # what it is made from is not there yet
        return "done"

    def tasks(self, job: Job) -> list[JobTask]:
        """Return what a job consists of, in the order in which it is made."""
        configs, simulated, number = self.settings.configs, self.data.simulated, self.seeds.index(job.seed)
        values: dict[str, object] = {
            f"{stage}.seed": configs[stage].model_dump()["seed"] + number for stage in ("pretrain", "finetune")
        }
        if simulated is not None:
            values[f"{simulated.section}.seed"] = job.seed
        settings = with_values(self.settings, {**values, **(job.method.changes if job.method else {})})
        session = Session(self.silent, self.workspace(job.seed), settings, self.reporter)
        if job.role == "data":
            if simulated is None:
                return []
            file, config = session.workspace.data, settings.configs[simulated.section]

            def simulate(step: BuildStep, overwrite: bool) -> None:
                from costar_cli.data.store import write_dataset

                with session.writing(file):
                    dataset = replace(simulated.simulate(config, self.reporter), fingerprint=step.fingerprint)
                    write_dataset(file, dataset, overwrite=overwrite)

            plan = partial(session.step, "dataset", file, parents={}, config=config.model_dump(mode="json"))
            return [JobTask("data", file, session, plan, simulate)]
        assert job.method is not None  # noqa: S101 - data alone are of no method
        if job.role != "encoder":
            return self._model_tasks(session, job.seed, job.method, job.role)
        path, data = self._encoder(job.seed, job.method), self.data_file(job.seed)

        def make(step: BuildStep, overwrite: bool) -> None:
            with _without_other_runs(session, step, overwrite=overwrite):
                make_encoder(session, data, step, overwrite=overwrite, fresh=False)

        return [JobTask("encoder", path, session, partial(plan_encoder, session, data, path), make)]

    def _encoder(self, seed: int, method: BenchmarkMethod) -> Path:
        path = self.workspace(seed).encoder
        return path.with_name(f"{path.stem}-{method.name}{path.suffix}") if method.own_encoder else path

    def _model_tasks(self, session: Session, seed: int, method: BenchmarkMethod, domain: DomainName) -> list[JobTask]:
        """Return a model and its scores; files are those of `costar finetune`, which has no names for ablations."""
        place, data, base = session.workspace, self.data_file(seed), cast("Any", method.base)
        if method.is_ablation:
            start = self._encoder(seed, method) if method.is_pretrained else None
            files = FinetuneFiles(data, start, "encoder", "", place.root / f"model-{method.name}.h5")
        else:
            files = FinetuneFiles.choose(place, base, None, domain, data=data, start=None, out=None)
        plan = partial(plan_model, session, files, base, domain)
        inputs = partial(EvaluationInputs, session, files.data, [files.out])
        report = files.out.with_name(files.out.name.replace("model", "scores", 1))

        def make(step: BuildStep, overwrite: bool) -> None:
            with _without_other_runs(session, step, overwrite=overwrite):
                make_model(session, plan(), overwrite=overwrite, fresh=False)

        def score(step: BuildStep, overwrite: bool) -> None:
            with session.writing(report):
                make_report(session, inputs(), None, step, overwrite=overwrite)

        return [
            JobTask("model", files.out, session, lambda: plan().step, make),
            JobTask("scores", report, session, lambda: plan_report(session, inputs(), report, None), score),
        ]


@contextmanager
def _without_other_runs(session: Session, step: BuildStep, *, overwrite: bool) -> Iterator[None]:
    """Forget the interrupted run of something else where `--overwrite` allows it; else it is refused by that flag."""
    from costar_cli.training import START_OVER, forget_runs

    if overwrite:
        with session.workspace.lock():
            if forget_runs(step.run, unless=step.fingerprint):
                session.reporter.note("discarded an interrupted run with other inputs or settings")
    try:
        yield
    except MismatchError as error:
        error.fix = error.fix and error.fix.replace(START_OVER, "`--overwrite`")
        raise


def with_values(settings: "Settings", values: Mapping[str, object]) -> "Settings":
    """Return settings with some values, by their full names, replaced."""
    from costar_cli.settings.keys import all_keys

    documents: dict[str, Any] = {}
    for name, value in values.items():
        key = all_keys()[name]
        nested = documents.setdefault(key.section, settings.configs[key.section].model_dump())
        for part in key.path[:-1]:
            nested[part] = nested[part] or {}
            nested = nested[part]
        nested[key.path[-1]] = value
    changed = {section: type(settings.configs[section]).model_validate(doc) for section, doc in documents.items()}
    return replace(settings, configs={**settings.configs, **changed})
