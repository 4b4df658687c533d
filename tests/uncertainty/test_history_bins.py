"""Bands of black boxes by length of the history: coverage at each origin where errors depend on it (spec BAND-4)."""

from dataclasses import replace

import numpy as np
import pytest

from costar_cli.data import Panel, PanelSchema, Scaler, TreatmentEncoding, Variable
from costar_cli.data.windows import factual_windows
from costar_cli.inference import Calibration, Estimates, OutcomeFacts, calibrate, estimate, held_out
from costar_cli.inference.conformal import LENGTHS, bins_of_length
from tests.uncertainty.test_calibration import Guess

ROWS, HORIZON = 24, 2
SCHEMA = PanelSchema(
    covariates=(),
    outcomes=(Variable(name="y"),),
    treatments=TreatmentEncoding(mode="multilabel", names=("a",), levels=(("off", "on"),)),
)


def settling(n: int, seed: int) -> Panel:
    """Subjects whose level jumps far after the first row, and less and less: a forecast of the last level errs so."""
    rng = np.random.default_rng(seed)
    jump_T = 0.3 + 4.0 * 0.5 ** np.arange(ROWS)
    y_NT = np.cumsum(rng.normal(size=(n, ROWS)) * np.append(1.0, jump_T[:-1]), axis=1)
    return Panel(
        covariates=np.zeros((n, ROWS, 0), np.float32),
        treatments=np.zeros((n, ROWS, 1), np.float32),
        outcomes=y_NT[..., None].astype(np.float32),
        statics=np.zeros((n, 0), np.float32),
        length=np.full(n, ROWS, dtype=np.int64),
        subject_id=np.arange(n, dtype=np.int64) + 1_000_000 * seed,
    )


def told(panel: Panel) -> tuple[Guess, OutcomeFacts]:
    scaler = Scaler.fit(panel, SCHEMA)
    return Guess(SCHEMA, scaler, HORIZON, apart=0.1), OutcomeFacts.of(panel, SCHEMA, scaler)


def calibrated(n: int, seed: int = 2) -> tuple[Guess, Calibration]:
    model, facts = told(settling(300, seed=1))
    found = calibrate(model, held_out(model, settling(n, seed), facts), facts, domain="source", apart=True)
    assert found is not None
    return model, found


def covered_by_bin(calibrations: list[Calibration], model: Guess) -> np.ndarray:
    """Return how many outcomes of new subjects 90 % bands cover `[bins,H]`, short histories first, on average."""
    windows = factual_windows(settling(1_500, seed=90), HORIZON, most=10**6)
    assert windows is not None
    y_QHY, shares = windows.queries.outcomes, []
    bin_Q = bins_of_length(windows.queries.origin)
    for one in calibrations:
        found = estimate(model, windows.panel, windows.asked, one.facts, floor=one.floor)
        bands = one.bands(found, (0.9,))
        inside_QH = ((bands.lower_LQHY[0] <= y_QHY) & (y_QHY <= bands.upper_LQHY[0]))[..., 0]
        shares.append([inside_QH[bin_Q == b].mean(axis=0) for b in np.unique(bin_Q)[::-1]])
    return np.mean(shares, axis=0)


def test_bands_keep_their_level_at_every_length_of_the_history() -> None:
    """Too few subjects for bins cover half at the first origin here and nearly everything later."""
    model, _ = calibrated(100)
    by_bin = covered_by_bin([calibrated(180, seed)[1] for seed in range(2, 8)], model)
    assert len(by_bin) == len(LENGTHS) - 1
    assert by_bin.min() > 0.87
    assert by_bin.max() < 0.93
    pooled = covered_by_bin([calibrated(39, seed)[1] for seed in range(2, 8)], model)
    assert pooled[0].max() < 0.6
    assert pooled[-1].min() > 0.93


def test_bands_keep_their_level_where_there_are_many_windows() -> None:
    """With 10 of the 22 windows of each of 400 subjects, 99.9 % were covered at the second origin, 86 at the fifth."""
    model, _ = calibrated(400)
    by_bin = covered_by_bin([calibrated(400, seed)[1] for seed in range(2, 6)], model)
    assert by_bin.min() > 0.87
    assert by_bin.max() < 0.93


def test_fewer_subjects_are_asked_about_before_fewer_windows_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    each = ROWS - HORIZON
    monkeypatch.setattr("costar_cli.inference.floor.MOST", 60 * each)
    monkeypatch.setattr("costar_cli.inference.floor.LEAST_SUBJECTS", 50)
    model, facts = told(settling(300, seed=1))
    some = held_out(model, settling(100, seed=2), facts)
    assert some is not None
    assert np.bincount(some.windows.queries.subject).tolist() == [each] * 60
    monkeypatch.setattr("costar_cli.inference.floor.LEAST_SUBJECTS", 80)
    thinned = held_out(model, settling(100, seed=2), facts)
    assert thinned is not None
    assert np.bincount(thinned.windows.queries.subject).tolist() == [60 * each // 80] * 80


def test_each_bin_has_40_subjects_who_count_once_each() -> None:
    _, few = calibrated(39)
    assert few.by == "history"
    assert (few.radius_LHYB == few.radius_LHYB[..., :1]).all()
    assert (few.units_HYB == 39).all()
    _, enough = calibrated(40)
    assert (enough.units_HYB == 40).all()
    first_H = enough.radius_LHYB[499, :, 0, bins_of_length(np.array([0]))[0]]
    assert (first_H > 3 * enough.radius_LHYB[499, :, 0, 3]).all()


def test_an_origin_without_windows_has_the_quantiles_of_shorter_histories() -> None:
    model, facts = told(settling(300, seed=1))
    held = held_out(model, settling(100, seed=2), facts)
    assert held is not None
    kept = np.flatnonzero(held.windows.queries.origin != 2)
    windows = replace(
        held.windows, queries=held.windows.queries.take(kept), observed_QHY=held.windows.observed_QHY[kept]
    )
    one = calibrate(
        model, replace(held, windows=windows, estimates=held.estimates.take(kept)), facts, domain="source", apart=True
    )
    assert one is not None
    first, second, third, fourth = (one.radius_LHYB[..., bins_of_length(np.array([t]))[0]] for t in range(4))
    assert (third == second).all()
    assert (first[500] > second[500]).all()
    assert (second[500] > fourth[500]).all()


def test_a_file_keeps_what_bins_are_of_and_one_without_has_those_of_shares() -> None:
    _, one = calibrated(60)
    meta, arrays = one.to_meta(), one.to_arrays()
    again = Calibration.read(meta, arrays, (HORIZON, 1))
    assert (again.by, again.radius_LHYB.shape[-1]) == ("history", len(LENGTHS) + 1)
    old = {name: array[..., :4] for name, array in arrays.items()}
    before = Calibration.read({name: value for name, value in meta.items() if name != "by"}, old, (HORIZON, 1))
    assert before.by == "share"
    for damaged in ({**meta, "by": "age"}, {**meta, "by": "share"}):
        with pytest.raises(ValueError, match=r"bins of 'age'|quantiles are"):
            Calibration.read(damaged, arrays, (HORIZON, 1))


def test_a_model_that_knows_of_noise_keeps_the_bins_of_its_parameter_share() -> None:
    mean_QHY = np.zeros((3, HORIZON, 1))
    level_QY, origin_Q = np.ones((3, 1)), np.array([0, 5, 40])
    known = Estimates(mean_QHY, mean_QHY + 1, mean_QHY + 0.8, level_QY, level_QY, mean_QHY[None], origin_Q)
    assert known.binned_by == "share"
    assert (known.bins("share") == 2).all()
    black = replace(known, share_QHY=mean_QHY + 1)
    assert black.binned_by == "history"
    assert black.bins("history")[:, 0, 0].tolist() == [10, 6, 0]
