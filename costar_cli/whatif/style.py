"""Colours, markers and safe text of what-if plots."""

__all__ = ["HISTORY_COLOUR", "label_text", "plan_style"]

HISTORY_COLOUR = "0.15"
PLAN_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe & Ito 2008, colour-blind safe
PLAN_MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # one more than colours, so that pairs repeat late
MAX_LABEL_CHARACTERS = 90


def plan_style(index: int) -> tuple[str, str]:
    """Return colour and marker of a plan; distinct for the first 42."""
    return PLAN_COLOURS[index % len(PLAN_COLOURS)], PLAN_MARKERS[index % len(PLAN_MARKERS)]


def label_text(text: str, longest: int = MAX_LABEL_CHARACTERS) -> str:
    """Return user text that matplotlib shows as it is: no mathematics, no hidden legend entries."""
    short = text if len(text) <= longest else text[: longest - 3] + "..."
    plain = short.replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain
