"""The closed lists that flags and settings choose from; without pydantic, so that `--help` stays instant."""

from typing import Literal

ArchitectureName = Literal["costar", "vt", "vt_relative", "ct"]
CovariatesName = Literal["forecast", "none"]
DecoderName = Literal["non_autoregressive", "stepped", "autoregressive", "autoregressive_one_step", "structured"]
DeviceName = Literal["auto", "cpu", "cuda"]
DomainName = Literal["source", "target"]
FormatName = Literal["parquet", "csv"]
ExportName = Literal["parquet", "csv", "meds"]
InitName = Literal["pretrained", "scratch"]
InputsName = Literal["level", "relative"]
LossName = Literal["squared", "relative_huber"]
OutputName = Literal["level", "increment", "relative"]
PrecisionName = Literal["float32", "tf32", "bf16", "float64"]
PretextName = Literal[
    "contrastive", "masked", "next_step", "contrastive+masked", "contrastive+next_step", "masked+next_step"
]
LearnerName = Literal["auto", "regression", "trees", "super-learner"]
PresetName = Literal["quick", "default", "paper"]
ExperimentName = Literal["costar2023", "ct2022", "hess2024", "clpfn2026"]
ProtocolName = Literal["per-protocol", "intention-to-treat"]
RankingName = Literal["estimate", "upper", "lower"]
ScheduleName = Literal["constant", "cosine"]
SelectionName = Literal["rolling-origin", "rolling-origin-relative", "own-loss"]
SetupName = Literal["zero-shot", "few-shot", "supervised"]
StepWeights = Literal["uniform", "inverse", "sq_inverse", "first_only"]
TreeLibrary = Literal["scikit-learn", "lightgbm"]
