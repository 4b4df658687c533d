"""The constants that pages of `docs/spec/` print are those of the code."""

import re

import pytest

from costar_cli.config.models import EncoderConfig
from costar_cli.methods.registry import METHODS
from costar_cli.settings.presets import preset_settings
from simulators.icu.targets import RECORDED
from simulators.icu.variables import VARIABLES
from simulators.retail import CATEGORIES, DEPARTMENTS, PRICE_EDGES, STORES
from simulators.semi_synthetic import OUTCOMES, TREATMENTS
from simulators.tumor import STAGES
from tests.cli.cli_world import REPOSITORY


def entry(page: str, address: str) -> str:
    """The text of one entry, from its anchor to the next."""
    text = (REPOSITORY / "docs" / "spec" / page).read_text("utf-8")
    return text.partition(f'<a id="{address.lower()}"></a>')[2].partition("<a id=")[0]


def rows(page: str, address: str) -> dict[str, list[str]]:
    """The rows of an entry's table below its heading, by their first cell."""
    lines = [line for line in entry(page, address).splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first: rest for first, *rest in cells if set(first) != {"-"}}


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"-?\.?\d[\d,]*\.?\d*(?:e-?\d+)?", text)]


def each(text: str) -> list[float]:
    """The numbers of a list with commas between them."""
    return [float(part) for part in text.split(",")]


def test_stages_of_tumours() -> None:
    printed = rows("tumor.md", "TUMOR-2")
    for stage in STAGES:
        assert each(",".join(printed[stage.name])) == [stage.count, stage.mu, stage.sigma, stage.lo_cm, stage.hi_cm]


def test_mechanism_of_simulated_icu_outcomes_and_treatments() -> None:
    printed = rows("icu.md", "ICU-6")
    for i, outcome in enumerate(OUTCOMES):
        assert printed["covariates of f"][i] == ", ".join(outcome.covariates)
        assert each(printed["gamma, scale of f"][i]) == [outcome.gamma, outcome.scale]
        assert numbers(printed["length, noise variance of g"][i]) == [outcome.path_hours, outcome.path_noise]
        weights = (outcome.covariate_weight, outcome.path_weight, outcome.trend_weight)
        assert [float(printed[f"`a^{term}`"][i]) for term in "fgB"] == list(weights)
    printed = rows("icu.md", "ICU-10")
    for i, treatment in enumerate(TREATMENTS):
        assert printed["covariates of f"][i] == ", ".join(treatment.covariates)
        assert each(printed["gamma, scale of f"][i]) == [treatment.gamma, treatment.scale]
        assert printed["conf"][i] == ", ".join(OUTCOMES[j].name for j in treatment.confounders)
        assert printed["acts on"][i] == ", ".join(OUTCOMES[j].name for j in treatment.acts_on)
        values = (
            "`w` (averages w + 1 hours)",
            "`gamma^Y`",
            "`gamma^X`",
            "`b`",
            "full effect `beta`",
            "hours of effect `e`",
        )
        assert [float(printed[name][i]) for name in values] == [
            treatment.look_back,
            treatment.outcome_weight,
            treatment.covariate_weight,
            treatment.bias,
            treatment.full_effect,
            treatment.effect_hours,
        ]


def test_variables_of_the_embedded_cohort() -> None:
    printed = rows("cohort.md", "COHORT-8")
    for variable in VARIABLES:
        law, level, bounds, dynamics, slope, clock, loads, missing = printed[variable.name]
        assert law == variable.law[0]
        assert each(level) == [variable.mean, variable.sd]
        assert [float(x) for x in bounds.split(" to ")] == [variable.lo, variable.hi]
        assert each(dynamics) == [variable.icc, variable.phi, variable.ar_share]
        assert float(slope) == variable.age_slope
        assert (numbers(clock) or [0.0, 0.0]) == [variable.clock_amplitude, variable.clock_peak]
        assert {int(x[1]): float(x[3:]) for x in loads.split(", ")} == dict(variable.loads)
        assert float(missing) == RECORDED[variable.name].missing_percent


def test_price_edges_and_catalogue() -> None:
    block = entry("retail.md", "RETAIL-7").partition("```text")[2].partition("```")[0]
    assert [float(edge) for edge in block.split()] == list(PRICE_EDGES)
    text = " ".join(entry("world.md", "WORLD-1").split())
    assert all(f"{department.name} {department.n_items}" in text for department in DEPARTMENTS)
    assert all(f"{store} {volume:.2f}" in text for store, volume in STORES.items())
    printed = rows("world.md", "WORLD-3")
    for category, column in zip(reversed(CATEGORIES), range(3), strict=True):
        assert float(printed["median level m"][column]) == category.daily_level
        assert each(printed["`s_I`, `s_S`"][column]) == [category.item_sd, category.store_item_sd]
        assert each(printed["median price, `s_P`"][column]) == [category.base_price, category.base_price_sd]
        assert float(printed["elasticity, mean"][column]) == category.elasticity
        assert float(printed["rate of price changes `pi` (M5)"][column]) == category.change_rate


RMSN = ("width", "dropout", "layers", "max_grad_norm", "batch_size", "learning_rate")
RECURRENT = ("width", "representation", "hidden", "layers", "dropout", "batch_size", "learning_rate")
TRANSFORMER = (*RECURRENT[:4], "heads", "clip_distance", *RECURRENT[4:])
NETWORKS = {  # method and network, entry, row, its numbers
    ("rmsn", "treatment"): ("SIZE-3", "treatment propensity", RMSN),
    ("rmsn", "history"): ("SIZE-3", "history propensity", RMSN),
    ("rmsn", "encoder"): ("SIZE-3", "encoder", RMSN),
    ("rmsn", "decoder"): ("SIZE-3", "decoder", RMSN),
    ("crn", "encoder"): ("SIZE-4", "CRN, encoder", RECURRENT),
    ("crn", "decoder"): ("SIZE-4", "CRN, decoder", RECURRENT),
    ("crn-erm", "encoder"): ("SIZE-4", "CRN(ERM), encoder", RECURRENT),
    ("crn-erm", "decoder"): ("SIZE-4", "CRN(ERM), decoder", RECURRENT),
    ("gnet", "network"): ("SIZE-5", "network", RECURRENT),
    ("ct", "network"): ("SIZE-6", "CT", TRANSFORMER),
    ("ct-erm", "network"): ("SIZE-6", "CT(ERM)", TRANSFORMER),
    ("edct", "encoder"): ("SIZE-7", "encoder", TRANSFORMER),
    ("edct", "decoder"): ("SIZE-7", "decoder", TRANSFORMER),
}


@pytest.mark.parametrize(("method", "network"), NETWORKS)
@pytest.mark.parametrize(("column", "dataset"), list(enumerate(("tumor", "mimic", "m5"))))
def test_sizes_of_baselines(method: str, network: str, column: int, dataset: str) -> None:
    address, row, names = NETWORKS[method, network]
    cells = rows("sizes.md", address)[row]
    printed = cells[min(column, len(cells) - 1)]
    if printed.startswith("as "):
        printed = rows("sizes.md", address)[row.replace("(ERM)", "")][column]
    settings, key = METHODS[method].default_settings(), METHODS[method].section
    fields = dict(getattr(settings, network))
    if "width" in names and network == "decoder" and method != "rmsn":  # as wide as what the encoder represents
        names = names if method.startswith("crn") else names[1:]
        fields["width"] = settings.encoder.representation
    preset = preset_settings("default", dataset)
    fields |= {name: preset[f"{key}.{network}.{name}"][0] for name in fields if f"{key}.{network}.{name}" in preset}
    if network == "decoder" and f"{key}.encoder.representation" in preset:
        fields["width"] = fields["width"] if method == "rmsn" else preset[f"{key}.encoder.representation"][0]
    assert each(printed) == [fields[name] for name in names]


def test_parameters_of_costar() -> None:
    printed = rows("sizes.md", "SIZE-2")
    shapes = {
        "tumours": (0, 4, 1, 1, 6),
        "ICU, H = 11": (25, 3, 2, 44, 11),
        "retail, with nine stores": (47, 22, 1, 22, 6),
    }
    for column, (dataset, (dx, da, dy, dv, horizon)) in enumerate(
        zip(("tumor", "mimic", "m5"), shapes.values(), strict=True)
    ):
        preset = preset_settings("default", dataset)
        shape = EncoderConfig()
        width, layers, heads = (
            preset.get(f"pretrain.encoder.{name}", (getattr(shape, name),))[0] for name in ("width", "layers", "heads")
        )
        codes, tables = 4 + max(dx, da, dy, dv), 2 * (2 * shape.clip_distance + 1) * width // heads
        encoder = 2 * width + codes * width + tables + layers * (22 * width**2 + 24 * width)
        predictor = 4 * width**2 + 3 * width
        head = (da * width * horizon + width) + (da * width + width) + (128 * width + 128) + (128 * dy + dy)
        sizes = {"encoder": encoder, "predictor": predictor, "head": head, "all": encoder + predictor + head}
        assert {name: numbers(printed[name][column])[0] for name in sizes} == sizes
