"""A question about plans: subjects at their origins, plans, models and options, read together and seen to fit.

One subject is a cohort of one: the command line and the Python API make a `Question` of what they are given, and take
from it answers, reports, tables and warnings.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.requests import WhatIfRequest
from costar_cli.data import Dataset, Location, Panel, PanelSchema
from costar_cli.data.compatible import require_compatible
from costar_cli.data.schema import step_word
from costar_cli.diagnostics import Diagnostic
from costar_cli.files import fingerprint
from costar_cli.files.shards import WHOLE, Shard
from costar_cli.inference import COHORT_DRAWS
from costar_cli.methods.base import FittedModel
from costar_cli.plans import IndexTimes, Origin, PlanRequest, TreatmentPlan, parse_origin, step_of
from costar_cli.plans.doses import Sweep
from costar_cli.plans.plan import Begin
from costar_cli.plans.untrusted import Problems
from costar_cli.questions.answers import ModelAnswers, answer_cohort, count_questions
from costar_cli.questions.averages import AverageEffects, Averager
from costar_cli.questions.diagnostics import notes_on_rules, notes_on_transforms, on_reactions, warnings_about
from costar_cli.questions.estimate import report_on
from costar_cli.questions.groups import groups_of
from costar_cli.questions.report import WhatIfReport
from costar_cli.questions.request import check_request, possible_plans, refuse_unseen, unseen_in_plans
from costar_cli.questions.rows import Columns, table_columns, with_doses
from costar_cli.questions.subjects import Cohort, check_table, join_places, names_of, with_plans
from costar_cli.questions.truth import true_answers
from costar_cli.reporting import NullReporter, Reporter

Floats = NDArray[np.float64]
ReadPlans = Callable[[Origin | None, Begin], PlanRequest]
"""Reads plans, given the origin that overrides theirs, and once it is known from which moments they begin."""


@dataclass(frozen=True, slots=True)
class Places:
    """What messages call the places where plans and origins were given."""

    plans: str = "--plan"
    origin: str = "--origin"
    document: str = ""
    request: str = "--plan"


@dataclass(frozen=True, eq=False, kw_only=True)
class Question:
    """What is asked of which models, seen to fit.

    Attributes:
        request: the options.
        models: that answer, by label.
        cohort: the subjects and their origins.
        plans: under which they are asked about.
        dataset: where the subjects are, None for subjects of none.
        document: the plans as they were written, of a file of them.
        sweep: the doses that the plans are, where they are a sweep.
        shard: which of the answers are made.
        losses: a warning for each model that does badly on a domain that is asked about.
    """

    request: WhatIfRequest
    models: Mapping[str, FittedModel]
    cohort: Cohort
    plans: PlanRequest
    dataset: Dataset | None = None
    document: bytes = b""
    sweep: Sweep | None = None
    shard: Shard = WHOLE
    losses: tuple[Diagnostic, ...] = ()

    @classmethod
    def read(
        cls,
        request: WhatIfRequest,
        models: Mapping[str, FittedModel],
        panel: Panel,
        places: Sequence[Location],
        read: ReadPlans,
        *,
        dataset: Dataset | None,
        compared: bool = False,
        where: Places = Places(),
        alone: bool = False,
        skip: bool = False,
        reporter: Reporter | None = None,
    ) -> Self:
        """Read plans for subjects, and see that everything fits, before anything is computed.

        Args:
            request: the options.
            models: that are asked, by label; they fit the data set before plans are read as it understands them.
            panel: the subjects.
            places: where each is in a data set; none of subjects of no data set.
            read: reads the plans.
            dataset: where the subjects are, None for subjects of none.
            compared: each plan is compared with another.
            where: what messages call the places where things were given.
            alone: a single subject is asked about: of a table of plans its own are read, and errors name it.
            skip: leave out subjects that lack the origin, or plans of their own, with a warning.
            reporter: told of them.

        Raises:
            MismatchError: a model of other variables, treatments or units than the data set's.
            UsageError: plans that cannot be read, are too long or too many, levels out of range, no such reference
                plan; subjects without the origin or without plans; truth of observed data.
        """
        if dataset is not None:
            for label, model in models.items():
                require_compatible(dataset, model.schema, model=f"model `{label}`")
        schema = next(iter(models.values())).schema if dataset is None else dataset.schema
        origin: Origin | None = None
        if request.origin is not None:
            step = request.origin if type(request.origin) is int else None  # which True is not
            origin = parse_origin(request.origin, where=where.origin) if step is None else step
        begin = partial(IndexTimes.of, panel, where=where.plans if origin is None else where.origin)
        start = step_of(panel, origin, where=where.origin) if alone and origin is not None else origin
        problems, plans = Problems(), read(origin, begin)
        of_plans = start is None and plans.origin is not None
        if start is None:
            start = "last" if plans.origin is None else plans.origin
        if alone:
            plans = plans.of(panel.names[0])
            start = step_of(panel, start, where=where.plans)
            _check_alone(problems, panel, start, schema, of_plans=of_plans)
        elif plans.by_subject and dataset is not None:
            places = with_plans(dataset, places, plans, skip=skip, where=where.plans, reporter=reporter)
            panel = join_places(dataset, places)
        elif plans.by_subject:
            check_table(names_of(panel), names_of(panel), plans, where=where.plans)
        check_request(problems, models, plans, request.levels, reference=request.reference, compared=compared)
        [line, *others] = problems.lines or [""]
        at = f"subject {panel.names[0]}" if alone else where.request
        for begins, flag in {"level ": "--level", "there is no plan ": "--reference"}.items():
            at = flag if line.startswith(begins) and not others else at  # a single problem names its flag
        problems.raise_any("the request does not fit", where=at, fix=problems.fix)
        cohort = Cohort.of(
            panel, names_of(panel), places, origin=start, skip=skip,
            where=where.document if where.document and of_plans else where.origin, terminal=schema.terminal,
            reporter=reporter,
        )  # fmt: skip
        return cls(request=request, models=models, cohort=cohort, plans=plans, dataset=dataset)

    @property
    def schema(self) -> PanelSchema:
        """Return the columns as the data set has them, or else the first model."""
        return next(iter(self.models.values())).schema if self.dataset is None else self.dataset.schema

    @property
    def parents(self) -> dict[str, str]:
        """Return the digests of the data set and the models, by role."""
        of_data = {} if self.dataset is None else {"dataset": self.dataset.digest}
        return of_data | {f"model/{label}": model.digest for label, model in self.models.items()}

    def report(self, moment: int = 0, reporter: Reporter | None = None) -> WhatIfReport:
        """Return the report of one subject at one origin, of whose warnings the reporter hears.

        Raises:
            UsageError: plans of treatments that no training subject was given.
        """
        assert self.dataset is not None  # noqa: S101 - reports are about subjects of a data set
        cohort = self.cohort.take(slice(moment, moment + 1))
        plans = self.plans.of(str(cohort.names[0]))
        hears = reporter or NullReporter()
        report = report_on(self.dataset, self.models, cohort, plans, self.request, hears)
        for warning in self.losses:
            hears.say(warning)
        return replace(report, diagnostics=(*report.diagnostics, *self.losses))

    def warn(self, reporter: Reporter) -> None:
        """Tell what may make the answers of a cohort wrong.

        Raises:
            UsageError: plans of treatments that no training subject was given.
        """
        if not self.request.unsupported:
            refuse_unseen(unseen_in_plans(self.models, possible_plans(self.plans)))
        for warning in self.warnings:
            reporter.say(warning)

    @cached_property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """Return what may make the answers of a cohort wrong."""
        found = warnings_about(
            self.models, self.cohort, self.plans,
            dataset=self.dataset, shard=self.shard, reactions=not self.request.average,
        )  # fmt: skip
        return (*found, *self.losses)

    def warnings_of_effects(self, averages: Sequence[AverageEffects]) -> Iterator[Diagnostic]:
        """Yield whether weights of corrections are doubtful, and which models' own differences may be no effects."""
        if not all(effects.converged for effects in averages):
            yield Diagnostic.of("effect-not-converged")
        for effects in averages:
            if not effects.differences.all_corrected:
                of, steps = {effects.label: self.models[effects.label]}, self.plans.horizon
                yield from on_reactions(of, plans=len(effects.plans), steps=steps)

    @property
    def notes(self) -> list[Diagnostic]:
        """Return what else a reader of a cohort's answers should know."""
        assert self.dataset is not None  # noqa: S101 - as for reports
        rules = [plan for plan in self.plans.plans if not isinstance(plan, TreatmentPlan)]
        return [
            *(Diagnostic.of("rule", rule.name, text=rule.text) for rule in rules),
            *notes_on_rules(self.models, self.plans.plans, self.dataset, truth=self.request.truth, n=COHORT_DRAWS),
            *notes_on_transforms(self.models),
        ]

    @cached_property
    def _reference(self) -> str | None:
        """Return the plan from which differences are drawn for each subject: none where means alone are asked for."""
        return None if self.request.average else self.request.reference

    def __len__(self) -> int:
        return count_questions(self.cohort, self.plans, self.shard, compared=self._reference is not None)

    def answers(self, label: str) -> Iterator[tuple[ModelAnswers, Floats | None]]:
        """Yield a model's answers, and the simulator's `[Q,H,Y]` where they are asked for, chunk after chunk."""
        for answers in answer_cohort(
            label, self.models[label], self.cohort, self.plans, levels=self.request.levels, shard=self.shard,
            reference=self._reference, widen=self.request.widen,
        ):  # fmt: skip
            known = self.dataset if self.request.truth else None
            yield answers, None if known is None else true_answers(known, answers)

    def averager(self) -> Averager:
        """Return what gathers a model's answers for averages.

        Raises:
            UsageError: plans that differ between subjects, or unknown groups.
        """
        return Averager(self.cohort, self.plans, *self._groups, self.request.reference)

    @cached_property
    def _groups(self) -> tuple[tuple[str, ...], NDArray[np.bool_]]:
        """Return the groups of averages, the same for all models."""
        return groups_of(self.cohort, self.schema, self.request.by)

    def tables(self, answers: ModelAnswers, truth_QHY: Floats | None) -> Iterator[Columns]:
        """Yield the columns of a chunk's outcomes, then of differences where a reference plan is named."""
        assert self.dataset is not None  # noqa: S101 - as for reports
        quantities: list[Literal["outcome", "difference"]] = ["outcome", "difference"]
        for quantity in quantities if self._reference else quantities[:1]:
            rows = table_columns(
                answers, self.dataset.name, quantity, truth_QHY=truth_QHY, abstain=self.request.abstain
            )
            yield rows if self.sweep is None else with_doses(rows, answers, self.sweep)

    @property
    def fingerprint(self) -> str:
        """Return what tells a table of answers from those to other questions; all shards of one have the same."""
        cohort = self.cohort
        who = "\n".join(f"{cohort.names[i]} {t}" for i, t in zip(cohort.subject_M, cohort.origin_M, strict=True))
        config = self.request.identity | {"subjects": sha256(who.encode()).hexdigest()}
        config["plan"] = sha256(self.document).hexdigest()
        return fingerprint("answers", parents=self.parents, config=config)

    @property
    def mark(self) -> str:
        """Return what tells the estimates of one subject from those of other questions."""
        origin = None if self.request.origin is None else int(self.cohort.origin_M[0])
        config = self.request.identity | {
            "subject": self.cohort.panel.names[0],
            "origin": origin,
            "plan": self.document.decode(),
        }
        return fingerprint("estimates", parents=self.parents, config=config)


def _check_alone(problems: Problems, panel: Panel, origin: int, schema: PanelSchema, *, of_plans: bool) -> None:
    """Add that a single subject lacks the origin, or that its series has ended there."""
    name, last = panel.names[0], int(panel.length[0]) - 1
    event = schema.terminal.get(int(panel.ends[0]))
    if not 0 <= origin <= last:
        fix = "it is the `origin` of the plans: `--origin last`, or `origin=` in Python, overrides it" * of_plans
        problems.add(f"origin {origin} is outside the series of subject {name}: choose 0 to {last}", fix=fix)
    elif event is not None and origin == last:
        dates = panel.dates(np.array([0]), np.array([origin]))
        when = f"{step_word(schema.step)} {origin}" + (f" ({dates[0]})" if dates is not None and dates[0] else "")
        fix = f"ask from an earlier origin, such as `--origin {origin - 1}`" if origin else ""
        problems.add(f"the series of subject {name} ended on {when}: {event}", fix=fix)


def estimate_outcomes(
    dataset: Dataset,
    models: Mapping[str, FittedModel],
    plans: PlanRequest | Callable[[], PlanRequest],
    *,
    subject: int | str,
    reporter: Reporter | None = None,
    **options: Any,  # noqa: ANN401 - fields of `WhatIfRequest`
) -> WhatIfReport:
    """Estimate the outcomes of one subject under every plan, with every model.

    Args:
        dataset: where the subject is, in whatever domain and split.
        models: fitted models by the label under which to report them.
        plans: checked against the data set's treatments; or what reads and checks them, once it is known that data set
            and models mean the same by them.
        subject: number or label of the subject.
        reporter: told about progress and about what may make the estimates wrong.
        **options: those of `WhatIfRequest`.

    Raises:
        UsageError: an unknown subject or plan, an origin or plan out of range, truth of observed data, a plan of
            treatments that no training subject was given, `widen` where too few subjects are left.
        MismatchError: a model of other variables, treatments or units than the data set's.
        TrainingError: a model predicts values that are not finite.
    """
    location = dataset.find_subject(subject)
    question = Question.read(
        WhatIfRequest(**options), models, dataset.panel_of(location), [location],
        lambda _origin, _begin: plans() if callable(plans) else plans,
        dataset=dataset, compared=True, alone=True,
    )  # fmt: skip
    return question.report(reporter=reporter)
