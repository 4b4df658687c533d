"""The simulated retail world as the CSV files of M5: complete files, or the old ones as they were."""

import os
from pathlib import Path

from costar_cli.data.findings import shown
from costar_cli.errors import MismatchError, StorageError, storing
from costar_cli.reporting import Reporter
from simulators.retail import RetailWorld, write_csv

NAMES = ("calendar.csv", "sell_prices.csv", "sales_train_evaluation.csv")


def check_export(folder: Path, *, overwrite: bool) -> None:
    """See, before any work, that the files can be written.

    Raises:
        StorageError: the path is no folder.
        MismatchError: files exist and may not be replaced.
    """
    if folder.exists() and not folder.is_dir():
        raise StorageError("the path exists and is not a folder", where=f"--export {folder}", fix="choose another")
    if (there := [name for name in NAMES if (folder / name).exists()]) and not overwrite:
        raise MismatchError(
            f"{shown(there)} exist" if len(there) > 1 else f"{shown(there)} exists",
            where=f"--export {folder}",
            fix="add --overwrite to replace them, or choose another folder",
        )


def export_csv(folder: Path, world: RetailWorld, reporter: Reporter) -> dict[str, Path]:
    """Write the files of a world to a folder, which is made if need be, and return their paths by role.

    Raises:
        StorageError: the folder cannot be written.
    """
    from costar_cli.files.atomic import scratch_folder  # noqa: PLC0415 - h5py

    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with (
            reporter.task("write the files of M5", total=len(NAMES), unit="file") as task,
            scratch_folder(folder, "export") as beside,
        ):
            written = write_csv(world, beside)
            for path in written:
                os.replace(path, folder / path.name)
                task.advance()
    return {path.stem: folder / path.name for path in written}
