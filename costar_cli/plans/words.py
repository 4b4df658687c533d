"""Plans as people read them, and as a file of plans spells them."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import ArrayLike

from costar_cli.data import PanelSchema, TreatmentEncoding
from costar_cli.data.schema import step_word


def in_words(schema: PanelSchema, values: ArrayLike, origin: int) -> str:
    """Return what a plan `[steps,names]` gives and when: `day 30-31 chemotherapy, then none`.

    The levels of a single treatment that is never just off or on stand behind its name: `dose: day 30-31 2, then 0`.
    """
    given, names = [schema.treatments.describe(row) for row in np.asarray(values)], schema.treatments.all_names
    named = len(names) == 1 and all(what.startswith(f"{names[0]}=") for what in given)
    given = [what.removeprefix(f"{names[0]}=") for what in given] if named else given
    course = spans(given, origin)
    if len(course) > 1:
        course[-1] = f"then {given[-1]}"
    return f"{f'{names[0]}: ' if named else ''}{step_word(schema.step)} {', '.join(course)}"


def spans(steps: Sequence[str], origin: int) -> list[str]:
    """Return what each run of equal steps is, and when: `30-31 chemotherapy`, `32 none`."""
    told, step = [], origin
    for what, run in groupby(steps):
        count = len(list(run))
        told.append(f"{step if count == 1 else f'{step}-{step + count - 1}'} {what}")
        step += count
    return told


def steps_by_name(encoding: TreatmentEncoding, values: ArrayLike) -> list[dict[str, str]]:
    """Return the treatments `[steps,names]` of a plan by name, with the names of their levels, or as numbers."""
    n, told = len(encoding.names), []
    for row in np.asarray(values).tolist():
        step = {name: of[int(value)] for name, of, value in zip(encoding.names, encoding.levels, row[:n], strict=True)}
        told.append(step | {dose.name: f"{value:.6g}" for dose, value in zip(encoding.doses, row[n:], strict=True)})
    return told
