"""`costar ingest m5`: the CSV files of the M5 competition."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costar_cli.commands.datasets import make_dataset
from costar_cli.commands.options import (
    ConfigFileOpt,
    HorizonOpt,
    JsonFlag,
    OutOpt,
    OverwriteFlag,
    PresetOpt,
    QuietFlag,
    SeedOpt,
    WorkspaceOpt,
)
from costar_cli.commands.retail_options import (
    EdgesOpt,
    SourceCategoryOpt,
    TargetCategoryOpt,
    TargetTestItemsOpt,
    TargetTrainItemsOpt,
    TargetValItemsOpt,
    TestItemsOpt,
    TrainItemsOpt,
    ValItemsOpt,
)
from costar_cli.commands.session import Session, open_session
from costar_cli.errors import StorageError
from costar_cli.workspace import DEFAULT_WORKSPACE

if TYPE_CHECKING:
    from costar_cli.commands.session import Flags
    from costar_cli.panel import Dataset

__all__ = ["m5"]


def m5(
    ctx: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of calendar.csv, sell_prices.csv and sales_train_*.csv")
    ],
    source_category: SourceCategoryOpt = None,
    target_category: TargetCategoryOpt = None,
    edges: EdgesOpt = None,
    train_items: TrainItemsOpt = None,
    val_items: ValItemsOpt = None,
    test_items: TestItemsOpt = None,
    target_train_items: TargetTrainItemsOpt = None,
    target_val_items: TargetValItemsOpt = None,
    target_test_items: TargetTestItemsOpt = None,
    horizon: HorizonOpt = None,
    seed: SeedOpt = None,
    preset: PresetOpt = None,
    config: ConfigFileOpt = None,
    out: OutOpt = None,
    overwrite: OverwriteFlag = False,
    workspace: WorkspaceOpt = DEFAULT_WORKSPACE,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Read Kaggle's M5 files as weekly sales of items in stores, priced in 21 classes."""
    from costar_cli.config.retail import M5Config

    items = {"train_items": train_items, "val_items": val_items, "test_items": test_items}
    items |= {f"target_{name}": n for name, n in
              zip(items, (target_train_items, target_val_items, target_test_items), strict=True)}  # fmt: skip
    domains = {"source_category": source_category, "target_category": target_category, "edges": edges}
    flags: Flags = {M5Config: {**domains, **items, "horizon": horizon, "seed": seed}}
    session = open_session(ctx, flags, workspace=workspace, json=json, quiet=quiet, preset=preset, config=config)
    chosen = session.settings[M5Config]
    digests = _read(session, folder)

    def build() -> "Dataset":
        from costar_cli.panel.m5 import ingest_m5

        return ingest_m5(chosen, folder, session.reporter)

    settings = chosen.model_dump(mode="json")
    path = out or session.workspace.data
    make_dataset(session, path, build, config=settings, overwrite=overwrite, parents=digests)


def _read(session: Session, folder: Path) -> dict[str, str]:
    """Return the digest of each input file, and say that it is read."""
    from costar_cli.panel.m5_tables import m5_files

    digests = {}
    for role, path in m5_files(folder).items():
        try:
            with path.open("rb") as file:
                digests[role] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise StorageError(f"the file cannot be read: {error.strerror or error}", where=str(path)) from error
        session.out.read(role, path, digests[role], "csv")
    return digests
