"""How a model does on a domain on which it was never validated, as far as the data set at hand can tell."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from costar_cli.config.choices import DomainName
from costar_cli.steps.models import LoadedModel

if TYPE_CHECKING:
    from costar_cli.methods.base import FittedModel
    from costar_cli.panel import Dataset
    from costar_cli.train.selection import Validation

__all__ = ["losses_on_domain", "validate_on"]

MOST_SUBJECTS: Final = 32  # more say more, but a question shall stay quick: CT's 64 with 512 windows took seconds
MOST_WINDOWS: Final = 128


def losses_on_domain(dataset: "Dataset", models: Sequence[LoadedModel], domain: DomainName) -> list[str]:
    """Return a warning for each model that was not validated on the domain and loses to the last value there."""
    from costar_cli.whatif import validated_on

    warnings = []
    for one in models:
        if validated_on(one.model, dataset, domain) is not False:
            continue
        validation = validate_on(dataset, one.model, domain)
        if validation is not None and validation.warning:
            warnings.append(
                f"model `{one.name}` on {domain} subjects ({validation.windows} origins): {validation.warning}"
            )
    return warnings


def validate_on(dataset: "Dataset", model: "FittedModel", domain: DomainName) -> "Validation | None":
    """Return how a model does on factual validation windows of a domain; None where there are none.

    The score is the one that selects models, over at most 128 windows of 32 subjects, spread evenly.
    """
    import numpy as np

    from costar_cli.panel import Part
    from costar_cli.train.selection import Validation, ValidationWindows

    panel = dataset.panels.get(Part(domain, "val"))
    if panel is None or not panel.n_subjects:
        return None
    rows = np.linspace(0, panel.n_subjects - 1, min(panel.n_subjects, MOST_SUBJECTS)).round().astype(np.int64)
    windows = ValidationWindows.of(panel.take(rows), model.horizon, model.scaler, most=MOST_WINDOWS)
    if windows is None:
        return None
    members = tuple(windows.score(model).tolist())
    return Validation(members, windows.last_value(model), len(windows.queries), windows.queries.horizon)
