"""`costar benchmark`: the paper's tables, ours beside the published ones."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costar_cli.cli import options
from costar_cli.cli.options import FILES, expanded, setting
from costar_cli.cli.session import RUNTIME, FitFlags, open_output, open_settings, repeated_flags
from costar_cli.cli.verb import LIST
from costar_cli.cli.workspace import Workspace

if TYPE_CHECKING:
    from costar_cli.cli.session import Flags

WHAT = "What is compared"


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The flags of what is compared."""

    methods: Annotated[str | None, setting("--methods", panel=WHAT, metavar=LIST)] = None
    setups: Annotated[str | None, setting("--setups", panel=WHAT, metavar=LIST)] = None
    members: options.MembersOpt = None
    data_seeds: Annotated[str | None, setting("--data-seeds", "--seeds", panel=WHAT, metavar="<seed,...>")] = None
    gamma: Annotated[
        str | None,
        typer.Option(
            "--gamma", metavar="<number,...>", rich_help_panel=WHAT,
            help="Confounding strengths of the source: a benchmark of each, and the curve of errors",
        ),
    ] = None  # fmt: skip
    ablations: Annotated[bool | None, setting("--ablations/--no-ablations", panel=WHAT)] = None


@dataclass(frozen=True, kw_only=True)
class CellFlags(FitFlags):
    """The flags of how cells are made, and by whom."""

    workers: Annotated[
        int, typer.Option("--workers", min=1, max=1024, metavar="N", help="Processes that make cells side by side")
    ] = 1
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray", metavar="ADDRESS",
            help="Make cells on the Ray cluster at this address: auto, HOST:PORT or ray://HOST:PORT",
        ),
    ] = None  # fmt: skip
    shard: options.ShardOpt = None


@expanded
def benchmark(
    ctx: typer.Context,
    compared: Compared,
    run: CellFlags,
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="What `costar simulate` calls it, or the file of a data set")
    ],
    list_cells: Annotated[
        bool, typer.Option("--list", help="List the cells and their states without running them")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Output folder (default: in the workspace)", rich_help_panel=FILES)
    ] = None,
    no_plots: options.NoPlotsFlag = False,
) -> None:
    """Compare methods on a data set: the paper's tables, with paired tests and costs, beside the published rows.

    Every cell (data set, method, domain) is kept: interrupted, the same command continues.
    """
    from costar_cli.cli.benchmarking.methods import choose_data
    from costar_cli.cli.benchmarking.pool import choose_pool
    from costar_cli.cli.benchmarking.run import open_benchmark, plan_benchmarks, run_benchmarks
    from costar_cli.config.models import BenchmarkConfig, EvaluateConfig, FinetuneConfig, PretrainConfig, RuntimeConfig
    from costar_cli.errors import UsageError
    from costar_cli.files.shards import Shard

    out = open_output(ctx, json=run.json, quiet=run.quiet, show=run.show, workspace=run.workspace)
    data = choose_data(dataset)
    stage = {"members": compared.members, "seed": run.seed}
    flags: Flags = {
        BenchmarkConfig: {n: getattr(compared, n) for n in ("methods", "setups", "data_seeds", "ablations")},
        PretrainConfig: stage,
        FinetuneConfig: stage,
        EvaluateConfig: {},
        RuntimeConfig: {name: getattr(run, name) for name in RUNTIME},
        **data.flags(run.seed),
    }
    settings = open_settings(out, flags, preset=run.preset, config=run.config, dataset=data.name)
    folder = folder or Workspace(run.workspace).benchmark(f"{data.stem}-{settings.preset}")
    Workspace(folder).refuse_links()
    part = None if run.shard is None else Shard.parse(run.shard)
    if compared.gamma is not None and part is not None:
        fix = "make each strength's parts with `--gamma` left out"
        raise UsageError("sweeps have no parts", where="--shard", fix=fix)
    base = open_benchmark(out, settings, data, folder if part is None else folder / part.name)
    run_benchmarks(
        out, base, plan_benchmarks(base, compared.gamma, part), overwrite=run.overwrite,
        pool=choose_pool(run.workers, run.ray), plots=not no_plots, list_only=list_cells, given=repeated_flags(ctx),
        shard=part,
    )  # fmt: skip
