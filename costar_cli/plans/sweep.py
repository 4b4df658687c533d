"""Sweeps: one plan per dose, so that answers make a dose-response curve (spec PLAN-9)."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Dataset, TreatmentEncoding
from costar_cli.data.dose import Dose
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

    def given(self, dataset: Dataset) -> NDArray[np.float64]:
        """Return all doses `[M]` that subjects of a data set were given, at steps that have a next one."""
        encoding = dataset.schema.treatments
        place = encoding.all_names.index(self.dose.name)
        every = [encoding.decode(panel.treatments[panel.decided])[:, place] for panel in dataset.panels.values()]
        return np.concatenate(every).astype(np.float64)

    @property
    def doses(self) -> dict[str, float]:
        """Return the dose of each plan, by its name."""
        return {f"{self.dose.name}={value!r}".removesuffix(".0"): value for value in self.values.tolist()}

    def doses_of(self, names: Iterable[str]) -> NDArray[np.float64]:
        """Return the doses of plans by name."""
        doses = self.doses
        return np.array([doses[name] for name in names], dtype=np.float64)

    def document(self) -> bytes:
        """Return the plans as a file of plans."""
        plans = {name: {"repeat": {self.dose.name: value}, "until": "end"} for name, value in self.doses.items()}
        return json.dumps({"plans": plans}).encode()
