"""The method and the data set keep costar's invariants."""

from costar_garden.carry_over import CARRY_OVER
from costar_garden.garden import GARDEN, GardenConfig

from costar_cli.testing import check_data_source, check_method


def test_the_method_keeps_the_invariants() -> None:
    check_method(CARRY_OVER)


def test_the_data_set_is_complete_reproducible_and_true_to_itself() -> None:
    check_data_source(GARDEN, GardenConfig(beds=20))
