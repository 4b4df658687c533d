"""Scores in the Python API: models on held-out subjects, as `costar evaluate` scores them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from costar_cli.api.calls import PathLikeText, Progress, reporting, resolved
from costar_cli.config.choices import SetupName
from costar_cli.config.models import EvaluateConfig
from costar_cli.errors import UsageError
from costar_cli.evaluate import EvaluationReport, named_candidates, run_evaluation
from costar_cli.panel.dataset import Dataset

if TYPE_CHECKING:
    from costar_cli.api.model import Model


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
    chosen = resolved(settings, ["evaluate"], preset=None, config=config)[EvaluateConfig]
    fitted = {name: model.fitted for name, model in _named(models).items()}
    with reporting(progress) as reporter:
        return run_evaluation(dataset, named_candidates(fitted), chosen, setups=setups, reporter=reporter)


def _named(models: "Model | Sequence[Model] | Mapping[str, Model]") -> "Mapping[str, Model]":
    """Return models by name: their own, or their method, domain and place."""
    if isinstance(models, Mapping):
        return models
    several = list(models) if isinstance(models, Sequence) else [models]
    if not several:
        raise UsageError("there is no model to evaluate", where="models=")
    names = [f"{model.method} on {model.domain}" for model in several]
    return {
        name if names.count(name) == 1 else f"{name}, number {i}": model
        for i, (name, model) in enumerate(zip(names, several, strict=True), start=1)
    }
