"""`costar ingest m5`: the CSV files of the M5 competition."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
    item_limits,
)
from costar_cli.steps.dataset import make_dataset, read_inputs
from costar_cli.steps.session import open_session
from costar_cli.workspace import DEFAULT_WORKSPACE

if TYPE_CHECKING:
    from costar_cli.panel import Dataset
    from costar_cli.steps.session import Flags

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
    from costar_cli.datasets.retail.settings import M5Config

    items = item_limits(train_items, val_items, test_items, target_train_items, target_val_items, target_test_items)
    domains = {"source_category": source_category, "target_category": target_category, "edges": edges}
    flags: Flags = {M5Config: {**domains, **items, "horizon": horizon, "seed": seed}}
    session = open_session(ctx, flags, workspace=workspace, json=json, quiet=quiet, preset=preset, config=config)
    chosen = session.settings[M5Config]
    from costar_cli.datasets.retail.files import m5_files

    digests = read_inputs(session, m5_files(folder))

    def build() -> "Dataset":
        from costar_cli.datasets.retail.m5 import ingest_m5

        return ingest_m5(chosen, folder, session.reporter)

    settings = chosen.model_dump(mode="json")
    make_dataset(session, out, build, config=settings, overwrite=overwrite, parents=digests)
