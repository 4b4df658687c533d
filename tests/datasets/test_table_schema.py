"""Schemas are understood, and all that is wrong with one is said at once, with the nearest thing that would do."""

import tomllib
from pathlib import Path

import pytest

from costar_cli.data.levels import label_of
from costar_cli.data.registry import RESERVED_NAMES
from costar_cli.data.table.schema_file import open_guesses, parse_schema, read_schema
from costar_cli.errors import UsageError
from costar_cli.settings.presets import EVERY, PRESETS, read_preset
from tests.datasets.table_worlds import COLUMNS, make_schema


def told(tables: dict) -> list[str]:
    with pytest.raises(UsageError) as caught:
        parse_schema(tables)
    assert caught.value.exit_code == 2
    assert "costar settings schema" in caught.value.fix
    return list(caught.value.details) or [caught.value.problem]


def changed(**columns: object) -> dict:
    return {"name": "ward", "columns": {**COLUMNS, **columns}}


CASES = [
    ({"name": "ward", "columns": {}}, "needs one column of role \"subject\", it has none"),
    ({"columns": COLUMNS}, "name is missing"),
    ({"name": "ward"}, "columns is missing"),
    ({"name": "ward", "columns": COLUMNS, "horizn": 3}, "horizn: no such key, did you mean `horizon`?"),
    ({"name": "ward", "columns": COLUMNS, "time": {"steps": 1}}, "time.steps: no such key, did you mean `step`?"),
    ({"name": "ward", "columns": COLUMNS, "horizon": 0}, "horizon = 0: input should be greater than or equal to 1"),
    ({"name": "ward", "columns": COLUMNS, "horizon": "6"}, "horizon = '6': input should be a valid integer"),
    ({"name": "ward", "columns": COLUMNS, "horizon": True}, "horizon = True"),
    ({"name": "MIMIC", "columns": COLUMNS}, "the name belongs to a data set that costar brings"),
    ({"name": "a\nb", "columns": COLUMNS}, "up to 64 letters"),
    (changed(extra={"role": "covariat"}), "expected one of subject, time, covariate"),
    (changed(extra={"role": "covariat"}), "did you mean `covariate`?"),
    (changed(extra={"rol": "covariate"}), "columns.extra.rol: no such key, did you mean `role`?"),
    (changed(extra="covariate"), 'columns.extra: expected a table such as { role = "covariate" }'),
    (changed(drug={"role": "treatment", "unit": "mg"}),
     "columns.drug: `unit` belongs to a dose: `kind = \"continuous\"` or \"ordinal\""),
    (changed(**{"heart rate": {"role": "subject"}}), 'one column of role "subject", it has 2'),
    (changed(**{"heart rate": {"role": "covariate", "categories": ["a"]}}),
     'columns."heart rate": `categories` belongs to'),
    (changed(pressure={"role": "outcome", "kind": "categorical"}), "an outcome is a number"),
    (changed(drug={"role": "treatment", "levels": ["a", "a"]}), "each once"),
    (changed(drug={"role": "treatment", "levels": ["a"]}), "at least 2 items"),
    (changed(**{" x": {"role": "covariate"}}), "without space around it"),
    (changed(site={"role": "domain", "source": "north"}), "`target` is missing"),
    (changed(site={"role": "domain", "source": ["a", "b"], "target": "b"}), "'b' is both source and target"),
    ({**changed(), "domain": {"target": "age > 3"}}, "both say who the target is"),
    ({"name": "w", "columns": {k: v for k, v in COLUMNS.items() if k != "site"}, "domain": {"target": "age >> 3"}},
     "`target = 'age >> 3'`: a column or a constant expected before `>`"),
    ({**changed(), "time": {"step": "1 hour"}}, "is not a duration such as `1h`"),
    ({**changed(), "time": {"step": -1}}, "step must be above 0"),
    ({**changed(), "time": {"format": "%Y"}}, "`format` belongs to dates"),
    ({**changed(), "split": {"train": 0.9}}, "sum to 1.2"),
    ({**changed(), "split": {"few_shot": 2.5}}, "a share below 1, or a whole number"),
    ({**changed(part={"role": "split"}), "split": {"seed": 1}}, "both split the subjects"),
    ({**changed(), "treatments": {"classes": [["none", "x"], ["low"]]}}, "one level per treatment: drug"),
    ({**changed(), "treatments": {"mode": "multilable"}}, "did you mean `multilabel`?"),
    ({**changed(), "max_length": 3, "min_length": 5}, "max_length 3 is below min_length 5"),
    ({**changed(), "queries": {"rolling_origin": 1}}, "queries.rolling_origin = 1"),
    ({**changed(), "blank": [3]}, "blank.0 = 3: input should be a valid string"),
    ({**changed(), "treatments": {"classes": [["none", [2]]]}}, "treatments.classes.0.1"),
]  # fmt: skip


@pytest.mark.parametrize(("tables", "problem"), CASES, ids=[case[1][:40] for case in CASES])
def test_each_mistake_is_named_with_its_place(tables: dict, problem: str):
    assert any(problem in line for line in told(tables)), told(tables)


def test_all_mistakes_are_told_at_once():
    lines = told({"horizn": 3, "name": "x", "columns": {"a": {"role": "time", "unit": 3}, "b": {"role": "subjct"}}})
    text = "\n".join(lines)
    for piece in ("horizn", "columns.a", "columns.b.role", '"subject"', '"treatment"', '"outcome"'):
        assert piece in text


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"name = ", "is not TOML"),
        (b'name = "\xff"', "is not UTF-8"),
        (b"a = " + b"[" * 5_000, "is nested more than 32 levels deep"),
        (b"horizon = " + b"9" * 5_000, "is not TOML"),
        (b"#" * 4_000_001, "larger than"),
        (b"", "has"),
    ],
)
def test_a_file_that_is_no_schema_is_refused(content: bytes, problem: str, tmp_path: Path):
    path = tmp_path / "schema.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=problem):
        read_schema(path)


def test_a_missing_file_and_a_folder_say_how_to_make_a_schema(tmp_path: Path):
    for path in (tmp_path / "nowhere.toml", tmp_path):
        with pytest.raises(UsageError) as caught:
            read_schema(path)
        assert "--init" in caught.value.fix


def test_names_of_data_sets_with_settings_of_their_own_are_reserved():
    assert {name for preset in (EVERY, *PRESETS) for name in read_preset(preset)[1]} <= set(RESERVED_NAMES)


def test_steps_of_time_have_a_size_and_a_word():
    for step, size, word in [(1, 1, "step"), (0.5, 0.5, "step"), ("1h", 3600e6, "hour"), ("2d", 172800e6, "2 days"),
                             ("1w", 604800e6, "week"), ("3mo", 3, "3 months"), ("1y", 12, "year")]:  # fmt: skip
        parsed = make_schema(time={"step": step}).time.parsed
        assert (parsed.size, parsed.word) == (size, word)
    assert make_schema(time={"step": 7, "unit": "week"}).time.parsed.word == "week"


def test_values_are_spelt_as_tables_spell_them():
    assert [label_of(value) for value in (True, 5, 5.0, 0.5, "north")] == ["true", "5", "5", "0.5", "north"]


SCHEMA = """name = "ward"
[columns]
patient = { role = "subject" }
day = { role = "time" }  # 0 to 5
drug = { role = "treatment" }
pressure = { role = "outcome" }
"""


@pytest.mark.parametrize(
    ("lines", "numbers"),
    [
        (["# NAME = { }  # CHECK: no column seems to be one"], [1]),
        (["horizon = 3  # CHECK: is it?", "# CHECK: that"], [1, 2]),
        (["horizon = 3  # I did CHECK: that", "# lines with CHECK are doubtful"], []),
        (['blank = ["# CHECK: me", "\\" # CHECK: me", \'" # CHECK: me\']'], []),
        (['x = """', "a  # CHECK: text", '"# CHECK: text""""', 'y = 1  # CHECK: "quoted"'], [4]),
        (["x = '''", "it's # CHECK: text", "'''", "blank = [  # CHECK: in a list", '  "a",', "]"], [4]),
        (["# don't", 'x = "a\u2028b"', "y = 1  # CHECK: after an apostrophe"], [3]),
    ],
)
def test_comments_of_init_that_want_something_settled_are_found(lines: list[str], numbers: list[int]):
    text = "\n".join(lines)
    tomllib.loads(text)
    assert [int(line.partition(":")[0].removeprefix("line ")) for line in open_guesses(text)] == numbers


def test_a_schema_with_open_guesses_is_refused_unless_they_are_accepted(tmp_path: Path):
    path = tmp_path / "schema.toml"
    path.write_text(f"{SCHEMA}# y = {{}}  # CHECK: left out\n")
    with pytest.raises(UsageError, match="the schema has 1 unconfirmed guess") as caught:
        read_schema(path)
    assert caught.value.details == ("line 7: # y = {}  # CHECK: left out",)
    assert read_schema(path, accept_guesses=True).name == "ward"
    path.write_text(SCHEMA)
    assert read_schema(path).named("treatment") == ["drug"]
