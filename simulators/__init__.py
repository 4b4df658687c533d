"""Simulators with known counterfactuals; numpy and scipy only."""
