"""The options that both ways to the retail panel have: which items it takes, and how prices become treatments."""

from typing import Annotated

import typer

from costar_cli.config.choices import CategoryName, EdgesName

__all__ = [
    "EdgesOpt",
    "SourceCategoryOpt",
    "TargetCategoryOpt",
    "TargetTestItemsOpt",
    "TargetTrainItemsOpt",
    "TargetValItemsOpt",
    "TestItemsOpt",
    "TrainItemsOpt",
    "ValItemsOpt",
    "item_limits",
]

PANEL = "Panel"

SourceCategoryOpt = Annotated[
    CategoryName | None, typer.Option("--source-category", help="Category of the source items", rich_help_panel=PANEL)
]
TargetCategoryOpt = Annotated[
    CategoryName | None, typer.Option("--target-category", help="Category of the target items", rich_help_panel=PANEL)
]
EdgesOpt = Annotated[
    EdgesName | None,
    typer.Option("--edges", help="Price class edges: the paper's, or fitted to source-train", rich_help_panel=PANEL),
]
TrainItemsOpt = Annotated[
    int | None, typer.Option("--train-items", help="Maximum source items for training", rich_help_panel=PANEL)
]
ValItemsOpt = Annotated[
    int | None, typer.Option("--val-items", help="Maximum source items for validation", rich_help_panel=PANEL)
]
TestItemsOpt = Annotated[
    int | None, typer.Option("--test-items", help="Maximum source items for testing", rich_help_panel=PANEL)
]
TargetTrainItemsOpt = Annotated[
    int | None,
    typer.Option("--target-train-items", help="Maximum target items for few-shot training", rich_help_panel=PANEL),
]
TargetValItemsOpt = Annotated[
    int | None,
    typer.Option("--target-val-items", help="Maximum target items for few-shot validation", rich_help_panel=PANEL),
]
TargetTestItemsOpt = Annotated[
    int | None,
    typer.Option("--target-test-items", help="Maximum target items for testing", rich_help_panel=PANEL),
]


def item_limits(
    train: int | None,
    val: int | None,
    test: int | None,
    target_train: int | None,
    target_val: int | None,
    target_test: int | None,
) -> dict[str, int | None]:
    """Return the settings of the options that say how many items each part takes."""
    source = {"train_items": train, "val_items": val, "test_items": test}
    target = {"target_train_items": target_train, "target_val_items": target_val, "target_test_items": target_test}
    return source | target
