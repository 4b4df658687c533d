"""The data set as an artifact: compact on disk, checked completely when read."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from pydantic import ValidationError

from costar_cli.data.calendar import FORMS
from costar_cli.data.dataset import Dataset, Part
from costar_cli.data.findings import broken_invariants, not_finite, not_finite_answers, raise_errors
from costar_cli.data.panel import Panel
from costar_cli.data.queries import Queries
from costar_cli.data.schema import PanelSchema
from costar_cli.data.store_arrays import (
    panel_from_arrays,
    panel_to_arrays,
    queries_from_arrays,
    queries_to_arrays,
    truth_from_arrays,
)
from costar_cli.errors import ArtifactError, DataError, complaints
from costar_cli.files import Artifact, content_digest, describe, fingerprint, read_artifact, write_artifact

KIND = "dataset"
LEARNED = Part("source", "train")  # the one part that each data set has but those of new subjects
NAME = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)
MOST_AHEAD = 10_000  # steps of a horizon: work on a data set grows with it, whatever its panels hold
REBUILD = "simulate or ingest the data again: the file is not as costar wrote it"


@dataclass(frozen=True, slots=True)
class PartCounts:
    """How much a part of a stored data set holds: subjects, their observed steps, and queries by set."""

    part: Part
    subjects: int
    steps: int
    queries: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class StoredCounts:
    """The parts of a stored data set, and how many subjects its making kept and left out, where that was counted."""

    name: str
    parts: tuple[PartCounts, ...]
    kept: Mapping[str, int] | None


def write_dataset(path: Path, dataset: Dataset, *, overwrite: bool = False) -> Artifact:
    """Write a data set to one file, complete or not at all.

    Raises:
        DataError: the data set breaks an invariant that a reader would reject.
        MismatchError: the file exists and `overwrite` is false.
        StorageError: the disk is full, read-only or forbidden.
    """
    arrays, meta = _content(with_digest(dataset) if dataset.digest else dataset)
    return write_artifact(path, kind=KIND, arrays=arrays, meta=meta, parents=dataset.parents, overwrite=overwrite)


def made_from(dataset: Dataset, *, config: Mapping[str, Any], parents: Mapping[str, str] | None = None) -> Dataset:
    """Return a data set that knows what it was made from, and which digest its file has or will have.

    `parents` are the digests of the files that it was read from, by role.

    Raises:
        DataError: the data set breaks an invariant that a reader would reject.
    """
    mark = fingerprint(KIND, parents=parents or {}, config=config)
    return with_digest(replace(dataset, fingerprint=mark, parents=dict(parents or {}), digest=""))


def with_digest(dataset: Dataset) -> Dataset:
    """Return a data set with the digest that its file has or will have.

    One that was changed since it got its digest is no longer what its fingerprint says: it loses both.

    Raises:
        DataError: the data set breaks an invariant that a reader would reject.
    """
    digest = _digest(dataset)
    if digest == dataset.digest:
        return dataset
    if dataset.digest:
        dataset = replace(dataset, fingerprint="", digest="")
        digest = _digest(dataset)
    return replace(dataset, digest=digest)


def read_dataset(
    path: Path, *, queries: bool = True, truth: bool = True, parts: Sequence[Part] | None = None
) -> Dataset:
    """Read a data set, or the parts of it that a verb needs; what is left out is neither read nor hashed.

    Raises:
        ArtifactError: the file is not a valid data set; the message names the group.
        DataError: the data set has none of a wanted part, or values that are not finite.
    """
    groups = ["panel", *(["queries"] if queries else []), *(["truth"] if truth else [])]
    only = [f"{part}/{group}" for part in (Part.all() if parts is None else parts) for group in groups]
    artifact = read_artifact(path, kind=KIND, only=only)
    with _placed(path, "meta"):
        layout = _layout(artifact.meta)
        name, schema, horizon, config = _meta(artifact.meta)
        clock = _clock(artifact.meta)
    wanted = list(layout) if parts is None else list(dict.fromkeys(parts))
    if missing := [part for part in wanted if part not in layout]:
        has = ", ".join(str(part) for part in layout)
        raise DataError(f"the data set has no {missing[0]} subjects", where=str(path), fix=f"it has {has}")
    panels: dict[Part, Panel] = {}
    asked: dict[Part, dict[str, Queries]] = {}
    known: dict[Part, dict[str, NDArray[Any]]] = {}
    for part in wanted:
        with _placed(path, f"{part}/panel"):
            panels[part] = panel = panel_from_arrays(artifact.arrays, schema, f"{part}/panel", clock)
        raise_errors(not_finite(panel, schema, f"{path}, {part}/panel"), what=f"{path}, {part}/panel")
        asked[part] = {}
        for query_set in layout[part]["queries"] if queries else []:
            group = f"{part}/queries/{query_set}"
            with _placed(path, group):
                asked[part][query_set] = queries_from_arrays(artifact.arrays, panel, schema, group)
            raise_errors(not_finite_answers(asked[part][query_set], f"{path}, {group}"), what=f"{path}, {group}")
        with _placed(path, f"{part}/truth"):
            names = layout[part]["truth"] if truth else []
            known[part] = truth_from_arrays(artifact.arrays, names, panel, f"{part}/truth")
    made = str(artifact.meta.get("fingerprint", ""))
    with _placed(path, "subject_id"):
        return Dataset(
            name, schema, horizon, panels, asked, known, config, artifact.digest, made, dict(artifact.parents)
        )


def count_dataset(path: Path) -> StoredCounts:
    """Return how much a stored data set holds; of all arrays, only the lengths are read and checked.

    Raises:
        ArtifactError: the file is not a data set, or does not hold what it lists.
    """
    described = describe(path)
    shapes = {array["name"]: array["shape"] for array in described["arrays"]}
    with _placed(path, "meta"):
        layout = _layout(described["meta"])
        name, _, _, config = _meta({**described["meta"], "config": described["config"]})
    lengths = read_artifact(path, kind=KIND, only=[f"{part}/panel/length" for part in layout]).arrays
    parts = []
    for part, held in layout.items():
        length = lengths.get(f"{part}/panel/length")
        origins = {query_set: shapes.get(f"{part}/queries/{query_set}/origin") for query_set in held["queries"]}
        if length is None or not all(origins.values()):
            raise ArtifactError("the data set lacks splits that it lists", where=f"{path}, {part}", fix=REBUILD)
        queries = {query_set: int(shape[0]) for query_set, shape in origins.items() if shape}
        parts.append(PartCounts(part, len(length), int(length.sum()), queries))
    kept = config.get("kept")
    return StoredCounts(name, tuple(parts), dict(kept) if isinstance(kept, Mapping) else None)


def _digest(dataset: Dataset) -> str:
    arrays, meta = _content(dataset)
    return content_digest(KIND, arrays=arrays, meta=meta, parents=dataset.parents)


def _content(dataset: Dataset) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and the meta of a data set's file."""
    # First what a reader would reject
    if LEARNED not in dataset.panels and not dataset.is_new:
        raise DataError(f"the data set has no {LEARNED} subjects", fix="add some: models are trained on them")
    layout: dict[str, dict[str, list[str]]] = {}
    for part, panel in dataset.panels.items():
        queries, truth = dataset.queries.get(part, {}), dataset.truth.get(part, {})
        if odd := [name for name in (*queries, *truth) if not NAME.fullmatch(name)]:
            raise DataError(f"query sets and truth need names like `one_step`, not {odd[0]!r}", where=str(part))
        if short := [name for name, values in truth.items() if values.shape[:1] != (panel.n_subjects,)]:
            raise DataError(f"truth '{short[0]}' does not have one row per subject", where=str(part))
        layout[str(part)] = {"queries": sorted(queries), "truth": sorted(truth)}
    raise_errors(broken_invariants(dataset), what="the data set")
    arrays: dict[str, NDArray[Any]] = {}
    for part, panel in dataset.panels.items():
        arrays |= panel_to_arrays(panel, dataset.schema, f"{part}/panel")
        for name, asked in dataset.queries.get(part, {}).items():
            arrays |= queries_to_arrays(asked, dataset.schema, f"{part}/queries/{name}")
        arrays |= {f"{part}/truth/{name}": values for name, values in dataset.truth.get(part, {}).items()}
    meta = {
        "name": dataset.name,
        "schema": dataset.schema.model_dump(mode="json"),
        "horizon": dataset.horizon,
        "config": dict(dataset.config),
        "fingerprint": dataset.fingerprint,
        "parts": layout,
    }
    if clocks := [panel.calendar.kind for panel in dataset.panels.values() if panel.calendar]:
        meta["calendar"] = clocks[0]
    return arrays, meta


def _layout(meta: Mapping[str, Any]) -> dict[Part, dict[str, list[str]]]:
    """Return the names of the query sets and truth arrays of each part, in canonical order of the parts."""
    parts = meta.get("parts")
    if not isinstance(parts, Mapping) or not parts:
        raise ArtifactError("the data set does not list its splits")
    if odd := set(parts) - {str(part) for part in Part.all()}:
        raise ArtifactError(f"the data set lists an unknown split {min(odd)!r}")
    for key, groups in parts.items():
        if not isinstance(groups, Mapping) or set(groups) != {"queries", "truth"}:
            raise ArtifactError(f"split {key} does not list its queries and truth")
        for names in groups.values():
            if not isinstance(names, list) or not all(isinstance(n, str) and NAME.fullmatch(n) for n in names):
                raise ArtifactError(f"split {key} lists invalid names")
    return {part: dict(parts[str(part)]) for part in Part.all() if str(part) in parts}


def _meta(meta: Mapping[str, Any]) -> tuple[str, PanelSchema, int, Mapping[str, object]]:
    name, horizon, config = meta.get("name"), meta.get("horizon"), meta.get("config")
    if not isinstance(name, str) or not isinstance(config, Mapping):
        raise ArtifactError("the data set lacks its name or config")
    if not isinstance(horizon, int) or not 1 <= horizon <= MOST_AHEAD:
        raise ArtifactError(f"the horizon must be a whole number from 1 to {MOST_AHEAD:,}, not {horizon!r}")
    try:
        return name, PanelSchema.model_validate(meta.get("schema")), horizon, config
    except ValidationError as error:
        raise ArtifactError("the schema of the data set is not valid", details=complaints(error.errors())) from error


def _clock(meta: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what the calendars of a data set share, None where it has none."""
    clock = meta.get("calendar")
    if clock is None:
        return None
    size = clock.get("size") if isinstance(clock, Mapping) else 0
    if (
        not isinstance(clock, Mapping)
        or clock.get("unit") not in ("us", "M")
        or set(clock) - {"form"} != {"unit", "size"}
    ):
        raise ArtifactError("the calendar of the data set is not valid")
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or not 0 < size < 2**53):
        raise ArtifactError(f"the calendar's steps must be of a positive size, not {size!r}")
    if clock.get("form", "") not in ("", *FORMS):
        raise ArtifactError("the calendar of the data set writes its periods in an unknown form")
    return dict(clock)


@contextmanager
def _placed(path: Path, group: str) -> Iterator[None]:
    """Turn what is wrong with the content of a group into an error that names the file and the group."""
    try:
        yield
    except (ArtifactError, DataError) as error:
        where = f"{path}, {error.where or group}"
        raise ArtifactError(error.problem, where=where, fix=REBUILD, details=error.details) from error
