"""How near predicted probabilities of a binary outcome are to the truth: python -m benchmarks.binary

Worlds of 300 training subjects (tests/methods/test_boosting_binary.py), mean log loss of the next step: of the true
probabilities, of boosting by log loss and by squared changes, and of ridge, whose predictions are clipped.
"""

from dataclasses import replace

import numpy as np

from costar_cli.data import Variable
from tests.methods.test_boosting_binary import binary_world, losses

SEEDS = range(5)


def main() -> None:
    """Print the mean log loss of each method."""
    found: dict[str, list[float]] = {}
    for seed in SEEDS:
        data = binary_world(seed)
        number = Variable(name="attack", standardize=False)
        numbers = replace(data, schema=data.schema.model_copy(update={"outcomes": (number,)}))
        asked = {"log loss": ("boosting", data), "squared changes": ("boosting", numbers), "ridge": ("ridge", data)}
        for name, (method, of) in asked.items():
            loss, least = losses(of, method, seed)
            found.setdefault(name, []).append(loss)
        found.setdefault("truth", []).append(least)
    for name, values in found.items():
        print(f"{name:16s} {np.mean(values):.4f}  (sd over worlds {np.std(values, ddof=1):.4f})")


if __name__ == "__main__":
    main()
