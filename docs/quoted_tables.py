"""Write the tables that docs/ quotes from benchmarks/results, between their markers.

python -m docs.quoted_tables            # after `costar benchmark` or `python -m benchmarks.all` stored new results
python -m docs.quoted_tables --check    # exit 1 if a page differs, as CI does

A marker is a line `<!-- from benchmarks/results: NAME -->`; what follows it, up to `<!-- end -->`, is written here.
"""

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from benchmarks import calibration, effects_table, prices, regret, sensitivity, support
from benchmarks.all import RESULTS
from costar_cli.data.registry import sources
from costar_cli.evaluation.published import published_row
from costar_cli.inference.resampling import FEWEST_UNITS
from costar_cli.methods.registry import METHODS
from costar_cli.settings.presets import PRESETS
from docs import quoted_goals
from docs.quoted_effects import choice_table, corrected_table, gcomp_table
from docs.quoted_goals import SETUPS
from docs.quoted_speed import bands_cost, goals_table, gpu_table, preset_sentence, scale_table, speed_table
from docs.quoted_wins import in_context_table, marked, observed_table, remainder_table, repaired_table, wins_table

ROOT = Path(__file__).resolve().parents[1]
GALLERY = ("shelves", "fluids", "glucose", "trial", "visits")
PAGES = (
    *(
        ROOT / "docs" / f"{page}.md"
        for page in (
            "evidence",
            "reproduction",
            "uncertainty",
            "support",
            "sensitivity",
            "data-m5",
            "scale",
            "measured",
        )
    ),
    *(ROOT / "docs" / "methods" / f"{page}.md" for page in ("costar", "gcomp", "in-context")),
    *(ROOT / "docs" / "gallery" / f"{table}.md" for table in GALLERY),
    ROOT / "benchmarks" / "README.md",
)
BLOCK = re.compile(r"(<!-- from benchmarks/results: (?P<name>[a-z ]+) -->\n).*?(?<=\n)(<!-- end -->)", re.DOTALL)
LABELS = {source.name: source.label for source in sources().values()}
PUBLISHED_FORM = ("mimic", "m5", "linear")
TUMOURS = "benchmark-tumor-1000"
TO_PATIENCE = "benchmark-tumor-1000-patience"

Line = dict[str, str]


@cache
def rows(folder: str, name: str = "results.csv") -> tuple[Line, ...]:
    """Return the lines of a stored CSV file."""
    return tuple(quoted_goals.lines(folder, name))


def averages(folder: str, setup: str, key: str = "method") -> dict[str, float]:
    """Return the average error of each of our rows, on counterfactual outcomes, in the order of the table."""
    wanted = (setup, "counterfactual", "ours")
    return {r[key]: float(r["avg"]) for r in rows(folder) if (r["setup"], r["truth"], r["basis"]) == wanted}


def counterfactual(folder: str, setup: str) -> list[Line]:
    """Return our rows of a table of methods, and the bound's, on counterfactual outcomes."""
    wanted = ("methods", setup, "counterfactual")
    found = [r for r in rows(folder) if (r["table"], r["setup"], r["truth"]) == wanted]
    return [r for r in found if r["basis"] in {"ours", "limit"}]


def scripts_table() -> Iterator[str]:
    """Yield a line per script of benchmarks/ that is run, with the first sentence of its docstring."""
    yield "| script | what it measures |"
    yield "|---|---|"
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        text = path.read_text("utf-8")
        if "__main__" in text:
            about = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].partition(": python -m ")[0]
            yield f"| `{path.stem}` | {' '.join(about.split())} |"


def published_form_table() -> Iterator[str]:
    """Yield benchmarks of COSTAR in its published form; the smallest error of a column is bold."""
    columns = {(data, setup): averages(f"benchmark-{data}-quick", setup) for data in PUBLISHED_FORM for setup in SETUPS}
    yield "| method | " + " | ".join(f"{LABELS[data]}, {setup}" for data, setup in columns) + " |"
    yield "|---|" + "---:|" * len(columns)
    for method in next(iter(columns.values())):
        cells = [
            marked(found[method], min(found.values()) if is_tested(f"benchmark-{data}-quick", setup) else None)
            for (data, setup), found in columns.items()
        ]
        yield f"| {method} | {' | '.join(cells)} |"
    minutes = [f"{minutes_of(f'benchmark-{data}-quick'):.0f} ({LABELS[data]})" for data in PUBLISHED_FORM]
    yield ""
    yield "Bold: the smallest error of a column, significant or not; none where a test set has fewer than"
    yield f"{FEWEST_UNITS} units. Minutes of training and scoring, two shared cores: {_listed(minutes)}."


def mechanistic_table() -> Iterator[str]:
    """Yield errors on published models of disease over the bound's, or the last value's where the bound is zero."""
    setups, worlds = ("zero-shot", "supervised"), ("glucose", "hiv", "warfarin", "sepsis")
    yield "| method | " + " | ".join(LABELS[name] for name in worlds) + " |"
    yield "|---|" + "---:|" * len(worlds)
    ratios: dict[tuple[str, str], dict[str, float]] = {}
    for name in worlds:
        for setup in setups:
            error = {r["name"]: float(r["avg"]) for r in counterfactual(f"benchmark-{name}-quick", setup)}
            base = error.pop("limit") or error["last-value"]
            ratios[name, setup] = {method: found / base for method, found in error.items()}
    for method in ("last-value", "ridge", "msm", "mixed", "boosting", "gcomp"):
        cells = []
        for name in worlds:
            of = [ratios[name, setup] for setup in setups]
            shown = [
                f"**{r[method]:.2f}**" if r[method] == min(r.values()) else f"{r[method]:.2f}"
                for r in of
                if method in r
            ]
            cells.append(" / ".join(shown) or "not run")
        yield f"| {METHODS[method].label} | {' | '.join(cells)} |"


def minutes_of(folder: str) -> float:
    """Return how long all cells of a benchmark took together."""
    return sum(float(line["wall_s"] or 0) for line in rows(folder, "cells.csv")) / 60


def is_tested(folder: str, setup: str) -> bool:
    """Return whether differences of a stored table were tested; where not, nothing there is bold."""
    wanted = (setup, "counterfactual", "methods")
    found = [r for r in rows(folder, "comparisons.csv") if (r["setup"], r["truth"], r["table"]) == wanted]
    return any(r["p_holm"] for r in found) and _units(folder, setup) >= FEWEST_UNITS


def _units(folder: str, setup: str) -> int:
    """Return how many items the quick retail benchmark tests on, from its preset; elsewhere there are enough."""
    items = "test_items" if setup == "supervised" else "target_test_items"
    return int(str(PRESETS["quick"][f"simulate.m5.{items}"])) if "m5" in folder else FEWEST_UNITS


def setups_table(folder: str, published: str | None = None) -> Iterator[str]:
    """Yield the methods of a benchmark by their errors in its set-ups, beside the averages published for a data set."""
    every = {setup: {r["name"]: r for r in counterfactual(folder, setup)} for setup in SETUPS}
    found = {setup: by_name for setup, by_name in every.items() if by_name}
    heads = ["method", *(f"{setup} | ratio" for setup in found)]
    heads += [f"published: {' / '.join(found)}"] if published else []
    yield f"| {' | '.join(heads)} |"
    yield "|---|" + "---:|" * (2 * len(found)) + "---|" * bool(published)
    for name in sorted(found["zero-shot"], key=lambda name: float(found["zero-shot"][name]["avg"])):
        own = [by_name[name] for by_name in found.values()]
        cells = [f"*{own[0]['method']}*" if own[0]["basis"] == "limit" else own[0]["method"]]
        cells += [f"{float(row['avg']):.3f} | {float(row['ratio_to_limit']):.2f}" for row in own]
        if published:
            printed = [published_row(published, setup, name) for setup in found]
            cells += [" / ".join(f"{row.average_over(1, 6):.3f}" for row in printed if row)]
        yield f"| {' | '.join(cells)} |"


def patience_table() -> Iterator[str]:
    """Yield errors after the updates of `quick` and after as many as help, and how many updates these are."""
    setups = ("zero-shot", "supervised")
    few, many = ({(s, r["name"]): r for s in setups for r in counterfactual(of, s)} for of in (TUMOURS, TO_PATIENCE))
    yield "| method | " + " | ".join(f"{s}: `quick` | to patience | ratio" for s in setups) + " | updates |"
    yield "|---|" + "---:|" * (3 * len(setups) + 1)
    names = (name for setup, name in many if setup == setups[0])
    for name in sorted(names, key=lambda name: float(many[setups[0], name]["avg"])):
        line = many[setups[0], name]
        cells = [f"*{line['method']}*" if line["basis"] == "limit" else line["method"]]
        for setup in setups:
            before, after = few[setup, name], many[setup, name]
            cells += [f"{float(row['avg']):.3f}" for row in (before, after)] + [f"{float(after['ratio_to_limit']):.2f}"]
        updates = _updates(name)
        yield f"| {' | '.join(cells)} | {f'{updates:,.0f}' if updates else ''} |"


def _updates(name: str) -> float:
    """Return how many updates of outcomes a method took on average; 0 for one that takes none."""
    taken = [
        float(line["outcome_updates"] or 0)
        for line in rows(TO_PATIENCE, "cells.csv")
        if (line["contender"], line["role"]) == (name, "source")
    ]
    return sum(taken) / len(taken) if taken else 0.0


def sweep_table() -> Iterator[str]:
    """Yield the average errors of the sweep over confounding strengths, zero-shot and supervised."""
    found = {
        (r["setup"], r["gamma"], r["method"]): r for r in rows("sweep-tumor", "sweep.csv") if r["truth"] != "factual"
    }
    gammas = list(dict.fromkeys(gamma for _, gamma, _ in found))
    yield "| set-up | method | " + " | ".join(f"gamma {float(gamma):g}" for gamma in gammas) + " |"
    yield "|---|---|" + "---:|" * len(gammas)
    for setup in ("zero-shot", "supervised"):
        for method in dict.fromkeys(method for of, _, method in found if of == setup):
            cells = [found[setup, gamma, method] for gamma in gammas]
            yield f"| {setup} | {method} | {' | '.join(map(_with_ratio, cells))} |"


def _with_ratio(row: Line) -> str:
    """Return an average error, and in brackets that over the best possible one."""
    ratio = row["ratio_to_limit"]
    return f"{float(row['avg']):.3f}" + (f" ({float(ratio):.2f})" if ratio and row["basis"] != "limit" else "")


def ablation_table(folder: str) -> Iterator[str]:
    """Yield ablations of COSTAR as changes of its own error, and on how many data sets it is better than they are."""
    full = averages(folder, "zero-shot", key="name")["costar"]
    yield "| changed | error, against COSTAR's | interval over test subjects | COSTAR is better |"
    yield "|---|---:|---:|---:|"
    for line in rows(folder, "comparisons.csv"):
        if (line["setup"], line["table"], line["truth"]) != ("zero-shot", "ablations", "counterfactual"):
            continue
        ends = [line[f"avg_{end}"] for end in ("lower", "upper")]
        interval = " to ".join(f"{100 * float(end) / full:+.1f}" for end in ends) + " %" if all(ends) else "not tested"
        change = 100 * float(line["avg_difference"]) / full
        sets = int(line["data_sets"])
        won = f"on {round(float(line['wins']) * sets)} of {sets}"
        yield f"| {line['method']} | {change:+.1f} % | {interval} | {won} |"


def pretraining_table() -> Iterator[str]:
    """Yield pretrained beside scratch, and how the run was made."""
    stored = json.loads((RESULTS / "pretraining.json").read_text("utf-8"))
    ours = [r for r in rows("", "pretraining.csv") if r["basis"] == "ours"]
    errors = {(r["setup"], r["label"]): float(r["avg_mean"]) for r in ours}
    yield "| set-up | pretrained | from scratch | difference, 95 % interval (paired over patients) |"
    yield "|---|---|---|---|"
    for setup, found in stored["pretrained minus scratch"].items():
        pair = [f"{errors[setup, label]:.3f}" for label in ("COSTAR", "COSTAR (scratch)")]
        interval = f"{found['lower']:.3f} to {found['upper']:.3f}"
        yield f"| {setup} | {' | '.join(pair)} | {found['difference']:.3f} ({interval}) |"
    yield ""
    if "by hand" in stored["command"]:
        typed = "The verbs of this run were typed by hand, with an earlier version"
        yield f"{typed}, whose `default` was COSTAR as published."
    else:
        yield f"Made by `{stored['command']}`, commit {stored.get('commit') or 'unknown'}."


def pretexts_table() -> Iterator[str]:
    """Yield encoders that learned without labels beside random ones, member by member, and how the runs were made."""
    runs = [json.loads((RESULTS / f"{name}.json").read_text("utf-8")) for name in ("pretexts", "pretexts_tumor")]
    found = {(r["data"], r["setup"], r["pretext"]): r for run in runs for r in run["against scratch"]}
    yield "| data | set-up | pretext | from scratch | pretrained | ratio, 95 % interval | better |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for (data, setup, pretext), row in found.items():
        if pretext != "scratch":
            base = found[data, setup, "scratch"]["rmse"]
            ratio = f"{row['ratio']:.2f} ({row['lower']:.2f} to {row['upper']:.2f})"
            cells = [LABELS[data], setup, pretext.replace("_", " "), f"{base:.3f}", f"{row['rmse']:.3f}", ratio]
            yield f"| {' | '.join(cells)} | {row['better']} of {row['pairs']} |"
    yield ""
    yield " and ".join(f"`{run['command']}` at {run['commit']}" for run in runs) + "."


def calibration_table() -> Iterator[str]:
    """Yield how bands keep their levels, and how the run was made."""
    yield from calibration.table(calibrated())
    stored = json.loads((RESULTS / "calibration.json").read_text("utf-8"))["runs"]
    every = [run for of_data in stored.values() for run in of_data.values()]
    runs = [run for run in every if run["preset"] == "quick"]
    minutes, processor = (sum(run[name] for run in runs) / 60 for name in ("seconds", "processor_s"))
    loads, commits = [run["load"] for run in runs], " and ".join(dict.fromkeys(run["commit"] for run in runs))
    yield ""
    yield f"`python -m benchmarks.calibration`: preset `{runs[0]['preset']}`, {runs[0]['members']} members, data seed"
    yield f"{runs[0]['seed']}, commit {commits}; {minutes:.0f} minutes of one thread, {processor:.0f} of them on a core"
    yield f"(load {min(loads)} to {max(loads)} on two cores)."
    for run in (run for run in every if run not in runs):
        made = f"{run['members']} members, commit {run['commit']}, {run['processor_s'] / 60:.0f} minutes on a core"
        yield f"Preset `{run['preset']}`: {made}."


def calibrated() -> list[Line]:
    """Return the stored rows of the benchmark of calibration."""
    return list(rows("", "calibration.csv"))


def misses_list() -> Iterator[str]:
    """Yield where a goal of calibration is missed, and by how much."""
    found = list(calibration.misses(calibrated()))
    yield from found or ["None: every goal is met."]


def differences_table() -> Iterator[str]:
    """Yield how bands of differences between plans keep their levels."""
    yield from calibration.table(calibrated(), calibration.DIFFERENCES)


def ratings(*questions: str) -> list[Line]:
    """Return the stored rows of the benchmark of lights about some questions, with readable names."""
    data = calibration.LABELS
    named = [{**row, "data": data[row["data"].rstrip("0123456789")]} for row in rows("", "support.csv")]
    asked = (row for row in named if row["questions"] in questions)
    return sorted(asked, key=lambda row: list(data.values()).index(row["data"]))


def hidden_table() -> Iterator[str]:
    """Yield bounds under hidden confounding where a confounder was dropped, and how the rows were made."""
    stored = rows("", "sensitivity.csv")
    yield from sensitivity.table(stored)
    yield ""
    yield f"`python -m benchmarks.sensitivity`, commit {' and '.join(dict.fromkeys(r['commit'] for r in stored))}."


def regret_table() -> Iterator[str]:
    """Yield what policies lose against the simulators' best plans, and how the rows were made."""
    stored = rows("", "regret.csv")
    yield from regret.table(stored)
    yield ""
    seeds = {
        world: ", ".join(dict.fromkeys(r["seed"] for r in stored if r["world"] == world)) for world in regret.QUESTIONS
    }
    told = "; ".join(f"{LABELS[world]}: {which}" for world, which in seeds.items() if which)
    yield f"`python -m benchmarks.regret`, 100 test subjects of each domain; data seeds of {told}."


def effects_tables(part: str) -> Iterator[str]:
    """Yield a table of effects: errors, bias with wrong models, goals, coverage, times, sample data."""
    yield from effects_table.PARTS[part](json.loads((RESULTS / "effects" / "summary.json").read_text("utf-8")))


def prices_table() -> Iterator[str]:
    """Yield what methods make of prices as classes and as a dose, and how the rows were made."""
    stored = rows("", "prices.csv")
    yield from prices.table(stored)
    yield ""
    seeds = " and ".join(dict.fromkeys(row["seed"] for row in stored))
    yield f"`python -m benchmarks.prices`: preset `quick` with ten items to train on; means over data seeds {seeds}."


def default_table() -> Iterator[str]:
    """Yield COSTAR's errors under `default` on tumours of three data seeds, over the bound."""
    folder = RESULTS / "tumor-1000-default"
    seeds = sorted((path.stem.removeprefix("seed-") for path in folder.glob("seed-*.csv")), key=int)
    found = {
        (seed, r["setup"], r["label"].split(" (")[0]): float(r["avg_mean"])
        for seed in seeds
        for r in rows(folder.name, f"seed-{seed}.csv")
        if r["truth"] == "counterfactual" and r["basis"] != "published, different protocol"
    }
    yield f"| | {' | '.join(f'{setup}: error | best possible | ratio' for setup in SETUPS)} |"
    yield "|---|" + "---:|" * 9
    for name, of in [*((f"data seed {seed}", [seed]) for seed in seeds), ("mean", seeds)]:
        cells = []
        for setup in SETUPS:
            pair = [sum(found[seed, setup, label] for seed in of) / len(of) for label in ("COSTAR", "Best possible")]
            cells += [f"{pair[0]:.3f}", f"{pair[1]:.3f}", f"{pair[0] / pair[1]:.2f}"]
        yield f"| {name} | {' | '.join(cells)} |"


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def gallery_table(name: str) -> Iterator[str]:
    """Yield the errors and effects of the models of one table of the gallery, beside the truth."""
    lines = [row for row in rows("", "gallery.csv") if row["table"] == name]
    yield "| set-up | model | RMSE over the horizon | effect on the next step |"
    yield "|---|---|---:|---:|"
    for setup in dict.fromkeys(row["setup"] for row in lines):
        own = [row for row in lines if row["setup"] == setup]
        for row in own:
            called = row["model"] if row["kind"] == "practice" else METHODS.label(row["model"])
            yield f"| {setup} | {called} | {row['rmse']} | {row['effect']} |"
        yield f"| {setup} | truth | | {own[0]['truth']} |"
    counts = [f"{setup} on {row['subjects']} subjects, {row['origins']} origins" for setup, row in
              {row["setup"]: row for row in lines}.items()]  # fmt: skip
    yield ""
    yield f"`python -m benchmarks.gallery`; {'; '.join(counts)}. Lower errors are better."


TABLES: Mapping[str, Callable[[], Iterator[str]]] = {
    "scripts": scripts_table,
    "paper size": partial(setups_table, "benchmark-tumor-paper", "tumor"),
    "paper size icu": partial(setups_table, "benchmark-mimic-paper"),
    "repaired rows": repaired_table,
    "published form": published_form_table,
    "mechanistic": mechanistic_table,
    "tumours": partial(setups_table, TUMOURS, "tumor"),
    "patience": patience_table,
    "retail": partial(setups_table, quoted_goals.RETAIL_100),
    "intensive care": partial(setups_table, quoted_goals.ICU_100),
    "goals": quoted_goals.table,
    "sweep": sweep_table,
    "ablations": partial(ablation_table, "benchmark-tumor-ablations"),
    "ablations more": partial(ablation_table, "benchmark-tumor-ablations-2"),
    "ablations icu": partial(ablation_table, "benchmark-mimic-ablations"),
    "ablations retail": partial(ablation_table, "benchmark-m5-ablations"),
    "pretraining": pretraining_table,
    "pretexts": pretexts_table,
    "observed": observed_table,
    **{f"gallery {name}": partial(gallery_table, name) for name in GALLERY},
    "remainder": remainder_table,
    "in context": in_context_table,
    "wins": wins_table,
    "wins in short": partial(wins_table, ("zero_shot",), "methods/"),
    "default": default_table,
    "preset": preset_sentence,
    "calibration": calibration_table,
    "sharpness": lambda: calibration.sharpness(calibrated()),
    "misses": misses_list,
    "differences": differences_table,
    "bands cost": bands_cost,
    "worst answers": lambda: support.aurocs(ratings("test sets")),
    "abstaining": lambda: support.gains(ratings("test sets")),
    "hidden confounding": hidden_table,
    "regret": regret_table,
    "prices": prices_table,
    **{f"effects {part}": partial(effects_tables, part) for part in effects_table.PARTS},
    "effects by methods": choice_table,
    "corrected averages": corrected_table,
    "gcomp": gcomp_table,
    "speed": speed_table,
    "gpu": gpu_table,
    **{name: partial(scale_table, name) for name in ("large", "growth", "processes")},
    "growth commands": partial(scale_table, "growth_commands"),
    "training steps": partial(scale_table, "profile_steps"),
    "goals of training": goals_table,
    "compiled operator": partial(scale_table, "fused_lstm"),
}


def rewritten(text: str) -> str:
    """Return a page with every marked block as the stored results have it."""
    return BLOCK.sub(lambda m: m[1] + "\n".join(TABLES[m["name"]]()) + "\n" + m[3], text)


def main() -> int:
    """Write the pages, or compare them."""
    old = {page: page.read_text("utf-8") for page in PAGES}
    changed = [page for page, text in old.items() if rewritten(text) != text]
    if "--check" in sys.argv[1:]:
        for page in changed:
            sys.stderr.write(f"{page} differs from benchmarks/results: run `python -m docs.quoted_tables`\n")
        return 1 if changed else 0
    for page in changed:
        page.write_text(rewritten(old[page]), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
