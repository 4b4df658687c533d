"""Scores in the Python API: what `costar evaluate` finds."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from costar_cli.api.calls import PathLikeText, Progress, reporting, require_data_set, resolved, texts
from costar_cli.config.choices import SetupName
from costar_cli.config.models import EvaluateConfig
from costar_cli.data.dataset import Dataset
from costar_cli.errors import UsageError
from costar_cli.evaluation import EvaluationReport, named_candidates, run_evaluation
from costar_cli.evaluation.gates import Verdict, parse_gates
from costar_cli.evaluation.gates import judge_gates as calibrated
from costar_cli.files.frames import FrameName, frame_of_rows
from costar_cli.questions.search.regret import regret_request, regrets

if TYPE_CHECKING:
    from costar_cli.api.model import Model
    from costar_cli.files.frames import Frame


def evaluate_models(
    models: "Model | Sequence[Model] | Mapping[str, Model]",
    dataset: Dataset,
    *,
    setups: Sequence[SetupName] | None = None,
    config: PathLikeText | None = None,
    progress: Progress = False,
    **settings: object,
) -> EvaluationReport:
    """Score models on the test subjects of a data set, beside the last value carried forward.

    Args:
        models: a model, several, or several by the names that the report shall give them.
        dataset: holds the test subjects with queries whose answers are known.
        setups: `zero-shot`, `few-shot`, `supervised`; all that apply by default.
        config: a TOML file of settings; arguments overrule it.
        progress: True for progress on stderr, or a `Reporter`.
        **settings: settings of `evaluate`, such as `level=0.9` or `bootstrap=0`.

    Returns:
        A report: `to_frame()` is a tidy frame of RMSE per set-up, model and step, `to_csv()` the table of the verb.

    Raises:
        UsageError: an unknown set-up or setting.
        MismatchError: a model of other variables than the data set's, or a set-up that cannot be scored.
    """
    require_data_set(dataset)
    chosen = resolved(settings, ["evaluate"], preset=None, config=config)[EvaluateConfig]
    fitted = {name: model.fitted for name, model in _named(models).items()}
    with reporting(progress) as reporter:
        return run_evaluation(dataset, named_candidates(fitted), chosen, setups=setups, reporter=reporter)


def _named(models: "Model | Sequence[Model] | Mapping[str, Model]") -> "Mapping[str, Model]":
    """Return models by name: their own, or their method, domain and place."""
    if isinstance(models, Sequence | Mapping) and not models:
        raise UsageError("there is no model to evaluate", where="models=", fix="give one, or several")
    if isinstance(models, Mapping):
        return models
    several = list(models) if isinstance(models, Sequence) else [models]
    names = [f"{model.method} on {model.domain}" for model in several]
    return {
        name if names.count(name) == 1 else f"{name}, number {i}": model
        for i, (name, model) in enumerate(zip(names, several, strict=True), start=1)
    }


def judge_gates(
    scores: EvaluationReport, gates: str | Sequence[str], *, models: "Mapping[str, Model] | None" = None
) -> list[Verdict]:
    """Judge scores by gates, as `costar evaluate --fail-if` does.

    Args:
        scores: what `evaluate_models` returned.
        gates: conditions under which the scores fail, such as `"zero-shot.ridge.average > 1.1"`, one or several.
        models: the models by the names that gates call them, where these are not the names of their methods.

    Returns:
        A verdict per gate and row that it is about: `value`, `verdict` (`passed` or `failed`) and, without a value,
        `reason`.

    Raises:
        UsageError: no scores, conditions that are not understood, or names of which there are none, all of them.
    """
    given: object = scores  # untyped callers give anything
    if not isinstance(given, EvaluationReport):
        fix = "give what `evaluate_models` returned"
        raise UsageError(f"{type(given).__name__} is no evaluation", where="scores=", fix=fix)
    named: dict[str, set[str]] = {}
    for name, model in (models or {}).items():
        named.setdefault(model.digest, set()).add(name)
    return calibrated(parse_gates(texts(gates, "gates")), scores, named)


def score_search(
    models: "Model | Sequence[Model] | Mapping[str, Model]",
    dataset: Dataset,
    *,
    minimise: str | Sequence[str] = (),
    maximise: str | Sequence[str] = (),
    cost: str | Sequence[str] = (),
    seed: int = 0,
    frame: FrameName = "pandas",
    progress: Progress = False,
) -> "Frame":
    """Score models by what their best plans lose against the simulator's own, as `costar evaluate --search` does.

    Args:
        models: a model, several, or several by the names that the rows shall have.
        dataset: a simulated data set with test subjects.
        minimise: what to make small, as in `Model.search`; the first outcome at the end where nothing is said.
        maximise: what to make large.
        cost: what treatments cost, in the objective's unit.
        seed: of the origin that is drawn of each subject, and of the plans of the random policy.
        frame: the library of the result, `pandas` or `polars`.
        progress: True for progress on stderr, or a `Reporter`.

    Returns:
        A row per part and policy, the models' and simple ones: `mean` regret with its standard `error`, `relative` to
        that of a plan drawn at random, the share `best` of subjects whose best plan is found, and `covered`, the share
        whose true objective lies within the interval (docs/measured.md).

    Raises:
        UsageError: no simulator knows the truth, or the objective does not fit.
    """
    require_data_set(dataset)
    fitted = {name: model.fitted for name, model in _named(models).items()}
    said = {"minimise": minimise, "maximise": maximise, "cost": cost}
    request = regret_request(dataset.schema, **{name: texts(value, name) for name, value in said.items()})
    with reporting(progress) as reporter:
        found = regrets(fitted, dataset, request, seed=seed, reporter=reporter)
    return frame_of_rows([regret.to_json() for regret in found], frame)
