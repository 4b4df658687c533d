"""The data set of a benchmark: one that is made as `costar simulate` makes it, or a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from costar_cli.config.choices import SetupName
from costar_cli.config.nearest import did_you_mean
from costar_cli.datasets.base import DataSource
from costar_cli.datasets.registry import sources
from costar_cli.errors import ArtifactError, UsageError
from costar_cli.steps.session import MADE_BY, read_kind

if TYPE_CHECKING:
    from costar_cli.steps.session import Flags

__all__ = ["BenchData", "choose_data"]


@dataclass(frozen=True)
class BenchData:
    """The data set of a benchmark: one that is simulated, or the file of one. `name` is what it calls itself."""

    name: str
    stem: str
    simulated: DataSource | None = None
    file: Path | None = None
    parts: tuple[str, ...] | None = None

    def flags(self, seed: int | None) -> "Flags":
        """Return the flags of the data set's own settings."""
        return {self.simulated.settings: {"seed": seed}} if self.simulated else {}

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
    simulated = sources()
    if text in simulated:
        return BenchData(simulated[text].dataset, text, simulated=simulated[text])
    path = Path(text)
    if not path.exists() and path.suffix != ".h5":
        choices = f"choose from {', '.join(simulated)}, or give the file of a data set"
        fix = f"{did_you_mean(text, simulated)} {choices}".strip()
        raise UsageError(f"no such data set: {text!r}", where="DATASET", fix=fix)
    if not path.exists():
        raise ArtifactError("file not found", where=text, fix=MADE_BY["dataset"])
    header = read_kind("dataset", path)
    return BenchData(str(header.meta["name"]), path.stem, file=path, parts=tuple(header.meta["parts"]))
