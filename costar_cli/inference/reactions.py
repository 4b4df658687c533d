"""Whether a model adjusts for treatment that reacts to the course inside a plan, and how often it changes there.

Later treatments of a plan that were given because of what the earlier ones did foretell the outcome: a regression of it
on history and plan takes that for an effect (spec SUPPORT-10).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, get_args

from costar_cli.data import Panel
from costar_cli.data.record import ModelRecord
from costar_cli.data.windows import share_of_changes
from costar_cli.diagnostics import Diagnostic
from costar_cli.methods.base import FittedModel, adjusted
from costar_cli.methods.entry import Adjusts
from costar_cli.methods.registry import METHODS
from costar_cli.methods.shared.ipw import TRUNCATED

LEAST_TRUNCATED: Final = 0.01  # share of a total of weights below which effects lean by less than 2 %
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
        truncated: share of the total of weights by treatment that clipping cut at the last step; of a stack, that of a
            part which moves its answers.
    """

    adjusts: Adjusts
    steps: int
    changes: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    truncated: float = 0.0

    @classmethod
    def of(cls, model: FittedModel, panel: Panel | None = None) -> Self:
        """Return what a model knows; `panel` has the subjects that it learned from."""
        shares, truncated = model.shares, model.record.truncated
        parts = {name: share for name, share in shares.items() if adjusted(model.parts[name]) != "all"}
        if shares:
            cut = {name: model.parts[name].record.truncated for name in shares}
            truncated = max((cut[name] for name in cut if shares[name] * cut[name] >= LEAST_TRUNCATED), default=0.0)
        changes = None if panel is None else share_of_changes(panel, model.schema.treatments, model.horizon)
        return cls(adjusted(model), model.horizon, changes, parts, truncated)

    @classmethod
    def recorded(cls, model: FittedModel) -> Self:
        """Return what a model's file records beside what the model itself tells."""
        changes = (model.record.reactions or {}).get("changes")
        known = cls.of(model)
        return replace(known, changes=changes if isinstance(changes, float) else None)

    @classmethod
    def read(cls, told: Mapping[str, Any] | None) -> Self | None:
        """Return what a file of anybody's says, None where it says nothing that can be read."""
        if told is None:
            return None
        try:
            share = ModelRecord.read({TRUNCATED: told.get(TRUNCATED)}, lenient=True).truncated
            changes = None if told["changes"] is None else float(told["changes"])
            parts = {str(name): float(weight) for name, weight in told["parts"].items()}
            return cls(KINDS[KINDS.index(told["adjusts"])], int(told["steps"]), changes, parts, share)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def to_meta(self) -> dict[str, Any]:
        """Return it as plain data; without `truncated` where nothing is."""
        told = {"adjusts": self.adjusts, "steps": self.steps, "changes": self.changes, "parts": dict(self.parts)}
        return told | ({TRUNCATED: self.truncated} if self.truncated else {})

    @property
    def matter(self) -> bool:
        """Return whether differences between plans may be no effects: not of one step, nor where nothing changes."""
        biased = self.adjusts != "all" or self.truncated >= LEAST_TRUNCATED
        return biased and self.steps > 1 and self.changes != 0

    def diagnostic(self, name: str, *, doses: bool, binary: bool) -> Diagnostic:
        """Return what a model does not adjust for, and a method that does.

        Args:
            name: what to call the model.
            doses: some treatments are doses.
            binary: some outcomes are.
        """
        labels = [METHODS.label(part) for part in self.parts]
        whose = f", {100 * sum(self.parts.values()):.0f} % of it {' and '.join(labels)}," if labels else ""
        often = ""
        if self.changes is not None:
            often = f" (it changes in {100 * self.changes:.0f} % of the training windows of {self.steps} steps)"
        if self.adjusts == "all" and self.truncated:
            return Diagnostic.of("weights-truncated", name, often=often, percent=100 * self.truncated)
        able = METHODS.adjusting(doses=doses, binary=binary)
        other = next((f"; `--method {method}` adjusts" for method in able), "")
        if self.adjusts == "shrunk":
            return Diagnostic.of("effects-too-small", name, whose=whose, often=often, other=other)
        what = "the course" if self.adjusts == "none" else "covariates, which it does not follow well enough,"
        return Diagnostic.of("not-adjusted", name, whose=whose, what=what, often=often, other=other)
