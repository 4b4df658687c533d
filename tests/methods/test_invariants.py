"""The invariants of design.md section 6, for every method of the registry, on two kinds of data."""

import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from costar_cli.artifact import Artifact, write_artifact
from costar_cli.config.baselines import METHOD_SETTINGS
from costar_cli.config.linear_gaussian import LinearGaussianConfig
from costar_cli.config.models import EncoderConfig, FinetuneConfig, RuntimeConfig, TumorConfig
from costar_cli.errors import UsageError
from costar_cli.methods import METHODS, FittedModel, load_model
from costar_cli.methods.base import Method
from costar_cli.methods.costar.model import CostarModel
from costar_cli.panel import Dataset, Panel, Part, Queries
from costar_cli.panel.linear_gaussian import simulate_linear
from costar_cli.panel.tumor import simulate_tumor
from costar_cli.reporting import NullReporter
from costar_cli.train import Trained, finetune, loop

# COSTAR with other choices: settings of the encoder, settings of the fit.
VARIANTS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "costar, vt": ({"architecture": "vt"}, {}),
    "costar, ct": ({"architecture": "ct"}, {}),
    "costar, taught": ({}, {"decoder": "autoregressive"}),
    "costar, vt and one step": ({"architecture": "vt_relative"}, {"decoder": "autoregressive_one_step"}),
}
PLAN_BLIND = {"last-value"}  # whatever the plan, it answers the same
SIZES = {"train": 16, "val": 6, "test": 4, "target_train": 5, "target_val": 4, "target_test": 6, "steps": 11}
CPU = RuntimeConfig(device="cpu")
# Adam makes full steps of gradients that are pure rounding error, so runs that round differently are compared in
# float64, where such steps vanish.
EXACT = RuntimeConfig(device="cpu", precision="float64")


def registered(name: str) -> Method:
    """The method of a name, or of a variant's."""
    return METHODS[name.partition(",")[0]]


@cache
def world(name: str) -> Dataset:
    """Classes of treatments and a static without covariates; or a binary treatment and covariates without statics."""
    if name == "tumor":
        return simulate_tumor(TumorConfig(**SIZES, horizon=3, seed=3), NullReporter())
    return simulate_linear(LinearGaussianConfig(**SIZES, horizon=3, seed=3), NullReporter())


def fit(
    method: str,
    dataset: Dataset,
    path: Path,
    *,
    domain: str = "source",
    start: FittedModel | None = None,
    runtime: RuntimeConfig = CPU,
    **changes: object,
) -> Trained:
    encoder, own = None, {}
    if registered(method).name == "costar" and start is None:
        shape, own = VARIANTS.get(method, ({}, {}))
        encoder = EncoderConfig(width=8, heads=2, clip_distance=4, **shape)
    values = {"epochs": 2, "patience": 2, "batch_size": 8, "hidden": 16, "seed": 5, "members": 2, "encoder": encoder}
    settings = METHOD_SETTINGS[method]() if method in METHOD_SETTINGS else None
    path.mkdir(exist_ok=True)
    return finetune(
        dataset,
        FinetuneConfig(**{**values, **own, **changes}),
        runtime,
        domain=domain,
        start=start,
        checkpoint=path / "run.h5",
        fingerprint="f",
        reporter=NullReporter(),
        method=registered(method),
        settings=settings,
    )


def as_model(method: str, trained: Trained) -> FittedModel:
    return registered(method).load(Artifact("model", trained.arrays, trained.meta, trained.parents, digest="d"))


@cache
def trained(method: str, data: str) -> Trained:
    with TemporaryDirectory() as folder:
        return fit(method, world(data), Path(folder))


@dataclass(frozen=True)
class Case:
    """A fitted model, the panel that it is asked about, and how treatments are encoded there."""

    name: str
    data: str
    model: FittedModel
    panel: Panel
    one_hot: bool

    def treatments(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        width = self.panel.treatments.shape[-1]
        if self.one_hot:
            return np.eye(width, dtype=np.uint8)[rng.integers(width, size=shape)]
        return rng.integers(2, size=(*shape, width)).astype(np.uint8)

    def other(self, plan: np.ndarray) -> np.ndarray:
        return np.roll(plan, 1, axis=-1) if self.one_hot else 1 - plan

    def ask(self, n: int = 24) -> Queries:
        rng = np.random.default_rng(0)
        subject = rng.integers(self.panel.n_subjects, size=n).astype(np.int32)
        origin = (rng.random(n) * self.panel.length[subject]).astype(np.int16)
        return Queries(subject, origin, self.treatments(rng, n, self.model.horizon))

    def answer(self, queries: Queries, panel: Panel | None = None) -> np.ndarray:
        return self.model.rollout(panel or self.panel, queries)


@pytest.fixture(scope="module", params=[*METHODS, *VARIANTS])
def method(request) -> str:
    return request.param


@pytest.fixture(scope="module", params=["tumor", "linear"])
def case(request, method: str) -> Case:
    dataset = world(request.param)
    model = as_model(method, trained(method, request.param))
    one_hot = dataset.schema.treatments.mode == "multiclass"
    return Case(method, request.param, model, dataset.panel("target", "test"), one_hot)


def close(actual: np.ndarray, expected: np.ndarray, *, rtol: float = 1e-4) -> None:
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * np.abs(expected).max(initial=0))


def test_nothing_after_the_origin_changes_a_prediction(case: Case) -> None:
    queries, rng = case.ask(), np.random.default_rng(1)
    expected = case.answer(queries)
    for row in range(0, len(queries), 5):
        one = queries.take(slice(row, row + 1))
        subject, origin = int(one.subject[0]), int(one.origin[0])
        after = slice(origin + 1, None)
        outcomes, covariates = case.panel.outcomes.copy(), case.panel.covariates.copy()
        for series in (outcomes, covariates):
            series[subject, after] = rng.normal(size=series[subject, after].shape) * 100
        treatments, length = case.panel.treatments.copy(), case.panel.length.copy()
        treatments[subject, origin:] = case.treatments(rng, case.panel.n_steps - origin)
        changed = replace(case.panel, outcomes=outcomes, covariates=covariates, treatments=treatments)
        length[subject] = origin + 1
        for panel in (changed, replace(changed, length=length)):
            close(case.answer(one, panel), expected[:, row : row + 1])


def test_the_history_before_the_origin_does_change_predictions(case: Case) -> None:
    queries = case.ask()
    changed = replace(case.panel, outcomes=case.panel.outcomes + case.panel.outcomes.std())
    difference = np.abs(case.answer(queries) - case.answer(queries, changed))
    assert difference.max(axis=(0, 2, 3)).min() > 1e-6


def test_a_treatment_changes_no_step_before_it_acts(case: Case) -> None:
    queries = case.ask()
    expected = case.answer(queries)
    for step in range(case.model.horizon):
        plan = queries.plan.copy()
        plan[:, step] = case.other(plan[:, step])
        changed = case.answer(replace(queries, plan=plan))
        close(changed[:, :, :step], expected[:, :, :step], rtol=1e-5)
        acts = (np.abs(changed - expected) > 1e-6 * np.abs(expected).max()).any(axis=(0, 1, 3))
        assert acts[step:].all() == (case.name not in PLAN_BLIND)


def test_padding_changes_no_prediction(case: Case) -> None:
    queries, pad = case.ask(), ((0, 0), (0, 9), (0, 0))
    series = {name: np.pad(getattr(case.panel, name), pad) for name in ("covariates", "treatments", "outcomes")}
    close(case.answer(queries, replace(case.panel, **series)), case.answer(queries))


def test_answers_do_not_depend_on_company_or_batch_size(case: Case) -> None:
    queries = case.ask()
    expected = case.answer(queries)
    close(case.model.rollout(case.panel, queries, batch_size=3), expected)
    alone = np.concatenate([case.answer(queries.take(slice(i, i + 1))) for i in range(5)], axis=1)
    close(alone, expected[:, :5])


def test_short_plans_give_the_first_steps_and_long_ones_are_refused(case: Case) -> None:
    queries = case.ask()
    close(case.answer(replace(queries, plan=queries.plan[:, :2])), case.answer(queries)[:, :, :2])
    with pytest.raises(UsageError, match="horizon"):
        case.answer(replace(queries, plan=np.concatenate([queries.plan, queries.plan], axis=1)))


def test_predictions_are_finite_and_come_for_every_member_query_step_and_outcome(case: Case) -> None:
    queries = case.ask()
    answered = case.answer(queries)
    members = 1 if registered(case.name).single else 2
    assert answered.shape == (members, len(queries), case.model.horizon, case.panel.outcomes.shape[-1])
    assert case.model.members == members
    assert np.isfinite(answered).all()


def test_a_stored_model_answers_like_the_one_that_was_stored(case: Case, tmp_path: Path) -> None:
    content = trained(case.name, case.data)
    write_artifact(
        tmp_path / "model.h5", kind="model", arrays=content.arrays, meta=content.meta, parents=content.parents
    )
    loaded = load_model(tmp_path / "model.h5")
    assert loaded.method == registered(case.name).name
    assert np.array_equal(loaded.rollout(case.panel, case.ask()), case.answer(case.ask()))


def test_same_seed_gives_the_same_predictions_and_another_seed_others(method: str, tmp_path: Path) -> None:
    dataset = world("tumor")
    first = trained(method, "tumor")
    again, other = (fit(method, dataset, tmp_path / str(seed), seed=seed) for seed in (5, 6))
    assert first.meta == again.meta
    assert all(np.array_equal(first.arrays[name], again.arrays[name]) for name in first.arrays)
    panel, queries = dataset.panel("target", "test"), dataset.queries[Part("target", "test")]["sequence"]
    answers = [as_model(method, model).rollout(panel, queries) for model in (first, again, other)]
    assert np.array_equal(answers[0], answers[1])
    assert registered(method).single or not np.array_equal(answers[0], answers[2])


def test_members_trained_together_equal_members_trained_apart(method: str, tmp_path: Path) -> None:
    together, apart = (
        fit(method, world("tumor"), tmp_path / str(group), runtime=EXACT.model_copy(update={"group": group}))
        for group in (2, 1)
    )
    assert together.arrays.keys() == apart.arrays.keys()
    for name, values in apart.arrays.items():
        np.testing.assert_allclose(together.arrays[name], values, rtol=1e-5, atol=1e-7, err_msg=name)
    assert registered(method).single or together.meta["members"] == 2


def interrupt_training(monkeypatch: pytest.MonkeyPatch, at: int) -> Callable[[], int]:
    """Send Ctrl-C in a training step; return what tells how many steps were taken."""
    taken, step = [0], loop.training_step

    def counted_step(*args: object) -> object:
        taken[0] += 1
        if taken[0] == at:
            signal.raise_signal(signal.SIGINT)
        return step(*args)

    monkeypatch.setattr(loop, "training_step", counted_step)
    return lambda: taken[0]


@pytest.mark.parametrize("share", [0.35, 0.85])
def test_an_interrupted_fit_continues_to_the_same_weights(
    method: str, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = world("tumor")
    count = interrupt_training(monkeypatch, at=0)
    whole = fit(method, dataset, tmp_path / "whole")
    steps = count()
    monkeypatch.undo()
    assert (steps == 0) == (whole.meta["stages"] == [])  # fits in closed form have nothing to continue
    if steps:
        interrupt_training(monkeypatch, at=max(1, int(share * steps)))
        with pytest.raises(KeyboardInterrupt):
            fit(method, dataset, tmp_path / "cut")
        monkeypatch.undo()
    continued = fit(method, dataset, tmp_path / "cut")
    assert whole.meta == continued.meta
    assert all(np.array_equal(whole.arrays[name], continued.arrays[name]) for name in whole.arrays)


def test_few_shot_starts_from_the_source_model_and_leaves_it_alone(method: str, tmp_path: Path) -> None:
    dataset, source = world("tumor"), trained(method, "tumor")
    model, panel = as_model(method, source), dataset.panel("target", "test")
    queries = dataset.queries[Part("target", "test")]["sequence"].take(slice(0, 50))
    before = model.rollout(panel, queries)
    target = fit(method, dataset, tmp_path, domain="target", start=model, epochs=1)
    assert np.array_equal(model.rollout(panel, queries), before)
    assert target.meta["trained_on"] == {"source/train": SIZES["train"], "target/train": SIZES["target_train"]}
    assert target.meta["domain"] == "target"
    scalers = [name for name in target.arrays if name.startswith("scaler/")]
    assert all(np.array_equal(target.arrays[name], source.arrays[name]) for name in scalers)
    adapted = as_model(method, target).rollout(panel, queries)
    assert adapted.shape == before.shape
    assert np.isfinite(adapted).all()


def test_representations_cover_every_subject_and_step() -> None:
    model, panel = as_model("costar", trained("costar", "tumor")), world("tumor").panel("target", "test")
    assert isinstance(model, CostarModel)
    assert model.represent(panel).shape == (2, panel.n_subjects, panel.n_steps, 8)
