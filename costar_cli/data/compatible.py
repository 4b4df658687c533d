"""Whether a model and a data set belong together: the one rule for all verbs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from pydantic import ValidationError

from costar_cli.data.dataset import Dataset
from costar_cli.data.record import ModelRecord
from costar_cli.data.schema import PanelSchema, TreatmentEncoding, Variable
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError, MismatchError
from costar_cli.files import Artifact

DOSE_FACTS = ("unit", "basis", "scale", "knots", "levels")  # on which the encoded columns depend, or their meaning
MOST_LISTED = 8  # of two lists that differ; of longer ones, where they differ first


@dataclass(frozen=True)
class DataFacts:
    """What of a data set decides which models can read it."""

    name: str
    schema: PanelSchema
    horizon: int


def require_outcomes(schema: PanelSchema, where: str) -> None:
    """See that a data set has an outcome, which models learn and predict.

    Raises:
        DataError: it has events alone.
    """
    if not schema.outcomes:
        event = quote(next(iter(schema.terminal.values())))
        fix = f"ask `costar effect --outcome {event} --plan PLANS`, or declare an outcome and ingest the table again"
        raise DataError("the table has events alone, and no outcome that a model could predict", where=where, fix=fix)


def require_compatible(
    dataset: Dataset | DataFacts,
    schema: PanelSchema,
    *,
    model: str,
    horizon: int | None = None,
    exactly: bool = False,
) -> None:
    """Raise unless a model's numbers mean what those of the data set mean.

    All that models see counts: names and order of variables, units, kinds and standardisation, treatments with the
    order of their levels and classes, and what a step is. The unit in which errors are reported does not.

    Args:
        dataset: what the model is to read.
        schema: what the model was trained on.
        model: what to call the model, for example `model COSTAR`.
        horizon: the most steps that the model predicts, which the data set's horizon must not exceed; None if that
            does not matter.
        exactly: the model is to go on learning: the two horizons must be equal, and how outcomes are transformed.

    Raises:
        MismatchError: listing every difference, one per line.
    """
    data = dataset.schema
    differences = [
        *_of_variables("covariate", schema.covariates, data.covariates),
        *_of_treatments(schema.treatments, data.treatments),
        *_of_variables("outcome", schema.outcomes, data.outcomes),
        *_of_variables("static", schema.statics, data.statics),
    ]
    if schema.ends and data.ends and schema.ends != data.ends:
        differences.append(_of_lists("ends of series", *([end.name for end in of.ends] for of in (schema, data))))
    if schema.step != data.step:
        differences.append(_line("step", schema.step, data.step))
    if horizon is not None and (horizon != dataset.horizon if exactly else horizon < dataset.horizon):
        differences.append(f"horizon: model predicts {horizon} steps, data set asks for {dataset.horizon}")
    if exactly:
        theirs = {outcome.name: outcome.transform for outcome in data.outcomes}
        for name, ours in ((outcome.name, outcome.transform) for outcome in schema.outcomes):
            if ours != theirs.get(name, ours):
                differences.append(_line(f"transform of outcome {name}", ours or "none", theirs[name] or "none"))
    if differences:
        raise MismatchError(
            f"{model} is incompatible with data set {dataset.name}",
            fix="train on this data set, or use the one that the model was trained on",
            details=differences,
        )


def require_fitting(data: Artifact, model: Artifact, *, called: str, exactly: bool = False) -> None:
    """Raise as `require_compatible` does, by headers alone; one that is not valid is left to whoever reads its file.

    Args:
        data: the header of a data set.
        model: that of a model or an encoder.
        called: what to call the model.
        exactly: the model is to go on learning.

    Raises:
        MismatchError: listing every difference, one per line.
    """
    try:
        facts = DataFacts(str(data.meta["name"]), PanelSchema.model_validate(data.meta["schema"]), data.meta["horizon"])
    except (KeyError, ValidationError):
        return
    of_model = ModelRecord.read(model.meta, lenient=True)
    schema, horizon = of_model.schema, of_model.horizon
    if schema is None:
        return
    counts = exactly and isinstance(horizon, int) and isinstance(facts.horizon, int)
    require_compatible(facts, schema, model=called, horizon=horizon if counts else None, exactly=exactly)


def same_data(parents: Mapping[str, str], data: Dataset | str) -> bool | None:
    """Return whether what has these parents was made from this data set or digest; None where either has none.

    New subjects are those of the data set that they were read like.
    """
    trained_on, digest = parents.get("dataset"), data if isinstance(data, str) else data.known_as
    return trained_on == digest if trained_on and digest else None


def other_data(what: str, parents: Mapping[str, str], data: Dataset | str) -> Diagnostic | None:
    """Return a warning if something, such as `model COSTAR`, was trained on another data set, as `same_data` says."""
    if same_data(parents, data) is not False:
        return None
    digest = data if isinstance(data, str) else data.known_as
    new = not isinstance(data, str) and data.is_new
    than = "the one that these new subjects were read like" if new else "this one"
    return Diagnostic.of("other-data", what, trained=parents["dataset"][:8], than=than, here=digest[:8])


def _of_variables(role: str, model: Sequence[Variable], data: Sequence[Variable]) -> Iterator[str]:
    names = [variable.name for variable in model]
    if names != [variable.name for variable in data]:
        yield _of_lists(f"{role}s", names, [variable.name for variable in data])
        model = [variable for variable in model if variable.name in {other.name for other in data}]
    theirs = {variable.name: variable for variable in data}
    for ours in model:
        other = theirs[ours.name]
        if ours.unit != other.unit:
            yield _line(f"unit of {role} {ours.name}", ours.unit or "none", other.unit or "none")
        if ours.kind != other.kind:
            yield _line(f"kind of {role} {ours.name}", ours.kind, other.kind)
        if ours.standardize != other.standardize:
            yield _line(f"{role} {ours.name}", *("standardised" if v.standardize else "raw" for v in (ours, other)))


def _of_treatments(model: TreatmentEncoding, data: TreatmentEncoding) -> Iterator[str]:
    if model.mode != data.mode:
        yield _line("treatments", model.mode, data.mode)
    if model.names != data.names:
        yield _of_lists("treatments", model.names, data.names)
    theirs = dict(zip(data.names, data.levels, strict=True))
    for name, levels in zip(model.names, model.levels, strict=True):
        if name in theirs and levels != theirs[name]:
            yield _of_lists(f"levels of treatment {name}", levels, theirs[name])
    if [dose.name for dose in model.doses] != [dose.name for dose in data.doses]:
        yield _of_lists("doses", [dose.name for dose in model.doses], [dose.name for dose in data.doses])
    else:
        for ours, other in zip(model.doses, data.doses, strict=True):
            for key in DOSE_FACTS:
                if getattr(ours, key) != getattr(other, key):
                    yield _line(f"{key} of dose {ours.name}", str(getattr(ours, key)), str(getattr(other, key)))
    if model.names == data.names and model.mode == data.mode and model.classes != data.classes:
        yield _of_lists("treatment classes", model.columns, data.columns)


def _of_lists(what: str, model: Sequence[str], data: Sequence[str]) -> str:
    """Return a line on two lists that differ, in length or order too."""
    if max(len(model), len(data)) <= MOST_LISTED:
        return _line(what, ", ".join(model) or "none", ", ".join(data) or "none")
    first = next((i for i, (a, b) in enumerate(zip(model, data, strict=False)) if a != b), min(len(model), len(data)))
    shown = (f"{len(names)} with {[*names, 'nothing'][first]} as number {first + 1}" for names in (model, data))
    return _line(what, *shown)


def _line(what: str, model: str, data: str) -> str:
    return f"{what}: model has {model}, data set has {data}"
