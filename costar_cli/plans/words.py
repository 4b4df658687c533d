"""Plans as people read them, and as a file of plans spells them."""

from itertools import groupby

import numpy as np
from numpy.typing import ArrayLike

from costar_cli.panel import PanelSchema, TreatmentEncoding
from costar_cli.panel.schema import step_word


def in_words(schema: PanelSchema, values: ArrayLike, origin: int) -> str:
    """Return what a plan `[steps,names]` gives and when: `day 30-31 chemotherapy, then none`."""
    given = (schema.treatments.describe(row) for row in np.asarray(values))
    runs = [(what, len(list(steps))) for what, steps in groupby(given)]
    step, course = origin, []
    for what, count in runs:
        when = str(step) if count == 1 else f"{step}-{step + count - 1}"
        course.append(f"{when} {what}")
        step += count
    if len(course) > 1:
        course[-1] = f"then {runs[-1][0]}"
    return f"{step_word(schema.step)} {', '.join(course)}"


def steps_by_name(encoding: TreatmentEncoding, values: ArrayLike) -> list[dict[str, str]]:
    """Return the treatments `[steps,names]` of a plan by name, with the names of their levels."""
    named = [zip(encoding.names, encoding.levels, row, strict=True) for row in np.asarray(values).tolist()]
    return [{name: levels[value] for name, levels, value in step} for step in named]
