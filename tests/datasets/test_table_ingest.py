"""What a table becomes: subjects, steps, parts, filled values, categories, treatments."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from costar_cli.data import Part
from costar_cli.errors import DataError
from tests.datasets.table_worlds import Listener, assert_same_dataset, ingest, make_schema, of, problems, save, ward

TRAIN, TARGET_TEST = Part("source", "train"), Part("target", "test")


def test_each_subject_is_in_one_part_of_its_domain_with_all_its_values(tmp_path: Path):
    frame = ward()
    dataset = ingest(frame, folder=tmp_path)
    assert [(str(part), panel.n_subjects) for part, panel in dataset.panels.items()] == [
        ("source/train", 14), ("source/val", 3), ("source/test", 3),
        ("target/train", 8), ("target/val", 1), ("target/test", 1),
    ]  # fmt: skip
    for (patient, site), rows in frame.group_by("patient", "site"):
        panel, row = of(dataset, patient)
        assert dataset.find_subject(patient).part.domain == {"north": "source", "south": "target"}[site]
        assert np.array_equal(panel.outcomes[row, :, 0], rows["pressure"].to_numpy().astype(np.float32))
        levels = dataset.schema.treatments.decode(panel.treatments[row])[:, 0]
        assert [("none", "low", "high")[level] for level in levels] == rows["drug"].to_list()
        assert panel.statics[row].tolist() == [rows["age"][0], rows["sex"][0] == "f", rows["sex"][0] == "m"]
    assert dataset.schema.outcomes[0].unit == "mmHg"
    assert (dataset.schema.error_unit.label, dataset.schema.error_unit.space) == ("mmHg", "original")
    assert [v.standardize for v in dataset.schema.statics] == [True, False, False]


def test_levels_means_and_categories_are_learned_from_source_train_alone(tmp_path: Path):
    schema = make_schema({"heart rate": {"role": "covariate", "missing": "fill"}, "drug": {"role": "treatment"}})
    frame = ward().with_columns(pl.when(pl.col("day") > 0).then("heart rate").alias("heart rate"))
    before = ingest(frame, schema, folder=tmp_path)
    changed = frame.with_columns(
        pl.when(pl.col("site") == "south").then(pl.col("heart rate") * 9).otherwise("heart rate")
    )
    after = ingest(changed.with_columns(pl.col("heart rate").alias("heart rate")), schema, folder=tmp_path)
    for part in (TRAIN, Part("source", "val"), Part("source", "test")):
        for name in ("covariates", "treatments", "outcomes", "statics"):
            assert np.array_equal(getattr(before.panels[part], name), getattr(after.panels[part], name))
    first = after.panels[TARGET_TEST].covariates[:, 0, 0]  # missing there, so source-train's mean
    train = before.panels[TRAIN].covariates[:, 1:, 0]
    assert np.allclose(first, train.mean())


def test_missing_covariates_are_carried_forward_and_marked(tmp_path: Path):
    columns = {"heart rate": {"role": "covariate", "missing": "fill"}}
    frame = ward().with_columns(
        pl.when((pl.col("patient") == "p01") & pl.col("day").is_in([0, 3, 4]))
        .then(None)
        .otherwise("heart rate")
        .alias("heart rate")
    )
    # p01 must be in source-train for a mask to be made
    seed = next(
        s
        for s in range(20)
        if "p01" in ingest(frame, make_schema(columns), folder=tmp_path, seed=s).panels[TRAIN].names
    )
    dataset = ingest(frame, make_schema(columns), folder=tmp_path, seed=seed)
    assert [v.name for v in dataset.schema.covariates] == ["heart rate", "heart rate_observed"]
    assert dataset.schema.covariates[1].kind == "binary"
    panel, row = of(dataset, "p01")
    rate, seen = panel.covariates[row].T
    raw = frame.filter(pl.col("patient") == "p01")["heart rate"].to_list()
    assert rate[1:].tolist() == [raw[1], raw[2], raw[2], raw[2], raw[5]]
    assert seen.tolist() == [0, 1, 1, 0, 0, 1]
    assert panel.covariate_observed[row, :, 0].tolist() == [False, True, True, False, False, True]
    assert panel.covariate_observed[row, :, 1].all()
    assert dataset.config["ingestion"]["filled"]["heart rate"] == {
        "values": 180,
        "missing": 3,
        "carried": 2,
        "learned": 1,
    }
    known = np.concatenate(
        [panel.covariates[..., 0][panel.covariates[..., 1] == 1] for panel in [dataset.panels[TRAIN]]]
    )
    assert np.isclose(rate[0], known.mean())


def test_counts_and_binaries_are_filled_with_values_that_they_can_have(tmp_path: Path):
    frame = ward().with_columns(
        visits=pl.when(pl.col("day") > 0).then(pl.col("day") % 3),
        ill=pl.when(pl.col("day") > 0).then(pl.col("day") > 4),
    )
    columns = {"visits": {"role": "covariate", "kind": "count"}, "ill": {"role": "covariate", "kind": "binary"}}
    dataset = ingest(frame, make_schema(columns, missing="fill"), folder=tmp_path)
    values = dataset.panels[TRAIN].covariates[:, 0]
    assert set(values[:, 1]) == {1.0}  # the mean of 1, 2, 0, 1, 2 is 1.2
    assert set(values[:, 2]) == {0.0}


def test_missing_categories_have_zeros_in_all_their_columns(tmp_path: Path):
    frame = ward().with_columns(
        mood=pl.when(pl.col("day") == 2).then(pl.lit("bad")).when(pl.col("day") == 4).then(pl.lit("good"))
    )
    columns = {"mood": {"role": "covariate", "kind": "categorical", "missing": "fill"}}
    dataset = ingest(frame, make_schema(columns), folder=tmp_path)
    assert [v.name for v in dataset.schema.covariates] == ["heart rate", "mood=bad", "mood=good", "mood_observed"]
    panel, row = of(dataset, "p02")
    assert panel.covariates[row, :, 1].tolist() == [0, 0, 1, 1, 0, 0]
    assert panel.covariates[row, :, 2].tolist() == [0, 0, 0, 0, 1, 1]
    assert panel.covariates[row, :, 3].tolist() == [0, 0, 1, 0, 1, 0]
    assert (panel.observed_covariates[row, :, 1:3] == (panel.covariates[row, :, 3:] > 0)).all()


@pytest.mark.parametrize(("days", "told"), [(1, ""), (12, "12 of 180 steps (6.7 %) have no row")])
def test_steps_without_a_row_that_count_as_untreated_are_warned_of_where_they_are_not_few(
    days: int, told: str, tmp_path: Path
):
    row = pl.int_range(pl.len())
    frame = ward().with_columns(
        drug=pl.when(row % 6 != 4).then("drug"), dose=pl.when(row % 6 != 4).then((row % 7).cast(pl.Float64))
    )
    frame = frame.filter((row % 6 != 3) | (row >= 6 * days))
    columns = {
        "drug": {"role": "treatment", "levels": ["none", "low", "high"], "missing": "fill"},
        "dose": {"role": "treatment", "kind": "continuous", "missing": "fill"},
        **{name: {"role": role, "missing": "fill"}
           for name, role in (("pressure", "outcome"), ("heart rate", "covariate"))},
    }  # fmt: skip
    listener = Listener()
    ingest(frame, make_schema(columns, time={"gaps": "fill"}), folder=tmp_path, listener=listener)
    assert f"treatment 'drug': {30 + days} missing values count as not given" in listener.notes
    assert f"treatment 'dose': {30 + days} missing values count as not given" in listener.notes
    warned = [warning for warning in listener.warnings if "have no row" in warning]
    assert len(warned) == bool(told)
    for warning in warned:
        assert warning.startswith(f"'drug', 'dose': {told}")
        assert "effects may be biased towards zero" in warning
        assert '`gaps = "elapsed"`' in warning


def test_filled_outcomes_are_not_scored_and_are_warned_of(tmp_path: Path):
    columns = {"pressure": {"role": "outcome", "missing": "fill"}}
    frame = ward().with_columns(pl.when(pl.col("day") != 3).then("pressure").alias("pressure"))
    listener = Listener()
    dataset = ingest(frame, make_schema(columns), folder=tmp_path, listener=listener)
    queries = dataset.queries[TARGET_TEST]["rolling_origin"]
    answered = queries.origin[:, None] + np.arange(2) + 1
    assert np.array_equal(queries.scored, answered != 3)
    [told] = [warning for warning in listener.warnings if "30 missing values" in warning]
    assert "neither learn to predict them nor are scored on them" in told
    for panel in dataset.panels.values():
        expected = np.broadcast_to(np.arange(panel.n_steps) != 3, panel.observed.shape)
        assert np.array_equal(panel.outcome_observed[..., 0], expected)
    assert dataset.schema.covariates[-1].name == "pressure_observed"


def test_rolling_origins_ask_every_origin_what_came_next(tmp_path: Path):
    frame = ward().filter((pl.col("patient") != "p03") | (pl.col("day") < 4))
    dataset = ingest(frame, make_schema(horizon=3), folder=tmp_path)
    for part in (Part("source", "test"), TARGET_TEST):
        panel, queries = dataset.panels[part], dataset.queries[part]["rolling_origin"]
        assert sorted(zip(queries.subject, queries.origin, strict=True)) == [
            (n, t) for n in range(panel.n_subjects) for t in range(panel.length[n] - 3)
        ]
        for q in range(len(queries)):
            n, t = queries.subject[q], queries.origin[q]
            assert np.array_equal(queries.plan[q], panel.treatments[n, t : t + 3])
            assert np.array_equal(queries.outcomes[q], panel.outcomes[n, t + 1 : t + 4])
        assert queries.scored.all()
    assert list(dataset.queries) == [Part("source", "test"), TARGET_TEST]


def test_a_horizon_that_no_series_allows_is_refused_with_the_longest_that_they_do(tmp_path: Path):
    with pytest.raises(DataError, match="no source/train or test subject has the 7 steps") as error:
        ingest(ward(), make_schema(horizon=6), folder=tmp_path)
    assert error.value.fix == "the longest possible `horizon` is 5"
    assert ingest(ward(), make_schema(horizon=5), folder=tmp_path).queries


def test_series_too_short_for_the_horizon_are_warned_of_where_they_are_most(tmp_path: Path):
    panel = ingest(ward(), folder=tmp_path).panels[Part("source", "test")]
    assert panel.label is not None
    few = panel.label[1:].tolist()  # all but one
    listener = Listener()
    short = ward().filter((pl.col("day") < 4) | ~pl.col("patient").is_in(few))
    ingest(short, make_schema(horizon=5), folder=tmp_path, listener=listener)
    [warning] = [text for text in listener.warnings if "source/test" in text]
    assert warning.startswith("2 of 3 source/test subjects without the 6 steps that a question of 5 needs")


def test_statics_may_come_from_a_second_file(tmp_path: Path):
    frame = ward()
    wide = frame.unique("patient", maintain_order=True).select("patient", "age", "sex", "site")
    statics = save(wide.sample(fraction=1, shuffle=True, seed=1), tmp_path / "statics.csv")
    listener = Listener()
    extra = pl.concat(
        [pl.read_csv(statics), pl.DataFrame({"patient": ["nobody"], "age": [3.0], "sex": ["f"], "site": ["north"]})]
    )
    save(extra, statics)
    apart = ingest(frame.drop("age", "sex", "site"), folder=tmp_path, statics=statics, listener=listener)
    assert_same_dataset(apart, ingest(frame, folder=tmp_path))
    assert any(
        "1 row of the statics file about subjects that the table does not have" in note for note in listener.notes
    )


def test_statics_files_that_do_not_fit_are_refused(tmp_path: Path):
    frame, statics = ward().drop("age", "sex", "site"), tmp_path / "statics.csv"
    wide = ward().unique("patient", maintain_order=True).select("patient", "age", "sex", "site")
    save(wide.filter(pl.col("patient") != "p04").drop("site"), statics)
    lines = problems(ward().drop("age", "sex"), folder=tmp_path, statics=statics)
    assert "first in subject p04, which has no row in statics.csv: column 'age': 1 value missing" in lines[0]
    save(pl.concat([wide, wide[3:4].with_columns(age=99.0)]), statics)
    [line] = problems(frame, folder=tmp_path, statics=statics)
    assert "row 4 of statics.csv and row 31 of statics.csv: two rows of subject p04 with different values" in line
    save(wide.drop("patient"), statics)
    assert any(
        "statics.csv: there is no column 'patient'" in line
        for line in problems(frame, folder=tmp_path, statics=statics)
    )
    save(wide, statics)
    [*lines] = problems(ward(), folder=tmp_path, statics=statics)
    assert "column 'site' is in ward.csv and in statics.csv" in lines[0]


def test_a_statics_file_of_which_nothing_is_used_is_refused(tmp_path: Path):
    wide = ward().unique("patient", maintain_order=True).select("patient", weight="age", town="site")
    [line] = problems(ward(), folder=tmp_path, statics=save(wide, tmp_path / "statics.csv"))
    assert line.startswith("--statics: no column of statics.csv is used: it has 'weight', 'town' (declare its columns")
    used = make_schema({"weight": {"role": "static"}})
    assert ingest(ward(), used, folder=tmp_path, statics=tmp_path / "statics.csv").schema.statics[-1].name == "weight"


def test_whole_numbers_stay_subject_ids_and_other_names_become_labels(tmp_path: Path):
    numbers = ward().with_columns(pl.col("patient").str.slice(1).cast(pl.Int64) * 7)
    for kind in (pl.Int64, pl.Float64, pl.String):
        form = "parquet"
        dataset = ingest(numbers.with_columns(pl.col("patient").cast(pl.Int64).cast(kind)), folder=tmp_path, form=form)
        assert all(panel.label is None for panel in dataset.panels.values())
        ids = np.concatenate([panel.subject_id for panel in dataset.panels.values()])
        assert sorted(ids) == list(range(7, 211, 7))
    padded = numbers.with_columns(pl.format("0{}", "patient").alias("patient"))
    dataset = ingest(padded, folder=tmp_path)
    assert dataset.find_subject("07").part in dataset.panels
    assert sorted(np.concatenate([panel.subject_id for panel in dataset.panels.values()])) == list(range(30))


def test_rows_of_a_cluster_share_its_number(tmp_path: Path):
    frame = ward().with_columns(family=pl.format("fam{}", pl.int_range(pl.len()) // 6 // 3))
    dataset = ingest(frame, make_schema({"family": {"role": "cluster"}}), folder=tmp_path)
    panel, row = of(dataset, "p07")
    assert panel.cluster[row] == 2
    numbered = frame.with_columns(family=pl.int_range(pl.len()) // 6 // 3 * 10)
    dataset = ingest(numbered, make_schema({"family": {"role": "cluster"}}), folder=tmp_path)
    panel, row = of(dataset, "p07")
    assert panel.cluster[row] == 20


def test_booleans_numbers_as_text_and_odd_separators_are_read(tmp_path: Path):
    plain = ingest(ward(), folder=tmp_path)
    text = ward().with_columns(
        pl.format(" {} ", "pressure").alias("pressure"), pl.format("+{}", "heart rate").alias("heart rate")
    )
    assert_same_dataset(ingest(text, folder=tmp_path), plain)
    for separator in (";", "\t", "|"):
        path = tmp_path / "other.csv"
        ward().rename({"age": " age "}).write_csv(path, separator=separator, include_bom=True)
        assert_same_dataset(ingest(path), plain)
    smoker = ward().with_columns(smoker=pl.col("patient") < "p10")
    columns = {"smoker": {"role": "static", "kind": "binary"}}
    for form in ("csv", "parquet"):
        dataset = ingest(smoker, make_schema(columns), folder=tmp_path, form=form)
        panel, row = of(dataset, "p04")
        assert panel.statics[row, -1] == 1
    category = smoker.with_columns(pl.col("drug").cast(pl.Categorical), pl.col("sex").cast(pl.Enum(["m", "f"])))
    assert_same_dataset(ingest(category, folder=tmp_path, form="parquet"), plain)


def test_several_outcomes_are_scored_in_standard_deviations(tmp_path: Path):
    dataset = ingest(ward(), make_schema({"heart rate": {"role": "outcome"}}), folder=tmp_path)
    assert dataset.schema.error_unit.space == "standardized"
    given = make_schema({"heart rate": {"role": "outcome"}}, error_unit={"factor": 2.0, "label": "points"})
    assert ingest(ward(), given, folder=tmp_path).schema.error_unit.label == "points"


def test_names_that_a_mask_would_take_are_refused(tmp_path: Path):
    columns = {"heart rate": {"role": "covariate", "missing": "fill"}, "heart rate_observed": {"role": "covariate"}}
    frame = ward().with_columns(pl.when(pl.col("day") != 2).then("heart rate").alias("heart rate"))
    frame = frame.with_columns(pl.col("day").cast(pl.Float64).alias("heart rate_observed"))
    [line] = problems(frame, make_schema(columns), folder=tmp_path)
    assert "each column needs its own name: heart rate_observed" in line


def test_patterns_in_names_mean_nothing(tmp_path: Path):
    frame = ward().rename({"heart rate": "*", "age": "^.*$", "pressure": "[bold]"})
    columns = {"*": {"role": "covariate"}, "^.*$": {"role": "static"}, "[bold]": {"role": "outcome"}}
    dataset = ingest(frame, make_schema(columns, without=("heart rate", "age", "pressure")), folder=tmp_path)
    assert [v.name for v in dataset.schema.covariates] == ["*"]
    assert np.array_equal(dataset.panels[TRAIN].outcomes, ingest(ward(), folder=tmp_path).panels[TRAIN].outcomes)


def test_hundreds_of_thousands_of_rows_take_a_second(tmp_path: Path):
    n, steps = 8_000, 50
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "patient": np.repeat(np.arange(n), steps),
            "day": np.tile(np.arange(steps), n),
            "site": np.repeat(np.where(np.arange(n) % 3 == 0, "south", "north"), steps),
            "heart rate": rng.normal(size=n * steps),
            "drug": rng.choice(["none", "low", "high"], size=n * steps),
            "pressure": rng.normal(size=n * steps),
            "age": np.repeat(rng.normal(size=n), steps),
            "sex": np.repeat(rng.choice(["f", "m"], size=n), steps),
        }
    )
    dataset = ingest(frame, make_schema(queries={"rolling_origin": False}), folder=tmp_path, form="parquet")
    assert sum(panel.n_subjects for panel in dataset.panels.values()) == n
