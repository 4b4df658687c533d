"""`costar benchmark`: the paper's tables, ours beside the published ones."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costar_cli.cli import options
from costar_cli.cli.options import FILES, setting
from costar_cli.cli.session import open_output, open_settings, repeated_flags
from costar_cli.cli.verb import LIST
from costar_cli.cli.workspace import DEFAULT_WORKSPACE, Workspace

if TYPE_CHECKING:
    from costar_cli.cli.session import Flags

WHAT = "What is compared"


def benchmark(
    ctx: typer.Context,
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="What `costar simulate` calls it, or the file of a data set")
    ],
    methods: Annotated[str | None, setting("--methods", panel=WHAT, metavar=LIST)] = None,
    setups: Annotated[str | None, setting("--setups", panel=WHAT, metavar=LIST)] = None,
    members: options.MembersOpt = None,
    data_seeds: Annotated[str | None, setting("--data-seeds", "--seeds", panel=WHAT, metavar="<seed,...>")] = None,
    gamma: Annotated[
        str | None,
        typer.Option(
            "--gamma",
            metavar="<number,...>",
            help="Confounding strengths of the source: a benchmark of each, and the curve of errors",
            rich_help_panel=WHAT,
        ),
    ] = None,
    ablations: Annotated[bool | None, setting("--ablations/--no-ablations", panel=WHAT)] = None,
    list_cells: Annotated[
        bool, typer.Option("--list", help="List the cells and their states without running them")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Output folder (default: in the workspace)", rich_help_panel=FILES)
    ] = None,
    no_plots: options.NoPlotsFlag = False,
    overwrite: options.OverwriteFlag = False,
    workspace: options.WorkspaceOpt = DEFAULT_WORKSPACE,
    preset: options.PresetOpt = None,
    config: options.ConfigFileOpt = None,
    seed: options.SeedOpt = None,
    device: options.DeviceOpt = None,
    precision: options.PrecisionOpt = None,
    threads: options.ThreadsOpt = None,
    group: options.GroupOpt = None,
    max_memory: options.MemoryOpt = None,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=1024, metavar="N", help="Processes that make cells side by side")
    ] = 1,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            help="Make cells on the Ray cluster at this address: auto, HOST:PORT or ray://HOST:PORT",
        ),
    ] = None,
    shard: options.ShardOpt = None,
    json: options.JsonFlag = False,
    quiet: options.QuietFlag = False,
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

    out = open_output(ctx, json=json, quiet=quiet, workspace=workspace)
    data = choose_data(dataset)
    flags: Flags = {
        BenchmarkConfig: {"methods": methods, "setups": setups, "data_seeds": data_seeds, "ablations": ablations},
        PretrainConfig: {"members": members, "seed": seed},
        FinetuneConfig: {"members": members, "seed": seed},
        EvaluateConfig: {},
        RuntimeConfig: {
            "device": device,
            "precision": precision,
            "threads": threads,
            "group": group,
            "max_memory": max_memory,
        },
        **data.flags(seed),
    }
    settings = open_settings(out, flags, preset=preset, config=config, dataset=data.name)
    folder = folder or Workspace(workspace).benchmark(f"{data.stem}-{settings.preset}")
    Workspace(folder).refuse_links()
    part = None if shard is None else Shard.parse(shard)
    if gamma is not None and part is not None:
        raise UsageError(
            "sweeps have no parts", where="--shard", fix="make each strength's parts with `--gamma` left out"
        )
    base = open_benchmark(out, settings, data, folder if part is None else folder / part.name)
    run_benchmarks(
        out,
        base,
        plan_benchmarks(base, gamma, part),
        overwrite=overwrite,
        pool=choose_pool(workers, ray),
        plots=not no_plots,
        list_only=list_cells,
        given=repeated_flags(ctx),
        shard=part,
    )
