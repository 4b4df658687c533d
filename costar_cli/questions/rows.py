"""Rows of answers: the columns of every table, file and document, made in one place."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.visits import elapsed_dose, visit_dates
from costar_cli.errors import UsageError
from costar_cli.inference import RANGE, SUPPORT_LEVELS, UNMEASURED, SupportRatings
from costar_cli.plans.doses import Sweep
from costar_cli.questions.answers import ModelAnswers, objects

RESERVED: Final = frozenset(
    [
        *("setup", "method", "model", "queries", "kind", "dataset", "part", "domain", "split", "subject", "label"),
        *("origin", "plan", "step", "time", "date", "outcome", "unit", "estimate", "lower", "upper", "level"),
        *("interval_kind", "precision", "practice", "support", "survival", "truth", "members_sd"),
        *("quantity", "reference", "dose", "treatment", "error", "observed", "reason"),
    ]
)  # columns of tables of answers, as which those of subjects may not be called
SHOWN: Final = ("estimate", "lower", "upper", "level")  # what is left out of an answer that the data do not support

WHO: Final = ("dataset", "subject", "label")  # before the columns of which names are made
WHAT: Final = (
    *("domain", "split", "origin", "quantity", "model", "plan", "reference", "dose", "step", "time", "date"),
    *("treatment", "outcome", "unit", "estimate", "lower", "upper", "level", "interval_kind", "truth", "error"),
    *("observed", "precision", "practice", "support", "reason"),
)  # before further limits and survival

A_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")  # how a date begins; periods such as 2019Q3 are none

Columns = dict[str, NDArray[Any]]
Floats = NDArray[np.float64]


def tidy_columns(
    answers: ModelAnswers,
    *,
    quantity: Literal["outcome", "difference"] = "outcome",
    truth_QHY: Floats | None = None,
    abstain: bool = False,
    words: bool = False,
) -> Columns:
    """Return the columns of a tidy table: a row per question, step of its plan and outcome.

    They are `subject`, `label`, the columns of which names are made where these are several, for subjects of a data set
    `domain` and `split`, then `origin`, `plan`, `step` (from 1), `time` (origin + step), of data with dates its `date`,
    `outcome`, `unit`, `estimate`, `lower`, `upper`, `level`, `interval_kind`, the lights `precision`, `practice` and
    `support`, and `truth` where it is given; limits at further levels are called `lower_0.5`. Models that know of ends
    add `survival`, of several `ended_NAME`, too. Answers to steps at which no training subject has the outcome have no
    numbers. Differences are from the reference plan, whose own rows are left out.

    Args:
        answers: a chunk of them.
        quantity: outcomes, or their differences from the reference plan.
        truth_QHY: what the simulator says of the outcomes.
        abstain: give answers that the data do not support no numbers.
        words: add `treatment`, and with lights the `reason` of one that is not green; a text for each row.
    """
    own_QHY, band, minus_Q = answers.own_QHY, answers.band, None
    if quantity == "difference":
        minus_Q, band = answers.minus_Q, answers.differences  # which see that there is a reference plan
        assert minus_Q is not None  # noqa: S101
        own_QHY = own_QHY & own_QHY[minus_Q] & (minus_Q != np.arange(len(answers)))[:, None, None]
    q, h, y = np.nonzero(own_QHY)
    minus = None if minus_Q is None else minus_Q[q]
    outcomes, names = answers.schema.outcomes, objects([plan.name for plan in answers.plans_Q])
    columns = _who(answers, answers.moment_Q[q]) | {"plan": names[q]}
    if minus is not None:
        columns["reference"] = names[minus]
    columns |= {"step": h + 1, "time": columns["origin"] + h + 1}
    if (dates := _dates(answers, q, h)) is not None:
        columns["date"] = dates
    if words:
        columns["treatment"] = _treatments(answers)[q, h]
    columns |= {
        "outcome": objects([outcome.name for outcome in outcomes])[y],
        "unit": objects([outcome.unit for outcome in outcomes])[y],
        "estimate": band.estimate[q, h, y],
    }
    kinds = band.kinds[q, h, y]
    for i, level in enumerate(answers.levels):
        none = np.full(len(q), np.nan)
        lower, upper = (none if limit is None else limit[i, q, h, y] for limit in (band.lower, band.upper))
        further = f"_{level:g}" * (i > 0)
        columns |= {f"lower{further}": lower, f"upper{further}": upper}
        if not i:
            columns["level"] = np.where(np.isnan(lower) | (kinds == RANGE), np.nan, level)
            columns["interval_kind"] = kinds
    worst = q  # the question whose support is shown: of a difference that of the worse supported plan
    if minus is not None and answers.ratings is not None:
        rating = answers.ratings.rating_QHY
        worst = np.where(rating[minus, h, y] > rating[q, h, y], minus, q)
    columns |= _marks(answers.ratings, worst, h, y)
    if words:
        ratings = answers.plan_ratings
        reasons = [(ratings and ratings[i].reasons[j][k]) or None for i, j, k in zip(worst, h, y, strict=True)]
        columns["reason"] = objects(reasons)
    for name, values_QH in answers.survival_forecast.columns.items() if answers.survival_forecast else ():
        columns[name] = values_QH[q, h] - (0.0 if minus is None else values_QH[minus, h])
    if truth_QHY is not None:
        columns["truth"] = truth_QHY[q, h, y] - (0.0 if minus is None else truth_QHY[minus, h, y])
    either = (q,) if minus is None else (q, minus)  # what one of the two lacks, their difference lacks
    hidden = np.any([answers.hidden_QHY(abstain=abstain)[at, h, y] for at in either], axis=0)
    columns |= {name: np.where(hidden, np.nan, columns[name]) for name in columns if name.partition("_")[0] in SHOWN}
    if answers.unmeasured_QHY is not None:
        lacks = np.any([answers.unmeasured_QHY[at, h, y] for at in either], axis=0)
        columns["interval_kind"] = np.where(lacks, UNMEASURED, columns["interval_kind"])
    return columns


def label_columns(answers: ModelAnswers, *, abstain: bool = False) -> Columns:
    """Return estimates as labels in the layout of MEDS, with what tells several of a subject and moment apart.

    `subject_id`, `prediction_time` (the origin, in microseconds) and `float_value` are those of the standard; `time` is
    when the outcome would be seen; `model`, `plan`, `step` and `outcome` say which it is. Steps without an estimate are
    left out.

    Raises:
        UsageError: subjects are labels, or the data have no dates.
    """
    rows = tidy_columns(answers, abstain=abstain)
    cohort, at_M = answers.cohort, answers.moment_Q[np.nonzero(answers.own_QHY)[0]]
    origins = cohort.panel.dates(cohort.subject_M[at_M], cohort.origin_M[at_M])
    times = rows.get("date")
    if cohort.panel.label is not None:
        problem, fix = "labels of MEDS are of subjects that are whole numbers", "write a table with --csv"
        raise UsageError(problem, where="--labels", fix=fix)
    if origins is None or times is None or not all(A_DAY.match(str(text)) for text in origins):
        problem, fix = "labels of MEDS have moments, and the data have no dates", "write a table with --csv"
        raise UsageError(problem, where="--labels", fix=fix)
    known = ~np.isnan(rows["estimate"])
    columns: Columns = {
        "subject_id": rows["subject"].astype(np.int64),
        "prediction_time": origins.astype("datetime64[us]"),
        "float_value": rows["estimate"].astype(np.float32),
        "model": objects([answers.label] * len(known)),
        **{name: rows[name] for name in ("plan", "step")},
        "time": times.astype("datetime64[us]"),
        "outcome": rows["outcome"],
    }
    return {name: values[known] for name, values in columns.items()}


def event_columns(labels: Sequence[Columns]) -> Columns:
    """Return labels as a table of events in the layout of MEDS, in its order: by subject, and by time.

    `code` is `WHATIF//MODEL//PLAN//OUTCOME`, `numeric_value` the estimate, and `time` when the outcome would be seen;
    `prediction_time` is a further column.
    """
    rows = join_columns(list(labels))
    parts = zip(rows["model"], rows["plan"], rows["outcome"], strict=True)
    code = objects([f"WHATIF//{model}//{plan}//{outcome}" for model, plan, outcome in parts])
    order = np.lexsort((rows["prediction_time"], code.astype(str), rows["time"], rows["subject_id"]))
    columns = {"subject_id": rows["subject_id"], "time": rows["time"], "code": code}
    columns |= {"numeric_value": rows["float_value"], "prediction_time": rows["prediction_time"]}
    return {name: values[order] for name, values in columns.items()}


def table_columns(
    answers: ModelAnswers,
    dataset: str,
    quantity: Literal["outcome", "difference"],
    *,
    truth_QHY: Floats | None = None,
    abstain: bool = False,
    words: bool = False,
) -> Columns:
    """Return the columns of a table of answers about a data set, in the order of all files, with errors beside truth.

    Arguments are those of `tidy_columns`.
    """
    rows = tidy_columns(answers, quantity=quantity, truth_QHY=truth_QHY, abstain=abstain, words=words)
    count = len(rows["step"])
    if "truth" in rows:
        rows["error"] = rows["estimate"] - rows["truth"]
    said: dict[str, str | None] = {"dataset": dataset, "model": answers.label, "quantity": quantity}
    rows |= {name: objects([value] * count) for name, value in said.items()}
    rows.setdefault("reference", objects([None] * count))
    return in_order(rows, answers)


def in_order(rows: Columns, answers: ModelAnswers) -> Columns:
    """Return columns in the order of all files: who, which names are made of, what, then limits and survival."""
    keys = answers.schema.keys_of(answers.cohort.panel.names, RESERVED)
    first = [name for name in (*WHO, *keys, *WHAT) if name in rows]
    return {name: rows[name] for name in (*first, *(name for name in rows if name not in first))}


def with_doses(rows: Columns, answers: ModelAnswers, sweep: Sweep) -> Columns:
    """Return the columns of a table with the dose of each plan of a sweep, in their order."""
    return in_order(rows | {"dose": sweep.doses_of(rows["plan"])}, answers)


def _who(answers: ModelAnswers, at_M: NDArray[np.integer]) -> Columns:
    """Return who is asked about, and from when."""
    cohort = answers.cohort
    subject = cohort.subject_M[at_M]
    columns: Columns = {"subject": objects(cohort.names)[subject], "label": objects(cohort.panel.names)[subject]}
    keys = answers.schema.keys_of(cohort.panel.names, RESERVED)
    columns |= {name: objects(key)[subject] for name, key in keys.items()}
    if cohort.places:
        columns["domain"] = objects([place.part.domain for place in cohort.places])[subject]
        columns["split"] = objects([place.part.split for place in cohort.places])[subject]
    return columns | {"origin": cohort.origin_M[at_M]}


def _dates(answers: ModelAnswers, q: NDArray[np.integer], h: NDArray[np.integer]) -> NDArray[np.object_] | None:
    """Return when answers are, as text: of visits at any time, as far apart as plans say; None without dates."""
    panel, at_M = answers.cohort.panel, answers.moment_Q
    subject, origin = answers.cohort.subject_M[at_M], answers.cohort.origin_M[at_M]
    dose = elapsed_dose(answers.schema.treatments)
    if dose is None:
        return panel.dates(subject[q], origin[q] + h + 1)
    place = answers.schema.treatments.all_names.index(dose.name)
    gap_QH = np.ones((len(answers), answers.queries.horizon))
    for gap_H, plan in zip(gap_QH, answers.plans_Q, strict=True):  # encoded plans have rounded ones
        gap_H[: len(plan)] = plan.values[:, place]
    found = visit_dates(panel, dose, subject, origin, gap_QH)
    return None if found is None else found[q, h]


def _treatments(answers: ModelAnswers) -> NDArray[np.object_]:
    """Return the treatment of each step `[Q,H]`, of a rule the most common one with its share of the draws."""
    found = np.empty((len(answers), answers.queries.horizon), dtype=object)
    describe = answers.schema.treatments.describe
    for q, (plan, went) in enumerate(zip(answers.plans_Q, answers.simulated_Q, strict=True)):
        cells = [describe(row) for row in plan.values]
        if went:
            first = (next(iter(share.items())) for share in went[0].shares(went[1], answers.schema))
            cells = [what if share == 1 else f"{what} ({100 * share:.0f} %)" for what, share in first]
        found[q, : len(cells)] = cells
    return found


def _marks(
    ratings: SupportRatings | None, q: NDArray[np.integer], h: NDArray[np.integer], y: NDArray[np.integer]
) -> Columns:
    if ratings is None:
        return {name: objects([None] * len(q)) for name in ("precision", "practice", "support")}
    names = objects([*SUPPORT_LEVELS, None])  # the last, at -1, is `NOT_JUDGED`
    return {
        "precision": names[ratings.precision_QHY[q, h, y]],
        "practice": names[ratings.practice_QH[q, h]],
        "support": names[ratings.rating_QHY[q, h, y]],
    }


def join_columns(chunks: Sequence[Columns]) -> Columns:
    """Return the columns of several tables, one below the other."""
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


def to_rows(columns: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """Return the rows of a table, in plain types; what is not a number is None."""
    plain = {
        name: [None if value != value else value for value in values.tolist()]  # noqa: PLR0124 - NaN
        for name, values in columns.items()
    }
    return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
