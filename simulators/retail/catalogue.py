"""What is sold where: categories, departments, stores and items, with their constants (docs/spec/world.md)."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulators.retail.calendar import STATES

__all__ = [
    "CATEGORIES",
    "DEPARTMENTS",
    "STORES",
    "Category",
    "Department",
    "RetailCatalogue",
    "build_catalogue",
    "catalogue_of",
]

MIN_ITEMS: Final = 8  # per department, at any scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """How a category sells and is priced.

    Prices in dollars, demand in units per store and day. `weekday` runs from Saturday to Friday; `snap` holds the
    multipliers of a SNAP day and of another day; `events` those of the event types, `thanksgiving` its own.
    """

    name: str
    base_price: float  # median, dollars
    base_price_sd: float  # of ln price over items
    change_rate: float  # pi: chain-wide 0.55 pi and store-only 0.25 pi permanent changes a week
    daily_level: float  # median units a day of an item in a store
    item_sd: float  # of ln level over items
    store_item_sd: float  # of ln level over the stores of an item
    weekday: tuple[float, ...]
    snap: tuple[float, float]
    season_amplitude: float
    season_peak_week: float
    events: dict[str, float]
    thanksgiving: float
    elasticity: float  # mean over items, on ln(price / base price)


FOODS: Final = Category(
    name="FOODS",
    base_price=3.0,
    base_price_sd=0.55,
    change_rate=0.0100,
    daily_level=0.75,
    item_sd=1.10,
    store_item_sd=0.60,
    weekday=(1.19, 1.12, 0.92, 0.92, 0.91, 0.92, 1.02),
    snap=(1.10, 0.95),
    season_amplitude=0.05,
    season_peak_week=28.0,
    events={"National": 0.87, "Sporting": 1.08, "Cultural": 1.03, "Religious": 1.01},
    thanksgiving=0.84,
    elasticity=-1.2,
)
HOUSEHOLD: Final = Category(
    name="HOUSEHOLD",
    base_price=4.9,
    base_price_sd=0.55,
    change_rate=0.0060,
    daily_level=0.40,
    item_sd=0.95,
    store_item_sd=0.55,
    weekday=(1.31, 1.22, 0.91, 0.83, 0.88, 0.84, 1.00),
    snap=(1.036, 0.982),
    season_amplitude=0.06,
    season_peak_week=20.0,
    events={"National": 0.79, "Sporting": 1.01, "Cultural": 0.99, "Religious": 1.10},
    thanksgiving=0.58,
    elasticity=-1.0,
)
HOBBIES: Final = Category(
    name="HOBBIES",
    base_price=4.5,
    base_price_sd=0.80,
    change_rate=0.0085,
    daily_level=0.22,
    item_sd=1.20,
    store_item_sd=0.60,
    weekday=(1.17, 1.16, 0.91, 0.89, 0.92, 0.90, 1.05),
    snap=(1.01, 1.00),
    season_amplitude=0.08,
    season_peak_week=50.0,
    events={"National": 0.73, "Sporting": 1.17, "Cultural": 1.11, "Religious": 0.94},
    thanksgiving=0.69,
    elasticity=-0.8,
)
CATEGORIES: Final = (HOBBIES, HOUSEHOLD, FOODS)


@dataclass(frozen=True, slots=True)
class Department:
    """A department of a category: its items in the real data, and the offset of their ln level."""

    name: str
    category: int  # index in CATEGORIES
    n_items: int
    offset: float


DEPARTMENTS: Final = (  # in the order of the Kaggle files
    Department("HOBBIES_1", 0, 416, 0.15),
    Department("HOBBIES_2", 0, 149, -0.50),
    Department("HOUSEHOLD_1", 1, 532, 0.30),
    Department("HOUSEHOLD_2", 1, 515, -0.30),
    Department("FOODS_1", 2, 216, -0.10),
    Department("FOODS_2", 2, 398, -0.10),
    Department("FOODS_3", 2, 823, 0.15),
)
STORES: Final = {  # volume factor, before it is scaled to mean 1
    "CA_1": 1.00,
    "CA_2": 0.85,
    "CA_3": 1.40,
    "CA_4": 0.50,
    "TX_1": 0.95,
    "TX_2": 1.15,
    "TX_3": 1.00,
    "WI_1": 0.90,
    "WI_2": 1.05,
    "WI_3": 0.95,
}


@dataclass(frozen=True, slots=True)
class RetailCatalogue:
    """I items and S stores.

    `department [I]` indexes `DEPARTMENTS`, `number [I]` is the item's number within it, from 1: together they name the
    item and seed its chance, whatever the scale. `store_state [S]` indexes `STATES`.
    """

    department: NDArray[np.int64]
    number: NDArray[np.int64]
    store_id: NDArray[np.str_]
    store_state: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.department.shape[0])

    @property
    def n_stores(self) -> int:
        """Return S."""
        return int(self.store_id.shape[0])

    @property
    def category(self) -> NDArray[np.int64]:
        """Return the index in `CATEGORIES` of each item `[I]`."""
        return np.array([department.category for department in DEPARTMENTS])[self.department]

    @property
    def item_id(self) -> NDArray[np.str_]:
        """Return the names of the items, `<DEPT>_<nnn>` `[I]`."""
        names = zip(self.dept_id.tolist(), self.number.tolist(), strict=True)
        return np.array([f"{dept}_{number:03d}" for dept, number in names])

    @property
    def dept_id(self) -> NDArray[np.str_]:
        """Return the department of each item `[I]`."""
        return np.array([department.name for department in DEPARTMENTS])[self.department]

    @property
    def cat_id(self) -> NDArray[np.str_]:
        """Return the category of each item `[I]`."""
        return np.array([category.name for category in CATEGORIES])[self.category]

    @property
    def state_id(self) -> NDArray[np.str_]:
        """Return the state of each store `[S]`."""
        return np.array(STATES)[self.store_state]


def build_catalogue(scale: float = 0.25) -> RetailCatalogue:
    """Return all ten stores and `scale` times the real number of items, at least 8 per department.

    Raises:
        ValueError: a scale outside (0, 1].
    """
    if not 0.0 < scale <= 1.0:
        raise ValueError(f"scale must be in (0, 1], not {scale}")
    counts = [max(round(scale * department.n_items), MIN_ITEMS) for department in DEPARTMENTS]
    number = np.concatenate([np.arange(1, count + 1) for count in counts])
    return catalogue_of(np.repeat(np.arange(len(DEPARTMENTS)), counts), number)


def catalogue_of(department: NDArray[np.int64], number: NDArray[np.int64]) -> RetailCatalogue:
    """Return all ten stores and the items of given departments (positions in `DEPARTMENTS`) and numbers."""
    stores = list(STORES)
    return RetailCatalogue(
        department=department,
        number=number,
        store_id=np.array(stores),
        store_state=np.array([STATES.index(store.split("_", maxsplit=1)[0]) for store in stores]),
    )
