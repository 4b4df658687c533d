"""What would have been sold at other prices: the simulated world's answers for subjects of the retail panel."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from costar_cli.data.asked_plans import AskedPlans, simulated_truth
from costar_cli.data.dataset import Dataset, Part
from costar_cli.data.retail.prices import PriceTreatment
from costar_cli.data.retail.weekly import STORE_IDS
from costar_cli.data.schema import Values
from costar_cli.errors import DataError, UsageError
from simulators.retail import (
    DEPARTMENTS,
    Confounding,
    PriceClasses,
    RetailWorld,
    catalogue_of,
    counterfactual_weekly_sales,
    expected_weekly_sales,
    simulate_retail,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

WHERE = ("department", "number", "store", "first_week")  # the truth stored per subject: where its series is


class WorldSeed(BaseModel):
    """All that makes a simulated world again, and what its price classes stand for; kept in `Dataset.config`.

    `change` is the relative price change of every class that a plan may name; the one-hot code has one more.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    seed: int = Field(ge=0, lt=2**63)
    confounding: Confounding
    edges: tuple[float, ...]
    change: tuple[float, ...]

    @property
    def classes(self) -> PriceClasses:
        """Return the classes as the simulator takes them."""
        return PriceClasses(np.array(self.edges), np.array([*self.change, np.nan]))

    def simulate(self, department: Ints, number: Ints) -> RetailWorld:
        """Simulate some items; their series are those that they have in the whole world."""
        return simulate_retail(self.seed, confounding=self.confounding, catalogue=catalogue_of(department, number))


@dataclass(frozen=True, slots=True)
class PlanAnswers:
    """The units that N subjects would have sold under plans, in a simulated world.

    A plan's class means the price that the week really had, where it had that class, and else what the class stands
    for; a dose is the change itself. Both are against the price of the subject's first week, also beyond its year.

    `item_store [N]` and `first [N]` say which series a subject is and in which week it begins.
    """

    world: RetailWorld
    prices: PriceTreatment
    item_store: Ints
    first: Ints

    def __call__(self, row_Q: Ints, origin_Q: Ints, plan_QH: Values) -> Floats:
        """Return the units `[Q,H]` sold in the weeks after the origins.

        Raises:
            UsageError: a class or a change that no price has, or weeks beyond the simulated ones.
        """
        return counterfactual_weekly_sales(self.world, *self._priced(row_Q, origin_Q, plan_QH)).astype(np.float64)

    def expected(self, row_Q: Ints, origin_Q: Ints, plan_QH: Values) -> Floats:
        """Return the mean of the units `[Q,H]` over the chance of days, given the demand state of the weeks."""
        return expected_weekly_sales(self.world, *self._priced(row_Q, origin_Q, plan_QH))

    def change(self, row_Q: Ints, origin_Q: Ints, plan_QH: Values) -> Floats:
        """Return the price changes `[Q,H]` that plans mean, against the subjects' first weeks."""
        return self.prices.change(self.asked(row_Q, origin_Q, plan_QH.shape[1]), plan_QH)

    def asked(self, row_Q: Ints, origin_Q: Ints, horizon: int) -> Floats:
        """Return the price changes `[Q,H]` of the weeks after the origins, against the subjects' first weeks."""
        item, store, week = self._weeks(row_Q, origin_Q, horizon)
        paid = self.world.price[item, store, self.first[row_Q][:, None]]
        return (self.world.price[item, store, week] - paid) / paid

    def _weeks(self, row_Q: Ints, origin_Q: Ints, horizon: int) -> tuple[Ints, Ints, Ints]:
        """Return item and store `[Q,1]` and week `[Q,H]` of the steps of plans."""
        item, store = np.divmod(self.item_store[row_Q][:, None], self.world.catalogue.n_stores)
        week = self.first[row_Q][:, None] + origin_Q[:, None] + 1 + np.arange(horizon)
        if week.size and week.max() >= self.world.calendar.n_weeks:
            raise UsageError("the simulated weeks end before the plan does", fix="give a shorter plan")
        return item, store, week

    def _priced(self, row_Q: Ints, origin_Q: Ints, plan_QH: Values) -> tuple[Ints, Ints, Floats]:
        """Return item-store, week and price change against the week's own year, of each step of the plans."""
        self.prices.require_known(plan_QH)
        item, store, week = self._weeks(row_Q, origin_Q, plan_QH.shape[1])
        change = self.change(row_Q, origin_Q, plan_QH)
        paid = self.world.price[item, store, self.first[row_Q][:, None]]
        own = self.world.reference_price(item, store, week)
        moved = np.where(paid == own, change, paid * (1.0 + change) / own - 1.0)
        return self.item_store[row_Q][:, None], week, moved


def m5_truth(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> Floats:
    """Return the units `[H]` sold per week had plans of prices been followed from their origins (an `Answer`).

    The items are simulated again from the seed, which takes milliseconds for a few, and compared with what the data set
    says they sold. Stored answers are met exactly.

    Raises:
        DataError: the simulation no longer gives the series of the data set.
    """
    asked, answers, local_Q = _about(dataset, part, row, origin, plan_values)
    return asked.shaped(answers(local_Q, asked.origin_Q, asked.plan_QH))


def m5_limit(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> Floats:
    """Return the mean of what `m5_truth` returns, over the chance of days alone (spec LIMIT-6).

    The demand state of the weeks ahead and the stock, which no history tells in full, are known.
    """
    asked, answers, local_Q = _about(dataset, part, row, origin, plan_values)
    return asked.shaped(answers.expected(local_Q, asked.origin_Q, asked.plan_QH))


def _about(
    dataset: Dataset, part: Part, row: int | ArrayLike, origin: int | ArrayLike, plan_values: ArrayLike
) -> tuple[AskedPlans, PlanAnswers, Ints]:
    """Return what is asked, the answers for the subjects that it is about, and which of these each question means."""
    plan = np.asarray(plan_values, dtype=dataset.schema.treatments.value_type)[..., 0]
    asked = AskedPlans.of(dataset, part, row, origin, plan, plan_axes=1).within_series()
    rows, local_Q = np.unique(asked.row_Q, return_inverse=True)
    return asked, _simulated_again(dataset, part, rows), local_Q


def _simulated_again(dataset: Dataset, part: Part, rows: Ints) -> PlanAnswers:
    """Return the answers for some subjects of a part, after a look whether their series are still the same."""
    seed, place, encoding = _seed(dataset, part), dataset.truth[part], dataset.schema.treatments
    department, number, store, first = (np.asarray(place[name], dtype=np.int64)[rows] for name in WHERE)
    items, item = np.unique(np.stack([department, number]), axis=1, return_inverse=True)
    world = seed.simulate(items[0], items[1])
    prices = PriceTreatment(seed.classes, encoding)
    answers = PlanAnswers(world, prices, item.ravel() * world.catalogue.n_stores + store, first)
    panel = dataset.panels[part].take(rows)
    step = np.arange(1, panel.n_steps)
    row, ahead = np.nonzero(step < panel.length[:, None])
    given = encoding.decode(panel.treatments[row, ahead])
    try:
        odd = answers(row, ahead, given)[:, 0] != panel.outcomes[row, ahead + 1, 0]
    except ValueError:  # weeks before an item's launch
        odd = np.ones(len(row), dtype=np.bool_)
    if odd.any():
        raise DataError(
            f"simulated again, {panel.names[int(row[odd][0])]} has other sales than the data set records",
            where=f"{part}, truth",
            fix="make the data set again: it comes from another version of costar or numpy",
        )
    return answers


def _seed(dataset: Dataset, part: Part) -> WorldSeed:
    """Return what makes the world again.

    Raises:
        UsageError: the data set has no truth of this part.
        DataError: its truth is not what costar writes.
    """
    place = simulated_truth(dataset, part, WHERE)
    try:
        seed = WorldSeed.model_validate(dataset.config.get("world"))
        most = max(department.n_items for department in DEPARTMENTS)
        low, high = (0, 1, 0, 0), (len(DEPARTMENTS) - 1, most, len(STORE_IDS) - 1, 10_000)
        if len(seed.change) != len(seed.edges) or len(seed.edges) < 2:
            raise ValueError("classes do not fit their edges")
        places = np.stack([place[name] for name in WHERE], axis=-1)
        if ((places < low) | (places > high)).any():
            raise ValueError("items or stores that do not exist")
    except (ValidationError, ValueError) as error:
        problem = f"the truth of {part} is not as costar wrote it"
        raise DataError(problem, where=f"{part}, truth", fix="simulate the data again") from error
    return seed
