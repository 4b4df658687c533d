"""Factual queries: what came next, from every origin (spec PANEL-6)."""

from typing import Final

import numpy as np

from costar_cli.errors import DataError
from costar_cli.panel.panel import Panel
from costar_cli.panel.queries import Queries

__all__ = ["rolling_origin"]

MOST_ANSWERS: Final = 200_000_000


def rolling_origin(panel: Panel, horizon: int) -> Queries | None:
    """Return every question of `horizon` steps that the panel itself answers, None where its series are too short.

    Each subject is asked at every origin that has `horizon` further observed steps: what came next under the
    treatments that were given. Answers are factual. A step counts where every outcome was observed.

    Raises:
        DataError: more answers than memory is likely to hold.
    """
    per_subject = np.maximum(panel.length - horizon, 0)
    subject = np.repeat(np.arange(panel.n_subjects), per_subject)
    if not len(subject):
        return None
    if len(subject) * horizon > MOST_ANSWERS:
        problem = f"the test subjects have {len(subject):,} origins with {horizon} answers each"
        raise DataError(problem, fix="give fewer test subjects, `max_length`, or `rolling_origin = false` in [queries]")
    origin = np.arange(len(subject)) - np.repeat(np.cumsum(per_subject) - per_subject, per_subject)
    step = origin[:, None] + np.arange(horizon)
    observed = np.asarray(panel.observed_outcomes.all(axis=-1))
    return Queries(
        subject=subject.astype(np.int32),
        origin=origin.astype(np.int16),
        plan=panel.treatments[subject[:, None], step].astype(np.uint8),
        outcomes=panel.outcomes[subject[:, None], step + 1],
        scored=observed[subject[:, None], step + 1],
    )
