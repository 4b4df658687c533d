"""The fit of the mixed-effects growth model: laws are chosen, then their likelihood maximised (spec MIXED-4 to 8)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costar_cli.data import PanelSchema, Part
from costar_cli.data.findings import counted, shown
from costar_cli.data.panel import join_panels
from costar_cli.errors import DataError
from costar_cli.methods.base import FitTask, Fitted
from costar_cli.methods.mixed.apart import tell_apart
from costar_cli.methods.mixed.covariates import equations_params, fit_covariates
from costar_cli.methods.mixed.directions import alike, likeness, nearly_alike, silent
from costar_cli.methods.mixed.effects import Effects, effects_params
from costar_cli.methods.mixed.explain import explain
from costar_cli.methods.mixed.law import Design, Floats, GrowthTransition, Series, carried
from costar_cli.methods.mixed.likelihood import maximise, start_values
from costar_cli.methods.mixed.model import MixedModel
from costar_cli.methods.mixed.settings import MixedConfig
from costar_cli.methods.shared.doses import given_names
from costar_cli.methods.shared.outcome_forms import may_be_relative
from costar_cli.methods.shared.trained import model_to_start_from

Groups = Sequence[tuple[int, ...]]

CHOOSING_SUBJECTS: Final = 200  # on which laws are compared: four to eight fits, of which one counts
CHOOSING_ITERATIONS: Final = 80
TOGETHER: Final = (
    "{} were always given together before an observed step{}: half-life and effect are those of all of them, divided "
    "evenly, and what one does without the rest is widely uncertain"
)
DEPENDENT: Final = (
    "one of {} always followed from the others before an observed step{}: what they do apart is not identified, and "
    "widely uncertain"
)
HARDLY_APART: Final = (
    "{} were nearly always given together{}, apart in {}: what one does without the other rests on these"
)
TOO_FEW: Final = (  # of the columns of one dose, as the next
    "{} was given in too few amounts before an observed step{}: how its effect bends is not identified, and widely "
    "uncertain"
)
RARE: Final = "{0} was given in {2}{1}: how its effect bends rests on these"
FEW_APART: Final = 20  # subjects: with so many, bands of what one of two treatments does alone held
ALMOST_NONE: Final = 1e-3  # weight in a direction
LEFT_OUT: Final = {"reversion": 1.0, "logit": False, "habits": None}  # of a law's record
REVERSIONS: Final = 3  # fits after which the reversion in a gap is the one that is estimated


def fit_mixed(task: FitTask) -> Fitted:
    """Choose each outcome's law on source-train, then maximise its likelihood.

    Raises:
        DataError: an outcome has no transition that can be learned from.
        MismatchError: what to start from is of another method.
    """
    start = model_to_start_from(task, MixedModel, "mixed")
    encoding = task.schema.treatments
    source_panel = task.panels[Part("source", "train")]
    source = Series.of(source_panel, task.scaler, encoding)
    learnt = source
    if task.domain == "target":
        learnt = Series.of(join_panels([source_panel, task.panels[task.train]]), task.scaler, encoding)
    fit = _Fit(source, learnt, task.settings_of(MixedConfig), task.schema)
    begun: list[tuple[GrowthTransition, Effects | None]] = (
        list(zip(start.laws, start.effects, strict=True))
        if start
        else [fit.choose(o, source_panel.subject_id) for o in range(len(task.schema.outcomes))]
    )
    laws, found = zip(*(fit.integrated(law, first) for law, first in begun), strict=True)
    effects = [effect for effect, _ in found]
    params: dict[str, NDArray[Any]] = {}
    for law, effect in zip(laws, effects, strict=True):
        params |= effects_params(effect, law.outcome)
    params |= fit.covariates(laws, effects)
    meta: dict[str, Any] = {
        "laws": [{k: v for k, v in asdict(law).items() if v != LEFT_OUT.get(k)} for law in laws],
        "converged": [effect.converged for effect in effects],
        "iterations": [effect.iterations for effect in effects],
        "log_likelihood": [effect.log_likelihood for effect in effects],
        "learnt": explain(task.schema, laws, effects, learnt),
    }
    return Fitted(params, meta, tuple(dict.fromkeys(fit.doubts(laws, found))))


class _Likeliest(NamedTuple):
    """A law, what some subjects say under it, and the transitions `[N,T]` that counted."""

    law: GrowthTransition
    effects: Effects | None
    counted_NT: NDArray[np.float64]


class _Fit:
    """The subjects to learn from, and what is done with them; laws are chosen, and bounds taken, of the source's."""

    def __init__(self, source: Series, learnt: Series, config: MixedConfig, schema: PanelSchema) -> None:
        self.source, self.learnt, self.config, self.schema = source, learnt, config, schema
        plain = [
            GrowthTransition.of(source, o, relative=False, basis="raw", linked=False)
            for o in range(len(schema.outcomes))
        ]
        self.mean_Y, self.sd_Y = np.array([law.mean for law in plain]), np.array([law.sd for law in plain])

    def choose(self, outcome: int, subject_id: NDArray[np.int64]) -> tuple[GrowthTransition, Effects | None]:
        """Return the law under which the outcomes are most likely, less half a log(n) per parameter (spec MIXED-4).

        Beside it, what some subjects say under it: the whole fit starts there.
        """
        in_order = np.argsort(subject_id, kind="stable")
        some = in_order[np.unique(np.linspace(0, len(in_order) - 1, CHOOSING_SUBJECTS).round().astype(np.int64))]
        series = self.source.take(some)
        binary, relative = self.schema.outcomes[outcome].kind == "binary", self._may_be_relative(outcome)[0]
        laws = GrowthTransition.choices(self.source, outcome, relative=relative, binary=binary)
        chosen = self._likeliest(series, laws)
        n_links = self.source.x_NTX.shape[-1] + len(self.sd_Y) - 1
        if self.config.covariates != "none" and n_links:
            # Covariates that act are forecast: held at their last value, they would hide what earlier treatment does
            # through them.
            chosen = self._likeliest(series, (chosen.law, replace(chosen.law, linked=True)), chosen)
        with_habits = replace(chosen.law, habits=self.source.habits())
        of_habits = self._likeliest(series, (chosen.law, with_habits), chosen)
        return (chosen if of_habits.law == chosen.law else of_habits)[:2]

    def _may_be_relative(self, outcome: int) -> tuple[bool, float]:
        # Zeros from which an outcome returns rule out relative change: no share of zero is a change.
        return may_be_relative(self.source.y_NTY[..., outcome], self.source.seen_NTY[..., outcome])

    def _likeliest(
        self, series: Series, laws: Sequence[GrowthTransition], fitted: _Likeliest | None = None
    ) -> _Likeliest:
        """Return the likeliest law of the transitions that count under all of them, and what these say under it.

        What was fitted to the same transitions is not fitted again.
        """
        designs = [law.design(series, self.mean_Y, self.sd_Y) for law in laws]
        counted_NT = np.prod([design.counted_NT for design in designs], axis=0)
        if not counted_NT.any():
            return _Likeliest(laws[-1], None, counted_NT)
        best: tuple[float, GrowthTransition, Effects] | None = None
        for law, design in zip(laws, designs, strict=True):
            same = replace(
                design,
                counted_NT=counted_NT,
                response_NT=design.response_NT * counted_NT,
                log_scale_NT=design.log_scale_NT * counted_NT,
            )
            start, most = self._start(same), min(CHOOSING_ITERATIONS, self.config.iterations)
            n_parameters = len(start.mean) + start.n_random * (start.n_random + 1) / 2 + start.decay.size + 1
            penalty = 0.5 * np.log(counted_NT.sum()) * n_parameters
            found = None
            if fitted and fitted.law is law and np.array_equal(fitted.counted_NT, counted_NT):
                found = fitted.effects
            if found is None:
                found = maximise(same, start, iterations=most, rival=best[0] + penalty if best else -np.inf)
            score = found.log_likelihood - penalty
            if best is None or score > best[0]:
                best = score, law, found
        assert best is not None  # noqa: S101 - there is a law at least
        return _Likeliest(*best[1:], counted_NT)

    def integrated(self, law: GrowthTransition, start: Effects | None) -> tuple[GrowthTransition, tuple[Effects, int]]:
        """Return a law, and what subjects say of it; where steps are uneven, in gaps in which its level reverts."""
        design = self._design(law)
        found = maximise(design, start or self._start(design), iterations=self.config.iterations)
        found, tied = tell_apart(design, found, iterations=self.config.iterations)
        for _ in range(0 if self.learnt.gap_NT is None or law.logit else REVERSIONS):
            law = replace(law, reversion=law.reverting(found.means(self.learnt.v_NV).mean(axis=0)))
            design = self._design(law)
            found = maximise(design, found, iterations=self.config.iterations, tied=tied)
        return law, (found, int((design.counted_NT.sum(axis=1) > 1).sum()))

    def _design(self, law: GrowthTransition) -> Design:
        """Return the transitions of an outcome.

        Raises:
            DataError: there is no such transition.
        """
        design = law.design(self.learnt, self.mean_Y, self.sd_Y)
        if not design.n:
            name = self.schema.outcomes[law.outcome].name
            raise DataError(
                f"outcome '{name}' has no two observed steps in a row that a growth model can learn from",
                fix="give longer series, or choose another method",
            )
        return design

    def _start(self, design: Design) -> Effects:
        return start_values(design, carry_overs=self.config.carry_overs, hidden=self.config.hidden)

    def covariates(self, laws: Sequence[GrowthTransition], effects: Sequence[Effects]) -> dict[str, NDArray[Any]]:
        """Return the covariates' equations, where covariates act on an outcome."""
        if not any(law.linked for law in laws) or not self.learnt.x_NTX.shape[-1]:
            return {}
        exposures: list[Floats] = [carried(self.learnt.dose_NTL, found.decay, self.learnt.gap_NT) for found in effects]
        scaled_NTY = (self.learnt.y_NTY - self.mean_Y) / self.sd_Y
        return equations_params(
            fit_covariates(self.learnt, scaled_NTY, np.concatenate(exposures, axis=-1), self.source)
        )

    def doubts(self, laws: Sequence[GrowthTransition], found: Sequence[tuple[Effects, int]]) -> Iterator[str]:
        """Yield what may make the estimates wrong; `found` is what `maximise` returned for each law."""
        inside_NT1 = (np.arange(1, self.learnt.dose_NTL.shape[1]) < self.learnt.length_N[:, None])[..., None]
        given_L = np.asarray((self.learnt.dose_NTL[:, :-1] * inside_NT1).any(axis=(0, 1)))
        names = np.array(given_names(self.schema.treatments))
        given = set(names[given_L])
        if never := [name for name in dict.fromkeys(names.tolist()) if name not in given]:
            yield (
                f"no training subject was given {shown(never)} before an observed step: effects that are not "
                "identified are taken to be none on average, and widely uncertain"
            )
        yield from (TOO_FEW.format(shown([name]), "") for name in names[~given_L] if name in given)
        likenesses = [likeness(self._design(law)) for law in laws]
        together = [  # groups of factors that cannot be told apart
            [tuple(np.flatnonzero(first_L == i).tolist()) for i in np.flatnonzero(np.bincount(first_L) > 1)]
            for first_L in map(alike, likenesses)
        ]
        for group, of in self._whose(together):
            yield (TOGETHER if len(group) > 1 else TOO_FEW).format(shown(group), of)
        for group, of in self._whose(map(self._dependent, likenesses)):
            yield (DEPENDENT if len(group) > 1 else TOO_FEW).format(shown(group), of)
        rarely = [  # pairs that so few subjects were given apart that chance may decide between them
            [pair for pair in nearly_alike(of_law_LL) if self._apart_NT(pair).any(axis=1).sum() < FEW_APART]
            for of_law_LL in likenesses
        ]
        for group, of in self._whose(rarely):
            apart_NT = self._apart_NT(tuple(map(names.tolist().index, group)))
            rare = f"{counted(int(apart_NT.sum()), 'step')} of {counted(int(apart_NT.any(axis=1).sum()), 'subject')}"
            yield (HARDLY_APART if len(group) > 1 else RARE).format(shown(group), of, rare)
        for law, (effects, several) in zip(laws, found, strict=True):
            name = self.schema.outcomes[law.outcome].name
            _, returns = self._may_be_relative(law.outcome)
            if returns and not (law.relative or law.local or law.logit):
                yield (
                    f"outcome '{name}' is never negative and comes back from {100 * returns:.0f} % of its zeros: "
                    "shares of a level say nothing of zeros, so that amounts are modelled, with the same spread at "
                    "every level"
                )
            if not effects.converged:
                yield (
                    f"the likelihood of '{name}' did not converge in {effects.iterations} iterations: its estimates "
                    "are not final, so raise `mixed.iterations` or choose another method"
                )
            differing = 1 if law.logit else effects.n_random
            if several <= differing:
                yield (
                    f"only {counted(several, 'subject has', 'subjects have')} two or more steps of '{name}' to learn "
                    f"from, against {counted(differing, 'effect that differs', 'effects that differ')} between "
                    "subjects: their spread is a guess"
                )

    def _whose(self, found: Iterable[Groups]) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield each group of what is given that holds of an outcome, and of which outcomes where it is not of all.

        A group of columns of one dose is that dose.
        """
        names, of_group = given_names(self.schema.treatments), dict[tuple[int, ...], list[str]]()
        first_L = np.array([names.index(name) for name in names], dtype=np.int64)
        for outcome, groups in zip(self.schema.outcomes, found, strict=True):
            for group in {tuple(np.unique(first_L[list(factors)]).tolist()) for factors in groups}:
                of_group.setdefault(group, []).append(outcome.name)
        for group, outcomes in sorted(of_group.items()):
            of = f" of {shown(outcomes)}" if len(outcomes) < len(self.schema.outcomes) else ""
            yield tuple(names[place] for place in group), of

    @staticmethod
    def _dependent(likeness_LL: Floats) -> Groups:
        """Return the factors of which one follows from others, beyond those that were always given together."""
        given = np.unique(alike(likeness_LL))
        silent_LK = silent(likeness_LL[np.ix_(given, given)])
        group = tuple(given[np.abs(silent_LK).max(axis=1, initial=0) > ALMOST_NONE].tolist())
        return [group] if group else []

    def _apart_NT(self, group: tuple[int, ...]) -> NDArray[np.bool_]:
        """Return the steps before another at which one of two factors was given without the other, or one at all."""
        one, *others = group
        inside_NT = np.arange(1, self.learnt.dose_NTL.shape[1]) < self.learnt.length_N[:, None]
        dose_NTL = self.learnt.dose_NTL[:, :-1]
        return np.asarray((dose_NTL[..., one] != (dose_NTL[..., others[0]] if others else 0)) & inside_NT)
