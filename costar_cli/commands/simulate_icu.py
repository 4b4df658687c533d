"""`costar simulate mimic`: outcomes and treatments simulated on ICU covariates."""

from collections.abc import Callable
from functools import cache
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
from costar_cli.errors import UsageError
from costar_cli.steps.dataset import make_dataset
from costar_cli.steps.session import Session, open_session
from costar_cli.workspace import DEFAULT_WORKSPACE

if TYPE_CHECKING:
    from costar_cli.panel import Dataset
    from costar_cli.steps.session import Flags
    from simulators.icu import IcuCohort

__all__ = ["mimic"]

SIMULATION = "Simulation"

MimicExtractOpt = Annotated[
    Path | None,
    typer.Option(
        "--mimic-extract",
        help="all_hourly_data.h5 of MIMIC-Extract, instead of the embedded cohort",
        rich_help_panel=FILES,
    ),
]
StaysOpt = Annotated[
    int | None, typer.Option("--stays", help="ICU stays of the embedded cohort, all ages", rich_help_panel=PATIENTS)
]
PlansPerOriginOpt = Annotated[
    int | None,
    typer.Option("--plans-per-origin", help="Treatment sequences per origin", rich_help_panel=SIMULATION),
]
CenterOpt = Annotated[
    bool | None,
    typer.Option("--center/--no-center", help="Centre the random functions of covariates", rich_help_panel=SIMULATION),
]
ExportExtractOpt = Annotated[
    Path | None,
    typer.Option(
        "--export-extract", help="File to export the embedded cohort to, in MIMIC-Extract format", rich_help_panel=FILES
    ),
]


def mimic(
    ctx: typer.Context,
    mimic_extract: MimicExtractOpt = None,
    stays: StaysOpt = None,
    source_above: SourceAboveOpt = None,
    source_to: SourceToOpt = None,
    target_above: TargetAboveOpt = None,
    target_to: TargetToOpt = None,
    few_shot: FewShotOpt = None,
    min_hours: MinHoursOpt = None,
    hours: HoursOpt = None,
    plans_per_origin: PlansPerOriginOpt = None,
    center: CenterOpt = None,
    horizon: HorizonOpt = None,
    seed: SeedOpt = None,
    preset: PresetOpt = None,
    config: ConfigFileOpt = None,
    export_extract: ExportExtractOpt = None,
    out: OutOpt = None,
    overwrite: OverwriteFlag = False,
    workspace: WorkspaceOpt = DEFAULT_WORKSPACE,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Simulate outcomes and treatments on ICU stays: young patients are the source, old ones the target."""
    from costar_cli.datasets.icu.settings import MimicConfig

    groups = {"source_above": source_above, "source_to": source_to, "target_above": target_above}
    groups |= {"target_to": target_to, "few_shot": few_shot}
    sizes = {"stays": stays, "min_hours": min_hours, "hours": hours, "horizon": horizon}
    drawn = {"plans_per_origin": plans_per_origin, "center": center, "seed": seed}
    flags: Flags = {MimicConfig: {**groups, **sizes, **drawn}}
    session = open_session(ctx, flags, workspace=workspace, json=json, quiet=quiet, preset=preset, config=config)
    chosen = session.settings[MimicConfig]
    settings, parents = chosen.model_dump(mode="json"), {}
    if mimic_extract is not None:
        for flag, value in {"--stays": stays, "--export-extract": export_extract}.items():
            if value is not None:
                raise UsageError(f"{flag} is about the embedded cohort", where="--mimic-extract", fix="leave one out")
        del settings["stays"]
        parents = read_extract_digest(session, mimic_extract)

    @cache
    def cohort() -> "IcuCohort":
        from costar_cli.datasets.icu.table import embedded_cohort

        return embedded_cohort(chosen, session.reporter)

    def build() -> "Dataset":
        from costar_cli.datasets.icu.semi_synthetic import simulate_mimic
        from costar_cli.datasets.icu.table import IcuTable

        if mimic_extract is None:
            return simulate_mimic(chosen, session.reporter, IcuTable.of_cohort(cohort()))
        from costar_cli.datasets.icu.extract import read_extract

        return simulate_mimic(chosen, session.reporter, read_extract(mimic_extract, session.reporter))

    if export_extract is not None:
        _export(session, export_extract, cohort, overwrite=overwrite)
    make_dataset(session, out, build, config=settings, overwrite=overwrite, parents=parents)


def _export(session: Session, path: Path, cohort: "Callable[[], IcuCohort]", *, overwrite: bool) -> None:
    from costar_cli.datasets.icu.extract import check_extract_path, write_extract

    check_extract_path(path, overwrite=overwrite)
    write_extract(path, cohort(), session.reporter)
    session.out.wrote("mimic_extract", path, kind="hdf5")
