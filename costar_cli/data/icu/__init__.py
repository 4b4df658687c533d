"""ICU stays: outcomes simulated on their covariates, or as observed (docs/spec/icu.md)."""
