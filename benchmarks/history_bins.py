"""Coverage of 90 % bands of black boxes by the length of the history, on held-out subjects (spec BAND-4).

    python -m benchmarks.history_bins [--worlds tumor,linear] [--seeds 10,11,12,13,14] [--methods costar,ridge]

Each method is fitted to the source and calibrated on about 300 of its subjects. All factual windows of 1,000 test
subjects that say something are scored; a subject counts once in each bin. Coverage is in percent: the mean over steps
and data seeds with its standard error over these, and in brackets the least and the largest of the steps. `subjects` is
how many the quantiles of a bin rest on, a mean over data seeds, in the column and step with the fewest.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.calibration import LABELS
from benchmarks.comparing import made
from costar_cli.config.models import Config
from costar_cli.data import Dataset
from costar_cli.data.registry import sources
from costar_cli.data.windows import factual_windows
from costar_cli.evaluation.calibration import covered
from costar_cli.inference import calibration_of, estimate
from costar_cli.inference.conformal import LENGTHS, bins_of_length
from costar_cli.methods.registry import METHODS
from costar_cli.reporting import NullReporter
from costar_cli.settings.resolve import resolve

UPDATES: Final[Mapping[str, Mapping[str, object]]] = {"costar": {"updates": 60}}  # a band's level needs no good model
EVERY: Final = 10**7  # windows

Floats = NDArray[np.float64]


def simulated(name: str, seed: int, val: int) -> Dataset:
    """Return a data set of the quick preset with so many subjects to calibrate on."""
    source = sources()[name]
    sizes = {"seed": seed, "train": 300, "val": val, "test": 1_000, "target_train": 30, "target_test": 30}
    flags: dict[type[Config], dict[str, object]] = {source.settings: sizes}
    settings = resolve(flags, preset="quick", dataset=source.dataset)
    return source.simulate(settings[source.settings], NullReporter())


def measure(name: str, method: str, seed: int) -> tuple[Floats, Floats]:
    """Return coverage of each bin and step `[B,H]`, and how many subjects its quantiles rest on at least `[B]`."""
    dataset = simulated(name, seed, 600 if METHODS[method].selects_on_validation else 300)
    model = made(dataset, method, preset="quick", members=3, **UPDATES.get(method, {})).fitted
    calibration = calibration_of(model)
    windows = factual_windows(dataset.panel("source", "test"), model.horizon, most=EVERY)
    if calibration is None or windows is None or windows.queries.outcomes is None:
        raise SystemExit(f"{method} has no bands, or no subject has a whole horizon")
    found = estimate(model, windows.panel, windows.asked, calibration.facts, floor=calibration.floor)
    bands = calibration.bands(found, (0.9,))
    inside_QHY = covered(bands.lower_LQHY[0], bands.upper_LQHY[0], windows.queries.outcomes)
    says_QHY = windows.observed_QHY & calibration.facts.informative(found.level_QY)[:, None]
    inside_QHY = np.where(says_QHY, inside_QHY, np.nan)
    bin_Q, subject_Q = bins_of_length(windows.queries.origin), windows.queries.subject
    share_BH = np.full((len(LENGTHS) + 1, inside_QHY.shape[1]), np.nan)
    for b, h in np.ndindex(share_BH.shape):
        inside_MY = inside_QHY[bin_Q == b, h]
        known_MY = np.isfinite(inside_MY)
        own_M = np.broadcast_to(subject_Q[bin_Q == b, None], known_MY.shape)[known_MY]
        if len(own_M):
            sums_N, count_N = np.bincount(own_M, inside_MY[known_MY]), np.bincount(own_M)
            share_BH[b, h] = (sums_N[count_N > 0] / count_N[count_N > 0]).mean()
    return share_BH, calibration.units_HYB.min(axis=(0, 1)).astype(np.float64)


def labels() -> Sequence[str]:
    """Return the names of bins, the longest history first, as `bins_of_length` has them."""
    ends = [*(end - 1 for end in LENGTHS[1:]), None]
    each = (
        f"{x} or more" if y is None else f"{x}" if x == y else f"{x} to {y}" for x, y in zip(LENGTHS, ends, strict=True)
    )
    return ["0", *each][::-1]


def cell(share_SH: Floats) -> str:
    """Return a coverage `[S,H]` with its standard error, and that of the worst steps; nothing without windows."""
    if np.isnan(share_SH).all():
        return ""
    average_S, step_H = 100 * share_SH.mean(axis=1), 100 * share_SH.mean(axis=0)
    error = average_S.std(ddof=1) / len(average_S) ** 0.5
    return f"{average_S.mean():.1f} ± {error:.1f} ({step_H.min():.1f} to {step_H.max():.1f})"


def table(found: Mapping[str, tuple[Floats, Floats]]) -> Iterator[str]:
    """Yield a row for each bin, from coverage `[S,B,H]` and subjects `[S,B]` of each column."""
    yield f"| history | {' | '.join(found)} | subjects |"
    yield "|---|" + "---|" * len(found) + "---:|"
    fewest_B = np.min([units_SB.mean(axis=0) for _, units_SB in found.values()], axis=0)
    for b, label in reversed(list(enumerate(labels()))):
        cells = [cell(share_SBH[:, b]) for share_SBH, _ in found.values()]
        if any(cells):
            yield f"| {label} | {' | '.join(cells)} | {fewest_B[b]:.0f} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default="tumor,linear")
    parser.add_argument("--methods", default="costar,ridge")
    parser.add_argument("--seeds", default="10,11,12,13,14", help="of the data sets, two at least")
    options = parser.parse_args(arguments)
    found = {}
    for name in options.worlds.split(","):
        for method in options.methods.split(","):
            each = [measure(name, method, int(seed)) for seed in options.seeds.split(",")]
            share_SBH, units_SB = (np.stack(values) for values in zip(*each, strict=True))
            found[f"{LABELS[name]}, {METHODS.label(method)}"] = share_SBH, units_SB
    sys.stdout.write("\n".join(table(found)) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
