"""What a column of an unknown table looks like: words of its name, values, whether it changes in a subject (polars)."""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, cast

import polars as pl

from costar_cli.data.findings import shown
from costar_cli.data.table.ends import PAIRS
from costar_cli.data.table.files import TableFile, collected, separator_of
from costar_cli.data.table.packed import COMPRESSED
from costar_cli.data.table.parse import TEXTS, UNREADABLE, Reading, as_read
from costar_cli.data.table.written import WrittenGuess, guess_written


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SUBJECT: Final = _words(
    "subject subj patient person participant customer client user item product upc sku asin usubjid subjid patientid "
    "subjectid userid patienten paciente paziente proband probandin teilnehmer kunde klant cliente sujet sujeto "
    "soggetto pacjent пациент 患者"
)
SUBJECT_TOO: Final = _words(
    "id pid pt ptid patid mrn unit stay case individual household store animal chick rat mouse plant tree plot series "
    "country firm company school geo dma market ticker symbol device machine sensor account member employee student "
    "panelist respondent vp"
)
PERIOD: Final = _words("ym yyyymm yearmonth yearmon yq yyyyqq yyyyq yearquarter qtr yw yearweek isoweek calweek")
DATE: Final = _words(
    "date dates datetime timestamp datestamp ds dt ts when dtc adt adtm visitdate visitdt obsdate datum fecha дата "
    "日期 日付"
)
TIME: Final = (
    DATE
    | PERIOD
    | _words(
        "time day days hour hours week weeks month months year years step visit visits t period charttime obstime "
        "minute minutes quarter wave session occasion visitnum avisitn visitno studyday ady timepoint cycle round yr "
        "yrs wk wks hrs qtr mth mths mês tage woche wochen monat monate jahr jahre stunde stunden zeit zeitpunkt jour "
        "jours semaine mois année annee heure temps día dia días dias semana semanas mes meses año tiempo hora horas "
        "giorno settimana mese anno tempo dag dagen maand jaar tijd vecka månad år tid dzień miesiąc rok день неделя "
        "месяц год время 年 月 週"
    )
)
TIME_TOO: Final = _words("start tstart begin since tag ora")
STARTS, STOPS = (frozenset(pair[end] for pair in PAIRS) for end in (0, 1))
WHEN: Final = TIME | STARTS | STOPS
TREATMENT: Final = _words(
    "treatment treatments treated treat trt tx rx drug drugs dose doses dosage therapy therapies chemotherapy chemo "
    "radiotherapy medication medications med meds arm action intervention interventions promotion promotions promo "
    "campaign discount exposure exposed regimen diet placebo price prices prescription prescribed randomized randomised"
)
OUTCOME: Final = _words("outcome outcomes response y endpoint sales demand volume move reaction")
MEASURED: Final = _words(
    "cd4 hba1c a1c glucose sbp dbp map bp nibp creatinine egfr inr ldl cholesterol fev1 psa sofa phq9 madrs mmse"
)  # what treatments are given for
OUTCOME_TOO: Final = MEASURED | _words("weight score seizure seizures pain severity growth yield revenue")
LAST: Final = _words("outcome outcomes response y endpoint")  # where it is the same in all rows, it is how it ended
DOMAIN: Final = _words("domain site hospital centre center cohort region country clinic population")
STATIC: Final = _words("age sex gender race ethnicity birth birthday born height base baseline")
EVENT: Final = _words("event events")
CODE: Final = _words(
    "code item itemid event parameter measurement variable concept test analyte label observation what kind type"
)
VALUE: Final = _words("value values valuenum amount quantity qty result reading number measurement")
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
_FOLLOW_UP_TOGETHER: Final = (
    *map(_words, ("follow up", "end time", "stop time", "event time", "to event", "drop out", "length stay")),
    *map(_words, ("lost to", "last visit", "left study", "left trial")),
)
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
    "subsidy fluid fluids crystalloid bolus infusion infusions injection injections ketamine amiodarone oxytocin"
)
_AMOUNT: Final = _words("unit units iu mg mcg ug ml rate tablets pills puffs given administered")
_CONCENTRATION: Final = _words("l dl")
# Stems of international nonproprietary names (WHO, "The use of stems", 2018), where they end a word.
_STEM: Final = re.compile(
    r"\w{3,}(mab|nib|statin|pril|sartan|olol|cillin|mycin|cycline|floxacin|conazole|prazole|platin|taxel|parin|gliptin|"
    r"gliflozin|azepam|setron|sone|solone|onide|vudine|navir|tegravir|triptan|lukast|dronate|oxetine|thiazide|semide|"
    r"azolam|fentanil|glutide)"
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


def is_given(words: Set[str]) -> bool:
    """Return whether a name says a treatment, a drug or an intervention."""
    return bool(words & TREATMENT) or is_remedy(words)


def is_amount(words: Set[str]) -> bool:
    """Return whether a name says an amount that may be given, as units and rates do, and no concentration."""
    return bool(words & _AMOUNT) and not words & (_CONCENTRATION | OUTCOME | OUTCOME_TOO)


def is_follow_up(words: Set[str]) -> bool:
    """Return whether a name says how long somebody was followed, or how that ended."""
    letters = {word for word in words if not word.isdigit()}
    alone = letters <= _FOLLOW_UP_ALONE and bool(letters & {"status", "event", "events", "stop", "end"})
    return alone or bool(words & _FOLLOW_UP) or any(together <= words for together in _FOLLOW_UP_TOGETHER)


def is_death(words: Set[str]) -> bool:
    """Return whether a name says death or survival."""
    return bool(words & _DEATH)


MOST_ROWS: Final = 200_000
UNUSABLE: Final = (pl.Binary, pl.Duration, pl.Object)
MOST_VALUES: Final = 200  # of a column, different ones that are looked at
BLANK: Final = ("NA", "NaN", "null")
FEWEST_FOR_ODD: Final = 10
ODD_SHARE: Final = 10  # one cell in so many may be a slip
DATES: Final = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y", "%d%b%Y", "%d %b %Y",
                "%d-%b-%Y", "%b %d, %Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%Y.%m.%d", "%B %d, %Y",
                "%d/%b/%Y", "%d-%b-%y")  # fmt: skip
CLOCKS: Final = (" %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", ":%H:%M:%S")  # the last as SAS has it
PERIODS: Final = ("%Y-%m", "%Y/%m", "%m/%Y", "%b %Y", "%b-%Y", "%B %Y", "%YM%m", "%YQ%q", "%Y-Q%q", "%Y Q%q", "Q%q %Y",
                  "Q%q-%Y", "%G-W%V", "%GW%V", "%G W%V")  # fmt: skip
FORMATS: Final = ("", *(date + clock for date in DATES for clock in ("", *CLOCKS)), *PERIODS)  # "" is ISO
COMPACT: Final = {  # look like numbers: of several that fit, the first is taken, which fewer numbers fit by chance
    "%Y%m%d": r"^(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])$",
    "%Y0%q": r"^(19|20)\d\d0[1-4]$",
    "%Y%m": r"^(19|20)\d\d(0[1-9]|1[0-2])$",
    "%G%V": r"^(19|20)\d\d(0[1-9]|[1-4]\d|5[0-3])$",
    "%Y%q": r"^(19|20)\d\d[1-4]$",
}
DAYS_OR_MONTHS: Final = re.compile(r"(19|20)\d{4}(\d\d)?")
YEAR: Final = r"\d\D*\d\D*\d\D*\d"  # a date has four digits at least, as 1.2.24 has
FEWEST_QUARTERS: Final = 5  # over two years: fewer may be months, or numbers that end so by chance
TRIED: Final = 200  # values by which the format of dates is chosen


def few(values: int) -> int:
    """Return how many of so many values may be slips without saying anything about the others."""
    return max(1, values // ODD_SHARE) if values >= FEWEST_FOR_ODD else 0


@dataclass(frozen=True, eq=False)
class Facts:
    """One column of a sample; `as_text` says that its file holds text, which may be dates in any format."""

    name: str
    text: pl.Series
    as_text: bool = True

    @cached_property
    def known(self) -> pl.Series:
        """Return the values that are not missing."""
        return self.text.drop_nulls()

    @property
    def missing(self) -> int:
        """Return how many values are missing."""
        return int(self.text.null_count())

    @property
    def count(self) -> int:
        """Return how many values are not missing."""
        return len(self.text) - self.missing

    @cached_property
    def begins_with_number(self) -> bool:
        """Return whether the first known value is a number."""
        return len(self.known) > 0 and self.known.head(1).cast(pl.Float64, strict=False).null_count() == 0

    @cached_property
    def values(self) -> list[str]:
        """Return the first few different values, sorted."""
        return [str(value) for value in self.known.unique().sort().head(MOST_VALUES).to_list()]

    @cached_property
    def distinct(self) -> int:
        """Return the number of different values."""
        return int(self.known.n_unique())

    @cached_property
    def numbers(self) -> pl.Series | None:
        """Return the values as numbers, null for a few that are none; None where more are none, or dates."""
        if set(self.date_formats) & set(COMPACT):
            return None
        numbers = self.as_numbers
        return numbers if self._fits(len(numbers) - numbers.null_count()) else None

    @cached_property
    def as_numbers(self) -> pl.Series:
        """Return the values as finite numbers, null where they are none."""
        return pl.DataFrame({"x": self.text}).select(_finite(pl.col("x"))).to_series()

    @cached_property
    def date_formats(self) -> tuple[str, ...]:
        """Return the formats in which most values are dates, "" for ISO, each with other dates; the first is taken."""
        unnamed = self.begins_with_number and not self.words & WHEN
        if unnamed and not DAYS_OR_MONTHS.fullmatch(self.values[0]):
            return ()
        some = self.known.unique(maintain_order=True).head(TRIED)
        if unnamed:  # numbers that no name tells are all days or months of several years, and no ids
            several = len(some) >= FEWEST_QUARTERS and some.str.head(4).n_unique() >= 2
            told = several and not self.words & (SUBJECT | SUBJECT_TOO | STATIC)
            return tuple(f for f in self._compact(some) if f not in ("%G%V", "%Y%q")) if told else ()
        if some.cast(pl.Float64, strict=False).null_count() < len(some):
            return self._compact(some) if self.words & WHEN and len(some) else ()
        if not some.str.contains(YEAR).any():
            return ()
        if not self._dates(some, FORMATS[0])[0].null_count():
            return FORMATS[:1]  # no other format reads all that is ISO
        clocks = bool(some.str.contains(":", literal=True).any())
        tried = [f for f in (FORMATS if self.as_text else FORMATS[:1]) if clocks or ":" not in f]
        read = dict(zip(tried, self._dates(some, *tried), strict=True))
        most = max(len(dates) - dates.null_count() for dates in read.values())
        best = [f for f, dates in read.items() if most and len(dates) - dates.null_count() == most]
        return tuple(f for i, f in enumerate(best) if not any(read[f].equals(read[other]) for other in best[:i]))

    @staticmethod
    def _compact(some: pl.Series) -> tuple[str, ...]:
        """Return the formats in which numbers are all dates or periods."""
        formats = [written for written, pattern in COMPACT.items() if some.str.contains(pattern).all()]
        if len(some) < FEWEST_QUARTERS or some.str.head(4).n_unique() < 2:
            formats = [written for written in formats if "%q" not in written]
        return tuple(written for written in formats if written != "%G%V" or len(formats) == 1)

    @cached_property
    def moments(self) -> pl.Series | None:
        """Return the values as dates and times, null for a few that are none; None where more are none.

        Those of a zone are in UTC, unless its clocks show the same time on all days.
        """
        if not self.date_formats or self.numbers is not None:
            return None
        (moments,) = self._dates(self.text, self.date_formats[0], local=True)
        if moments.drop_nulls().dt.time().n_unique() > 1:
            (moments,) = self._dates(self.text, self.date_formats[0])
        return moments if self._fits(len(moments) - moments.null_count()) else None

    @staticmethod
    def _dates(texts: pl.Series, *formats: str, local: bool = False) -> list[pl.Series]:
        """Return the texts as dates of each format, in one query: a hundred queries take a tenth of a second."""
        dates = []
        for i, written in enumerate(formats):
            moment = as_read(pl.col("x"), pl.String(), Reading("x", "us", written, local=local), BLANK)
            date = pl.when(moment != UNREADABLE).then(moment).cast(pl.Datetime("us"))
            dates.append(pl.when(date.dt.year() >= 1000).then(date).alias(str(i)))  # %Y also reads 24
        return pl.DataFrame({"x": texts}).select(dates).get_columns()

    @cached_property
    def odd(self) -> list[str]:
        """Return the few texts of a column of numbers or dates that are none."""
        read = self.numbers if self.numbers is not None else self.moments
        if read is None or read.null_count() == self.text.null_count():
            return []
        return self.text.filter(read.is_null() & self.text.is_not_null()).to_list()

    @property
    def fitting(self) -> pl.Series:
        """Return the texts, null where they are odd."""
        return self.text.set(self.text.is_in(self.odd), None) if self.odd else self.text

    def _fits(self, read: int) -> bool:
        """Return whether so many values that can be read are all, but for a few slips."""
        return read > 0 and self.count - read <= few(self.count)

    @property
    def binary(self) -> bool:
        """Return whether all values, but for a few slips, are 0 and 1, or true and false."""
        values = set(self.values) - set(self.odd)
        low = {value.lower() for value in values} if self.distinct - len(set(self.odd)) <= 2 else {""}
        return low <= {"0", "1", "0.0", "1.0"} or low <= {"true", "false"}

    @cached_property
    def words(self) -> set[str]:
        """Return the words of the name, also without digits: `heartRate_v2` has `heart`, `rate`, `v2` and `v`."""
        apart = re.sub(r"([a-z])([A-Z])", r"\1 \2", self.name)
        words = re.split(r"[\W_]+", apart.lower())
        return {word for word in (*words, *(word.strip("0123456789") for word in words)) if word}

    @property
    def summary(self) -> str:
        """Return a few words on the values."""
        numbers, moments = self.numbers, self.moments
        if numbers is not None and not self.binary:
            text = f"{cast(float, numbers.min()):g} to {cast(float, numbers.max()):g}"
        elif moments is not None:
            dates = moments.drop_nulls().to_list()
            text = f"{min(dates)} to {max(dates)}"
        else:
            text = shown(self.values, 4).replace("'", "") if self.values else "no value"
        return f"{text}, {self.missing:,} missing" if self.missing else text


def _finite(text: pl.Expr) -> pl.Expr:
    number = text.cast(pl.Float64, strict=False)
    return pl.when(number.is_finite()).then(number)


def facts_of(frame: pl.DataFrame, kinds: Mapping[str, pl.DataType]) -> dict[str, Facts]:
    """Return what the columns of texts of a frame look like, by the names in `kinds`, whose order is the frame's.

    What all columns are asked is found in one pass over all: a query of its own for each takes a millisecond.
    """
    known = pl.all().drop_nulls()
    passes = {
        "distinct": frame.select(known.n_unique()).row(0),
        "begins_with_number": frame.select(known.first().cast(pl.Float64, strict=False).is_not_null()).row(0),
        "values": frame.select(known.unique().sort().head(MOST_VALUES).implode()).row(0),
        "as_numbers": frame.select(_finite(pl.all())).get_columns(),
    }
    facts = {name: Facts(name, frame.to_series(i), kind == pl.String) for i, (name, kind) in enumerate(kinds.items())}
    for what, found in passes.items():
        for column, value in zip(facts.values(), found, strict=True):
            column.__dict__[what] = value  # as `cached_property` keeps it
    return facts


@dataclass(frozen=True, eq=False)
class Sample:
    """The first rows of a table, column by column; `unusable` are columns of types that no role takes."""

    name: str
    columns: dict[str, Facts]
    unusable: list[str] = field(default_factory=list)
    height: int = 0
    written: WrittenGuess = field(default_factory=WrittenGuess)
    _changers: dict[str, Mapping[str, int]] = field(default_factory=dict)

    def changers(self, subject: str) -> Mapping[str, int]:
        """Return in how many subjects each column has several values: all columns at once, as there may be many."""
        if subject not in self._changers:
            frame = pl.DataFrame({str(i): column.fitting for i, column in enumerate(self.columns.values())})
            by_subject = frame.group_by(self.columns[subject].text.alias("subject"))
            several = by_subject.agg(pl.all().drop_nulls().n_unique() > 1)
            several = several.filter(pl.col("subject").is_not_null()).drop("subject")
            self._changers[subject] = dict(zip(self.columns, several.sum().row(0), strict=True))
        return self._changers[subject]

    def changing(self, subject: str, name: str) -> dict[str, tuple[int, int]]:
        """Return the subjects in whom a column has several values, each with its rows and those of the commonest."""
        value = self.columns[name].fitting
        pair = pl.DataFrame({"subject": self.columns[subject].text, "value": value}).drop_nulls()
        rows = pair.group_by("subject", "value", maintain_order=True).len()
        both = pl.len().alias("values"), pl.col("len").sum().alias("rows"), pl.col("len").max().alias("most")
        found = rows.group_by("subject", maintain_order=True).agg(both).filter(pl.col("values") > 1)
        return {str(who): (int(n), int(most)) for who, _, n, most in found.iter_rows()}

    def repeated(self, *names: str) -> int:
        """Return how many rows have a subject and time that stood in a row before."""
        keys = pl.DataFrame({name: self.columns[name].text for name in names}).drop_nulls()
        return keys.height - keys.n_unique()

    def late(self, subject: str, when: pl.Series, name: str) -> int:
        """Return how many subjects have a value in a later row and none in the first."""
        frame = pl.DataFrame({"s": self.columns[subject].text, "t": when, "x": self.columns[name].text})
        frame = frame.drop_nulls(["s", "t"]).sort("s", "t", maintain_order=True)
        said = frame.group_by("s").agg(first=pl.col("x").first().is_null(), ever=pl.col("x").is_not_null().any())
        return int((said["first"] & said["ever"]).sum())

    def lengths(self, subject: str) -> list[int]:
        """Return the number of rows per subject, sorted."""
        return sorted(int(count) for count in self.columns[subject].known.value_counts()["count"].to_list())


def sample_of(files: Sequence[TableFile]) -> Sample:
    """Return the first 200,000 rows of the first file that has any."""
    for file in files:
        unusable = [name for name, kind in file.types.items() if kind.is_nested() or kind in UNUSABLE]
        usable = [name for name in file.types if name not in unusable]
        kinds = {name: file.types[name] for name in usable}
        alike: dict[pl.DataType, list[int]] = {}
        for i, kind in enumerate(kinds.values()):
            alike.setdefault(kind, []).append(i)
        with collected(file.path):
            # Columns as texts, named by their numbers; those of one type are one expression
            header = file.scan.collect_schema().names()[1:]
            own = {header[file.columns[name]]: str(i) for i, name in enumerate(usable)}
            columns = [
                as_read(pl.nth([file.columns[usable[i]] + 1 for i in group]), kind, Reading("", "text"), BLANK)
                .name.map(own.__getitem__)
                for kind, group in alike.items()
            ]  # fmt: skip
            frame = file.scan.head(MOST_ROWS).select(columns).collect()
        frame = frame.filter(~pl.all_horizontal(pl.all().is_null())).select(map(str, range(len(usable))))
        if frame.height:
            texts = frame.select(str(i) for i, kind in enumerate(kinds.values()) if kind in TEXTS)
            guess = guess_written(texts, separator_of(file.path, file.written.comment))
            guess = replace(guess, written=replace(guess.written, comment=file.written.comment))
            frame = frame.with_columns(guess.plain(texts).get_columns())
            name = file.path.with_suffix("").stem if file.path.suffix.lower() in COMPRESSED else file.path.stem
            return Sample(name, facts_of(frame, kinds), unusable, frame.height, guess)
    return Sample("", {})
