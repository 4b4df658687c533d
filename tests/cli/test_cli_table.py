"""`costar ingest table` as a command: the example from end to end, the way back, and bad input of every kind."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli_world import REPOSITORY, TINY_COHORT, Run, run_process

from costar_cli.data.store import read_dataset
from costar_cli.errors import ExitCode
from costar_cli.files import read_header

Call = Callable[..., Run]
EXAMPLE = REPOSITORY / "examples" / "own-data"
TABLE, SCHEMA = EXAMPLE / "small.csv", EXAMPLE / "schema.toml"


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


FEW = ["--epochs", "1", "--members", "2", "--threads", "1"]


def test_the_example_from_table_to_what_if(tmp_path: Path, call: Call) -> None:
    run = call("ingest", "table", TABLE, "--schema", SCHEMA)
    assert run.code == 0, run.err
    assert run.out.startswith("wrote  costar-workspace/data.h5")
    assert "15 " in next(line for line in run.out.splitlines() if line.startswith("target/train"))
    assert "few_shot" in run.err
    for verb in (["pretrain"], ["finetune"], ["finetune", "--domain", "target"]):
        assert call(*verb, *FEW).code == 0
    run = call("evaluate", "--bootstrap", 20, "--no-plots", "--json")
    rows = run.document["result"]["rows"]
    ours = {row["setup"]: row for row in rows if row["provenance"]}
    assert set(ours) == {"zero-shot", "few-shot", "supervised"}
    assert {row["truth"] for row in rows} == {"factual"}
    touched = {setup: row["provenance"]["labelled_target_subjects"] for setup, row in ours.items()}
    assert touched == {"zero-shot": 0, "few-shot": 15 + 12, "supervised": 0}
    run = call("whatif", "--subject", "N-017", "--plan", EXAMPLE / "plan-own.json", "--csv", "whatif.csv")
    assert run.code == 0, run.err
    assert run.out.startswith(
        "Subject N-017 on day 11 (2024-02-07): glucose in mg/dL, from day 7 (2024-02-03) by model"
    )
    assert "basal-bolus" in run.out
    dates = [row["date"] for row in read_rows(tmp_path / "whatif.csv")]
    day = str(np.datetime64(dates[0]) - 3)
    run = call("whatif", "--subject", "N-017", "--plan", EXAMPLE / "plan-own.json", "--origin", day, "--plot", "w.png")
    assert run.code == 0, run.err
    assert f"({day}) by model" in run.out
    words = ["search", "--subject", "N-017", "--origin", day, "--minimise", "glucose at end", "--steps", 1]
    assert call(*words, "--json").document["result"]["subjects"][0]["date"] == day
    run = call("whatif", "--subjects", "source/test", "--plan", EXAMPLE / "plan-own.json", "--origin", "2031-01-01")
    assert (run.code, "origin 2031-01-01 is outside the series of" in run.err) == (2, True)
    wrong = call("whatif", "--subject", "N-17", "--plan", EXAMPLE / "plan-own.json")
    assert (wrong.code, "did you mean N-" in wrong.err) == (2, True)


def test_data_of_one_domain_are_never_sent_to_the_target(tmp_path: Path, call: Call) -> None:
    text = SCHEMA.read_text()
    lines = [line for line in text.partition("[split.target]")[0].splitlines() if not line.startswith("hospital")]
    rest = text.partition("[split.target]")[2].partition("\n[")
    schema = tmp_path / "schema.toml"
    schema.write_text("\n".join(lines) + (f"\n[{rest[2]}" if rest[1] else "\n"))
    run = call("ingest", "table", TABLE, "--schema", schema, "--json")
    assert run.code == 0, run.err
    assert {part["part"].split("/")[0] for part in run.document["result"]["parts"]} == {"source"}
    advised = call("finetune", "--from", "scratch", *FEW, "--json").document["next"]
    assert advised
    assert not any("target" in command for command in advised)
    report = call("evaluate", "--bootstrap", 0, "--no-plots", "--json").document["result"]
    assert {row["setup"] for row in report["rows"]} == {"supervised"}


def test_the_same_tables_are_up_to_date_and_others_are_not_replaced(tmp_path: Path, call: Call) -> None:
    table, schema = shutil.copy(TABLE, tmp_path), Path(shutil.copy(SCHEMA, tmp_path))
    words = ["ingest", "table", table, "--schema", schema]
    first = call(*words, "--json").document
    assert [part["subjects"] for part in first["result"]["parts"]] == [66, 22, 22, 15, 12, 24]
    assert set(first["inputs"]) == {"schema", "table"}
    assert call(*words, "--json").document["status"] == "up_to_date"
    assert call(*words, "--seed", 1).code == ExitCode.MISMATCH
    schema.write_text(schema.read_text().replace("horizon = 4", "horizon = 3"))
    run = call(*words)
    assert run.code == ExitCode.MISMATCH
    assert "schema.horizon: was 4, now 3" in run.err
    assert call(*words, "--overwrite").code == 0
    with Path(table).open("a") as file:
        file.write(
            "N-200,2024-01-01,north,50,f,type 2,100,,none,0,120\nN-200,2024-01-02,north,50,f,type 2,100,9,none,0,120\n"
        )
    assert call(*words).code == ExitCode.MISMATCH
    config = read_header(tmp_path / "costar-workspace" / "data.h5").meta["config"]
    assert config["schema"]["columns"]["glucose"] == {"role": "outcome", "unit": "mg/dL"}
    assert config["ingestion"]["filled"]["crp"]["missing"] > 500


def test_columns_that_no_file_has_are_told_before_a_data_set_that_exists(tmp_path: Path, call: Call) -> None:
    (tmp_path / "costar-workspace").mkdir()
    there = tmp_path / "costar-workspace" / "data.h5"
    there.write_text("mine")
    schema = tmp_path / "schema.toml"
    schema.write_text(SCHEMA.read_text().replace("crp =", "crq ="))
    run = call("ingest", "table", TABLE, "--schema", schema)
    assert (run.code, "there is no column 'crq'" in run.err, "--overwrite" in run.err) == (ExitCode.DATA, True, False)
    assert call("ingest", "table", TABLE, "--schema", SCHEMA).code == ExitCode.MISMATCH
    assert there.read_text() == "mine"


def test_outcomes_that_were_not_observed_are_no_targets_and_go_to_tables_and_back(tmp_path: Path, call: Call) -> None:
    rows = TABLE.read_text().splitlines()
    holes = [row if i % 7 or not i else row.rpartition(",")[0] + "," for i, row in enumerate(rows)]
    (tmp_path / "holes.csv").write_text("\n".join(holes) + "\n")
    schema = SCHEMA.read_text().replace('unit = "mg/dL" }', 'unit = "mg/dL", missing = "fill" }')
    (tmp_path / "schema.toml").write_text(schema)
    run = call("ingest", "table", "holes.csv", "--schema", "schema.toml")
    assert run.code == 0, run.err
    [told] = [line for line in run.err.splitlines() if "outcome 'glucose'" in line]
    assert "missing values; models see the filled-in values as inputs, but neither learn to predict" in told
    report = call("inspect", "costar-workspace/data.h5", "--report", "-", "--json").document["result"]["report"]
    assert "glucose" in [missing["variable"] for missing in report["missing"]]
    assert {round(outcome["observed"], 1) for outcome in report["outcomes"]} == {0.9}
    assert any("'glucose' was observed at 8" in finding["problem"] for finding in report["findings"])
    assert call("finetune", "--method", "ridge").code == 0
    assert call("inspect", "costar-workspace/data.h5", "--export", "tables", "--format", "csv").code == 0
    written = (tmp_path / "tables" / "table.csv").read_text().splitlines()
    column = written[0].split(",").index("glucose")
    missing = sum(not row.split(",")[column] for row in written[1:])
    assert 0 < missing <= sum(row.endswith(",") for row in holes)
    files = ["tables/table.csv", "--schema", "tables/schema.toml", "--queries", "tables/queries.csv"]
    assert call("ingest", "table", *files, "-w", "again").code == 0
    ours, theirs = (read_dataset(tmp_path / place / "data.h5") for place in ("costar-workspace", "again"))
    assert ours.schema == theirs.schema
    for part, panel in ours.panels.items():
        assert panel.outcome_observed is not None
        assert np.array_equal(panel.outcome_observed, theirs.panels[part].outcome_observed)
        assert np.allclose(panel.outcomes, theirs.panels[part].outcomes, rtol=1e-6)
        assert np.array_equal(panel.covariates, theirs.panels[part].covariates)
    asked = {part: sets["rolling_origin"] for part, sets in ours.queries.items() if sets}
    assert {str(part) for part in asked} == {"source/test", "target/test"}
    for part, queries in asked.items():
        assert np.array_equal(queries.scored, theirs.queries[part]["rolling_origin"].scored)
        assert not queries.scored.all()


def test_init_writes_a_schema_that_works_and_never_replaces_one_silently(tmp_path: Path, call: Call) -> None:
    run = call("ingest", "table", "--init", TABLE)
    assert run.code == 0, run.err
    assert f"costar ingest table {TABLE} --schema schema.toml" in run.err
    assert 'patient = { role = "subject" }' in run.out
    assert call("ingest", "table", TABLE, "--schema", "schema.toml", "--accept-guesses").code == 0
    before = Path("schema.toml").read_text()
    Path("schema.toml").write_text(f"{before}# mine\n")
    assert call("ingest", "table", "--init", TABLE).code == ExitCode.MISMATCH
    assert Path("schema.toml").read_text().endswith("# mine\n")
    document = call("ingest", "table", "--init", TABLE, "--out", "other.toml", "--json").document
    assert document["result"]["schema"] == before
    assert call("ingest", "table", "--init", TABLE, "--overwrite").code == 0
    assert Path("schema.toml").read_text() == before


def test_guesses_that_nobody_settled_are_refused_with_their_lines(tmp_path: Path, call: Call) -> None:
    assert call("ingest", "table", "--init", TABLE).code == 0
    words = ["ingest", "table", TABLE, "--schema", "schema.toml"]
    run = call(*words, "--json")
    assert run.code == ExitCode.USAGE
    error = run.document["error"]
    assert error["problem"] == "the schema has 3 unconfirmed guesses"
    assert "`--accept-guesses`" in error["fix"]
    named = [line.partition(": ")[2].partition(" =")[0] for line in error["details"]]
    assert named == ["insulin", "steroid", "glucose"]
    lines = Path("schema.toml").read_text().splitlines()
    for told in error["details"]:
        number, _, line = told.removeprefix("line ").partition(": ")
        assert lines[int(number) - 1].startswith(line.removesuffix("..."))
    assert not Path("costar-workspace/data.h5").exists()
    Path("settled.toml").write_text("\n".join(line.partition("  # CHECK: ")[0] for line in lines))
    assert call("ingest", "table", TABLE, "--schema", "settled.toml").code == 0
    assert call(*words, "--accept-guesses", "--json").document["status"] == "up_to_date"


def test_init_reads_a_file_of_statics(tmp_path: Path, call: Call) -> None:
    rows = [line.split(",") for line in TABLE.read_text("utf-8").splitlines()]
    of_subject = [rows[0].index(name) for name in ("patient", "hospital", "age", "sex")]
    wide = {row[0]: ",".join(row[i] for i in of_subject) for row in rows}
    Path("patients.csv").write_text("\n".join(wide.values()), "utf-8")
    kept = [i for i in range(len(rows[0])) if i not in of_subject[1:]]
    Path("days.csv").write_text("\n".join(",".join(row[i] for i in kept) for row in rows), "utf-8")
    run = call("ingest", "table", "days.csv", "--statics", "patients.csv", "--init")
    assert run.code == 0, run.err
    again = "costar ingest table days.csv --schema schema.toml --statics patients.csv"
    assert again in run.err
    assert "age = {" in run.out
    run = call(*again.split()[1:], "--accept-guesses", "--json")
    assert run.code == 0, run.err
    assert sum(part["subjects"] for part in run.document["result"]["parts"]) == 170


def test_init_of_a_messy_table_warns_and_does_not_suggest_to_ingest_at_once(tmp_path: Path, call: Call) -> None:
    rows = TABLE.read_text("utf-8").splitlines()
    rows[3] = rows[3].replace(rows[3].split(",")[1], "31.13.2024")
    (tmp_path / "messy.csv").write_text("\n".join(rows), "utf-8")
    run = call("ingest", "table", "--init", tmp_path / "messy.csv", "--json")
    assert run.code == 0, run.err
    assert run.document["warnings"] == run.document["result"]["doubts"]
    assert "date: 1 value is not a date ('31.13.2024'): correct it" in run.document["warnings"]
    assert run.document["next"] == []
    assert "# CHECK: 1 value is not a date" in Path("schema.toml").read_text("utf-8")


def test_a_tumour_data_set_goes_to_tables_and_back_with_the_same_evaluation(
    trained: Path, tmp_path: Path, call: Call
) -> None:
    run = call("inspect", trained / "data.h5", "--export", tmp_path / "tables", "--json")
    assert run.code == 0, run.err
    assert [Path(path).name for path in run.document["result"]["exported"]] == [
        "table.parquet",
        "schema.toml",
        "queries.parquet",
    ]
    [again] = run.document["next"]
    assert call(*again.split()[1:], "--out", tmp_path / "again.h5").code == 0
    words = ["evaluate", "-w", trained, "--bootstrap", 20, "--no-plots", "--json", "--out"]
    ours = call(*words, tmp_path / "ours.h5").document["result"]
    theirs = call(*words, tmp_path / "theirs.h5", "--data", tmp_path / "again.h5").document["result"]

    def numbers(report: dict) -> list[tuple]:
        keys = ("setup", "label", "truth", "mean", "sd", "ensemble", "interval", "per_outcome")
        scored = [row for row in report["rows"] if row["basis"] in ("ours", "naive")]
        return [tuple(json.dumps(row.get(key)) for key in keys) for row in scored]

    def limits(report: dict) -> list[str]:
        return [row["setup"] for row in report["rows"] if row["basis"] == "limit"]

    assert len(numbers(ours)) == 6  # a model and the last value carried forward in three set-ups
    assert numbers(theirs) == numbers(ours)
    assert (len(limits(ours)), limits(theirs)) == (3, [])  # a table does not say how its numbers came about
    assert (theirs["unit"], theirs["horizon"]) == (ours["unit"], ours["horizon"])


def test_models_trained_on_either_are_the_same(tmp_path: Path, call: Call) -> None:
    assert call("simulate", "tumor", *TINY_COHORT, "-w", "one").code == 0
    assert call("inspect", "one/data.h5", "--export", "tables", "--format", "csv").code == 0
    files = ["tables/table.csv", "--schema", "tables/schema.toml", "--queries", "tables/queries.csv"]
    assert call("ingest", "table", *files, "-w", "two").code == 0
    losses = []
    for workspace in ("one", "two"):
        run = call("finetune", "--from", "scratch", *FEW, "-w", workspace, "--json")
        assert run.code == 0, run.err
        losses.append(run.document["result"]["members"])
    assert losses[0] == losses[1]


def test_export_and_report_keep_what_is_there_unless_told(
    trained: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("costar_cli.report.figures.style.as_svg", lambda *_: "<svg/>")  # what is drawn is not asked
    words = ["inspect", trained / "data.h5", "--export", "tables", "--report", "report.html"]
    assert call(*words).code == 0
    assert call(*words).code == ExitCode.MISMATCH
    assert call("inspect", trained / "data.h5", "--export", "tables").code == ExitCode.MISMATCH
    assert call(*words, "--overwrite").code == 0
    assert call("inspect", trained / "model.h5", "--report", "-").code == ExitCode.USAGE
    assert call("inspect", trained / "data.h5", "--report", "nowhere/report.html").code == ExitCode.STORAGE
    Path("file").write_text("")
    assert call("inspect", trained / "data.h5", "--export", "file").code == ExitCode.STORAGE


def test_report_is_a_page_tables_or_numbers(trained: Path, call: Call) -> None:
    tables = call("inspect", trained / "data.h5", "--report", "-")
    assert tables.code == 0, tables.err
    for title in ("Subjects and lengths", "Treatments", "Outcomes", "Shift from source to target"):
        assert title in tables.out
    assert "tumour_volume" in tables.out
    report = call("inspect", trained / "data.h5", "--report", "r.html", "--json").document["result"]["report"]
    assert report["outcomes"][0]["outcome"] == "tumour_volume"
    page = Path("r.html").read_text("utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "<svg" in page


GOOD_SCHEMA = SCHEMA.read_text()
GOOD_TABLE = TABLE.read_text()


def table_with(old: str, new: str, times: int = 1) -> dict[str, str | bytes]:
    assert old in GOOD_TABLE
    return {"t.csv": GOOD_TABLE.replace(old, new, times)}


def schema_with(old: str, new: str) -> dict[str, str | bytes]:
    assert old in GOOD_SCHEMA
    return {"s.toml": GOOD_SCHEMA.replace(old, new)}


BAD: list[tuple[str, dict[str, str | bytes | None], list[str], ExitCode, str]] = [
    ("no table", {"t.csv": None}, [], ExitCode.DATA, "the file does not exist"),
    ("no schema file", {"s.toml": None}, [], ExitCode.USAGE, "--init"),
    ("empty table", {"t.csv": ""}, [], ExitCode.DATA, "the file is empty"),
    ("header alone", {"t.csv": GOOD_TABLE.splitlines()[0] + "\n"}, [], ExitCode.DATA, "no rows"),
    ("binary", {"t.csv": bytes(range(256)) * 20}, [], ExitCode.DATA, "not a CSV file"),
    ("latin-1", {"t.csv": GOOD_TABLE.replace("type 1", "typé 1").encode("latin-1")}, [], ExitCode.DATA,
     "not UTF-8 text"),
    ("another format", {"t.csv": None, "t.xls": b"PK"}, ["t.xls"], ExitCode.DATA, "a table is CSV, which may be"),
    ("parquet that is none", {"t.csv": None, "t.parquet": b"PAR1junkPAR1"}, ["t.parquet"], ExitCode.DATA,
     "cannot be read"),
    ("a field too many", table_with("north,", "north,,"), [], ExitCode.DATA, "row 1 of t.csv"),
    ("text as number", table_with(",187\n", ",high\n"), [], ExitCode.DATA, "not numeric"),
    ("decimal comma", table_with(",187\n", ',"187,5"\n'), [], ExitCode.DATA, "decimal point"),
    ("hole", table_with(",187\n", ",\n"), [], ExitCode.DATA, "1 value missing"),
    ("no date", table_with("2024-07-08", "8 July"), [], ExitCode.DATA, "not a date or time"),
    ("repeated date", table_with("2024-07-09", "2024-07-08"), [], ExitCode.DATA, "contradicts"),
    ("gap", table_with("N-001,2024-07-15", "N-001,2025-07-15"), [], ExitCode.DATA, "gap"),
    ("unknown level", table_with("basal-bolus", "basal+bolus"), [], ExitCode.DATA, "did you mean 'basal-bolus'?"),
    ("renamed column", table_with("glucose", "glucos"), [], ExitCode.DATA, "did you mean 'glucos'?"),
    ("twice the column", table_with("sex", "age"), [], ExitCode.DATA, "more than once"),
    ("age changes", table_with("55,m,type 1,140", "56,m,type 1,140"), [], ExitCode.DATA, "changes within 1 subject"),
    ("no target", schema_with('target = "south"', 'target = "west"'), [], ExitCode.DATA, "target domain"),
    ("schema is no TOML", {"s.toml": "columns = {"}, [], ExitCode.USAGE, "not TOML"),
    ("schema key", schema_with("horizon", "horison"), [], ExitCode.USAGE, "did you mean `horizon`?"),
    ("schema role", schema_with('"outcome"', '"outcomes"'), [], ExitCode.USAGE, "did you mean `outcome`?"),
    ("reserved name", schema_with("inpatient glucose", "m5"), [], ExitCode.USAGE, "choose another"),
    ("schema name with a newline", schema_with("patient =", '"pat\\nient" ='), [], ExitCode.USAGE, "one line"),
    ("no schema flag", {}, ["t.csv"], ExitCode.USAGE, "--init"),
    ("no such statics", {}, ["t.csv", "--schema", "s.toml", "--statics", "no.csv"], ExitCode.DATA, "does not exist"),
    ("no such queries", {}, ["t.csv", "--schema", "s.toml", "--queries", "no.csv"], ExitCode.DATA, "does not exist"),
    ("queries of another table", {}, ["t.csv", "--schema", "s.toml", "--queries", "t.csv"], ExitCode.DATA,
     "no column 'origin'"),
    ("init with a schema", {}, ["t.csv", "--init", "--schema", "s.toml"], ExitCode.USAGE,
     "takes only the table and `--statics`"),
    ("init of nothing", {}, ["no.csv", "--init", "--out", "x.toml"], ExitCode.DATA, "does not exist"),
    ("negative seed", {}, ["t.csv", "--schema", "s.toml", "--seed", "-1"], ExitCode.USAGE, "not a valid seed"),
    ("no folder", {}, ["t.csv", "--schema", "s.toml", "--out", "no/data.h5"], ExitCode.STORAGE, "mkdir"),
    ("a folder", {}, [".", "--schema", "s.toml"], ExitCode.DATA, "this is not a file"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "words", "code", "hint"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_input_has_an_exit_code_a_fix_and_no_traceback(
    files: dict[str, str | bytes | None], words: list[str], code: ExitCode, hint: str, call: Call
) -> None:
    for name, content in ({"t.csv": GOOD_TABLE, "s.toml": GOOD_SCHEMA} | files).items():
        if content is not None:
            Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    words = words or ["t.csv"]
    if (
        ("--schema" not in words and code != ExitCode.USAGE and "--init" not in words)
        or (words == ["t.csv"] and hint != "--init")
        or (words == ["t.csv"] and files)
    ):
        words = [*words, "--schema", "s.toml"]
    run = call("ingest", "table", *words, "--json")
    error = run.document["error"]
    assert (run.code, error["exit_code"]) == (code, code), run.err
    said = " ".join([error["problem"], error["where"] or "", error["fix"] or "", *error["details"]])
    assert hint in said, said
    assert error["fix"] or error["details"]
    assert "Traceback" not in run.err
    assert not Path("costar-workspace/data.h5").exists()


def test_bad_input_reads_well_in_a_real_process(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(GOOD_TABLE.replace(",187\n", ",high\n", 1))
    run = run_process("ingest", "table", "t.csv", "--schema", SCHEMA, cwd=tmp_path)
    assert run.code == ExitCode.DATA
    assert run.err.splitlines()[-3:] == [
        "error: column 'glucose': 1 value not numeric, first 'high'",
        "  where: first in row 162 of t.csv",
        "  fix:   give numbers, or add the text to `blank` where it means a missing value",
    ]


def test_predictions_become_a_cube_and_a_netcdf_file_as_the_page_says(tmp_path: Path, call: Call) -> None:
    pytest.importorskip("netCDF4")
    pytest.importorskip("pyarrow")
    pandas, xarray = pytest.importorskip("pandas"), pytest.importorskip("xarray")
    assert call("ingest", "table", TABLE, "--schema", SCHEMA).code == 0
    assert call("finetune", "--method", "ridge").code == 0
    assert call("evaluate", "--bootstrap", 20, "--no-plots", "--predictions", "rows.parquet").code == 0
    page = (REPOSITORY / "docs" / "cli.md").read_text(encoding="utf-8")
    recipe = page[page.index("rows = pandas.read_parquet") :].partition("```")[0]
    exec(recipe, {"pandas": pandas, "xarray": xarray})  # noqa: S102 - what the page tells readers to run
    rows = pandas.read_parquet(tmp_path / "rows.parquet")
    with xarray.open_dataset(tmp_path / "rows.nc") as cube:
        assert int(cube["estimate"].count()) == len(rows)
        first = rows.iloc[0]
        there = cube["truth"].sel({name: first[name] for name in cube["truth"].dims})
        assert float(there) == pytest.approx(first["truth"])
