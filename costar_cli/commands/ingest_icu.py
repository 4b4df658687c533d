"""`costar ingest mimic`: what was given and measured in a file of MIMIC-Extract."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costar_cli.commands.icu_options import (
    PATIENTS,
    FewShotOpt,
    HoursOpt,
    MinHoursOpt,
    SourceAboveOpt,
    SourceToOpt,
    TargetAboveOpt,
    TargetToOpt,
    read_extract_digest,
)
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

__all__ = ["mimic"]


def mimic(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="all_hourly_data.h5 of MIMIC-Extract")],
    transfer: Annotated[
        bool | None,
        typer.Option(
            "--transfer/--no-transfer",
            help="Split source and target by age; otherwise all patients are the source",
            rich_help_panel=PATIENTS,
        ),
    ] = None,
    source_above: SourceAboveOpt = None,
    source_to: SourceToOpt = None,
    target_above: TargetAboveOpt = None,
    target_to: TargetToOpt = None,
    few_shot: FewShotOpt = None,
    patients: Annotated[
        int | None,
        typer.Option("--patients", help="Maximum number of patients, drawn at random", rich_help_panel=PATIENTS),
    ] = None,
    min_hours: MinHoursOpt = None,
    hours: HoursOpt = None,
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
    """Read ICU stays with the care that was given and the diastolic pressure that followed."""
    from costar_cli.datasets.icu.settings import MimicFactualConfig

    groups = {"transfer": transfer, "source_above": source_above, "source_to": source_to}
    groups |= {"target_above": target_above, "target_to": target_to, "few_shot": few_shot}
    sizes = {"patients": patients, "min_hours": min_hours, "hours": hours, "horizon": horizon, "seed": seed}
    flags: Flags = {MimicFactualConfig: {**groups, **sizes}}
    session = open_session(ctx, flags, workspace=workspace, json=json, quiet=quiet, preset=preset, config=config)
    chosen = session.settings[MimicFactualConfig]
    digests = read_extract_digest(session, file)

    def build() -> "Dataset":
        from costar_cli.datasets.icu.factual import ingest_mimic

        return ingest_mimic(chosen, file, session.reporter)

    settings = chosen.model_dump(mode="json")
    make_dataset(session, out, build, config=settings, overwrite=overwrite, parents=digests)
