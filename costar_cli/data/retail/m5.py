"""M5 as a data set: the Kaggle files, or the embedded retail world with its counterfactuals (spec RETAIL-1 to 10)."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.dataset import Dataset, Domain, Part
from costar_cli.data.findings import counted, shown
from costar_cli.data.panel import Panel
from costar_cli.data.queries import Queries, rolling_origin
from costar_cli.data.retail.sequences import PriceTreatment, YearSequences, fitted_edges, m5_schema, sequence_panel
from costar_cli.data.retail.settings import M5Config, RetailConfig
from costar_cli.data.retail.truth import PlanAnswers, WorldSeed, counterfactual_queries, queries_of_doses
from costar_cli.data.retail.weekly import CATEGORY_IDS, WeeklySales
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError, MismatchError, StorageError, storing
from costar_cli.reporting import Reporter
from simulators.retail import PRICE_EDGES, PriceClasses, RetailWorld, simulate_retail, write_csv

Ints = NDArray[np.int64]

NAME = "m5"
SPLIT, FEW_SHOT, ASKED = range(3)  # purposes of a domain's streams
DOMAINS: tuple[Domain, Domain] = ("source", "target")


def ingest_m5(config: M5Config, folder: Path, reporter: Reporter) -> Dataset:
    """Read the files of a folder, with factual rolling-origin queries on both test parts.

    Raises:
        DataError: the files cannot be used; the message names the place.
    """
    from costar_cli.data.retail.files import read_m5_tables  # noqa: PLC0415 - polars, which simulations do without

    retail = RetailParts.of(read_m5_tables(folder, reporter), config, reporter)
    panels = retail.panels(reporter)
    facts = {"embedded": False, "weekly_prices": int(np.isfinite(retail.sales.price).sum())}
    return retail.dataset(config, panels, _factual(panels, config.horizon), {}, facts)


def simulate_m5(config: RetailConfig, reporter: Reporter, world: RetailWorld | None = None) -> Dataset:
    """Simulate the retail world; the same panel as writing its files and ingesting them, and counterfactual queries."""
    return retail_dataset(simulate_world(config, reporter) if world is None else world, config, reporter)


def simulate_world(config: RetailConfig, reporter: Reporter) -> RetailWorld:
    """Simulate prices and sales of the embedded catalogue."""
    with reporter.task("simulate prices and sales", unit="item") as task:
        done = 0

        def advance(items: int, _: int) -> None:
            nonlocal done
            task.advance(items - done)
            done = items

        return simulate_retail(config.seed, scale=config.scale, confounding=config.confounding, progress=advance)


def retail_dataset(world: RetailWorld, config: RetailConfig, reporter: Reporter) -> Dataset:
    """Return the data set of a simulated world: factual and counterfactual queries, and what makes the world again."""
    retail = RetailParts.of(WeeklySales.of_world(world), config, reporter)
    panels = retail.panels(reporter)
    queries = _factual(panels, config.horizon)
    seed = WorldSeed(
        seed=config.seed,
        confounding=config.confounding,
        edges=tuple(retail.prices.classes.edges.tolist()),
        change=tuple(retail.prices.classes.change[:-1].tolist()),
    )
    with reporter.task("ask the simulator", total=len(queries), unit="part") as task:
        for number, part in enumerate(queries):
            rng = np.random.default_rng(np.random.SeedSequence(config.seed, spawn_key=(number, ASKED)))
            answers = PlanAnswers(world, retail.prices, *retail.series(world, part))
            ask = queries_of_doses if retail.prices.encoding.doses else counterfactual_queries
            queries[part] |= ask(panels[part], answers, config, rng, usable=len(seed.change))
            task.advance()
    truth = {part: retail.places(world, part) for part in panels}
    return retail.dataset(config, panels, queries, truth, {"embedded": True, "world": seed.model_dump(mode="json")})


@dataclass(frozen=True, slots=True)
class RetailParts:
    """Sales, their sequences, which of these are in each part, and how prices are treatments."""

    sales: WeeklySales
    sequences: YearSequences
    chosen: Mapping[Part, Ints]
    prices: PriceTreatment

    @classmethod
    def of(cls, sales: WeeklySales, config: M5Config, reporter: Reporter) -> "RetailParts":
        """Cut, split and classify.

        A class stands for the median change in it, of all sequences of the two categories.
        """
        sequences = YearSequences.of(sales)
        item = sales.item[sequences.row]
        items = split_items(sales, np.unique(item), config)
        chosen = {part: np.flatnonzero(np.isin(item, of_part)) for part, of_part in items.items()}
        train = sequences.take(chosen[Part("source", "train")])
        edges = fitted_edges(train.change) if config.edges == "fit" else np.array(PRICE_EDGES)
        categories = [CATEGORY_IDS.index(name) for name in (config.source_category, config.target_category)]
        both = sequences.change[np.isin(sales.category[item], categories)]
        counts = ", ".join(f"{part} {len(of_part):,}" for part, of_part in items.items())
        reporter.note(f"items of {config.source_category} (source) and {config.target_category} (target): {counts}")
        # Warn of what had to be assumed
        used = sequences.take(np.concatenate(list(chosen.values())))
        if n := int(((used.change < edges[0]) | (used.change > edges[-1])).sum()):
            weeks = counted(n, "week")
            reporter.say(Diagnostic.of("price-changes-ignored", weeks=weeks, low=edges[0], high=edges[-1]))
        if n := int((used.first + used.length == len(sales.weeks)).sum()):
            reporter.say(Diagnostic.of("calendar-ends", sequences=counted(n, "sequence")))
        prices = PriceTreatment.of(PriceClasses.of(both, edges), train, dose=config.price == "dose")
        return cls(sales, sequences, chosen, prices)

    def panels(self, reporter: Reporter) -> dict[Part, Panel]:
        """Return the panel of every part; a sequence's number is its place among all, whatever the limits."""
        panels = {}
        with reporter.task("make the panels", total=len(self.chosen), unit="part") as task:
            for part, chosen in self.chosen.items():
                panels[part] = sequence_panel(self.sales, self.sequences.take(chosen), self.prices.encode, chosen)
                task.advance()
        return panels

    def dataset(
        self,
        config: M5Config,
        panels: Mapping[Part, Panel],
        queries: Mapping[Part, Mapping[str, Queries]],
        truth: Mapping[Part, Mapping[str, NDArray[np.generic]]],
        facts: Mapping[str, Any],
    ) -> Dataset:
        """Put everything together; settings, counts of items and the classes' edges are kept with it."""
        counts = {
            str(part): len(np.unique(self.sales.item[self.sequences.row[of]])) for part, of in self.chosen.items()
        }
        edges = self.prices.classes.edges.tolist()
        kept = {**config.model_dump(mode="json"), **facts, "items": counts, "price_edges": edges}
        return Dataset(NAME, m5_schema(self.prices.encoding), config.horizon, panels, queries, truth, kept)

    def series(self, world: RetailWorld, part: Part) -> tuple[Ints, Ints]:
        """Return the world's item-store of each subject, and the week in which it begins."""
        row = self.sequences.row[self.chosen[part]]
        item = np.argsort(world.catalogue.item_id, kind="stable")[self.sales.item[row]]
        store = np.argsort(world.catalogue.store_id, kind="stable")[self.sales.store[row]]
        return item * world.catalogue.n_stores + store, self.sequences.first[self.chosen[part]]

    def places(self, world: RetailWorld, part: Part) -> dict[str, NDArray[np.generic]]:
        """Return what names each subject's series in any world with the same seed."""
        item_store, first = self.series(world, part)
        item, store = np.divmod(item_store, world.catalogue.n_stores)
        department, number = world.catalogue.department[item], world.catalogue.number[item]
        return {"department": department, "number": number, "store": store, "first_week": first}


def _factual(panels: Mapping[Part, Panel], horizon: int) -> dict[Part, dict[str, Queries]]:
    asked = {part: rolling_origin(panel, horizon) for part, panel in panels.items() if part.split == "test"}
    return {part: {"rolling_origin": queries} for part, queries in asked.items() if queries is not None}


def split_items(sales: WeeklySales, items: Ints, config: M5Config) -> dict[Part, Ints]:
    """Return the items of each part: all stores and years of an item stay together.

    A share of a category's items is for the test, rounded up, and a share of the rest for selection. Of what remains in
    the target, the few-shot items are drawn: as many as make up their share of all the target's items, rounded down.
    Limits keep the first of a part, so a smaller part is some of a larger one.

    Raises:
        DataError: a category has no items, or too few to fill three splits.
    """
    parts: dict[Part, Ints] = {}
    for number, domain in enumerate(DOMAINS):
        source = domain == "source"
        category = config.source_category if source else config.target_category
        of_category = items[sales.category[items] == CATEGORY_IDS.index(category)]
        if len(of_category) < 3:
            has = np.array(CATEGORY_IDS)[np.unique(sales.category[items])]
            raise DataError(
                f"{counted(len(of_category), 'item')} of {category} with a sequence of 40 weeks, "
                f"but the {domain} needs three: to train, to select, to test",
                where=f"--{domain}-category",
                fix=f"give more items, or choose from {shown(has)}",
            )
        sequence = np.random.SeedSequence(config.seed, spawn_key=(number, SPLIT))
        shuffled = np.random.default_rng(sequence).permutation(of_category)
        # At least one each to test, to select and to train on
        n_test = min(_up((config.source_test if source else config.target_test) * len(shuffled)), len(shuffled) - 2)
        test, rest = shuffled[:n_test], shuffled[n_test:]
        n_val = min(_up((config.source_val if source else config.target_val) * len(rest)), len(rest) - 1)
        val, train = rest[:n_val], rest[n_val:]
        if not source:
            seed = config.seed if config.few_shot_seed is None else config.few_shot_seed
            rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number, FEW_SHOT)))
            n_few = max(1, math.floor(config.few_shot * len(shuffled) + 1e-9))
            train = rng.permutation(train)[:n_few]
        prefix = "" if source else "target_"
        parts[Part(domain, "train")] = train[: getattr(config, f"{prefix}train_items")]
        parts[Part(domain, "val")] = val[: getattr(config, f"{prefix}val_items")]
        parts[Part(domain, "test")] = test[: getattr(config, f"{prefix}test_items")]
    return {part: np.sort(chosen) for part, chosen in parts.items()}


def _up(number: float) -> int:
    return max(1, math.ceil(number - 1e-9))


NAMES = ("calendar.csv", "sell_prices.csv", "sales_train_evaluation.csv")


def check_export(folder: Path, *, overwrite: bool) -> None:
    """See, before any work, that the files can be written.

    Raises:
        StorageError: the path is no folder.
        MismatchError: files exist and may not be replaced.
    """
    if folder.exists() and not folder.is_dir():
        raise StorageError("the path exists and is not a folder", where=f"--export {folder}", fix="choose another")
    if (there := [name for name in NAMES if (folder / name).exists()]) and not overwrite:
        raise MismatchError(
            f"{shown(there)} exist" if len(there) > 1 else f"{shown(there)} exists",
            where=f"--export {folder}",
            fix="add --overwrite to replace them, or choose another folder",
        )


def export_csv(folder: Path, world: RetailWorld, reporter: Reporter) -> dict[str, Path]:
    """Write the files of a world to a folder, which is made if need be, and return their paths by role.

    Raises:
        StorageError: the folder cannot be written.
    """
    from costar_cli.files.atomic import scratch_folder  # noqa: PLC0415 - h5py

    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with (
            reporter.task("write the files of M5", total=len(NAMES), unit="file") as task,
            scratch_folder(folder, "export") as beside,
        ):
            written = write_csv(world, beside)
            for path in written:
                os.replace(path, folder / path.name)
                task.advance()
    return {path.stem: folder / path.name for path in written}
