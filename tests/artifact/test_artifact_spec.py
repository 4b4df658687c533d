"""What docs/format.md says about the kinds is what spec.py holds writers and readers to."""

import re
from pathlib import Path

import numpy as np
import pytest

from costar_cli.files import (
    SCHEMA_VERSION,
    fingerprint,
    write_artifact,
)
from costar_cli.files.spec import KINDS, content_problems

DOCUMENT = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")


def documented(section: str, requirement: str) -> tuple[str, ...]:
    return tuple(re.findall(rf"^\| {requirement} \| `([^`]+)` \|", section, re.MULTILINE))


def sections() -> dict[str, str]:
    parts = re.split(r"^### `([a-z-]+)`\n", DOCUMENT.split("\n## Kinds\n")[1].split("\n## ")[0], flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_document_describes_every_kind_and_version():
    assert list(sections()) == list(KINDS)
    assert f"This is schema version `{SCHEMA_VERSION}`" in DOCUMENT


@pytest.mark.parametrize("kind", KINDS)
def test_document_and_spec_say_the_same(kind):
    section, spec = sections()[kind], KINDS[kind]
    assert documented(section, "MUST") == spec.must
    assert documented(section, "MAY") == spec.may
    assert documented(section, "meta") == spec.meta
    assert f"Made by `{spec.made_by}`" in section


def test_patterns_name_segments():
    meta = dict.fromkeys(KINDS["dataset"].meta)
    panel = list(KINDS["dataset"].must)
    good = ["target/val/panel/length", "source/test/queries/one_step/plan", "source/test/truth/noise/growth"]
    assert content_problems("dataset", [*panel, *good], meta) == []
    for name in ("target/panel/length", "a/b/c/panel/length", "source/test/queries/plan", "source/test/truth", "x"):
        assert content_problems("dataset", [*panel, name], meta) == [f"unknown array `{name}`"]
    assert content_problems("dataset", panel[1:], meta) == [f"no array `{panel[0]}`"]
    assert content_problems("dataset", panel, {}) == [f"no `{key}` in meta" for key in meta]


def test_meta_of_other_types_is_refused():
    wrong = {"horizon": True, "schema": [], "name": 3, "parts": 0, "fingerprint": None}
    found = content_problems("estimates", KINDS["estimates"].must, dict.fromkeys(KINDS["estimates"].meta) | wrong)
    words = {"horizon": "a whole number", "schema": "an object", "name": "text", "parts": "a list or an object"}
    assert sorted(found) == sorted(f"`{key}` in meta is not {word}" for key, word in words.items())


@pytest.mark.parametrize("count", ["", "3", 1.0, -1, None, [1]])
def test_counts_of_subjects_are_whole_numbers(count: object):
    meta = dict.fromkeys(KINDS["encoder"].meta) | {"selected_on": {"source/val": count}}
    found = content_problems("encoder", ["scaler/outcomes"], meta)
    assert "`selected_on` in meta is no count of subjects by part" in found
    meta["selected_on"] = {"source/val": 3, "target/val": 0}
    assert found == [*content_problems("encoder", ["scaler/outcomes"], meta), found[-1]]


def test_content_outside_the_spec_is_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"no array `params/\*\*`; .*unknown array `x`; no `method` in meta"):
        write_artifact(tmp_path / "a.h5", kind="model", arrays={"x": np.zeros(2)}, meta={})
    with pytest.raises(ValueError, match="unknown kind"):
        write_artifact(tmp_path / "a.h5", kind="virus", arrays={}, meta={})
    assert list(tmp_path.iterdir()) == []


def test_fingerprint_depends_on_kind_parents_config_and_version(monkeypatch):
    base = fingerprint("model", parents={"dataset": "a", "encoder": "b"}, config={"seed": 1, "x": (1, 2)})
    assert base == fingerprint("model", parents={"encoder": "b", "dataset": "a"}, config={"x": [1, 2], "seed": 1})
    assert re.fullmatch("[0-9a-f]{64}", base)
    others = {
        fingerprint("encoder", parents={"dataset": "a", "encoder": "b"}, config={"seed": 1, "x": [1, 2]}),
        fingerprint("model", parents={"dataset": "a"}, config={"seed": 1, "x": [1, 2]}),
        fingerprint("model", parents={"dataset": "a", "encoder": "b"}, config={"seed": 2, "x": [1, 2]}),
    }
    monkeypatch.setattr("costar_cli.files.digest.VERSION", "99")
    others.add(fingerprint("model", parents={"dataset": "a", "encoder": "b"}, config={"seed": 1, "x": [1, 2]}))
    assert len(others | {base}) == 5
