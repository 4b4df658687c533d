"""What the file of a model or an encoder says of it: facts with types, read from files of anybody."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Self, get_type_hints

from pydantic import TypeAdapter, ValidationError

from costar_cli.data.dataset import Domain
from costar_cli.data.indication import Indication
from costar_cli.data.schema import PanelSchema
from costar_cli.data.support import Support
from costar_cli.errors import complaints, first_of

if TYPE_CHECKING:
    from costar_cli.files import Artifact

OMITTED_EMPTY: Final = ("warnings", "indication")  # of what is written; other lists are there though empty

Facts = Mapping[str, Any]  # of one part, which has a reader of its own
Reference = float | tuple[float, ...]  # of members, in files of version 0.3.0 and before


@dataclass(frozen=True, kw_only=True, slots=True)
class StageRecord:
    """One stage of training: losses by epoch, and of each member its updates and what ended them.

    Files of older versions tell of losses alone.
    """

    name: str = ""
    history: Facts = field(default_factory=dict)
    steps: tuple[int, ...] | None = None
    ended_by: tuple[str, ...] | None = None
    passes: float | None = None

    @property
    def ended_by_budget(self) -> bool:
        """Return whether epochs or updates ran out for some member."""
        return "budget" in (self.ended_by or ())


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationRecord:
    """How a model did on validation: errors of it, of its members, and of the last value; of the source's model, too.

    Errors are in sd of outcomes, over `horizon` steps from `windows` origins.
    """

    score: float
    last_value: float
    windows: int
    horizon: int
    members: tuple[float, ...] = ()
    source: float | None = None


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """The facts of a model's or an encoder's file; None where it does not say, as older versions did not.

    Attributes:
        method: the name under which the registry knows the method.
        dataset_name: of the data set that it was trained on.
        schema: the columns of that.
        horizon: the longest plan that it answers; encoders answer none.
        members: R.
        domain: of the subjects that it was fitted to last.
        init: where weights started: `pretrained`, `scratch`, or `none` for methods without pretraining.
        config: settings that all methods share, or those of pretraining.
        settings: the method's own.
        encoder: the shape of the encoder.
        precision: of its parameters.
        device: where it was trained.
        fingerprint: of inputs, settings and version.
        preprocessing: how the table was read that it was trained on.
        history: losses of the last stage, by epoch.
        stages: all of them; none in closed form.
        made_with: software and threads, several where a run was continued elsewhere.
        stopped_by_budget: names of the stages that no patience ended.
        reference: loss at chance level.
        log_n_reference: the same for curves, by name.
        trained_on: labelled subjects by part; likewise `selected_on`, `calibrated_on`; `pretrained_on` without labels.
        unlabelled_target_subjects: histories of the target that its encoder learned from.
        kept_source_members: numbers, from 1, of few-shot members that are the source's.
        validation: its errors on validation.
        warnings: what may make its answers wrong.
        support: which treatments its training subjects received.
        indication: signs of confounding by indication.
        reactions: what it adjusts for (`inference.Reactions`).
        calibration: of its intervals (`inference.Calibration`); likewise `practice` of the support of plans,
            `survival` of hazards, and `outcome_facts` where neither of the first two is there.
        stretch: steps of the stretches that it learned from.
        truncated_share: of the total of weights by treatment, what clipping cut.
        parts: records of the models that it combines; `left_out` are those that failed, `leaderboard`, `rules` and
            `relative` tell how parts were weighed.
        learnt: what it learnt, in words.
        facts: the rest: what its method needs to load it.
    """

    method: str = ""
    dataset_name: str | None = None
    schema: PanelSchema | None = None
    horizon: int | None = None
    members: int | None = None
    domain: Domain | None = None
    init: str | None = None
    config: Facts | None = None
    settings: Facts | None = None
    encoder: Facts | None = None
    precision: str | None = None
    device: str | None = None
    fingerprint: str | None = None
    preprocessing: Facts | None = None
    history: Facts | None = None
    stages: tuple[StageRecord, ...] | None = None
    made_with: tuple[Facts, ...] | None = None
    stopped_by_budget: tuple[str, ...] | None = None
    reference: float | None = None
    log_n_reference: Mapping[str, Reference | None] | Reference | None = None
    trained_on: Mapping[str, int] | None = None
    selected_on: Mapping[str, int] | None = None
    calibrated_on: Mapping[str, int] | None = None
    pretrained_on: Mapping[str, int] | None = None
    unlabelled_target_subjects: int | None = None
    kept_source_members: tuple[int, ...] | None = None
    validation: ValidationRecord | None = None
    warnings: tuple[str, ...] = ()
    support: Support | None = None
    indication: tuple[Indication, ...] = ()
    reactions: Facts | None = None
    calibration: Facts | None = None
    practice: Facts | None = None
    survival: Facts | None = None
    outcome_facts: Facts | None = None
    stretch: int | None = None
    truncated_share: float | None = None
    parts: tuple[Facts, ...] | None = None
    left_out: Mapping[str, str] | None = None
    leaderboard: tuple[Facts, ...] | None = None
    rules: tuple[tuple[str, ...], ...] | None = None
    relative: tuple[bool, ...] | None = None
    learnt: tuple[Facts, ...] | None = None
    facts: Facts = field(default_factory=dict)

    @classmethod
    def of_fit(cls, facts: Mapping[str, Any], **known: Any) -> Self:  # noqa: ANN401 - the fields
        """Return the record of a fit: what its method says, which may be fields too, and what else is known."""
        names = _kinds().keys()
        own = {name: fact for name, fact in facts.items() if name in names}
        return cls(**{**own, **known}, facts={name: fact for name, fact in facts.items() if name not in names})

    @classmethod
    def read(cls, meta: Mapping[str, Any], *, lenient: bool = False) -> Self:
        """Read the meta of a file, which nobody has checked.

        Args:
            meta: what `to_meta` returned, of this version or an older one.
            lenient: leave out what is damaged.

        Raises:
            ValueError: naming all that is damaged.
        """
        kinds, known, damaged = _kinds(), {}, list[str]()
        for name, value in meta.items():
            if name in kinds and value is not None:
                try:
                    known[name] = _reader(name).validate_python(value)
                except ValidationError as error:
                    damaged += [f"{name}: {line}" for line in complaints(error.errors())]
        if isinstance(known.get("schema"), PanelSchema) and not known["schema"].outcomes:
            del known["schema"]
            damaged.append("schema.outcomes: a model has at least one")
        if damaged and not lenient:
            raise ValueError("; ".join(first_of(damaged)))
        return cls(**known, facts={name: value for name, value in meta.items() if name not in kinds})

    @classmethod
    def of(cls, artifact: "Artifact") -> Self:
        """Read a model or an encoder, or the header of one.

        Raises:
            ArtifactError: its file is damaged.
        """
        from costar_cli.files import complete  # noqa: PLC0415 - reading facts needs no HDF5

        with complete(artifact):
            return cls.read(artifact.meta)

    def to_meta(self) -> dict[str, Any]:
        """Return the facts as the file holds them: JSON without those that are not known."""
        own = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "facts"}
        omitted = {name for name, value in own.items() if value is None or (name in OMITTED_EMPTY and not value)}
        return {**self.facts, **{name: _plain(value) for name, value in own.items() if name not in omitted}}

    def with_warnings(self, warnings: Iterable[str]) -> Self:
        """Return the record with warnings of what was found when its file was opened."""
        return replace(self, warnings=(*self.warnings, *warnings))

    @property
    def of_target(self) -> bool:
        """Return whether it was fitted to the target's subjects."""
        return self.domain == "target"

    @property
    def truncated(self) -> float:
        """Return the share of weights that was cut; 0 in older files, and of methods without weights."""
        share = self.truncated_share or 0.0
        return share if 0 <= share <= 1 else 0.0


@cache
def _kinds() -> dict[str, Any]:
    """Return what each field of a record may be."""
    return {name: kind for name, kind in get_type_hints(ModelRecord).items() if name != "facts"}


@cache
def _reader(name: str) -> TypeAdapter[Any]:
    """Return what reads a field: one at a time, since those of all fields take 15 ms to build."""
    return TypeAdapter(_kinds()[name])


def _plain(value: Any) -> Any:  # noqa: ANN401 - of any field
    if isinstance(value, PanelSchema):
        return value.model_dump(mode="json")
    if isinstance(value, StageRecord | ValidationRecord):
        own = {name: getattr(value, name) for name in sorted(one.name for one in fields(value))}  # as files have them
        return {name: _plain(part) for name, part in own.items() if part is not None}
    if isinstance(value, Support | Indication):
        return value.to_meta()
    return [_plain(part) for part in value] if isinstance(value, tuple) else value
