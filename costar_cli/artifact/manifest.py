"""The manifest: the JSON document that names everything in an artifact and whose SHA-256 is the digest."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from costar_cli.artifact.digest import canonical_json, parse_json
from costar_cli.artifact.dtypes import stored_tag
from costar_cli.artifact.spec import KINDS, check_names, content_problems

__all__ = ["ArrayEntry", "Manifest"]

STRICT = ConfigDict(frozen=True, extra="forbid", strict=True)
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


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
            raise ValueError(f"{'/'.join(str(part) for part in first['loc'])[:200]}: {first['msg']}") from None

    def problems(self) -> list[str]:
        """Return in words what is not as the kind's spec wants it."""
        if self.kind not in KINDS:
            return [f"unknown kind of artifact, {self.kind[:40]!r}"]
        try:
            check_names(self.arrays)
        except ValueError as error:
            return [str(error)]
        return content_problems(self.kind, self.arrays, self.meta)
