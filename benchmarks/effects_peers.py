"""Other packages beside the engine of effects, each run by the interpreter of an environment that has them.

    python benchmarks/effects_peers.py econml DATA.npz          # DynamicDML on arrays Y, T, W, groups
    python benchmarks/effects_peers.py pygformula DIR           # the sample data of a checkout of pygformula

It imports neither costar nor tests, writes one JSON document, and takes its models from each package's documentation.
"""

import contextlib
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

LEVEL = 0.9


def econml(path: Path) -> dict[str, Any]:
    """Return DynamicDML's effect of treating at all periods less none, with the learners of its notebook."""
    from econml.panel.dml import DynamicDML  # noqa: PLC0415
    from sklearn.linear_model import LassoCV, MultiTaskLassoCV  # noqa: PLC0415

    arrays = np.load(path)
    periods, treatments = int(arrays["periods"]), arrays["T"].shape[1]
    treated = LassoCV(cv=3, max_iter=1000) if treatments == 1 else MultiTaskLassoCV(cv=3, max_iter=1000)
    begin = time.perf_counter()
    model = DynamicDML(model_y=LassoCV(cv=3, max_iter=1000), model_t=treated, cv=3, random_state=0)
    model.fit(arrays["Y"], arrays["T"], X=None, W=arrays["W"], groups=arrays["groups"])
    elapsed_s = time.perf_counter() - begin
    no, yes = np.zeros((1, periods * treatments)), np.ones((1, periods * treatments))
    lower, upper = model.effect_interval(T0=no, T1=yes, alpha=1 - LEVEL)
    estimate = float(model.effect(T0=no, T1=yes)[0])
    return {"estimate": estimate, "lower": float(lower[0]), "upper": float(upper[0]), "seconds": elapsed_s}


def pygformula(folder: Path) -> dict[str, Any]:
    """Return pygformula's risks and means under the plans of its running examples, of 10,000 simulated courses."""
    import matplotlib as mpl  # noqa: PLC0415
    import pandas as pd  # noqa: PLC0415

    mpl.use = lambda *_, **__: None  # pygformula asks for a window system
    from pygformula import ParametricGformula  # noqa: PLC0415
    from pygformula.interventions import static, threshold  # noqa: PLC0415

    lagged = "lag_cumavg1_L1 + lag_cumavg1_L2 + L3 + t0"
    basic: dict[str, Any] = {
        "covnames": ["L1", "L2", "A"], "covtypes": ["binary", "bounded normal", "binary"], "basecovs": ["L3"],
        "covmodels": [f"L1 ~ lag1_A + lag2_A + {lagged}", f"L2 ~ lag1_A + L1 + {lagged}",
                      f"A ~ lag1_A + L1 + L2 + {lagged}"],
        "ymodel": "Y ~ L1 + L2 + L3 + A + lag1_A + lag1_L1 + lag1_L2 + t0", "outcome_type": "survival",
    }  # fmt: skip
    continuous: dict[str, Any] = {
        "covnames": ["L1", "L2", "A"], "covtypes": ["categorical", "normal", "binary"], "basecovs": ["L3"],
        "covmodels": ["L1 ~ C(lag1_L1) + lag1_L2 + t0", "L2 ~ lag1_L2 + C(lag1_L1) + lag1_A + t0",
                      "A ~ C(L1) + L2 + t0"],
        "ymodel": "Y ~ C(L1) + L2 + A", "outcome_type": "continuous_eof",
    }  # fmt: skip
    dosed: dict[str, Any] = {
        "covnames": ["L1", "L2", "A"], "covtypes": ["binary", "bounded normal", "normal"],
        "covmodels": ["L1 ~ lag1_L1", "L2 ~ lag1_L1 + lag1_L2 + L1", "A ~ L1 + L2"],
        "ymodel": "Y ~ L1 + L2 + A", "outcome_type": "survival",
    }  # fmt: skip
    competing = {**basic, "ymodel": "Y ~ A + L1 + L2 + L3 + lag1_A + lag1_L1 + lag1_L2", "compevent_name": "D",
                 "compevent_model": "D ~ A + L1 + L2 + L3 + t0"}  # fmt: skip

    def above(new_df: Any, pool: Any, int_var: str, time_name: str, t: int) -> None:  # noqa: ARG001 - its interface
        new_df.loc[new_df[time_name] == t, int_var] = 0
        new_df.loc[new_df["L2"] > 0.75, int_var] = 1

    found: dict[str, Any] = {}
    for name, models, plans in (
        ("basicdata_nocomp", basic, {"never": 0, "always": 1, "L2 > 0.75": above}),
        ("basicdata", competing, {"never": 0, "always": 1}),
        ("continuous_eof", continuous, {"never": 0, "always": 1}),
        ("threshold_data", dosed, {"at least 0.5": [threshold, [0.5, float("inf")]]}),
    ):
        file = "example_threshold_data.csv" if name == "threshold_data" else f"example_data_{name}.csv"
        data = pd.read_csv(folder / "datasets" / file)
        steps = int(data["t0"].max()) + 1
        asked = {
            f"Intervention{i + 1}_A": plan if isinstance(plan, list) else [plan] if callable(plan)
            else [static, np.full(steps, float(plan))]
            for i, plan in enumerate(plans.values())
        }  # fmt: skip
        begin = time.perf_counter()
        fitted = ParametricGformula(
            obs_data=data, id="id", time_name="t0", time_points=steps, outcome_name="Y", int_descript=list(plans),
            **models, **asked,
        )  # fmt: skip
        with contextlib.redirect_stdout(sys.stderr):
            fitted.fit()
        found[name] = {"seconds": time.perf_counter() - begin}
        for plan, risks in zip(("natural", *plans), fitted.g_results, strict=True):
            found[name][plan] = float(np.ravel(risks)[-1])
    return found


def main(arguments: list[str]) -> int:
    """Run one package and print what it says."""
    warnings.simplefilter("ignore")
    package, where = arguments
    print(json.dumps({"econml": econml, "pygformula": pygformula}[package](Path(where)), default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
