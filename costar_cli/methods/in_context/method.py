"""The in-context model given a data set: everything in closed form, nothing trained (spec CONTEXT-4 and 5)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from costar_cli.data import Part
from costar_cli.errors import Termination
from costar_cli.methods.base import Fit, FitTask, Fitted
from costar_cli.methods.in_context.basis import LAGS, Basis, Function, facts_of, network
from costar_cli.methods.in_context.head import Head, Rows, condition, noise_of
from costar_cli.methods.in_context.model import NETWORK, NOISE, InContextModel, response
from costar_cli.methods.in_context.settings import InContextConfig
from costar_cli.methods.shared.course import Floats, Scales
from costar_cli.methods.shared.doses import dose_table
from costar_cli.methods.shared.logistic import one_thread
from costar_cli.methods.shared.steps import Steps, weight_of, whole_residuals
from costar_cli.methods.shared.trained import ReadsModels, model_to_start_from

WEIGHTS: Final = Path(__file__).with_name("weights.npz")
PRIOR: Final = "prior."
REPLICATES: Final = 100  # draws of the weights
CHUNK: Final = 2**12  # rows whose columns are made at once, all those of a subject together


class InContextMethod(ReadsModels):
    """The in-context model; few-shot conditions on both domains' subjects."""

    model = InContextModel

    def fit(self, task: FitTask) -> Fit:
        """Condition on the training subjects.

        Raises:
            MismatchError: what to start from is of another method.
        """
        yield from ()
        start, config = model_to_start_from(task, InContextModel, "in-context"), task.settings_of(InContextConfig)
        source, seed = task.panels[Part("source", "train")], task.config.seed
        scales = start.scales if start else Scales.learned(source, task.schema, task.scaler)
        train = task.subjects_of_both
        if train.n_subjects > config.subjects:
            some = np.random.default_rng([seed, 1]).permutation(train.n_subjects)[: config.subjects]
            train = train.take(np.sort(some))
        table_AL = dose_table(task.schema.treatments)
        dose_ML = train.treatments[train.decided].astype(np.float64) @ table_AL
        given_L = (dose_ML != 0).sum(axis=0)
        size_L = np.sqrt((dose_ML**2).sum(axis=0) / given_L.clip(1))
        size_L = np.where(given_L > 0, size_L, 1.0)
        steps = Steps(train, table_AL / size_L, scales, lags=LAGS, rows=config.rows, seed=seed)
        with np.load(WEIGHTS, allow_pickle=False) as stored:
            shipped = {name: stored[name].astype(np.float64) for name in stored.files}
        of_network = {name: value for name, value in shipped.items() if not name.startswith(PRIOR)}
        log_sd = {name.removeprefix(PRIOR): value for name, value in shipped.items() if name.startswith(PRIOR)}
        one = _Conditioning(steps, Basis.of(task.schema, scales), network(of_network), log_sd)
        residual_ME, dispersion, heads = np.full(steps.course.now_ME.shape, np.nan), list[float](), list[Head]()
        for e in range(len(scales.kinds)):
            Termination.stop_if_signalled()
            with one_thread("blas"):
                head, explained_M = one.variable(e)
            heads.append(head)
            seen_M = steps.seen_ME[:, e]
            residual_ME[seen_M, e], of_counts = steps.residuals(e, seen_M, explained_M, seed)
            dispersion.append(of_counts)
        rng = np.random.default_rng([seed, 2])
        none_K = np.zeros(one.basis.own_effects)
        arrays = {
            "head.weight": np.stack([head.mean_P for head in heads]),
            "head.replicates": np.stack([head.draw(rng, REPLICATES) for head in heads], axis=1),
            "subjects.variance": np.stack([none_K if head.subject_K is None else head.subject_K for head in heads]),
            "dose_scale": size_L,
            NOISE: np.array([head.noise for head in heads]),
            "residuals": whole_residuals(residual_ME, steps.subject_M, scales.quantile_E, seed),
            "dispersion": np.array(dispersion),
            **{f"{NETWORK}{name}": value for name, value in of_network.items()},
        }
        params = {name: np.ascontiguousarray(values)[None] for name, values in arrays.items()}
        meta: dict[str, Any] = {"variables": scales.to_meta(), "used": [round(head.used, 1) for head in heads]}
        return Fitted(params, meta)


IN_CONTEXT = InContextMethod()


class _Conditioning:
    """Steps of training subjects, from which the posterior of each variable is made."""

    def __init__(self, steps: Steps, basis: Basis, learned: dict[str, Function], log_sd: dict[str, Floats]) -> None:
        self.steps, self.basis, self.learned = steps, basis, learned
        self.prior_P, self.own_prior_K = basis.prior(log_sd, np), basis.own_prior(log_sd, np)
        _, self.unit_M = np.unique(steps.subject_M, return_inverse=True)

    def variable(self, e: int) -> tuple[Head, Floats]:
        """Return the posterior of a variable, and of rows that were observed what they owe to all but noise."""
        seen_M = self.steps.seen_ME[:, e]
        units = int(self.unit_M.max()) + 1
        head = condition(self._rows(e), units, self.prior_P, self.own_prior_K, self.basis.group_P)
        now_M, binary = self.steps.course.now_ME[:, e], self.steps.scales.kinds[e] == "binary"
        explained = []
        for column_MP, differ_MK, answer_M, unit_M in self._rows(e):
            noise_M = answer_M - column_MP @ head.mean_P
            if head.subject_K is not None:  # effects of subjects are drawn with their own chance
                _, first = np.unique(unit_M, return_index=True)
                for start, stop in zip(first, [*first[1:], len(noise_M)], strict=True):
                    noise_M[start:stop] = noise_of(differ_MK[start:stop], noise_M[start:stop], head.subject_K)
            explained.append(answer_M - noise_M)
        kept_M = np.flatnonzero(seen_M)
        root_M = np.sqrt(weight_of(self.steps.unit_ME[kept_M, e], self.steps.scales, e))
        change_M = np.concatenate(explained) / root_M
        return head, response(now_M[kept_M], change_M, binary=binary)

    def _rows(self, e: int) -> Iterator[Rows]:
        """Yield the rows after which a variable was observed, times the root of their weights."""
        seen_M, answer_M, weight_M = self.steps.answers(e)
        kept_M, root_M = np.flatnonzero(seen_M), np.sqrt(weight_M)
        if self.steps.scales.kinds[e] == "binary":
            answer_M = answer_M - self.steps.course.now_ME[kept_M, e]
        unit_M, first = self.unit_M[kept_M], 0
        while first < len(kept_M):
            stop = min(first + CHUNK, len(kept_M))
            stop = len(kept_M) if stop == len(kept_M) else int(np.searchsorted(unit_M, unit_M[stop - 1], side="right"))
            some, root_M1 = kept_M[first:stop], root_M[first:stop, None]
            facts = facts_of(self.steps.course.take(some), self.steps.scales, self.steps.dose_ML[some])
            column_MP, differ_MK = self.basis.columns(facts, e, self.learned, np)
            yield Rows(
                column_MP * root_M1, differ_MK * root_M1, answer_M[first:stop] * root_M1[:, 0], unit_M[first:stop]
            )
            first = stop
