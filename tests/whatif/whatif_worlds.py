"""Small data sets of the three kinds, models whose answers are known, and questions to them."""

import json
from dataclasses import dataclass, field

import numpy as np

from costar_cli.data import Dataset, Panel, PanelSchema, Part, Scaler, TreatmentEncoding, Variable
from costar_cli.data.record import ModelRecord
from costar_cli.inference import Calibration, OutcomeFacts
from costar_cli.inference.conformal import EDGES, GRID
from costar_cli.methods.base import FittedModel
from costar_cli.methods.shared.outcome_forms import OutcomeForm
from costar_cli.plans import parse_plans
from costar_cli.questions import estimate_outcomes

TUMOR = PanelSchema(
    treatments=TreatmentEncoding(
        mode="multiclass",
        names=("chemotherapy", "radiotherapy"),
        levels=(("off", "on"), ("off", "on")),
        classes=((0, 0), (1, 0), (0, 1), (1, 1)),
    ),
    outcomes=(Variable(name="tumour_volume", unit="cm3"),),
    statics=(Variable(name="patient_type", kind="ordinal"),),
    step="day",
)
ICU = PanelSchema(
    covariates=(Variable(name="lactate", unit="mmol/L"),),
    treatments=TreatmentEncoding(
        mode="multilabel", names=("vasopressor", "ventilation", "dialysis"), levels=(("no", "yes"),) * 3
    ),
    outcomes=(Variable(name="heart_rate", unit="1/min"), Variable(name="map", unit="mmHg")),
    step="hour",
)
PRICE_LEVELS = ("unchanged", *(f"{change:+d} %" for change in range(-50, 55, 5) if change))
RETAIL = PanelSchema(
    treatments=TreatmentEncoding(
        mode="multiclass",
        names=("price_class",),
        levels=((*PRICE_LEVELS, "above"),),
        classes=tuple((level,) for level in range(21)),
    ),
    outcomes=(Variable(name="sales", unit="items", kind="count"),),
    step="week",
)
SCHEMAS = {"tumor": TUMOR, "icu": ICU, "retail": RETAIL}
N_SUBJECTS, N_STEPS = 4, 20
PLANS = {
    "watch": [{}] * 6,
    "chemo": [{"chemotherapy": 1}, {"chemotherapy": 1}, {}, {}],
    "both": [{"chemotherapy": 1, "radiotherapy": 1}, {}],
}
TEST_SUBJECT, TRAIN_SUBJECT, ONE_STEP_SUBJECT = 4, 0, 6


def make_panel(schema: PanelSchema, first_id: int, seed: int) -> Panel:
    rng = np.random.default_rng(seed)
    dx, _, dy, dv = schema.dims
    encoding = schema.treatments
    if encoding.classes:
        values = np.asarray(encoding.classes)[rng.integers(0, len(encoding.classes), (N_SUBJECTS, N_STEPS))]
    else:
        values = rng.integers(0, 2, (N_SUBJECTS, N_STEPS, len(encoding.names)))
    length = np.array([N_STEPS, 12, 1, N_STEPS])
    observed = (np.arange(N_STEPS) < length[:, None])[..., None]
    outcomes = 50 + rng.normal(0, 1, (N_SUBJECTS, N_STEPS, dy)).cumsum(axis=1) - 10 * np.arange(dy)
    return Panel(
        covariates=np.where(observed, rng.normal(size=(N_SUBJECTS, N_STEPS, dx)), 0).astype(np.float32),
        treatments=np.where(observed, encoding.encode(values), 0).astype(np.float32),
        outcomes=np.where(observed, outcomes, 0).astype(np.float32),
        statics=rng.normal(size=(N_SUBJECTS, dv)).astype(np.float32),
        length=length,
        subject_id=np.arange(first_id, first_id + N_SUBJECTS),
    )


def make_dataset(name: str = "tumor", *, horizon: int = 6, with_truth: bool = False) -> Dataset:
    """Subjects 0-3 are source/train, 4-7 source/test, 8-11 target/test."""
    schema = SCHEMAS[name]
    parts = [Part("source", "train"), Part("source", "test"), Part("target", "test")]
    panels = {part: make_panel(schema, 4 * i, i) for i, part in enumerate(parts)}
    truth = {part: {"parameters": np.ones((N_SUBJECTS, 2))} for part in parts} if with_truth else {}
    return Dataset(name=name, schema=schema, horizon=horizon, panels=panels, truth=truth)


@dataclass
class LinearModel(FittedModel):
    """Last known outcome plus `coefficient[member]` times the number of treatments given so far.

    Its limits of level l are 2 l scales away, if it has members enough and is `calibrated`.
    """

    schema: PanelSchema
    coefficients: tuple[float, ...] = (-1.0, -2.0, -3.0)
    shift: tuple[float, ...] = ()
    horizon: int = 6
    method: str = "linear"
    trained_on: dict[str, int] | None = None
    meta: dict[str, object] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)
    digest: str = ""
    calibrated: bool = True
    attached: dict[str, np.ndarray] = field(default_factory=dict)
    adjusts: str = "all"

    def __post_init__(self):
        self.trained_on = {"source/train": N_SUBJECTS} if self.trained_on is None else self.trained_on
        if self.calibrated and self.members > 2:
            calibration = made_calibration(self.horizon, len(self.schema.outcomes))
            self.meta = {**self.meta, "calibration": calibration.to_meta()}
            self.attached = calibration.to_arrays()

    @property
    def record(self):
        return ModelRecord.read(self.meta)

    @property
    def members(self):
        return len(self.coefficients)

    @property
    def scaler(self):
        dx, _, dy, dv = self.schema.dims
        return Scaler(*(np.stack([np.zeros(n), np.ones(n)]) for n in (dx, dy, dv)))

    def rollout(self, panel, queries, *, batch_size=16_384, reporter=None):
        assert queries.horizon <= self.horizon
        last = panel.outcomes[queries.subject, queries.origin]
        given = self.schema.treatments.decode(queries.plan).sum(axis=-1).cumsum(axis=-1)
        members = np.array(self.coefficients)[:, None, None, None]
        shift = np.array(self.shift or (0.0,) * self.members)[:, None, None, None]
        return (last[None, :, None, :] + members * given[None, :, :, None] + shift).astype(np.float32)


def made_calibration(horizon, outcomes, *, domain="source", apart=True):
    form = OutcomeForm("additive", zero=0.0, sd=1.0, mean=0.0, low=-1e3, high=1e3)
    facts = OutcomeFacts((None,) * outcomes, (None,) * outcomes, (None,) * outcomes, (form,) * outcomes)
    shape = (horizon, outcomes, len(EDGES) + 1)
    radius = np.broadcast_to(2 * GRID[:, None, None, None], (len(GRID), *shape))
    return Calibration(50, domain, apart, "subject", 100, facts, radius, np.full(shape, 50))


def request_of(plans=None, origin=None, schema=TUMOR, horizon=6):
    document = {"plans": plans or PLANS} | ({} if origin is None else {"origin": origin})
    return parse_plans(json.dumps(document), schema.treatments, horizon=horizon)


def report_of(model=None, request=None, dataset=None, *, subject=TEST_SUBJECT, **options):
    models = {"costar": model or LinearModel(TUMOR)}
    return estimate_outcomes(dataset or make_dataset(), models, request or request_of(), subject=subject, **options)


def column(rows, name, **where):
    return [row[name] for row in rows if all(row[key] == value for key, value in where.items())]


def assert_no_nan(value):
    json.dumps(value, allow_nan=False)
