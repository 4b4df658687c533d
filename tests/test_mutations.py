"""The list of wrong formulas is about formulas that there are: each text that it changes occurs once."""

from tests.mutations import LIST, ROOT, listed


def test_each_formula_that_is_changed_occurs_once_in_its_file() -> None:
    mutations = list(listed(LIST.read_text("utf-8")))
    counts = {m.before: (ROOT / m.file).read_text("utf-8").count(m.before) for m in mutations}
    assert len(mutations) > 50
    assert {text: count for text, count in counts.items() if count != 1} == {}
