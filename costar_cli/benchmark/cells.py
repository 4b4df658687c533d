"""The cells of a benchmark: each is one artifact, or a model with its scores, and can be made on its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from costar_cli.benchmark.contenders import REFERENCE, Contender

__all__ = ["Cell", "Role", "plan_cells"]

Role = Literal["data", "encoder", "source", "target"]


@dataclass(frozen=True, slots=True)
class Cell:
    """What is made of one data set for one contender: the data, an encoder, or a model of one domain with its scores.

    `seed` is the data set's. `needs` names the cells that come first.
    """

    seed: int
    role: Role
    contender: Contender | None = None
    needs: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return the cell's name, `crn/target/10`."""
        return _key(self.seed, self.contender.name if self.contender else "", self.role)

    @property
    def is_scored(self) -> bool:
        """Return whether the cell ends with scores."""
        return self.role in ("source", "target")

    def __str__(self) -> str:
        what = f"{self.contender.label}, {self.role}" if self.contender else "data set"
        return f"{what}, seed {self.seed}"


def _key(seed: int, name: str, role: Role) -> str:
    return f"{name}/{role}/{seed}" if name else f"{role}/{seed}"


def plan_cells(seeds: Sequence[int], contenders: Sequence[Contender], *, few_shot: bool) -> list[Cell]:
    """Return the cells of a benchmark, each after those that it needs.

    Zero-shot and supervised scores are those of one model, trained on the source; a model of the target is few-shot's.
    Ablations are tested in zero-shot and supervised alone: the paper has no other.

    Args:
        seeds: of the data sets.
        contenders: the rows of the tables.
        few_shot: models are adapted to the target, too.
    """
    return [cell for seed in seeds for cell in _of_seed(seed, contenders, few_shot=few_shot)]


def _of_seed(seed: int, contenders: Sequence[Contender], *, few_shot: bool) -> list[Cell]:
    data = Cell(seed, "data")
    cells = [data]
    for contender in contenders:
        needs = [data.key]
        if contender.is_pretrained:
            encoder = _encoder(seed, contender, data)
            cells += [] if encoder in cells else [encoder]
            needs.append(encoder.key)
        source = Cell(seed, "source", contender, tuple(needs))
        cells.append(source)
        if few_shot and not contender.is_ablation:
            cells.append(Cell(seed, "target", contender, (data.key, source.key)))
    return cells


def _encoder(seed: int, contender: Contender, data: Cell) -> Cell:
    """Return the cell of a contender's encoder: its own, or the one that all others share."""
    owner = contender if contender.own_encoder else Contender(REFERENCE, REFERENCE)
    return Cell(seed, "encoder", owner, (data.key,))
