"""The catalogue of diagnostics: every code is used, with the facts that its sentence needs, and is on the page."""

import ast
import re
from pathlib import Path

import pytest

import costar_cli
from costar_cli.diagnostics import CATALOGUE, LEAST_WORDS, SHORT, Diagnostic, texts_of
from docs.diagnostics_reference import TARGET, render, sentence

PACKAGE = Path(costar_cli.__path__[0])
TEXTS = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"}
SOURCES = {path: ast.parse(text) for path, text in TEXTS.items() if "Diagnostic.of(" in text}


def constants(tree: ast.AST) -> set[object]:
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}


def test_every_code_is_used_somewhere():
    assert set(CATALOGUE) - set[object]().union(*map(constants, SOURCES.values())) == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_code_is_in_the_catalogue_and_is_given_the_facts_of_its_sentence(path: Path):
    calls = (node for node in ast.walk(SOURCES[path]) if isinstance(node, ast.Call))
    for call in (call for call in calls if ast.unparse(call.func) == "Diagnostic.of"):
        code, place = call.args[0], f"{path.name}:{call.lineno}"
        if not isinstance(code, ast.Constant):  # one of several, by a condition or a table of the module
            assert isinstance(code, ast.Subscript) or constants(code) & set(CATALOGUE), place
            continue
        entry, given = CATALOGUE[code.value], {keyword.arg for keyword in call.keywords} - {"severity"}
        needed = {*re.findall(r"{(\w+)", entry.text + entry.fix * ("fix" not in given))}
        assert given - {"fix"} == needed - {"subject"}, f"{place}: `{code.value}` needs {needed}"
        assert len(call.args) > 1 or "subject" not in needed, f"{place}: `{code.value}` has a subject"


@pytest.mark.parametrize("code", [code for code, entry in CATALOGUE.items() if entry.severity == "note"])
def test_a_note_takes_two_lines_of_a_terminal_at_most_and_its_short_form_one_and_the_code(code: str):
    entry = CATALOGUE[code]
    longest = SHORT.get(code, "".join([entry.text, f" ({entry.fix})" * bool(entry.fix)]))
    assert len(longest) <= (100 if code in SHORT else 2 * 80 - len("note  "))
    facts = {*re.findall(r"{(\w+)", SHORT.get(code, ""))}
    assert facts <= {"subject", *re.findall(r"{(\w+)", entry.text)}


def test_a_terminal_has_the_short_form_with_its_code_and_documents_the_whole_sentence():
    about = Diagnostic.of("search-range", "ridge", of="differences", members=3)
    assert about.brief == "limits of differences by `ridge` are the range of 3 members, without a level [search-range]"
    assert about.placed("a: ").brief == f"a: {about.brief}"
    assert str(about).startswith(
        "limits of differences are the range of the 3 members of model `ridge`, which has no level"
    )
    assert set(about.to_json()) == {"code", "severity", "subject", "text", "fix"}
    plain = Diagnostic.of("covariates-constant", "source/train", names="'a'")
    assert plain.brief == str(plain)


@pytest.mark.parametrize("code", CATALOGUE)
def test_a_code_says_what_its_row_of_the_page_says(code: str):
    [row] = [line for line in TARGET.read_text("utf-8").splitlines() if line.startswith(f"| `{code}` |")]
    assert row == f"| `{code}` | {sentence(code)} |"
    assert not CATALOGUE[code].text.endswith(".")


def test_the_page_of_codes_is_up_to_date():
    assert TARGET.read_text("utf-8") == "\n".join(render()) + "\n"


def test_a_subject_leads_unless_the_sentence_names_it_and_what_helps_ends_the_line():
    about = Diagnostic.of("never-treated", "source/train", untreated=3, subjects="9 subjects")
    assert str(about) == "source/train: 3 of 9 subjects never treated"
    assert (
        str(Diagnostic.of("labels-seen", "ridge", count=2)) == "ridge in zero-shot has seen 2 labelled target subjects"
    )
    still = Diagnostic.of("covariates-constant", "source/train", names="'a'")
    assert str(still) == "source/train: covariates never change: 'a' (they carry no information)"
    assert texts_of([about, still], "note") == (str(about), str(still))
    assert texts_of([about], "warning") == ()


def test_a_place_stands_in_front_of_the_subject_or_of_the_sentence():
    about = Diagnostic.of("recorded", "model `a`", warning="weights are heavy")
    assert str(about.placed("cell: ")) == "cell: model `a`: weights are heavy"
    assert str(Diagnostic.of("recorded", warning="odd").placed("cell: ")) == "cell: odd"


def test_a_package_may_have_codes_of_its_own():
    own = Diagnostic("garden-dry", "warning", "garden", "the soil is dry", "water it")
    assert str(own) == "garden: the soil is dry (water it)"
    assert own.to_json() == {
        "code": "garden-dry", "severity": "warning", "subject": "garden", "text": "the soil is dry", "fix": "water it"
    }  # fmt: skip


WARNED = [code for code, entry in CATALOGUE.items() if entry.severity == "warning"]
FREE = {code for code in WARNED if len(re.sub(r"{[^}]*}", "", CATALOGUE[code].text)) < LEAST_WORDS}  # others' sentences


@pytest.mark.parametrize("subject", ["", "model `crn`"])
def test_a_warning_that_a_file_keeps_as_text_has_its_code_again_and_reads_as_before(subject: str):
    lost = []
    for code in WARNED:
        kept = Diagnostic.kept(sentence(code), subject)
        assert str(kept) == str(Diagnostic.of("recorded", subject, warning=sentence(code)))
        lost += [code] * (kept.code != code)
    assert set(lost) <= FREE
    assert Diagnostic.kept("something else", subject).code == "recorded"
