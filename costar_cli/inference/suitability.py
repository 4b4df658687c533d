"""Whether a data set can answer what-if questions, before any model: a verdict, and what it rests on."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import numpy as np

from costar_cli.data import Dataset, Panel, Part
from costar_cli.data.findings import counted, shown
from costar_cli.data.report import DataReport, describe_dataset
from costar_cli.inference.overlap import Overlap, describe_overlap
from costar_cli.inference.resampling import FEWEST_UNITS

Rating = Literal["ok", "care", "stop"]

FEWEST_DECISIONS: Final = 100  # steps with a next one, below which hardly a regression has a chance
FEWEST_FOR_EFFECTS: Final = 50  # subjects that `costar effect` estimates from
FEWEST_EVENTS: Final = 10  # of a kind, which a hazard with one covariate takes
SPARSE: Final = 0.3  # share of missing outcomes from which scores are of few steps
BLANK: Final = 0.9
BINS: Final = 10  # of the level of an outcome
FEWEST_EXPECTED: Final = 10
MOSTLY: Final = 0.75  # share of steps at which treatment was decided, beyond which hardly a comparison is left
RARE: Final = 0.005  # share of steps, as in the check for overlap
VERDICTS: Final[dict[Rating, str]] = {
    "ok": "suitable", "care": "suitable, with care", "stop": "not suitable as it is"
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing that was looked at: what was seen, how it is rated, and what would help."""

    name: str
    text: str
    rating: Rating = "ok"
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Suitability:
    """The verdict on a data set: the worst rating of its criteria."""

    criteria: tuple[Criterion, ...]

    @property
    def rating(self) -> Rating:
        """Return the worst rating."""
        ratings = {criterion.rating for criterion in self.criteria}
        return "stop" if "stop" in ratings else "care" if "care" in ratings else "ok"

    @property
    def verdict(self) -> str:
        """Return the verdict in words."""
        return VERDICTS[self.rating]

    def to_json(self) -> dict[str, Any]:
        """Return the verdict and its criteria as plain data."""
        return {"rating": self.rating, "verdict": self.verdict, "criteria": [asdict(c) for c in self.criteria]}


def assess(dataset: Dataset) -> Suitability:
    """Return how suitable a data set is, from its report, its overlap and what each treatment was given to."""
    report, overlap = describe_dataset(dataset), describe_overlap(dataset)
    criteria = [
        _lengths(dataset, report),
        _outcomes(dataset, report),
        _treatments(dataset),
        *_decided(dataset),
        *_overlap(overlap, report),
        _subjects(dataset),
    ]
    if names := dataset.schema.terminal:
        ends_N = np.concatenate([panel.ends for panel in _series(dataset)])
        counts = {name: int((ends_N == code).sum()) for code, name in names.items()}
        text = ", ".join(f"{n:,} {name} in {len(ends_N):,} subjects" for name, n in counts.items())
        few = [name for name, n in counts.items() if n < FEWEST_EVENTS]
        fix = f"fewer than {FEWEST_EVENTS} of {shown(few)}: its risk is hardly known" if few else ""
        criteria.append(Criterion("events", text, "care" if few else "ok", fix))
    told = [f for f in report.findings if f.severity == "warning" and f.code != "confounding-by-indication"]
    if told:  # the other warnings of the data report, in one line
        more = f", and {len(told) - 1} more" if len(told) > 1 else ""
        fix = "`costar inspect --report` shows all" if more else ""
        criteria.append(Criterion("values", f"{told[0].text}{more}", "care", fix))
    return Suitability(tuple(criteria))


def _series(dataset: Dataset) -> list[Panel]:
    """Return the panels that hold each series once, whole: where it is split by time, test has all that was before."""
    panels = [(part, panel) for part, panel in dataset.panels.items() if panel.n_subjects]
    by_time = any(panel.since is not None for _, panel in panels)
    return [panel for part, panel in panels if part.split == "test" or not by_time]


def _lengths(dataset: Dataset, report: DataReport) -> Criterion:
    lengths_N = np.concatenate([panel.length for panel in _series(dataset)])
    decisions, long = int((lengths_N - 1).sum()), float((lengths_N > report.horizon).mean())
    text = (
        f"{lengths_N.sum():,} of {len(lengths_N):,} subjects, {lengths_N.min()} to {lengths_N.max()} each, one per "
        f"{'visit' if dataset.schema.treatments.idle.any() else report.step}; horizon {report.horizon}"
    )
    if decisions < FEWEST_DECISIONS:
        return Criterion("steps", text, "stop", f"{counted(decisions, 'step')} with a next one: too few to learn from")
    if long < 0.5:
        fix = f"{100 * (1 - long):.0f} % of subjects are shorter than the horizon: lower it"
        return Criterion("steps", text, "care", fix)
    return Criterion("steps", text)


def _outcomes(dataset: Dataset, report: DataReport) -> Criterion:
    if not dataset.schema.outcomes:
        return Criterion("outcome", "none: `costar effect` estimates risks of the events, and no model can be trained")
    missing = {known.variable: known.share for known in report.missing}
    shares = {known.outcome: missing.get(known.outcome, 0.0) for known in report.outcomes}
    text = ", ".join(f"{name} {100 * share:.0f} % missing" for name, share in shares.items())
    worst = max(shares.values(), default=1.0)
    rating: Rating = "stop" if worst > BLANK else "care" if worst > SPARSE else "ok"
    fix = "" if rating == "ok" else "scores rest on few steps: a longer `step` or `bin` may hold more of them"
    return Criterion("outcome", text, rating, fix)


def _treatments(dataset: Dataset) -> Criterion:
    """Return how often each treatment was given, and to how many; one that never varies is no data set at all."""
    encoding = dataset.schema.treatments
    panels = _series(dataset)
    given = [encoding.decode(panel.treatments[panel.decided]) != 0 for panel in panels]
    subjects = np.concatenate([np.nonzero(panel.decided)[0] for panel in panels])
    first = np.cumsum([0, *(panel.n_subjects for panel in panels)])
    offsets = np.repeat(first[:-1], [len(of) for of in given])
    given_MK, subject_M = np.concatenate(given), subjects + offsets
    names = [*encoding.names, *(dose.name for dose in encoding.doses)]
    parts, thin = [], []
    for k, name in enumerate(names):
        if encoding.idle[k]:  # the time until the next step is no treatment
            continue
        share = float(given_MK[:, k].mean()) if len(given_MK) else 0.0
        with_it, without = (len(np.unique(subject_M[given_MK[:, k] == flag])) for flag in (True, False))
        parts.append(f"{name} at {100 * share:.0f} % of steps, {with_it:,} of {first[-1]:,} subjects")
        if not RARE <= share <= 1 - RARE or min(with_it, without) < FEWEST_UNITS:
            thin.append(name)
    fix = f"hardly any contrast in {shown(thin)}: join rare levels, or leave it out" if thin else ""
    return Criterion("treatment", "; ".join(parts), "care" if thin else "ok", fix)


def _decided(dataset: Dataset) -> Iterator[Criterion]:
    """Yield the treatments that the level of an outcome decides at some steps: nobody was treated there, or everybody.

    Weights do not show it: where the history decides, nobody is left who would have a large one. A tenth of the steps
    counts only where ten of the rarer kind were to be expected in it, so that a rare treatment alone is no alarm.
    """
    panel, encoding = dataset.panels[Part("source", "train")], dataset.schema.treatments
    given_MK = encoding.decode(panel.treatments[panel.decided]) != 0
    parts, worst = [], 0.0
    for y, outcome in enumerate(dataset.schema.outcomes):
        level_M = panel.outcomes[panel.decided][:, y]
        bin_M = np.searchsorted(np.unique(np.quantile(level_M, np.linspace(0, 1, BINS + 1)[1:-1])), level_M, "right")
        size_B = np.bincount(bin_M)
        for k, name in enumerate([*encoding.names, *(dose.name for dose in encoding.doses)]):
            treated_B = np.bincount(bin_M[given_MK[:, k]], minlength=len(size_B))
            share = float(given_MK[:, k].mean())
            none_B = (treated_B == 0) & (share * size_B >= FEWEST_EXPECTED)
            all_B = (treated_B == size_B) & ((1 - share) * size_B >= FEWEST_EXPECTED)
            decided = float(size_B[none_B | all_B].sum() / max(size_B.sum(), 1))
            worst = max(worst, decided)
            if decided > 0:
                parts.append(f"at {100 * decided:.0f} % of steps {outcome.name} decided {name}")
    if parts:
        fix = "there no data show the other choice: ask about shifts or other subjects, not about all"
        yield Criterion("positivity", "; ".join(parts), "stop" if worst > MOSTLY else "care", fix)


def _overlap(overlap: Overlap, report: DataReport) -> Iterator[Criterion]:
    """Yield what weighting leaves, and whether treatment follows the outcome as an effect would."""
    steps = overlap.weights.get("source", ())
    shares = [step["effective_share"] for step in steps]
    never = overlap.never.get("source", ())
    if shares:
        text = (
            f"weighting for confounding leaves {100 * shares[0]:.0f} % of steps, {100 * min(shares):.0f} % at the end"
        )
        weak = bool(overlap.warnings.get("source"))
        fix = "long plans rest on few followers: ask for fewer steps, or plans nearer to practice" if weak else ""
        yield Criterion("overlap", text, "care" if weak else "ok", fix)
    if never:
        text = f"never received: {'; '.join(never[:2])}" + (f" and {len(never) - 2} more" if len(never) > 2 else "")
        yield Criterion("never", text, "care", "plans with it extrapolate and are refused")
    suspects = [known for known in report.indications if known.is_suspect]
    if suspects:
        pairs = ", ".join(f"{known.treatment} and {known.outcome}" for known in suspects)
        fix = "add what the decision was made by; see `costar inspect --report`"
        yield Criterion("indication", f"those treated differed before, as the effect does: {pairs}", "care", fix)


def _subjects(dataset: Dataset) -> Criterion:
    counts = dict.fromkeys(("train", "val", "test"), 0)
    for part, panel in dataset.panels.items():
        counts[part.split] += panel.n_subjects
    text = f"{counts['train']:,} to learn from, {counts['val']:,} to calibrate, {counts['test']:,} to test on"
    total = sum(panel.n_subjects for panel in _series(dataset))
    if total < FEWEST_FOR_EFFECTS:
        fix = f"fewer than {FEWEST_FOR_EFFECTS}: no `costar effect`; split by time where series are long"
        return Criterion("subjects", text, "care", fix)
    if min(counts["val"], counts["test"]) < FEWEST_UNITS:
        fix = f"{FEWEST_UNITS} or more calibrate and test a 90 % band: raise `val` and `test` in [split]"
        return Criterion("subjects", text, "care", fix)
    return Criterion("subjects", text)
