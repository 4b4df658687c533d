"""The closed lists that flags and settings choose from; without pydantic, so that `--help` stays instant."""

from typing import Literal

__all__ = [
    "CategoryName",
    "DeviceName",
    "DomainName",
    "EdgesName",
    "InitName",
    "MethodName",
    "PlansName",
    "PrecisionName",
    "PresetName",
    "SetupName",
    "StepWeights",
]

CategoryName = Literal["FOODS", "HOBBIES", "HOUSEHOLD"]
DeviceName = Literal["auto", "cpu", "cuda"]
DomainName = Literal["source", "target"]
EdgesName = Literal["fixed", "fit"]
InitName = Literal["pretrained", "scratch"]
MethodName = Literal["costar", "msm", "rmsn", "crn", "crn-erm", "gnet", "ct", "ct-erm", "edct", "ridge", "last-value"]
PlansName = Literal["sliding", "random"]
PrecisionName = Literal["float32", "tf32", "bf16", "float64"]
PresetName = Literal["quick", "default", "paper"]
SetupName = Literal["zero-shot", "few-shot", "supervised"]
StepWeights = Literal["uniform", "inverse", "sq_inverse", "first_only"]
