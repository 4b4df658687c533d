"""Chronos-2, a forecaster pretrained on time series, with the plan as known future covariates."""
