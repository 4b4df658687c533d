"""Gradient boosting of trees on lags and plan."""
