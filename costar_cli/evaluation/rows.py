"""Rows of an evaluation: RMSE per step, of models, the naive anchor, the best possible and the published ones."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, Self

from costar_cli.config.choices import SetupName
from costar_cli.evaluation.bootstrap import Interval
from costar_cli.evaluation.calibrated import BandDetails, Calibrated, LevelScores, LightScores
from costar_cli.evaluation.effects import EffectScores
from costar_cli.evaluation.metrics import (
    AVERAGED_STEPS,
    PeriodScores,
    PerStep,
    SquaredErrors,
    Truth,
    average_over_steps,
)
from costar_cli.evaluation.published import PublishedRow
from costar_cli.evaluation.sums import REPORTED
from costar_cli.methods.registry import LAST_VALUE, METHODS

BUDGET_SIGN = "†"
ABOUT_BUDGET = "training limit reached: training ended at the limit on epochs or updates, not by early stopping"

ABOUT_LIMIT: Final = "which is a lower bound on average over subjects, not a method"
ABOUT_RATIO: Final = f"ratio: average error divided by that of the row `{{label}}`, {ABOUT_LIMIT}"

# The last one is in old files: no row is published beside other data than the paper's.
Basis = Literal["ours", "naive", "limit", "published, different protocol", "published, different data"]


Record = dict[str, str | int | float | bool | None]


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of every error in a report: `factor` times the RMSE in `space`, divided per outcome by `denominator`."""

    label: str
    factor: float
    space: Literal["original", "standardized"]
    denominator: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a scored row's model comes from, and which labels it has seen.

    `labelled_target_subjects` counts those the model was selected on too. `same_data` is None where no digest is
    known, and False where the model was trained on another data set than the one it is scored on.
    `stopped_by_budget` says whether a stage ended because epochs or updates ran out, None where that is not known or
    nothing is trained step by step. `unlabelled_target_subjects` counts those whose histories its encoder learned from.
    """

    method: str
    init: str
    domain: str
    trained_on: dict[str, int]
    labelled_target_subjects: int
    model_digest: str
    dataset_digest: str
    same_data: bool | None
    stopped_by_budget: bool | None = None
    unlabelled_target_subjects: int = 0


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One line of the table.

    `mean` and `sd` (ddof = 1; None with one member) are over members, `ensemble` is the RMSE of the members' mean
    prediction, `lower` and `upper` bound `mean`, `no_interval` says in words why nothing does, and `caution` how far to
    trust them where subjects or clusters are few. `members` holds the RMSE of each member, `outcomes` the mean RMSE of
    each single outcome where there are several. `query_sets` and `scored` say, per step, what was scored.
    `calibration` tells how a calibrated model's bands did by level (`"0.9"`), `bands` the same in detail, and `factual`
    both on factual windows of the same subjects where the row's own questions are counterfactual. `lights` are errors
    by light, by kind of question, of a model without bands. `periods` are errors by calendar period of the origin,
    where the data have dates. `unweighted` is `mean` without weights, where errors are weighed for dropout. `se` is the
    standard error of `mean` over test subjects or clusters, of the row of what knows the simulator (spec LIMIT-8).
    `effects` says how well differences between plans are predicted, where origins have several.
    """

    setup: SetupName
    label: str
    basis: Basis
    mean: PerStep
    sd: PerStep | None = None
    ensemble: PerStep | None = None
    lower: PerStep | None = None
    upper: PerStep | None = None
    members: tuple[PerStep, ...] = ()
    outcomes: dict[str, PerStep] = field(default_factory=dict)
    truth: Truth | None = None
    test: str | None = None
    subjects: int | None = None
    query_sets: tuple[str | None, ...] = ()
    scored: tuple[int, ...] = ()
    provenance: Provenance | None = None
    no_interval: str | None = None
    caution: str | None = None
    calibration: dict[str, LevelScores] = field(default_factory=dict)
    bands: BandDetails | None = None
    factual: Calibrated | None = None
    lights: dict[Truth, dict[str, LightScores]] = field(default_factory=dict)
    periods: tuple[PeriodScores, ...] = ()
    unweighted: PerStep | None = None
    se: PerStep | None = None
    effects: EffectScores | None = None

    @property
    def stopped_by_budget(self) -> bool | None:
        """Return whether the model's training was stopped by its budget; None for a closed form and where unknown."""
        method = METHODS.get(self.provenance.method) if self.provenance else None
        if self.provenance is None or (method and method.closed_form):
            return None
        return self.provenance.stopped_by_budget

    @property
    def marked_label(self) -> str:
        """Return the label, with a sign where training was stopped by its budget."""
        return with_budget_sign(self.label, self.stopped_by_budget)

    @property
    def band_tests(self) -> list[tuple[Truth, Calibrated]]:
        """Return what the row's bands did, by kind of question: its own, and factual windows."""
        found: list[tuple[Truth, Calibrated]] = []
        if self.truth is not None and self.bands is not None:
            found.append((self.truth, Calibrated(self.calibration, self.bands)))
        return found if self.factual is None else [*found, ("factual", self.factual)]

    @property
    def light_tests(self) -> list[tuple[Truth, dict[str, LightScores]]]:
        """Return errors by light, by kind of question."""
        return [(kind, found.details.lights) for kind, found in self.band_tests] or list(self.lights.items())

    @property
    def published(self) -> bool:
        """Return whether the row was printed in the paper."""
        return self.basis.startswith("published")

    @property
    def is_last_value(self) -> bool:
        """Return whether the row carries the last value forward: the anchor, or a model of that method."""
        return self.basis == "naive" or (self.provenance is not None and self.provenance.method == LAST_VALUE)

    def tidy_records(self, horizon: int, *, unit: str, ratio: PerStep | None) -> Iterator[Record]:
        """Yield what the row says of each step, then of their average; `ratio` is that of its errors to the limit's."""
        statistics = {name: getattr(self, name) for name in ("mean", "sd", "ensemble", "lower", "upper", "se")}
        statistics["ratio_to_limit"] = ratio
        for h in (*range(horizon), None):
            values = {name: of.at(h) if of else None for name, of in statistics.items()}
            yield {
                "setup": self.setup,
                "model": self.label,
                "basis": self.basis,
                "truth": self.truth,
                "test": self.test,
                "step": None if h is None else h + 1,
                **{name: value for name, value in values.items() if name != "ratio_to_limit"},
                "members": len(self.members) or None,
                "unit": unit,
                "ratio_to_limit": values["ratio_to_limit"],
            }

    def flat_record(self, horizon: int, *, ratio: PerStep | None) -> Record:
        """Return what the row says of all steps and of their average, the same keys for every row."""
        flat: Record = {
            "setup": self.setup,
            "label": self.label,
            "basis": self.basis,
            "truth": self.truth,
            "test": self.test,
            "members": len(self.members) or None,
            "labelled_target_subjects": self.provenance.labelled_target_subjects if self.provenance else None,
        }
        statistics = {name: getattr(self, name) for name in ("mean", "sd", "lower", "upper", "ensemble")}
        for h in (*range(horizon), None):
            step = "avg" if h is None else f"tau{h + 1}"
            flat |= {f"{step}_{name}": of.at(h) if of else None for name, of in statistics.items()}
        flat |= {
            "no_interval": self.no_interval,
            "caution": self.caution,
            "stopped_by_budget": self.stopped_by_budget,
            "ratio_to_limit": ratio.average if ratio else None,
            "avg_se": self.se.average if self.se else None,
        }
        factual = (self.factual.calibration, self.factual.details) if self.factual else ({}, None)
        for prefix, (levels, details) in {"": (self.calibration, self.bands), "factual_": factual}.items():
            for level in map(str, REPORTED):
                for name in ("coverage", "width", "interval_score"):
                    flat[f"{prefix}{name}_{level}"] = getattr(levels[level], name).average if level in levels else None
            flat[f"{prefix}crps"] = details.crps.average if details else None
        return flat

    @classmethod
    def scored_row(
        cls,
        errors: SquaredErrors,
        interval: Interval | None,
        *,
        factor: float,
        outcome_names: Sequence[str],
        **fields: Any,  # noqa: ANN401  # the descriptive fields of the row
    ) -> Self:
        """Return the row of a model's squared errors, in the report's unit."""
        rmse_RH = factor * errors.rmse()
        average_R = average_over_steps(rmse_RH)
        ensemble_H = factor * errors.ensemble_rmse()
        outcome_HY = factor * errors.outcome_rmse().mean(axis=0)
        several = len(average_R) > 1
        return cls(
            mean=PerStep.of(rmse_RH.mean(axis=0), float(average_R.mean())),
            sd=PerStep.of(rmse_RH.std(axis=0, ddof=1), float(average_R.std(ddof=1))) if several else None,
            ensemble=PerStep.of(ensemble_H, float(average_over_steps(ensemble_H))),
            lower=PerStep.of(factor * interval.lower, factor * interval.average[0]) if interval else None,
            upper=PerStep.of(factor * interval.upper, factor * interval.average[1]) if interval else None,
            members=tuple(PerStep.of(*pair) for pair in zip(rmse_RH, average_R, strict=True)),
            outcomes={
                name: PerStep.of(column, float(average_over_steps(column)))
                for name, column in zip(outcome_names, outcome_HY.T, strict=True)
                if len(outcome_names) > 1
            },
            subjects=int(errors.count.any(axis=1).sum()),
            scored=tuple(int(n) for n in errors.count.sum(axis=0)),
            **fields,
        )

    @classmethod
    def published_row(cls, published: PublishedRow, setup: SetupName, horizon: int) -> Self:
        """Return a printed row, averaged over the steps that our rows average, whatever the paper averaged."""
        average = published.average_over(1, min(horizon, AVERAGED_STEPS))
        same_average = average is not None and published.average is not None and abs(average - published.average) < 1e-3
        return cls(
            setup=setup,
            label=published.row,
            basis="published, different protocol",
            mean=PerStep(published.mean[:horizon], average),
            sd=PerStep(published.sd[:horizon], published.average_sd if same_average else None),
        )


def with_budget_sign(label: str, stopped_by_budget: bool | None) -> str:  # noqa: FBT001 - what a row says of itself
    """Return a label, with a sign where training was stopped by its budget."""
    return f"{label} {BUDGET_SIGN}" if stopped_by_budget else label


def errors_in_words(se: Mapping[str, PerStep | None]) -> str:
    """Return the standard errors of the simulator's own rows, to stand behind what they are; nothing where unknown."""
    known = [f"{one.average:.3g} ({what})" for what, one in se.items() if one is not None and one.average]
    return f" (standard error over test subjects: {', '.join(known)})" if known else ""


def document_of(value: Any) -> Any:  # noqa: ANN401 - a dataclass in, JSON out
    """Return a dataclass as a JSON document."""
    return json_values(asdict(value))


def json_values(value: Any) -> Any:  # noqa: ANN401  # JSON in, JSON out
    """Return tuples as lists, and numbers that are not finite as null, all the way down."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): json_values(item) for key, item in value.items()}
    return [json_values(item) for item in value] if isinstance(value, list | tuple) else value
