"""What notebooks show of results: one line, tables, and a figure; `costar_cli.report.display` makes the last two."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from costar_cli.reporting import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Named, not imported, as pandas does with its plotting backend: renderers stand above results, and load matplotlib
RENDERERS: Final = "costar_cli.report.display"


class Displayed:
    """A result that says in one line what it is (`headline`), and is shown as tables and as a figure."""

    __slots__ = ()

    @property
    def headline(self) -> str:
        """Return what it is, in one line."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {plain(self.headline)}>"

    def _repr_html_(self) -> str:
        """Return the line and the tables that a notebook shows; every text is escaped."""
        html: str = self._rendered("html_of")
        return html

    def plot(self) -> "Figure":
        """Return its figure, as a page or `--plot` has it.

        Raises:
            UsageError: there is no single figure of it, such as of a search of many subjects.
        """
        drawn: Figure = self._rendered("figure_of")
        return drawn

    def _rendered(self, how: str) -> Any:  # noqa: ANN401 - text or figure
        return getattr(import_module(RENDERERS), how)(self)
