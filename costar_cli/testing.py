"""Checks that a method or a data source keeps costar's invariants (docs/concepts.md): for those who add one.

    from costar_cli.testing import check_data_source, check_method

    def test_my_method_keeps_the_invariants() -> None:
        check_method(MY_METHOD)

`check_method` fits the method to small panels without any structure and runs `PREDICTION_CHECKS` on its answers and
`TRAINING_CHECKS` on its fits. A check is a function that raises AssertionError; costar's own suite runs the same ones
on all of its methods, on more data.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.config.models import Config, EncoderConfig, FinetuneConfig, RuntimeConfig
from costar_cli.data import Dataset, Panel, PanelSchema, Part, Queries, TreatmentEncoding, Variable
from costar_cli.data.base import DataSource, called
from costar_cli.data.check import check_dataset
from costar_cli.errors import UsageError
from costar_cli.files import Artifact
from costar_cli.methods import Method
from costar_cli.methods.base import FittedModel
from costar_cli.reporting import NullReporter
from costar_cli.training import RunIdentity, Trained, finetune

RTOL: Final = 1e-4  # float32 answers of other batches
# Adam makes full steps of gradients that are pure rounding error; in float64 such steps vanish.
EXACT: Final = RuntimeConfig(device="cpu", precision="float64")
SMALL: Final[Mapping[str, Any]] = {
    "epochs": 2, "patience": 2, "batch_size": 8, "hidden": 16, "seed": 5, "members": 2,
    "encoder": EncoderConfig(width=8, heads=2, clip_distance=4),
}  # fmt: skip
SIZES: Final = (24, 30, 10, 20, 10, 10)  # subjects of each part


def random_panel(schema: PanelSchema, n: int, steps: int, seed: int = 0, first_id: int = 0) -> Panel:
    """Return n series of random lengths, 2 to `steps`, without any structure; one-hot or binary treatments."""
    rng = np.random.default_rng(seed)
    dx, da, dy, dv = schema.dims
    length = rng.integers(2, steps + 1, size=n)
    inside = (np.arange(steps) < length[:, None])[..., None]
    one_hot = schema.treatments.mode == "multiclass"
    treatments = (
        np.eye(da)[rng.integers(da, size=(n, steps))] if one_hot else 1.0 * rng.integers(2, size=(n, steps, da))
    )
    return Panel(
        covariates=(rng.normal(size=(n, steps, dx)) * inside).astype(np.float32),
        treatments=(treatments * inside).astype(np.float32),
        outcomes=(rng.normal(5, 2, size=(n, steps, dy)) * inside).astype(np.float32),
        statics=rng.normal(size=(n, dv)).astype(np.float32),
        length=length.astype(np.int64),
        subject_id=np.arange(first_id, first_id + n, dtype=np.int64),
    )


def random_dataset(dims: tuple[int, int, int, int], *, one_hot: bool, horizon: int = 4, n: int = 150) -> Dataset:
    """Return a data set of random panels.

    Args:
        dims: numbers of covariates, treatments (or classes of one), outcomes and statics.
        one_hot: one treatment with classes, in place of several binary ones.
        horizon: steps that models predict.
        n: subjects of source-train.
    """
    dx, da, dy, dv = dims
    names = tuple(f"drug_{i}" for i in range(da))
    treatments = TreatmentEncoding(mode="multilabel", names=names, levels=(("off", "on"),) * da)
    if one_hot:
        levels = tuple(f"level {i}" for i in range(da))
        classes = tuple((i,) for i in range(da))
        treatments = TreatmentEncoding(mode="multiclass", names=("price",), levels=(levels,), classes=classes)
    schema = PanelSchema(
        covariates=tuple(Variable(name=f"x{i}") for i in range(dx)),
        outcomes=tuple(Variable(name=f"y{i}") for i in range(dy)),
        statics=tuple(Variable(name=f"v{i}") for i in range(dv)),
        treatments=treatments,
    )
    sizes = dict(zip(Part.all(), (n, *SIZES[1:]), strict=True))
    panels = {
        part: random_panel(schema, size, 9, seed=i, first_id=1000 * i) for i, (part, size) in enumerate(sizes.items())
    }
    return Dataset("random", schema, horizon, panels)


def with_holes(dataset: Dataset) -> Dataset:
    """Return the data set with a fifth of its outcomes not observed."""
    rng = np.random.default_rng(4)
    panels = {
        part: replace(panel, outcome_observed=panel.observed_outcomes & (rng.random(panel.outcomes.shape) < 0.8))
        for part, panel in dataset.panels.items()
    }
    return replace(dataset, panels=panels)


@dataclass(frozen=True)
class MethodCase:
    """A fitted model and the panel that it is asked about; `name` is the method's, or a variant's."""

    name: str
    model: FittedModel
    panel: Panel
    one_hot: bool

    def treatments(self, rng: np.random.Generator, *shape: int) -> NDArray[np.uint8]:
        """Draw encoded treatments `[*shape,A]`."""
        width = self.panel.treatments.shape[-1]
        if self.one_hot:
            return np.eye(width, dtype=np.uint8)[rng.integers(width, size=shape)]
        return rng.integers(2, size=(*shape, width)).astype(np.uint8)

    def other(self, plan: NDArray[np.uint8] | NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return treatments that differ from these everywhere."""
        return (np.roll(plan, 1, axis=-1) if self.one_hot else 1 - plan).astype(np.uint8)

    def ask(self, n: int = 24, seed: int = 0) -> Queries:
        """Draw queries of random subjects, origins and plans."""
        rng = np.random.default_rng(seed)
        subject = rng.integers(self.panel.n_subjects, size=n).astype(np.int32)
        origin = (rng.random(n) * self.panel.length[subject]).astype(np.int16)
        return Queries(subject, origin, self.treatments(rng, n, self.model.horizon))

    def answer(self, queries: Queries, panel: Panel | None = None) -> NDArray[np.float32]:
        """Return outcomes `[R,Q,H,Y]`."""
        return self.model.rollout(panel or self.panel, queries)

    @cached_property
    def expected(self) -> NDArray[np.float32]:
        """Outcomes `[R,Q,H,Y]` of the queries that `ask()` draws."""
        return self.answer(self.ask())

    def with_another_treatment(self) -> Iterator[tuple[int, NDArray[np.float32], NDArray[np.float32]]]:
        """Yield each step of plans, their answers `[R,Q,H,Y]`, and those with another treatment at that step."""
        for step, changed in enumerate(self._changed):
            yield step, self.expected, changed

    @cached_property
    def _changed(self) -> Sequence[NDArray[np.float32]]:
        """Answers `[R,Q,H,Y]` with another treatment at each step of the plans, to which all are asked at once."""
        queries, horizon = self.ask(), self.model.horizon
        plan_HQHA = np.stack([queries.plan] * horizon)
        for step, plan in enumerate(plan_HQHA):
            plan[:, step] = self.other(plan[:, step])
        asked = queries.take(np.tile(np.arange(len(queries)), horizon))
        return np.split(self.answer(replace(asked, plan=np.concatenate(plan_HQHA))), horizon, axis=1)


def nothing_after_the_origin_changes_a_prediction(case: MethodCase) -> None:
    """Other series, treatments, masks and lengths after a query's origin leave its answer alone."""
    queries, rng, panel = case.ask(), np.random.default_rng(1), case.panel
    subjects, rows = np.unique(queries.subject, return_index=True)  # one query of each, as a panel has one future each
    asked, origin_N1 = queries.take(rows), np.full((panel.n_subjects, 1), panel.n_steps)
    origin_N1[subjects, 0] = asked.origin
    after_NT = np.arange(panel.n_steps) > origin_N1
    outcomes, covariates, treatments = panel.outcomes.copy(), panel.covariates.copy(), panel.treatments.copy()
    for series in (outcomes, covariates):
        series[after_NT] = rng.normal(size=series[after_NT].shape) * 100
    from_NT = np.arange(panel.n_steps) >= origin_N1
    treatments[from_NT] = case.treatments(rng, int(from_NT.sum()))
    changed = replace(
        panel, outcomes=outcomes, covariates=covariates, treatments=treatments,
        outcome_observed=panel.observed_outcomes ^ after_NT[..., None],
    )  # fmt: skip
    length = panel.length.copy()
    length[subjects] = asked.origin + 1
    for other in (changed, replace(changed, length=length)):
        _close(case.answer(asked, other), case.expected[:, rows])


def the_history_changes_predictions(case: MethodCase) -> None:
    """Other outcomes up to the origin give other answers, to every query."""
    queries = case.ask()
    changed = replace(case.panel, outcomes=case.panel.outcomes + case.panel.outcomes.std())
    difference = np.abs(case.expected - case.answer(queries, changed))
    _require(difference.max(axis=(0, 2, 3)).min() > 1e-6, "some answers do not depend on the history")


def a_treatment_changes_no_step_before_it_acts(case: MethodCase) -> None:
    """The treatment at step j of a plan leaves the predictions up to step j alone."""
    for step, expected, changed in case.with_another_treatment():
        _close(changed[:, :, :step], expected[:, :, :step], rtol=1e-5)


def padding_changes_no_prediction(case: MethodCase) -> None:
    """Steps after the end of all series leave answers alone."""
    _close(case.answer(case.ask(), padded(case.panel)), case.expected)


def what_was_observed_and_what_was_filled_are_the_same_history(case: MethodCase) -> None:
    """The mask of observed outcomes is for training; a history holds what was filled in, too."""
    everything = replace(case.panel, outcome_observed=None)
    _require(np.array_equal(case.answer(case.ask(), everything), case.expected), "the mask changes answers")


def a_panel_encoded_once_answers_any_queries_as_a_rollout_does(case: MethodCase) -> None:
    """`answer(encode(panel), queries)` is `rollout(panel, queries)`."""
    model, queries = case.model, case.ask()
    states = model.encode(case.panel)
    first = model.answer(states, queries)
    _close(first, case.expected)
    _close(model.answer(states, case.ask(seed=1), batch_size=5), case.answer(case.ask(seed=1)))
    _require(np.array_equal(model.answer(states, queries), first), "answers change the encoded panel")
    subjects, local = np.unique(queries.subject, return_inverse=True)
    some = model.encode(case.panel.take(subjects[::-1].astype(np.int64)))
    _close(model.answer(some, replace(queries, subject=(len(subjects) - 1 - local).astype(np.int32))), first)


def answers_do_not_depend_on_company_or_batch_size(case: MethodCase) -> None:
    """A query has the same answer alone, among others, and in any batch."""
    queries, expected = case.ask(), case.expected
    _close(case.model.rollout(case.panel, queries, batch_size=7), expected)
    alone = np.concatenate([case.answer(queries.take(slice(i, i + 1))) for i in range(5)], axis=1)
    _close(alone, expected[:, :5])


def short_plans_give_the_first_steps_and_long_ones_are_refused(case: MethodCase) -> None:
    """A plan's first steps have the same answers as a plan of their own; one beyond the horizon is a UsageError."""
    queries = case.ask()
    _close(case.answer(replace(queries, plan=queries.plan[:, :2])), case.expected[:, :, :2])
    try:
        case.answer(replace(queries, plan=np.concatenate([queries.plan, queries.plan], axis=1)))
    except UsageError as error:
        _require("horizon" in str(error), f"the error does not name the horizon: {error}")
    else:
        _require(met=False, text="a plan beyond the horizon is answered")


def predictions_are_finite_and_complete(case: MethodCase) -> None:
    """Answers are numbers, one for every member, query, step and outcome."""
    shape = (case.model.members, len(case.ask()), case.model.horizon, case.panel.outcomes.shape[-1])
    answers = case.expected
    _require(answers.shape == shape, f"answers have shape {answers.shape}, not {shape}")
    _require(bool(np.isfinite(answers).all()), "some answers are not finite")


PREDICTION_CHECKS: Final[Sequence[Callable[[MethodCase], None]]] = (
    nothing_after_the_origin_changes_a_prediction,
    the_history_changes_predictions,
    a_treatment_changes_no_step_before_it_acts,
    padding_changes_no_prediction,
    what_was_observed_and_what_was_filled_are_the_same_history,
    a_panel_encoded_once_answers_any_queries_as_a_rollout_does,
    answers_do_not_depend_on_company_or_batch_size,
    short_plans_give_the_first_steps_and_long_ones_are_refused,
    predictions_are_finite_and_complete,
)

FitsAgain = Callable[..., Trained]
"""Fits a method again: `(*, seed, runtime)`, by default with the settings of the first fit."""


def the_same_seed_gives_the_same_model(fit: FitsAgain) -> None:
    """Two fits with one seed have the same arrays to the last bit, and the same facts."""
    one, other = fit(), fit()
    _require(one.meta == other.meta, "the facts of two fits with one seed differ")
    different = [name for name in one.arrays if not np.array_equal(one.arrays[name], other.arrays[name])]
    _require(not different, f"arrays of two fits with one seed differ: {', '.join(different)}")


def members_trained_together_equal_members_trained_apart(fit: FitsAgain) -> None:
    """How many members share a training step changes no weight beyond rounding."""
    together, apart = (fit(runtime=EXACT.model_copy(update={"group": group})) for group in (2, 1))
    _require(together.arrays.keys() == apart.arrays.keys(), "members together have other arrays")
    for name, values in apart.arrays.items():
        one, other = (np.asarray(array, dtype=np.float64) for array in (together.arrays[name], values))
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7, err_msg=name)


TRAINING_CHECKS: Final[Sequence[Callable[[FitsAgain], None]]] = (
    the_same_seed_gives_the_same_model,
    members_trained_together_equal_members_trained_apart,
)


def check_method(method: Method, *, settings: Config | None = None) -> None:
    """Fit a method to small random panels and run every check.

    Args:
        method: what to check; it need not be registered.
        settings: its own settings; the default ones where there are none. Choose ones that fit fast.

    Raises:
        AssertionError: the method breaks an invariant; a note names the check and the data.
    """
    for words, dims in (("binary treatments", (3, 3, 2, 2)), ("classes of one treatment", (2, 4, 1, 0))):
        one_hot = words != "binary treatments"
        dataset = with_holes(random_dataset(dims, one_hot=one_hot, horizon=3, n=SIZES[0]))
        fit = _Fits(method, settings or method.default_settings(), dataset)
        trained = fit()
        model = method.load(Artifact("model", trained.arrays, trained.meta, trained.parents, digest="d"))
        case = MethodCase(method.name, model, dataset.panel("target", "test"), one_hot)
        for on_answers in PREDICTION_CHECKS:
            with _named(method, on_answers.__name__, words):
                on_answers(case)
        for on_fits in TRAINING_CHECKS:
            with _named(method, on_fits.__name__, words):
                on_fits(fit)


@contextmanager
def _named(method: Method, check: str, words: str) -> Iterator[None]:
    try:
        yield
    except AssertionError as error:
        error.add_note(f"method {method.name}, check {check}, on {words}")
        raise


def check_data_source(source: DataSource, settings: Config | None = None) -> None:
    """Make a data set and see that it is complete, reproducible and true to its own factual series.

    Args:
        source: what to check; it need not be registered.
        settings: its settings; the default ones where there are none. Choose ones that are made fast.

    Raises:
        AssertionError: the data set breaks an invariant.
    """
    problems = list(source.problems())
    _require(not problems, f"{source.name}: {'; '.join(problems)}")
    chosen = settings or source.settings()
    dataset, again = (source.simulate(chosen, NullReporter()) for _ in range(2))
    _require(dataset.name == source.dataset, f"the data set calls itself {dataset.name!r}, not {source.dataset!r}")
    check_dataset(dataset)
    for part, panel in dataset.panels.items():
        for name in ("covariates", "treatments", "outcomes", "statics", "length", "subject_id"):
            same = np.array_equal(getattr(panel, name), getattr(again.panels[part], name))
            _require(same, f"{part}: {name} differ between two data sets of the same settings")
    if truth := source.noisy or source.truth:
        answer = called(truth)
        for part, panel in dataset.panels.items():  # the truth of the treatments that were given is the observed series
            for row in range(min(panel.n_subjects, 3)):
                last = int(panel.length[row]) - 1
                origin = max(0, last - dataset.horizon)
                plan = dataset.schema.treatments.decode(panel.treatments[row, origin:last])
                found = np.asarray(answer(dataset, part, row, origin, plan)).reshape(last - origin, -1)
                expected, seen = (a[row, origin + 1 : last + 1] for a in (panel.outcomes, panel.observed_outcomes))
                title = f"{part}, row {row}: truth of the treatments that were given"
                np.testing.assert_allclose(found[seen], expected[seen], rtol=1e-3, atol=1e-3, err_msg=title)
                rows, origins = np.array([row, row]), np.array([origin, origin])
                twice = np.asarray(answer(dataset, part, rows, origins, np.stack([plan, plan])))
                title = f"{part}, row {row}: truth of two questions at once"
                np.testing.assert_allclose(twice.reshape(2, *found.shape), [found, found], rtol=1e-6, err_msg=title)


@dataclass(frozen=True)
class _Fits:
    """Fits a method to a data set as often as a check asks."""

    method: Method
    settings: Config | None
    dataset: Dataset
    shared: Mapping[str, Any] = field(default_factory=lambda: dict(SMALL))

    def __call__(self, *, runtime: RuntimeConfig | None = None, **changes: object) -> Trained:
        return finetune(
            self.dataset,
            FinetuneConfig(**{**self.shared, **changes}),
            runtime or RuntimeConfig(device="cpu"),
            domain="source",
            start=None,
            checkpoint=None,
            identity=RunIdentity("check"),
            reporter=NullReporter(),
            method=self.method,
            settings=self.settings,
        )


def padded(panel: Panel, steps: int = 9) -> Panel:
    """Return the panel with longer padding, the mask of outcomes included."""
    pad, observed = ((0, 0), (0, steps), (0, 0)), panel.outcome_observed
    covariates, treatments, outcomes = (np.pad(a, pad) for a in (panel.covariates, panel.treatments, panel.outcomes))
    observed = None if observed is None else np.pad(observed, pad)
    return replace(panel, covariates=covariates, treatments=treatments, outcomes=outcomes, outcome_observed=observed)


def _close(actual: NDArray[np.floating], expected: NDArray[np.floating], *, rtol: float = RTOL) -> None:
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * np.abs(expected).max(initial=0))


def _require(met: bool, text: str) -> None:  # noqa: FBT001 - a condition
    if not met:
        raise AssertionError(text)
