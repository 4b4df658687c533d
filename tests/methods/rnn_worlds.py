"""Small worlds for the recurrent methods: a ward with every kind of column, and fits that take a second."""

import numpy as np

from costar_cli.config.models import Config, FinetuneConfig, RuntimeConfig
from costar_cli.data import Dataset, Panel, PanelSchema, Part, Queries, Scaler
from costar_cli.data.schema import TreatmentEncoding, Variable
from costar_cli.data.tensors import PanelTensors
from costar_cli.methods.recurrent.model import RecurrentModel
from costar_cli.methods.recurrent.settings import CrnConfig, CrnErmConfig, GNetConfig, RmsnConfig
from costar_cli.training import Trained
from tests.fits import fit_method, model_of

SMALL, LARGE = ({"batch_size": size, "learning_rate": 0.01} for size in (16, 64))
SETTINGS: dict[str, Config] = {
    "rmsn": RmsnConfig.model_validate(
        {
            "treatment": {"width": 4, "batch_size": 16},
            "history": {"width": 5, "layers": 2, "batch_size": 16},
            "encoder": {"width": 6, "layers": 2, "batch_size": 16},
            "decoder": {"width": 7, **LARGE},
        }
    ),
    "crn": CrnConfig.model_validate(
        {"encoder": {"width": 6, "representation": 5, **SMALL}, "decoder": {"layers": 2, "representation": 4, **LARGE}}
    ),
    "crn-erm": CrnErmConfig.model_validate(
        {"encoder": {"width": 6, "layers": 2, "representation": 5, **SMALL}, "decoder": {"hidden": 4, **LARGE}}
    ),
    "gnet": GNetConfig.model_validate(
        {"samples": 8, "network": {"width": 6, "layers": 2, "representation": 4, "hidden": 5, **SMALL}}
    ),
}


def schema() -> PanelSchema:
    """Two covariates, two treatments of which both can be given, two outcomes, one static."""
    encoding = TreatmentEncoding(mode="multilabel", names=("drug", "oxygen"), levels=(("no", "yes"),) * 2)
    return PanelSchema(
        covariates=(Variable(name="heart_rate"), Variable(name="lactate")),
        treatments=encoding,
        outcomes=(Variable(name="pressure"), Variable(name="saturation")),
        statics=(Variable(name="age"),),
    )


def ward(horizon: int = 4, steps: int = 12, seed: int = 0) -> Dataset:
    """Stays of 6 to 12 steps, in which treatments follow the outcomes and move them."""
    rng = np.random.default_rng(seed)
    panels, first = {}, 0
    for part, n in zip(Part.all(), (40, 12, 5, 12, 10, 6), strict=True):
        panels[part] = stays(rng, n, steps, first)
        first += n
    return Dataset("ward", schema(), horizon, panels)


def stays(rng: np.random.Generator, n: int, steps: int, first_id: int) -> Panel:
    x, a, y = (np.zeros((n, steps, 2), dtype=np.float32) for _ in range(3))
    v = rng.normal(60, 10, size=(n, 1)).astype(np.float32)
    y[:, 0] = rng.normal(5, 2, size=(n, 2))
    for t in range(steps):
        x[:, t] = 0.5 * y[:, t] + rng.normal(size=(n, 2))
        a[:, t] = rng.random((n, 2)) < 1 / (1 + np.exp(y[:, t] - 5))
        if t + 1 < steps:
            y[:, t + 1] = 0.8 * y[:, t] + 2 * a[:, t] + 0.02 * v + rng.normal(size=(n, 2)) * 0.3
    length = rng.integers(7, steps + 1, size=n)
    length[0] = steps
    seen = np.arange(steps) < length[:, None]
    series = (np.where(seen[..., None], values, 0).astype(np.float32) for values in (x, a, y))
    return Panel(*series, v, length, np.arange(first_id, first_id + n))


def fit(
    method: str,
    dataset: Dataset,
    start: RecurrentModel | None = None,
    settings: Config | None = None,
    runtime: RuntimeConfig | None = None,
    **changes: object,
) -> tuple[Trained, RecurrentModel]:
    """Fit a method and read what it stored."""
    domain = changes.pop("domain", "source")
    config = FinetuneConfig.model_validate({"epochs": 2, "members": 2, "seed": 5, "select_on": "own-loss", **changes})
    settings = settings or SETTINGS[method]
    trained = fit_method(dataset, method, settings, config, runtime=runtime, domain=domain, start=start)
    model = model_of(trained)
    assert isinstance(model, RecurrentModel)
    return trained, model


def ask(model: RecurrentModel | Dataset, panel: Panel, n: int = 40, horizon: int | None = None) -> Queries:
    """Return queries at random origins, the last observed step among them, with random plans."""
    rng = np.random.default_rng(0)
    subject = rng.integers(panel.n_subjects, size=n).astype(np.int32)
    origin = (rng.random(n) * panel.length[subject]).astype(np.int16)
    origin[0], origin[1] = 0, panel.length[subject[1]] - 1
    shape = (n, horizon or model.horizon)
    encoding = model.schema.treatments
    if encoding.mode == "multiclass":
        plan = np.eye(encoding.width, dtype=np.uint8)[rng.integers(encoding.width, size=shape)]
    else:
        plan = rng.integers(2, size=(*shape, encoding.width)).astype(np.uint8)
    return Queries(subject, origin, plan)


def tensors(dataset: Dataset, part: Part = Part("source", "train"), **options: object) -> PanelTensors:  # noqa: B008
    """Return a scaled panel."""
    scaler = Scaler.fit(dataset.panel("source", "train"), dataset.schema)
    return PanelTensors.from_panel(dataset.panels[part], scaler, **options)
