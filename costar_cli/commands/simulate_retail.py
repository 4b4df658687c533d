"""`costar simulate m5`: the embedded retail world, with its counterfactuals."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costar_cli.commands.options import (
    FILES,
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
    PANEL,
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
from costar_cli.steps.dataset import make_dataset
from costar_cli.steps.session import open_session
from costar_cli.workspace import DEFAULT_WORKSPACE

if TYPE_CHECKING:
    from costar_cli.panel import Dataset
    from costar_cli.steps.session import Flags
    from simulators.retail import RetailWorld

__all__ = ["m5"]


def m5(
    ctx: typer.Context,
    source_category: SourceCategoryOpt = None,
    target_category: TargetCategoryOpt = None,
    scale: Annotated[
        float | None, typer.Option("--scale", help="Share of M5's 3,049 items to simulate", rich_help_panel=PANEL)
    ] = None,
    confounding: Annotated[
        str | None,
        typer.Option(
            "--confounding",
            metavar="NUMBER|observed",
            help="Confounding of prices: strength of latent demand (0: none), or `observed` for recorded sales alone",
            rich_help_panel=PANEL,
        ),
    ] = None,
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
    export: Annotated[
        Path | None,
        typer.Option(
            "--export", help="Folder to export the simulated world to, as CSV files of M5", rich_help_panel=FILES
        ),
    ] = None,
    out: OutOpt = None,
    overwrite: OverwriteFlag = False,
    workspace: WorkspaceOpt = DEFAULT_WORKSPACE,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Simulate prices and sales in M5's stores, with the sales under other prices as test sets."""
    from costar_cli.datasets.retail.settings import RetailConfig

    items = item_limits(train_items, val_items, test_items, target_train_items, target_val_items, target_test_items)
    domains = {"source_category": source_category, "target_category": target_category, "edges": edges}
    world_of = {"scale": scale, "confounding": _number_or_word(confounding), "horizon": horizon, "seed": seed}
    flags: Flags = {RetailConfig: {**domains, **items, **world_of}}
    session = open_session(ctx, flags, workspace=workspace, json=json, quiet=quiet, preset=preset, config=config)
    chosen = session.settings[RetailConfig]

    @cache
    def world() -> "RetailWorld":
        from costar_cli.datasets.retail.m5 import simulate_world

        return simulate_world(chosen, session.reporter)

    def build() -> "Dataset":
        from costar_cli.datasets.retail.m5 import retail_dataset

        return retail_dataset(world(), chosen, session.reporter)

    if export is not None:
        from costar_cli.datasets.retail.export import check_export, export_csv

        check_export(export, overwrite=overwrite)
        for role, path in export_csv(export, world(), session.reporter).items():
            session.out.wrote(role, path, kind="csv")
    settings = chosen.model_dump(mode="json")
    make_dataset(session, out, build, config=settings, overwrite=overwrite)


def _number_or_word(text: str | None) -> float | str | None:
    """Return what was typed as a number where it is one; the settings say what else may stand there."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
