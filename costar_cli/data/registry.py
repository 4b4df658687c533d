"""Which data sets there are, costar's own and those of installed packages; whatever lists data sets reads it here."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final, Literal

from costar_cli.config.plugins import Plugins, load_plugins
from costar_cli.data.base import Answer, DataSource, Limit, Protocol, called
from costar_cli.data.icu.settings import MIMIC, MIMIC_FILE
from costar_cli.data.linear.settings import LINEAR
from costar_cli.data.mechanistic.settings import GLUCOSE, HIV, WARFARIN
from costar_cli.data.nonmem.settings import NONMEM_FILE
from costar_cli.data.retail.settings import M5, M5_FILES
from costar_cli.data.sepsis.settings import SEPSIS
from costar_cli.data.tumor.settings import TUMOR

BUILT_IN: Final = (TUMOR, LINEAR, GLUCOSE, HIV, WARFARIN, SEPSIS, M5, MIMIC, M5_FILES, MIMIC_FILE, NONMEM_FILE)
RESERVED_NAMES: Final = tuple(dict.fromkeys(source.dataset for source in BUILT_IN))
"""What no table may be called: presets, truth and published results go by these names."""


@cache
def installed() -> Plugins[DataSource]:
    """Return the data sets that the entry points `costar.datasets` of installed packages add."""
    taken = {name for source in BUILT_IN for name in (source.name, source.dataset)}
    return load_plugins("costar.datasets", DataSource, taken, _problems)


def _problems(source: DataSource) -> Iterator[str]:
    yield from source.problems()
    if source.dataset in RESERVED_NAMES:
        yield f"its files would be called `{source.dataset}`, which is a data set of costar's own"


def all_sources() -> tuple[DataSource, ...]:
    """Return every data set, costar's own first."""
    return (*BUILT_IN, *installed().found)


def sources(verb: Literal["simulate", "ingest"] = "simulate") -> Mapping[str, DataSource]:
    """Return the data sets that a verb makes, by what commands call them."""
    return {source.name: source for source in all_sources() if source.verb == verb}


def truth_of(dataset: str) -> Answer | None:
    """Return what answers plans on a data set that calls itself so, None where nobody knows the truth."""
    return next((called(source.truth) for source in all_sources() if source.dataset == dataset and source.truth), None)


def limit_of(dataset: str) -> Limit | None:
    """Return what predicts as the simulator of a data set of this name would, None where nothing does."""
    return next((source.limit for source in all_sources() if source.dataset == dataset and source.limit), None)


def potential_outcomes_of(dataset: str) -> Answer | None:
    """Return what would have happened, where the answers of a data set are expectations; None elsewhere."""
    found = next((source.noisy for source in all_sources() if source.dataset == dataset and source.noisy), None)
    return None if found is None else called(found)


def protocol_of(dataset: str) -> Protocol | None:
    """Return the published data of this name, None where the paper has none."""
    return next((source.protocol for source in all_sources() if source.dataset == dataset and source.protocol), None)
