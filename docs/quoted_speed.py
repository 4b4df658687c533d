"""The tables of speed and memory, each with commit and load, from the stored documents of `benchmarks.all`."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.all import RESULTS
from benchmarks.machine import is_busy, load_before_and_after
from benchmarks.quick_preset import DATASETS
from costar_cli.methods.registry import METHODS
from docs import quoted_scale

__all__ = ["bands_cost", "goals_table", "gpu_table", "preset_sentence", "scale_table", "speed_table"]


def bands_cost() -> Iterator[str]:
    """Yield what bands and lights cost a what-if question."""
    document = speed_document("whatif")
    value = {name: figure["value"] for name, figure in document["figures"].items()}
    yield "| method | an answer without, in one process | with | the command without | with |"
    yield "|---|---:|---:|---:|---:|"
    for name in ("mixed", "growth", "costar"):
        cells = [
            text
            for how in ("process", "command")
            for text in (f"{value[f'without_ms_{name}_{how}']:,.0f} ms", f"{value[f'ratio_{name}_{how}']:.2f}x")
        ]
        yield f"| {METHODS.label(name)} | {' | '.join(cells)} |"
    yield ""
    yield f"`python -m benchmarks.whatif`, medians of answers that took turns, commit {_origin(document)}."


def preset_sentence() -> Iterator[str]:
    """Yield how long the default preset takes."""
    document = speed_document("default_preset")
    figures = {name: figure["value"] for name, figure in document["figures"].items()}
    pretrain, finetune = figures["pretrain_epoch_s"], figures["finetune_epoch_s"]
    members = document["details"]["members"]["pretrain"]
    yield f"One epoch of {members} members takes {pretrain:.1f} s of pretraining and {finetune:.1f} s of fine-tuning;"
    yield f"the preset, computed from these, {figures['preset_min']:.1f} minutes ({_origin(document)})."


Figures = Mapping[str, float]
SPEED: Sequence[tuple[str, str, Callable[[Figures], str]]] = (
    (
        "scoring",
        "scoring the full test sets, against re-encoding every query's history with the same fast network",
        lambda f: (
            f"{_times(f['ratio_to_cropped'])} where histories are sorted by length and cropped, {_times(f['ratio'])} "
            f"where they are padded; {f['queries'] / 1e6:.1f} million queries in {f['score_s']:.2f} s"
        ),
    ),
    (
        "rollouts",
        "answering queries, each history encoded once, against encoding it for each query",
        lambda f: ", ".join(
            f"{_times(f[f'ratio_{name}'])} ({label})"
            for name, label in (
                ("costar", "COSTAR"),
                ("crn", "CRN"),
                ("ct", "CT"),
                ("rmsn", "RMSN"),
                ("gnet", "G-Net, which simulates 50 futures of each"),
            )
        ),
    ),
    (
        "simulate",
        "simulating 1,000 patients with both test sets, against a plain loop over patients",
        lambda f: f"{_times(f['ratio_to_loop'])} (Python floats), {_times(f['ratio_to_numpy_loop'])} (numpy scalars)",
    ),
    (
        "pretrain_step",
        "steps of pretraining and of fine-tuning, against a literal implementation, and the peak memory of the first",
        lambda f: (
            f"{_times(f['ratio_to_literal'])}, {_times(f['finetune_ratio_to_literal'])} (each of five in one step "
            f"{_times(f['group_ratio_to_literal'])}, {_times(f['finetune_group_ratio_to_literal'])}); "
            f"{f['peak_rss_mb']:.0f} MB, {f['import_rss_mb']:.0f} MB of it imports"
        ),
    ),
    (
        "default_preset",
        "training with the default preset, computed from one epoch of each stage",
        lambda f: f"{f['preset_min']:.0f} minutes",
    ),
    (
        "quick_preset",
        "`simulate`, `pretrain` and `finetune` with the quick preset: processor time, highest peak of memory",
        lambda f: "; ".join(
            f"{label} {f[f'{name}_cpu_s']:.0f} s, {f[f'{name}_peak_mb'] / 1000:.2f} GB"
            for name, label in DATASETS.items()
        ),
    ),
    (
        "evaluate_memory",
        "peak memory of `costar evaluate` at paper size; size of the data set's file",
        lambda f: f"{f['evaluate_rss_mb']:.0f} MB; {f['data_mb']:.0f} MB",
    ),
)


def speed_table() -> Iterator[str]:
    """Yield the figures of speed and memory, each with commit and load."""
    yield "| what | figure | measured by | at |"
    yield "|---|---|---|---|"
    for name, what, figure in SPEED:
        document = speed_document(name)
        values = {key: entry["value"] for key, entry in document["figures"].items()}
        yield f"| {what} | {figure(values)} | `python -m benchmarks.{name}` | {_origin(document)} |"


def speed_document(name: str) -> dict[str, Any]:
    """Return the stored document of a benchmark; of several machines, the newest."""
    found = [json.loads(path.read_text("utf-8")) for path in RESULTS.glob(f"{name}-*.json")]
    return dict(max((d for d in found if d["benchmark"] == name), key=lambda d: d["date"]))


def _origin(document: Mapping[str, Any]) -> str:
    """Return commit, load and threads, and whether other work disturbed the measurement."""
    before, after = load_before_and_after(document)
    load = f"{after:.1f}" if before is None else f"{before:.1f} to {after:.1f}"
    threads = document["machine"]["threads"]
    busy = ", **busy: measure again**" if is_busy(document) else ""
    return f"{document['commit'] or 'unknown'}, load {load} on {threads} threads{busy}"


def gpu_table() -> Iterator[str]:
    """Yield what the paper's protocol and its training steps take on a GPU, for five members and for one."""
    names = ("members-5", "members-1", "members-1-100-epochs", "epochs")
    five, one, half, epochs = (json.loads((RESULTS / "gpu" / f"{name}.json").read_text("utf-8")) for name in names)
    return quoted_scale.gpu_table(five, one, half, epochs, _origin(one))


def goals_table() -> Iterator[str]:
    """Yield which goals of training are missed, and what was tried."""
    return quoted_scale.goals_of_steps(*map(speed_document, ("profile_steps", "pretrain_step", "processes", "members")))


def scale_table(name: str) -> Iterator[str]:
    """Yield a table of the page on large data."""
    document = speed_document(name)
    tables = {
        "large": quoted_scale.large_table,
        "growth": quoted_scale.growth_table,
        "growth_commands": quoted_scale.commands_table,
        "processes": quoted_scale.processes_table,
        "profile_steps": quoted_scale.steps_table,
        "fused_lstm": quoted_scale.compiled_sentence,
    }
    return tables[name](document, _origin(document))


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 10 else f"{ratio:.1f}x"
