"""Draw docs/img/m5-*.png and print the tables of docs/data-m5.md; `--tables` prints alone.

python docs/figures_m5.py [--tables]
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from costar_cli.data import Part
from costar_cli.data.retail.m5 import retail_dataset
from costar_cli.data.retail.sequences import YearSequences, class_labels
from costar_cli.data.retail.settings import RetailConfig
from costar_cli.data.retail.weekly import CATEGORY_IDS, WeeklySales
from costar_cli.report.figures.style import BLACK, BLUE, COLOURS, GREY, LIGHT_GREY, figure, save
from costar_cli.reporting import NullReporter
from costar_cli.settings.presets import PRESETS
from simulators.retail import (
    PRICE_EDGES,
    Confounding,
    PriceClasses,
    RetailWorld,
    expected_weekly_sales,
    simulate_retail,
)

PICTURES = Path(__file__).parent / "img"
SCALE, SEEDS = 0.25, (10, 101, 1010, 10101, 101010)  # of the tables: the published runs' seeds, the first for pictures
SHOWN = ("FOODS_2_099@WI_2/2015", "HOUSEHOLD_1_006@TX_3/2015")
CUT, RISE = 2, 19  # price classes of the pictures
VERMILION = COLOURS[1]
TARGETS = {  # spec WORLD-15: weekly mean, zero weeks, lag-1 correlation, variance / mean, 5/50/95 % of changes
    "FOODS": (11.0, 0.14, 0.54, 1.8, -0.17, 0.034, 0.29),
    "HOUSEHOLD": (5.0, 0.21, 0.35, 1.6, -0.17, 0.034, 0.29),
    "HOBBIES": (3.4, 0.37, 0.47, 1.4, -0.17, 0.034, 0.29),
}
QUANTITIES = (
    "units per week, mean",
    "weeks without a sale",
    "correlation with the week before",
    "variance / mean in a year",
    "price changes, 5 % quantile",
    "price changes, median",
    "price changes, 95 % quantile",
)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Shop:
    """A simulated world with its yearly sequences and their price classes."""

    world: RetailWorld
    sales: WeeklySales
    sequences: YearSequences
    classes: PriceClasses

    def rows(self, category: str) -> NDArray[np.int64]:
        """Return the sequences of a category."""
        of_item = self.sales.category[self.sales.item[self.sequences.row]]
        return np.flatnonzero(of_item == CATEGORY_IDS.index(category))

    def units(self, rows: NDArray[np.int64]) -> tuple[Floats, NDArray[np.bool_]]:
        """Return weekly units `[M,T]` and which of them are weeks of the sequence."""
        some = self.sequences.take(rows)
        step = np.arange(some.n_steps)
        week = np.minimum(some.first[:, None] + step, len(self.sales.weeks) - 1)
        return self.sales.units[some.row[:, None], week].astype(np.float64), step < some.length[:, None]


@cache
def shop() -> Shop:
    """Return the world of the pictures and of the table of classes."""
    return open_shop(SEEDS[0])


def open_shop(seed: int, confounding: Confounding = 1.0) -> Shop:
    """Simulate a world, cut it into sequences, classify its prices."""
    world = simulate_retail(seed, scale=SCALE, confounding=confounding)
    sales = WeeklySales.of_world(world)
    sequences = YearSequences.of(sales)
    domains = np.isin(
        sales.category[sales.item[sequences.row]], [CATEGORY_IDS.index(c) for c in ("FOODS", "HOUSEHOLD")]
    )
    return Shop(world, sales, sequences, PriceClasses.of(sequences.change[domains], PRICE_EDGES))


def class_table() -> Iterator[str]:
    """Yield a row per price class: its number, its label, what it stands for, how often it is asked."""
    here, labels = shop(), class_labels(np.array(PRICE_EDGES))
    shares = []
    for category in ("FOODS", "HOUSEHOLD"):
        rows = here.rows(category)
        _, used = here.units(rows)
        found = here.classes.classify(here.sequences.change[rows])[used]
        shares.append(np.bincount(found, minlength=len(labels)) / len(found))
    yield "| class | label | change | FOODS | HOUSEHOLD |"
    yield "|---|---|---|---|---|"
    for k, label in enumerate(labels):
        change = here.classes.change[k]
        stands = "no price" if np.isnan(change) else f"{change:+.1%}" if change else "0 %"
        cells = [f"{100 * share[k]:.1f} %" for share in shares]
        yield f"| {k} | `{label}` | {stands} | {' | '.join(cells)} |"


def calibration_table() -> Iterator[str]:
    """Yield target and measured of what the simulator is calibrated to."""
    measured = calibration()
    yield "| | " + " | ".join(f"{category}, target | measured" for category in TARGETS) + " |"
    yield "|---|" + "---|---|" * len(TARGETS)
    for i, quantity in enumerate(QUANTITIES):
        cells = [f"{_shown(i, TARGETS[c][i])} | {_shown(i, measured[c][i])}" for c in TARGETS]
        yield f"| {quantity} | {' | '.join(cells)} |"


def calibration() -> dict[str, Floats]:
    """Return what the sequences of each category look like, in the order of `QUANTITIES`, averaged over the seeds."""
    found = {category: [] for category in TARGETS}
    for seed in SEEDS:
        here = open_shop(seed)
        for category, values in found.items():
            values.append(looks(here, category))
    return {category: np.mean(values, axis=0) for category, values in found.items()}


def looks(here: Shop, category: str) -> tuple[float, ...]:
    """Return what the sequences of a category look like; variances and correlations are of complete years."""
    rows = here.rows(category)
    units, used = here.units(rows)
    length, year = here.sequences.length[rows], here.sales.weeks.year[here.sequences.first[rows]]
    products, ratios = np.zeros(2), []
    for one in np.unique(year):
        weeks = length[year == one].max()
        whole = units[(year == one) & (length == weeks), :weeks]
        centred = whole - whole.mean(axis=1, keepdims=True)
        products += (centred[:, 1:] * centred[:, :-1]).sum(), (centred**2).sum()
        sold = whole[whole.any(axis=1)]
        ratios.append(sold.var(axis=1) / sold.mean(axis=1))
    changed = here.sequences.change[rows][used & (here.sequences.change[rows] != 0.0)]
    return (
        units[used].mean(),
        (units[used] == 0).mean(),
        products[0] / products[1],
        float(np.median(np.concatenate(ratios))),
        *np.quantile(changed, (0.05, 0.5, 0.95)).tolist(),
    )


@dataclass(frozen=True)
class Onsets:
    """Weeks of FOODS and HOUSEHOLD that follow a week at the price of the year's first week.

    `change [M]` is the price change, 0 where the price stays; `state [M]` the week's latent demand state, ln units;
    `history [M,F]` what the panel has recorded by then.
    """

    change: Floats
    state: Floats
    history: Floats


def onsets(here: Shop, *, least_weeks: int = 4) -> Onsets:
    """Return the weeks in which a price may leave that of the year's first week."""
    some = here.sequences.take(np.concatenate([here.rows("FOODS"), here.rows("HOUSEHOLD")]))
    step = np.arange(some.n_steps)
    m, t = np.nonzero((step >= least_weeks) & (step < some.length[:, None]))
    kept = some.change[m, t - 1] == 0.0
    m, t = m[kept], t[kept]
    week_MT = np.minimum(some.first[:, None] + step, len(here.sales.weeks) - 1)
    units_MT = here.sales.units[some.row[:, None], week_MT].astype(np.float64)
    so_far_MT = units_MT.cumsum(axis=1) / (1 + step)
    catalogue, row, week = here.world.catalogue, some.row[m], some.first[m] + t
    item = np.argsort(catalogue.item_id, kind="stable")[here.sales.item[row]]
    store = np.argsort(catalogue.store_id, kind="stable")[here.sales.store[row]]
    past = [np.log1p(units_MT[m, t - lag]) for lag in (1, 2, 3)]
    mean = np.log1p(so_far_MT[m, t - 1])
    went = np.log((units_MT[m, t - 1] + 1) / (so_far_MT[m, t - 1] + 1)).clip(-1, 1)
    unmoved = (some.change == 0.0).cumsum(axis=1)[m, t - 1] / t
    smooth = [*past, mean, mean**2, past[0] * mean, went, went**2, went**3, t / 52.0, unmoved]
    months = np.eye(12)[here.sales.weeks.first_day[week].astype("datetime64[M]").astype(np.int64) % 12]
    known = [*smooth, *months.T, *np.eye(10)[store].T, *np.eye(7)[catalogue.department[item]].T]
    return Onsets(some.change[m, t], here.world.state[item, store, week].astype(np.float64), np.stack(known, axis=1))


def confounding_table() -> Iterator[str]:
    """Yield how far prices follow a demand that the history does not show, and the bias that this leaves."""
    head = "| `--confounding` | price | weeks | correlation given the history | bias, nothing given"
    yield f"{head} | bias, history given |"
    yield "|---|---|---:|---:|---:|---:|"
    for confounding in (1.0, "observed"):
        seen = onsets(open_shop(SEEDS[0], confounding))
        for name, moved in (("cut", seen.change < 0.0), ("raised", seen.change > 0.0)):
            yield f"| `{confounding}` | {name} | {moved.sum():,} | {' | '.join(_confounded(seen, moved))} |"


def _confounded(seen: Onsets, moved: NDArray[np.bool_]) -> tuple[str, str, str]:
    """Return the cells about one direction of change, against weeks at an unchanged price."""
    some = moved | (seen.change == 0.0)
    known = np.column_stack([np.ones(some.sum()), seen.history[some]])
    _, raw = hidden_demand(moved[some], seen.state[some], known[:, :1])
    correlation, given = hidden_demand(moved[some], seen.state[some], known)
    return (correlation, raw, given)


def hidden_demand(moved: NDArray[np.bool_], state: Floats, known: Floats) -> tuple[str, str]:
    """Return how a price change goes with the latent demand, given what is known: correlation, and percent of demand.

    A comparison of log sales that adjusts for what is known takes that percentage for an effect of the price. Both with
    two standard errors.
    """
    moved_left, state_left = (x - known @ np.linalg.lstsq(known, x, rcond=None)[0] for x in (moved * 1.0, state))
    size = moved_left @ moved_left
    slope, error = moved_left @ state_left / size, state_left.std() / size**0.5
    scale = (size / len(state)) ** 0.5 / state_left.std()
    return (
        f"{slope * scale:+.4f} ± {2 * error * scale:.4f}",
        f"{100 * np.expm1(slope):+.1f} ± {200 * error:.1f} %",
    )


def split_table(names: Sequence[str] = tuple(PRESETS)) -> Iterator[str]:
    """Yield items and sequences of each part, for presets."""
    columns = {}
    for name in names:
        settings = {key.removeprefix("simulate.m5."): value for key, value in PRESETS[name].items()
                    if key.startswith("simulate.m5.")}  # fmt: skip
        config = RetailConfig.model_validate(settings)
        world = simulate_retail(config.seed, scale=config.scale)
        data = retail_dataset(world, config, NullReporter())
        columns[name] = {
            part: (data.config["items"][str(part)], data.panels[part].n_subjects, data.queries.get(part, {}))
            for part in Part.all()
        }
    yield "| | " + " | ".join(f"`{name}`: items | sequences" for name in names) + " |"
    yield "|---|" + "---|---|" * len(names)
    for part in Part.all():
        yield f"| {part} | " + " | ".join(f"{columns[n][part][0]:,} | {columns[n][part][1]:,}" for n in names) + " |"
    for asked in ("rolling_origin", "one_step", "sequence"):
        counts = [[len(columns[n][Part(d, "test")][2][asked]) for d in ("source", "target")] for n in names]
        yield f"| `{asked}` queries | " + " | ".join(f"| {source:,} + {target:,}" for source, target in counts) + " |"


def draw_series(path: Path) -> Path:
    """Draw prices and sales of some subjects, with what could be expected to sell at other prices."""
    with figure(8.4, 5.0) as drawn:
        grid = drawn.subplots(2, len(SHOWN), sharex="col", height_ratios=(1.0, 2.4), squeeze=False)
        for column, name in zip(grid.T, SHOWN, strict=True):
            _draw_subject(column, name)
        grid[0, 0].set_ylabel("Price (dollars)")
        grid[1, 0].set_ylabel("Units per week")
        labels = class_labels(np.array(PRICE_EDGES))
        handles = [
            Line2D([], [], color=GREY, lw=0.7, marker=".", ms=4, alpha=0.6, label="sold"),
            Line2D([], [], color=BLACK, label="expected at the price that was asked"),
            Line2D([], [], color=BLUE, label=f"expected at {labels[CUT]}"),
            Line2D([], [], color=VERMILION, label=f"expected at {labels[RISE]}"),
        ]
        drawn.legend(handles=handles, loc="outside lower center", ncols=2)
        return save(drawn, path)


def _draw_subject(column: Sequence[Axes], name: str) -> None:
    here = shop()
    item_store, year = name.split("/")
    row = int(np.flatnonzero(here.sales.item_store_name == item_store)[0])
    of_year = (here.sequences.row == row) & (here.sales.weeks.year[here.sequences.first] == int(year))
    some = here.sequences.take(np.flatnonzero(of_year))
    step = np.arange(int(some.length[0]))
    week = int(some.first[0]) + step
    price, sold = here.sales.price[row, week], here.sales.units[row, week]
    item, store = item_store.split("@")
    world_item = int(np.flatnonzero(here.world.catalogue.item_id == item)[0])
    at = world_item * here.world.catalogue.n_stores + here.world.catalogue.store_id.tolist().index(store)
    top, below = column
    top.step(step, price, where="mid", color=BLACK, lw=1.4)
    for k, colour in ((CUT, BLUE), (RISE, VERMILION)):
        other = here.classes.change[k]
        top.axhline(price[0] * (1 + other), color=colour, lw=1.2)
        below.plot(step, expected_weekly_sales(here.world, at, week, np.full(len(step), other)), color=colour, lw=1.3)
    below.plot(step, expected_weekly_sales(here.world, at, week, some.change[0, : len(step)]), color=BLACK, lw=1.3)
    below.plot(step, sold, color=GREY, lw=0.7, marker=".", ms=4, alpha=0.6)
    top.set_title(name, loc="left")
    top.set_ylim(0, None)
    below.set_ylim(0, None)
    below.set_xlabel(f"Week of {year}")


def draw_demand(path: Path) -> Path:
    """Draw how prices are spread over classes, and how expected sales depend on them."""
    here = shop()
    with figure(9.0, 3.3) as drawn:
        left, right = drawn.subplots(1, 2)
        for category, colour in (("FOODS", BLUE), ("HOUSEHOLD", VERMILION)):
            rows = here.rows(category)
            change = here.sequences.change[rows]
            changed = change[change != 0.0]
            left.hist(100 * changed, bins=np.arange(-40.5, 61.5, 2), density=True, histtype="step", color=colour,
                      label=f"{category}\n({(change != 0.0).mean():.0%} of weeks)", lw=1.4)  # fmt: skip
            ratio = _relative_sales(rows[:: max(1, len(rows) // 2000)])
            right.plot(100 * here.classes.change[1:21], ratio, color=colour, marker="o", ms=3, label=category)
        for edge in PRICE_EDGES[1:-1]:
            left.axvline(100 * edge, color=LIGHT_GREY, lw=0.6, zorder=0)
        left.set(xlabel="Price change against the year's first week (%)", ylabel="Density (weeks with a change)")
        right.set(xlabel="Price change that a class stands for (%)", ylabel="Expected sales, 1 = no change")
        right.axhline(1.0, color=GREY, lw=0.7)
        left.legend(loc="upper right")
        right.legend(loc="upper right")
        return save(drawn, path)


def _relative_sales(rows: NDArray[np.int64]) -> Floats:
    """Return the expected sales of each usable class but the first over those at no change, of all weeks together."""
    here = shop()
    some = here.sequences.take(rows)
    catalogue = here.world.catalogue
    item = np.argsort(catalogue.item_id, kind="stable")[here.sales.item[some.row]]
    at = item * catalogue.n_stores + np.argsort(catalogue.store_id, kind="stable")[here.sales.store[some.row]]
    week = some.first + some.length // 2
    expected = [expected_weekly_sales(here.world, at, week, change).sum() for change in here.classes.change[:21]]
    return np.array(expected[1:]) / expected[0]


def _shown(i: int, value: float) -> str:
    if i == 1:
        return f"{100 * value:.0f} %"
    return f"{value:+.3f}" if i > 3 else f"{value:.2f}" if i == 2 else f"{value:.1f}"


def main() -> None:
    """Print the tables and draw the pictures."""
    for table in (class_table, split_table, calibration_table, confounding_table):
        print("\n".join(table()), end="\n\n")  # noqa: T201
    if "--tables" not in sys.argv[1:]:
        draw_series(PICTURES / "m5-series.png")
        draw_demand(PICTURES / "m5-prices.png")


if __name__ == "__main__":
    main()
