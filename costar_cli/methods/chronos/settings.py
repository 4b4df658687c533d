"""Settings of the adapter to Chronos-2."""

from pydantic import Field

from costar_cli.config.models import Config


class ChronosConfig(Config):
    """Chronos-2 under a plan (spec CHRONOS-1 to 3)."""

    weights: str | None = Field(
        None,
        min_length=1,
        description="Folder with `config.json` and `model.safetensors` of Chronos-2; nothing is downloaded",
    )
