"""What makes a training run that run, and how two runs differ."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from costar_cli.config import VERSION
from costar_cli.files import fingerprint, flatten

UNSET = "not set"
FLAGGED = frozenset({"epochs", "members", "batch_size", "learning_rate", "patience", "seed"})  # flags of their own


@dataclass(frozen=True)
class RunIdentity:
    """What a run is made from; the fingerprint decides whether two runs are one, the rest names what differs.

    Args:
        fingerprint: of inputs, settings and costar's version.
        inputs: digests by role.
        settings: values by dotted name, without those that change only speed and rounding.
        costar: the version.
    """

    fingerprint: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    costar: str = VERSION

    @classmethod
    def of(cls, kind: str, *, parents: Mapping[str, str], config: Mapping[str, Any]) -> Self:
        """Return the identity of a run that makes an artifact of a kind from parents, by digest, with settings."""
        return cls(fingerprint(kind, parents=parents, config=config), parents, flatten(config))

    @classmethod
    def from_json(cls, meta: Mapping[str, Any]) -> Self | None:
        """Read what `to_json` returned; None of a run state that was written before it recorded this."""
        return cls(meta["fingerprint"], **meta["made_from"]) if "made_from" in meta else None

    def to_json(self) -> dict[str, object]:
        """Return the members that a run state's meta holds."""
        facts = asdict(self)
        return {"fingerprint": facts.pop("fingerprint"), "made_from": facts}

    def of_stage(self, index: int, name: str) -> Self:
        """Return the identity of one stage of a fit."""
        return replace(self, fingerprint=f"{self.fingerprint}/{index}/{name}")

    def differences(self, before: Self) -> list[str]:
        """Return a line for every setting, input or version that was another one before."""
        lines = [
            f"{role}: was {before.inputs.get(role, 'none')[:8]}, now {self.inputs.get(role, 'none')[:8]}"
            for role in _changed(before.inputs, self.inputs)
        ]
        lines += [
            f"{name}: was {_shown(before.settings, name)}, now {_shown(self.settings, name)}"
            for name in _changed(before.settings, self.settings)
        ]
        return lines + ([f"costar: was {before.costar}, now {self.costar}"] if before.costar != self.costar else [])

    def flags_of(self, before: Self) -> str | None:
        """Return the flags that make this run the one before, None where flags alone do not."""
        changed = _changed(before.settings, self.settings)
        if not changed or (dict(before.inputs), before.costar) != (dict(self.inputs), self.costar):
            return None
        if any(name not in FLAGGED or before.settings.get(name) is None for name in changed):
            return None
        return " ".join(f"--{name.replace('_', '-')} {before.settings[name]}" for name in changed)

    def only_trains_longer(self, before: Self) -> bool:
        """Return whether nothing differs but that epochs, of one network or more, are more than before."""
        changed = _changed(before.settings, self.settings)
        if not changed or (dict(before.inputs), before.costar) != (dict(self.inputs), self.costar):
            return False
        values = [(name, before.settings.get(name), self.settings.get(name)) for name in changed]
        return all(
            name.rpartition(".")[2] == "epochs" and isinstance(was, int) and isinstance(now, int) and now > was
            for name, was, now in values
        )


def _changed(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    return [name for name in sorted({*before, *now}) if before.get(name, UNSET) != now.get(name, UNSET)]


def _shown(settings: Mapping[str, object], name: str) -> object:
    value = settings.get(name)
    return UNSET if value is None else value
