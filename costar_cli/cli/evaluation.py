"""The body of `costar evaluate`: files in, report out."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costar_cli.cli.bands import (
    show_bands,
    show_dropout,
    show_light_scores,
    show_natural_course,
    show_periods,
    show_probabilities,
)
from costar_cli.cli.defaults import to_name
from costar_cli.cli.hints import ASKED, instead_of_losers, next_command, other_than
from costar_cli.cli.model import load_models, name_models
from costar_cli.cli.session import BuildStep, Session
from costar_cli.cli.views import EvaluationFiles, check_views, write_predictions, write_views
from costar_cli.config.choices import SetupName
from costar_cli.diagnostics import Diagnostic

if TYPE_CHECKING:
    from costar_cli.data import Dataset
    from costar_cli.evaluation import EvaluationReport, PerStep
    from costar_cli.files import Artifact
    from costar_cli.methods.base import FittedModel

__all__ = ["EvaluationInputs", "make_report", "plan_report", "run_evaluate"]


class EvaluationInputs:
    """The data set and the models, loaded when they are first needed."""

    def __init__(self, session: Session, data: Path, models: Sequence[Path]) -> None:
        self._session = session
        self._path = data
        self._data = session.read("dataset", data)
        self._named = name_models(models, session.workspace.root)
        self._headers = {name: session.read("model", path, role=name) for name, path in self._named.items()}

    @property
    def parents(self) -> dict[str, str]:
        """Return the digests of everything that is read."""
        return {"dataset": self._data.digest} | {f"model/{name}": h.digest for name, h in self._headers.items()}

    @property
    def headers(self) -> "list[tuple[Path, Artifact]]":
        """Return the file and the header of every model."""
        return [(path, self._headers[name]) for name, path in self._named.items()]

    @property
    def files(self) -> dict[str, set[str]]:
        """Return the names of the models by digest; equal files have the same one."""
        found: dict[str, set[str]] = {}
        for name, header in self._headers.items():
            found.setdefault(header.digest, set()).add(name)
        return found

    def require_fitting(self) -> None:
        """See by headers that each model reads the data set; whether it predicts as many steps is told later.

        Raises:
            MismatchError: it does not.
        """
        from costar_cli.data.compatible import require_fitting

        for name, header in self._headers.items():
            require_fitting(self._data, header, called=f"model `{name}`")

    @property
    def trainable(self) -> set[str]:
        """Return the domains of which the data have subjects to train on; new subjects are tests alone."""
        splits = (str(part).split("/") for part in self._data.meta.get("parts", {}))
        return {domain for domain, split in splits if split == "train"}

    @property
    def horizon(self) -> int:
        """Return how many steps are scored."""
        return int(self._data.meta["horizon"])

    def named(self, setups: Sequence[SetupName] | None) -> dict[str, set[str]]:
        """Return the methods and models of each set-up that is asked for, as far as headers tell."""
        from costar_cli.evaluation import SETUPS
        from costar_cli.evaluation.gates import names_of_model
        from costar_cli.methods.registry import LAST_VALUE

        found: dict[str, set[str]] = {}
        for name, header in self._headers.items():
            domain = "target" if header.meta.get("domain") == "target" else "source"
            names = names_of_model(str(header.meta.get("method")), [name])
            for setup in SETUPS.values():
                if setup.trained == domain and (setups is None or setup.name in setups):
                    found.setdefault(setup.name, {LAST_VALUE}).update(names)
        return found

    @cached_property
    def dataset(self) -> "Dataset":
        """Return the test parts with their queries."""
        from costar_cli.data import Part

        known = self._data.meta.get("parts", {})
        tests = [part for part in Part.all() if part.split == "test" and str(part) in known]
        return self._session.load_dataset(self._path, parts=tests)  # with what the simulator needs to predict

    @property
    def on_errors(self) -> list[str]:
        """Say of transformed outcomes in which scale their errors are."""
        outcomes = self._data.meta["schema"]["outcomes"]
        named = [(outcome["name"], outcome["transform"]) for outcome in outcomes if outcome.get("transform")]
        learned = {"difference": "its differences"}
        return [f"errors are of `{name}` itself, not of {learned.get(kind, 'its logarithm')}" for name, kind in named]

    @cached_property
    def models(self) -> dict[str, "FittedModel"]:
        """Return the models by name, on the device of the settings."""
        return load_models(self._session, self._headers, self._named)


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
    inputs = EvaluationInputs(session, files.data, files.models)
    inputs.require_fitting()
    check_gates(gates, inputs.named(setups), inputs.horizon)
    step = plan_report(session, inputs, files.report, setups)
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
        session.out.say(Diagnostic.of("recorded", warning=warning))
    _show(session, report)
    for said in inputs.on_errors:
        session.out.note(said)
    data = other_than(files.data, session.workspace.data)
    commands = instead_of_losers(session, inputs.headers, report, data, inputs.trainable)
    if not report.losers():
        theirs = to_name(session.workspace, files.models)
        commands = [next_command(session.given, "whatif", *ASKED, data=data, model=theirs)]
    session.out.next(*dict.fromkeys(commands))
    refuted = {"refutations": _refute(session, files, inputs, overwrite=overwrite)} if files.refutation else {}
    searched = _search(session, files, inputs)
    if files.predictions is not None:
        write_predictions(session, files.predictions, inputs, setups)
    result = report.to_json() | refuted | searched
    session.out.keep(result)
    verdicts = judge_gates(gates, report, inputs.files)
    if verdicts:
        rows = [[one.expression, one.truth, one.model, _number(one.value), one.shown] for one in verdicts]
        session.out.table(["gate", "queries", "model", "value", "verdict"], rows)
    result |= {"gates": [verdict.to_json() for verdict in verdicts]}
    session.out.keep(result)
    require_passed(verdicts)
    session.out.done(result, status="up_to_date" if current else "done")


def _search(session: Session, files: EvaluationFiles, inputs: EvaluationInputs) -> dict[str, Any]:
    """Return the regret of the models' best plans, where it is asked for."""
    if files.search is None or files.searched is None:
        return {}
    from costar_cli.cli.regret import make_regrets
    from costar_cli.config.models import EvaluateConfig

    seed = session.settings[EvaluateConfig].seed
    return {"search": make_regrets(session, files.search, inputs.dataset, inputs.models, files.searched, seed)}


def _refute(
    session: Session, files: EvaluationFiles, inputs: EvaluationInputs, *, overwrite: bool
) -> list[dict[str, Any]]:
    """Refit the models where the answer is known, and return what that finds."""
    from costar_cli.cli.refutation import make_refutations

    assert files.refutation is not None  # noqa: S101 - asked where there is a file
    found = make_refutations(
        session, files.data, files.refutation, lambda: inputs.models, inputs.parents, overwrite=overwrite
    )
    return [one.to_json() for one in found]


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
    from costar_cli.evaluation import named_candidates, run_evaluation
    from costar_cli.evaluation.report import write_evaluation

    candidates = named_candidates(inputs.models)
    config = session.settings[EvaluateConfig]
    report = run_evaluation(inputs.dataset, candidates, config, setups=setups, reporter=session.reporter)
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


def _show(session: Session, report: "EvaluationReport") -> None:
    """Print a table: one line per row of the report, the average over steps first."""
    from costar_cli.evaluation.rows import ABOUT_BUDGET, BUDGET_SIGN

    unit = report.unit.label or "outcome units"
    session.out.text(f"RMSE in {unit} on {report.dataset}: mean ± sd over members, and the error of the ensemble mean")
    session.out.text(*_bases(report))
    label = report.limit_label
    session.out.text(*([report.about_ratio] if report.about_ratio else []))
    several = len({row.truth for row in report.rows if row.truth}) > 1  # factual and counterfactual queries
    headers = ["setup", *["queries"] * several, "model", "average", *["ratio"] * bool(label)]
    headers += ["ensemble", f"{report.level:.0%} interval"]
    headers += [f"tau={h + 1}" for h in range(report.horizon)]
    rows = []
    for row in report.rows:
        name = row.marked_label if row.basis in ("ours", "limit") else f"{row.label} ({row.basis})"
        ratio = report.ratio_to_limit(row)
        ratios = [_number(ratio.average if ratio else None)] if label else []
        interval = _interval(row.lower, row.upper) or ("too few" if row.no_interval else None)
        steps = [_number(value) for value in (*row.mean.steps, *[None] * report.horizon)[: report.horizon]]
        ensemble = row.ensemble.average if row.ensemble and len(row.members) > 1 else None
        average = _spread(row.mean.average, row.sd.average if row.sd else None)
        kind = [row.truth] if several else []
        rows.append([row.setup, *kind, name, average, *ratios, _number(ensemble), interval, *steps])
    session.out.table(headers, rows, keys=2 + several)
    out_of_budget = any(row.stopped_by_budget for row in report.rows)
    session.out.text(*map(str, report.few_units), *[f"{BUDGET_SIGN} {ABOUT_BUDGET}"] * out_of_budget)
    touched: dict[str, set[int]] = {}
    for row in report.rows:
        if row.provenance is not None:
            touched.setdefault(row.setup, set()).add(row.provenance.labelled_target_subjects)
    counts = ", ".join(f"{setup} {' or '.join(f'{n:,}' for n in sorted(seen))}" for setup, seen in touched.items())
    show_dropout(session.out, report)
    show_periods(session.out, report)
    show_natural_course(session.out, report)
    show_probabilities(session.out, report)
    show_bands(session.out, report)
    show_light_scores(session.out, report)
    session.out.note(f"labelled target subjects used for training or selection: {counts}")
    if any(row.lower is not None for row in report.rows):
        session.out.note("interval: bootstrap over test subjects; excludes training variability")


def _bases(report: "EvaluationReport") -> list[str]:
    """Return what the rows of each set-up rest on: the kind of answer, subjects and scored queries."""
    lines = []
    for row in report.rows:
        if row.truth is None or row.subjects is None:
            continue
        queries = " to ".join(f"{n:,}" for n in sorted({min(row.scored), max(row.scored)}))
        meaning = " (observed under the treatments given)" if row.truth == "factual" else ""
        subjects = f"{row.subjects:,} subject{'s' * (row.subjects != 1)} of {row.test}"
        lines.append(f"{row.setup}: {row.truth} outcomes{meaning}, {subjects}, {queries} scored queries per step")
    return list(dict.fromkeys(lines))


def _spread(mean: float | None, sd: float | None) -> str | None:
    return _number(mean) if sd is None or mean is None else f"{_number(mean)} ± {_number(sd)}"


def _interval(lower: "PerStep | None", upper: "PerStep | None") -> str | None:
    if lower is None or upper is None or lower.average is None or upper.average is None:
        return None
    return f"{_number(lower.average)} to {_number(upper.average)}"


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"
