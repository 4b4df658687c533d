"""The ICU data sets: their settings, and what the registry tells of them (docs/spec/icu.md)."""

from typing import ClassVar, Final, Self

from pydantic import Field, model_validator

from costar_cli.config.models import Config, WithAdditions
from costar_cli.data.base import EXPERT, KNOWS_HIDDEN_STATE, DataSource, Export, InputFile, Limit, Protocol


class IcuConfig(WithAdditions, Config):
    """What both ICU data sets share: who is source and who target, which hours count, and the splits by patient."""

    additions: ClassVar[tuple[str, ...]] = ("trust_pickle",)
    source_above: float = Field(19.0, ge=0, le=200, description="Source patients are older than this, in years")
    source_to: float = Field(45.0, ge=0, le=200, description="Source patients are at most this old")
    target_above: float = Field(85.0, ge=0, le=200, description="Target patients are older than this")
    target_to: float | None = Field(None, ge=0, le=200, description="Target patients are at most this old")
    age_cap: float = Field(
        91.4,
        gt=0,
        le=200,
        description="Ages above this are set to it: MIMIC-III shifts ages above 89 to about 300",
        json_schema_extra=EXPERT,
    )
    min_hours: int = Field(20, ge=2, le=10_000, description="Minimum length of a stay; shorter ones are excluded")
    hours: int = Field(100, ge=3, le=1_000, description="Hours kept from the start of each stay")
    horizon: int = Field(11, ge=2, le=100, description="Hours predicted from an origin (the paper's tau = 1..11)")
    source_val: float = Field(
        0.10, gt=0, lt=1, description="Share of the source patients for validation", json_schema_extra=EXPERT
    )
    source_test: float = Field(
        0.10, gt=0, lt=1, description="Share of the source patients for testing", json_schema_extra=EXPERT
    )
    target_val: float = Field(0.10, gt=0, lt=1, description="Share of the target patients for validation")
    target_test: float = Field(0.50, gt=0, lt=1, description="Share of the target patients for testing")
    few_shot: float = Field(
        0.10, gt=0, le=1, description="Share of the remaining target patients for few-shot training"
    )
    trust_pickle: bool = Field(
        False,
        description="Make whatever is pickled in a MIMIC-Extract file, which can run code, and not texts alone",
        json_schema_extra={"flag": "--trust-pickle"},
    )
    seed: int = Field(17, ge=0, lt=2**63, description="Seed of the splits by patient, and of what is simulated")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        target_to = float("inf") if self.target_to is None else self.target_to
        if self.source_above >= self.source_to or self.target_above >= target_to:
            raise ValueError(
                "an age group is empty: source_above must be below source_to, and target_above below target_to"
            )
        if max(self.source_above, self.target_above) < min(self.source_to, target_to):
            raise ValueError("the age groups of source and target overlap")
        if self.age_cap <= max(self.source_above, self.target_above):
            raise ValueError(f"age_cap {self.age_cap:g} leaves nobody in the older age group")
        if min(self.min_hours, self.hours) <= self.horizon:
            raise ValueError(f"min_hours and hours must be above horizon {self.horizon}: it needs as many hours after")
        if self.source_val + self.source_test >= 1 or self.target_val + self.target_test >= 1:
            raise ValueError("the shares to select and to test on leave nobody to train on")
        return self


class MimicConfig(IcuConfig):
    """Outcomes and treatments simulated on ICU covariates (spec ICU-6 to 16)."""

    stays: int = Field(36_000, ge=1, le=99_999, description="ICU stays of the embedded cohort, all ages")
    plans_per_origin: int = Field(
        10, ge=1, le=1_000, description="Treatment sequences per origin", json_schema_extra=EXPERT
    )
    # Uncentred functions are nearly constant over patients, an offset with an sd of about 4: with some seeds it alone
    # makes a treatment certain, and what is measured is the seed. The preset `paper` keeps the offsets.
    center: bool = Field(True, description="Centre the random functions, so that treatments stay uncertain")


class MimicFactualConfig(IcuConfig):
    """What was really given and measured in a MIMIC-Extract file (spec ICU-17)."""

    min_hours: int = Field(30, ge=2, le=10_000, description="Minimum length of a stay; shorter ones are excluded")
    hours: int = Field(60, ge=3, le=1_000, description="Hours kept from the start of each stay")
    horizon: int = Field(6, ge=2, le=100, description="Hours predicted from an origin (tau = 1..6)")
    source_val: float = Field(
        0.15, gt=0, lt=1, description="Share of the source patients for validation", json_schema_extra=EXPERT
    )
    source_test: float = Field(
        0.15, gt=0, lt=1, description="Share of the source patients for testing", json_schema_extra=EXPERT
    )
    transfer: bool = Field(True, description="Split source and target by age; otherwise all patients are the source")
    patients: int = Field(5_000, ge=1, description="Maximum number of patients, drawn at random")


PROTOCOL: Final = Protocol(  # spec ICU-4, ICU-14
    settings={
        "embedded": False,
        "center": False,
        "source_above": 19.0,
        "source_to": 45.0,
        "target_above": 85.0,
        "target_to": None,
        "min_hours": 20,
        "hours": 100,
        "horizon": 11,
        "source_val": 0.10,
        "source_test": 0.10,
        "target_val": 0.10,
        "target_test": 0.50,
        "few_shot": 0.10,
    },
    subjects={"source": 4_630, "target": 3_474},
)
EXTRACT: Final = "give MIMIC-Extract's all_hourly_data.h5"

MIMIC: Final = DataSource(
    name="mimic",
    label="ICU",
    summary="Simulate outcomes and treatments on ICU stays: young patients are the source, old ones the target.",
    settings=MimicConfig,
    make="costar_cli.data.icu.semi_synthetic:simulate_mimic",
    truth="costar_cli.data.icu.semi_synthetic:mimic_truth",
    limit=Limit(
        predict="costar_cli.data.icu.semi_synthetic:mimic_limit",
        label=KNOWS_HIDDEN_STATE,
        needs=("logit", "systematic"),
    ),
    examples=("costar simulate mimic --stays 2000", "costar simulate mimic --mimic-extract all_hourly_data.h5"),
    panel="Patients",
    input=InputFile(
        name="mimic_extract",
        help="all_hourly_data.h5 of MIMIC-Extract, instead of the embedded cohort",
        make="costar_cli.data.icu.semi_synthetic:simulate_mimic_on",
        form="hdf5",
        expected=EXTRACT,
        stands_for="the embedded cohort",
        idle=("stays",),
    ),
    export=Export(
        name="export_extract",
        help="File to export the embedded cohort to, in MIMIC-Extract format",
        world="costar_cli.data.icu.table:embedded_cohort",
        check="costar_cli.data.icu.extract.store:check_extract_path",
        write="costar_cli.data.icu.extract.store:write_extract",
        form="hdf5",
    ),
    protocol=PROTOCOL,
)

MIMIC_FILE: Final = DataSource(
    name="mimic",
    label="ICU as observed",
    summary="Read ICU stays with the care that was given and the diastolic pressure that followed.",
    settings=MimicFactualConfig,
    dataset="mimic-factual",
    examples=("costar ingest mimic all_hourly_data.h5 --patients 5000",),
    panel="Patients",
    input=InputFile(
        name="file",
        role="mimic_extract",
        help="all_hourly_data.h5 of MIMIC-Extract",
        make="costar_cli.data.icu.factual:ingest_mimic",
        form="hdf5",
        expected=EXTRACT,
    ),
)
