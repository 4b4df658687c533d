"""What to run next where a model loses to the last value carried forward."""

import math
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from costar_cli.settings.presets import PRESETS
from costar_cli.steps.hints import Value
from costar_cli.steps.session import Session

if TYPE_CHECKING:
    from costar_cli.settings.resolve import Settings

__all__ = ["OTHERS", "other_method", "train_longer"]

OTHERS: Final = ("ridge", "gnet", "crn-erm", "rmsn", "ct-erm", "msm", "crn", "ct", "edct")  # in this order
REPEATED: Final = ("seed", "members", "patience", "batch_size", "learning_rate", "step_weights")  # settings with flags


def train_longer(session: Session, meta: Mapping[str, Any], files: Mapping[str, Value]) -> list[str]:
    """Return the command that trains a model with this meta again for longer, with its settings otherwise.

    That is twice the passes over the rows that the longest stage was allowed which ended by its budget. There is none
    where patience ended all stages, and none where somebody set `finetune.updates`, of which epochs are shares.
    """
    ended = [stage for stage in meta.get("stages", []) if "budget" in stage.get("ended_by", ())]
    if not ended or session.settings.is_chosen("finetune.updates"):
        return []
    method, domain = str(meta["method"]), str(meta.get("domain", "source"))
    words = ["--method", method] if method != "costar" else []
    words += ["--from", "scratch"] if method == "costar" and meta.get("init") == "scratch" else []
    words += ["--domain", domain] if domain != "source" else []
    nearest = _nearest_settings(session, meta)
    words += [*_preset(session, nearest), *_repeated(nearest, meta)]
    epochs = 2 * math.ceil(max(float(stage.get("passes", meta["config"]["epochs"])) for stage in ended))
    return [session.next_command("finetune", *words, "--epochs", str(epochs), "--overwrite", **files)]


def other_method(
    session: Session, meta: Mapping[str, Any], data: Value, evaluated: Collection[tuple[str, str]] = ()
) -> list[str]:
    """Return the commands that train the first other method of which there is no model for the domain yet.

    For the target its source model comes first, where it is missing. `evaluated` are methods and domains that were
    scored, wherever their files lie.
    """
    domain, place = str(meta.get("domain", "source")), session.workspace
    own = place.model  # of a method, by domain
    there = {method for method in OTHERS if own(method, "pretrained", meta.get("domain", "source")).exists()}
    there |= {method for method, of in evaluated if of == domain} | {str(meta["method"])}
    method = next((method for method in OTHERS if method not in there), None)
    if method is None:
        return []
    words = ["--method", method, *_preset(session, _nearest_settings(session, meta))]
    wanted = ["source"] if domain == "source" or not own(method).exists() else []
    wanted += ["target"] if domain == "target" else []
    steps = ([*words, "--domain", "target"] if step == "target" else words for step in wanted)
    return [session.next_command("finetune", *step, data=data) for step in steps]


def _preset(session: Session, settings: "Settings") -> list[str]:
    """Return the flag that asks for the preset of settings, unless it is in force without one."""
    return [] if settings.preset == session.settings.preset else ["--preset", settings.preset]


def _repeated(settings: "Settings", meta: Mapping[str, Any]) -> list[str]:
    """Return the flags of what a model was trained with and these settings say otherwise, as far as there are flags."""
    from costar_cli.config.models import FinetuneConfig, RuntimeConfig

    without = settings[FinetuneConfig].model_dump(mode="json")
    words: list[str] = []
    for name in REPEATED:
        value = meta["config"].get(name)
        if value is not None and value != without[name]:
            words += [f"--{name.replace('_', '-')}", str(value)]
    precision = meta.get("precision")
    if precision is not None and precision != settings[RuntimeConfig].precision:
        words += ["--precision", str(precision)]
    return words


def _nearest_settings(session: Session, meta: Mapping[str, Any]) -> "Settings":
    """Return the settings without flags of the preset that differs least from those a model was trained with.

    `evaluate` does not take the preset of training, and a model's file does not name it.
    """
    from costar_cli.settings.resolve import resolve

    file, first = session.given.get("config"), session.settings.preset
    names = [first] if "preset" in session.given else [first, *(name for name in PRESETS if name != first)]
    found = [
        resolve(
            {}, preset=name, file=Path(file) if file else None, environ=os.environ, dataset=meta.get("dataset_name")
        )
        for name in names
    ]
    return min(found, key=lambda settings: _differences(settings, meta))


def _differences(settings: "Settings", meta: Mapping[str, Any]) -> int:
    """Return how many recorded settings are others in these; `updates` that `--epochs` put aside do not count."""
    from costar_cli.artifact import flatten
    from costar_cli.config.models import FinetuneConfig, PretrainConfig
    from costar_cli.settings.method_settings import method_settings

    config = settings[FinetuneConfig]
    own = method_settings(settings, meta["method"], config)
    here = flatten(
        {
            "config": config.model_dump(mode="json"),
            "settings": own.model_dump(mode="json") if own else {},
            "encoder": settings[PretrainConfig].encoder.model_dump(mode="json"),
        }
    )
    there = flatten({name: meta.get(name) or {} for name in ("config", "settings", "encoder")})
    return sum(here[name] != there[name] for name in here.keys() & there.keys() if there[name] is not None)
