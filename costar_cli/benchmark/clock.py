"""How long the cells of a benchmark that are left will take, told from those that were made."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from costar_cli.ui.text import in_words

if TYPE_CHECKING:
    from costar_cli.benchmark import Cell, Ledger

__all__ = ["Clock"]


class Clock:
    """Counts cells, and expects each to take what its like took.

    A cell's likes are those of the same contender and domain on other data sets (in the ledger, or made just now); for
    the first of a kind, all cells of the same domain; and if there is none, all cells.

    Args:
        cells: those of the benchmark.
        left: those of them that are to be made.
        ledger: what earlier runs remember.
    """

    def __init__(self, cells: Sequence["Cell"], left: Sequence["Cell"], ledger: "Ledger") -> None:
        self._left = list(left)
        self._took: list[tuple[Cell, float]] = []
        for cell in cells:
            took = None if cell in self._left else ledger.wall_s(cell.key)
            if took is not None:
                self._took.append((cell, took))

    @property
    def left(self) -> int:
        """Return how many cells are left."""
        return len(self._left)

    def finish(self, cell: "Cell", took_s: float | None = None) -> None:
        """Count a cell, and remember how long it took, if it was made."""
        if cell in self._left:
            self._left.remove(cell)
        if took_s is not None:
            self._took.append((cell, took_s))

    def outlook(self) -> str:
        """Return `7 more, about 4 min`, without the time where nothing is known yet; empty at the end."""
        if not self._left:
            return ""
        more = f"{len(self._left)} more"
        return f"{more}, about {in_words(sum(map(self._expected, self._left)))}" if self._took else more

    def _expected(self, cell: "Cell") -> float:
        same_role = [(other, took_s) for other, took_s in self._took if other.role == cell.role]
        likes = [took_s for other, took_s in same_role if other.contender == cell.contender]
        known = likes or [took_s for _, took_s in same_role] or [took_s for _, took_s in self._took]
        return sum(known) / len(known)
