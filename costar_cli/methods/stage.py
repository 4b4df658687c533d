"""What most stages of training share."""

from costar_cli.methods.members import Params

__all__ = ["PlainStage", "steps_per_epoch"]


class PlainStage:
    """A stage that keeps the best weights as they are, on complete passes over its rows, without gradient clipping."""

    keep: str = "best"
    drop_last: bool = False
    max_grad_norm: float | None = None

    def weights(self, params_R: Params, state_R: Params) -> Params:
        """Return the weights to keep: the parameters themselves."""
        return params_R

    def reference(self) -> float | None:
        """Return nothing: most losses have no natural reference."""
        return None


def steps_per_epoch(n_rows: int, batch_size: int, *, drop_last: bool) -> int:
    """Return the number of mini-batches; an incomplete last one may be left out, unless it is the only one."""
    full, rest = divmod(n_rows, batch_size)
    return full + (1 if rest and (not drop_last or not full) else 0)
