"""`costar score`: score the predictions of other programs as models are scored."""

from pathlib import Path
from typing import Annotated

import typer

from costar_cli.cli import options
from costar_cli.cli.evaluate import CsvOpt, FailIfOpt, PlotsOpt
from costar_cli.cli.evaluation import run_evaluate
from costar_cli.cli.options import SETTINGS, expanded, setting
from costar_cli.cli.session import RunFlags
from costar_cli.cli.views import EvaluationFiles
from costar_cli.config.choices import DomainName, SetupName


@expanded
def score(
    ctx: typer.Context,
    run: RunFlags,
    predictions: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Table of set, query, step, estimate; sd, q0.05 or sample for bands"),
    ],
    data: options.DataOpt = None,
    trained: Annotated[
        DomainName, typer.Option("--trained", help="Where the programs were trained last: which set-ups are scored")
    ] = "source",
    model: options.ModelsOpt = None,
    setup: Annotated[
        SetupName | None, typer.Option("--setup", help="Set-up to score (default: all that apply)")
    ] = None,
    fail_if: FailIfOpt = None,
    out: options.OutOpt = None,
    csv: CsvOpt = None,
    csv_safe: options.CsvSafeFlag = False,
    plots: PlotsOpt = None,
    no_plots: options.NoPlotsFlag = False,
    overwrite: options.OverwriteFlag = False,
    seed: options.SeedOpt = None,
    level: Annotated[float | None, setting("--level", panel=SETTINGS)] = None,
    bootstrap: Annotated[int | None, setting("--bootstrap", panel=SETTINGS)] = None,
) -> None:
    """Score predictions of other programs for the queries that `costar inspect --export` writes."""
    from costar_cli.config.models import EvaluateConfig
    from costar_cli.files.tables import safe_cells

    session = run.open(ctx, {EvaluateConfig: {"level": level, "bootstrap": bootstrap, "seed": seed}})
    place = session.workspace
    report = out or place.evaluation.with_name("scores.h5")
    files = EvaluationFiles(
        data=data or place.data,
        models=place.named(model or ()),
        report=report,
        csv=csv or report.with_suffix(".csv"),
        plots=None if no_plots else plots or report.with_name(f"{report.stem}-plots"),
        foreign=tuple(predictions),
        trained=trained,
    )
    with safe_cells(csv_safe):
        run_evaluate(session, files, [setup] if setup else None, overwrite=overwrite, fail_if=fail_if or ())
