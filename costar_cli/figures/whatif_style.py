"""Colours, markers and safe text of what-if plots."""

from costar_cli.figures.style import OKABE_ITO
from costar_cli.figures.style import label_text as shown_text

__all__ = ["HISTORY_COLOUR", "label_text", "plan_style"]

HISTORY_COLOUR = "0.15"
PLAN_COLOURS = tuple(colour for name, colour in OKABE_ITO.items() if name != "yellow")  # faint on white
PLAN_MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # one more than colours, so that pairs repeat late
MAX_LABEL_CHARACTERS = 90


def plan_style(index: int) -> tuple[str, str]:
    """Return colour and marker of a plan; distinct for the first 42."""
    return PLAN_COLOURS[index % len(PLAN_COLOURS)], PLAN_MARKERS[index % len(PLAN_MARKERS)]


def label_text(text: str, longest: int = MAX_LABEL_CHARACTERS) -> str:
    """Return user text that matplotlib shows as it is."""
    return shown_text(text, longest)
