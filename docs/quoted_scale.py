"""The tables of docs/scale.md, from the stored documents of `benchmarks.large`, `.growth`, `.processes`, `.members`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.cohort import MEMBERS
from benchmarks.fused_lstm import SHAPES, SMALL
from benchmarks.growth import OTHERS, slope
from benchmarks.large import WORDS
from benchmarks.machine import ROOT
from benchmarks.profile_steps import ATTENTION, FINETUNING, PARTS, PRESETS, PRETRAINING, hours_of
from costar_cli.settings.presets import preset_settings

__all__ = [
    "commands_table",
    "compiled_sentence",
    "goals_of_steps",
    "gpu_table",
    "growth_table",
    "large_table",
    "processes_table",
    "steps_table",
]

RESULTS = ROOT / "benchmarks" / "results"
STAGES = ("pretrain", "finetune")
LOGS = ("ingest_events", "ingest_events_100m")


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


def gpu_table(
    five: Mapping[str, Any], one: Mapping[str, Any], half: Mapping[str, Any], epochs: Mapping[str, Any], origin: str
) -> Iterator[str]:
    """Yield times of training steps with and without CUDA graphs, the paper's protocol, and epochs of other networks.

    `half` is the protocol stopped after half of its epochs.
    """
    yield "| step of training | one member | replayed | five members | replayed |"
    yield "|---|---:|---:|---:|---:|"
    values = [{name: figure["value"] for name, figure in document["figures"].items()} for document in (one, five)]
    for stage, words in (("pretrain", "pretraining, batches of 64"), ("finetune", "fine-tuning, batches of 32")):
        cells = [f"{v[f'{stage}_{way}_s'] * 1000:.1f} ms" for v in values for way in ("together", "replayed")]
        yield f"| {words} | {' | '.join(cells)} |"
    plain, replayed = ([values[1][f"{s}_{way}"] for s in STAGES] for way in ("times_one", "replayed_times_one"))
    yield ""
    yield f"A step of five members takes {plain[0]:.1f} times one member's in pretraining and {plain[1]:.1f} in"
    yield f"fine-tuning (goal 1.5), and {replayed[0]:.1f} and {replayed[1]:.1f} times where both are replayed."
    value, ran = values[0], one["details"]["protocol"]["epochs"]
    yield ""
    yield "The paper's protocol on 10,000 patients (`--preset paper`, one member) took"
    yield f"{value['protocol_s']:.0f} s, pretraining {value['protocol_pretrain_s']:.0f} s of it ({ran['pretrain']}"
    yield f"epochs) and fine-tuning {value['protocol_finetune_s']:.0f} s ({ran['finetune']} epochs)."
    yield f"The average RMSE over six days, in % of V_max, is {_scores(one)}. With at most"
    yield f"{half['options']['protocol_epochs']} epochs it was {_scores(half)} (at {half['commit']}):"
    yield "longer pretraining gained nothing, of one member."
    limits = {row["setup"]: row["average"] for row in _averages(one) if row["basis"] == "limit"}
    yield f"The best possible is {limits['zero-shot']:.3f} (zero-shot and few-shot) and {limits['supervised']:.3f}."
    yield "Five members were trained for three epochs only. Scaled up to 200, starts included, the protocol would take"
    yield f"{values[1]['protocol_scaled_s'] / 60:.0f} minutes (goal 10): an upper bound, as fine-tuning stops early."
    yield f"{one['machine']['gpu']}, torch {one['versions']['torch']}; `python -m benchmarks.members --device cuda"
    yield f"--graphs --protocol --members 1`, commit {origin}."
    yield ""
    yield "| other networks of `--preset paper`, one member | seconds of an epoch | epochs | minutes |"
    yield "|---|---:|---:|---:|"
    settings = preset_settings("paper", "tumor")
    for method, times in epochs["details"]["epoch_s"].items():
        seconds = [second for _, second in times.values()]
        count = max(value for key, (value, _) in settings.items() if key.startswith(f"{method}.") and "epochs" in key)
        minutes = sum(seconds) * count / 60
        yield f"| {method} | {' + '.join(f'{s:.1f}' for s in seconds)} | {count} | {minutes:.1f} |"
    yield ""
    yield "Seconds of the second epoch, of each network in turn; the first, which records graphs, is up to .5 s longer."
    yield f"`{epochs['command']}`, commit {epochs['commit']}."


def _averages(document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    rows: Sequence[Mapping[str, Any]] = document["details"]["protocol"]["averages"]
    return rows


def _scores(document: Mapping[str, Any]) -> str:
    ours = {row["setup"]: row["average"] for row in _averages(document) if row["basis"] == "ours"}
    return ", ".join(f"{ours[setup]:.3f} {setup}" for setup in ("zero-shot", "few-shot", "supervised"))


def growth_table(document: Mapping[str, Any], origin: str) -> Iterator[str]:
    """Yield slopes of processor time, and the cost of the largest point of each axis."""
    grown, points = document["details"]["sizes"], document["details"]["points"]
    yield "| work | " + " | ".join(f"{axis}, to {sizes[-1]:,}" for axis, sizes in grown.items()) + " |"
    yield "|---|" + "---:|" * len(grown)
    for name in ("pretraining", *OTHERS):
        yield f"| {name} | " + " | ".join(_slope(sizes, points[axis].get(name)) for axis, sizes in grown.items()) + " |"
    yield ""
    yield f"`python -m benchmarks.growth`, commit {origin}."


def commands_table(document: Mapping[str, Any], origin: str) -> Iterator[str]:
    """Yield the processor time and the peak memory of commands by the number of subjects, and reading a log."""
    details = document["details"]
    _, *sizes = details["sizes"]
    yield f"| {details['plans']} plans of `whatif` | " + " | ".join(f"{n:,} subjects" for n in sizes) + " |"
    yield "|---|" + "---:|" * len(sizes)
    for name, (_, *costs) in details["points"].items():
        yield f"| {name} | " + " | ".join(f"{cpu_s:.1f} s, {mb / 1000:.2f} GB" for cpu_s, mb, _ in costs) + " |"
    fewer, log = (json.loads((RESULTS / f"{name}-amd-epyc-2-cores.json").read_text("utf-8")) for name in LOGS)
    value = {name: figure["value"] for name, figure in log["figures"].items()}
    both = {name: [fewer["figures"][name]["value"], of] for name, of in value.items()}
    time, memory = (slope(both["events"], both[name]) for name in ("cpu_s", "ingest_rss_mb"))
    yield ""
    yield "Slopes of log processor time and memory over these sizes, beyond that of a start (1: in proportion):"
    grown = {name: figure["value"] for name, figure in document["figures"].items()}
    pairs = {name: [grown[f"{name}_{what}_slope"] for what in ("cpu", "memory")] for name in details["points"]}
    yield f"{', '.join(f'{name} {cpu:.2f} and {memory:.2f}' for name, (cpu, memory) in pairs.items())}."
    if steep := [name for name, of in pairs.items() if max(of) > 1]:
        yield f"What grows faster than its subjects: {', '.join(steep)}."
    yield f"Processor time and peak memory; `python -m benchmarks.growth_commands`, commit {origin}."
    yield ""
    goals = [log["figures"][name]["goal"] for name in ("ingest_s", "ingest_rss_mb")]
    yield f"`ingest meds` of {value['events'] / 1e6:.0f} million events: {value['cpu_s']:.0f} s of processor time,"
    yield f"{value['ingest_rss_mb'] / 1000:.1f} GB, {value['ingest_s'] / 60:.0f} minutes on the clock, niced and busy"
    yield f"(commit {log['commit']}): its memory is what bends first. {goals[0]:.0f} s and {goals[1] / 1000:.1f} GB,"
    yield "its goals on the clock and in memory, are missed. From ten million events on (commit"
    yield f"{fewer['commit']}, busy, too) slopes are {time:.2f} in time and {memory:.2f} in memory."


def steps_table(document: Mapping[str, Any], origin: str) -> Iterator[str]:
    """Yield where the time of training steps and of fits goes, and what training takes at the paper's size."""
    details, value = document["details"], {name: figure["value"] for name, figure in document["figures"].items()}
    found: Mapping[str, Mapping[str, Any]] = details["found"]
    parts = " | ".join(PARTS)
    yield f"| step, or fit | rows | processor time | {parts} | over the floor | faster than written out | in a group |"
    yield "|---|---:|---:|" + "---:|" * (len(PARTS) + 3)
    for name, of in found.items():
        shares = (f"{100 * of['parts_s'][part] / of['step_s']:.0f} %" for part in PARTS)
        times = f"{of['step_s'] / of['floor_s']:,.1f}x" if of.get("floor_s") else ""
        alone, grouped = (
            f"{of['literal_s'] / of[each]:.1f}x" if of.get("literal_s") else "" for each in ("step_s", "of_group_s")
        )
        rows, step = of.get("batch", f"{details['patients'][1]} patients"), f"{1000 * of['step_s']:,.1f} ms"
        yield f"| {name} | {rows} | {step} | {' | '.join(shares)} | {times} | {alone} | {grouped} |"
    yield ""
    yield "`products` are matrix products and attention, `kernels` all else that computes, `copies` also lookups,"
    yield "`memory` getting and clearing it, `random` drawing numbers, `python` the rest: interpreter, dispatch,"
    yield "autograd; of fits also operators on arrays. The floor is operations at"
    doubles = f"{details['gflops_of_doubles']:.0f} in double precision, of fits"
    yield f"{details['gflops']:.0f} GFLOP/s ({doubles}), the rate of a large product, and bytes of all else at"
    yield f"{details['bytes_per_s'] / 1e9:.0f} GB/s, that of copies in the caches; of fits it is what inner loops"
    yield "cannot do without: gradients of regressions, least squares, each tree reading its rows once. Written out:"
    yield "recurrences cell by cell, relative attention with a vector for every pair of steps, differentiated by torch;"
    yield f"the decoder of EDCT has neither. In a group {MEMBERS} members share a step: a fifth of it is compared."
    if f"hours_{PRESETS[0]}" in value:
        yield ""
        steps = (
            f"{value[f'hours_{preset}']:.1f} hours with `{preset}` ({n[PRETRAINING]:,} and {n[FINETUNING]:,} steps)"
            for preset, n in details["updates"].items()
        )
        yield f"COSTAR on 10,000 patients, a member, without validation and early stopping: {' and '.join(steps)}."
    yield f"`{document['command']}`, one thread, commit {origin}."


def goals_of_steps(
    steps: Mapping[str, Any], pretraining: Mapping[str, Any], processes: Mapping[str, Any], members: Mapping[str, Any]
) -> Iterator[str]:
    """Yield which goals of training are missed, by how much, and what was tried."""
    value = {name: figure["value"] for name, figure in pretraining["figures"].items()}
    found: Mapping[str, Mapping[str, Any]] = steps["details"]["found"]
    literal = [
        [of["literal_s"] / of[each] for of in found.values() if of.get("literal_s")]
        for each in ("step_s", "of_group_s")
    ]
    taken_s = {step: {name: seconds for name, _, seconds in found[step]["most"]} for step in (PRETRAINING, "ct")}
    contrast = 100 * taken_s[PRETRAINING].get(ATTENTION, 0.0) / found[PRETRAINING]["step_s"]
    softmax = 100 * taken_s["ct"].get("_softmax", 0.0) / found["ct"]["step_s"]
    memory = 100 * max(of["parts_s"]["memory"] / of["step_s"] for of in found.values() if "batch" in of)
    taken = {name: figure["value"] for name, figure in processes["figures"].items()}
    divided = " and ".join(f"{taken[f'{stage}_divided_cpu_s'] / taken[f'{stage}_alone_cpu_s']:.2f}" for stage in STAGES)
    yield f"| goal of training | a member alone | each of {MEMBERS} in one step |"
    yield "|---|---|---|"
    for goal, name in (("pretraining, 8x the literal step", ""), ("fine-tuning, 8x", "finetune_")):
        reached = (f"{value[f'{name}{of}ratio_to_literal']:.1f}x" for of in ("", "group_"))
        yield f"| {goal} | {' | '.join(reached)} |"
    reached = (f"{min(times):.1f}x to {max(times):.1f}x" for times in literal)
    yield f"| steps of baselines, 3x written out | {' | '.join(reached)} |"
    updates = steps["details"]["updates"]["paper"]
    alone, grouped, floor = (
        f"{hours_of(updates, {stage: found[stage][each] for stage in updates}):.1f} hours"
        for each in ("step_s", "of_group_s", "floor_s")
    )
    yield f"| COSTAR at the paper's size, half of 5.6 hours | {alone} | {grouped} |"
    yield ""
    yield f"The floor of COSTAR at the paper's size is {floor}. What was tried or measured:"
    yield ""
    yield f"- **bfloat16** (`--precision bf16`) takes {value['bf16_ratio']:.2f} times the time of single precision in"
    yield f"  pretraining and {value['finetune_bf16_ratio']:.2f} in fine-tuning."
    yield f"- **One operator for attention**: the contrast has one already ({contrast:.0f} % of a step of pretraining);"
    yield f"  in the blocks it would save the softmax between two products, {softmax:.0f} % of a step of CT: not built."
    yield f"- **Reused buffers** would save what getting memory takes: at most {memory:.0f} % of a step."
    yield f"- **Two processes of one thread** take {divided} times the processor time of one: members are"
    yield "  divided, and no step gets cheaper."
    clock_h = hours_of(updates, {PRETRAINING: value["step_s"], FINETUNING: value["finetune_step_s"]})
    gains = " and ".join(f"{taken[f'{stage}_alone_s'] / taken[f'{stage}_threads_s']:.2f}" for stage in STAGES)
    yield f"- **Two threads** make pretraining and fine-tuning {gains} times as fast on the clock, where the"
    yield f"  paper's size takes {clock_h:.1f} hours."
    stacked = " and ".join(f"{members['figures'][f'{stage}_times_one']['value']:.1f}" for stage in STAGES)
    together = members["details"]["members"]
    yield f"- **{together} members in one step** take {stacked} times a step of one on a CPU, in pretraining and"
    yield "  fine-tuning: recurrent networks gain most."
    yield "- **A fused LSTM** and **compilation**: below, and [why not](adr/0038-no-compilation.md)."


def compiled_sentence(document: Mapping[str, Any], origin: str) -> Iterator[str]:
    """Yield what a compiled operator for the LSTM would save."""
    value = {name: figure["value"] for name, figure in document["figures"].items()}

    def between(form: str) -> str:
        times = [value[f"{name}_{form}"] for name in SHAPES if name != SMALL]
        return f"{min(times):.1f} to {max(times):.1f}"

    small = " and ".join(f"{value[f'{SMALL}_{form}']:.1f}" for form in ("ours", "literal"))
    yield "One compiled operator for all steps of an LSTM, forward and backward, takes a compiler and"
    yield f"{value['compiling_s']:.0f} seconds on each machine. With the paper's batches it is {between('ours')}"
    yield f"times as fast as ours and {between('literal')} times as fast as cell by cell (with batches of 16, {small}),"
    yield "which is but a part of a step: costar does without ([why](adr/0038-no-compilation.md))."
    yield f"`python -m benchmarks.fused_lstm`, commit {origin}."


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
