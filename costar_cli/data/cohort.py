"""What simulated cohorts of one length share: their parts, their panels, and test queries from random origins."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.base import CohortConfig
from costar_cli.data.dataset import Part
from costar_cli.data.panel import Panel
from costar_cli.data.queries import MOST_ANSWERS
from costar_cli.data.schema import TreatmentEncoding
from costar_cli.errors import UsageError
from costar_cli.reporting import Reporter


def cohort_parts(
    config: CohortConfig, reporter: Reporter, title: str
) -> Iterator[tuple[Part, int, int, np.random.SeedSequence, np.random.SeedSequence]]:
    """Yield each part, how many subjects it has, the number of the first, and the seeds of panel and queries."""
    sizes = [config.train, config.val, config.test, config.target_train, config.target_val, config.target_test]
    first_id = 0
    with reporter.task(title, total=sum(sizes), unit="subject") as task:
        for i, (part, n) in enumerate(zip(Part.all(), sizes, strict=True)):
            panel_seed, queries_seed = np.random.SeedSequence(config.seed, spawn_key=(i,)).spawn(2)
            yield part, n, first_id, panel_seed, queries_seed
            first_id += n
            task.advance(n)


def require_few_answers(config: CohortConfig, section: str, fixed_plans: int) -> None:
    """Refuse sizes that would make more answers than memory holds; each origin has the fixed plans and random ones.

    Raises:
        UsageError: there are too many.
    """
    per_origin = fixed_plans + (fixed_plans + config.random_plans) * config.horizon
    answers = (config.test + config.target_test) * min(config.origins, config.steps - 1) * per_origin
    if answers > MOST_ANSWERS:
        raise UsageError(
            f"the test subjects would have {answers:,} counterfactual answers, more than {MOST_ANSWERS:,}",
            where=f"[{section}] test, target_test, origins, random_plans, horizon",
            fix="simulate fewer test subjects, or fewer origins or shorter plans",
        )


def cohort_panel(
    encoding: TreatmentEncoding,
    first_id: int,
    *,
    covariates: NDArray[np.float64],
    treatments: NDArray[np.float64 | np.bool_],
    outcome: NDArray[np.float64],
    statics: NDArray[np.float64] | None = None,
    length: NDArray[np.int64] | None = None,
) -> Panel:
    """Return the panel of covariates `[N,T,X]`, treatments `[N,T,A]` as given, outcome `[N,T]`, statics `[N,V]`.

    All have the same length where none `[N]` is given.
    """
    n, steps = outcome.shape
    length_N = np.full(n, steps, dtype=np.int64) if length is None else length
    left_NT1 = (length_N[:, None] - np.arange(steps))[..., None]
    return Panel(
        covariates=covariates.astype(np.float32) * (left_NT1 > 0),
        treatments=encoding.encode(treatments) * (left_NT1 > 1),  # nothing is given on the last observed step
        outcomes=outcome[..., None].astype(np.float32) * (left_NT1 > 0),
        statics=np.zeros((n, 0), dtype=np.float32) if statics is None else statics.astype(np.float32),
        length=length_N,
        subject_id=np.arange(first_id, first_id + n, dtype=np.int64),
    )


def random_origins(
    n: int, steps: int, origins: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return subjects and distinct origins `[M]` before the last step, as many of each subject, in order."""
    n_origins = min(origins, steps - 1)
    origin_NO = np.sort(rng.permuted(np.tile(np.arange(steps - 1), (n, 1)), axis=1)[:, :n_origins], axis=1)
    return np.repeat(np.arange(n), n_origins), origin_NO.ravel()
