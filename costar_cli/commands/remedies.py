"""What to run next where a model loses to the last value carried forward."""

import math
from collections.abc import Mapping
from typing import Any

from costar_cli.commands.hints import Value
from costar_cli.commands.session import Session

__all__ = ["remedies"]


def remedies(session: Session, meta: Mapping[str, Any], files: Mapping[str, Value], *, again: bool = True) -> list[str]:
    """Return commands that may give a better model than one with this meta: longer training, and another method.

    Longer is twice the passes over the rows that the longest stage was allowed; a closed form has none. Without `again`
    it is left out: nobody knows what a model that lies elsewhere started from.
    """
    method, domain = str(meta["method"]), str(meta.get("domain", "source"))
    passes = max((float(stage.get("passes", meta["config"]["epochs"])) for stage in meta.get("stages", [])), default=0)
    chosen = ["--method", method] if method != "costar" else []
    chosen += ["--from", "scratch"] if method == "costar" and meta.get("init") == "scratch" else []
    chosen += ["--domain", domain] if domain != "source" else []
    commands = []
    if passes and again:
        epochs = str(2 * math.ceil(passes))
        commands.append(session.next_command("finetune", *chosen, "--epochs", epochs, "--overwrite", **files))
    other = "ridge" if method != "ridge" else "gnet"
    data = {name: path for name, path in files.items() if name == "data"}
    return [*commands, session.next_command("finetune", "--method", other, **data)]
