"""Words in the names of columns that hint at what they are."""

import re
from collections.abc import Set
from typing import Final

__all__ = [
    "DOMAIN",
    "LAST",
    "OUTCOME",
    "OUTCOME_TOO",
    "SPLIT",
    "STATIC",
    "SUBJECT",
    "SUBJECT_TOO",
    "TIME",
    "TIME_TOO",
    "TREATMENT",
    "is_cluster",
    "is_death",
    "is_follow_up",
    "is_remedy",
    "is_site",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SUBJECT: Final = _words("subject subj patient person participant customer client user item product upc sku asin")
SUBJECT_TOO: Final = _words(
    "id pid ptid patid mrn unit stay case individual household store animal chick rat mouse plant tree plot series "
    "country firm company school"
)
TIME: Final = _words(
    "time date datetime timestamp day days hour hours week weeks month months year years step visit visits t period "
    "charttime obstime minute minutes quarter wave session occasion"
)
TIME_TOO: Final = _words("start tstart begin since")
TREATMENT: Final = _words(
    "treatment treatments treated treat trt tx rx drug drugs dose doses dosage therapy therapies chemotherapy chemo "
    "radiotherapy medication medications med meds arm action intervention interventions promotion promotions promo "
    "campaign discount exposure exposed regimen diet placebo price prices prescription prescribed randomized randomised"
)
OUTCOME: Final = _words("outcome outcomes response y endpoint sales demand volume move reaction")
OUTCOME_TOO: Final = _words("cd4 hba1c glucose weight score seizure seizures pain severity growth yield revenue")
LAST: Final = _words("outcome outcomes response y endpoint")  # where it is the same in all rows, it is how it ended
DOMAIN: Final = _words("domain site hospital centre center cohort region country clinic population")
STATIC: Final = _words("age sex gender race ethnicity birth birthday born height base baseline")
SPLIT: Final = _words("split fold partition subset")

_UNIT: Final = SUBJECT | _words("family household litter pair")
_SITE: Final = _words(
    "site clinic hospital hosp ward centre center ctr facility institution practice physician doctor store shop outlet "
    "school village"
)
_NUMBER: Final = _words("id number no nr code key")
_FOLLOW_UP: Final = _words(
    "futime fu followup endtime tstop tte survtime survival surv dropout withdrawal withdrawn censor censored "
    "censoring ltfu los discharge discharged deathtime eventtime"
)
_FOLLOW_UP_TOGETHER: Final = tuple(map(_words, ("follow up", "end time", "stop time", "event time", "to event",
                                                "drop out", "length stay", "lost to", "last visit")))  # fmt: skip
_FOLLOW_UP_ALONE: Final = _words("status event events stop end vital final type date flag indicator")
_DEATH: Final = _words(
    "death deaths died dead deceased mortality expire expired dod survived survivor alive fatal fatality"
)
_REMEDY: Final = _words(
    "insulin steroid steroids vasopressor vasopressors vent ventilation ventilated intubation intubated antibiotic "
    "antibiotics statin statins antiviral azt zidovudine ddi ddc heparin aspirin metformin warfarin lithium levodopa "
    "opioid opioids morphine fentanyl propofol norepinephrine epinephrine noradrenaline adrenaline dopamine dobutamine "
    "vasopressin diuretic diuretics vaccine vaccination vaccinated immunization immunisation dialysis crrt transfusion "
    "surgery radiation antidepressant methadone sale deal coupon markdown advertising policy ban lockdown mandate "
    "subsidy"
)
# Stems of international nonproprietary names (WHO, "The use of stems", 2018), where they end a word.
_STEM: Final = re.compile(
    r"\w{3,}(mab|nib|statin|pril|sartan|olol|cillin|mycin|cycline|floxacin|conazole|prazole|platin|taxel|parin|gliptin|"
    r"gliflozin|azepam|setron|sone|solone|onide|vudine|navir|tegravir|triptan|lukast|dronate|oxetine|thiazide|semide)"
)


def is_cluster(words: Set[str]) -> bool:
    """Return whether a name says a unit that several subjects may belong to: `patient_id` of stays, `family`."""
    return bool(words & _UNIT) and words <= _UNIT | _NUMBER


def is_site(words: Set[str]) -> bool:
    """Return whether a name says a place or an organisation that several subjects may share: `hosp`, `store_id`."""
    return bool(words & _SITE) and words <= _SITE | _NUMBER | {"name"}


def is_remedy(words: Set[str]) -> bool:
    """Return whether a name says a drug or an intervention."""
    return bool(words & _REMEDY) or any(_STEM.fullmatch(word) for word in words)


def is_follow_up(words: Set[str]) -> bool:
    """Return whether a name says how long somebody was followed, or how that ended."""
    letters = {word for word in words if not word.isdigit()}
    alone = letters <= _FOLLOW_UP_ALONE and bool(letters & {"status", "event", "events", "stop", "end"})
    return alone or bool(words & _FOLLOW_UP) or any(together <= words for together in _FOLLOW_UP_TOGETHER)


def is_death(words: Set[str]) -> bool:
    """Return whether a name says death or survival."""
    return bool(words & _DEATH)
