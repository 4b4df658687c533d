"""Questions in the Python API: what `costar whatif` answers."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from costar_cli.api.calls import PathLikeText, Progress, When, levels_of, origin_of, reporting, require_data_set
from costar_cli.config.requests import WhatIfRequest
from costar_cli.data.dataset import Dataset, Domain, Location, Part
from costar_cli.data.schema import PanelSchema
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import UsageError
from costar_cli.plans import Origin, PlanRequest, parse_plans, read_plan_file
from costar_cli.plans.plan import Begin
from costar_cli.questions import Places, Question, WhatIfReport, validated_on

if TYPE_CHECKING:
    from costar_cli.api.model import Model
    from costar_cli.methods.base import FittedModel
    from costar_cli.training.selection import Validation

MOST_SUBJECTS: Final = 32  # more say more, but a question shall stay quick: CT's 64 with 512 windows took seconds
MOST_WINDOWS: Final = 128

Step = Mapping[str, object]
Plans = PathLikeText | Sequence[Step] | Mapping[str, object] | PlanRequest


def estimate_outcomes(
    model: "Model | Mapping[str, Model]",
    dataset: Dataset,
    plans: Plans,
    *,
    subject: int | str,
    origin: When | None = None,
    reference: str | None = None,
    level: float | Sequence[float] = 0.9,
    truth: bool = False,
    unsupported: bool = False,
    abstain: bool = False,
    widen: bool = False,
    progress: Progress = False,
) -> WhatIfReport:
    """Estimate one subject's outcomes under treatment plans, and their differences, as `costar whatif` does.

    Args:
        model: a model, or several by the names to report them under.
        dataset: where the subject is, in whatever domain and split.
        plans: named plans, `{"chemo": [{"chemotherapy": 1}, {}]}`; one plan, a list of steps or in short,
            `{"natural": True, "times": 6}`; a document with `origin` and `plans` as in `plan.json`; or the path of one.
        subject: number or label of the subject.
        origin: index of the last known step, `last`, -K for K steps before the last, or a date; that of the plans, or
            the subject's last one.
        reference: the plan to compare with; the first by default.
        level: probability between `lower` and `upper` (docs/uncertainty.md), or several.
        truth: add the simulator's answer and the error.
        unsupported: answer plans of treatments that no training subject was given, too.
        abstain: leave out the numbers of answers that the data do not support (docs/support.md).
        widen: bands for plans under another policy than the one that was followed (docs/uncertainty.md).
        progress: True for progress on stderr, or a `Reporter`.

    Returns:
        A report: `to_frame()`, `to_frame(differences=True)`, `to_json()`, and the notes that the command line prints.

    Raises:
        UsageError: an unknown subject, plans that do not fit, truth of observed data.
        MismatchError: a model of other variables, treatments or units than the data set's.
    """
    require_data_set(dataset)
    for one in model.values() if isinstance(model, Mapping) else [model]:
        if not hasattr(one, "fitted"):
            fix = "give what `costar.fit` or `costar.load_model` returns, or a dictionary of them"
            raise UsageError(f"{type(one).__name__} is no model", where="model=", fix=fix)
    models = model if isinstance(model, Mapping) else {model.method: model}
    fitted = {name: one.fitted for name, one in models.items()}
    if not fitted:
        raise UsageError("no model given", where="model=")
    request = WhatIfRequest(
        origin=origin_of(origin), reference=reference, levels=levels_of(level), truth=truth, unsupported=unsupported,
        abstain=abstain, widen=widen,
    )  # fmt: skip
    horizon, location = min(one.horizon for one in fitted.values()), dataset.find_subject(subject)
    with reporting(progress) as reporter:
        question = Question.read(
            request, fitted, dataset.panel_of(location), [location],
            lambda start, begin: plan_request(plans, dataset.schema, horizon, origin=start, begin=begin),
            dataset=dataset, compared=True, where=Places("plans=", "origin="), alone=True,
        )  # fmt: skip
        return with_losses(question).report(reporter=reporter)


def with_losses(question: Question) -> Question:
    """Return a question with what its models do badly on, of subjects of a data set."""
    if question.dataset is None:
        return question
    losses = losses_on(question.dataset, question.models, question.cohort.places)
    return replace(question, losses=tuple(losses))


def plan_request(
    plans: Plans,
    schema: PanelSchema,
    horizon: int,
    *,
    origin: Origin | None = None,
    begin: Begin | None = None,
    where: str = "--plan",
) -> PlanRequest:
    """Return plans as a data set understands them; see `estimate_outcomes` for what they can be.

    `where` is the flag or argument that names a file of them, for messages.

    Raises:
        UsageError: every problem of the plans at once.
    """
    if isinstance(plans, PlanRequest):
        return plans
    if isinstance(plans, str | PathLike):
        path = Path(plans)
        return parse_plans(
            read_plan_file(path, where), schema, horizon=horizon, where=str(path), origin=origin, begin=begin
        )
    is_named = isinstance(plans, Mapping) and not {"plans", "times", "until"} & set(plans)  # else as in a file
    document = {"plans": plans} if is_named else plans
    try:
        text = json.dumps(document, default=_plain)
    except (TypeError, ValueError) as error:
        fix = "write steps as dictionaries of treatments to levels: numbers, texts, True or False"
        raise UsageError(f"not understood as plans: {error}", where="plans=", fix=fix) from None
    return parse_plans(text, schema, horizon=horizon, where="plans=", origin=origin, begin=begin)


def _plain(value: object) -> object:
    """Return what JSON can hold of a mapping, a sequence or a number of numpy."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray | Sequence):
        return list(value)
    raise TypeError(f"{type(value).__name__} is neither a plan nor a step nor a level")


def losses_on(dataset: Dataset, models: "Mapping[str, FittedModel]", places: Iterable[Location]) -> list[Diagnostic]:
    """Return a warning for each model that was not validated on a domain of the places and loses to the last value."""
    warnings = []
    for domain in dict.fromkeys(place.part.domain for place in places):
        for name, model in models.items():
            if validated_on(model, dataset, domain) is not False:
                continue
            validation = validate_on(dataset, model, domain)
            if validation is not None and validation.warning:
                about = f"model `{name}` on {domain} subjects ({validation.windows} origins)"
                warnings.append(replace(validation.warning, subject=about))
    return warnings


def validate_on(dataset: Dataset, model: "FittedModel", domain: Domain) -> "Validation | None":
    """Return how a model does on factual validation windows of a domain; None where there are none.

    The score is the one that selects models, over at most 128 windows of 32 subjects, spread evenly.
    """
    from costar_cli.training.selection import Validation, ValidationWindows

    panel = dataset.panels.get(Part(domain, "val"))
    if panel is None or not panel.n_subjects:
        return None
    rows = np.linspace(0, panel.n_subjects - 1, min(panel.n_subjects, MOST_SUBJECTS)).round().astype(np.int64)
    windows = ValidationWindows.of(panel.take(rows), model.horizon, model.scaler, most=MOST_WINDOWS)
    if windows is None:
        return None
    members = tuple(windows.score(model).tolist())
    return Validation(members, windows.last_value(model), len(windows.queries), windows.queries.horizon)
