"""How a price change is a treatment: one of the paper's classes, or a dose (spec RETAIL-7, RETAIL-11)."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costar_cli.data.dose import Dose
from costar_cli.data.retail.sequences import TREATMENT, YearSequences, class_encoding
from costar_cli.data.schema import TreatmentEncoding, Values
from costar_cli.errors import DataError, UsageError
from simulators.retail import PriceClasses

Floats = NDArray[np.float64]

SAME = 1e-5  # relative difference of prices that are one: a dose has six digits


@dataclass(frozen=True, slots=True)
class PriceTreatment:
    """A treatment by prices: its encoding, and the classes that cut changes too large to be prices."""

    classes: PriceClasses
    encoding: TreatmentEncoding

    @classmethod
    def of(cls, classes: PriceClasses, train: YearSequences, *, dose: bool) -> Self:
        """Return the treatment by class, or by a dose whose range and scale are those of source-train.

        Raises:
            DataError: prices of source-train never change, so that there is no dose.
        """
        if not dose:
            return cls(classes, class_encoding(classes.edges))
        within = np.arange(1, train.n_steps) < train.length[:, None]
        try:
            found = Dose.learn(TREATMENT, known_change(classes, train.change[:, 1:][within]), basis="log1p")
        except ValueError as error:
            fix = "use more items, or --price classes"
            raise DataError(f"prices of source-train make no dose: {error}", where="--price dose", fix=fix) from error
        return cls(classes, TreatmentEncoding(mode="multilabel", names=(), levels=(), doses=(found,)))

    def encode(self, change: Floats) -> NDArray[np.float32]:
        """Return the encoded treatments `[...,da]` of price changes `[...]`; changes beyond the edges are none."""
        values: Values = known_change(self.classes, change) if self.encoding.doses else self.classes.classify(change)
        return self.encoding.encode(values[..., None])

    def require_known(self, planned: ArrayLike) -> None:
        """See that plans name prices.

        Raises:
            UsageError: the class that no price has, or a price that is taken off whole.
        """
        plan = np.asarray(planned)
        if self.encoding.doses:
            if (plan <= -1).any():
                raise UsageError("no price is lower by 100 % or more, so there is no truth of it", fix="name another")
        elif plan.size and plan.max() > len(self.classes) - 2:
            raise UsageError("no price belongs to the class `unused`, so there is no truth of it", fix="name another")

    def change(self, asked: Floats, planned: ArrayLike) -> Floats:
        """Return the price changes that plans mean in weeks with the changes `asked`, both `[...]`.

        What stands for the change that the week really had means exactly that one, so that a factual plan leads to
        factual sales (spec RETAIL-8, RETAIL-11).
        """
        plan = np.asarray(planned)
        if self.encoding.doses:
            same = np.isclose(known_change(self.classes, asked), plan, rtol=SAME, atol=SAME * SAME)
            return np.where(same, asked, plan)
        return np.where(self.classes.classify(asked) == plan, asked, self.classes.change[plan])


def known_change(classes: PriceClasses, change: Floats) -> Floats:
    """Return price changes, 0 for those beyond the edges, which are taken for mistakes."""
    return np.where(classes.classify(change) == 0, 0.0, change)
