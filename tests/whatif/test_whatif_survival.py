"""Survival beside estimates: in rows, documents, tables, notes and figures; the dead are not asked about (SURV-4)."""

from pathlib import Path

import numpy as np
import pytest

from costar_cli.cohort import Cohort
from costar_cli.cohort.answers import answer_cohort, tidy_columns
from costar_cli.config.models import FinetuneConfig
from costar_cli.datasets.tumor.settings import TumorConfig
from costar_cli.datasets.tumor.simulate import simulate_tumor
from costar_cli.errors import UsageError
from costar_cli.figures.whatif import plot_whatif
from costar_cli.methods.base import FittedModel
from costar_cli.panel import Dataset
from costar_cli.plans import parse_plans
from costar_cli.reporting import NullReporter
from costar_cli.whatif import WhatIfReport, estimate_outcomes, write_csv
from costar_cli.whatif.tables import survival_table
from tests.fits import fit_method, model_of

PLANS = b'{"plans": {"watch": [{}, {}, {}], "both": [{"chemotherapy": 1, "radiotherapy": 1}, {}]}}'


@pytest.fixture(scope="module")
def ends() -> tuple[Dataset, FittedModel]:
    sizes = {"train": 120, "val": 40, "test": 40, "target_train": 5, "target_val": 5, "target_test": 5}
    tumours = simulate_tumor(TumorConfig(gamma=0, steps=40, ends=True, **sizes), NullReporter())
    return tumours, model_of(fit_method(tumours, "mean", None, FinetuneConfig()))


def ask(ends: tuple[Dataset, FittedModel], *, over: bool = False, origin: int | None = None) -> WhatIfReport:
    tumours, model = ends
    panel = tumours.panel("source", "test")
    who = int(panel.subject_id[(panel.ends == 2) if over else (panel.ends == 0)][0])
    plans = parse_plans(PLANS, tumours.schema, horizon=6)
    return estimate_outcomes(tumours, {"mean": model}, plans, subject=who, origin=origin)


def test_rows_and_documents_have_survival_and_each_of_several_ends(
    ends: tuple[Dataset, FittedModel], tmp_path: Path
) -> None:
    report = ask(ends)
    rows = report.to_rows()
    assert report.columns[-3:] == ("survival", "ended_death", "ended_recovery")
    watch = [row for row in rows if row["plan"] == "watch"]
    values = np.array([[row[name] for name in report.ends] for row in watch], dtype=float)
    np.testing.assert_allclose(values.sum(axis=1), 1)
    assert (np.diff(values[:, 0]) <= 0).all()
    of_model = report.to_json()["models"]["mean"]["survival"]  # type: ignore[index]
    assert of_model["watch"]["survival"] == values[:, 0].tolist()
    assert len(of_model["both"]["ended_recovery"]) == 2
    apart = report.difference_rows()[0]
    assert apart["survival"] == pytest.approx(rows[3]["survival"] - rows[0]["survival"])  # type: ignore[operator]
    write_csv(tmp_path / "a.csv", report)
    assert "survival,ended_death,ended_recovery" in (tmp_path / "a.csv").read_text().splitlines()[0]


def test_tables_notes_and_figures_say_it(ends: tuple[Dataset, FittedModel], tmp_path: Path) -> None:
    report = ask(ends)
    headers, lines = survival_table(report, report.models[0])
    assert headers == ["day", "watch", "both"]
    assert [line[2] is None for line in lines] == [False, False, True]
    assert all("% (death " in str(line[1]) for line in lines)
    assert any("those of a subject whose series goes on" in note for note in report.notes)
    assert any("ended by death (0)" in note for note in report.notes)
    plot_whatif(report, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_nobody_whose_series_has_ended_is_asked_about(ends: tuple[Dataset, FittedModel]) -> None:
    with pytest.raises(UsageError, match=r"the series of subject \d+ ended on day \d+: recovery"):
        ask(ends, over=True)
    assert ask(ends, over=True, origin=1).models[0].goes_on is not None


def test_cohorts_leave_ended_series_out_and_have_survival(ends: tuple[Dataset, FittedModel]) -> None:
    tumours, model = ends
    panel, terminal = tumours.panel("source", "test"), tumours.schema.terminal
    cohort = Cohort.of(panel, panel.names, terminal=terminal)
    np.testing.assert_array_equal(cohort.subject_M, np.flatnonzero(panel.ends == 0))
    plans = parse_plans(PLANS, tumours.schema, horizon=6)
    columns = tidy_columns(next(answer_cohort("mean", model, cohort, plans)))
    assert ((columns["survival"] >= 0) & (columns["survival"] <= 1)).all()
    np.testing.assert_allclose(columns["survival"] + columns["ended_death"] + columns["ended_recovery"], 1)
    everywhere = Cohort.of(panel, panel.names, origin="all", terminal=terminal)
    assert len(everywhere) == panel.length.sum() - (panel.ends > 0).sum()
    over = panel.take(panel.ends == 2)
    with pytest.raises(UsageError, match="has ended at the origin"):
        Cohort.of(over, over.names, terminal=terminal)
