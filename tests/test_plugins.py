"""What packages add through entry points: what can be used is, whatever else is wrong."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from costar_cli.config.plugins import load_plugins
from tests.plugin_world import install

GROUP = "costar.datasets"


@dataclass(frozen=True)
class Thing:
    name: str


THINGS = f"from {__name__} import Thing\nA, B = Thing('a'), Thing('b')\n"


def test_objects_of_entry_points_are_found_sorted_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "costar-toy", {GROUP: {"b": "things_found:B", "a": "things_found:A"}}, things_found=THINGS)
    monkeypatch.syspath_prepend(tmp_path)
    plugins = load_plugins(GROUP, Thing, ())
    assert plugins.found == (Thing("a"), Thing("b"))
    assert not plugins.problems


@pytest.mark.parametrize(
    ("module", "text", "reason"),
    [
        ("things_raising", "raise RuntimeError('no\\n licence')", "RuntimeError: no licence"),
        ("things_leaving", "raise SystemExit(3)", "SystemExit: 3"),
        ("things_lacking", "", "AttributeError: module 'things_lacking' has no attribute 'A'"),
        ("things_other", "A = 3", "`things_other:A` is of class int, not Thing"),
        ("things_misnamed", f"from {__name__} import Thing\nA = Thing('x')", "`things_misnamed:A` calls itself `x`"),
    ],
)
def test_an_entry_that_cannot_be_used_is_left_out_and_its_package_named(
    module: str, text: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = f"{module}_beside"
    entries = {"a": f"{module}:A", "b": f"{sound}:B"}
    install(tmp_path, "costar-toy", {GROUP: entries}, **{module: text, sound: THINGS})
    monkeypatch.syspath_prepend(tmp_path)
    plugins = load_plugins(GROUP, Thing, ())
    assert plugins.found == (Thing("b"),)
    assert plugins.problems == (f"data set `a` of package costar-toy 1.0 is left out: {reason}",)


def test_a_name_belongs_to_costar_first_and_to_one_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("costar-one", "costar-two"):
        install(tmp_path, package, {GROUP: {"a": "things_twice:A", "b": "things_twice:B"}}, things_twice=THINGS)
    monkeypatch.syspath_prepend(tmp_path)
    plugins = load_plugins(GROUP, Thing, {"b"})
    assert plugins.found == (Thing("a"),)
    assert [problem.partition(" is left out: ") for problem in plugins.problems] == [
        ("data set `a` of package costar-two 1.0", " is left out: ", "the name is taken"),
        ("data set `b` of package costar-one 1.0", " is left out: ", "the name is taken"),
        ("data set `b` of package costar-two 1.0", " is left out: ", "the name is taken"),
    ]


def test_what_is_wrong_with_an_object_of_the_right_class_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "costar-toy", {GROUP: {"a": "things_checked:A"}}, things_checked=THINGS)
    monkeypatch.syspath_prepend(tmp_path)
    plugins = load_plugins(GROUP, Thing, (), check=lambda thing: [f"{thing.name} has no settings"])
    assert not plugins.found
    assert plugins.problems == ("data set `a` of package costar-toy 1.0 is left out: a has no settings",)
