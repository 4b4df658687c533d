"""`costar simulate`: make a cohort whose counterfactual outcomes are known."""

from typing import TYPE_CHECKING, Annotated

import typer
from typer.models import OptionInfo

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
from costar_cli.commands.simulate_icu import mimic
from costar_cli.commands.simulate_linear import linear
from costar_cli.commands.simulate_retail import m5
from costar_cli.commands.verb import VerbApp, say_which
from costar_cli.config.choices import PlansName
from costar_cli.steps.dataset import make_dataset
from costar_cli.steps.session import open_session
from costar_cli.workspace import DEFAULT_WORKSPACE

if TYPE_CHECKING:
    from costar_cli.panel import Dataset
    from costar_cli.steps.session import Flags

__all__ = ["simulate"]

COHORT = "Cohort"

simulate = VerbApp(help="Simulate a cohort with known counterfactual outcomes")


def _cohort(flag: str, text: str) -> OptionInfo:
    option: OptionInfo = typer.Option(flag, help=text, rich_help_panel=COHORT)
    return option


@simulate.callback(invoke_without_command=True)
def which(ctx: typer.Context) -> None:
    """Simulate a cohort with known counterfactual outcomes."""
    if ctx.invoked_subcommand is None:
        raise say_which(ctx, "simulate")


@simulate.command()
def tumor(
    ctx: typer.Context,
    gamma: Annotated[float | None, _cohort("--gamma", "Confounding strength of the source's policy")] = None,
    target_gamma: Annotated[
        float | None, _cohort("--target-gamma", "Confounding strength of the target's policy")
    ] = None,
    train: Annotated[int | None, _cohort("--train", "Source patients for training")] = None,
    val: Annotated[int | None, _cohort("--val", "Source patients for validation")] = None,
    test: Annotated[int | None, _cohort("--test", "Source patients for testing")] = None,
    target_train: Annotated[int | None, _cohort("--target-train", "Target patients for few-shot training")] = None,
    target_val: Annotated[int | None, _cohort("--target-val", "Target patients for few-shot validation")] = None,
    target_test: Annotated[int | None, _cohort("--target-test", "Target patients for testing")] = None,
    steps: Annotated[int | None, _cohort("--steps", "Days simulated per patient")] = None,
    horizon: HorizonOpt = None,
    plans: Annotated[PlansName | None, _cohort("--plans", "Treatment sequences of the test queries")] = None,
    paired: Annotated[
        bool | None,
        typer.Option("--paired/--unpaired", help="Source and target share patients and noise", rich_help_panel=COHORT),
    ] = None,
    seed: SeedOpt = None,
    preset: PresetOpt = None,
    config: ConfigFileOpt = None,
    out: OutOpt = None,
    overwrite: OverwriteFlag = False,
    workspace: WorkspaceOpt = DEFAULT_WORKSPACE,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Simulate tumour growth under chemotherapy and radiotherapy, with counterfactual test sets."""
    from costar_cli.datasets.tumor.settings import TumorConfig

    sizes = {"train": train, "val": val, "test": test}
    sizes |= {"target_train": target_train, "target_val": target_val, "target_test": target_test}
    shape = {"gamma": gamma, "target_gamma": target_gamma, "steps": steps, "horizon": horizon}
    flags: Flags = {TumorConfig: {**shape, **sizes, "plans": plans, "paired": paired, "seed": seed}}
    session = open_session(ctx, flags, workspace=workspace, json=json, quiet=quiet, preset=preset, config=config)
    chosen = session.settings[TumorConfig]

    def build() -> "Dataset":
        from costar_cli.datasets.tumor.simulate import simulate_tumor

        return simulate_tumor(chosen, session.reporter)

    make_dataset(session, out, build, config=chosen.model_dump(mode="json"), overwrite=overwrite)


simulate.command()(linear)
simulate.command()(m5)
simulate.command()(mimic)
