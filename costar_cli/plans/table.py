"""Plans from a table: a row per plan and step, with a column per treatment and, if each has its own, the subject.

See spec PLAN-2.
"""

import io
import re
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from costar_cli.config.nearest import did_you_mean
from costar_cli.data import TreatmentEncoding, Values
from costar_cli.data.calendar import Date
from costar_cli.data.dose import Dose
from costar_cli.data.levels import find_level, known_levels
from costar_cli.errors import UsageError
from costar_cli.plans.plan import KEEPS_DATES, MOST_PAIRS, IndexTimes, PlanRequest, TreatmentPlan
from costar_cli.plans.steps import read_dose
from costar_cli.plans.untrusted import Problems, shown

SHAPE: Final = "give the columns `plan`, `step` (1, 2, ...), one per treatment, and `subject` if each has its own plans"
NAMED: Final = 20  # rows with the same problem that are named, at most
OFTEN: Final = {  # words of what else these columns are called
    "subject": "subject id no number subj pid patient person participant individual case usubjid mrn customer client "
    "user unit store item label who",
    "step": "step time t tau day days week weeks month months hour hours period visit date horizon number no",
    "plan": "plan plans scenario policy strategy regimen arm option name id",
}


def parse_table(
    data: bytes | str, encoding: TreatmentEncoding, *, horizon: int, where: str, moments: IndexTimes | None = None
) -> PlanRequest:
    """Return the plans of a CSV file; an empty cell is the reference level of its treatment.

    Steps may be dates where the `moments` are known at which plans begin, of subjects that have dates.

    Raises:
        UsageError: every problem of the table at once, each with plan, step and name.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        frame = pl.read_csv(io.StringIO(text), infer_schema=False)
    except (pl.exceptions.PolarsError, ValueError, UnicodeError) as error:
        raise UsageError(f"not a CSV table: {str(error).splitlines()[0]}", where=where, fix=SHAPE) from error
    problems, known = Problems(), ("subject", "plan", "step", *encoding.all_names)
    lacking = [name for name in OFTEN if name not in frame.columns]
    for name in frame.columns:
        if name not in known:
            words = set(re.split(r"[\W_]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()))
            meant = next((asked for asked in lacking if words <= set(OFTEN[asked].split())), None)
            hint = f"; if it is the {meant}, call it `{meant}`" if meant else ""
            problems.add(f"unknown column {shown(name)}{hint or did_you_mean(name, known, lead='; ', quoted=True)}")
    for name in ("plan", "step"):
        if name in lacking:
            problems.add(f"there is no column `{name}`")
    if not set(frame.columns) & set(encoding.all_names):
        problems.add(f"there is no column of a treatment: {', '.join(encoding.all_names)}")
    for dose in encoding.doses:
        if dose.name not in frame.columns:
            problems.add(f"there is no column of the dose {shown(dose.name)}: give one, with 0 where none is given")
    if not frame.height:
        problems.add("the table has no rows")
    problems.raise_any("the table does not match the data set", where=where, fix=SHAPE)
    trimmed = frame.with_columns(pl.all().str.strip_chars()).with_row_index("row")
    numbered = trimmed.with_columns(_numbers(trimmed, moments, problems).alias("number"))
    problems.raise_any("steps of the table cannot be dates", where=where, fix=problems.fix or KEEPS_DATES)
    # the rows of each plan together, in the order of the first of each, by step; `first` is that row
    first = pl.col("row").min().over(_keys(numbered)).alias("first")
    ordered = numbered.with_columns(first).sort("first", "number", "row", nulls_last=True)
    table = _Table(ordered, encoding, problems)
    values_MA = table.values()
    table.check_steps(horizon)
    if table.n_plans > MOST_PAIRS:
        problems.add(f"{table.n_plans:,} plans of a subject; at most {MOST_PAIRS:,} at once")
    problems.raise_any("the plans do not match the data set", where=where, fix=problems.fix or SHAPE)
    return table.request(values_MA)


def _keys(frame: pl.DataFrame) -> list[str]:
    return [name for name in ("subject", "plan") if name in frame.columns]


def _numbers(frame: pl.DataFrame, moments: IndexTimes | None, problems: Problems) -> pl.Series:
    """Return the number of each row's step in its plan, 1 at the origin; null for neither a number nor a date.

    The dates of a subject that is not among the moments are counted as they come: it is refused, or left out, later.
    """
    written = frame["step"]
    form = moments.panel.calendar.form if moments is not None and moments.panel.calendar else ""
    dates = {text: date for text in written.unique(maintain_order=True) if (date := Date.parse(text, form))}
    number = written.cast(pl.Int64, strict=False)
    if not dates:
        return number
    counted = frame.select(pl.int_range(1, pl.len() + 1).over(_keys(frame))).to_series().to_numpy().copy()
    codes = {text: code for code, text in enumerate(dates)}
    code_M = written.replace_strict(codes, default=-1, return_dtype=pl.Int64).to_numpy()
    by_code = np.argsort(code_M, kind="stable")
    rows_of = np.split(by_code, np.searchsorted(code_M[by_code], np.arange(len(dates))))[1:]
    of_M = None
    if moments is not None and "subject" in frame.columns:
        of_M = frame["subject"].replace_strict(_places(moments), default=-1, return_dtype=pl.Int64).to_numpy()
    for date, rows in zip(dates.values(), rows_of, strict=True):
        try:
            if moments is None:
                raise ValueError("no subjects with dates are asked about from one origin")
            ahead_Q = moments.steps_to(date)
        except ValueError as error:
            problems.add(f"`step` cannot be the date {date}: {error}")
            break
        if of_M is not None:
            known = rows[of_M[rows] >= 0]
            counted[known] = ahead_Q[of_M[known]] + 1
        elif (ahead_Q == ahead_Q[0]).all():
            counted[rows] = ahead_Q[0] + 1
        else:
            apart = f"{ahead_Q.min()} to {ahead_Q.max()} steps after the origins of the subjects"
            fix = "add the column `subject`, give an origin that all have at the same date, or number the steps"
            problems.add(f"`step` {date} is {apart}", fix=fix)
            break
    is_date = written.is_in(list(dates))
    return frame.select(pl.when(is_date).then(pl.Series(counted)).otherwise(number)).to_series()


def _places(moments: IndexTimes) -> dict[str, int]:
    """Return the moment of each subject by its name."""
    names = moments.panel.names
    return {names[row]: q for q, row in enumerate(moments.subject_Q.tolist())}


class _Table:
    """Rows of plans in order; what is wrong with them is collected."""

    def __init__(self, frame: pl.DataFrame, encoding: TreatmentEncoding, problems: Problems) -> None:
        self.frame = frame
        self.encoding = encoding
        self.problems = problems
        first = frame["first"].to_numpy()
        self.begins = np.flatnonzero(np.append(True, first[1:] != first[:-1]))
        self.ends = np.append(self.begins[1:], frame.height)

    @property
    def n_plans(self) -> int:
        return len(self.begins)

    def add(self, wrong: NDArray[np.bool_], problem: str, fix: str = "") -> None:
        """Add a problem of some rows, with the plan and the step of the first of them."""
        for at in np.flatnonzero(wrong)[:NAMED]:
            row = self.frame.row(int(at), named=True)
            who = f", subject {shown(row['subject'])}" if "subject" in row else ""
            self.problems.add(problem, f"plan {shown(row['plan'])}{who}", row["number"], fix=fix)

    def values(self) -> Values:
        """Return the levels and doses `[rows, names]`."""
        values_MA = self.all_levels()
        if not self.encoding.doses:
            return values_MA
        return np.concatenate([values_MA, *(self.amounts(dose)[:, None] for dose in self.encoding.doses)], axis=1)

    def amounts(self, dose: Dose) -> NDArray[np.float64]:
        """Return the numbers of a dose, 0 where a cell is empty, or the usual time until the next step."""
        said = self.frame[dose.name].fill_null("")
        found = {"": dose.elapsed or 0.0}
        for text in said.unique(maintain_order=True).to_list():
            if text == "":
                continue
            found[text], problem = read_dose(text, dose)
            if problem:
                self.add((said == text).to_numpy(), f"{shown(dose.name)} cannot be {shown(text)}: {problem}")
        return said.replace_strict(found, return_dtype=pl.Float64).to_numpy()

    def all_levels(self) -> NDArray[np.int64]:
        """Return the levels `[rows, names]`."""
        values_MA = np.zeros((self.frame.height, len(self.encoding.names)), dtype=np.int64)
        for i, (name, levels) in enumerate(zip(self.encoding.names, self.encoding.levels, strict=True)):
            if name in self.frame.columns:
                values_MA[:, i] = self.levels(name, levels)
        kinds, kind_M = np.unique(values_MA, axis=0, return_inverse=True)
        for number, kind in enumerate(kinds.tolist()):
            if self.encoding.classes and tuple(kind) not in self.encoding.classes and min(kind) >= 0:
                wanted = ", ".join(f"{n}={of[v]}" for n, of, v in zip(
                    self.encoding.names, self.encoding.levels, kind, strict=True))  # fmt: skip
                self.add(kind_M.ravel() == number, f"the combination {wanted} does not occur in the data set")
        return values_MA

    def levels(self, name: str, levels: tuple[str, ...]) -> NDArray[np.int64]:
        said = self.frame[name].fill_null("")
        places = {
            text: 0 if text == "" else find_level(text, levels) for text in said.unique(maintain_order=True).to_list()
        }
        for text, place in places.items():
            if place is None:
                takes = did_you_mean(text, levels, lead="; ", quoted=True) or f"; it takes {known_levels(levels)}"
                self.add((said == text).to_numpy(), f"{shown(name)} cannot be {shown(text)}{takes}")
        found = {text: -1 if place is None else place for text, place in places.items()}
        return said.replace_strict(found, return_dtype=pl.Int64).to_numpy()

    def check_steps(self, horizon: int) -> None:
        """Add plans without a name, and plans whose steps are not 1, 2, ... up to the horizon."""
        number = self.frame["number"].fill_null(-1).to_numpy()
        place = np.arange(self.frame.height) - np.repeat(self.begins, self.ends - self.begins) + 1
        for name in ("plan", "subject"):
            if name in self.frame.columns:
                self.add(self.frame[name].fill_null("").to_numpy() == "", f"the column `{name}` is empty")
        odd = np.zeros(len(number), dtype=bool)
        odd[self.begins] = np.logical_or.reduceat(number != place, self.begins)
        fix = "number each plan's steps from 1, the origin's, or write their dates, the first that of the origin"
        self.add(odd, "steps are not 1, 2, 3, ..., each once", fix=fix)
        fix = f"give 1 to {horizon} steps, or train on data of a longer `horizon`"
        self.add(place == horizon + 1, f"the model answers plans of 1 to {horizon} steps", fix=fix)

    def request(self, values_MA: Values) -> PlanRequest:
        names = self.frame["plan"].gather(self.begins).to_list()
        plans = [
            TreatmentPlan(name, values_MA[begin:end])
            for name, begin, end in zip(names, self.begins, self.ends, strict=True)
        ]
        if "subject" not in self.frame.columns:
            return PlanRequest(tuple(plans))
        by_subject: dict[str, list[TreatmentPlan]] = {}
        for subject, plan in zip(self.frame["subject"].gather(self.begins).to_list(), plans, strict=True):
            by_subject.setdefault(subject, []).append(plan)
        return PlanRequest((), by_subject={subject: tuple(own) for subject, own in by_subject.items()})
