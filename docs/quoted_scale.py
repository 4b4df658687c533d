"""The tables of docs/scale.md, from the stored documents of `benchmarks.large`, `.growth`, `.processes`, `.members`."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.growth import OTHERS, slope
from benchmarks.large import WORDS

__all__ = ["gpu_table", "growth_table", "large_table", "processes_table"]


def large_table(document: Mapping[str, Any], origin: str) -> Iterator[str]:
    """Yield what each step of 100,000 patients took, and all of them."""
    value = {name: figure["value"] for name, figure in document["figures"].items()}
    yield "| step | processor time | peak memory |"
    yield "|---|---:|---:|"
    for name, words in WORDS.items():
        yield f"| {words} | {value[f'{name}_cpu_s']:.0f} s | {value[f'{name}_mb'] / 1000:.2f} GB |"
    yield ""
    clock = f"{value['cpu_s'] / 60:.1f} minutes of processor time, {value['elapsed_s'] / 60:.1f} on the clock"
    yield f"All steps together: {clock}. `python -m benchmarks.large`, commit {origin}."


def gpu_table(five: Mapping[str, Any], one: Mapping[str, Any], origin: str) -> Iterator[str]:
    """Yield the times of training steps with and without CUDA graphs, and the scores of the paper's protocol."""
    yield "| step of training | one member | replayed | five members | replayed |"
    yield "|---|---:|---:|---:|---:|"
    values = [{name: figure["value"] for name, figure in document["figures"].items()} for document in (one, five)]
    for stage, words in (("pretrain", "pretraining, batches of 64"), ("finetune", "fine-tuning, batches of 32")):
        cells = [f"{v[f'{stage}_{way}_s'] * 1000:.1f} ms" for v in values for way in ("together", "replayed")]
        yield f"| {words} | {' | '.join(cells)} |"
    value, epochs = values[0], one["details"]["protocol"]["epochs"]
    rows = {(row["setup"], row["basis"]): row["average"] for row in one["details"]["protocol"]["averages"]}
    scores = ", ".join(f"{rows[setup, 'ours']:.3f} {setup}" for setup in ("zero-shot", "few-shot", "supervised"))
    yield ""
    limits = f"{rows['zero-shot', 'limit']:.3f} and {rows['supervised', 'limit']:.3f}"
    yield "The verbs on 10,000 patients (`--preset paper`, one member, at most 100 epochs) took"
    yield f"{value['protocol_s']:.0f} s, pretraining {value['protocol_pretrain_s']:.0f} s of it ({epochs['pretrain']}"
    yield f"epochs) and fine-tuning {value['protocol_finetune_s']:.0f} s ({epochs['finetune']} epochs)."
    yield f"The average RMSE over six days, in % of V_max, is {scores}; the best possible"
    yield f"is {limits}. Five members and 200 epochs would take"
    yield f"{values[1]['protocol_scaled_s'] / 60:.0f} minutes, scaled up from three epochs."
    yield f"{one['machine']['gpu']}, torch {one['versions']['torch']}; `python -m benchmarks.members --device cuda"
    yield f"--graphs --protocol --members 1 --protocol-epochs 100`, commit {origin}."


def growth_table(document: Mapping[str, Any], origin: str) -> Iterator[str]:
    """Yield slopes of processor time, and the cost of the largest point of each axis."""
    grown, points = document["details"]["sizes"], document["details"]["points"]
    yield "| work | " + " | ".join(f"{axis}, to {sizes[-1]:,}" for axis, sizes in grown.items()) + " |"
    yield "|---|" + "---:|" * len(grown)
    for name in ("pretraining", *OTHERS):
        yield f"| {name} | " + " | ".join(_slope(sizes, points[axis].get(name)) for axis, sizes in grown.items()) + " |"
    yield ""
    yield f"`python -m benchmarks.growth`, commit {origin}."


def processes_table(document: Mapping[str, Any], origin: str) -> Iterator[str]:
    """Yield what training members took in each way of using several processors."""
    value, details = {name: figure["value"] for name, figure in document["figures"].items()}, document["details"]
    n = details["processes"]
    ways = {
        "divided": f"{n} processes, members divided",
        "shared": f"{n} processes, batches shared",
        "threads": f"one process, {n} threads",
        "alone": "one process, one thread",
    }
    yield f"| {details['members']} members | pretraining: clock | processors | supervised: clock | processors |"
    yield "|---|---:|---:|---:|---:|"
    for way, words in ways.items():
        seconds = [value[f"{stage}_{way}_{unit}"] for stage in ("pretrain", "finetune") for unit in ("s", "cpu_s")]
        yield f"| {words} | " + " | ".join(f"{s:.1f} s" for s in seconds) + " |"
    yield ""
    cpu = " and ".join(f"{value[f'{stage}_cpu_divided_over_shared']:.2f}" for stage in ("pretrain", "finetune"))
    yield f"Dividing members took {cpu} times the processor time of sharing batches. Processor time over that of"
    more = {
        way: " and ".join(
            f"{value[f'{stage}_{way}_cpu_s'] / value[f'{stage}_alone_cpu_s']:.2f}" for stage in ("pretrain", "finetune")
        )
        for way in ("divided", "shared")
    }
    yield f"one process with one thread: {more['divided']} with divided members, {more['shared']} with shared batches."
    yield f"`python -m benchmarks.processes`, medians of {document['options']['repeats']}, commit {origin}."


def _slope(sizes: list[int], costs: list[list[float]] | None) -> str:
    if costs is None:
        return ""
    seconds = [cpu_s for cpu_s, _ in costs]
    return f"{slope(sizes, seconds):.2f} ({seconds[-1]:.2g} s)"
