"""`costar benchmark`: the paper's tables, ours beside the published ones."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costar_cli.cli import options
from costar_cli.cli.options import FILES, expanded, setting
from costar_cli.cli.session import RUNTIME, FitFlags, open_output, open_settings, repeated_flags
from costar_cli.cli.verb import LIST
from costar_cli.cli.workspace import Workspace
from costar_cli.config.choices import ExperimentName

if TYPE_CHECKING:
    from costar_cli.cli.benchmarking.methods import BenchmarkData
    from costar_cli.cli.session import Flags
    from costar_cli.reporting.output import Output
    from costar_cli.settings.protocols import PublishedProtocol

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
    twin: Annotated[
        bool,
        typer.Option(
            "--twin", rich_help_panel=WHAT,
            help="Also train on the source's randomised twin: which part of the error is due to confounding",
        ),
    ] = False  # fmt: skip
    ablations: Annotated[bool | None, setting("--ablations/--no-ablations", panel=WHAT)] = None
    protocol: Annotated[
        ExperimentName | None,
        typer.Option(
            "--protocol", rich_help_panel=WHAT,
            help="Cells of a published experiment: cohort sizes, strengths, plans and seeds",
        ),
    ] = None  # fmt: skip
    protocols: Annotated[
        bool, typer.Option("--protocols", rich_help_panel=WHAT, help="List the protocols with their sources, and end")
    ] = False


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
    from costar_cli.cli.benchmarking.pool import choose_pool

    pool = choose_pool(run.workers, run.ray)  # what flags alone forbid is said before seconds of imports

    from costar_cli.cli.benchmarking.methods import choose_data
    from costar_cli.cli.benchmarking.run import by_support, open_benchmark, plan_benchmarks, run_benchmarks
    from costar_cli.cli.benchmarking.sweep import with_twin
    from costar_cli.config.models import BenchmarkConfig, EvaluateConfig, FinetuneConfig, PretrainConfig, RuntimeConfig
    from costar_cli.errors import UsageError
    from costar_cli.files.shards import Shard

    out = open_output(ctx, json=run.json, quiet=run.quiet, show=run.show, workspace=run.workspace)
    data = choose_data(dataset)
    if compared.protocols:
        _list_protocols(out)
        return
    protocol = _protocol_of(compared.protocol, data)
    gamma = compared.gamma or (protocol.gamma if protocol else None)
    stage = {"members": compared.members, "seed": run.seed}
    flags: Flags = {
        BenchmarkConfig: {n: getattr(compared, n) for n in ("methods", "setups", "data_seeds", "ablations")},
        PretrainConfig: stage,
        FinetuneConfig: stage,
        EvaluateConfig: {},
        RuntimeConfig: {name: getattr(run, name) for name in RUNTIME},
        **data.flags(run.seed),
    }
    if protocol:
        out.note(f"protocol {protocol.name}: {protocol.citation}")
        for text in protocol.differs:
            out.note(f"protocol {protocol.name} differs: {text}")
    sources: Any = {"preset": run.preset, "config": run.config, "dataset": data.name, "protocol": compared.protocol}
    settings = open_settings(out, flags, **sources)
    named = [data.stem, *([protocol.name] if protocol else []), settings.preset]
    folder = folder or Workspace(run.workspace).benchmark("-".join(named))
    Workspace(folder).refuse_links()
    part = None if run.shard is None else Shard.parse(run.shard)
    if (gamma is not None or compared.twin) and part is not None:
        fix = "make each strength's parts with `--gamma` left out"
        raise UsageError("sweeps have no parts", where="--shard", fix=fix)
    base = open_benchmark(out, settings, data, folder if part is None else folder / part.name)
    gamma = with_twin(base, gamma) if compared.twin else gamma
    sizes = by_support(base, protocol.support if protocol else ())
    run_benchmarks(
        out, base.folder, {size: (of, plan_benchmarks(of, gamma, part)) for size, of in sizes.items()},
        overwrite=run.overwrite, pool=pool, plots=not no_plots, list_only=list_cells,
        given=repeated_flags(ctx), shard=part,
    )  # fmt: skip


def _protocol_of(name: "ExperimentName | None", data: "BenchmarkData") -> "PublishedProtocol | None":
    """Return a protocol.

    Raises:
        UsageError: it is of another data set.
    """
    from costar_cli.errors import UsageError
    from costar_cli.settings.protocols import read_protocol

    protocol = None if name is None else read_protocol(name)
    if protocol is not None and (data.simulated is None or data.name != protocol.dataset):
        fix = f"`costar benchmark {protocol.dataset} --protocol {protocol.name}`"
        raise UsageError(f"protocol {protocol.name} is of `{protocol.dataset}`", where="--protocol", fix=fix)
    return protocol


def _list_protocols(out: "Output") -> None:
    """Print the protocols: what they are, where they come from, what was confirmed and what differs."""
    from dataclasses import asdict

    from costar_cli.settings.protocols import protocols

    for one in protocols():
        size = [f"support {', '.join(map(str, one.support))}"] if one.support else []
        strengths = [f"gamma {one.gamma.replace(',', ', ')}"] if one.gamma else []
        out.text(f"{one.name}: {one.title}", f"  {one.citation}", *(f"  {text}" for text in (*size, *strengths)))
        out.text(*(f"  confirmed: {text}" for text in one.confirmed), *(f"  differs: {text}" for text in one.differs))
    out.done({"protocols": [asdict(one) for one in protocols()]})
