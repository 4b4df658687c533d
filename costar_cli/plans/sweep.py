"""Sweeps: one plan per dose, so that answers make a dose-response curve (spec PLAN-9)."""

import json
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.panel import TreatmentEncoding
from costar_cli.panel.dose import Dose
from costar_cli.plans.named_doses import named_doses


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
        fix = 'compare the levels with --plan, or ingest the treatment as `kind = "continuous"`'
        dose, values = named_doses(text, encoding, where="--sweep", fewest=2, without=fix)
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
