"""Benchmarks in the Python API: what `costar benchmark` makes, returned instead of printed."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from os import PathLike
from pathlib import Path

import numpy as np

from costar_cli.api.calls import PathLikeText, reporting, resolved
from costar_cli.cli.benchmarking.jobs import ReporterOutput
from costar_cli.cli.benchmarking.methods import choose_data
from costar_cli.cli.benchmarking.pool import choose_pool
from costar_cli.cli.benchmarking.report import BenchmarkReport
from costar_cli.cli.benchmarking.run import complete_benchmarks, open_benchmark, plan_benchmarks
from costar_cli.cli.benchmarking.sweep import Sweep
from costar_cli.config.choices import PresetName, SetupName
from costar_cli.errors import UsageError


def benchmark_methods(
    dataset: PathLikeText,
    folder: PathLikeText,
    *,
    methods: str | Sequence[str] = "all",
    setups: SetupName | Sequence[SetupName] | None = None,
    gamma: float | Sequence[float] | None = None,
    data_seeds: int | Sequence[int] = 1,
    ablations: bool = False,
    preset: PresetName | None = None,
    config: PathLikeText | None = None,
    seed: int | None = None,
    members: int | None = None,
    workers: int = 1,
    plots: bool = True,
    overwrite: bool = False,
    progress: bool = False,
    **settings: object,
) -> BenchmarkReport | Sweep:
    """Compare methods on a data set, as `costar benchmark` does: every cell is kept, and the same call continues.

    Args:
        dataset: what `simulate` calls it, or the file of a data set.
        folder: where cells, tables (CSV, Markdown, LaTeX) and figures are written.
        methods: `all`, or names of methods and of ablations of COSTAR.
        setups: `zero-shot`, `few-shot`, `supervised`; all that the data set has parts for by default.
        gamma: confounding strengths of the source: a benchmark of each.
        data_seeds: how many data sets to simulate, with consecutive seeds; or their seeds, two or more.
        ablations: also train ablations of COSTAR.
        preset: `quick`, `default` or `paper`.
        config: a TOML file of settings; arguments overrule it.
        seed: of the first data set, and of training on it.
        members: ensemble members.
        workers: processes that make cells side by side.
        plots: draw the figures, too.
        overwrite: replace cells that were made from other settings.
        progress: True for progress on stderr.
        **settings: settings of the data set, such as `train=200`, or of `runtime`; others as tables, such as
            `finetune={"epochs": 3}` (`costar settings` lists them).

    Returns:
        A report whose `to_frame()` has a row per table and method; with `gamma` a sweep, whose frame also has the
        strength, and whose `reports` are by strength.

    Raises:
        UsageError: an unknown data set, method, set-up or setting, or a single seed in a list.
        MismatchError: cells were made from something else, and `overwrite` is false.
        CostarError: cells failed; what the others found is written.
    """
    named: object = dataset  # of any type at run time
    if not isinstance(named, str | PathLike):
        fix = "give its name or its file; `dataset.save(path)` writes one"
        raise UsageError(f"{type(named).__name__} is neither a name nor a file", where="dataset=", fix=fix)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise UsageError(f"{workers!r} workers", where="workers=", fix="give a whole number, 1 or larger")
    data = choose_data(str(dataset))
    own = [data.simulated.section] if data.simulated else []
    if isinstance(data_seeds, list | tuple | range) and len(data_seeds) == 1:  # a flag takes one for a number of them
        fix = f"`seed={data_seeds[0]}` makes one data set of that seed, `data_seeds={data_seeds[0]}` as many data sets"
        text = f"{data_seeds[0]} is a single seed, and data sets to compare are two or more"
        raise UsageError(text, where="data_seeds=", fix=fix)
    given = dict(settings)
    shared = {name: value for name, value in {"seed": seed, "members": members}.items() if value is not None}
    for stage in ("pretrain", "finetune") if shared else ():
        table = given.get(stage, {})  # whose own values count
        given[stage] = {**shared, **table} if isinstance(table, Mapping) else table
    if seed is not None and own:
        given.setdefault("seed", seed)
    compared = {"methods": _joined(methods), "data_seeds": _joined(data_seeds), "ablations": ablations}
    given["benchmark"] = compared if setups is None else {**compared, "setups": _joined(setups)}
    chosen = resolved(given, [*own, "runtime"], preset=preset, config=config, dataset=data.name)
    with reporting(progress) as reporter, closing(ReporterOutput(reporter, quiet=not progress)) as out:
        base = open_benchmark(out, chosen, data, Path(folder))
        plans = plan_benchmarks(base, None if gamma is None else _joined(gamma))
        pool = choose_pool(workers, None)
        result = complete_benchmarks(out, base, plans, overwrite=overwrite, pool=pool, plots=plots)
        result.require_all()
        return result.report


def _joined(values: object) -> str:
    """Return one value or several as a flag has them: with commas, and numbers in full, without exponents."""
    several = values if isinstance(values, Iterable) and not isinstance(values, str | PathLike) else [values]
    return ",".join(
        np.format_float_positional(value, trim="-") if isinstance(value, float) else str(value) for value in several
    )
