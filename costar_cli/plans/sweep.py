"""Sweeps: one plan per dose, so that answers make a dose-response curve (spec PLAN-9)."""

import json
import re
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.nearest import did_you_mean
from costar_cli.errors import UsageError
from costar_cli.panel import TreatmentEncoding
from costar_cli.panel.dose import Dose
from costar_cli.panel.levels import as_number

MOST: Final = 101  # doses of a sweep
SHAPE: Final = 'write "NAME FIRST:LAST:STEP", as in "dose 0:10:1", or a list, "dose 0,2,5"'


@dataclass(frozen=True, eq=False, slots=True)
class Sweep:
    """Plans that give a dose at each step of the horizon, and nothing else; `values [P]` are the doses."""

    dose: Dose
    values: NDArray[np.float64]

    @classmethod
    def parse(cls, text: str, encoding: TreatmentEncoding) -> Self:
        """Return the sweep that a text means.

        Raises:
            UsageError: it means none, there is no such dose, or one cannot be given.
        """
        name, _, said = text.strip().rpartition(" ")
        known = [dose.name for dose in encoding.doses]
        if name.strip() not in known:
            if not known:
                fix = 'compare the levels with --plan, or ingest the treatment as `kind = "continuous"`'
                raise UsageError("this data set has no doses", where="--sweep", fix=fix)
            near = did_you_mean(name.strip(), known, lead="; ", quoted=True)
            raise UsageError(
                f"there is no dose {name.strip()!r}{near}", where="--sweep", fix=f"{SHAPE}; of {', '.join(known)}"
            )
        dose = encoding.doses[known.index(name.strip())]
        values = _numbers(said)
        for value in values:
            if problem := dose.problem(value):
                raise UsageError(
                    f"{dose.name} cannot be {value:g}: {problem}", where="--sweep", fix=f"{dose.range} were given"
                )
        return cls(dose, np.array(values))

    def to_json(self) -> dict[str, object]:
        """Return what was swept, as a member of a `--json` document."""
        given = [self.dose.low, self.dose.high]
        return {"dose": self.dose.name, "unit": self.dose.unit, "values": self.values.tolist(), "given": given}

    def document(self) -> bytes:
        """Return the plans as a file of plans."""
        plans = {f"{self.dose.name}={value!r}".removesuffix(".0"): {"repeat": {self.dose.name: value}, "until": "end"}
                 for value in self.values.tolist()}  # fmt: skip
        return json.dumps({"plans": plans}).encode()


def _numbers(said: str) -> list[float]:
    parts = [as_number(part.strip()) for part in re.split("[:,]", said)]
    numbers = [float(part) for part in parts if part is not None]
    if len(numbers) < len(parts) or (":" in said and ("," in said or len(numbers) != 3)):
        raise UsageError(f"{said!r} are no doses", where="--sweep", fix=SHAPE)
    if ":" in said:
        first, last, by = numbers
        count = (last - first) / by if by else 0.0
        if not 0 < count < MOST:
            raise UsageError(f"{said!r} are not 2 to {MOST} doses", where="--sweep", fix=SHAPE)
        numbers = [round(first + i * by, 9) for i in range(int(count + 1e-9) + 1)]
    numbers = sorted(set(numbers))
    if not 2 <= len(numbers) <= MOST:
        raise UsageError(f"{said!r} are not 2 to {MOST} doses", where="--sweep", fix=SHAPE)
    return numbers
