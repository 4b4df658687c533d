"""Signals to start from, proposed from the counts of codes, with a remark on every line (polars)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from costar_cli.data.events.log import Events
from costar_cli.data.table.files import collected
from costar_cli.data.table.guess import GuessedSchema
from costar_cli.data.table.schema_file import CHECK, toml_row
from costar_cli.reporting import CONTROL

COVARIATES, TREATMENTS, STATICS = 12, 5, 8  # at most proposed of each; the others are a line to edit
PAIRED_BY: Final = "order_id"
ANCHORS: Final = (("ICU_ADMISSION", "ICU_DISCHARGE", "1h"), ("HOSPITAL_ADMISSION", "HOSPITAL_DISCHARGE", "1d"))
GIVEN: Final = re.compile(r"MEDICATION|DRUG|INFUSION|PROCEDURE|ADMINISTER|TREATMENT", re.IGNORECASE)
KNOWN_LATER: Final = re.compile(r"DISCHARGE|DIAGNOSIS|DRG|BILL|HCPCS|ICD", re.IGNORECASE)
LONGEST_NAME: Final = 40


@dataclass(frozen=True)
class _Code:
    code: str
    n: int
    static: int
    numbers: int
    subjects: int
    unit: str
    text: str

    @property
    def seen(self) -> str:
        """Return how often it is there."""
        return f"{self.n:,} events of {self.subjects:,} subjects" + (f"; {self.text}" if self.text else "")


def propose_signals(events: Events) -> GuessedSchema:
    """Return signals for a log, and what is to be settled about them: a sentence each, a signal's name first.

    The codes that most subjects have are proposed. Outcome and treatments are questions: who knows the data must
    confirm them.
    """
    codes = _counted(events)
    columns, doubts = dict[str, tuple[dict[str, Any], str]](), list[str]()
    by_code = {one.code: one for one in codes}

    def add(name: str, remark: str, /, *, doubt: str = "", **line: object) -> None:
        name = next(other for other in (name, *(f"{name}_{i}" for i in range(2, 10_000))) if other not in columns)
        columns[name] = (line, f"{CHECK}{doubt} ({remark})" if doubt else f"# {remark}")
        doubts.extend([f"{name}: {doubt}"] if doubt else [])

    anchor = next((row for row in ANCHORS if any(one.code.startswith(row[0]) for one in codes)), None)
    starts = {one.code: stop for one in codes if (stop := _stop_of(one.code)) in by_code}
    pair = PAIRED_BY if PAIRED_BY in events.scan.collect_schema().names() else ""
    numeric = [one for one in codes if one.numbers > one.static and 2 * one.numbers > one.n]
    numeric = [one for one in numeric if not (GIVEN.search(one.code) or KNOWN_LATER.search(one.code))]
    given = [one for one in codes if one.code in starts and pair][:TREATMENTS]
    if not given:
        plain = [one for one in codes if GIVEN.search(one.code) and not one.static and not KNOWN_LATER.search(one.code)]
        given = plain[:TREATMENTS]
    for i, one in enumerate(numeric[: COVARIATES + 1]):
        unit = {"unit": one.unit} if one.unit else {}
        if i == 0:
            add(_name(one), one.seen, doubt="is this what is to be predicted?", role="outcome", code=one.code, **unit)
        else:
            add(_name(one), one.seen, role="covariate", code=one.code, **unit)
    for one in given:
        paired = one.code in starts and bool(pair)
        ended: dict[str, Any] = {"stop": {"code": starts[one.code]}, "pair": pair} if paired else {}
        dose = {"kind": "continuous"} if paired and one.numbers else {}
        unit = {"unit": one.unit} if dose and one.unit else {}
        doubt = "a treatment that plans are to vary? Which rate or event means that it was given?"
        add(_name(one), one.seen, doubt=doubt, role="treatment", code=one.code, **dose, **unit, **ended)
    for line, name, remark in _statics(codes):
        add(name, remark, **line)
    if "MEDS_BIRTH" in by_code:
        add("age", by_code["MEDS_BIRTH"].seen, role="static", code="MEDS_BIRTH", value="years", unit="years")
    if "MEDS_DEATH" in by_code:
        add("death", by_code["MEDS_DEATH"].seen, role="event", code="MEDS_DEATH")
    if (end := "observation_period//end") in by_code:
        add("left", by_code[end].seen, role="censored", code=end)
    roles = {line["role"] for line, _ in columns.values()}
    lacking = [role for role in ("outcome", "treatment") if role not in roles]
    doubts += [f"no code seems to be the {role}" for role in lacking]
    used = {code for line, _ in columns.values() for code in [line.get("code")] if code}
    rest = [one for one in codes if one.code not in used][:COVARIATES]
    return GuessedSchema("\n".join(_lines(events, anchor, columns, lacking, rest)) + "\n", tuple(doubts))


def _counted(events: Events) -> list[_Code]:
    """Return the codes, those that most subjects have first."""
    has_unit = "unit" in events.scan.collect_schema().names()
    unit = pl.col("unit").drop_nulls().first() if has_unit else pl.lit(None, dtype=pl.String)
    counts = events.scan.group_by("code").agg(
        n=pl.len(),
        static=pl.col("time").is_null().sum(),
        numbers=pl.col("value").is_not_null().sum(),
        subjects=pl.col("subject").n_unique(),
        unit=unit,
    )
    with collected(events.path):
        frame = counts.collect(engine="streaming")
    if events.texts is not None:
        frame = frame.join(events.texts.unique("code", keep="first", maintain_order=True), on="code", how="left")
    else:
        frame = frame.with_columns(description=pl.lit(None, dtype=pl.String))
    rows = frame.sort("subjects", "n", "code", descending=[True, True, False]).iter_rows(named=True)
    codes = []
    for row in rows:
        code, said = row["code"], row["description"] or ""
        text = "" if said == code else _line(said)[:80]
        codes.append(_Code(code, row["n"], row["static"], row["numbers"], row["subjects"], row["unit"] or "", text))
    return codes


def _line(text: str) -> str:
    """Return what a log says, which may be anything, as part of a comment."""
    return " ".join(CONTROL.sub(" ", text).split())


def _stop_of(code: str) -> str:
    """Return the code that would end what this one starts."""
    for start, stop in (("START", "END"), ("START", "STOP"), ("_BEGIN", "_END")):
        if start in code and "RESTART" not in code:
            return code.replace(start, stop, 1)
    return ""


def _statics(codes: list[_Code]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield what has no time: numbers by their code, others by what their codes begin with."""
    untimed = [one for one in codes if one.static == one.n]
    for one in [one for one in untimed if one.numbers][:STATICS]:
        yield {"role": "static", "code": one.code}, _name(one), one.seen
    groups: dict[str, list[_Code]] = {}
    for one in untimed:
        if not one.numbers and "//" in one.code:
            groups.setdefault(one.code.split("//")[0], []).append(one)
    for begin, own in list(groups.items())[:STATICS]:
        line = {"role": "static", "kind": "categorical", "prefix": f"{begin}//", "value": "code", "unseen": "other"}
        yield line, _slug(begin), f"{sum(one.n for one in own):,} events, {len(own)} codes"


def _name(one: _Code) -> str:
    """Return what a signal of this code may be called."""
    words = [part for part in one.code.split("//") if part and part != one.unit]
    return _slug(one.text if one.text and len(one.text) <= LONGEST_NAME else "_".join(words))


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:LONGEST_NAME].strip("_") or "signal"


def _lines(
    events: Events,
    anchor: tuple[str, str, str] | None,
    columns: dict[str, tuple[dict[str, Any], str]],
    lacking: list[str],
    rest: list[_Code],
) -> Iterator[str]:
    yield "# Signals of a log of events, proposed from the counts of its codes. Read every line. Where it says CHECK,"
    yield "# correct it and delete the comment: until then `costar ingest` refuses the file."
    yield toml_row("name", re.sub(r"[^A-Za-z0-9 _.-]", " ", events.name).strip(" _.-")[:60] or "events")
    yield "horizon = 6  # steps predicted from an origin"
    yield "\n[time]"
    yield f"{toml_row('step', anchor[2] if anchor else '1d')}  {CHECK}short enough that treatments follow measurements?"
    if anchor:
        yield "\n[anchor]  # where a series begins; `before` and `after` are lengths such as 24h"
        yield toml_row("prefix", anchor[0])
        yield 'after = "72h"' if anchor[2] == "1h" else 'after = "30d"'
        yield toml_row("until", {"prefix": anchor[1]})
    yield "\n[columns]"
    for name, (line, remark) in columns.items():
        yield f"{toml_row(name, line)}  {remark}"
    for role in lacking:
        yield f'# NAME = {{ role = "{role}", code = "" }}  {CHECK}no code seems to be the {role}'
    if rest:
        yield "# further codes:"
    for one in rest:
        yield f"#   {_line(one.code)}: {one.seen}"
