"""Every formula has one address, and every address that is cited leads to a formula of `docs/spec/`."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.cli.cli_world import REPOSITORY
from tests.docs.pages import PAGES

SPEC = REPOSITORY / "docs" / "spec"
ENTRY = re.compile(r'^<a id="(?P<anchor>[a-z]+-\d+)"></a>\n\*\*(?P<address>[A-Z]+-\d+)\. ', re.MULTILINE)
LISTED = re.compile(r"^\| (?P<prefixes>[A-Z]+(?:, [A-Z]+)*) \| \[(?P<page>[a-z-]+\.md)\]", re.MULTILINE)
DEPARTURE = re.compile(r"^\| (E-\d+|\d+) \|", re.MULTILINE)  # rows of docs/reproduction.md
SOURCES = ("costar_cli", "simulators", "tests", "benchmarks", "docs", "examples")


def entries() -> dict[str, list[str]]:
    """The addresses that each page of the specification gives, in order."""
    return {
        page.name: [match["address"] for match in ENTRY.finditer(page.read_text("utf-8"))]
        for page in sorted(SPEC.glob("*.md"))
    }


def texts() -> Iterator[tuple[Path, str]]:
    """Everything that may cite: code, tests, benchmarks and pages."""
    files = [path for folder in SOURCES for path in sorted((REPOSITORY / folder).rglob("*.py"))]
    for path in [*files, *PAGES]:
        if path != Path(__file__):
            yield path, path.read_text("utf-8")


def found(pattern: str) -> dict[str, set[str]]:
    """Where the first group of a pattern, or all of it, is found, by what it is there."""
    places: dict[str, set[str]] = {}
    for path, text in texts():
        for match in re.finditer(pattern, text):
            places.setdefault(match[match.lastindex or 0], set()).add(path.relative_to(REPOSITORY).as_posix())
    return places


def test_each_address_is_given_once_and_numbers_run_from_one() -> None:
    given = [address for page in entries().values() for address in page]
    assert [address for address, count in Counter(given).items() if count > 1] == []
    for page, addresses in entries().items():
        numbers: dict[str, list[int]] = {}
        for address in addresses:
            prefix, number = address.split("-")
            numbers.setdefault(prefix, []).append(int(number))
        assert all(found == list(range(1, len(found) + 1)) for found in numbers.values()), page


def test_each_address_has_an_anchor_of_its_name() -> None:
    for page in SPEC.glob("*.md"):
        text = page.read_text("utf-8")
        matches = list(ENTRY.finditer(text))
        assert [m["anchor"] for m in matches] == [m["address"].lower() for m in matches]
        assert text.count("<a id=") == len(matches), page.name


def test_the_list_of_pages_names_every_prefix_and_its_page() -> None:
    listed = {
        match["page"]: set(match["prefixes"].split(", "))
        for match in LISTED.finditer((SPEC / "README.md").read_text("utf-8"))
    }
    assert listed == {
        page: {address.split("-")[0] for address in addresses} for page, addresses in entries().items() if addresses
    }


def test_no_citation_dangles() -> None:
    given = {address for page in entries().values() for address in page}
    prefixes = "|".join(sorted({address.split("-")[0] for address in given}))
    cited = found(rf"\b(?:{prefixes})-\d+\b") | found(r"\b[Ss]pec ([A-Z]+-\d+)")
    assert {address: sorted(places) for address, places in cited.items() if address not in given} == {}
    ranges = found(rf"\b(?:{prefixes})-\d+ to \d+\b")  # `TUMOR-4 to 6`
    for cited_range in ranges:
        prefix, first, last = re.split(r"-| to ", cited_range)
        assert f"{prefix}-{last}" in given, (cited_range, ranges[cited_range])
        assert int(first) < int(last), cited_range
    pages = found(r"\bdocs/spec/(\w+\.md)")
    assert set(pages) <= {page.name for page in SPEC.glob("*.md")}, pages


def test_code_cites_every_subject_of_the_specification() -> None:
    subjects = {address.split("-")[0] for page in entries().values() for address in page}
    code = {
        address.split("-")[0]
        for address, places in found(r"\b[A-Z]+-\d+\b").items()
        if any(place.startswith(("costar_cli/", "simulators/")) for place in places)
    }
    assert subjects - code == set()


def test_nothing_cites_documents_that_do_not_ship() -> None:
    sections = r"\b(?:models|datasets),? (?:sections )?[A-H]\b|\bspec (?:[A-H]\.?\d|models|datasets)|\([A-H]\.\d\)"
    assert found(rf"(?i:{sections})|\b(?:design|style)\.md\b|/work/shared") == {}


def test_departures_that_are_cited_are_rows_of_the_reproduction_notes() -> None:
    rows = set(DEPARTURE.findall((REPOSITORY / "docs" / "reproduction.md").read_text("utf-8")))
    cited = found(r"\bE-\d+\b")
    assert {number: sorted(places) for number, places in cited.items() if number not in rows} == {}
