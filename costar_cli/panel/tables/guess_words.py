"""Words in the names of columns that hint at what they are."""

from typing import Final

__all__ = ["DOMAIN", "OUTCOME", "SPLIT", "STATIC", "SUBJECT", "SUBJECT_TOO", "TIME", "TREATMENT"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SUBJECT: Final = _words("subject patient person participant customer client user item product")
SUBJECT_TOO: Final = _words("id pid unit stay case individual household store animal series")
TIME: Final = _words(
    "time date datetime timestamp day hour week month year step visit t period charttime minute quarter"
)
TREATMENT: Final = _words(
    "treatment treatments treated treat drug dose therapy chemotherapy radiotherapy medication arm action intervention "
    "promotion promo campaign discount exposure vasopressor vasopressors vent ventilation insulin antibiotic "
    "antibiotics statin"
)
OUTCOME: Final = _words("outcome outcomes response y endpoint sales demand volume")
DOMAIN: Final = _words("domain site hospital centre center cohort region country clinic population")
STATIC: Final = _words("age sex gender race ethnicity birth birthday born height")
SPLIT: Final = _words("split fold partition subset")
