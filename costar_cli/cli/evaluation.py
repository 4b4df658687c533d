"""The body of `costar evaluate`: files in, report out; with `--shard`, a part of it for `costar merge`."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

from costar_cli.api.outputs import check_outputs, check_places
from costar_cli.cli.hints import ASKED, instead_of_losers, next_command, other_than
from costar_cli.cli.models import load_models, name_models, to_name
from costar_cli.cli.scores import number, show_scores
from costar_cli.cli.session import BuildStep, Session
from costar_cli.cli.views import EvaluationFiles, check_views, write_predictions, write_views
from costar_cli.config.choices import DomainName, SetupName
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import UsageError

if TYPE_CHECKING:
    from costar_cli.data import Dataset
    from costar_cli.evaluation import EvaluationReport
    from costar_cli.evaluation.setups import Candidate
    from costar_cli.files.shards import Shard
    from costar_cli.methods.base import FittedModel


class EvaluationInputs:
    """The data set and the models: headers of their files, and what is in them, loaded when it is first needed.

    `data` is the header of the data set, `paths` and `headers` are those of the models by name; `foreign` are
    predictions of other programs, by name with their digest.
    """

    def __init__(
        self,
        session: Session,
        data: Path,
        models: Sequence[Path],
        foreign: Sequence[Path] = (),
        trained: DomainName = "source",
    ) -> None:
        self._session, self._path, self._trained = session, data, trained
        self.data = session.read("dataset", data)
        self.foreign: dict[str, tuple[Path, str]] = {}
        for path in foreign:
            from costar_cli.files.digest import file_sha256

            if not path.is_file():
                raise UsageError("there is no such file of predictions", where=str(path), fix="check the path")
            if path.stem in self.foreign:
                raise UsageError(f"two files of predictions are called `{path.stem}`", fix="rename one of them")
            self.foreign[path.stem] = path, file_sha256(path)
            session.tell_read("predictions", path, self.foreign[path.stem][1])
        self.paths = name_models(models, session.workspace.root) if models or not foreign else {}
        self.headers = {name: session.read("model", path, role=name) for name, path in self.paths.items()}

    @property
    def parents(self) -> dict[str, str]:
        """Return the digests of everything that is read."""
        models = {f"model/{name}": header.digest for name, header in self.headers.items()}
        return {"dataset": self.data.digest} | models | {f"predictions/{n}": d for n, (_, d) in self.foreign.items()}

    @property
    def names_by_digest(self) -> dict[str, set[str]]:
        """Return the names of the models by digest; equal files have the same one."""
        found: dict[str, set[str]] = {}
        for name, header in self.headers.items():
            found.setdefault(header.digest, set()).add(name)
        for candidate in self._predicted:
            found.setdefault(candidate.model.digest, set()).add(candidate.label)
        return found

    def require_fitting(self) -> None:
        """See by headers that each model reads the data set; whether it predicts as many steps is told later.

        Raises:
            MismatchError: it does not.
        """
        from costar_cli.data.compatible import require_fitting

        for name, header in self.headers.items():
            require_fitting(self.data, header, called=f"model `{name}`")

    def named(self, setups: Sequence[SetupName] | None) -> dict[str, set[str]]:
        """Return the methods and models of each set-up that is asked for, as far as headers tell."""
        from costar_cli.data.record import ModelRecord
        from costar_cli.evaluation import SETUPS
        from costar_cli.evaluation.gates import names_of_model
        from costar_cli.methods.registry import LAST_VALUE

        found: dict[str, set[str]] = {}
        for name, header in self.headers.items():
            record = ModelRecord.of(header)
            domain = record.domain or "source"
            names = names_of_model(record.method, [name])
            for setup in SETUPS.values():
                if setup.trained == domain and (setups is None or setup.name in setups):
                    found.setdefault(setup.name, {LAST_VALUE}).update(names)
        for setup in SETUPS.values():
            if self.foreign and setup.trained == self._trained and (setups is None or setup.name in setups):
                found.setdefault(setup.name, {LAST_VALUE}).update(self.foreign)
        return found

    @cached_property
    def dataset(self) -> "Dataset":
        """Return the test parts with their queries."""
        from costar_cli.data import Part

        known = self.data.meta.get("parts", {})
        tests = [part for part in Part.all() if part.split == "test" and str(part) in known]
        parts = {} if self.foreign else {"parts": tests}  # predictions number queries through all parts
        return self._session.load_dataset(self._path, **parts)  # with what the simulator needs to predict

    @cached_property
    def models(self) -> dict[str, "FittedModel"]:
        """Return the models by name, on the device of the settings."""
        return load_models(self._session, self.headers, self.paths)

    @property
    def candidates(self) -> "list[Candidate]":
        """Return what is scored: the models, and what predictions say."""
        from costar_cli.evaluation import named_candidates

        return [*(named_candidates(self.models) if self.headers else []), *self._predicted]

    @cached_property
    def _predicted(self) -> "list[Candidate]":
        from costar_cli.evaluation.foreign import read_predictions
        from costar_cli.evaluation.setups import Candidate

        read = (
            read_predictions(path, self.dataset, trained=self._trained, digest=digest)
            for path, digest in self.foreign.values()
        )
        return [Candidate(model, name=model.method) for model in read]


def run_evaluate(
    session: Session,
    files: EvaluationFiles,
    setups: Sequence[SetupName] | None,
    *,
    overwrite: bool,
    fail_if: Sequence[str] = (),
) -> None:
    """Make the evaluation, or see that it is up to date, show it, and judge it by its gates.

    Raises:
        GateError: a gate failed; everything else was done before.
    """
    from costar_cli.evaluation.gates import check_gates, judge_gates, parse_gates, require_passed

    gates = parse_gates(fail_if)
    inputs = EvaluationInputs(session, files.data, files.models, files.foreign, files.trained)
    inputs.require_fitting()
    if gates:
        check_gates(gates, inputs.named(setups), inputs.data.meta["horizon"])
    step = plan_report(session, inputs, files.report, setups)
    session.out.hold()
    files.check(session.read_by(), overwrite=overwrite)
    if files.search is not None:
        from costar_cli.cli.regret import check_regrets

        check_regrets(files.search, inputs.dataset)
    with session.making(step, overwrite=overwrite, again=overwrite) as current:
        if current:
            from costar_cli.evaluation.report import read_evaluation

            report = read_evaluation(files.report, errors=False)
            check_views(session, files, report, overwrite=overwrite)
            digest = current.digest
            session.out.up_to_date("evaluation", files.report, digest)
        else:
            check_views(session, files, None, overwrite=overwrite)
            report, digest = make_report(session, inputs, setups, step, overwrite=overwrite)
        write_views(session, files, inputs, report, digest, again=current is None)
    for warning in report.warnings if current else ():  # a new report has said them already
        session.out.say(Diagnostic.kept(warning))
    show_scores(session.out, report, files=files.in_words())
    _suggest(session, files, inputs, report)
    result = report.to_json()
    if files.refutation is not None:
        from costar_cli.cli.refutation import make_refutations

        models = lambda: inputs.models  # noqa: E731 - loaded only where something is refitted
        of = files.data, files.refutation, models, inputs.parents
        result["refutations"] = [one.to_json() for one in make_refutations(session, *of, overwrite=overwrite)]
    if files.search is not None and files.searched is not None:
        from costar_cli.cli.regret import make_regrets
        from costar_cli.config.models import EvaluateConfig

        seed = session.settings[EvaluateConfig].seed
        searched = make_regrets(session, files.search, inputs.dataset, inputs.models, files.searched, seed)
        result["search"] = searched
    if files.predictions is not None:
        write_predictions(session, files.predictions, inputs, setups)
    session.out.keep(result)
    verdicts = judge_gates(gates, report, inputs.names_by_digest) if gates else []
    if verdicts:
        rows = [[one.expression, one.truth, one.model, number(one.value), one.shown] for one in verdicts]
        session.out.table(["gate", "queries", "model", "value", "verdict"], rows)
    result |= {"gates": [verdict.to_json() for verdict in verdicts]}
    session.out.keep(result)
    require_passed(verdicts)
    session.out.done(result, status="up_to_date" if current else "done")


def _suggest(session: Session, files: EvaluationFiles, inputs: EvaluationInputs, report: "EvaluationReport") -> None:
    """Say in which scale errors of transformed outcomes are, and which commands come next."""
    for outcome in inputs.data.meta["schema"]["outcomes"]:
        if kind := outcome.get("transform"):
            learned = "differences" if kind == "difference" else "logarithm"
            session.out.note(f"errors are of `{outcome['name']}` itself, not of its {learned}")
    # domains of which the data have subjects to train on; new subjects are tests alone
    splits = (str(part).split("/") for part in inputs.data.meta.get("parts", {}))
    trainable = {domain for domain, split in splits if split == "train"}
    data = other_than(files.data, session.workspace.data)
    headers = [(path, inputs.headers[name]) for name, path in inputs.paths.items()]
    commands = instead_of_losers(session, headers, report, data, trainable) if headers else []
    if headers and not report.losers():
        theirs = to_name(session.workspace, files.models)
        commands = [next_command(session.given, "whatif", *ASKED, data=data, model=theirs)]
    session.out.next(*dict.fromkeys(commands))


def plan_report(
    session: Session, inputs: EvaluationInputs, path: Path, setups: Sequence[SetupName] | None
) -> BuildStep:
    """Return what the evaluation is made from."""
    from costar_cli.config.models import EvaluateConfig

    config = {**session.settings[EvaluateConfig].model_dump(mode="json"), "setups": setups}
    return session.step("evaluation", path, parents=inputs.parents, config=config)


def make_report(
    session: Session, inputs: EvaluationInputs, setups: Sequence[SetupName] | None, step: BuildStep, *, overwrite: bool
) -> "tuple[EvaluationReport, str]":
    """Score the models and store the report; return it and the digest of its file."""
    from costar_cli.config.models import EvaluateConfig
    from costar_cli.evaluation import run_evaluation
    from costar_cli.evaluation.report import write_evaluation

    config = session.settings[EvaluateConfig]
    report = run_evaluation(inputs.dataset, inputs.candidates, config, setups=setups, reporter=session.reporter)
    artifact = write_evaluation(
        step.path,
        report,
        parents=step.parents,
        fingerprint=step.fingerprint,
        config=step.config,
        overwrite=overwrite,
    )
    session.out.wrote("evaluation", step.path, artifact.digest)
    return report, artifact.digest


def run_part(
    session: Session,
    files: EvaluationFiles,
    setups: Sequence[SetupName] | None,
    shard: "Shard",
    *,
    overwrite: bool,
) -> None:
    """Score the shard's subjects, or see that it is up to date; the workspace stays free for other parts.

    Raises:
        UsageError: an evaluation or predictions that cannot be merged.
        StorageError: a folder does not exist, or an output is no regular file.
        MismatchError: a file is read, or predictions may not be replaced.
    """
    inputs = EvaluationInputs(session, files.data, files.models)
    inputs.require_fitting()
    whole = plan_report(session, inputs, files.report, setups)
    config = {**whole.config, "shard": str(shard)}
    step = session.step("evaluation-part", shard.beside(files.report), parents=whole.parents, config=config)
    if files.report.suffix.lower() != ".h5":
        fix = "name the whole evaluation: --out FILE.h5"
        raise UsageError("parts of evaluations are .h5 files", where=f"--out {files.report}", fix=fix)
    if files.predictions is not None and files.predictions.suffix.lower() != ".parquet":
        fix = "name the whole table: --predictions FILE.parquet"
        raise UsageError("parts of predictions are Parquet files", where="--predictions", fix=fix)
    check_places([("--out", files.report), ("--predictions", files.predictions)], read=session.read_by())
    check_outputs([("--out", step.path)], read=session.read_by(), overwrite=True)
    table = None if files.predictions is None else shard.beside(files.predictions)
    check_outputs([("--predictions", table)], read=session.read_by(), overwrite=overwrite)
    current = step.find(overwrite=overwrite, again=overwrite)
    if current is not None:
        session.out.up_to_date("part", step.path, current.digest)
    else:
        from costar_cli.config.models import EvaluateConfig
        from costar_cli.evaluation.run import score_models

        session.check_writable(step.path)
        settings = session.settings[EvaluateConfig]
        dataset, candidates = inputs.dataset, inputs.candidates
        scored = score_models(dataset, candidates, settings, setups=setups, reporter=session.reporter, shard=shard)
        made_of = {"fingerprint": whole.fingerprint, "config": dict(whole.config)}
        scores = replace(scored, whole=made_of, parents=step.parents)
        artifact = scores.write(step.path, fingerprint=step.fingerprint, config=step.config, overwrite=overwrite)
        session.out.wrote("part", step.path, artifact.digest)
        counts = {str(part): panel.n_subjects for part, panel in dataset.panels.items()}
        tests = [test for test in dict.fromkeys(row.test for row in scores.rows) if test is not None]
        subjects = (f"{len(shard.own(counts[test])):,} of {counts[test]:,} subjects of {test}" for test in tests)
        session.out.text(f"part {shard}: {', '.join(subjects)}")
    merged = [files.report]
    if files.predictions is not None:
        write_predictions(session, files.predictions, inputs, setups, shard)
        merged.append(files.predictions)
    session.out.next(*(join(["costar", "merge", str(path)]) for path in merged))
    session.out.done({"shard": str(shard), "whole": str(files.report)}, status="up_to_date" if current else "done")
