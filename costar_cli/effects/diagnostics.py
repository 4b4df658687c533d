"""What shows whether effects can be trusted: who follows plans, weights, balance, and the natural course (EFFECT-14).

`M` trials, `K` decisions, `P` columns of a history.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from costar_cli.diagnostics import Diagnostic
from costar_cli.effects.effects import FEW, Effects
from costar_cli.effects.enrolment import Flow
from costar_cli.effects.estimators import Follow, by_computation, kish, weighted

UNLIKELY: Final = 0.02  # probability of what a plan gives, below which hardly anybody is treated so
MOST_UNLIKELY: Final = 0.05  # share of decisions at which it may be
LARGE: Final = 20.0  # times the mean weight of followers that the largest may be
TINY: Final = 1e-9
LOST: Final = 0.01  # share of trials that may be lost to follow-up without a word

Row = dict[str, Any]


def cautions(effects: Effects, flow: Flow) -> Iterator[Diagnostic]:
    """Yield what a reader of effects should know, the gravest first."""
    steps = max(len(plan) for plan in effects.plans)
    by_plan: dict[str, list[Row]] = {}
    for row in followers(effects):
        by_plan.setdefault(row["plan"], []).append(row)
    for weights, (name, rows) in zip(effects.weights, by_plan.items(), strict=True):
        few = next((row for row in rows if row["effective"] < FEW), None)
        if few is not None:
            count, weigh = f"{few['followers']:,}", f"{few['effective']:.0f}"
            yield Diagnostic.of("effect-few-followers", name, step=few["step"], followers=count, effective=weigh)
        made_MK = effects.trials.decided_MK[:, : len(rows)]
        unlikely = float((weights.likely_MK[made_MK] < UNLIKELY).mean()) if made_MK.any() else 0.0
        if unlikely > MOST_UNLIKELY:
            yield Diagnostic.of("effect-positivity", name, share=f"{100 * unlikely:.0f} %", limit=f"{UNLIKELY:g}")
        times, large = max(((row["largest"] / max(row["mean"], TINY), row) for row in rows), key=lambda one: one[0])
        if times > LARGE:
            times_text = f"{times:.0f}"
            yield Diagnostic.of("effect-weights", name, times=times_text, step=large["step"])
    if not effects.practice.converged:
        yield Diagnostic.of("effect-not-converged")
    for estimates in effects.targets:
        target = estimates.target
        kind = "event" if target.kinds[0] == "event" else "outcome"
        lost = 1 - float(target.kept_MK[:, :steps].all(axis=1).mean())
        if lost > LOST:
            yield Diagnostic.of("effect-lost", f"{kind}s", share=f"{100 * lost:.0f} %", steps=steps)
        if kind == "outcome" and effects.trials.events() is not None:
            yield Diagnostic.of("effect-as-if-no-end", " and ".join(effects.trials.schema.terminal.values()))
        if "gformula" in estimates.curves and estimates.learner.weights["trees"]:
            yield Diagnostic.of("effect-trees", f"{kind}s")
        for q, name in enumerate(target.names):
            if kind == "event" and not target.value_MHQ[..., q].any():
                yield Diagnostic.of("effect-no-event", name, trials=f"{flow.trials:,}", steps=steps)


def followers(effects: Effects) -> Iterator[Row]:
    """Yield a row per plan and step: who follows it until then, and with what weights, raw and cut."""
    estimates = effects.targets[0]
    for plan, follow in zip(effects.plans, estimates.follows, strict=True):
        effective_K = follow.effective(follow.raw_MK)
        for k in range(len(plan)):
            at_M = estimates.target.kept_MK[:, : k + 1].all(axis=1)
            raw_M, cut_M = follow.raw_MK[:, k], follow.weight_MK[:, k]
            follows_M = raw_M > 0
            yield {
                "plan": plan.name,
                "step": k + 1,
                "followed": int(at_M.sum()),
                "followers": int(follows_M.sum()),
                "share": float(follows_M.sum() / max(at_M.sum(), 1)),
                "effective": float(effective_K[k]),
                "mean": float(raw_M.sum() / max(follows_M.sum(), 1)),
                "largest": float(raw_M.max(initial=0.0)),
                "cut_mean": float(cut_M.sum() / max(follows_M.sum(), 1)),
                "cut_largest": float(cut_M.max(initial=0.0)),
                "cut_effective": float(kish(cut_M)),
            }


def balance(effects: Effects) -> Iterator[Row]:
    """Yield a row per plan, step and column of the present: how those who follow differ from those who could have.

    Differences of means are in standard deviations of all trials, before and after weighting (Austin 2009); at step k
    those who followed until then are compared with those of them who follow further.
    """
    estimates, trials = effects.targets[0], effects.trials
    names = trials.column_names
    for plan, follow in zip(effects.plans, estimates.follows, strict=True):
        for k in range(len(plan)):
            at_M = follow.at_MK[:, k]
            before_M = np.where(at_M, follow.raw_MK[:, k - 1] if k else 1.0, 0.0)
            ratio_M = np.where(follow.ratio_MK[:, k] > 0, follow.ratio_MK[:, k], 0.0)
            after_M = before_M * ratio_M
            if not (after_M > 0).any():
                break
            history_MP = trials.history(k)
            for p in trials.present:
                column_M = history_MP[:, p]
                sd = float(column_M[at_M].std()) or 1.0
                plain = column_M[after_M > 0].mean() - column_M[before_M > 0].mean()
                weighted = np.average(column_M, weights=after_M) - np.average(column_M, weights=before_M)
                yield {
                    "plan": plan.name,
                    "step": k + 1,
                    "column": names[p],
                    "before": float(plain / sd),
                    "after": float(weighted / sd),
                    "effective": float(kish(after_M)),
                }


def baseline(effects: Effects, balanced: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    """Yield a row per characteristic at time zero and plan: means and sds of those who follow its first step.

    The rows of everybody, with no plan, stand before those of each plan; shares are means of what is 0 or 1.

    Args:
        effects: whose trials.
        balanced: rows of `balance`, which has the standardised differences from everybody.
    """
    trials, panel, schema = effects.trials, effects.trials.panel, effects.trials.schema
    at = trials.subject_M, trials.row_MK[:, 0]
    statics_MV = panel.statics[trials.subject_M]
    columns = [
        (variable, values_MV[:, i], known_MV[:, i])
        for variables, values_MV, known_MV in (
            (schema.statics, statics_MV, np.ones(statics_MV.shape, dtype=bool)),
            (schema.outcomes, panel.outcomes[at], panel.observed_outcomes[at]),
            (schema.covariates, panel.covariates[at], panel.observed_covariates[at]),
        )
        for i, variable in enumerate(variables)
        if variable.name not in trials.left_out
    ]
    follows = effects.targets[0].follows
    arms = [(plan.name, follow.raw_MK[:, 0] > 0) for plan, follow in zip(effects.plans, follows, strict=True)]
    apart = {(row["plan"], row["column"]): row for row in balanced if row["step"] == 1}
    for variable, value_M, known_M in columns:
        for plan, in_M in [(None, np.ones(len(trials), dtype=bool)), *arms]:
            of = value_M[in_M & follows[0].at_MK[:, 0] & known_M].astype(np.float64)
            differs = apart.get((plan, variable.name), {})
            yield {
                "column": variable.name,
                "unit": variable.unit,
                "plan": plan,
                "trials": int((in_M & follows[0].at_MK[:, 0]).sum()),
                "measured": len(of),
                "share": bool(np.isin(value_M[known_M], (0, 1)).all()),
                "mean": float(of.mean()) if len(of) else None,
                "sd": float(of.std(ddof=1)) if len(of) > 1 else None,
                "before": differs.get("before"),
                "after": differs.get("after"),
            }


def positivity(effects: Effects) -> Iterator[Row]:
    """Yield a row per plan and step: how likely practice was to do what the plan does, in followers until then.

    Where a plan reads the natural treatment that is not known, and None; the largest ratio of plan to practice is.
    """
    for plan, weights, follow in zip(effects.plans, effects.weights, effects.targets[0].follows, strict=True):
        for k in range(len(plan)):
            at_M = follow.at_MK[:, k] & ((follow.raw_MK[:, k - 1] > 0) if k else True)
            likely_M, ratio_M = weights.likely_MK[at_M, k], weights.ratio_MK[at_M, k]
            known = bool(len(likely_M)) and not np.isnan(likely_M).any()
            yield {
                "plan": plan.name,
                "step": k + 1,
                "decisions": int(at_M.sum()),
                "least": float(likely_M.min()) if known else None,
                "low": float(np.quantile(likely_M, 0.05)) if known else None,
                "unlikely": float((likely_M < UNLIKELY).mean()) if known else None,
                "largest_ratio": float(ratio_M.max(initial=0.0)),
            }


def natural_course(effects: Effects) -> Iterator[Row]:
    """Yield a row per quantity and step: what was observed, and what models say of the natural course.

    Beside the mean of those in whom it was measured stand that weighted for loss to follow-up, and g-computation with
    treatments as the model of practice gives them. Where these part from the observed course, a model is wrong (or,
    where many are lost, those who stayed differ).
    """
    own, everybody = effects.practice.own_course(), np.ones((1, len(effects.trials)), dtype=bool)
    for estimates in effects.targets:
        target, chances = estimates.target, (estimates.kept_MK, estimates.measured_MHQ)
        follow = Follow.of(effects.trials, target, own, *chances, truncated=effects.settings.truncated)
        weighted_HQ = weighted(target, follow, everybody).mean_GHQ[0]
        computed = by_computation(effects.trials, target, own, follow, estimates.learner, everybody)
        for q, name in enumerate(target.names):
            for h in range(len(own)):
                value_M = target.value_MHQ[target.measured_MHQ[:, h, q] & (follow.raw_MK[:, h] > 0), h, q]
                if len(value_M):
                    yield {
                        "outcome": name,
                        "step": h + 1,
                        "measured": len(value_M),
                        "observed": float(value_M.mean()),
                        "weighted": float(weighted_HQ[h, q]),
                        "gformula": float(computed.mean_GHQ[0, h, q]),
                    }
