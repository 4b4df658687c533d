"""Whether a model adjusts for treatment that reacts to the course inside a plan, and how often it changes there.

Later treatments of a plan that were given because of what the earlier ones did foretell the outcome: a regression of it
on history and plan takes that for an effect (spec SUPPORT-10).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self, get_args

from costar_cli.data import Panel
from costar_cli.data.windows import share_of_changes
from costar_cli.methods.base import FittedModel, adjusted
from costar_cli.methods.registry import METHODS, Adjusts
from costar_cli.methods.stack.model import StackModel

META: Final = "reactions"  # of a model's meta
KINDS: Final[tuple[Adjusts, ...]] = get_args(Adjusts)


@dataclass(frozen=True, slots=True)
class Reactions:
    """What a model knows of reactions inside a plan.

    Attributes:
        adjusts: those that it adjusts for; of a stack the least of its parts with weight.
        steps: of the longest plan.
        changes: share of the training windows of so many steps in which treatment changes; None where none is so long,
            or the file is older.
        parts: of a stack, the mean weight of each part that does not adjust for all reactions.
    """

    adjusts: Adjusts
    steps: int
    changes: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, model: FittedModel, panel: Panel | None = None) -> Self:
        """Return what a model knows; `panel` has the subjects that it learned from."""
        parts = {}
        if isinstance(model, StackModel):
            weight_P = model.weight_RPHY.mean(axis=(0, 2, 3)).tolist()
            weights = dict(zip(model.parts, weight_P, strict=True))
            parts = {name: weights[name] for name in model.answering if adjusted(model.parts[name]) != "all"}
        changes = None if panel is None else share_of_changes(panel, model.schema.treatments, model.horizon)
        return cls(adjusted(model), model.horizon, changes, parts)

    @classmethod
    def recorded(cls, model: FittedModel) -> Self:
        """Return what a model's file records beside what the model itself tells."""
        meta = model.meta.get(META)
        changes = meta.get("changes") if isinstance(meta, Mapping) else None
        known = cls.of(model)
        return cls(known.adjusts, known.steps, changes if isinstance(changes, float) else None, known.parts)

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any]) -> Self | None:
        """Return what a file of anybody's says, None where it says nothing that can be read."""
        try:
            told = meta[META]
            changes = None if told["changes"] is None else float(told["changes"])
            parts = {str(name): float(weight) for name, weight in told["parts"].items()}
            return cls(KINDS[KINDS.index(told["adjusts"])], int(told["steps"]), changes, parts)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def to_meta(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"adjusts": self.adjusts, "steps": self.steps, "changes": self.changes, "parts": dict(self.parts)}

    @property
    def matter(self) -> bool:
        """Return whether differences between plans may be no effects: not of one step, nor where nothing changes."""
        return self.adjusts != "all" and self.steps > 1 and self.changes != 0

    def sentence(self, name: str, *, doses: bool) -> str:
        """Return in one line what a model does not adjust for, and a method that does."""
        labels = [METHODS.label(part) for part in self.parts]
        whose = f", {100 * sum(self.parts.values()):.0f} % of which is {' and '.join(labels)}," if labels else ""
        what = "the course" if self.adjusts == "none" else "covariates, which it does not follow well enough,"
        often = ""
        if self.changes is not None:
            often = f" (it changes in {100 * self.changes:.0f} % of the training windows of {self.steps} steps)"
        other = next((f"; `--method {method}` adjusts" for method in METHODS.adjusting(doses=doses)), "")
        return (
            f"{name}{whose} forecasts and does not adjust for treatment that reacts to {what} inside a plan{often}: "
            f"differences between plans are effects only if treatment does not react so{other}"
        )
