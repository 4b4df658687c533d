"""What a fitted model of any method offers: its facts, its answers, and how uncertain they are.

Letters of axes are those of `costar_cli/methods/base.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import Panel, PanelSchema, Queries, Scaler
from costar_cli.data.record import ModelRecord
from costar_cli.methods.entry import Adjusts
from costar_cli.methods.registry import METHODS
from costar_cli.reporting import Reporter

if TYPE_CHECKING:
    import torch

LEAST_MEMBERS: Final = 3  # of an ensemble; two say next to nothing of how far apart they may be

Floats = NDArray[np.float64]
Parameters = Mapping[str, Any]  # arrays of closed forms, tensors of networks, behind the member axis
Device: TypeAlias = "torch.device | str"
Decide = Callable[[int, NDArray[np.float64]], NDArray[np.floating]]
"""From the index of a step in the plan and the outcomes there `[M,Y]` to the encoded treatments `[M,A]`."""

PredictFn = Callable[["FittedModel", Queries], NDArray[np.float32]]
"""Predicts as the `rollout` of a model, or of a part of it, does, from what it keeps of a panel."""


@dataclass(frozen=True, slots=True)
class PredictiveDistribution:
    """Predicted outcomes with their standard deviation, `[R,Q,H,Y]` each, in the units of the data.

    `sd_parameter` is what is not known of the subjects' own parameters, `sd_noise` what chance adds after the origin;
    the two are independent, so that their squares add up.
    """

    mean: NDArray[np.float32]
    sd_parameter: NDArray[np.float32]
    sd_noise: NDArray[np.float32]

    @property
    def sd(self) -> NDArray[np.float32]:
        """Return the standard deviation of an outcome."""
        return np.hypot(self.sd_parameter, self.sd_noise)


@dataclass(frozen=True, eq=False, slots=True)
class Forecast:
    """What the members of a model predict, the variance around their mean, and what of it is not noise.

    `black_HY` is the weight of black boxes in it, 0 to 1, whose variances lack the floor (spec BAND-1).
    """

    members_RQHY: NDArray[np.floating]
    variance_QHY: Floats
    parameter_QHY: Floats
    black_HY: Floats

    @property
    def mean_QHY(self) -> Floats:
        """Return the mean over members."""
        mean_QHY: Floats = self.members_RQHY.mean(axis=0, dtype=np.float64)
        return mean_QHY

    @classmethod
    def of_members(cls, members_RQHY: NDArray[np.floating]) -> Self:
        """Return what members say that know of no noise."""
        variance_QHY = between_members(members_RQHY)
        return cls(members_RQHY, variance_QHY, variance_QHY, np.ones(members_RQHY.shape[2:]))

    @classmethod
    def of_distribution(cls, known: PredictiveDistribution) -> Self:
        """Return what members say whose predictive distribution is known."""
        own_QHY, noise_QHY = (
            np.mean(sd.astype(np.float64) ** 2, axis=0) for sd in (known.sd_parameter, known.sd_noise)
        )
        parameter_QHY = own_QHY + between_members(known.mean)
        return cls(known.mean, parameter_QHY + noise_QHY, parameter_QHY, np.zeros(known.mean.shape[2:]))


def between_members(members_RQHY: NDArray[np.floating]) -> Floats:
    """Return the variance between members; none of a single one."""
    if len(members_RQHY) == 1:
        return np.zeros(members_RQHY.shape[1:])
    return np.asarray(members_RQHY.var(axis=0, ddof=1, dtype=np.float64))


class FittedModel(ABC):
    """A trained method, as evaluation and questions see it: its facts, its answers, and what else it can do.

    A model has the attributes below, `members` and `rollout`; `TrainedModel` has all but `rollout`. The rest has
    defaults, those of an ensemble of black boxes: each member predicts, and nothing else is known. A model overrides
    what it can do better, and says so where there is a property for it.

    Attributes:
        method: the name under which the registry knows the method.
        horizon: the longest plan that the model answers.
        schema: the columns that the model was trained on.
        scaler: the standardisation that it was trained with.
        params: its parameters by name, which lead with the member axis: arrays, or tensors of networks.
        record: the facts that its artifact records; none if it was fitted to nothing.
        attached: arrays of its artifact, by name, that say what to think of its answers; methods do not read them.
        parents: the digests of what it was made from, by role.
        digest: of its artifact; empty if it has none.
        parts: the models that it combines, by method; of most models none.
    """

    method: str
    horizon: int
    schema: PanelSchema
    scaler: Scaler
    params: Parameters
    record: ModelRecord
    attached: Mapping[str, NDArray[np.generic]]
    parents: Mapping[str, str]
    digest: str
    parts: "Mapping[str, FittedModel]" = MappingProxyType({})

    @property
    @abstractmethod
    def members(self) -> int:
        """Return R, the number of ensemble members."""

    @abstractmethod
    def rollout(
        self, panel: Panel, queries: Queries, *, batch_size: int = 16_384, reporter: Reporter | None = None
    ) -> NDArray[np.float32]:
        """Predict the outcomes of every query.

        The panel is encoded once; `batch_size` queries at a time are answered from the encoded states.

        Returns:
            Outcomes `[R,Q,H,Y]` in the units of the data; H is `queries.horizon`, at most `horizon`.
        """

    @property
    def trained_on(self) -> Mapping[str, int]:
        """Return the number of labelled subjects per part that were at hand in training; empty if that is unknown."""
        return self.record.trained_on or {}

    def encode(self, panel: Panel) -> Any:  # noqa: ANN401 - opaque to all but the model
        """Return what the model knows of every subject's history at every step: by default the panel itself.

        Scoring keeps it to answer several query sets, as most of the work lies here: `rollout(panel, queries)` is
        `answer(encode(panel), queries)`. States are the model's own business (representations, recurrent states at
        every step, keys and values of prefixes); they are kept for some thousand subjects at a time.
        """
        return panel

    def answer(
        self,
        states: Any,  # noqa: ANN401
        queries: Queries,
        *,
        batch_size: int = 16_384,
        reporter: Reporter | None = None,
    ) -> NDArray[np.float32]:
        """Predict as `rollout` does; `queries.subject` counts the rows of the encoded panel."""
        return self.rollout(states, queries, batch_size=batch_size, reporter=reporter)

    def represent(self, panel: Panel) -> NDArray[np.float32] | None:
        """Return the representation of every subject's history at every step `[R,N,T,D]`; None where there is none."""
        del panel
        return None

    @property
    def stepwise(self) -> bool:
        """Return whether each step is predicted from the model's own step before, so that rules can act on its course.

        Its steps then are one course, not answers to questions of different lengths.
        """
        return False

    @property
    def adjusts(self) -> Adjusts:
        """Return which reactions of treatment inside a plan the model adjusts for: by default what its method does."""
        entry = METHODS.get(self.method)
        return entry.adjusts if entry else "none"

    @property
    def has_distribution(self) -> bool:
        """Return whether `forecast` knows what chance adds to outcomes after the origin."""
        return False

    def predict_distribution(
        self, panel: Panel, queries: Queries, summed_Y: NDArray[np.bool_] | None = None
    ) -> PredictiveDistribution | None:
        """Predict as `rollout` does, with the standard deviation of each outcome; None from models without such.

        Of some outcomes `summed_Y [Y]` it predicts the sums since the origin.
        """
        del panel, queries, summed_Y
        return None

    def forecast(self, panel: Panel, queries: Queries, ask: PredictFn) -> Forecast:
        """Return what members predict, and the variances; `ask` predicts for a black box."""
        known = self.predict_distribution(panel, queries)
        return Forecast.of_distribution(known) if known else Forecast.of_members(ask(self, queries))

    def bounds(self, panel: Panel, queries: Queries) -> tuple[Floats, Floats] | None:
        """Return the smallest and the largest outcomes `[Q,Y]` of predicted and drawn courses, in data units.

        None where there are none.
        """
        del panel, queries
        return None

    @property
    def is_joint(self) -> bool:
        """Return whether the model has a joint predictive distribution, by which differences of plans have a level."""
        return self.has_distribution

    @property
    def tells_differences(self) -> bool:
        """Return whether draws say how far differences between plans may be off."""
        return self.is_joint or self.members >= LEAST_MEMBERS

    @property
    def draws_are_members(self) -> bool:
        """Return whether draws are members alone, which learned from the same data."""
        return self.tells_differences and not self.is_joint

    @property
    def draws_training(self) -> bool:
        """Return whether draws hold what training leaves open."""
        return False

    def draw_outcomes(
        self,
        panel: Panel,
        queries: Queries,
        n: int,
        seed: int,
        *,
        ask: PredictFn | None = None,
        floor: float = 0.0,
        among: NDArray[np.integer] | None = None,
    ) -> Floats:
        """Draw outcomes `[S,Q,H,Y]`, S = n, in the units of the data, jointly over the queries of a subject.

        In each draw a subject has the same parameters, and the same chance after the origin, under all plans. Queries
        `among` those of further subjects have the chance that they have with all of them. A draw of a black box is a
        member's, as `ask` predicts it, with a chance of `floor` of the level (spec BAND-6).
        """
        rng, subjects = np.random.default_rng(seed), np.unique(queries.subject if among is None else among)
        row_Q = np.searchsorted(subjects, queries.subject)
        chance_SQ11, own_SQ11 = (rng.normal(size=(n, len(subjects)))[:, row_Q, None, None] for _ in range(2))
        known = self.predict_distribution(panel, queries)
        mean_RQHY = known.mean if known else ask(self, queries) if ask else self.rollout(panel, queries)
        # equal shares of members have the sd of BAND-1 once they are moved so far from their mean
        count, mean_QHY = len(mean_RQHY), mean_RQHY.mean(axis=0, dtype=np.float64)
        spread_RQHY = mean_QHY + np.sqrt(count / max(count - 1, 1)) * (mean_RQHY - mean_QHY)
        each_S = np.arange(n) % count
        if known is None:
            return np.asarray(spread_RQHY[each_S] * (1 + floor * chance_SQ11))
        of_S, noise_S = known.sd_parameter[each_S], known.sd_noise[each_S]
        return np.asarray(spread_RQHY[each_S] + own_SQ11 * of_S + chance_SQ11 * noise_S)

    @property
    def draws_courses(self) -> bool:
        """Return whether the model draws courses whose treatments are decided on the way."""
        return False

    @property
    def draws_covariates(self) -> bool:
        """Return whether such courses have covariates, too: what `decide` reads then has them behind the outcomes."""
        return False

    def draw_courses(
        self,
        panel: Panel,
        subject_Q: NDArray[np.integer],
        origin_Q: NDArray[np.integer],
        decide: Decide,
        *,
        steps: int,
        n: int,
        seed: int,
    ) -> Floats:
        """Return outcomes `[S,Q,H,Y]`, S = n, H = steps, of subjects from their origins, where `draws_courses`.

        Chance is that of `draw_outcomes`: under the treatments of a fixed plan the draws are the same. `decide` is
        asked at each step, with M = S Q courses, draw after draw; first about the outcomes at the origins.
        """
        raise NotImplementedError(f"a model of {self.method} draws no courses")

    @property
    def varies(self) -> bool:
        """Return whether the spread of predictions differs between subjects: not that of a single member."""
        return self.has_distribution or self.members > 1

    @property
    def is_ensemble(self) -> bool:
        """Return whether the model, or a part with weight, is a network, of however many members."""
        return not self.is_joint and not (self.method in METHODS and METHODS[self.method].closed_form)

    @property
    def shares(self) -> Mapping[str, float]:
        """Return the mean weight of each of its parts that has any; of models without parts nothing."""
        return {}


def adjusted(model: FittedModel) -> Adjusts:
    """Return which reactions of treatment inside a plan a model adjusts for: what it says, as far as its data allow.

    Without covariates there are only outcomes that treatment could react to.
    """
    entry = METHODS.get(model.method)
    found: Adjusts = model.adjusts
    found = "all" if found == "outcomes" and not model.schema.covariates else found
    return entry.adjusts_for(found, binary=model.schema.has_binary) if entry else found
