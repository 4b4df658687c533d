"""The closed lists that flags and settings choose from; without pydantic, so that `--help` stays instant."""

from typing import Literal

__all__ = [
    "ArchitectureName",
    "CategoryName",
    "DecoderName",
    "DeviceName",
    "DomainName",
    "EdgesName",
    "FormatName",
    "InitName",
    "PlansName",
    "PrecisionName",
    "PresetName",
    "SelectionName",
    "SetupName",
    "StepWeights",
]

ArchitectureName = Literal["costar", "vt", "vt_relative", "ct"]
CategoryName = Literal["FOODS", "HOBBIES", "HOUSEHOLD"]
DecoderName = Literal["non_autoregressive", "stepped", "autoregressive", "autoregressive_one_step"]
DeviceName = Literal["auto", "cpu", "cuda"]
DomainName = Literal["source", "target"]
EdgesName = Literal["fixed", "fit"]
FormatName = Literal["parquet", "csv"]
InitName = Literal["pretrained", "scratch"]
PlansName = Literal["sliding", "random"]
PrecisionName = Literal["float32", "tf32", "bf16", "float64"]
PresetName = Literal["quick", "default", "paper"]
SelectionName = Literal["rolling-origin", "own-loss"]
SetupName = Literal["zero-shot", "few-shot", "supervised"]
StepWeights = Literal["uniform", "inverse", "sq_inverse", "first_only"]
