"""The options of an objective, which `search` and `evaluate --search` share."""

from typing import Annotated

import typer

OBJECTIVE = "Objective"
MinimiseOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--minimise", "--minimize", help='What to make small: "OUTCOME at end", "at step N", "mean", "maximum", '
        '"minimum", "time above X" or "time below X"; several are added up', rich_help_panel=OBJECTIVE,
    ),
]  # fmt: skip
MaximiseOpt = Annotated[
    list[str] | None,
    typer.Option("--maximise", "--maximize", help="What to make large, likewise", rich_help_panel=OBJECTIVE),
]
CostOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--cost", help='What each use of a treatment costs, in units of the objective: "TREATMENT 0.5"; '
        "may be repeated", rich_help_panel=OBJECTIVE,
    ),
]  # fmt: skip
