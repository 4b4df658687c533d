"""What an estimation of effects says: rows, frames, JSON, and what a reader should know."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from costar_cli.config.requests import EffectRequest
from costar_cli.diagnostics import Diagnostic
from costar_cli.effects.effects import Effects, holm
from costar_cli.effects.enrolment import Flow
from costar_cli.reporting.display import Displayed

if TYPE_CHECKING:
    from costar_cli.files.frames import Frame, FrameName


@dataclass(frozen=True, eq=False, repr=False)
class EffectReport(Displayed):
    """Effects, and how they were come by.

    Attributes:
        request: the options.
        dataset: name of the data set.
        effects: means under plans and their contrasts.
        flow: how many were asked about and entered.
        texts: each plan in words.
        start: time zero in words, where no condition says it.
        parts: of the data set, that subjects are of.
        diagnostics: what a reader should know.
        parents: digests of what it was made from.
    """

    request: EffectRequest
    dataset: str
    effects: Effects
    flow: Flow
    texts: tuple[str, ...]
    start: str
    parts: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]
    parents: Mapping[str, str]

    @property
    def headline(self) -> str:
        """Return how many plans are compared, by which estimators and in how many trials."""
        plans, how = len(self.effects.plans), ", ".join(self.effects.settings.estimators)
        return f"{plans} plans on {self.dataset}, {self.flow.trials:,} trials, by {how}"

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Return a row per quantity, estimator, group, plan, step and outcome that was asked for."""
        wanted = {measure.replace("-", " ") for measure in self.request.measure}
        wanted |= {"rmst difference"} if "rmst" in wanted else set()
        outcomes = {*self.request.outcome}
        rows = [
            row
            for row in self.effects.to_rows(self.request.levels)
            if (not wanted or row["quantity"] in wanted)
            # the time without an event is that without any of those that compete
            and (not outcomes or row["outcome"] in outcomes or row["quantity"].startswith("rmst"))
        ]
        tested = [row for row in rows if row.get("p") is not None]
        for row, corrected in zip(tested, holm([row["p"] for row in tested]), strict=True):
            row["p_holm"] = corrected
        names = dict.fromkeys([*(name for row in rows for name in row), "p", "p_holm"])
        return [{name: row.get(name) for name in names} for row in rows]

    def to_frame(self, frame: "FrameName" = "polars") -> "Frame":
        """Return the rows as a frame."""
        from costar_cli.files.frames import make_frame  # noqa: PLC0415 - polars only where a frame is made

        return make_frame({name: [row[name] for row in self.rows] for name in self.rows[0]}, frame)

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        effects = self.effects
        return {
            "dataset": self.dataset,
            "step_unit": effects.trials.schema.step,
            "flow": self.flow.to_json(),
            "plans": [
                {"name": plan.name, "steps": len(plan), "text": text}
                for plan, text in zip(effects.plans, self.texts, strict=True)
            ],
            "reference": effects.plans[effects.reference].name,
            "learners": {name: of.learner.name for of in effects.targets for name in of.target.names},
            "learner_weights": {name: of.learner.weights for of in effects.targets for name in of.target.names},
            "levels": list(self.request.levels),
            "effects": self.rows,
        }  # fmt: skip
