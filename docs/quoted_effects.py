"""The tables of effects by models: of step-by-step g-computation, of picked methods, and corrected averages."""

from collections.abc import Iterator, Sequence

from docs.quoted_goals import lines

__all__ = ["choice_table", "corrected_table", "gcomp_table"]

GCOMP_WORLDS = {
    "linear": "linear", "linear-noise": "linear, five covariates of noise", "binary": "binary outcome",
    "overlap": "with overlap, three steps", "trial": "micro-randomised trial, effects that differ, four steps",
}  # fmt: skip


def _made(command: str, stored: Sequence[dict[str, str]]) -> str:
    commits = dict.fromkeys(row["commit"] for row in stored)
    return f"`python -m benchmarks.{command}`, commit {' and '.join(commits)}."


def gcomp_table() -> Iterator[str]:
    """Yield the errors of effects by g-computation, with the number of data sets of each in brackets."""
    stored = lines("gcomp.csv")
    found = {(row["world"], row["learner"], row["regime"]): row for row in stored}
    heads = ("error, `auto`", "`boosting` alone", "of single subjects, `auto`", "threshold rule, error")
    yield f"| world | always treating, truth | {' | '.join(heads)} |"
    yield "|---|" + "---:|" * 5
    for world, name in GCOMP_WORLDS.items():
        auto, trees = found[world, "auto", "always"], found.get((world, "boosting", "always"))
        cells = [f"{row['rmse']} ({row['seeds']})" if row else "" for row in (auto, trees)]
        cells += [auto["subject_rmse"], found[world, "auto", "threshold"]["rmse"]]
        yield f"| {name} | {auto['truth']} | {' | '.join(cells)} |"
    yield ""
    yield _made("gcomp", stored)


def choice_table() -> Iterator[str]:
    """Yield the errors of the effect of the method that each rule picks."""
    stored = lines("effect_choice.csv")
    rules = ("forecast", "effect", "auto", "auto, unchecked", "by lot", "best")
    yield "| methods, subjects (data sets) | world | forecasts | effect | `auto` | `auto`, unchecked | by lot | best |"
    yield "|---|---|" + "---:|" * len(rules)
    before = ""
    for row in stored:
        what = f"{row['methods'].replace(' ', ', ')}; {int(row['subjects']):,} ({row['seeds']})"
        cells = (f"{float(row[rule]):.3f}" for rule in rules)
        yield f"| {what if what != before else ''} | {row['world']} | {' | '.join(cells)} |"
        before = what
    yield ""
    yield _made("effect_choice", stored)


def corrected_table() -> Iterator[str]:
    """Yield the errors of averages of forecasts, as the model says them and corrected."""
    stored = lines("corrected.csv")
    yield "| world, steps, truth | method | worlds | RMSE of the model | corrected | 90 % intervals hold |"
    yield "|---|---|---:|---:|---:|---:|"
    for row in sorted(stored, key=lambda row: (row["world"] != "overlap", row["method"])):
        cells = [f"{row['world']}, {row['steps']}, {float(row['truth']):.2f}", row["method"], row["runs"]]
        cells += [f"{float(row['rmse']):.3f}", f"{float(row['corrected_rmse']):.3f}"]
        yield f"| {' | '.join(cells)} | {100 * float(row['coverage']):.0f} % of {row['corrected']} |"
    yield ""
    yield _made("averages --corrected", stored)
