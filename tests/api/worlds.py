"""A small tumour cohort and quick settings, as arguments of the Python API and as flags of the command line."""

COHORT = {"train": 24, "val": 8, "test": 8, "target_train": 6, "target_val": 6, "target_test": 6, "steps": 20}
SHAPE = {"encoder": {"width": 8}}
QUICK = {"preset": "quick", "seed": 5, "members": 2, "epochs": 1, "threads": 1, "device": "cpu"}


def flags(arguments: dict[str, object]) -> list[str]:
    """The arguments as flags."""
    return [word for name, value in arguments.items() for word in (f"--{name.replace('_', '-')}", str(value))]
