"""Records in NONMEM's layout become rows of steps or visits: what each item of a record does, and what is refused."""

from pathlib import Path
from textwrap import dedent

import numpy as np
import polars as pl
import pytest

from costar_cli import ingest, simulate
from costar_cli.data import Dataset
from costar_cli.data.nonmem.settings import NonmemConfig, pairs
from costar_cli.data.nonmem.table import carried, delivered, nonmem_table
from costar_cli.errors import DataError, MismatchError, UsageError
from costar_cli.reporting import NullReporter


@pytest.fixture
def table(tmp_path: Path, reporter: NullReporter):
    """Return a function that makes the table of records as a text, and its schema; settings are keywords."""

    def make(text: str, *, name: str = "trial.csv", **settings: object):
        path = tmp_path / name
        path.write_text(dedent(text).strip() + "\n", "utf-8")
        return nonmem_table(NonmemConfig(**settings), path, reporter)

    return make


def rows(frame: pl.DataFrame, *columns: str) -> list[tuple[object, ...]]:
    return frame.select(columns).rows()


def refused(make, text: str, **settings: object) -> str:
    with pytest.raises(DataError) as error:
        make(text, **settings)
    return "\n".join(filter(None, [str(error.value), error.value.where, error.value.fix, *error.value.details]))


PLAIN = """
    ID,TIME,DV,AMT,EVID,MDV,WT
    1,0,.,100,1,1,70
    1,0,0.2,.,0,0,70
    1,1.5,6.1,.,0,0,70
    1,8,9,.,0,1,70
    1,12,.,50,1,1,70
    1,13,4.4,.,0,0,70
    2,0,1.0,.,0,0,55
    2,2,.,80,1,1,55
    2,5,3.3,.,0,0,55
"""


def test_each_record_is_a_visit_and_what_was_measured_at_a_dose_was_measured_before_it(table) -> None:
    frame, schema = table(PLAIN)
    assert rows(frame, "ID", "TIME", "DV", "AMT") == [
        ("1", 0.0, 0.2, 100.0), ("1", 1.5, 6.1, 0.0), ("1", 12.0, None, 50.0), ("1", 13.0, 4.4, 0.0),
        ("2", 0.0, 1.0, 0.0), ("2", 2.0, None, 80.0), ("2", 5.0, 3.3, 0.0),
    ]  # fmt: skip
    assert schema.time.gaps == "elapsed"
    assert schema.time.unit == "hour"
    assert schema.columns["WT"].role == "static"
    assert schema.columns["AMT"].is_dose


def test_steps_have_what_was_given_in_them_and_count_values_after_a_dose(table, reporter) -> None:
    frame, schema = table(PLAIN, step=6.0)
    assert rows(frame.filter(pl.col("ID") == "1"), "TIME", "DV", "AMT") == [
        (0.0, 0.2, 100.0), (6.0, None, 0.0), (12.0, 4.4, 50.0)
    ]  # fmt: skip
    assert schema.time.step == 6.0
    assert schema.time.unit == "6 hours"
    told = reporter.warnings
    assert any("1 of 3 values were measured after a dose of the same step" in text for text in told)
    assert any("2 values of the same step as another" in text for text in told)


def test_doses_at_once_and_infusions_are_what_overlaps_each_step() -> None:
    at = np.array([0.0, 10.0, 20.0])
    until = np.array([10.0, 20.0, 30.0])
    given = delivered(np.array([10.0, 4.0, 18.0]), np.array([7.0, 60.0, 5.0]), np.array([0.0, 12.0, 1.0]), at, until)
    assert given.tolist() == [30.0, 7.0 + 30.0 + 5.0, 0.0]


def test_infusions_by_rate_by_duration_and_by_both(table, reporter) -> None:
    head = "ID,TIME,DV,AMT,RATE,TINF\n"
    body = "1,0,1,.,.,.\n1,0,.,100,10,.\n1,5,.,40,.,8\n1,5,2,.,.,.\n1,10,3,.,.,.\n1,20,4,.,.,.\n"
    frame, _ = table(head + body)
    assert rows(frame, "TIME", "DV", "AMT") == [(0, 1, 50), (5, 2, 50 + 25), (10, 3, 15), (20, 4, 0)]
    assert not reporter.warnings
    assert "at odds with AMT" in refused(table, head + body.replace("1,0,.,100,10,.", "1,0,.,100,10,5"))


def test_modelled_rates_count_as_given_at_once(table, reporter) -> None:
    frame, _ = table("ID,TIME,DV,AMT,RATE\n1,0,.,100,-2\n1,3,2,.,.\n1,4,.,10,-1\n1,5,2,0,0\n")
    assert frame["AMT"].to_list() == [100, 0, 10, 0]
    assert reporter.warnings == [
        "2 doses whose rate or duration a model was to estimate (RATE -1, -2): each counts as given at once"
    ]


def test_addl_repeats_a_dose_up_to_the_last_record(table) -> None:
    text = "ID,TIME,DV,AMT,ADDL,II\n1,0,.,10,5,12\n1,24,3,.,.,.\n1,30,2.5,.,.,.\n"
    frame, _ = table(text)
    assert rows(frame, "TIME", "DV", "AMT") == [(0, None, 10), (12, None, 10), (24, 3, 10), (30, 2.5, 0)]
    frame, _ = table(text, step=24.0)
    assert rows(frame, "TIME", "AMT") == [(0, 20), (24, 10)]


def test_steady_states_are_refused_or_stand_for_earlier_doses(table, reporter) -> None:
    text = "ID,TIME,DV,AMT,SS,II,WT\n1,0,.,10,1,12,70\n1,6,3,0,0,0,70\n1,48,.,20,1,8,72\n1,50,4,0,0,0,72\n"
    told = refused(table, text)
    assert "2 values that stand for doses which no row gives" in told
    assert "--steady-state 5" in told
    frame, schema = table(text, steady_state=2)
    assert rows(frame, "ID", "TIME", "DV", "AMT", "WT") == [
        ("1", -24, None, 10, 70), ("1", -12, None, 10, 70), ("1", 0, None, 10, 70), ("1", 6, 3, 0, 70),
        ("1:2", 32, None, 20, 72), ("1:2", 40, None, 20, 72), ("1:2", 48, None, 20, 72), ("1:2", 50, 4, 0, 72),
    ]  # fmt: skip
    assert schema.columns["subject"].role == "cluster"
    assert set(frame["subject"]) == {"1"}
    assert reporter.warnings == ["2 doses at steady state: 2 earlier ones, which no row gives, stand before each"]
    added, _ = table(text.replace("20,1,8", "20,2,8"), steady_state=1)  # SS 2 adds to what is there
    assert rows(added, "ID", "TIME", "AMT")[3:] == [("1", 40, 20), ("1", 48, 20), ("1", 50, 0)]


def test_resets_begin_a_series_of_the_same_subject(table) -> None:
    text = "ID,TIME,DV,AMT,EVID\n7,0,.,10,1\n7,4,3,0,0\n7,0,.,20,4\n7,4,5,0,0\n7,9,.,0,3\n7,9,.,30,1\n7,12,6,0,0\n"
    frame, _ = table(text)
    assert rows(frame, "ID", "TIME", "DV", "AMT") == [
        ("7", 0, None, 10), ("7", 4, 3, 0), ("7:2", 0, None, 20), ("7:2", 4, 5, 0), ("7:3", 9, None, 30),
        ("7:3", 12, 6, 0),
    ]  # fmt: skip


def test_older_codes_of_nlmixr2_are_doses_and_infusions_that_end(table) -> None:
    frame, _ = table("ID,TIME,AMT,DV,EVID\n1,0,20,.,10101\n1,0,0,8,0\n1,3,-20,.,10101\n1,6,5,.,101\n1,9,0,3,0\n")
    assert rows(frame, "TIME", "DV", "AMT") == [(0, 8, 60), (6, None, 5), (9, 3, 0)]
    told = refused(table, "ID,TIME,AMT,DV,EVID\n1,0,20,.,10101\n1,0,0,8,0\n1,3,-10,.,10101\n1,6,5,.,7\n")
    assert "never ends" in told
    assert "without a start" in told
    assert "other than 0 to 4" in told


def test_several_outcomes_by_dvid_and_several_doses_by_cmt(table, reporter) -> None:
    text = """
        id,time,amt,dv,dvid,cmt,evid
        1,0,.,0.5,cp,2,0
        1,0,.,90,pca,3,0
        1,0,100,.,.,1,1
        1,4,.,6.5,cp,2,0
        1,4,.,7.5,cp,2,0
        1,6,5,.,.,2,1
        1,8,.,40,pca,3,0
    """
    frame, schema = table(text, doses="oral=1 iv=2")
    assert rows(frame, "time", "cp", "pca", "oral", "iv") == [
        (0, 0.5, 90, 100, 0), (4, 6.5, None, 0, 0), (6, None, None, 0, 5), (8, None, 40, 0, 0)
    ]  # fmt: skip
    assert schema.named("outcome") == ["cp", "pca"]
    assert schema.doses == ["oral", "iv"]
    assert reporter.warnings == ["1 value of the same time as another: the first counts"]
    frame, schema = table(text, outcomes="conc=cp")  # one of the two, by another name
    assert schema.named("outcome") == ["conc"]
    assert schema.doses == ["amt_1", "amt_2"]
    told = refused(table, text, outcomes="conc=cpp", doses="oral=3")
    assert "none of the outcomes has the code 'cpp'" in told
    assert "did you mean 'cp'?" in told
    assert "none of the doses has the code '3'" in told
    by_compartment, _ = table("ID,TIME,AMT,DV,CMT\n1,0,9,.,1\n1,1,.,5,2\n1,1,.,50,3\n")
    assert {"DV_2", "DV_3"} < set(by_compartment.columns)


CENSORED = """
    ID,TIME,DV,AMT,CENS,LIMIT
    1,0,.,100,0,.
    1,1,9,.,0,.
    1,2,1,.,1,0.5
    1,3,1,.,1,.
    1,4,20,.,-1,.
"""


def test_values_beyond_a_limit_are_refused_or_become_what_is_asked(table, reporter) -> None:
    told = refused(table, CENSORED)
    assert "3 values beyond a limit: methods learn from values, not from limits" in told
    assert "--below half" in told
    for below, values in {
        "half": [None, 9, 0.75, 0.5, 20], "limit": [None, 9, 1, 1, 20], "missing": [None, 9, None, None, None]
    }.items():  # fmt: skip
        frame, _ = table(CENSORED, below=below)
        known = [value for value in values if value is not None] if below == "missing" else values
        made = frame["DV"].drop_nulls().to_list() if below == "missing" else frame["DV"].to_list()
        assert made == known
        assert reporter.warnings[-1].startswith("3 values beyond a limit")


def test_flags_of_adppk_and_their_limits_are_read(table) -> None:
    text = """
        STUDYID,USUBJID,AFRLT,NFRLT,DV,AMT,EVID,MDV,BLQFL,ALLOQ,WTBL
        S1,S1-001,0,0,.,54,1,1,N,0.01,70
        S1,S1-001,0.5,0.5,8.2,.,0,0,N,0.01,70
        S1,S1-001,30.2,30,.,.,0,0,Y,0.01,70
    """
    frame, schema = table(text, below="half")
    assert rows(frame, "USUBJID", "AFRLT", "DV", "AMT") == [
        ("S1-001", 0, None, 54), ("S1-001", 0.5, 8.2, 0), ("S1-001", 30.2, 0.005, 0)
    ]  # fmt: skip
    assert schema.named("static") == ["WTBL"]


def test_values_below_a_limit_that_are_marked_as_missing_are_no_less_below_it(table, reporter) -> None:
    text = """
        ID,TIME,DV,AMT,EVID,MDV,BLQ,LLOQ
        1,0,.,54,1,1,0,0.5
        1,1,8.2,.,0,0,0,0.5
        1,2,0,.,0,1,1,0.5
        1,3,.,.,0,1,1,0.5
        1,4,7,.,0,1,0,0.5
    """
    assert "'BLQ': 2 values beyond a limit" in refused(table, text)
    frame, _ = table(text, below="half", covariates="none")
    assert rows(frame, "TIME", "DV") == [(0, None), (1, 8.2), (2, 0.25), (3, 0.25)]
    assert reporter.warnings[-1].startswith("2 values beyond a limit stand at half of it")
    frame, _ = table(text, below="missing", covariates="none")
    assert rows(frame, "TIME", "DV") == [(0, None), (1, 8.2)]
    assert reporter.warnings[-1].startswith("2 values beyond a limit count as not measured")
    without = text.replace("LLOQ", "OTHER")  # the DV of 0 of such a row is no limit
    assert "'DV': 2 values without their limit" in refused(table, without, below="half")
    assert rows(table(without, below="missing", covariates="none")[0], "TIME", "DV") == [(0, None), (1, 8.2)]


@pytest.mark.parametrize("name", ["TINF", "DUR"])
def test_columns_of_monolix_are_outcomes_doses_and_infusions(table, reporter, name: str) -> None:
    text = f"""
        ID;TIME;Y;YTYPE;AMT;ADM;{name};WT
        1;0;.;.;100;1;.;70
        1;2;6.5;1;.;.;.;70
        1;2;90;2;.;.;.;70
        1;4;.;.;60;2;3;70
        1;5;4.5;1;.;.;.;70
        1;8;40;2;.;.;.;70
    """
    frame, schema = table(text)
    assert rows(frame, "TIME", "Y_1", "Y_2", "AMT_1", "AMT_2") == [
        (0, None, None, 100, 0), (2, 6.5, 90, 0, 0), (4, None, None, 0, 20), (5, 4.5, None, 0, 40),
        (8, None, 40, 0, 0),
    ]  # fmt: skip
    assert schema.named("outcome") == ["Y_1", "Y_2"]
    assert schema.doses == ["AMT_1", "AMT_2"]
    assert schema.named("static") == ["WT"]
    assert not reporter.warnings
    named, _ = table(text, outcomes="cp=1 pca=2", doses="oral=1 iv=2")
    assert named.columns == ["ID", "TIME", "cp", "pca", "oral", "iv", "WT"]


COVARIATES = """
    ID,TIME,DV,AMT,EVID,CRCL,SEX,TAD,SAME,RACE,FA1
    1,0,1,.,0,90,m,.,0,2,0
    1,0,.,5,1,90,m,0,.,2,1
    1,4,.,.,2,60,m,4,.,2,0
    1,6,2,.,0,.,m,6,0.693147,2,0
    1,8,4,.,0,50,m,8,1.386294,2,0
    1,9,8,.,0,50,m,9,2.079442,2,0
    1,10,16,.,0,50,m,10,2.772589,2,0
"""


def test_covariates_carry_forward_or_as_in_nonmem_backward(table, reporter) -> None:
    frame, schema = table(COVARIATES)
    assert rows(frame, "TIME", "CRCL")[:4] == [(0, 90), (4, 60), (6, 60), (8, 50)]
    roles = {name: column.role for name, column in schema.columns.items()}
    assert roles["CRCL"] == "covariate"
    assert roles["SEX"] == roles["RACE"] == "static"
    assert "TAD" not in roles
    assert "LNDV" not in roles
    assert schema.columns["SEX"].kind == "categorical"
    assert schema.columns["RACE"].kind == "continuous"
    assert not reporter.warnings
    frame, _ = table(COVARIATES, carry="backward", step=5.0)
    assert rows(frame, "TIME", "CRCL") == [(0, 90), (5, 50), (10, 50)]
    assert any("counts before it was measured" in text for text in reporter.warnings)
    frame, _ = table(COVARIATES, step=5.0)
    assert rows(frame, "TIME", "CRCL") == [(0, 90), (5, 60), (10, 50)]


def test_covariates_are_chosen_and_their_numbers_can_be_names(table) -> None:
    _, schema = table(COVARIATES, covariates="crcl,race", categorical="RACE")
    assert schema.named("covariate", "static") == ["CRCL", "RACE"]
    assert schema.columns["RACE"].kind == "categorical"
    assert not table(COVARIATES, covariates="none")[1].named("covariate", "static")
    assert "no column 'CRCLE'" in refused(table, COVARIATES, covariates="CRCLE")


def test_a_covariate_before_its_first_value_is_missing() -> None:
    values, when = pl.Series([None, 3.0, None]), np.array([0.0, 2.0, 4.0])
    assert carried(values, when, np.array([1.0, 2.0, 9.0]), "forward").to_list() == [None, 3.0, 3.0]
    assert carried(values, when, np.array([1.0, 3.0]), "backward").to_list() == [3.0, 3.0]


def test_a_baseline_is_the_value_before_the_first_dose(table) -> None:
    text = "ID,TIME,DV,AMT\n1,0,.,10\n1,4,3,.\n2,0,1,.\n2,1,.,10\n2,4,3,.\n"
    frame, _ = table(text, baseline="DV=0")
    assert frame["DV"].to_list() == [0, 3, 1, None, 3]
    told = refused(table, text, baseline="CP=0")
    assert "no outcome is called 'CP'" in told
    assert "outcomes are 'DV'" in told


@pytest.mark.parametrize(
    ("head", "cells", "hours"),
    [
        ("TIME", ["8:00", "9:30", "21:15:36"], [0, 1.5, 13.26]),
        ("DATE,TIME", ["1/31/24,23:00", "2/1/24,1:30", "2/2/24,1:30"], [0, 2.5, 26.5]),
        ("DAT1,TIME", ["31-1-2024,23:00", "1-2-2024,1:30", "2-2-2024,1:30"], [0, 2.5, 26.5]),
        ("DAT2,TIME", ["99/12/31,23:00", "00/1/1,1:30", "00/1/2,1:30"], [0, 2.5, 26.5]),
        ("DAT3,TIME", ["2024/31/1,23", "2024/1/2,1.5", "2024/2/2,1.5"], [0, 2.5, 26.5]),
        ("DATE,TIME", ["2024-01-31,23:00", "2024-02-01,1:30", "2024-02-02,1:30"], [0, 2.5, 26.5]),
        ("DATE,TIME", ["5,23:00", "6,1:30", "7,1:30"], [0, 2.5, 26.5]),
        ("TIME", ["2024-01-31 23:00", "2024-02-01T01:30", "2024-02-02 01:30:00"], [0, 2.5, 26.5]),
    ],
)
def test_clocks_and_dates_are_hours_since_the_first_record(
    table, head: str, cells: list[str], hours: list[float]
) -> None:
    given = ["10,.", ".,3", ".,2"]
    body = "".join(f"1,{cell},{rest}\n" for cell, rest in zip(cells, given, strict=True))
    frame, _ = table(f"ID,{head},AMT,DV\n{body}")
    assert frame["TIME"].to_list() == hours


@pytest.mark.parametrize("cells", ["1,1/1/24,8:00 1,1/3/24,8:00", "1,1,8 1,3,8"])
def test_hours_of_dates_are_not_called_by_another_unit(table, cells: str) -> None:
    first, last = cells.split()
    text = f"ID,DATE,TIME,AMT,DV\n{first},5,.\n{last},.,3\n"
    told = refused(table, text, step=1.0, time_unit="day")
    assert "TIME has dates or clocks, which become hours, not `day`" in told
    assert "a day is `--step 24`" in told
    frame, _ = table(text, step=24.0, time_unit="Hours")
    assert frame["TIME"].to_list() == [0, 24, 48]
    assert table("ID,TIME,AMT,DV\n1,0,5,.\n1,2,.,3\n", step=1.0, time_unit="day")[1].time.unit == "day"


def test_elapsed_times_beside_dates_are_not_added_to_them(table) -> None:
    text = "ID,DATE,TIME,AMT,DV\n1,1/1/24,0,5,.\n1,1/2/24,24,.,3\n1,1/3/24,48,.,2\n"
    assert "'TIME': 2 values of 24 or more beside DATE" in refused(table, text)
    frame, _ = table(text.replace("DATE", "SINCE"), covariates="none")
    assert frame["TIME"].to_list() == [0, 24, 48]


@pytest.mark.parametrize("step", [None, 4.0])
def test_values_below_a_dose_of_the_same_time_count_before_it_with_a_warning(table, reporter, step) -> None:
    text = "ID,TIME,DV,AMT,RATE\n1,0,.,100,.\n1,0,9,.,.\n1,4,3,.,.\n1,4,.,50,.\n1,8,.,40,10\n1,8,2,.,.\n"
    frame, _ = table(text, step=step)
    assert rows(frame, "TIME", "DV")[:2] == [(0, 9), (4, 3)]
    told = [text for text in reporter.warnings if "dose" in text]
    assert len(told) == 1, "the trough above its dose and the value as an infusion begins are as they were measured"
    assert told[0].startswith("1 of 3 values come in the file after a dose at once of the same time")
    assert "give peaks a later TIME" in told[0]


def test_dates_and_times_that_are_none_are_named(table) -> None:
    told = refused(table, "ID,DATE,TIME,AMT,DV\n1,13/1/24,8:00,5,.\n1,1/2/24,noon,.,3\n1,,9:00,.,3\n")
    assert "column 'TIME': 1 value no time" in told
    assert "column 'DATE': 2 values" in told


def test_files_without_a_header_with_blanks_between_fields_and_comments(table) -> None:
    spaced = "# a comment\n1 0. 25.0 1.4 0\n1 2.0 0 1.4 17.3\n1 12.5 3.5 1.4 0\n1 14 0 1.4 20\n"
    frame, _ = table(spaced, name="pheno.dta", columns="ID TIME AMT WT DV")
    assert rows(frame, "TIME", "DV", "AMT") == [(0, None, 25), (2, 17.3, 0), (12.5, None, 3.5), (14, 20, 0)]
    frame, _ = table("C,ID,TIME,AMT,DV\nC,9,0,1,1\n,1,0,5,.\n.,1,2,.,3\n")
    assert rows(frame, "ID", "TIME") == [("1", 0), ("1", 2)]
    told = refused(table, spaced, name="pheno.dta", columns="ID TIME AMT DV")
    assert "rows of 5 fields under a header of 4" in told


def test_columns_of_other_names_are_found_and_missing_ones_are_named_together(table) -> None:
    frame, _ = table("ID,HOURS,CONC,AMT\n1,0,.,5\n1,2,3,.\n", items="time=HOURS dv=conc")
    assert frame.columns == ["ID", "HOURS", "CONC", "AMT"]
    told = refused(table, "ID,TME,CONC,DOS\n1,0,.,5\n", items="dv=CON")
    assert "no column TIME" in told
    assert "'TME'" in told
    assert "no column 'CON'" in told
    assert "no column AMT" in told
    with pytest.raises(ValueError, match="'when' is none of"):
        NonmemConfig(items="when=HOURS")
    with pytest.raises(ValueError, match="NAME=VALUE"):
        pairs("cp")


def test_all_that_is_wrong_with_rows_is_told_at_once(table) -> None:
    told = refused(
        table,
        """
        ID,TIME,DV,AMT,EVID,RATE,ADDL,II,SS
        1,0,.,-5,1,0,0,0,0
        1,4,x,.,0,0,0,0,0
        1,3,2,.,0,0,0,0,0
        2,0,.,5,1,-3,0,0,0
        2,1,.,5,1,0,2,0,0
        2,2,.,.,1,0,-1,12,3
        2,3,1,5,0,0,0,0,0
        1,9,.,5,9,0,0,0,0
        """,
    )
    for part in (
        "'DV': 1 value not numeric, first 'x'", "'AMT': 1 value below 0",
        "'TIME': 1 value before that of the row above",
        "'RATE': 1 value below 0", "'II': 1 value not above 0", "'AMT': 1 value missing on a row that is a dose",
        "'ADDL': 1 value not a whole number", "'SS': 1 value other than 0, 1 and 2",
        "'AMT': 1 value on a row that is no dose",
        "subject 1 comes again", "'EVID': 1 value other than 0 to 4",
    ):  # fmt: skip
        assert part in told, part


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ID,TIME,DV,AMT\n1,0,.,5\n1,3,.,6\n", "no record is an observation"),
        ("ID,TIME,DV,AMT\n1,0,1,.\n1,3,2,.\n", "no record is a dose"),
        ("ID,TIME,DV,AMT\n", "the file has no records"),
        ("ID,TIME,DV,AMT,ADDL,II\n1,0,.,5,99999999,1\n1,9,2,.,.,.\n", "more than 10,000,000 doses"),
        ("ID,TIME,DV,AMT,EVID\n1,0,.,5,1\n1,99999,2,.,0\n", "a series of 100,000 steps"),
    ],
)
def test_empty_and_absurd_files_are_refused(table, text: str, problem: str) -> None:
    assert problem in refused(table, text, step=1.0)


def test_subjects_without_an_observation_are_left_out_and_counted(table, reporter) -> None:
    frame, _ = table("ID,TIME,DV,AMT\n1,0,.,5\n1,3,2,.\n2,0,.,5\n")
    assert set(frame["ID"]) == {"1"}
    assert reporter.warnings == ["1 series without an observation left out"]


def test_overlapping_infusions_add_up_with_a_note(tmp_path: Path) -> None:
    class Notes(NullReporter):
        def say(self, diagnostic) -> None:
            said.append(diagnostic)

    said: list[object] = []
    path = tmp_path / "trial.csv"
    path.write_text("ID,TIME,DV,AMT,RATE\n1,0,1,.,.\n1,0,.,40,10\n1,2,.,20,10\n1,2,3,.,.\n1,6,2,.,.\n")
    frame, _ = nonmem_table(NonmemConfig(), path, Notes())
    assert frame["AMT"].to_list() == [20, 40, 0]
    assert "infusions-overlap" in [diagnostic.code for diagnostic in said]


def trial(path: Path, subjects: int = 30) -> Path:
    """Write records of one compartment whose half-life is 6 hours: a dose of 100 adds 10 to the concentration."""
    draw = np.random.default_rng(5)
    lines = ["ID,TIME,DV,AMT,EVID,WT"]
    for subject in range(1, subjects + 1):
        level, weight = 0.0, 60 + subject % 25
        for i in range(10):
            level *= 0.5 ** (4 / 6)
            lines.append(f"{subject},{4 * i},{level + 0.1 * draw.normal() + 1:.4f},,0,{weight}")
            if draw.random() < 0.5:
                amount = int(draw.choice([50, 100, 150]))
                lines.append(f"{subject},{4 * i},,{amount},1,{weight}")
                level += amount / 10
    path.write_text("\n".join(lines))
    return path


def test_the_python_api_ingests_records_and_the_schema_can_be_overruled(tmp_path: Path) -> None:
    path = trial(tmp_path / "my trial!.csv")
    dataset = ingest("nonmem", path, step=4.0, horizon=2, table='columns.DV.unit = "mg/L"')
    assert dataset.name == "my trial"
    assert dataset.schema.outcomes[0].unit == "mg/L"
    assert dataset.schema.step == "4 hours"
    assert dataset.schema.treatments.doses[0].name == "AMT"
    assert ingest("nonmem", path, step=4.0, horizon=2, target="WT >= 70").panel("target", "test").n_subjects
    with pytest.raises(UsageError, match="rle"):
        ingest("nonmem", path, table='columns.DV.rle = "outcome"')


def read(path: Path, **options: object) -> Dataset:
    """Ingest records without a warning raised."""
    return ingest("nonmem", path, progress=NullReporter(), **options)


def test_new_subjects_are_read_as_the_records_of_a_model_were(tmp_path: Path) -> None:
    whole = read(trial(tmp_path / "trial.csv"), horizon=2)
    header, *lines = (tmp_path / "trial.csv").read_text().splitlines()
    mine = [line for line in lines if line.startswith("7,")]
    # Other names of columns in another order and case, another column of doses, and nothing of the outcome's code
    new = tmp_path / "patient.csv"
    new.write_text("\n".join([f"{header.lower()},rate", *(f"{line}," for line in mine)]))
    made = read(new, like=whole).panel("source", "test")
    known, row = next((panel, panel.names.index("7")) for panel in whole.panels.values() if "7" in panel.names)
    length = int(known.length[row])
    assert made.names == ["7"]
    for name in ("outcomes", "treatments", "covariates"):
        assert (getattr(made, name)[0, :length] == getattr(known, name)[row, :length]).all(), name
    assert (made.statics[0] == known.statics[row]).all()
    whole.save(tmp_path / "data.h5")
    assert read(new, like=tmp_path / "data.h5").panel("source", "test").n_subjects == 1


SEVERAL = """
    id,time,amt,dv,dvid,cmt,sex,crcl
    1,0,100,.,.,1,f,90
    1,0,.,0.5,cp,2,f,90
    1,0,.,90,pca,3,f,90
    1,4,.,6.5,cp,2,f,80
    1,6,5,.,.,4,f,80
    1,8,.,40,pca,3,f,80
"""


def several(tmp_path: Path, **settings: object):
    lines = dedent(SEVERAL).strip().splitlines()
    draw = np.random.default_rng(1)
    rows_of = []
    for subject in range(1, 21):
        for line in lines[1:]:
            cells = line.split(",")
            cells[0], cells[7] = str(subject), str(int(draw.integers(50, 99)))
            cells[2] = cells[2] if cells[2] == "." else str(int(draw.integers(1, 99)))
            cells[3] = cells[3] if cells[3] == "." else f"{draw.normal(50, 9):.2f}"
            cells[6] = "fm"[subject % 2]
            rows_of.append(",".join(cells))
    path = tmp_path / "several.csv"
    path.write_text("\n".join([lines[0], *rows_of]))
    return read(path, horizon=1, **settings)


def test_new_subjects_need_not_have_all_that_is_measured_and_given(tmp_path: Path) -> None:
    whole = several(tmp_path)
    assert [variable.name for variable in whole.schema.outcomes] == ["cp", "pca"]
    new = tmp_path / "new.csv"
    new.write_text("id,time,amt,dv,dvid,cmt,sex,crcl\nX,0,.,3,cp,2,m,70\nX,5,.,4,cp,2,m,70\n")
    panel = read(new, like=whole).panel("source", "test")
    assert panel.outcomes[0, :2, 0].tolist() == [3, 4]
    assert not panel.observed_outcomes[0, :, 1].any()
    assert [dose.name for dose in whole.schema.treatments.doses if dose.elapsed is None] == ["amt_1", "amt_4"]
    assert not whole.schema.treatments.decode(panel.treatments)[0, 0, :2].any()
    assert whole.schema.covariates[0].name == "crcl"  # which never changes here
    assert panel.covariates[0, :2, 0].tolist() == [70, 70]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id,time,amt,dv,dvid,cmt,sex,crcl\nX,0,.,3,kp,2,m,70\n", "outcomes with the code 'kp', unknown to the model"),
        ("id,time,amt,dv,dvid,cmt,sex,crcl\nX,0,.,3,cp,2,m,70\nX,1,9,.,.,7,m,70\n", "the code '7', unknown to the"),
        ("id,time,amt,dv,sex,crcl\nX,0,.,3,m,70\n", "no column says which of 'cp', 'pca' it is"),
        ("id,time,amt,dv,dvid,cmt,sex\nX,0,.,3,cp,2,m\n", "no column 'crcl', a covariate of the model"),
        ("id,time,amt,dv,dvid,cmt,sex,crcl\nX,0,.,3,cp,2,m,low\n", "column 'crcl': 1 value not numeric"),
        ("id,time,amt,dv,dvid,cmt,sex,crcl\nX,0,9,.,.,1,m,70\n", "no record is an observation"),
    ],
)
def test_what_does_not_fit_the_records_of_a_model_is_named(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "new.csv").write_text(text)
    with pytest.raises(DataError) as error:
        read(tmp_path / "new.csv", like=several(tmp_path))
    assert problem in "\n".join([str(error.value), *error.value.details])


def test_chosen_outcomes_and_settings_hold_for_new_subjects(tmp_path: Path) -> None:
    whole = several(tmp_path, outcomes="conc=cp", step=4.0, baseline="conc=0")
    new = tmp_path / "new.csv"
    new.write_text("id,time,amt,dv,dvid,cmt,sex,crcl\nX,0,7,.,.,1,m,70\nX,5,.,9,pca,3,m,70\nX,9,.,4,cp,2,m,70\n")
    panel = read(new, like=whole).panel("source", "test")
    assert panel.outcomes[0, : panel.length[0], 0].tolist()[::2] == [0, 4]
    with pytest.raises(UsageError, match="`like` and step do not go together"):
        read(new, like=whole, step=2.0)


def test_a_model_of_other_data_is_no_model_of_records(tmp_path: Path) -> None:
    with pytest.raises(MismatchError, match="was not made of NONMEM's records"):
        read(trial(tmp_path / "t.csv"), like=simulate("linear", preset="quick", train=20, seed=1))
    with pytest.raises(UsageError, match="do not go together"):
        ingest("m5", tmp_path, like=several(tmp_path))
