"""The tables of what `benchmarks.effects` measured, as docs/measured.md has them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

__all__ = ["PARTS", "table"]

ENGINE: Final = ("gformula", "sdr", "tmle", "ipw")
KNOWN: Final = ("known g-formula", "known sdr", "known ipw")
NAMES: Final = {
    "linear": "linear", "linear-noise": "linear, five noise covariates", "binary": "binary", "overlap": "overlap",
    "overlap-known": "overlap, probabilities known", "overlap-outcome-wrong": "overlap, outcome model wrong",
    "overlap-treatment-wrong": "overlap, treatment model wrong", "jumps": "overlap, jumps",
    "trial": "micro-randomised trial", "doses": "doses", "panel": "EconML's panel, doses",
    "panel-binary": "EconML's panel, on and off",
    "ends": "death and recovery",
}  # fmt: skip
Rows = Mapping[tuple[str, str, str, str], Mapping[str, Any]]


def table(document: Mapping[str, Any]) -> str:
    """Return all tables as Markdown."""
    return "\n".join("\n".join(part(document)) + "\n" for part in PARTS.values())


def _rows(document: Mapping[str, Any], world: str) -> Rows:
    rows = document["worlds"].get(world, {}).get("rows", ())
    return {(row["estimator"], row["kind"], row["plan"], row["outcome"]): row for row in rows}


def _number(value: float | None) -> str:
    """Return a number with three digits, two where it is large; a dash where there is none."""
    if value is None:
        return "-"
    return f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}"


def _quantities(rows: Rows) -> Iterator[tuple[str, str, str]]:
    """Yield what is reported of a world: contrasts of static plans and policies, means of rules."""
    seen: dict[tuple[str, str, str], None] = {}
    for _, kind, plan, outcome in rows:
        wanted = kind == ("mean" if plan == "threshold" else "difference")
        if wanted:
            seen[kind, plan, outcome] = None
    yield from seen


def _errors(document: Mapping[str, Any]) -> Iterator[str]:
    engine = " | ".join(f"`{estimator}`" for estimator in ENGINE)
    yield f"| world | quantity | truth | n | g-formula | SDR | IPW | {engine} | effective | flagged |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for world, name in NAMES.items():
        rows = _rows(document, world)
        for kind, plan, outcome in _quantities(rows):
            of = {estimator: rows.get((estimator, kind, plan, outcome)) for estimator in (*ENGINE, *KNOWN)}
            any_row = next(row for row in of.values() if row)
            known = [_number(row["rmse"] if row else None) for row in (of[e] for e in KNOWN)]
            cells = []
            for row in (of[e] for e in ENGINE):
                share = "" if not row or row["coverage"] is None else f" ({100 * row['coverage']:.0f})"
                cells.append(_number(row["rmse"] if row else None) + share)
            sdr = of["sdr"] or {}
            effective = "-" if sdr.get("effective") is None else f"{sdr['effective']:.0f}"
            flagged = "-" if sdr.get("flagged") is None else f"{100 * sdr['flagged']:.0f} %"
            what = plan if kind == "mean" else f"{plan} less {'natural' if world == 'doses' else 'never'}"
            what += {"y": "", "any event": ", steps without"}.get(outcome, f", {outcome}")
            entries = [
                name,
                what,
                _number(any_row["truth"]),
                str(any_row["repetitions"]),
                *known,
                *cells,
                effective,
                flagged,
            ]
            yield f"| {' | '.join(entries)} |"


def _wrong(document: Mapping[str, Any]) -> Iterator[str]:
    yield from (
        "| always less never | bias of `gformula` | of `sdr` | of `tmle` | of `ipw` |",
        "|---|---:|---:|---:|---:|",
    )
    for world in ("overlap", "overlap-known", "overlap-outcome-wrong", "overlap-treatment-wrong"):
        rows, cells = _rows(document, world), []
        for estimator in ENGINE:
            row = rows.get((estimator, "difference", "always", "y"))
            cells.append(f"{row['bias']:+.3f} ± {row['bias_se']:.3f}" if row else "-")
        yield f"| {NAMES[world]} | {' | '.join(cells)} |"


def _goals(document: Mapping[str, Any]) -> Iterator[str]:
    def value(world: str, estimator: str, kind: str, plan: str, what: str = "rmse") -> float | None:
        row = _rows(document, world).get((estimator, kind, plan, "y"))
        return row[what] if row else None

    always = ("difference", "always")
    goals: list[tuple[str, float | None, float | None]] = [
        ("g-computation, linear world, always less never: RMSE", value("linear", "gformula", *always), 0.15),
        ("the same with five noise covariates", value("linear-noise", "gformula", *always), 0.18),
        ("g-computation, binary world", value("binary", "gformula", *always), 0.04),
        ("threshold rule of the linear world, SDR", value("linear", "sdr", "mean", "threshold"), 0.09),
        ("threshold rule of the linear world, g-computation", value("linear", "gformula", "mean", "threshold"), 0.03),
    ]
    for world in ("linear", "binary"):
        for estimator in ("sdr", "tmle"):
            bound = value(world, "known sdr", *always)
            goals.append((f"{estimator.upper()}, {world} world, at or under the hand-written SDR: RMSE",
                          value(world, estimator, *always), bound))  # fmt: skip
    for estimator in ("sdr", "tmle"):
        best, own = value("overlap", "known g-formula", *always), value("overlap", estimator, *always)
        ratio = own / best if own and best else None
        goals.append((f"{estimator.upper()} over the correct g-formula, overlap world, RMSE", ratio, 1.3))
    panel = value("panel", "gformula", *always, "bias")
    goals.append(("EconML's panel, doses, g-computation: bias", abs(panel) if panel is not None else None, 0.05))
    other, seeds = (value("panel", "DynamicDML", *always, of) for of in ("bias", "repetitions"))
    goals.append((f"the same by DynamicDML ({seeds} seeds)", abs(other) if other is not None else None, None))
    covered, seconds = (
        value("panel", "gformula", *always, "coverage"),
        document["worlds"].get("panel", {}).get("seconds", {}),
    )
    goals.append(
        ("the same by g-computation: share of 90 % intervals without the truth", 1 - covered if covered else None, 0.1)
    )
    ratio = seconds["gformula"] / seconds["DynamicDML"] if {"gformula", "DynamicDML"} <= set(seconds) else None
    goals.append(("the same by g-computation: seconds over those of DynamicDML", ratio, 3))
    timing = document.get("timing", {})
    goals.append(("10,000 subjects, 12 steps, 4 plans, all estimators: seconds", timing.get("seconds"), 60))
    goals.append(("the same: processor seconds", timing.get("cpu_s"), None))
    goals.append(("the same: GB", timing.get("peak_gb"), 2))
    yield from ("| goal | measured | at most | |", "|---|---:|---:|---|")
    for text, measured, bound in goals:
        met = ""
        if measured is not None and bound is not None:
            met = "met" if round(measured, 3) <= round(bound, 3) else "**missed**"
        yield f"| {text} | {_number(measured)} | {_number(bound)} | {met} |"


def _coverage(document: Mapping[str, Any]) -> Iterator[str]:
    yield from ("| 90 % intervals where 50 or more effective subjects follow | SDR | TMLE | g-computation | IPW |",
                "|---|---:|---:|---:|---:|")  # fmt: skip
    for world, name in NAMES.items():
        rows = [row for row in _rows(document, world).values() if row["coverage_supported"] is not None]
        cells = []
        for estimator in ("sdr", "tmle", "gformula", "ipw"):
            of = [row for row in rows if row["estimator"] == estimator]
            count = sum(row["supported"] for row in of)
            inside = sum(row["supported"] * row["coverage_supported"] for row in of)
            cells.append(f"{100 * inside / count:.0f} % of {count}" if count else "-")
        if any(cell != "-" for cell in cells):
            yield f"| {name} | {' | '.join(cells)} |"


def _times(document: Mapping[str, Any]) -> Iterator[str]:
    yield from ("| seconds of 1,000 subjects | `gformula` | `sdr` | `tmle` | `ipw` | all at once | DynamicDML |",
                "|---|---:|---:|---:|---:|---:|---:|")  # fmt: skip
    for world, name in NAMES.items():
        seconds = document["worlds"].get(world, {}).get("seconds")
        if seconds:
            cells = [f"{seconds[what]:.1f}" if what in seconds else "-" for what in (*ENGINE, "all", "DynamicDML")]
            yield f"| {name} | {' | '.join(cells)} |"


def _samples(document: Mapping[str, Any]) -> Iterator[str]:
    if not document.get("samples"):
        return
    yield from ("| pygformula's data | plan | its documentation | run here | `gformula` | `sdr` | `tmle` | `ipw` |",
                "|---|---|---:|---:|---:|---:|---:|---:|")  # fmt: skip
    for name, of in document["samples"].items():
        for plan, documented in of["documented"].items():
            cells = []
            for estimator in ENGINE:
                row = next((r for r in of["rows"] if (r["estimator"], r["plan"]) == (estimator, plan)), None)
                limits = "" if row is None or row["lower"] is None else f" ({row['lower']:.3f} to {row['upper']:.3f})"
                cells.append("-" if row is None or row["estimate"] is None else f"{row['estimate']:.3f}{limits}")
            peer = (of["pygformula"] or {}).get(plan)
            numbers = [f"{documented:.3f}", "-" if peer is None else f"{peer:.3f}"]
            yield f"| {' | '.join([name, plan, *numbers, *cells])} |"


PARTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]]] = {
    "errors": _errors, "wrong models": _wrong, "goals": _goals, "coverage": _coverage, "times": _times,
    "samples": _samples,
}  # fmt: skip
