"""Year-sequences of weekly sales, their price classes, and the panel that they make (spec RETAIL-3 to 7)."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costar_cli.data.dose import Dose
from costar_cli.data.panel import Panel
from costar_cli.data.retail.weekly import CATEGORY_IDS, DAYS, DEPARTMENT_IDS, STORE_IDS, WeeklySales
from costar_cli.data.schema import ErrorUnit, PanelSchema, TreatmentEncoding, Values, Variable
from costar_cli.errors import DataError, UsageError
from simulators.retail import EVENT_NAMES, EVENT_TYPES, PRICE_EDGES, STATES, PriceClasses

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Encode = Callable[[Floats], NDArray[np.float32]]

SHORTEST, LONGEST = 40, 60  # weeks of a sequence
TREATMENT: Final = "price_change"
UNCHANGED, UNUSED = "no change", "unused"
MONTH_NAMES: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
STATIC_NAMES: Final = (
    *(f"dept={name}" for name in DEPARTMENT_IDS),
    *(f"category={name}" for name in CATEGORY_IDS),
    *(f"state={name}" for name in STATES),
    *(f"store={name}" for name in STORE_IDS),
)


@dataclass(frozen=True, slots=True)
class YearSequences:
    """M sequences of consecutive weeks on sale that begin in one calendar year.

    `row [M]` is the item-store, `first [M]` the week of step 0, `length [M]` the number of weeks. `change [M,T]` is the
    price's change against the sequence's first week, (p_t - p_0) / p_0 in full double precision, 0 beyond the length.
    They are sorted by item, store and year.
    """

    row: Ints
    first: Ints
    length: Ints
    change: Floats

    @classmethod
    def of(cls, sales: WeeklySales) -> Self:
        """Cut the weeks on sale into sequences of 40 to 60 weeks.

        A week without a price, or without a day of data, ends a sequence. A week of fewer than seven days with data
        neither begins nor ends one, but may lie inside.

        Raises:
            DataError: there is no sequence.
        """
        on_sale = ~np.isnan(sales.price) & (sales.days > 0)
        full, runs = sales.days == DAYS, []
        for year in np.unique(sales.weeks.year):
            weeks = np.flatnonzero(sales.weeks.year == year)
            padded = np.zeros((len(on_sale), len(weeks) + 2), dtype=np.int8)
            padded[:, 1:-1] = on_sale[:, weeks]
            row, begin = np.nonzero(np.diff(padded, axis=1) == 1)
            _, end = np.nonzero(np.diff(padded, axis=1) == -1)
            # Of each run of weeks on sale, from its first full week to its last
            week, is_full = np.arange(len(weeks)), full[:, weeks]
            next_full = np.minimum.accumulate(np.where(is_full, week, len(weeks))[:, ::-1], axis=1)[:, ::-1]
            last_full = np.maximum.accumulate(np.where(is_full, week, -1), axis=1)
            first, last = next_full[row, begin], last_full[row, end - 1]
            runs.append((row, first + weeks[0], np.maximum(last - first + 1, 0)))
        row, first, length = (np.concatenate(parts) for parts in zip(*runs, strict=True))
        kept = (length >= SHORTEST) & (length <= LONGEST)
        if not kept.any():
            raise DataError(
                f"no item was on sale in one store for {SHORTEST} full weeks of a year",
                where="sales and sell_prices",
                fix="give at least a year of consecutive weeks",
            )
        row, first, length = row[kept], first[kept], length[kept]
        order = np.lexsort((first, row))
        row, first, length = row[order], first[order], length[order]
        at = _weeks(first, int(length.max()), sales.price.shape[1])
        price = sales.price[row[:, None], at]
        change = (price - price[:, :1]) / price[:, :1]
        return cls(row, first, length, np.where(np.arange(at.shape[1]) < length[:, None], change, 0.0))

    def __len__(self) -> int:
        return int(self.row.shape[0])

    @property
    def n_steps(self) -> int:
        """Return T, the longest length."""
        return int(self.change.shape[1])

    def take(self, chosen: Ints) -> Self:
        """Return the given sequences, in that order."""
        return type(self)(self.row[chosen], self.first[chosen], self.length[chosen], self.change[chosen])


def _weeks(first: Ints, n_steps: int, n_weeks: int) -> Ints:
    """Return the week of each step `[M,T]`; steps beyond the calendar repeat its last week."""
    week: Ints = np.minimum(first[:, None] + np.arange(n_steps), n_weeks - 1)
    return week


def fitted_edges(change: Floats) -> Floats:
    """Return edges at the quantiles of non-zero price changes, the outermost where the paper's are.

    Where a few changes are so frequent that quantiles coincide, each different change counts once.

    Raises:
        DataError: there are too few different changes to fill as many classes as the paper has.
    """
    changed, shares = change[change != 0.0], np.linspace(0, 1, len(PRICE_EDGES))[1:-1]
    for values in (changed, np.unique(changed)):
        if len(values) >= len(PRICE_EDGES):
            edges = np.array([PRICE_EDGES[0], *np.quantile(values, shares), PRICE_EDGES[-1]])
            if (np.diff(edges) > 0.0).all():
                return edges
    raise DataError(
        f"source-train has too few different price changes for {len(PRICE_EDGES) - 1} classes",
        where="--edges fit",
        fix="use --edges fixed, or more items",
    )


def class_labels(edges: Floats) -> tuple[str, ...]:
    """Return what each price class means, as `-15.9 % to -11.0 %`, with as many decimals as tell the edges apart."""
    for decimals in range(1, 12):
        shown = [f"{100 * edge:+.{decimals}f} %" for edge in edges]
        if len(set(shown)) == len(shown):
            break
    between = [f"{low} to {high}" for low, high in pairwise(shown[1:-1])]
    return (UNCHANGED, f"below {shown[1]}", *between, f"above {shown[-2]}", UNUSED)


def class_encoding(edges: Floats) -> TreatmentEncoding:
    """Return the encoding of price changes by class."""
    labels = class_labels(edges)
    classes = tuple((level,) for level in range(len(labels)))
    return TreatmentEncoding(mode="multiclass", names=(TREATMENT,), levels=(labels,), classes=classes)


def m5_schema(treatments: TreatmentEncoding) -> PanelSchema:
    """Return the columns of the panel for given treatments."""
    outcome = Variable(name="sales", unit="units per week", kind="count")
    events = [Variable(name=f"event {name}", kind="binary", standardize=False) for name in EVENT_NAMES]
    types = [Variable(name=f"{name} event", kind="binary", standardize=False) for name in EVENT_TYPES]
    months = [Variable(name=f"month={name}", kind="binary", standardize=False) for name in MONTH_NAMES]
    return PanelSchema(
        covariates=(*events, *types, Variable(name="snap_days", unit="days", kind="count"), *months),
        treatments=treatments,
        outcomes=(outcome,),
        statics=tuple(Variable(name=name, kind="binary", standardize=False) for name in STATIC_NAMES),
        step="week",
        error_unit=ErrorUnit(label=outcome.unit),
    )


def sequence_panel(sales: WeeklySales, sequences: YearSequences, encode: Encode, ids: Ints) -> Panel:
    """Return the panel of some sequences.

    Step t holds the units sold in week t, the covariates of week t+1, which are known in advance, and the price of
    week t+1, which acts on the units of step t+1. The last step has the covariates of the week after the sequence
    and no treatment.

    Args:
        sales: all weeks.
        sequences: the subjects.
        encode: the treatments `[...,da]` of price changes `[...]`.
        ids: numbers of the sequences, unique in the data set.
    """
    length, row, n_steps = sequences.length, sequences.row, sequences.n_steps
    step, n_weeks = np.arange(n_steps), len(sales.weeks)
    observed = step < length[:, None]
    at = _weeks(sequences.first, n_steps, n_weeks)
    known = np.stack([sales.weeks.covariates(state) for state in range(len(STATES))])
    ahead = np.minimum(sequences.first[:, None] + step + 1, n_weeks)
    given_row, given_step = np.nonzero(step < length[:, None] - 1)
    given = encode(sequences.change[given_row, given_step + 1])
    treatments = np.zeros((len(sequences), n_steps, given.shape[-1]), dtype=np.float32)
    treatments[given_row, given_step] = given
    year = sales.weeks.year[sequences.first]
    covariates = known[sales.state[row][:, None], ahead]
    covariates[~observed] = 0.0
    item = sales.item[row]
    codes = (
        (sales.department[item], len(DEPARTMENT_IDS)),
        (sales.category[item], len(CATEGORY_IDS)),
        (sales.state[row], len(STATES)),
        (sales.store[row], len(STORE_IDS)),
    )
    return Panel(
        covariates=covariates,
        treatments=treatments,
        outcomes=np.where(observed, sales.units[row[:, None], at], 0).astype(np.float32)[..., None],
        statics=np.concatenate([np.eye(width, dtype=np.float32)[code] for code, width in codes], axis=1),
        length=length,
        subject_id=ids,
        label=np.char.add(np.char.add(sales.item_store_name[row], "/"), year.astype(np.str_)),
        cluster=sales.item[row].astype(np.int64),
    )


SAME = 1e-5  # relative difference of prices that are one: a dose has six digits


@dataclass(frozen=True, slots=True)
class PriceTreatment:
    """A treatment by prices: its encoding, and the classes that cut changes too large to be prices."""

    classes: PriceClasses
    encoding: TreatmentEncoding

    @classmethod
    def of(cls, classes: PriceClasses, train: YearSequences, *, dose: bool) -> Self:
        """Return the treatment by class, or by a dose whose range and scale are those of source-train.

        Raises:
            DataError: prices of source-train never change, so that there is no dose.
        """
        if not dose:
            return cls(classes, class_encoding(classes.edges))
        within = np.arange(1, train.n_steps) < train.length[:, None]
        try:
            found = Dose.learn(TREATMENT, known_change(classes, train.change[:, 1:][within]), basis="log1p")
        except ValueError as error:
            fix = "use more items, or --price classes"
            raise DataError(f"prices of source-train make no dose: {error}", where="--price dose", fix=fix) from error
        return cls(classes, TreatmentEncoding(mode="multilabel", names=(), levels=(), doses=(found,)))

    def encode(self, change: Floats) -> NDArray[np.float32]:
        """Return the encoded treatments `[...,da]` of price changes `[...]`; changes beyond the edges are none."""
        values: Values = known_change(self.classes, change) if self.encoding.doses else self.classes.classify(change)
        return self.encoding.encode(values[..., None])

    def require_known(self, planned: ArrayLike) -> None:
        """See that plans name prices.

        Raises:
            UsageError: the class that no price has, or a price that is taken off whole.
        """
        plan = np.asarray(planned)
        if self.encoding.doses:
            if (plan <= -1).any():
                raise UsageError("no price is lower by 100 % or more, so there is no truth of it", fix="name another")
        elif plan.size and plan.max() > len(self.classes) - 2:
            raise UsageError("no price belongs to the class `unused`, so there is no truth of it", fix="name another")

    def change(self, asked: Floats, planned: ArrayLike) -> Floats:
        """Return the price changes that plans mean in weeks with the changes `asked`, both `[...]`.

        What stands for the change that the week really had means exactly that one, so that a factual plan leads to
        factual sales (spec RETAIL-8, RETAIL-11).
        """
        plan = np.asarray(planned)
        if self.encoding.doses:
            same = np.isclose(known_change(self.classes, asked), plan, rtol=SAME, atol=SAME * SAME)
            return np.where(same, asked, plan)
        return np.where(self.classes.classify(asked) == plan, asked, self.classes.change[plan])


def known_change(classes: PriceClasses, change: Floats) -> Floats:
    """Return price changes, 0 for those beyond the edges, which are taken for mistakes."""
    return np.where(classes.classify(change) == 0, 0.0, change)
