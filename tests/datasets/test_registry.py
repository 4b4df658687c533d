"""What the registry tells of data sets is true of what they make, and all that lists data sets has it from there."""

from pathlib import Path

import pytest

from costar_cli.data.base import called
from costar_cli.data.registry import BUILT_IN, RESERVED_NAMES, protocol_of, sources, truth_of
from costar_cli.evaluation.published import TABLES, read_published
from costar_cli.testing import check_data_source
from tests.sepsis_package import install_sepsis

SETTINGS = {
    "tumor": {"steps": 8, "horizon": 2, **dict.fromkeys(("train", "val", "test"), 3)},
    "linear": {"steps": 8, "horizon": 2, **dict.fromkeys(("train", "val", "test"), 3)},
    **{name: {"steps": 8, "train": 6, "val": 3, "test": 3} for name in ("glucose", "hiv", "warfarin", "sepsis")},
    "mimic": {"stays": 300, "hours": 24, "horizon": 4, "plans_per_origin": 1, "few_shot": 0.5},
    "m5": {"scale": 0.001, **{f"{part}_items": 1 for part in ("train", "val", "test", "target_train")}},
}


@pytest.mark.parametrize("name", list(sources()))
def test_a_data_set_is_made_from_its_settings_and_calls_itself_as_the_registry_says(
    name: str, reporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_sepsis(tmp_path, monkeypatch)
    source = sources()[name]
    settings = source.settings(**SETTINGS[name])
    check_data_source(source, settings)
    dataset = source.simulate(settings, reporter)
    assert truth_of(dataset.name) is called(source.truth)
    assert all(dataset.truth.values())


@pytest.mark.parametrize("source", BUILT_IN, ids=lambda source: source.section)
def test_costars_own_entries_are_as_those_of_packages_must_be(source) -> None:
    problems = set(source.problems()) - ({"it lacks `make`"} if source.verb == "ingest" else set())
    assert not problems
    for made_of in (source.input, source.export):
        references = [value for name in ("make", "files", "world", "check", "write")
                      if (value := getattr(made_of, name, None))]  # fmt: skip
        assert all(callable(called(reference)) for reference in references)
    assert set(getattr(source.input, "idle", ())) <= set(source.settings.model_fields)


def test_published_tables_are_about_data_sets_with_a_protocol() -> None:
    published = {row.dataset for table in TABLES for row in read_published(table)}
    assert published == {name for name in RESERVED_NAMES if protocol_of(name)}
    assert truth_of("mimic-factual") is protocol_of("mimic-factual") is truth_of("my table") is None


def test_no_other_module_lists_the_data_sets(request: pytest.FixtureRequest) -> None:
    package = request.config.rootpath / "costar_cli"
    quoted = {f'"{name}"' for source in BUILT_IN for name in (source.name, source.dataset)}
    listing = [
        path.relative_to(package).as_posix()
        for path in sorted(package.rglob("*.py"))
        if any(name in path.read_text("utf-8") for name in quoted)
    ]
    assert all(Path(path).parts[0] == "data" for path in listing), listing
