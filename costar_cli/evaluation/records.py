"""Rows of an evaluation as flat records: for tables, CSV and data frames."""

from collections.abc import Iterator, Mapping

from costar_cli.evaluation.calibrated import BandDetails, LevelScores
from costar_cli.evaluation.metrics import PerStep
from costar_cli.evaluation.rows import ReportRow
from costar_cli.evaluation.sums import REPORTED

Record = dict[str, str | int | float | bool | None]


def tidy_records(row: ReportRow, horizon: int, *, unit: str, ratio: PerStep | None) -> Iterator[Record]:
    """Yield what a row says of each step, then of their average."""
    statistics = {"mean": row.mean, "sd": row.sd, "ensemble": row.ensemble, "lower": row.lower, "upper": row.upper}
    statistics["se"] = row.se
    for h in (*range(horizon), None):
        yield {
            "setup": row.setup,
            "model": row.label,
            "basis": row.basis,
            "truth": row.truth,
            "test": row.test,
            "step": None if h is None else h + 1,
            **{name: _of_step(values, h) for name, values in statistics.items()},
            "members": len(row.members) or None,
            "unit": unit,
            "ratio_to_limit": _of_step(ratio, h),
        }


def _of_step(values: PerStep | None, step: int | None) -> float | None:
    if values is None:
        return None
    return values.average if step is None else values.steps[step] if step < len(values.steps) else None


def flat_record(row: ReportRow, horizon: int, *, ratio: PerStep | None) -> Record:
    """Return what a row says of all steps and of their average, the same keys for every row."""
    flat: Record = {
        "setup": row.setup,
        "label": row.label,
        "basis": row.basis,
        "truth": row.truth,
        "test": row.test,
        "members": len(row.members) or None,
        "labelled_target_subjects": row.provenance.labelled_target_subjects if row.provenance else None,
    }
    statistics = {"mean": row.mean, "sd": row.sd, "lower": row.lower, "upper": row.upper, "ensemble": row.ensemble}
    for h in range(horizon):
        for name, values in statistics.items():
            flat[f"tau{h + 1}_{name}"] = values.steps[h] if values and h < len(values.steps) else None
    flat |= {f"avg_{name}": values.average if values else None for name, values in statistics.items()}
    return flat | {
        "no_interval": row.no_interval,
        "caution": row.caution,
        "stopped_by_budget": row.stopped_by_budget,
        "ratio_to_limit": ratio.average if ratio else None,
        "avg_se": row.se.average if row.se else None,
        **_bands("", row.calibration, row.bands),
        **_bands("factual_", *((row.factual.calibration, row.factual.details) if row.factual else ({}, None))),
    }


def _bands(prefix: str, levels: Mapping[str, LevelScores], details: BandDetails | None) -> Record:
    """Return the averages over steps of what calibrated bands did, None where there are none."""
    flat: Record = {}
    for level in map(str, REPORTED):
        scores = levels.get(level)
        for name in ("coverage", "width", "interval_score"):
            flat[f"{prefix}{name}_{level}"] = getattr(scores, name).average if scores else None
    return flat | {f"{prefix}crps": details.crps.average if details else None}
