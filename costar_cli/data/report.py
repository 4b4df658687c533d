"""What a data set looks like, in numbers: lengths, missing values, treatments, outcomes, shift between the domains."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from costar_cli.data.check import check_dataset
from costar_cli.data.dataset import Dataset, Domain, Part
from costar_cli.data.findings import invalid
from costar_cli.data.indication import Indication, indications, suspects
from costar_cli.data.schema import PanelSchema
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import DataError

FEWEST_BINS: Final = 10
MOST_BINS: Final = 40
DECADES: Final = 100  # times its smallest value that a positive series reaches on a log axis
FEWEST: Final = 5  # subjects whose share or quartiles say something
QUANTILES: Final = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
MASK: Final = "_observed"
DOMAINS: Final[tuple[Domain, Domain]] = ("source", "target")
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PartSummary:
    """A part: subjects, their steps, and how many questions are asked about them."""

    part: str
    subjects: int
    steps: int
    shortest: int
    median: float
    longest: int
    queries: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class MissingValues:
    """How much of a variable was missing: shares by part where a mask tells, counts where ingestion did."""

    variable: str
    share: float
    by_part: Mapping[str, float]
    carried: int | None = None
    learned: int | None = None


@dataclass(frozen=True, slots=True)
class LevelUse:
    """How often a treatment has a level, of the steps that have a next one: overall, and by step.

    `by_step` holds None where fewer than five subjects decide.
    """

    treatment: str
    level: str
    domain: Domain
    share: float
    by_step: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class CourseOfOutcome:
    """Quartiles of an outcome by step; None where fewer than five subjects are observed."""

    lower: tuple[float | None, ...]
    median: tuple[float | None, ...]
    upper: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class OutcomeSummary:
    """An outcome in a domain, or a dose where one is given, with its histogram and its course over time.

    Quantiles are those at 0, 5, 25, 50, 75, 95 and 100 %. All of it is about the steps where the outcome was observed,
    or a dose given, a share `observed` of all. The two domains share the `edges` of their histograms.
    """

    outcome: str
    unit: str
    domain: Domain
    observed: float
    mean: float
    sd: float
    quantiles: tuple[float, ...]
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    course: CourseOfOutcome


@dataclass(frozen=True, slots=True)
class Shift:
    """A variable in both domains, and its standardised mean difference.

    That is (target mean - source mean) / sqrt((source variance + target variance) / 2), over all observed steps (over
    subjects for statics); None where neither varies and the means differ.
    """

    role: str
    variable: str
    source_mean: float
    source_sd: float
    target_mean: float
    target_sd: float
    difference: float | None


@dataclass(frozen=True, slots=True)
class DataReport:
    """Everything that a data report shows."""

    name: str
    digest: str
    step: str
    horizon: int
    parts: tuple[PartSummary, ...]
    lengths: Mapping[Domain, tuple[int, ...]]
    missing: tuple[MissingValues, ...]
    treatments: tuple[LevelUse, ...]
    outcomes: tuple[OutcomeSummary, ...]
    doses: tuple[OutcomeSummary, ...]
    shifts: tuple[Shift, ...]
    indications: tuple[Indication, ...]
    findings: tuple[Diagnostic, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        findings = [
            finding.to_json() | {"problem": finding.text, "where": finding.subject} for finding in self.findings
        ]
        return asdict(self) | {"findings": findings}


def describe_dataset(dataset: Dataset) -> DataReport:
    """Return what a data set looks like; all parts of a domain are taken together unless a part is named."""
    domains = {domain: _Pooled.of(dataset, domain) for domain in DOMAINS}
    present = {domain: pooled for domain, pooled in domains.items() if pooled is not None}
    train = dataset.panels.get(Part("source", "train"))
    found = () if train is None else tuple(indications(train, dataset.schema))
    suspicions = [known.diagnostic("source/train") for known in suspects(found)]
    parts = [
        PartSummary(
            part=str(part),
            subjects=panel.n_subjects,
            steps=int(panel.length.sum()),
            shortest=int(panel.length.min()) if panel.n_subjects else 0,
            median=float(np.median(panel.length)) if panel.n_subjects else 0.0,
            longest=int(panel.length.max(initial=0)),
            queries={name: len(queries) for name, queries in dataset.queries.get(part, {}).items()},
        )
        for part, panel in dataset.panels.items()
    ]
    try:
        findings = check_dataset(dataset)
    except DataError as error:  # where the check before training stops, what it says is a finding, too
        texts = list(error.details) or [str(error.problem)]
        findings = [invalid(text, error.where or "", "" if error.details else error.fix or "") for text in texts]
    return DataReport(
        name=dataset.name,
        digest=dataset.digest,
        step=dataset.schema.step,
        horizon=dataset.horizon,
        parts=tuple(parts),
        lengths={domain: tuple(np.bincount(pooled.length).tolist()) for domain, pooled in present.items()},
        missing=tuple(_missing(dataset)),
        treatments=tuple(_treatments(dataset.schema, present)),
        outcomes=tuple(_outcomes(dataset.schema, present)),
        doses=tuple(_doses(dataset.schema, present)),
        shifts=tuple(_shifts(dataset.schema, present)),
        indications=found,
        findings=(*findings, *suspicions),
    )


@dataclass(frozen=True, eq=False)
class _Pooled:
    """The subjects of a domain: arrays `[M, features]` of all observed steps, `step [M]`, `decides [M]`, and more."""

    covariates: NDArray[np.float32]
    outcomes: NDArray[np.float32]
    outcome_observed: NDArray[np.bool_]
    treatments: NDArray[np.float32]
    statics: NDArray[np.float32]
    length: NDArray[np.int64]
    step: NDArray[np.int64]
    decides: NDArray[np.bool_]

    @classmethod
    def of(cls, dataset: Dataset, domain: Domain) -> "_Pooled | None":
        panels = [p for part, p in dataset.panels.items() if part.domain == domain and p.n_subjects]
        if not panels:
            return None
        masks = [panel.observed for panel in panels]
        pairs = list(zip(panels, masks, strict=True))
        decides = [panel.decided[mask] for panel, mask in pairs]
        return cls(
            np.concatenate([panel.covariates[mask] for panel, mask in pairs]),
            np.concatenate([panel.outcomes[mask] for panel, mask in pairs]),
            np.concatenate([panel.observed_outcomes[mask] for panel, mask in pairs]),
            np.concatenate([panel.treatments[mask] for panel, mask in pairs]),
            np.concatenate([panel.statics for panel in panels]),
            np.concatenate([panel.length for panel in panels]),
            np.concatenate([np.nonzero(mask)[1] for mask in masks]),
            np.concatenate(decides),
        )

    def outcome(self, i: int) -> Floats:
        """Return the observed values of an outcome."""
        values: Floats = self.outcomes[self.outcome_observed[:, i], i].astype(np.float64)
        return values


def _missing(dataset: Dataset) -> Iterator[MissingValues]:
    """Yield what masks and the record of ingestion tell, the variables with most missing values first."""
    masks: dict[str, tuple[dict[str, float], float]] = {}  # shares of zeros, by part and overall
    for i, variable in enumerate(dataset.schema.outcomes):
        if any(panel.outcome_observed is not None for panel in dataset.panels.values()):
            lacks = {str(part): ~x.observed_outcomes[x.observed][:, i] for part, x in dataset.panels.items()}
            shares = {part: float(mask.mean()) for part, mask in lacks.items() if len(mask)}
            if any(shares.values()):
                masks[variable.name] = shares, float(np.concatenate(list(lacks.values())).mean())
    for field, variables in (("covariates", dataset.schema.covariates), ("statics", dataset.schema.statics)):
        for i, variable in enumerate(variables):
            if not variable.name.endswith(MASK) or variable.kind != "binary":
                continue
            shares, zeros, values = {}, 0, 0
            for part, panel in dataset.panels.items():
                column = getattr(panel, field)[..., i]
                column = column[panel.observed] if field == "covariates" else column
                if len(column):
                    shares[str(part)] = float((column == 0).mean())
                    zeros, values = zeros + int((column == 0).sum()), values + len(column)
            masks[variable.name.removesuffix(MASK)] = shares, zeros / max(values, 1)
    record = dataset.config.get("ingestion")
    filled = record.get("filled") if isinstance(record, Mapping) else None
    counts = {str(name): values for name, values in filled.items()} if isinstance(filled, Mapping) else {}
    found = []
    for name in dict.fromkeys([*masks, *counts]):
        by_part, share = masks.get(name, ({}, None))
        told = counts.get(name)
        told = told if isinstance(told, Mapping) else {}
        missing, of = told.get("missing"), told.get("values")
        if isinstance(missing, int) and isinstance(of, int) and of:
            share = missing / of
        if share is not None:
            found.append(MissingValues(name, share, by_part, _whole(told.get("carried")), _whole(told.get("learned"))))
    yield from sorted(found, key=lambda missing: -missing.share)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _treatments(schema: PanelSchema, domains: Mapping[Domain, _Pooled]) -> Iterator[LevelUse]:
    encoding = schema.treatments
    for domain, pooled in domains.items():
        values = encoding.decode(pooled.treatments[pooled.decides])
        step = pooled.step[pooled.decides]
        n_steps = int(step.max(initial=-1)) + 1
        deciding = np.bincount(step, minlength=n_steps)
        for i, (name, levels) in enumerate(zip(encoding.names, encoding.levels, strict=True)):
            for level, label in enumerate(levels):
                given = np.bincount(step[values[:, i] == level], minlength=n_steps)
                share = float((values[:, i] == level).mean()) if len(values) else 0.0
                by_step = zip(given / np.maximum(deciding, 1), deciding, strict=True)
                shares = tuple(float(used) if n >= FEWEST else None for used, n in by_step)
                yield LevelUse(name, label, domain, share, shares)


def _outcomes(schema: PanelSchema, domains: Mapping[Domain, _Pooled]) -> Iterator[OutcomeSummary]:
    for i, variable in enumerate(schema.outcomes):
        seen = {domain: pooled.outcome_observed[:, i] for domain, pooled in domains.items()}
        known = {domain: (domains[domain].outcome(i), of, domains[domain].step[of]) for domain, of in seen.items()}
        yield from _summaries(variable.name, variable.unit, known)


def _doses(schema: PanelSchema, domains: Mapping[Domain, _Pooled]) -> Iterator[OutcomeSummary]:
    """Yield what doses are like where one is given, of the steps that have a next one."""
    encoding = schema.treatments
    for i, dose in enumerate(encoding.doses, start=len(encoding.names)):
        known = {}
        for domain, pooled in domains.items():
            values = encoding.decode(pooled.treatments[pooled.decides])[:, i].astype(np.float64)
            given = values != 0
            known[domain] = values[given], given, pooled.step[pooled.decides][given]
        yield from _summaries(dose.name, dose.unit, known)


def _summaries(
    name: str, unit: str, known: Mapping[Domain, tuple[Floats, NDArray[np.bool_], NDArray[np.int64]]]
) -> Iterator[OutcomeSummary]:
    """Yield the summary of each domain, of its values, where they were observed, and their steps."""
    some = {domain: of for domain, of in known.items() if len(of[0])}
    if not some:
        return
    # Bins over the values but for their tails: evenly spaced, or by factors over decades. The outcome decides, not a
    # setting: even bins would put all decades but the last into the first few.
    pooled = np.concatenate([values for values, _, _ in some.values()])
    low, high = np.quantile(pooled, (0.005, 0.995))
    if low == high:
        low, high = low - 0.5, high + 0.5
    bins = int(np.clip(np.sqrt(len(pooled)) / 1.5, FEWEST_BINS, MOST_BINS))
    spaced = np.geomspace if high >= DECADES * low > 0 else np.linspace
    edges = spaced(low, high, bins + 1)
    for domain, (values, observed, step) in some.items():
        inside = np.clip(values, edges[0], edges[-1])  # the outermost bins also hold the tails
        order = np.argsort(step, kind="stable")
        count = np.bincount(step)
        groups = np.split(values[order], np.cumsum(count)[:-1])
        quartiles = [np.quantile(g, (0.25, 0.5, 0.75)) if len(g) >= FEWEST else (None,) * 3 for g in groups]
        lines = [tuple(None if q is None else float(q) for q in line) for line in zip(*quartiles, strict=True)]
        yield OutcomeSummary(
            outcome=name,
            unit=unit,
            domain=domain,
            observed=float(observed.mean()),
            mean=float(values.mean()),
            sd=float(values.std()),
            quantiles=tuple(float(q) for q in np.quantile(values, QUANTILES)),
            edges=tuple(edges.tolist()),
            counts=tuple(np.histogram(inside, edges)[0].tolist()),
            course=CourseOfOutcome(*lines),
        )


def _shifts(schema: PanelSchema, domains: Mapping[Domain, _Pooled]) -> Iterator[Shift]:
    """Yield the difference of each variable between the domains, the largest first (spec TABLE-5)."""
    if len(domains) < 2:
        return
    source, target = domains["source"], domains["target"]
    given = [schema.treatments.decode(pooled.treatments[pooled.decides]) != 0 for pooled in (source, target)]
    observed = [[pooled.outcome(i) for i in range(len(schema.outcomes))] for pooled in (source, target)]
    columns: list[tuple[str, Sequence[str], Sequence[NDArray[Any]], Sequence[NDArray[Any]]]] = [
        ("covariate", [v.name for v in schema.covariates], list(source.covariates.T), list(target.covariates.T)),
        ("outcome", [v.name for v in schema.outcomes], observed[0], observed[1]),
        ("static", [v.name for v in schema.statics], list(source.statics.T), list(target.statics.T)),
        ("treatment", [f"{name} given" for name in schema.treatments.all_names], list(given[0].T), list(given[1].T)),
    ]
    shifts = []
    for role, names, ours, theirs in columns:
        for i, name in enumerate(names):
            both = [values.astype(np.float64) for values in (ours[i], theirs[i])]
            means = [float(values.mean()) if len(values) else 0.0 for values in both]
            sds = [float(values.std()) if len(values) else 0.0 for values in both]
            sd = float(np.sqrt((sds[0] ** 2 + sds[1] ** 2) / 2))
            same = 0.0 if means[0] == means[1] else None
            difference = (means[1] - means[0]) / sd if sd > 0 else same
            shifts.append(Shift(role, name, means[0], sds[0], means[1], sds[1], difference))
    yield from sorted(shifts, key=lambda s: -abs(s.difference) if s.difference is not None else -np.inf)
