"""What would have been sold at other prices: the simulated world's answers for subjects of the retail panel."""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from costar_cli.data.dataset import AskedPlans, Dataset, Part, simulated_truth
from costar_cli.data.panel import Panel
from costar_cli.data.queries import Queries, as_plans
from costar_cli.data.retail.sequences import PriceTreatment, class_encoding
from costar_cli.data.retail.settings import RetailConfig
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
    """Return what is asked, the answers for the subjects that it is about, and which of these each question means.

    Raises:
        UsageError: the data set has no truth of this part.
        DataError: its truth is not what costar writes, or simulated again, the subjects' series are no longer the same.
    """
    plan = np.asarray(plan_values, dtype=dataset.schema.treatments.value_type)[..., 0]
    asked = AskedPlans.of(dataset, part, row, origin, plan, plan_axes=1).within_series()
    rows, local_Q = np.unique(asked.row_Q, return_inverse=True)
    place, encoding = simulated_truth(dataset, part, WHERE), dataset.schema.treatments
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
    # The same world again, and a look whether the series are still the same
    department, number, store, first = (np.asarray(place[name], dtype=np.int64)[rows] for name in WHERE)
    items, item = np.unique(np.stack([department, number]), axis=1, return_inverse=True)
    world = seed.simulate(items[0], items[1])
    prices = PriceTreatment(seed.classes, encoding)
    answers = PlanAnswers(world, prices, item.ravel() * world.catalogue.n_stores + store, first)
    panel = dataset.panels[part].take(rows)
    step = np.arange(1, panel.n_steps)
    local, ahead = np.nonzero(step < panel.length[:, None])
    given = encoding.decode(panel.treatments[local, ahead])
    try:
        odd = answers(local, ahead, given)[:, 0] != panel.outcomes[local, ahead + 1, 0]
    except ValueError:  # weeks before an item's launch
        odd = np.ones(len(local), dtype=np.bool_)
    if odd.any():
        raise DataError(
            f"simulated again, {panel.names[int(local[odd][0])]} has other sales than the data set records",
            where=f"{part}, truth",
            fix="make the data set again: it comes from another version of costar or numpy",
        )
    return asked, answers, local_Q


class Answer(Protocol):
    """The simulator's units sold `[Q,H]`, had plans of price classes been followed."""

    def __call__(self, row_Q: Ints, origin_Q: Ints, plan_QH: Ints) -> NDArray[np.float64]:
        """Answer plans `[Q,H]` of price classes from origins of rows of a panel."""
        ...


def counterfactual_queries(
    panel: Panel, answer: Answer, config: RetailConfig, rng: np.random.Generator, *, usable: int
) -> dict[str, Queries]:
    """Return the query sets `one_step` and `sequence`, both from the same random origins.

    From each origin, `one_step` asks for some price classes of the next week other than the one that it had. `sequence`
    asks for plans whose first week is as it was, and not scored, and whose other weeks have a random class each, or one
    class throughout. The first m of n subjects get the same questions whatever n.

    A plan may name the price classes from 0 to `usable` - 1.
    """
    horizon, n = config.horizon, panel.n_subjects
    of_origins, of_classes, of_random, of_constant = rng.spawn(4)
    asked = _Origins.drawn(panel, config.origins, horizon, of_origins)
    factual = panel.treatments[asked.subject, asked.origin].argmax(axis=-1)
    n_classes = min(config.classes, usable - 1)
    other = _others(factual, asked.draw(of_classes, n, usable), n_classes)
    one_step = asked.repeated(n_classes).ask(other.reshape(-1, 1), answer, panel)
    random = np.floor(asked.draw(of_random, n, config.random_plans * horizon) * usable).astype(np.int64)
    random = random.reshape(len(factual), config.random_plans, horizon)
    n_constant = min(config.constant_plans, usable - 1)
    constant = _others(factual, asked.draw(of_constant, n, usable), n_constant)
    plans = np.concatenate([random, np.repeat(constant[..., None], horizon, axis=2)], axis=1)
    plans[:, :, 0] = factual[:, None]
    sequence = asked.repeated(plans.shape[1]).ask(plans.reshape(-1, horizon), answer, panel)
    return {"one_step": one_step, "sequence": sequence}


def queries_of_doses(
    panel: Panel, answers: PlanAnswers, config: RetailConfig, rng: np.random.Generator, *, usable: int
) -> dict[str, Queries]:
    """Return the questions of `counterfactual_queries` about doses: the changes that its classes stand for.

    So models of classes and of doses are asked the same, up to the six digits of a dose.
    """
    # Not random prices: errors would be another number than those of classes, for no reason of the methods.
    classes, encoding = answers.prices.classes, answers.prices.encoding
    by_class = replace(answers, prices=PriceTreatment(classes, class_encoding(classes.edges)))

    def coded(row_Q: Ints, origin_Q: Ints, plan_QH: Ints) -> NDArray[np.float32]:
        return encoding.encode(by_class.change(row_Q, origin_Q, plan_QH)[..., None])

    def answer(row_Q: Ints, origin_Q: Ints, plan_QH: Ints) -> NDArray[np.float64]:
        return answers(row_Q, origin_Q, encoding.decode(coded(row_Q, origin_Q, plan_QH))[..., 0])

    row, step = np.nonzero(np.arange(panel.n_steps) < panel.length[:, None] - 1)
    treatments = np.zeros((panel.n_subjects, panel.n_steps, len(classes)), dtype=np.float32)
    treatments[row, step, classes.classify(answers.asked(row, step, 1)[:, 0])] = 1.0
    asked = counterfactual_queries(replace(panel, treatments=treatments), answer, config, rng, usable=usable)
    where = {name: (of.subject.astype(np.int64), of.origin.astype(np.int64)) for name, of in asked.items()}
    return {
        name: replace(of, plan=as_plans(coded(*where[name], of.plan.argmax(axis=-1)))) for name, of in asked.items()
    }


@dataclass(frozen=True, slots=True)
class _Origins:
    """Where questions are asked: rows of a panel and origins; `slot` numbers the origins of a row."""

    subject: Ints
    origin: Ints
    slot: Ints
    slots: int

    @classmethod
    def drawn(cls, panel: Panel, most: int, horizon: int, rng: np.random.Generator) -> "_Origins":
        """Draw up to `most` different origins of each subject, all of them with `horizon` further observed weeks."""
        key = rng.random((panel.n_subjects, panel.n_steps))
        key[np.arange(panel.n_steps) >= panel.length[:, None] - horizon] = np.inf
        order = np.argsort(key, axis=1)[:, :most]
        usable = np.isfinite(np.take_along_axis(key, order, axis=1))
        origin = np.sort(np.where(usable, order, panel.n_steps), axis=1)
        subject, slot = np.nonzero(origin < panel.n_steps)
        return cls(subject, origin[subject, slot], slot, most)

    def draw(self, rng: np.random.Generator, n_subjects: int, width: int) -> NDArray[np.float64]:
        """Return uniforms `[Q,width]` that depend on subject and slot alone."""
        return rng.random((n_subjects, self.slots, width))[self.subject, self.slot]

    def repeated(self, times: int) -> "_Origins":
        """Return each origin as often as questions are asked there."""
        subject, origin, slot = (np.repeat(values, times) for values in (self.subject, self.origin, self.slot))
        return _Origins(subject, origin, slot, self.slots)

    def ask(self, plan_QH: Ints, answer: Answer, panel: Panel) -> Queries:
        """Return the answered queries."""
        plan = np.eye(panel.treatments.shape[-1], dtype=np.uint8)[plan_QH]
        outcomes = answer(self.subject, self.origin, plan_QH)[..., None]
        return Queries.answered(self.subject, self.origin, plan, outcomes)


def _others(factual_Q: Ints, key_QK: NDArray[np.float64], n: int) -> Ints:
    """Return n different classes `[Q,n]` in random order, none of them the factual one."""
    key_QK[np.arange(len(factual_Q)), factual_Q] = np.inf
    return np.argsort(key_QK, axis=1)[:, :n]
