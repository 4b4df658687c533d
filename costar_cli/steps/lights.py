"""What `costar whatif` prints of lights: a table by plan and step, and the reasons in words."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from costar_cli.ui.output import Output

if TYPE_CHECKING:
    from costar_cli.whatif import WhatIfReport
    from costar_cli.whatif.support import PlanLights


def show_lights(out: Output, report: "WhatIfReport") -> None:
    """Print the lights of each model's plans; nothing where no model has any."""
    from costar_cli.whatif.tables import light_reasons

    several = len(report.models) > 1
    for model in report.models:
        if model.lights is None:
            continue
        horizon = max(map(len, report.plans))
        steps = [str(report.history.origin + h) for h in range(horizon)]
        title = "do the data support the plans?" + (f" ({model.heading})" if several else "")
        rows = [
            [plan.name if first else None, f"{100 * lights.like_practice:.0f} %" if first else None, name, *marks]
            for plan, lights in zip(report.plans, model.lights, strict=True)
            for first, name, marks in _lines(lights, horizon)
        ]
        out.table(["plan", "like practice", "light", *steps], rows, title=title, keys=3)
        out.text(*light_reasons(report, model))


def _lines(lights: "PlanLights", horizon: int) -> Iterator[tuple[bool, str, list[str | None]]]:
    """Yield the two lights of a plan and what they come to, the worst over outcomes."""
    from costar_cli.uncertainty import LIGHTS

    precision = [max(step, key=LIGHTS.index) for step in lights.precision]
    for name, marks in (("precision", precision), ("practice", lights.practice), ("support", lights.worst)):
        yield name == "precision", name, [*marks, *[None] * (horizon - len(marks))]
