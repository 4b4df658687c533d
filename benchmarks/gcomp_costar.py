"""COSTAR's encoder as what predicts a step of g-computation, for `benchmarks.gcomp`.

`costar`: its states after pretraining, and their products with treatment, are columns beside the present in every
regression and in the trees' ones. `costar-alone`: encoder and predictor, trained to predict one step of all outcomes
and covariates, are the equations. Simulated histories pass through the encoder at every step of a course.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from unittest.mock import patch

import numpy as np
from scipy.special import logit

from costar_cli.config.models import FinetuneConfig, PretrainConfig, RuntimeConfig
from costar_cli.data import Dataset, Panel, PanelSchema, Queries
from costar_cli.methods.costar.model import CostarModel
from costar_cli.methods.gcomp import method, model
from costar_cli.methods.gcomp.design import BLOCKS, Design
from costar_cli.methods.gcomp.learners import PENALTIES, Chosen, Equation, Task
from costar_cli.methods.gcomp.settings import GcompConfig
from costar_cli.methods.shared.course import DECAYS, Course, Floats, Scales
from costar_cli.reporting import NullReporter
from costar_cli.training import pretrain
from tests.fits import artifact_of, fit_method, identity_of

__all__ = ["ALONE", "STATES", "of_one_step", "one_step_network", "pretrained", "widened"]

STATES, ALONE = "costar", "costar-alone"
UPDATES = 300  # of pretraining; those of `quick` are 54
LEAST = 1e-3  # of a probability
FINETUNE = FinetuneConfig(members=1)


def pretrained(dataset: Dataset) -> CostarModel:
    """Return an encoder pretrained on the source's training subjects."""
    config = PretrainConfig(members=1, updates=UPDATES)
    trained = pretrain(
        dataset, config, RuntimeConfig(device="cpu"), checkpoint=None, identity=identity_of(config),
        reporter=NullReporter(),
    )  # fmt: skip
    return CostarModel.from_artifact(artifact_of(trained))


def of_one_step(panel: Panel) -> Panel:
    """Return a panel whose covariates are outcomes, too."""
    values_NTE = np.concatenate([panel.outcomes, panel.covariates], axis=2)
    return replace(panel, outcomes=values_NTE, covariates=panel.covariates[..., :0])


def one_step_network(dataset: Dataset) -> CostarModel:
    """Return a pretrained encoder with its predictor, trained to predict the next outcomes and covariates."""
    schema = dataset.schema.model_copy(
        update={"outcomes": (*dataset.schema.outcomes, *dataset.schema.covariates), "covariates": ()}
    )
    panels = {part: of_one_step(panel) for part, panel in dataset.panels.items()}
    one_step = Dataset(dataset.name, schema, 1, panels)
    trained = fit_method(one_step, "costar", None, FINETUNE, start=pretrained(one_step))
    return CostarModel.from_artifact(artifact_of(trained))


@dataclass(frozen=True)
class Widened(Design):
    """The columns of a step with those of a network in `recent`, and of states their products in `products`."""

    network: CostarModel = field(kw_only=True)

    @property
    def n_columns(self) -> int:
        """Return how many columns the network gives: its predictions where it predicts, or its states."""
        return len(self.scales.kinds) if self.network.horizon else self.network.encoder_config.width

    @cached_property
    def widths(self) -> dict[str, int]:
        """Return how many columns each block has."""
        plain, products = super().widths, 0 if self.network.horizon else self.n_factors * self.n_columns
        return plain | {"recent": plain["recent"] + self.n_columns, "products": plain["products"] + products}

    def _blocks(self, course: Course, dose_ML: Floats, blocks: Sequence[str]) -> Iterator[Floats]:
        made = dict(zip(BLOCKS, super()._blocks(course, dose_ML, blocks), strict=True))
        column_MD = self._of_network(course, dose_ML)
        made["recent"] = np.concatenate([made["recent"], column_MD], axis=1)
        if "products" in blocks and not self.network.horizon:
            made["products"] = np.concatenate(
                [made["products"], *(column_MD * dose_M[:, None] for dose_M in dose_ML.T)], axis=1
            )
        yield from made.values()

    def _of_network(self, course: Course, dose_ML: Floats) -> Floats:
        panel, step_M = self._panel(course), course.step_M.astype(np.int16)
        series_M = np.arange(len(step_M), dtype=np.int32)
        if not self.network.horizon:
            return np.asarray(self.network.represent(panel)[0, series_M, step_M], dtype=np.float64)
        asked = Queries(series_M, step_M, dose_ML[:, None].astype(np.uint8))
        after_ME = self.network.rollout(panel, asked)[0, :, 0].astype(np.float64)
        change_ME = (after_ME - course.now_ME) / course.unit(self.scales)
        return np.where(self.scales.having("binary"), logit(after_ME.clip(LEAST, 1 - LEAST)), change_ME)

    def _panel(self, course: Course) -> Panel:
        """Return the histories of courses, which lags hold as far back as these worlds go."""
        step_M, n_outcomes = course.step_M.astype(np.int64), len(self.network.schema.outcomes)
        back_MT = step_M[:, None] - np.arange(step_M.max() + 1)
        assert back_MT.max() <= self.lags  # noqa: S101 - else the history is not all there
        value_MTE = np.take_along_axis(course.value_MKE, back_MT.clip(0)[..., None], axis=1).astype(np.float32)
        # Treatments that are off or on are the binary digits of the exposure that halves at every step.
        half = DECAYS.index(0.5) * self.n_factors
        left_ML, given = course.exposure_MJ[:, half : half + self.n_factors], [np.zeros((len(step_M), self.n_factors))]
        for _ in range(back_MT.shape[1]):
            given.append((left_ML >= 1).astype(np.float64))
            left_ML = 2 * (left_ML - given[-1])
        a_MTA = np.take_along_axis(np.stack(given, axis=1), back_MT.clip(0)[..., None], axis=1).astype(np.float32)
        return Panel(
            covariates=value_MTE[..., n_outcomes:], treatments=a_MTA, outcomes=value_MTE[..., :n_outcomes],
            statics=np.zeros((len(step_M), 0), np.float32), length=step_M + 1, subject_id=np.arange(len(step_M)),
        )  # fmt: skip


@contextmanager
def widened(network: CostarModel) -> Iterator[None]:
    """Let `gcomp` have a network's columns; one that predicts a step is the equations."""

    def of(schema: PanelSchema, scales: Scales, lags: int) -> Design:
        design = plain(schema, scales, lags)
        return Widened(**{one.name: getattr(design, one.name) for one in fields(Design)}, network=network)

    asked = iter(range(len(network.schema.outcomes)))

    def choose(task: Task, config: GcompConfig, seed: int) -> Chosen:
        del config, seed
        weight_P, first = np.zeros(1 + task.columns_MP.shape[1]), int(task.among["recent"].sum())
        weight_P[1 + first - len(network.schema.outcomes) + next(asked)] = 1.0
        equation = Equation("recent", weight_P)
        held_out_M = equation.predict(task.columns_MP)
        return Chosen(equation, held_out_M, {ALONE: float(task.loss(held_out_M).mean())}, PENALTIES[-1])

    plain = Design.of
    with ExitStack() as stack:
        stack.enter_context(patch.object(Design, "of", of))
        stack.enter_context(patch.object(model, "AFFINE", frozenset()))  # states are no linear functions
        stack.enter_context(patch.object(model.GcompModel, "_blocks", BLOCKS))  # without lags there are no histories
        if network.horizon:
            stack.enter_context(patch.object(method, "choose", choose))
        yield
