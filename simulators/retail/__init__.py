"""An M5-like retail panel in the Kaggle schema, with the true demand under every price.

The embedded stand-in for M5 (docs/spec/world.md): ten stores, up to 3,049 items, five years of weekly
prices and daily sales. Unlike in M5, how prices were set is known (latent demand or recorded sales sway them:
`confounding`), and what would have been sold at other prices can be asked.

A typical use: `simulate_retail`, then `write_csv` or the arrays of the world; `PriceClasses.of`, `class_change` and
`counterfactual_weekly_sales` answer a plan of price classes.
"""

from simulators.retail.calendar import EVENT_NAMES, EVENT_TYPES, STATES, RetailCalendar, build_calendar
from simulators.retail.catalogue import CATEGORIES, DEPARTMENTS, STORES, RetailCatalogue, build_catalogue, catalogue_of
from simulators.retail.classes import PRICE_EDGES, PriceClasses, class_change
from simulators.retail.export import write_csv
from simulators.retail.oracle import (
    counterfactual_weekly_sales,
    demand_by_class,
    expected_weekly_sales,
    true_weekly_demand,
)
from simulators.retail.traits import ItemTraits
from simulators.retail.world import Confounding, RetailWorld, SellPrices, simulate_retail

__all__ = [
    "CATEGORIES",
    "DEPARTMENTS",
    "EVENT_NAMES",
    "EVENT_TYPES",
    "PRICE_EDGES",
    "STATES",
    "STORES",
    "Confounding",
    "ItemTraits",
    "PriceClasses",
    "RetailCalendar",
    "RetailCatalogue",
    "RetailWorld",
    "SellPrices",
    "build_calendar",
    "build_catalogue",
    "catalogue_of",
    "class_change",
    "counterfactual_weekly_sales",
    "demand_by_class",
    "expected_weekly_sales",
    "simulate_retail",
    "true_weekly_demand",
    "write_csv",
]
