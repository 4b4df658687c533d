"""What an artifact of each kind MUST and MAY hold, and the manifest that names it all.

docs/format.md says the same of the kinds, and a test compares them. The manifest is a JSON document; its SHA-256 is the
digest of the artifact.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from costar_cli.errors import complaint
from costar_cli.files.digest import canonical_json, parse_json, stored_tag

SCHEMA_VERSION: Final = "1.0"
PANEL_FIELDS: Final = ("covariates", "treatments", "outcomes", "statics", "length", "subject_id")
OPTIONAL_FIELDS: Final = (
    "label", "cluster", "outcome_observed", "covariate_observed", "time", "since", "end", "doses",
)  # fmt: skip
QUERY_FIELDS: Final = ("subject", "origin", "plan", "doses", "outcomes", "scored")
TRAINED_ARRAYS: Final = ("params/**", "scaler/covariates", "scaler/outcomes", "scaler/statics")
TRANSFORM_ARRAYS: Final = ("transform/center", "transform/moments")
TRAINED_META: Final = ("method", "dataset_name", "schema", "config", "members", "history", "fingerprint")
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}){0,11}", re.ASCII)

MAX_MANIFEST_BYTES: Final = 8 * 1024 * 1024
STRICT = ConfigDict(frozen=True, extra="forbid", strict=True)
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True)
class KindSpec:
    """The content of one kind.

    Array patterns are names in which `*` stands for one segment and `**` for one or more. Each `must` pattern matches
    at least one array, and each array matches a `must` or a `may` pattern. `meta` lists the keys that `meta` must have.
    """

    made_by: str
    must: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    meta: tuple[str, ...] = ()


KINDS: Final[Mapping[str, KindSpec]] = {
    "dataset": KindSpec(
        made_by="costar simulate` or `costar ingest",
        must=tuple(f"*/*/panel/{field}" for field in PANEL_FIELDS),
        may=(
            *(f"*/*/panel/{field}" for field in OPTIONAL_FIELDS),
            *(f"*/*/queries/*/{field}" for field in QUERY_FIELDS),
            "*/*/truth/**",
        ),
        meta=("name", "schema", "horizon", "parts", "config", "fingerprint"),
    ),
    "encoder": KindSpec(made_by="costar pretrain", must=TRAINED_ARRAYS, may=TRANSFORM_ARRAYS, meta=TRAINED_META),
    "model": KindSpec(
        made_by="costar finetune",
        must=TRAINED_ARRAYS,
        may=(
            "base/**",
            "parts/**",
            *TRANSFORM_ARRAYS,
            *(f"calibration/{field}" for field in ("radius", "units", "plans_radius", "plans_effective")),
            *(f"practice/{field}" for field in ("knots", "intercept", "coef", "spread", "rarest", "course")),
            *(f"survival/{field}" for field in ("floor", "moments", "knots", "intercept", "coef")),
            *(f"survival/next_{field}" for field in ("intercept", "coef", "range")),
            *(f"survival/errors_{field}" for field in ("share", "outcomes", "logits")),
            *(f"practice/*/{field}" for field in ("edges", "range", "count")),
        ),
        meta=(*TRAINED_META, "init", "domain", "horizon", "trained_on"),
    ),
    "evaluation": KindSpec(
        made_by="costar evaluate",
        must=("rmse", "interval"),
        may=tuple(f"rows/*/{field}" for field in ("members", "ensemble", "count", "cluster", "weight")),
        meta=("report", "fingerprint"),
    ),
    "evaluation-part": KindSpec(
        made_by="costar evaluate --shard",
        may=("rows/**",),
        meta=("scores", "shard", "whole", "fingerprint"),
    ),
    "part": KindSpec(
        made_by="costar whatif --average --shard` and `costar effect --shard",
        may=("**",),
        meta=("shard", "fingerprint"),
    ),
    "estimates": KindSpec(
        made_by="costar whatif",
        must=(
            *(f"history/{field}" for field in ("outcomes", "treatments")),
            *(f"plans/{field}" for field in ("steps", "values", "observed")),
            "model/*/predictions",
        ),
        may=("plans/truth",),
        meta=("plans", "models", "schema", "fingerprint"),
    ),
    "answers": KindSpec(
        made_by="costar whatif --subjects",
        must=("column/*",),
        meta=("columns", "categories", "rows", "models", "levels", "fingerprint"),
    ),
    "refutation": KindSpec(made_by="costar evaluate --refute", must=("found",), meta=("refutations", "fingerprint")),
    "run-state": KindSpec(made_by="costar pretrain --fresh", may=("**",), meta=("finished", "current", "fingerprint")),
}


def a_kind(kind: str) -> str:
    """Return a kind with its article, for messages: `a dataset`, `an encoder`, `estimates`."""
    return kind if kind in ("estimates", "answers") else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def version_order(version: str) -> int:
    """Return 1 for a schema version newer than this costar, -1 for one too old to read, 0 for a readable one."""
    major, minor = (int(part) for part in version.split("."))
    own_major, own_minor = (int(part) for part in SCHEMA_VERSION.split("."))
    if (major, minor) > (own_major, own_minor):
        return 1
    return 0 if major == own_major else -1


def check_names(names: Iterable[str]) -> None:
    """Check that array names are safe and that none is also a group.

    Raises:
        ValueError: the first name that is not.
    """
    known = set(names)
    for name in known:
        if not NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is not a name for an array")
        segments = name.split("/")
        for depth in range(1, len(segments)):
            if (group := "/".join(segments[:depth])) in known:
                raise ValueError(f"{group!r} is the name of both an array and a group")


# Of meta wherever it stands; other keys are their readers' own.
META_TYPES: Final[Mapping[tuple[type, ...], tuple[str, ...]]] = {
    (str,): ("dataset_name", "decoder", "device", "domain", "fingerprint", "init", "method", "name", "precision",
             "shard"),
    (int,): ("horizon", "members"),
    (list,): ("finished", "made_with", "refutations", "stages", "warnings"),
    (list, dict): ("parts",),
    (dict,): ("calibration", "config", "encoder", "history", "outcome_facts", "practice", "report", "schema", "scores",
              "settings", "support", "survival", "trained_on", "validation", "whole"),
}  # fmt: skip
COUNTS: Final = ("calibrated_on", "pretrained_on", "selected_on", "trained_on")  # subjects of each part
TYPES_OF: Final = {key: kinds for kinds, keys in META_TYPES.items() for key in keys}
TYPE_WORDS: Final = {str: "text", int: "a whole number", list: "a list", dict: "an object"}


def content_problems(kind: str, names: Iterable[str], meta: Mapping[str, object]) -> list[str]:
    """Return in words what a kind MUST have and these names and meta lack, or hold beyond what it MAY have.

    Also which keys of meta are not of their type; `null` is no value of any.
    """
    spec, names = KINDS[kind], list(names)
    patterns = {pattern: _regex(pattern) for pattern in (*spec.must, *spec.may)}
    problems = [f"no array `{p}`" for p in spec.must if not any(patterns[p].fullmatch(name) for name in names)]
    problems += [f"unknown array `{n}`" for n in names if not any(p.fullmatch(n) for p in patterns.values())]
    problems += [f"no `{key}` in meta" for key in spec.meta if key not in meta]
    wrong = [key for key, value in meta.items() if key in TYPES_OF and type(value) not in TYPES_OF[key]]
    words = {key: " or ".join(TYPE_WORDS[of] for of in TYPES_OF[key]) for key in wrong}
    problems += [f"`{key}` in meta is not {words[key]}" for key in wrong if meta[key] is not None]
    for key in COUNTS:
        found = meta.get(key)
        counts = found.values() if isinstance(found, dict) else [] if found is None else [found]
        if key not in wrong and not all(type(count) is int and count >= 0 for count in counts):
            problems.append(f"`{key}` in meta is no count of subjects by part")
    return problems


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile("/".join({"*": "[^/]+", "**": ".+"}.get(s, re.escape(s)) for s in pattern.split("/")))


class ArrayEntry(BaseModel):
    """The type, shape and digest of one array."""

    model_config = STRICT

    dtype: str
    shape: list[Annotated[int, Field(ge=0, lt=2**63)]] = Field(max_length=32)
    sha256: Sha256

    @model_validator(mode="after")
    def _check(self) -> Self:
        stored_tag(self.dtype)
        return self


class Manifest(BaseModel):
    """Everything that the digest covers."""

    model_config = STRICT

    kind: str
    schema_version: str
    meta: dict[str, Any]
    parents: dict[str, str]
    arrays: dict[str, ArrayEntry]

    def to_bytes(self) -> bytes:
        """Return the canonical JSON.

        Raises:
            ValueError: meta or parents are not JSON.
        """
        return canonical_json(self.model_dump())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the manifest in `data`.

        Raises:
            ValueError: it is not JSON, or not a manifest.
        """
        try:
            return cls.model_validate(parse_json(data))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise ValueError(f"{'/'.join(str(part) for part in first['loc'])[:200]}: {complaint(first)}") from None

    def problems(self) -> list[str]:
        """Return in words what is not as the kind's spec wants it."""
        if self.kind not in KINDS:
            return [f"unknown kind of artifact, {self.kind[:40]!r}"]
        try:
            check_names(self.arrays)
        except ValueError as error:
            return [str(error)]
        return content_problems(self.kind, self.arrays, self.meta)
