"""Which settings a baseline is fitted with: its own, and what it reads of those that all methods share."""

from collections.abc import Mapping
from typing import Any, Final

from costar_cli.config.baselines import METHOD_SETTINGS
from costar_cli.config.choices import CLOSED_FORM, MethodName
from costar_cli.config.models import Config, FinetuneConfig
from costar_cli.settings.resolve import Settings

__all__ = ["method_settings", "settings_read"]

SHARED: Final = ("epochs", "patience", "batch_size", "learning_rate")  # of all networks of a method
INHERITED: Final = ("epochs", "patience")  # by networks that have none of their own

OF_NETWORKS: Final = ("seed", "members", "updates", "select_on", "validation_batch_size", "precision", "domain")
OF_CLOSED_FORMS: Final = {**dict.fromkeys(CLOSED_FORM, ("domain",)), "msm": ("seed", "domain")}


def method_settings(chosen: Settings, method: MethodName, shared: FinetuneConfig) -> Config | None:
    """Return the method's own settings; a choice for all methods overrules presets of its networks."""
    if method not in METHOD_SETTINGS:
        return None
    section = method.replace("-", "_")
    settings = chosen[METHOD_SETTINGS[method]]
    overruled = [name for name in SHARED if chosen.is_chosen(f"finetune.{name}")]
    document = settings.model_dump()
    for network, values in document.items():
        if not isinstance(values, dict):
            continue
        for name in overruled:
            if name in values and not chosen.is_chosen(f"{section}.{network}.{name}"):
                values[name] = getattr(shared, name)
        values |= {name: getattr(shared, name) for name in INHERITED if values.get(name, 0) is None}
    return type(settings).model_validate(document)


def settings_read(method: str, shared: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the settings of all methods, by name, on which a baseline's model depends.

    Epochs, patience, batch size and learning rate are in the settings of each of its networks.
    """
    read = OF_CLOSED_FORMS.get(method, OF_NETWORKS)
    return {name: value for name, value in shared.items() if name in read}
