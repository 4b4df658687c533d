"""Parts of an evaluation: what was scored of some subjects in a file, and the whole from the files of all parts."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from pydantic import TypeAdapter

from costar_cli.config.models import EvaluateConfig
from costar_cli.data import PanelSchema
from costar_cli.errors import ArtifactError
from costar_cli.evaluation.calibrated import BandSums
from costar_cli.evaluation.calibration import BandScores, GroupScores
from costar_cli.evaluation.dropout import DropoutWeights
from costar_cli.evaluation.lights import LightSums
from costar_cli.evaluation.metrics import SquaredErrors
from costar_cli.evaluation.natural import CourseAnswers
from costar_cli.evaluation.periods import PeriodSums
from costar_cli.evaluation.probabilities import EventAnswers
from costar_cli.evaluation.report import EvaluationReport
from costar_cli.evaluation.rows import Provenance, ReportRow, Unit, json_values
from costar_cli.evaluation.scores import Scored, Scores
from costar_cli.evaluation.sums import arrays_in
from costar_cli.evaluation.validation import check_sums
from costar_cli.files import Artifact, fingerprint, read_artifact, write_artifact
from costar_cli.files.shards import Shard
from costar_cli.reporting import Reporter

__all__ = ["EvaluationPart", "join_parts", "read_part", "write_part"]

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class EvaluationPart:
    """What a shard of the test subjects adds to an evaluation, and which evaluation: made from what, with what."""

    shard: str
    fingerprint: str
    config: Mapping[str, Any]
    parents: Mapping[str, str]
    scores: Scores


def write_part(
    path: Path, scores: Scores, shard: Shard, *, whole: Mapping[str, Any], parents: Mapping[str, str],
    fingerprint: str, config: Mapping[str, Any], overwrite: bool,
) -> Artifact:  # fmt: skip
    """Write what a shard scored as an `evaluation-part` artifact.

    Arrays: `rows/<i>/...`, the sums of row i, of the shard's subjects or over them, as `docs/format.md` lists them.
    `whole` are the fingerprint and the configuration of the evaluation that all parts make.
    """
    arrays = {
        f"rows/{i:03d}/{name.replace(' ', '_')}": array
        for i, row in enumerate(scores.rows)
        if isinstance(row, Scored)
        for name, array in arrays_in(row)
    }
    meta = {
        "scores": _facts(scores), "shard": str(shard), "whole": dict(whole),
        "fingerprint": fingerprint, "config": dict(config),
    }  # fmt: skip
    return write_artifact(path, kind="evaluation-part", arrays=arrays, meta=meta, parents=parents, overwrite=overwrite)


def read_part(path: Path) -> EvaluationPart:
    """Read a part.

    Raises:
        ArtifactError: it is none, or incomplete.
    """
    artifact = read_artifact(path, kind="evaluation-part")
    try:
        return _part(artifact)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise _incomplete(path, error) from error


def join_parts(parts: Mapping[Path, EvaluationPart], reporter: Reporter) -> EvaluationReport:
    """Return the report of what all parts of one evaluation scored, in their order; `reporter` is told its warnings.

    Raises:
        ArtifactError: they do not fit together.
    """
    every = list(parts.values())
    warnings = dict.fromkeys(warning for part in every for warning in part.scores.warnings)
    try:
        if len({_shared(part.scores) for part in every}) > 1:
            raise ValueError("they are not of the same data and settings")
        rows = [_joined(rows) for rows in zip(*(part.scores.rows for part in every), strict=True)]
        report = replace(every[0].scores, rows=tuple(rows), warnings=tuple(warnings)).report(reporter)
        EvaluationReport.from_json(report.to_json())  # so that whoever reads it can
        return report
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise _incomplete(next(iter(parts)), error) from error


def _incomplete(path: Path, error: Exception) -> ArtifactError:
    fix = "make all parts again with `costar evaluate --shard I/N --overwrite`"
    return ArtifactError("the part of an evaluation is incomplete or damaged", where=f"{path}: {error}", fix=fix)


def _shared(scores: Scores) -> str:
    """Return as text what is the same in all parts of an evaluation."""
    facts = _facts(scores)
    return repr([facts[name] for name in ("dataset", "dataset_digest", "horizon", "schema", "unit", "config")])


def _joined(rows: Sequence[Scored | ReportRow]) -> Scored | ReportRow:
    scored = [row for row in rows if isinstance(row, Scored)]
    if len({(row.setup, row.label, row.basis) for row in rows}) > 1 or len(scored) not in (0, len(rows)):
        raise ValueError("the rows are not the same in all parts")
    return Scored.joined(scored) if scored else rows[0]


def _facts(scores: Scores) -> dict[str, Any]:
    """Return as JSON what is no array."""
    return {
        "dataset": scores.dataset,
        "dataset_digest": scores.dataset_digest,
        "horizon": scores.horizon,
        "schema": scores.schema.model_dump(mode="json"),
        "unit": json_values(asdict(scores.unit)),
        "config": scores.config.model_dump(mode="json"),
        "warnings": list(scores.warnings),
        "dropout": [json_values(asdict(one)) for one in scores.dropout],
        "rows": [_row_facts(row) for row in scores.rows],
    }


def _row_facts(row: Scored | ReportRow) -> dict[str, Any]:
    if isinstance(row, ReportRow):
        return {"published": json_values(asdict(row))}
    bands = row.bands
    return {
        **row.names,
        "basis": row.basis,
        "query_sets": json_values(row.query_sets),
        "provenance": None if row.provenance is None else json_values(asdict(row.provenance)),
        "ends": [[one.kind, one.of] for one in row.ends],
        "periods": None if row.periods is None else list(row.periods.names),
        "bands": bands and {"absorbed_share": bands.absorbed_share, "labels": json_values(bands.labels)},
    }


def _part(artifact: Artifact) -> EvaluationPart:
    meta = artifact.meta
    facts, whole = meta["scores"], meta["whole"]
    if whole["fingerprint"] != fingerprint("evaluation", parents=artifact.parents, config=whole["config"]):
        raise ValueError("it is of another version of costar, or was changed")
    tree = _tree(artifact.arrays).get("rows", {})
    if odd := tree.keys() - {f"{i:03d}" for i in range(len(facts["rows"]))}:
        raise ValueError(f"there is no row {sorted(odd)[0]}")
    schema = PanelSchema.model_validate(facts["schema"])
    sizes = {"H": int(facts["horizon"]), "Y": len(schema.outcomes)}
    scores = Scores(
        dataset=str(facts["dataset"]),
        dataset_digest=str(facts["dataset_digest"]),
        horizon=sizes["H"],
        schema=schema,
        unit=TypeAdapter(Unit).validate_python(facts["unit"]),
        config=EvaluateConfig.model_validate(facts["config"]),
        rows=tuple(_row(one, tree.get(f"{i:03d}", {}), sizes) for i, one in enumerate(facts["rows"])),
        warnings=tuple(map(str, facts["warnings"])),
        dropout=TypeAdapter(tuple[DropoutWeights, ...]).validate_python(facts["dropout"]),
    )
    return EvaluationPart(meta["shard"], str(whole["fingerprint"]), dict(whole["config"]), artifact.parents, scores)


def _tree(arrays: Arrays) -> dict[str, Any]:
    """Return arrays by the segments of their names."""
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        *folders, last = name.split("/")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = array
    return tree


def _row(facts: Mapping[str, Any], tree: Mapping[str, Any], sizes: Mapping[str, int]) -> Scored | ReportRow:
    if "published" in facts:
        return TypeAdapter(ReportRow).validate_python(facts["published"])
    row = _scored(facts, tree, sizes["H"])
    if row.errors.keys() != row.query_sets.keys() and (row.errors or row.basis != "limit"):
        raise ValueError(f"the errors of row `{row.label}` are not those of its questions")
    _check(row, dict(sizes))
    return row


def _check(row: Scored, sizes: dict[str, int]) -> None:
    """See that the sums of a row are such as scoring leaves: of the same subjects, steps and outcomes.

    Raises:
        ValueError: they are not.
    """
    for errors in (*row.errors.values(), *row.unweighed.values()):
        check_sums(errors, sizes)
    if bands := row.bands:
        for scores in bands.scores.values():
            check_sums(scores, sizes)
            for name, group in scores.groups.items():
                check_sums(group, sizes | {"G": len(bands.labels[name])})
        for lights in bands.lights.values():
            check_sums(lights, sizes)
    if periods := row.periods:
        for errors in periods.sums.values():
            check_sums(errors, sizes | {"N": len(periods.names)})
    for answers in (*([row.course] if row.course else []), *row.ends):
        check_sums(answers, dict(sizes))


def _scored(facts: Mapping[str, Any], tree: Mapping[str, Any], horizon: int) -> Scored:
    named = {name: facts[name] for name in ("setup", "label", "basis", "test")}
    ends, course = tree.get("ends", {}), tree.get("course")
    return Scored(
        **named,
        query_sets={truth: tuple(names) for truth, names in facts["query_sets"].items()},
        errors=_errors(tree.get("errors", {})),
        provenance=TypeAdapter(Provenance | None).validate_python(facts["provenance"]),
        bands=None if facts["bands"] is None else _bands(facts["bands"], tree.get("bands", {}), horizon),
        course=None if course is None else CourseAnswers(**course),
        periods=None if facts["periods"] is None else PeriodSums(facts["periods"], _errors(_sums_of_periods(tree))),
        unweighed=_errors(tree.get("unweighed", {})),
        ends=tuple(EventAnswers(kind, of, **ends[str(i)]) for i, (kind, of) in enumerate(facts["ends"])),
    )


def _sums_of_periods(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = tree.get("periods", {}).get("sums", {})
    return found


def _errors(tree: Mapping[str, Any]) -> dict[Any, SquaredErrors]:
    return {kind: SquaredErrors(**arrays) for kind, arrays in tree.items()}


def _bands(facts: Mapping[str, Any], tree: Mapping[str, Any], horizon: int) -> BandSums:
    labels = {name: tuple(map(str, names)) for name, names in facts["labels"].items()}
    scores: dict[Any, BandScores] = {}
    for kind, arrays in tree.get("scores", {}).items():
        if {name.replace(" ", "_") for name in labels} != arrays.get("groups", {}).keys():
            raise ValueError("the groups of bands are not those that have names")
        groups = {name: GroupScores(**arrays["groups"][name.replace(" ", "_")]) for name in labels}
        scores[kind] = BandScores(**{**arrays, "groups": groups})
    lights: dict[Any, LightSums] = {
        kind: LightSums(horizon, dict(arrays.get("sums", {}))) for kind, arrays in tree.get("lights", {}).items()
    }
    return BandSums(scores, lights, dict(facts["absorbed_share"]), labels)
