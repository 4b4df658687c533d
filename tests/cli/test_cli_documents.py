"""The documents of `--json` say which schema they follow, and the schema that ships notices what is missing.

`Run.document` validates each document of every other test of the command line, too.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from cli_world import DOCUMENTS, TINY_COHORT, VERBS, Run
from jsonschema import Draft202012Validator

from costar_cli.cli.benchmarking.cost_log import note_shard
from costar_cli.data.store import read_dataset
from costar_cli.data.table.export import queries_to_frame
from costar_cli.files.shards import Shard
from costar_cli.reporting.output import DOCUMENT_VERSION

Call = Callable[..., Run]

# What later versions added: not in every document of 1.0.
ADDED = {"updates", "ended_by", "stages", "no_interval", "plans_in_words", "unsupported", "interval_kind",
         "interval_method", "stopped_by_budget", "stage_updates", "one_step", "sequence", "caution",
         "outcome_updates", "other_updates", "validation", "worse_than_last_value", "ratio_to_limit",
         "limit", "refutations", "calibration", "bands", "factual", "unlabelled_target_subjects", "levels",
         "coverage_90", "precision", "practice", "support", "reason", "lights", "gates", "search",
         "natural_course", "rules", "date", "periods", "survival", "probabilities", "doses", "sweep",
         "dropout", "unweighted", "ensemble", "diagnostics", "mean_at_end", "answers_per_step", "reactions",
         "difference_interval_kind", "se", "effects", "due_to_confounding", "learner_weights"}  # fmt: skip


@pytest.fixture(scope="module")
def asked(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what the verbs write, with a benchmark of one part."""
    folder = tmp_path_factory.mktemp("documents")
    (folder / "whole" / "shard-1-of-1" / "seed-10").mkdir(parents=True)
    shutil.copy(trained / "data.h5", folder / "whole" / "shard-1-of-1" / "seed-10")
    note_shard(folder / "whole" / "shard-1-of-1", Shard(1, 1))
    frame = queries_to_frame(read_dataset(trained / "data.h5")).select("set", "query", "step", estimate="tumour_volume")
    frame.write_csv(folder / "mine.csv")
    (folder / "plan.json").write_text('{"origin": 4, "plans": {"a": [{}], "b": [{"chemotherapy": 1}]}}')
    return folder


def words_of(name: str, trained: Path, folder: Path) -> list[object]:
    place = ["-w", trained]
    return {
        "simulate.tumor": ["simulate", "tumor", *TINY_COHORT, "--out", folder / "d.h5", "--overwrite"],
        "check": ["check", trained / "data.h5"],
        "pretrain": ["pretrain", *place, "--out", folder / "e.h5", "--epochs", 1, "--members", 1, "--overwrite"],
        "finetune": ["finetune", *place, "--method", "ridge", "--out", folder / "m.h5", "--overwrite"],
        "evaluate": ["evaluate", *place, "--no-plots", "--out", folder / "v.h5", "--overwrite"],
        "score": ["score", folder / "mine.csv", *place, "--out", folder / "s.h5", "--overwrite"],
        "whatif": ["whatif", *place, "-s", 1, "-p", folder / "plan.json", "--truth", "--out", folder / "w.h5"],
        "search": ["search", *place, "-s", 1, "--minimise", "tumour_volume at end", "--steps", 2],
        "explore": ["explore", *place, "--freeze", folder / "page.html"],
        "effect": ["effect", *place, "-p", folder / "plan.json", "--unsupported"],
        "benchmark": ["benchmark", trained / "data.h5", "--methods", "last-value,ridge", "--no-plots", "-w", folder],
        "merge": ["merge", folder / "whole"],
        "inspect": ["inspect", trained / "model.h5"],
        "verify": ["verify", trained / "model.h5"],
        "settings": ["settings", "pretrain"],
        "doctor": ["doctor", *place],
    }[name]


NAMES = ["simulate.tumor", "check", "pretrain", "finetune", "evaluate", "score", "whatif", "search", "explore"]
NAMES += ["effect", "benchmark", "merge", "inspect", "verify", "settings", "doctor"]


def paths(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where each member stands that has a fixed name: of the first element of each list, not of free tables."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*here, key)
            if key not in {"config", "meta", "inputs", "outputs", "parents", "versions", "digests", "history", "plans",
                           "models", "outcomes", "trained_on", "stages", "kept", "given",
                           "learners", *ADDED}:  # fmt: skip
                yield from paths(inner, (*here, key))
    elif isinstance(value, list) and value:
        yield from paths(value[0], (*here, 0))


def without(document: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    changed = deepcopy(document)
    at: Any = changed
    for step in path[:-1]:
        at = at[step]
    at["renamed"] = at.pop(path[-1])
    return changed


@pytest.mark.parametrize("name", NAMES)
def test_each_verb_names_its_schema_and_a_renamed_member_fails_it(
    name: str, trained: Path, asked: Path, call: Call
) -> None:
    run = call(*words_of(name, trained, asked), "--json", "--quiet")
    document = run.document
    assert document["schema"] == {"name": f"costar.{name}", "version": DOCUMENT_VERSION}
    needed = [path for path in paths(document) if path[-1] not in ADDED]
    assert len(needed) > 14
    missed = [path for path in needed if DOCUMENTS.is_valid(without(document, path))]
    assert missed == []


@pytest.mark.parametrize("verb", VERBS)
def test_a_failure_is_a_document_of_the_schema_of_errors(verb: str, call: Call) -> None:
    document = call(*verb.split(), "--no-such-option", "--json").document
    assert document["schema"]["name"] == "costar.error"
    for member in ("problem", "exit_code", "where", "fix", "details", "type"):
        assert not DOCUMENTS.is_valid(without(document, ("error", member)))
    assert not DOCUMENTS.is_valid({**document, "error": None})


def test_the_schema_is_one_and_knows_every_verb() -> None:
    schema = DOCUMENTS.schema
    Draft202012Validator.check_schema(schema)
    simulated, others = schema["properties"]["schema"]["properties"]["name"]["anyOf"]
    names = {f"costar.{verb.replace(' ', '.')}" for verb in VERBS}
    assert {name for name in names if re.search(simulated["pattern"], name)} == names - set(others["enum"])
    assert set(others["enum"]) - names == {"costar.error"}
    assert schema["$id"] == f"urn:costar:documents:{DOCUMENT_VERSION}"


def test_additions_are_allowed_and_results_of_another_verb_are_not(trained: Path, call: Call) -> None:
    document = call("verify", trained / "model.h5", "--json").document
    more = json.loads(json.dumps(document))
    more["result"]["new"] = more["new"] = 1
    assert DOCUMENTS.is_valid(more)
    assert not DOCUMENTS.is_valid({**document, "schema": {"name": "costar.evaluate", "version": "1.0"}})
    assert not DOCUMENTS.is_valid({**document, "schema": {"name": "costar.verify", "version": "2.0"}})


def test_dates_of_steps_are_iso_dates_or_unknown(trained: Path, asked: Path, call: Call) -> None:
    document = call("whatif", "-w", trained, "-s", 1, "-p", asked / "plan.json", "--json", "-q").document
    for date, valid in (("2024-03-01", True), ("2024-03-01 14:00", True), (None, True), ("soon", False), (3, False)):
        for rows in ("history", "estimates", "differences"):
            more = deepcopy(document)
            more["result"][rows][0]["date"] = date
            assert DOCUMENTS.is_valid(more) == valid, (rows, date)
