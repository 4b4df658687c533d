"""Garden beds that dry out, are watered and rained on: a data set whose truth under every plan is known.

Moisture follows `y[t+1] = keep * y[t] + water * a[t] + rain[t]`. A gardener waters dry beds more often, the more so the
larger `gamma` is: confounding. The rain is stored, so that any plan can be answered by going through it again.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from costar_cli.config.models import Config
from costar_cli.data import Dataset, Panel, PanelSchema, Part, Queries, TreatmentEncoding, Variable
from costar_cli.data.base import DataSource
from costar_cli.reporting import Reporter

Floats = NDArray[np.float64]

SCHEMA = PanelSchema(
    treatments=TreatmentEncoding(mode="multilabel", names=("watering",), levels=(("no", "yes"),)),
    outcomes=(Variable(name="moisture", unit="%"),),
    step="day",
)


class GardenConfig(Config):
    """Settings of the garden: each is a flag of `costar simulate garden`."""

    gamma: float = Field(1.0, ge=0, le=10, description="How much more often dry source beds are watered")
    target_gamma: float = Field(0.0, ge=0, le=10, description="How much more often dry target beds are watered")
    keep: float = Field(0.8, gt=0, lt=1, description="Share of the moisture that is left after a day")
    water: float = Field(10.0, ge=0, le=100, description="Moisture that watering adds, in %")
    beds: int = Field(200, ge=2, le=100_000, description="Beds of each part")
    days: int = Field(20, ge=4, le=1_000, description="Days observed of each bed")
    horizon: int = Field(3, ge=1, le=100, description="Days predicted from an origin")
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of rain and watering")


def simulate_garden(config: GardenConfig, reporter: Reporter) -> Dataset:
    """Simulate both domains, and ask on both test parts what each plan would have led to from day `days // 2`."""
    panels, truth, queries = {}, {}, {}
    with reporter.task("simulate a garden", total=len(Part.all()), unit="part") as task:
        for i, part in enumerate(Part.all()):
            rng = np.random.default_rng(np.random.SeedSequence(config.seed, spawn_key=(i,)))
            gamma = config.gamma if part.domain == "source" else config.target_gamma
            panels[part], rain_ND = _beds(config, gamma, rng, first_id=i * config.beds)
            truth[part] = {"rain": rain_ND}
            if part.split == "test":
                queries[part] = {"sequence": _queries(config, panels[part], rain_ND)}
            task.advance()
    return Dataset("garden", SCHEMA, config.horizon, panels, queries, truth, config.model_dump(mode="json"))


def garden_truth(dataset: Dataset, part: Part, row: ArrayLike, origin: ArrayLike, plan_values: ArrayLike) -> Floats:
    """Return the moisture `[H]` after each day of a plan `[H,1]`, had a bed been watered so from a day on.

    Of several questions, `row`, `origin` and plans have a leading axis, and so has what is returned.
    """
    config, panel = GardenConfig.model_validate(dict(dataset.config)), dataset.panels[part]
    plan_QH = np.atleast_2d(np.asarray(plan_values, dtype=np.float64)[..., 0])
    row_Q, origin_Q = np.atleast_1d(row), np.atleast_1d(origin)
    ahead_QH = origin_Q[:, None] + np.arange(plan_QH.shape[1])
    rain_QH = np.asarray(dataset.truth[part]["rain"], dtype=np.float64)[row_Q[:, None], ahead_QH]
    moisture_QH = _followed(config, panel.outcomes[row_Q, origin_Q, 0], plan_QH, rain_QH)
    return np.asarray(moisture_QH if np.ndim(row) else moisture_QH[0])


def _beds(config: GardenConfig, gamma: float, rng: np.random.Generator, *, first_id: int) -> tuple[Panel, Floats]:
    """Return the beds of a part, and their rain `[N,days+horizon]`, which goes on after the last observed day."""
    n, days = config.beds, config.days
    rain_ND = rng.gamma(1.0, 4.0, size=(n, days + config.horizon))
    moisture_NT, watered_NT = np.zeros((n, days)), np.zeros((n, days))
    moisture_NT[:, 0] = rng.uniform(10, 50, size=n)
    for t in range(days - 1):  # nothing is given on the last observed day
        dry_N = gamma * (30 - moisture_NT[:, t]) / 10
        watered_NT[:, t] = rng.random(n) < 1 / (1 + np.exp(-dry_N))
        moisture_NT[:, t + 1] = config.keep * moisture_NT[:, t] + config.water * watered_NT[:, t] + rain_ND[:, t]
    panel = Panel(
        covariates=np.zeros((n, days, 0), dtype=np.float32),
        treatments=watered_NT[..., None].astype(np.float32),
        outcomes=moisture_NT[..., None].astype(np.float32),
        statics=np.zeros((n, 0), dtype=np.float32),
        length=np.full(n, days, dtype=np.int64),
        subject_id=np.arange(first_id, first_id + n, dtype=np.int64),
    )
    return panel, rain_ND


def _queries(config: GardenConfig, panel: Panel, rain_ND: Floats) -> Queries:
    """Return two plans for each bed, never and always watered, with their answers."""
    origin, n = config.days // 2, panel.n_subjects
    row_Q = np.repeat(np.arange(n), 2)
    plan_QH = np.tile(np.repeat([[0.0], [1.0]], config.horizon, axis=1), (n, 1))
    answer_QH = _followed(config, panel.outcomes[row_Q, origin, 0], plan_QH, rain_ND[row_Q, origin:])
    return Queries(
        subject=row_Q.astype(np.int32),
        origin=np.full(len(row_Q), origin, dtype=np.int16),
        plan=plan_QH[..., None].astype(np.uint8),
        outcomes=answer_QH[..., None].astype(np.float32),
        scored=np.full(plan_QH.shape, fill_value=True),
    )


def _followed(config: GardenConfig, moisture_Q: NDArray[np.floating], plan_QH: Floats, rain_QH: Floats) -> Floats:
    """Return the moisture `[Q,H]` after each day of plans."""
    moisture_QH, now_Q = np.empty(plan_QH.shape), moisture_Q.astype(np.float64)
    for h in range(plan_QH.shape[1]):
        now_Q = config.keep * now_Q + config.water * plan_QH[:, h] + rain_QH[:, h]
        moisture_QH[:, h] = now_Q
    return moisture_QH


GARDEN = DataSource(
    name="garden",
    label="garden",
    summary="Simulate garden beds that dry out and are watered, with counterfactual test sets.",
    settings=GardenConfig,
    make=simulate_garden,
    truth=garden_truth,
    examples=("costar simulate garden --gamma 2",),
    presets={"quick": {"beds": 50}},
)
