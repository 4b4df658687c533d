"""The tables of what wins where: on simulated data, beside the bounds, and on observed tables."""

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.choice_of_method import LIMIT
from docs.quoted_goals import PLAIN, REMAINDER, SETUPS, by_setup, lines, observed

__all__ = ["in_context_table", "marked", "observed_table", "remainder_table", "repaired_table", "wins_table"]

OBSERVED = ("last-value", "mean", "seasonal-naive", "ridge", "mixed", "boosting", "growth", "costar")
STACKS = ("stack plans", "stack unguarded")


def observed_table() -> Iterator[str]:
    """Yield the errors of methods on observed tables, the mean over splits, and those of stacks against the best."""
    all_lines, plain = observed(), [name for name in OBSERVED if name in PLAIN]
    stacks = ("stack", "its guard left out", "stack over the best", "over the best plain one")
    heads = ["table (splits)", *OBSERVED, *stacks]
    yield f"| {' | '.join(heads)} |"
    yield "|---|" + "---:|" * (len(heads) - 1)
    for table in dict.fromkeys(line["data"].rstrip("0123456789") for line in all_lines):
        mine = [line for line in all_lines if line["data"].startswith(table)]
        errors = {n: [float(line["supervised"]) for line in mine if line["name"] == n] for n in (*OBSERVED, *STACKS)}
        mean = {name: sum(found) / len(found) for name, found in errors.items()}
        best, stack = min(mean[name] for name in OBSERVED), mean["stack plans"]
        cells = [f"**{mean[name]:.4g}**" if mean[name] == best else f"{mean[name]:.4g}" for name in OBSERVED]
        cells += [f"{mean[name]:.4g}" for name in STACKS]
        cells += [_percent(stack / best - 1), _percent(stack / min(mean[name] for name in plain) - 1)]
        yield f"| {table} ({len(errors['mean'])}) | {' | '.join(cells)} |"


def _percent(change: float) -> str:
    return f"{100 * change:+.1f} %".replace("-0.0", "0.0").replace("+0.0", "0.0")


WINS: Mapping[str, str] = {  # methods of the table of what wins where, with the page of each
    "last-value": "[last value](methods/naive.md)",
    "mean": "[mean so far](methods/naive.md)",
    "ridge": "[ridge regression](methods/naive.md)",
    "msm": "[MSM](methods/msm.md)",
    "boosting": "[gradient boosting](methods/boosting.md)",
    "mixed": "[mixed effects](methods/mixed.md)",
    "growth": "[growth GRU](methods/growth.md)",
    "costar": "[COSTAR](methods/costar.md#in-the-scale-in-which-outcomes-change), `quick`",
    "stack plans": "[stack](methods/stack.md) of these",
}
WORLDS: Mapping[str, str] = {
    "tumor": "tumours, % of V_max", "icu": "intensive care, sd", "retail": "retail, units", "linear": "linear system"
}  # fmt: skip


IN_CONTEXT: Mapping[str, str] = {  # where it was asked about data that its network never saw
    "linear system": "benchmark-linear-in-context",
    "tumours, % of V_max": "benchmark-tumor-in-context",
    "retail, units": "benchmark-m5-in-context",
}


def wins_table(setups: Sequence[str] = ("zero_shot", "supervised"), pages: str = "methods/") -> Iterator[str]:
    """Yield errors of methods on simulated data, zero-shot / supervised, the mean over data seeds, and the bounds."""
    stored = lines("choice_of_method.csv")
    mean: dict[tuple[str, str, str], float] = {}
    for world in WORLDS:
        for name in (*WINS, LIMIT):
            own = [line for line in stored if line["data"].rstrip("0123456789") == world and line["name"] == name]
            for setup in setups:
                mean[world, name, setup] = sum(float(line[setup]) for line in own) / len(own)
    best = {(w, u): min(mean[w, name, u] for name in WINS) for w in WORLDS for u in setups}
    yield f"| method | {' | '.join(WORLDS.values())} |"
    yield "|---|" + "---|" * len(WORLDS)
    for name, label in WINS.items():
        cells = [" / ".join(marked(mean[w, name, u], best[w, u]) for u in setups) for w in WORLDS]
        yield f"| {label.replace('(methods/', f'({pages}')} | {' | '.join(cells)} |"
    cells = [" / ".join(f"{mean[w, LIMIT, u]:.3f}" for u in setups) for w in WORLDS]
    yield f"| *what the simulator itself would predict* | {' | '.join(cells)} |"


def remainder_table() -> Iterator[str]:
    """Yield the errors of COSTAR on the remainder of a closed form beside the best of the other methods."""
    yield f"| data | {' | '.join(SETUPS)} |"
    yield "|---|" + "---|" * len(SETUPS)
    for world, folder in REMAINDER.items():
        cells = []
        for errors in by_setup(folder, "avg"):
            mine = errors.pop("costar")
            best = min(errors, key=errors.__getitem__)
            cells.append(f"{mine:.3f} ({errors[best]:.3f}, {best})")
        yield f"| {world} | {' | '.join(cells)} |"


def in_context_table() -> Iterator[str]:
    """Yield errors of the in-context model beside anchors and limits, zero-shot / supervised, and what bands hold."""
    yield "| data | last value | ridge | in-context | best possible | 90 % bands hold |"
    yield "|---|---|---|---|---|---|"
    for world, folder in IN_CONTEXT.items():
        errors, bounds = (by_setup(folder, "avg", basis)[::2] for basis in ("ours", "limit"))
        cells = [" / ".join(f"{of[name]:.3f}" for of in errors) for name in ("last-value", "ridge", "in-context")]
        cells.append(" / ".join(f"{next(iter(of.values())):.3f}" for of in bounds))
        cells.append(" / ".join(f"{100 * of['in-context']:.0f} %" for of in by_setup(folder, "coverage_90")[::2]))
        yield f"| {world} | {' | '.join(cells)} |"


def repaired_table() -> Iterator[str]:
    """Yield errors one and six steps ahead by strength of confounding, those that others published in brackets."""
    public = {
        (line["method"], line["gamma"], line["tau"]): line["mean"]
        for line in lines("sweep-tumor-paper", "causal-transformer.csv")
    }
    ours = {(line["method"], f"{float(line['gamma']):g}"): line for line in lines("sweep-tumor-paper", "sweep.csv")}
    strengths = sorted({gamma for _, gamma in ours}, key=float)
    yield f"| method | step | {' | '.join(f'gamma {gamma}' for gamma in strengths)} |"
    yield "|---|---:|" + "---:|" * len(strengths)
    for method in dict.fromkeys(method for method, _ in ours):
        for tau in ("1", "6"):
            cells = []
            for gamma in strengths:
                line, other = ours.get((method, gamma)), public.get((method, gamma, tau))
                cells.append("" if line is None else f"{float(line[f'tau{tau}_mean']):.3f}")
                cells[-1] += f" ({other})" if other and line else ""
            yield f"| {method} | {tau} | {' | '.join(cells)} |"


def marked(value: float, best: float | None) -> str:
    """Return an error, in bold where it is the smallest as far as it is shown."""
    text = f"{value:.3f}"
    return f"**{text}**" if best is not None and text == f"{best:.3f}" else text
