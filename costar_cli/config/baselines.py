"""Settings that belong to one method alone; what all methods share is `FinetuneConfig`."""

from collections.abc import Mapping

from costar_cli.config.models import Config, FinetuneConfig, TrainingConfig

__all__ = ["METHOD_SETTINGS", "NetworkConfig"]


class NetworkConfig(Config):
    """One network of a baseline: what differs from the settings that all methods share, None where nothing does."""

    epochs: int | None = None
    patience: int | None = None
    batch_size: int = 128
    learning_rate: float = 1e-3

    def training(self, shared: FinetuneConfig) -> TrainingConfig:
        """Return the settings of the stage that trains the network."""
        return TrainingConfig(
            epochs=self.epochs or shared.epochs,
            patience=self.patience or shared.patience,
            batch_size=self.batch_size,
            validation_batch_size=shared.validation_batch_size,
            learning_rate=self.learning_rate,
            seed=shared.seed,
        )


METHOD_SETTINGS: Mapping[str, type[Config]] = {}  # by the method's name; the section of `crn-erm` is `crn_erm`
