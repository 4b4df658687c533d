"""What scoring leaves of predictions: a table of sums for each row, of which the report is a function.

A part of an evaluation is a file of it, and the parts of all subjects, merged, are the whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from costar_cli.config.choices import SetupName
from costar_cli.config.models import EvaluateConfig
from costar_cli.data import PanelSchema
from costar_cli.diagnostics import Diagnostic
from costar_cli.errors import ArtifactError
from costar_cli.evaluation.bootstrap import bootstrap_interval, caution_about_units, standard_error, too_few_units
from costar_cli.evaluation.calibrated import WINDOWS, Kind, band_summary, rating_summary
from costar_cli.evaluation.doses import DoseCheck, dose_checks
from costar_cli.evaluation.dropout import DropoutWeights
from costar_cli.evaluation.effects import EFFECTS, EffectScores
from costar_cli.evaluation.metrics import SquaredErrors, Truth, period_scores
from costar_cli.evaluation.natural import natural_course
from costar_cli.evaluation.probabilities import Event, answers_of_binary, event_score
from costar_cli.evaluation.report import EvaluationReport
from costar_cli.evaluation.rows import Basis, Provenance, ReportRow, Unit, document_of
from costar_cli.evaluation.sums import Sums, check_sums, columns_of, kinds_of, merged
from costar_cli.files import Artifact, fingerprint, read_artifact, write_artifact
from costar_cli.reporting import Reporter

BROKEN = (LookupError, ValueError, TypeError, AttributeError)  # what facts or sums raise that scoring did not leave


@dataclass(frozen=True, eq=False)
class Scored:
    """How a model, or what knows the simulator, did in one set-up: a row of the report for each kind of truth.

    `query_sets` names the set that serves each step. `sums` are columns: errors, and what else was scored. Of models
    with a calibration, `groups` are the labels of each grouping of answers, and `absorbed_share` is how many say
    nothing, by kind of question. `periods` and `ends` name the calendar periods and the events of the sums.
    """

    setup: SetupName
    label: str
    basis: Basis
    test: str
    query_sets: Mapping[Truth, tuple[str | None, ...]]
    sums: Sums
    provenance: Provenance | None = None
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    absorbed_share: Mapping[Kind, float] = field(default_factory=dict)
    periods: tuple[str, ...] = ()
    ends: tuple[Event, ...] = ()

    @property
    def names(self) -> dict[str, Any]:
        """Return what its rows are called."""
        return {"setup": self.setup, "label": self.label, "test": self.test}

    def to_json(self) -> dict[str, Any]:
        """Return what is no array."""
        return {
            **self.names,
            "basis": self.basis,
            "query_sets": {truth: list(names) for truth, names in self.query_sets.items()},
            "provenance": self.provenance and document_of(self.provenance),
            "ends": [list(event) for event in self.ends],
            "periods": list(self.periods) or None,
            "bands": {"absorbed_share": dict(self.absorbed_share), "labels": dict(self.groups)},
        }

    def errors(self, truth: str, folder: str = "errors") -> SquaredErrors | None:
        """Return squared errors of a kind of truth, None where nothing of the kind was scored."""
        columns = columns_of(self.sums, f"{folder}/{truth}")
        return SquaredErrors(**columns) if columns else None

    def rows(
        self, unit: Unit, schema: PanelSchema, config: EvaluateConfig
    ) -> Iterator[tuple[ReportRow, SquaredErrors]]:
        """Yield a row, with its errors, per kind of truth."""
        how: Any = {"factor": unit.factor, "groups": self.groups, "absorbed_share": self.absorbed_share}
        for truth in self.query_sets:
            if (errors := self.errors(truth)) is None:
                continue
            bands = band_summary(self.sums, truth, **how)
            ratings = {}
            if bands is None:
                kinds: dict[Truth, Kind] = {truth: truth, "factual": "factual"}
                if kinds_of(self.sums, f"bands/lights/{WINDOWS}"):
                    kinds["factual"] = WINDOWS
                ratings = {kind: rating_summary(self.sums, asked, unit.factor) for kind, asked in kinds.items()}
            resampled: Any = {"level": config.level, "replicates": config.bootstrap, "seed": config.seed}
            interval, effects = bootstrap_interval(errors, **resampled), None
            moved = columns_of(self.sums, EFFECTS) if truth == "counterfactual" else {}
            if moved and moved["count"].any():  # some origin has two plans that differ
                of_effects = SquaredErrors(**moved)
                bounds = bootstrap_interval(of_effects, **resampled)
                effects = EffectScores.of(self.sums, of_effects, bounds, unit.factor)
            unweighted, by_period = self.errors(truth, "unweighed"), self.errors(truth, "periods/sums")
            row = ReportRow.scored_row(
                errors,
                interval,
                factor=unit.factor,
                outcome_names=[variable.name for variable in schema.outcomes],
                **self.names,
                basis=self.basis,
                truth=truth,
                query_sets=self.query_sets[truth],
                provenance=self.provenance,
                no_interval=too_few_units([errors]) if config.bootstrap else None,
                caution=caution_about_units([errors]) if interval else None,
                calibration=bands.calibration if bands else {},
                bands=bands.details if bands else None,
                factual=band_summary(self.sums, WINDOWS, **how),
                lights={kind: found for kind, found in ratings.items() if found},
                periods=period_scores(self.periods, by_period, unit.factor) if by_period else (),
                se=standard_error(errors, unit.factor) if self.basis == "limit" else None,
                unweighted=unweighted.mean_rmse(unit.factor) if unweighted else None,
                effects=effects,
            )
            yield row, errors

    @classmethod
    def merged(cls, parts: "Sequence[Scored | ReportRow]") -> "Scored | ReportRow":
        """Return the row that shards make; what knows the simulator has none where it failed in a shard.

        Raises:
            ValueError: the rows do not fit together.
        """
        scored, first = [part for part in parts if isinstance(part, Scored)], parts[0]
        if len({(part.setup, part.label, part.basis) for part in parts}) > 1 or len(scored) not in (0, len(parts)):
            raise ValueError("the rows are not the same in all parts")
        if not isinstance(first, Scored):
            return first
        if len({part.ends for part in scored}) > 1:  # whose sums are added up by number
            raise ValueError("the ends of series are not the same in all parts")
        complete = [truth for truth in first.query_sets if all(part.errors(truth) for part in scored)]
        folders = ("errors", "effects", "orders")
        lost = [f"{folder}/{truth}/" for truth in first.query_sets if truth not in complete for folder in folders]
        sums = merged([part.sums for part in scored])
        return replace(first, sums={name: of for name, of in sums.items() if not name.startswith(tuple(lost))})


@dataclass(frozen=True, eq=False)
class Scores:
    """All rows of one evaluation, in order: what was scored, and published rows; and what they share.

    The scores of a shard hold the sums of its subjects, and what says of which evaluation they are: `whole` has its
    fingerprint and configuration, `parents` the digests of what it was made from.
    """

    dataset: str
    dataset_digest: str
    horizon: int
    schema: PanelSchema
    unit: Unit
    config: EvaluateConfig
    rows: tuple[Scored | ReportRow, ...]
    warnings: tuple[str, ...] = ()
    dropout: tuple[DropoutWeights, ...] = ()
    shard: str = "1/1"
    whole: Mapping[str, Any] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)

    def summary(self, reporter: Reporter) -> EvaluationReport:
        """Return the report; `reporter` is told what speaks against its rows."""
        rows: list[tuple[ReportRow, SquaredErrors | None]] = []
        natural, probabilities = [], []
        doses: list[DoseCheck] = []
        for one in self.rows:
            if not isinstance(one, Scored):
                rows.append((one, None))
                continue
            rows += one.rows(self.unit, self.schema, self.config)
            events = [(event, columns_of(one.sums, f"ends/{i}")) for i, event in enumerate(one.ends)]
            if course := columns_of(one.sums, "course"):
                natural.append(natural_course(course, self.schema.outcomes, level=self.config.level, **one.names))
                events += answers_of_binary(course, self.schema)
                if "since" in course:
                    doses += dose_checks(course, self.schema, level=self.config.level, **one.names)
            probabilities += [event_score(event, answers, **one.names) for event, answers in events]
        report = EvaluationReport(
            dataset=self.dataset,
            dataset_digest=self.dataset_digest,
            horizon=self.horizon,
            unit=self.unit,
            level=self.config.level,
            rows=tuple(row for row, _ in rows),
            warnings=self.warnings,
            config=self.config.model_dump(mode="json"),
            step=self.schema.step,
            errors=tuple(errors for _, errors in rows),
            natural=tuple(natural),
            probabilities=tuple(probabilities),
            dropout=self.dropout,
            doses=tuple(doses),
        )
        losses = (
            Diagnostic.of("worse-than-last-value", row.label, setup=row.setup, errors=errors)
            for row, errors in report.losers()
        )
        warnings = [*report.few_units, *losses]
        for warning in warnings:
            reporter.say(warning)
        return replace(report, warnings=(*report.warnings, *map(str, warnings)))

    @classmethod
    def merge(cls, parts: "Mapping[Path, Scores]", reporter: Reporter) -> EvaluationReport:
        """Return the report of what all parts of one evaluation scored, in order; `reporter` is told its warnings.

        Raises:
            ArtifactError: they do not fit together.
        """
        every = list(parts.values())
        warnings = dict.fromkeys(warning for part in every for warning in part.warnings)
        alike = ("dataset", "dataset_digest", "horizon", "schema", "unit", "config")
        try:
            if len({repr([part._facts()[name] for name in alike]) for part in every}) > 1:
                raise ValueError("they are not of the same data and settings")
            rows = tuple(Scored.merged(rows) for rows in zip(*(part.rows for part in every), strict=True))
            report = replace(every[0], rows=rows, warnings=tuple(warnings)).summary(reporter)
            EvaluationReport.from_json(report.to_json())  # so that whoever reads it can
            return report
        except BROKEN as error:
            raise _incomplete(next(iter(parts)), error) from error

    def write(self, path: Path, *, fingerprint: str, config: Mapping[str, Any], overwrite: bool) -> Artifact:
        """Write what a shard scored as an `evaluation-part` artifact.

        Arrays: `rows/<i>/...`, the columns of row i, of the shard's subjects or over them, as `docs/format.md` lists
        them.
        """
        scored = [(i, row) for i, row in enumerate(self.rows) if isinstance(row, Scored)]
        arrays = {f"rows/{i:03d}/{name}": column for i, row in scored for name, column in row.sums.items()}
        meta = {
            "scores": self._facts(), "shard": self.shard, "whole": dict(self.whole),
            "fingerprint": fingerprint, "config": dict(config),
        }  # fmt: skip
        kind, parents = "evaluation-part", dict(self.parents)
        return write_artifact(path, kind=kind, arrays=arrays, meta=meta, parents=parents, overwrite=overwrite)

    def _facts(self) -> dict[str, Any]:
        """Return as JSON what is no array."""
        return {
            "dataset": self.dataset,
            "dataset_digest": self.dataset_digest,
            "horizon": self.horizon,
            "schema": self.schema.model_dump(mode="json"),
            "unit": document_of(self.unit),
            "config": self.config.model_dump(mode="json"),
            "warnings": list(self.warnings),
            "dropout": [document_of(one) for one in self.dropout],
            "rows": [
                row.to_json() if isinstance(row, Scored) else {"published": document_of(row)} for row in self.rows
            ],
        }

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the scores of a shard.

        Raises:
            ArtifactError: they are none, or incomplete.
        """
        artifact = read_artifact(path, kind="evaluation-part")
        try:
            facts, whole = artifact.meta["scores"], artifact.meta["whole"]
            if whole["fingerprint"] != fingerprint("evaluation", parents=artifact.parents, config=whole["config"]):
                raise ValueError("it is of another version of costar, or was changed")
            of_rows: dict[str, dict[str, Any]] = {f"{i:03d}": {} for i in range(len(facts["rows"]))}
            for name, column in artifact.arrays.items():
                _, row, own = name.split("/", 2)
                of_rows[row][own] = column
            schema = PanelSchema.model_validate(facts["schema"])
            sizes = {"H": int(facts["horizon"]), "Y": len(schema.outcomes)}
            return cls(
                dataset=str(facts["dataset"]),
                dataset_digest=str(facts["dataset_digest"]),
                horizon=sizes["H"],
                schema=schema,
                unit=TypeAdapter(Unit).validate_python(facts["unit"]),
                config=EvaluateConfig.model_validate(facts["config"]),
                rows=tuple(_row(one, sums, sizes) for one, sums in zip(facts["rows"], of_rows.values(), strict=True)),
                warnings=tuple(map(str, facts["warnings"])),
                dropout=TypeAdapter(tuple[DropoutWeights, ...]).validate_python(facts["dropout"]),
                shard=str(artifact.meta["shard"]),
                whole={"fingerprint": str(whole["fingerprint"]), "config": dict(whole["config"])},
                parents=artifact.parents,
            )
        except BROKEN as error:
            raise _incomplete(path, error) from error


def _row(facts: Mapping[str, Any], sums: Sums, sizes: Mapping[str, int]) -> Scored | ReportRow:
    """Return a row of a file, once its sums are seen to be such as scoring leaves.

    Raises:
        ValueError: they are not.
    """
    if "published" in facts:
        return TypeAdapter(ReportRow).validate_python(facts["published"])
    bands = facts["bands"] or {"absorbed_share": {}, "labels": {}}
    row = Scored(
        **{name: facts[name] for name in ("setup", "label", "basis", "test")},
        query_sets={truth: tuple(sets) for truth, sets in facts["query_sets"].items()},
        sums=sums,
        provenance=TypeAdapter(Provenance | None).validate_python(facts["provenance"]),
        groups={name: tuple(map(str, labels)) for name, labels in bands["labels"].items()},
        absorbed_share=dict(bands["absorbed_share"]),
        periods=tuple(facts["periods"] or ()),
        ends=tuple((kind, of) for kind, of in facts["ends"]),
    )
    errors = set(kinds_of(sums, "errors"))
    if errors != row.query_sets.keys() and (errors or row.basis != "limit"):
        raise ValueError(f"the errors of row `{row.label}` are not those of its questions")
    groups = {name.replace(" ", "_"): len(labels) for name, labels in row.groups.items()}
    if any(
        set(kinds_of(sums, f"bands/scores/{kind}/groups")) != set(groups) for kind in kinds_of(sums, "bands/scores")
    ):
        raise ValueError("the groups of bands are not those that have names")
    if set(kinds_of(sums, "ends")) != set(map(str, range(len(row.ends)))):
        raise ValueError("the events are not those that have names")
    check_sums(sums, {**sizes, **groups, "P": len(row.periods)})
    return row


def _incomplete(path: Path, error: Exception) -> ArtifactError:
    fix = "make all parts again with `costar evaluate --shard I/N --overwrite`"
    return ArtifactError("the part of an evaluation is incomplete or damaged", where=f"{path}: {error}", fix=fix)
