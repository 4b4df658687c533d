"""`costar simulate linear`: a linear system under confounding, whose effects are known in closed form."""

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
from costar_cli.steps.dataset import make_dataset
from costar_cli.steps.session import open_session
from costar_cli.workspace import DEFAULT_WORKSPACE

if TYPE_CHECKING:
    from costar_cli.panel import Dataset
    from costar_cli.steps.session import Flags

__all__ = ["linear"]


def linear(
    ctx: typer.Context,
    gamma: Annotated[
        float | None,
        typer.Option("--gamma", help="Confounding strength of the source's policy", rich_help_panel="Cohort"),
    ] = None,
    target_gamma: Annotated[
        float | None,
        typer.Option("--target-gamma", help="Confounding strength of the target's policy", rich_help_panel="Cohort"),
    ] = None,
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
    """Simulate a linear system under confounding, with expected outcomes in closed form as test sets."""
    from costar_cli.datasets.linear.settings import LinearGaussianConfig

    values = {"gamma": gamma, "target_gamma": target_gamma, "horizon": horizon, "seed": seed}
    flags: Flags = {LinearGaussianConfig: values}
    session = open_session(ctx, flags, workspace=workspace, json=json, quiet=quiet, preset=preset, config=config)
    chosen = session.settings[LinearGaussianConfig]

    def build() -> "Dataset":
        from costar_cli.datasets.linear.simulate import simulate_linear

        return simulate_linear(chosen, session.reporter)

    settings = chosen.model_dump(mode="json")
    make_dataset(session, out, build, config=settings, overwrite=overwrite)
