"""Files of NONMEM's layout: the settings of their ingestion, and what the registry tells of it."""

import re
import tomllib
from collections.abc import Mapping
from typing import Final, Literal

from pydantic import Field, model_validator

from costar_cli.config.models import Config
from costar_cli.data.base import DataSource, InputFile

ITEMS: Final[Mapping[str, tuple[str, ...]]] = {  # what is read, and what columns of it are called, in any case
    "id": ("id", "#id", "usubjid", "subjid", "subject"),
    "time": ("time", "afrlt"),
    "date": ("date", "dat1", "dat2", "dat3"),
    "dv": ("dv", "y", "observation"),
    "amt": ("amt", "amount"),
    "evid": ("evid",),
    "mdv": ("mdv",),
    "cmt": ("cmt", "adm"),
    "dvid": ("dvid", "ytype"),
    "rate": ("rate",),
    "dur": ("dur", "tinf"),
    "addl": ("addl",),
    "ii": ("ii", "tau"),
    "ss": ("ss",),
    "cens": ("cens", "blqfl", "blq", "bql"),
    "limit": ("limit",),
    "lloq": ("lloq", "alloq"),
}
_PAIR: Final = re.compile(r"([^\s=,]+)\s*=\s*([^\s=,]+)")


def pairs(text: str) -> dict[str, str]:
    """Return `{"cp": "1", "pca": "2"}` of `cp=1 pca=2`.

    Raises:
        ValueError: it is written otherwise, or names something twice.
    """
    found = _PAIR.findall(text)
    if _PAIR.sub("", text).strip(" \t,") or len({name for name, _ in found}) < len(found):
        raise ValueError(f"{text!r} is not written as NAME=VALUE NAME=VALUE, each name once")
    return dict(found)


class NonmemConfig(Config):
    """What becomes of the records of a file: steps, outcomes, doses, covariates."""

    name: str = Field("", max_length=64, description="Name of the data set (default: that of the file)")
    horizon: int = Field(6, ge=1, le=1_000, description="Steps predicted from an origin")
    step: float | None = Field(
        None, gt=0, description="Length of a step, in units of TIME; by default each record is a visit, at any time"
    )
    time_unit: str = Field("hour", min_length=1, max_length=20, description="Unit of TIME, in the singular")
    columns: str = Field(
        "", description="Names of the columns of a file without a header, as in $INPUT: 'ID TIME AMT WT DV'"
    )
    items: str = Field("", description="Columns that are called otherwise: 'dv=CONC time=HOURS'")
    outcomes: str = Field("", description="Names of outcomes by DVID, or by CMT without it: 'cp=1 pca=2'")
    doses: str = Field("", description="Names of doses by the CMT that they go to: 'oral=1 infusion=2'")
    baseline: str = Field("", description="Values of outcomes before a subject's first dose, if not measured: 'cp=0'")
    below: Literal["error", "missing", "half", "limit"] = Field(
        "error",
        description="Values that are known only to be beyond a limit (CENS, BLQ): refused, left out, at half the limit "
        "or in the middle of CENS and LIMIT, or at the limit",
    )
    covariates: str = Field(
        "",
        description="Columns that are covariates: 'WT AGE', or `none`; by default all that say nothing of doses or DV",
    )
    categorical: str = Field("", description="Covariates whose numbers are names: 'RACE'")
    carry: Literal["forward", "backward"] = Field(
        "forward",
        description="Whether a changing covariate counts from its record on, or, as in NONMEM, from the record before",
    )
    steady_state: int = Field(
        0, ge=0, le=1_000, description="Earlier doses that stand for SS in place of a steady state (0: SS is refused)"
    )
    target: str = Field("", description="Condition of the target domain, such as 'WT >= 80' (default: none)")
    table: str = Field(
        "", description="TOML that overrules the schema of the table that is made: 'columns.DV.unit = \"mg/L\"'"
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of the split by subject")

    @model_validator(mode="after")
    def _written(self) -> "NonmemConfig":
        for name in ("items", "outcomes", "doses", "baseline"):
            try:
                found = pairs(getattr(self, name))
            except ValueError as error:
                raise ValueError(f"`{name}`: {error}") from None
            if name == "items" and (unknown := sorted(set(found) - set(ITEMS))):
                raise ValueError(f"`items`: {unknown[0]!r} is none of {', '.join(ITEMS)}")
            if name == "baseline":
                try:
                    [float(value) for value in found.values()]
                except ValueError:
                    raise ValueError(f"`baseline`: {self.baseline!r} has a value that is not a number") from None
        try:
            tomllib.loads(self.table)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"`table` is not valid TOML: {error}") from None
        return self


class RecordsRead(Config):
    """How the records of a model's data were read, so that those of new subjects become the same columns.

    `outcomes` and `doses` have the code of each, None where no code chose it; `covariates` says whether one is a text.
    """

    settings: NonmemConfig
    outcomes: dict[str, str | None]
    doses: dict[str, str | None]
    covariates: dict[str, bool]


NONMEM_FILE: Final = DataSource(
    name="nonmem",
    label="doses and observations",
    summary="Read a table of doses and observations in NONMEM's layout, also of Monolix, nlmixr2 and ADPPK.",
    settings=NonmemConfig,
    examples=(
        "costar ingest nonmem warfarin.csv --horizon 3 --baseline cp=0",
        "costar ingest nonmem trial.csv --step 24 --covariates 'WT AGE'",
    ),
    panel="Records",
    input=InputFile(
        name="file",
        metavar="FILE",
        help="CSV, text or Parquet with columns such as ID, TIME, DV, AMT, EVID",
        make="costar_cli.data.nonmem.table:ingest_nonmem",
        like="costar_cli.data.nonmem.table:ingest_new_nonmem",
        role="records",
        expected="give a file with a row per dose and observation",
    ),
)
