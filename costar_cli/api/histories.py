"""New subjects in a data frame, read as a trained model understands them: by the names of its own columns."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.nearest import did_you_mean
from costar_cli.errors import UsageError
from costar_cli.frames import columns_of
from costar_cli.panel.findings import Finding, counted, raise_errors, shown
from costar_cli.panel.levels import find_level, known_levels, label_of
from costar_cli.panel.panel import Panel
from costar_cli.panel.scale import Scaler
from costar_cli.panel.schema import PanelSchema, Variable

if TYPE_CHECKING:
    from costar_cli.frames import Frame

WHAT: Final = "the frame"
OBSERVED: Final = "_observed"  # ends the name of the 0/1 column beside one that was filled
OTHER: Final = "other"

Floats = NDArray[np.float64]
Cells = list[Any]


def read_histories(
    frame: "Frame", schema: PanelSchema, scaler: Scaler, *, subject: str, time: str | None
) -> tuple[Panel, list[object]]:
    """Return the subjects of a frame with a row per subject and step, and what the frame calls each.

    Columns are found by the names of the model's variables and treatments. A categorical column `sex` stands for the
    model's columns `sex=f` and `sex=m`, and the 0/1 column of what was observed is made here. A missing value is the
    subject's last one, or else the mean with which the model standardises, where training had such holes, and in
    outcomes; elsewhere it is an error. The treatment of a subject's last row may be missing: plans begin there.

    Args:
        frame: of pandas or polars.
        schema: the model's columns.
        scaler: the model's means.
        subject: the column that says whose row it is.
        time: the column by whose values a subject's rows are ordered; as they stand, if not given.

    Raises:
        UsageError: two columns of one name.
        DataError: columns that are missing, and values that cannot be read, all at once.
    """
    columns = columns_of(frame)
    order, length, names = _order(columns, subject, time)
    table = _Table({name: [cells[i] for i in order] for name, cells in columns.items()}, length, order)
    covariates = table.variables(schema.covariates, scaler.covariates[0], schema)
    observed = table.observed(schema.outcomes)
    outcomes = table.variables(schema.outcomes, scaler.outcomes[0], schema, filled=True)
    statics = table.variables(schema.statics, scaler.statics[0], schema, static=True)
    levels = table.treatments(schema)
    raise_errors(table.findings, what=WHAT)
    try:
        treatments = schema.treatments.encode(levels)
    except ValueError as error:
        raise_errors([Finding("error", str(error), WHAT, f"known: {', '.join(schema.treatments.columns)}")], what=WHAT)
        raise
    treatments[table.last] = 0  # what is given there is the plan's
    panel = Panel(
        covariates=table.padded(covariates),
        treatments=table.padded(treatments),
        outcomes=table.padded(outcomes),
        statics=statics[table.first].astype(np.float32),
        length=length,
        subject_id=np.arange(len(length), dtype=np.int64),
        label=np.array([label_of_any(name) for name in names]),
        outcome_observed=table.padded(observed) > 0,
    )
    return panel, names


def label_of_any(value: object) -> str:
    """Return what messages call a subject."""
    return label_of(value) if isinstance(value, bool | int | float | str) else str(value)


def _order(
    columns: Mapping[str, Cells], subject: str, time: str | None
) -> tuple[list[int], NDArray[np.int64], list[object]]:
    """Return the rows by subject and time, how many each subject has, and the subjects in the order of the frame.

    Raises:
        DataError: the columns are missing, or have rows without a value.
        UsageError: times that cannot be ordered, or that a subject has twice.
    """
    findings = []
    for argument, key in (("subject", subject), ("time", time)):
        if key is not None and key not in columns:
            findings.append(_no_column(key, columns, f"{argument}="))
        elif key is not None and None in columns[key]:
            row = columns[key].index(None)
            findings.append(Finding("error", f"column '{key}': a row without a value", _place(row), "give it"))
    if not findings and not columns[subject]:
        findings.append(Finding("error", "the frame has no rows", "", "give a row per subject and step"))
    raise_errors(findings, what=WHAT)
    rows: dict[object, list[int]] = {}
    for row, name in enumerate(columns[subject]):
        rows.setdefault(name, []).append(row)
    if time is not None:
        times = columns[time]
        try:
            rows = {name: sorted(own, key=times.__getitem__) for name, own in rows.items()}
        except TypeError as error:
            raise UsageError(f"the times of column '{time}' cannot be ordered: {error}", where="time=") from None
        for name, own in rows.items():
            if len({times[row] for row in own}) < len(own):
                fix = "give one row per subject and step"
                raise UsageError(f"subject {name} has two rows of one time", where=f"column '{time}'", fix=fix)
    length = np.array([len(own) for own in rows.values()], dtype=np.int64)
    return [row for own in rows.values() for row in own], length, list(rows)


def _no_column(name: str, columns: Mapping[str, Cells], where: str) -> Finding:
    fix = did_you_mean(name, columns, quoted=True) or f"it has {shown(columns, 8)}"
    return Finding("error", f"there is no column '{name}'", where, fix)


def _place(row: int) -> str:
    return f"row {row + 1} of {WHAT}"


@dataclass(eq=False)
class _Table:
    """The columns of a frame, rows in order of subject and time; `findings` gathers what is wrong with them."""

    columns: Mapping[str, Cells]
    length: NDArray[np.int64]
    order: Sequence[int]
    findings: list[Finding] = field(default_factory=list)

    @property
    def first(self) -> NDArray[np.int64]:
        """Return the first row of each subject."""
        return self.last - self.length + 1

    @property
    def last(self) -> NDArray[np.int64]:
        """Return the last row of each subject."""
        return np.cumsum(self.length) - 1

    def padded(self, values_MF: NDArray[Any]) -> NDArray[np.float32]:
        """Return rows as `[N,T,F]`."""
        subject = np.repeat(np.arange(len(self.length)), self.length)
        step = np.arange(len(subject)) - self.first[subject]
        result = np.zeros((len(self.length), int(self.length.max()), values_MF.shape[1]), dtype=np.float32)
        result[subject, step] = values_MF
        return result

    def variables(
        self,
        variables: Sequence[Variable],
        means: Floats,
        schema: PanelSchema,
        *,
        static: bool = False,
        filled: bool = False,
    ) -> Floats:
        """Return the columns `[M,F]` of variables, holes filled where `filled` or where training had holes."""
        every = {variable.name for variable in (*schema.covariates, *schema.statics)}
        made = np.zeros((len(self.order), len(variables)))
        for i, variable in enumerate(variables):
            name, categorical, of_mask = self._raw(variable.name)
            if name is None:
                missing = variable.name if categorical is None else variable.name.partition("=")[0]
                self._add(_no_column(missing, self.columns, WHAT))
                continue
            holes = filled or f"{name}{OBSERVED}" in every
            cells = self._static(name) if static else self.columns[name]
            if of_mask:
                made[:, i] = [cell is not None for cell in cells]
                continue
            known = self._one_hot(name, cells, categorical, variables) if categorical else self._numbers(name, cells)
            mean = means[i] if variable.standardize else None
            made[:, i] = self._filled(name, known, mean, allowed=holes)
        return made

    def observed(self, variables: Sequence[Variable]) -> Floats:
        """Return which outcomes `[M,Y]` the frame has."""
        masks = [[cell is not None for cell in self.columns.get(v.name, [None] * len(self.order))] for v in variables]
        return np.array(masks, dtype=np.float64).T

    def treatments(self, schema: PanelSchema) -> NDArray[np.int64]:
        """Return the place of each treatment's level `[M,names]`."""
        encoding, last = schema.treatments, set(self.last.tolist())
        made = np.zeros((len(self.order), len(encoding.names)), dtype=np.int64)
        for i, (name, levels) in enumerate(zip(encoding.names, encoding.levels, strict=True)):
            if name not in self.columns:
                self._add(_no_column(name, self.columns, WHAT))
                continue
            for row, cell in enumerate(self.columns[name]):
                place = 0 if cell is None and row in last else find_level(_bare(cell), levels)
                if place is None:
                    problem = f"treatment '{name}' cannot be {cell!r}; it takes {known_levels(levels)}"
                    self._add(Finding("error", problem, _place(self.order[row]), "correct the rows"))
                    break
                made[row, i] = place
        return made

    def _raw(self, name: str) -> tuple[str | None, str | None, bool]:
        """Return which column of the frame holds a variable, its category if it is one, whether it is a mask."""
        if name in self.columns:
            return name, None, False
        base, equals, category = name.partition("=")
        if equals:
            return (base if base in self.columns else None), category, False
        base = name.removesuffix(OBSERVED)
        if base != name and base in self.columns:
            return base, None, True
        return None, None, False

    def _static(self, name: str) -> Cells:
        """Return a column with each subject's one value on all its rows."""
        cells = self.columns[name]
        made: Cells = []
        for begin, count in zip(self.first, self.length, strict=True):
            own = [cell for cell in cells[begin : begin + count] if cell is not None]
            if any(cell != own[0] for cell in own):
                problem = f"column '{name}' changes within a subject, but is a static of the model"
                self._add(Finding("error", problem, _place(self.order[int(begin)]), "give one value per subject"))
            made += [own[0] if own else None] * int(count)
        return made

    def _numbers(self, name: str, cells: Cells) -> Floats:
        made = np.full(len(cells), np.nan)
        for row, cell in enumerate(cells):
            if cell is None:
                continue
            try:
                made[row] = float(cell)
            except (TypeError, ValueError):
                made[row] = math.inf
            if not math.isfinite(made[row]):
                problem = f"column '{name}': {cell!r} is not a number"
                self._add(Finding("error", problem, _place(self.order[row]), "give numbers"))
                break
        return made

    def _one_hot(self, name: str, cells: Cells, category: str, variables: Sequence[Variable]) -> Floats:
        known = [v.name.partition("=")[2] for v in variables if v.name.startswith(f"{name}=")]
        made = np.full(len(cells), np.nan)
        for row, cell in enumerate(cells):
            if cell is None:
                continue
            text = label_of_any(_bare(cell)).strip()
            if text not in known and OTHER not in known:
                problem = f"column '{name}': the model does not know the category {text!r}"
                self._add(Finding("error", problem, _place(self.order[row]), f"it knows {shown(known, 8)}"))
                break
            made[row] = text == category or (category == OTHER and text not in known)
        return made

    def _filled(self, name: str, known_M: Floats, mean: float | None, *, allowed: bool) -> Floats:
        """Return a column with the subject's last value, or else the mean, in the place of each hole."""
        holes = np.isnan(known_M)
        if not holes.any():
            return known_M
        at = int(holes.argmax())
        if not allowed:
            problem = f"column '{name}': {counted(int(holes.sum()), 'value')} missing, and none was in training"
            self._add(Finding("error", problem, f"first in {_place(self.order[at])}", "give them"))
            return known_M
        row, start = np.arange(len(known_M)), np.repeat(self.first, self.length)
        latest = np.maximum.accumulate(np.where(holes, -1, row))
        before = latest < start
        if mean is None and before.any():
            problem = f"column '{name}': no value of the subject so far"
            self._add(Finding("error", problem, _place(self.order[int(before.argmax())]), "give the first one"))
        rest = np.nan if mean is None else mean
        return np.where(before, rest, known_M[np.maximum(latest, 0)])

    def _add(self, finding: Finding) -> None:
        if finding not in self.findings:
            self.findings.append(finding)


def _bare(cell: object) -> Any:  # noqa: ANN401 - whatever a frame holds
    """Return a cell as Python has it, without numpy's types."""
    return cell.item() if isinstance(cell, np.generic) else cell
