"""Doses as flags name them, `dose 0:10:1` or `dose 0,2,5`, and sweeps: one plan per dose (spec PLAN-9)."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.nearest import did_you_mean
from costar_cli.data import Dataset, TreatmentEncoding
from costar_cli.data.dose import Dose
from costar_cli.data.levels import as_number
from costar_cli.data.visits import elapsed_dose
from costar_cli.errors import UsageError

MOST: Final = 101  # doses that one text names
SHAPE: Final = 'write "NAME FIRST:LAST:STEP", as in "dose 0:10:1", or a list, "dose 0,2,5"'


def named_doses(
    text: str, encoding: TreatmentEncoding, *, where: str, fewest: int, without: str
) -> tuple[Dose, list[float]]:
    """Return the dose that a text names, and which amounts of it, ascending.

    Args:
        text: what somebody wrote.
        encoding: the treatments that there are.
        where: the flag.
        fewest: how many amounts are needed.
        without: what to do where the data have no doses.

    Raises:
        UsageError: it names none, there is no such dose, it is the time between visits, or one cannot be given.
    """
    name, _, said = (part.strip() for part in text.strip().rpartition(" "))
    time = elapsed_dose(encoding)
    if time is not None and name == time.name:
        fix = 'say when visits are in a file of plans: {"after": "14 days"}'
        problem = f"{name} is the time until the next visit: plans would end at different dates, and do not compare"
        raise UsageError(problem, where=where, fix=fix)
    known = [dose.name for dose in encoding.doses if dose is not time]
    if not known:
        raise UsageError("this data set has no doses", where=where, fix=without)
    if text.strip() in known:
        raise UsageError(f"{text.strip()!r} is a dose without amounts of it", where=where, fix=SHAPE)
    if name not in known:
        near = did_you_mean(name, known, lead="; ", quoted=True)
        raise UsageError(f"there is no dose {name!r}{near}", where=where, fix=f"{SHAPE}; of {', '.join(known)}")
    dose = next(dose for dose in encoding.doses if dose.name == name)
    parts = [as_number(part.strip()) for part in re.split("[:,]", said)]
    values = [float(part) for part in parts if part is not None]
    if len(values) < len(parts) or (":" in said and ("," in said or len(values) != 3)):
        raise UsageError(f"{said!r} are no doses", where=where, fix=SHAPE)
    many = UsageError(f"{said!r} are not {fewest} to {MOST} doses", where=where, fix=SHAPE)
    if ":" in said:
        first, last, by = values
        count = (last - first) / by if by else 0.0
        if not 0 < count < MOST:
            raise many
        values = [round(first + i * by, 9) for i in range(int(count + 1e-9) + 1)]
    values = sorted(set(values))
    if not fewest <= len(values) <= MOST:
        raise many
    for value in values:
        if problem := dose.problem(value):
            fix = f"{dose.range} were given"
            raise UsageError(f"{dose.name} cannot be {value:g}: {problem}", where=where, fix=fix)
    return dose, values


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
