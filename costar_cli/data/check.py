"""Check a data set before anything is trained on it: unusable values, treatments without contrast, weak overlap."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.dataset import Dataset, Part
from costar_cli.data.findings import broken_invariants, counted, raise_errors, shown
from costar_cli.data.panel import Panel
from costar_cli.data.schema import PanelSchema
from costar_cli.data.support import Decisions, Support
from costar_cli.diagnostics import Diagnostic, Severity
from costar_cli.reporting import Reporter

BINS = 5  # quintiles of the current outcome
RARE = 0.005  # an option given less often than this has no overlap with the others
FAR = 1_000_000  # sd from the median beyond which a value is a slip of units or of the decimal point at best
Z = 2.576  # normal quantile of a two-sided 99 % interval


def check_dataset(dataset: Dataset, reporter: Reporter | None = None) -> list[Diagnostic]:
    """Return warnings and notes about a data set, the warnings also told to the reporter.

    Treatments, overlap and constant variables are looked at where models learn: in the training parts.

    Raises:
        DataError: values that are not finite, broken invariants, or an outcome that never changes; all at once.
    """
    raise_errors(broken_invariants(dataset), what="the data set")
    findings: list[Diagnostic] = []
    for part, panel in dataset.panels.items():
        if part.split == "train":
            findings += _training_part(part, panel, dataset.schema, dataset.horizon)
        if part.split == "test" or panel.outcome_observed is None:
            continue
        # Outcomes that are rarely or never there to learn from, or to select on
        share = panel.observed_outcomes[panel.observed].mean(axis=0)
        for i, outcome in enumerate(dataset.schema.outcomes):
            if not panel.observed_outcomes[:, 1:, i].any():
                fatal = part == Part("source", "train")
                finding = Diagnostic.of(
                    "outcome-never-observed",
                    part,
                    severity="error" if fatal else None,
                    fix="choose an outcome that was" if fatal else None,
                    outcome=outcome.name,
                )
                findings.append(finding)
            elif share[i] < 1:
                percent = 100 * share[i]
                findings.append(Diagnostic.of("outcome-partly-observed", part, outcome=outcome.name, percent=percent))
    raise_errors(findings, what="the data set")
    findings += outliers(dataset)
    if reporter is not None:
        for finding in findings:
            if finding.severity == "warning":
                reporter.say(finding)
    return findings


def outliers(dataset: Dataset) -> list[Diagnostic]:
    """Return a warning for each variable of a part with values that no unit explains (spec TABLE-7)."""
    source = dataset.panels.get(Part("source", "train"))
    if source is None:
        return []
    findings = []
    for field, variables in (("covariates", dataset.schema.covariates), ("outcomes", dataset.schema.outcomes),
                             ("statics", dataset.schema.statics)):  # fmt: skip
        for i, variable in enumerate(variables):
            # The median, and the sd that the median distance of other values from it has under a normal law
            values = _values(source, field, i)
            values = values[np.isfinite(values)]
            centre = float(np.median(values)) if len(values) else 0.0
            distances = np.abs(values - centre)
            distances = distances[distances > 0]
            sd = 1.4826 * float(np.median(distances)) if len(distances) else np.inf
            for part, panel in dataset.panels.items():
                values = _values(panel, field, i)
                distance = np.abs(values - centre)
                far = distance > FAR * sd
                if not far.any():
                    continue
                row, *step = np.unravel_index(np.argmax(np.where(far, distance, -1)), values.shape)
                place = f"subject {panel.names[row]}" + "".join(f", step {at}" for at in step)
                count, largest = counted(int(far.sum()), "value"), values[(row, *step)]
                finding = Diagnostic.of(
                    "outliers", part, variable=variable.name, values=count, far=FAR, largest=largest, place=place
                )
                findings.append(finding)
    return findings


def _values(panel: Panel, field: str, i: int) -> NDArray[np.float64]:
    """Return a variable's values `[N,T]`, of a static `[N]`; NaN where it was not observed."""
    values: NDArray[np.float64] = getattr(panel, field)[..., i].astype(np.float64)
    if field == "statics":
        return values
    seen = panel.observed_outcomes if field == "outcomes" else panel.observed_covariates
    return np.where(seen[..., i], values, np.nan)


def _training_part(part: Part, panel: Panel, schema: PanelSchema, horizon: int) -> Iterator[Diagnostic]:
    if panel.length.max(initial=0) < 2:
        yield Diagnostic.of("no-two-steps", part)
        return
    short = int((panel.length - 1 < horizon).sum())
    if short == panel.n_subjects:
        # a model of the source answers what the target's subjects do not teach
        severity: Severity = "error" if part.domain == "source" else "warning"
        longest = int(panel.length.max()) - 1
        yield Diagnostic.of("series-too-short", part, severity=severity, steps=horizon + 1, longest=longest)
    elif short:
        severity, subjects = "warning" if 2 * short > panel.n_subjects else "note", counted(panel.n_subjects, "subject")
        yield Diagnostic.of("some-series-short", part, severity=severity, short=short, subjects=subjects)
    yield from _treatments(part, panel, schema)
    if part.domain != "source":  # which alone fixes the scale and the encoder
        return
    seen_NTY = panel.observed_outcomes
    values_Y = [panel.outcomes[seen_NTY[..., i], i] for i in range(len(schema.outcomes))]
    if constant := [v.name for v, own in zip(schema.outcomes, values_Y, strict=True) if (own == own[:1]).all()]:
        yield Diagnostic.of("outcomes-constant", part, names=shown(constant))
    else:  # one value per subject, though some subject was observed twice
        low_NY = np.where(seen_NTY, panel.outcomes, np.inf).min(axis=1)
        high_NY = np.where(seen_NTY, panel.outcomes, -np.inf).max(axis=1)
        still_Y = (high_NY <= low_NY).all(axis=0) & (seen_NTY.sum(axis=1) > 1).any(axis=0)
        if constant := [v.name for v, still in zip(schema.outcomes, still_Y, strict=True) if still]:
            yield Diagnostic.of("outcomes-constant-by-subject", part, names=shown(constant))
    known = np.where(panel.observed_covariates, panel.covariates, np.nan)[panel.observed]
    same_X = np.nanmax(known, axis=0, initial=-np.inf) <= np.nanmin(known, axis=0, initial=np.inf)
    if constant := [v.name for v, same in zip(schema.covariates, same_X, strict=True) if same]:
        yield Diagnostic.of("covariates-constant", part, names=shown(constant))
    same_V = (panel.statics == panel.statics[:1]).all(axis=0) & (panel.n_subjects > 1)
    if constant := [v.name for v, same in zip(schema.statics, same_V, strict=True) if same]:
        yield Diagnostic.of("statics-constant", part, names=shown(constant))
    yield from _overlap(part, panel, schema)


def _treatments(part: Part, panel: Panel, schema: PanelSchema) -> Iterator[Diagnostic]:
    decisions = Decisions.of(panel, schema)
    for i, (name, levels) in enumerate(zip(schema.treatments.names, schema.treatments.levels, strict=True)):
        count = np.bincount(decisions.values[:, i], minlength=len(levels))
        if (count > 0).sum() == 1:
            yield Diagnostic.of("treatment-constant", part, treatment=name, level=levels[int(count.argmax())])
        elif len(levels) > 2 and (count == 0).any():
            unseen = [level for level, n in zip(levels, count, strict=True) if not n]
            yield Diagnostic.of("levels-never-given", part, treatment=name, levels=shown(unseen))
    treated = np.zeros(panel.n_subjects, dtype=bool)
    treated[decisions.subject[decisions.given.any(axis=1)]] = True
    if not treated.all() and treated.any():
        subjects = counted(panel.n_subjects, "subject")
        yield Diagnostic.of("never-treated", part, untreated=int((~treated).sum()), subjects=subjects)
    for name in Support.of(panel, schema).absorbing(schema.treatments):
        yield Diagnostic.of("treatment-never-stops", part, treatment=name)


def _overlap(part: Part, panel: Panel, schema: PanelSchema) -> Iterator[Diagnostic]:
    """Look for treatment levels that subjects in some quintile of the current outcome all but never get."""
    decisions = Decisions.of(panel, schema)
    for o, outcome in enumerate(schema.outcomes):
        current = decisions.outcomes[:, o]
        edges = np.unique(np.quantile(current, np.linspace(0, 1, BINS + 1)[1:-1]))
        quintile = np.searchsorted(edges, current, side="left")
        size = np.bincount(quintile, minlength=len(edges) + 1)
        for i, (name, levels) in enumerate(zip(schema.treatments.names, schema.treatments.levels, strict=True)):
            weak = []
            for value in np.flatnonzero(np.bincount(decisions.values[:, i])):
                given = np.bincount(quintile[decisions.values[:, i] == value], minlength=len(size))
                weak += [(levels[value], int(b)) for b in np.flatnonzero(_at_most(given, size) < RARE)]
            if weak and len(levels) == 2:
                places = []
                unit = f" {outcome.unit}" if outcome.unit else ""
                for level, b in weak[:3]:
                    low = [f"above {edges[b - 1]:.3g}"] if b else []
                    high = [f"at most {edges[b]:.3g}"] if b < len(edges) else []
                    places.append(f"'{level}' where it is {' and '.join(low + high)}{unit}")
                where = ", ".join(places)
                yield Diagnostic.of("weak-overlap", part, outcome=outcome.name, treatment=name, places=where)
            elif weak:
                yield Diagnostic.of("rare-combinations", part, count=len(weak), treatment=name, outcome=outcome.name)


def _at_most(given: NDArray[np.int64], size: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the upper end of Wilson's interval of a share; 1 where there are no steps (spec TABLE-6)."""
    n = np.maximum(size, 1)
    share, z2 = given / n, Z**2
    half = Z * np.sqrt(share * (1 - share) / n + z2 / (4 * n**2))
    return np.where(size > 0, (share + z2 / (2 * n) + half) / (1 + z2 / n), 1.0)
