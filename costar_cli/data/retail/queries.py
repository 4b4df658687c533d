"""What is asked of the simulated retail panel: price plans that were not followed (spec RETAIL-10)."""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.panel import Panel
from costar_cli.data.queries import Queries, as_plans
from costar_cli.data.retail.prices import PriceTreatment
from costar_cli.data.retail.sequences import class_encoding
from costar_cli.data.retail.settings import RetailConfig
from costar_cli.data.retail.truth import PlanAnswers

Ints = NDArray[np.int64]


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
