"""`costar evaluate`: score the models on held-out subjects, beside a naive anchor and the published numbers."""

from pathlib import Path
from typing import Annotated

import typer

from costar_cli.cli import options
from costar_cli.cli.evaluation import run_evaluate, run_part
from costar_cli.cli.options import FILES, SETTINGS, expanded, setting
from costar_cli.cli.regret import RegretQuestion
from costar_cli.cli.session import RunFlags
from costar_cli.cli.views import EvaluationFiles
from costar_cli.config.choices import SetupName
from costar_cli.errors import UsageError

FailIfOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="<gate>",
        help="Exit 10 if this holds, such as `zero-shot.costar.average > 1.1`; may be repeated",
    ),
]
CsvOpt = Annotated[
    Path | None,
    typer.Option("--csv", help="CSV file to write (default: next to the output)", rich_help_panel=FILES),
]
PlotsOpt = Annotated[
    Path | None,
    typer.Option(
        "--plots",
        help="Folder for the plots (default: `plots` in the workspace; for `--out e.h5`, `e-plots` beside it)",
        rich_help_panel=FILES,
    ),
]
PredictionsOpt = Annotated[
    Path | None,
    typer.Option(
        "--predictions",
        help="Also write every prediction that is scored, with its truth: FILE.parquet, .csv or .jsonl",
        rich_help_panel=FILES,
    ),
]


def _beside(report: Path, default: Path, *, of_workspace: Path) -> Path:
    """Return where else an evaluation is written to: named after a report that is not the workspace's."""
    return default if report.resolve() == of_workspace.resolve() else report.with_name(f"{report.stem}-{default.name}")


@expanded
def evaluate(
    ctx: typer.Context,
    question: RegretQuestion,
    run: RunFlags,
    setup: Annotated[
        SetupName | None, typer.Option("--setup", help="Set-up to score (default: all that apply)")
    ] = None,
    fail_if: FailIfOpt = None,
    data: options.DataOpt = None,
    model: options.ModelsOpt = None,
    out: options.OutOpt = None,
    csv: CsvOpt = None,
    csv_safe: options.CsvSafeFlag = False,
    plots: PlotsOpt = None,
    predictions: PredictionsOpt = None,
    refute: Annotated[
        bool,
        typer.Option("--refute", help="Also refit the models where the answer is known: placebos, dummies, subsets"),
    ] = False,
    search: Annotated[
        bool,
        typer.Option("--search", help="Also score the models' best plans against the simulator's own: regret"),
    ] = False,
    shard: options.ShardOpt = None,
    no_plots: options.NoPlotsFlag = False,
    overwrite: options.OverwriteFlag = False,
    seed: options.SeedOpt = None,
    level: Annotated[float | None, setting("--level", panel=SETTINGS)] = None,
    bootstrap: Annotated[int | None, setting("--bootstrap", panel=SETTINGS)] = None,
    ipcw: Annotated[bool | None, setting("--ipcw", panel=SETTINGS)] = None,
) -> None:
    """Score the models: RMSE by horizon in the set-ups that apply, with intervals and plots."""
    from costar_cli.config.models import EvaluateConfig
    from costar_cli.files.tables import safe_cells

    session = run.open(ctx, {EvaluateConfig: {"level": level, "bootstrap": bootstrap, "seed": seed, "ipcw": ipcw}})
    question.check(asked=search)
    place = session.workspace
    report = out or place.evaluation
    files = EvaluationFiles(
        data=data or place.data,
        models=place.named(model or ()) or place.models(),
        report=report,
        csv=csv or report.with_suffix(".csv"),
        plots=None if no_plots else plots or _beside(report, place.plots, of_workspace=place.evaluation),
        refutation=_beside(report, place.refutation, of_workspace=place.evaluation) if refute else None,
        search=question if search else None,
        predictions=predictions,
    )
    setups = [setup] if setup else None
    if shard is not None:
        of_whole = {"--fail-if": fail_if, "--csv": csv, "--plots": plots, "--refute": refute, "--search": search}
        if given := [flag for flag, value in of_whole.items() if value]:
            fix = "leave it out, and give it to the same command without --shard once `costar merge` has made the whole"
            raise UsageError(f"{given[0]} is about all subjects, and a part has some", where="--shard", fix=fix)
        from costar_cli.files.shards import Shard

        run_part(session, files, setups, Shard.parse(shard), overwrite=overwrite)
        return
    with safe_cells(csv_safe):
        run_evaluate(session, files, setups, overwrite=overwrite, fail_if=fail_if or ())
