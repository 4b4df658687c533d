"""What a report warns of and notes, for tests: the codes, and the sentence of one of them."""

from collections.abc import Iterable

from costar_cli.diagnostics import Diagnostic


def codes(diagnostics: Iterable[Diagnostic]) -> set[str]:
    """The codes of diagnostics."""
    return {diagnostic.code for diagnostic in diagnostics}


def said(diagnostics: Iterable[Diagnostic], code: str) -> str:
    """What the only diagnostic of a code says."""
    (one,) = [diagnostic for diagnostic in diagnostics if diagnostic.code == code]
    return str(one)
