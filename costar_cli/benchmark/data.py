"""The data set of a benchmark: one that is made as `costar simulate` makes it, or a file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costar_cli.config.choices import SetupName
from costar_cli.config.nearest import nearest
from costar_cli.errors import ArtifactError, UsageError
from costar_cli.reporting import Reporter
from costar_cli.steps.session import MADE_BY, read_kind

if TYPE_CHECKING:
    from costar_cli.panel import Dataset
    from costar_cli.steps.session import Flags

__all__ = ["SIMULATED", "BenchData", "Simulated", "choose_data"]


@dataclass(frozen=True)
class Simulated:
    """A data set that costar simulates: its name in presets and tables, its settings, and what makes it of them."""

    name: str
    section: str
    simulate: Callable[[Any, Reporter], "Dataset"]


def _tumor(config: Any, reporter: Reporter) -> "Dataset":  # noqa: ANN401 - each data set has its own settings
    from costar_cli.datasets.tumor.simulate import simulate_tumor

    return simulate_tumor(config, reporter)


def _mimic(config: Any, reporter: Reporter) -> "Dataset":  # noqa: ANN401
    from costar_cli.datasets.icu.semi_synthetic import simulate_mimic

    return simulate_mimic(config, reporter)


def _m5(config: Any, reporter: Reporter) -> "Dataset":  # noqa: ANN401
    from costar_cli.datasets.retail.m5 import simulate_m5

    return simulate_m5(config, reporter)


def _linear(config: Any, reporter: Reporter) -> "Dataset":  # noqa: ANN401
    from costar_cli.datasets.linear.simulate import simulate_linear

    return simulate_linear(config, reporter)


SIMULATED: Mapping[str, Simulated] = {
    "tumor": Simulated("tumor", "simulate.tumor", _tumor),
    "mimic": Simulated("mimic", "simulate.mimic", _mimic),
    "m5": Simulated("m5", "simulate.m5", _m5),
    "linear": Simulated("linear-gaussian", "simulate.linear", _linear),
}


@dataclass(frozen=True)
class BenchData:
    """The data set of a benchmark: one that is simulated, or the file of one. `name` is what it calls itself."""

    name: str
    stem: str
    simulated: Simulated | None = None
    file: Path | None = None
    parts: tuple[str, ...] | None = None

    def flags(self, seed: int | None) -> "Flags":
        """Return the flags of the data set's own settings."""
        from costar_cli.settings.keys import SECTIONS

        return {SECTIONS[self.simulated.section]: {"seed": seed}} if self.simulated else {}

    @property
    def setups(self) -> list[SetupName]:
        """Return the set-ups that the data set has the parts for."""
        from costar_cli.evaluate import SETUPS

        return [name for name, setup in SETUPS.items() if self.parts is None or setup.parts <= set(self.parts)]


def choose_data(text: str) -> BenchData:
    """Return the data set that a word names, or the one in a file.

    Raises:
        UsageError: neither.
        ArtifactError: the file holds no data set.
    """
    if text in SIMULATED:
        return BenchData(SIMULATED[text].name, text, simulated=SIMULATED[text])
    path = Path(text)
    if not path.exists() and path.suffix != ".h5":
        near = nearest(text, SIMULATED)
        guess = f"did you mean `{near}`? " if near else ""
        fix = f"{guess}choose from {', '.join(SIMULATED)}, or give the file of a data set"
        raise UsageError(f"no such data set: {text!r}", where="DATASET", fix=fix)
    if not path.exists():
        raise ArtifactError("there is no such file", where=text, fix=MADE_BY["dataset"])
    header = read_kind("dataset", path)
    return BenchData(str(header.meta["name"]), path.stem, file=path, parts=tuple(header.meta["parts"]))
