import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from costar_cli.cli.benchmarking import figures
from costar_cli.cli.benchmarking.export import (
    cells_csv,
    comparisons_csv,
    results_csv,
    show_report,
    to_latex,
    to_markdown,
)
from costar_cli.cli.benchmarking.figures import plot_differences, plot_horizons
from costar_cli.cli.benchmarking.report import measure_model
from costar_cli.evaluation.rows import Provenance
from costar_cli.methods.registry import REFERENCE
from costar_cli.reporting.output import Output
from tests.evaluate.benchmark_worlds import constant_errors, noisy_errors, report, score, tables

STEPS = range(1, 7)
SIZES = {"costar": 1.0, "msm": 1.5}


def scores(**changes):
    ramp = 0.1 * np.arange(6)
    made = {"costar": 1.0, "crn-erm": 2.0, "msm": 3.0}
    return [score(name, constant_errors(value + ramp + [[0.0], [0.1]]), **changes) for name, value in made.items()]


@pytest.fixture
def made():
    return report(tables(scores()))


def read(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_the_csv_has_the_columns_of_the_papers_tables_and_parses_back(made):
    rows = read(results_csv(made))
    ours = {row["method"]: row for row in rows if row["basis"] == "ours"}
    assert list(ours) == ["MSM", "CRN(ERM)", "COSTAR"]
    assert {f"tau{tau}_mean" for tau in STEPS} | {f"tau{tau}_std" for tau in STEPS} < set(rows[0])
    assert {"dataset", "method", "avg", "avg_std", "gain"} < set(rows[0])
    assert float(ours["COSTAR"]["tau1_mean"]) == pytest.approx(1.05)
    assert float(ours["COSTAR"]["avg"]) == pytest.approx(1.3)
    assert ours["COSTAR"]["gain"] == ""
    assert float(ours["MSM"]["gain"]) == pytest.approx(100 * 2 / 3.3)
    published = [row for row in rows if row["basis"] != "ours"]
    assert {row["basis"] for row in published} == {"published, different protocol"}
    assert {row["method"] for row in published} == set(ours)


def test_csv_holds_steps_beyond_those_that_tables_show():
    long = [score(REFERENCE, constant_errors(np.arange(1.0, 12.0)))]
    (row,) = read(results_csv(report(tables(long, horizon=11, name="other"), horizon=11)))
    assert float(row["tau11_mean"]) == 11
    assert float(row["avg"]) == 3.5
    (printed,) = [line for line in to_markdown(report(tables(long, horizon=11))).splitlines() if "| COSTAR |" in line]
    assert "11.0" not in printed
    assert row["averaged_steps"] == "6"
    assert "Avg: over τ = 1..6 of 11" in to_markdown(report(tables(long, horizon=11, name="other"), horizon=11))


def test_one_data_set_says_that_deviations_are_over_members_alone(made):
    assert "± sd over the members of 2 data sets; data set seeds 10, 11" in to_markdown(made)
    one = replace(made, seeds=(10,))
    for text in (to_markdown(one), to_latex(one)):
        assert "all trained on one data set" in text


def test_comparisons_and_costs_parse_back(made):
    compared = read(comparisons_csv(made))
    assert [row["name"] for row in compared] == ["msm", "crn-erm"]
    assert float(compared[0]["avg_difference"]) == pytest.approx(2.0)
    assert float(compared[0]["tau6_upper"]) == pytest.approx(2.0)
    costs = read(cells_csv(made))
    assert (costs[0]["wall_s"], costs[0]["stages"], costs[0]["parameters"]) == ("12.5", "finetune: 8; more: 3", "20657")
    assert costs[1]["wall_s"] == ""


def test_every_form_says_why_few_clusters_are_not_tested(tmp_path, capsys, monkeypatch):
    clustered = replace(noisy_errors(1.0, horizon=6), cluster=np.arange(60) // 20)
    worse = replace(noisy_errors(1.5, horizon=6), cluster=clustered.cluster)
    few = report(tables([score("costar", clustered), score("msm", worse)]))
    why = "3 clusters, 20 are needed"
    (row,) = read(comparisons_csv(few))
    assert (row["untested"], row["p_value"], row["p_holm"], row["avg_lower"]) == (why, "", "", "")
    assert float(row["avg_difference"]) > 0
    caution = f"no interval and no p-value on target/test: {why}"
    markdown = to_markdown(few).splitlines()
    assert f"**Not tested**: {caution}." in markdown
    assert any(line.startswith("| MSM | 0.") and f"| {why} |  |  | 100% |" in line for line in markdown)
    assert f"Differences between rows are not tested: {caution}." in to_latex(few)
    assert few.to_json()["warnings"] == [caution]
    assert few.to_json()["tables"][0]["comparisons"][0]["untested"] == why
    out = Output("benchmark")
    show_report(out, few)
    shown = capsys.readouterr()
    assert f"not tested: {caution}" in shown.out
    assert out.warnings == [caution]
    assert plot_differences(few, tmp_path / "differences.png").exists()
    written = footnotes(few, monkeypatch, tmp_path)
    assert {name: caution in lines for name, lines in written.items()} == {"horizons": True, "differences": True}


def footnotes(made, monkeypatch, folder):
    """What stands below each figure."""
    written = {"horizons": [], "differences": []}
    for draw, name in ((plot_horizons, "horizons"), (plot_differences, "differences")):
        monkeypatch.setattr(figures, "caption", lambda _, *sentences, name=name: written[name].extend(sentences))
        draw(made, folder / f"{name}.png")
    return written


def test_every_form_says_how_far_to_trust_tests_of_few_subjects(tmp_path, capsys, monkeypatch):
    few = report(tables([score("costar", noisy_errors(1.0, horizon=6)), score("msm", noisy_errors(1.5, horizon=6))]))
    why = "only 60 subjects: such tests find false differences in up to 10 % of cases instead of 5 %"
    (row,) = read(comparisons_csv(few))
    assert (row["caution"], row["untested"]) == (why, "")
    assert row["p_value"] != ""
    caution = f"intervals and p-values on target/test: {why}"
    assert f"**Caution**: {caution}." in to_markdown(few).splitlines()
    assert f"Caution: {caution}.".replace("%", r"\%") in to_latex(few)
    assert few.to_json()["warnings"] == [caution]
    assert few.to_json()["tables"][0]["comparisons"][0]["caution"] == why
    out = Output("benchmark")
    show_report(out, few)
    assert f"caution: {caution}" in capsys.readouterr().out
    assert out.warnings == [caution]
    assert all(caution in lines for lines in footnotes(few, monkeypatch, tmp_path).values())


def test_the_figure_by_horizon_marks_rows_that_were_stopped_by_budget(made, tmp_path, monkeypatch):
    table = made.tables[0]
    marked = replace(table, rows=tuple(replace(row, stopped_by_budget=row.name == "crn-erm") for row in table.rows))
    said = replace(made, tables=(marked,))
    assert any(
        line.startswith("† training limit reached") for line in footnotes(said, monkeypatch, tmp_path)["horizons"]
    )
    labels = []
    monkeypatch.setattr(figures, "save", lambda drawn, path: labels.extend(t.get_text() for t in drawn.axes[0].texts))
    plot_horizons(said, tmp_path / "horizons.png")
    assert {"CRN(ERM) †", "COSTAR"} <= set(labels)


def test_a_closed_form_is_neither_stopped_nor_not(capsys):
    made = report(tables([with_budget(name, method) for name, method in (("costar", "costar"), ("msm", "msm"))]))
    found = {row["name"]: row["stopped_by_budget"] for row in read(results_csv(made)) if row["basis"] == "ours"}
    assert found == {"costar": "False", "msm": ""}


def with_budget(name, method):
    """A score whose model says of itself that no budget stopped it, as older versions said of closed forms, too."""
    scored = score(name, constant_errors(np.ones((2, 6))))
    provenance = Provenance(method, "x", "source", {}, 0, "m" * 64, "d" * 64, None, stopped_by_budget=False)
    return replace(scored, row=replace(scored.row, provenance=provenance))


def test_updates_that_learn_no_outcomes_stand_apart_in_every_form(made, capsys):
    meta = {"stages": [stage("rmsn numerator propensity", 320), stage("rmsn denominator propensity", 320),
                       stage("rmsn encoder", 320), stage("rmsn decoder", 320)]}  # fmt: skip
    sizes = {
        "model": measure_model({"arrays": [], "meta": meta | {"history": {}}}),
        "encoder": measure_model({"arrays": [], "meta": {"stages": [stage("pretrain", 480)], "history": {}}}),
    }
    assert [(size["outcome_updates"], size["other_updates"]) for size in sizes.values()] == [(640, 640), (0, 480)]
    costs = [replace(made.costs[0], role=role, **size) for role, size in sizes.items()]
    said = replace(made, costs=tuple(costs))
    cells = [(cell["outcome_updates"], cell["other_updates"], cell["updates"]) for cell in read(cells_csv(said))]
    assert cells == [("640.0", "640.0", "1280.0"), ("0", "480.0", "480.0")]
    assert [(c["outcome_updates"], c["other_updates"]) for c in said.to_json()["costs"]] == [(640, 640), (0, 480)]
    markdown = to_markdown(said)
    assert "| 640 + 640 |" in markdown
    assert "| 0 + 480 |" in markdown
    note = "pdates after the plus sign: stages that do not learn outcomes (pretraining, propensity networks)"
    assert f"U{note}." in markdown
    show_report(Output("benchmark"), said)
    shown = capsys.readouterr().out
    assert "640 + 640" in shown
    assert f"u{note}" in shown


def stage(name, steps):
    return {"name": name, "steps": [steps, steps], "ended_by": ["patience"] * 2, "history": {"train_loss": [[1.0]]}}


def test_gain_is_explained_in_every_form_of_a_table(made, capsys):
    show_report(Output("benchmark"), made)
    said = "Gain: percentage by which COSTAR's Avg is lower, relative to the larger of the two (within ±100 %)"
    assert said in capsys.readouterr().out
    assert said in to_markdown(made)


def test_without_costar_there_is_no_gain_in_any_form_of_a_table(capsys):
    alone = [one for one in scores() if one.method.name != REFERENCE]
    made = report(tables(alone, name="other"))
    show_report(Output("benchmark"), made)
    assert "Gain" not in capsys.readouterr().out + to_markdown(made) + to_latex(made)


def test_enough_subjects_are_tested_without_a_caution():
    enough = tables([score(name, noisy_errors(size, horizon=6, subjects=100)) for name, size in SIZES.items()])
    made = report(enough)
    assert made.to_json()["warnings"] == []
    assert "Caution" not in to_markdown(made) + to_latex(made)
    assert "ot tested" not in to_markdown(made) + to_latex(made)


def test_rows_and_cells_that_were_stopped_by_budget_are_marked_in_every_form(made):
    table = made.tables[0]
    marked = replace(table, rows=tuple(replace(row, stopped_by_budget=row.name == "msm" or None) for row in table.rows))
    cost = replace(
        made.costs[0],
        updates=640.0,
        stage_updates={"finetune": 600.0, "more": 40.0},
        stopped_by_budget=True,
        outcome_updates=640.0,
        other_updates=0.0,
    )
    said = replace(made, tables=(marked,), costs=(cost,))
    assert [row["method"] for row in read(results_csv(said)) if row["stopped_by_budget"] == "True"] == ["MSM"]
    (cell,) = read(cells_csv(said))
    assert (cell["updates"], cell["stopped_by_budget"]) == ("640.0", "True")
    assert cell["stage_updates"] == "finetune: 600; more: 40"
    markdown, latex = to_markdown(said), to_latex(said)
    assert "| MSM † |" in markdown
    assert "| CRN(ERM) |" in markdown
    assert "640 † |" in markdown
    assert markdown.count("† training limit reached: ") == 2
    by_design = "preset quick trains on a fixed budget by design: its rows compare methods after equal outcome updates"
    assert markdown.count(by_design) == 2
    assert latex.count(by_design) == 1
    assert "by design" not in to_markdown(replace(said, preset="paper"))
    assert r"MSM$^{\dagger}$ & " in latex
    assert latex.count(r"$^{\dagger}$: training limit reached") == 1
    assert r"\dagger" not in to_latex(made)
    document = said.to_json()
    assert [row["stopped_by_budget"] for row in document["tables"][0]["rows"]] == [True, None, None]
    assert document["costs"][0]["stopped_by_budget"] is True


def test_markdown_marks_the_best_bold_and_the_second_underlined_in_each_block(made):
    lines = to_markdown(made).splitlines()
    ours = [line for line in lines if line.startswith(("| MSM |", "| CRN(ERM) |", "| COSTAR |"))]
    assert "| **1.0500±0.0707** |" in ours[2]
    assert "| <u>2.0500±0.0707</u> |" in ours[1]
    assert "**" not in ours[0] + ours[1]
    (published,) = [line for line in lines if line.startswith("| COSTAR (published, different protocol) |")]
    assert "**0.9027±" in published
    assert "| 20,657 |" in next(line for line in lines if line.startswith("| COSTAR, source, seed 10 |"))
    assert "| CRN, source, seed 10 |  |  |  |  |  |  |  |" in lines
    assert "- CT, source, seed 10: the loss \\| is not finite" in lines
    widths = {line.count("|") for line in lines if line.startswith("| CO") and "±" in line}
    assert len(widths) == 1


def test_latex_is_laid_out_as_the_papers_and_escapes_units(made):
    text = to_latex(made)
    assert r"\textbf{1.0500$\pm$0.0707}" in text
    assert r"\underline{2.0500$\pm$0.0707}" in text
    assert r"(\% of V\_max)" in text
    assert r"$\tau=6$ & Avg & Ensemble & Gain \\" in text
    assert r"& (-) \\" in text
    assert r"60.6\% \\" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    rows = [line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert {line.count("&") for line in rows} == {9}
    assert text.startswith("% \\usepackage{booktabs}\n")
    assert (
        r"Avg: over $\tau=1..6$. Gain: percentage by which COSTAR's Avg is lower, relative to the larger of the two"
        in text
    )
    assert r"(within $\pm$100 \%)" in text
    content = text.split("\n", 1)[1]
    assert content.replace(r"\%", "").count("%") == 0  # or LaTeX would read the rest of the line as a comment
    assert content.count("{") == content.count("}")
    assert content.replace(r"\$", "").count("$") % 2 == 0


def test_the_json_document_has_everything_and_no_number_that_is_not_finite(made):
    broken = replace(made, costs=(replace(made.costs[0], wall_s=float("nan")),))
    document = json.loads(json.dumps(broken.to_json(), allow_nan=False))
    assert document["costs"][0]["wall_s"] is None
    table = document["tables"][0]
    assert (table["kind"], table["setup"], table["truth"]) == ("methods", "zero-shot", "counterfactual")
    assert table["rows"][-1]["mean"]["average"] == pytest.approx(1.3)
    assert table["comparisons"][0]["difference"]["average"] == pytest.approx(2.0)
    assert document["averaged_steps"] == 6
    assert "Holm" in document["test"]
    assert document["failures"][0]["error"]["problem"].startswith("the loss")


def test_empty_reports_are_said_to_be_empty():
    empty = report([], unit="")
    assert results_csv(empty) == comparisons_csv(empty) == "\n"
    assert "## Failures" in to_markdown(empty)
    assert to_latex(empty) == ""


def test_figures_are_drawn_whatever_is_there(tmp_path):
    names = ["costar", "msm", "rmsn", "crn", "crn-erm", "ct", "ct-erm", "gnet", "edct", "ridge", "ssl-none"]
    several = [
        score(name, noisy_errors(1.0 + 0.1 * i, horizon=6, seed=i), setup=setup)
        for i, name in enumerate(names)
        for setup in ("zero-shot", "supervised")
    ]
    full = report(tables(several))
    paths = [plot_horizons(full, tmp_path / "horizons.png"), plot_differences(full, tmp_path / "differences.png")]
    alone = report(tables([score("msm", constant_errors(np.arange(1.0, 7.0)))]))
    paths.append(plot_horizons(alone, tmp_path / "alone.png"))
    assert plot_differences(alone, tmp_path / "none.png") is None
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.png", "differences.png", "horizons.png"]


def test_the_error_of_ensembles_stands_beside_that_of_their_members(made, capsys):
    (row,) = (row for row in read(results_csv(made)) if row["method"] == "COSTAR" and row["basis"] == "ours")
    scored = next(s for s in scores() if s.method.name == REFERENCE)
    expected = scored.errors.ensemble_rmse().mean()
    assert float(row["avg_ensemble"]) == pytest.approx(expected)
    show_report(Output("benchmark"), made)
    for text in (to_markdown(made), to_latex(made), capsys.readouterr().out):
        assert "Ensemble" in text
    (printed,) = [line for line in to_markdown(made).splitlines() if line.startswith("| COSTAR |") and "±" in line][:1]
    assert f"| {expected:.4f} |" in printed


def test_tables_of_single_members_speak_of_no_ensemble(capsys):
    single = report(tables([score(name, constant_errors(value + np.zeros(6))) for name, value in SIZES.items()]))
    show_report(Output("benchmark"), single)
    for text in (to_markdown(single), to_latex(single), capsys.readouterr().out):
        assert "Ensemble" not in text
